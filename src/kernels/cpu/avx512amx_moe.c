/* kernels/cpu/avx512amx_moe.c: experts in W4A8 where the processor has AMX: many tokens of an expert by tiles of bytes,
 * few by VPDPBUSD. Other calls are those of the level below. */
#define VEC_VNNI
#define VEC_TILES
#include "kernels/cpu/vec_int8_avx512.h"
#include "kernels/cpu/tiles_amx.h"
#include "kernels/cpu/moe_w4a8_tmpl.h"

#include "kernels/cpu/moe_int8_level_tmpl.h"

/* Over dense products by vectors, and by tiles. */
DEFINE_INT8_LEVEL(over_vnni)
DEFINE_INT8_LEVEL(over_amx_vnni)

void cpu_init_avx512amx_w4a8(ops *o, u32 isa) {
    if (isa & ISA_AMX)
        over_amx_vnni_init(o, "cpu avx512 amx vnni");
    else
        over_vnni_init(o, "cpu avx512 bf16 vnni amx-int8");
}
