/* device/comm_host.c: ranks that are threads of this process. A rank posts where its data lie, waits until all have
 * posted, and reads the others' memory; a second barrier tells that nobody reads any more. What ranks of other
 * processes have posted one of the threads fetches in between (comm_hosts.c). */
#include "base/log.h"
#include "device/comm_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum {
    SPINS = 400,            /* looks before a thread sleeps: some microseconds */
    WAKE_NS = 100 * 1000000 /* sleepers look at the clock so often */
};
/* Who waits for what comes from other processes waits longer than that may take, so that the reason is its own. */
static const f64 FETCH_S = 5;

const char *const comm_call_names[] = {"all-reduce",      "all-gather", "reduce-scatter", "all-to-all",
                                       "columns to rows", "broadcast",  "barrier",        "an all-reduce's parts"};

typedef struct {
    comm base;
    comm_group *group;
    u64 calls, barriers;
} host_comm;

static host_comm *host_of(comm *c) { return (host_comm *)c; }

static void wake_all(comm_group *g) {
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void host_cancel(comm *c, const err *why) {
    comm_group *g = host_of(c)->group;
    if (g->of.all) hosts_cancel(g->of.all, why);
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->failed)) g->why = *why;
    atomic_store(&g->failed, true);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static bool has_come(comm_group *g, i64 rank, u64 barrier) { return atomic_load(&g->places[rank].arrived) >= barrier; }

/* Sleeps until rank r has come to the barrier, the group has failed, or it is `until`; false: it is. */
static bool sleep_for(comm_group *g, i64 r, u64 barrier, f64 until) {
    bool in_time = true;
    pthread_mutex_lock(&g->lock);
    atomic_fetch_add(&g->sleepers, 1);
    while (!has_come(g, r, barrier) && !atomic_load(&g->failed) && (in_time = now_s() < until)) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += WAKE_NS;
        t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&g->changed, &g->lock, &t);
    }
    atomic_fetch_sub(&g->sleepers, 1);
    pthread_mutex_unlock(&g->lock);
    return in_time;
}

/* Everybody here has come; false: the group has failed. */
static bool meet_within(host_comm *h, f64 deadline_s) {
    comm_group *g = h->group;
    u64 barrier = ++h->barriers;
    atomic_store(&g->places[h->base.rank].arrived, barrier);
    if (atomic_load(&g->sleepers)) wake_all(g);
    for (i64 r = g->first; r < g->first + g->held; r++) {
        for (int i = 0; i < SPINS && !has_come(g, r, barrier); i++) spin_pause();
        if (has_come(g, r, barrier) || sleep_for(g, r, barrier, now_s() + deadline_s)) continue;
        err why;
        err_set(&why, ST_DEVICE, "rank %lld did not come to exchange %llu (%s) within %.3g s",
                (long long)(h->base.named + r), (unsigned long long)h->calls,
                comm_call_names[g->places[h->base.rank].posts[h->calls % 2].kind], deadline_s);
        host_cancel(&h->base, &why);
    }
    return !atomic_load(&g->failed);
}

static bool meet(host_comm *h) { return meet_within(h, h->group->deadline_s); }

/* What is read here of other processes' ranks is here when all go on. */
static bool fetch_far(host_comm *h, call_kind kind) {
    comm_group *g = h->group;
    err why;
    if (!g->of.all) return true;
    if (h->base.rank == g->first && comm_fetch(g, h->calls, kind, &why) != ST_OK) host_cancel(&h->base, &why);
    return meet_within(h, g->deadline_s + FETCH_S);
}

/* Tells what this rank calls and waits for the others; false: the group has failed. */
static bool begin(comm *c, comm_post post) {
    host_comm *h = host_of(c);
    comm_group *g = h->group;
    if (atomic_load(&g->failed)) return false;
    h->calls++;
    g->places[c->rank].posts[h->calls % 2] = post;
    if (!meet(h)) return false;
    for (i64 r = g->first; r < g->first + g->held; r++) {
        const comm_post *other = &g->places[r].posts[h->calls % 2];
        if (other->kind == post.kind && other->size == post.size && other->root == post.root) continue;
        err why;
        err_set(&why, ST_DEVICE, "rank %lld calls %s of %llu in exchange %llu, rank %lld %s of %llu",
                (long long)(c->named + c->rank), comm_call_names[post.kind], (unsigned long long)post.size,
                (unsigned long long)h->calls, (long long)(c->named + r), comm_call_names[other->kind],
                (unsigned long long)other->size);
        host_cancel(c, &why);
        return false;
    }
    return fetch_far(h, post.kind);
}

static const comm_post *post_of(comm *c, i64 rank) {
    host_comm *h = host_of(c);
    return &h->group->places[rank].posts[h->calls % 2];
}

/* out[i] = the sum of all ranks' x[i], i in [0, n), which lie from byte `at` of their data on. */
static void sum_f32(comm *c, u64 at, i64 n, f32 *out) {
    const f32 *x[COMM_RANKS_MAX];
    for (i64 r = 0; r < c->ranks; r++) x[r] = post_at(post_of(c, r), at);
    for (i64 i = 0; i < n; i++) {
        f32 sum = x[0][i];
        for (i64 r = 1; r < c->ranks; r++) sum += x[r][i];
        out[i] = sum;
    }
}

static void sum_bf16(comm *c, u64 at, i64 n, bf16 *out) {
    const bf16 *x[COMM_RANKS_MAX];
    for (i64 r = 0; r < c->ranks; r++) x[r] = post_at(post_of(c, r), at);
    for (i64 i = 0; i < n; i++) {
        f32 sum = bf16_to_f32(x[0][i]);
        for (i64 r = 1; r < c->ranks; r++) sum += bf16_to_f32(x[r][i]);
        out[i] = f32_to_bf16(sum);
    }
}

/* Of elements [from, to). */
static void sum_part(comm *c, i64 from, i64 to, void *out, dtype type) {
    const u64 at = (u64)from * dtype_size(type);
    if (type == DT_F32)
        sum_f32(c, at, to - from, out);
    else
        sum_bf16(c, at, to - from, out);
}

/* Large ones: each rank sums a part into its own x, where nobody else reads that part; then all collect the parts. */
static void reduce_in_parts(comm *c, void *x, i64 n, dtype type) {
    u64 size = dtype_size(type);
    i64 from = reduce_part_from(n, c->ranks, c->rank), to = reduce_part_from(n, c->ranks, c->rank + 1);
    if (to > from) sum_part(c, from, to, (u8 *)x + (u64)from * size, type);
    if (!meet(host_of(c)) || !fetch_far(host_of(c), CALL_COLLECT_PARTS)) return;
    for (i64 r = 0; r < c->ranks; r++) {
        u64 at = (u64)reduce_part_from(n, c->ranks, r) * size, end = (u64)reduce_part_from(n, c->ranks, r + 1) * size;
        if (r != c->rank && end > at) memcpy((u8 *)x + at, post_at(post_of(c, r), at), end - at);
    }
    meet(host_of(c));
}

static void host_all_reduce(comm *c, void *x, i64 n, dtype type) {
    _Alignas(64) u8 sum[ONE_SHOT];
    u64 bytes = (u64)n * dtype_size(type);
    if (!begin(c, (comm_post){CALL_ALL_REDUCE, bytes, (i64)dtype_size(type), x, 0, NULL, NULL})) return;
    if (bytes > ONE_SHOT) return reduce_in_parts(c, x, n, type);
    sum_part(c, 0, n, sum, type);
    if (meet(host_of(c))) memcpy(x, sum, bytes);
}

static void host_all_gather(comm *c, const void *mine, void *all, u64 bytes) {
    if (!begin(c, (comm_post){CALL_ALL_GATHER, bytes, 0, mine, 0, NULL, NULL})) return;
    for (i64 r = 0; r < c->ranks; r++) {
        u8 *to = (u8 *)all + (u64)r * bytes;
        if (bytes && to != post_of(c, r)->data) memcpy(to, post_of(c, r)->data, bytes);
    }
    meet(host_of(c));
}

static void host_reduce_scatter(comm *c, const void *x, void *mine, i64 n, dtype type) {
    if (!begin(c, (comm_post){CALL_REDUCE_SCATTER, (u64)n * dtype_size(type), 0, x, 0, NULL, NULL})) return;
    sum_part(c, c->rank * n, (c->rank + 1) * n, mine, type);
    meet(host_of(c));
}

static void host_all_to_all(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size) {
    if (!begin(c, (comm_post){CALL_ALL_TO_ALL, size, 0, out, 0, out_counts, in_counts})) return;
    u8 *to = in;
    for (i64 r = 0; r < c->ranks; to += (u64)in_counts[r++] * size) {
        const comm_post *from = post_of(c, r);
        u64 before = 0;
        for (i64 k = 0; k < c->rank; k++) before += (u64)from->counts[k];
        if (from->counts[c->rank] != in_counts[r]) {
            err why;
            err_set(&why, ST_DEVICE, "all-to-all: rank %lld sends %lld elements to rank %lld, which expects %lld",
                    (long long)(c->named + r), (long long)from->counts[c->rank], (long long)(c->named + c->rank),
                    (long long)in_counts[r]);
            host_cancel(c, &why);
            return;
        }
        if (in_counts[r]) memcpy(to, post_at(from, before * size), (u64)in_counts[r] * size);
    }
    meet(host_of(c));
}

static void host_columns_to_rows(comm *c, const void *columns, i64 n, const i64 *first, void *rows) {
    const row_range own = comm_rows(n, c->ranks, c->rank);
    if (!begin(c, (comm_post){CALL_COLUMNS_TO_ROWS, (u64)n, first[c->ranks], columns, 0, first, NULL})) return;
    for (i64 r = 0; r < c->ranks; r++) {
        const i64 width = first[r + 1] - first[r];
        const u64 bytes = (u64)width * sizeof(u32);
        for (i64 i = own.from; i < own.to; i++)
            memcpy((u32 *)rows + (i - own.from) * first[c->ranks] + first[r], post_at(post_of(c, r), (u64)i * bytes),
                   bytes);
    }
    meet(host_of(c));
}

static void host_broadcast(comm *c, void *x, u64 bytes, i64 root) {
    if (!begin(c, (comm_post){CALL_BROADCAST, bytes, root, x, 0, NULL, NULL})) return;
    if (bytes && c->rank != root) memcpy(x, post_of(c, root)->data, bytes);
    meet(host_of(c));
}

static void host_barrier(comm *c) { begin(c, (comm_post){CALL_BARRIER, 0, 0, NULL, 0, NULL, NULL}); }

static status host_comm_finish(comm *c, err *e) {
    comm_group *g = host_of(c)->group;
    err why;
    if (g->of.all && !atomic_load(&g->failed) && hosts_check(g->of.all, &why) != ST_OK) host_cancel(c, &why);
    if (!atomic_load(&g->failed)) return ST_OK;
    pthread_mutex_lock(&g->lock);
    if (e) *e = g->why;
    status st = g->why.code;
    pthread_mutex_unlock(&g->lock);
    return st;
}

static void end_group(comm_group *g) {
    comm_far_close(g);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

static void host_close(comm *c) {
    if (!c) return;
    comm_group *g = host_of(c)->group;
    free(c);
    if (atomic_fetch_sub(&g->open, 1) == 1) end_group(g);
}

static const comm host_table = {.name = "shared memory",
                                .all_reduce = host_all_reduce,
                                .all_gather = host_all_gather,
                                .reduce_scatter = host_reduce_scatter,
                                .all_to_all = host_all_to_all,
                                .columns_to_rows = host_columns_to_rows,
                                .broadcast = host_broadcast,
                                .barrier = host_barrier,
                                .finish = host_comm_finish,
                                .cancel = host_cancel,
                                .close = host_close};

static status open_group(comm **out, const host_group *of, i64 ranks, f64 deadline_s, err *e) {
    if (ranks < 1 || ranks > COMM_RANKS_MAX)
        return err_set(e, ST_INPUT, "%lld ranks, outside 1..%d", (long long)ranks, COMM_RANKS_MAX);
    u64 bytes = sizeof(comm_group) + (u64)ranks * sizeof(comm_place);
    comm_group *g = aligned_alloc(64, (bytes + 63) & ~(u64)63);
    if (!g) return err_nomem(e, "a group of ranks", bytes);
    memset(g, 0, bytes);
    g->ranks = g->held = ranks, g->deadline_s = deadline_s;
    if (of) g->of = *of, g->held = ranks / of->n, g->first = (hosts_self(of->all) - of->first) * g->held;
    atomic_store(&g->open, g->held);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    for (i64 r = 0; r < g->held; r++) {
        host_comm *h = calloc(1, sizeof *h);
        if (!h) {
            for (i64 k = 0; k < r; k++) free(out[k]);
            end_group(g);
            return err_nomem(e, "a rank", sizeof *h);
        }
        *h = (host_comm){.base = host_table, .group = g};
        h->base.rank = g->first + r, h->base.ranks = ranks;
        out[r] = &h->base;
    }
    return ST_OK;
}

status comm_host_open(comm **out, i64 ranks, f64 deadline_s, err *e) {
    return open_group(out, NULL, ranks, deadline_s, e);
}

status comm_hosts_open(comm **out, const host_group *of, i64 ranks, f64 deadline_s, err *e) {
    if (ranks % of->n)
        return err_set(e, ST_INPUT, "%lld ranks in %lld processes: each holds as many as the others", (long long)ranks,
                       (long long)of->n);
    return open_group(out, of, ranks, deadline_s, e);
}
