/* kernels/cpu/avx512_ops.c: every operation at level avx512. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_int8_avx512.h"
#include "kernels/cpu/dot_tmpl.h"
#include "kernels/cpu/dense_tmpl.h"
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/attn_tmpl.h"
#include "kernels/cpu/heads_tmpl.h"
#include "kernels/cpu/vision_tmpl.h"
#include "kernels/cpu/moe_int8_tmpl.h"
#include "kernels/cpu/moe_w4a8_tmpl.h"
#include "kernels/cpu/moe_int8_level_tmpl.h"
#include "kernels/cpu/moe_tmpl.h"
#include "kernels/cpu/slots_tmpl.h"

void cpu_init_avx512(ops *o) { fill_slots(o, "cpu avx512"); }

bool cpu_avx512_moe_in_int8(const ops *o, const moe_args *a) { return moe_in_int8(o, a); }
u64 cpu_avx512_moe_in_int8_workspace(const ops *o, const moe_args *a) { return moe_in_int8_workspace(o, a); }
