/* kernels/gpu/moe/grouped.c: routed experts at many tokens: sort, tiles, the two products (grouped.cuh), the
 * weighted sum.
 *
 * y, the results that wait for their sum, is kept as IEEE halves: bf16 would be one rounding too many for the bound
 * of 4e-3. Where the largest is too large for a half, or very small, stage 2 runs again with another unit
 * (fp16_range.cuh); its second launch finds nothing to do otherwise. */
#include "kernels/gpu/backend.h"

typedef struct {
    gpu_sort_args sort;
    int *n_tiles;
    struct int4 *tiles;
    gpu_bf16 *h;
    gpu_bf16 *y;
    i64 h_rows, max_tiles;
} grouped_space;

/* most: tokens of a tile at most. */
static u64 grouped_layout(const moe_args *a, i64 tile_rows, u8 *base, grouped_space *s) {
    const op_weight *w = a->experts;
    i64 pairs = a->n * a->k, experts = w->n_views / 3;
    u64 at = gpu_sort_layout(pairs, experts, base, &s->sort);
    s->sort.ids = a->ids;
    s->max_tiles = pairs / tile_rows + experts;
    s->h_rows = ceil_div(pairs + 7 * experts, 8) * 8;
    s->n_tiles = (int *)(base + at), at += 256;
    s->tiles = (struct int4 *)(base + at), at += gpu_round((u64)s->max_tiles * 16);
    s->h = (gpu_bf16 *)(base + at), at += gpu_round((u64)(s->h_rows * w->views[0].rows) * 2);
    s->y = (gpu_bf16 *)(base + at), at += gpu_round((u64)(pairs * w->views[0].cols) * 2);
    return at;
}

u64 gpu_grouped_workspace(const moe_args *a) {
    u8 nowhere;
    grouped_space s;
    return grouped_layout(a, TILE_LEAST, &nowhere, &s);
}

/* tile: tokens of one at most. */
static const gpu_kernel *kernel_of(const gpu_backend *b, const gpu_matrix *w, bool down, int tile) {
#define GROUPED(f, wide, widest)                                                                                       \
    {                                                                                                                  \
        {b->grouped_##f##_up_64, b->grouped_##f##_down_64},                                                            \
            {b->grouped_##f##_up_##wide, b->grouped_##f##_down_##wide}, {                                              \
            b->grouped_##f##_up_##widest, b->grouped_##f##_down_##widest                                               \
        }                                                                                                              \
    }
    const gpu_kernel *const all[][3][2] = {GROUPED(int4, 128, 176), GROUPED(bf16, 176, 176), GROUPED(fp8, 128, 128),
                                           GROUPED(mxfp4, 128, 176), GROUPED(nvfp4, 128, 176)};
#undef GROUPED
    const int format = w->format == GPU_W_PACKED_NVFP4   ? 4
                       : w->format == GPU_W_PACKED_MXFP4 ? 3
                       : w->format == GPU_W_FP8_PAIRS    ? 2
                                                         : w->format == GPU_W_BF16;
    return all[format][(tile > 64) + (tile > 128)][down];
}

/* FP8 and bf16 weights for the copy engine: all experts as rows of `hidden` and of `inter` columns, 64 rows by 128
 * bytes at a time. A box of bf16's down is four times 16 rows, 32 apart, and experts whose other matrices are packed
 * have down every so many rows. */
static void grouped_describe(const gpu_backend *b, const op_weight *w, gpu_moe_maps_args *out) {
    const gpu_matrix *v = w->views;
    const bool fp8 = v->format == GPU_W_FP8_PAIRS;
    const u64 rows = (u64)w->n_views, hidden = (u64)v->cols, inter = (u64)v->rows, size = fp8 ? 1 : 2,
              next = w->expert_bytes / (2 * inter);
    const u32 box[3] = {64, 64, 1}, split_box[3] = {64, 16, 4};
    if (!gpu_is_packed(v))
        gpu_tensor(b->g, &out->in, v->data, (const u64[3]){64, rows * inter, hidden * size / 128},
                   (const u64[2]){hidden * size, 128}, box);
    if (fp8)
        gpu_tensor(b->g, &out->out, v->data, (const u64[3]){64, rows * hidden, inter / 128}, (const u64[2]){inter, 128},
                   box);
    else
        gpu_tensor(b->g, &out->out, v[2].data, (const u64[3]){inter, (rows / 3 - 1) * next + hidden - 3 * 32, 4},
                   (const u64[2]){2 * inter, 32 * 2 * inter}, split_box);
    out->out_rows = (int)next;
}

void gpu_run_sum(const ops *o, const moe_args *a, const void *y, const gpu_u32 *tile_rows, const norm_args *norm) {
    const gpu_backend *b = gpu_of(o);
    gpu_combine_args c = gpu_combine_of(a, y);
    c.y_amax = tile_rows;
    if (!norm) {
        if (a->parts && a->parts->count <= GPU_RANKS_MAX) {
            c.parts.rows = ceil_div(a->n, a->parts->count);
            for (i64 r = 0; r < a->parts->count; r++) c.parts.at[r] = a->parts->at[r];
            a->parts->taken = true;
        }
        gpu_launch(b->g, b->moe_sum, (u32)a->n, gpu_blocks(c.hidden, 8 * 128), 1, 128, 0, &c);
        return;
    }
    c.norm = gpu_norm_of(norm);
    gpu_launch(b->g, b->moe_sum_norm, (u32)a->n, 1, 1, GPU_SUM_THREADS, 0, &c);
}

/* A block a processor, or fewer where there are fewer tiles; bf16's work in twos. */
static void grouped_run(const gpu_backend *b, const gpu_kernel *k, int format, i64 tiles, const void *args) {
    const i64 two = format == GPU_W_BF16 ? 2 : 1, all = gpu_processors(b->g) / two;
    gpu_launch_cluster(b->g, k, (u32)two, (u32)(min_i64(all, tiles) * two), 1, 1, GPU_GROUPED_THREADS, GPU_MOE_SHARED,
                       args);
}

void gpu_grouped(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols, experts = w->n_views / 3;
    const bool twos = w->views[0].format == GPU_W_BF16; /* above 64 one kernel: 176, whatever a table says */
    const int tile = twos && how->tile > 64 ? 176 : how->tile, tile_rows = twos ? 2 * tile : tile;
    grouped_space s;
    grouped_layout(a, tile_rows, a->workspace, &s);
    gpu_run_sort(o, &s.sort);
    gpu_moe_tiles_args tiles = {s.sort.start, s.tiles, s.n_tiles, (int)experts, tile_rows};
    gpu_launch(b->g, b->moe_tiles, 1, 1, 1, GPU_THREADS, 0, &tiles);
    gpu_moe_maps_args all = {.m = {w->on_gpu, s.tiles, s.n_tiles, s.sort.list, a->x, s.h, s.y, (gpu_u32 *)s.n_tiles + 1,
                                   s.n_tiles + 2, hidden, inter, s.h_rows, (gpu_u32)a->k, 0x43004300, 0}};
    const void *in = gpu_is_packed(&w->views[0]) ? (const void *)&all.m : &all,
               *out = gpu_is_packed(&w->views[2]) ? (const void *)&all.m : &all;
    if (out == &all) grouped_describe(b, w, &all);
    all.tile = tile;
    grouped_run(b, kernel_of(b, w->views, false, tile), w->views[0].format, s.max_tiles * ceil_div(inter, 128), in);
    for (all.m.rescale_pass = 0; all.m.rescale_pass < 2; all.m.rescale_pass++) {
        all.m.work_counter++;
        grouped_run(b, kernel_of(b, w->views + 2, true, tile), w->views[2].format, s.max_tiles * ceil_div(hidden, 256),
                    out);
    }
    gpu_run_sum(o, a, s.y, (gpu_u32 *)s.n_tiles + 1, norm);
}

status gpu_grouped_open(gpu_backend *b, err *e) {
#define GROUPED(f, tile) b->grouped_##f##_up_##tile, b->grouped_##f##_down_##tile
    gpu_kernel *const all[] = {GROUPED(int4, 64),   GROUPED(int4, 128),  GROUPED(int4, 176), GROUPED(mxfp4, 64),
                               GROUPED(mxfp4, 128), GROUPED(mxfp4, 176), GROUPED(nvfp4, 64), GROUPED(nvfp4, 128),
                               GROUPED(nvfp4, 176), GROUPED(bf16, 64),   GROUPED(bf16, 176), GROUPED(fp8, 64),
                               GROUPED(fp8, 128)};
#undef GROUPED
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        status st = gpu_shared(b->g, all[i], GPU_MOE_SHARED, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}
