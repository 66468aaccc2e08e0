/* kernels/gpu/moe/grouped_mxfp4_n176.cu: grouped_n176.cuh's kernels for packed MXFP4 experts. */
#include "kernels/gpu/moe/grouped_n176.cuh"

N176_KERNELS(GPU_W_PACKED_MXFP4, grouped_mxfp4_up_176, grouped_mxfp4_down_176)
