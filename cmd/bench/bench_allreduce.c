/* cmd/bench/bench_allreduce.c: `moonlet bench allreduce`: the sum over ranks that a layer makes twice, ours and NCCL's,
 * timed by the GPU's clock and compared with the sum by hand. */
#include "cmd/bench/bench.h"
#include "cmd/lib/stats.h"
#include "base/log.h"
#include "kernels/gpu/gpu.h"
#include "runtime/ranks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sums of a recording: as many as keep the host's part of a launch out of the measurement, few of large ones. */
enum { ROWS_MAX = 16, SUMS_MAX = 50, ROWS_QUEUED = 4096, REPEATS = 7 };

enum { ONE_SHOT_MOST = 64 /* rows of which one shot is worth a look */ };
/* WITH_FLAGS: as sums of many rows go. The last two: the sum, its addition to the residual stream and the norm, of all
 * rows by every rank or of its own by each. */
typedef enum {
    AS_CHOSEN,
    IN_ONE_SHOT,
    IN_TWO_SHOTS,
    WITH_FLAGS,
    BY_NCCL,
    NORMED_BY_ALL,
    NORMED_APART,
    NORMED_AND_KEPT,
    WAYS
} reduce_way;
static const char *const WAY_KEYS[WAYS] = {"us",      "one_shot_us", "two_shots_us",  "flags_us",
                                           "nccl_us", "norm_us",     "norm_apart_us", "norm_kept_us"};

typedef struct {
    i64 ranks, dim, n_rows, rows[ROWS_MAX];
    i64 gpus[GPU_RANKS_MAX];
    f64 timeout;
    FILE *json;
    bool shared; /* some GPU has several ranks */
    reduce_way way;
    char chip[96];
    err missing;                 /* why there is no NCCL */
    f64 seconds[WAYS][ROWS_MAX]; /* 0: not measured */
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
    device_recording *recorded;
    const norm_args *norm; /* NULL: the sum alone */
    deferred_norm *deferred;
    bool kept; /* a rank's own normed rows go to nobody */
} reduce_launches;

static void queue_reduces(void *ud) {
    const reduce_launches *l = ud;
    for (int i = 0; i < l->sums; i++) {
        kept_rows kept = {.divide = l->kept};
        if (l->norm)
            gpu_reduce_norm(&l->k->backend.ops, l->k->data, l->norm, l->deferred, &kept);
        else
            l->k->data->all_reduce(l->k->data, l->x, l->n, DT_BF16);
    }
}

/* One sum of known values, in the order of the ranks and rounded once; NCCL's may differ by a rounding a rank, of the
 * largest part. */
static status reduce_verify(rank *k, void *x, i64 n, bf16 *host, err *e) {
    device *dev = k->backend.device;
    for (i64 i = 0; i < n; i++) host[i] = reduce_value(k->index, i);
    dev->write(dev, x, host, (u64)n * sizeof *host);
    k->data->all_reduce(k->data, x, n, DT_BF16);
    dev->read(dev, host, x, (u64)n * sizeof *host);
    status st = dev->finish(dev, e);
    if (st == ST_OK) st = rank_finish(k, e);
    for (i64 i = 0; st == ST_OK && i < n; i++) {
        f32 sum = bf16_to_f32(reduce_value(0, i)), all = fabsf(sum);
        for (i64 r = 1; r < k->data->ranks; r++) {
            const f32 part = bf16_to_f32(reduce_value(r, i));
            sum += part, all += fabsf(part);
        }
        const f32 got = bf16_to_f32(host[i]), off = fabsf(got - sum);
        if (!k->data->peer ? !(off <= all * (f32)k->data->ranks / 256) : host[i] != f32_to_bf16(sum))
            return err_set(e, ST_NUMERIC, "value %lld of %lld is %g, not %g", (long long)i, (long long)n, (f64)got,
                           (f64)sum);
    }
    return st;
}

static void replay_reduces(void *ud) {
    const reduce_launches *l = ud;
    l->k->backend.device->replay(l->k->backend.device, l->recorded);
}

/* The median of several runs of a recording. */
static status reduce_time(rank *k, void *x, i64 rows, i64 dim, const norm_args *norm, deferred_norm *deferred,
                          bool kept, f64 *seconds, err *e) {
    device *dev = k->backend.device;
    f64 took[REPEATS];
    reduce_launches l = {k,    x,    rows * dim, (int)max_i64(1, min_i64(SUMS_MAX, ROWS_QUEUED / rows)),
                         NULL, norm, deferred,   kept};
    status st = dev->record(dev, queue_reduces, &l, &l.recorded, e);
    /* the driver waits where a recording is made, too (model_record) */
    k->comm->barrier(k->comm);
    for (int r = 0; st == ST_OK && r < REPEATS; r++) {
        st = gpu_clock(k->backend.gpu, replay_reduces, &l, &took[r], e);
        if (st == ST_OK) st = rank_finish(k, e);
    }
    if (st == ST_OK) qsort(took, REPEATS, sizeof *took, f64_ascending), *seconds = took[REPEATS / 2] / l.sums;
    /* The driver waits for a GPU's kernels where it frees: not while another rank of that GPU waits. */
    k->comm->barrier(k->comm);
    dev->forget(dev, l.recorded);
    k->comm->barrier(k->comm);
    return st;
}

/* The norm behind a sum x of up to n values; what it needs is the caller's to release. zeros [n] */
static status reduce_norm_open(rank *k, i64 dim, void *x, const bf16 *zeros, i64 n, norm_args *norm, op_weight **w,
                               err *e) {
    device *dev = k->backend.device;
    void *stream = NULL, *out = NULL;
    f32 *ones = malloc((size_t)dim * sizeof *ones);
    if (!ones) return err_nomem(e, "a weight", (u64)dim * sizeof *ones);
    for (i64 i = 0; i < dim; i++) ones[i] = 1;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = dim, .data = ones};
    status st = k->backend.ops.weight_prepare(&k->backend.ops,
                                              &(weight_desc){.kind = WK_VECTOR, .views = &view, .n_views = 1}, w, e);
    if (st == ST_OK) st = dev->alloc(dev, &stream, (u64)n * sizeof(bf16), "rows", e);
    if (st == ST_OK) st = dev->alloc(dev, &out, (u64)n * sizeof(bf16), "rows", e);
    if (st == ST_OK) {
        dev->write(dev, stream, zeros, (u64)n * sizeof *zeros), dev->write(dev, x, zeros, (u64)n * sizeof *zeros);
        st = dev->finish(dev, e);
    }
    free(ones);
    *norm = (norm_args){.weight = *w,
                        .x = stream,
                        .add = x,
                        .sum = stream,
                        .out = out,
                        .dim = dim,
                        .x_stride = dim,
                        .out_stride = dim,
                        .eps = 1e-5f};
    return st;
}

/* All sizes; rank 0's times count. */
static status run_rank(rank *k, void *ud, err *e) {
    reduce_bench *b = ud;
    device *dev = k->backend.device;
    const bool normed = b->way >= NORMED_BY_ALL;
    norm_args norm = {0};
    deferred_norm deferred = {0};
    op_weight *w = NULL;
    i64 most = 0;
    for (i64 i = 0; i < b->n_rows; i++) most = max_i64(most, b->rows[i] * b->dim);
    void *x = NULL;
    bf16 *host = calloc((size_t)most, sizeof *host);
    status st = host ? dev->alloc(dev, &x, (u64)most * sizeof *host, "rows", e) : err_nomem(e, "rows", (u64)most * 2);
    if (st == ST_OK && normed) st = reduce_norm_open(k, b->dim, x, host, most, &norm, &w, e);
    if (st == ST_OK && normed)
        st = dev->alloc(dev, (void **)&deferred.squares, DEFERRED_ROWS * DEFERRED_PARTS * sizeof(f32), "squares", e);
    if (st == ST_OK) k->comm->barrier(k->comm); /* as above, of allocations */
    for (i64 i = 0; st == ST_OK && i < b->n_rows; i++) {
        f64 took = 0;
        if (b->way == IN_ONE_SHOT && b->rows[i] > ONE_SHOT_MOST) continue;
        norm.n = b->rows[i];
        if (!normed) st = reduce_verify(k, x, b->rows[i] * b->dim, host, e);
        if (st == ST_OK)
            st = reduce_time(k, x, b->rows[i], b->dim, normed ? &norm : NULL, normed ? &deferred : NULL,
                             b->way == NORMED_AND_KEPT, &took, e);
        if (!k->index) b->seconds[b->way][i] = took;
    }
    free(host);
    if (st != ST_OK) return st; /* x ends with the GPU: a rank that is late may still write to it */
    k->comm->barrier(k->comm);
    if (w) k->backend.ops.weight_release(w);
    dev->release(dev, norm.sum), dev->release(dev, norm.out), dev->release(dev, deferred.squares);
    dev->release(dev, x);
    return st;
}

/* All of it by one way. */
static status reduce_measure(reduce_bench *b, reduce_way way, err *e) {
    const model_config c = {.n_heads = b->ranks,
                            .inter_dense = b->ranks,
                            .inter_expert = b->ranks,
                            .vocab = b->ranks,
                            .ranks = 1,
                            .hidden = b->dim};
    ranks r = {0};
    b->way = way;
    status st = ranks_open(&r, &c, &(rank_layout){.tp = b->ranks, .pp = 1}, NULL, false, b->timeout, e);
    r.nccl = way == BY_NCCL;
    for (i64 i = 0; i < b->n_rows; i++) r.rows = max_i64(r.rows, b->rows[i]);
    if (st == ST_OK) st = ranks_each(&r, open_rank_gpu, b, e);
    if (st == ST_OK) snprintf(b->chip, sizeof b->chip, "%s", gpu_name(r.of[0].backend.gpu));
    if (st == ST_OK) st = ranks_connect(&r, e);
    for (i64 i = 0; st == ST_OK && (way == IN_ONE_SHOT || way == IN_TWO_SHOTS) && i < r.n; i++)
        if (r.of[i].data->peer) gpu_comm_one_shot(r.of[i].data, way == IN_ONE_SHOT ? ONE_SHOT_MOST : 0);
    for (i64 i = 0; st == ST_OK && way == WITH_FLAGS && i < r.n; i++)
        if (r.of[i].data->peer) gpu_comm_lamport(r.of[i].data, 0);
    for (i64 i = 0; st == ST_OK && way > BY_NCCL && i < r.n; i++)
        if (r.of[i].data->peer) gpu_comm_norm_apart(r.of[i].data, way == NORMED_BY_ALL ? INT64_MAX : 1);
    for (i64 i = 0; st == ST_OK && way == NORMED_AND_KEPT && i < r.n; i++)
        if (r.of[i].data->peer) gpu_comm_divide(r.of[i].data, 1);
    const bool ours = st == ST_OK && r.of[0].data->peer;
    if (st != ST_OK && way == BY_NCCL)
        b->missing = *e, st = ST_OK;
    else if (st == ST_OK && (ours || way == AS_CHOSEN || way == BY_NCCL))
        st = ranks_each(&r, run_rank, b, e);
    ranks_close(&r);
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

static void reduce_print(const reduce_bench *b) {
    printf("%s, %lld ranks%s, recorded sums of rows of %lld bf16 values; ours compared with the sum by hand bit for "
           "bit, NCCL's to a rounding a rank\n",
           b->chip, (long long)b->ranks,
           b->shared
               ? " of which several have a part of a GPU (no link between them: to see that it is right, not how fast)"
               : "",
           (long long)b->dim);
    if (b->missing.code != ST_OK) printf("NCCL is not measured: %s\n", b->missing.text);
    printf(
        "Behind \"NCCL us\": with the residual stream and its norm, of all rows on every rank (few without the norm's "
        "scale, which whoever reads them applies), of its own on each, or of its own that the others do not get.\n"
        "%8s %12s %12s %12s %12s %12s %12s %12s %12s %12s\n",
        "rows", "bytes", "us", "one shot us", "two shots us", "flags us", "NCCL us", "normed us", "apart us", "own us");
    for (i64 i = 0; i < b->n_rows; i++) {
        printf("%8lld %12lld", (long long)b->rows[i], (long long)(b->rows[i] * b->dim * 2));
        if (b->json)
            fprintf(b->json, "{\"bench\":\"allreduce\",\"gpus\":%lld,\"shared\":%s,\"dim\":%lld,\"rows\":%lld",
                    (long long)b->ranks, b->shared ? "true" : "false", (long long)b->dim, (long long)b->rows[i]);
        for (int way = 0; way < WAYS; way++) {
            const f64 us = b->seconds[way][i] * 1e6;
            char text[24];
            snprintf(text, sizeof text, us > 0 ? "%.2f" : "-", us);
            printf(" %12s", text);
            snprintf(text, sizeof text, us > 0 ? "%.4f" : "null", us);
            if (b->json) fprintf(b->json, ",\"%s\":%s", WAY_KEYS[way], text);
        }
        printf("\n");
        if (b->json) fprintf(b->json, "}\n");
    }
}

int bench_allreduce(int argc, char **argv) {
    reduce_bench b = {.dim = 7168, .timeout = 10};
    const char *gpus = "0,1", *rows = "1,2,4,8,16,24,32,40,64,96,160,512,2048,8192", *json = NULL;
    const opt_spec specs[] = {
        {"gpus", 0, OPT_STR, &gpus, "LIST",
         "the GPU of each rank; one that stands there twice is divided (default: 0,1)", 0, 0},
        {"rows", 0, OPT_STR, &rows, "LIST", "rows of an exchange (default: from 1 to 8192)", 0, 0},
        {"dim", 0, OPT_INT, &b.dim, "N", "values of a row (default: 7168)", 8, 65536},
        {"dist-timeout", 0, OPT_REAL, &b.timeout, "SECONDS", "how long a rank waits (default: 10)", 0.001, 1e6},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as JSON lines", 0, 0},
    };
    int done = cmd_options("bench allreduce", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    status st = reduce_list("gpus", gpus, 0, 63, b.gpus, GPU_RANKS_MAX, &b.ranks, &e);
    if (st == ST_OK) st = reduce_list("rows", rows, 1, 65536, b.rows, ROWS_MAX, &b.n_rows, &e);
    if (st == ST_OK && (b.dim % 8 || b.ranks < 2))
        st = err_set(&e, ST_INPUT, b.dim % 8 ? "--dim: a multiple of 8" : "--gpus: two ranks or more");
    if (st == ST_OK && json && !(b.json = fopen(json, "w")))
        st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    for (i64 i = 0; i < b.ranks; i++)
        for (i64 k = 0; k < i; k++) b.shared = b.shared || b.gpus[i] == b.gpus[k];
    for (int way = 0; st == ST_OK && way < WAYS; way++) st = reduce_measure(&b, (reduce_way)way, &e);
    if (st == ST_OK) reduce_print(&b);
    if (b.json && fclose(b.json) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench allreduce", &e);
}
