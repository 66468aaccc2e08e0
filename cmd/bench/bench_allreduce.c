/* cmd/bench/bench_allreduce.c: `moonlet bench allreduce`: the sum over ranks that a layer makes twice, timed by the
 * GPU's clock and compared with the sum by hand, bit for bit. */
#include "cmd/bench/bench.h"
#include "cmd/lib/stats.h"
#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "runtime/ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums that are queued at a time: a driver holds some thousand launches, and a rank that waits for room there, while it
 * shares a GPU, keeps the others from theirs. */
enum { ROWS_MAX = 16, SUMS_MAX = 50, ROWS_QUEUED = 1024, REPEATS = 7 };

typedef struct {
    i64 ranks, dim, n_rows, rows[ROWS_MAX];
    i64 gpus[GPU_RANKS_MAX];
    bool shared; /* some GPU has several ranks */
    f64 seconds[ROWS_MAX];
} reduce_bench;

static bf16 reduce_value(i64 rank, i64 i) {
    u32 z = (u32)(rank * 7919 + i * 104729 + 1) * 2654435761u;
    return f32_to_bf16((f32)((i32)z >> 8) * 1e-3f);
}

static status open_rank_gpu(rank *k, void *ud, err *e) {
    const reduce_bench *b = ud;
    const gpu_part part = gpu_part_of(b->gpus, b->ranks, k->index);
    return backend_open(&k->backend, &(backend_options){.name = "cuda", .gpu = &part, .act = DT_BF16}, e);
}

typedef struct {
    rank *k;
    void *x;
    i64 n;
    int sums;
} reduce_launches;

static void queue_reduces(void *ud) {
    const reduce_launches *l = ud;
    for (int i = 0; i < l->sums; i++) l->k->data->all_reduce(l->k->data, l->x, l->n, DT_BF16);
}

/* One sum of known values. */
static status reduce_verify(rank *k, void *x, i64 n, bf16 *host, err *e) {
    device *dev = k->backend.device;
    for (i64 i = 0; i < n; i++) host[i] = reduce_value(k->index, i);
    dev->write(dev, x, host, (u64)n * sizeof *host);
    k->data->all_reduce(k->data, x, n, DT_BF16);
    dev->read(dev, host, x, (u64)n * sizeof *host);
    status st = dev->finish(dev, e);
    if (st == ST_OK) st = rank_finish(k, e);
    for (i64 i = 0; st == ST_OK && i < n; i++) {
        f32 sum = bf16_to_f32(reduce_value(0, i));
        for (i64 r = 1; r < k->data->ranks; r++) sum += bf16_to_f32(reduce_value(r, i));
        if (host[i] != f32_to_bf16(sum))
            return err_set(e, ST_NUMERIC, "value %lld of %lld is %g, not %g", (long long)i, (long long)n,
                           (f64)bf16_to_f32(host[i]), (f64)sum);
    }
    return st;
}

/* All sizes; rank 0's median of several runs counts. */
static status run_rank(rank *k, void *ud, err *e) {
    reduce_bench *b = ud;
    device *dev = k->backend.device;
    i64 most = 0;
    for (i64 i = 0; i < b->n_rows; i++) most = max_i64(most, b->rows[i] * b->dim);
    void *x = NULL;
    bf16 *host = malloc((size_t)most * sizeof *host);
    status st = host ? dev->alloc(dev, &x, (u64)most * sizeof *host, "rows", e) : err_nomem(e, "rows", (u64)most * 2);
    /* The driver waits for a GPU's kernels where it allocates and frees: not while another rank of that GPU waits. */
    if (st == ST_OK) k->comm->barrier(k->comm);
    for (i64 i = 0; st == ST_OK && i < b->n_rows; i++) {
        f64 took[REPEATS];
        reduce_launches l = {k, x, b->rows[i] * b->dim, (int)max_i64(1, min_i64(SUMS_MAX, ROWS_QUEUED / b->rows[i]))};
        st = reduce_verify(k, x, l.n, host, e);
        for (int r = 0; st == ST_OK && r < REPEATS; r++) {
            st = gpu_clock(k->backend.gpu, queue_reduces, &l, &took[r], e);
            if (st == ST_OK) st = rank_finish(k, e);
        }
        if (st != ST_OK || k->index) continue;
        qsort(took, REPEATS, sizeof *took, f64_ascending);
        b->seconds[i] = took[REPEATS / 2] / l.sums;
    }
    if (st == ST_OK) k->comm->barrier(k->comm);
    dev->release(dev, x);
    free(host);
    return st;
}

static status reduce_list(const char *name, const char *text, i64 lo, i64 hi, i64 *out, i64 most, i64 *n, err *e) {
    *n = 0;
    for (const char *at = text; *n < most;) {
        char *end;
        i64 v = strtol(at, &end, 10);
        if (end == at || v < lo || v > hi || (*end && *end != ',')) break;
        out[(*n)++] = v;
        if (!*end) return ST_OK;
        at = end + 1;
    }
    return err_set(e, ST_INPUT, "--%s %s: up to %lld numbers of %lld to %lld with commas between", name, text,
                   (long long)most, (long long)lo, (long long)hi);
}

static void reduce_print(const reduce_bench *b, const char *chip) {
    printf("%s, %lld ranks%s, rows of %lld bf16 values, peer memory; every sum compared with the sum by hand\n", chip,
           (long long)b->ranks,
           b->shared
               ? " of which several have a part of a GPU (no link between them: to see that it is right, not how fast)"
               : "",
           (long long)b->dim);
    printf("%8s %12s %10s\n", "rows", "bytes", "us");
    for (i64 i = 0; i < b->n_rows; i++)
        printf("%8lld %12lld %10.2f\n", (long long)b->rows[i], (long long)(b->rows[i] * b->dim * 2),
               b->seconds[i] * 1e6);
}

int bench_allreduce(int argc, char **argv) {
    reduce_bench b = {.dim = 7168};
    const char *gpus = "0,1", *rows = "1,2,4,8,16,32,64";
    f64 timeout = 10;
    const opt_spec specs[] = {
        {"gpus", 0, OPT_STR, &gpus, "LIST",
         "the GPU of each rank; one that stands there twice is divided (default: 0,1)", 0, 0},
        {"rows", 0, OPT_STR, &rows, "LIST", "rows of an exchange (default: 1,2,4,8,16,32,64)", 0, 0},
        {"dim", 0, OPT_INT, &b.dim, "N", "values of a row (default: 7168)", 8, 65536},
        {"dist-timeout", 0, OPT_REAL, &timeout, "SECONDS", "how long a rank waits (default: 10)", 0.001, 1e6},
    };
    int done = cmd_options("bench allreduce", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    ranks r = {0};
    status st = reduce_list("gpus", gpus, 0, 63, b.gpus, GPU_RANKS_MAX, &b.ranks, &e);
    if (st == ST_OK) st = reduce_list("rows", rows, 1, 65536, b.rows, ROWS_MAX, &b.n_rows, &e);
    if (st == ST_OK && (b.dim % 8 || b.ranks < 2))
        st = err_set(&e, ST_INPUT, b.dim % 8 ? "--dim: a multiple of 8" : "--gpus: two ranks or more");
    for (i64 i = 0; i < b.ranks; i++)
        for (i64 k = 0; k < i; k++) b.shared = b.shared || b.gpus[i] == b.gpus[k];
    const model_config c = {.n_heads = b.ranks,
                            .inter_dense = b.ranks,
                            .inter_expert = b.ranks,
                            .vocab = b.ranks,
                            .ranks = 1,
                            .hidden = b.dim};
    if (st == ST_OK) st = ranks_open(&r, &c, b.ranks, false, timeout, &e);
    if (st == ST_OK) st = ranks_each(&r, open_rank_gpu, &b, &e);
    if (st == ST_OK) st = ranks_connect(&r, &e);
    if (st == ST_OK) st = ranks_each(&r, run_rank, &b, &e);
    if (st == ST_OK) reduce_print(&b, gpu_name(r.of[0].backend.gpu));
    ranks_close(&r);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench allreduce", &e);
}
