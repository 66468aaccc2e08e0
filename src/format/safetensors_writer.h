/* format/safetensors_writer.h: one safetensors file, written in any order, of tensors that are known beforehand.
 *
 * As the format's own writer has it: the header padded with spaces to a multiple of 8, "format": "pt" in its metadata,
 * the tensors by the size of their elements, largest first, then by name, without holes; so every tensor is aligned to
 * its elements, which the reader asks for (format/safetensors.h). */
#ifndef FORMAT_SAFETENSORS_WRITER_H
#define FORMAT_SAFETENSORS_WRITER_H
#include "base/buf.h"
#include "base/out_file.h"
#include "format/safetensors.h"

typedef struct {
    const char *name;
    dtype type;
    int n_dims;
    i64 shape[TENSOR_DIMS_MAX];
    u64 bytes;
    u64 at; /* in the file; safetensors_layout() sets it */
} tensor_out;

/* Bytes of such a tensor. */
u64 tensor_out_bytes(const tensor_out *t);
/* Gives t[n] their places; the length and the header go to *head, *size is of the whole file. */
status safetensors_layout(tensor_out *t, u64 n, buf *head, u64 *size, err *e);

/* Begins the file at `path` with its header. Data follow with safetensors_put(), all of them, then out_file_finish().
 */
status safetensors_create(out_file *f, const char *path, tensor_out *t, u64 n, err *e);
/* Bytes [at, at + n) of tensor t. */
status safetensors_put(out_file *f, const tensor_out *t, u64 at, const void *bytes, u64 n, err *e);

#endif
