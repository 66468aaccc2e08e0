/* kernels/context_parallel.h: the seams of fused.h for ranks that each hold a share of the KV cache's pages, beside
 * their share of the heads (decode context parallelism).
 *
 * With latent attention every head reads the same KV rows, so ranks that divide heads alone would each hold, and read,
 * all of them. Here a page of the pool lies on one rank. In decode form each rank scores the queries of all heads
 * against its own pages and gets, of each head, a softmax over these: the ranks exchange queries before it, and its
 * parts behind it. Of the heads that are a rank's the parts become one in the order of the ranks:
 * out = sum_r w_r out_r / sum_r w_r, w_r = exp(lse_r - max lse). In expanded form, where a row's arithmetic is much
 * more than its bytes, ranks collect a sequence's pages instead. */
#ifndef KERNELS_CONTEXT_PARALLEL_H
#define KERNELS_CONTEXT_PARALLEL_H
#include "kernels/tensor_parallel.h"

/* Where a page lies: the pool's pages are dealt out one by one. */
typedef struct {
    i64 ranks, rank;  /* ranks is 0 or 1: all pages are here */
    i64 there;        /* ranks that there are: of a slice fewer; where by_sequence */
    bool by_sequence; /* a sequence's pages are all one rank's, which attends for it (data-parallel attention) */
} kv_share;
static inline bool kv_is_shared(kv_share s) { return s.ranks > 1; }
/* Do ranks attend in parts, or collect pages? */
static inline bool kv_is_merged(kv_share s) { return s.ranks > 1 && !s.by_sequence; }
static inline i64 kv_owner(kv_share s, i32 page) { return s.ranks > 1 ? page % s.ranks : s.rank; }
/* The rank that attends for a sequence; in the place of one that a slice has not, one that is there, without tokens. */
static inline i64 kv_attends(kv_share s, i32 page) { return s.by_sequence ? kv_owner(s, page) % s.there : s.rank; }
static inline i32 kv_local_page(kv_share s, i32 page) { return s.ranks > 1 ? page / (i32)s.ranks : page; }
/* Of a pool of so many, most that one rank has. */
static inline i64 kv_local_pages(kv_share s, i64 pages) { return s.ranks > 1 ? ceil_div(pages, s.ranks) : pages; }

/* Adds them to those of tensor_parallel_seams(), whose comm they use; for ranks of the host. GPUs:
 * backend_context_parallel(). */
void context_parallel_seams(rank_seams *s);

#endif
