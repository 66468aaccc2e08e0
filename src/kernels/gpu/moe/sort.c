/* kernels/gpu/moe/sort.c: the sort of pairs by expert: its launches, and its layout in a workspace. */
#include "kernels/gpu/backend.h"

u64 gpu_sort_layout(i64 pairs, i64 experts, u8 *base, gpu_sort_args *s) {
    u64 at = 0, e = (u64)experts;
    *s = (gpu_sort_args){.pairs = pairs, .experts = experts};
    s->blocks = pairs <= GPU_SORT_FEW ? 1 : ceil_div(pairs, GPU_SORT_BLOCK);
    s->count = (int *)(base + at);
    at += gpu_round(e * 4);
    s->start = (int *)(base + at);
    at += gpu_round((e + 1) * 4);
    s->list = (int *)(base + at);
    at += gpu_round((u64)pairs * 4);
    s->part = (int *)(base + at);
    return at + (s->blocks > 1 ? gpu_round((u64)s->blocks * e * 4) : 0);
}

void gpu_run_sort(const ops *o, const gpu_sort_args *s) {
    const gpu_backend *b = gpu_of(o);
    u32 shared = (u32)s->experts * (4 + GPU_WARPS * 2), blocks = (u32)s->blocks;
    if (s->pairs <= GPU_SORT_BLOCK) {
        gpu_launch(b->g, b->sort_few, 1, 1, 1, GPU_THREADS, shared, s);
        return;
    }
    if (blocks == 1) {
        shared = (u32)s->experts * (4 + GPU_SORT_THREADS / 32 * 2);
        gpu_launch(b->g, b->sort_more, 1, 1, 1, GPU_SORT_THREADS, shared, s);
        return;
    }
    gpu_launch(b->g, b->sort_count, blocks, 1, 1, GPU_THREADS, shared, s);
    gpu_launch(b->g, b->sort_add, gpu_blocks(s->experts, 32), 1, 1, GPU_THREADS, 0, s);
    gpu_launch(b->g, b->sort_place, blocks, 1, 1, GPU_THREADS, shared, s);
}
