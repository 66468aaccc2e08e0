/* kernels/gpu/few_one.cu: routed experts of up to four tokens in one launch, from the gate's choice to the sum with
 * the shared expert.
 *
 * few.cu takes three launches and two trips through memory, which at so few tokens last longer than the weights.
 * Here
 *   x      becomes digits (few_digits.cuh) in every block by itself, while the first weights are on their way;
 *   up     items (expert, 16 rows of gate and of up), a sixteenth of the columns a warp, as in few.cu; h goes
 *   through memory, where a word
 *          that is not zero is there: no counter, no fence;
 *   h      of all pairs becomes digits in every block, each 64 values by themselves; meanwhile the first weights of
 *   down come;
 *   down   items of 16 rows of the result, with all experts: their blocks of 16 x 64 weights go round the warps,
 *   whose sums, each times its
 *          pair's weight, are added in shared memory in the order of the warps. No products of pairs in memory, no
 *          sum behind.
 *
 * Column t of every product is token t, chosen or not: experts of several tokens are read once. Blocks wait for each
 * other's h: the grid is at most the processors. Items are taken as there is room in the ring (few.cu tells why).
 * How a row is summed depends on which experts the other rows have.
 *
 * Bytes: experts * (3 inter hidden) * 9/16: 25 MB at 1 token of a TP8 rank of Kimi-K2.5, 5.7 us at 4.35 TB/s. */
#include "kernels/gpu/few_one.cuh"

template <int TOKENS> static __device__ inline void few_one(const gpu_few_one_args &a, gpu_u8 *memory) {
    few_one_block b = block_of(a, memory);
    one_place p = {0, 0};
    open_ring(a, b);
    after_previous();
    if (threadIdx.x / 32 == COPIER) {
        if (threadIdx.x % 32 == 0) b.s->turn = (int)load_words2(a.words).x; /* FEW_ONE_TURN */
        plan_pairs(a, b.s, a.ids, a.weights);
        threads_arrive(2, MULTIPLIERS + 32);
        copy_up(a, b, &p);
        copy_down<false>(a, b, &p);
        leave_call(a, b.s->turn);
        return;
    }
    digits_of_x<TOKENS, false>(a, b, [] {});
    threads_sync(2, MULTIPLIERS + 32); /* digits and plan */
    int turn = b.s->turn;
    gpu_u32 *h = a.h + turn * FEW_ONE_H;
    clear_other(a, turn);
    compute_up(a, b, h, &p);
    multipliers_sync(); /* digits of h come where those of x were */
    digits_of_h(a, b, h);
    multipliers_sync();
    compute_down<false>(a, b, &p);
}

/* Grid: as many blocks as processors, at most. By the most tokens that they take: fewer instructions that have to
 * come first. */
KERNEL_EARLY(few_one_1, gpu_few_one_args, (WARPS + 1) * 32, 1) {
    SHARED_TILES(memory);
    few_one<1>(a, memory);
}
KERNEL_EARLY(few_one_4, gpu_few_one_args, (WARPS + 1) * 32, 1) {
    SHARED_TILES(memory);
    few_one<FEW_TILE>(a, memory);
}
