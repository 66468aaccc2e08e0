#include "cmd/lib/synthetic.h"
#include <math.h>

/* splitmix64 (Steele, Lea and Flood 2014) */
u64 synth_bits(synth *s) {
    u64 z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

f32 synth_uniform(synth *s) { return (f32)(i32)(synth_bits(s) >> 40) * 0x1p-23f - 1.0f; }

f32 synth_normal(synth *s) {
    u64 b = synth_bits(s);
    i32 sum = (i32)(b & 0xffff) + (i32)(b >> 16 & 0xffff) + (i32)(b >> 32 & 0xffff) + (i32)(b >> 48);
    return (f32)(sum - 131070) * (1.7320508f / 65536.0f);
}

void synth_fill_bf16(synth *s, bf16 *out, i64 n, f32 sigma) {
    for (i64 i = 0; i < n; i++) out[i] = f32_to_bf16(synth_normal(s) * sigma);
}

static u64 synth_round(u64 bytes) { return (bytes + 63) & ~(u64)63; }

u64 synth_weight_bytes(weight_format f, i64 rows, i64 cols) {
    const weight_view v = {.format = f, .rows = rows, .cols = cols};
    return synth_round(weight_data_bytes(&v)) + synth_round(weight_scale_bytes(&v));
}

static void fill_bits(synth *s, u8 *data, u64 n) {
    for (u64 i = 0; i + 8 <= n; i += 8) {
        u64 bits = synth_bits(s);
        memcpy(data + i, &bits, 8);
    }
    for (u64 i = n / 8 * 8; i < n; i++) data[i] = (u8)synth_bits(s);
}

/* e2m1 nibbles, whose root mean square is 2.93, with scales that bring it to sigma. */
static void fill_fp4(synth *s, const weight_view *v, f32 sigma, u8 *data, u8 *scale) {
    fill_bits(s, data, weight_data_bytes(v));
    for (u64 i = 0; i < weight_scale_bytes(v); i++)
        scale[i] = v->format == WF_MXFP4
                       ? (u8)(127 + ilogbf(sigma / 2.93f) + (int)(synth_bits(s) >> 62))
                       : f32_to_f8_e4m3(sigma / 2.93f / v->factor * (1.0f + 0.25f * synth_uniform(s)));
}

weight_view synth_weight(synth *s, weight_format f, i64 rows, i64 cols, f32 sigma, void *memory) {
    u64 n = (u64)rows * (u64)cols;
    weight_view v = {f, rows, cols, memory, NULL, f == WF_NVFP4 ? 0.001f : 0.5f, false};
    u8 *data = memory, *scale = data + synth_round(weight_data_bytes(&v));
    const u64 bytes = weight_scale_bytes(&v), scales = bytes ? bytes / dtype_size(weight_layout_of(f)->scale_type) : 0;
    if (bytes) v.scale = scale;
    if (f == WF_F32)
        for (u64 i = 0; i < n; i++) ((f32 *)memory)[i] = synth_normal(s) * sigma;
    if (f == WF_BF16) synth_fill_bf16(s, memory, (i64)n, sigma);
    if (weight_is_fp8(f)) {
        for (u64 i = 0; i < n; i++) data[i] = f32_to_f8_e4m3(synth_normal(s) * 64.0f);
        for (u64 i = 0; i < scales; i++) ((f32 *)scale)[i] = sigma / 64.0f * (1.0f + 0.25f * synth_uniform(s));
    }
    if (f == WF_INT8_ROW || f == WF_INT4_GROUP128) {
        const f32 unit = sigma / (f == WF_INT8_ROW ? 73.9f : 4.64f); /* the codes' root mean square */
        fill_bits(s, data, weight_data_bytes(&v));
        for (u64 i = 0; i < scales; i++) ((f32 *)scale)[i] = unit * (1.0f + 0.25f * synth_uniform(s));
    }
    if (f == WF_MXFP4 || f == WF_NVFP4) fill_fp4(s, &v, sigma, data, scale);
    if (f == WF_INT4_GROUP || f == WF_INT4_ROW) {
        fill_bits(s, data, n / 2);
        for (u64 i = 0; i < scales; i++) { /* nibbles -8..7 have the root mean square 4.64 */
            f32 x = sigma / 4.64f * (1.0f + 0.25f * synth_uniform(s));
            bf16 b = f32_to_bf16(synth_bits(s) >> 63 ? x : -x);
            if (f == WF_INT4_GROUP)
                ((bf16 *)scale)[i] = b;
            else /* a GPU, which keeps them as bf16, loses nothing */
                ((f32 *)scale)[i] = bf16_to_f32(b) * 2;
        }
    }
    return v;
}

void synth_ids(synth *s, i32 *ids, i64 n, i64 k, i64 n_experts) {
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < k; j++) {
            bool again = true;
            while (again) {
                ids[i * k + j] = (i32)(synth_bits(s) % (u64)n_experts);
                again = false;
                for (i64 t = 0; t < j; t++) again = again || ids[i * k + t] == ids[i * k + j];
            }
        }
}

f64 relative_error(const f32 *a, const f32 *b, i64 n) {
    f64 diff = 0, size = 0;
    for (i64 i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        diff += ((f64)a[i] - (f64)b[i]) * ((f64)a[i] - (f64)b[i]);
        size += (f64)b[i] * (f64)b[i];
    }
    return diff == 0 ? 0 : sqrt(diff / size);
}
