#include "device/comm_nccl.h"
#include "base/log.h"
#include "base/opt.h"
#include "device/gpu_internal.h"
#include "device/nccl_symbols.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { LOOK_MS = 20, SCRATCH = 256 /* bytes */ };

typedef struct {
#define NCCL_FIELD(name, args) ncclResult_t(*name) args;
    NCCL_SYMBOLS(NCCL_FIELD)
#undef NCCL_FIELD
#define NCCL_FIELD(name, args) const char *(*name)args;
    NCCL_TEXTS(NCCL_FIELD)
#undef NCCL_FIELD
} nccl_library;

static const struct {
    const char *name;
    size_t at;
} nccl_names[] = {
#define NCCL_ROW(name, args) {#name, offsetof(nccl_library, name)},
    NCCL_SYMBOLS(NCCL_ROW) NCCL_TEXTS(NCCL_ROW)};

typedef struct {
    nccl_library lib;
    i64 ranks;
    f64 deadline_s;
    gpu *gpus[COMM_RANKS_MAX];                /* NULL: that rank's end is closed */
    _Atomic(ncclComm_t) ends[COMM_RANKS_MAX]; /* NULL: aborted or closed; NCCL refuses it then */
    _Atomic f64 called[COMM_RANKS_MAX];       /* since when a rank is inside of one of NCCL's functions; 0: it is not */
    atomic_llong open;
    atomic_bool failed;
    bool cancelled;
    err why;
    pthread_mutex_t lock; /* of all that changes: gpus, ends, why, cancelled, over */
    pthread_cond_t changed;
    bool watched, over;
    pthread_t watcher;
} nccl_group;

typedef struct {
    comm base;
    nccl_group *group;
    gpu *g;
    void *scratch; /* on the GPU */
} nccl_comm;

static nccl_comm *nccl_of(comm *c) { return (nccl_comm *)c; }

static status nccl_load(nccl_library *lib, err *e) {
    const char *name = opt_env("MOONLET_NCCL") ? opt_env("MOONLET_NCCL") : "libnccl.so.2";
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* stays: its threads may outlive a group */
    if (!handle) return err_set(e, ST_UNSUPPORTED, "no NCCL: %s", dlerror());
    for (size_t i = 0; i < COUNT_OF(nccl_names); i++) {
        void *f = dlsym(handle, nccl_names[i].name);
        if (!f) return err_set(e, ST_UNSUPPORTED, "NCCL: %s has no %s", name, nccl_names[i].name);
        memcpy((char *)lib + nccl_names[i].at, &f, sizeof f);
    }
    return ST_OK;
}

/* ---- failing ---- */

/* Keeps the first reason, then ends whatever NCCL has under way on any rank. why NULL: somebody else knows it. */
static void nccl_abort(nccl_group *g, const err *why) {
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->failed)) {
        g->cancelled = !why;
        if (why) g->why = *why;
    }
    atomic_store(&g->failed, true);
    for (i64 r = 0; r < g->ranks; r++) {
        if (g->ends[r]) g->lib.ncclCommAbort(g->ends[r]);
        g->ends[r] = NULL;
    }
    pthread_mutex_unlock(&g->lock);
}

static bool nccl_ok(nccl_comm *p, ncclResult_t r, const char *what) {
    nccl_group *g = p->group;
    err why;
    if (r == ncclSuccess) return true;
    if (atomic_load(&g->failed)) return false; /* aborted, so it says that it was */
    err_set(&why, ST_DEVICE, "NCCL on GPU %d: %s: %s", p->g->ordinal, what, g->lib.ncclGetErrorString(r));
    nccl_abort(g, &why);
    return false;
}

/* The rank that some other one waits for, or -1 where all wait; false: nobody has waited for too long. With the
 * lock. */
static bool nccl_overdue(nccl_group *g, i64 *late) {
    const f64 now = now_s();
    bool overdue = false;
    *late = -1;
    for (i64 r = 0; r < g->ranks; r++) {
        if (!g->gpus[r]) continue;
        const f64 call = atomic_load(&g->called[r]), since = call > 0 ? call : gpu_waits_since(g->gpus[r]);
        if (since > 0 && now - since > g->deadline_s) overdue = true;
        if (since <= 0 && *late < 0) *late = r;
    }
    return overdue;
}

static void *nccl_watch(void *arg) {
    nccl_group *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->over) {
        struct timespec t;
        i64 late;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LOOK_MS * 1000000;
        t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->changed, &g->lock, &t);
        if (g->over || atomic_load(&g->failed) || !nccl_overdue(g, &late)) continue;
        err why;
        if (late >= 0)
            err_set(&why, ST_DEVICE, "rank %lld did not come to an exchange (NCCL) within %.3g s", (long long)late,
                    g->deadline_s);
        else
            err_set(&why, ST_DEVICE, "an exchange of all ranks (NCCL) did not end within %.3g s", g->deadline_s);
        pthread_mutex_unlock(&g->lock);
        nccl_abort(g, &why);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- the calls ---- */

/* Around NCCL's functions, which may wait for other ranks themselves; false: the group has failed, call none. */
static bool nccl_begin(nccl_comm *p) {
    if (atomic_load(&p->group->failed) || !gpu_enter(p->g)) return false;
    atomic_store(&p->group->called[p->base.rank], now_s());
    return true;
}
static void nccl_end(nccl_comm *p) { atomic_store(&p->group->called[p->base.rank], 0); }

#define NCCL_CALL(p, f, ...)                                                                                           \
    nccl_ok(p, (p)->group->lib.f(__VA_ARGS__, (p)->group->ends[(p)->base.rank], (p)->g->stream), #f)

static ncclDataType_t nccl_type(dtype t) { return t == DT_F32 ? ncclFloat32 : ncclBfloat16; }

static void nccl_all_reduce(comm *c, void *x, i64 n, dtype type) {
    nccl_comm *p = nccl_of(c);
    if (!nccl_begin(p)) return;
    NCCL_CALL(p, ncclAllReduce, x, x, (size_t)n, nccl_type(type), ncclSum);
    nccl_end(p);
}

static void nccl_all_gather(comm *c, const void *mine, void *all, u64 bytes) {
    nccl_comm *p = nccl_of(c);
    if (!nccl_begin(p)) return;
    NCCL_CALL(p, ncclAllGather, mine, all, bytes, ncclUint8);
    nccl_end(p);
}

static void nccl_reduce_scatter(comm *c, const void *x, void *mine, i64 n, dtype type) {
    nccl_comm *p = nccl_of(c);
    if (!nccl_begin(p)) return;
    NCCL_CALL(p, ncclReduceScatter, x, mine, (size_t)n, nccl_type(type), ncclSum);
    nccl_end(p);
}

static void nccl_broadcast(comm *c, void *x, u64 bytes, i64 root) {
    nccl_comm *p = nccl_of(c);
    if (!nccl_begin(p)) return;
    NCCL_CALL(p, ncclBroadcast, x, x, bytes, ncclUint8, (int)root);
    nccl_end(p);
}

static void nccl_all_to_all(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size) {
    nccl_comm *p = nccl_of(c);
    if (!nccl_begin(p)) return;
    bool good = nccl_ok(p, p->group->lib.ncclGroupStart(), "ncclGroupStart");
    for (i64 r = 0, sent = 0, taken = 0; good && r < c->ranks; sent += out_counts[r], taken += in_counts[r], r++) {
        const u64 to = (u64)out_counts[r] * size, from = (u64)in_counts[r] * size;
        if (to) good = NCCL_CALL(p, ncclSend, (const u8 *)out + (u64)sent * size, to, ncclUint8, (int)r);
        if (good && from) good = NCCL_CALL(p, ncclRecv, (u8 *)in + (u64)taken * size, from, ncclUint8, (int)r);
    }
    if (good) nccl_ok(p, p->group->lib.ncclGroupEnd(), "ncclGroupEnd");
    nccl_end(p);
}

/* A message a row and rank: what arrives lies in pieces. */
static void nccl_columns_to_rows(comm *c, const void *columns, i64 n, const i64 *first, void *rows) {
    nccl_comm *p = nccl_of(c);
    const row_range own = comm_rows(n, c->ranks, c->rank);
    const i64 width = first[c->rank + 1] - first[c->rank], total = first[c->ranks];
    if (!nccl_begin(p)) return;
    bool good = nccl_ok(p, p->group->lib.ncclGroupStart(), "ncclGroupStart");
    for (i64 r = 0; good && r < c->ranks; r++) {
        const row_range to = comm_rows(n, c->ranks, r);
        for (i64 i = to.from; good && i < to.to && width; i++)
            good = NCCL_CALL(p, ncclSend, (const u32 *)columns + i * width, (size_t)width, ncclUint32, (int)r);
        const i64 theirs = first[r + 1] - first[r];
        for (i64 i = own.from; good && i < own.to && theirs; i++)
            good = NCCL_CALL(p, ncclRecv, (u32 *)rows + (i - own.from) * total + first[r], (size_t)theirs, ncclUint32,
                             (int)r);
    }
    if (good) nccl_ok(p, p->group->lib.ncclGroupEnd(), "ncclGroupEnd");
    nccl_end(p);
}

static void nccl_barrier(comm *c) { nccl_all_reduce(c, nccl_of(c)->scratch, 1, DT_F32); }

static status nccl_finish(comm *c, err *e) {
    nccl_comm *p = nccl_of(c);
    nccl_group *g = p->group;
    ncclResult_t later = ncclSuccess;
    if (!atomic_load(&g->failed) &&
        nccl_ok(p, g->lib.ncclCommGetAsyncError(g->ends[c->rank], &later), "ncclCommGetAsyncError") &&
        later != ncclInProgress)
        nccl_ok(p, later, "an exchange under way");
    if (!atomic_load(&g->failed)) return ST_OK;
    pthread_mutex_lock(&g->lock);
    status st = g->cancelled ? err_set(e, ST_CANCELLED, "exchanges between GPUs were stopped") : g->why.code;
    if (e && !g->cancelled) *e = g->why;
    pthread_mutex_unlock(&g->lock);
    return st;
}

static void nccl_cancel(comm *c, const err *why) {
    (void)why;
    nccl_abort(nccl_of(c)->group, NULL);
}

static void nccl_free(nccl_group *g) {
    pthread_mutex_lock(&g->lock);
    g->over = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->watched) pthread_join(g->watcher, NULL);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void nccl_close(comm *c) {
    if (!c) return;
    nccl_comm *p = nccl_of(c);
    nccl_group *g = p->group;
    pthread_mutex_lock(&g->lock);
    ncclComm_t end = g->ends[c->rank];
    g->ends[c->rank] = NULL; /* nobody looks at the two any more */
    g->gpus[c->rank] = NULL;
    pthread_mutex_unlock(&g->lock);
    if (end && gpu_enter(p->g)) g->lib.ncclCommDestroy(end);
    if (p->scratch) p->g->dev.release(&p->g->dev, p->scratch);
    free(p);
    if (atomic_fetch_sub(&g->open, 1) == 1) nccl_free(g);
}

static const comm nccl_table = {.name = "NCCL",
                                .all_reduce = nccl_all_reduce,
                                .all_gather = nccl_all_gather,
                                .reduce_scatter = nccl_reduce_scatter,
                                .all_to_all = nccl_all_to_all,
                                .columns_to_rows = nccl_columns_to_rows,
                                .broadcast = nccl_broadcast,
                                .barrier = nccl_barrier,
                                .finish = nccl_finish,
                                .cancel = nccl_cancel,
                                .close = nccl_close};

/* ---- opening ---- */

/* What a thread of its own does, which is left behind if it does not come back. */
typedef struct {
    nccl_library lib;
    int n, ordinals[COMM_RANKS_MAX];
    ncclComm_t ends[COMM_RANKS_MAX];
    ncclResult_t result;
    bool done, left;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} nccl_start;

static void nccl_start_free(nccl_start *s) {
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *nccl_start_main(void *arg) {
    nccl_start *s = arg;
    s->result = s->lib.ncclCommInitAll(s->ends, s->n, s->ordinals);
    pthread_mutex_lock(&s->lock);
    const bool left = s->left;
    s->done = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (left) nccl_start_free(s);
    return NULL;
}

static status nccl_start_ends(nccl_group *g, err *e) {
    nccl_start *s = calloc(1, sizeof *s);
    pthread_t id;
    struct timespec t;
    if (!s) return err_nomem(e, "NCCL's start", sizeof *s);
    s->lib = g->lib, s->n = (int)g->ranks;
    for (i64 r = 0; r < g->ranks; r++) s->ordinals[r] = g->gpus[r]->ordinal;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    int failed = pthread_create(&id, NULL, nccl_start_main, s);
    if (failed) {
        nccl_start_free(s);
        return err_set(e, ST_NOMEM, "a thread to start NCCL: %s", strerror(failed));
    }
    clock_gettime(CLOCK_REALTIME, &t);
    const f64 end = (f64)t.tv_sec + (f64)t.tv_nsec * 1e-9 + g->deadline_s;
    t.tv_sec = (time_t)end, t.tv_nsec = (long)((end - (f64)t.tv_sec) * 1e9);
    pthread_mutex_lock(&s->lock);
    while (!s->done && !pthread_cond_timedwait(&s->changed, &s->lock, &t)) continue;
    const bool done = s->done;
    s->left = !done;
    pthread_mutex_unlock(&s->lock);
    if (!done) {
        pthread_detach(id);
        return err_set(e, ST_DEVICE, "NCCL did not start within %.3g s", g->deadline_s);
    }
    pthread_join(id, NULL);
    const ncclResult_t result = s->result;
    for (i64 r = 0; r < g->ranks; r++) g->ends[r] = s->ends[r];
    nccl_start_free(s);
    if (result == ncclSuccess) return ST_OK;
    return err_set(e, ST_DEVICE, "NCCL does not start on %lld GPUs: %s", (long long)g->ranks,
                   g->lib.ncclGetErrorString(result));
}

/* The first exchange makes the connections, which no recording could. */
static status nccl_first_exchange(comm *const *all, i64 ranks, err *e) {
    nccl_comm *first = nccl_of(all[0]);
    nccl_group *g = first->group;
    bool good = nccl_ok(first, g->lib.ncclGroupStart(), "ncclGroupStart");
    for (i64 r = 0; good && r < ranks; r++) {
        nccl_comm *p = nccl_of(all[r]);
        good = NCCL_CALL(p, ncclAllReduce, p->scratch, p->scratch, 1, ncclFloat32, ncclSum);
    }
    if (good) nccl_ok(first, g->lib.ncclGroupEnd(), "ncclGroupEnd");
    status st = ST_OK;
    for (i64 r = 0; st == ST_OK && r < ranks; r++) st = g->gpus[r]->dev.finish(&g->gpus[r]->dev, e);
    return st == ST_OK ? nccl_finish(all[0], e) : st;
}

static status nccl_open_rank(nccl_group *g, comm **out, i64 r, err *e) {
    nccl_comm *p = calloc(1, sizeof *p);
    if (!p) return err_nomem(e, "a rank", sizeof *p);
    *p = (nccl_comm){.base = nccl_table, .group = g, .g = g->gpus[r]};
    p->base.rank = r, p->base.ranks = g->ranks;
    out[r] = &p->base;
    atomic_fetch_add(&g->open, 1);
    return p->g->dev.alloc(&p->g->dev, &p->scratch, SCRATCH, "NCCL's first exchange", e);
}

status comm_nccl_open(comm **out, gpu *const *gpus, i64 ranks, f64 deadline_s, err *e) {
    nccl_group *g = calloc(1, sizeof *g);
    u64 had[COMM_RANKS_MAX];
    if (!g) return err_nomem(e, "a group of ranks", sizeof *g);
    g->ranks = ranks, g->deadline_s = deadline_s;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    memcpy(g->gpus, gpus, (size_t)ranks * sizeof *gpus);
    status st = nccl_load(&g->lib, e);
    for (i64 r = 0; st == ST_OK && r < ranks; r++)
        for (i64 k = 0; st == ST_OK && k < r; k++)
            if (gpus[r]->id == gpus[k]->id)
                st = err_set(e, ST_UNSUPPORTED, "ranks %lld and %lld have parts of GPU %d: NCCL takes a GPU a rank",
                             (long long)k, (long long)r, gpus[r]->ordinal);
    i64 n = 0;
    for (; st == ST_OK && n < ranks; n++) {
        had[n] = gpus[n]->dev.available(&gpus[n]->dev);
        st = nccl_open_rank(g, out, n, e);
    }
    if (st == ST_OK) st = nccl_start_ends(g, e);
    if (st == ST_OK && !(g->watched = !pthread_create(&g->watcher, NULL, nccl_watch, g)))
        st = err_set(e, ST_NOMEM, "the thread that watches NCCL");
    if (st == ST_OK) st = nccl_first_exchange(out, ranks, e);
    for (i64 r = 0; st == ST_OK && r < ranks; r++) {
        const u64 left = gpus[r]->dev.available(&gpus[r]->dev);
        out[r]->held = had[r] > left ? had[r] - left : 0;
    }
    if (st == ST_OK) return ST_OK;
    nccl_abort(g, NULL);
    if (!n) nccl_free(g);
    while (n-- > 0) out[n]->close(out[n]);
    return st;
}
