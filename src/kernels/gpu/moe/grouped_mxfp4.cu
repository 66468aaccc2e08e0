/* kernels/gpu/moe/grouped_mxfp4.cu: grouped.cuh's kernels for packed MXFP4 experts. */
#include "kernels/gpu/moe/grouped.cuh"

MOE_KERNELS(MXFP4, 64, grouped_mxfp4_up_64, grouped_mxfp4_down_64)
MOE_KERNELS(MXFP4, 128, grouped_mxfp4_up_128, grouped_mxfp4_down_128)
