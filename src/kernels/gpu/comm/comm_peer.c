/* kernels/gpu/comm/comm_peer.c: ranks on GPUs of one host that reach each other's memory. */
#include "device/comm.h"
#include "base/log.h"
#include "kernels/gpu/backend.h"
#include "kernels/gpu/comm/comm_reads.h"
#include <stdatomic.h>
#include <stdlib.h>

/* Measured on two and four H200. */
enum {
    ONE_SHOT_SENT = 60, /* rows that a rank sends at most to the others, of more than one, if it sums all by itself */
    LAMPORT_ROWS = 256, /* that go without flags (all_reduce.cu) at most; between two ranks: */
    LAMPORT_ROWS_OF_TWO = 192,
    NORM_APART_ROWS = 128, /* from here on a rank norms its own alone: blocks take whole rows, which are few below */
    DIVIDE_ROWS = 512 /* from here on (as fast either way) it keeps them where who wants the sum needs its own only:
                              products store their parts of the sum where it is taken */
};
_Static_assert((int)DIVIDED_ROWS_MAX == (int)GPU_DIVIDED_ROWS, "fused.h");
_Static_assert((int)NORM_APART_ROWS > (int)DEFERRED_ROWS, "which rows a rank has must not depend on what follows");

typedef struct {
    atomic_llong open;
    i64 ranks, units, dim, room;
    i64 divided;                           /* parts of the rows of a sum: ranks, or as many as the only one plays */
    volatile gpu_u32 *host[GPU_RANKS_MAX]; /* where each looks whether to stop; NULL: it is gone */
    struct uint4 *mailboxes[GPU_RANKS_MAX], *pieces[GPU_RANKS_MAX];
    gpu_u32 *flags[GPU_RANKS_MAX];
    struct uint2 *inboxes[GPU_RANKS_MAX];
    i64 part_units, relay_units; /* of an inbox */
    const gpu *gpus[GPU_RANKS_MAX];
} peer_group;

typedef struct {
    comm base;
    peer_group *group;
    const ops *o;
    device_pool pool;
    device_readback *words; /* memory of the host that the GPU writes to */
    gpu_exchange end;
    i64 one_shot_rows, lamport_rows, norm_apart_rows, divide_rows;
    i64 blocks; /* of a launch that must all be there at once */
    f64 deadline_s;
    err failed;
} peer_comm;

static peer_comm *peer_of(comm *c) { return (peer_comm *)c; }

/* Two shots of n values, of which parts are a multiple of `together` pieces. */
static gpu_all_reduce_parts_args parts_of(const peer_comm *p, gpu_bf16 *x, i64 n, i64 together) {
    const peer_group *g = p->group;
    gpu_all_reduce_parts_args k = {.e = p->end, .x = x, .n = n, .room = g->room, .together = (int)together};
    k.part = ceil_div(n / 8 / together, g->ranks) * together;
    memcpy(k.pieces, g->pieces, sizeof k.pieces);
    memcpy(k.flags, g->flags, sizeof k.flags);
    return k;
}

static void peer_sum_parts(const peer_comm *p, gpu_bf16 *x, i64 n) {
    const gpu_backend *b = gpu_of(p->o);
    const i64 most = p->group->room * p->group->ranks * 8;
    for (i64 at = 0; at < n; at += most) {
        const gpu_all_reduce_parts_args k = parts_of(p, x + at, min_i64(most, n - at), 1);
        gpu_launch(b->g, b->all_reduce_parts, COMM_BLOCKS, 1, 1, GPU_THREADS, 0, &k);
    }
}

/* Can the sum's rows be normed by the rank alone whose they are? The answer must be the same for all sums of as many
 * rows. */
static bool may_norm_apart(const peer_comm *p, const norm_args *a) {
    return a->n >= p->norm_apart_rows && ceil_div(a->n, p->group->divided) * (a->dim / 8) <= p->group->room &&
           a->dim <= 2 * 8 * GPU_NORM_THREADS && a->sum == a->x && a->x_stride == a->dim && a->out_stride == a->dim &&
           gpu_norm_in_pieces(a);
}

static row_range own_rows(const peer_comm *p, i64 n) { return comm_rows(n, p->group->divided, p->base.rank); }

static void peer_norm_apart(const peer_comm *p, const norm_args *a, kept_rows *kept) {
    const gpu_backend *b = gpu_of(p->o);
    const row_range own = own_rows(p, a->n);
    gpu_all_reduce_parts_args k = parts_of(p, (gpu_bf16 *)(uintptr_t)a->add, a->n * a->dim, a->dim / 8);
    k.norm = gpu_norm_of(a);
    k.norm.add = NULL;
    k.part = ceil_div(a->n, p->group->divided) * (a->dim / 8);
    k.played = (int)(p->group->divided / p->group->ranks);
    kept->stream = own;
    k.sent = kept->sent, k.own_alone = kept->divide && a->n >= p->divide_rows;
    k.maker = kept->maker, k.reader = kept->reader;
    if (k.own_alone) kept->normed = own;
    if (k.reader) kept->normed = (row_range){0, 0};
    gpu_launch(b->g,
               k.maker    ? b->take_rows_norm
               : k.reader ? b->give_rows_norm
                          : b->all_reduce_parts_norm,
               (u32)p->blocks, 1, 1, GPU_NORM_THREADS, 0, &k);
}

bool gpu_norms_apart(const comm *c, const norm_args *norm) {
    const peer_comm *p = (const peer_comm *)c;
    return norm->n > DEFERRED_ROWS && p->group->ranks == p->group->divided && may_norm_apart(p, norm);
}

i64 gpu_part_places(const ops *o, comm *c, const norm_args *norm, void **at) {
    const peer_comm *p = peer_of(c);
    const peer_group *g = p->group;
    (void)o;
    /* fewer rows' norms may be deferred, by a sum that takes them all from norm->add */
    if (norm->n < p->divide_rows || norm->n <= DEFERRED_ROWS || !may_norm_apart(p, norm)) return 0;
    for (i64 r = 0; r < g->divided; r++)
        at[r] = (u8 *)g->pieces[min_i64(r, g->ranks - 1)] + (u64)((g->ranks > 1 ? c->rank : r) * g->room) * 16;
    at[c->rank] = (gpu_bf16 *)(uintptr_t)norm->add + own_rows(p, norm->n).from * norm->dim;
    return g->divided;
}

void gpu_share_rows(const ops *o, comm *c, const divided_rows *of, i64 count, i64 n) {
    const gpu_backend *b = gpu_of(o);
    const peer_comm *p = peer_of(c);
    const row_range own = own_rows(p, n);
    gpu_share_rows_args k = {.e = p->end, .count = (int)count, .from = own.from, .to = own.to, .n = n};
    for (i64 i = 0; i < count; i++) k.of[i].at = of[i].x, k.of[i].width = of[i].width / 8;
    k.played = (int)(p->group->divided / p->group->ranks);
    memcpy(k.flags, p->group->flags, sizeof k.flags);
    gpu_launch(b->g, b->share_rows, COMM_BLOCKS, 1, 1, GPU_THREADS, 0, &k);
}

/* Chunks of a row of dim values. */
static i64 chunks_across(i64 dim) { return ceil_div(dim, GPU_THREADS * GPU_UNIT_VALUES); }

/* The sum of n values in rows of dim without flags: how, but for what is done with it. Returns the blocks of a launch;
 * 0: inboxes have no room for it. */
static u32 lamport_args(const peer_comm *p, void *x, i64 n, i64 dim, gpu_all_reduce_args *k) {
    const peer_group *g = p->group;
    const i64 chunks = n / dim * chunks_across(dim), together = ceil_div(chunks, g->ranks);
    *k = (gpu_all_reduce_args){.e = p->end,
                               .x = x,
                               .n = (int)n,
                               .dim = (int)dim,
                               .across = (int)chunks_across(dim),
                               .chunks = (int)chunks,
                               .room = (int)g->part_units,
                               .relay_room = (int)g->relay_units};
    k->one_shot = n <= p->one_shot_rows * g->dim && chunks * GPU_THREADS <= g->part_units;
    k->part_units = (int)(k->one_shot ? chunks : together) * GPU_THREADS;
    k->relay_units = (int)chunks * GPU_THREADS;
    memcpy(k->inboxes, g->inboxes, sizeof k->inboxes);
    if (chunks * GPU_THREADS > g->relay_units || together * GPU_THREADS > g->part_units) return 0;
    return (u32)(min_i64(together, max_i64(p->blocks / g->ranks, 1)) * g->ranks); /* a multiple, as it wants them */
}

static void peer_all_reduce(comm *c, void *x, i64 n, dtype type) {
    peer_comm *p = peer_of(c);
    const gpu_backend *b = gpu_of(p->o);
    const i64 most = LAMPORT_ROWS * p->group->dim;
    if (type != DT_BF16 || n % GPU_UNIT_VALUES) { /* gpu_comm_open's caller has seen to both */
        err_set(&p->failed, ST_UNSUPPORTED, "an exchange of %lld values of %s among GPUs", (long long)n,
                dtype_name(type));
        return;
    }
    if (n > p->lamport_rows * p->group->dim && n % 8 == 0 && (uintptr_t)x % 16 == 0) return peer_sum_parts(p, x, n);
    for (i64 at = 0; at < n; at += most) {
        const i64 here = min_i64(most, n - at);
        gpu_all_reduce_args k;
        const u32 blocks = lamport_args(p, (gpu_bf16 *)x + at, here, here, &k); /* `most` values fit */
        gpu_launch(b->g, b->all_reduce, blocks, 1, 1, GPU_THREADS, 0, &k);
    }
}

void gpu_reduce_norm(const ops *o, comm *c, const norm_args *norm, deferred_norm *deferred, kept_rows *kept) {
    const gpu_backend *b = gpu_of(o);
    const peer_comm *p = peer_of(c);
    void *x = (void *)(uintptr_t)norm->add;
    const i64 n = norm->n * norm->dim, across = chunks_across(norm->dim);
    gpu_all_reduce_args k;
    gpu_after after;
    const bool of_some = kept && (kept->maker || kept->reader);
    const u32 blocks = n <= p->lamport_rows * p->group->dim && !of_some ? lamport_args(p, x, n, norm->dim, &k) : 0;
    if (blocks && gpu_may_defer_norm(b, norm, deferred, across, &after)) {
        k.after = after;
        if (k.one_shot && k.chunks <= p->blocks)
            gpu_launch(b->g, b->all_reduce_norm_few, (u32)across, (u32)norm->n, 1, GPU_THREADS, 0, &k);
        else
            gpu_launch(b->g, b->all_reduce_norm, blocks, 1, 1, GPU_THREADS, 0, &k);
        *deferred = (deferred_norm){deferred->squares, across, norm->dim, norm->eps};
        return;
    }
    if (deferred) deferred->parts = 0;
    if (kept && may_norm_apart(p, norm)) return peer_norm_apart(p, norm, kept);
    peer_all_reduce(c, x, n, DT_BF16);
    o->norm(o, norm);
}

void gpu_comm_one_shot(comm *c, i64 rows) { peer_of(c)->one_shot_rows = rows; }
void gpu_comm_lamport(comm *c, i64 rows) { peer_of(c)->lamport_rows = min_i64(rows, LAMPORT_ROWS); }
void gpu_comm_norm_apart(comm *c, i64 rows) { peer_of(c)->norm_apart_rows = rows; }
void gpu_comm_divide(comm *c, i64 rows) { peer_of(c)->divide_rows = rows; }
i64 gpu_comm_divides_from(const comm *c) {
    const peer_comm *p = (const peer_comm *)c;
    return p->group->divided > 1 ? p->divide_rows : INT64_MAX;
}
i64 gpu_comm_norms_apart_from(const comm *c) { return ((const peer_comm *)c)->norm_apart_rows; }

const ops *gpu_comm_ops(const comm *c) { return ((const peer_comm *)c)->o; }
const gpu_exchange *gpu_comm_end(const comm *c) { return &((const peer_comm *)c)->end; }

static void exchange_blocks(const peer_comm *p, const gpu_exchange_blocks_args *k) {
    const gpu_backend *b = gpu_of(p->o);
    i64 most = 1;
    for (i64 r = 0; r < p->base.ranks; r++) {
        const gpu_block *out = &k->out[r], *in = &k->in[r];
        most = max_i64(most, max_i64(out->rows * ceil_div(out->width, 2), in->rows * ceil_div(in->width, 2)));
    }
    gpu_launch(b->g, b->exchange_blocks, (u32)min_i64(ceil_div(most, GPU_THREADS), COMM_BLOCKS), 1, 1, GPU_THREADS, 0,
               k);
}

static void peer_all_gather(comm *c, const void *mine, void *all, u64 bytes) {
    const peer_comm *p = peer_of(c);
    const int width = (int)min_i64((i64)(bytes / 4), INT32_MAX);
    gpu_exchange_blocks_args k = {.e = p->end};
    if (bytes % 4 || bytes > (u64)(p->end.units - 1) * 8) return gpu_comm_gather_reads(c, mine, all, bytes);
    for (i64 r = 0; r < c->ranks; r++) {
        k.out[r] = (gpu_block){(gpu_u32 *)(uintptr_t)mine, 0, 1, width};
        k.in[r] = (gpu_block){(gpu_u32 *)((u8 *)all + (u64)r * bytes), 0, 1, width};
    }
    exchange_blocks(p, &k);
}

/* As many rows of each at a time as mailboxes have room for. */
static void peer_columns_to_rows(comm *c, const void *columns, i64 n, const i64 *first, void *rows) {
    const peer_comm *p = peer_of(c);
    const i64 width = first[c->rank + 1] - first[c->rank], total = first[c->ranks], each = ceil_div(n, c->ranks);
    const row_range own = comm_rows(n, c->ranks, c->rank);
    i64 widest = 1;
    for (i64 r = 0; r < c->ranks; r++) widest = max_i64(widest, first[r + 1] - first[r]);
    const i64 at_once = max_i64((p->end.units - 1) / ceil_div(widest, 2), 1);
    for (i64 at = 0; at < each; at += at_once) {
        gpu_exchange_blocks_args k = {.e = p->end};
        for (i64 r = 0; r < c->ranks; r++) {
            const row_range of = comm_rows(n, c->ranks, r);
            const i64 sent = max_i64(min_i64(at_once, of.to - of.from - at), 0),
                      taken = max_i64(min_i64(at_once, own.to - own.from - at), 0);
            k.out[r] =
                (gpu_block){(gpu_u32 *)(uintptr_t)columns + (of.from + at) * width, width, (int)sent, (int)width};
            k.in[r] =
                (gpu_block){(gpu_u32 *)rows + at * total + first[r], total, (int)taken, (int)(first[r + 1] - first[r])};
        }
        exchange_blocks(p, &k);
    }
}

static status peer_finish(comm *c, err *e) {
    peer_comm *p = peer_of(c);
    volatile gpu_u32 *host = p->end.host;
    if (p->failed.code == ST_OK && host[COMM_FAILED]) {
        char doing[120] = "is gone";
        const i64 missed = host[COMM_FAILED] - 1;
        if (p->group->gpus[missed]) gpu_doing(p->group->gpus[missed], doing, sizeof doing);
        err_set(&p->failed, ST_DEVICE, "rank %lld did not come to an exchange within %.3g s: it %s",
                (long long)(c->named + missed), p->deadline_s, doing);
    }
    if (p->failed.code == ST_OK && host[COMM_STOP])
        return err_set(e, ST_CANCELLED, "exchanges between GPUs were stopped");
    if (e && p->failed.code != ST_OK) *e = p->failed;
    return p->failed.code;
}

static void peer_cancel(comm *c, const err *why) {
    peer_group *g = peer_of(c)->group;
    (void)why;
    for (i64 r = 0; r < g->ranks; r++)
        if (g->host[r]) g->host[r][COMM_STOP] = 1;
}

static void peer_close(comm *c) {
    if (!c) return;
    peer_comm *p = peer_of(c);
    peer_group *g = p->group;
    g->host[c->rank] = NULL, g->gpus[c->rank] = NULL;
    if (p->pool.dev) p->pool.dev->readback_close(p->pool.dev, p->words);
    device_pool_free(&p->pool);
    free(p);
    if (atomic_fetch_sub(&g->open, 1) == 1) free(g);
}

static const comm peer_table = {.name = "peer memory",
                                .peer = true,
                                .all_reduce = peer_all_reduce,
                                .all_gather = peer_all_gather,
                                .reduce_scatter = gpu_comm_reduce_scatter,
                                .all_to_all = gpu_comm_all_to_all,
                                .broadcast = gpu_comm_broadcast,
                                .barrier = gpu_comm_barrier,
                                .columns_to_rows = peer_columns_to_rows,
                                .finish = peer_finish,
                                .cancel = peer_cancel,
                                .close = peer_close};

/* Rank r's own memory: its mailbox, its words, and those on the host. */
static status open_rank(peer_comm *p, i64 r, err *e) {
    peer_group *g = p->group;
    device *dev = gpu_device(gpu_of(p->o)->g);
    p->pool.dev = dev;
    g->gpus[r] = gpu_of(p->o)->g;
    status st =
        device_pool_add(&p->pool, (void **)&g->mailboxes[r], (u64)(2 * g->ranks * g->units), 16, "a mailbox", e);
    if (st == ST_OK) st = device_pool_add(&p->pool, (void **)&p->end.words, COMM_WORDS, 4, "a mailbox", e);
    if (st == ST_OK)
        st = device_pool_add(&p->pool, (void **)&g->pieces[r], (u64)(g->divided * g->room), 16, "parts of sums", e);
    if (st == ST_OK)
        st = device_pool_add(&p->pool, (void **)&g->flags[r], (u64)(2 * g->ranks * COMM_NORM_BLOCKS), 4,
                             "parts of sums", e);
    const u64 inbox = (u64)(LAMPORT_SLOTS * (g->ranks * g->part_units + g->relay_units));
    if (st == ST_OK) st = device_pool_add(&p->pool, (void **)&g->inboxes[r], inbox, 8, "an inbox", e);
    if (st == ST_OK) st = dev->readback_open(dev, COMM_HOST_WORDS * sizeof(u32), &p->words, e);
    if (st != ST_OK) return st;
    p->base.held = dev->takes((u64)(2 * g->ranks * g->units) * 16) + dev->takes((u64)(g->divided * g->room) * 16) +
                   dev->takes(inbox * 8);
    memset(p->words->data, 0, COMM_HOST_WORDS * sizeof(u32));
    g->host[r] = p->end.host = (volatile gpu_u32 *)(void *)p->words->data;
    return dev->finish(dev, e); /* what the others may write to is zero by now */
}

static status reach_all(const ops *const *tables, i64 ranks, err *e) {
    for (i64 a = 0; a < ranks; a++)
        for (i64 b = 0; b < ranks; b++) {
            status st = a == b ? ST_OK : gpu_reach(gpu_of(tables[a])->g, gpu_of(tables[b])->g, e);
            if (st != ST_OK) return err_prefix(e, "rank %lld", (long long)a);
        }
    return ST_OK;
}

status gpu_comm_open(comm **out, const ops *const *tables, i64 ranks, const comm_sizes *most, f64 deadline_s, err *e) {
    if (ranks > GPU_RANKS_MAX)
        return err_set(e, ST_UNSUPPORTED, "%lld ranks on GPUs of one host, at most %d", (long long)ranks,
                       GPU_RANKS_MAX);
    status st = reach_all(tables, ranks, e);
    peer_group *g = st == ST_OK ? calloc(1, sizeof *g) : NULL;
    if (!g) return st == ST_OK ? err_nomem(e, "a group of ranks", sizeof *g) : st;
    const i64 dim = most->dim;
    g->ranks = ranks, g->units = max_i64(most->units, 2 * COMM_NORM_BLOCKS) + 1, g->dim = dim;
    g->divided = ranks > 1 ? ranks : max_i64(most->played, 1);
    g->room = ceil_div(most->rows, g->divided) * ceil_div(dim, 8);
    g->relay_units = LAMPORT_ROWS * chunks_across(dim) * GPU_THREADS;
    g->part_units = ceil_div(LAMPORT_ROWS * chunks_across(dim), ranks) * GPU_THREADS;
    i64 n = 0, blocks = COMM_NORM_BLOCKS; /* as many as every rank has room for at once, one on a multiprocessor */
    for (i64 r = 0; r < ranks; r++) blocks = min_i64(blocks, gpu_processors(gpu_of(tables[r])->g));
    for (; st == ST_OK && n < ranks; n++) {
        peer_comm *p = calloc(1, sizeof *p);
        if (!p) {
            st = err_nomem(e, "a rank", sizeof *p);
            break;
        }
        *p = (peer_comm){.base = peer_table,
                         .group = g,
                         .o = tables[n],
                         .deadline_s = deadline_s,
                         .one_shot_rows = ranks <= 2 ? LAMPORT_ROWS : ONE_SHOT_SENT / (ranks - 1),
                         .norm_apart_rows = NORM_APART_ROWS,
                         .divide_rows = DIVIDE_ROWS,
                         .lamport_rows = ranks <= 2 ? LAMPORT_ROWS_OF_TWO : LAMPORT_ROWS,
                         .blocks = blocks};
        p->base.rank = n, p->base.ranks = ranks;
        p->end = (gpu_exchange){
            .units = g->units, .deadline_ns = (u64)(deadline_s * 1e9), .rank = (int)n, .ranks = (int)ranks};
        out[n] = &p->base;
        atomic_fetch_add(&g->open, 1);
        st = open_rank(p, n, e);
        if (st != ST_OK) err_prefix(e, "rank %lld", (long long)n);
    }
    for (i64 r = 0; st == ST_OK && r < ranks; r++)
        memcpy(peer_of(out[r])->end.mailboxes, g->mailboxes, sizeof g->mailboxes);
    if (st == ST_OK) return ST_OK;
    if (!n) free(g);
    while (n-- > 0) out[n]->close(out[n]);
    return st;
}
