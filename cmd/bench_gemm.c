/* cmd/bench_gemm.c: `moonlet bench gemm`: dense matrix products on the GPU, default Kimi-K2.5's shapes. */
#include "base/log.h"
#include "bench.h"
#include "kernels/gpu/gpu.h"
#include "synth.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOPE = 128, ROPE = 64, V_DIM = 128, LATENT = 512, SETS = 64, SAMPLES = 64, X_ROWS = 512 };
static const u64 ROTATE = 512u << 20; /* bytes of weights used in turn, so that the 60 MB of L2 do not help */

typedef enum { G_LINEAR, G_LOGITS /* float32 out */, G_SWIGLU, G_ABSORB, G_UNABSORB } gemm_kind;
typedef struct {
    const char *name;
    gemm_kind kind;
    i64 rows, cols; /* of the weight, of each of two for swiglu; heads for absorb_q and unabsorb_v */
} gemm_shape;

static const gemm_shape kimi[] = {
    {"q_a", G_LINEAR, 1536, 7168},
    {"kv_a", G_LINEAR, 576, 7168},
    {"router", G_LOGITS, 384, 7168},
    {"q_b", G_LINEAR, 12288, 1536},
    {"o", G_LINEAR, 7168, 8192},
    {"dense gate, up", G_SWIGLU, 18432, 7168},
    {"dense down", G_LINEAR, 7168, 18432},
    {"shared gate, up", G_SWIGLU, 2048, 7168},
    {"shared down", G_LINEAR, 7168, 2048},
    {"absorb_q", G_ABSORB, 64, 0},
    {"unabsorb_v", G_UNABSORB, 64, 0},
    {"head", G_LOGITS, 163840, 7168},
    {"q_b /8", G_LINEAR, 1536, 1536},
    {"o /8", G_LINEAR, 7168, 1024},
    {"dense gate, up /8", G_SWIGLU, 2304, 7168},
    {"dense down /8", G_LINEAR, 7168, 2304},
    {"shared gate, up /8", G_SWIGLU, 256, 7168},
    {"shared down /8", G_LINEAR, 7168, 256},
    {"absorb_q /8", G_ABSORB, 8, 0},
    {"unabsorb_v /8", G_UNABSORB, 8, 0},
    {"head /8", G_LOGITS, 20480, 7168},
};

typedef struct {
    i64 runs, seed;
    const char *device, *json, *only;
    opt_list shapes, tokens;
} gemm_opts;

typedef struct {
    gemm_opts o;
    gpu *g;
    device *dev;
    ops ops;
    f64 read, bf16; /* what the chip was measured to reach; 0: not known */
    FILE *json;
} gemm_bench;

/* One shape at one n. */
typedef struct {
    const gemm_shape *s;
    i64 n, x_width, y_width, work; /* work: multiplications of a token */
    u64 weight_bytes;
    bool wide; /* y is float32 */
    op_weight *w[SETS], *up[SETS];
    i64 sets;
    device_pool pool;
    void *x, *y, *row; /* row: where a weight's row is put to be read */
    i32 *ids;
} gemm_case;

static status make_weight(gemm_bench *b, const gemm_shape *s, u64 seed, op_weight **out, err *e) {
    bool heads = s->kind == G_ABSORB || s->kind == G_UNABSORB;
    weight_view v = {.format = WF_BF16,
                     .rows = heads ? s->rows * (NOPE + V_DIM) : s->rows,
                     .cols = heads ? LATENT : s->cols};
    weight_desc d = {.kind = heads ? WK_KV_B : WK_LINEAR,
                     .views = &v,
                     .n_views = 1,
                     .n_heads = s->rows,
                     .nope = NOPE,
                     .v_dim = V_DIM,
                     .dummy_seed = seed + 1,
                     .dummy_sigma = 1.0f / sqrtf((f32)v.cols)};
    return b->ops.weight_prepare(&b->ops, &d, out, e);
}

static void case_sizes(gemm_case *c) {
    const gemm_shape *s = c->s;
    c->wide = s->kind == G_LOGITS;
    c->x_width = s->cols, c->y_width = s->rows;
    c->work = s->rows * s->cols * (s->kind == G_SWIGLU ? 2 : 1);
    if (s->kind == G_ABSORB) c->x_width = s->rows * (NOPE + ROPE), c->y_width = s->rows * (LATENT + ROPE);
    if (s->kind == G_UNABSORB) c->x_width = s->rows * LATENT, c->y_width = s->rows * V_DIM;
    if (s->kind >= G_ABSORB) c->work = s->rows * LATENT * NOPE;
    c->weight_bytes = (u64)c->work * 2;
    c->sets = min_i64(SETS, (i64)(ROTATE / c->weight_bytes) + 1);
}

/* x on the GPU, from rows of a made-up table. */
static status fill_x(gemm_bench *b, gemm_case *c, err *e) {
    weight_view v = {.format = WF_BF16, .rows = min_i64(c->n, X_ROWS), .cols = c->x_width};
    weight_desc d = {
        .kind = WK_TABLE, .views = &v, .n_views = 1, .dummy_seed = (u64)b->o.seed + 77, .dummy_sigma = 1.0f};
    op_weight *table = NULL;
    status st = b->ops.weight_prepare(&b->ops, &d, &table, e);
    i32 *ids = malloc((size_t)c->n * sizeof *ids);
    if (st == ST_OK && !ids) st = err_nomem(e, "row numbers", (u64)c->n * 4);
    if (st == ST_OK) {
        for (i64 i = 0; i < c->n; i++) ids[i] = (i32)(i % v.rows);
        b->dev->write(b->dev, c->ids, ids, (u64)c->n * sizeof *ids);
        b->ops.embed(&b->ops, &(embed_args){table, c->ids, NULL, c->x, c->n});
        st = b->dev->finish(b->dev, e);
    }
    free(ids);
    b->ops.weight_release(table);
    return st;
}

static void case_free(gemm_bench *b, gemm_case *c) {
    for (i64 i = 0; i < c->sets; i++) b->ops.weight_release(c->w[i]), b->ops.weight_release(c->up[i]);
    device_pool_free(&c->pool);
}

static status case_make(gemm_bench *b, gemm_case *c, err *e) {
    status st = ST_OK;
    case_sizes(c);
    c->pool.dev = b->dev;
    u64 n = (u64)c->n, widest = (u64)max_i64(c->s->cols, LATENT);
    for (i64 i = 0; st == ST_OK && i < c->sets; i++) {
        st = make_weight(b, c->s, (u64)(b->o.seed + i) * 2, &c->w[i], e);
        if (st == ST_OK && c->s->kind == G_SWIGLU)
            st = make_weight(b, c->s, (u64)(b->o.seed + i) * 2 + 1, &c->up[i], e);
    }
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->x, n * (u64)c->x_width, 2, "x", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->y, n * (u64)c->y_width, c->wide ? 4 : 2, "y", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, &c->row, widest, 2, "a row", e);
    if (st == ST_OK) st = device_pool_add(&c->pool, (void **)&c->ids, n, 4, "row numbers", e);
    if (st == ST_OK) st = fill_x(b, c, e);
    return st;
}

static void call(gemm_bench *b, const gemm_case *c, i64 set) {
    const gemm_shape *s = c->s;
    const op_weight *w = c->w[set % c->sets];
    const ops *o = &b->ops;
    if (s->kind == G_LINEAR || s->kind == G_LOGITS)
        o->linear(o, &(linear_args){w, c->x, c->y, c->n, s->cols, s->rows, c->wide ? DT_F32 : DT_BF16});
    else if (s->kind == G_SWIGLU)
        o->swiglu(o, &(swiglu_args){w, c->up[set % c->sets], c->x, c->y, c->n, s->cols, s->rows});
    else if (s->kind == G_ABSORB)
        o->absorb_q(o, &(absorb_q_args){w, c->x, c->y, c->n, s->rows, NOPE, ROPE, LATENT});
    else
        o->unabsorb_v(o, &(unabsorb_v_args){w, c->x, c->y, c->n, s->rows, LATENT, V_DIM});
}

/* So many calls, the weights in turn. */
typedef struct {
    gemm_bench *b;
    const gemm_case *c;
    i64 calls;
} call_run;

static void queue_calls(void *ud) {
    const call_run *r = ud;
    for (i64 i = 0; i < r->calls; i++) call(r->b, r->c, i);
}

/* Seconds of a call: the mean of a run, from its recording if there is one. */
static status time_calls(const call_run *r, const device_recording *tape, f64 *seconds, err *e) {
    device *dev = r->b->dev;
    f64 t = now_s();
    if (tape)
        dev->replay(dev, tape);
    else
        queue_calls((void *)r);
    status st = dev->finish(dev, e);
    *seconds = (now_s() - t) / (f64)r->calls;
    return st;
}

static int by_value(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

static status time_case(gemm_bench *b, const gemm_case *c, f64 *median, f64 *best, err *e) {
    f64 times[64], first = 0;
    call_run r = {b, c, 2};
    device_recording *tape = NULL;
    status st = time_calls(&r, NULL, &first, e);
    if (st == ST_OK) st = time_calls(&r, NULL, &first, e);
    r.calls = (i64)fmin(1000, fmax(3, 10e-3 / fmax(first, 1e-6)));
    if (st == ST_OK) st = b->dev->record(b->dev, queue_calls, &r, &tape, e);
    for (i64 k = -1; st == ST_OK && k < b->o.runs; k++) { /* the first warms up */
        f64 t;
        st = time_calls(&r, tape, &t, e);
        if (k >= 0) times[k] = t;
    }
    b->dev->forget(b->dev, tape);
    if (st != ST_OK) return st;
    qsort(times, (size_t)b->o.runs, sizeof *times, by_value);
    *median = times[b->o.runs / 2], *best = times[0];
    return ST_OK;
}

/* Row `row` of a weight as float32, by way of the GPU's embedding. */
static void read_row(gemm_bench *b, gemm_case *c, const op_weight *w, i64 row, i64 cols, f32 *out) {
    i32 id = (i32)row;
    bf16 h[32768];
    b->dev->write(b->dev, c->ids, &id, sizeof id);
    b->ops.embed(&b->ops, &(embed_args){w, c->ids, NULL, c->row, 1});
    b->dev->read(b->dev, h, c->row, (u64)cols * 2);
    for (i64 i = 0; i < cols; i++) out[i] = bf16_to_f32(h[i]);
}

static f64 dot(const f32 *a, const f32 *b, i64 n) {
    f64 sum = 0;
    for (i64 i = 0; i < n; i++) sum += (f64)a[i] * (f64)b[i];
    return sum;
}

/* Element `at` of a token's y, recomputed in double from x (one token). */
static f64 expected(gemm_bench *b, gemm_case *c, const f32 *x, i64 at, f32 *row) {
    const gemm_shape *s = c->s;
    if (s->kind == G_ABSORB) {
        i64 h = at / (LATENT + ROPE), col = at % (LATENT + ROPE);
        const f32 *q = x + h * (NOPE + ROPE);
        if (col >= LATENT) return (f64)q[NOPE + col - LATENT];
        f64 sum = 0;
        for (i64 d = 0; d < NOPE; d++) {
            read_row(b, c, c->w[0], h * (NOPE + V_DIM) + d, LATENT, row);
            sum += (f64)q[d] * (f64)row[col];
        }
        return sum;
    }
    if (s->kind == G_UNABSORB) {
        i64 h = at / V_DIM;
        read_row(b, c, c->w[0], h * (NOPE + V_DIM) + NOPE + at % V_DIM, LATENT, row);
        return dot(row, x + h * LATENT, LATENT);
    }
    read_row(b, c, c->w[0], at, s->cols, row);
    f64 v = dot(row, x, s->cols);
    if (s->kind != G_SWIGLU) return v;
    read_row(b, c, c->up[0], at, s->cols, row);
    return v / (1.0 + exp(-v)) * dot(row, x, s->cols);
}

/* Error of a call on sampled elements: up to four tokens, SAMPLES of each. */
static status case_error(gemm_bench *b, gemm_case *c, f64 *error, err *e) {
    i64 tokens = min_i64(c->n, 4), samples = c->s->kind == G_ABSORB ? 8 : SAMPLES, k = 0;
    u64 size = c->wide ? 4 : 2;
    f32 got[4 * SAMPLES], want[4 * SAMPLES], *x = malloc((size_t)c->x_width * 4), *row = malloc(32768 * 4);
    u8 *raw = malloc((size_t)max_i64(c->x_width, c->y_width) * 4);
    if (!x || !row || !raw) {
        free(x), free(row), free(raw);
        return err_nomem(e, "sampled rows", (u64)c->y_width * 4);
    }
    call(b, c, 0);
    for (i64 t = 0; t < tokens; t++) {
        i64 token = tokens > 1 ? t * (c->n - 1) / (tokens - 1) : 0;
        b->dev->read(b->dev, raw, (u8 *)c->x + (u64)(token * c->x_width) * 2, (u64)c->x_width * 2);
        for (i64 i = 0; i < c->x_width; i++) x[i] = bf16_to_f32(((bf16 *)raw)[i]);
        b->dev->read(b->dev, raw, (u8 *)c->y + (u64)(token * c->y_width) * size, (u64)c->y_width * size);
        for (i64 i = 0; i < samples; i++, k++) {
            i64 at = i * (c->y_width - 1) / (samples - 1);
            got[k] = c->wide ? ((f32 *)raw)[at] : bf16_to_f32(((bf16 *)raw)[at]);
            want[k] = (f32)expected(b, c, x, at, row);
        }
    }
    *error = relative_error(got, want, k);
    free(x), free(row), free(raw);
    return b->dev->finish(b->dev, e);
}

static void report(const gemm_bench *b, const gemm_case *c, f64 median, f64 best, f64 error) {
    f64 bytes = (f64)c->weight_bytes + (f64)c->n * (f64)(c->x_width * 2 + c->y_width * (c->wide ? 4 : 2));
    f64 flops = 2.0 * (f64)c->n * (f64)c->work, floor = 0;
    if (b->read > 0) floor = fmax(bytes / b->read, flops / b->bf16);
    printf(
        "%-19s %5lld x %6lld x %5lld: %10.2f us (best %.2f)  %6.3f TB/s  %7.1f TFLOP/s  %3.0f %% of the roofline (%.2f us)  error %.1e\n",
        c->s->name, (long long)c->n, (long long)c->s->rows, (long long)c->s->cols, median * 1e6, best * 1e6,
        bytes / median / 1e12, flops / median / 1e12, 100 * floor / median, floor * 1e6, error);
    fflush(stdout);
    if (b->json)
        fprintf(
            b->json,
            "{\"bench\":\"gemm\",\"device\":\"%s\",\"name\":\"%s\",\"n\":%lld,\"rows\":%lld,\"cols\":%lld,\"us_median\":%.3f,"
            "\"us_min\":%.3f,\"tb_s\":%.4f,\"tflop_s\":%.3f,\"floor_us\":%.3f,\"error\":%.6e,\"sets\":%lld}\n",
            b->dev->name, c->s->name, (long long)c->n, (long long)c->s->rows, (long long)c->s->cols,
            median * 1e6, best * 1e6, bytes / median / 1e12, flops / median / 1e12, floor * 1e6, error,
            (long long)c->sets);
}

static status run_case(gemm_bench *b, const gemm_shape *s, i64 n, err *e) {
    gemm_case c = {.s = s, .n = n};
    f64 median = 0, best = 0, error = 0;
    status st = case_make(b, &c, e);
    if (st == ST_OK) st = case_error(b, &c, &error, e);
    if (st == ST_OK) st = time_case(b, &c, &median, &best, e);
    if (st == ST_OK) report(b, &c, median, best, error);
    case_free(b, &c);
    return st;
}

static status run_given(gemm_bench *b, err *e) {
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->o.shapes.n; i++) {
        long long v[3];
        char end;
        if (sscanf(b->o.shapes.items[i], "%lld,%lld,%lld%c", v, v + 1, v + 2, &end) != 3 || v[0] < 1 ||
            v[0] > 1 << 20 || v[1] < 1 || v[1] > 1 << 24 || v[2] < 8 || v[2] > 32768)
            return err_set(e, ST_INPUT, "--shape \"%s\" is not n,rows,cols (cols 8..32768)",
                           b->o.shapes.items[i]);
        gemm_shape s = {"linear", G_LINEAR, v[1], v[2]};
        st = run_case(b, &s, v[0], e);
    }
    return st;
}

static status run_all(gemm_bench *b, err *e) {
    static const i64 usual[] = {1, 4, 16, 64, 8192};
    i64 tokens[32], count = b->o.tokens.n;
    if (b->o.shapes.n) return run_given(b, e);
    for (i64 i = 0; i < count; i++) {
        tokens[i] = strtoll(b->o.tokens.items[i], NULL, 10);
        if (tokens[i] < 1 || tokens[i] > 1 << 16)
            return err_set(e, ST_INPUT, "--tokens \"%s\" is not in 1..65536", b->o.tokens.items[i]);
    }
    if (!count) memcpy(tokens, usual, sizeof usual), count = COUNT_OF(usual);
    status st = ST_OK;
    for (size_t s = 0; s < COUNT_OF(kimi); s++)
        for (i64 i = 0; st == ST_OK && i < count; i++) {
            bool logits = kimi[s].rows >= 20480; /* wanted of few tokens, also in prefill */
            if ((b->o.only && strcmp(b->o.only, kimi[s].name)) || (logits && tokens[i] > 64)) continue;
            st = run_case(b, &kimi[s], tokens[i], e);
        }
    return st;
}

int bench_gemm(int argc, char **argv) {
    gemm_bench b = {.o = {.device = "cuda", .runs = 7}};
    gemm_opts *o = &b.o;
    const opt_spec specs[] = {
        {"device", 0, OPT_ENUM, &o->device, "cuda", "backend (default: cuda, the only one)", 0, 0},
        {"tokens", 'n', OPT_LIST, &o->tokens, "N",
         "rows of x (default: 1, 4, 16, 64 and 8192); may be repeated", 0, 0},
        {"only", 0, OPT_STR, &o->only, "NAME", "one of the default shapes only: \"kv_a\", \"o /8\" ...", 0,
         0},
        {"shape", 0, OPT_LIST, &o->shapes, "N,ROWS,COLS",
         "rows of x, rows and columns of the weight instead; may be repeated", 0, 0},
        {"runs", 0, OPT_INT, &o->runs, "N", "runs of many calls, whose median counts (default: 7)", 1, 63},
        {"seed", 0, OPT_INT, &o->seed, "N", "of the made-up values (default: 0)", 0, 1e9},
        {"json", 0, OPT_STR, &o->json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench gemm", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    status st = gpu_open(&b.g, 0, &e);
    if (st == ST_OK) st = ops_init_gpu(&b.ops, b.g, DT_BF16, &e);
    if (st != ST_OK) err_prefix(&e, "--device cuda");
    if (st == ST_OK && o->json && !(b.json = fopen(o->json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    if (st == ST_OK) {
        machine_peaks p = bench_gpu_peaks(gpu_name(b.g));
        b.dev = gpu_device(b.g), b.read = p.read, b.bf16 = p.bf16;
        printf(
            "%s; bf16 weights and activations, made up; times are means of calls recorded in a row, weights in turn\n",
            b.dev->name);
        st = run_all(&b, &e);
    }
    gpu_close(b.g);
    if (b.json && fclose(b.json) && st == ST_OK)
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench gemm", &e);
}
