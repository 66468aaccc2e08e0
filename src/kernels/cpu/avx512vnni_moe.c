/* kernels/cpu/avx512vnni_moe.c: routed experts in four and eight bits with int8 activations, by VPDPBUSD. */
#define VEC_VNNI
#include "kernels/cpu/vec_int8_avx512.h"
#include "kernels/cpu/moe_int8_tmpl.h"
#include "kernels/cpu/moe_int8_level.h"

/* Of levels below there are two: without and with BF16 products. */
DEFINE_INT8_LEVEL(over_f32)
DEFINE_INT8_LEVEL(over_bf16)

void cpu_init_avx512vnni(ops *o, bool with_bf16) {
    if (with_bf16)
        over_bf16_init(o, "cpu avx512 bf16 vnni");
    else
        over_f32_init(o, "cpu avx512 vnni");
}
