/* kernels/gpu/moe/grouped_nvfp4_n176.cu: grouped_n176.cuh's kernels for packed NVFP4 experts. */
#include "kernels/gpu/moe/grouped_n176.cuh"

N176_KERNELS(GPU_W_PACKED_NVFP4, grouped_nvfp4_up_176, grouped_nvfp4_down_176)
