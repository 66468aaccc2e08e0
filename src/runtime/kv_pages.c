#include "runtime/kv_pages.h"
#include <stdlib.h>
#include <string.h>

status kv_pages_open(kv_pages *p, i64 n_pages, err *e) {
    *p = (kv_pages){.n_pages = n_pages, .n_free = n_pages};
    p->free_list = malloc((size_t)n_pages * sizeof *p->free_list);
    p->refs = calloc((size_t)n_pages, sizeof *p->refs);
    if (!p->free_list || !p->refs) {
        kv_pages_close(p);
        return err_nomem(e, "the page list", (u64)n_pages * 8);
    }
    for (i64 i = 0; i < n_pages; i++) p->free_list[i] = (i32)(n_pages - 1 - i);
    return ST_OK;
}

void kv_pages_close(kv_pages *p) {
    free(p->free_list);
    free(p->refs);
    memset(p, 0, sizeof *p);
}

i32 kv_pages_take(kv_pages *p) {
    if (p->n_free == 0) return -1;
    i32 page = p->free_list[--p->n_free];
    p->refs[page] = 1;
    return page;
}

void kv_pages_ref(kv_pages *p, i32 page) { p->refs[page]++; }

u32 kv_pages_unref(kv_pages *p, i32 page) {
    u32 left = --p->refs[page];
    if (!left) p->free_list[p->n_free++] = page;
    return left;
}

status kv_pages_check(const kv_pages *p, const u32 *want, err *e) {
    i64 used = 0;
    for (i64 i = 0; i < p->n_pages; i++) {
        used += p->refs[i] != 0;
        if (want && p->refs[i] != want[i])
            return err_set(e, ST_LIMIT, "page %lld counts %u owners and has %u", (long long)i, p->refs[i], want[i]);
    }
    if (used + p->n_free != p->n_pages)
        return err_set(e, ST_LIMIT, "%lld pages used and %lld free of %lld", (long long)used, (long long)p->n_free,
                       (long long)p->n_pages);
    for (i64 i = 0; i < p->n_free; i++)
        if (p->free_list[i] < 0 || p->free_list[i] >= p->n_pages || p->refs[p->free_list[i]])
            return err_set(e, ST_LIMIT, "page %d is in the free list and in use", p->free_list[i]);
    return ST_OK; /* as many free entries as pages without owner, each of them such a page */
}
