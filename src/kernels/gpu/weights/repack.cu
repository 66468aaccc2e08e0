/* kernels/gpu/weights/repack.cu: INT4 experts from the checkpoint's layout to int4_pack.h's, FP4 ones to
 * fp4_pack.h's, FP8 ones to fp8.cuh's, once at load.
 *
 * INT4: a thread makes a lane's 16 bytes of one block from 16 bytes of two rows; a warp reads 16 rows of 32 bytes,
 * each sector once, and writes 512 bytes in a row. Bytes: the matrix read once and written once; the disk is slower
 * by far. */
#include "kernels/gpu/device/fp4_pack.cuh"
#include "kernels/gpu/device/fp8.cuh"

static __device__ inline gpu_u32 pair_of(gpu_u8 two, int i) {
    return (gpu_u32)(two & 15) << 4 * i | (gpu_u32)(two >> 4) << (4 * i + 16);
}

/* A warp a block of the matrix, the grid going round. */
KERNEL(pack, gpu_pack_args) {
    gpu_i64 across = a.cols / PACK_COLS, blocks = a.rows / PACK_ROWS * across;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (gpu_i64 b = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32; b < blocks;
         b += (gpu_i64)gridDim.x * GPU_WARPS) {
        gpu_i64 row = b / across * PACK_ROWS + g, col = b % across * PACK_COLS;
        const gpu_u8 *upper = a.data + (row * a.cols + col) / 2 + t, *lower = upper + 4 * a.cols; /* row + 8 */
        gpu_u32 *out = (gpu_u32 *)(a.out + b * PACK_BYTES);
        for (int s = 0; s < 4; s++)
            out[4 * lane + s] = pair_of(upper[8 * s], 0) | pair_of(lower[8 * s], 1) | pair_of(upper[8 * s + 4], 2) |
                                pair_of(lower[8 * s + 4], 3);
        if (t == 0) {
            const gpu_bf16 *scale = (const gpu_bf16 *)a.scale + (row * a.cols + col) / 32;
            gpu_bf16 *to = (gpu_bf16 *)(a.out + b * PACK_BYTES + PACK_SCALES) + 4 * g;
            for (int i = 0; i < 2; i++) to[i] = scale[i], to[2 + i] = scale[8 * a.cols / 32 + i];
        }
    }
}

/* MXFP4 and NVFP4 (fp4_pack.h) likewise. */
KERNEL(pack_fp4, gpu_pack_args) {
    const bool nvfp4 = a.format == GPU_W_NVFP4;
    const int group = nvfp4 ? 16 : 32, groups = PACK_COLS / group;
    gpu_i64 across = a.cols / PACK_COLS, blocks = a.rows / PACK_ROWS * across;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (gpu_i64 b = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32; b < blocks;
         b += (gpu_i64)gridDim.x * GPU_WARPS) {
        gpu_i64 row = b / across * PACK_ROWS + g, col = b % across * PACK_COLS;
        const gpu_u8 *data = a.data + (row * a.cols + col) / 2 + t,
                     *scale = (const gpu_u8 *)a.scale + (row * a.cols + col) / group;
        const gpu_i64 data_8 = 4 * a.cols, scale_8 = 8 * a.cols / group; /* to row + 8 */
        gpu_u8 *out = a.out + b * PACK_BYTES, *scales = out + PACK_SCALES + 8 * g;
        for (int s = 0; s < 4; s++) {
            gpu_u32 word = 0;
            for (int pair = 0; pair < 4; pair++) {
                gpu_u8 two = data[pair % 2 * data_8 + 8 * s + pair / 2 * 4];
                if (nvfp4) two = nvfp4_nibbles(two, scale[pair % 2 * scale_8 + s]);
                word |= to_fp4_pair(two & 15, two >> 4, pair);
            }
            ((gpu_u32 *)out)[4 * lane + s] = word;
        }
        for (int i = t; i < 2 * groups; i += 4) {
            const gpu_u8 is = scale[i / groups * scale_8 + i % groups];
            if (nvfp4)
                scales[i] = nvfp4_multiplier(is);
            else
                ((gpu_bf16 *)scales)[i] = mxfp4_multiplier(is);
        }
    }
}

static __device__ inline gpu_u32 byte_of(const gpu_u32 in[4], int i) { return in[i / 4] >> 8 * (i % 4) & 255; }

/* A thread 16 columns. Bytes: the matrix read once and written once. */
KERNEL(fp8_pairs, gpu_pairs_args) {
    gpu_i64 across = a.cols / 16, all = a.rows * across;
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x; i < all; i += (gpu_i64)gridDim.x * GPU_THREADS) {
        uint4 u = ((const uint4 *)a.data)[i];
        const gpu_u32 in[4] = {u.x, u.y, u.z, u.w};
        gpu_u32 out[4], bad = 0;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            bad |= (in[t] & 0x7f7f7f7fu) + 0x01010101u; /* no byte carries into the next */
            out[t] = to_pair0(byte_of(in, 2 * t), byte_of(in, 2 * t + 1)) |
                     to_pair1(byte_of(in, 8 + 2 * t), byte_of(in, 9 + 2 * t));
        }
        ((uint4 *)a.data)[i] = {out[0], out[1], out[2], out[3]};
        if (bad & 0x80808080u) a.scale[i / across / 128 * (a.cols / 128) + i % across / 8] = bits_f32(0x7fc00000u);
    }
}

/* A warp a row. Multipliers of -255 and -256 would leave their byte (grouped_w4a8.cuh), so that a negative scale counts
 * for two steps more. */
KERNEL(row_max_scale, gpu_row_scales_args) {
    gpu_i64 across = a.cols / PACK_COLS, row = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (row >= a.rows) return;
    const gpu_u8 *strip =
        a.blocks + row / PACK_ROWS * across * PACK_BYTES + PACK_SCALES + row % 8 * 8 + row / 8 % 2 * 4;
    gpu_u32 most = 0;
    for (gpu_i64 b = threadIdx.x % 32; b < across; b += 32)
        for (int i = 0; i < 2; i++) {
            const gpu_u32 bits = ((const gpu_bf16 *)(strip + b * PACK_BYTES))[i],
                          of = (bits & 0x7fffu) + (bits >> 15) * 2;
            if (of > most) most = of < 0x7fffu ? of : 0x7fffu; /* NaN is above all */
        }
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0) a.most[row] = (gpu_bf16)most;
}
