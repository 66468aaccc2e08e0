/* kernels/cpu/vec_int8_avx2.h: what moe_int8_tmpl.h needs of AVX2: eight rows side by side, products of bytes by
 * VPMADDUBSW. With VEC_VNNI by VPDPBUSD in its 256-bit form (AVX-VNNI). */
#ifndef KERNELS_CPU_INT8_H
#define KERNELS_CPU_INT8_H
#include "kernels/cpu/vec_avx2.h"

typedef __m256i vi;

static inline vi vi_set(i32 x) { return _mm256_set1_epi32(x); }
static inline vi vi_load(const void *p) { return _mm256_load_si256(p); }
static inline void vi_store(void *p, vi v) { _mm256_store_si256(p, v); }
static inline vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
static inline vi vi_add8(vi a, vi b) { return _mm256_add_epi8(a, b); }
static inline vi vi_high_nibbles(vi v) { return _mm256_srli_epi16(v, 4); }
static inline vf vi_f32(vi v) { return _mm256_cvtepi32_ps(v); }
static inline vf vi_low_bf16(vi v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
static inline vf vi_high_bf16(vi v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}
/* Byte `i` of each lane, e8m0, as the float32 that it stands for; 255 as infinity. */
static inline vf vi_e8m0(vi v, int i) {
    vi b = _mm256_and_si256(_mm256_srl_epi32(v, _mm_cvtsi32_si128(8 * i)), vi_set(255));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(b, 23), vi_set(1 << 22)));
}
/* Byte `i` of each lane, e4m3, as half the float32 that it stands for. */
static inline vf vi_e4m3_half(vi v, int i) {
    vi b = _mm256_srai_epi32(_mm256_sll_epi32(v, _mm_cvtsi32_si128(24 - 8 * i)), 4);
    vi mag = _mm256_and_si256(b, vi_set(0x07f00000));
    vf f = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(b, vi_set((int)0x87f00000))), vf_set(0x1p119f));
    return _mm256_or_ps(f, _mm256_castsi256_ps(_mm256_cmpeq_epi32(mag, vi_set(0x07f00000)))); /* all ones: NaN */
}
/* The byte that a table of 16 has for each byte, 0..15. */
static inline vi vi_look_up(const u8 table[16], vi v) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), v);
}

/* start + the products of unsigned bytes w and signed bytes x, four in a lane: begun with dot_first(), ended by
 * dot_last(). */
#ifdef VEC_VNNI
typedef vi vdot;
enum { DOT_CHAINS = 2, DOT_MOST = 1 << 20 };
static inline vdot dot_first(vi start, vi w, vi x) { return _mm256_dpbusd_avx_epi32(start, w, x); }
static inline vdot dot_next(vdot d, vi w, vi x) { return _mm256_dpbusd_avx_epi32(d, w, x); }
static inline vi dot_last(vi start, vdot d) { return (void)start, d; }
/* The same of INT8: sums of 32 bits; w has WIDE_ZERO added to it, and x is not -128. */
enum { WIDE_ZERO = 128 };
static inline vi wide_first(vi start, vi w, vi x) { return dot_first(start, w, x); }
static inline vi wide_next(vi d, vi w, vi x) { return dot_next(d, w, x); }
#else
typedef __m256i vdot; /* sixteen sums of 16 bits */
enum { DOT_CHAINS = 1, DOT_MOST = 32767 };
static inline vdot dot_first(vi start, vi w, vi x) { return (void)start, _mm256_maddubs_epi16(w, x); }
static inline vdot dot_next(vdot d, vi w, vi x) {
    __asm__("" : "+x"(d)); /* in this order: GCC would first have all products, more than there are registers */
    return _mm256_add_epi16(d, _mm256_maddubs_epi16(w, x));
}
static inline vi dot_last(vi start, vdot d) {
    return _mm256_add_epi32(start, _mm256_madd_epi16(d, _mm256_set1_epi16(1)));
}
enum { WIDE_ZERO = 0 };
static inline vi wide_product(vi w, vi x) { /* |w| times x with the sign of w: two of 128 * 127 fit 16 bits */
    vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
static inline vi wide_first(vi start, vi w, vi x) { return (void)start, wide_product(w, x); }
static inline vi wide_next(vi d, vi w, vi x) {
    __asm__("" : "+x"(d));
    return _mm256_add_epi32(d, wide_product(w, x));
}
#endif
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }

/* z[g][a], n <= 4 groups of 16 bytes from byte `at` of 8 rows: row a + 4 L in 128-bit lane L. */
static inline void load_groups(const u8 *const *row, i64 at, i64 n, vi z[4][4]) {
    for (i64 g = 0; g < n; g++)
        for (int a = 0; a < 4; a++)
            z[g][a] = _mm256_inserti128_si256(
                _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(row[a] + at + g * 16))),
                _mm_loadu_si128((const __m128i *)(row[a + 4] + at + g * 16)), 1);
}

/* The same of 16 bytes a row, n <= 16 of them there. */
static inline __m128i load_16(const u8 *p, i64 n) {
    if (n == 16) return _mm_loadu_si128((const __m128i *)p);
    if (n == 8) return _mm_loadl_epi64((const __m128i *)p);
    u8 b[16] = {0};
    memcpy(b, p, (size_t)n);
    return _mm_loadu_si128((const __m128i *)b);
}
static inline void load_bytes(const u8 *const *row, i64 at, i64 n, vi z[4]) {
    for (int a = 0; a < 4; a++)
        z[a] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(row[a] + at, n)), load_16(row[a + 4] + at, n), 1);
}

/* y[d], lane = row: dword d of the 16 bytes that row a + 4 L has in lane L of z[a]. */
static inline void transpose_dwords(const vi z[4], vi y[4]) {
    vi u0 = _mm256_unpacklo_epi32(z[0], z[1]), u1 = _mm256_unpackhi_epi32(z[0], z[1]);
    vi u2 = _mm256_unpacklo_epi32(z[2], z[3]), u3 = _mm256_unpackhi_epi32(z[2], z[3]);
    y[0] = _mm256_unpacklo_epi64(u0, u2);
    y[1] = _mm256_unpackhi_epi64(u0, u2);
    y[2] = _mm256_unpacklo_epi64(u1, u3);
    y[3] = _mm256_unpackhi_epi64(u1, u3);
}

static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline f32 vf_highest(vf v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
static inline f32 vf_lowest(vf v) {
    __m128 s = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_min_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_min_ss(s, _mm_shuffle_ps(s, s, 1)));
}
static inline bool vf_finite(vf v) {
    const __m256i ones = _mm256_set1_epi32(0x7f800000);
    return !_mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(v), ones), ones));
}
/* Eight of -128..127, rounded to nearest even; returns their sum. */
static inline i32 vf_store_i8(i8 *out, vf v) {
    __m256i q = _mm256_cvtps_epi32(v);
    q = _mm256_max_epi32(_mm256_set1_epi32(-128), _mm256_min_epi32(_mm256_set1_epi32(127), q));
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)out, _mm_packs_epi16(w, w));
    __m128i s = _mm_madd_epi16(w, _mm_set1_epi16(1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* For moe_w4a8_tmpl.h; see vec_int8_avx512.h. Here a row has whole vectors of 32 bytes of codes. */
static inline vi vi_load_codes(const u8 *p, i64 n) { return (void)n, _mm256_loadu_si256((const __m256i *)p); }
static inline void vi_widen(vi codes, const i16 m[2], vi out[2]) {
    i32 both;
    memcpy(&both, m, sizeof both);
    const vi which = _mm256_set_epi16(0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0100, 0x0100,
                                      0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100);
    const vi times = _mm256_shuffle_epi8(vi_set(both), which);
    const vi below =
        _mm256_broadcastsi128_si256(_mm_setr_epi16(-16384, -14336, -12288, -10240, -8192, -6144, -4096, -2048));
    const vi above = _mm256_broadcastsi128_si256(_mm_setr_epi16(0, 2048, 4096, 6144, 8192, 10240, 12288, 14336));
    vi table = _mm256_packs_epi16(_mm256_mulhrs_epi16(below, times), _mm256_mulhrs_epi16(above, times));
    if (WIDE_ZERO) table = vi_xor(table, vi_set((i32)0x80808080));
    const vi low = vi_set(0x0f0f0f0f);
    out[0] = _mm256_shuffle_epi8(table, vi_and(codes, low));
    out[1] = _mm256_shuffle_epi8(table, vi_and(vi_high_nibbles(codes), low));
}
static inline vi vi_sums(const vi v[8]) {
    vi a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    vi b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return vi_add(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}
static inline void vf_store_low16(i16 *p, vf v) {
    const vi low = vi_and(_mm256_castps_si256(v), vi_set(0xffff));
    const vi both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(both));
}

#endif
