/* kernels/gpu/rows/gate.c: the gate: its launch, alone or beside the product that makes its logits. */
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
                           .norm = a->norm_topk,
                           .routes = a->routes,
                           .slots = a->slots,
                           .counts = a->counts};
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
