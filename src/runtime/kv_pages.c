#include "runtime/kv_pages.h"
#include <stdlib.h>
#include <string.h>

/* Where the free pages of a share begin in the list. */
static i64 share_base(const kv_pages *p, i64 share) {
    return share * (p->n_pages / p->shares) + min_i64(share, p->n_pages % p->shares);
}

static void put_free(kv_pages *p, i32 page) {
    const i64 share = page % p->shares;
    p->free_list[share_base(p, share) + p->n_free_of[share]++] = page;
    p->n_free++;
}

status kv_pages_open(kv_pages *p, i64 n_pages, i64 shares, err *e) {
    *p = (kv_pages){.n_pages = n_pages, .shares = shares};
    p->free_list = malloc((size_t)n_pages * sizeof *p->free_list);
    p->refs = calloc((size_t)n_pages, sizeof *p->refs);
    if (!p->free_list || !p->refs) {
        kv_pages_close(p);
        return err_nomem(e, "the page list", (u64)n_pages * 8);
    }
    for (i64 page = n_pages; page-- > 0;) put_free(p, (i32)page);
    return ST_OK;
}

void kv_pages_close(kv_pages *p) {
    free(p->free_list);
    free(p->refs);
    memset(p, 0, sizeof *p);
}

i32 kv_pages_take(kv_pages *p, i32 after) {
    i64 share = (after + !p->by_sequence) % p->shares;
    if (p->n_free == 0) return -1;
    if (p->by_sequence && after >= 0 && !p->n_free_of[share]) return -1;
    if (after < 0 || !p->n_free_of[share])
        for (i64 s = share = 0; s < p->shares; s++)
            if (p->n_free_of[s] > p->n_free_of[share]) share = s;
    i32 page = p->free_list[share_base(p, share) + --p->n_free_of[share]];
    p->n_free--;
    p->refs[page] = 1;
    return page;
}

void kv_pages_ref(kv_pages *p, i32 page) { p->refs[page]++; }

u32 kv_pages_unref(kv_pages *p, i32 page) {
    u32 left = --p->refs[page];
    if (!left) put_free(p, page);
    return left;
}

status kv_pages_check(const kv_pages *p, const u32 *want, err *e) {
    i64 used = 0, listed = 0;
    for (i64 i = 0; i < p->n_pages; i++) {
        used += p->refs[i] != 0;
        if (want && p->refs[i] != want[i])
            return err_set(e, ST_LIMIT, "page %lld counts %u owners and has %u", (long long)i, p->refs[i], want[i]);
    }
    if (used + p->n_free != p->n_pages)
        return err_set(e, ST_LIMIT, "%lld pages used and %lld free of %lld", (long long)used, (long long)p->n_free,
                       (long long)p->n_pages);
    for (i64 share = 0; share < p->shares; share++) {
        const i32 *list = p->free_list + share_base(p, share);
        listed += p->n_free_of[share];
        for (i64 i = 0; i < p->n_free_of[share]; i++)
            if (list[i] < 0 || list[i] >= p->n_pages || list[i] % p->shares != share || p->refs[list[i]])
                return err_set(e, ST_LIMIT, "page %d is in the free list of share %lld, and in use or another's",
                               list[i], (long long)share);
    }
    if (listed != p->n_free)
        return err_set(e, ST_LIMIT, "%lld pages are listed as free, not %lld", (long long)listed, (long long)p->n_free);
    return ST_OK; /* as many free entries as pages without owner, each of them such a page */
}
