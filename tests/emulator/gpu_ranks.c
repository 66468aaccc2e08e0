/* Ranks on emulated GPUs (EMU_GPUS=8): exchanges over peer memory by themselves: the sum, in the order of the
 * ranks, whatever the sizes, a matrix divided by rows instead of by columns, gathers, and the others; ranks that
 * stay away; nano and a random model divided among two and four, recorded and launch by launch; the same by a fake
 * NCCL; and what is refused. With RANKS_OF_ONE_GPU=1 on a machine with a real GPU: the exchanges between parts of
 * it, and nothing else; with REAL_GPUS=N on one with N of them: those between them, by NCCL, too. */
#include "unit.h"

#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "drawn_tokens.h"
#include "model_logits.h"
#include "model/model_internal.h"
#include "runtime/engine_internal.h"
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

static const char *const FAKE = "libfake_nccl.so"; /* beside the emulated driver */
static bool by_nccl;                               /* the fake one (fake_nccl.cc), or that of a machine with GPUs */

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
    stays_away("rank 1 did not come to an exchange within 0.3 s");
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

static void same(const char *what, const f32 *a, const f32 *b, i64 vocab) {
    if (memcmp(a, b, TOKENS * (size_t)vocab * sizeof *a)) fail_msg("%s: other bits", what);
}

/* The same with a KV cache in parts: pages of 80 tokens lie on two ranks, others have none. */
static void divided_kv(const char *dir, const random_model *m, i64 tp, const char *gpus) {
    engine_options o = {.device = "cuda", .tp = tp, .gpus = gpus, .chunk = 33};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *whole = logits_of(dir, m, o, false);
    o.dcp = tp;
    f32 *prompt = logits_of(dir, m, o, false), *decode = logits_of(dir, m, o, true);
    same("a prompt whose pages are collected", prompt, whole, m->vocab);
    near_from(m, "KV pages on several GPUs", decode, ref, KV_PAGE, 0.04);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("KV pages on several GPUs, launch by launch", again, decode, m->vocab);
    free(ref), free(whole), free(prompt), free(decode), free(again);
}

/* The same where sequences have a rank each. */
static void apart(const char *dir, const random_model *m) {
    const engine_options o = {.device = "cuda", .tp = 2, .chunk = 33, .dp_attention = true};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false);
    for (int decode = 0; decode < 2; decode++) {
        f32 *got = logits_of(dir, m, o, decode);
        near(m, "attention apart", got, ref, 0.04);
        near_from(m, "attention apart, the second page", got, ref, KV_PAGE, 0.04);
        free(got);
    }
    free(ref);
}

/* The logits of so many ranks beside those of one GPU and of ref. */
static void divided(const char *dir, const random_model *m, i64 tp, const char *gpus) {
    engine_options o = {.device = "cuda"};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *one = logits_of(dir, m, o, true);
    o.tp = tp, o.gpus = gpus;
    f32 *all = logits_of(dir, m, o, true), *again;
    o.eager = true;
    again = logits_of(dir, m, o, true);
    o.eager = false;
    near(m, "one GPU", one, ref, 0.04);
    near(m, "ranks", all, ref, 0.04);
    same("another run, launch by launch", all, again, m->vocab);
    free(again);
    o.disable_fused = tp > 2;
    again = logits_of(dir, m, o, false);
    near(m, o.disable_fused ? "a prompt by primitive operations" : "a prompt", again, ref, 0.04);
    free(again), free(all), free(one), free(ref);
}

enum { ROWS_DIVIDED = DEFERRED_ROWS + 3 /* of a chunk */ };
static void divide_few_rows(engine *g) {
    for (i64 i = 0; i < g->ranks.held; i++) {
        gpu_comm_norm_apart(g->ranks.of[i].data, DEFERRED_ROWS + 1); /* as few as may be */
        gpu_comm_divide(g->ranks.of[i].data, DEFERRED_ROWS + 1);
    }
}

/* Prompts whose rows ranks have divided among them between layers: each norms its own, multiplies them with q_a and
 * kv_a, and has products store the others' parts of a sum where it is taken. */
static void rows_divided(const char *dir, const random_model *m, engine_options o) {
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *apart = logits_of(dir, m, o, false);
    logits_opened = divide_few_rows;
    f32 *divided = logits_of(dir, m, o, false), *again = logits_of(dir, m, o, false);
    logits_opened = NULL;
    near(m, "a prompt whose rows are divided", divided, ref, 0.04);
    near(m, "a prompt whose rows are divided, beside one whose are not", divided, apart, 0.02);
    near_from(m, "the last chunk behind rows that were divided", divided, apart, ROWS_DIVIDED, 0.02);
    same("rows divided, again", divided, again, m->vocab);
    free(ref), free(apart), free(divided), free(again);
}

typedef struct {
    bf16 *of[2]; /* [rows, taps * hidden] of each rank */
    u64 bytes;
} rank_features;

static status read_features(rank *k, void *ud, err *e) {
    const rank_features *f = ud;
    k->backend.device->read(k->backend.device, f->of[k->index], k->model->features, f->bytes);
    return k->backend.device->finish(k->backend.device, e);
}

/* A draft reads all rows of the residual stream, of which each of two ranks has kept up its own. */
static void features_are_whole(void) {
    const engine_options o = {.model_dir = "models/nano",
                              .device = "cuda",
                              .tp = 2,
                              .max_running = 1,
                              .context = 256,
                              .draft_dir = "models/nano-eagle3"};
    engine *g;
    seq *s;
    err e = {0};
    i32 ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = 300 + i;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    divide_few_rows(g);
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    assert_int_equal(seq_run(s, ids, TOKENS, false, LOGITS_NONE, NULL, NULL, &e), ST_OK);
    rank_features f = {.bytes = (u64)(TOKENS * g->lim.n_taps * g->config.hidden) * sizeof(bf16)};
    assert_true(f.bytes);
    for (int r = 0; r < 2; r++) f.of[r] = calloc(1, f.bytes);
    assert_int_equal(ranks_each(&g->ranks, read_features, &f, &e), ST_OK);
    assert_memory_equal(f.of[0], f.of[1], f.bytes);
    for (i64 row = 0; row < TOKENS; row++) assert_true(f.of[0][row * g->lim.n_taps * g->config.hidden]);
    free(f.of[0]), free(f.of[1]);
    seq_close(s);
    engine_close(g);
}

/* Whole experts a group: read once for all ranks, which take their own. With --deterministic the same bits wherever
 * they are, from recordings and launch by launch. */
static void experts_spread(const char *dir, const random_model *m, i64 tp, i64 ep) {
    engine_options o = {.device = "cuda", .tp = tp, .ep = ep, .chunk = 33};
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *bits[2] = {NULL};
    for (int way = 0; way < 6; way++) {
        o.deterministic = way > 2, o.eager = way == 1, o.ep_redundant = way == 2 || way == 4 ? ep : 0;
        f32 *got = logits_of(dir, m, o, way != 5);
        near(m, "experts spread over ranks", got, ref, 0.04);
        if (way == 1) same("spread, launch by launch", got, bits[0], m->vocab);
        if (way == 4) same("copies of experts elsewhere", got, bits[1], m->vocab);
        if (way == 0 || way == 3)
            bits[way / 3] = got;
        else
            free(got);
    }
    free(ref), free(bits[0]), free(bits[1]);
}

/* NCCL's own sums hang on how many values there are; with --deterministic they have the bits of our exchanges. */
static void nccl_in_order(const char *dir, const random_model *m) {
    engine_options o = {.device = "cuda", .tp = 4, .chunk = 33};
    f32 *all[2][2]; /* deterministic or not, by NCCL or not */
    setenv("FAKE_NCCL", "ring", 1);
    for (int way = 0; way < 4; way++) {
        o.deterministic = way / 2, o.nccl = way % 2;
        all[way / 2][way % 2] = logits_of(dir, m, o, true);
    }
    unsetenv("FAKE_NCCL");
    same("sums by NCCL in order", all[1][1], all[1][0], m->vocab);
    near(m, "sums by NCCL in its own", all[0][1], all[0][0], 0.04);
    assert_true(memcmp(all[0][0], all[0][1], (size_t)(TOKENS * m->vocab) * sizeof(f32)) !=
                0); /* else it says nothing */
    for (int way = 0; way < 4; way++) free(all[way / 2][way % 2]);
}

/* Experts that move between steps, which are recorded, in every way in which a GPU keeps them: no bit changes. */
static void experts_move(const random_model *like, weight_format f) {
    enum { STEPS = 10 };
    random_model m = *like;
    char dir[64];
    err e = {0};
    i32 ids[STEPS];
    f32 *rows[2];
    m.expert[0] = m.expert[1] = f, m.hidden = m.expert_inter = 128, m.experts = 8, m.top_k = 3;
    assert_true(random_model_write(&m, 37, dir, NULL));
    for (int i = 0; i < STEPS; i++) ids[i] = (i32)(((u32)i * 2654435761u >> 8) % (u32)m.vocab);
    for (int moves = 0; moves < 2; moves++) {
        engine *g;
        seq *s;
        const engine_options o = {.model_dir = dir,
                                  .device = "cuda",
                                  .tp = 2,
                                  .ep = 2,
                                  .ep_redundant = 4,
                                  .dp_attention = f == WF_INT4_GROUP,
                                  .eplb_steps = moves ? 3 : 0,
                                  .deterministic = true};
        table t = {rows[moves] = calloc((size_t)(STEPS * m.vocab), sizeof(f32)), m.vocab};
        if (engine_open(&g, &o, &e) != ST_OK || seq_open(&s, g, &e) != ST_OK) fail_msg("%s", e.text);
        for (int round = 0; round < 2; round++) {
            seq_truncate(s, 0);
            for (int i = 0; i < STEPS; i++)
                if (seq_run(s, ids + i, 1, true, LOGITS_ALL, keep, &t, &e) != ST_OK) fail_msg("%s", e.text);
        }
        if (moves && g->balance.moved < 2) fail_msg("%s: nothing moved", weight_format_name(f));
        seq_close(s);
        engine_close(g);
    }
    if (memcmp(rows[0], rows[1], (size_t)(STEPS * m.vocab) * sizeof(f32)))
        fail_msg("experts in %s that moved: other bits", weight_format_name(f));
    free(rows[0]), free(rows[1]);
    random_model_remove(dir);
}

/* Stages of layers: the logits of ref, launch by launch the same bits as from recordings. */
static void staged(const char *dir, const random_model *m, const engine_options *how) {
    engine_options o = *how;
    f32 *ref = logits_of(dir, m, (engine_options){.device = "ref"}, false), *all = logits_of(dir, m, o, true);
    near(m, "stages", all, ref, 0.04);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("stages, launch by launch", again, all, m->vocab);
    free(again);
    again = logits_of(dir, m, o, false);
    near(m, "stages, a prompt", again, ref, 0.04);
    free(again), free(all), free(ref);
}

/* Two ranks of a slice of four have the vocabulary of two, and where the KV cache is divided by four they play the two
 * that are missing: each part is merged twice, which changes nothing but the rounding. */
static void slice_of_four(const char *dir, const random_model *m) {
    engine_options o = {.device = "cuda", .load_format = "dummy", .tp = 2, .tp_slice = 4};
    const i64 there = m->vocab / 4 * 2;
    f32 *whole = logits_of(dir, m, o, true);
    for (i64 i = 0; i < TOKENS * m->vocab; i++)
        if (isfinite(whole[i]) != (i % m->vocab < there)) fail_msg("logit %lld is %g", (long long)i, (f64)whole[i]);
    o.eager = true;
    f32 *again = logits_of(dir, m, o, true);
    same("two ranks of four, launch by launch", again, whole, m->vocab);
    o.dcp = 4;
    f32 *divided = logits_of(dir, m, o, true);
    for (i64 i = 0; i < TOKENS * m->vocab; i++)
        if (!isfinite(whole[i])) whole[i] = divided[i] = 0;
    near(m, "two ranks of four that divide the KV cache", divided, whole, 0.04);
    free(whole), free(again), free(divided);
}

/* A small model, which takes a tenth of nano's time. */
static random_model four_heads(i64 layers) {
    return (random_model){.name = "four heads",
                          .vocab = 157,
                          .hidden = 64,
                          .layers = layers,
                          .dense = 1,
                          .heads = 4,
                          .q_lora = 32,
                          .kv_lora = 64,
                          .nope = 16,
                          .rope = 16,
                          .v = 16,
                          .inter = 128,
                          .expert_inter = 128,
                          .experts = 6,
                          .top_k = 2,
                          .shared = 1,
                          .context = 512,
                          .attn = WF_BF16,
                          .mlp = WF_BF16,
                          .expert = {WF_INT4_GROUP, WF_INT4_GROUP},
                          .embed = WF_BF16,
                          .router = WF_BF16};
}

static void models_divided(void **state) {
    (void)state;
    const random_model nano = {.name = "nano", .vocab = 2048};
    const random_model four = four_heads(2);
    random_model many = four;
    many.top_k = 4;
    char dir[64];
    divided("models/nano", &nano, 2, NULL);
    divided_kv("models/nano", &nano, 2, NULL);
    /* few rows: experts and what lies in front of them in one launch. One GPU's second row is 0.072 from ref's */
    draws_agree("nano on two GPUs", "models/nano", (engine_options){.device = "cuda", .tp = 2}, 0.09);
    assert_true(random_model_write(&four, 31, dir, NULL));
    divided(dir, &four, 2, "3,3");
    divided(dir, &four, 4, "0,1,0,1");
    divided_kv(dir, &four, 4, "0,1,0,1");
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 4, .dcp = 4});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 4, .ep = 2, .chunk = ROWS_DIVIDED + 3});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2, .pp = 2});
    rows_divided(dir, &four, (engine_options){.device = "cuda", .tp = 2, .dp_attention = true});
    slice_of_four(dir, &four);
    draws_agree("one GPU", dir, (engine_options){.device = "cuda"}, 0);
    draws_agree("four GPUs", dir, (engine_options){.device = "cuda", .tp = 4}, 0);
    nccl_in_order(dir, &four);
    experts_spread(dir, &four, 2, 2);
    experts_spread(dir, &four, 4, 2);
    for (int f = WF_BF16; f <= WF_INT8_ROW; f++) experts_move(&four, (weight_format)f);
    apart(dir, &four);
    draws_agree("two GPUs that attend apart", dir, (engine_options){.device = "cuda", .tp = 2, .dp_attention = true},
                0.04);
    draws_agree("two GPUs that attend apart, with whole experts", dir,
                (engine_options){.device = "cuda", .tp = 2, .ep = 2, .dp_attention = true}, 0.04);
    draws_agree("two parts of a GPU", dir, (engine_options){.device = "cuda", .tp = 2, .gpus = "2,2"}, 0.04);
    random_model_remove(dir);
    assert_true(random_model_write(&many, 37, dir, NULL)); /* of as many experts a row as go in pieces of 16 bytes */
    features_are_whole();
    for (i64 tp = 2; tp <= 4; tp += 2)
        rows_divided(dir, &many, (engine_options){.device = "cuda", .tp = tp, .chunk = ROWS_DIVIDED});
    random_model_remove(dir);
}

static void models_in_stages(void **state) {
    (void)state;
    const random_model nano = {.name = "nano", .vocab = 2048}, six = four_heads(6), two = four_heads(2);
    char dir[64];
    assert_true(random_model_write(&six, 31, dir, NULL));
    staged(dir, &six, &(engine_options){.device = "cuda", .pp = 3, .pp_layers = "4,1,1", .gpus = "3,1,0"});
    staged("models/nano", &nano, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .chunk = 33});
    staged(dir, &six, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .dcp = 2, .chunk = 33});
    staged(dir, &six, &(engine_options){.device = "cuda", .tp = 2, .pp = 2, .nccl = true});
    random_model_remove(dir);
    assert_true(random_model_write(&two, 31, dir, NULL)); /* the deeper, the further are few rows' logits from ref's */
    draws_agree("two stages", dir, (engine_options){.device = "cuda", .tp = 2, .pp = 2}, 0.09);
    draws_agree("two stages by NCCL", dir, (engine_options){.device = "cuda", .pp = 2, .nccl = true}, 0.09);
    random_model_remove(dir);
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

/* Steps that are recorded have NCCL's calls in them: a failure behind them ends, too. */
static void nccl_fails_behind_recordings(void **state) {
    (void)state;
    const engine_options o = {.model_dir = "models/nano", .device = "cuda", .tp = 2, .nccl = true};
    enum { MANY = 5 };
    i32 ids[MANY] = {300, 301, 302, 303, 304};
    engine *g;
    seq *s;
    err e = {0};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_NONE, NULL, NULL, &e), ST_OK);
    table t = {calloc((size_t)(MANY * 2048), sizeof(f32)), 2048};
    seq_truncate(s, 0);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_ALL, keep, &t, &e), ST_OK); /* recorded */
    setenv("FAKE_NCCL", "async", 1);
    seq_truncate(s, 0);
    assert_int_equal(seq_run(s, ids, MANY, true, LOGITS_ALL, keep, &t, &e), ST_DEVICE);
    if (!strstr(e.text, "an exchange under way: internal error")) fail_msg("\"%s\"", e.text);
    const f64 start = now_s();
    seq_close(s);
    engine_close(g);
    assert_true(now_s() - start < 15);
    unsetenv("FAKE_NCCL");
    free(t.rows);
}

static void nccl_models(void **state) {
    (void)state;
    const random_model four = four_heads(2);
    char dir[64];
    assert_true(random_model_write(&four, 31, dir, NULL));
    engine_options o = {.device = "cuda", .tp = 2, .nccl = true};
    f32 *ref = logits_of(dir, &four, (engine_options){.device = "ref"}, false);
    f32 *all = logits_of(dir, &four, o, true), *prompt = logits_of(dir, &four, o, false);
    o.eager = true;
    f32 *again = logits_of(dir, &four, o, true);
    near(&four, "ranks by NCCL", all, ref, 0.04);
    near(&four, "a prompt by NCCL", prompt, ref, 0.04);
    same("another run by NCCL, launch by launch", all, again, four.vocab);
    setenv("EMU_NO_PEERS", "1", 1);
    o.nccl = false; /* who cannot reach the other's memory goes to it by itself */
    f32 *apart = logits_of(dir, &four, o, true);
    same("GPUs that do not reach each other's memory", apart, all, four.vocab);
    unsetenv("EMU_NO_PEERS");
    draws_agree("two ranks by NCCL", dir, (engine_options){.device = "cuda", .tp = 2, .nccl = true}, 0.09);
    random_model_remove(dir);
    free(ref), free(all), free(prompt), free(again), free(apart);
}

static void refused(engine_options o, const char *text) {
    engine *g;
    err e = {0};
    o.model_dir = "models/nano", o.device = o.device ? o.device : "cuda";
    status st = engine_open(&g, &o, &e);
    if (st == ST_OK || !strstr(e.text, text)) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
    assert_null(g);
}

static void what_is_refused(void **state) {
    (void)state;
    refused((engine_options){.pp = 2, .gpus = "1,1"}, "--gpus 1,1: GPU 1 stands there twice, and with --pp none");
    refused((engine_options){.pp = 7}, "--pp 7: 6 layers cannot be divided so");
    refused((engine_options){.pp = 2, .pp_layers = "3,4"}, "--pp-layers: 7 layers in all, the model has 6");
    refused((engine_options){.tp = 2, .gpus = "0,8"}, "rank 1: --device cuda: there is no GPU 8");
    refused((engine_options){.tp = 2, .gpus = "0"}, "--gpus 0: 2 numbers of GPUs are wanted");
    refused((engine_options){.tp = 2, .gpus = "0,1,2"}, "--gpus 0,1,2: 2 numbers");
    refused((engine_options){.tp = 2, .gpus = "0,x"}, "--gpus 0,x: 2 numbers");
    refused((engine_options){.tp = 2, .gpus = "1,1,1"}, "--gpus 1,1,1: 2 numbers");
    refused((engine_options){.tp = 4, .tp_slice = 2, .load_format = "dummy"}, "--tp 4 with --tp-slice 2: ");
    refused((engine_options){.tp = 1, .tp_slice = 2, .dcp = 4, .load_format = "dummy"}, "--dcp 4 with --tp-slice 2: ");
    refused((engine_options){.gpus = "1"}, "--gpus is for --device cuda with --tp");
    refused((engine_options){.tp = 2, .device = "cuda:1"}, "--device cuda:1 with --tp: --gpus says which");
    refused((engine_options){.nccl = true}, "--disable-custom-all-reduce is for --device cuda with --tp");
    refused((engine_options){.nccl = true, .tp = 2, .gpus = "1,1"}, "ranks 0 and 1 have parts of GPU 1: NCCL takes a");
    refused((engine_options){.nccl = true, .tp = 2, .dcp = 2}, "--dcp 2: GPUs that divide the KV cache read");
    setenv("FAKE_NCCL", "start", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "NCCL does not start on 2 GPUs: unhandled error");
    setenv("FAKE_NCCL", "slow", 1);
    refused((engine_options){.nccl = true, .tp = 2, .dist_timeout = 0.1}, "NCCL did not start within 0.1 s");
    sleep(2); /* that it came back later is nobody's concern */
    setenv("FAKE_NCCL", "stuck", 1);
    refused((engine_options){.nccl = true, .tp = 2, .dist_timeout = 0.2}, "NCCL did not start within 0.2 s");
    unsetenv("FAKE_NCCL");
    setenv("MOONLET_NCCL", "libc.so.6", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "NCCL: libc.so.6 has no ncclGetVersion");
    setenv("MOONLET_NCCL", "libnone.so", 1);
    refused((engine_options){.nccl = true, .tp = 2}, "no NCCL: libnone.so: cannot open");
    setenv("EMU_FILLED", "1", 1);
    refused((engine_options){.tp = 2}, "rank 1: weights of 11.6 MB, a KV cache of");
    unsetenv("EMU_FILLED");
    setenv("EMU_NO_PEERS", "1", 1);
    refused((engine_options){.tp = 2},
            "rank 0: GPU 0 (emulated GPU) cannot reach the memory of GPU 1 (emulated GPU): no peer access; no NCCL: ");
    unsetenv("EMU_NO_PEERS");
    setenv("MOONLET_NCCL", FAKE, 1);
}

int main(void) {
    const struct CMUnitTest exchanges[] = {
        cmocka_unit_test(sums_are_in_order),     cmocka_unit_test(blocks_arrive),
        cmocka_unit_test(others_arrive),         cmocka_unit_test(sum_and_norm_in_one),
        cmocka_unit_test(rows_are_normed_apart), cmocka_unit_test(one_plays_four),
        cmocka_unit_test(a_rank_stays_away)};
    const struct CMUnitTest nccl[] = {cmocka_unit_test(nccl_exchanges)};
    const struct CMUnitTest models[] = {cmocka_unit_test(what_is_refused),
                                        cmocka_unit_test(nccl_fails),
                                        cmocka_unit_test(nccl_fails_behind_recordings),
                                        cmocka_unit_test(models_divided),
                                        cmocka_unit_test(nccl_models),
                                        cmocka_unit_test(models_in_stages)};
    const bool real = getenv("REAL_GPUS"), parts = getenv("RANKS_OF_ONE_GPU");
    int failed = cmocka_run_group_tests(exchanges, NULL, NULL);
    if (parts) return failed;
    if (!real) setenv("MOONLET_NCCL", FAKE, 1);
    failed += cmocka_run_group_tests(nccl, NULL, NULL);
    return real ? failed : failed + cmocka_run_group_tests(models, NULL, NULL);
}
