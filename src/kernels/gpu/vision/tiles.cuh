/* kernels/gpu/vision/tiles.cuh: which rows of which item a block of the attention has. How many tiles the items have
 * is known on the GPU alone. */
#ifndef KERNELS_GPU_VISION_TILES_CUH
#define KERNELS_GPU_VISION_TILES_CUH
#include "kernels/gpu/vision/items.cuh"

/* What block `tile` of a head works on: items have whole tiles of `rows` rows. */
typedef struct {
    gpu_i64 first;   /* the item's first row */
    int from, count; /* the tile's first row within the item; rows of the item, 0: there is no such tile */
} vision_tile;

static __device__ inline vision_tile tile_of(const gpu_vision_item *items, gpu_i64 n_items, int tile, int rows) {
    const int lane = threadIdx.x % 32;
    for (gpu_i64 base = 0; base < n_items; base += 32) {
        const bool here = base + lane < n_items;
        const int count = here ? item_rows(items[base + lane]) : 0, first = here ? items[base + lane].first : 0;
        int upto = (count + rows - 1) / rows; /* tiles of these items so far */
        const int own = upto;
        for (int d = 1; d < 32; d *= 2) {
            const int before = __shfl_up_sync(~0u, upto, d);
            if (lane >= d) upto += before;
        }
        const gpu_u32 found = __ballot_sync(~0u, upto > tile);
        if (found) {
            const int which = __popc((found & (0u - found)) - 1);
            const int begin = __shfl_sync(~0u, upto - own, which);
            return {__shfl_sync(~0u, first, which), (tile - begin) * rows, __shfl_sync(~0u, count, which)};
        }
        tile -= __shfl_sync(~0u, upto, 31);
    }
    return {0, 0, 0};
}

#endif
