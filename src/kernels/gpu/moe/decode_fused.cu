/* kernels/gpu/moe/decode_fused.cu: routed experts of up to four tokens in one launch, from the gate's choice to the
 * sum with the shared expert.
 *
 * decode_int4.cu takes three launches and two trips through memory, which at so few tokens last longer than the
 * weights. Here
 *   x      becomes digits (int16_split.cuh) in every block by itself, while the first weights are on their way;
 *   up     items (expert, 16 rows of gate and of up), a sixteenth of the columns a warp, as in decode_int4.cu; h
 *          goes through memory, where a word that is not zero is there: no fence, and a counter only to know when
 *          to look;
 *   h      of all pairs becomes digits in every block, each 64 values by themselves; meanwhile the first weights of
 *          down come;
 *   down   items of 16 rows of the result, with all experts: their blocks of 16 x 64 weights go round the warps,
 *          whose sums, each times its pair's weight, are added in shared memory in the order of the warps. No
 *          products of pairs in memory, no sum behind.
 *
 * Column t of every product is token t, chosen or not: experts of several tokens are read once. Blocks wait for each
 * other's h: the grid is at most the processors. Items of up, and where that takes long of down, are taken as there is
 * room in the ring (decode_int4.cu tells why). How a row is summed depends on which experts the other rows have.
 *
 * Bytes: experts * (3 inter hidden) * 9/16: 25 MB at 1 token of a TP8 rank of Kimi-K2.5, 5.7 us at 4.35 TB/s. */
#include "kernels/gpu/moe/decode_fused.cuh"

template <int TOKENS> static __device__ inline void decode_int4_one(const gpu_decode_fused_args &a, gpu_u8 *memory) {
    decode_fused_block b = fused_block_of(a, memory);
    pipeline p = ring_begin(b);
    open_ring(a, b);
    const up_item first = up_item_of(a, blockIdx.x);
    pdl_wait();
    if (threadIdx.x / 32 == COPIER) {
        if (threadIdx.x % 32 == 0) b.s->turn = (int)ld_words2(a.words).x; /* DECODE_FUSED_TURN */
        plan_pairs(a, b.s, a.ids, a.weights);
        named_barrier_arrive(2, MULTIPLIERS + 32);
        fused_copy_up(a, b, first, &p);
        fused_copy_down<false>(a, b, &p, 1);
        leave_call(a, b.s->turn);
        return;
    }
    digits_of_x<TOKENS, false>(a, b, [] {});
    named_barrier_sync(2, MULTIPLIERS + 32); /* digits and plan */
    int turn = b.s->turn;
    gpu_u32 *h = a.h + turn * DECODE_FUSED_H;
    clear_other(a, turn);
    fused_compute_up(a, b, h, &p);
    await_h(a, b, turn);
    multipliers_sync(); /* digits of h come where those of x were */
    fused_digits_of_h(a, b, h);
    multipliers_sync();
    fused_compute_down<false, TOKENS == 1 ? 4 : 8>(a, b, &p);
}

/* Grid: as many blocks as processors, at most. By the most tokens that they take: fewer instructions that have to
 * come first. */
KERNEL_PDL(decode_fused_1, gpu_decode_fused_args, (WARPS + 1) * 32, 1) {
    SHARED_TILES(memory);
    decode_int4_one<1>(a, memory);
}
KERNEL_PDL(decode_fused_4, gpu_decode_fused_args, (WARPS + 1) * 32, 1) {
    SHARED_TILES(memory);
    decode_int4_one<DECODE_INT4_TILE>(a, memory);
}
