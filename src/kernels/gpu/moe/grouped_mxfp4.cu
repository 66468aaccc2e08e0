/* kernels/gpu/moe/grouped_mxfp4.cu: grouped.cuh's kernels for packed MXFP4 experts: 21 instructions to expand 256
 * weights where INT4 takes 15. */
#include "kernels/gpu/moe/grouped.cuh"

MOE_KERNELS(PACKED_E2M1, 64, grouped_mxfp4_up_64, grouped_mxfp4_down_64)
MOE_KERNELS(PACKED_E2M1, 128, grouped_mxfp4_up_128, grouped_mxfp4_down_128)
