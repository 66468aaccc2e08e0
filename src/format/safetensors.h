/* format/safetensors.h: the header of one safetensors file.
 *
 * The file is: 8 bytes little-endian length n, n bytes of JSON (padded with spaces), then the data. The JSON
 * is one object: tensor name -> {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the
 * start of the data, and optionally "__metadata__", an object of strings (the format's description in the
 * safetensors repository of Hugging Face). Tensors must cover the data exactly: no hole, no overlap, no tail.
 *
 * Stricter than the format's own reader in two ways. A tensor's data must be aligned to its element size in
 * the file, since it is used in place: writers have padded the header to a multiple of 8 and ordered tensors
 * by element size since 2022, and a file from before must be saved again. An entry may hold no other keys
 * than the three: one more might change what the bytes mean. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H
#include "base/err.h"
#include "format/dtype.h"

enum { TENSOR_DIMS_MAX = 8 };
#define SAFETENSORS_HEADER_MAX 100000000u /* bytes; the limit of the format's own reader */

typedef struct {
    const char *name; /* owned by what was opened */
    dtype type;
    int n_dims;
    i64 shape[TENSOR_DIMS_MAX];
    u64 bytes;
    const u8 *data; /* in the mapping; aligned to the element size */
    int shard;      /* index for checkpoint_shard_name */
} tensor_info;

typedef struct {
    tensor_info *tensors; /* [n], in the order of their data; shard is 0 */
    u64 n;
    char *header; /* the names point into it */
} safetensors;

/* Reads the header of a whole file [size] in memory or mapped; the tensors point into it. An error names the
 * tensor but not the file. End with safetensors_free(), also after a failure. */
status safetensors_parse(safetensors *s, const u8 *file, u64 size, err *e);
void safetensors_free(safetensors *s);

#endif
