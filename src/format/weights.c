#include "format/weights.h"
#include <assert.h>

/* What the nibbles 0..15 stand for. */
static const f32 twos_complement[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
static const f32 e2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* out [n] = columns c, c + 1, ... of a row of nibbles, two a byte, the even column's below: value[nibble] * scale. They
 * are of one group, so that there are sixteen products to choose from. */
static void nibbles(const u8 *q, i64 c, i64 n, const f32 *value, f32 scale, f32 *out) {
    f32 scaled[16];
    for (int u = 0; u < 16; u++) scaled[u] = value[u] * scale;
    i64 i = 0;
    if (n && c & 1) out[i++] = scaled[q[c / 2] >> 4];
    for (const u8 *p = q + (c + i) / 2; i + 1 < n; i += 2, p++) {
        out[i] = scaled[*p & 15];
        out[i + 1] = scaled[*p >> 4];
    }
    if (i < n) out[i] = scaled[q[(c + i) / 2] & 15];
}

/* The same of whole numbers, without a table, so that compilers take many at once: of -8..7 in order (`flip` 0), or in
 * two's complement (8). */
static void int4_nibbles(const u8 *q, i64 c, i64 n, int flip, f32 scale, f32 *out) {
    i64 i = 0;
    if (n && c & 1) out[i++] = (f32)((q[c / 2] >> 4 ^ flip) - 8) * scale;
    const u8 *p = q + (c + i) / 2;
    for (i64 k = 0; k < (n - i) / 2; k++) {
        out[i + 2 * k] = (f32)(((p[k] & 15) ^ flip) - 8) * scale;
        out[i + 2 * k + 1] = (f32)((p[k] >> 4 ^ flip) - 8) * scale;
    }
    if ((n - i) % 2) out[n - 1] = (f32)(((q[(c + n - 1) / 2] & 15) ^ flip) - 8) * scale;
}

/* Columns from c, at most n, that are of c's group. */
static i64 in_group(i64 c, i64 n, i64 group) { return min_i64(n, group - c % group); }

static void cols_int4(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    const bf16 *s = (const bf16 *)w->scale + row * (w->cols / INT4_GROUP);
    for (i64 i = 0, m; i < n; i += m) {
        m = in_group(c0 + i, n - i, INT4_GROUP);
        int4_nibbles(q, c0 + i, m, 0, bf16_to_f32(s[(c0 + i) / INT4_GROUP]), out + i);
    }
}

static void cols_int4_row(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    const f32 scale = int4_row_scale(w, row);
    f32 scaled[16];
    for (int u = 0; u < 16; u++) scaled[u] = twos_complement[u] * scale;
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = scaled[int4_row_at(q, c) & 15];
}

static void cols_fp8(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * w->cols;
    const f32 *s = (const f32 *)w->scale + row / FP8_BLOCK * ceil_div(w->cols, FP8_BLOCK);
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = f8_e4m3_to_f32(q[c]) * s[c / FP8_BLOCK];
}

static void cols_fp8_row(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * w->cols;
    const f32 scale = ((const f32 *)w->scale)[row];
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = f8_e4m3_to_f32(q[c]) * scale;
}

f32 f4_e2m1_to_f32(u8 nibble) { return e2m1[nibble & 15]; }

f32 e8m0_to_f32(u8 b) { return b == 255 ? f32_from_bits(0x7fc00000u) : f32_from_bits(b ? (u32)b << 23 : 1u << 22); }

static void cols_mxfp4(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2), *s = (const u8 *)w->scale + row * (w->cols / MXFP4_GROUP);
    for (i64 i = 0, m; i < n; i += m) {
        m = in_group(c0 + i, n - i, MXFP4_GROUP);
        nibbles(q, c0 + i, m, e2m1, e8m0_to_f32(s[(c0 + i) / MXFP4_GROUP]), out + i);
    }
}

f32 nvfp4_scale(const weight_view *w, i64 row, i64 group) {
    const f32 s = f8_e4m3_to_f32(((const u8 *)w->scale)[row * (w->cols / NVFP4_GROUP) + group]);
    return w->divides ? s / w->factor : s * w->factor;
}

static void cols_nvfp4(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    for (i64 i = 0, m; i < n; i += m) {
        m = in_group(c0 + i, n - i, NVFP4_GROUP);
        nibbles(q, c0 + i, m, e2m1, nvfp4_scale(w, row, (c0 + i) / NVFP4_GROUP), out + i);
    }
}

static void cols_int8_row(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const i8 *q = (const i8 *)w->data + row * w->cols;
    const f32 scale = ((const f32 *)w->scale)[row];
    for (i64 c = c0; c < c0 + n; c++) out[c - c0] = (f32)q[c] * scale;
}

static void cols_int4_wide(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const u8 *q = (const u8 *)w->data + row * (w->cols / 2);
    const f32 *s = (const f32 *)w->scale + row * (w->cols / INT4_GROUP_WIDE);
    for (i64 i = 0, m; i < n; i += m) {
        m = in_group(c0 + i, n - i, INT4_GROUP_WIDE);
        int4_nibbles(q, c0 + i, m, 8, s[(c0 + i) / INT4_GROUP_WIDE], out + i);
    }
}

static void cols_float(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    memcpy(out, (const f32 *)w->data + row * w->cols + c0, (size_t)n * sizeof *out);
}

static void cols_bf16(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    const bf16 *p = (const bf16 *)w->data + row * w->cols + c0;
    for (i64 c = 0; c < n; c++) out[c] = bf16_to_f32(p[c]);
}

static const weight_layout built_in[WF_COUNT] = {
    [WF_F32] = {.name = "f32",
                .origin = "float32",
                .bits = 32,
                .data = ".weight",
                .data_type = DT_F32,
                .per_element = 1,
                .cols_multiple = 1,
                .cols_f32 = cols_float},
    [WF_BF16] = {.name = "bf16",
                 .origin = "bfloat16",
                 .bits = 16,
                 .data = ".weight",
                 .data_type = DT_BF16,
                 .per_element = 1,
                 .cols_multiple = 1,
                 .cols_f32 = cols_bf16},
    [WF_FP8_BLOCK] = {.name = "fp8_block",
                      .origin = "DeepSeek's FP8 in blocks (K2-Instruct)",
                      .bits = 8,
                      .data = ".weight",
                      .data_type = DT_F8_E4M3,
                      .per_element = 1,
                      .scale = ".weight_scale_inv",
                      .scale_type = DT_F32,
                      .scale_rows = FP8_BLOCK,
                      .scale_cols = FP8_BLOCK,
                      .cols_multiple = 1,
                      .cols_f32 = cols_fp8},
    [WF_FP8_ROW] = {.name = "fp8_row",
                    .origin = "FP8 with one scale a row (Quark, compressed-tensors)",
                    .bits = 8,
                    .data = ".weight",
                    .data_type = DT_F8_E4M3,
                    .per_element = 1,
                    .scale = ".weight_scale",
                    .scale_type = DT_F32,
                    .scale_rows = 1,
                    .scales_vary = true,
                    .cols_multiple = 1,
                    .cols_f32 = cols_fp8_row},
    [WF_INT4_GROUP] = {.name = "int4_group",
                       .origin = "compressed-tensors pack-quantized (K2-Thinking, K2.5)",
                       .bits = 4,
                       .data = ".weight_packed",
                       .data_type = DT_I32,
                       .per_element = 8,
                       .scale = ".weight_scale",
                       .scale_type = DT_BF16,
                       .scale_rows = 1,
                       .scale_cols = INT4_GROUP,
                       .shape = ".weight_shape",
                       .cols_multiple = INT4_GROUP,
                       .cols_f32 = cols_int4},
    [WF_INT4_ROW] = {.name = "int4_row",
                     .origin = "Quark W4A8 (K2.5-W4A8)",
                     .bits = 4,
                     .data = ".weight",
                     .data_type = DT_I32,
                     .per_element = 8,
                     .scale = ".weight_scale_2",
                     .scale_type = DT_F32,
                     .scale_rows = 1,
                     .factor = ".weight_scale",
                     .cols_multiple = 8,
                     .experts_only = true,
                     .cols_f32 = cols_int4_row},
    [WF_MXFP4] = {.name = "mxfp4",
                  .origin = "Quark's MXFP4 (K2.5-MXFP4)",
                  .bits = 4,
                  .data = ".weight",
                  .data_type = DT_U8,
                  .per_element = 2,
                  .scale = ".weight_scale",
                  .scale_type = DT_U8,
                  .scale_rows = 1,
                  .scale_cols = MXFP4_GROUP,
                  .cols_multiple = MXFP4_GROUP,
                  .cols_f32 = cols_mxfp4},
    [WF_MXFP4_PACKED] = {.name = "mxfp4_packed",
                         .origin = "compressed-tensors mxfp4-pack-quantized",
                         .bits = 4,
                         .data = ".weight_packed",
                         .data_type = DT_U8,
                         .per_element = 2,
                         .scale = ".weight_scale",
                         .scale_type = DT_U8,
                         .scale_rows = 1,
                         .scale_cols = MXFP4_GROUP,
                         .cols_multiple = MXFP4_GROUP,
                         .kept_as = WF_MXFP4,
                         .cols_f32 = cols_mxfp4},
    [WF_NVFP4] = {.name = "nvfp4",
                  .origin = "ModelOpt's NVFP4",
                  .bits = 4,
                  .data = ".weight",
                  .data_type = DT_U8,
                  .per_element = 2,
                  .scale = ".weight_scale",
                  .scale_type = DT_F8_E4M3,
                  .scale_rows = 1,
                  .scale_cols = NVFP4_GROUP,
                  .factor = ".weight_scale_2",
                  .cols_multiple = NVFP4_GROUP,
                  .cols_f32 = cols_nvfp4},
    [WF_NVFP4_PACKED] = {.name = "nvfp4_packed",
                         .origin = "compressed-tensors nvfp4-pack-quantized",
                         .bits = 4,
                         .data = ".weight_packed",
                         .data_type = DT_U8,
                         .per_element = 2,
                         .scale = ".weight_scale",
                         .scale_type = DT_F8_E4M3,
                         .scale_rows = 1,
                         .scale_cols = NVFP4_GROUP,
                         .factor = ".weight_global_scale",
                         .factor_divides = true,
                         .cols_multiple = NVFP4_GROUP,
                         .kept_as = WF_NVFP4,
                         .cols_f32 = cols_nvfp4},
    [WF_INT8_ROW] = {.name = "int8_row",
                     .origin = "INT8 with one scale a row (compressed-tensors, Quark)",
                     .bits = 8,
                     .data = ".weight",
                     .data_type = DT_I8,
                     .per_element = 1,
                     .scale = ".weight_scale",
                     .scale_type = DT_F32,
                     .scale_rows = 1,
                     .scales_vary = true,
                     .zeros = ".weight_zero_point",
                     .cols_multiple = 1,
                     .cols_f32 = cols_int8_row},
    [WF_INT4_GROUP128] = {.name = "int4_group128",
                          .origin = "SGLang's w4afp8",
                          .bits = 4,
                          .data = ".weight",
                          .data_type = DT_I8,
                          .per_element = 2,
                          .scale = ".weight_scale_inv",
                          .scale_type = DT_F32,
                          .scale_rows = 1,
                          .scale_cols = INT4_GROUP_WIDE,
                          .scales_vary = true,
                          .cols_multiple = INT4_GROUP_WIDE,
                          .cols_f32 = cols_int4_wide},
};

static const weight_layout *added[WEIGHT_FORMATS_MOST - WF_COUNT];
static int n_added;

int weight_formats(void) { return WF_COUNT + n_added; }

const weight_layout *weight_layout_of(weight_format f) {
    assert((int)f >= 0 && (int)f < weight_formats());
    return f < WF_COUNT ? &built_in[f] : added[f - WF_COUNT];
}

weight_format weight_layout_add(const weight_layout *l) {
    assert(weight_formats() < WEIGHT_FORMATS_MOST);
    added[n_added] = l;
    return (weight_format)(WF_COUNT + n_added++);
}

const char *weight_format_name(weight_format f) {
    return (int)f >= 0 && (int)f < weight_formats() ? weight_layout_of(f)->name : "?";
}

static u64 row_bytes(const weight_layout *l, i64 cols) { return (u64)cols * (u64)l->bits / 8; }
/* Scales of a row of blocks. */
static i64 scales_across(const weight_layout *l, i64 cols) { return l->scale_cols ? ceil_div(cols, l->scale_cols) : 1; }

u64 weight_data_bytes(const weight_view *w) { return row_bytes(weight_layout_of(w->format), w->cols) * (u64)w->rows; }

u64 weight_scale_bytes(const weight_view *w) {
    const weight_layout *l = weight_layout_of(w->format);
    if (!l->scale) return 0;
    return (u64)ceil_div(w->rows, l->scale_rows) * (u64)scales_across(l, w->cols) * dtype_size(l->scale_type);
}

u64 weight_bytes(const weight_view *w) { return weight_data_bytes(w) + weight_scale_bytes(w); }

void weight_cols_f32(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out) {
    weight_layout_of(w->format)->cols_f32(w, row, c0, n, out);
}

void weight_row_f32(const weight_view *w, i64 row, f32 *out) { weight_cols_f32(w, row, 0, w->cols, out); }

weight_view weight_rows(const weight_view *w, i64 row, i64 n) {
    const weight_layout *l = weight_layout_of(w->format);
    weight_view v = *w;
    v.rows = n;
    v.data = (const u8 *)w->data + (u64)row * row_bytes(l, w->cols);
    if (l->scale)
        v.scale =
            (const u8 *)w->scale + (u64)(row / l->scale_rows * scales_across(l, w->cols)) * dtype_size(l->scale_type);
    return v;
}

i64 weight_row_unit(weight_format f) {
    const weight_layout *l = weight_layout_of(f);
    return l->scale ? l->scale_rows : 1;
}

i64 weight_col_unit(weight_format f) {
    const weight_layout *l = weight_layout_of(f);
    i64 scale = l->scale && l->scale_cols ? l->scale_cols : 1;
    i64 unit = max_i64(max_i64(scale, l->cols_multiple), l->per_element); /* powers of two: each divides the largest */
    assert(unit % scale == 0 && unit % l->cols_multiple == 0 && unit % l->per_element == 0);
    return unit;
}

/* Bytes [at, at + n) of each of `rows` rows of `stride` bytes, one row behind the other. */
static void copy_cols(void *to, const void *from, i64 rows, u64 stride, u64 at, u64 n) {
    for (i64 r = 0; r < rows; r++) memcpy((u8 *)to + (u64)r * n, (const u8 *)from + (u64)r * stride + at, n);
}

static u64 round_up_64(u64 n) { return (n + 63) & ~(u64)63; }

u64 weight_cols_room(const weight_view *w, i64 n) {
    weight_view v = *w;
    v.cols = n;
    return round_up_64(weight_data_bytes(&v)) + round_up_64(weight_scale_bytes(&v));
}

weight_view weight_cols(const weight_view *w, i64 col, i64 n, void *room) {
    const weight_layout *l = weight_layout_of(w->format);
    weight_view v = *w;
    v.cols = n, v.data = room, v.scale = NULL;
    if (!room) return v;
    copy_cols(room, w->data, w->rows, row_bytes(l, w->cols), row_bytes(l, col), row_bytes(l, n));
    if (!l->scale) return v;
    u64 size = dtype_size(l->scale_type);
    u8 *scale = (u8 *)room + round_up_64(weight_data_bytes(&v));
    i64 first = l->scale_cols ? col / l->scale_cols : 0;
    copy_cols(scale, w->scale, ceil_div(w->rows, l->scale_rows), (u64)scales_across(l, w->cols) * size,
              (u64)first * size, (u64)scales_across(l, n) * size);
    v.scale = scale;
    return v;
}
