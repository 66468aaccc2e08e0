/* cmd/bench_moe.c: `moonlet bench moe`: one layer's routed experts, default K2.5's shapes. */
#include "base/file.h"
#include "base/log.h"
#include "bench.h"
#include "kernels/gpu/gpu.h"
#include "kernels/cpu/peak.h"
#include "model_opts.h"
#include "moe_files.h"
#include "moe_shapes.h"
#include "synth.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    i64 dim, inter, experts, topk, threads, seed, sets, runs;
    const char *device, *format, *mask, *json, *routing, *tuned;
    const char *ids, *weights, *x, *w1, *w2, *out;
    opt_list shapes, tokens;
} bench_opts;

typedef struct {
    bench_opts o;
    weight_format wf;
    expert_format experts;
    const ops *dev, *ref;
    u8 *memory; /* of all weights */
    u64 memory_bytes, expert_bytes;
    i64 distinct; /* experts in memory; ref has these alone */
    weight_view *views;
    op_weight *dev_w, *ref_w;
    gpu *g; /* NULL unless the device is one */
    machine_peaks peaks;
    FILE *json;
    bool listed; /* a GPU, and no dimension was given */
    u32 isa;
} bench_state;

/* Matrices of expert x from the files' bf16 values, in the bench's format. */
static void given_expert(bench_state *b, i64 x, const bf16 *w1, const bf16 *w2, u64 up) {
    const i64 inter = b->o.inter, dim = b->o.dim;
    const bf16 *const from[] = {w1, w1 + inter * dim, w2};
    u8 *at = b->memory + (u64)x * b->expert_bytes;
    for (int i = 0; i < 3; i++, at += up) {
        i64 rows = i == 2 ? dim : inter, cols = i == 2 ? inter : dim;
        weight_view *v = &b->views[3 * x + i];
        if (b->wf == WF_INT4_GROUP)
            *v = moe_int4_of(from[i], rows, cols, at);
        else
            *v = (weight_view){.format = WF_BF16, .rows = rows, .cols = cols, .data = at},
            memcpy(at, from[i], (u64)(rows * cols) * 2);
    }
}

/* Weights of the files, expert by expert. */
static status given_weights(bench_state *b, u64 up, err *e) {
    bench_opts *o = &b->o;
    if (!o->w1 || !o->w2) return err_set(e, ST_INPUT, "--w1 and --w2 belong together");
    if (b->wf == WF_FP8_BLOCK) return err_set(e, ST_INPUT, "--w1 and --w2 are not read for --format fp8");
    u64 half = (u64)(o->inter * o->dim) * 2;
    file_map w1 = {0}, w2 = {0};
    status st = file_map_open(&w1, o->w1, e);
    if (st == ST_OK) st = file_map_open(&w2, o->w2, e);
    if (st == ST_OK) st = moe_size_is(o->w1, w1.size, half * 2 * (u64)o->experts, "--w1", e);
    if (st == ST_OK) st = moe_size_is(o->w2, w2.size, half * (u64)o->experts, "--w2", e);
    for (i64 x = 0; st == ST_OK && x < o->experts; x++)
        given_expert(b, x, (const bf16 *)w1.data + x * 2 * o->inter * o->dim,
                     (const bf16 *)w2.data + x * o->inter * o->dim, up);
    file_map_close(&w1);
    file_map_close(&w2);
    return st;
}

/* Weights from the files, or synthetic. Layout of the memory: expert after expert, gate, up, down. Of synthetic ones for a GPU, expert i is
 * expert i % DISTINCT: the GPU has a copy of each. */
static status make_weights(bench_state *b, err *e) {
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
        for (i64 i = 0; i < 3 && b->experts == EXPERTS_W4A8; i++) synth_one_scale(&b->views[3 * x + i]);
    }
    for (i64 i = 3 * b->distinct; i < 3 * o->experts; i++) b->views[i] = b->views[i % (3 * b->distinct)];
    return ST_OK;
}

static int by_value(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

/* Everything of one shape. x32 and out32: for a device with float32 activations. */
typedef struct {
    i64 n;
    bf16 *x16, *out16;
    f32 *x32, *out32, *weights;
    i32 *ids; /* [sets, n, k] */
    void *space;
    i64 touched;      /* mean over the sets */
    device_pool pool; /* on a GPU: copies of x16, ids, weights, and out16 and space, in this order */
    device_recording *recorded; /* on a GPU: recorded_calls calls, the routings in turn */
    i64 recorded_calls;
} shape_data;

static void shape_free(shape_data *d) {
    if (d->recorded) d->pool.dev->forget(d->pool.dev, d->recorded);
    device_pool_free(&d->pool);
    free(d->x16), free(d->out16), free(d->x32), free(d->out32), free(d->weights), free(d->ids),
        free(d->space);
}

static moe_args shape_args(const bench_state *b, const shape_data *d, i64 set) {
    bool wide = b->dev->act == DT_F32;
    void *const *there = d->pool.items;
    if (b->g)
        return (moe_args){.experts = b->dev_w,
                          .x = there[0],
                          .ids = (i32 *)there[1] + set * d->n * b->o.topk,
                          .weights = there[2],
                          .out = there[3],
                          .workspace = there[4],
                          .n = d->n,
                          .k = b->o.topk};
    return (moe_args){.experts = b->dev_w,
                      .x = wide ? (void *)d->x32 : (void *)d->x16,
                      .ids = d->ids + set * d->n * b->o.topk,
                      .weights = d->weights,
                      .out = wide ? (void *)d->out32 : (void *)d->out16,
                      .workspace = d->space,
                      .n = d->n,
                      .k = b->o.topk};
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

/* Expert ids of n tokens: uniform; skewed: half of the experts, the first of them for everybody; one: the same for all tokens. */
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

static status shape_make(bench_state *b, i64 n, shape_data *d, err *e) {
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
    i64 one = 1, given = o->sets;
    if (o->x) st = moe_read_raw(o->x, d->x16, cells * 2, &one, "--x", e);
    if (st == ST_OK && o->ids) st = moe_read_raw(o->ids, d->ids, slots * 4, &given, "--ids", e);
    if (st == ST_OK && o->weights)
        st = moe_read_raw(o->weights, d->weights, slots * 4, &one, "--topk-weights", e);
    if (st != ST_OK) return st;
    for (i64 t = 1; o->ids && given == 1 && t < o->sets; t++)
        shift_ids(o, d->ids, d->ids + t * (i64)slots, (i64)slots, t);
    for (u64 i = 0; wide && i < cells; i++) d->x32[i] = bf16_to_f32(d->x16[i]);
    if (b->g) st = shape_copy(b, d, e);
    if (st != ST_OK) return st;
    moe_args a = shape_args(b, d, 0);
    u64 bytes = b->g ? 1 : b->dev->moe_workspace(b->dev, &a);
    d->space = aligned_alloc(64, (bytes + 63) & ~(u64)63);
    if (!d->space) return err_nomem(e, "the workspace", bytes);
    for (i64 t = 0; t < o->sets; t++) d->touched += count_touched(b, d->ids + t * n * o->topk, n);
    d->touched = (d->touched + o->sets / 2) / o->sets;
    return ST_OK;
}

/* Error of the last outputs (set 0) on up to four rows; rows that ref computes are spread over the call. */
static status shape_error(const bench_state *b, const shape_data *d, f64 *out, i64 *rows, err *e) {
    i64 dim = b->o.dim, want = min_i64(d->n, 4);
    f32 *ref = malloc((u64)(want * dim) * 4), *got = malloc((u64)(want * dim) * 4);
    i32 *ids = malloc((u64)b->o.topk * 4);
    f32 *x = malloc((u64)dim * 4);
    moe_args a = {.experts = b->ref_w, .n = 1, .k = b->o.topk};
    a.workspace = malloc(b->ref->moe_workspace(b->ref, &a));
    status st = ST_OK;
    if (ref && got && ids && x && a.workspace) {
        for (i64 r = 0; r < want; r++) {
            i64 i = want > 1 ? r * (d->n - 1) / (want - 1) : 0;
            for (i64 c = 0; c < dim; c++) x[c] = bf16_to_f32(d->x16[i * dim + c]);
            a.x = x;
            for (i64 k = 0; k < b->o.topk; k++) {
                i32 id = d->ids[i * b->o.topk + k];
                ids[k] = id >= 0 && id < b->o.experts ? id % (i32)b->distinct : -1;
            }
            a.ids = ids;
            a.weights = d->weights + i * b->o.topk;
            a.out = ref + r * dim;
            b->ref->moe(b->ref, &a);
            for (i64 c = 0; c < dim; c++)
                got[r * dim + c] =
                    b->dev->act == DT_F32 ? d->out32[i * dim + c] : bf16_to_f32(d->out16[i * dim + c]);
        }
        *out = relative_error(got, ref, want * dim);
    } else {
        st = err_nomem(e, "the reference's rows", (u64)(want * dim) * 8);
    }
    *rows = want;
    free(ref), free(got), free(ids), free(x), free(a.workspace);
    return st;
}

/* As JSON has it: null where it is none. */
static const char *number(f64 v, char out[32]) {
    snprintf(out, 32, isfinite(v) ? "%.6e" : "null", v);
    return out;
}

static void report(const bench_state *b, const shape_data *d, f64 median, f64 best, const f64 error[2],
                   i64 rows) {
    const bench_opts *o = &b->o;
    u64 weight = 0;
    for (i64 i = 0; i < 3; i++) {
        weight_view v = b->views[i];
        v.format = expert_stored_as(b->experts, v.format, i);
        weight += weight_bytes(&v);
    }
    f64 bytes = (f64)d->touched * (f64)weight, work = 6.0 * (f64)(d->n * o->topk) * (f64)(o->dim * o->inter);
    bool as_bf16 =
        b->g && !(b->experts == EXPERTS_W4A8 && moe_is_int8(d->n * o->topk, o->experts, o->dim, o->inter));
    f64 peak = b->wf == WF_INT4_GROUP && b->peaks.int8 > 0 && !as_bf16 ? b->peaks.int8
               : b->peaks.bf16 > 0                                     ? b->peaks.bf16
                                                                       : b->peaks.f32;
    char how[MOE_CHOICE_TEXT] = "", one[32], other[32];
    moe_args call = shape_args(b, d, 0);
    if (b->g) moe_choice_text(gpu_moe_choice(&call), how);
    const char *kind = peak == b->peaks.int8 ? "int8" : peak == b->peaks.bf16 ? "bf16" : "fp32";
    printf(
        "%5lld tokens, %lld x %lld, top-%lld of %lld (%lld touched, %s), %s: %9.4f ms (best %.4f)  %6.2f GB/s (%.0f %% of %.1f)  "
        "%.3f T/s (%.0f %% of %s)  error %.2e on %lld rows, %.2e with outliers%s%s\n",
        (long long)d->n, (long long)o->dim, (long long)o->inter, (long long)o->topk, (long long)o->experts,
        (long long)d->touched, o->ids ? "given" : o->routing, o->format, median * 1e3, best * 1e3,
        bytes / median / 1e9, b->peaks.read > 0 ? 100 * bytes / median / b->peaks.read : 0,
        b->peaks.read / 1e9, work / median / 1e12, peak > 0 ? 100 * work / median / peak : 0, kind, error[0],
        (long long)rows, error[1], how[0] ? "  " : "", how);
    fflush(stdout);
    if (b->json)
        fprintf(
            b->json,
            "{\"bench\":\"moe\",\"device\":\"%s\",\"format\":\"%s\",\"tokens\":%lld,\"dim\":%lld,\"inter\":%lld,"
            "\"experts\":%lld,\"topk\":%lld,\"routing\":\"%s\",\"touched\":%lld,\"ms_median\":%.6f,\"ms_min\":%.6f,\"gb_s\":%.3f,"
            "\"read_gb_s\":%.3f,\"tops\":%.5f,\"peak_tops\":%.5f,\"peak_kind\":\"%s\",\"error\":%s,\"error_outliers\":%s,"
            "\"error_rows\":%lld,\"synthetic\":%s,\"choice\":\"%s\"}\n",
            b->dev->name, o->format, (long long)d->n, (long long)o->dim, (long long)o->inter,
            (long long)o->experts, (long long)o->topk, o->ids ? "given" : o->routing, (long long)d->touched,
            median * 1e3, best * 1e3, bytes / median / 1e9, b->peaks.read / 1e9, work / median / 1e12,
            peak / 1e12, kind, number(error[0], one), number(error[1], other), (long long)rows,
            o->w1 ? "false" : "true", how);
}

static status write_out(const bench_state *b, const shape_data *d, err *e) {
    if (!b->o.out) return ST_OK;
    i64 cells = d->n * b->o.dim;
    for (i64 i = 0; b->dev->act == DT_F32 && i < cells; i++) d->out16[i] = f32_to_bf16(d->out32[i]);
    FILE *f = fopen(b->o.out, "wb");
    bool ok = f && fwrite(d->out16, 2, (size_t)cells, f) == (size_t)cells;
    if (f && fclose(f)) ok = false;
    return ok ? ST_OK : err_set(e, ST_IO, "--out %s cannot be written", b->o.out);
}

/* What one replay of a GPU's recording runs: every routing in turn, several times. */
typedef struct {
    const bench_state *b;
    const shape_data *d;
    i64 calls;
} call_queue;
static void queue_calls(void *ud) {
    const call_queue *q = ud;
    for (i64 i = 0; i < q->calls; i++) {
        moe_args a = shape_args(q->b, q->d, i % q->b->o.sets);
        q->b->dev->moe(q->b->dev, &a);
    }
}

/* Seconds of a call of routing `set`; on a GPU the mean of recorded calls over all routings, replayed until waiting for
 * the end (some 10 us) is less than a hundredth. */
static status time_call(const bench_state *b, const shape_data *d, i64 set, f64 *seconds, err *e) {
    if (!b->g) {
        f64 t = now_s();
        moe_args a = shape_args(b, d, set);
        b->dev->moe(b->dev, &a);
        *seconds = now_s() - t;
        return ST_OK;
    }
    device *dev = gpu_device(b->g);
    i64 replays = 1;
    f64 t = now_s();
    dev->replay(dev, d->recorded);
    status st = dev->finish(dev, e);
    f64 once = now_s() - t;
    if (once < 5e-3) replays = (i64)(5e-3 / once) + 1;
    t = now_s();
    for (i64 i = 0; i < replays; i++) dev->replay(dev, d->recorded);
    if (st == ST_OK) st = dev->finish(dev, e);
    *seconds = (now_s() - t) / (f64)(replays * d->recorded_calls);
    return st;
}

static status record_calls(const bench_state *b, shape_data *d, err *e) {
    i64 calls = b->o.runs == 1 ? 1 : 32; /* one run: a trial */
    device *dev = gpu_device(b->g);
    call_queue q = {b, d, (calls + b->o.sets - 1) / b->o.sets * b->o.sets};
    d->recorded_calls = q.calls;
    return dev->record(dev, queue_calls, &q, &d->recorded, e);
}

/* The outputs of set 0 for the comparison. */
static status run_once(const bench_state *b, shape_data *d, err *e) {
    moe_args a = shape_args(b, d, 0);
    b->dev->moe(b->dev, &a);
    if (!b->g) return ST_OK;
    device *dev = gpu_device(b->g);
    dev->read(dev, d->out16, a.out, (u64)(d->n * b->o.dim) * 2);
    return dev->finish(dev, e);
}

/* error[0] with the inputs as they are, whose outputs stay; error[1] with one column of them OUTLIER times as large. */
static status both_errors(const bench_state *b, shape_data *d, f64 error[2], i64 *rows, err *e) {
    enum { OUTLIER = 64, COLUMN = 7 };
    i64 dim = b->o.dim, column = COLUMN % dim;
    status st = ST_OK;
    for (int worst = 1; st == ST_OK && worst >= 0; worst--) {
        for (i64 i = 0; i < d->n; i++) { /* a power of two: exact, there and back */
            bf16 *x = &d->x16[i * dim + column];
            *x = f32_to_bf16(worst ? bf16_to_f32(*x) * OUTLIER : bf16_to_f32(*x) / OUTLIER);
            if (b->dev->act == DT_F32) d->x32[i * dim + column] = bf16_to_f32(*x);
        }
        if (b->g) gpu_device(b->g)->write(gpu_device(b->g), d->pool.items[0], d->x16, (u64)(d->n * dim) * 2);
        st = run_once(b, d, e);
        if (st == ST_OK) st = shape_error(b, d, &error[worst], rows, e);
    }
    return st;
}

static status run_shape(bench_state *b, i64 n, err *e) {
    shape_data d;
    status st = shape_make(b, n, &d, e);
    f64 times[64];
    i64 count = 0;
    if (st == ST_OK && b->g) st = record_calls(b, &d, e);
    /* right before and after: other users of a shared machine come and go */
    if (st == ST_OK && !b->g) b->peaks.read = cpu_peak_read(b->memory, b->memory_bytes);
    f64 start = now_s();
    for (i64 r = -1; st == ST_OK && r < 63; r++) { /* the first is a warm-up */
        f64 seconds;
        st = time_call(b, &d, (r + 1) % b->o.sets, &seconds, e);
        if (r >= 0) times[count++] = seconds;
        bool enough = b->o.runs ? count >= b->o.runs : count >= 5 && now_s() - start > (b->g ? 0.5 : 1.5);
        if (r >= 0 && enough) break;
    }
    if (st == ST_OK && !b->g) {
        f64 after = cpu_peak_read(b->memory, b->memory_bytes);
        if (after > b->peaks.read) b->peaks.read = after;
    }
    f64 error[2];
    i64 rows;
    if (st == ST_OK) st = both_errors(b, &d, error, &rows, e);
    if (st == ST_OK) {
        qsort(times, (size_t)count, sizeof *times, by_value);
        report(b, &d, times[count / 2], times[0], error, rows);
        st = write_out(b, &d, e);
    }
    shape_free(&d);
    return st;
}

static status read_format(bench_state *b, err *e) {
    const char *f = b->o.format;
    if (!strcmp(f, "bf16")) return b->wf = WF_BF16, ST_OK;
    if (!strcmp(f, "fp8")) return b->wf = WF_FP8_BLOCK, ST_OK;
    b->wf = WF_INT4_GROUP;
    b->experts = !strcmp(f, "w4a8")      ? EXPERTS_W4A8
                 : !strcmp(f, "w2_bf16") ? EXPERTS_W2_BF16
                                         : EXPERTS_AS_STORED;
    if (b->experts == EXPERTS_W4A8 && !strcmp(b->o.device, "cpu"))
        return err_set(e, ST_UNSUPPORTED, "--format %s runs on --device cuda and ref", f);
    return ST_OK;
}

static status check_shape(const bench_opts *o, weight_format wf, err *e) {
    if (o->dim < 1 || o->dim > 1 << 20 || o->inter < 1 || o->inter > 1 << 20 || o->experts < 1 ||
        o->experts > 4096 || o->topk < 1 || o->topk > o->experts)
        return err_set(e, ST_INPUT, "impossible shape: %lld x %lld, %lld experts, top-%lld",
                       (long long)o->dim, (long long)o->inter, (long long)o->experts, (long long)o->topk);
    if (wf == WF_INT4_GROUP && (o->dim % INT4_GROUP || o->inter % INT4_GROUP))
        return err_set(e, ST_INPUT, "w4a16 needs dim and inter to be multiples of %d", INT4_GROUP);
    return ST_OK;
}

/* Prepares the weights of the shape in b->o and runs `tokens`. */
static status run_layer(bench_state *b, const i64 *tokens, i64 n_tokens, err *e) {
    status st = check_shape(&b->o, b->wf, e);
    if (st == ST_OK) st = make_weights(b, e);
    weight_desc desc = {
        .kind = WK_EXPERTS, .views = b->views, .n_views = 3 * b->o.experts, .experts = b->experts};
    if (st == ST_OK) st = b->dev->weight_prepare(b->dev, &desc, &b->dev_w, e);
    desc.n_views = 3 * b->distinct;
    if (st == ST_OK) st = b->ref->weight_prepare(b->ref, &desc, &b->ref_w, e);
    if (st == ST_OK) {
        b->peaks = b->g ? bench_gpu_peaks(gpu_name(b->g)) : bench_peaks(b->isa, b->memory, b->memory_bytes);
        if (!b->g) bench_print_peaks(&b->peaks);
        printf("device %s; %s weights, %.2f GB; activations bf16 in and out; %lld routings in turn\n",
               b->dev->name,
               !b->o.w1                 ? "synthetic (random, zero mean)"
               : b->wf == WF_INT4_GROUP ? "given, now INT4 in groups of 32,"
                                        : "given",
               (f64)b->expert_bytes * (f64)b->o.experts / 1e9, (long long)b->o.sets);
    }
    const char *routing = b->o.routing;
    bool both = !strcmp(routing, "both");
    for (i64 i = 0; st == ST_OK && i < n_tokens * (both ? 2 : 1); i++) {
        if (both) b->o.routing = i < n_tokens ? "uniform" : "skewed";
        st = run_shape(b, tokens[i % n_tokens], e);
    }
    b->o.routing = routing;
    b->dev->weight_release(b->dev_w);
    b->ref->weight_release(b->ref_w);
    b->dev_w = b->ref_w = NULL;
    free(b->memory);
    free(b->views);
    b->memory = NULL, b->views = NULL;
    return st;
}

/* What a GPU runs unless told otherwise. */
static status run_list(bench_state *b, err *e) {
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < MOE_LAYERS; i++) {
        const moe_layer *l = &moe_layers[i];
        i64 n = 0;
        while (n < SHAPE_TOKENS && l->bench[n]) n++;
        b->o.dim = l->dim, b->o.inter = l->inter, b->o.experts = l->experts, b->o.topk = l->topk;
        printf("%s:\n", l->what);
        st = run_layer(b, l->bench, n, e);
    }
    return st;
}

static status run_all(bench_state *b, err *e) {
    static const i64 usual[] = {1, 8, 64, 512};
    i64 tokens[32], n = 0;
    if (!b->o.shapes.n) {
        for (; n < b->o.tokens.n; n++) {
            tokens[n] = strtoll(b->o.tokens.items[n], NULL, 10);
            if (tokens[n] < 1 || tokens[n] > 1 << 20)
                return err_set(e, ST_INPUT, "--tokens \"%s\" is not in 1..1048576", b->o.tokens.items[n]);
        }
        if (b->listed && !n) return run_list(b, e);
        return n ? run_layer(b, tokens, n, e) : run_layer(b, usual, COUNT_OF(usual), e);
    }
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->o.shapes.n; i++) {
        long long v[5];
        char end;
        if (sscanf(b->o.shapes.items[i], "%lld,%lld,%lld,%lld,%lld%c", v, v + 1, v + 2, v + 3, v + 4, &end) !=
                5 ||
            v[0] < 1 || v[0] > 1 << 20)
            return err_set(e, ST_INPUT, "--shape \"%s\" is not tokens,dim,inter,experts,topk",
                           b->o.shapes.items[i]);
        b->o.dim = v[1], b->o.inter = v[2], b->o.experts = v[3], b->o.topk = v[4];
        tokens[0] = v[0];
        st = run_layer(b, tokens, 1, e);
    }
    return st;
}

int bench_moe(int argc, char **argv) {
    enum { DIM = 7168, INTER = 2048, EXPERTS = 48, TOPK = 8 };
    bench_state b = {.o = {.dim = DIM,
                           .inter = INTER,
                           .experts = EXPERTS,
                           .topk = TOPK,
                           .device = "cpu",
                           .format = "w4a16",
                           .mask = "all"}};
    bench_opts *o = &b.o;
    const opt_spec specs[] = {
        {"device", 0, OPT_ENUM, &o->device, "cpu|ref|cuda", "backend (default: cpu)", 0, 0},
        {"tokens", 'n', OPT_LIST, &o->tokens, "N",
         "tokens in a call (default: 1, 8, 64 and 512; cuda without any shape: a list of shapes); may be repeated",
         0, 0},
        {"experts", 0, OPT_INT, &o->experts, "N", "experts in memory (default: 48)", 1, 4096},
        {"topk", 'k', OPT_INT, &o->topk, "N", "experts of a token (default: 8)", 1, 4096},
        {"dim", 0, OPT_INT, &o->dim, "N", "hidden size (default: 7168)", 1, 1 << 20},
        {"inter", 0, OPT_INT, &o->inter, "N", "expert width (default: 2048)", 1, 1 << 20},
        {"shape", 0, OPT_LIST, &o->shapes, "T,D,I,E,K",
         "tokens,dim,inter,experts,topk instead; may be repeated", 0, 0},
        {"format", 0, OPT_ENUM, &o->format, "bf16|fp8|w4a16|w4a8|w2_bf16",
         "weights (default: w4a16: INT4, group 32)", 0, 0},
        {"sets", 0, OPT_INT, &o->sets, "N", "different routings run in turn (default: 4; on a GPU 8)", 1, 64},
        {"routing", 0, OPT_ENUM, &o->routing, "uniform|skewed|one|both",
         "experts of the synthetic tokens; skewed: half of them, one for all; both: uniform, then skewed (default: uniform; of the list of shapes both)",
         0, 0},
        {"runs", 0, OPT_INT, &o->runs, "N", "runs timed (default: at least 5, and 1.5 s, on a GPU 0.5 s)", 1,
         63},
        {"ids", 0, OPT_STR, &o->ids, "F.i32", "expert ids [tokens, topk], raw little-endian", 0, 0},
        {"topk-weights", 0, OPT_STR, &o->weights, "F.f32", "their weights [tokens, topk]", 0, 0},
        {"x", 0, OPT_STR, &o->x, "F.bf16", "inputs [tokens, dim]", 0, 0},
        {"w1", 0, OPT_STR, &o->w1, "F.bf16",
         "gate rows, then up rows [experts, 2 * inter, dim]; becomes INT4 where the format says so", 0, 0},
        {"w2", 0, OPT_STR, &o->w2, "F.bf16", "down rows [experts, dim, inter]", 0, 0},
        {"out", 0, OPT_STR, &o->out, "F.bf16", "writes the outputs [tokens, dim]", 0, 0},
        {"seed", 0, OPT_INT, &o->seed, "N", "of the synthetic values (default: 0)", 0, 1e9},
        {"threads", 't', OPT_INT, &o->threads, "N", "CPU threads (default: all cores)", 0, 4096},
        {"cpu-mask", 0, OPT_ENUM, &o->mask, "none|avx2|avx512|vnni|bf16|all",
         "highest instruction set to use (default: all)", 0, 0},
        {"tuned", 0, OPT_STR, &o->tuned, "FILE",
         "cuda: table of measured choices, or none (default: the one that comes along)", 0, 0},
        {"json", 0, OPT_STR, &o->json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench moe", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    u32 mask;
    ops dev, ref;
    ops_set_threads((int)o->threads);
    if (!o->sets) o->sets = strcmp(o->device, "cuda") ? 4 : 8;
    b.listed = !strcmp(o->device, "cuda") && o->dim == DIM && o->inter == INTER && o->experts == EXPERTS &&
               o->topk == TOPK;
    if (!o->routing) o->routing = b.listed && !o->shapes.n && !o->tokens.n ? "both" : "uniform";
    ops_init_ref(&ref);
    b.ref = &ref, b.dev = &dev;
    status st = cpu_isa_parse(o->mask, &mask, &e);
    b.isa = st == ST_OK ? cpu_isa() & mask : 0;
    if (st == ST_OK) st = read_format(&b, &e);
    if (st == ST_OK && o->tuned && strcmp(o->device, "cuda"))
        st = err_set(&e, ST_INPUT, "--tuned is for --device cuda");
    if (st == ST_OK && !strcmp(o->device, "cpu")) st = ops_init_cpu(&dev, DT_BF16, mask, &e);
    if (st == ST_OK && !strcmp(o->device, "ref")) dev = ref;
    if (st == ST_OK && !strcmp(o->device, "cuda")) {
        st = gpu_open(&b.g, 0, &e);
        if (st == ST_OK) st = ops_init_gpu(&dev, b.g, DT_BF16, &e);
        if (st != ST_OK) err_prefix(&e, "--device cuda");
        if (st == ST_OK) st = ops_gpu_tuned(&dev, o->tuned ? o->tuned : tuned_place(), &e);
    }
    if (st == ST_OK && o->json && !(b.json = fopen(o->json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    if (st == ST_OK) st = run_all(&b, &e);
    gpu_close(b.g);
    if (b.json && fclose(b.json) && st == ST_OK)
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench moe", &e);
}
