/* kernels/gpu/vision/items.cuh: which item a row of the vision tower belongs to, as vision_item_of() of ops.h finds
 * it. */
#ifndef KERNELS_GPU_VISION_ITEMS_CUH
#define KERNELS_GPU_VISION_ITEMS_CUH
#include "kernels/gpu/device/math.cuh"

template <bool TOKENS>
static __device__ inline gpu_vision_item item_of(const gpu_vision_item *items, gpu_i64 n_items, gpu_i64 at) {
    int low = 0, n = (int)n_items;
    while (n > 1) {
        const int half = n / 2;
        if ((TOKENS ? items[low + half].token : items[low + half].first) <= at)
            low += half, n -= half;
        else
            n = half;
    }
    return items[low];
}

static __device__ inline int item_rows(const gpu_vision_item &it) { return it.t * it.h * it.w; }

#endif
