/* kernels/gpu/moe/grouped_int4_n176.cu: grouped_n176.cuh's kernels for packed INT4 experts. */
#include "kernels/gpu/moe/grouped_n176.cuh"

N176_KERNELS(GPU_W_PACKED, grouped_int4_up_176, grouped_int4_down_176)
