/* kernels/cpu/avx512vnni_moe.c: routed experts in four and eight bits with int8 activations, by VPDPBUSD. */
#define VEC_VNNI
#include "kernels/cpu/vec_int8_avx512.h"
#include "kernels/cpu/moe_int8_tmpl.h"
#include "kernels/cpu/moe_w4a8_tmpl.h"
#include "kernels/cpu/moe_int8_level_tmpl.h"

/* Of levels below there are three: without and with BF16 products, and with those by tiles. */
DEFINE_INT8_LEVEL(over_f32)
DEFINE_INT8_LEVEL(over_bf16)
DEFINE_INT8_LEVEL(over_amx)

void cpu_init_avx512vnni(ops *o, u32 isa) {
    if (isa & ISA_AMX)
        over_amx_init(o, "cpu avx512 amx vnni");
    else if (isa & ISA_BF16)
        over_bf16_init(o, "cpu avx512 bf16 vnni");
    else
        over_f32_init(o, "cpu avx512 vnni");
}
