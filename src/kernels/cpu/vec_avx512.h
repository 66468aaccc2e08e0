/* kernels/cpu/vec_avx512.h: the vector layer for AVX-512 (sixteen lanes); see vec_generic.h. With
 * VEC_DPBF16 dot products of bf16 use VDPBF16PS, which takes two elements a lane. */
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
#include "format/dtype.h"
#include <immintrin.h>
#include <math.h>

typedef __m512 vf;

static inline vf vf_set(f32 x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_load(const f32 *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(f32 *p, vf v) { _mm512_storeu_ps(p, v); }
static inline vf vf_bf16(const bf16 *p) {
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
static inline void vf_store_bf16(bf16 *p, vf v) {
    __m512i b = _mm512_castps_si512(v), high = _mm512_srli_epi32(b, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}
static inline __m512i vi_u8(const u8 *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vf vf_u8(const u8 *p) { return _mm512_cvtepi32_ps(vi_u8(p)); }
/* The 7 bits of exponent and mantissa as those of a float, times 2^(127 - 7); exact, subnormals included. */
static inline vf vf_fp8(const u8 *p) {
    __m512i b = vi_u8(p), mag = _mm512_and_si512(b, _mm512_set1_epi32(0x7f));
    __m512i sign = _mm512_slli_epi32(_mm512_sub_epi32(b, mag), 24);
    vf f = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(mag, 20)), _mm512_set1_ps(0x1p120f));
    f = _mm512_mask_mov_ps(f, _mm512_cmpeq_epi32_mask(mag, _mm512_set1_epi32(0x7f)), _mm512_set1_ps(NAN));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(f), sign));
}
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_larger(vf v, vf best) { return _mm512_max_ps(v, best); }
static inline bool vf_any_nan(vf v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q); }
static inline f32 vf_sum(vf v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
/* out[i] = vf_sum(v[i]), the same additions of four at a time. */
static inline void vf_sum4(f32 *out, const vf v[4]) {
    vf a = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44), _mm512_shuffle_f32x4(v[0], v[1], 0xee));
    vf b = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44), _mm512_shuffle_f32x4(v[2], v[3], 0xee));
    vf s = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s)));
}
#define VF_SUM4
/* e^x = 2^n e^r with |r| <= ln 2 / 2, Taylor to degree 7 (relative error below 2e-7). The operand order of
 * min and max keeps a NaN. */
static inline vf vf_exp(vf x) {
    x = _mm512_min_ps(_mm512_set1_ps(88.7f), _mm512_max_ps(_mm512_set1_ps(-87.3f), x));
    vf n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    vf r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    vf p = _mm512_set1_ps(1.0f / 5040);
    p = vf_fma(p, r, vf_set(1.0f / 720));
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    return _mm512_scalef_ps(p, n);
}
#ifdef VEC_DPBF16
enum { VL = 16, KSTEP = 32, DOT_M = 4 };
typedef __m512i vb;
static inline vb vb_load(const bf16 *p) { return _mm512_loadu_si512(p); }
static inline vf vb_dot(vf acc, vb a, vb b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }
#else
enum { VL = 16, KSTEP = 16, DOT_M = 4 };
typedef vf vb;
static inline vb vb_load(const bf16 *p) { return vf_bf16(p); }
static inline vf vb_dot(vf acc, vb a, vb b) { return vf_fma(a, b, acc); }
#endif

#endif
