#include "runtime/radix.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

status radix_open(radix *r, kv_pages *pages, err *e) {
    *r = (radix){.pages = pages, .seed = 0x9e3779b97f4a7c15u};
    for (i64 l = 0; l < KV_SHARES_MAX; l++) r->newest[l] = r->oldest[l] = -1;
    u64 buckets = 64;
    while (buckets < (u64)pages->n_pages) buckets *= 2;
    r->bucket_mask = buckets - 1;
    r->nodes = calloc((size_t)pages->n_pages, sizeof *r->nodes);
    r->buckets = malloc(buckets * sizeof *r->buckets);
    if (!r->nodes || !r->buckets) {
        free(r->nodes);
        free(r->buckets);
        *r = (radix){0};
        return err_nomem(e, "the prefix tree", (u64)pages->n_pages * sizeof *r->nodes + buckets * 4);
    }
    memset(r->buckets, 0xff, buckets * sizeof *r->buckets);
    /* So that nobody can make many prefixes fall into one bucket; without it the tree works as well. */
    if (getrandom(&r->seed, sizeof r->seed, GRND_NONBLOCK) != sizeof r->seed) r->seed = (u64)(uintptr_t)r->nodes;
    return ST_OK;
}

void radix_close(radix *r) {
    if (!r->nodes) return;
    radix_flush(r);
    free(r->nodes);
    free(r->buckets);
    *r = (radix){0};
}

/* Token i of a span: no id, and four of them tell any two keys apart. */
static i32 span_token(u64 key, i64 i) {
    u64 h = (key ^ (u64)i * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 31) * 0x94d049bb133111ebu;
    return (i32)(h >> 33) | INT32_MIN;
}

const i32 *radix_page(const radix_tokens *t, i64 page, i32 room[KV_PAGE]) {
    const i64 begin = page * KV_PAGE, end = begin + KV_PAGE;
    const i32 *out = t->ids + begin;
    for (i64 k = 0; k < t->n_spans && t->spans[k].first < end; k++) {
        const radix_span *s = &t->spans[k];
        const i64 from = max_i64(s->first, begin), to = min_i64(s->first + s->n, end);
        if (from >= to) continue;
        if (out != room) out = memcpy(room, out, KV_PAGE * sizeof *room);
        for (i64 i = from; i < to; i++) room[i - begin] = span_token(s->key, i - s->first);
    }
    return out;
}

static u64 radix_bucket_of(const radix *r, i32 parent, u64 space, const i32 *tokens) {
    u64 h = r->seed ^ (u64)(u32)parent * 0xbf58476d1ce4e5b9u ^ space, w;
    for (int i = 0; i < KV_PAGE; i += 2) {
        memcpy(&w, tokens + i, sizeof w);
        h = (h ^ w) * 0x9fb21c651e98df25u;
        h ^= h >> 29;
    }
    return (h ^ h >> 32) & r->bucket_mask;
}

/* The child of `parent` under these tokens, -1 when there is none. */
static i32 child(const radix *r, i32 parent, u64 space, const i32 *tokens) {
    for (i32 i = r->buckets[radix_bucket_of(r, parent, space, tokens)]; i >= 0; i = r->nodes[i].hash_next) {
        const radix_node *x = &r->nodes[i];
        if (x->parent == parent && x->space == space && !memcmp(x->tokens, tokens, sizeof x->tokens)) return i;
    }
    return -1;
}

/* Where sequences have a share each, each share has a list of its idle pages, so that one of a share is found without
 * a look at the others'; else all are in one. */
static i64 idle_list_of(const radix *r, i64 share) { return r->pages->by_sequence ? share : 0; }
static i64 radix_share_of(const radix *r, i32 page) { return page % r->pages->shares; }

static void idle_add(radix *r, i32 i) {
    radix_node *x = &r->nodes[i];
    const i64 l = idle_list_of(r, radix_share_of(r, i));
    x->lru_prev = -1;
    x->lru_next = r->newest[l];
    if (r->newest[l] >= 0) r->nodes[r->newest[l]].lru_prev = i;
    r->newest[l] = i;
    if (r->oldest[l] < 0) r->oldest[l] = i;
    r->n_idle++;
    r->n_idle_of[l]++;
}

static void idle_remove(radix *r, i32 i) {
    radix_node *x = &r->nodes[i];
    const i64 l = idle_list_of(r, radix_share_of(r, i));
    *(x->lru_prev >= 0 ? &r->nodes[x->lru_prev].lru_next : &r->newest[l]) = x->lru_next;
    *(x->lru_next >= 0 ? &r->nodes[x->lru_next].lru_prev : &r->oldest[l]) = x->lru_prev;
    r->n_idle--;
    r->n_idle_of[l]--;
}

/* A node that has been in the tree all the time since has all of its ancestors still: only leaves are dropped. */
static bool still_there(const radix *r, i32 page, u64 since) {
    return r->nodes[page].in_tree && r->nodes[page].added <= since;
}

/* Where sequences have a share each, each share has a tree: namespaces of its own. */
static u64 space_in(const radix *r, u64 space, i64 share) {
    return r->pages->by_sequence ? space ^ (u64)(share + 1) * 0xd6e8feb86659fd93u : space;
}

/* The share whose tree has most of ids' pages, of those that are looked for. */
static i64 longest_tree(const radix *r, u64 space, const radix_tokens *ids, i64 max_pages, i64 *lookups) {
    i32 room[KV_PAGE];
    i64 best = 0, most = 0;
    for (i64 share = 0; share < r->pages->shares; share++) {
        i64 n = 0;
        for (i32 at = -1; n<max_pages && * lookups> 0; n++) {
            --*lookups;
            if ((at = child(r, at, space_in(r, space, share), radix_page(ids, n, room))) < 0) break;
        }
        if (n > most) most = n, best = share;
    }
    return best;
}

i64 radix_follow(const radix *r, u64 space, const radix_tokens *ids, i64 max_pages, i32 *pages, radix_path *p,
                 i64 *lookups) {
    i32 room[KV_PAGE];
    if (p->as_of != r->changes) {
        while (p->n && !still_there(r, pages[p->n - 1], p->as_of)) p->n--;
        p->as_of = r->changes;
        p->ends = false;
    }
    i64 share = p->n ? radix_share_of(r, pages[0]) : 0;
    if (!p->n && !p->ends && r->pages->by_sequence) share = longest_tree(r, space, ids, max_pages, lookups);
    while (!p->ends && p->n<max_pages && * lookups> 0) {
        --*lookups;
        i32 next = child(r, p->n ? pages[p->n - 1] : -1, space_in(r, space, share), radix_page(ids, p->n, room));
        p->ends = next < 0;
        if (next >= 0) pages[p->n++] = next;
    }
    return min_i64(p->n, max_pages);
}

static void add_node(radix *r, u64 space, i32 parent, const i32 *tokens, i32 page) {
    radix_node *x = &r->nodes[page];
    u64 b = radix_bucket_of(r, parent, space, tokens);
    *x = (radix_node){.space = space,
                      .parent = parent,
                      .hash_next = r->buckets[b],
                      .lru_prev = -1,
                      .lru_next = -1,
                      .added = ++r->changes,
                      .in_tree = true};
    memcpy(x->tokens, tokens, sizeof x->tokens);
    r->buckets[b] = page;
    if (parent >= 0) r->nodes[parent].n_children++;
    kv_pages_ref(r->pages, page);
    r->n_nodes++;
}

void radix_insert(radix *r, u64 space, const radix_tokens *ids, const i32 *pages, i64 n) {
    i32 room[KV_PAGE];
    if (n) space = space_in(r, space, radix_share_of(r, pages[0]));
    /* A page of the sequence that is in the tree stands at the end of the sequence's own beginning. */
    i64 from = n;
    while (from > 0 && !r->nodes[pages[from - 1]].in_tree) from--;
    i32 at = from ? pages[from - 1] : -1;
    for (i64 i = from; i < n; i++) {
        const i32 *page = radix_page(ids, i, room);
        i32 next = child(r, at, space, page);
        if (next < 0) add_node(r, space, at, page, next = pages[i]);
        at = next;
    }
}

/* Takes an idle leaf out of the tree; its page becomes free. */
static void radix_drop(radix *r, i32 page) {
    radix_node *x = &r->nodes[page];
    i32 *link = &r->buckets[radix_bucket_of(r, x->parent, x->space, x->tokens)];
    while (*link != page) link = &r->nodes[*link].hash_next;
    *link = x->hash_next;
    if (x->parent >= 0) r->nodes[x->parent].n_children--;
    idle_remove(r, page);
    x->in_tree = false;
    r->changes++;
    r->n_nodes--;
    kv_pages_unref(r->pages, page);
}

/* Drops the oldest idle leaf of a list. Parents are used after their children, so the oldest idle page is a leaf,
 * unless a sequence holds a child of it while it owns an equal page itself. */
static bool evict(radix *r, i64 list) {
    i32 i = r->oldest[list];
    while (i >= 0 && r->nodes[i].n_children) i = r->nodes[i].lru_prev;
    if (i < 0) return false;
    radix_drop(r, i);
    r->n_evicted++;
    return true;
}

/* Brings the page that is wanted behind `after` nearer; false: there is none to be had. */
static bool evict_for(radix *r, i32 after) {
    if (after >= 0) return evict(r, idle_list_of(r, radix_share_of(r, after)));
    for (i64 l = 0; l < r->pages->shares; l++)
        if (evict(r, l)) return true;
    return false;
}

i32 radix_take(radix *r, i32 after) {
    i32 page = kv_pages_take(r->pages, after);
    while (page < 0 && evict_for(r, after)) page = kv_pages_take(r->pages, after);
    return page;
}

i32 radix_begin(const radix *r) {
    const kv_pages *p = r->pages;
    i64 best = 0;
    for (i64 s = 1; s < p->shares; s++)
        if (p->n_free_of[s] + r->n_idle_of[s] > p->n_free_of[best] + r->n_idle_of[best]) best = s;
    return p->by_sequence ? (i32)best : -1;
}

i64 radix_available(const radix *r, i32 after) {
    const i64 share = radix_share_of(r, after);
    if (r->pages->by_sequence && after >= 0) return r->pages->n_free_of[share] + r->n_idle_of[share];
    return r->pages->n_free + r->n_idle;
}

void radix_hold(radix *r, const i32 *pages, i64 n) {
    for (i64 i = 0; i < n; i++) {
        if (r->nodes[pages[i]].in_tree && r->pages->refs[pages[i]] == 1) idle_remove(r, pages[i]);
        kv_pages_ref(r->pages, pages[i]);
    }
}

void radix_release(radix *r, const i32 *pages, i64 n) {
    while (n-- > 0)
        if (kv_pages_unref(r->pages, pages[n]) == 1 && r->nodes[pages[n]].in_tree) idle_add(r, pages[n]);
}

void radix_touch(radix *r, i32 page) {
    for (; page >= 0; page = r->nodes[page].parent)
        if (r->pages->refs[page] == 1) idle_remove(r, page), idle_add(r, page);
}

static void flush_list(radix *r, i64 list) {
    for (bool again = true; again;) {
        again = false;
        for (i32 i = r->oldest[list], next; i >= 0; i = next) {
            next = r->nodes[i].lru_prev;
            if (r->nodes[i].n_children) continue;
            radix_drop(r, i);
            again = true;
        }
    }
}

void radix_flush(radix *r) {
    for (i64 l = 0; l < r->pages->shares; l++) flush_list(r, l);
}

static status check_list(const radix *r, i64 list, err *e) {
    i64 n = 0;
    for (i32 i = r->newest[list], prev = -1; i >= 0; prev = i, i = r->nodes[i].lru_next, n++)
        if (n > r->n_idle || !r->nodes[i].in_tree || r->pages->refs[i] != 1 || r->nodes[i].lru_prev != prev ||
            idle_list_of(r, radix_share_of(r, i)) != list || (r->nodes[i].lru_next < 0 && r->oldest[list] != i))
            return err_set(e, ST_LIMIT, "page %d has no place in the list of idle pages", i);
    return n == r->n_idle_of[list] ? ST_OK
                                   : err_set(e, ST_LIMIT, "%lld idle pages listed, %lld counted", (long long)n,
                                             (long long)r->n_idle_of[list]);
}

status radix_check(const radix *r, u32 *held, err *e) {
    i64 n = 0, idle = 0, children = 0, below_root = 0;
    for (i32 i = 0; i < r->pages->n_pages; i++) {
        const radix_node *x = &r->nodes[i];
        if (!x->in_tree) continue;
        n++;
        idle += held[i] == 0;
        held[i]++;
        children += x->n_children;
        below_root += x->parent < 0;
        if (x->parent >= 0 && (!r->nodes[x->parent].in_tree || r->nodes[x->parent].space != x->space))
            return err_set(e, ST_LIMIT, "the parent %d of page %d is not in the tree", x->parent, i);
        if (child(r, x->parent, x->space, x->tokens) != i)
            return err_set(e, ST_LIMIT, "page %d is not found from its parent %d", i, x->parent);
    }
    if (n != r->n_nodes || idle != r->n_idle || children + below_root != n)
        return err_set(e, ST_LIMIT, "%lld pages in the tree (%lld counted), %lld idle (%lld), %lld children",
                       (long long)n, (long long)r->n_nodes, (long long)idle, (long long)r->n_idle, (long long)children);
    status st = ST_OK;
    for (i64 l = 0; st == ST_OK && l < r->pages->shares; l++) st = check_list(r, l, e);
    return st == ST_OK ? kv_pages_check(r->pages, held, e) : st;
}
