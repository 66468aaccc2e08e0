#include "format/weights.h"

const char *weight_format_name(weight_format f) {
    static const char *const names[WF_COUNT] = {"f32", "bf16", "fp8_block", "int4_group", "int4_row"};
    return f < WF_COUNT ? names[f] : "?";
}

static u64 row_bytes(const weight_view *w) {
    u64 cols = (u64)w->cols;
    switch (w->format) {
    case WF_F32: return cols * 4;
    case WF_BF16: return cols * 2;
    case WF_FP8_BLOCK: return cols;
    case WF_INT4_GROUP:
    case WF_INT4_ROW: return cols / 2;
    case WF_COUNT: break;
    }
    return 0;
}

u64 weight_bytes(const weight_view *w) {
    u64 scale = 0;
    if (w->format == WF_FP8_BLOCK) scale = (u64)ceil_div(w->rows, FP8_BLOCK) * (u64)ceil_div(w->cols, FP8_BLOCK) * 4;
    if (w->format == WF_INT4_GROUP) scale = (u64)w->rows * (u64)(w->cols / INT4_GROUP) * 2;
    if (w->format == WF_INT4_ROW) scale = (u64)w->rows * 4;
    return row_bytes(w) * (u64)w->rows + scale;
}

static void cols_int4(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    const bf16 *s = (const bf16 *)w->scale + row * (w->cols / INT4_GROUP);
    for (i64 c = c0; c < c0 + n; c++) {
        int u = c & 1 ? q[c / 2] >> 4 : q[c / 2] & 15;
        out[c - c0] = (f32)(u - 8) * bf16_to_f32(s[c / INT4_GROUP]);
    }
}

static void cols_int4_row(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    f32 scale = int4_row_scale(w, row);
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = (f32)int4_row_at(q, c) * scale;
}

static void cols_fp8(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * w->cols;
    const f32 *s = (const f32 *)w->scale + row / FP8_BLOCK * ceil_div(w->cols, FP8_BLOCK);
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = f8_e4m3_to_f32(q[c]) * s[c / FP8_BLOCK];
}

void weight_cols_f32(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    switch (w->format) {
    case WF_F32: memcpy(out, (const f32 *)w->data + row * w->cols + c0, (size_t)n * 4); break;
    case WF_BF16: {
        const bf16 *p = (const bf16 *)w->data + row * w->cols + c0;
        for (i64 c = 0; c < n; c++) out[c] = bf16_to_f32(p[c]);
        break;
    }
    case WF_FP8_BLOCK: cols_fp8(w, row, c0, n, out); break;
    case WF_INT4_GROUP: cols_int4(w, row, c0, n, out); break;
    case WF_INT4_ROW: cols_int4_row(w, row, c0, n, out); break;
    case WF_COUNT: break;
    }
}

void weight_row_f32(const weight_view *w, i64 row, f32 *out) { weight_cols_f32(w, row, 0, w->cols, out); }

weight_view weight_rows(const weight_view *w, i64 row, i64 n) {
    weight_view v = *w;
    v.rows = n;
    v.data = (const u8 *)w->data + (u64)row * row_bytes(w);
    if (w->format == WF_FP8_BLOCK) v.scale = (const f32 *)w->scale + row / FP8_BLOCK * ceil_div(w->cols, FP8_BLOCK);
    if (w->format == WF_INT4_GROUP) v.scale = (const bf16 *)w->scale + row * (w->cols / INT4_GROUP);
    if (w->format == WF_INT4_ROW) v.scale = (const f32 *)w->scale + row;
    return v;
}
