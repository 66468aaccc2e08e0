/* kernels/sampling/sample_weight.h: the weight of a token in a draw, the same whole number on every processor.
 *
 * A token whose logit is `below` under the largest gets 2^39 * exp(-below / temperature), rounded in a way that is
 * written out here step by step (float32, no fused multiply-add). Sums of whole numbers do not depend on their
 * order, so every backend draws the same token from the same logits. Weights below 2^-1 are 0: such tokens (10^-12
 * of the best) are never drawn. Included by C and by device code. */
#ifndef KERNELS_SAMPLING_SAMPLE_WEIGHT_H
#define KERNELS_SAMPLING_SAMPLE_WEIGHT_H

#if defined(__CUDACC__) || defined(AMD_GPU)
#define SAMPLE_WEIGHT           static __device__ inline
#define SAMPLE_WEIGHT_MUL(a, b) __fmul_rn(a, b)
#define SAMPLE_WEIGHT_ADD(a, b) __fadd_rn(a, b)
#else
#define SAMPLE_WEIGHT           static inline
#define SAMPLE_WEIGHT_MUL(a, b) ((a) * (b))
#define SAMPLE_WEIGHT_ADD(a, b) ((a) + (b))
#endif

enum { SAMPLE_WEIGHT_BITS = 39 };

/* scale: log2(e) / temperature, finite. The powers of 2 between whole ones by their series: 2e-7 of the weight. */
SAMPLE_WEIGHT unsigned long long sample_weight(float below, float scale) {
    float t = SAMPLE_WEIGHT_MUL(below, scale);
    if (!(t < 40.0f)) return 0;
    float shifted = SAMPLE_WEIGHT_ADD(t, 12582912.0f),
          whole = SAMPLE_WEIGHT_ADD(shifted, -12582912.0f); /* 3 * 2^22: rounds to a whole one */
    float f = SAMPLE_WEIGHT_ADD(whole, -t);                 /* -1/2..1/2, exact */
    float p = 1.5403530e-4f;                                /* ln(2)^k / k! */
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 1.3333558e-3f);
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 9.6181291e-3f);
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 5.5504109e-2f);
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 2.4022651e-1f);
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 6.9314718e-1f);
    p = SAMPLE_WEIGHT_ADD(SAMPLE_WEIGHT_MUL(p, f), 1.0f);
    unsigned m = (unsigned)SAMPLE_WEIGHT_MUL(p, 16777216.0f); /* exact: 2^23.5..2^24.5 */
    return ((unsigned long long)m << (SAMPLE_WEIGHT_BITS - 24)) >> (int)whole;
}

#endif
