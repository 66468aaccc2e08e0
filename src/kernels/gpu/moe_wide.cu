/* kernels/gpu/moe_wide.cu: moe_wide.cuh's kernels. */
#include "kernels/gpu/moe_wide.cuh"

KERNEL_OF(moe_up_176, gpu_moe_args, THREADS, 1) {
    SHARED_TILES(memory);
    up_all(a, memory);
}
KERNEL_OF(moe_down_176, gpu_moe_args, THREADS, 1) {
    SHARED_TILES(memory);
    if (a.again && !y_again(*a.most)) return;
    down_all(a, memory);
}
