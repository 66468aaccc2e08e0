/* runtime/kv_pages.h: how often each page of the KV pool is in use. */
#ifndef RUNTIME_KV_PAGES_H
#define RUNTIME_KV_PAGES_H
#include "base/err.h"

typedef struct {
    i32 *free_list; /* [n_pages], the last n_free pages taken first */
    u32 *refs;      /* [n_pages]: owners; 0: free */
    i64 n_pages, n_free;
} kv_pages;

status kv_pages_open(kv_pages *p, i64 n_pages, err *e);
void kv_pages_close(kv_pages *p);
i32 kv_pages_take(kv_pages *p); /* with one owner; -1 when none is free */
void kv_pages_ref(kv_pages *p, i32 page);
u32 kv_pages_unref(kv_pages *p, i32 page); /* owners left; without any the page is free */
/* Proves the invariants: every page either has owners or is in the free list, once. `want` [n_pages], unless NULL,
 * is how many owners each page should have. */
status kv_pages_check(const kv_pages *p, const u32 *want, err *e);

#endif
