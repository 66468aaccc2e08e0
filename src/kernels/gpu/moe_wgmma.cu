/* kernels/gpu/moe_wgmma.cu: moe_wgmma.cuh's kernels for packed INT4 experts. */
#include "kernels/gpu/moe_wgmma.cuh"

MOE_KERNELS(PACKED, 64, moe_up_64, moe_down_64)
MOE_KERNELS(PACKED, 128, moe_up_128, moe_down_128)
