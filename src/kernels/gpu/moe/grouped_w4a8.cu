/* kernels/gpu/moe/grouped_w4a8.cu: grouped_w4a8.cuh's kernels, for tiles of up to 64 and of up to 176 tokens. */
#include "kernels/gpu/moe/grouped_w4a8.cuh"

#define INT8_KERNELS(NMAX, up_name, down_name)                                                                         \
    KERNEL_OF(up_name, gpu_grouped_w4a8_args, GPU_GROUPED_THREADS, 1) {                                                \
        SHARED_TILES(memory);                                                                                          \
        w4a8_up_all<NMAX>(a, memory);                                                                                  \
    }                                                                                                                  \
    KERNEL_OF(down_name, gpu_grouped_w4a8_args, GPU_GROUPED_THREADS, 1) {                                              \
        SHARED_TILES(memory);                                                                                          \
        if (a.rescale_pass && !y_needs_rescale(*a.y_amax)) return;                                                     \
        w4a8_down_all<NMAX>(a, memory);                                                                                \
    }

INT8_KERNELS(64, grouped_w4a8_up_64, grouped_w4a8_down_64)
INT8_KERNELS(176, grouped_w4a8_up_176, grouped_w4a8_down_176)
