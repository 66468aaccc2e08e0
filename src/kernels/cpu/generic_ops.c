/* kernels/cpu/generic_ops.c: every operation at level generic. */
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_generic.h"
#include "kernels/cpu/dot_impl.h"
#include "kernels/cpu/dense_impl.h"
#include "kernels/cpu/rows_impl.h"
#include "kernels/cpu/attn_impl.h"
#include "kernels/cpu/moe_impl.h"
#include "kernels/cpu/slots_impl.h"

void cpu_init_generic(ops *o) { fill_slots(o, "cpu generic"); }
