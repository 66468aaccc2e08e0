/* kernels/gpu/mla/decode_plan.cu: where each block of absorbed attention's kernels begins, and which pieces each row
 * has (split_kv.cuh): the same in all layers of a step, of whose time at few rows three loads that wait for each other
 * (lengths, page table, KV row) would take a part in every layer.
 *
 * A warp a block; the last one: of the rows. */
#include "kernels/gpu/mla/split_kv.cuh"

KERNEL_OF(decode_plan, gpu_decode_args, 32, 1) {
    int lane = threadIdx.x;
    if ((int)blockIdx.x == a.blocks) {
        if (a.n <= GPU_SKINNY && !a.deterministic) find_pieces(a, &a.plan->rows);
        return;
    }
    decode_walk w = walk_found<true>(a);
    gpu_decode_piece *p = &a.plan->of[blockIdx.x];
    bool any = walk_next(a, w);
    if (lane == 0) {
        *(int4 *)&p->row = {any ? w.row : (int)a.n, w.start, w.at, w.to};
        *(int4 *)&p->len = {w.len, w.first, w.last, any ? -w.pages : 0};
        p->each = w.each;
    }
    if (lane < GPU_PLAN_PAGES)
        p->page[lane] = any && w.first + lane < w.last ? pages_table(a, w.row)[w.first + lane] : 0;
}
