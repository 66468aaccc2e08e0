/* kernels/cpu/avx2_ops.c: every operation at level avx2. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_int8_avx2.h"
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

void cpu_init_avx2(ops *o) { fill_slots(o, "cpu avx2"); }
