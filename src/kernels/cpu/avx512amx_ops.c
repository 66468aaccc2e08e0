/* kernels/cpu/avx512amx_ops.c: every operation at level amx: avx512 bf16, with products of bf16 by tiles. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#define VEC_INT8
#define VEC_DPBF16
#define VEC_AMX
#include "kernels/cpu/vec_int8_avx512.h"
#include "kernels/cpu/dot_tmpl.h"
#include "kernels/cpu/fp8_tmpl.h"
#include "kernels/cpu/dense_tmpl.h"
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/attn_tmpl.h"
#include "kernels/cpu/heads_tmpl.h"
#include "kernels/cpu/vision_tmpl.h"
#include "kernels/cpu/moe_int8_tmpl.h"
#include "kernels/cpu/moe_tmpl.h"
#include "kernels/cpu/slots_tmpl.h"

void cpu_init_avx512amx(ops *o) { fill_slots(o, "cpu avx512 amx"); }
