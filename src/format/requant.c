#include "format/requant.h"
#include <math.h>
#include <string.h>

const char *expert_format_name(expert_format f) {
    static const char *const names[EXPERTS_FORMATS] = {"auto", "w4a8", "w2_bf16"};
    return f < EXPERTS_FORMATS ? names[f] : "?";
}

weight_format expert_stored_as(expert_format how, weight_format f, i64 i) {
    if (how == EXPERTS_W4A8) return WF_INT4_GROUP;
    return how == EXPERTS_W2_BF16 && i % 3 == 2 ? WF_BF16 : f;
}

weight_format expert_on_gpu(expert_format how, weight_format f, i64 i) {
    f = expert_stored_as(how, f, i);
    return f == WF_INT4_ROW || f == WF_INT4_GROUP128 ? WF_INT4_GROUP : f;
}

weight_format linear_on_gpu(weight_format f) {
    return weight_is_fp8(f) || (f >= WF_MXFP4 && f < WF_COUNT) ? WF_BF16 : f;
}

static u64 nibble_bytes(i64 rows, i64 cols) { return ((u64)rows * (u64)cols / 2 + 63) & ~(u64)63; }

u64 requant_bytes(i64 rows, i64 cols) {
    return nibble_bytes(rows, cols) + (((u64)rows * (u64)(cols / INT4_GROUP) * 2 + 63) & ~(u64)63);
}

static f32 requant_quantum(f32 w, f32 inverse) { return fminf(fmaxf(rintf(w * inverse), -8.0f), 7.0f); }

/* Sum of the squared differences of a group. */
static f32 requant_misfit(const f32 *w, f32 scale) {
    f32 sum = 0, inverse = 1.0f / scale;
    for (i64 c = 0; c < INT4_GROUP; c++) {
        f32 off = fmaf(-requant_quantum(w[c], inverse), scale, w[c]);
        sum = fmaf(off, off, sum);
    }
    return sum;
}

static bf16 requant_best_scale(const f32 *w) {
    f32 most = 0, least = INFINITY;
    bf16 best = 0;
    for (i64 c = 0; c < INT4_GROUP; c++) most = fabsf(w[c]) > most || isnan(w[c]) ? fabsf(w[c]) : most;
    if (!isfinite(most)) return f32_to_bf16(NAN);
    f32 whole = bf16_to_f32(f32_to_bf16(most / 7.0f));
    if (whole < 0x1p-100f) return 0;
    for (int t = 0; t < REQUANT_TRIES; t++) {
        bf16 scale = f32_to_bf16(whole * ((f32)(2 * REQUANT_TRIES - t) / (f32)(2 * REQUANT_TRIES)));
        f32 off = requant_misfit(w, bf16_to_f32(scale));
        if (off < least) least = off, best = scale;
    }
    return best;
}

/* A group's 16 bytes. */
static bf16 requant_group(const f32 *w, u8 *data) {
    bf16 scale = requant_best_scale(w);
    f32 of = bf16_to_f32(scale), inverse = of > 0 ? 1.0f / of : 0.0f;
    for (i64 c = 0; c < INT4_GROUP; c += 2) {
        int low = inverse > 0 ? (int)requant_quantum(w[c], inverse) : 0,
            high = inverse > 0 ? (int)requant_quantum(w[c + 1], inverse) : 0;
        data[c / 2] = (u8)((low + 8) | (high + 8) << 4);
    }
    return scale;
}

/* A row of INT4_ROW: its nibbles in the order of groups, its scale in all of them. */
static void requant_order(const weight_view *w, i64 r, u8 *data, bf16 *scales) {
    const u8 *q = (const u8 *)w->data + r * w->cols / 2;
    for (i64 c = 0; c < w->cols; c += 2) data[c / 2] = (u8)((int4_row_at(q, c) + 8) | (int4_row_at(q, c + 1) + 8) << 4);
    for (i64 g = 0; g < w->cols / INT4_GROUP; g++) scales[g] = f32_to_bf16(int4_row_scale(w, r));
}

/* A row of INT4_GROUP128: its nibbles with 8 added, its scales four times each. */
static void requant_groups(const weight_view *w, i64 r, u8 *data, bf16 *scales) {
    const u8 *q = (const u8 *)w->data + r * w->cols / 2;
    const f32 *wide = (const f32 *)w->scale + r * (w->cols / INT4_GROUP_WIDE);
    for (i64 c = 0; c < w->cols / 2; c++) data[c] = q[c] ^ 0x88;
    for (i64 g = 0; g < w->cols / INT4_GROUP; g++) scales[g] = f32_to_bf16(wide[g / (INT4_GROUP_WIDE / INT4_GROUP)]);
}

weight_view requant_int4(const weight_view *w, void *memory) {
    i64 groups = w->cols / INT4_GROUP;
    u8 *data = memory;
    bf16 *scales = (bf16 *)(data + nibble_bytes(w->rows, w->cols));
#pragma omp parallel for schedule(static)
    for (i64 r = 0; r < w->rows; r++) {
        if (w->format == WF_INT4_ROW) {
            requant_order(w, r, data + r * w->cols / 2, scales + r * groups);
            continue;
        }
        if (w->format == WF_INT4_GROUP128) {
            requant_groups(w, r, data + r * w->cols / 2, scales + r * groups);
            continue;
        }
        for (i64 g = 0; g < groups; g++) {
            f32 group[INT4_GROUP];
            weight_cols_f32(w, r, g * INT4_GROUP, INT4_GROUP, group);
            scales[r * groups + g] = requant_group(group, data + (r * w->cols + g * INT4_GROUP) / 2);
        }
    }
    return (weight_view){.format = WF_INT4_GROUP, .rows = w->rows, .cols = w->cols, .data = data, .scale = scales};
}

weight_view requant_bf16(const weight_view *w, void *memory) {
    enum { PIECE = 1024 };
    bf16 *out = memory;
#pragma omp parallel for schedule(static)
    for (i64 r = 0; r < w->rows; r++) {
        f32 piece[PIECE];
        for (i64 c = 0; c < w->cols; c += PIECE) {
            i64 n = min_i64(PIECE, w->cols - c);
            weight_cols_f32(w, r, c, n, piece);
            for (i64 i = 0; i < n; i++) out[r * w->cols + c + i] = f32_to_bf16(piece[i]);
        }
    }
    return (weight_view){.format = WF_BF16, .rows = w->rows, .cols = w->cols, .data = out};
}
