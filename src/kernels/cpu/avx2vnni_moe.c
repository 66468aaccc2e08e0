/* kernels/cpu/avx2vnni_moe.c: routed experts in four and eight bits with int8 activations, by VPDPBUSD on 256 bits
 * (AVX-VNNI), for processors that have no AVX-512. */
#define VEC_VNNI
#include "kernels/cpu/vec_int8_avx2.h"
#include "kernels/cpu/moe_int8_tmpl.h"
#include "kernels/cpu/moe_w4a8_tmpl.h"
#include "kernels/cpu/moe_int8_level_tmpl.h"

DEFINE_INT8_LEVEL(over_avx2)

void cpu_init_avxvnni(ops *o) { over_avx2_init(o, "cpu avx2 vnni"); }
