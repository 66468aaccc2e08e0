/* cmd/bench/bench_sample.c: `moonlet bench sample`: drawing the next tokens of rows of logits on a GPU.
 *
 * Logits as a model has them: normal of deviation 3, some far above. Calls are recorded and go round sets of rows;
 * --sets 1 keeps few rows in the chip's cache, where the head's product leaves them. */
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

enum { RUNS = 9, CALLS = 16, MOST_ROWS = 512, NORMALS = 1 << 20 };

static const struct {
    const char *name;
    f32 scale;
    i32 top_k;
    f64 top_p;
    i64 logprobs; /* then log-probabilities of so many best tokens alone, nothing is drawn */
} kinds[] = {{"greedy", 0, 0, 1, 0},
             {"temperature 1", 1.442695f, 0, 1, 0},
             {"top-k 50", 1.442695f, 50, 1, 0},
             {"top-p 0.95", 1.442695f, 0, 0.95, 0},
             {"top-k 50, top-p 0.95", 1.442695f, 50, 0.95, 0},
             {"temperature 0.6, top-p 0.95", 2.404492f, 0, 0.95, 0},
             {"temperature 2, top-p 0.99", 0.721348f, 0, 0.99, 0},
             {"log-probabilities of 20", 0, 0, 1, 20},
             {"log-probabilities of 128", 0, 0, 1, 128}};

typedef struct {
    ops dev;
    gpu *g;
    device *mem;
    device_pool pool;
    void *logits, *rows, *ids, *bad, *work, *tops, *logprobs, *top_ids;
    sample_args a;
    i64 most; /* log-probabilities; 0: draws */
    i64 vocab, sets;
    FILE *json;
} bench_state;

static status make_logits(bench_state *b, i64 most, err *e) {
    u64 all = (u64)(most * b->sets * b->vocab);
    f32 *block = malloc(NORMALS * sizeof *block);
    if (!block) return err_nomem(e, "logits", NORMALS * sizeof *block);
    synth s = {11};
    for (i64 i = 0; i < NORMALS; i++) {
        block[i] = 3 * synth_normal(&s);
        if (synth_bits(&s) % 20000 == 0) block[i] += 12;
    }
    status st = device_pool_add(&b->pool, &b->logits, all, sizeof(f32), "logits", e);
    for (u64 at = 0; st == ST_OK && at < all; at += NORMALS)
        b->mem->write(b->mem, (f32 *)b->logits + at, block, (all - at < NORMALS ? all - at : NORMALS) * sizeof(f32));
    free(block);
    return st;
}

static status make_buffers(bench_state *b, i64 most, err *e) {
    sample_args most_args = {.n = most, .vocab = b->vocab};
    status st = make_logits(b, most, e);
    if (st == ST_OK) st = device_pool_add(&b->pool, &b->rows, (u64)most, sizeof(sample_row), "how to draw", e);
    if (st == ST_OK) st = device_pool_add(&b->pool, &b->ids, (u64)most, sizeof(i32), "tokens", e);
    if (st == ST_OK) st = device_pool_add(&b->pool, &b->bad, (u64)most, sizeof(i32), "marks", e);
    if (st == ST_OK) st = device_pool_add(&b->pool, &b->tops, (u64)most, sizeof(i32), "counts", e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, &b->logprobs, (u64)(most * (1 + LOGPROBS_TOP)), sizeof(f32), "results", e);
    if (st == ST_OK) st = device_pool_add(&b->pool, &b->top_ids, (u64)(most * LOGPROBS_TOP), sizeof(i32), "results", e);
    logprobs_args most_logprobs = {.n = most, .vocab = b->vocab, .n_top = LOGPROBS_TOP};
    u64 draws = b->dev.sample_workspace(&b->dev, &most_args),
        logprobs = b->dev.logprobs_workspace(&b->dev, &most_logprobs), work = draws > logprobs ? draws : logprobs;
    return st == ST_OK ? device_pool_add(&b->pool, &b->work, work, 1, "the workspace", e) : st;
}

static void bench_sample_queue_calls(void *ud) {
    bench_state *b = ud;
    for (i64 i = 0; i < CALLS; i++) {
        sample_args a = b->a;
        a.logits = (const f32 *)b->logits + i % b->sets * a.n * b->vocab;
        logprobs_args l = {.logits = a.logits,
                           .ids = b->ids,
                           .drawn = b->ids,
                           .tops = b->tops,
                           .top_ids = b->top_ids,
                           .logprobs = b->logprobs,
                           .workspace = b->work,
                           .n = a.n,
                           .vocab = a.vocab,
                           .stride = a.stride,
                           .n_top = b->most};
        if (b->most)
            b->dev.logprobs(&b->dev, &l);
        else
            b->dev.sample(&b->dev, &a);
    }
}

static status run_line(bench_state *b, i64 n, size_t kind, err *e) {
    sample_row rows[MOST_ROWS];
    f64 times[RUNS];
    device_recording *calls;
    for (i64 i = 0; i < n; i++)
        rows[i] = (sample_row){.scale = kinds[kind].scale,
                               .top_k = kinds[kind].top_k,
                               .top_p = (u64)ldexp(kinds[kind].top_p, SAMPLE_BITS),
                               .u = (u64)(i * 2 + 1) * 0x9e3779b97f4a7c15u >> (64 - SAMPLE_BITS)};
    i32 tops[MOST_ROWS];
    for (i64 i = 0; i < n; i++) tops[i] = (i32)kinds[kind].logprobs;
    b->most = kinds[kind].logprobs;
    b->mem->write(b->mem, b->rows, rows, (u64)n * sizeof *rows);
    b->mem->write(b->mem, b->tops, tops, (u64)n * sizeof *tops);
    b->a = (sample_args){.rows = b->rows,
                         .ids = b->ids,
                         .bad = b->bad,
                         .workspace = b->work,
                         .n = n,
                         .vocab = b->vocab,
                         .stride = b->vocab,
                         .draws = kinds[kind].scale > 0,
                         .cuts = kinds[kind].top_k || kinds[kind].top_p < 1,
                         .mark = -2};
    status st = b->mem->record(b->mem, bench_sample_queue_calls, b, &calls, e);
    for (int r = -1; st == ST_OK && r < RUNS; r++) {
        enum { TIMES = 8 };
        f64 t = now_s();
        for (int i = 0; i < TIMES; i++) b->mem->replay(b->mem, calls);
        st = b->mem->finish(b->mem, e);
        if (r >= 0) times[r] = (now_s() - t) / (TIMES * CALLS);
    }
    if (st != ST_OK) return st;
    b->mem->forget(b->mem, calls);
    qsort(times, RUNS, sizeof *times, f64_ascending);
    printf("sample %4lld rows of %lld, %-26s %8.1f us (best %.1f)\n", (long long)n, (long long)b->vocab,
           kinds[kind].name, times[RUNS / 2] * 1e6, times[0] * 1e6);
    fflush(stdout);
    if (b->json)
        fprintf(
            b->json,
            "{\"bench\":\"sample\",\"device\":\"%s\",\"rows\":%lld,\"vocab\":%lld,\"kind\":\"%s\",\"sets\":%lld,\"us_median\":%.3f,\"us_min\":%.3f}\n",
            b->dev.name, (long long)n, (long long)b->vocab, kinds[kind].name, (long long)b->sets, times[RUNS / 2] * 1e6,
            times[0] * 1e6);
    return ST_OK;
}

int bench_sample(int argc, char **argv) {
    static const i64 rows[] = {1, 4, 16, 64};
    bench_state b = {.vocab = 163840, .sets = 4};
    const char *json = NULL;
    i64 only = 0;
    const opt_spec specs[] = {
        {"rows", 0, OPT_INT, &only, "N", "rows of logits (default: 1, 4, 16, 64)", 1, MOST_ROWS},
        {"vocab", 0, OPT_INT, &b.vocab, "N", "logits of a row (default: 163840)", 1, 1 << 24},
        {"sets", 0, OPT_INT, &b.sets, "N", "sets of rows, taken in turn (default: 4)", 1, CALLS},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench sample", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    backend gpu;
    status st = backend_open(&gpu, &(backend_options){.name = "cuda", .act = DT_BF16}, &e);
    if (st != ST_OK) err_prefix(&e, "bench sample");
    if (st == ST_OK && json && !(b.json = fopen(json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    if (st == ST_OK) {
        b.g = gpu.gpu, b.dev = gpu.ops, b.mem = b.pool.dev = gpu.device;
        st = make_buffers(&b, only ? only : rows[COUNT_OF(rows) - 1], &e);
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (size_t k = 0; st == ST_OK && k < COUNT_OF(kinds); k++)
            if (!only || !i) st = run_line(&b, only ? only : rows[i], k, &e);
    device_pool_free(&b.pool);
    backend_close(&gpu);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench sample", &e);
}
