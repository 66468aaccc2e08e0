/* cmd/bench/bench_gemm.c: `moonlet bench gemm`: dense matrix products on the GPU, default Kimi-K2.5's shapes. */
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/lib/gemm_problem.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include "cmd/lib/synthetic.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const u64 bench_gemm_ROTATE = 512u
                                     << 20; /* bytes of weights used in turn, so that the 60 MB of L2 do not help */

typedef struct {
    i64 runs, seed;
    const char *device, *json, *only, *tuned;
    opt_list shapes, tokens;
} gemm_opts;

typedef struct {
    gemm_opts o;
    gemm_gpu gpu;
    f64 read, bf16; /* what the chip was measured to reach; 0: not known */
    FILE *json;
} gemm_bench;

/* So many calls, the weights in turn. */
typedef struct {
    gemm_bench *b;
    const gemm_case *c;
    i64 calls;
} call_run;

static void bench_gemm_queue_calls(void *ud) {
    const call_run *r = ud;
    for (i64 i = 0; i < r->calls; i++) gemm_case_call(&r->b->gpu, r->c, i);
}

/* Seconds of a call: the mean of a run, from its recording if there is one. */
static status time_calls(const call_run *r, const device_recording *tape, f64 *seconds, err *e) {
    device *dev = r->b->gpu.on.device;
    f64 t = now_s();
    if (tape)
        dev->replay(dev, tape);
    else
        bench_gemm_queue_calls((void *)r);
    status st = dev->finish(dev, e);
    *seconds = (now_s() - t) / (f64)r->calls;
    return st;
}

static status time_case(gemm_bench *b, const gemm_case *c, f64 *median, f64 *best, err *e) {
    f64 times[64], first = 0;
    call_run r = {b, c, 2};
    device_recording *tape = NULL;
    status st = time_calls(&r, NULL, &first, e);
    if (st == ST_OK) st = time_calls(&r, NULL, &first, e);
    r.calls = (i64)fmin(1000, fmax(3, 10e-3 / fmax(first, 1e-6)));
    if (st == ST_OK) st = b->gpu.on.device->record(b->gpu.on.device, bench_gemm_queue_calls, &r, &tape, e);
    for (i64 k = -1; st == ST_OK && k < b->o.runs; k++) { /* the first warms up */
        f64 t;
        st = time_calls(&r, tape, &t, e);
        if (k >= 0) times[k] = t;
    }
    b->gpu.on.device->forget(b->gpu.on.device, tape);
    if (st != ST_OK) return st;
    qsort(times, (size_t)b->o.runs, sizeof *times, f64_ascending);
    *median = times[b->o.runs / 2], *best = times[0];
    return ST_OK;
}

/* Error of a call on sampled elements, up to four tokens, SAMPLES of each; and how it ran. */
static status case_error(gemm_bench *b, gemm_case *c, gemm_seen *seen, f64 *error, err *e) {
    enum { TOKENS = 4, SAMPLES = GEMM_SAMPLES };
    i64 tokens = min_i64(c->n, TOKENS), samples = c->s->kind == G_ABSORB ? 8 : SAMPLES, which[TOKENS], at[SAMPLES];
    f32 got[TOKENS * SAMPLES], want[TOKENS * SAMPLES], *row = malloc((size_t)c->y_width * 4);
    if (!row) return err_nomem(e, "sampled rows", (u64)c->y_width * 4);
    for (i64 i = 0; i < samples; i++) at[i] = i * (c->y_width - 1) / (samples - 1);
    ops_gpu_watch_gemm(&b->gpu.on.ops, seen);
    gemm_case_call(&b->gpu, c, 0);
    ops_gpu_watch_gemm(&b->gpu.on.ops, NULL);
    for (i64 t = 0; t < tokens; t++) {
        which[t] = tokens > 1 ? t * (c->n - 1) / (tokens - 1) : 0;
        gemm_case_read(&b->gpu, c, which[t], row);
        for (i64 i = 0; i < samples; i++) got[t * samples + i] = row[at[i]];
    }
    free(row);
    status st = gemm_case_want(&b->gpu, c, which, tokens, at, samples, want, e);
    *error = relative_error(got, want, tokens * samples);
    return st;
}

static void bench_gemm_report(const gemm_bench *b, const gemm_case *c, const gemm_seen *seen, f64 median, f64 best,
                              f64 error) {
    char how[GEMM_CHOICE_TEXT];
    snprintf(how, sizeof how, "%s", c->s->kind == G_ABSORB ? "absorb" : seen->skinny ? seen->skinny : "linear");
    if (c->n > 64) gemm_choice_text(&seen->choice, how);
    f64 bytes = (f64)c->weight_bytes + (f64)c->n * (f64)(c->x_width * 2 + c->y_width * (c->wide ? 4 : 2));
    if (c->s->kind == G_ADD && seen->call.op == GEMM_ADD) bytes += (f64)c->n * (f64)c->y_width * 2;
    f64 flops = 2.0 * (f64)c->n * (f64)c->work, floor = 0;
    if (b->read > 0) floor = fmax(bytes / b->read, flops / b->bf16);
    printf(
        "%-19s %5lld x %6lld x %5lld: %10.2f us (best %.2f)  %6.3f TB/s  %7.1f TFLOP/s  %3.0f %% of the roofline (%.2f us)  error %.1e  %s%s\n",
        c->s->name, (long long)c->n, (long long)c->s->rows, (long long)c->s->cols, median * 1e6, best * 1e6,
        bytes / median / 1e12, flops / median / 1e12, 100 * floor / median, floor * 1e6, error, how,
        seen->refused ? " (refused: first)" : "");
    fflush(stdout);
    if (b->json)
        fprintf(
            b->json,
            "{\"bench\":\"gemm\",\"device\":\"%s\",\"name\":\"%s\",\"n\":%lld,\"rows\":%lld,\"cols\":%lld,\"us_median\":%.3f,"
            "\"us_min\":%.3f,\"tb_s\":%.4f,\"tflop_s\":%.3f,\"floor_us\":%.3f,\"error\":%.6e,\"sets\":%lld,\"choice\":\"%s\"}\n",
            b->gpu.on.device->name, c->s->name, (long long)c->n, (long long)c->s->rows, (long long)c->s->cols,
            median * 1e6, best * 1e6, bytes / median / 1e12, flops / median / 1e12, floor * 1e6, error,
            (long long)c->sets, how);
}

static status run_case(gemm_bench *b, const gemm_shape *s, i64 n, err *e) {
    gemm_case c = {.s = s, .n = n};
    f64 median = 0, best = 0, error = 0;
    gemm_seen seen = {0};
    status st = gemm_case_make(&b->gpu, &c, bench_gemm_ROTATE, e);
    if (st == ST_OK) st = case_error(b, &c, &seen, &error, e);
    if (st == ST_OK) st = time_case(b, &c, &median, &best, e);
    if (st == ST_OK) bench_gemm_report(b, &c, &seen, median, best, error);
    gemm_case_free(&b->gpu, &c);
    return st;
}

static status run_given(gemm_bench *b, err *e) {
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < b->o.shapes.n; i++) {
        long long v[3];
        char end;
        if (sscanf(b->o.shapes.items[i], "%lld,%lld,%lld%c", v, v + 1, v + 2, &end) != 3 || v[0] < 1 ||
            v[0] > 1 << 20 || v[1] < 1 || v[1] > 1 << 24 || v[2] < 8 || v[2] > 32768)
            return err_set(e, ST_INPUT, "--shape \"%s\" is not n,rows,cols (cols 8..32768)", b->o.shapes.items[i]);
        gemm_shape s = {"linear", G_LINEAR, v[1], v[2]};
        st = run_case(b, &s, v[0], e);
    }
    return st;
}

static status bench_gemm_run_all(gemm_bench *b, err *e) {
    static const i64 usual[] = {1, 4, 16, 64, 128, 8192};
    i64 tokens[32], count = b->o.tokens.n;
    if (b->o.shapes.n) return run_given(b, e);
    for (i64 i = 0; i < count; i++) {
        tokens[i] = strtoll(b->o.tokens.items[i], NULL, 10);
        if (tokens[i] < 1 || tokens[i] > 1 << 16)
            return err_set(e, ST_INPUT, "--tokens \"%s\" is not in 1..65536", b->o.tokens.items[i]);
    }
    if (!count) memcpy(tokens, usual, sizeof usual), count = COUNT_OF(usual);
    status st = ST_OK;
    for (size_t s = 0; s < GEMM_KIMI; s++)
        for (i64 i = 0; st == ST_OK && i < count; i++) {
            bool logits = gemm_kimi[s].rows >= 20480; /* wanted of few tokens, also in prefill */
            if ((b->o.only && strcmp(b->o.only, gemm_kimi[s].name)) || (logits && tokens[i] > 64)) continue;
            st = run_case(b, &gemm_kimi[s], tokens[i], e);
        }
    return st;
}

int bench_gemm(int argc, char **argv) {
    gemm_bench b = {.o = {.device = "cuda", .runs = 7}};
    gemm_opts *o = &b.o;
    const opt_spec specs[] = {
        {"device", 0, OPT_ENUM, &o->device, "cuda", "backend (default: cuda, the only one)", 0, 0},
        {"tokens", 'n', OPT_LIST, &o->tokens, "N", "rows of x (default: 1, 4, 16, 64, 128 and 8192); may be repeated",
         0, 0},
        {"only", 0, OPT_STR, &o->only, "NAME", "one of the default shapes only: \"kv_a\", \"o /8\" ...", 0, 0},
        {"shape", 0, OPT_LIST, &o->shapes, "N,ROWS,COLS",
         "rows of x, rows and columns of the weight instead; may be repeated", 0, 0},
        {"runs", 0, OPT_INT, &o->runs, "N", "runs of many calls, whose median counts (default: 7)", 1, 63},
        {"seed", 0, OPT_INT, &o->seed, "N", "of the made-up values (default: 0)", 0, 1e9},
        {"tuned", 0, OPT_STR, &o->tuned, "FILE",
         "table of measured choices, or none (default: the one that comes along)", 0, 0},
        {"json", 0, OPT_STR, &o->json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench gemm", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    status st = backend_open(&b.gpu.on, &(backend_options){.name = o->device, .act = DT_BF16}, &e);
    if (st == ST_OK && (st = ops_gpu_tuned(&b.gpu.on.ops, o->tuned ? o->tuned : tuned_place(), &e)) != ST_OK)
        err_prefix(&e, "--tuned");
    if (st == ST_OK && o->json && !(b.json = fopen(o->json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    if (st == ST_OK) {
        machine_peaks p = bench_gpu_peaks(gpu_name(b.gpu.on.gpu));
        b.gpu.seed = o->seed, b.read = p.read, b.bf16 = p.bf16;
        printf(
            "%s; bf16 weights and activations, made up; times are means of calls recorded in a row, weights in turn\n",
            b.gpu.on.device->name);
        st = bench_gemm_run_all(&b, &e);
    }
    backend_close(&b.gpu.on);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", o->json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench gemm", &e);
}
