/* kernels/gpu/moe/grouped_w4a8.c: routed experts at many tokens with int8 activations: sort, tiles, x to int8, gate
 * and up, h to int8, down (grouped_w4a8.cuh), the weighted sum. y is kept as grouped.c does. */
#include "kernels/gpu/backend.h"

typedef struct {
    gpu_sort_args sort;
    int *n_tiles;
    struct int4 *tiles;
    u8 *x8, *h8;
    struct float2 *x_scale, *h_scale;
    gpu_bf16 *h, *y;
    i64 h_rows, max_tiles;
} int8_space;

enum { COLUMNS = 128 };

/* most: tokens of a tile at most. */
static u64 w4a8_layout(const moe_args *a, i64 tile_rows, u8 *base, int8_space *s) {
    const op_weight *w = a->experts;
    i64 pairs = a->n * a->k, experts = w->n_views / 3;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols;
    u64 at = gpu_sort_layout(pairs, experts, base, &s->sort);
    s->sort.ids = a->ids;
    s->max_tiles = pairs / tile_rows + experts;
    s->h_rows = ceil_div(pairs + 7 * experts, 8) * 8;
    s->n_tiles = (int *)(base + at), at += 256;
    s->tiles = (struct int4 *)(base + at), at += gpu_round((u64)s->max_tiles * 16);
    s->x8 = base + at, at += gpu_round((u64)a->n * (u64)ceil_div(hidden, COLUMNS) * COLUMNS);
    s->h8 = base + at, at += gpu_round((u64)s->h_rows * (u64)ceil_div(inter, COLUMNS) * COLUMNS);
    s->x_scale = (struct float2 *)(base + at), at += gpu_round((u64)a->n * 8);
    s->h_scale = (struct float2 *)(base + at), at += gpu_round((u64)s->h_rows * 8);
    s->h = (gpu_bf16 *)(base + at), at += gpu_round((u64)(s->h_rows * inter) * 2);
    s->y = (gpu_bf16 *)(base + at), at += gpu_round((u64)(pairs * hidden) * 2);
    return at;
}

u64 gpu_grouped_w4a8_workspace(const moe_args *a) {
    u8 nowhere;
    int8_space s;
    return w4a8_layout(a, TILE_LEAST, &nowhere, &s);
}

void gpu_grouped_w4a8(const ops *o, const moe_args *a, const moe_choice *how, const norm_args *norm) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols, experts = w->n_views / 3;
    const int tile_rows = how->tile;
    const bool wide = tile_rows > 64;
    int8_space s;
    w4a8_layout(a, tile_rows, a->workspace, &s);
    gpu_run_sort(o, &s.sort);
    gpu_moe_tiles_args tiles = {s.sort.start, s.tiles, s.n_tiles, (int)experts, tile_rows};
    gpu_launch(b->g, b->moe_tiles, 1, 1, 1, GPU_THREADS, 0, &tiles);
    gpu_quantize_rows_args x = {a->x, s.x8, s.x_scale, a->n, hidden}, h = {s.h, s.h8, s.h_scale, s.h_rows, inter};
    gpu_launch(b->g, b->quantize_x, (u32)a->n, 1, 1, 128, 0, &x);
    gpu_grouped_w4a8_args m = {.experts = w->on_gpu,
                               .tiles = s.tiles,
                               .n_tiles = s.n_tiles,
                               .list = s.sort.list,
                               .x = s.x8,
                               .x_scale = s.x_scale,
                               .h = s.h,
                               .h8 = s.h8,
                               .h_scale = s.h_scale,
                               .y = s.y,
                               .y_amax = (gpu_u32 *)s.n_tiles + 1,
                               .work_counter = s.n_tiles + 2,
                               .hidden = hidden,
                               .inter = inter,
                               .h_rows = s.h_rows,
                               .k = (gpu_u32)a->k};
    const u32 blocks = (u32)gpu_processors(b->g), up = (u32)min_i64(blocks, s.max_tiles * ceil_div(inter, 128)),
              down = (u32)min_i64(blocks, s.max_tiles * ceil_div(hidden, 256));
    gpu_launch(b->g, wide ? b->grouped_w4a8_up_176 : b->grouped_w4a8_up_64, up, 1, 1, GPU_GROUPED_THREADS,
               GPU_MOE_SHARED, &m);
    gpu_launch(b->g, b->quantize_h, gpu_blocks(s.h_rows, GPU_WARPS), 1, 1, GPU_THREADS, 0, &h);
    for (m.rescale_pass = 0; m.rescale_pass < 2; m.rescale_pass++) {
        m.work_counter++;
        gpu_launch(b->g, wide ? b->grouped_w4a8_down_176 : b->grouped_w4a8_down_64, down, 1, 1, GPU_GROUPED_THREADS,
                   GPU_MOE_SHARED, &m);
    }
    gpu_run_sum(o, a, s.y, (gpu_u32 *)s.n_tiles + 1, norm);
}

status gpu_grouped_w4a8_open(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->grouped_w4a8_up_64, b->grouped_w4a8_up_176, b->grouped_w4a8_down_64,
                               b->grouped_w4a8_down_176};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        status st = gpu_shared(b->g, all[i], GPU_MOE_SHARED, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}
