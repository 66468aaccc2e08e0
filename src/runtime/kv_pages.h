/* runtime/kv_pages.h: how often each page of the KV pool is in use.
 *
 * Where ranks divide the pool, page p lies on rank p % shares (kernels/context_parallel.h). A step takes as long as
 * the rank that has most of its tokens, so a sequence's pages go round the ranks as long as each has free ones. */
#ifndef RUNTIME_KV_PAGES_H
#define RUNTIME_KV_PAGES_H
#include "base/err.h"

enum { KV_SHARES_MAX = 64 };
typedef struct {
    i32 *free_list; /* [n_pages]: room for each share's, of which the last n_free_of[share] are taken first */
    u32 *refs;      /* [n_pages]: owners; 0: free */
    i64 n_pages, n_free, shares, n_free_of[KV_SHARES_MAX];
    bool by_sequence; /* a sequence's pages are of one share; set behind kv_pages_open() */
} kv_pages;

/* shares: ranks that divide the pool, 1 to KV_SHARES_MAX. */
status kv_pages_open(kv_pages *p, i64 n_pages, i64 shares, err *e);
void kv_pages_close(kv_pages *p);
/* A page with one owner; -1 when none is free. after: the page before it in its sequence, -1 for the first. It is of
 * the next share, or, without that, of the one with most free pages; by_sequence: of the same share, or none. */
i32 kv_pages_take(kv_pages *p, i32 after);
void kv_pages_ref(kv_pages *p, i32 page);
u32 kv_pages_unref(kv_pages *p, i32 page); /* owners left; without any the page is free */
/* Proves the invariants: every page either has owners or is in the free list, once. `want` [n_pages], unless NULL,
 * is how many owners each page should have. */
status kv_pages_check(const kv_pages *p, const u32 *want, err *e);

#endif
