/* cmd/bench/bench_layer.c: `moonlet bench layer`: one layer of Kimi-K2.5 on the CPU, operation by operation.
 *
 * Weights are made up, of its shapes (config.json of moonshotai/Kimi-K2.5), and of its 384 experts there are as many as
 * memory shall hold. Up to 64 tokens are sequences that decode, more are a chunk of one prompt. */
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/lib/stats.h"
#include "cmd/lib/synthetic.h"
#include "kernels/backend.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HIDDEN = 7168,
    Q_LORA = 1536,
    N_HEADS = 64,
    NOPE = 128,
    ROPE = 64,
    LATENT = 512,
    V_DIM = 128,
    MOE_INTER = 2048,
    ROUTED = 384,
    TOPK = 8,
    SEQUENCES = 64 /* most tokens that decode */
};

typedef enum {
    L_LATENTS,
    L_Q_B,
    L_ABSORB,
    L_ATTEND,
    L_UNABSORB,
    L_O,
    L_ROUTER,
    L_GATE_UP,
    L_DOWN,
    L_EXPERTS,
    L_OPS
} layer_op;
static const char *const layer_names[L_OPS] = {
    "q_a, kv_a", "q_b",    "absorbed queries", "attention",   "values",
    "o",         "router", "shared gate, up",  "shared down", "routed experts"};

typedef enum { W_Q_A, W_KV_A, W_Q_B, W_KV_B, W_O, W_ROUTER, W_GATE, W_UP, W_DOWN, W_DENSE } layer_weight;
static const i64 weight_shapes[W_DENSE][2] = {{Q_LORA, HIDDEN},
                                              {LATENT + ROPE, HIDDEN},
                                              {N_HEADS * (NOPE + ROPE), Q_LORA},
                                              {N_HEADS * (NOPE + V_DIM), LATENT},
                                              {HIDDEN, N_HEADS *V_DIM},
                                              {ROUTED, HIDDEN},
                                              {MOE_INTER, HIDDEN},
                                              {MOE_INTER, HIDDEN},
                                              {HIDDEN, MOE_INTER}};

typedef struct {
    ops dev;
    op_weight *dense[W_DENSE], *experts;
    weight_view *views;
    void *memory;
    u64 memory_bytes, expert_bytes;
    i64 n_experts, seed, threads, runs;
    machine_peaks peaks;
    FILE *json;
} layer_bench;

/* One number of tokens and one context. */
typedef struct {
    i64 n, context, pages;
    bool prompt;
    bf16 *x, *y, *kv; /* rows of the widest operation; [pages, KV_PAGE, LATENT + ROPE] */
    f32 *weights;
    i32 *ids, *list, *kv_len;
    void *space;
    i64 touched; /* experts */
} layer_case;

static status bench_layer_weights(layer_bench *b, err *e) {
    const u64 up = synth_weight_bytes(WF_INT4_GROUP, MOE_INTER, HIDDEN),
              down = synth_weight_bytes(WF_INT4_GROUP, HIDDEN, MOE_INTER);
    u64 dense = 0, place[W_DENSE];
    for (int w = 0; w < W_DENSE; w++) {
        place[w] = dense;
        dense += (synth_weight_bytes(WF_BF16, weight_shapes[w][0], weight_shapes[w][1]) + 63) / 64 * 64;
    }
    b->expert_bytes = 2 * up + down;
    b->memory_bytes = (dense + (u64)b->n_experts * b->expert_bytes + 4095) / 4096 * 4096;
    b->memory = aligned_alloc(4096, b->memory_bytes);
    b->views = calloc((size_t)b->n_experts * 3, sizeof *b->views);
    if (!b->memory || !b->views) return err_nomem(e, "the weights", b->memory_bytes);
    u8 *from = (u8 *)b->memory + b->memory_bytes - (u64)b->n_experts * b->expert_bytes;
#pragma omp parallel for schedule(static)
    for (i64 x = 0; x < b->n_experts; x++) {
        synth s = {(u64)(b->seed + 1) * 1000003u + (u64)x};
        u8 *p = from + (u64)x * b->expert_bytes;
        const f32 in = 1.0f / sqrtf(HIDDEN), hidden = 1.0f / sqrtf(MOE_INTER);
        b->views[3 * x] = synth_weight(&s, WF_INT4_GROUP, MOE_INTER, HIDDEN, in, p);
        b->views[3 * x + 1] = synth_weight(&s, WF_INT4_GROUP, MOE_INTER, HIDDEN, in, p + up);
        b->views[3 * x + 2] = synth_weight(&s, WF_INT4_GROUP, HIDDEN, MOE_INTER, hidden, p + 2 * up);
    }
    weight_view dense_views[W_DENSE];
#pragma omp parallel for schedule(dynamic)
    for (int w = 0; w < W_DENSE; w++) {
        synth s = {(u64)(b->seed + 7) * 999983u + (u64)w};
        const i64 rows = weight_shapes[w][0], cols = weight_shapes[w][1];
        dense_views[w] = synth_weight(&s, WF_BF16, rows, cols, 1.0f / sqrtf((f32)cols), (u8 *)b->memory + place[w]);
    }
    status st = ST_OK;
    for (int w = 0; st == ST_OK && w < W_DENSE; w++) {
        weight_desc d = {.kind = w == W_KV_B ? WK_KV_B : WK_LINEAR, .views = &dense_views[w], .n_views = 1};
        if (w == W_KV_B) d.n_heads = N_HEADS, d.nope = NOPE, d.v_dim = V_DIM;
        st = b->dev.weight_prepare(&b->dev, &d, &b->dense[w], e);
    }
    const weight_desc d = {.kind = WK_EXPERTS, .views = b->views, .n_views = 3 * b->n_experts};
    return st == ST_OK ? b->dev.weight_prepare(&b->dev, &d, &b->experts, e) : st;
}

static linear_args bench_layer_linear(const layer_bench *b, const layer_case *c, layer_weight w, dtype y) {
    return (linear_args){b->dense[w], c->x, c->y, c->n, weight_shapes[w][1], weight_shapes[w][0], y};
}
static mla_decode_args bench_layer_decode(const layer_case *c) {
    return (mla_decode_args){c->x,    c->kv,  c->list, c->kv_len,       c->y,  NULL, c->space, DT_BF16, c->n,
                             N_HEADS, LATENT, ROPE,    c->pages / c->n, 0.07f, 1,    NULL};
}
static mla_prefill_args bench_layer_prefill(const layer_bench *b, const layer_case *c) {
    return (mla_prefill_args){b->dense[W_KV_B],  c->x,    c->kv, c->list, c->y,   c->space, DT_BF16, c->n,
                              c->context - c->n, N_HEADS, NOPE,  ROPE,    LATENT, V_DIM,    0.07f};
}
static moe_args bench_layer_moe(const layer_bench *b, const layer_case *c) {
    return (moe_args){.experts = b->experts,
                      .x = c->x,
                      .ids = c->ids,
                      .weights = c->weights,
                      .out = c->y,
                      .workspace = c->space,
                      .n = c->n,
                      .k = TOPK};
}

static void bench_layer_call(const layer_bench *b, const layer_case *c, layer_op op) {
    static const layer_weight linear[L_OPS] = {[L_Q_B] = W_Q_B, [L_O] = W_O, [L_ROUTER] = W_ROUTER, [L_DOWN] = W_DOWN};
    const ops *o = &b->dev;
    switch (op) {
    case L_LATENTS: {
        linear_args q = bench_layer_linear(b, c, W_Q_A, DT_BF16), kv = bench_layer_linear(b, c, W_KV_A, DT_BF16);
        o->linear(o, &q), o->linear(o, &kv);
        break;
    }
    case L_ABSORB: {
        absorb_q_args a = {b->dense[W_KV_B], c->x, c->y, c->n, N_HEADS, NOPE, ROPE, LATENT};
        o->absorb_q(o, &a);
        break;
    }
    case L_ATTEND: {
        mla_decode_args decode = bench_layer_decode(c);
        mla_prefill_args prefill = bench_layer_prefill(b, c);
        c->prompt ? o->mla_prefill(o, &prefill) : o->mla_decode(o, &decode);
        break;
    }
    case L_UNABSORB: {
        unabsorb_v_args a = {b->dense[W_KV_B], c->x, c->y, c->n, N_HEADS, LATENT, V_DIM};
        o->unabsorb_v(o, &a);
        break;
    }
    case L_GATE_UP: {
        swiglu_args a = {b->dense[W_GATE], b->dense[W_UP], c->x, c->y, c->n, HIDDEN, MOE_INTER};
        o->swiglu(o, &a);
        break;
    }
    case L_EXPERTS: {
        moe_args a = bench_layer_moe(b, c);
        o->moe(o, &a);
        break;
    }
    default: {
        linear_args a = bench_layer_linear(b, c, linear[op], op == L_ROUTER ? DT_F32 : DT_BF16);
        o->linear(o, &a);
    }
    }
}

/* Multiply-adds of an operation, and the bytes that it reads at least. */
static void bench_layer_work(const layer_bench *b, const layer_case *c, layer_op op, f64 *macs, f64 *bytes) {
    static const struct {
        layer_weight first, last;
    } dense[L_OPS] = {[L_LATENTS] = {W_Q_A, W_KV_A},     [L_Q_B] = {W_Q_B, W_Q_B},     [L_O] = {W_O, W_O},
                      [L_ROUTER] = {W_ROUTER, W_ROUTER}, [L_GATE_UP] = {W_GATE, W_UP}, [L_DOWN] = {W_DOWN, W_DOWN}};
    const f64 n = (f64)c->n, ctx = (f64)c->context, pairs = n * (ctx - (n - 1) / 2);
    *macs = *bytes = 0;
    if (op == L_ABSORB || op == L_UNABSORB)
        *macs = n * N_HEADS * NOPE * LATENT, *bytes = (f64)N_HEADS * NOPE * LATENT * 2;
    else if (op == L_ATTEND && c->prompt)
        *macs = N_HEADS * (pairs * (NOPE + ROPE + V_DIM) + ctx * LATENT * (NOPE + V_DIM)),
        *bytes = ctx * (LATENT + ROPE) * 2;
    else if (op == L_ATTEND)
        *macs = n * ctx * N_HEADS * (2 * LATENT + ROPE), *bytes = n * ctx * (LATENT + ROPE) * 2;
    else if (op == L_EXPERTS)
        *macs = 3.0 * n * TOPK * MOE_INTER * HIDDEN, *bytes = (f64)c->touched * (f64)b->expert_bytes;
    else
        for (layer_weight w = dense[op].first; w <= dense[op].last; w++) {
            const f64 size = (f64)(weight_shapes[w][0] * weight_shapes[w][1]);
            *macs += n * size, *bytes += 2 * size;
        }
}

static status bench_layer_case(const layer_bench *b, layer_case *c, err *e) {
    synth s = {(u64)(b->seed + 3) * 7919u};
    c->prompt = c->n > SEQUENCES;
    c->pages = (c->prompt ? 1 : c->n) * ((c->context + KV_PAGE - 1) / KV_PAGE);
    const i64 row = N_HEADS * (LATENT + ROPE), kv = c->pages * KV_PAGE * (LATENT + ROPE);
    mla_decode_args decode = bench_layer_decode(c);
    mla_prefill_args prefill = bench_layer_prefill(b, c);
    moe_args experts = bench_layer_moe(b, c);
    u64 space = b->dev.moe_workspace(&b->dev, &experts), attend = c->prompt
                                                                      ? b->dev.mla_prefill_workspace(&b->dev, &prefill)
                                                                      : b->dev.mla_decode_workspace(&b->dev, &decode);
    if (attend > space) space = attend;
    c->x = malloc((size_t)(c->n * row) * 2), c->y = malloc((size_t)(c->n * row) * 2), c->kv = malloc((size_t)kv * 2);
    c->weights = malloc((size_t)(c->n * TOPK) * 4), c->ids = malloc((size_t)(c->n * TOPK) * 4);
    c->list = malloc((size_t)c->pages * 4), c->kv_len = malloc((size_t)c->n * 4);
    c->space = aligned_alloc(4096, (space + 4095) / 4096 * 4096);
    if (!c->x || !c->y || !c->kv || !c->weights || !c->ids || !c->list || !c->kv_len || !c->space)
        return err_nomem(e, "rows and KV cache", (u64)(c->n * row) * 4 + (u64)kv * 2 + space);
    synth_fill_bf16(&s, c->x, c->n * row, 1.0f);
    synth_fill_bf16(&s, c->kv, min_i64(kv, 1 << 22), 1.0f); /* and again: normal values take long to make */
    for (i64 at = 1 << 22; at < kv; at += 1 << 22)
        memcpy(c->kv + at, c->kv, (size_t)min_i64(kv - at, 1 << 22) * sizeof *c->kv);
    synth_ids(&s, c->ids, c->n, TOPK, b->n_experts);
    for (i64 i = 0; i < c->n * TOPK; i++) c->weights[i] = 0.25f;
    for (i64 i = 0; i < c->pages; i++) c->list[i] = (i32)i;
    for (i64 i = 0; i < c->n; i++) c->kv_len[i] = (i32)c->context;
    bool *seen = calloc((size_t)b->n_experts, 1);
    for (i64 i = 0; seen && i < c->n * TOPK; i++) c->touched += !seen[c->ids[i]], seen[c->ids[i]] = true;
    free(seen);
    return seen ? ST_OK : err_nomem(e, "experts that were chosen", (u64)b->n_experts);
}

static void bench_layer_free(layer_case *c) {
    free(c->x), free(c->y), free(c->kv), free(c->weights), free(c->ids), free(c->list), free(c->kv_len), free(c->space);
}

/* Median seconds of a call: of --runs, or of at least five and a third of a second. */
static f64 bench_layer_time(const layer_bench *b, const layer_case *c, layer_op op) {
    f64 times[255];
    i64 count = 0;
    bench_layer_call(b, c, op);
    for (f64 start = now_s(), t = start; count < (i64)COUNT_OF(times);) {
        bench_layer_call(b, c, op);
        const f64 now = now_s();
        times[count++] = now - t, t = now;
        if (b->runs ? count == b->runs : count >= 5 && now - start > 0.3) break;
    }
    qsort(times, (size_t)count, sizeof *times, f64_ascending);
    return times[count / 2];
}

static status bench_layer_run(const layer_bench *b, i64 n, i64 context, err *e) {
    layer_case c = {.n = n, .context = context};
    status st = bench_layer_case(b, &c, e);
    f64 all = 0;
    if (st == ST_OK)
        printf("\n%lld %s, context %lld, %lld of %lld experts read\n", (long long)n,
               c.prompt ? "tokens of a prompt"
               : n == 1 ? "sequence"
                        : "sequences",
               (long long)context, (long long)c.touched, (long long)b->n_experts);
    for (layer_op op = 0; st == ST_OK && op < L_OPS; op++) {
        if (c.prompt && (op == L_ABSORB || op == L_UNABSORB)) continue;
        f64 macs, bytes, peak = op == L_EXPERTS ? b->peaks.int8 : b->peaks.bf16;
        if (!peak) peak = b->peaks.f32;
        bench_layer_work(b, &c, op, &macs, &bytes);
        const f64 t = bench_layer_time(b, &c, op), read = bytes / b->peaks.read, compute = peak ? 2 * macs / peak : 0;
        all += t;
        printf("  %-18s %10.3f ms  %7.1f GB/s  %8.1f GFLOP/s  %3.0f %% of %s\n", layer_names[op], t * 1e3,
               bytes / t / 1e9, 2 * macs / t / 1e9, 100 * fmax(read, compute) / t,
               read >= compute                    ? "read"
               : op == L_EXPERTS && b->peaks.int8 ? "int8"
               : b->peaks.bf16                    ? "bf16"
                                                  : "fp32");
        fflush(stdout);
        if (b->json)
            fprintf(b->json,
                    "{\"bench\":\"layer\",\"level\":\"%s\",\"n\":%lld,\"context\":%lld,\"op\":\"%s\","
                    "\"ms\":%.4f,\"bytes\":%.0f,\"macs\":%.0f}\n",
                    b->dev.name, (long long)n, (long long)context, layer_names[op], t * 1e3, bytes, macs);
    }
    if (st == ST_OK) printf("  %-18s %10.3f ms\n", "all", all * 1e3);
    bench_layer_free(&c);
    return st;
}

/* Numbers of an option that may be repeated, or the usual ones. */
static status bench_layer_numbers(const char *option, const opt_list *given, i64 most, i64 *out, i64 *count, err *e) {
    for (i64 i = 0; i < given->n && i < 32; i++) {
        out[i] = strtoll(given->items[i], NULL, 10);
        if (out[i] < 1 || out[i] > most)
            return err_set(e, ST_INPUT, "%s \"%s\" is not in 1..%lld", option, given->items[i], (long long)most);
        *count = i + 1;
    }
    return ST_OK;
}

int bench_layer(int argc, char **argv) {
    layer_bench b = {.n_experts = 48};
    opt_list tokens = {0}, contexts = {0};
    const char *mask_name = "all", *json = NULL;
    const opt_spec specs[] = {
        {"tokens", 'n', OPT_LIST, &tokens, "N",
         "rows: up to 64 are sequences that decode, more a prompt's (default: 1, 8, 64 and 512); may be repeated", 0,
         0},
        {"context", 0, OPT_LIST, &contexts, "N",
         "tokens that the last row sees (default: 1024 and 16384); may be repeated", 0, 0},
        {"experts", 0, OPT_INT, &b.n_experts, "N",
         "experts, of which each token has 8 (default: 48; Kimi-K2.5 has 384, 9.5 GB)", 8, 384},
        {"runs", 0, OPT_INT, &b.runs, "N", "calls of each operation (default: a third of a second's, at least 5)", 1,
         255},
        {"threads", 't', OPT_INT, &b.threads, "N", "CPU threads (default: all cores)", 0, 4096},
        {"cpu-mask", 0, OPT_ENUM, &mask_name, "none|avx2|avxvnni|avx512|vnni|bf16|noamx|all",
         "highest instruction set to use (default: all)", 0, 0},
        {"seed", 0, OPT_INT, &b.seed, "N", "of the made-up values (default: 0)", 0, 1e9},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench layer", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    i64 n[32] = {1, 8, 64, 512}, counts = 4, context[32] = {1024, 16384}, context_count = 2;
    u32 mask = 0;
    err e = {0};
    status st = bench_layer_numbers("--tokens", &tokens, 4096, n, &counts, &e);
    if (st == ST_OK) st = bench_layer_numbers("--context", &contexts, 1 << 20, context, &context_count, &e);
    if (st == ST_OK) st = cpu_isa_parse(mask_name, &mask, &e);
    ops_set_threads((int)b.threads);
    if (st == ST_OK) st = ops_init_cpu(&b.dev, DT_BF16, mask, &e);
    if (st == ST_OK) st = bench_layer_weights(&b, &e);
    if (st == ST_OK && json && !(b.json = fopen(json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    if (st == ST_OK) {
        b.peaks = bench_peaks(cpu_isa() & mask, b.memory, b.memory_bytes);
        printf("%s; one layer of Kimi-K2.5, weights made up, %.2f GB\n", b.dev.name, (f64)b.memory_bytes / 1e9);
        bench_print_peaks(&b.peaks);
    }
    for (i64 c = 0; c < context_count; c++)
        for (i64 i = 0; st == ST_OK && i < counts; i++)
            if (context[c] >= n[i] || n[i] <= SEQUENCES) st = bench_layer_run(&b, n[i], context[c], &e);
    for (int w = 0; w < W_DENSE; w++) b.dev.weight_release ? b.dev.weight_release(b.dense[w]) : (void)0;
    if (b.dev.weight_release) b.dev.weight_release(b.experts);
    free(b.views), free(b.memory);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench layer", &e);
}
