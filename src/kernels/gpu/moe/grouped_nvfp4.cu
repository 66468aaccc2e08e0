/* kernels/gpu/moe/grouped_nvfp4.cu: grouped.cuh's kernels for packed NVFP4 experts. */
#include "kernels/gpu/moe/grouped.cuh"

MOE_KERNELS(NVFP4, 64, grouped_nvfp4_up_64, grouped_nvfp4_down_64)
MOE_KERNELS(NVFP4, 128, grouped_nvfp4_up_128, grouped_nvfp4_down_128)
