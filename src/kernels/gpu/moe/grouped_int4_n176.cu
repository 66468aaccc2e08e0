/* kernels/gpu/moe/grouped_int4_n176.cu: grouped_int4_n176.cuh's kernels. */
#include "kernels/gpu/moe/grouped_int4_n176.cuh"

KERNEL_OF(grouped_int4_up_176, gpu_moe_args, GPU_GROUPED_THREADS, 1) {
    SHARED_TILES(memory);
    n176_up_all(a, memory);
}
KERNEL_OF(grouped_int4_down_176, gpu_moe_args, GPU_GROUPED_THREADS, 1) {
    SHARED_TILES(memory);
    if (a.rescale_pass && !y_needs_rescale(*a.y_amax)) return;
    n176_down_all(a, memory);
}
