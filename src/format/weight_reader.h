/* format/weight_reader.h: a checkpoint's tensors brought to host memory once, for all ranks that need them.
 *
 * A few threads read a list of tensors from its files, in the list's order, into a window of bounded size. All ranks
 * go over the list together: each takes every tensor of it, in order, and says when it needs what it has taken no more;
 * memory is used again once all ranks have said so. So a rank can be ahead of another by the window alone, and whatever
 * the page cache holds, the files are read once: the reader asks for every byte once and counts what it asked for.
 *
 * take() waits, but not for ever: when neither the disk nor any rank has moved for deadline_s, all fail, and the error
 * names what is waited for. Nor can a small window stop them: a tensor that has no room there gets memory of its own as
 * soon as all ranks wait for it. */
#ifndef FORMAT_WEIGHT_READER_H
#define FORMAT_WEIGHT_READER_H
#include "format/checkpoint.h"

typedef struct weight_reader weight_reader;

typedef struct {
    u64 bytes;   /* read from the files */
    u64 needed;  /* of the list's tensors, each once */
    u64 memory;  /* the most that they took at a time */
    f64 seconds; /* from open() to the last byte */
} weight_reads;

enum { READER_RANKS_MAX = 64 };

/* Begins to read list [n], in which a tensor may stand several times, for so many ranks. window: bytes; 0: a sixteenth
 * of them all, between 32 MiB and 512 MiB. The list is copied; the checkpoint must outlive the reader. End with
 * close(), which no rank may run beside, and which waits for reads that have begun. */
status weight_reader_open(weight_reader **out, const checkpoint *ck, const tensor_info *const *list, u64 n, i64 ranks,
                          u64 window, f64 deadline_s, err *e);
void weight_reader_close(weight_reader *r); /* NULL is allowed */
/* The ranks are `first` and those behind it; without this from 0 on. Before any takes. */
void weight_reader_first_rank(weight_reader *r, i64 first);

/* For rank's thread. The data of t, the next of the list that this rank has not taken, until it gives back; alignment:
 * 64 bytes. ST_IO names file and offset; ST_CANCELLED: cancel() was called; ST_INPUT: t is not the next. */
status weight_reader_take(weight_reader *r, i64 rank, const tensor_info *t, const void **data, err *e);
/* Of all that this rank has taken so far. */
void weight_reader_give_back(weight_reader *r, i64 rank);

/* A rank has failed elsewhere: whoever waits need not. Any thread. */
void weight_reader_cancel(weight_reader *r);

/* Of all shards. */
weight_reads weight_reader_reads(weight_reader *r);
/* Bytes read from this one. */
u64 weight_reader_shard_bytes(weight_reader *r, int shard);

#endif
