#include "runtime/host_cache.h"
#include "runtime/engine_internal.h"
#include "runtime/engine_kv.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Each waits for the device, then for memory; four bring 18 GB/s to an H200. */
enum { THREADS = 4, WORTH_LOADING = 2 /* pages: a step that computes them takes longer */ };

struct host_copy {
    host_cache *of;
    u64 space;
    bool save;
    host_range range;
    i32 *places;      /* [n], held; the first ones are known */
    i32 *tokens;      /* save: [n * KV_PAGE], as the tree compares them */
    const i32 *pages; /* [n] */
    host_copy_fn done;
    void *ud;
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
    host_cache_stats stats;
    copier copiers[THREADS];
    int n_movers, n_threads;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    host_copy *loads, *saves; /* with pages that nobody copies yet, in order */
    bool closing;
};

/* ---- Threads ---- */

/* A page of h's, between the pool and its place. */
static status copy_page(copier *k, const host_copy *h, i64 p, err *e) {
    u8 *const place = k->of->memory + (u64)h->places[p] * k->of->page_bytes, *page = kv_mover_page(k->mover);
    if (!h->save) {
        memcpy(page, place, k->of->page_bytes);
        return kv_mover_write(k->mover, h->pages[p], e);
    }
    const status st = kv_mover_read(k->mover, h->pages[p], e);
    if (st == ST_OK) memcpy(place, page, k->of->page_bytes);
    return st;
}

/* The next page to be copied, of prompts that wait for theirs before others; with the lock. */
static host_copy *take_page(host_cache *c, i64 *p) {
    host_copy **first = c->loads ? &c->loads : &c->saves, *h = *first;
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
    sigset_t all, before;
    int failed = 0;
    for (; c->n_movers < THREADS; c->n_movers++) {
        c->copiers[c->n_movers].of = c;
        const status st = kv_mover_open(&c->copiers[c->n_movers].mover, g, e);
        if (st != ST_OK) return st;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    while (!failed && c->n_threads < THREADS) {
        copier *k = &c->copiers[c->n_threads];
        failed = pthread_create(&k->thread, NULL, copier_thread, k);
        if (!failed) pthread_setname_np(k->thread, "host-cache");
        c->n_threads += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(e, ST_LIMIT, "a thread for the host's KV pages cannot be started: %s", strerror(failed))
                  : ST_OK;
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
    if (host_cache_fits(bytes, e) != ST_OK) return e->code;
    c->bytes = n * c->page_bytes;
    void *p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return err_nomem(e, "the host cache", c->bytes);
    c->memory = p;
    madvise(p, c->bytes, MADV_HUGEPAGE); /* as well without */
    c->stats.places = (i64)n;
    c->held = calloc(n, sizeof *c->held);
    if (!c->held) return err_nomem(e, "the host cache", n * sizeof *c->held);
    const status st = kv_pages_open(&c->places, (i64)n, 1, e);
    return st == ST_OK ? radix_open(&c->tree, &c->places, e) : st;
}

status host_cache_open(host_cache **out, engine *g, u64 bytes, err *e) {
    *out = NULL;
    status st = engine_kv_check(g, "--hicache-size", e);
    if (st != ST_OK) return st;
    host_cache *c = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "the host cache", sizeof *c);
    c->page_bytes = engine_kv_page_bytes(g);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    st = take_memory(c, bytes, e);
    if (st == ST_OK) st = start_copiers(c, g, e);
    if (st == ST_OK) return *out = c, ST_OK;
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

static host_copy *copy_new(host_cache *c, u64 space, bool save, i64 n) {
    const size_t tokens = save ? (size_t)(n * KV_PAGE) : 0;
    host_copy *h = calloc(1, sizeof *h + ((size_t)n + tokens) * sizeof(i32));
    if (!h) return NULL; /* then it is computed, or not saved: nothing else hangs on it */
    h->of = c;
    h->space = space;
    h->save = save;
    h->places = (i32 *)(h + 1);
    h->tokens = h->places + n;
    h->range.n = n;
    h->listed = c->copies;
    c->copies = h;
    return h;
}

/* h gives back its places [0, n) and is no more. */
static void copy_free(host_copy *h, i64 n) {
    host_copy **at = &h->of->copies;
    while (*at != h) at = &(*at)->listed;
    *at = h->listed;
    radix_release(&h->of->tree, h->places, n);
    free(h);
}

static i64 known_places(host_cache *c, u64 space, const radix_tokens *t, i64 most, i32 *places) {
    radix_path path = {0};
    i64 all = INT64_MAX;
    return radix_follow(&c->tree, space, t, most, places, &path, &all);
}

host_copy *host_cache_load(host_cache *c, u64 space, const radix_tokens *t, i64 from, i64 most) {
    if (most - from < WORTH_LOADING) return NULL;
    host_copy *h = copy_new(c, space, false, most);
    if (!h) return NULL;
    const i64 n = known_places(c, space, t, most, h->places);
    if (n - from < WORTH_LOADING) return copy_free(h, 0), NULL;
    radix_hold(&c->tree, h->places, n);
    h->range = (host_range){from, n};
    return h;
}

host_copy *host_cache_save(host_cache *c, u64 space, const radix_tokens *t, i64 n, i64 most) {
    i32 room[KV_PAGE];
    host_copy *h = n ? copy_new(c, space, true, n) : NULL;
    if (!h) return NULL;
    const i64 known = known_places(c, space, t, n, h->places);
    i64 end = known;
    radix_hold(&c->tree, h->places, known); /* used just now, whatever comes of the rest */
    for (; end < n && end - known < most; end++)
        if ((h->places[end] = radix_take(&c->tree, -1)) < 0) break;
    if (end == known) return copy_free(h, known), NULL;
    for (i64 p = 0; p < end; p++) memcpy(h->tokens + p * KV_PAGE, radix_page(t, p, room), KV_PAGE * sizeof *h->tokens);
    h->range = (host_range){known, end};
    return h;
}

host_range host_copy_range(const host_copy *h) { return h->range; }

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
    const radix_tokens tokens = {.ids = h->tokens};
    if (whole) *(h->save ? &c->stats.saved : &c->stats.loaded) += n;
    if (whole && h->save) radix_insert(&c->tree, h->space, &tokens, h->places, h->range.n);
    copy_free(h, h->range.n);
}

status host_cache_check(host_cache *c, err *e) {
    memset(c->held, 0, (size_t)c->places.n_pages * sizeof *c->held);
    for (const host_copy *h = c->copies; h; h = h->listed)
        for (i64 p = 0; p < h->range.n; p++) c->held[h->places[p]]++;
    return radix_check(&c->tree, c->held, e) == ST_OK ? ST_OK : err_prefix(e, "the host cache");
}
