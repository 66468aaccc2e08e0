/* kernels/cpu/avx512bf16_ops.c: every operation at level avx512 bf16. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#define VEC_DPBF16
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/dot_tmpl.h"
#include "kernels/cpu/fp8_tmpl.h"
#include "kernels/cpu/dense_tmpl.h"
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/attn_tmpl.h"
#include "kernels/cpu/heads_tmpl.h"
#include "kernels/cpu/vision_tmpl.h"
/* Products of bytes are those of the level below. */
#define moe_in_int8           cpu_avx512_moe_in_int8
#define moe_in_int8_workspace cpu_avx512_moe_in_int8_workspace
#include "kernels/cpu/moe_tmpl.h"
#include "kernels/cpu/slots_tmpl.h"

void cpu_init_avx512bf16(ops *o) { fill_slots(o, "cpu avx512 bf16"); }
