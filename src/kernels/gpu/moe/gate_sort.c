/* kernels/gpu/moe/gate_sort.c: the gate and the sort of pairs by expert: launches and layout. */
#include "kernels/gpu/backend.h"

static gpu_gate_args gate_of(const gate_args *a) {
    return (gpu_gate_args){.logits = a->logits,
                           .bias = a->bias->vector,
                           .ids = a->ids,
                           .weights = a->weights,
                           .n = a->n,
                           .n_experts = a->n_experts,
                           .k = a->k,
                           .scale = a->scale,
                           .norm = a->norm_topk};
}

/* Does a warp hold a token's scores? */
static bool gate_fits(const gate_args *a) { return a->n_experts <= GPU_GATE_WARP_EXPERTS && a->k <= 32; }

void gpu_op_gate(const ops *o, const gate_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_gate_args k = gate_of(a);
    if (!a->n) return;
    if (gate_fits(a))
        gpu_launch(b->g, b->gate, gpu_blocks(a->n, GPU_WARPS), 1, 1, GPU_THREADS, 0, &k);
    else
        gpu_launch(b->g, b->gate_any, (u32)a->n, 1, 1, GPU_THREADS, (u32)a->n_experts * 4, &k);
}

void gpu_op_gate_linear(const ops *o, const gate_linear_args *a) {
    gpu_gate_args k = gate_of(&a->gate);
    gpu_digits_args digits = gpu_moe_digits(o, a->experts);
    if (a->gate.n && a->linear.n && gpu_run_gate(o, &k, &digits, &a->linear)) {
        if (digits.x) *a->prepared = true;
    } else
        compose_gate_linear(o, a);
}

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
