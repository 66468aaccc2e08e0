/* kernels/gpu/moe/grouped_int4_n176.cu: grouped_int4_n176.cuh's kernels. */
#include "kernels/gpu/moe/grouped_int4_n176.cuh"

KERNEL_OF(grouped_int4_up_176, gpu_moe_args, THREADS, 1) {
    SHARED_TILES(memory);
    up_all(a, memory);
}
KERNEL_OF(grouped_int4_down_176, gpu_moe_args, THREADS, 1) {
    SHARED_TILES(memory);
    if (a.again && !y_again(*a.most)) return;
    down_all(a, memory);
}
