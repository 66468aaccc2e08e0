/* cmd/bench/moe/bench_moe.c: `moonlet bench moe`: one layer's routed experts, default K2.5's shapes. */
#include "cmd/bench/moe/bench_moe.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/peak.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include "cmd/lib/moe_shapes.h"
#include <stdlib.h>
#include <string.h>

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
static void bench_moe_queue_calls(void *ud) {
    const call_queue *q = ud;
    for (i64 i = 0; i < q->calls; i++) {
        moe_args a = moe_shape_args(q->b, q->d, i % q->b->o.sets);
        q->b->dev->moe(q->b->dev, &a);
    }
}

/* Seconds of a call of routing `set`; on a GPU the mean of recorded calls over all routings, replayed until waiting for
 * the end (some 10 us) is less than a hundredth. */
static status time_call(const bench_state *b, const shape_data *d, i64 set, f64 *seconds, err *e) {
    if (!b->g) {
        f64 t = now_s();
        moe_args a = moe_shape_args(b, d, set);
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
    return dev->record(dev, bench_moe_queue_calls, &q, &d->recorded, e);
}

static status run_shape(bench_state *b, i64 n, err *e) {
    shape_data d;
    status st = moe_make_shape(b, n, &d, e);
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
    moe_error error[2];
    if (st == ST_OK) st = moe_shape_errors(b, &d, error, e);
    if (st == ST_OK) {
        qsort(times, (size_t)count, sizeof *times, f64_ascending);
        moe_report(b, &d, times[count / 2], times[0], error);
        st = write_out(b, &d, e);
    }
    moe_shape_free(&d);
    return st;
}

static void bench_moe_read_format(bench_state *b) {
    const char *f = b->o.format;
    b->wf = !strcmp(f, "bf16")     ? WF_BF16
            : !strcmp(f, "fp8")    ? WF_FP8_BLOCK
            : !strcmp(f, "mxfp4")  ? WF_MXFP4
            : !strcmp(f, "nvfp4")  ? WF_NVFP4
            : !strcmp(f, "int8")   ? WF_INT8_ROW
            : !strcmp(f, "w4afp8") ? WF_INT4_GROUP128
                                   : WF_INT4_GROUP;
    b->experts = !strcmp(f, "w4a8") ? EXPERTS_W4A8 : !strcmp(f, "w2_bf16") ? EXPERTS_W2_BF16 : EXPERTS_AS_STORED;
}

static status bench_moe_check_shape(const bench_opts *o, weight_format wf, err *e) {
    if (o->dim < 1 || o->dim > 1 << 20 || o->inter < 1 || o->inter > 1 << 20 || o->experts < 1 || o->experts > 4096 ||
        o->topk < 1 || o->topk > o->experts)
        return err_set(e, ST_INPUT, "impossible shape: %lld x %lld, %lld experts, top-%lld", (long long)o->dim,
                       (long long)o->inter, (long long)o->experts, (long long)o->topk);
    const i64 unit = weight_is_fp8(wf) ? 1 : weight_col_unit(wf);
    if (o->dim % unit || o->inter % unit)
        return err_set(e, ST_INPUT, "--format %s needs dim and inter to be multiples of %lld", o->format,
                       (long long)unit);
    return ST_OK;
}

/* Prepares the weights of the shape in b->o and runs `tokens`. */
static status run_layer(bench_state *b, const i64 *tokens, i64 n_tokens, err *e) {
    status st = bench_moe_check_shape(&b->o, b->wf, e);
    if (st == ST_OK) st = moe_make_weights(b, e);
    weight_desc desc = {.kind = WK_EXPERTS, .views = b->views, .n_views = 3 * b->o.experts, .experts = b->experts};
    if (st == ST_OK) st = b->dev->weight_prepare(b->dev, &desc, &b->dev_w, e);
    desc.n_views = 3 * b->distinct;
    if (st == ST_OK) st = b->ref->weight_prepare(b->ref, &desc, &b->ref_w, e);
    desc.views = b->given, desc.experts = EXPERTS_AS_STORED;
    if (st == ST_OK) st = b->ref->weight_prepare(b->ref, &desc, &b->given_w, e);
    if (st == ST_OK) {
        b->peaks = b->g ? bench_gpu_peaks(gpu_name(b->g)) : bench_peaks(b->isa, b->memory, b->memory_bytes);
        const f64 tiles = !b->g && b->experts == EXPERTS_W4A8 ? cpu_peak_int8_tiles(b->isa) : 0;
        if (tiles > 0) b->peaks.int8 = tiles;
        if (!b->g) bench_print_peaks(&b->peaks);
        printf("device %s; %s weights, %.2f GB; activations bf16 in and out; %lld routings in turn\n", b->dev->name,
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
    b->ref->weight_release(b->given_w);
    b->dev_w = b->ref_w = b->given_w = NULL;
    moe_free_weights(b);
    return st;
}

/* What a GPU runs unless told otherwise. */
static status bench_moe_run_list(bench_state *b, err *e) {
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

static status bench_moe_run_all(bench_state *b, err *e) {
    static const i64 usual[] = {1, 8, 64, 512};
    i64 tokens[32], n = 0;
    if (!b->o.shapes.n) {
        for (; n < b->o.tokens.n; n++) {
            tokens[n] = strtoll(b->o.tokens.items[n], NULL, 10);
            if (tokens[n] < 1 || tokens[n] > 1 << 20)
                return err_set(e, ST_INPUT, "--tokens \"%s\" is not in 1..1048576", b->o.tokens.items[n]);
        }
        if (b->listed && !n) return bench_moe_run_list(b, e);
        return n ? run_layer(b, tokens, n, e) : run_layer(b, usual, COUNT_OF(usual), e);
    }
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->o.shapes.n; i++) {
        long long v[5];
        char end;
        if (sscanf(b->o.shapes.items[i], "%lld,%lld,%lld,%lld,%lld%c", v, v + 1, v + 2, v + 3, v + 4, &end) != 5 ||
            v[0] < 1 || v[0] > 1 << 20)
            return err_set(e, ST_INPUT, "--shape \"%s\" is not tokens,dim,inter,experts,topk", b->o.shapes.items[i]);
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
         "tokens in a call (default: 1, 8, 64 and 512; cuda without any shape: a list of shapes); may be repeated", 0,
         0},
        {"experts", 0, OPT_INT, &o->experts, "N", "experts in memory (default: 48)", 1, 4096},
        {"topk", 'k', OPT_INT, &o->topk, "N", "experts of a token (default: 8)", 1, 4096},
        {"dim", 0, OPT_INT, &o->dim, "N", "hidden size (default: 7168)", 1, 1 << 20},
        {"inter", 0, OPT_INT, &o->inter, "N", "expert width (default: 2048)", 1, 1 << 20},
        {"shape", 0, OPT_LIST, &o->shapes, "T,D,I,E,K", "tokens,dim,inter,experts,topk instead; may be repeated", 0, 0},
        {"format", 0, OPT_ENUM, &o->format, "bf16|fp8|mxfp4|nvfp4|int8|w4a16|w4a8|w4afp8|w2_bf16",
         "weights (default: w4a16: INT4, group 32; w4afp8: group 128)", 0, 0},
        {"sets", 0, OPT_INT, &o->sets, "N", "different routings run in turn (default: 4; on a GPU 8)", 1, 64},
        {"routing", 0, OPT_ENUM, &o->routing, "uniform|skewed|one|both",
         "experts of the synthetic tokens; skewed: half of them, one for all; both: uniform, then skewed (default: uniform; of the list of shapes both)",
         0, 0},
        {"runs", 0, OPT_INT, &o->runs, "N", "runs timed (default: at least 5, and 1.5 s, on a GPU 0.5 s)", 1, 63},
        {"ids", 0, OPT_STR, &o->ids, "F.i32", "expert ids [tokens, topk], raw little-endian", 0, 0},
        {"topk-weights", 0, OPT_STR, &o->weights, "F.f32", "their weights [tokens, topk]", 0, 0},
        {"x", 0, OPT_STR, &o->x, "F.bf16", "inputs [tokens, dim]", 0, 0},
        {"w1", 0, OPT_STR, &o->w1, "F.bf16",
         "gate rows, then up rows [experts, 2 * inter, dim]; becomes INT4 where the format says so", 0, 0},
        {"w2", 0, OPT_STR, &o->w2, "F.bf16", "down rows [experts, dim, inter]", 0, 0},
        {"out", 0, OPT_STR, &o->out, "F.bf16", "writes the outputs [tokens, dim]", 0, 0},
        {"seed", 0, OPT_INT, &o->seed, "N", "of the synthetic values (default: 0)", 0, 1e9},
        {"threads", 't', OPT_INT, &o->threads, "N", "CPU threads (default: all cores)", 0, 4096},
        {"cpu-mask", 0, OPT_ENUM, &o->mask, "none|avx2|avxvnni|avx512|vnni|bf16|noamx|all",
         "highest instruction set to use (default: all)", 0, 0},
        {"tuned", 0, OPT_STR, &o->tuned, "FILE",
         "cuda: table of measured choices, or none (default: the one that comes along)", 0, 0},
        {"json", 0, OPT_STR, &o->json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench moe", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    u32 mask;
    ops ref;
    backend dev = {.gpu = NULL};
    ops_set_threads((int)o->threads);
    if (!o->sets) o->sets = strcmp(o->device, "cuda") ? 4 : 8;
    b.listed =
        !strcmp(o->device, "cuda") && o->dim == DIM && o->inter == INTER && o->experts == EXPERTS && o->topk == TOPK;
    if (!o->routing) o->routing = b.listed && !o->shapes.n && !o->tokens.n ? "both" : "uniform";
    ops_init_ref(&ref);
    b.ref = &ref;
    status st = cpu_isa_parse(o->mask, &mask, &e);
    b.isa = st == ST_OK ? cpu_isa() & mask : 0;
    bench_moe_read_format(&b);
    if (st == ST_OK && o->tuned && strcmp(o->device, "cuda"))
        st = err_set(&e, ST_INPUT, "--tuned is for --device cuda");
    if (st == ST_OK) st = backend_open(&dev, &(backend_options){.name = o->device, .act = DT_BF16, .isa = mask}, &e);
    b.g = dev.gpu, b.dev = &dev.ops;
    ref.int8_mean = dev.ops.int8_mean;
    if (st == ST_OK && b.g) st = ops_gpu_tuned(&dev.ops, o->tuned ? o->tuned : tuned_place(), &e);
    if (st == ST_OK && o->json && !(b.json = fopen(o->json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    if (st == ST_OK) st = bench_moe_run_all(&b, &e);
    backend_close(&dev);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench moe", &e);
}
