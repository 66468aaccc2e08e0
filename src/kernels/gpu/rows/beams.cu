/* kernels/gpu/rows/beams.cu: what a tree of guesses needs beside the other ops: KV rows copied, and the beams that go
 * on. Both are small: some hundred rows of a KB each, and 64 numbers a sequence. */
#include "kernels/gpu/device/math.cuh"

/* A warp a row, in pieces of 16 bytes where rows are whole ones. Grid: warps go on by as many as there are; layers. */
KERNEL(kv_copy, gpu_kv_copy_args) {
    const gpu_i64 n = a.count ? *a.count : a.most;
    const int lane = threadIdx.x % 32;
    gpu_u8 *kv = a.kv + blockIdx.y * a.layer_bytes;
    const bool pieces = ((gpu_u64)a.kv | a.bytes | a.layer_bytes) % 16 == 0;
    for (gpu_i64 i = (gpu_i64)blockIdx.x * GPU_WARPS + threadIdx.x / 32; i < n; i += (gpu_i64)gridDim.x * GPU_WARPS) {
        const gpu_i64 from = a.pairs[i].from, to = a.pairs[i].to;
        if (from < 0 || from == to) continue;
        const gpu_u8 *x = kv + (gpu_u64)from * a.bytes;
        gpu_u8 *y = kv + (gpu_u64)to * a.bytes;
        if (pieces)
            for (gpu_u64 c = lane * 16; c < a.bytes; c += 32 * 16) *(uint4 *)(y + c) = *(const uint4 *)(x + c);
        else
            for (gpu_u64 c = lane; c < a.bytes; c += 32) y[c] = x[c];
    }
}

typedef struct {
    float score[GPU_BEAMS * GPU_BEAMS]; /* of the candidates */
    int best[GPU_BEAMS], at[GPU_BEAMS]; /* the k best of them; the candidate of each place */
} beams_space;

/* The places of the k best, by one thread. */
static __device__ inline void beams_place(const gpu_draft_beams_args &a, beams_space *s) {
    int taken = 0, kept = 0; /* bits of places; of best[] that stay in their parent's */
    for (int j = 0; j < a.k; j++) {
        const int b = s->best[j] / a.k;
        if (a.beams == 1 || taken >> b & 1) continue;
        taken |= 1 << b, kept |= 1 << j;
        s->at[b] = s->best[j];
    }
    for (int j = 0, next = 0; j < a.k; j++) {
        if (kept >> j & 1) continue;
        while (taken >> next & 1) next++;
        taken |= 1 << next;
        s->at[next] = s->best[j];
    }
}

/* Grid: sequences; a warp each. */
KERNEL_OF(draft_beams, gpu_draft_beams_args, 32, 1) {
    __shared__ beams_space s;
    const gpu_i64 i = blockIdx.x;
    const int lane = threadIdx.x, all = a.beams * a.k;
    for (int c = lane; c < all; c += 32) {
        const float *logprobs = a.logprobs + (i * a.beams + c / a.k) * (1 + a.k);
        const float v = (a.beams > 1 ? a.scores[i * a.k + c / a.k] : 0.0f) + logprobs[1 + c % a.k];
        s.score[c] = logprobs[0] - logprobs[0] == 0 && v == v ? v : -INFINITY;
    }
    __syncthreads();
    for (int c = lane; c < all; c += 32) {
        int before = 0;
        for (int d = 0; d < all; d++) before += s.score[d] > s.score[c] || (s.score[d] == s.score[c] && d < c);
        if (before < a.k) s.best[before] = c;
    }
    __syncthreads();
    if (lane == 0) beams_place(a, &s);
    __syncthreads();
    if (lane < a.k) {
        const int c = s.at[lane];
        const gpu_i64 to = i * a.k + lane, row = i * a.beams + c / a.k;
        a.scores[to] = s.score[c];
        a.ids[to] = a.top_ids[row * a.k + c % a.k];
        a.from[to] = (int)row;
        a.chosen[to] = c;
    }
    for (gpu_i64 p = lane; p < a.copies * a.k; p += 32) {
        const int place = (int)(p % a.k), b = s.at[place] / a.k;
        const gpu_i64 g = p / a.k, first = g * a.slots_stride + i * a.k;
        gpu_kv_pair *to = a.pairs + g * a.n * a.k + i * a.k + place;
        to->from = b == place ? -1 : a.slots[first + b];
        to->to = a.slots[first + place];
    }
}
