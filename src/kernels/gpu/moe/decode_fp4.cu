/* kernels/gpu/moe/decode_fp4.cu: routed experts at few tokens in MXFP4 and NVFP4 as fp4_pack.h lays them out: sort,
 * gate and up, SiLU, down in one launch; a short one before it, or the gate's, zeroes what it counts, and moe_combine
 * adds a token's slots.
 *
 * Groups, items, teams and the ring are decode_int4.cu's. What differs: x and h are bf16, up to 8 tokens are the
 * columns of one product (mma.m16n8k16), and a weight is expanded to bf16 with its scale, exactly, so that sums are
 * float32 of the tensor cores alone, in an order that does not depend on other rows. As whole numbers e2m1 takes two
 * products and a table, or NVFP4's groups of 16 four sums a block, where INT4 needs one product and two sums.
 *
 * A block of 576 bytes takes a warp 52 instructions to expand, 4 (MXFP4) to 16 (NVFP4) more for its multipliers, and
 * some 12 to load and multiply: of 118 that the memory's bandwidth leaves time for (4.35 TB/s). */
#include "kernels/gpu/device/fp4_expand.cuh"
#include "kernels/gpu/moe/decode_fp4.h"
#include "kernels/gpu/moe/decode_packed.cuh"

enum { WRITERS = 4 * DECODE_INT4_UP_STRIPS /* warps that write an item's h */ };

typedef packed_ring<DECODE_FP4_X_STRIDE, DECODE_FP4_H_STRIDE> fp4_ring;

/* What a lane takes of eight rows of a block's 64 columns. */
typedef struct {
    gpu_u32 of[2][4];
} fp4_rows;
template <int STRIDE> static __device__ __forceinline__ fp4_rows fp4_rows_at(const gpu_u8 *rows) {
    int lane = threadIdx.x % 32;
    fp4_rows x;
    ldmatrix4(x.of[0], rows + lane % 8 * STRIDE + lane / 8 * 16);
    ldmatrix4(x.of[1], rows + lane % 8 * STRIDE + 64 + lane / 8 * 16);
    return x;
}

/* sums += the block times eight tokens: lane 4 g + t has rows g and g + 8 of tokens 2 t and 2 t + 1. */
template <int F>
static __device__ __forceinline__ void fp4_multiply(const packed_weights &w, const fp4_rows &x, float sums[4]) {
#pragma unroll
    for (int s = 0; s < 4; s++) {
        gpu_u32 word = s == 0 ? w.word.x : s == 1 ? w.word.y : s == 2 ? w.word.z : w.word.w, multiplier[2], a[4];
        fp4_multipliers<F>(w.scale, s, multiplier);
        expand_fp4(word, multiplier, a);
        mma_bf16(sums, a, x.of[s / 2] + s % 2 * 2);
    }
}

/* The warps' sums of an item together, silu(gate) * up to h; the i-th item of this block. Two halves of the memory in
 * turn: the other one may still be read. */
static __device__ inline void fp4_finish_up(const gpu_decode_fp4_args &p, const decode_int4_block &b, int2 group,
                                            int first, int i, float scale, const float gate[4], const float up[4]) {
    enum { VALUES = 8 };
    const gpu_decode_int4_args &a = p.f;
    float *all = b.sums + i % 2 * DECODE_INT4_WARPS * VALUES * 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int v = 0; v < VALUES; v++) all[(warp * VALUES + v) * 32 + lane] = v < 4 ? gate[v] : up[v - 4];
    named_barrier_sync(1, DECODE_INT4_WARPS * 32);
    if (warp >= WRITERS) return;
    int strip = warp / 4, which = warp % 4, token = lane % 4 * 2 + which % 2,
        row = (first + strip) * PACK_ROWS + lane / 4 + which / 2 * 8;
    float of_gate = 0, of_up = 0;
    all += (strip * DECODE_INT4_UP_ACROSS * VALUES + which) * 32 + lane;
#pragma unroll 4
    for (int w = 0; w < DECODE_INT4_UP_ACROSS; w++)
        of_gate += all[w * VALUES * 32], of_up += all[(w * VALUES + 4) * 32];
    if (token >= (group.y & 255) || row >= a.inter) return;
    const gpu_matrix *m = p.experts + 3 * (gpu_i64)group.x; /* down's factor is in h */
    p.h[(gpu_i64)b.pair[(group.y >> 8) + token] * a.inter + row] =
        bf16_of(silu(of_gate * scale * m[0].factor) * (of_up * scale * m[1].factor * m[2].factor));
}

/* A warp's part of a slot of up: a block of gate, one of up, and the rows of x. */
typedef struct {
    packed_weights gate, up;
    fp4_rows x;
} fp4_unit;
static __device__ __forceinline__ fp4_unit fp4_unit_at(const gpu_u8 *slot, int warp, int unit) {
    return {packed_weights_at(slot + warp * PACK_BYTES),
            packed_weights_at(slot + DECODE_INT4_WEIGHTS / 2 + warp * PACK_BYTES),
            fp4_rows_at<DECODE_FP4_X_STRIDE>(slot + DECODE_INT4_WEIGHTS + unit * (2 * PACK_COLS))};
}

template <int F>
static __device__ inline void fp4_compute_up(const gpu_decode_fp4_args &args, const decode_int4_block &b,
                                             decode_place *p) {
    const gpu_decode_int4_args &a = args.f;
    int warp = threadIdx.x / 32, across = a.hidden / PACK_COLS, chunks = up_chunks(a),
        strip = warp / DECODE_INT4_UP_ACROSS, unit = warp % DECODE_INT4_UP_ACROSS, i = 0;
    bool writes = warp < WRITERS;
    for (;; i++) {
        const gpu_u8 *slot = await_slot<fp4_ring>(a, b, ALL, p);
        int item = b.items[p->slot];
        if (item < 0) break;
        int2 group = b.groups[item / chunks];
        int token = threadIdx.x % 4 * 2 + warp % 2, first = item % chunks * DECODE_INT4_UP_STRIPS;
        bool mine = (first + strip) * PACK_ROWS < a.inter;
        float gate[4] = {}, up[4] = {},
              scale = writes && token < (group.y & 255) ? ld_cg1(a.x_scale + b.token[(group.y >> 8) + token]) : 0;
        fp4_unit units[2]; /* while one is multiplied the next is on its way to registers */
        units[0] = fp4_unit_at(slot, warp, unit);
        bool more = true;
#pragma unroll 1
        for (int c = unit; more;) {
#pragma unroll
            for (int u = 0; u < 2 && more; u++) {
                const bool here = mine && c < across;
                give_slot(b, *p, 1);
                skip_slots<fp4_ring>(a, p, 1);
                c += DECODE_INT4_UP_ACROSS;
                more = c - unit < across;
                if (more) units[1 - u] = fp4_unit_at(await_slot<fp4_ring>(a, b, ALL, p), warp, unit);
                if (here) {
                    fp4_multiply<F>(units[u].gate, units[u].x, gate);
                    fp4_multiply<F>(units[u].up, units[u].x, up);
                }
            }
        }
        fp4_finish_up(args, b, group, first, i, scale, gate, up);
        if (writes) say_done(b, i, item);
    }
    if (writes) say_done(b, i, -1);
    give_slot(b, *p, 1);
    skip_slots<fp4_ring>(a, p, 1);
}

/* Blocks of a strip times the rows of h behind them in the slot, alternately to two sums. */
template <int F, int BLOCKS>
static __device__ __forceinline__ void fp4_multiply_strip(const gpu_u8 *data, const gpu_u8 *rows, float sums[2][4]) {
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
        fp4_multiply<F>(packed_weights_at(data + i * PACK_BYTES),
                        fp4_rows_at<DECODE_FP4_H_STRIDE>(rows + i * (2 * PACK_COLS)), sums[i % 2]);
}

template <int F>
static __device__ inline void fp4_compute_down(const gpu_decode_fp4_args &args, const decode_int4_block &b,
                                               decode_place *p) {
    const gpu_decode_int4_args &a = args.f;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, team = warp / DECODE_INT4_STRIPS,
        mine = warp % DECODE_INT4_STRIPS, across = a.inter / PACK_COLS, all = a.hidden / PACK_ROWS,
        chunks = down_chunks(a);
    p->phases = 0; /* its barriers are new */
    skip_slots<fp4_ring>(a, p, team);
    for (;;) {
        const gpu_u8 *slot = await_slot<fp4_ring>(a, b, TEAM + team, p);
        int item = b.items[p->slot];
        if (item < 0) return;
        int2 group = b.groups[item / chunks];
        int strip = item % chunks * DECODE_INT4_WARPS + warp;
        float sums[2][4] = {};
#pragma unroll 1
        for (int c = 0;;) {
            int blocks = across - c < DECODE_INT4_DEEP ? across - c : DECODE_INT4_DEEP;
            const gpu_u8 *data = slot + mine * blocks * PACK_BYTES, *rows = slot + DECODE_INT4_WEIGHTS;
            if (strip < all) {
                if (blocks == DECODE_INT4_DEEP)
                    fp4_multiply_strip<F, DECODE_INT4_DEEP>(data, rows, sums);
                else
                    for (int i = 0; i < blocks; i++)
                        fp4_multiply_strip<F, 1>(data + i * PACK_BYTES, rows + i * (2 * PACK_COLS), sums);
            }
            give_slot(b, *p, DECODE_INT4_TEAMS);
            skip_slots<fp4_ring>(a, p, DECODE_INT4_TEAMS);
            c += DECODE_INT4_DEEP;
            if (c >= across) break;
            slot = await_slot<fp4_ring>(a, b, TEAM + team, p);
        }
        if (strip >= all) continue;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int token = lane % 4 * 2 + i;
            if (token >= (group.y & 255)) break;
            float *y = a.y + (gpu_i64)b.pair[(group.y >> 8) + token] * a.hidden + strip * PACK_ROWS + lane / 4;
            y[0] = sums[0][i] + sums[1][i];
            y[8] = sums[0][2 + i] + sums[1][2 + i];
        }
    }
}

template <int F> static __device__ inline void decode_fp4_experts(const gpu_decode_fp4_args &args) {
    const gpu_decode_int4_args &a = args.f;
    decode_int4_block b = decode_int4_memory(a);
    decode_place p = {0, 0, 0};
    int warp = threadIdx.x / 32;
    for (int e = threadIdx.x; e < a.experts; e += DECODE_INT4_THREADS) b.cursor[e] = 0;
    decode_ring_init<fp4_ring>(a, b, WRITERS);
    if (a.prepared) pdl_wait();
    /* else what it reads was written before decode_fp4_begin, which began when that was there */
    decode_sort<DECODE_FP4_TOKENS>(a, b);
    if (!a.prepared) pdl_wait();
    if (warp < DECODE_INT4_WARPS) {
        fp4_compute_up<F>(args, b, &p);
        fp4_compute_down<F>(args, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 2 && threadIdx.x % 32 == 0) {
        count_items(a, b, up_chunks(a));
    } else if (warp == DECODE_INT4_WARPS) {
        copy_packed_up<fp4_ring>(a, b, &p);
        copy_packed_down<fp4_ring>(a, b, &p);
    } else if (warp == DECODE_INT4_WARPS + 1) {
        copy_x<fp4_ring>(a, b, &p, (const gpu_u8 *)a.x, a.hidden / PACK_COLS, up_chunks(a));
        copy_h<fp4_ring>(a, b, &p, (const gpu_u8 *)args.h, a.inter / PACK_COLS, down_chunks(a), up_chunks(a));
    }
}
/* Grid: as many blocks as processors. */
KERNEL_PDL(decode_mxfp4, gpu_decode_fp4_args, DECODE_INT4_THREADS, 1) { decode_fp4_experts<GPU_W_PACKED_MXFP4>(a); }
KERNEL_PDL(decode_nvfp4, gpu_decode_fp4_args, DECODE_INT4_THREADS, 1) { decode_fp4_experts<GPU_W_PACKED_NVFP4>(a); }

/* A warp a token: what its norm has yet to multiply x with; what is counted begins at zero. */
KERNEL_OF(decode_fp4_begin, gpu_decode_fp4_args, DECODE_INT4_ROWS_THREADS, 1) {
    const gpu_decode_int4_args &f = a.f;
    int token = blockIdx.x * (DECODE_INT4_ROWS_THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (blockIdx.x == 0 && threadIdx.x < 2) f.work_counter[threadIdx.x] = 0;
    if (token * f.k >= f.pairs) return;
    for (int i = lane; i < f.k; i += 32) f.finished[token * f.k + i] = 0;
    float scale = f.deferred.squares ? deferred_scale(f.deferred, token) : 1.0f;
    if (lane == 0) f.x_scale[token] = scale;
}
