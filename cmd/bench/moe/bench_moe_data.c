/* cmd/bench/moe/bench_moe_data.c: weights, inputs and routings of `moonlet bench moe`. */
#include "base/log.h"
#include "cmd/bench/moe/bench_moe.h"
#include "cmd/bench/moe/moe_files.h"
#include "cmd/lib/synthetic.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static weight_view copied(const bf16 *w, i64 rows, i64 cols, u8 *to) {
#pragma omp parallel for schedule(static)
    for (i64 r = 0; r < rows; r++) memcpy(to + r * cols * 2, w + r * cols, (u64)cols * 2);
    return (weight_view){.format = WF_BF16, .rows = rows, .cols = cols, .data = to};
}

/* Matrices of expert x from the files' bf16 values, in the bench's format. */
static void given_expert(bench_state *b, i64 x, const bf16 *w1, const bf16 *w2, u64 up) {
    const i64 inter = b->o.inter, dim = b->o.dim;
    const bf16 *const from[] = {w1, w1 + inter * dim, w2};
    u8 *at = b->memory + (u64)x * b->expert_bytes;
    for (int i = 0; i < 3; i++, at += up) {
        i64 rows = i == 2 ? dim : inter, cols = i == 2 ? inter : dim;
        weight_view *v = &b->views[3 * x + i];
        b->given[3 * x + i] = (weight_view){.format = WF_BF16, .rows = rows, .cols = cols, .data = from[i]};
        if (b->wf == WF_INT4_GROUP)
            *v = moe_int4_of(from[i], rows, cols, at);
        else
            *v = copied(from[i], rows, cols, at);
    }
}

/* Weights of the files, expert by expert. */
static status given_weights(bench_state *b, u64 up, err *e) {
    bench_opts *o = &b->o;
    if (!o->w1 || !o->w2) return err_set(e, ST_INPUT, "--w1 and --w2 belong together");
    if (b->wf != WF_INT4_GROUP && b->wf != WF_BF16)
        return err_set(e, ST_INPUT, "--w1 and --w2 are not read for --format %s", o->format);
    u64 half = (u64)(o->inter * o->dim) * 2;
    b->given = calloc((size_t)o->experts * 3, sizeof *b->given);
    if (!b->given) return err_nomem(e, "the files' weights", (u64)o->experts * 3 * sizeof *b->given);
    status st = file_map_open(&b->w1, o->w1, e);
    if (st == ST_OK) st = file_map_open(&b->w2, o->w2, e);
    if (st == ST_OK) st = moe_size_is(o->w1, b->w1.size, half * 2 * (u64)o->experts, "--w1", e);
    if (st == ST_OK) st = moe_size_is(o->w2, b->w2.size, half * (u64)o->experts, "--w2", e);
    progress p;
    progress_start(&p, "weights of the files", "MB", half * 3 * (u64)o->experts / 1000000);
    for (i64 x = 0; st == ST_OK && x < o->experts; x++) {
        given_expert(b, x, (const bf16 *)b->w1.data + x * 2 * o->inter * o->dim,
                     (const bf16 *)b->w2.data + x * o->inter * o->dim, up);
        progress_step(&p, half * 3 * (u64)(x + 1) / 1000000);
    }
    progress_end(&p);
    return st;
}

void moe_free_weights(bench_state *b) {
    file_map_close(&b->w1);
    file_map_close(&b->w2);
    if (b->given != b->views) free(b->given);
    free(b->memory);
    free(b->views);
    b->memory = NULL, b->views = b->given = NULL;
}

status moe_make_weights(bench_state *b, err *e) {
    enum { DISTINCT = 16 };
    bench_opts *o = &b->o;
    u64 up = synth_weight_bytes(b->wf, o->inter, o->dim), down = synth_weight_bytes(b->wf, o->dim, o->inter);
    b->distinct = b->g && !o->w1 && !o->w2 ? min_i64(DISTINCT, o->experts) : o->experts;
    b->expert_bytes = 2 * up + down;
    b->memory_bytes = b->expert_bytes * (u64)b->distinct;
    b->memory = aligned_alloc(64, b->memory_bytes);
    b->views = calloc((size_t)o->experts * 3, sizeof *b->views);
    if (!b->memory || !b->views) return err_nomem(e, "the weights", b->memory_bytes);
    if (o->w1 || o->w2) return given_weights(b, up, e);
#pragma omp parallel for schedule(static)
    for (i64 x = 0; x < b->distinct; x++) {
        synth s = {(u64)(o->seed + 1) * 1000003u + (u64)x};
        u8 *at = b->memory + (u64)x * b->expert_bytes;
        f32 in = 1.0f / sqrtf((f32)o->dim), hidden = 1.0f / sqrtf((f32)o->inter);
        b->views[3 * x] = synth_weight(&s, b->wf, o->inter, o->dim, in, at);
        b->views[3 * x + 1] = synth_weight(&s, b->wf, o->inter, o->dim, in, at + up);
        b->views[3 * x + 2] = synth_weight(&s, b->wf, o->dim, o->inter, hidden, at + 2 * up);
    }
    for (i64 i = 3 * b->distinct; i < 3 * o->experts; i++) b->views[i] = b->views[i % (3 * b->distinct)];
    b->given = b->views;
    return ST_OK;
}

void moe_shape_free(shape_data *d) {
    if (d->recorded) d->pool.dev->forget(d->pool.dev, d->recorded);
    device_pool_free(&d->pool);
    free(d->x16), free(d->out16), free(d->x32), free(d->out32), free(d->weights), free(d->ids), free(d->space);
}

moe_args moe_shape_args(const bench_state *b, const shape_data *d, i64 set) {
    void *host[] = {d->x16, d->ids, d->weights, d->out16, d->space}, *const *at = b->g ? d->pool.items : host;
    if (!b->g && b->dev->act == DT_F32) host[0] = d->x32, host[3] = d->out32;
    return (moe_args){.experts = b->dev_w,
                      .x = at[0],
                      .ids = (i32 *)at[1] + set * d->n * b->o.topk,
                      .weights = at[2],
                      .out = at[3],
                      .workspace = at[4],
                      .n = d->n,
                      .k = b->o.topk};
}

bool moe_in_int8(const bench_state *b, const shape_data *d) {
    const bench_opts *o = &b->o;
    return b->experts == EXPERTS_W4A8 && moe_is_int8(b->dev->int8_mean, d->n * o->topk, o->experts, o->dim, o->inter);
}

static i64 count_touched(const bench_state *b, const i32 *ids, i64 n) {
    bool seen[4096] = {0};
    i64 count = 0;
    for (i64 i = 0; i < n * b->o.topk; i++)
        if (ids[i] >= 0 && ids[i] < b->o.experts && !seen[ids[i]]) seen[ids[i]] = true, count++;
    return count;
}

/* The GPU's side of a shape. */
static status shape_copy(const bench_state *b, shape_data *d, err *e) {
    device *dev = gpu_device(b->g);
    u64 cells = (u64)(d->n * b->o.dim) * 2, slots = (u64)(d->n * b->o.topk) * 4;
    const moe_args a = {.experts = b->dev_w, .n = d->n, .k = b->o.topk};
    const struct {
        const void *from;
        u64 bytes;
    } all[] = {{d->x16, cells},
               {d->ids, slots * (u64)b->o.sets},
               {d->weights, slots},
               {NULL, cells},
               {NULL, b->dev->moe_workspace(b->dev, &a)}};
    d->pool.dev = dev;
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        void *p;
        status st = device_pool_add(&d->pool, &p, all[i].bytes, 1, "a shape", e);
        if (st != ST_OK) return st;
        if (all[i].from) dev->write(dev, p, all[i].from, all[i].bytes);
    }
    return dev->finish(dev, e);
}

/* Expert ids of n tokens: uniform; skewed: half of the experts, the first of them for everybody; one: the same for
 * all tokens. */
static void make_ids(const bench_opts *o, synth *s, i32 *ids, i64 n) {
    if (!strcmp(o->routing, "uniform")) {
        synth_ids(s, ids, n, o->topk, o->experts);
    } else if (!strcmp(o->routing, "skewed")) {
        i64 few = max_i64(o->topk, o->experts / 2);
        synth_ids(s, ids, n, o->topk, few);
        for (i64 i = 0; i < n; i++) {
            i32 *row = ids + i * o->topk;
            for (i64 j = 0; j < o->topk; j++)
                if (row[j] == 0) row[j] = row[0];
            row[0] = 0;
        }
    } else {
        i64 each = n / o->sets;
        for (i64 set = 0; set < o->sets; set++) {
            synth_ids(s, ids + set * each * o->topk, 1, o->topk, o->experts);
            for (i64 j = o->topk; j < each * o->topk; j++)
                ids[set * each * o->topk + j] = ids[set * each * o->topk + j % o->topk];
        }
    }
}

/* A given routing for other experts: as many tokens for as many of them. */
static void shift_ids(const bench_opts *o, const i32 *from, i32 *to, i64 n, i64 set) {
    i64 by = set * max_i64(1, o->experts / o->sets);
    for (i64 i = 0; i < n; i++) {
        bool valid = from[i] >= 0 && from[i] < o->experts;
        to[i] = valid ? (i32)((from[i] + by) % o->experts) : from[i];
    }
}

status moe_make_shape(bench_state *b, i64 n, shape_data *d, err *e) {
    enum { ROWS = 2048 /* different inputs */ };
    bench_opts *o = &b->o;
    *d = (shape_data){.n = n};
    u64 cells = (u64)(n * o->dim), slots = (u64)(n * o->topk);
    bool wide = b->dev->act == DT_F32;
    d->x16 = malloc(cells * 2), d->out16 = malloc(cells * 2);
    d->x32 = malloc(wide ? cells * 4 : 4), d->out32 = malloc(wide ? cells * 4 : 4);
    d->weights = malloc(slots * 4), d->ids = malloc(slots * 4 * (u64)o->sets);
    if (!d->x16 || !d->out16 || !d->x32 || !d->out32 || !d->weights || !d->ids)
        return err_nomem(e, "activations", cells * 12);
    synth s = {(u64)o->seed * 77 + (u64)n};
    synth_fill_bf16(&s, d->x16, min_i64(n, ROWS) * o->dim, 1.0f);
    for (i64 i = ROWS; i < n; i++) memcpy(d->x16 + i * o->dim, d->x16 + i % ROWS * o->dim, (u64)o->dim * 2);
    make_ids(o, &s, d->ids, n * o->sets);
    for (u64 i = 0; i < slots; i++) d->weights[i] = (1.0f + 0.5f * synth_uniform(&s)) / (f32)o->topk;
    status st = ST_OK;
    i64 given = o->sets;
    if (o->x) st = moe_read_raw(o->x, d->x16, cells * 2, NULL, "--x", e);
    if (st == ST_OK && o->ids) st = moe_read_raw(o->ids, d->ids, slots * 4, &given, "--ids", e);
    if (st == ST_OK && o->weights) st = moe_read_raw(o->weights, d->weights, slots * 4, NULL, "--topk-weights", e);
    if (st != ST_OK) return st;
    for (i64 t = 1; o->ids && given == 1 && t < o->sets; t++)
        shift_ids(o, d->ids, d->ids + t * (i64)slots, (i64)slots, t);
    for (u64 i = 0; wide && i < cells; i++) d->x32[i] = bf16_to_f32(d->x16[i]);
    if (b->g) st = shape_copy(b, d, e);
    if (st != ST_OK) return st;
    moe_args a = moe_shape_args(b, d, 0);
    u64 bytes = b->g ? 1 : b->dev->moe_workspace(b->dev, &a);
    d->space = aligned_alloc(64, (bytes + 63) & ~(u64)63);
    if (!d->space) return err_nomem(e, "the workspace", bytes);
    for (i64 t = 0; t < o->sets; t++) d->touched += count_touched(b, d->ids + t * n * o->topk, n);
    d->touched = (d->touched + o->sets / 2) / o->sets;
    return ST_OK;
}
