/* kernels/cpu/vec_int8_avx512.h: what moe_int8_tmpl.h needs of AVX-512 (F, BW, VL, DQ): sixteen rows side by side; see
 * vec_int8_avx2.h. With VEC_VNNI products of bytes are VPDPBUSD, else VPMADDUBSW. */
#ifndef KERNELS_CPU_INT8_H
#define KERNELS_CPU_INT8_H
#include "kernels/cpu/vec_avx512.h"

typedef __m512i vi;

static inline vi vi_set(i32 x) { return _mm512_set1_epi32(x); }
static inline vi vi_load(const void *p) { return _mm512_load_si512(p); }
static inline void vi_store(void *p, vi v) { _mm512_store_si512(p, v); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static inline vi vi_add8(vi a, vi b) { return _mm512_add_epi8(a, b); }
static inline vi vi_high_nibbles(vi v) { return _mm512_srli_epi16(v, 4); }
static inline vf vi_f32(vi v) { return _mm512_cvtepi32_ps(v); }
static inline vf vi_low_bf16(vi v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
static inline vf vi_high_bf16(vi v) {
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
}
/* Byte `i` of each lane, e8m0, as the float32 that it stands for; 255 as infinity. */
static inline vf vi_e8m0(vi v, int i) {
    vi b = _mm512_and_si512(_mm512_srl_epi32(v, _mm_cvtsi32_si128(8 * i)), vi_set(255));
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(b, 23), vi_set(1 << 22)));
}
/* Byte `i` of each lane, e4m3, as half the float32 that it stands for. */
static inline vf vi_e4m3_half(vi v, int i) {
    vi b = _mm512_srai_epi32(_mm512_sll_epi32(v, _mm_cvtsi32_si128(24 - 8 * i)), 4);
    vi mag = _mm512_and_si512(b, vi_set(0x07f00000));
    vf f = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(b, vi_set((int)0x87f00000))), vf_set(0x1p119f));
    return _mm512_mask_mov_ps(f, _mm512_cmpeq_epi32_mask(mag, vi_set(0x07f00000)), vf_set(NAN));
}
static inline vi vi_look_up(const u8 table[16], vi v) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), v);
}

#ifdef VEC_VNNI
typedef vi vdot;
enum { DOT_CHAINS = 2, DOT_MOST = 1 << 20 };
static inline vdot dot_first(vi start, vi w, vi x) { return _mm512_dpbusd_epi32(start, w, x); }
static inline vdot dot_next(vdot d, vi w, vi x) { return _mm512_dpbusd_epi32(d, w, x); }
static inline vi dot_last(vi start, vdot d) { return (void)start, d; }
enum { WIDE_ZERO = 128 };
static inline vi wide_first(vi start, vi w, vi x) { return dot_first(start, w, x); }
static inline vi wide_next(vi d, vi w, vi x) { return dot_next(d, w, x); }
#else
typedef __m512i vdot; /* 32 sums of 16 bits */
enum { DOT_CHAINS = 1, DOT_MOST = 32767 };
static inline vdot dot_first(vi start, vi w, vi x) { return (void)start, _mm512_maddubs_epi16(w, x); }
static inline vdot dot_next(vdot d, vi w, vi x) {
    __asm__("" : "+v"(d)); /* in this order: GCC would first have all products, more than there are registers */
    return _mm512_add_epi16(d, _mm512_maddubs_epi16(w, x));
}
static inline vi dot_last(vi start, vdot d) {
    return _mm512_add_epi32(start, _mm512_madd_epi16(d, _mm512_set1_epi16(1)));
}
enum { WIDE_ZERO = 0 };
static inline vi wide_product(vi w, vi x) { /* |w| times x with the sign of w: two of 128 * 127 fit 16 bits */
    vi turned = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_abs_epi8(w), turned), _mm512_set1_epi16(1));
}
static inline vi wide_first(vi start, vi w, vi x) { return (void)start, wide_product(w, x); }
static inline vi wide_next(vi d, vi w, vi x) {
    __asm__("" : "+v"(d));
    return _mm512_add_epi32(d, wide_product(w, x));
}
#endif
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }

/* z[g][a], n <= 4 groups of 16 bytes from byte `at` of 16 rows: row a + 4 L in 128-bit lane L. */
static inline void load_groups(const u8 *const *row, i64 at, i64 n, vi z[4][4]) {
    __mmask16 have = (__mmask16)((1u << (4 * n)) - 1);
    for (int a = 0; a < 4; a++) {
        __m512i r0 = _mm512_maskz_loadu_epi32(have, row[a] + at);
        __m512i r1 = _mm512_maskz_loadu_epi32(have, row[a + 4] + at);
        __m512i r2 = _mm512_maskz_loadu_epi32(have, row[a + 8] + at);
        __m512i r3 = _mm512_maskz_loadu_epi32(have, row[a + 12] + at);
        __m512i t0 = _mm512_shuffle_i32x4(r0, r1, 0x44), t1 = _mm512_shuffle_i32x4(r2, r3, 0x44);
        __m512i t2 = _mm512_shuffle_i32x4(r0, r1, 0xee), t3 = _mm512_shuffle_i32x4(r2, r3, 0xee);
        z[0][a] = _mm512_shuffle_i32x4(t0, t1, 0x88);
        z[1][a] = _mm512_shuffle_i32x4(t0, t1, 0xdd);
        z[2][a] = _mm512_shuffle_i32x4(t2, t3, 0x88);
        z[3][a] = _mm512_shuffle_i32x4(t2, t3, 0xdd);
    }
}

/* The same of 16 bytes a row, n <= 16 of them there. */
static inline void load_bytes(const u8 *const *row, i64 at, i64 n, vi z[4]) {
    __mmask16 have = (__mmask16)((1u << n) - 1);
    for (int a = 0; a < 4; a++) {
        z[a] = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(have, row[a] + at));
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi8(have, row[a + 4] + at), 1);
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi8(have, row[a + 8] + at), 2);
        z[a] = _mm512_inserti32x4(z[a], _mm_maskz_loadu_epi8(have, row[a + 12] + at), 3);
    }
}

/* y[d], lane = row: dword d of the 16 bytes that row a + 4 L has in lane L of z[a]. */
static inline void transpose_dwords(const vi z[4], vi y[4]) {
    vi u0 = _mm512_unpacklo_epi32(z[0], z[1]), u1 = _mm512_unpackhi_epi32(z[0], z[1]);
    vi u2 = _mm512_unpacklo_epi32(z[2], z[3]), u3 = _mm512_unpackhi_epi32(z[2], z[3]);
    y[0] = _mm512_unpacklo_epi64(u0, u2);
    y[1] = _mm512_unpackhi_epi64(u0, u2);
    y[2] = _mm512_unpacklo_epi64(u1, u3);
    y[3] = _mm512_unpackhi_epi64(u1, u3);
}

static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline f32 vf_highest(vf v) { return _mm512_reduce_max_ps(v); }
static inline f32 vf_lowest(vf v) { return _mm512_reduce_min_ps(v); }
static inline bool vf_finite(vf v) {
    const __m512i ones = _mm512_set1_epi32(0x7f800000);
    return !_mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(v), ones), ones);
}
static inline i32 vf_store_i8(i8 *out, vf v) {
    __m512i q = _mm512_cvtps_epi32(v);
    q = _mm512_max_epi32(_mm512_set1_epi32(-128), _mm512_min_epi32(_mm512_set1_epi32(127), q));
    _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(q));
    return _mm512_reduce_add_epi32(q);
}

/* For moe_w4a8_tmpl.h. 64 bytes of a row's codes, of which n are there. */
static inline vi vi_load_codes(const u8 *p, i64 n) {
    return _mm512_maskz_loadu_epi8(n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1, p);
}
/* out[0] of the low nibbles, out[1] of the high ones: (nibble - 8) * m / 16 to nearest, ties up, as bytes, plus
 * WIDE_ZERO; m[g] of the g-th sixteen bytes. VPMULHRSW is a product divided by 2^15 so. */
static inline void vi_widen(vi codes, const i16 m[4], vi out[2]) {
    i64 all;
    memcpy(&all, m, sizeof all);
    const vi which =
        _mm512_set_epi16(0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0504, 0x0504, 0x0504, 0x0504,
                         0x0504, 0x0504, 0x0504, 0x0504, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302,
                         0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100);
    const vi times = _mm512_shuffle_epi8(_mm512_set1_epi64(all), which);
    const vi below = _mm512_broadcast_i32x4(_mm_setr_epi16(-16384, -14336, -12288, -10240, -8192, -6144, -4096, -2048));
    const vi above = _mm512_broadcast_i32x4(_mm_setr_epi16(0, 2048, 4096, 6144, 8192, 10240, 12288, 14336));
    vi table = _mm512_packs_epi16(_mm512_mulhrs_epi16(below, times), _mm512_mulhrs_epi16(above, times));
    if (WIDE_ZERO) table = vi_xor(table, vi_set((i32)0x80808080));
    const vi low = vi_set(0x0f0f0f0f);
    out[0] = _mm512_shuffle_epi8(table, vi_and(codes, low));
    out[1] = _mm512_shuffle_epi8(table, vi_and(vi_high_nibbles(codes), low));
}
/* Lane i: the sum of v[i]'s. */
static inline vi vi_sums(const vi v[16]) {
    vi s[4];
    for (int i = 0; i < 4; i++) {
        const vi *a = v + 4 * i;
        vi p = vi_add(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
        vi q = vi_add(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
        s[i] = vi_add(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));
    }
    vi a = vi_add(_mm512_shuffle_i32x4(s[0], s[1], 0x44), _mm512_shuffle_i32x4(s[0], s[1], 0xee));
    vi b = vi_add(_mm512_shuffle_i32x4(s[2], s[3], 0x44), _mm512_shuffle_i32x4(s[2], s[3], 0xee));
    return vi_add(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
/* The low halves of each lane's bits. */
static inline void vf_store_low16(i16 *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_castps_si512(v)));
}

#endif
