/* Exchanges between ranks on emulated GPUs (EMU_GPUS=8), over peer memory and by a fake NCCL: the sum, in the order of
 * the ranks, whatever the sizes, with and without the norm behind it, a matrix divided by rows instead of by columns,
 * gathers, and the others; and ranks that stay away. With RANKS_OF_ONE_GPU=1 on a machine with a real GPU: between
 * parts of it; with REAL_GPUS=N on one with N of them: between those, by their NCCL, too. gpu_ranks.c has models. */
#include "unit.h"

#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "runtime/engine_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANKS_MOST = 8,
    VALUES = 8192 /* of a launch */,
    SUM_MOST = 280008 /* more than one launch takes in two shots */
};

typedef struct {
    i64 n; /* values */
    int rounds;
    i64 away; /* the rank that does not come; -1: none */
    bool cancels;
} sums;

static status open_gpu(rank *k, void *ud, err *e) {
    static const i64 gpus[COMM_RANKS_MAX] = {0};
    const ranks *all = ud;
    const gpu_part part = gpu_part_of(gpus, all->n, k->index);
    char name[16] = "cuda";
    const bool parts = getenv("RANKS_OF_ONE_GPU") != NULL;
    if (!parts) snprintf(name, sizeof name, "cuda:%lld", (long long)k->index);
    return backend_open(&k->backend, &(backend_options){.name = name, .act = DT_BF16, .gpu = parts ? &part : NULL}, e);
}

/* The driver waits for a GPU's kernels where it hands out or takes back memory: not while another rank of that GPU
 * waits in an exchange. */
static void all_wait(rank *k) { k->comm->barrier(k->comm); }

static bf16 value_of(i64 rank, i64 round, i64 i) {
    u32 z = (u32)(rank * 7919 + round * 613 + i * 104729 + 1) * 2654435761u;
    return f32_to_bf16((f32)((i32)z >> 8) * (z & 1 ? 1e-3f : 3e3f));
}

static status sum_on(rank *k, void *ud, err *e) {
    const sums *s = ud;
    device *dev = k->backend.device;
    void *x;
    static _Thread_local bf16 mine[SUM_MOST];
    status st = dev->alloc(dev, &x, SUM_MOST * sizeof(bf16), "x", e);
    for (int round = 0; st == ST_OK && round < s->rounds; round++) {
        for (i64 i = 0; i < s->n; i++) mine[i] = value_of(k->index, round, i);
        dev->write(dev, x, mine, (u64)s->n * sizeof *mine);
        if (s->away == k->index) break;
        k->data->all_reduce(k->data, x, s->n, DT_BF16);
        dev->read(dev, mine, x, (u64)s->n * sizeof *mine);
        st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
        for (i64 i = 0; st == ST_OK && i < s->n; i++) {
            f32 sum = bf16_to_f32(value_of(0, round, i));
            for (i64 r = 1; r < k->data->ranks; r++) sum += bf16_to_f32(value_of(r, round, i));
            if (mine[i] != f32_to_bf16(sum))
                st = err_set(e, ST_NUMERIC, "%lld values, round %d: value %lld is %g, not %g", (long long)s->n, round,
                             (long long)i, (f64)bf16_to_f32(mine[i]), (f64)sum);
        }
    }
    if (s->away == k->index && s->cancels) {
        usleep(100000);
        return err_set(e, ST_IO, "its disk is full");
    }
    dev->release(dev, x);
    return st;
}

static bool by_nccl; /* the fake one (fake_nccl.cc), or that of a machine with GPUs */

/* REAL_GPUS=N: on so many of a machine. */
static i64 ranks_most(void) {
    const char *text = getenv("REAL_GPUS");
    return text ? min_i64(atoi(text), RANKS_MOST) : RANKS_MOST;
}

enum { APART_ROWS = 2100, APART_DIM = VALUES / 64, APART_BAD = 7 };

static status on_gpus(i64 n, f64 deadline_s, rank_fn fn, void *ud, err *e) {
    ranks r;
    const model_config c = {
        .n_heads = n, .inter_dense = n, .inter_expert = n, .vocab = n, .ranks = 1, .hidden = VALUES / 64};
    status st = ranks_open(&r, &c, &(rank_layout){.tp = n, .pp = 1}, NULL, false, deadline_s, e);
    r.nccl = by_nccl, r.rows = APART_ROWS;
    if (st == ST_OK) st = ranks_each(&r, open_gpu, &r, e);
    if (st == ST_OK) st = ranks_connect(&r, e);
    if (st == ST_OK) st = ranks_each(&r, fn, ud, e);
    ranks_close(&r);
    return st;
}

static status sum_over(i64 n, f64 deadline_s, const sums *s, err *e) {
    return on_gpus(n, deadline_s, sum_on, (void *)(uintptr_t)s, e);
}

static void sums_are_in_order(void **state) {
    (void)state;
    static const i64 sizes[] = {4, 8, 252, 1024, 8192, 8196, 7168, SUM_MOST};
    for (i64 n = 2; n <= ranks_most(); n *= 2)
        for (size_t i = 0; i < COUNT_OF(sizes); i += n < 8 ? 1 : 3) {
            const sums s = {.n = sizes[i], .rounds = n < 8 ? 5 : 2, .away = -1};
            err e = {0};
            if (sum_over(n, 60, &s, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)n, e.text);
        }
}

static void stays_away(const char *text) {
    const i64 n = min_i64(3, ranks_most());
    char full[64];
    err e = {0};
    assert_int_equal(sum_over(n, 0.3, &(sums){.n = 3000, .rounds = 2, .away = 1}, &e), ST_DEVICE);
    if (!strstr(e.text, text)) fail_msg("\"%s\"", e.text);
    assert_int_equal(sum_over(n, 60, &(sums){.n = 3000, .rounds = 2, .away = n - 1, .cancels = true}, &e), ST_IO);
    snprintf(full, sizeof full, "rank %lld: its disk is full", (long long)n - 1);
    assert_string_equal(e.text, full);
}

static void a_rank_stays_away(void **state) {
    (void)state;
    f64 start = now_s();
    stays_away("rank 1 did not come to an exchange within 0.3 s: it ");
    assert_true(now_s() - start < 30);
}

enum { ROWS_TESTED = 9, WORDS_MOST = 4096 };

/* columns_to_rows in pieces (mailboxes have room for a few rows), gathers in place and not, and sums in turns. */
static status blocks_on(rank *k, void *ud, err *e) {
    comm *c = k->data;
    device *dev = k->backend.device;
    i64 first[RANKS_MOST + 1] = {0};
    u32 *x, *y, host[WORDS_MOST];
    (void)ud;
    for (i64 r = 0; r < c->ranks; r++) first[r + 1] = first[r] + 21 + 5 * r;
    const i64 total = first[c->ranks], at = first[c->rank], width = first[c->rank + 1] - at;
    status st = dev->alloc(dev, (void **)&x, sizeof host, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&y, sizeof host, "y", e);
    for (i64 n = 0; st == ST_OK && n < ROWS_TESTED; n++) {
        const row_range own = comm_rows(n, c->ranks, c->rank);
        const i64 want = (own.to - own.from) * total;
        for (i64 i = 0; i < n * width; i++) host[i] = (u32)(n * 100000 + i / width * 1000 + at + i % width);
        dev->write(dev, x, host, (u64)(n * width) * 4);
        c->columns_to_rows(c, x, n, first, y);
        memset(host, 0, sizeof host);
        dev->read(dev, host, y, (u64)want * 4);
        st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
        for (i64 i = 0; st == ST_OK && i < want; i++)
            if (host[i] != (u32)(n * 100000 + (own.from + i / total) * 1000 + i % total))
                st = err_set(e, ST_NUMERIC, "%lld rows: word %lld is %u", (long long)n, (long long)i, host[i]);
        const i64 some = n + 1, from = n % 2 ? 0 : c->rank * some; /* in place, and from elsewhere */
        for (i64 i = 0; i < some; i++) host[i] = (u32)(n * 1000 + c->rank * some + i);
        dev->write(dev, (n % 2 ? x : y) + from, host, (u64)some * 4);
        c->all_gather(c, (n % 2 ? x : y) + from, y, (u64)some * 4);
        dev->read(dev, host, y, (u64)(some * c->ranks) * 4);
        if (st == ST_OK) st = dev->finish(dev, e);
        for (i64 i = 0; st == ST_OK && i < some * c->ranks; i++)
            if (host[i] != (u32)(n * 1000 + i))
                st =
                    err_set(e, ST_NUMERIC, "a gather of %lld: word %lld is %u", (long long)some, (long long)i, host[i]);
    }
    if (st != ST_OK) return st;
    all_wait(k);
    dev->release(dev, x), dev->release(dev, y);
    return rank_finish(k, e);
}

static void blocks_arrive(void **state) {
    (void)state;
    err e = {0};
    for (i64 n = 2; n <= ranks_most(); n += 3)
        if (on_gpus(n, 60, blocks_on, NULL, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)n, e.text);
}

/* Byte k of what rank `from` has for rank `to`. */
static u8 byte_of(i64 round, i64 from, i64 to, i64 k) { return (u8)(round * 31 + from * 7 + to * 3 + k); }

/* The other exchanges, which read the others' memory, in turns, of whatever size. What was shown is overwritten right
 * behind each: nobody may still be reading it. */
static status reads_on(rank *k, void *ud, err *e) {
    enum { ROUNDS = 4, MOST = 400000, SUMS_MOST = 1000 };
    static const u64 sizes[ROUNDS] = {1, 4, 16, 2};
    comm *c = k->data;
    device *dev = k->backend.device;
    const i64 me = c->rank, ranks = c->ranks;
    static _Thread_local u8 host[MOST], got[MOST], spoilt[MOST];
    u8 *x, *y;
    (void)ud;
    memset(spoilt, 0xee, sizeof spoilt);
    status st = dev->alloc(dev, (void **)&x, MOST, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&y, MOST, "y", e);
    all_wait(k);
    for (i64 round = 0; st == ST_OK && round < ROUNDS; round++) {
        const i64 size = (i64)sizes[round], root = round % ranks, bytes = round == 1 ? MOST / 2 - 1 : 1000 * size;
        i64 out[RANKS_MOST], in[RANKS_MOST], at = 0;
        for (i64 r = 0; r < ranks; r++) {
            out[r] = (me + 2 * r + round) % 5 ? 61 * (me + 2 * r + round) % 211 : 0;
            in[r] = (r + 2 * me + round) % 5 ? 61 * (r + 2 * me + round) % 211 : 0;
            for (i64 b = 0; b < out[r] * size; b++) host[at++] = byte_of(round, me, r, b);
        }
        dev->write(dev, x, host, (u64)at);
        c->all_to_all(c, x, out, y, in, (u64)size);
        dev->write(dev, x, spoilt, MOST);
        dev->read(dev, got, y, MOST);
        st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
        for (i64 r = 0, b = at = 0; st == ST_OK && r < ranks; r++)
            for (b = 0; st == ST_OK && b < in[r] * size; b++)
                if (got[at++] != byte_of(round, r, me, b))
                    st = err_set(e, ST_NUMERIC, "all-to-all %lld: byte %lld of rank %lld", (long long)round,
                                 (long long)b, (long long)r);
        if (st != ST_OK) break;
        c->barrier(c);
        for (i64 b = 0; b < bytes; b++) host[b] = byte_of(round, me, 0, b);
        dev->write(dev, x, host, (u64)bytes);
        c->broadcast(c, x, (u64)bytes, root);
        dev->read(dev, got, x, (u64)bytes);
        dev->write(dev, x, host, (u64)bytes / (u64)ranks);
        c->all_gather(c, x, y, (u64)bytes / (u64)ranks); /* the smallest by mailboxes */
        dev->write(dev, x, spoilt, MOST);
        dev->read(dev, got + bytes, y, (u64)(bytes / ranks * ranks));
        st = dev->finish(dev, e);
        for (i64 b = 0; st == ST_OK && b < bytes; b++)
            if (got[b] != byte_of(round, root, 0, b))
                st = err_set(e, ST_NUMERIC, "broadcast %lld: byte %lld", (long long)round, (long long)b);
        for (i64 b = 0; st == ST_OK && b < bytes / ranks * ranks; b++)
            if (got[bytes + b] != byte_of(round, b / (bytes / ranks), 0, b % (bytes / ranks)))
                st = err_set(e, ST_NUMERIC, "gather %lld: byte %lld", (long long)round, (long long)b);
        const i64 n = round % 2 ? SUMS_MOST : SUMS_MOST - 3;
        const bool wide = round > 1;
        for (i64 i = 0; i < n * ranks; i++) {
            const bf16 v = value_of(me, round, i);
            if (wide)
                ((f32 *)host)[i] = bf16_to_f32(v);
            else
                ((bf16 *)host)[i] = v;
        }
        dev->write(dev, x, host, (u64)(n * ranks) * (wide ? 4 : 2));
        c->reduce_scatter(c, x, y, n, wide ? DT_F32 : DT_BF16);
        dev->write(dev, x, spoilt, MOST);
        dev->read(dev, got, y, (u64)n * (wide ? 4 : 2));
        if (st == ST_OK) st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
        for (i64 i = 0; st == ST_OK && i < n; i++) {
            f32 sum = 0;
            for (i64 r = 0; r < ranks; r++) sum += bf16_to_f32(value_of(r, round, me * n + i));
            const f32 had = wide ? ((f32 *)got)[i] : bf16_to_f32(((bf16 *)got)[i]);
            if (had != (wide ? sum : bf16_to_f32(f32_to_bf16(sum))))
                st = err_set(e, ST_NUMERIC, "reduce-scatter %lld: value %lld is %g, not %g", (long long)round,
                             (long long)i, (f64)had, (f64)sum);
        }
    }
    if (st != ST_OK) return st;
    all_wait(k);
    dev->release(dev, x), dev->release(dev, y);
    return rank_finish(k, e);
}

static void others_arrive(void **state) {
    (void)state;
    err e = {0};
    for (i64 n = 2; n <= ranks_most(); n += 3)
        if (on_gpus(n, 20, reads_on, NULL, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)n, e.text);
}

enum { NORM_ROWS = 5, NORM_DIM = 1288 /* a piece and a bit */, NORM_MARK = 7 };

/* Sum and norm by one launch leave what the two leave one after the other: the same residual stream and marks, and the
 * same rows once they are multiplied by what is left to do. Row 2 has an infinity, in one rank's part. */
static status norms_on(rank *k, void *ud, err *e) {
    (void)ud;
    enum { N = NORM_ROWS * NORM_DIM };
    const ops *o = &k->backend.ops;
    device *dev = k->backend.device;
    static _Thread_local bf16 delta[N], before[N], x[2][N], out[2][N];
    static _Thread_local f32 weight[NORM_DIM], squares[NORM_ROWS * DEFERRED_PARTS];
    i32 bad[2][NORM_ROWS];
    bf16 *delta_there, *x_there, *out_there;
    f32 *squares_there;
    i32 *bad_there;
    op_weight *w;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = NORM_DIM, .data = weight};
    for (int i = 0; i < NORM_DIM; i++) weight[i] = 0.5f + (f32)(i % 7);
    status st = o->weight_prepare(o, &(weight_desc){.kind = WK_VECTOR, .views = &view, .n_views = 1}, &w, e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&delta_there, sizeof delta, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&x_there, sizeof delta, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&out_there, sizeof delta, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&squares_there, sizeof squares, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, (void **)&bad_there, sizeof bad[0], "x", e);
    if (st != ST_OK) return st;
    deferred_norm deferred = {.squares = squares_there};
    const norm_args norm = {.weight = w,
                            .x = x_there,
                            .add = delta_there,
                            .sum = x_there,
                            .out = out_there,
                            .n = NORM_ROWS,
                            .dim = NORM_DIM,
                            .x_stride = NORM_DIM,
                            .out_stride = NORM_DIM,
                            .eps = 1e-5f,
                            .bad = bad_there,
                            .mark = NORM_MARK};
    for (int way = 0; st == ST_OK && way < 2; way++) {
        for (i64 i = 0; i < N; i++) delta[i] = value_of(k->index, 0, i), before[i] = value_of(9, 1, i);
        if (k->index == 1) delta[2 * NORM_DIM + 1100] = 0x7f80;
        memset(bad[way], 0, sizeof bad[way]);
        dev->write(dev, delta_there, delta, sizeof delta);
        dev->write(dev, x_there, before, sizeof delta);
        dev->write(dev, bad_there, bad[way], sizeof bad[way]);
        dev->finish(dev, NULL);
        gpu_reduce_norm(o, k->data, &norm, way ? &deferred : NULL, NULL);
        dev->read(dev, x[way], x_there, sizeof delta);
        dev->read(dev, out[way], out_there, sizeof delta);
        dev->read(dev, bad[way], bad_there, sizeof bad[way]);
        dev->read(dev, squares, squares_there, sizeof squares);
        st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
    }
    if (st == ST_OK && deferred.parts != 2) st = err_set(e, ST_NUMERIC, "%lld parts", (long long)deferred.parts);
    if (st == ST_OK && (memcmp(x[0], x[1], sizeof delta) || memcmp(bad[0], bad[1], sizeof bad[0]) ||
                        bad[0][2] != NORM_MARK || bad[0][1]))
        st = err_set(e, ST_NUMERIC, "another residual stream, or other marks");
    for (i64 i = 0; st == ST_OK && i < N; i++) {
        const f32 *s = squares + i / NORM_DIM * DEFERRED_PARTS;
        const f64 scale = 1 / sqrt((f64)(s[0] + s[1]) / NORM_DIM + norm.eps), one = bf16_to_f32(out[0][i]),
                  two = bf16_to_f32(out[1][i]) * scale;
        if (i / NORM_DIM != 2 && fabs(one - two) > 0.01 * fabs(one) + 1e-6)
            st = err_set(e, ST_NUMERIC, "value %lld: %g, not %g", (long long)i, two, one);
    }
    o->weight_release(w);
    dev->release(dev, delta_there), dev->release(dev, x_there), dev->release(dev, out_there);
    dev->release(dev, squares_there), dev->release(dev, bad_there);
    return st;
}

static void sum_and_norm_in_one(void **state) {
    (void)state;
    err e = {0};
    for (i64 n = 2; n <= min_i64(4, ranks_most()); n += 2)
        if (on_gpus(n, 60, norms_on, NULL, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)n, e.text);
}

/* What a rank's memory has after the sums and norms of rows apart, or one after the other. */
typedef struct {
    bf16 x[APART_ROWS * APART_DIM], out[APART_ROWS * APART_DIM];
    i32 bad[APART_ROWS];
} norm_results;

typedef struct {
    i64 rows; /* of each of two sums on one residual stream */
} apart_sums;

/* How rows are normed: all on every rank; a rank's own, which all get; or its own that nobody gets until rows are
 * shared behind the sums, of the residual stream, too. */
typedef enum { NORMED_TOGETHER, NORMED_APART, NORMED_AND_KEPT, NORM_WAYS } norm_way;

/* Two sums with their norms, one after the other; row 7 has a NaN in rank 1's part of the second. */
static status norms_in_turn(rank *k, const norm_args *norm, norm_way way, norm_results *r, err *e) {
    device *dev = k->backend.device;
    const ops *o = &k->backend.ops;
    const u64 bytes = (u64)(norm->n * norm->dim) * sizeof(bf16);
    const row_range own = comm_rows(norm->n, k->data->ranks, k->index);
    static _Thread_local bf16 x[APART_ROWS * APART_DIM];
    for (i64 i = 0; i < norm->n * norm->dim; i++) x[i] = value_of(9, 1, i);
    dev->write(dev, norm->sum, x, bytes);
    memset(r, 0, sizeof *r);
    dev->write(dev, norm->bad, r->bad, sizeof r->bad);
    dev->write(dev, norm->out, r->out, bytes);
    gpu_comm_norm_apart(k->data, way == NORMED_TOGETHER ? norm->n + 1 : norm->n);
    gpu_comm_divide(k->data, norm->n);
    for (int sum = 0; sum < 2; sum++) {
        dev->finish(dev, NULL); /* x has been read */
        for (i64 i = 0; i < norm->n * norm->dim; i++) x[i] = value_of(k->index, sum, i);
        if (sum && k->index == 1) x[APART_BAD * APART_DIM + 3] = 0x7fc0;
        dev->write(dev, (void *)(uintptr_t)norm->add, x, bytes);
        norm_args some = *norm;
        kept_rows kept = {.divide = way == NORMED_AND_KEPT, .stream = {0, norm->n}, .normed = {0, norm->n}};
        if (!sum) some.bad = NULL;
        gpu_reduce_norm(o, k->data, &some, NULL, &kept);
        const row_range all = {0, norm->n}, stream = way == NORMED_TOGETHER ? all : own,
                        normed = way == NORMED_AND_KEPT ? own : all;
        if (memcmp(&kept.stream, &stream, sizeof stream) || memcmp(&kept.normed, &normed, sizeof normed))
            return err_set(e, ST_NUMERIC, "other rows are kept");
    }
    if (way == NORMED_AND_KEPT) {
        dev->read(dev, x, norm->out, bytes);
        dev->finish(dev, NULL);
        for (i64 i = 0; i < norm->n * norm->dim; i++)
            if (x[i] && (i / norm->dim < own.from || i / norm->dim >= own.to))
                return err_set(e, ST_NUMERIC, "row %lld is another rank's", (long long)(i / norm->dim));
        gpu_share_rows(o, k->data, (divided_rows[]){{norm->out, norm->dim}, {norm->sum, norm->dim}}, 2, norm->n);
    }
    dev->read(dev, r->x, norm->sum, bytes);
    dev->read(dev, r->out, norm->out, bytes);
    dev->read(dev, r->bad, norm->bad, sizeof r->bad);
    status st = dev->finish(dev, e);
    return st == ST_OK ? rank_finish(k, e) : st;
}

/* A rank that norms its own rows alone has the same bits there as one that norms all, and everybody's normed rows. */
static status norms_apart(rank *k, void *ud, err *e) {
    const apart_sums *s = ud;
    const ops *o = &k->backend.ops;
    device *dev = k->backend.device;
    enum { BYTES = APART_ROWS * APART_DIM * sizeof(bf16) };
    f32 weight[APART_DIM];
    void *delta, *x, *out, *bad;
    op_weight *w;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = APART_DIM, .data = weight};
    for (int i = 0; i < APART_DIM; i++) weight[i] = 0.5f + (f32)(i % 7);
    status st = o->weight_prepare(o, &(weight_desc){.kind = WK_VECTOR, .views = &view, .n_views = 1}, &w, e);
    if (st == ST_OK) st = dev->alloc(dev, &delta, BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &x, BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &out, BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &bad, APART_ROWS * sizeof(i32), "x", e);
    if (st != ST_OK) return st;
    all_wait(k);
    const norm_args norm = {.weight = w,
                            .x = x,
                            .add = delta,
                            .sum = x,
                            .out = out,
                            .n = s->rows,
                            .dim = APART_DIM,
                            .x_stride = APART_DIM,
                            .out_stride = APART_DIM,
                            .eps = 1e-5f,
                            .bad = bad,
                            .mark = NORM_MARK};
    static _Thread_local norm_results got[NORM_WAYS];
    for (int way = 0; st == ST_OK && way < NORM_WAYS; way++) st = norms_in_turn(k, &norm, way, &got[way], e);
    if (st != ST_OK) return st;
    all_wait(k);
    o->weight_release(w);
    dev->release(dev, delta), dev->release(dev, x), dev->release(dev, out), dev->release(dev, bad);
    const norm_results *together = &got[NORMED_TOGETHER], *apart = &got[NORMED_APART], *kept = &got[NORMED_AND_KEPT];
    if (memcmp(together->out, apart->out, sizeof apart->out)) return err_set(e, ST_NUMERIC, "other normed rows");
    if (memcmp(together->bad, apart->bad, sizeof apart->bad)) return err_set(e, ST_NUMERIC, "other marks");
    if (memcmp(together, kept, sizeof *kept)) return err_set(e, ST_NUMERIC, "shared rows are others");
    const row_range own = comm_rows(s->rows, k->data->ranks, k->index);
    i64 marks = 0;
    for (i64 i = 0; i < s->rows; i++) {
        const bool mine = i >= own.from && i < own.to;
        marks += apart->bad[i] != 0;
        if (mine != !memcmp(together->x + i * APART_DIM, apart->x + i * APART_DIM, APART_DIM * sizeof(bf16)))
            return err_set(e, ST_NUMERIC, "row %lld of the residual stream, %s", (long long)i,
                           mine ? "another than without ranks apart" : "which nobody needs here, is kept up");
    }
    if (apart->bad[APART_BAD] != NORM_MARK || marks != 1)
        return err_set(e, ST_NUMERIC, "%lld marks, %d", (long long)marks, apart->bad[APART_BAD]);
    return ST_OK;
}

enum { RANKS_ROWS = 137, RANKS_VALUES = RANKS_ROWS * APART_DIM, RANKS_BYTES = RANKS_VALUES * sizeof(bf16) };
/* Sums of rows that one rank has each, as sums with zeros and by makers; sums of all ranks' parts, to all and to
 * readers. */
typedef enum { WITH_ZEROS, BY_MAKERS, TO_ALL, BY_READERS, RANKS_WAYS } ranks_way;
typedef struct {
    bf16 out[RANKS_WAYS][RANKS_VALUES], stream[RANKS_WAYS][RANKS_VALUES];
} rows_results;

static status sum_of_ranks(rank *k, const norm_args *norm, ranks_way way, const i32 *ranks, const i32 *ranks_there,
                           rows_results *r, err *e) {
    device *dev = k->backend.device;
    kept_rows kept = {.divide = way == BY_READERS, .stream = {0, RANKS_ROWS}, .normed = {0, RANKS_ROWS}};
    const row_range own = comm_rows(RANKS_ROWS, k->data->ranks, k->index);
    bf16 *x = r->out[way];
    if (way == BY_MAKERS) kept.maker = ranks_there;
    if (way == BY_READERS) kept.reader = ranks_there;
    for (i64 i = 0; i < RANKS_VALUES; i++) x[i] = value_of(9, 1, i);
    dev->write(dev, norm->sum, x, RANKS_BYTES), dev->finish(dev, NULL);
    memset(x, 0, RANKS_BYTES);
    dev->write(dev, norm->out, x, RANKS_BYTES), dev->finish(dev, NULL);
    for (i64 i = 0; i < RANKS_VALUES; i++)
        x[i] = way >= TO_ALL || ranks[i / APART_DIM] == k->index ? value_of(k->index, 1, i)
               : way == BY_MAKERS                                ? 0x7fc0 /* a NaN that nobody may look at */
                                                                 : 0;
    dev->write(dev, (void *)(uintptr_t)norm->add, x, RANKS_BYTES), dev->finish(dev, NULL);
    all_wait(k); /* others' rows come from here on */
    gpu_reduce_norm(&k->backend.ops, k->data, norm, NULL, &kept);
    dev->read(dev, x, norm->out, RANKS_BYTES), dev->read(dev, r->stream[way], norm->sum, RANKS_BYTES);
    if (dev->finish(dev, e) != ST_OK) return e->code;
    return memcmp(&kept.stream, &own, sizeof own) ? err_set(e, ST_NUMERIC, "other rows are kept") : ST_OK;
}

/* Of sums each reader has its own normed rows, and others have them only where they normed them. */
static status readers_have_theirs(const rank *k, const i32 *ranks, const rows_results *r, err *e) {
    const row_range own = comm_rows(RANKS_ROWS, k->data->ranks, k->index);
    for (i64 i = 0; i < RANKS_ROWS; i++) {
        const bf16 *all = r->out[TO_ALL] + i * APART_DIM, *got = r->out[BY_READERS] + i * APART_DIM;
        const bool same = !memcmp(all, got, APART_DIM * sizeof(bf16));
        if (ranks[i] == k->index ? !same : same && (i < own.from || i >= own.to))
            return err_set(e, ST_NUMERIC, "row %lld, which rank %d reads, is %s", (long long)i, ranks[i],
                           same ? "here" : "another");
    }
    return ST_OK;
}

static status rows_of_ranks(rank *k, void *ud, err *e) {
    device *dev = k->backend.device;
    const ops *o = &k->backend.ops;
    static _Thread_local rows_results r;
    f32 weight[APART_DIM];
    i32 ranks[RANKS_ROWS];
    void *delta, *sum, *normed, *ranks_there;
    op_weight *w;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = APART_DIM, .data = weight};
    (void)ud;
    for (int i = 0; i < APART_DIM; i++) weight[i] = 0.5f + (f32)(i % 7);
    for (int i = 0; i < RANKS_ROWS; i++) ranks[i] = (i32)((i < 40 ? i / 3 : i / 40) % k->data->ranks);
    status st = o->weight_prepare(o, &(weight_desc){.kind = WK_VECTOR, .views = &view, .n_views = 1}, &w, e);
    if (st == ST_OK) st = dev->alloc(dev, &delta, RANKS_BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &sum, RANKS_BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &normed, RANKS_BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &ranks_there, sizeof ranks, "x", e);
    if (st != ST_OK) return st;
    dev->write(dev, ranks_there, ranks, sizeof ranks);
    const norm_args norm = {w, sum, delta, sum, normed, RANKS_ROWS, APART_DIM, APART_DIM, APART_DIM, 1e-5f, NULL, 0};
    gpu_comm_norm_apart(k->data, DEFERRED_ROWS + 1);
    if (!gpu_norms_apart(k->data, &norm)) return err_set(e, ST_NUMERIC, "rows are not divided");
    for (int way = 0; st == ST_OK && way < RANKS_WAYS; way++)
        st = sum_of_ranks(k, &norm, (ranks_way)way, ranks, ranks_there, &r, e);
    if (st == ST_OK && (memcmp(r.out[WITH_ZEROS], r.out[BY_MAKERS], RANKS_BYTES) ||
                        memcmp(r.stream[WITH_ZEROS], r.stream[BY_MAKERS], RANKS_BYTES)))
        st = err_set(e, ST_NUMERIC, "rows of makers are not their sums with zeros");
    if (st == ST_OK && memcmp(r.stream[TO_ALL], r.stream[BY_READERS], RANKS_BYTES))
        st = err_set(e, ST_NUMERIC, "another residual stream");
    if (st == ST_OK) st = readers_have_theirs(k, ranks, &r, e);
    o->weight_release(w);
    dev->release(dev, delta), dev->release(dev, sum), dev->release(dev, normed), dev->release(dev, ranks_there);
    return st == ST_OK ? rank_finish(k, e) : st;
}

static void makers_and_readers(void **state) {
    (void)state;
    err e = {0};
    for (i64 n = 2; n <= ranks_most(); n++)
        if (on_gpus(n, 60, rows_of_ranks, NULL, &e) != ST_OK) fail_msg("%lld ranks: %s", (long long)n, e.text);
}

/* One rank that plays four: it norms a fourth of the rows, and has copies of them in the places of the others'. */
static status plays_four(rank *k, void *ud, err *e) {
    enum { N = 81, FOURTH = 21, BYTES = N * APART_DIM * sizeof(bf16) };
    device *dev = k->backend.device;
    const ops *o = &k->backend.ops;
    static _Thread_local bf16 x[N * APART_DIM], out[3][N * APART_DIM];
    f32 weight[APART_DIM];
    void *delta, *stream, *normed;
    op_weight *w;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = APART_DIM, .data = weight};
    (void)ud;
    for (int i = 0; i < APART_DIM; i++) weight[i] = 0.5f + (f32)(i % 7);
    status st = o->weight_prepare(o, &(weight_desc){.kind = WK_VECTOR, .views = &view, .n_views = 1}, &w, e);
    if (st == ST_OK) st = dev->alloc(dev, &delta, BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &stream, BYTES, "x", e);
    if (st == ST_OK) st = dev->alloc(dev, &normed, BYTES, "x", e);
    if (st != ST_OK) return st;
    const norm_args norm = {w, stream, delta, stream, normed, N, APART_DIM, APART_DIM, APART_DIM, 1e-5f, NULL, 0};
    for (int way = 0; way < 3; way++) { /* all rows, a fourth, a fourth that is copied when rows are shared */
        kept_rows kept = {.divide = way == 2, .stream = {0, N}, .normed = {0, N}};
        gpu_comm_norm_apart(k->data, way ? N : N + 1), gpu_comm_divide(k->data, N);
        for (i64 i = 0; i < N * APART_DIM; i++) x[i] = value_of(9, 1, i);
        dev->write(dev, stream, x, BYTES), dev->finish(dev, NULL);
        for (i64 i = 0; i < N * APART_DIM; i++) x[i] = value_of(0, 0, i);
        dev->write(dev, delta, x, BYTES);
        gpu_reduce_norm(o, k->data, &norm, NULL, &kept);
        if (kept.stream.to != (way ? FOURTH : N) || kept.normed.to != (way == 2 ? FOURTH : N))
            return err_set(e, ST_NUMERIC, "it plays %lld rows", (long long)kept.stream.to);
        if (way == 2) gpu_share_rows(o, k->data, &(divided_rows){normed, APART_DIM}, 1, N);
        dev->read(dev, out[way], normed, BYTES);
        st = dev->finish(dev, e);
        if (st != ST_OK) return st;
    }
    for (i64 i = 0; i < N; i++)
        for (int way = 1; way < 3; way++)
            if (memcmp(out[way] + i * APART_DIM, out[0] + i % FOURTH * APART_DIM, APART_DIM * sizeof(bf16)))
                return err_set(e, ST_NUMERIC, "way %d: row %lld is no copy", way, (long long)i);
    void *at[COMM_RANKS_MAX];
    if (gpu_part_places(o, k->data, &norm, at) != 4 || at[0] != delta || at[1] == at[2] || at[2] == at[3])
        return err_set(e, ST_NUMERIC, "four parts have no places");
    o->weight_release(w);
    dev->release(dev, delta), dev->release(dev, stream), dev->release(dev, normed);
    return rank_finish(k, e);
}

static void one_plays_four(void **state) {
    (void)state;
    ranks r;
    err e = {0};
    const model_config c = {.n_heads = 4,
                            .inter_dense = 4,
                            .inter_expert = 4,
                            .vocab = 4,
                            .vocab_held = 1,
                            .ranks = 4,
                            .slice = 1,
                            .hidden = APART_DIM};
    status st = ranks_open(&r, &c, &(rank_layout){.tp = 1, .pp = 1}, NULL, true, 60, &e);
    if (st == ST_OK) st = ranks_each(&r, open_gpu, &r, &e);
    if (st == ST_OK) st = ranks_connect(&r, &e);
    if (st == ST_OK) st = ranks_each(&r, plays_four, NULL, &e);
    ranks_close(&r);
    if (st != ST_OK) fail_msg("%s", e.text);
}

static void rows_are_normed_apart(void **state) {
    (void)state;
    err e = {0};
    const i64 rows[] = {9, 301, APART_ROWS};
    for (i64 n = 2; n <= ranks_most(); n += n < 4 ? 1 : 4)
        for (size_t i = 0; i < (n == 2 ? COUNT_OF(rows) : 2); i++) {
            const apart_sums s = {.rows = rows[i]};
            if (on_gpus(n, 60, norms_apart, (void *)(uintptr_t)&s, &e) != ST_OK)
                fail_msg("%lld ranks, %lld rows: %s", (long long)n, (long long)rows[i], e.text);
        }
}

static void nccl_exchanges(void **state) {
    f64 start = now_s();
    by_nccl = true;
    if (!getenv("REAL_GPUS")) sums_are_in_order(state);
    blocks_arrive(state);
    others_arrive(state);
    stays_away("rank 1 did not come to an exchange (NCCL) within 0.3 s");
    by_nccl = false;
    assert_true(now_s() - start < 60);
}

static void nccl_fails(void **state) {
    (void)state;
    err e = {0};
    by_nccl = true;
    setenv("FAKE_NCCL", "fail 2", 1);
    assert_int_equal(sum_over(2, 60, &(sums){.n = 3000, .rounds = 3, .away = -1}, &e), ST_DEVICE);
    if (!strstr(e.text, "NCCL on GPU 1: ncclAllReduce: internal error")) fail_msg("\"%s\"", e.text);
    unsetenv("FAKE_NCCL");
    by_nccl = false;
}
int main(void) {
    const struct CMUnitTest peers[] = {cmocka_unit_test(sums_are_in_order),     cmocka_unit_test(blocks_arrive),
                                       cmocka_unit_test(others_arrive),         cmocka_unit_test(sum_and_norm_in_one),
                                       cmocka_unit_test(rows_are_normed_apart), cmocka_unit_test(one_plays_four),
                                       cmocka_unit_test(makers_and_readers),    cmocka_unit_test(a_rank_stays_away)};
    const struct CMUnitTest nccl[] = {cmocka_unit_test(nccl_exchanges)}, fake[] = {cmocka_unit_test(nccl_fails)};
    const bool real = getenv("REAL_GPUS"), parts = getenv("RANKS_OF_ONE_GPU");
    int failed = cmocka_run_group_tests(peers, NULL, NULL);
    if (parts) return failed;
    if (!real) setenv("MOONLET_NCCL", "libfake_nccl.so", 1); /* beside the emulated driver */
    failed += cmocka_run_group_tests(nccl, NULL, NULL);
    return real ? failed : failed + cmocka_run_group_tests(fake, NULL, NULL);
}
