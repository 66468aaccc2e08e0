/* kernels/gpu/moe_wgmma_bf16.cu: moe_wgmma.cuh's kernels for bf16 experts as the checkpoint has them. */
#include "kernels/gpu/moe_wgmma.cuh"

MOE_KERNELS(PLAIN, 64, moe_bf16_up_64, moe_bf16_down_64)
MOE_KERNELS(PLAIN, 128, moe_bf16_up_128, moe_bf16_down_128)
