#include "runtime/host_cache.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/engine_internal.h"
#include "runtime/engine_kv.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Each waits for the device, then for memory; four bring 18 GB/s to an H200. */
enum {
    THREADS = 4,
    WORTH_LOADING = 2, /* pages: a step that computes them takes longer */
    SAVED_AT_ONCE = 64 /* pages that are held together */
};

struct host_copy {
    host_cache *of;
    bool save;
    host_range range;
    i32 *places;      /* [n - from], held */
    const i32 *pages; /* [n] */
    host_copy_fn done;
    void *ud;
    host_copy *behind; /* what follows it, of the same sequence */
    host_copy *listed; /* the cache's list of all */
    /* under the cache's lock */
    host_copy *after;
    i64 next, left; /* the page that is copied next; those that have not been */
    err why;
};

typedef struct {
    host_cache *of;
    kv_mover *mover;
    pthread_t thread;
} copier;

struct host_cache {
    u8 *memory; /* [places, page_bytes] */
    u64 page_bytes, bytes;
    kv_pages places;
    radix tree;
    host_copy *copies; /* all that were made and have not ended */
    u32 *held;         /* [places]: host_cache_check() */
    bool *blank;       /* [places]: known, but its page is not there yet, or could not be copied */
    i32 *path;         /* [places]: room for those of a sequence */
    host_cache_stats stats;
    copier copiers[THREADS];
    int n_movers, n_threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    host_copy *loads, *saves; /* with pages that nobody copies yet, in order */
    bool saves_first, closing;
};

/* ---- Threads ---- */

/* A page of h's, between the pool and its place. */
static status copy_page(copier *k, const host_copy *h, i64 p, err *e) {
    u8 *const place = k->of->memory + (u64)h->places[p - h->range.from] * k->of->page_bytes,
              *page = kv_mover_page(k->mover);
    if (!h->save) {
        memcpy(page, place, k->of->page_bytes);
        return kv_mover_write(k->mover, h->pages[p], e);
    }
    const status st = kv_mover_read(k->mover, h->pages[p], e);
    if (st == ST_OK) memcpy(place, page, k->of->page_bytes);
    return st;
}

/* The next page to be copied, of who waits first; with the lock. */
static host_copy *take_page(host_cache *c, i64 *p) {
    host_copy **first = c->loads && !(c->saves && c->saves_first) ? &c->loads : &c->saves, *h = *first;
    if (!h) return NULL;
    *p = h->next++;
    if (h->next == h->range.n) *first = h->after;
    return h;
}

static void *copier_thread(void *ud) {
    copier *k = ud;
    host_cache *c = k->of;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        i64 p = 0;
        host_copy *h = take_page(c, &p);
        if (!h) {
            pthread_cond_wait(&c->wake, &c->lock);
            continue;
        }
        err e = {0};
        pthread_mutex_unlock(&c->lock);
        const status st = copy_page(k, h, p, &e);
        pthread_mutex_lock(&c->lock);
        if (st != ST_OK && h->why.code == ST_OK) h->why = e;
        if (--h->left) continue;
        pthread_mutex_unlock(&c->lock);
        h->done(h->ud, h->why.code == ST_OK ? NULL : &h->why); /* h may be gone by now */
        pthread_mutex_lock(&c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static status start_copiers(host_cache *c, engine *g, err *e) {
    status st = ST_OK;
    for (; c->n_movers < THREADS; c->n_movers++) {
        c->copiers[c->n_movers].of = c;
        st = kv_mover_open(&c->copiers[c->n_movers].mover, g, e);
        if (st != ST_OK) return st;
    }
    while (st == ST_OK && c->n_threads < THREADS) {
        copier *k = &c->copiers[c->n_threads];
        st = thread_start(&k->thread, "host-cache", copier_thread, k, e);
        c->n_threads += st == ST_OK;
    }
    return st;
}

/* ---- Open and close ---- */

status host_cache_fits(u64 bytes, err *e) {
    device *host = device_host();
    const u64 there = host->available(host);
    if (!there || bytes <= there) return ST_OK;
    return err_set(e, ST_NOMEM, "a host cache of %.1f GB (--hicache-size): the host has %.1f GB of memory left",
                   (f64)bytes / 1e9, (f64)there / 1e9);
}

/* Pages of memory are taken as they are first written. */
static status take_memory(host_cache *c, u64 bytes, err *e) {
    const u64 n = bytes / c->page_bytes;
    if (n < 1 || n > INT32_MAX)
        return err_set(e, ST_INPUT, "a host cache of %.3f GB: from one page of %.3f MB to 2^31 of them are possible",
                       (f64)bytes / 1e9, (f64)c->page_bytes / 1e6);
    status st = host_cache_fits(bytes, e);
    if (st != ST_OK) return st;
    c->bytes = n * c->page_bytes;
    void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return err_nomem(e, "the host cache", c->bytes);
    c->memory = p;
    madvise(p, c->bytes, MADV_HUGEPAGE); /* as well without */
    c->stats.places = (i64)n;
    c->held = calloc(n, sizeof *c->held);
    c->blank = calloc(n, sizeof *c->blank);
    c->path = calloc(n, sizeof *c->path);
    if (!c->held || !c->blank || !c->path) return err_nomem(e, "the host cache", n * sizeof *c->held);
    st = kv_pages_open(&c->places, (i64)n, 1, e);
    return st == ST_OK ? radix_open(&c->tree, &c->places, e) : st;
}

status host_cache_open(host_cache **out, engine *g, u64 bytes, f64 ratio, err *e) {
    *out = NULL;
    status st = engine_kv_check(g, "--hicache-size", e);
    if (st != ST_OK) return st;
    host_cache *c = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "the host cache", sizeof *c);
    c->page_bytes = engine_kv_page_bytes(g);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    if (!bytes) bytes = (u64)(ratio * (f64)g->lim.pool_pages * (f64)c->page_bytes);
    st = take_memory(c, bytes, e);
    if (st == ST_OK) st = start_copiers(c, g, e);
    if (st == ST_OK) {
        log_note("host cache: room for %lld tokens in %.3g GB of the host's memory",
                 (long long)(c->stats.places * KV_PAGE), (f64)c->bytes / 1e9);
        return *out = c, ST_OK;
    }
    host_cache_stop(c);
    host_cache_close(c);
    return st;
}

void host_cache_stop(host_cache *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    while (c->n_threads) pthread_join(c->copiers[--c->n_threads].thread, NULL);
}

void host_cache_close(host_cache *c) {
    if (!c) return;
    while (c->n_movers) kv_mover_close(c->copiers[--c->n_movers].mover);
    radix_close(&c->tree);
    kv_pages_close(&c->places);
    if (c->memory) munmap(c->memory, c->bytes);
    free(c->held);
    free(c->blank);
    free(c->path);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    free(c);
}

host_cache_stats host_cache_counts(const host_cache *c) {
    host_cache_stats s = c->stats;
    s.held = c->tree.n_nodes;
    s.evicted = c->tree.n_evicted;
    return s;
}

void host_cache_flush(host_cache *c) { radix_flush(&c->tree); }

/* ---- Copies ---- */

/* Of places [from, n) of the path, which it holds; NULL without memory: then they are computed, or not saved. */
static host_copy *copy_new(host_cache *c, bool save, i64 from, i64 n) {
    host_copy *h = calloc(1, sizeof *h + (size_t)(n - from) * sizeof *h->places);
    if (!h) return NULL;
    h->of = c;
    h->save = save;
    h->range = (host_range){from, n};
    h->places = (i32 *)(h + 1);
    memcpy(h->places, c->path + from, (size_t)(n - from) * sizeof *h->places);
    radix_hold(&c->tree, h->places, n - from);
    h->listed = c->copies;
    c->copies = h;
    return h;
}

/* The places of a sequence's beginning, at most as many as there are. */
static i64 find_path(host_cache *c, u64 space, const radix_tokens *t, i64 most) {
    radix_path path = {0};
    i64 all = INT64_MAX;
    return radix_follow(&c->tree, space, t, min_i64(most, c->places.n_pages), c->path, &path, &all);
}

host_copy *host_cache_load(host_cache *c, u64 space, const radix_tokens *t, i64 from, i64 most) {
    if (most - from < WORTH_LOADING) return NULL;
    const i64 known = find_path(c, space, t, most);
    i64 n = from;
    while (n < known && !c->blank[c->path[n]]) n++;
    return n - from < WORTH_LOADING ? NULL : copy_new(c, false, from, n);
}

/* Takes places for pages [known, n), as many as there are; they are blank, and held. */
static i64 take_blanks(host_cache *c, i64 known, i64 n) {
    i64 end = known;
    for (; end < n && (c->path[end] = radix_take(&c->tree, -1)) >= 0; end++) c->blank[c->path[end]] = true;
    return end;
}

host_copy *host_cache_save(host_cache *c, u64 space, const radix_tokens *t, i64 n, i64 most) {
    host_copy *first = NULL, **behind = &first;
    const i64 known = find_path(c, space, t, n);
    radix_hold(&c->tree, c->path, known);
    const i64 end = take_blanks(c, known, min_i64(n, min_i64(known + most, c->places.n_pages)));
    radix_insert(&c->tree, space, t, c->path, end);
    for (i64 from = known; from < end; from += SAVED_AT_ONCE) {
        host_copy *h = copy_new(c, true, from, min_i64(from + SAVED_AT_ONCE, end));
        if (h) *behind = h, behind = &h->behind;
    }
    radix_release(&c->tree, c->path, end);
    return first;
}

host_copy *host_copy_behind(const host_copy *h) { return h->behind; }
host_range host_copy_range(const host_copy *h) { return h->range; }

void host_cache_hurry(host_cache *c, bool saves) {
    pthread_mutex_lock(&c->lock);
    c->saves_first = saves;
    pthread_mutex_unlock(&c->lock);
}

void host_copy_begin(host_copy *h, const i32 *pages, host_copy_fn done, void *ud) {
    host_cache *c = h->of;
    h->pages = pages;
    h->done = done;
    h->ud = ud;
    pthread_mutex_lock(&c->lock);
    h->next = h->range.from;
    h->left = h->range.n - h->range.from;
    host_copy **at = h->save ? &c->saves : &c->loads;
    while (*at) at = &(*at)->after;
    *at = h;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void host_copy_end(host_copy *h) {
    host_cache *c = h->of;
    const i64 n = h->range.n - h->range.from;
    const bool whole = h->done && !h->left && h->why.code == ST_OK;
    if (whole) *(h->save ? &c->stats.saved : &c->stats.loaded) += n;
    for (i64 i = 0; whole && h->save && i < n; i++) c->blank[h->places[i]] = false;
    host_copy **at = &c->copies;
    while (*at != h) at = &(*at)->listed;
    *at = h->listed;
    radix_release(&c->tree, h->places, n);
    radix_touch(&c->tree, h->places[n - 1]); /* who evicts looks for a leaf from the oldest on */
    free(h);
}

status host_cache_check(host_cache *c, err *e) {
    memset(c->held, 0, (size_t)c->places.n_pages * sizeof *c->held);
    for (const host_copy *h = c->copies; h; h = h->listed)
        for (i64 i = 0; i < h->range.n - h->range.from; i++) c->held[h->places[i]]++;
    return radix_check(&c->tree, c->held, e) == ST_OK ? ST_OK : err_prefix(e, "the host cache");
}
