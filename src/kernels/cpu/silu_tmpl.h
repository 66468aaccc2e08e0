/* kernels/cpu/silu_tmpl.h: silu(g) * u on the vector layer that stands in front of it. */
#ifndef KERNELS_CPU_SILU_H
#define KERNELS_CPU_SILU_H
#include "kernels/cpu/cpu.h"

INLINE vf silu_mul(vf g, vf u) { return vf_mul(vf_div(g, vf_add(vf_set(1), vf_exp(vf_sub(vf_zero(), g)))), u); }

#endif
