/* kernels/cpu/moe_sort.h: which tokens each expert works on, by counting, and the layout of moe's workspace.
 *
 * A pair is a (token, slot) with a valid expert id. Pairs are ordered by expert, then by token and slot. */
#ifndef KERNELS_CPU_MOE_SORT_H
#define KERNELS_CPU_MOE_SORT_H
#include "kernels/cpu/cpu.h"

enum { MOE_OUT = 64 }; /* columns of the output that a thread finishes at a time */

typedef struct {
    i64 n_experts, hidden, inter, n_pairs;
    i32 *first;   /* [n_experts + 1]: first pair of an expert */
    i32 *token;   /* [pairs]: the pair's token */
    i32 *pair;    /* [n, k]: the slot's pair, -1 for none */
    i32 *touched; /* [n_experts]: experts that have pairs */
    i64 n_touched;
    void *x; /* [n, x_bytes]: prepared inputs, or nothing */
    void *h; /* [pairs, h_bytes]: silu(gate) * up */
    f32 *y;  /* [threads, pairs, MOE_OUT] */
} moe_plan;

/* Bytes of the workspace; x_bytes and h_bytes are those of a row. */
u64 moe_plan_bytes(const moe_args *a, u64 x_bytes, u64 h_bytes);
/* Lays out a->workspace and sorts. */
void moe_plan_make(moe_plan *p, const moe_args *a, u64 x_bytes, u64 h_bytes);
/* Neighbouring items of gate and up that a thread takes at a time: they lie behind each other in memory, but of few
 * each thread shall have some. */
i64 moe_items_together(i64 items);
/* A thread's y. */
f32 *moe_plan_y(const moe_plan *p, const moe_args *a);

#endif
