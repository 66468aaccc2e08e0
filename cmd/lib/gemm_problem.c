/* cmd/lib/gemm_problem.c: see the header. */
#include "cmd/lib/gemm_problem.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOPE = 128, ROPE = 64, V_DIM = 128, LATENT = 512, X_ROWS = 512, COLS_MOST = 32768 };

const gemm_shape gemm_kimi[GEMM_KIMI] = {
    {"q_a", G_LINEAR, 1536, 7168},
    {"kv_a", G_LINEAR, 576, 7168},
    {"router", G_LOGITS, 384, 7168},
    {"q_b", G_LINEAR, 12288, 1536},
    {"o", G_ADD, 7168, 8192},
    {"dense gate, up", G_SWIGLU, 18432, 7168},
    {"dense down", G_ADD, 7168, 18432},
    {"shared gate, up", G_SWIGLU, 2048, 7168},
    {"shared down", G_LINEAR, 7168, 2048},
    {"absorb_q", G_ABSORB, 64, 0},
    {"unabsorb_v", G_UNABSORB, 64, 0},
    {"head", G_LOGITS, 163840, 7168},
    {"q_b /4", G_LINEAR, 3072, 1536},
    {"o /4", G_ADD, 7168, 2048},
    {"dense gate, up /4", G_SWIGLU, 4608, 7168},
    {"dense down /4", G_ADD, 7168, 4608},
    {"shared gate, up /4", G_SWIGLU, 512, 7168},
    {"shared down /4", G_LINEAR, 7168, 512},
    {"absorb_q /4", G_ABSORB, 16, 0},
    {"unabsorb_v /4", G_UNABSORB, 16, 0},
    {"head /4", G_LOGITS, 40960, 7168},
    {"q_b /8", G_LINEAR, 1536, 1536},
    {"o /8", G_ADD, 7168, 1024},
    {"dense gate, up /8", G_SWIGLU, 2304, 7168},
    {"dense down /8", G_ADD, 7168, 2304},
    {"shared gate, up /8", G_SWIGLU, 256, 7168},
    {"shared down /8", G_LINEAR, 7168, 256},
    {"absorb_q /8", G_ABSORB, 8, 0},
    {"unabsorb_v /8", G_UNABSORB, 8, 0},
    {"head /8", G_LOGITS, 20480, 7168},
};

static status gemm_make_weight(gemm_gpu *b, const gemm_shape *s, u64 seed, op_weight **out, err *e) {
    bool heads = s->kind == G_ABSORB || s->kind == G_UNABSORB;
    weight_view v = {
        .format = WF_BF16, .rows = heads ? s->rows * (NOPE + V_DIM) : s->rows, .cols = heads ? LATENT : s->cols};
    weight_desc d = {.kind = heads ? WK_KV_B : WK_LINEAR,
                     .views = &v,
                     .n_views = 1,
                     .n_heads = s->rows,
                     .nope = NOPE,
                     .v_dim = V_DIM,
                     .dummy_seed = seed + 1,
                     .dummy_sigma = 1.0f / sqrtf((f32)v.cols)};
    return b->on.ops.weight_prepare(&b->on.ops, &d, out, e);
}

void gemm_case_sizes(gemm_case *c, u64 rotate) {
    const gemm_shape *s = c->s;
    c->wide = s->kind == G_LOGITS;
    c->x_width = s->cols, c->y_width = s->rows;
    c->work = s->rows * s->cols * (s->kind == G_SWIGLU ? 2 : 1);
    if (s->kind == G_ABSORB) c->x_width = s->rows * (NOPE + ROPE), c->y_width = s->rows * (LATENT + ROPE);
    if (s->kind == G_UNABSORB) c->x_width = s->rows * LATENT, c->y_width = s->rows * V_DIM;
    if (s->kind >= G_ABSORB) c->work = s->rows * LATENT * NOPE;
    c->weight_bytes = (u64)c->work * 2;
    c->sets = min_i64(GEMM_SETS, (i64)(rotate / c->weight_bytes) + 1);
}

/* x on the GPU, from rows of a made-up table. */
static status fill_x(gemm_gpu *b, gemm_case *c, err *e) {
    weight_view v = {.format = WF_BF16, .rows = min_i64(c->n, X_ROWS), .cols = c->x_width};
    weight_desc d = {.kind = WK_TABLE, .views = &v, .n_views = 1, .dummy_seed = (u64)b->seed + 77, .dummy_sigma = 1.0f};
    op_weight *table = NULL;
    status st = b->on.ops.weight_prepare(&b->on.ops, &d, &table, e);
    i32 *ids = malloc((size_t)c->n * sizeof *ids);
    if (st == ST_OK && !ids) st = err_nomem(e, "row numbers", (u64)c->n * 4);
    if (st == ST_OK) {
        for (i64 i = 0; i < c->n; i++) ids[i] = (i32)(i % v.rows);
        b->on.device->write(b->on.device, c->ids, ids, (u64)c->n * sizeof *ids);
        b->on.ops.embed(&b->on.ops, &(embed_args){.table = table, .ids = c->ids, .out = c->x, .n = c->n});
        st = b->on.device->finish(b->on.device, e);
    }
    free(ids);
    b->on.ops.weight_release(table);
    return st;
}

void gemm_case_free(gemm_gpu *b, gemm_case *c) {
    for (i64 i = 0; i < c->sets; i++) b->on.ops.weight_release(c->w[i]), b->on.ops.weight_release(c->up[i]);
    device_pool_free(&c->pool);
}

status gemm_case_make(gemm_gpu *b, gemm_case *c, u64 rotate, err *e) {
    status st = ST_OK;
    gemm_case_sizes(c, rotate);
    c->pool.dev = b->on.device;
    u64 n = (u64)c->n, widest = (u64)max_i64(c->s->cols, LATENT);
    for (i64 i = 0; st == ST_OK && i < c->sets; i++) {
        st = gemm_make_weight(b, c->s, (u64)(b->seed + i) * 2, &c->w[i], e);
        if (st == ST_OK && c->s->kind == G_SWIGLU)
            st = gemm_make_weight(b, c->s, (u64)(b->seed + i) * 2 + 1, &c->up[i], e);
    }
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->x, n * (u64)c->x_width, 2, "x", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->y, n * (u64)c->y_width, c->wide ? 4 : 2, "y", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->row, widest, 2, "a row", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, (void **)&c->ids, n, 4, "row numbers", e);
    if (st == ST_OK) st = fill_x(b, c, e);
    return st;
}

void gemm_case_call(gemm_gpu *b, const gemm_case *c, i64 set) {
    const gemm_shape *s = c->s;
    const op_weight *w = c->w[set % c->sets];
    const ops *o = &b->on.ops;
    if (s->kind == G_ADD && gpu_add_linear(o, &(linear_args){w, c->x, c->y, c->n, s->cols, s->rows, DT_BF16})) return;
    if (s->kind == G_LINEAR || s->kind == G_LOGITS || s->kind == G_ADD)
        o->linear(o, &(linear_args){w, c->x, c->y, c->n, s->cols, s->rows, c->wide ? DT_F32 : DT_BF16});
    else if (s->kind == G_SWIGLU)
        o->swiglu(o, &(swiglu_args){w, c->up[set % c->sets], c->x, c->y, c->n, s->cols, s->rows});
    else if (s->kind == G_ABSORB)
        o->absorb_q(o, &(absorb_q_args){w, c->x, c->y, c->n, s->rows, NOPE, ROPE, LATENT});
    else
        o->unabsorb_v(o, &(unabsorb_v_args){w, c->x, c->y, c->n, s->rows, LATENT, V_DIM});
}

/* Row `row` of a weight as float32, by way of the GPU's embedding. */
static void gemm_read_row(gemm_gpu *b, gemm_case *c, const op_weight *w, i64 row, i64 cols, f32 *out) {
    i32 id = (i32)row;
    bf16 h[COLS_MOST];
    b->on.device->write(b->on.device, c->ids, &id, sizeof id);
    b->on.ops.embed(&b->on.ops, &(embed_args){.table = w, .ids = c->ids, .out = c->row, .n = 1});
    b->on.device->read(b->on.device, h, c->row, (u64)cols * 2);
    for (i64 i = 0; i < cols; i++) out[i] = bf16_to_f32(h[i]);
}

static f64 gemm_dot(const f32 *a, const f32 *b, i64 n) {
    f64 sum = 0;
    for (i64 i = 0; i < n; i++) sum += (f64)a[i] * (f64)b[i];
    return sum;
}

/* Element `at` of a token's y, recomputed in double from x (one token). */
static f64 expected(gemm_gpu *b, gemm_case *c, const f32 *x, i64 at, f32 *row) {
    const gemm_shape *s = c->s;
    if (s->kind == G_ABSORB) {
        i64 h = at / (LATENT + ROPE), col = at % (LATENT + ROPE);
        const f32 *q = x + h * (NOPE + ROPE);
        if (col >= LATENT) return (f64)q[NOPE + col - LATENT];
        f64 sum = 0;
        for (i64 d = 0; d < NOPE; d++) {
            gemm_read_row(b, c, c->w[0], h * (NOPE + V_DIM) + d, LATENT, row);
            sum += (f64)q[d] * (f64)row[col];
        }
        return sum;
    }
    if (s->kind == G_UNABSORB) {
        i64 h = at / V_DIM;
        gemm_read_row(b, c, c->w[0], h * (NOPE + V_DIM) + NOPE + at % V_DIM, LATENT, row);
        return gemm_dot(row, x + h * LATENT, LATENT);
    }
    gemm_read_row(b, c, c->w[0], at, s->cols, row);
    f64 v = gemm_dot(row, x, s->cols);
    if (s->kind != G_SWIGLU) return v;
    gemm_read_row(b, c, c->up[0], at, s->cols, row);
    return v / (1.0 + exp(-v)) * gemm_dot(row, x, s->cols);
}

void gemm_case_read(gemm_gpu *b, const gemm_case *c, i64 token, f32 *out) {
    const u64 size = c->wide ? 4 : 2, bytes = (u64)c->y_width * size;
    b->on.device->read(b->on.device, out, (u8 *)c->y + (u64)token * bytes, bytes);
    if (c->wide) return;
    for (i64 i = c->y_width - 1; i >= 0; i--) { /* from behind: in place */
        bf16 h;
        memcpy(&h, (u8 *)out + (u64)i * 2, sizeof h);
        out[i] = bf16_to_f32(h);
    }
}

status gemm_case_want(gemm_gpu *b, gemm_case *c, const i64 *tokens, i64 n_tokens, const i64 *at, i64 count, f32 *out,
                      err *e) {
    f32 *x = malloc((size_t)c->x_width * 4), *row = malloc(COLS_MOST * 4);
    bf16 *raw = malloc((size_t)c->x_width * 2);
    bool ok = x && row && raw;
    for (i64 t = 0; ok && t < n_tokens; t++) {
        b->on.device->read(b->on.device, raw, (u8 *)c->x + (u64)(tokens[t] * c->x_width) * 2, (u64)c->x_width * 2);
        for (i64 i = 0; i < c->x_width; i++) x[i] = bf16_to_f32(raw[i]);
        for (i64 i = 0; i < count; i++) out[t * count + i] = (f32)expected(b, c, x, at[i], row);
    }
    free(x), free(row), free(raw);
    return ok ? b->on.device->finish(b->on.device, e) : err_nomem(e, "sampled rows", (u64)c->x_width * 4);
}
