/* model/tables.h: what the ops need to know of a batch: ids, positions, KV slots, lengths, page tables. One block of
 * memory, laid out alike on the host and on the device, so that one copy sends it. */
#ifndef MODEL_TABLES_H
#define MODEL_TABLES_H
#include "model/forward.h"

typedef struct {
    i32 *drawn;        /* [logit_rows]: tokens; never sent, so that the next batch finds them; first */
    i32 *guesses;      /* [guesses]: a draft's; never sent; directly behind, so that ids refer to both alike */
    i32 *bad_logits;   /* [logit_rows]: sent as 0, marks come back */
    i32 *bad;          /* [rows]: the same; directly behind the two, for one copy back */
    i64 *slots;        /* [rows]: page * KV_PAGE + offset of each token's KV row; -1: it is another rank's */
    sample_row *draws; /* [logit_rows] */
    i32 *pos, *ids;    /* [rows] */
    i32 *own;          /* [rows]: its own number, or limits.rows where another rank attends for it */
    i32 *attends;      /* [rows]: the rank that attends for it, where sequences have a rank each */
    i32 *kv_len;       /* [decode_rows]: tokens of those pages that are here */
    i32 *tops, *next;  /* [logit_rows] */
    i32 *out_rows;     /* [logit_rows] */
    kv_pair *copies;   /* [copies]: KV rows */
    i32 *n_copies;     /* [1] */
    /* [decode_rows + prefill_spans, seq_pages]: a row for each token in decode form, the pages that are here by their
     * numbers here; then one for each expanded span, all pages by the pool's numbers, or, where sequences have a rank
     * each, by their numbers there. Last, because seldom all of it is sent. */
    i32 *pages;
} batch_tables;

u64 tables_bytes(const model_limits *l);
u64 tables_results(const model_limits *l, i64 n); /* bytes from `drawn` on that come back of a batch of n tokens */
batch_tables tables_at(const model_limits *l, void *block);

/* ST_LIMIT if the batch exceeds the plan or its spans do not fit together, or as copies_check(). */
status tables_check(const model_limits *l, const model_batch *b, err *e);
/* ST_LIMIT for more copies between KV rows of the pool than the plan allows, or one from a rank's cache to another's,
 * which nobody would make. */
status copies_check(const model_limits *l, const kv_pair *all, i64 n, err *e);
/* Fills t for a batch that was checked. Returns the bytes to send, from t->bad_logits on; *n_abs: tokens in decode
 * form. Ids are taken modulo `ids`: a slice (config.h) has not all of them. */
u64 tables_fill(const model_limits *l, const model_batch *b, i64 ids, batch_tables *t, i64 *n_abs);
/* Of n copies between KV rows of the pool those that this rank makes, by its own numbers: to [n]. Returns how many. */
i64 tables_own_copies(const model_limits *l, const kv_pair *all, i64 n, kv_pair *to);

#endif
