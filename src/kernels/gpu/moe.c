/* kernels/gpu/moe.c: routed experts: the launches of a call and its workspace. */
#include "kernels/gpu/inside.h"

typedef struct {
    gpu_sort_args sort;
    gpu_bf16 *h;
    f32 *y;
    u8 *few;
} moe_space;

u64 gpu_moe_results(const moe_args *a, i64 mean) {
    u64 hidden = (u64)a->experts->views[0].cols, cells = (u64)(a->n * a->k) * hidden;
    u64 few = (u64)(mean * (a->experts->n_views / 3)) * hidden * 4;
    return cells * 2 > few ? cells * 2 : few;
}

static u64 moe_layout(const moe_args *a, u8 *base, moe_space *s) {
    const op_weight *w = a->experts;
    u64 pairs = (u64)(a->n * a->k), at = gpu_sort_layout(a->n * a->k, w->n_views / 3, 0, base, &s->sort);
    s->sort.ids = a->ids;
    s->h = (gpu_bf16 *)(base + at);
    at += gpu_round(pairs * (u64)w->views[0].rows * 2);
    s->y = (f32 *)(base + at);
    at += gpu_round(pairs * (u64)w->views[0].cols * 4);
    s->few = base + at;
    return at + gpu_few_workspace(a);
}

u64 gpu_op_moe_workspace(const ops *o, const moe_args *a) {
    (void)o;
    static u8 nowhere;
    moe_space s;
    u64 int8 = gpu_moe_int8_workspace(a), large = int8 ? int8 : gpu_moe_large_workspace(a), all;
    moe_args few = *a; /* a call of fewer tokens fits too */
    if (large) few.n = min_i64(a->n, ceil_div(LARGE_MEAN * (a->experts->n_views / 3), a->k));
    all = moe_layout(&few, &nowhere, &s);
    return large > all ? large : all;
}

void gpu_op_moe(const ops *o, const moe_args *a) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols, experts = w->n_views / 3;
    moe_space s;
    if (!a->n) return;
    if (gpu_moe_int8_workspace(a)) return gpu_moe_int8(o, a);
    if (gpu_moe_large_workspace(a)) return gpu_moe_large(o, a);
    moe_layout(a, a->workspace, &s);
    gpu_experts_args x = {w->on_gpu, s.sort.start, s.sort.list, a->x, s.h, s.y, a->k};
    gpu_combine_args c = {a->ids, a->weights, s.y, a->shared, a->out, hidden, a->k, experts, NULL};
    if (b->form != ROWS_PROMPT && gpu_run_few(o, a, s.few, s.y)) {
        gpu_launch(b->g, b->moe_combine, (u32)a->n, gpu_blocks(hidden, 4 * GPU_THREADS), 1, GPU_THREADS, 0,
                   &c);
        return;
    }
    gpu_run_sort(o, &s.sort);
    /* Tiles round INT4 and FP8 weights to bf16, which is too much where a token is all that the error is measured on. */
    bool many = b->form == ROWS_ANY ? a->n * a->k >= TILE_MEAN * experts
                                    : b->form == ROWS_PROMPT && w->views[0].format == GPU_W_BF16;
    bool tiles = many && can_tile(&w->views[0], a->x, hidden) && inter % 8 == 0;
    gpu_launch(b->g, tiles ? b->moe_up_tile : b->moe_up, gpu_blocks(inter, tiles ? 64 : GPU_WARPS),
               (u32)experts, 1, GPU_THREADS, 0, &x);
    tiles = tiles && can_tile(&w->views[2], s.h, inter);
    gpu_launch(b->g, tiles ? b->moe_down_tile : b->moe_down, gpu_blocks(hidden, tiles ? 128 : GPU_WARPS),
               (u32)experts, 1, GPU_THREADS, 0, &x);
    gpu_launch(b->g, b->moe_combine, (u32)a->n, gpu_blocks(hidden, 4 * GPU_THREADS), 1, GPU_THREADS, 0, &c);
}
