/* kernels/gpu/mla/mla.c: latent attention: how calls are cut into launches, and their workspace. */
#include "kernels/gpu/backend.h"

/* Decode: the context is cut into at most SPLITS pieces of at least SPLIT_PAGES pages, as many for every row of an
 * engine, so that a row's pieces do not depend on the other rows. Prefill: the cache is expanded in tiles of TILE
 * tokens. */
enum { SPLITS = 32, SPLIT_PAGES = 8, TILE = 1024, DECODE_TILE = 32 };

/* generic.cu: columns of the sums that a warp holds, which are those of `latent` and of `v_dim`. */
enum { LATENT_MOST = 512, V_DIM_MOST = 256 };

/* Bytes of shared memory of a block of the kernels that take any width. */
static i64 decode_shared(i64 width) { return (GPU_WARPS * width + DECODE_TILE * (width + 4)) * (i64)sizeof(f32); }
static i64 prefill_shared(i64 dim, i64 v_dim) {
    return GPU_WARPS * (dim + KV_PAGE) * 4 + KV_PAGE * (dim + 2 + v_dim) * 2;
}

status gpu_op_fits(const ops *o, const ops_widths *w, err *e) {
    const i64 decode = decode_shared(w->latent + w->rope), prefill = prefill_shared(w->nope + w->rope, w->v_dim);
    (void)o;
    if (w->latent > LATENT_MOST)
        return err_set(e, ST_UNSUPPORTED, "kv_lora_rank %lld: attention on a GPU takes at most %d",
                       (long long)w->latent, LATENT_MOST);
    if (w->v_dim > V_DIM_MOST)
        return err_set(e, ST_UNSUPPORTED, "v_head_dim %lld: attention on a GPU takes at most %d", (long long)w->v_dim,
                       V_DIM_MOST);
    if (decode > SHARED_MAX)
        return err_set(e, ST_UNSUPPORTED,
                       "kv_lora_rank %lld with qk_rope_head_dim %lld: a block of the GPU's attention would need "
                       "%lld bytes of shared memory, there are %d",
                       (long long)w->latent, (long long)w->rope, (long long)decode, SHARED_MAX);
    if (prefill > SHARED_MAX)
        return err_set(e, ST_UNSUPPORTED,
                       "qk_nope_head_dim %lld with qk_rope_head_dim %lld and v_head_dim %lld: a block of the "
                       "GPU's attention would need %lld bytes of shared memory, there are %d",
                       (long long)w->nope, (long long)w->rope, (long long)w->v_dim, (long long)prefill, SHARED_MAX);
    status st = gpu_heads_fits(w, e);
    return st == ST_OK ? gpu_vision_fits(w, e) : st;
}

static i64 splits_of(i64 pages) { return max_i64(1, min_i64(SPLITS, ceil_div(pages, SPLIT_PAGES))); }

u64 gpu_op_mla_decode_workspace(const ops *o, const mla_decode_args *a) {
    (void)o;
    if (gpu_decode_is_fast(a)) return gpu_decode_workspace(gpu_of(o), a);
    return (u64)(a->n + 1) * (u64)a->n_heads * (u64)splits_of(a->pages_stride) * (u64)(a->latent + 2) * sizeof(f32);
}

void gpu_op_mla_decode(const ops *o, const mla_decode_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_decode_args k = gpu_decode_call(a);
    k.splits = splits_of(a->pages_stride);
    if (!a->n) return;
    if (gpu_decode_is_fast(a)) {
        gpu_decode_fast(b, a);
        return;
    }
    gpu_launch(b->g, b->mla_decode, (u32)a->n, gpu_blocks(a->n_heads, GPU_WARPS), (u32)k.splits, GPU_THREADS,
               (u32)decode_shared(a->latent + a->rope), &k);
    gpu_launch(b->g, b->mla_merge, (u32)a->n, (u32)a->n_heads, 1, GPU_THREADS, 0, &k);
}

typedef struct {
    gpu_bf16 *latent_rows, *rope_rows, *expanded;
    f32 *state;
} prefill_space;

/* The tensor cores take Kimi's widths (a float32 cache keeps more than their bf16 holds), and as many tokens at a
 * time as 256 MiB of keys and values hold; for few rows fewer. */
enum { FEW_ROWS = 128, FEW_SPAN = 1024, SPAN = 8192, SPAN_CELLS = 1 << 19 };
static bool is_flash(const mla_prefill_args *a) {
    return a->nope == 128 && a->rope == 64 && a->v_dim == 128 && a->kv_type != DT_F32 && a->latent % 8 == 0 &&
           a->latent + a->rope <= GPU_WARP_KV;
}
static i64 span_of(const gpu_backend *b, const mla_prefill_args *a) {
    if (!is_flash(a)) return TILE;
    return a->n <= FEW_ROWS && b->form == ROWS_ANY ? FEW_SPAN : max_i64(SPAN, SPAN_CELLS / a->n_heads / 128 * 128);
}

static u64 mla_prefill_layout(const gpu_backend *b, const mla_prefill_args *a, prefill_space *p) {
    i64 span = span_of(b, a), all = a->pos0 + a->n;
    /* Rows whose state is carried from span to span. Never less memory than for fewer rows, hence the last. */
    i64 carried = !is_flash(a) || all > span ? a->n : all > FEW_SPAN ? FEW_ROWS : 0;
    u64 tile = (u64)min_i64(span, ceil_div(all, KV_PAGE) * KV_PAGE), at = 0;
    u8 *base = a->workspace;
    p->latent_rows = (gpu_bf16 *)(base + at);
    at += gpu_round(tile * (u64)a->latent * 2);
    p->rope_rows = (gpu_bf16 *)(base + at);
    at += gpu_round(tile * (u64)a->rope * 2);
    p->expanded = (gpu_bf16 *)(base + at);
    at += gpu_round(tile * (u64)(a->n_heads * (a->nope + a->v_dim)) * 2);
    p->state = (f32 *)(base + at);
    return at + gpu_round((u64)(carried * a->n_heads * (a->v_dim + 2)) * sizeof(f32));
}

u64 gpu_op_mla_prefill_workspace(const ops *o, const mla_prefill_args *a) {
    (void)o;
    u8 nowhere;
    prefill_space p;
    mla_prefill_args sizes = *a;
    sizes.workspace = &nowhere;
    const u64 expanded = mla_prefill_layout(gpu_of(o), &sizes, &p), few = gpu_prefill_few_workspace(gpu_of(o), a);
    return few > expanded ? few : expanded;
}

void gpu_op_mla_prefill(const ops *o, const mla_prefill_args *a) {
    const gpu_backend *b = gpu_of(o);
    prefill_space p;
    mla_prefill_layout(b, a, &p);
    i64 all = a->pos0 + a->n, rows = a->n_heads * (a->nope + a->v_dim), dim = a->nope + a->rope, span = span_of(b, a);
    if (!a->n) return;
    if (gpu_prefill_is_few(b, a)) return gpu_prefill_few(o, a);
    for (i64 from = 0; from < all; from += span) {
        i64 tokens = min_i64(span, all - from);
        gpu_gather_kv_args u = {.kv_b = a->kv_b->views[0],
                                .kv = a->kv,
                                .pages = a->pages,
                                .latent_rows = p.latent_rows,
                                .rope_rows = p.rope_rows,
                                .from = from,
                                .tokens = tokens,
                                .latent = a->latent,
                                .rope = a->rope,
                                .kv_type = gpu_type(a->kv_type)};
        gpu_linear_args l = {.w = a->kv_b->views[0],
                             .x = p.latent_rows,
                             .y = p.expanded,
                             .n = tokens,
                             .x_stride = a->latent,
                             .y_stride = rows,
                             .rows = rows,
                             .y_type = GPU_BF16};
        gpu_prefill_args k = {.q = a->q,
                              .expanded = p.expanded,
                              .rope_rows = p.rope_rows,
                              .out = a->out,
                              .state = p.state,
                              .n = a->n,
                              .pos0 = a->pos0,
                              .from = from,
                              .tokens = tokens,
                              .heads = a->n_heads,
                              .nope = a->nope,
                              .rope = a->rope,
                              .v_dim = a->v_dim,
                              .scale = a->scale,
                              .scale2 = a->scale * LOG2_E,
                              .first = from == 0,
                              .last = from + tokens == all};
        if (is_flash(a)) {
            const u64 sizes[3] = {64, (u64)tokens, (u64)rows / 64}, strides[2] = {(u64)rows * 2, 128},
                      rope_sizes[3] = {64, (u64)tokens, 1}, rope_strides[2] = {128, 128};
            gpu_tensor(b->g, &k.expanded_map, p.expanded, sizes, strides, (const u32[3]){64, 128, 2});
            gpu_tensor(b->g, &k.rope_map, p.rope_rows, rope_sizes, rope_strides, (const u32[3]){64, 128, 1});
        }
        gpu_launch(b->g, is_flash(a) ? b->mla_gather_kv : b->gather_kv,
                   is_flash(a) ? gpu_blocks(tokens, GPU_WARPS) : (u32)tokens, 1, 1, GPU_THREADS, 0, &u);
        gpu_run_linear(o, &l, 1, true); /* keys and values are rounded already */
        if (is_flash(a))
            gpu_launch(b->g, b->mla_flash, gpu_blocks(a->n, 128) * (u32)a->n_heads, 1, 1, GPU_FLASH_THREADS,
                       GPU_FLASH_SHARED, &k);
        else
            gpu_launch(b->g, b->mla_prefill, gpu_blocks(a->n, GPU_WARPS), (u32)a->n_heads, 1, GPU_THREADS,
                       (u32)prefill_shared(dim, a->v_dim), &k);
    }
}
