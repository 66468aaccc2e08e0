/* kernels/gpu/mla/decode.c: the fast kernels of absorbed attention: which one a call takes, and its launch. */
#include "kernels/gpu/backend.h"

enum {
    LATENT = 512,
    ROPE = 64,
    GROUPED_FROM = 17 /* heads */,
    PIECES = GPU_PLAN_BLOCKS /* that cut_join and mla_combine take */,
    FEW_ROWS = 4,
    ALONE_FEW = 4,
    ALONE_MANY = 8,   /* --deterministic: pages of a unit, at least */
    GROUP_HEADS = 64, /* of a block */
    EIGHTS_FROM = 6,  /* rows of the call: FP8 KV rows come eight at a time (decode_mma.cu) */
    VALUES_ROWS = GPU_SKINNY,
    VALUES_GROUPED = 16,      /* rows in groups whose pieces are joined where values are computed */
    ALONE_ROWS = 32,          /* up to so many rows of one sequence are read alone, */
    ALONE_TOKENS = 140 * 1000 /* if the contexts of all rows are so many tokens at most; with FP8 twice as many */
};

typedef struct {
    const gpu_kernel *kernel;
    i64 heads;           /* of a block */
    u32 threads, shared; /* of a block */
    u32 box;             /* tokens that one copy brings (kv_map); 0: it has none */
    int min_pages;       /* pages of a piece: fewer cost more in cut rows' sums than they gain in time */
    int together;        /* blocks of a multiprocessor */
} decode_kind;

static bool is_deterministic(const gpu_backend *b) { return b->form != ROWS_ANY; }

static decode_kind decode_kind_of(const gpu_backend *b, const mla_decode_args *a) {
    const bool fp8 = a->kv_type == DT_F8_E4M3, eights = !is_deterministic(b) && a->n >= EIGHTS_FROM;
    if (a->n_heads >= GROUPED_FROM)
        return (decode_kind){fp8 ? b->mla_decode_wgmma_fp8 : b->mla_decode_wgmma,
                             64,
                             GPU_DECODE_WGMMA_THREADS,
                             SHARED_MAX,
                             fp8 ? 0 : 32,
                             1,
                             1};
    if (a->n_heads > 8)
        return (decode_kind){fp8 ? b->mla_decode_mma16_fp8 : b->mla_decode_mma16,
                             16,
                             GPU_DECODE_MMA_THREADS,
                             GPU_DECODE_MMA_SHARED(2, fp8),
                             fp8 ? 0 : 8,
                             1,
                             fp8 ? 2 : 1};
    return (decode_kind){!fp8     ? b->mla_decode_mma8
                         : eights ? b->mla_decode_mma8_fp8
                                  : b->mla_decode_mma8_fp8_rows,
                         8,
                         GPU_DECODE_MMA_THREADS,
                         GPU_DECODE_MMA_SHARED(1, fp8),
                         fp8 && !eights ? 0 : 8,
                         1,
                         fp8 ? 2 : 1};
}

/* As many as run at once. */
static i64 blocks_of(const gpu_backend *b, const mla_decode_args *a, const decode_kind *k) {
    return max_i64(1, min_i64(k->together * gpu_processors(b->g) / ceil_div(a->n_heads, k->heads), PIECES));
}

bool gpu_decode_is_fast(const mla_decode_args *a) {
    return a->latent == LATENT && a->rope == ROPE && a->kv_type != DT_F32;
}

static int deterministic_pages(const mla_decode_args *a) { return a->n_heads >= GROUPED_FROM ? ALONE_MANY : ALONE_FEW; }

/* Room for sums in part: two of each block's, or one of each unit. */
static i64 slots_of(const gpu_backend *b, const mla_decode_args *a, const decode_kind *k) {
    if (!is_deterministic(b)) return 2 * blocks_of(b, a, k);
    return a->n * min_i64(GPU_DETERMINISTIC_UNITS, ceil_div(a->pages_stride, deterministic_pages(a)));
}

/* Few rows alone find the KV rows of their sequence in the second-level cache as long as all that is read is not much
 * more than it holds, and blocks of 8 or 16 heads whose pieces are joined where values are computed are faster than
 * wider ones; above 32 rows it hangs on how many they are (a rank of eight on an H200, in bench/results/h200/steps:
 * 2026-11-29-few-verify-rows.txt, 2026-11-29-short-contexts.txt). */
bool gpu_decode_groups_pay(i64 heads, i64 rows, i64 tokens, dtype kv) {
    return heads >= GROUPED_FROM || rows > ALONE_ROWS || tokens > (kv == DT_F8_E4M3 ? 2 : 1) * ALONE_TOKENS;
}

/* Of a group's rows so many as one block has all heads of, so that each reads as many. With FP8 two blocks of 16 heads
 * on a multiprocessor are faster than one of 32 or 64, though each page is read twice then (bench/results/h200/steps:
 * 2026-11-30-fp8-verify-rows.txt). */
static i64 rows_together(const gpu_backend *b, const mla_decode_args *a) {
    const i64 heads = a->kv_type == DT_F8_E4M3 ? GROUPED_FROM - 1 : GROUP_HEADS;
    i64 rows = is_deterministic(b) || a->lse ? 1 : max_i64(a->group, 1);
    while (rows > 1 && (a->group % rows || a->n_heads * rows > heads)) rows--;
    return rows;
}

/* The rows of a group as one with all their heads: queries and results lie so already. As they are where a row's bits
 * may not depend on its group, where there is nobody to join the pieces in order of the call, and where a block would
 * not have all heads. */
static mla_decode_args grouped(const gpu_backend *b, const mla_decode_args *a) {
    mla_decode_args g = *a;
    g.group = rows_together(b, a);
    g.n /= g.group, g.n_heads *= g.group;
    return g;
}

static u64 sums_bytes(const gpu_backend *b, const mla_decode_args *a) {
    decode_kind k = decode_kind_of(b, a);
    return (u64)slots_of(b, a, &k) * (u64)a->n_heads * (LATENT + 2) * sizeof(f32);
}

u64 gpu_decode_workspace(const gpu_backend *b, const mla_decode_args *a) {
    mla_decode_args widest = *a;
    widest.n_heads = GROUP_HEADS;
    const u64 alone = sums_bytes(b, a), groups = is_deterministic(b) ? 0 : sums_bytes(b, &widest);
    return alone > groups ? alone : groups;
}

/* combine_unabsorb's kernel for so many rows, and the most that it takes. */
typedef struct {
    gpu_kernel *kernel;
    int rows;
    bool groups;
} values_kind;
static values_kind values_of(const gpu_backend *b, i64 rows, bool groups) {
    if (groups)
        return rows <= 8 ? (values_kind){b->combine_unabsorb_groups_8, 8, true}
                         : (values_kind){b->combine_unabsorb_groups_16, 16, true};
    return rows <= 8    ? (values_kind){b->combine_unabsorb_8, 8, false}
           : rows <= 16 ? (values_kind){b->combine_unabsorb_16, 16, false}
           : rows <= 32 ? (values_kind){b->combine_unabsorb_32, 32, false}
                        : (values_kind){b->combine_unabsorb_64, 64, false};
}

status gpu_decode_init(gpu_backend *b, err *e) {
    u64 most = 2 * (u64)gpu_processors(b->g) + PIECES; /* of pieces and groups of heads */
    const values_kind all[] = {values_of(b, 8, false),  values_of(b, 16, false), values_of(b, 32, false),
                               values_of(b, 64, false), values_of(b, 8, true),   values_of(b, 16, true)};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        status st = gpu_shared(b->g, all[i].kernel, VALUES_SHARED(all[i].rows, all[i].groups), e);
        if (st != ST_OK) return st;
    }
    return device_pool_add(&b->pool, (void **)&b->meetings, 2 * most, sizeof(u32), "meetings of blocks", e);
}

gpu_decode_args gpu_decode_call(const mla_decode_args *a) {
    return (gpu_decode_args){.q = a->q,
                             .kv = a->kv,
                             .pages = a->pages,
                             .kv_len = a->kv_len,
                             .out = a->out,
                             .lse = a->lse,
                             .part = a->workspace,
                             .heads = a->n_heads,
                             .latent = a->latent,
                             .rope = a->rope,
                             .pages_stride = a->pages_stride,
                             .scale = a->scale,
                             .kv_type = gpu_type(a->kv_type)};
}

/* unfused: cut rows stay cut. a: of groups already. */
static gpu_decode_args decode_args_of(const gpu_backend *b, const mla_decode_args *a, const decode_kind *kind,
                                      bool unfused) {
    gpu_decode_args k = gpu_decode_call(a);
    k.n = a->n, k.group = (int)a->group, k.group_heads = (int)(a->n_heads / a->group);
    k.blocks = (int)blocks_of(b, a, kind), k.slots = slots_of(b, a, kind);
    k.deterministic = is_deterministic(b);
    k.min_pages = k.deterministic ? deterministic_pages(a) : kind->min_pages;
    k.fill = a->plan && !k.deterministic;
    k.scale2 = a->scale * LOG2_E;
    k.meetings = unfused ? NULL : b->meetings;
    k.plan = a->plan;
    return k;
}

static gpu_decode_args run_pieces(const gpu_backend *b, const mla_decode_args *a, bool unfused) {
    const decode_kind kind = decode_kind_of(b, a);
    const u32 size = (u32)dtype_size(a->kv_type);
    gpu_decode_args k = decode_args_of(b, a, &kind, unfused);
    if (kind.box) /* how many pages there are nobody has told: as many as an int can number */
        gpu_tensor(b->g, &k.kv_map, a->kv, (const u64[3]){32 * size, (u64)1 << 31, (LATENT + ROPE) / 64},
                   (const u64[2]){(LATENT + ROPE) * size, 64 * size},
                   (const u32[3]){32 * size, kind.box, (LATENT + ROPE) / 64});
    gpu_launch(b->g, kind.kernel, (u32)k.blocks, (u32)ceil_div(a->n_heads, kind.heads), 1, kind.threads, kind.shared,
               &k);
    return k;
}

void gpu_op_mla_decode_plan(const ops *o, const mla_decode_plan_args *all) {
    const gpu_backend *b = gpu_of(o);
    const mla_decode_args rows = grouped(b, &all->decode), *const a = &rows;
    const decode_kind kind = decode_kind_of(b, a);
    if (!a->n || !gpu_decode_is_fast(a)) return;
    const gpu_decode_args k = decode_args_of(b, a, &kind, true);
    gpu_launch(b->g, b->decode_plan, (u32)k.blocks + 1, 1, 1, 32, 0, &k);
}

void gpu_decode_fast(const gpu_backend *b, const mla_decode_args *call) {
    const mla_decode_args rows = grouped(b, call), *const a = &rows;
    bool unfused = is_deterministic(b) || (a->n_heads >= GROUPED_FROM && a->n < FEW_ROWS);
    gpu_decode_args k = run_pieces(b, a, unfused);
    if (unfused) /* a quarter of the latents of a head each */
        gpu_launch(b->g, b->mla_combine, (u32)a->n, (u32)a->n_heads * 4, 1, GPU_THREADS, 0, &k);
}

/* Pieces of all rows, at most: each begins one more than there are blocks, and each of a group has as many. */
static i64 pieces_most(const gpu_backend *b, const mla_decode_args *a) {
    const decode_kind kind = decode_kind_of(b, a);
    return a->group * (blocks_of(b, a, &kind) + a->n);
}

/* Is it worth it to join pieces where the values are computed? */
static bool values_fit(const gpu_backend *b, const mla_decode_args *a, const unabsorb_v_args *v) {
    const gpu_matrix *w = &v->kv_b->views[0];
    const i64 rows = a->n * a->group;
    if (b->form != ROWS_ANY || a->lse || !rows || rows > VALUES_ROWS || !gpu_decode_is_fast(a)) return false;
    if (a->n_heads >= GROUPED_FROM || (a->group > 1 && rows > VALUES_GROUPED)) return false; /* slower (measured) */
    if (v->x != a->out || v->n != rows || v->v_dim != VALUES_DIM || v->latent != LATENT) return false;
    return w->format == GPU_W_BF16 && w->wide &&
           pieces_most(b, a) <= (a->group > 1 ? VALUES_PIECES_OF_GROUPS : VALUES_PIECES) &&
           (u64)(uintptr_t)v->out % 8 == 0;
}

void gpu_op_mla_decode_values(const ops *o, const mla_decode_values_args *all) {
    const gpu_backend *b = gpu_of(o);
    const mla_decode_args rows = grouped(b, &all->decode), *const a = &rows;
    const unabsorb_v_args *v = &all->values;
    if (!values_fit(b, a, v)) {
        compose_mla_decode_values(o, all);
        return;
    }
    gpu_combine_unabsorb_args k = {.decode = run_pieces(b, a, true),
                                   .kv_b = v->kv_b->views[0].data,
                                   .out = v->out,
                                   .nope = v->kv_b->nope,
                                   .tokens = (int)v->n};
    const values_kind kind = values_of(b, v->n, a->group > 1);
    gpu_launch_cluster(b->g, kind.kernel, VALUES_CLUSTER, (u32)(a->n_heads / a->group) * VALUES_CLUSTER, 1, 1,
                       GPU_THREADS, VALUES_SHARED(kind.rows, kind.groups), &k);
}
