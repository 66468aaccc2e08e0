/* kernels/cpu/generic_ops.c: every operation at level generic. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_generic.h"
#include "kernels/cpu/dot_tmpl.h"
#include "kernels/cpu/dense_tmpl.h"
#include "kernels/cpu/rows_tmpl.h"
#include "kernels/cpu/attn_tmpl.h"
#include "kernels/cpu/heads_tmpl.h"
#include "kernels/cpu/vision_tmpl.h"
#define moe_in_int8           cpu_generic_moe_in_int8
#define moe_in_int8_workspace cpu_generic_moe_in_int8_workspace
#include "kernels/cpu/moe_tmpl.h"
#include "kernels/cpu/slots_tmpl.h"

void cpu_init_generic(ops *o) { fill_slots(o, "cpu generic"); }
