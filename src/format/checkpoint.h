/* format/checkpoint.h: a folder of safetensors files as one set of named tensors, mapped and not read.
 *
 * With `model.safetensors.index.json` its weight_map says which shard holds which tensor; without it the
 * folder must hold one `model.safetensors`. Shard names must be plain file names: no index can name a file
 * outside the folder. The entry itself may be a symbolic link (the Hugging Face cache keeps its files that
 * way). Every bound of every header is checked when it is opened: header length, offsets inside the file, no
 * overlaps and no holes, size == shape x dtype, dtype known, names unique, an index entry whose tensor its
 * shard lacks. The index decides: a tensor that lies in a shard without the index placing it there (left over
 * by a conversion, or a copy) is left out and counted in checkpoint_n_unlisted(). Without an index all
 * tensors are taken. Opening costs the headers' parsing only: 0.2-0.4 s for the 208,550 tensors in 64 shards
 * of Kimi-K2.5 (554 GiB), once the headers are in the page cache. Who looks at tensor_info.data gets a signal where a
 * file was shortened since, or cannot be read; checkpoint_read() says so. */
#ifndef FORMAT_CHECKPOINT_H
#define FORMAT_CHECKPOINT_H
#include "base/err.h"
#include "format/safetensors.h"

typedef struct checkpoint checkpoint;

/* Opens the folder. On failure *out is NULL and *e names the file and tensor. End with checkpoint_close(). */
status checkpoint_open(checkpoint **out, const char *dir, err *e);
/* ST_IO names a shard that has been written since the checkpoint was opened. */
status checkpoint_unchanged(const checkpoint *c, err *e);
void checkpoint_close(checkpoint *c);

const tensor_info *checkpoint_find(const checkpoint *c, const char *name); /* NULL when there is none */
u64 checkpoint_n_tensors(const checkpoint *c);
const tensor_info *checkpoint_tensor(const checkpoint *c, u64 i); /* i < n_tensors; sorted by name */
int checkpoint_n_shards(const checkpoint *c);
const char *checkpoint_shard_name(const checkpoint *c, int shard);
/* Bytes [at, at + n) of a tensor's data from its file into `to`; an error names the file and the place in it. Any
 * thread. */
status checkpoint_read(const checkpoint *c, const tensor_info *t, u64 at, u64 n, void *to, err *e);
/* Who reads everything, in an order of its own: the system need not read ahead what may be dropped before its turn. */
void checkpoint_read_exactly(const checkpoint *c);
u64 checkpoint_bytes(const checkpoint *c);      /* of all tensors */
u64 checkpoint_n_unlisted(const checkpoint *c); /* in a shard, but not placed there by the index */

#endif
