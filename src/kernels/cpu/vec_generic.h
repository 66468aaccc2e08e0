/* kernels/cpu/vec_generic.h: the vector layer in plain C (four lanes, GNU vector extension).
 *
 * Every vec_*.h offers: VL lanes of float32 (vf), loads and stores, bf16 widening and rounding, fma, sums in
 * a fixed order, and `vb`, the operand of a bf16 dot product that takes KSTEP elements at a time. */
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H
#include "format/dtype.h"
#include <math.h>
#include <string.h>

typedef f32 vf __attribute__((vector_size(16)));
typedef vf vb;
enum { VL = 4, KSTEP = 4, DOT_M = 2 };

static inline vf vf_set(f32 x) { return (vf){x, x, x, x}; }
static inline vf vf_zero(void) { return vf_set(0); }
static inline vf vf_load(const f32 *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(f32 *p, vf v) { memcpy(p, &v, sizeof v); }
static inline vf vf_bf16(const bf16 *p) {
    return (vf){bf16_to_f32(p[0]), bf16_to_f32(p[1]), bf16_to_f32(p[2]), bf16_to_f32(p[3])};
}
static inline void vf_store_bf16(bf16 *p, vf v) {
    for (int l = 0; l < VL; l++) p[l] = f32_to_bf16(v[l]);
}
static inline vf vf_u8(const u8 *p) { return (vf){p[0], p[1], p[2], p[3]}; }
static inline vf vf_fp8(const u8 *p) {
    return (vf){f8_e4m3_to_f32(p[0]), f8_e4m3_to_f32(p[1]), f8_e4m3_to_f32(p[2]), f8_e4m3_to_f32(p[3])};
}
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
/* The larger of both lane by lane, best's where v's is NaN. */
static inline vf vf_larger(vf v, vf best) {
    for (int l = 0; l < VL; l++) best[l] = v[l] > best[l] ? v[l] : best[l];
    return best;
}
static inline bool vf_any_nan(vf v) { return v[0] != v[0] || v[1] != v[1] || v[2] != v[2] || v[3] != v[3]; }
static inline f32 vf_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }
static inline vf vf_exp(vf v) { return (vf){expf(v[0]), expf(v[1]), expf(v[2]), expf(v[3])}; }
static inline vb vb_load(const bf16 *p) { return vf_bf16(p); }
static inline vf vb_dot(vf acc, vb a, vb b) { return vf_fma(a, b, acc); }

#endif
