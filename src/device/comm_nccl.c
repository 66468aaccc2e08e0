#include "device/comm_nccl.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/thread.h"
#include "device/gpu_internal.h"
#include "device/nccl_symbols.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 20, SCRATCH = 8 << 20 /* bytes */ };
static const f64 LEAVE_S = 1; /* for threads that are inside of NCCL when a group has failed */

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
    i64 ranks;       /* all */
    i64 first, held; /* those of this process, which the arrays here have */
    f64 deadline_s;
    gpu *gpus[COMM_RANKS_MAX];                /* NULL: that rank's end is closed */
    _Atomic(ncclComm_t) ends[COMM_RANKS_MAX]; /* NULL: aborted or closed; NCCL refuses it then */
    _Atomic f64 called[COMM_RANKS_MAX];       /* since when a rank is inside of one of NCCL's functions; 0: it is not */
    atomic_llong open, named;                 /* named: as comm.named */
    atomic_bool failed;
    bool cancelled;
    err why;
    pthread_mutex_t lock; /* of gpus, why, cancelled, over, and of failing */
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
static i64 nccl_slot(const nccl_comm *p) { return p->base.rank - p->group->first; }

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

/* Keeps the first reason; the watcher ends what NCCL has under way. why NULL: somebody else knows it. */
static void nccl_fail(nccl_group *g, const err *why) {
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->failed)) {
        g->cancelled = !why;
        if (why) g->why = *why;
    }
    atomic_store(&g->failed, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* By the watcher alone, without the lock: NCCL may take until the recordings that have its calls in them are
 * gone, which is when ranks close their models. A thread that is inside of a call gets some time to leave it; one
 * that hangs there is freed by this. */
static void nccl_abort(nccl_group *g) {
    const f64 until = now_s() + LEAVE_S;
    for (bool inside = true; inside && now_s() < until;) {
        inside = false;
        for (i64 r = 0; r < g->held; r++) inside = inside || atomic_load(&g->called[r]) > 0;
        if (inside) usleep(1000);
    }
    for (i64 r = 0; r < g->held; r++) {
        ncclComm_t end = atomic_exchange(&g->ends[r], NULL);
        if (end) g->lib.ncclCommAbort(end);
    }
}

static bool nccl_ok(nccl_comm *p, ncclResult_t r, const char *what) {
    nccl_group *g = p->group;
    err why;
    if (r == ncclSuccess) return true;
    if (atomic_load(&g->failed)) return false; /* aborted, so it says that it was */
    err_set(&why, ST_DEVICE, "NCCL on GPU %d: %s: %s", p->g->ordinal, what, g->lib.ncclGetErrorString(r));
    nccl_fail(g, &why);
    return false;
}

/* The rank of this process that some other one waits for, or -1 where all wait; false: nobody has waited for too long.
 * With the lock. */
static bool nccl_overdue(nccl_group *g, i64 *late) {
    const f64 now = now_s();
    bool overdue = false;
    *late = -1;
    for (i64 r = 0; r < g->held; r++) {
        if (!g->gpus[r]) continue;
        const f64 call = atomic_load(&g->called[r]), since = call > 0 ? call : gpu_waits_since(g->gpus[r]);
        if (since > 0 && now - since > g->deadline_s) overdue = true;
        if (since <= 0 && *late < 0) *late = g->first + r;
    }
    return overdue;
}

static void *nccl_watch(void *arg) {
    nccl_group *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->over && !atomic_load(&g->failed)) {
        struct timespec t;
        i64 late;
        err why;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += LOOK_MS * 1000000;
        t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->changed, &g->lock, &t);
        if (g->over || atomic_load(&g->failed) || !nccl_overdue(g, &late)) continue;
        if (late >= 0)
            err_set(&why, ST_DEVICE, "rank %lld did not come to an exchange (NCCL) within %.3g s",
                    (long long)(atomic_load(&g->named) + late), g->deadline_s);
        else
            err_set(&why, ST_DEVICE, "an exchange of all ranks (NCCL) did not end within %.3g s%s", g->deadline_s,
                    g->held < g->ranks ? ": ranks of other processes did not come" : "");
        g->why = why;
        atomic_store(&g->failed, true);
    }
    pthread_mutex_unlock(&g->lock);
    if (atomic_load(&g->failed)) nccl_abort(g);
    return NULL;
}

/* ---- the calls ---- */

/* Around NCCL's functions, which may wait for other ranks themselves; false: the group has failed, call none. */
static void nccl_end(nccl_comm *p) { atomic_store(&p->group->called[nccl_slot(p)], 0); }
static bool nccl_begin(nccl_comm *p) {
    atomic_store(&p->group->named, p->base.named);
    atomic_store(&p->group->called[nccl_slot(p)], now_s()); /* before the look: who aborts looks the other way round */
    if (!atomic_load(&p->group->failed) && gpu_enter(p->g)) return true;
    nccl_end(p);
    return false;
}

#define NCCL_CALL(p, f, ...)                                                                                           \
    nccl_ok(p, (p)->group->lib.f(__VA_ARGS__, (p)->group->ends[nccl_slot(p)], (p)->g->stream), #f)

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
    nccl_ok(p, p->group->lib.ncclGroupEnd(), "ncclGroupEnd"); /* whatever was: it is this thread's */
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
    nccl_ok(p, p->group->lib.ncclGroupEnd(), "ncclGroupEnd"); /* whatever was: it is this thread's */
    nccl_end(p);
}

static void nccl_barrier(comm *c) { nccl_all_reduce(c, nccl_of(c)->scratch, 1, DT_F32); }

static status nccl_finish(comm *c, err *e) {
    nccl_comm *p = nccl_of(c);
    nccl_group *g = p->group;
    ncclResult_t later = ncclSuccess;
    if (nccl_begin(p)) {
        const ncclResult_t r = g->lib.ncclCommGetAsyncError(g->ends[nccl_slot(p)], &later);
        nccl_end(p);
        if (nccl_ok(p, r, "ncclCommGetAsyncError") && later != ncclInProgress)
            nccl_ok(p, later, "an exchange under way");
    }
    if (!atomic_load(&g->failed)) return ST_OK;
    pthread_mutex_lock(&g->lock);
    status st = g->cancelled ? err_set(e, ST_CANCELLED, "exchanges between GPUs were stopped") : g->why.code;
    if (e && !g->cancelled) *e = g->why;
    pthread_mutex_unlock(&g->lock);
    return st;
}

static void nccl_cancel(comm *c, const err *why) {
    (void)why;
    nccl_fail(nccl_of(c)->group, NULL);
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
    g->gpus[nccl_slot(p)] = NULL; /* the watcher does not look there any more */
    ncclComm_t end = atomic_load(&g->failed) ? NULL : atomic_exchange(&g->ends[nccl_slot(p)], NULL);
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

/* What a thread of its own does: the communicators, where it is left behind if it does not come back, and a first
 * exchange among them, which makes the connections that no recording could. That uses the GPUs: it is ended by an abort
 * and waited for. */
typedef struct {
    nccl_library lib;
    ncclUniqueId id;
    int ranks, first, n;
    gpu *gpus[COMM_RANKS_MAX];
    CUstream streams[COMM_RANKS_MAX];
    void *scratch[COMM_RANKS_MAX];
    ncclComm_t ends[COMM_RANKS_MAX];
    ncclResult_t result;
    bool done, left, connects;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} nccl_start;

static void nccl_start_free(nccl_start *s) {
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* One of each rank here; waits for those of other processes. */
static ncclResult_t nccl_make_ends(nccl_start *s) {
    ncclResult_t r = s->lib.ncclGroupStart();
    if (r != ncclSuccess) return r;
    for (int k = 0; r == ncclSuccess && k < s->n; k++) {
        if (!gpu_enter(s->gpus[k])) r = ncclInternalError;
        if (r == ncclSuccess) r = s->lib.ncclCommInitRank(&s->ends[k], s->ranks, s->id, s->first + k);
    }
    const ncclResult_t end = s->lib.ncclGroupEnd();
    return r == ncclSuccess ? end : r;
}

typedef enum { FIRST_SUM, FIRST_GATHER, FIRST_SCATTER, FIRST_BROADCAST, FIRST_MESSAGES, FIRST_KINDS } first_exchange;

/* Of rank k here, `bytes` of its scratch. */
static ncclResult_t nccl_first_of(nccl_start *s, int k, first_exchange kind, size_t bytes) {
    u8 *x = s->scratch[k];
    const size_t each = bytes / (size_t)s->ranks / sizeof(f32) * sizeof(f32);
    ncclResult_t r = ncclSuccess;
    switch (kind) {
    case FIRST_SUM:
        return s->lib.ncclAllReduce(x, x, bytes / sizeof(f32), ncclFloat32, ncclSum, s->ends[k], s->streams[k]);
    case FIRST_GATHER:
        return s->lib.ncclAllGather(x + (size_t)(s->first + k) * each, x, each, ncclUint8, s->ends[k], s->streams[k]);
    case FIRST_SCATTER:
        return s->lib.ncclReduceScatter(x, x + (size_t)(s->first + k) * each, each / sizeof(f32), ncclFloat32, ncclSum,
                                        s->ends[k], s->streams[k]);
    case FIRST_BROADCAST: return s->lib.ncclBroadcast(x, x, each, ncclUint8, 0, s->ends[k], s->streams[k]);
    default: break;
    }
    for (int p = 0; r == ncclSuccess && p < s->ranks; p++) {
        r = s->lib.ncclSend(x, each, ncclUint8, p, s->ends[k], s->streams[k]);
        if (r == ncclSuccess) r = s->lib.ncclRecv(x + each, each, ncclUint8, p, s->ends[k], s->streams[k]);
    }
    return r;
}

/* NCCL connects ranks when an exchange of a kind or size is first met, which took half a second in the middle of
 * answers: here each is met. */
static ncclResult_t nccl_first_exchanges(nccl_start *s) {
    static const size_t sizes[] = {64 * COMM_RANKS_MAX, 256 << 10, SCRATCH / 2};
    ncclResult_t r = ncclSuccess;
    for (int i = 0; r == ncclSuccess && i < (int)(COUNT_OF(sizes) * FIRST_KINDS); i++) {
        r = s->lib.ncclGroupStart();
        if (r != ncclSuccess) return r;
        for (int k = 0; r == ncclSuccess && k < s->n; k++)
            r = nccl_first_of(s, k, (first_exchange)(i % FIRST_KINDS), sizes[i / FIRST_KINDS]);
        const ncclResult_t end = s->lib.ncclGroupEnd();
        if (r == ncclSuccess) r = end;
    }
    return r;
}

static void *nccl_start_main(void *arg) {
    nccl_start *s = arg;
    s->result = nccl_make_ends(s);
    pthread_mutex_lock(&s->lock);
    s->connects = s->result == ncclSuccess && !s->left;
    pthread_mutex_unlock(&s->lock);
    if (s->connects) s->result = nccl_first_exchanges(s);
    pthread_mutex_lock(&s->lock);
    const bool left = s->left;
    s->done = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (left) nccl_start_free(s);
    return NULL;
}

static status nccl_start_ends(nccl_group *g, comm *const *all, const ncclUniqueId *id, err *e) {
    nccl_start *s = calloc(1, sizeof *s);
    pthread_t thread;
    struct timespec t;
    if (!s) return err_nomem(e, "NCCL's start", sizeof *s);
    s->lib = g->lib, s->id = *id;
    s->ranks = (int)g->ranks, s->first = (int)g->first, s->n = (int)g->held;
    for (i64 r = 0; r < g->held; r++) {
        s->gpus[r] = g->gpus[r];
        s->streams[r] = g->gpus[r]->stream;
        s->scratch[r] = nccl_of(all[r])->scratch;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    status st = thread_start(&thread, "nccl-start", nccl_start_main, s, e);
    if (st != ST_OK) {
        nccl_start_free(s);
        return st;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    const f64 end = (f64)t.tv_sec + (f64)t.tv_nsec * 1e-9 + g->deadline_s;
    t.tv_sec = (time_t)end, t.tv_nsec = (long)((end - (f64)t.tv_sec) * 1e9);
    pthread_mutex_lock(&s->lock);
    while (!s->done && !pthread_cond_timedwait(&s->changed, &s->lock, &t)) continue;
    const bool done = s->done, connects = !done && s->connects;
    s->left = !done && !connects;
    pthread_mutex_unlock(&s->lock);
    for (i64 r = 0; connects && r < g->held; r++) g->lib.ncclCommAbort(s->ends[r]);
    if (done || connects)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    if (connects) nccl_start_free(s);
    if (!done) return err_set(e, ST_DEVICE, "NCCL did not start within %.3g s", g->deadline_s);
    const ncclResult_t result = s->result;
    for (i64 r = 0; r < g->held; r++) g->ends[r] = s->ends[r];
    nccl_start_free(s);
    if (result == ncclSuccess) return ST_OK;
    return err_set(e, ST_DEVICE, "NCCL does not start on %lld GPUs: %s", (long long)g->ranks,
                   g->lib.ncclGetErrorString(result));
}

/* *n: ends that are to be closed. */
static status nccl_open_rank(nccl_group *g, comm **out, i64 r, i64 *n, err *e) {
    nccl_comm *p = calloc(1, sizeof *p);
    if (!p) return err_nomem(e, "a rank", sizeof *p);
    *p = (nccl_comm){.base = nccl_table, .group = g, .g = g->gpus[r]};
    p->base.rank = g->first + r, p->base.ranks = g->ranks;
    out[r] = &p->base;
    *n = r + 1;
    atomic_fetch_add(&g->open, 1);
    return p->g->dev.alloc(&p->g->dev, &p->scratch, SCRATCH, "NCCL's first exchange", e);
}

/* The name under which the ranks of all processes find each other: the first of these makes it. One that does not come
 * so far ends all: its engine does not open. */
static status nccl_meeting_place(nccl_group *g, const host_group *of, ncclUniqueId *id, err *e) {
    ncclUniqueId all[HOSTS_MOST];
    memset(id, 0, sizeof *id);
    const ncclResult_t r = of && hosts_self(of->all) > of->first ? ncclSuccess : g->lib.ncclGetUniqueId(id);
    status st = r == ncclSuccess ? ST_OK : err_set(e, ST_DEVICE, "NCCL: %s", g->lib.ncclGetErrorString(r));
    if (st == ST_OK && of) st = hosts_share_among(of, "NCCL's start", id, all, sizeof *id, e);
    if (st == ST_OK && of) *id = all[0];
    return st;
}

/* NCCL takes a GPU a rank. */
static status nccl_check_gpus(const nccl_group *g, err *e) {
    for (i64 r = 0; r < g->held; r++)
        for (i64 k = 0; k < r; k++)
            if (g->gpus[r]->id == g->gpus[k]->id)
                return err_set(e, ST_UNSUPPORTED, "ranks %lld and %lld have parts of GPU %d: NCCL takes a GPU a rank",
                               (long long)(g->first + k), (long long)(g->first + r), g->gpus[r]->ordinal);
    return ST_OK;
}

status comm_nccl_open(comm **out, gpu *const *gpus, i64 held, const host_group *of, f64 deadline_s, err *e) {
    nccl_group *g = calloc(1, sizeof *g);
    u64 had[COMM_RANKS_MAX];
    ncclUniqueId id;
    if (!g) return err_nomem(e, "a group of ranks", sizeof *g);
    g->held = held, g->ranks = of ? held * of->n : held;
    g->first = of ? held * (hosts_self(of->all) - of->first) : 0;
    g->deadline_s = deadline_s;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    memcpy(g->gpus, gpus, (size_t)held * sizeof *gpus);
    status st = nccl_load(&g->lib, e);
    if (st == ST_OK) st = nccl_check_gpus(g, e);
    i64 n = 0;
    for (i64 r = 0; st == ST_OK && r < held; r++) {
        had[r] = gpus[r]->dev.available(&gpus[r]->dev);
        st = nccl_open_rank(g, out, r, &n, e);
    }
    if (st == ST_OK) st = nccl_meeting_place(g, of, &id, e);
    if (st == ST_OK) st = nccl_start_ends(g, out, &id, e);
    if (st == ST_OK) g->watched = (st = thread_start(&g->watcher, "nccl-watch", nccl_watch, g, e)) == ST_OK;
    for (i64 r = 0; st == ST_OK && r < held; r++) st = gpus[r]->dev.finish(&gpus[r]->dev, e);
    if (st == ST_OK) st = nccl_finish(out[0], e);
    for (i64 r = 0; st == ST_OK && r < held; r++) {
        const u64 left = gpus[r]->dev.available(&gpus[r]->dev);
        out[r]->held = had[r] > left ? had[r] - left : 0;
    }
    if (st == ST_OK) return ST_OK;
    nccl_fail(g, NULL);
    if (!g->watched) nccl_abort(g);
    if (!n) nccl_free(g);
    while (n-- > 0) out[n]->close(out[n]);
    return st;
}
