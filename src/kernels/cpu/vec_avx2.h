/* kernels/cpu/vec_avx2.h: the vector layer for AVX2 with FMA (eight lanes); see vec_generic.h. */
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
#include "format/dtype.h"
#include <immintrin.h>
#include <math.h>

typedef __m256 vf;
typedef vf vb;
enum { VL = 8, KSTEP = 8, DOT_M = 2 };

static inline vf vf_set(f32 x) { return _mm256_set1_ps(x); }
static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_load(const f32 *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(f32 *p, vf v) { _mm256_storeu_ps(p, v); }
static inline vf vf_bf16(const bf16 *p) {
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline void vf_store_bf16(bf16 *p, vf v) {
    __m256i b = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), one);
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i nan = _mm256_or_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(0x40));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(r));
}
static inline __m256i vi_u8(const u8 *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline vf vf_u8(const u8 *p) { return _mm256_cvtepi32_ps(vi_u8(p)); }
/* The 7 bits of exponent and mantissa as those of a float, times 2^(127 - 7); exact, subnormals included. */
static inline vf vf_fp8(const u8 *p) {
    __m256i b = vi_u8(p), mag = _mm256_and_si256(b, _mm256_set1_epi32(0x7f));
    __m256i sign = _mm256_slli_epi32(_mm256_sub_epi32(b, mag), 24);
    __m256 f = _mm256_castsi256_ps(_mm256_slli_epi32(mag, 20));
    f = _mm256_mul_ps(f, _mm256_set1_ps(0x1p120f));
    __m256i nan = _mm256_cmpeq_epi32(mag, _mm256_set1_epi32(0x7f));
    f = _mm256_blendv_ps(f, _mm256_set1_ps(NAN), _mm256_castsi256_ps(nan));
    return _mm256_or_ps(f, _mm256_castsi256_ps(sign));
}
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_larger(vf v, vf best) { return _mm256_max_ps(v, best); }
static inline bool vf_any_nan(vf v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)); }
static inline f32 vf_sum(vf v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
/* e^x = 2^n e^r with |r| <= ln 2 / 2, Taylor to degree 7 (relative error below 2e-7). The operand order of
 * min and max keeps a NaN. */
static inline vf vf_exp(vf x) {
    x = _mm256_min_ps(_mm256_set1_ps(88.7f), _mm256_max_ps(_mm256_set1_ps(-87.3f), x));
    vf n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), 8);
    vf r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    vf p = _mm256_set1_ps(1.0f / 5040);
    p = vf_fma(p, r, vf_set(1.0f / 720));
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(126)), 23);
    /* in two steps: n = 128 has no power of two of its own */
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(e)), _mm256_set1_ps(2.0f));
}
static inline vb vb_load(const bf16 *p) { return vf_bf16(p); }
static inline vf vb_dot(vf acc, vb a, vb b) { return vf_fma(a, b, acc); }

#endif
