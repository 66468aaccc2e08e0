/* cmd/bench/bench_attention.c: `moonlet bench attention`: latent attention at Kimi's widths, on a GPU.
 *
 * The KV pool is one block of random pages, repeated: other addresses, so the cache does not help, and the reference
 * needs the block alone. Calls go round several sets of pages, together larger than the chip's cache. */
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "kernels/backend.h"
#include "kernels/gpu/gpu.h"
#include "cmd/lib/stats.h"
#include "cmd/lib/synthetic.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOPE = 128,
    ROPE = 64,
    LATENT = 512,
    V_DIM = 128,
    WIDTH = LATENT + ROPE,
    BLOCK = 64 /* pages */,
    SAMPLES = 4,
    RUNS = 9
};
static const u64 COLD = 400u << 20; /* bytes that the sets have together, at least: several times the chip's cache */

typedef struct {
    ops dev, ref;
    gpu *g;
    device *mem;
    dtype kv_type;
    f64 read, bf16; /* what the chip was measured to reach, or 0 */
    FILE *json;
    u8 *block; /* [BLOCK pages] of kv_type */
    f32 *wide; /* the same in float32 */
    f32 scale;
} bench_state;

/* Buffers of one line, on both sides. */
typedef struct {
    device_pool pool;
    void *q, *kv, *pages, *len, *out, *work;
    bf16 *host_q, *host_out;
    i32 *host_pages, *host_len;
    i64 sets;
} line;

static void line_free(line *l) {
    device_pool_free(&l->pool);
    free(l->host_q), free(l->host_out), free(l->host_pages), free(l->host_len);
}

/* q of n_q values, out of n_out, a pool and the pages of `rows` sequences in `sets` sets. */
static status line_make(bench_state *b, line *l, i64 n_q, i64 n_out, i64 rows, i64 pages, err *e) {
    u64 page = (u64)(KV_PAGE * WIDTH) * dtype_size(b->kv_type), set = (u64)(rows * pages) * page;
    l->sets = (i64)(COLD / set) + 1 > 64 ? 64 : (i64)(COLD / set) + 1;
    i64 all = l->sets * rows * pages;
    l->host_q = malloc((u64)n_q * 2), l->host_out = malloc((u64)n_out * 2);
    l->host_pages = malloc((u64)all * 4), l->host_len = malloc((u64)rows * 4);
    if (!l->host_q || !l->host_out || !l->host_pages || !l->host_len)
        return err_nomem(e, "a line's activations", (u64)(n_q + n_out) * 2 + (u64)all * 4);
    synth s = {(u64)(n_q + pages)};
    synth_fill_bf16(&s, l->host_q, n_q, 1.0f);
    for (i64 i = 0; i < all; i++) l->host_pages[i] = (i32)i;
    for (i64 i = all - 1; i > 0; i--) { /* shuffled: the order of allocation is not the order of use */
        i64 k = (i64)(synth_bits(&s) % (u64)(i + 1));
        i32 t = l->host_pages[i];
        l->host_pages[i] = l->host_pages[k], l->host_pages[k] = t;
    }
    l->pool.dev = b->mem;
    status st = device_pool_add(&l->pool, &l->q, (u64)n_q, 2, "queries", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, &l->out, (u64)n_out, 2, "results", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, &l->kv, (u64)all, page, "KV pages", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, &l->pages, (u64)all, 4, "page lists", e);
    if (st == ST_OK) st = device_pool_add(&l->pool, &l->len, (u64)rows, 4, "lengths", e);
    if (st != ST_OK) return st;
    b->mem->write(b->mem, l->q, l->host_q, (u64)n_q * 2);
    b->mem->write(b->mem, l->pages, l->host_pages, (u64)all * 4);
    for (i64 i = 0; i < all; i += BLOCK)
        b->mem->write(b->mem, (u8 *)l->kv + (u64)i * page, b->block, (u64)min_i64(BLOCK, all - i) * page);
    return ST_OK;
}

typedef void (*call_fn)(const bench_state *b, const void *args, const line *l, i64 set);

/* Median seconds of a call: the mean of many queued behind each other, several times. */
static status line_time(const bench_state *b, const line *l, call_fn call, const void *args, f64 *median, f64 *best,
                        err *e) {
    f64 times[RUNS];
    i64 calls = 2;
    status st = ST_OK;
    for (int r = -2; st == ST_OK && r < RUNS;
         r++) { /* the first two warm up and tell how many calls are worth a look */
        f64 t = now_s();
        for (i64 i = 0; i < calls; i++) call(b, args, l, i % l->sets);
        st = b->mem->finish(b->mem, e);
        t = (now_s() - t) / (f64)calls;
        if (r < 0) calls = max_i64(2, min_i64(400, (i64)(0.02 / t)));
        if (r >= 0) times[r] = t;
    }
    qsort(times, RUNS, sizeof *times, f64_ascending);
    *median = times[RUNS / 2], *best = times[0];
    return st;
}

static void call_decode(const bench_state *b, const void *args, const line *l, i64 set) {
    mla_decode_args a = *(const mla_decode_args *)args;
    a.pages = (const i32 *)l->pages + set * a.n * a.pages_stride;
    b->dev.mla_decode(&b->dev, &a);
}

static void call_prefill(const bench_state *b, const void *args, const line *l, i64 set) {
    mla_prefill_args a = *(const mla_prefill_args *)args;
    a.pages = (const i32 *)l->pages + set * ceil_div(a.pos0 + a.n, KV_PAGE);
    b->dev.mla_prefill(&b->dev, &a);
}

/* Result of set 0 against ref: a few rows and heads, each alone. */
static f64 decode_error(const bench_state *b, const line *l, const mla_decode_args *d) {
    f32 q[WIDTH], got[SAMPLES * LATENT], want[SAMPLES * LATENT];
    i32 *pages = malloc((u64)d->pages_stride * 4);
    void *space = malloc(8 * KV_PAGE * WIDTH);
    if (!pages || !space) exit(1);
    for (i64 s = 0; s < SAMPLES; s++) {
        i64 row = s * (d->n - 1) / (SAMPLES - 1), head = (s * 7 + 3) % d->n_heads, at = row * d->n_heads + head;
        for (i64 i = 0; i < d->pages_stride; i++) pages[i] = l->host_pages[row * d->pages_stride + i] % BLOCK;
        for (i64 c = 0; c < WIDTH; c++) q[c] = bf16_to_f32(l->host_q[at * WIDTH + c]);
        for (i64 c = 0; c < LATENT; c++) got[s * LATENT + c] = bf16_to_f32(l->host_out[at * LATENT + c]);
        mla_decode_args r = *d;
        r.q = q, r.kv = b->wide, r.pages = pages, r.kv_len = l->host_len + row, r.out = want + s * LATENT,
        r.workspace = space;
        r.kv_type = DT_F32, r.n = r.n_heads = 1;
        b->ref.mla_decode(&b->ref, &r);
    }
    free(pages), free(space);
    return relative_error(got, want, SAMPLES * LATENT);
}

static f64 prefill_error(const bench_state *b, const line *l, const mla_prefill_args *p, const weight_view *kv_b,
                         err *e) {
    enum { HEAD = NOPE + V_DIM };
    f32 q[NOPE + ROPE], got[SAMPLES * V_DIM], want[SAMPLES * V_DIM];
    i64 all = ceil_div(p->pos0 + p->n, KV_PAGE);
    i32 *pages = malloc((u64)all * 4);
    if (!pages) exit(1);
    for (i64 i = 0; i < all; i++) pages[i] = l->host_pages[i] % BLOCK;
    for (i64 s = 0; s < SAMPLES; s++) {
        i64 row = s * (p->n - 1) / (SAMPLES - 1), head = (s * 7 + 3) % p->n_heads, at = row * p->n_heads + head;
        weight_view v = *kv_b;
        v.data = (const u8 *)v.data + (u64)(head * HEAD * LATENT) * 2, v.rows = HEAD;
        weight_desc d = {.kind = WK_KV_B, .views = &v, .n_views = 1, .n_heads = 1, .nope = NOPE, .v_dim = V_DIM};
        for (i64 c = 0; c < NOPE + ROPE; c++) q[c] = bf16_to_f32(l->host_q[at * (NOPE + ROPE) + c]);
        for (i64 c = 0; c < V_DIM; c++) got[s * V_DIM + c] = bf16_to_f32(l->host_out[at * V_DIM + c]);
        mla_prefill_args r = *p;
        op_weight *w;
        if (b->ref.weight_prepare(&b->ref, &d, &w, e) != ST_OK) exit(1);
        r.kv_b = w, r.q = q, r.kv = b->wide, r.pages = pages, r.out = want + s * V_DIM;
        r.kv_type = DT_F32, r.n = r.n_heads = 1, r.pos0 = p->pos0 + row;
        r.workspace = malloc(b->ref.mla_prefill_workspace(&b->ref, &r));
        if (!r.workspace) exit(1);
        b->ref.mla_prefill(&b->ref, &r);
        free(r.workspace);
        b->ref.weight_release(w);
    }
    free(pages);
    return relative_error(got, want, SAMPLES * V_DIM);
}

/* One line of results; `rate` of `peak`, in units of 10^12 a second. */
static void attention_report(const bench_state *b, const char *op, i64 n, i64 heads, i64 context, f64 median, f64 best,
                             f64 bytes, f64 flops, f64 error) {
    printf(
        "%s %6lld %s, %2lld heads, %s %7lld, %s: %9.1f us (best %.1f)  %6.3f TB/s (%.0f %%)  %6.1f TFLOP/s (%.0f %%)  error %.2e\n",
        op, (long long)n, *op == 'd' ? "rows" : "tokens", (long long)heads, *op == 'd' ? "context" : "after",
        (long long)context, dtype_name(b->kv_type), median * 1e6, best * 1e6, bytes / median / 1e12,
        b->read > 0 ? 100 * bytes / median / b->read : 0, flops / median / 1e12,
        b->bf16 > 0 ? 100 * flops / median / b->bf16 : 0, error);
    fflush(stdout);
    if (b->json)
        fprintf(
            b->json,
            "{\"bench\":\"attention\",\"op\":\"%s\",\"device\":\"%s\",\"kv\":\"%s\",\"n\":%lld,\"heads\":%lld,\"context\":%lld,"
            "\"us_median\":%.3f,\"us_min\":%.3f,\"tb_s\":%.4f,\"read_tb_s\":%.3f,\"tflops\":%.2f,\"peak_tflops\":%.1f,\"error\":%.6e}\n",
            op, b->dev.name, dtype_name(b->kv_type), (long long)n, (long long)heads, (long long)context, median * 1e6,
            best * 1e6, bytes / median / 1e12, b->read / 1e12, flops / median / 1e12, b->bf16 / 1e12, error);
}

static status run_decode(bench_state *b, i64 n, i64 heads, i64 context, err *e) {
    line l = {0};
    i64 stride = ceil_div(context, KV_PAGE);
    status st = line_make(b, &l, n * heads * WIDTH, n * heads * LATENT, n, stride, e);
    mla_decode_args a = {.kv_type = b->kv_type,
                         .n = n,
                         .n_heads = heads,
                         .latent = LATENT,
                         .rope = ROPE,
                         .pages_stride = stride,
                         .scale = b->scale};
    if (st == ST_OK)
        st = device_pool_add(&l.pool, &l.work, b->dev.mla_decode_workspace(&b->dev, &a), 1, "the workspace", e);
    if (st == ST_OK) {
        for (i64 i = 0; i < n; i++) l.host_len[i] = (i32)context;
        b->mem->write(b->mem, l.len, l.host_len, (u64)n * 4);
        a.q = l.q, a.kv = l.kv, a.kv_len = l.len, a.out = l.out, a.workspace = l.work;
        f64 median, best;
        st = line_time(b, &l, call_decode, &a, &median, &best, e);
        call_decode(b, &a, &l, 0);
        b->mem->read(b->mem, l.host_out, l.out, (u64)(n * heads * LATENT) * 2);
        if (st == ST_OK) st = b->mem->finish(b->mem, e);
        f64 tokens = (f64)(n * context), bytes = tokens * WIDTH * (f64)dtype_size(b->kv_type),
            flops = tokens * (f64)heads * 2 * (WIDTH + LATENT);
        if (st == ST_OK)
            attention_report(b, "decode", n, heads, context, median, best, bytes, flops, decode_error(b, &l, &a));
    }
    line_free(&l);
    return st;
}

/* The time is the whole op's: expanding the cache through kv_b is in it, its operations are not counted. */
static status run_prefill(bench_state *b, i64 n, i64 heads, i64 pos0, err *e) {
    line l = {0};
    i64 rows = heads * (NOPE + V_DIM);
    op_weight *w = NULL;
    synth s = {77};
    void *data = malloc(synth_weight_bytes(WF_BF16, rows, LATENT));
    if (!data) return err_nomem(e, "kv_b", (u64)(rows * LATENT) * 2);
    weight_view v = synth_weight(&s, WF_BF16, rows, LATENT, 1.0f / sqrtf(LATENT), data);
    weight_desc d = {.kind = WK_KV_B, .views = &v, .n_views = 1, .n_heads = heads, .nope = NOPE, .v_dim = V_DIM};
    status st = b->dev.weight_prepare(&b->dev, &d, &w, e);
    if (st == ST_OK)
        st = line_make(b, &l, n * heads * (NOPE + ROPE), n * heads * V_DIM, 1, ceil_div(pos0 + n, KV_PAGE), e);
    mla_prefill_args a = {.kv_b = w,
                          .kv_type = b->kv_type,
                          .n = n,
                          .pos0 = pos0,
                          .n_heads = heads,
                          .nope = NOPE,
                          .rope = ROPE,
                          .latent = LATENT,
                          .v_dim = V_DIM,
                          .scale = b->scale};
    if (st == ST_OK)
        st = device_pool_add(&l.pool, &l.work, b->dev.mla_prefill_workspace(&b->dev, &a), 1, "the workspace", e);
    if (st == ST_OK) {
        a.q = l.q, a.kv = l.kv, a.out = l.out, a.workspace = l.work;
        f64 median, best, pairs = (f64)n * (f64)pos0 + 0.5 * (f64)n * (f64)(n + 1);
        st = line_time(b, &l, call_prefill, &a, &median, &best, e);
        call_prefill(b, &a, &l, 0);
        b->mem->read(b->mem, l.host_out, l.out, (u64)(n * heads * V_DIM) * 2);
        if (st == ST_OK) st = b->mem->finish(b->mem, e);
        f64 flops = pairs * (f64)heads * 2 * (NOPE + ROPE + V_DIM),
            bytes = (f64)(pos0 + n) * WIDTH * (f64)dtype_size(b->kv_type);
        f64 error = st == ST_OK ? prefill_error(b, &l, &a, &v, e) : NAN;
        if (st == ST_OK) attention_report(b, "prefill", n, heads, pos0, median, best, bytes, flops, error);
    }
    b->dev.weight_release(w);
    line_free(&l);
    free(data);
    return st;
}

static void make_block(bench_state *b) {
    i64 n = BLOCK * KV_PAGE * WIDTH;
    synth s = {3};
    free(b->block), free(b->wide);
    b->block = malloc((u64)n * dtype_size(b->kv_type)), b->wide = malloc((u64)n * 4);
    if (!b->block || !b->wide) exit(1);
    for (i64 i = 0; i < n; i++) {
        f32 v = synth_normal(&s);
        if (b->kv_type == DT_BF16)
            b->wide[i] = bf16_to_f32(((bf16 *)b->block)[i] = f32_to_bf16(v));
        else
            b->wide[i] = f8_e4m3_to_f32(b->block[i] = f32_to_f8_e4m3(v));
    }
}

static status attention_run_list(bench_state *b, const opt_list *list, const char *flag, const char *form,
                                 status (*run)(bench_state *, i64, i64, i64, err *), err *e) {
    for (int i = 0; i < list->n; i++) {
        long long v[3];
        char end;
        if (sscanf(list->items[i], "%lld,%lld,%lld%c", v, v + 1, v + 2, &end) != 3 || v[0] < 1 || v[0] > 1 << 17 ||
            v[1] < 1 || v[1] > 128 || v[2] < (run == run_decode) || v[2] > 1 << 20)
            return err_set(e, ST_INPUT, "%s \"%s\" is not %s", flag, list->items[i], form);
        status st = run(b, v[0], v[1], v[2], e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static status run_usual(bench_state *b, err *e) {
    static const i64 heads[] = {64, 16, 8},
                     decode[][2] = {{1, 1024}, {1, 8192}, {1, 131072}, {8, 8192}, {16, 8192}, {64, 8192}, {128, 1024}},
                     prefill[][3] = {{64, 8, 16384},   {8192, 64, 0},     {8192, 16, 0}, {8192, 8, 0},
                                     {2048, 64, 6144}, {8192, 64, 24576}, {512, 16, 0},  {512, 8, 0}};
    status st = ST_OK;
    for (size_t h = 0; h < COUNT_OF(heads); h++)
        for (size_t i = 0; st == ST_OK && i < COUNT_OF(decode); i++)
            st = run_decode(b, decode[i][0], heads[h], decode[i][1], e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(prefill); i++)
        st = run_prefill(b, prefill[i][0], prefill[i][1], prefill[i][2], e);
    if (b->kv_type != DT_BF16) return st;
    b->kv_type = DT_F8_E4M3; /* where it pays most */
    make_block(b);
    for (size_t h = 0; st == ST_OK && h < COUNT_OF(heads); h++) st = run_decode(b, 1, heads[h], 131072, e);
    return st;
}

int bench_attention(int argc, char **argv) {
    bench_state b = {.scale = 0.07f};
    const char *dev = "cuda", *kv = "bf16", *json = NULL;
    opt_list decode = {0}, prefill = {0};
    bool deterministic = false;
    const opt_spec specs[] = {
        {"device", 0, OPT_ENUM, &dev, "cuda", "backend (default: cuda)", 0, 0},
        {"shape", 0, OPT_LIST, &decode, "B,H,C", "decode: batch,heads,context (default: a list); may be repeated", 0,
         0},
        {"prefill", 0, OPT_LIST, &prefill, "N,H,P", "prefill: tokens,heads,tokens before them; may be repeated", 0, 0},
        {"kv", 0, OPT_ENUM, &kv, "bf16|fp8_e4m3", "KV cache (default: bf16)", 0, 0},
        {"deterministic", 0, OPT_FLAG, &deterministic, NULL, "decode as --deterministic runs it", 0, 0},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench attention", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    b.kv_type = strcmp(kv, "bf16") ? DT_F8_E4M3 : DT_BF16;
    ops_init_ref(&b.ref);
    backend gpu;
    status st = backend_open(&gpu, &(backend_options){.name = dev, .act = DT_BF16}, &e);
    if (st == ST_OK && json && !(b.json = fopen(json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    if (st == ST_OK) {
        b.g = gpu.gpu, b.dev = gpu.ops, b.mem = gpu.device;
        if (deterministic) b.dev.set_row_mode(&b.dev, ROWS_DECODE);
        if (strstr(gpu_name(b.g), "H200")) b.read = 4.35e12, b.bf16 = 722e12; /* measured 2026-11-20: read, cuBLAS */
        make_block(&b);
        st = attention_run_list(&b, &decode, "--shape", "batch,heads,context", run_decode, &e);
        if (st == ST_OK) st = attention_run_list(&b, &prefill, "--prefill", "tokens,heads,before", run_prefill, &e);
        if (st == ST_OK && !decode.n && !prefill.n) st = run_usual(&b, &e);
    }
    free(b.block), free(b.wide);
    backend_close(&gpu);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench attention", &e);
}
