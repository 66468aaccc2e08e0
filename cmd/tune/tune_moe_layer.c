/* cmd/tune/tune_moe_layer.c: see tune_moe_layer.h. */
#include "base/log.h"
#include "cmd/lib/synthetic.h"
#include "cmd/tune/tune_moe_layer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DISTINCT = 4, /* experts in the host's memory; on the GPU expert i is a copy of i % DISTINCT */
    PATTERN = 64  /* different rows of x */
};

static const struct {
    weight_format stored;
    expert_format kept;
} kinds[] = {{WF_INT4_GROUP, EXPERTS_AS_STORED}, {WF_INT4_GROUP, EXPERTS_W4A8},     {WF_BF16, EXPERTS_AS_STORED},
             {WF_INT4_GROUP, EXPERTS_W2_BF16},   {WF_FP8_BLOCK, EXPERTS_AS_STORED}, {WF_MXFP4, EXPERTS_AS_STORED},
             {WF_NVFP4, EXPERTS_AS_STORED}}; /* moe_format */

static status make_weights(tune_layer *l, weight_view *v, err *e) {
    const moe_call *c = &l->call;
    weight_format f = kinds[c->format].stored;
    u64 up = synth_weight_bytes(f, c->inter, c->dim), down = synth_weight_bytes(f, c->dim, c->inter);
    l->memory = aligned_alloc(64, (2 * up + down) * DISTINCT);
    if (!l->memory) return err_nomem(e, "experts", (2 * up + down) * DISTINCT);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < 3 * DISTINCT; i++) {
        synth s = {1000003u + (u64)i};
        bool is_down = i % 3 == 2;
        i64 rows = is_down ? c->dim : c->inter, cols = is_down ? c->inter : c->dim;
        v[i] = synth_weight(&s, f, rows, cols, 1.0f / sqrtf((f32)cols),
                            l->memory + (u64)(i / 3) * (2 * up + down) + (u64)(i % 3) * up);
    }
    for (i64 i = 3 * DISTINCT; i < 3 * c->experts; i++) v[i] = v[i % (3 * DISTINCT)];
    weight_desc d = {.kind = WK_EXPERTS, .views = v, .n_views = 3 * c->experts, .experts = kinds[c->format].kept};
    status st = l->t->o.weight_prepare(&l->t->o, &d, &l->w, e);
    d.n_views = 3 * min_i64(DISTINCT, c->experts);
    return st == ST_OK ? l->t->ref.weight_prepare(&l->t->ref, &d, &l->ref_w, e) : st;
}

/* What slot `slot` adds to row r, as ref computes it. int8: with so many slots, all others empty, that moe_is_int8()
 * holds. */
static status ref_slot(tune_layer *l, int r, i64 slot, bool int8, f32 *out, err *e) {
    const moe_call *c = &l->call;
    enum { SLOTS = INT8_MEAN * DISTINCT };
    i32 ids[SLOTS];
    f32 weights[SLOTS] = {l->weight_row[slot]}, *x = malloc((u64)c->dim * 4);
    for (int s = 0; s < SLOTS; s++) ids[s] = s ? -1 : l->id_rows[r][slot] % DISTINCT;
    moe_args a = {.experts = l->ref_w, .x = x, .ids = ids, .weights = weights, .out = out, .n = 1};
    a.k = int8 ? SLOTS : 1;
    a.workspace = malloc(l->t->ref.moe_workspace(&l->t->ref, &a));
    bool ok = x && a.workspace;
    for (i64 i = 0; ok && i < c->dim; i++) x[i] = bf16_to_f32(l->x_rows[r][i]);
    if (ok) l->t->ref.moe(&l->t->ref, &a);
    free(x), free(a.workspace);
    return ok ? ST_OK : err_nomem(e, "a row of ref's", (u64)c->dim * 4);
}

/* Row r: its slots side by side, added in order. */
static status layer_ref_row(tune_layer *l, int r, bool int8, f32 *out, err *e) {
    const moe_call *c = &l->call;
    f32 *parts = malloc((u64)(c->topk * c->dim) * 4);
    status st = parts ? ST_OK : err_nomem(e, "a row of ref's", (u64)(c->topk * c->dim) * 4);
    if (st != ST_OK) return st;
#pragma omp parallel for schedule(dynamic)
    for (i64 s = 0; s < c->topk; s++) {
        err mine = {0};
        if (ref_slot(l, r, s, int8, parts + s * c->dim, &mine) == ST_OK) continue;
#pragma omp critical
        st = err_set(e, mine.code, "%s", mine.text);
    }
    for (i64 i = 0; i < c->dim; i++) {
        out[i] = 0;
        for (i64 s = 0; s < c->topk; s++) out[i] += parts[s * c->dim + i];
    }
    free(parts);
    return st;
}

static status layer_make_rows(tune_layer *l, err *e) {
    const moe_call *c = &l->call;
    synth s = {77};
    for (i64 i = 0; i < c->topk; i++) l->weight_row[i] = (1.0f + 0.5f * synth_uniform(&s)) / (f32)c->topk;
    for (int r = 0; r < TUNE_ROWS; r++) {
        synth_fill_bf16(&s, l->x_rows[r], c->dim, 1.0f);
        synth_ids(&s, l->id_rows[r], 1, c->topk, c->experts);
    }
    for (int k = 0; k < (c->format == MOE_W4A8 ? 2 : 1); k++)
        if (!(l->want[k] = malloc((u64)(TUNE_ROWS * c->dim) * 4)))
            return err_nomem(e, "ref's rows", (u64)(TUNE_ROWS * c->dim) * 4);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 2 * TUNE_ROWS; i++)
        if (l->want[i / 2]) st = layer_ref_row(l, i % 2, i >= 2, l->want[i / 2] + i % 2 * c->dim, e);
    return st;
}

static status make_inputs(tune_layer *l, err *e) {
    const moe_call *c = &l->call;
    device *dev = l->t->dev;
    l->pool = (device_pool){.dev = dev};
    u64 row = (u64)c->dim * 2, slots = (u64)(l->most * c->topk) * 4;
    moe_args a = {.experts = l->w, .n = l->most, .k = c->topk};
    status st = device_pool_add(&l->pool, (void **)&l->x, (u64)l->most, row, "inputs", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, (void **)&l->out, (u64)l->most, row, "outputs", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, (void **)&l->ids, slots, TUNE_SETS, "routings", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, (void **)&l->weights, slots, 1, "weights", e);
    if (st == ST_OK)
        st = device_pool_add(&l->pool, &l->space, l->t->o.moe_workspace(&l->t->o, &a), 1, "a workspace", e);
    bf16 *x = malloc(row * PATTERN);
    f32 *w = malloc(slots);
    if (st == ST_OK && (!x || !w)) st = err_nomem(e, "inputs", row * PATTERN);
    if (st == ST_OK) {
        synth s = {78};
        synth_fill_bf16(&s, x, PATTERN * c->dim, 1.0f);
        for (i64 i = 0; i < l->most; i += PATTERN)
            dev->write(dev, l->x + i * c->dim, x, row * (u64)min_i64(PATTERN, l->most - i));
        for (i64 i = 0; i < l->most * c->topk; i++) w[i] = l->weight_row[i % c->topk];
        dev->write(dev, l->weights, w, slots);
    }
    free(x), free(w);
    return st;
}

status tune_layer_open(tune_layer *l, tune_gpu *t, moe_format f, const moe_layer *shape, i64 most, err *e) {
    *l = (tune_layer){.t = t, .most = most};
    l->call = (moe_call){f, shape->dim, shape->inter, shape->experts, shape->topk, most, ROWS_ANY};
    if (l->call.topk > 64 || l->call.dim > (i64)COUNT_OF(l->x_rows[0]))
        return err_set(e, ST_UNSUPPORTED, "experts of %lld columns, top-%lld: at most %zu and 64",
                       (long long)l->call.dim, (long long)l->call.topk, COUNT_OF(l->x_rows[0]));
    u64 n = 3 * (u64)max_i64(shape->experts, DISTINCT);
    weight_view *v = calloc(n, sizeof *v);
    status st = v ? make_weights(l, v, e) : err_nomem(e, "a list of weights", n * sizeof *v);
    free(v);
    if (st == ST_OK) st = layer_make_rows(l, e);
    const u64 cells = (u64)min_i64(TUNE_BYTES / 2, most * l->call.dim);
    if (st == ST_OK && !(l->rows = malloc(3 * cells * 2))) st = err_nomem(e, "rows", 3 * cells * 2);
    if (st == ST_OK) {
        l->got = l->rows, l->again = l->rows + cells, l->usual = l->rows + 2 * cells;
        st = make_inputs(l, e);
    }
    return st == ST_OK ? t->dev->finish(t->dev, e) : st;
}

void tune_layer_close(tune_layer *l) {
    err e;
    l->t->dev->finish(l->t->dev, &e);
    device_pool_free(&l->pool);
    if (l->w) l->t->o.weight_release(l->w);
    if (l->ref_w) l->t->ref.weight_release(l->ref_w);
    free(l->memory), free(l->rows), free(l->want[0]), free(l->want[1]);
}

status tune_layer_tokens(tune_layer *l, i64 tokens, err *e) {
    const i64 k = l->call.topk, n = tokens * k, last = (tokens - 1) * k;
    device *dev = l->t->dev;
    l->call.tokens = tokens;
    i32 *ids = malloc((u64)(n * TUNE_SETS) * 4);
    if (!ids) return err_nomem(e, "routings", (u64)(n * TUNE_SETS) * 4);
#pragma omp parallel for
    for (i64 set = 0; set < TUNE_SETS; set++) {
        synth s = {(u64)(tokens * TUNE_SETS + set) * 77};
        synth_ids(&s, ids + set * n, tokens, k, l->call.experts);
    }
    memcpy(ids + last, l->id_rows[1], (u64)k * 4);
    memcpy(ids, l->id_rows[0], (u64)k * 4);
    dev->write(dev, l->ids, ids, (u64)(n * TUNE_SETS) * 4);
    dev->write(dev, l->x + (tokens - 1) * l->call.dim, l->x_rows[1], (u64)l->call.dim * 2);
    dev->write(dev, l->x, l->x_rows[0], (u64)l->call.dim * 2);
    free(ids);
    return dev->finish(dev, e);
}

static moe_args args_of(const tune_layer *l, i64 set) {
    return (moe_args){.experts = l->w,
                      .x = l->x,
                      .ids = l->ids + set * l->call.tokens * l->call.topk,
                      .weights = l->weights,
                      .out = l->out,
                      .workspace = l->space,
                      .n = l->call.tokens,
                      .k = l->call.topk};
}

/* Runs of rows of the outputs, as many as TUNE_BYTES hold: all, or TUNE_RUNS runs that are spread over the call. */
static i64 runs_of(const tune_layer *l, i64 *rows) {
    i64 n = l->call.tokens, most = (i64)TUNE_BYTES / (l->call.dim * 2);
    *rows = n <= most ? n : most / TUNE_RUNS;
    return n <= most ? 1 : TUNE_RUNS;
}

static u64 read_rows(const tune_layer *l, bf16 *to) {
    i64 rows, runs = runs_of(l, &rows), dim = l->call.dim;
    for (i64 i = 0; i < runs; i++)
        l->t->dev->read(l->t->dev, to + i * rows * dim, l->out + i * l->call.tokens / runs * dim,
                        (u64)(rows * dim) * 2);
    return (u64)(runs * rows);
}

/* |a - b| / |b| of one row. */
static f64 row_apart(const bf16 *a, const bf16 *b, i64 dim) {
    f64 diff = 0, size = 0;
    for (i64 c = 0; c < dim; c++) {
        f64 off = (f64)bf16_to_f32(a[c]) - (f64)bf16_to_f32(b[c]);
        diff += off * off;
        size += (f64)bf16_to_f32(b[c]) * (f64)bf16_to_f32(b[c]);
    }
    return diff == 0 ? 0 : sqrt(diff / size);
}

/* The largest of all rows; NaN if one is. */
static f64 rows_apart(const bf16 *a, const bf16 *b, i64 rows, i64 dim) {
    f64 worst = 0;
    bool nan = false;
#pragma omp parallel for reduction(max : worst) reduction(|| : nan)
    for (i64 r = 0; r < rows; r++) {
        f64 one = row_apart(a + r * dim, b + r * dim, dim);
        nan = nan || isnan(one);
        if (one > worst) worst = one;
    }
    return nan ? (f64)NAN : worst;
}

static void run_as(tune_layer *l, const moe_choice *how) {
    moe_args a = args_of(l, 0);
    ops_gpu_force(&l->t->o, how);
    l->t->o.moe(&l->t->o, &a);
    ops_gpu_force(&l->t->o, NULL);
}

/* Rows 0 and n - 1 of the outputs from ref's. */
static f64 from_ref(const tune_layer *l, const f32 *want) {
    static bf16 row[COUNT_OF(l->x_rows[0])];
    static f32 got[TUNE_ROWS * COUNT_OF(l->x_rows[0])];
    i64 n = l->call.tokens, dim = l->call.dim, rows = min_i64(TUNE_ROWS, n);
    for (i64 r = 0; r < rows; r++) {
        l->t->dev->read(l->t->dev, row, l->out + r * (n - 1) * dim, (u64)dim * 2);
        for (i64 c = 0; c < dim; c++) got[r * dim + c] = bf16_to_f32(row[c]);
    }
    return relative_error(got, want, rows * dim);
}

status tune_right(tune_layer *l, const moe_choice *how, bool first, tune_verdict *v, err *e) {
    static const f64 BOUND = 4e-3;
    device *dev = l->t->dev;
    run_as(l, how);
    i64 rows = (i64)read_rows(l, l->got);
    v->error = from_ref(l, l->want[how->path == MOE_GROUPED_W4A8]);
    if (first) memcpy(l->usual, l->got, (u64)(rows * l->call.dim) * 2);
    v->apart = rows_apart(l->got, l->usual, rows, l->call.dim);
    run_as(l, how);
    read_rows(l, l->again);
    v->same = !memcmp(l->got, l->again, (u64)(rows * l->call.dim) * 2);
    v->right = v->error <= BOUND && v->apart <= 2 * BOUND && v->same;
    return dev->finish(dev, e);
}

typedef struct {
    tune_layer *l;
    i64 calls;
} call_queue;
static void layer_queue_calls(void *ud) {
    const call_queue *q = ud;
    for (i64 i = 0; i < q->calls; i++) {
        moe_args a = args_of(q->l, i % TUNE_SETS);
        q->l->t->o.moe(&q->l->t->o, &a);
    }
}

status tune_record(tune_layer *l, const moe_choice *how, i64 calls, device_recording **out, err *e) {
    call_queue q = {l, calls};
    ops_gpu_force(&l->t->o, how);
    status st = l->t->dev->record(l->t->dev, layer_queue_calls, &q, out, e);
    ops_gpu_force(&l->t->o, NULL);
    return st;
}

status tune_time(tune_layer *l, const device_recording *r, i64 calls, i64 replays, f64 *us, err *e) {
    device *dev = l->t->dev;
    status st = dev->finish(dev, e);
    f64 start = now_s();
    for (i64 i = 0; i < replays; i++) dev->replay(dev, r);
    if (st == ST_OK) st = dev->finish(dev, e);
    *us = (now_s() - start) * 1e6 / (f64)(calls * replays);
    return st;
}
