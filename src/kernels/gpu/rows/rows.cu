/* kernels/gpu/rows/rows.cu: what works on rows by themselves. Each reads its inputs once and writes its output once, 16
 * bytes at a time where addresses and sizes allow; all are bound by bytes or by the launch. */
#include "kernels/gpu/device/fp4_pack.cuh"
#include "kernels/gpu/rows/rows.cuh"

static __device__ inline int rows_pieces_of(const void *a, const void *b, gpu_i64 n) {
    return ((gpu_u64)a | (gpu_u64)b | (gpu_u64)n * 2) % 16 == 0;
}

/* One block a row. */
KERNEL(embed, gpu_embed_args) {
    gpu_i64 i = blockIdx.x, cols = a.table.cols;
    int id = a.ids[i];
    if (id < 0 && a.drawn) id = a.drawn[~id];
    if (id >= 0 && a.map) id = a.map[id];
    const bool real = id >= 0;
    id -= (int)a.first;
    bool known = real && id >= 0 && id < a.table.rows;
    gpu_bf16 *out = a.out + i * cols;
    const gpu_bf16 *from = (const gpu_bf16 *)a.table.data + (known ? id * cols : 0);
    if (a.table.format == GPU_W_BF16 && rows_pieces_of(from, out, cols)) {
        for (gpu_i64 c = threadIdx.x * PIECE; c < cols; c += GPU_THREADS * PIECE) {
            uint4 u = {0, 0, 0, 0};
            if (known) u = *(const uint4 *)(from + c);
            *(uint4 *)(out + c) = u;
        }
        return;
    }
    for (gpu_i64 c = threadIdx.x; c < cols; c += GPU_THREADS) out[c] = known ? bf16_of(weight_at(a.table, id, c)) : 0;
}

/* ---- RMSNorm ---- */

/* Rows of up to PER * THREADS pieces, held in registers: 2 or 4 bytes a value read, 2 or 4 written. The weight is
 * read before the kernel in front has ended and kept, or (AGAIN) found in the cache row by row, which leaves room
 * for more threads. The sum is rounded before the norm, because that is what the next layer adds to. */
template <int THREADS, int PER, bool AGAIN>
static __device__ inline void norm_rows(const gpu_norm_args &a, gpu_i64 row, gpu_i64 step) {
    float weight[AGAIN ? 1 : PER][PIECE];
#pragma unroll
    for (int p = 0; !AGAIN && p < PER; p++) {
        gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
        row_load_weight(a.weight, c, c < a.dim, weight[p]);
    }
    pdl_wait();
    for (; row < a.n; row += step) {
        const gpu_bf16 *x = a.x + row * a.x_stride, *add = a.add + row * a.x_stride;
        uint4 sum[PER], more[PER];
        float squares = 0;
        bool bad = false;
#pragma unroll
        for (int p = 0; p < PER; p++) {
            gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
            sum[p] = more[p] = {0, 0, 0, 0};
            if (c < a.dim) sum[p] = *(const uint4 *)(x + c);
            if (c < a.dim && a.add) more[p] = *(const uint4 *)(add + c);
        }
#pragma unroll
        for (int p = 0; p < PER; p++) {
            float v[PIECE], w[PIECE];
            if (a.add) {
                unpack(sum[p], v), unpack(more[p], w);
#pragma unroll
                for (int k = 0; k < PIECE; k++) v[k] += w[k];
                sum[p] = pack(v);
            }
            unpack(sum[p], v);
#pragma unroll
            for (int k = 0; k < PIECE; k++) squares = fmaf(v[k], v[k], squares);
        }
        squares = block_sum_of<THREADS / 32>(squares);
        float r = rsqrtf(squares / (float)a.dim + a.eps);
#pragma unroll
        for (int p = 0; p < PER; p++) {
            gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
            float v[PIECE];
            if (c >= a.dim) continue;
            if (AGAIN) row_load_weight(a.weight, c, true, weight[0]);
            if (a.sum) *(uint4 *)(a.sum + row * a.x_stride + c) = sum[p];
            unpack(sum[p], v);
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * weight[AGAIN ? 0 : p][k];
            *(uint4 *)(a.out + row * a.out_stride + c) = pack(v);
            bad |= has_bad(sum[p]);
        }
        mark_row(a.bad, a.mark, row, squares, bad);
    }
}

/* The norm of many finished rows: blocks that stay, with the weight in shared memory (a thread reads what it wrote)
 * and the next row on its way into registers. Bytes: 4 a value. */
template <int THREADS, int PER> static __device__ inline void norm_stream(const gpu_norm_args &a) {
    __shared__ float4 weight[PER][2][THREADS];
    uint4 next[PER];
#pragma unroll
    for (int p = 0; p < PER; p++) {
        gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
        float w[PIECE];
        row_load_weight(a.weight, c, c < a.dim, w);
        weight[p][0][threadIdx.x] = {w[0], w[1], w[2], w[3]}, weight[p][1][threadIdx.x] = {w[4], w[5], w[6], w[7]};
        next[p] = {0, 0, 0, 0};
    }
    pdl_wait();
#pragma unroll
    for (int p = 0; p < PER; p++) {
        gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
        if (c < a.dim) next[p] = *(const uint4 *)(a.x + blockIdx.x * a.x_stride + c);
    }
    for (gpu_i64 row = blockIdx.x; row < a.n; row += gridDim.x) {
        uint4 u[PER];
        float squares = 0, v[PIECE];
        bool bad = false;
#pragma unroll
        for (int p = 0; p < PER; p++) {
            gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
            u[p] = next[p];
            if (c < a.dim && row + gridDim.x < a.n)
                next[p] = *(const uint4 *)(a.x + (row + gridDim.x) * a.x_stride + c);
            unpack(u[p], v);
#pragma unroll
            for (int k = 0; k < PIECE; k++) squares = fmaf(v[k], v[k], squares);
        }
        squares = block_sum_of<THREADS / 32>(squares);
        float r = rsqrtf(squares / (float)a.dim + a.eps);
#pragma unroll
        for (int p = 0; p < PER; p++) {
            gpu_i64 c = (gpu_i64)(p * THREADS + threadIdx.x) * PIECE;
            if (c >= a.dim) continue;
            unpack(u[p], v);
            const float4 w0 = weight[p][0][threadIdx.x], w1 = weight[p][1][threadIdx.x];
            const float w[PIECE] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
#pragma unroll
            for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * w[k];
            *(uint4 *)(a.out + row * a.out_stride + c) = pack(v);
            bad |= has_bad(u[p]);
        }
        mark_row(a.bad, a.mark, row, squares, bad);
    }
}

/* Any row, in two passes. */
static __device__ inline void norm_any_row(const gpu_norm_args &a, gpu_i64 row) {
    const gpu_bf16 *x = a.x + row * a.x_stride, *add = a.add ? a.add + row * a.x_stride : nullptr;
    float squares = 0;
    bool bad = false;
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        float v = f32_of(add ? bf16_of(f32_of(x[c]) + f32_of(add[c])) : x[c]);
        squares = fmaf(v, v, squares);
    }
    squares = block_sum(squares);
    float r = rsqrtf(squares / (float)a.dim + a.eps);
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) {
        gpu_bf16 h = add ? bf16_of(f32_of(x[c]) + f32_of(add[c])) : x[c];
        if (a.sum) a.sum[row * a.x_stride + c] = h;
        a.out[row * a.out_stride + c] = bf16_of(f32_of(h) * r * a.weight[c]);
        bad |= is_bad(h);
    }
    mark_row(a.bad, a.mark, row, squares, bad);
}

/* One block a row. norm: up to 2 pieces a thread, few rows; norm_many: many; norm_plain: many, nothing added;
 * norm_short: one piece a thread. */
KERNEL_PDL(norm, gpu_norm_args, GPU_NORM_THREADS, 2) {
    norm_rows<GPU_NORM_THREADS, 2, false>(a, blockIdx.x, gridDim.x);
}
KERNEL_PDL(norm_many, gpu_norm_args, GPU_NORM_THREADS, 3) {
    norm_rows<GPU_NORM_THREADS, 2, true>(a, blockIdx.x, gridDim.x);
}
KERNEL_PDL(norm_plain, gpu_norm_args, GPU_PLAIN_THREADS, GPU_PLAIN_BLOCKS) {
    norm_stream<GPU_PLAIN_THREADS, GPU_PLAIN_PIECES>(a);
}
KERNEL_PDL(norm_short, gpu_norm_args, GPU_THREADS, 6) { norm_rows<GPU_THREADS, 1, false>(a, blockIdx.x, gridDim.x); }
KERNEL(norm_any, gpu_norm_args) { norm_any_row(a, blockIdx.x); }

/* One block a row. */
KERNEL(finish_rows, gpu_finish_args) {
    gpu_bf16 *x = a.x + blockIdx.x * a.x_stride;
    float scale = deferred_scale(a.deferred, blockIdx.x);
    for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) x[c] = bf16_of(f32_of(x[c]) * scale);
}

/* ---- rotary embedding ---- */

/* cos and sin of x in [-2^31, 2^31], by Taylor's series after taking off quarter turns; errors below 1e-11
 * (positions reach 262,144, and the library's own reduction of large arguments takes longer than the rest of the
 * step's small kernels). */
static __device__ inline void rows_turn(double x, double *cosine, double *sine) {
    double quarters = rint(x * 0.63661977236758134308);
    double r = fma(-quarters, 1.57079632679489655800e+00, x);
    r = fma(-quarters, 6.12323399573676603587e-17, r);
    double q = r * r;
    double s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = fma(s, q, 1.0 / 362880), c = fma(c, q, -1.0 / 3628800);
    s = fma(s, q, -1.0 / 5040), c = fma(c, q, 1.0 / 40320);
    s = fma(s, q, 1.0 / 120), c = fma(c, q, -1.0 / 720);
    s = fma(s, q, -1.0 / 6), c = fma(c, q, 1.0 / 24);
    s = fma(s * q, r, r), c = fma(fma(c, q, -0.5), q, 1.0);
    int k = (int)((long long)quarters & 3);
    *cosine = k == 0 ? c : k == 1 ? -s : k == 2 ? -c : s;
    *sine = k == 0 ? s : k == 1 ? c : k == 2 ? -s : -c;
}

/* One thread an angle, in double. */
KERNEL(rope_table, gpu_rope_table_args) {
    gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x;
    if (at >= a.n * a.half) return;
    double c, s;
    rows_turn((double)a.positions[at / a.half] * a.inv_freq[at % a.half], &c, &s);
    a.table[2 * at] = (float)(c * a.mscale);
    a.table[2 * at + 1] = (float)(s * a.mscale);
}

/* One thread a piece of a head, or a pair where pieces do not fit. */
KERNEL(rope_q, gpu_rope_q_args) {
    gpu_i64 at = (gpu_i64)blockIdx.x * GPU_THREADS + threadIdx.x, width = a.nope + a.rope;
    if (((gpu_u64)a.q | (gpu_u64)a.table | (gpu_u64)(a.nope | a.rope) * 2) % 16 == 0) {
        gpu_i64 each = a.rope / PIECE, head = at / each, c = at % each * PIECE;
        if (head >= a.n * a.heads) return;
        uint4 *x = (uint4 *)(a.q + head * width + a.nope + c);
        float v[PIECE];
        unpack(*x, v);
        rotate(v, a.table + head / a.heads * a.rope + c);
        *x = pack(v);
        return;
    }
    for (; at < a.n * a.heads * (a.rope / 2); at += (gpu_i64)gridDim.x * GPU_THREADS) {
        gpu_i64 j = at % (a.rope / 2), head = at / (a.rope / 2);
        gpu_bf16 *x = a.q + head * width + a.nope + 2 * j;
        const float *cs = a.table + head / a.heads * a.rope + 2 * j;
        float even = f32_of(x[0]), odd = f32_of(x[1]);
        x[0] = bf16_of(even * cs[0] - odd * cs[1]);
        x[1] = bf16_of(even * cs[1] + odd * cs[0]);
    }
}

/* ---- the row of the KV cache ---- */

/* Row i by one block, any widths. */
static __device__ inline void kv_any_row(const gpu_kv_write_args &a, gpu_i64 i) {
    gpu_i64 width = a.latent + a.rope, base = a.slots[i] * width;
    if (base < 0) return; /* another rank's */
    const gpu_bf16 *x = a.kv_a + i * width;
    const float *cs = a.table + i * a.rope;
    float squares = 0;
    for (gpu_i64 c = threadIdx.x; c < a.latent; c += GPU_THREADS) squares = fmaf(f32_of(x[c]), f32_of(x[c]), squares);
    float r = rsqrtf(block_sum(squares) / (float)a.latent + a.eps);
    for (gpu_i64 c = threadIdx.x; c < a.latent; c += GPU_THREADS)
        kv_set(a.kv, a.kv_type, base + c, f32_of(x[c]) * r * a.norm[c]);
    for (gpu_i64 j = threadIdx.x; j < a.rope / 2; j += GPU_THREADS) {
        float even = f32_of(x[a.latent + 2 * j]), odd = f32_of(x[a.latent + 2 * j + 1]);
        kv_set(a.kv, a.kv_type, base + a.latent + 2 * j, even * cs[2 * j] - odd * cs[2 * j + 1]);
        kv_set(a.kv, a.kv_type, base + a.latent + 2 * j + 1, even * cs[2 * j + 1] + odd * cs[2 * j]);
    }
}

static __device__ inline void one_kv_row(const gpu_kv_write_args &a, gpu_i64 i) {
    __shared__ float each[GPU_WARPS];
    kv_row<GPU_WARPS>(a, i, each);
}

/* One block a row; kv_write_any: no pieces. */
KERNEL_PDL(kv_write, gpu_kv_write_args, GPU_THREADS, 6) { one_kv_row(a, blockIdx.x); }
KERNEL(kv_write_any, gpu_kv_write_args) { kv_any_row(a, blockIdx.x); }

/* The norm of the queries' latent rows and the KV rows beside each other, if both are short. Grid: rows, 2. */
KERNEL_PDL(latent_norm_kv_write, gpu_latent_norm_kv_write_args, GPU_THREADS, 6) {
    if (blockIdx.y)
        one_kv_row(a.kv, blockIdx.x);
    else
        norm_rows<GPU_THREADS, 1, false>(a.q, blockIdx.x, gridDim.x);
}

/* Row i by one warp, which holds it: MOST pieces a lane. */
template <int MOST> static __device__ inline void norm_row_of_warp(const gpu_norm_args &a, gpu_i64 i) {
    const gpu_bf16 *x = a.x + i * a.x_stride;
    gpu_bf16 *out = a.out + i * a.out_stride;
    int lane = threadIdx.x % 32;
    uint4 u[MOST];
    float squares = 0;
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        gpu_i64 c = (p * 32 + lane) * PIECE;
        u[p] = {0, 0, 0, 0};
        if (c < a.dim) u[p] = *(const uint4 *)(x + c);
    }
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        float v[PIECE];
        unpack(u[p], v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) squares = fmaf(v[k], v[k], squares);
    }
    float r = rsqrtf(warp_sum(squares) / (float)a.dim + a.eps);
#pragma unroll
    for (int p = 0; p < MOST; p++) {
        gpu_i64 c = (p * 32 + lane) * PIECE;
        float v[PIECE], w[PIECE];
        if (c >= a.dim) break;
        unpack(u[p], v);
        row_load_weight(a.weight, c, true, w);
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[k] = v[k] * r * w[k];
        *(uint4 *)(out + c) = pack(v);
    }
}

/* latents of many rows, a row a warp: nothing waits for another warp. Grid: rows / GPU_WARPS, 2. */
KERNEL_OF(latent_norm_kv_write_many, gpu_latent_norm_kv_write_args, GPU_THREADS, 4) {
    gpu_i64 i = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32;
    if (i >= a.q.n) return;
    if (blockIdx.y)
        kv_row_of_warp<GPU_WARP_KV / 32 / PIECE>(a.kv, i);
    else
        norm_row_of_warp<GPU_WARP_NORM / 32 / PIECE>(a.q, i);
}

/* ---- */

/* One block a row. */
KERNEL(gather, gpu_gather_args) {
    gpu_i64 i = blockIdx.x;
    const gpu_bf16 *x = a.x + (a.rows ? a.rows[i] : i) * a.x_stride;
    gpu_bf16 *out = a.out + i * a.out_stride;
    if (rows_pieces_of(x, out, a.dim))
        for (gpu_i64 c = threadIdx.x * PIECE; c < a.dim; c += GPU_THREADS * PIECE)
            *(uint4 *)(out + c) = *(const uint4 *)(x + c);
    else
        for (gpu_i64 c = threadIdx.x; c < a.dim; c += GPU_THREADS) out[c] = x[c];
}

/* Grid: rows, stretches of GPU_FINITE values. Blocks of a row may write the same mark. */
KERNEL(mark_nonfinite, gpu_mark_nonfinite_args) {
    gpu_i64 i = blockIdx.x, from = (gpu_i64)blockIdx.y * GPU_FINITE, to = min64(from + GPU_FINITE, a.dim);
    bool bad = false;
    if (a.type == GPU_BF16) {
#pragma unroll 4
        for (gpu_i64 c = from + threadIdx.x; c < to; c += GPU_THREADS)
            bad |= is_bad(((const gpu_bf16 *)a.x)[i * a.stride + c]);
    } else {
#pragma unroll 8
        for (gpu_i64 c = from + threadIdx.x; c < to; c += GPU_THREADS)
            bad |= (((const gpu_u32 *)a.x)[i * a.stride + c] & 0x7f800000u) == 0x7f800000u;
    }
    if (__syncthreads_or(bad) && threadIdx.x == 0 && a.bad[i] == 0) a.bad[i] = a.mark;
}

/* splitmix64 (Steele, Lea and Flood 2014) of a counter. */
static __device__ inline gpu_u64 random_bits(gpu_u64 seed, gpu_u64 at) {
    gpu_u64 z = (seed << 40) + at * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* The sum of four uniforms, variance 1. */
static __device__ inline float normal(gpu_u64 b) {
    int sum = (int)(b & 0xffff) + (int)(b >> 16 & 0xffff) + (int)(b >> 32 & 0xffff) + (int)(b >> 48);
    return (float)(sum - 131070) * (1.7320508f / 65536.0f);
}

/* One thread an element, the grid going round. */
KERNEL(fill, gpu_fill_args) {
    for (gpu_u64 i = (gpu_u64)blockIdx.x * GPU_THREADS + threadIdx.x; i < a.n; i += (gpu_u64)gridDim.x * GPU_THREADS) {
        gpu_u64 b = random_bits(a.seed, i);
        float scale = 0.003f + 0.002f * (float)(b & 0xffff) / 65536.0f;
        if (a.kind == GPU_FILL_BF16) ((gpu_bf16 *)a.out)[i] = bf16_of(normal(b) * a.sigma);
        if (a.kind == GPU_FILL_FP8) ((gpu_u8 *)a.out)[i] = fp8_of(normal(b) * 64.0f);
        if (a.kind == GPU_FILL_BYTES) ((gpu_u8 *)a.out)[i] = (gpu_u8)b;
        if (a.kind == GPU_FILL_SCALE_BYTE) ((gpu_u8 *)a.out)[i] = (gpu_u8)a.seed;
        if (a.kind == GPU_FILL_SCALE_BF16) ((gpu_bf16 *)a.out)[i] = bf16_of(b >> 63 ? scale : -scale);
        if (a.kind == GPU_FILL_SCALE_F32) ((float *)a.out)[i] = a.sigma / 64.0f;
        if (a.kind == GPU_FILL_PACKED_MXFP4 || a.kind == GPU_FILL_PACKED_NVFP4) { /* scales of 2^-9 to 2^-6 */
            bool bits = i % (PACK_BYTES / 4) < PACK_SCALES / 4, mxfp4 = a.kind == GPU_FILL_PACKED_MXFP4;
            gpu_u32 first = 118 + (gpu_u32)(b & 3), second = 118 + (gpu_u32)(b >> 2 & 3);
            gpu_u32 scales = mxfp4 ? mxfp4_multiplier(first) | (gpu_u32)mxfp4_multiplier(second) << 16
                                   : nvfp4_multiplier(0x70) * 0x01010101u ^ ((gpu_u32)b & 0x07070707u);
            ((gpu_u32 *)a.out)[i] = bits ? (gpu_u32)b : scales;
        }
        if (a.kind == GPU_FILL_PACKED) { /* nibbles, or two scales */
            float second = 0.003f + 0.002f * (float)(b >> 16 & 0xffff) / 65536.0f;
            gpu_u32 scales = bf16_of(b >> 63 ? scale : -scale) | (gpu_u32)bf16_of(b >> 62 & 1 ? second : -second) << 16;
            gpu_u64 word = i % (PACK_BYTES / 4);
            if (a.across && word >= PACK_SCALES / 4) { /* of a row, wherever in it */
                gpu_u64 two = word - PACK_SCALES / 4,
                        own = random_bits(~a.seed, i / (PACK_BYTES / 4) / a.across * 16 + two / 2 + two % 2 * 8);
                second = 0.003f + 0.002f * (float)(own & 0xffff) / 65536.0f;
                scales = bf16_of(own >> 63 ? second : -second) * 0x10001u;
            }
            ((gpu_u32 *)a.out)[i] = word < PACK_SCALES / 4 ? (gpu_u32)b : scales;
        }
    }
}
