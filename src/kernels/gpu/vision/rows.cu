/* kernels/gpu/vision/rows.cu: what the vision tower does with rows by themselves. Each reads its inputs once and writes
 * its output once, and is bound by those bytes; a block has one row, but for the norms, where a warp has one: nothing
 * waits for another warp. Arithmetic is float32. Rows that are no pieces of 16 bytes go value by value. */
#include "kernels/gpu/device/softmax.cuh"
#include "kernels/gpu/rows/rows.cuh"
#include "kernels/gpu/vision/items.cuh"

/* pack() by the instruction for two values. */
static __device__ inline uint4 pack_pairs(const float v[PIECE]) {
    return {pair_bf16(v[0], v[1]), pair_bf16(v[2], v[3]), pair_bf16(v[4], v[5]), pair_bf16(v[6], v[7])};
}

/* v += x[c, c + PIECE) */
static __device__ inline void add_piece(float v[PIECE], const float *x, gpu_i64 c) {
    float w[PIECE];
    row_load_weight(x, c, true, w);
#pragma unroll
    for (int k = 0; k < PIECE; k++) v[k] += w[k];
}

/* ---- pixels ---- */

static __device__ inline float pixel_value(gpu_u32 byte) { return ((float)byte / 255.0f - 0.5f) * 2.0f; }

/* One block a row. */
KERNEL(pixel_rows, gpu_pixel_rows_args) {
    const gpu_u8 *from = a.pixels + blockIdx.x * a.dim;
    gpu_bf16 *out = a.out + blockIdx.x * a.out_stride;
    if (!a.wide) {
        for (gpu_i64 c = threadIdx.x; c < a.out_stride; c += GPU_THREADS)
            out[c] = c < a.dim ? bf16_of(pixel_value(from[c])) : 0;
        return;
    }
    for (gpu_i64 c = threadIdx.x * PIECE; c < a.out_stride; c += GPU_THREADS * PIECE) {
        float v[PIECE] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < PIECE; k += 4) {
            if (c + k >= a.dim) continue;
            const gpu_u32 four = *(const gpu_u32 *)(from + c + k);
#pragma unroll
            for (int i = 0; i < 4; i++) v[k + i] = pixel_value(four >> 8 * i & 255);
        }
        *(uint4 *)(out + c) = pack_pairs(v);
    }
}

/* ---- positions ---- */

/* Places of a table and their weights. The distance to the place in front is a quotient of whole numbers. */
typedef struct {
    int place[4];
    float weight[4];
} cubic_taps;

static __device__ inline cubic_taps taps_of(int at, int size, int n) {
    const long long above = (2ll * at + 1) * n - size, below = 2ll * size;
    const long long first = above < 0 ? -1 : above / below; /* above / below > -1 */
    const float b = -0.75f, f = (float)(above - first * below) / (float)below;
    cubic_taps t;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float x = fabsf(f - (float)(k - 1));
        const int place = (int)first - 1 + k;
        t.weight[k] = x <= 1 ? ((b + 2) * x - (b + 3)) * x * x + 1 : ((b * x - 5 * b) * x + 8 * b) * x - 4 * b;
        t.place[k] = place < 0 ? 0 : place < n ? place : n - 1;
    }
    return t;
}

/* What row i gets beside its bias: where the taps lie, and the row of `time` or NULL. */
typedef struct {
    cubic_taps down, across;
    const float *time;
} patch_place;

static __device__ inline patch_place place_of(const gpu_patch_position_args &a, gpu_i64 i) {
    const gpu_vision_item it = item_of<false>(a.items, a.n_items, i);
    const int at = (int)(i - it.first);
    return {taps_of(at / it.w % it.h, it.h, a.table_h), taps_of(at % it.w, it.w, a.table_w),
            it.t > 1 ? a.time + (gpu_i64)(at / it.w / it.h) * a.dim : nullptr};
}

template <bool BF16> static __device__ inline void position_of_row(const gpu_patch_position_args &a, gpu_i64 i) {
    const patch_place at = place_of(a, i);
    gpu_bf16 *x = a.x + i * a.dim;
    for (gpu_i64 c = threadIdx.x * PIECE; c < a.dim; c += GPU_THREADS * PIECE) {
        float v[PIECE], sum[PIECE];
        row_load_weight(at.time, c, at.time != nullptr, sum);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const gpu_i64 from = ((gpu_i64)at.down.place[j] * a.table_w + at.across.place[k]) * a.dim + c;
                const float weight = at.down.weight[j] * at.across.weight[k];
                if (BF16)
                    unpack(*(const uint4 *)((const gpu_bf16 *)a.table.data + from), v);
                else
                    row_load_weight((const float *)a.table.data, from, true, v);
#pragma unroll
                for (int l = 0; l < PIECE; l++) sum[l] = fmaf(weight, v[l], sum[l]);
            }
        unpack(*(const uint4 *)(x + c), v);
        add_piece(v, a.bias, c);
#pragma unroll
        for (int l = 0; l < PIECE; l++) v[l] += sum[l];
        *(uint4 *)(x + c) = pack_pairs(v);
    }
}

/* One block a row; a table in bf16 or float32. */
KERNEL_OF(patch_position, gpu_patch_position_args, GPU_THREADS, 2) {
    if (a.table.format == GPU_W_BF16)
        position_of_row<true>(a, blockIdx.x);
    else
        position_of_row<false>(a, blockIdx.x);
}

/* One block a row. */
KERNEL(patch_position_any, gpu_patch_position_args) {
    const gpu_i64 i = blockIdx.x;
    const patch_place at = place_of(a, i);
    gpu_bf16 *x = a.x + i * a.dim;
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        float sum = at.time ? at.time[c] : 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum = fmaf(at.down.weight[j] * at.across.weight[k],
                           weight_at(a.table, (gpu_i64)at.down.place[j] * a.table_w + at.across.place[k], c), sum);
        x[c] = bf16_of(f32_of(x[c]) + a.bias[c] + sum);
    }
}

/* ---- norms ---- */

enum { HELD = GPU_LAYER_NORM_WARP / 32 / PIECE /* pieces of a lane */ };

/* out = the norm of a row that a warp holds: piece p of a lane begins at column (32 p + lane) PIECE, zeros behind
 * dim. */
static __device__ inline void norm_held(float v[HELD][PIECE], const float *weight, const float *bias, gpu_i64 dim,
                                        float eps, gpu_bf16 *out) {
    const int lane = threadIdx.x % 32;
    float sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < HELD; p++)
#pragma unroll
        for (int k = 0; k < PIECE; k++) sum += v[p][k];
    const float mean = warp_sum(sum) / (float)dim;
#pragma unroll
    for (int p = 0; p < HELD; p++) {
        if ((p * 32 + lane) * PIECE >= dim) break;
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[p][k] -= mean, squares = fmaf(v[p][k], v[p][k], squares);
    }
    const float r = rsqrtf(warp_sum(squares) / (float)dim + eps);
#pragma unroll
    for (int p = 0; p < HELD; p++) {
        const gpu_i64 c = (p * 32 + lane) * PIECE;
        float w[PIECE];
        if (c >= dim) break;
        row_load_weight(weight, c, true, w);
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[p][k] *= r * w[k];
        add_piece(v[p], bias, c);
        *(uint4 *)(out + c) = pack_pairs(v[p]);
    }
}

/* The norm of any row by a block: value_of(c) is asked three times, the last time for the result. */
template <typename F>
static __device__ inline void norm_of_block(F value_of, const float *weight, const float *bias, gpu_i64 dim, float eps,
                                            gpu_bf16 *out) {
    float sum = 0, squares = 0;
    for (gpu_i64 c = threadIdx.x; c < dim; c += GPU_THREADS) sum += value_of(c, false);
    const float mean = block_sum(sum) / (float)dim;
    for (gpu_i64 c = threadIdx.x; c < dim; c += GPU_THREADS) {
        const float v = value_of(c, false) - mean;
        squares = fmaf(v, v, squares);
    }
    const float r = rsqrtf(block_sum(squares) / (float)dim + eps);
    for (gpu_i64 c = threadIdx.x; c < dim; c += GPU_THREADS)
        out[c] = bf16_of((value_of(c, true) - mean) * r * weight[c] + bias[c]);
}

/* One warp a row of at most GPU_LAYER_NORM_WARP values. The sum is normed as it was rounded. */
KERNEL_OF(layer_norm, gpu_layer_norm_args, GPU_THREADS, 3) {
    const gpu_i64 i = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (i >= a.n) return;
    const int lane = threadIdx.x % 32;
    uint4 x[HELD], add[HELD];
    float v[HELD][PIECE];
#pragma unroll
    for (int p = 0; p < HELD; p++) {
        const gpu_i64 c = (p * 32 + lane) * PIECE;
        x[p] = add[p] = {0, 0, 0, 0};
        if (c < a.dim) x[p] = *(const uint4 *)(a.x + i * a.dim + c);
        if (c < a.dim && a.add) add[p] = *(const uint4 *)(a.add + i * a.dim + c);
    }
#pragma unroll
    for (int p = 0; p < HELD; p++) {
        const gpu_i64 c = (p * 32 + lane) * PIECE;
        unpack(x[p], v[p]);
        if (c >= a.dim) continue;
        if (a.add) {
            float w[PIECE];
            unpack(add[p], w);
            add_piece(w, a.add_bias, c);
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[p][k] += w[k];
            x[p] = pack_pairs(v[p]);
            unpack(x[p], v[p]);
        }
        if (a.sum) *(uint4 *)(a.sum + i * a.dim + c) = x[p];
    }
    norm_held(v, a.weight, a.bias, a.dim, a.eps, a.out + i * a.dim);
}

/* One block a row. */
KERNEL(layer_norm_any, gpu_layer_norm_args) {
    const gpu_i64 from = blockIdx.x * a.dim;
    norm_of_block(
        [&](gpu_i64 c, bool last) {
            float v = f32_of(a.x[from + c]);
            if (a.add) v += f32_of(a.add[from + c]) + a.add_bias[c];
            const gpu_bf16 rounded = bf16_of(v);
            if (last && a.sum) a.sum[from + c] = rounded; /* may be x, which nobody reads again */
            return f32_of(rounded);
        },
        a.weight, a.bias, a.dim, a.eps, a.out + from);
}

/* ---- bias and activation ---- */

/* x / (1 + e^(-2 s)), s = sqrt(2 / pi) (x + 0.044715 x^3): by 2^y, and a quotient that is 0 where that is infinite. */
static __device__ inline float gelu_by_tanh(float x) {
    const float k = -2 * 0.79788456f * 1.44269504f;
    return __fdividef(x, 1.0f + power2(x * fmaf(k * 0.044715f, x * x, k)));
}
static __device__ inline float gelu_by_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
static __device__ inline float activated(int activation, float x) {
    return activation == GPU_BIAS_GELU_TANH ? gelu_by_tanh(x) : activation == GPU_BIAS_GELU ? gelu_by_erf(x) : x;
}

/* One block a row, three pieces of a thread under way at once. */
KERNEL(bias_act, gpu_bias_act_args) {
    enum { AT_ONCE = 3 };
    gpu_bf16 *x = a.x + blockIdx.x * a.dim;
    if (!a.wide) {
        for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS)
            x[c] = bf16_of(activated(a.activation, f32_of(x[c]) + a.bias[c]));
        return;
    }
    for (gpu_i64 from = threadIdx.x * PIECE; from < a.dim; from += AT_ONCE * GPU_THREADS * PIECE) {
        uint4 u[AT_ONCE];
#pragma unroll
        for (int p = 0; p < AT_ONCE; p++)
            if (from + p * GPU_THREADS * PIECE < a.dim) u[p] = *(const uint4 *)(x + from + p * GPU_THREADS * PIECE);
#pragma unroll
        for (int p = 0; p < AT_ONCE; p++) {
            const gpu_i64 c = from + p * GPU_THREADS * PIECE;
            float v[PIECE];
            if (c >= a.dim) break;
            unpack(u[p], v);
            add_piece(v, a.bias, c);
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[k] = activated(a.activation, v[k]);
            *(uint4 *)(x + c) = pack_pairs(v);
        }
    }
}

/* ---- rotary embedding in two dimensions ---- */

/* Two pairs, of the angle `column` and of the angle `line`. */
static __device__ inline void rotate_two(float v[4], float column_cos, float column_sin, float line_cos,
                                         float line_sin) {
    const float x = v[0], y = v[1], z = v[2], w = v[3];
    v[0] = x * column_cos - y * column_sin, v[1] = x * column_sin + y * column_cos;
    v[2] = z * line_cos - w * line_sin, v[3] = z * line_sin + w * line_cos;
}

/* One block a row. */
KERNEL(vision_rope, gpu_vision_rope_args) {
    const gpu_i64 i = blockIdx.x;
    const int dim = (int)a.dim, row = (int)a.heads * dim; /* of queries, of keys, of values */
    const gpu_vision_item it = item_of<false>(a.items, a.n_items, i);
    const int at = (int)(i - it.first);
    const float *column = a.table + (gpu_i64)(at % it.w) * (dim / 2),
                *line = a.table + (gpu_i64)(at / it.w % it.h) * (dim / 2);
    gpu_bf16 *x = a.qkv + i * 3 * row;
    if (!a.wide) {
        for (int c = threadIdx.x * 4; c < 3 * row; c += GPU_THREADS * 4) {
            const int angle = c % dim / 2; /* where its cosine lies */
            float v[4];
            for (int k = 0; k < 4; k++) v[k] = f32_of(x[c + k]) + a.bias[c + k];
            if (c < 2 * row) rotate_two(v, column[angle], column[angle + 1], line[angle], line[angle + 1]);
            for (int k = 0; k < 4; k++) x[c + k] = bf16_of(v[k]);
        }
        return;
    }
    for (int c = threadIdx.x * PIECE; c < 3 * row; c += GPU_THREADS * PIECE) {
        float v[PIECE];
        unpack(*(const uint4 *)(x + c), v);
        add_piece(v, a.bias, c);
        if (c < 2 * row) {
            const float4 t = *(const float4 *)(column + c % dim / 2), u = *(const float4 *)(line + c % dim / 2);
            rotate_two(v, t.x, t.y, u.x, u.y);
            rotate_two(v + 4, t.z, t.w, u.z, u.w);
        }
        *(uint4 *)(x + c) = pack_pairs(v);
    }
}

/* ---- patches to tokens ---- */

/* The first frame's patch of row i of the result, and the distance of the frames. */
typedef struct {
    const gpu_bf16 *x;
    gpu_i64 step;
    int frames;
} merged_patch;

static __device__ inline merged_patch merged_patch_of(const gpu_patch_merge_args &a, gpu_i64 i) {
    const gpu_vision_item it = item_of<true>(a.items, a.n_items, i / 4);
    const int at = (int)(i / 4 - it.token), which = (int)(i % 4), across = it.w / 2;
    const int y = at / across * 2 + which / 2, x = at % across * 2 + which % 2;
    return {a.x + ((gpu_i64)it.first + (gpu_i64)y * it.w + x) * a.dim, (gpu_i64)it.h * it.w * a.dim, it.t};
}

/* One warp a patch of at most GPU_LAYER_NORM_WARP values. */
KERNEL_OF(patch_merge, gpu_patch_merge_args, GPU_THREADS, 3) {
    const gpu_i64 i = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (i >= 4 * a.n) return;
    const merged_patch from = merged_patch_of(a, i);
    const float frames = (float)from.frames;
    float v[HELD][PIECE];
#pragma unroll
    for (int p = 0; p < HELD; p++)
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[p][k] = 0;
    for (int f = 0; f < from.frames; f++)
#pragma unroll
        for (int p = 0; p < HELD; p++) {
            const gpu_i64 c = (p * 32 + (int)threadIdx.x % 32) * PIECE;
            float w[PIECE];
            if (c >= a.dim) break;
            unpack(*(const uint4 *)(from.x + f * from.step + c), w);
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[p][k] += w[k];
        }
#pragma unroll
    for (int p = 0; p < HELD; p++)
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[p][k] /= frames;
    norm_held(v, a.weight, a.bias, a.dim, a.eps, a.out + i * a.dim);
}

/* One block a patch. */
KERNEL(patch_merge_any, gpu_patch_merge_args) {
    const merged_patch from = merged_patch_of(a, blockIdx.x);
    norm_of_block(
        [&](gpu_i64 c, bool) {
            float sum = 0;
            for (int f = 0; f < from.frames; f++) sum += f32_of(from.x[f * from.step + c]);
            return sum / (float)from.frames;
        },
        a.weight, a.bias, a.dim, a.eps, a.out + (gpu_i64)blockIdx.x * a.dim);
}
