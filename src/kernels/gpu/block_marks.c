#include "kernels/gpu/block_marks.h"
#include "base/types.h"
#include "device/block_times.h"
#include <string.h>

#define MARK_TEXT(mark, text) text,
static const struct {
    const char *kernels; /* how their names begin */
    const char *marks[BLOCK_MARKS];
} marked[] = {{"k_ffn_fused_", {FFN_FUSED_MARKS(MARK_TEXT)}},    {"k_skinny_few_", {SKINNY_MARKS(MARK_TEXT)}},
              {"k_skinny_cluster_", {SKINNY_MARKS(MARK_TEXT)}},  {"k_skinny_residual_", {SKINNY_MARKS(MARK_TEXT)}},
              {"k_skinny_streamk_", {SKINNY_MARKS(MARK_TEXT)}},  {"k_skinny_gate_", {SKINNY_MARKS(MARK_TEXT)}},
              {"k_query_fused_", {QUERY_MARKS(MARK_TEXT)}},      {"k_mla_decode_mma", {DECODE_MARKS(MARK_TEXT)}},
              {"k_combine_unabsorb_", {VALUES_MARKS(MARK_TEXT)}}};

const char *gpu_block_mark(const char *kernel, int i) {
    for (size_t k = 0; k < COUNT_OF(marked); k++)
        if (!strncmp(kernel, marked[k].kernels, strlen(marked[k].kernels)))
            return i >= 0 && i < BLOCK_MARKS ? marked[k].marks[i] : NULL;
    return NULL;
}
