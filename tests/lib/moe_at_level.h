/* tests/lib/moe_at_level.h: one call of experts at a level of the processor's instruction sets. */
#ifndef TESTS_MOE_AT_LEVEL_H
#define TESTS_MOE_AT_LEVEL_H
#include "unit.h"
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"

/* a without experts and workspace; false where the processor lacks the level. */
static inline bool moe_at_level(const char *level, const weight_desc *d, moe_args a) {
    u32 mask;
    ops cpu;
    op_weight *w;
    assert_int_equal(cpu_isa_parse(level, &mask, NULL), ST_OK);
    if (strcmp(level, "all") && (cpu_isa() & mask) != mask) return false;
    assert_int_equal(ops_init_cpu(&cpu, DT_BF16, mask, NULL), ST_OK);
    assert_int_equal(cpu.weight_prepare(&cpu, d, &w, NULL), ST_OK);
    a.experts = w;
    a.workspace = aligned_alloc(64, (cpu.moe_workspace(&cpu, &a) + 63) & ~(u64)63);
    cpu.moe(&cpu, &a);
    free(a.workspace);
    cpu.weight_release(w);
    return true;
}

#endif
