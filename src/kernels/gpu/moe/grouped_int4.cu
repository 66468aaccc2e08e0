/* kernels/gpu/moe/grouped_int4.cu: grouped.cuh's kernels for packed INT4 experts. */
#include "kernels/gpu/moe/grouped.cuh"

MOE_KERNELS(PACKED, 64, grouped_int4_up_64, grouped_int4_down_64)
MOE_KERNELS(PACKED, 128, grouped_int4_up_128, grouped_int4_down_128)
