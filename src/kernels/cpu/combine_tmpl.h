/* kernels/cpu/combine_tmpl.h: the last step of experts whose hidden size is a whole number of vectors. */
#ifndef KERNELS_CPU_COMBINE_H
#define KERNELS_CPU_COMBINE_H
#include "kernels/cpu/moe_sort.h"

/* out[:, col..col + MOE_OUT) = sum over slots of weight * y, then the shared expert. */
static void combine_pairs(const moe_args *a, const moe_plan *p, i64 col, const f32 *y) {
    for (i64 i = 0; i < a->n; i++)
        for (i64 c = 0; c < MOE_OUT && col + c < p->hidden; c += VL) {
            vf sum = vf_zero();
            i64 at = i * p->hidden + col + c;
            for (i64 s = 0; s < a->k; s++) {
                i64 pair = p->pair[i * a->k + s];
                if (pair >= 0) sum = vf_fma(vf_set(a->weights[i * a->k + s]), vf_load(y + pair * MOE_OUT + c), sum);
            }
            if (a->shared) sum = vf_add(sum, vf_bf16((const bf16 *)a->shared + at));
            vf_store_bf16((bf16 *)a->out + at, sum);
        }
}

#endif
