/* kernels/gpu/gemm/gemm.c: matrix products: which kernel takes a call, and how it is cut into launches. */
#include "base/log.h"
#include "device/cublas.h"
#include "kernels/gpu/backend.h"

enum {
    GRID_Y = 65535,
    GRID_Z = 65535,
    UNIT = 64,          /* columns, and rows of a tile: skinny_splitk.cu */
    HALVES = 128 << 20, /* bytes for swiglu with cuBLASLt */
    COUNTS = 1 << 16,   /* tiles that may be shared */
    UNITS_MIN = 4,      /* of a piece of a tile of 128 rows: 64 KiB of weights */
    CLUSTER_MAX = 8,
    PART = 16,            /* multiprocessors of a part of the chip, at least */
    DEFERRED_COLS = 2048, /* of products that a norm follows: as DEFERRED_INTER in moe.c */
    SKINNY_TMA_FROM = 32, /* of skinny_tokens() */
    ABSORB_NOPE = 256     /* absorb_q.cu: what shared memory holds */
};

/* In decode form one kernel for any number of rows: what it does and in which order does not depend on n. */
static i64 skinny_tokens(const gpu_backend *b, i64 n) {
    if (b->form == ROWS_DECODE) return GPU_SKINNY;
    return n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64;
}

/* May skinny_tma.cu take n rows of x? */
static bool is_skinny_tma(const gpu_backend *b, i64 n) { return skinny_tokens(b, n) >= SKINNY_TMA_FROM; }

static u32 skinny_shared(i64 tokens, i64 rows) {
    return (u32)(SKINNY_STAGES(tokens, rows) * (rows + tokens) * 128 + SKINNY_STATE + tokens * 512);
}

static u32 absorb_shared(i64 nope) { return (u32)(nope * 256 + ceil_div(nope, 64) * 8192); }

enum { STREAM_K, CLUSTER_SPLIT, RESIDUAL, KINDS };
static const gpu_kernel *skinny_kernel(const gpu_backend *b, i64 tokens, int kind) {
    const gpu_kernel *const all[KINDS][4] = {
        {b->skinny_streamk_8, b->skinny_streamk_16, b->skinny_streamk_32, b->skinny_streamk_64},
        {b->skinny_cluster_8, b->skinny_cluster_16, b->skinny_cluster_32, b->skinny_cluster_64},
        {b->skinny_residual_8, b->skinny_residual_16, b->skinny_residual_32, b->skinny_residual_64}};
    return all[kind][tokens == 8 ? 0 : tokens == 16 ? 1 : tokens == 32 ? 2 : 3];
}
static u32 gemm_shared_of(i64 tokens, int kind) { return skinny_shared(tokens, kind == STREAM_K ? 2 * UNIT : UNIT); }

/* cuBLASLt if there is one, and the room that swiglu needs beside it. Not where ranks share a GPU: the library loads a
 * kernel at its first call, for which the driver waits until the other rank's kernel has ended, which may be waiting
 * for this rank to come to an exchange. */
static status gemm_open_library(gpu_backend *b, err *e) {
    if (gpu_processors(b->g) < gpu_chip_processors(b->g)) {
        err_set(&b->no_blas, ST_UNSUPPORTED,
                "cuBLASLt's first calls on a part of a GPU would wait for the other parts");
        return ST_OK;
    }
    status st = cublas_open(&b->blas, b->g, &b->no_blas);
    if (st == ST_NOMEM) return err_set(e, st, "%s", b->no_blas.text);
    return b->blas ? device_pool_add(&b->pool, (void **)&b->halves, 1, HALVES, "gate and up before SiLU", e) : ST_OK;
}

/* True if there is a library that may be used; else says why not, the first time. */
static bool has_library(const gpu_backend *b) {
    if (b->form != ROWS_ANY) return false; /* it chooses its kernels by the number of rows */
    if (!b->blas)
        log_once("cublasLt", "%s; matrix products of more than %d rows run on slower kernels of our own",
                 b->no_blas.text, GPU_SKINNY);
    return b->blas;
}

status gpu_dense_init(gpu_backend *b, err *e) {
    status st = ST_OK;
    for (i64 tokens = 8; st == ST_OK && tokens <= GPU_SKINNY; tokens *= 2)
        for (int kind = 0; st == ST_OK && kind < KINDS; kind++)
            st = gpu_shared(b->g, (gpu_kernel *)skinny_kernel(b, tokens, kind), gemm_shared_of(tokens, kind), e);
    gpu_kernel *const gates[] = {b->skinny_gate_8, b->skinny_gate_16, b->skinny_gate_32, b->skinny_gate_64};
    for (int i = 0; st == ST_OK && i < 4; i++)
        st = gpu_shared(b->g, gates[i], gemm_shared_of(8 << i, CLUSTER_SPLIT), e);
    if (st == ST_OK) st = gpu_shared(b->g, b->absorb_q_tile, absorb_shared(ABSORB_NOPE), e);
    u64 sums = (u64)gpu_processors(b->g) * 4 * GPU_SKINNY * UNIT * sizeof(f32);
    if (st == ST_OK) st = device_pool_add(&b->pool, (void **)&b->skinny_sums, 1, sums, "sums of matrix products", e);
    if (st == ST_OK)
        st = device_pool_add(&b->pool, (void **)&b->skinny_count, COUNTS, sizeof(int), "sums of matrix products", e);
    if (st == ST_OK) st = gpu_skinny_tma_init(b, e);
    if (st == ST_OK) st = gpu_skinny_few_init(b, e);
    if (st == ST_OK) st = gemm_open_library(b, e);
    return st;
}

/* May skinny_splitk.cu take n rows of x and w? */
static bool skinny_takes(const gpu_backend *b, const gpu_matrix *w, const void *x, i64 x_stride, i64 n) {
    return n <= GPU_SKINNY && b->form != ROWS_PROMPT && w->format == GPU_W_BF16 && can_tile(w, x, x_stride) &&
           w->cols % 16 == 0 && w->rows <= COUNTS * (UNIT / 2);
}

/* Blocks that run at once: two a multiprocessor up to 32 rows of x, one above. */
static i64 blocks_at_once(const gpu_backend *b, i64 tokens, int kind) {
    return (i64)gpu_processors(b->g) * (tokens > 32 && kind == STREAM_K ? 1 : 2);
}

/* With more tiles than half of the blocks these share all units equally. With fewer each tile is cut into as many
 * pieces as there are blocks for it, but not below `least` units. */
static i64 shared_blocks(i64 max_blocks, i64 tiles, i64 units, i64 min_units) {
    if (tiles * 2 > max_blocks) return min_i64(max_blocks, tiles * units);
    return tiles * max_i64(1, min_i64(max_blocks / tiles, units / min_units));
}

/* Clusters of c blocks that run at once: each lies within one part of the chip, of PART multiprocessors or a few
 * more. */
static i64 clusters_at_once(i64 max_blocks, i64 processors, i64 c) {
    return c > 2 ? processors / PART * (max_blocks / processors * PART / c) : max_blocks / c;
}

/* Blocks of a tile's cluster: as many as find room at once, each with 6 units or more, or 12 where the tiles alone
 * keep many multiprocessors busy. */
static i64 cluster_of(i64 max_blocks, i64 processors, i64 tiles, i64 units) {
    i64 c = min_i64(CLUSTER_MAX, units / (tiles > max_blocks / 4 ? 12 : 6));
    while (c > 1 && tiles > clusters_at_once(max_blocks, processors, c)) c--;
    return max_i64(1, c);
}

static i64 set_tiles(gpu_skinny_args *k, i64 heads, i64 rows) {
    i64 tiles = 0;
    for (int i = 0; i < GPU_PARTS && k->part[i].w; i++) {
        i64 of_head = ceil_div(k->part[i].rows, k->part[i].up ? rows / 2 : rows);
        k->part[i].tiles = (int)(tiles += heads * of_head);
        k->head_tiles = heads > 1 ? (int)of_head : 1 << 30;
    }
    k->units = (int)ceil_div(k->cols, UNIT);
    k->all = (int)(tiles * k->units);
    k->cluster = 1;
    return tiles;
}

/* Measured on an H200 (docs/kernels/gemm.md): clusters are best up to 32 rows of x, unless the tiles are a few more
 * than blocks; above if a block has few units. */
static int choose_kind(i64 tokens, i64 max_blocks, i64 processors, i64 tiles, i64 units) {
    if (tokens <= 32) return tiles <= max_blocks || tiles >= 8 * max_blocks ? CLUSTER_SPLIT : STREAM_K;
    return tiles <= max_blocks && units / cluster_of(max_blocks, processors, tiles, units) <= 32 ? CLUSTER_SPLIT
                                                                                                 : STREAM_K;
}

/* A call's kernel and grid. */
typedef struct {
    i64 tokens;
    int kind;
    u32 blocks;
} skinny_plan;

/* k has parts with .w, .up, .y, .rows, .y_stride and .y_type, and everything else but what follows from the shapes. */
static skinny_plan plan_skinny(const gpu_backend *b, gpu_skinny_args *k, i64 heads) {
    i64 tokens = skinny_tokens(b, k->n), tiles = set_tiles(k, heads, UNIT),
        max_blocks = blocks_at_once(b, tokens, CLUSTER_SPLIT), processors = gpu_processors(b->g);
    int kind = choose_kind(tokens, max_blocks, processors, tiles, k->units);
    if (kind == STREAM_K) tiles = set_tiles(k, heads, 2 * UNIT), max_blocks = blocks_at_once(b, tokens, STREAM_K);
    if (kind == CLUSTER_SPLIT) k->cluster = (int)cluster_of(max_blocks, processors, tiles, k->units);
    k->blocks =
        (int)(kind == CLUSTER_SPLIT ? tiles * k->cluster : shared_blocks(max_blocks, tiles, k->units, UNITS_MIN));
    k->sums = b->skinny_sums;
    k->count = b->skinny_count;
    return (skinny_plan){tokens, kind, (u32)k->blocks};
}

static void launch_skinny(const gpu_backend *b, const gpu_skinny_args *k, const skinny_plan *p) {
    gpu_launch_cluster(b->g, skinny_kernel(b, p->tokens, p->kind), (u32)k->cluster, p->blocks, 1, 1, SKINNY_THREADS,
                       gemm_shared_of(p->tokens, p->kind), k);
}

/* A block's loaders make the scales of deferred rows behind their last copy, and its first tile's results wait for
 * them: so the ring must have room for all that is copied behind that tile, or both sides wait for ever. */
static bool scales_in_time(const gpu_skinny_args *k, const skinny_plan *p) {
    if (!k->deferred.squares || p->kind == CLUSTER_SPLIT) return true;
    i64 stages = SKINNY_STAGES(p->tokens, 2 * UNIT);
    for (i64 block = 0; block < k->blocks; block++) {
        i64 from = block * k->all / k->blocks, to = (block + 1) * k->all / k->blocks;
        if (to - from > k->units - from % k->units + stages) return false;
    }
    return true;
}

/* False, and nothing launched, if the rows' norm must be finished first. */
static bool run_skinny(const ops *o, gpu_skinny_args *k, i64 heads) {
    const gpu_backend *b = gpu_of(o);
    if (b->seen) b->seen->skinny = "skinny_tma";
    if (is_skinny_tma(b, k->n) && heads == 1 && gpu_run_skinny_tma(b, k, NULL, NULL)) return true;
    if (b->seen) b->seen->skinny = "skinny_few";
    i64 tiles;
    if (heads == 1 && gpu_run_skinny_few(b, k, &tiles)) return true;
    skinny_plan p = plan_skinny(b, k, heads);
    if (!scales_in_time(k, &p)) return false;
    if (b->seen) b->seen->skinny = p.kind == CLUSTER_SPLIT ? "skinny_cluster" : "skinny_streamk";
    launch_skinny(b, k, &p);
    return true;
}

/* More rows than skinny_splitk.cu takes: by cuBLASLt. False where it is not there or has no kernel for this shape. */
static bool run_library(const gpu_backend *b, const gpu_linear_args *a, i64 heads, const gemm_choice *how) {
    if (a->w.format != GPU_W_BF16 || !has_library(b) || !can_tile(&a->w, a->x, a->x_stride)) return false;
    if ((u64)(uintptr_t)a->y % 16 || a->y_stride % 8 || a->x_step % 8 || a->y_step % 8) return false;
    return gpu_multiply(b,
                        &(cublas_product){.w = (const gpu_bf16 *)a->w.data + a->first * a->w.cols,
                                          .x = a->x,
                                          .y = a->y,
                                          .n = a->n,
                                          .rows = a->rows,
                                          .cols = a->w.cols,
                                          .w_stride = a->w.cols,
                                          .x_stride = a->x_stride,
                                          .y_stride = a->y_stride,
                                          .heads = heads,
                                          .w_step = a->step * a->w.cols,
                                          .x_step = a->x_step,
                                          .y_step = a->y_step,
                                          .wide = a->y_type == GPU_F32,
                                          .add = a->add},
                        how);
}

/* The same as measured: there may be something better than what the library chooses. */
static bool run_many(const ops *o, const gpu_linear_args *a, i64 heads) {
    const gpu_backend *b = gpu_of(o);
    if (a->add && !has_library(b)) return false; /* none of our own kernels is told to add, so none is chosen */
    if (b->form != ROWS_ANY || a->w.format != GPU_W_BF16 || !can_tile(&a->w, a->x, a->x_stride)) return false;
    gemm_choice how = gpu_gemm_choice(
        b, &(gemm_call){a->add ? GEMM_ADD : GEMM_LINEAR, a->y_type == GPU_F32, a->rows, a->w.cols, heads, a->n});
    if (how.path == GEMM_INVARIANT && gpu_run_invariant(o, a, false)) return true;
    return run_library(b, a, heads, &how);
}

static bool takes_tiles(const gpu_backend *b, i64 n) {
    return b->form == ROWS_PROMPT || (b->form == ROWS_ANY && n >= TILE_FROM);
}

void gpu_run_linear(const ops *o, gpu_linear_args *a, i64 heads, bool exact) {
    const gpu_backend *b = gpu_of(o);
    exact = exact && a->w.format != GPU_W_BF16;
    if (!a->n || !a->rows) return;
    if (skinny_takes(b, &a->w, a->x, a->x_stride, a->n) && a->x_step % 8 == 0) {
        gpu_skinny_args k = {.part = {{.w = (const gpu_bf16 *)a->w.data + a->first * a->w.cols,
                                       .y = a->y,
                                       .rows = a->rows,
                                       .y_stride = a->y_stride,
                                       .y_type = a->y_type}},
                             .x = a->x,
                             .n = a->n,
                             .x_stride = a->x_stride,
                             .cols = a->w.cols,
                             .w_stride = a->w.cols,
                             .w_step = a->step,
                             .x_step = a->x_step,
                             .y_step = a->y_step};
        run_skinny(o, &k, heads);
        return;
    }
    if (b->form == ROWS_PROMPT && heads == 1 && gpu_run_invariant(o, a, false)) return;
    if (a->n > GPU_SKINNY && run_many(o, a, heads)) return;
    if (takes_tiles(b, a->n) && !exact && can_tile(&a->w, a->x, a->x_stride) && a->x_step % 8 == 0) {
        gpu_launch(b->g, b->linear_tile, gpu_blocks(a->rows, 128), (u32)min_i64(ceil_div(a->n, 64), GRID_Y), (u32)heads,
                   GPU_THREADS, 0, a);
        return;
    }
    i64 groups = a->n == 1 ? 1 : ceil_div(a->n, GPU_TOKENS);
    gpu_launch(b->g, a->n == 1 ? b->linear_one : b->linear_many, gpu_blocks(a->rows, GPU_WARPS),
               (u32)min_i64(groups, GRID_Y), (u32)heads, GPU_THREADS, 0, a);
}

bool gpu_run_gate(const ops *o, const gpu_gate_args *gate, const gpu_digits_args *digits, const linear_args *l) {
    const gpu_backend *b = gpu_of(o);
    const gpu_matrix *w = &l->w->views[0];
    if (b->form != ROWS_ANY || gate->n_experts > GPU_GATE_EXPERTS || gate->k > 32) return false;
    if (!skinny_takes(b, w, l->x, l->x_stride, l->n)) return false;
    gpu_skinny_gate_args k = {.product = {.part = {{.w = w->data,
                                                    .y = l->y,
                                                    .rows = w->rows,
                                                    .y_stride = l->y_stride,
                                                    .y_type = gpu_type(l->y_type)}},
                                          .x = l->x,
                                          .n = l->n,
                                          .x_stride = l->x_stride,
                                          .cols = w->cols,
                                          .w_stride = w->cols},
                              .gate = *gate,
                              .digits = *digits};
    if (is_skinny_tma(b, l->n) && gpu_run_skinny_tma(b, &k.product, &k, NULL)) return true;
    skinny_plan p = plan_skinny(b, &k.product, 1);
    if (p.kind != CLUSTER_SPLIT) return false;
    const gpu_kernel *kernel = p.tokens == 8    ? b->skinny_gate_8
                               : p.tokens == 16 ? b->skinny_gate_16
                               : p.tokens == 32 ? b->skinny_gate_32
                                                : b->skinny_gate_64;
    i64 cluster = k.product.cluster,
        gates = ceil_div(gpu_gate_blocks(&k, SKINNY_THREADS, SKINNY_DIGITS), cluster) * cluster;
    gpu_launch_cluster(b->g, kernel, (u32)cluster, p.blocks + (u32)gates, 1, 1, SKINNY_THREADS,
                       gemm_shared_of(p.tokens, CLUSTER_SPLIT), &k);
    return true;
}

void gpu_op_linear(const ops *o, const linear_args *a) {
    const op_weight *w = a->w; /* rows of x may have room for the columns of zeros */
    gpu_linear_args k = {.w = w->padded.data && a->x_stride >= w->padded.cols ? w->padded : w->views[0],
                         .x = a->x,
                         .y = a->y,
                         .n = a->n,
                         .x_stride = a->x_stride,
                         .y_stride = a->y_stride,
                         .rows = a->w->views[0].rows,
                         .y_type = gpu_type(a->y_type)};
    gpu_run_linear(o, &k, 1, a->y_type == DT_F32);
}

/* By thin tiles, each of which then has some of the row's columns, all in one go. */
static bool run_linear_norm(const ops *o, const linear_norm_args *a) {
    const gpu_backend *b = gpu_of(o);
    const linear_args *l = &a->linear;
    const gpu_matrix *w = &l->w->views[0];
    gpu_skinny_args k = {.part = {{.w = w->data, .rows = w->rows, .y_type = GPU_BF16}},
                         .x = l->x,
                         .n = l->n,
                         .x_stride = l->x_stride,
                         .cols = w->cols,
                         .w_stride = w->cols};
    if (!l->n || w->cols > DEFERRED_COLS || a->norm.bad || l->y_type != DT_BF16 || w->rows != a->norm.dim) return false;
    if (!skinny_takes(b, w, l->x, l->x_stride, l->n)) return false;
    i64 tiles;
    if (is_skinny_tma(b, l->n) && gpu_may_defer_norm(b, &a->norm, a->deferred, DEFERRED_PARTS, &k.after)) {
        if (gpu_run_skinny_tma(b, &k, NULL, &tiles)) {
            *a->deferred = (deferred_norm){a->deferred->squares, tiles, a->norm.dim, a->norm.eps};
            return true;
        }
        k.after = (gpu_after){.x = NULL};
    }
    if (l->n <= SKINNY_FEW_ROWS && gpu_may_defer_norm(b, &a->norm, a->deferred, DEFERRED_PARTS, &k.after)) {
        if (gpu_run_skinny_few(b, &k, &tiles)) {
            *a->deferred = (deferred_norm){a->deferred->squares, tiles, a->norm.dim, a->norm.eps};
            return true;
        }
        k.after = (gpu_after){.x = NULL};
    }
    skinny_plan p = plan_skinny(b, &k, 1);
    tiles = k.blocks / k.cluster;
    if (p.kind != CLUSTER_SPLIT) return false;
    if (!gpu_may_defer_norm(b, &a->norm, a->deferred, tiles, &k.after)) return false;
    *a->deferred = (deferred_norm){a->deferred->squares, tiles, a->norm.dim, a->norm.eps};
    p.kind = RESIDUAL;
    launch_skinny(b, &k, &p);
    return true;
}

bool gpu_add_linear(const ops *o, const linear_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_linear_args k = {.w = a->w->views[0],
                         .x = a->x,
                         .y = a->y,
                         .n = a->n,
                         .x_stride = a->x_stride,
                         .y_stride = a->y_stride,
                         .rows = a->w->views[0].rows,
                         .y_type = GPU_BF16,
                         .add = true};
    if (!a->n || a->y_type != DT_BF16 || (a->n <= GPU_SKINNY && b->form != ROWS_PROMPT)) return false;
    return b->form == ROWS_PROMPT ? gpu_run_invariant(o, &k, false) : run_many(o, &k, 1);
}

/* More rows: the product adds to the residual stream itself, where one rounding is saved. */
static bool gemm_add_rows(const ops *o, const linear_norm_args *a) {
    linear_args l = a->linear;
    norm_args norm = a->norm;
    if (norm.add != l.y || norm.sum != norm.x || l.w->views[0].rows != norm.dim) return false;
    l.y = norm.sum, l.y_stride = norm.x_stride;
    if (!gpu_add_linear(o, &l)) return false;
    norm.add = norm.sum = NULL;
    o->norm(o, &norm);
    if (a->deferred) a->deferred->parts = 0;
    return true;
}

void gpu_op_linear_norm(const ops *o, const linear_norm_args *a) {
    if (!run_linear_norm(o, a) && !gemm_add_rows(o, a)) compose_linear_norm(o, a);
}

static void skinny_swiglu(const ops *o, const gpu_linear_args *a) {
    gpu_skinny_args k = {.part = {{.w = a->w.data,
                                   .up = a->up.data,
                                   .y = a->y,
                                   .rows = a->rows,
                                   .y_stride = a->y_stride,
                                   .y_type = a->y_type}},
                         .x = a->x,
                         .n = a->n,
                         .x_stride = a->x_stride,
                         .cols = a->w.cols,
                         .w_stride = a->w.cols};
    run_skinny(o, &k, 1);
}

/* Both products in float32 for as many rows as there is room for, then one kernel for SiLU, product and rounding. */
static bool library_swiglu(const gpu_backend *b, const gpu_linear_args *a, const gemm_choice *how) {
    i64 max_blocks = (i64)(HALVES / sizeof(f32) / 2) / a->rows / 128 * 128;
    if (a->w.format != GPU_W_BF16 || !has_library(b) || max_blocks < 128 || a->rows % 8) return false;
    for (i64 from = 0; from < a->n; from += max_blocks) {
        i64 n = min_i64(max_blocks, a->n - from);
        gpu_linear_args gate = *a, up;
        gate.n = n, gate.x = a->x + from * a->x_stride;
        gate.y = b->halves, gate.y_stride = a->rows, gate.y_type = GPU_F32;
        up = gate, up.w = a->up, up.y = b->halves + n * a->rows;
        if (!run_library(b, &gate, 1, how))
            return false; /* the same for every piece but the last: then it starts again */
        if (!run_library(b, &up, 1, how)) return false;
        gpu_silu_args k = {b->halves, b->halves + n * a->rows, (gpu_bf16 *)a->y + from * a->y_stride, n, a->y_stride,
                           a->rows};
        gpu_launch(b->g, b->silu_product, gpu_blocks(n * a->rows / 8, GPU_THREADS), 1, 1, GPU_THREADS, 0, &k);
    }
    return true;
}

static bool many_swiglu(const ops *o, const gpu_linear_args *a) {
    const gpu_backend *b = gpu_of(o);
    if (b->form != ROWS_ANY || a->w.format != GPU_W_BF16 || !can_tile(&a->w, a->x, a->x_stride)) return false;
    gemm_choice how = gpu_gemm_choice(b, &(gemm_call){GEMM_SWIGLU, false, a->rows, a->w.cols, 1, a->n});
    if (how.path == GEMM_INVARIANT && gpu_run_invariant(o, a, true)) return true;
    return library_swiglu(b, a, &how);
}

void gpu_op_swiglu(const ops *o, const swiglu_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_linear_args k = {.w = a->gate->views[0],
                         .up = a->up->views[0],
                         .x = a->x,
                         .y = a->out,
                         .n = a->n,
                         .x_stride = a->x_stride,
                         .y_stride = a->out_stride,
                         .rows = a->gate->views[0].rows,
                         .y_type = GPU_BF16};
    if (!k.n || !k.rows) return;
    if (skinny_takes(b, &k.w, k.x, k.x_stride, k.n) && skinny_takes(b, &k.up, k.x, k.x_stride, k.n)) {
        skinny_swiglu(o, &k);
        return;
    }
    if (b->form == ROWS_PROMPT && gpu_run_invariant(o, &k, true)) return;
    if (k.n > GPU_SKINNY && many_swiglu(o, &k)) return;
    if (takes_tiles(b, k.n) && can_tile(&k.w, k.x, k.x_stride) && can_tile(&k.up, k.x, k.x_stride)) {
        gpu_launch(b->g, b->swiglu_tile, gpu_blocks(k.rows, 64), (u32)min_i64(ceil_div(k.n, 64), GRID_Y), 1,
                   GPU_THREADS, 0, &k);
        return;
    }
    i64 groups = a->n == 1 ? 1 : ceil_div(a->n, GPU_TOKENS);
    gpu_launch(b->g, a->n == 1 ? b->swiglu_one : b->swiglu_many, gpu_blocks(k.rows, GPU_WARPS),
               (u32)min_i64(groups, GRID_Y), 1, GPU_THREADS, 0, &k);
}

/* One launch, if skinny_splitk.cu takes every weight. */
void gpu_op_linear_group(const ops *o, const linear_group_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_skinny_args k = {.x = a->x, .n = a->n, .x_stride = a->x_stride, .deferred = gpu_deferred_norm_of(a->deferred)};
    bool at_once = a->count > 1 && a->n;
    for (i64 i = 0; i < a->count; i++) {
        const linear_group_item *p = &a->of[i];
        const gpu_matrix *w = &p->w->views[0], *up = p->up ? &p->up->views[0] : w;
        at_once =
            at_once && skinny_takes(b, w, a->x, a->x_stride, a->n) && skinny_takes(b, up, a->x, a->x_stride, a->n);
        k.cols = k.w_stride = w->cols;
        k.part[i] = (gpu_skinny_part){.w = w->data,
                                      .up = p->up ? up->data : NULL,
                                      .y = p->y,
                                      .rows = w->rows,
                                      .y_stride = p->y_stride,
                                      .y_type = p->up ? GPU_BF16 : gpu_type(p->y_type)};
    }
    if (at_once && run_skinny(o, &k, 1)) return;
    gpu_finish_rows(o, a->x, a->n, a->x_stride, a->deferred);
    compose_linear_group(o, a);
}

static bool library_absorb(const gpu_backend *b, const absorb_q_args *a) {
    const gpu_matrix *w = &a->kv_b->views[0];
    i64 head = a->nope + a->rope, width = a->latent + a->rope;
    if (w->format != GPU_W_BF16 || !has_library(b) || !can_tile(w, a->q, head) || width % 8 || a->nope % 8)
        return false;
    if ((u64)(uintptr_t)a->out % 16) return false;
    gemm_choice how = gpu_gemm_choice(b, &(gemm_call){GEMM_ACROSS, false, a->latent, a->nope, a->n_heads, a->n});
    if (!gpu_multiply(b,
                      &(cublas_product){.w = w->data,
                                        .x = a->q,
                                        .y = a->out,
                                        .n = a->n,
                                        .rows = a->latent,
                                        .cols = a->nope,
                                        .w_stride = a->latent,
                                        .x_stride = a->n_heads * head,
                                        .y_stride = a->n_heads * width,
                                        .heads = a->n_heads,
                                        .w_step = (a->nope + a->kv_b->v_dim) * a->latent,
                                        .x_step = head,
                                        .y_step = width,
                                        .across = true},
                      &how))
        return false;
    gpu_rope_copy_args k = {
        (const gpu_bf16 *)a->q + a->nope, (gpu_bf16 *)a->out + a->latent, a->n * a->n_heads, head, width, a->rope};
    gpu_launch(b->g, b->rope_copy, gpu_blocks(k.rows * k.rope, GPU_THREADS), 1, 1, GPU_THREADS, 0, &k);
    return true;
}

static bool absorb_fits(const absorb_q_args *a) {
    const gpu_matrix *w = &a->kv_b->views[0];
    return w->format == GPU_W_BF16 && can_tile(w, a->q, a->nope + a->rope) && a->nope % 16 == 0 &&
           a->nope <= ABSORB_NOPE && a->latent % 128 == 0 && a->rope % 2 == 0;
}

void gpu_op_absorb_q(const ops *o, const absorb_q_args *a) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->kv_b;
    if (!a->n) return;
    if (a->n > GPU_SKINNY && library_absorb(b, a)) return;
    gpu_absorb_args k = {w->views[0], a->q, a->out, a->n, a->n_heads, a->nope, a->rope, a->latent, w->v_dim};
    if (absorb_fits(a)) {
        gpu_launch(b->g, b->absorb_q_tile, (u32)(a->latent / 128), (u32)a->n_heads, (u32)ceil_div(a->n, 64),
                   GPU_THREADS, absorb_shared(a->nope), &k);
        return;
    }
    gpu_launch(b->g, b->absorb_q, gpu_blocks(a->latent, GPU_THREADS), (u32)a->n_heads,
               (u32)min_i64(ceil_div(a->n, GPU_TOKENS), GRID_Z), GPU_THREADS, 0, &k);
}

void gpu_op_unabsorb_v(const ops *o, const unabsorb_v_args *a) {
    gpu_linear_args k = {.w = a->kv_b->views[0],
                         .x = a->x,
                         .y = a->out,
                         .n = a->n,
                         .x_stride = a->n_heads * a->latent,
                         .y_stride = a->n_heads * a->v_dim,
                         .rows = a->v_dim,
                         .first = a->kv_b->nope,
                         .step = a->kv_b->nope + a->kv_b->v_dim,
                         .x_step = a->latent,
                         .y_step = a->v_dim,
                         .y_type = GPU_BF16};
    gpu_run_linear(o, &k, a->n_heads, false);
}
