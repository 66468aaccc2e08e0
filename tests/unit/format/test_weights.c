/* How matrices lie in checkpoints: test vectors of each layout. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "unit.h"
#include "base/file.h"
#include "format/requant.h"

/* compressed-tensors pack-quantized: q = -8..-1 packs to the word 0x76543210, q = 0..7 to 0xfedcba98. */
static void test_int4_vectors(void **state) {
    (void)state;
    u32 row[2][4] = {{0x76543210u, 0xfedcba98u, 0x76543210u, 0xfedcba98u}, {0x88888888u, 0, 0xffffffffu, 0x00000009u}};
    bf16 scale[2] = {f32_to_bf16(1), f32_to_bf16(0.5f)};
    weight_view w = {.format = WF_INT4_GROUP, .rows = 2, .cols = 32, .data = row, .scale = scale};
    f32 out[32];
    weight_row_f32(&w, 0, out);
    for (int c = 0; c < 32; c++) assert_true(out[c] == (f32)(c % 16 - 8));
    weight_row_f32(&w, 1, out);
    for (int c = 0; c < 8; c++) assert_true(out[c] == 0);
    for (int c = 8; c < 16; c++) assert_true(out[c] == -4);
    for (int c = 16; c < 24; c++) assert_true(out[c] == 3.5f);
    assert_true(out[24] == 0.5f && out[25] == -4); /* lowest nibble first */
    assert_int_equal(weight_bytes(&w), 2 * 16 + 2 * 2);
}

/* q times scale is exact in float32: 4 bits times 8 bits of mantissa. Nothing may be rounded to bf16. */
static void test_int4_unrounded(void **state) {
    (void)state;
    u8 row[16];
    memset(row, 0xf1, sizeof row); /* columns 2b: 1 - 8 = -7; 2b + 1: 15 - 8 = 7 */
    bf16 scale = 0x3f81;           /* 1.0078125 */
    weight_view w = {.format = WF_INT4_GROUP, .rows = 1, .cols = 32, .data = row, .scale = &scale};
    f32 out[32];
    weight_row_f32(&w, 0, out);
    assert_true(out[0] == -7.0546875f && out[1] == 7.0546875f);
    assert_true(bf16_to_f32(f32_to_bf16(out[1])) != out[1]);
}

static void test_int4_groups(void **state) {
    (void)state;
    enum { R = 5, C = 96 };
    u8 data[R][C / 2];
    bf16 scale[R][C / 32];
    for (int r = 0; r < R; r++) {
        memset(data[r], 0x99, C / 2); /* q = 1 */
        for (int g = 0; g < C / 32; g++) scale[r][g] = f32_to_bf16((f32)(r * 8 + g + 1));
    }
    weight_view w = {.format = WF_INT4_GROUP, .rows = R, .cols = C, .data = data, .scale = scale};
    weight_view part = weight_rows(&w, 2, 3);
    f32 out[C];
    for (int r = 0; r < 3; r++) {
        weight_row_f32(&part, r, out);
        for (int c = 0; c < C; c++) assert_true(out[c] == (f32)((r + 2) * 8 + c / 32 + 1));
    }
    /* from a column in a later group on */
    const int from[] = {31, 32, 40, 63, 64, 95};
    for (size_t i = 0; i < COUNT_OF(from); i++) {
        weight_cols_f32(&w, 1, from[i], C - from[i], out);
        for (int c = from[i]; c < C; c++) assert_true(out[c - from[i]] == (f32)(8 + c / 32 + 1));
    }
    assert_int_equal(part.rows, 3);
    assert_int_equal(weight_bytes(&part), 3 * (C / 2 + C / 32 * 2));
}

/* Blocks of 128 x 128 whose last row and column of blocks are partial: 300 x 200 takes 3 x 2 scales. */
static void test_fp8_partial_blocks(void **state) {
    (void)state;
    enum { R = 300, C = 200 };
    u8 *data = malloc(R * C);
    f32 scale[3][2] = {{1, 2}, {4, 8}, {16, 32}};
    for (int i = 0; i < R * C; i++) data[i] = (u8)(0x30 + i % 13);
    weight_view w = {.format = WF_FP8_BLOCK, .rows = R, .cols = C, .data = data, .scale = scale};
    const int rows[] = {0, 127, 128, 255, 256, 299};
    f32 out[C];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        weight_row_f32(&w, rows[i], out);
        for (int c = 0; c < C; c++)
            assert_true(out[c] == f8_e4m3_to_f32(data[rows[i] * C + c]) * scale[rows[i] / 128][c / 128]);
    }
    assert_int_equal(weight_bytes(&w), R * C + 6 * 4);
    weight_view tail = weight_rows(&w, 256, 44);
    weight_row_f32(&tail, 43, out);
    assert_true(out[199] == f8_e4m3_to_f32(data[299 * C + 199]) * 32);
    assert_int_equal(weight_bytes(&tail), 44 * C + 2 * 4);
    free(data);
}

static void test_fp8_row(void **state) {
    (void)state;
    enum { R = 5, C = 200 };
    u8 data[R * C], room[R * C + 64];
    f32 scale[R] = {1, -0.5f, 3, 0, 0x1p-20f}, out[C];
    for (int i = 0; i < R * C; i++) data[i] = (u8)(i % 127);
    weight_view w = {.format = WF_FP8_ROW, .rows = R, .cols = C, .data = data, .scale = scale};
    assert_int_equal(weight_bytes(&w), R * C + R * 4);
    assert_true(weight_row_unit(WF_FP8_ROW) == 1 && weight_col_unit(WF_FP8_ROW) == 1);
    weight_view rows = weight_rows(&w, 2, 3), cols = weight_cols(&rows, 33, 101, room);
    for (int r = 0; r < R; r++) {
        weight_row_f32(&w, r, out);
        for (int c = 0; c < C; c++) assert_true(out[c] == f8_e4m3_to_f32(data[r * C + c]) * scale[r]);
        if (r < 2) continue;
        weight_row_f32(&cols, r - 2, out);
        for (int c = 0; c < 101; c++) assert_true(out[c] == f8_e4m3_to_f32(data[r * C + 33 + c]) * scale[r]);
    }
}

/* Quark's order: q = -8..-1 packs to the word 0xfdb9eca8. */
static void test_int4_row(void **state) {
    (void)state;
    enum { R = 3, C = 32 };
    u32 data[R][C / 8] = {{0xfdb9eca8u, 0xfdb9eca8u, 0xfdb9eca8u, 0xfdb9eca8u},
                          {0x75316420u, 0, 0xffffffffu, 0x00000009u},
                          {0x10000000u, 0x00010000u, 0x80000000u, 0x77777777u}};
    f32 scale[R] = {1, 0.5f, 3}, out[C];
    weight_view w = {.format = WF_INT4_ROW, .rows = R, .cols = C, .data = data, .scale = scale, .factor = 2};
    weight_row_f32(&w, 0, out);
    for (int c = 0; c < C; c++) assert_true(out[c] == (f32)(c % 8 - 8) * 2);
    weight_row_f32(&w, 1, out);
    for (int c = 0; c < 8; c++) assert_true(out[c] == (f32)c);
    for (int c = 8; c < 16; c++) assert_true(out[c] == 0);
    for (int c = 16; c < 24; c++) assert_true(out[c] == -1);
    assert_true(out[24] == -7 && out[25] == 0);
    weight_view last = weight_rows(&w, 2, 1);
    weight_cols_f32(&last, 0, 4, 24, out);
    assert_true(out[3] == 6 && out[2] == 0); /* column 7: the highest nibble */
    assert_true(out[5] == 6 && out[4] == 0); /* column 9: nibble 4 */
    assert_true(out[19] == -48);             /* column 23 */
    assert_int_equal(weight_bytes(&w), R * C / 2 + R * 4);
    assert_int_equal(weight_bytes(&last), C / 2 + 4);
    assert_string_equal(weight_format_name(WF_INT4_ROW), "int4_row");

    /* in groups: the same q, the scale rounded to bf16 */
    _Alignas(64) u8 memory[1024];
    f32 row[C];
    w.factor = 1.001f;
    assert_true(requant_bytes(R, C) <= sizeof memory);
    weight_view v = requant_int4(&w, memory);
    assert_int_equal(v.format, WF_INT4_GROUP);
    for (int r = 0; r < R; r++) {
        f32 rounded = bf16_to_f32(f32_to_bf16(scale[r] * w.factor));
        assert_true(bf16_to_f32(((const bf16 *)v.scale)[r]) == rounded);
        weight_row_f32(&w, r, out);
        weight_row_f32(&v, r, row);
        for (int c = 0; c < C; c++) assert_true(row[c] == rintf(out[c] / (scale[r] * w.factor)) * rounded);
    }
    assert_int_equal(expert_stored_as(EXPERTS_AS_STORED, WF_INT4_ROW, 0), WF_INT4_ROW);
    assert_int_equal(expert_on_gpu(EXPERTS_AS_STORED, WF_INT4_ROW, 0), WF_INT4_GROUP);
    assert_int_equal(expert_on_gpu(EXPERTS_W2_BF16, WF_INT4_ROW, 2), WF_BF16);
    assert_int_equal(expert_on_gpu(EXPERTS_AS_STORED, WF_FP8_BLOCK, 0), WF_FP8_BLOCK);
}

/* OCP's e2m1 by its definition: exponent bias 1, subnormal where the exponent is 0. */
static f32 e2m1(int code) {
    int e = code >> 1 & 3, m = code & 1;
    f32 x = e ? ldexpf(1 + (f32)m / 2, e - 1) : (f32)m / 2;
    return code & 8 ? -x : x;
}

/* Every code in the low and in the high nibble. */
static void test_mxfp4_codes(void **state) {
    (void)state;
    u8 row[16], scale = 127;
    f32 out[32];
    for (int b = 0; b < 16; b++) row[b] = (u8)(b | (15 - b) << 4);
    weight_view w = {.format = WF_MXFP4, .rows = 1, .cols = 32, .data = row, .scale = &scale};
    weight_row_f32(&w, 0, out);
    for (int c = 0; c < 32; c++) {
        int code = c & 1 ? 15 - c / 2 : c / 2;
        assert_int_equal(f32_bits(out[c]), f32_bits(e2m1(code))); /* code 8 is -0 */
        assert_int_equal(f32_bits(f4_e2m1_to_f32((u8)code)), f32_bits(e2m1(code)));
    }
    assert_true(out[13] == -e2m1(1) && out[14] == 6 && out[15] == -0.0f && out[30] == -6);
    for (int b = 0; b < 255; b++) assert_true(e8m0_to_f32((u8)b) == ldexpf(1, b - 127));
    assert_true(isnan(e8m0_to_f32(255)));
    assert_string_equal(weight_format_name(WF_MXFP4), "mxfp4");
    assert_string_equal(weight_format_name(WF_MXFP4_PACKED), "mxfp4_packed");
    assert_int_equal(weight_layout_of(WF_MXFP4_PACKED)->kept_as, WF_MXFP4);
}

/* The least scale makes subnormals, which are kept; behind the largest one float32 ends: 2 and more times it are
 * infinite. */
static void test_mxfp4_scales(void **state) {
    (void)state;
    static const u8 scale[] = {0, 127, 254, 255, 120};
    u8 row[5 * 16];
    f32 out[5 * 32];
    for (int b = 0; b < 5 * 16; b++) row[b] = (u8)(b % 16 * 0x11);
    weight_view w = {.format = WF_MXFP4, .rows = 1, .cols = 5 * 32, .data = row, .scale = scale};
    assert_int_equal(weight_bytes(&w), 5 * 16 + 5);
    weight_row_f32(&w, 0, out);
    for (int c = 0; c < 32; c++) {
        f32 x = e2m1(c / 2);
        assert_int_equal(f32_bits(out[c]), f32_bits(ldexpf(x, -127)));
        assert_int_equal(f32_bits(out[32 + c]), f32_bits(x));
        assert_int_equal(f32_bits(out[64 + c]), f32_bits(ldexpf(x, 127)));
        assert_true(isnan(out[96 + c]));
        assert_int_equal(f32_bits(out[128 + c]), f32_bits(ldexpf(x, -7)));
    }
    assert_true(out[2] == 0x1p-128f && isinf(out[64 + 8]) && !isinf(out[64 + 7]));
}

enum { MX_ROWS = 5, MX_COLS = 160 };

/* A matrix whose every group has a scale of its own, and its values. */
static weight_view mxfp4_matrix(f32 value[MX_ROWS][MX_COLS]) {
    static u8 data[MX_ROWS][MX_COLS / 2], scale[MX_ROWS][MX_COLS / MXFP4_GROUP];
    memset(data, 0, sizeof data);
    for (int r = 0; r < MX_ROWS; r++)
        for (int c = 0; c < MX_COLS; c++) {
            u8 *s = &scale[r][c / MXFP4_GROUP];
            int code = (7 * r + 5 * c + c / 16) & 15;
            *s = (u8)(100 + r * (MX_COLS / MXFP4_GROUP) + c / MXFP4_GROUP);
            data[r][c / 2] |= (u8)(code << c % 2 * 4);
            value[r][c] = ldexpf(e2m1(code), *s - 127);
        }
    return (weight_view){.format = WF_MXFP4, .rows = MX_ROWS, .cols = MX_COLS, .data = data, .scale = scale};
}

/* Any piece of columns, begun and ended at odd places; rows and columns cut out. */
static void test_mxfp4_pieces(void **state) {
    (void)state;
    f32 value[MX_ROWS][MX_COLS], out[MX_COLS];
    _Alignas(64) u8 room[MX_ROWS * MX_COLS];
    weight_view w = mxfp4_matrix(value);
    for (int r = 0; r < MX_ROWS; r++)
        for (int c = 0; c < MX_COLS; c += 1 + c % 3)
            for (int n = 0; n <= MX_COLS - c; n += 1 + n % 7) {
                memset(out, 0xff, sizeof out);
                weight_cols_f32(&w, r, c, n, out);
                assert_memory_equal(out, &value[r][c], (size_t)n * sizeof *out);
                if (n < MX_COLS) assert_int_equal(f32_bits(out[n]), 0xffffffffu);
            }
    assert_true(weight_row_unit(WF_MXFP4) == 1 && weight_col_unit(WF_MXFP4) == MXFP4_GROUP);
    assert_int_equal(weight_data_bytes(&w), MX_ROWS * MX_COLS / 2);
    assert_int_equal(weight_scale_bytes(&w), MX_ROWS * MX_COLS / MXFP4_GROUP);
    weight_view rows = weight_rows(&w, 2, 3);
    for (i64 c0 = 0; c0 < MX_COLS; c0 += MXFP4_GROUP)
        for (i64 n = MXFP4_GROUP; n <= MX_COLS - c0; n += MXFP4_GROUP) {
            assert_true(weight_cols_room(&rows, n) <= sizeof room);
            weight_view cut = weight_cols(&rows, c0, n, room);
            assert_true(cut.rows == 3 && cut.cols == n && cut.format == WF_MXFP4);
            for (int r = 0; r < 3; r++) {
                weight_row_f32(&cut, r, out);
                assert_memory_equal(out, &value[2 + r][c0], (size_t)n * sizeof *out);
            }
        }
}

static u8 *read_hex(char **at, size_t n) {
    u8 *bytes = malloc(n);
    for (size_t i = 0; i < n; i++) {
        unsigned b;
        assert_int_equal(sscanf(*at, "%2x", &b), 1);
        bytes[i] = (u8)b, *at += 2;
    }
    assert_true(**at == '\n');
    ++*at;
    return bytes;
}

/* What compressed-tensors packs, and what it takes it for (tests/golden/make_mxfp4.py says what the lines are). */
static void test_mxfp4_as_compressed_tensors(void **state) {
    (void)state;
    buf text = {0};
    err e = {0};
    if (file_read("tests/golden/mxfp4.txt", 1 << 20, &text, &e) != ST_OK) fail_msg("%s", e.text);
    int rows, cols, used;
    assert_int_equal(sscanf(text.data, "%d %d\n%n", &rows, &cols, &used), 2);
    char *at = text.data + used;
    size_t n = (size_t)rows * (size_t)cols;
    u8 *data = read_hex(&at, n / 2), *scale = read_hex(&at, n / MXFP4_GROUP), *want = read_hex(&at, 4 * n);
    assert_true(at == text.data + text.len);
    weight_view w = {.format = WF_MXFP4_PACKED, .rows = rows, .cols = cols, .data = data, .scale = scale};
    f32 *out = malloc((size_t)cols * sizeof *out);
    for (int r = 0; r < rows; r++) {
        weight_row_f32(&w, r, out);
        assert_memory_equal(out, want + (size_t)r * (size_t)cols * 4, (size_t)cols * 4);
    }
    free(out), free(data), free(scale), free(want);
    buf_free(&text);
}

/* ---- NVFP4 ---- */

/* Each code of e2m1 under every scale of e4m3, with a factor that multiplies and one that divides: two roundings, in
 * this order. NaN stays NaN; 0 makes zeros. */
static void test_nvfp4_values(void **state) {
    (void)state;
    static const f32 factors[] = {1, 0.1f, 0x1.54321p-20f, -3, 0};
    u8 row[256 * 8], scale[256];
    f32 out[256 * NVFP4_GROUP];
    for (int b = 0; b < 256; b++) scale[b] = (u8)b;
    for (int b = 0; b < 256 * 8; b++) row[b] = (u8)(b % 8 * 2 | (b % 8 * 2 + 1) << 4);
    for (size_t i = 0; i < 2 * COUNT_OF(factors) - 1; i++) { /* not divided by 0 */
        const f32 factor = factors[i / 2];
        weight_view w = {WF_NVFP4, 1, 256 * NVFP4_GROUP, row, scale, factor, i % 2};
        weight_row_f32(&w, 0, out);
        for (int c = 0; c < 256 * NVFP4_GROUP; c++) {
            const f32 e4m3 = f8_e4m3_to_f32(scale[c / NVFP4_GROUP]);
            const volatile f32 s = w.divides ? e4m3 / factor : e4m3 * factor;
            const f32 want = e2m1(c % 16) * s;
            if (isnan(want))
                assert_true(isnan(out[c]) && (c / NVFP4_GROUP & 127) == 127);
            else
                assert_int_equal(f32_bits(out[c]), f32_bits(want));
        }
        if (factor != 0) assert_true(out[56 * NVFP4_GROUP + 5] == 3 * (w.divides ? 1 / factor : factor));
    }
    /* 0.1 as a factor: 13 * 0.1 * 3 rounds twice, and otherwise than 39 * 0.1 */
    weight_view w = {WF_NVFP4, 1, 256 * NVFP4_GROUP, row, scale, 0.1f, false};
    int differ = 0;
    weight_row_f32(&w, 0, out);
    for (int c = 0; c < 127 * NVFP4_GROUP; c++)
        differ += out[c] != (f32)((f64)e2m1(c % 16) * (f64)f8_e4m3_to_f32((u8)(c / NVFP4_GROUP)) * (f64)0.1f);
    assert_true(differ > 0);
    assert_string_equal(weight_format_name(WF_NVFP4), "nvfp4");
    assert_int_equal(weight_layout_of(WF_NVFP4_PACKED)->kept_as, WF_NVFP4);
    assert_true(weight_layout_of(WF_NVFP4_PACKED)->factor_divides && !weight_layout_of(WF_NVFP4)->factor_divides);
    assert_int_equal(linear_on_gpu(WF_NVFP4), WF_BF16);
}

enum { NV_ROWS = 5, NV_COLS = 80 };

/* Any piece of columns, begun and ended at odd places; rows and columns cut out, with their factor. */
static void test_nvfp4_pieces(void **state) {
    (void)state;
    static u8 data[NV_ROWS][NV_COLS / 2], scale[NV_ROWS][NV_COLS / NVFP4_GROUP];
    f32 value[NV_ROWS][NV_COLS], out[NV_COLS];
    _Alignas(64) u8 room[NV_ROWS * NV_COLS];
    for (int r = 0; r < NV_ROWS; r++)
        for (int c = 0; c < NV_COLS; c++) {
            u8 *s = &scale[r][c / NVFP4_GROUP];
            const int code = (7 * r + 5 * c + c / 16) & 15;
            *s = (u8)(40 + 7 * r + c / NVFP4_GROUP);
            data[r][c / 2] |= (u8)(code << c % 2 * 4);
            value[r][c] = e2m1(code) * (f8_e4m3_to_f32(*s) / 5.0f);
        }
    weight_view w = {WF_NVFP4, NV_ROWS, NV_COLS, data, scale, 5.0f, true};
    for (int r = 0; r < NV_ROWS; r++)
        for (int c = 0; c < NV_COLS; c++)
            for (int n = 0; n <= NV_COLS - c; n++) {
                memset(out, 0xff, sizeof out);
                weight_cols_f32(&w, r, c, n, out);
                assert_memory_equal(out, &value[r][c], (size_t)n * sizeof *out);
                if (n < NV_COLS) assert_int_equal(f32_bits(out[n]), 0xffffffffu);
            }
    assert_true(weight_row_unit(WF_NVFP4) == 1 && weight_col_unit(WF_NVFP4) == NVFP4_GROUP);
    assert_int_equal(weight_bytes(&w), NV_ROWS * NV_COLS / 2 + NV_ROWS * NV_COLS / NVFP4_GROUP);
    weight_view rows = weight_rows(&w, 2, 3);
    for (i64 c0 = 0; c0 < NV_COLS; c0 += NVFP4_GROUP)
        for (i64 n = NVFP4_GROUP; n <= NV_COLS - c0; n += NVFP4_GROUP) {
            assert_true(weight_cols_room(&rows, n) <= sizeof room);
            weight_view cut = weight_cols(&rows, c0, n, room);
            for (int r = 0; r < 3; r++) {
                weight_row_f32(&cut, r, out);
                assert_memory_equal(out, &value[2 + r][c0], (size_t)n * sizeof *out);
            }
        }
}

/* What compressed-tensors packs, and what it takes it for (tests/golden/make_nvfp4.py says what the lines are). */
static void test_nvfp4_as_compressed_tensors(void **state) {
    (void)state;
    buf text = {0};
    err e = {0};
    if (file_read("tests/golden/nvfp4.txt", 1 << 20, &text, &e) != ST_OK) fail_msg("%s", e.text);
    int rows, cols, used;
    assert_int_equal(sscanf(text.data, "%d %d\n%n", &rows, &cols, &used), 2);
    char *at = text.data + used;
    size_t n = (size_t)rows * (size_t)cols;
    u8 *data = read_hex(&at, n / 2), *scale = read_hex(&at, n / NVFP4_GROUP), *whole = read_hex(&at, 4),
       *want = read_hex(&at, 4 * n);
    assert_true(at == text.data + text.len);
    weight_view w = {.format = WF_NVFP4_PACKED, .rows = rows, .cols = cols, .data = data, .scale = scale};
    memcpy(&w.factor, whole, 4), w.divides = true;
    f32 *out = malloc((size_t)cols * sizeof *out);
    for (int r = 0; r < rows; r++) {
        weight_row_f32(&w, r, out);
        assert_memory_equal(out, want + (size_t)r * (size_t)cols * 4, (size_t)cols * 4);
    }
    free(out), free(data), free(scale), free(whole), free(want);
    buf_free(&text);
}

/* Each code under scales of either sign, of 0 and of the ends of float32; a row's product is one. */
static void test_int8_row(void **state) {
    (void)state;
    static const f32 scale[] = {1, -0.1f, 0, 0x1p-149f, 0x1p121f, 0x1.fffffep-8f};
    i8 data[COUNT_OF(scale)][256];
    f32 out[256];
    for (size_t r = 0; r < COUNT_OF(scale); r++)
        for (int c = 0; c < 256; c++) data[r][c] = (i8)(c - 128);
    weight_view w = {.format = WF_INT8_ROW, .rows = COUNT_OF(scale), .cols = 256, .data = data, .scale = scale};
    assert_int_equal(weight_bytes(&w), COUNT_OF(scale) * (256 + 4));
    assert_true(weight_row_unit(WF_INT8_ROW) == 1 && weight_col_unit(WF_INT8_ROW) == 1);
    for (i64 r = 0; r < w.rows; r++)
        for (i64 c0 = 0; c0 < 256; c0 += 37) {
            const weight_view one = weight_rows(&w, r, 1);
            weight_cols_f32(&one, 0, c0, 256 - c0, out);
            for (i64 c = c0; c < 256; c++) assert_int_equal(f32_bits(out[c - c0]), f32_bits((f32)(c - 128) * scale[r]));
        }
    _Alignas(64) u8 room[COUNT_OF(scale) * 32 + 64];
    assert_true(weight_cols_room(&w, 5) <= sizeof room);
    const weight_view cut = weight_cols(&w, 126, 5, room);
    weight_row_f32(&cut, 1, out);
    for (int c = 0; c < 5; c++) assert_true(out[c] == (f32)(c - 2) * -0.1f);
    assert_string_equal(weight_format_name(WF_INT8_ROW), "int8_row");
    assert_int_equal(linear_on_gpu(WF_INT8_ROW), WF_BF16);
}

/* What compressed-tensors makes of FP8 and INT8 with a scale a row (tests/golden/make_rows.py says how). */
static void test_rows_as_compressed_tensors(void **state) {
    (void)state;
    static const weight_format formats[] = {WF_FP8_ROW, WF_INT8_ROW};
    buf text = {0};
    err e = {0};
    if (file_read("tests/golden/rows.txt", 1 << 20, &text, &e) != ST_OK) fail_msg("%s", e.text);
    char *at = text.data;
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        int rows, cols, used;
        assert_int_equal(sscanf(at, "%d %d\n%n", &rows, &cols, &used), 2);
        at += used;
        const size_t n = (size_t)rows * (size_t)cols;
        u8 *data = read_hex(&at, n), *scale = read_hex(&at, (size_t)rows * 4), *want = read_hex(&at, 4 * n);
        weight_view w = {.format = formats[f], .rows = rows, .cols = cols, .data = data, .scale = scale};
        f32 *out = malloc((size_t)cols * sizeof *out);
        for (int r = 0; r < rows; r++) {
            weight_row_f32(&w, r, out);
            assert_memory_equal(out, want + (size_t)r * (size_t)cols * 4, (size_t)cols * 4);
        }
        free(out), free(data), free(scale), free(want);
    }
    assert_true(at == text.data + text.len);
    buf_free(&text);
}

/* w4afp8: every code in the low and the high nibble, in two's complement; a scale for 128 columns; columns cut out. */
static void test_int4_group128(void **state) {
    (void)state;
    enum { R = 3, C = 384 };
    static u8 data[R][C / 2];
    f32 scale[R][3], out[C];
    for (int r = 0; r < R; r++) {
        for (int b = 0; b < C / 2; b++) data[r][b] = (u8)(b * 5 + r * 77);
        for (int g = 0; g < 3; g++) scale[r][g] = 0.1f * (f32)(1 + 3 * r + g) * (g == 1 ? -1 : 1);
    }
    weight_view w = {.format = WF_INT4_GROUP128, .rows = R, .cols = C, .data = data, .scale = scale};
    assert_int_equal(weight_bytes(&w), R * C / 2 + R * 3 * 4);
    assert_true(weight_row_unit(WF_INT4_GROUP128) == 1 && weight_col_unit(WF_INT4_GROUP128) == 128);
    bool seen[2][16] = {{false}};
    for (int r = 0; r < R; r++)
        for (int c0 = 0; c0 < C; c0 += 29) {
            weight_cols_f32(&w, r, c0, C - c0, out);
            for (int c = c0; c < C; c++) {
                const int code = data[r][c / 2] / (c % 2 ? 16 : 1) % 16;
                seen[c % 2][code] = true;
                assert_int_equal(f32_bits(out[c - c0]), f32_bits((f32)(code - code / 8 * 16) * scale[r][c / 128]));
            }
        }
    for (int code = 0; code < 16; code++) assert_true(seen[0][code] && seen[1][code]);
    _Alignas(64) u8 room[1024];
    assert_true(weight_cols_room(&w, 256) <= sizeof room);
    const weight_view cut = weight_cols(&w, 128, 256, room);
    for (int r = 0; r < R; r++) {
        f32 all[C];
        weight_row_f32(&w, r, all), weight_row_f32(&cut, r, out);
        assert_memory_equal(out, all + 128, 256 * sizeof *out);
    }
    assert_string_equal(weight_format_name(WF_INT4_GROUP128), "int4_group128");
    assert_int_equal(linear_on_gpu(WF_INT4_GROUP128), WF_BF16);
}

static void test_plain(void **state) {
    (void)state;
    f32 a[2][3] = {{1, 2, 3}, {-0.0f, INFINITY, 1e-42f}}, out[3];
    weight_view w = {.format = WF_F32, .rows = 2, .cols = 3, .data = a};
    weight_row_f32(&w, 1, out);
    assert_memory_equal(out, a[1], sizeof out);
    assert_int_equal(weight_bytes(&w), 24);
    bf16 b[2][3] = {{0x3f80, 0x4000, 0x4040}, {0x8000, 0x7f80, 0x0001}};
    w = (weight_view){.format = WF_BF16, .rows = 2, .cols = 3, .data = b};
    weight_view row = weight_rows(&w, 1, 1);
    weight_row_f32(&row, 0, out);
    for (int c = 0; c < 3; c++) assert_int_equal(f32_bits(out[c]), (u32)b[1][c] << 16);
    assert_int_equal(weight_bytes(&w), 12);
    assert_string_equal(weight_format_name(WF_INT4_GROUP), "int4_group");
}

static void test_requant(void **state) {
    (void)state;
    enum { R = 4, C = 64 };
    bf16 in[R][C] = {{0}};
    for (int c = 0; c < C; c++) in[0][c] = f32_to_bf16((f32)(c % 15 - 7) * 0.5f); /* -3.5 .. 3.5: exact */
    in[2][5] = f32_to_bf16(NAN);
    for (int c = 0; c < C; c++) in[3][c] = f32_to_bf16(c ? (f32)(c % 15 - 7) : 12.0f); /* clipped: one is off by 5 */
    weight_view w = {.format = WF_BF16, .rows = R, .cols = C, .data = in};
    _Alignas(64) u8 memory[1024], plain[R * C * 2];
    assert_true(requant_bytes(R, C) <= sizeof memory);
    weight_view v = requant_int4(&w, memory);
    const bf16 *scale = v.scale;
    f32 row[C];
    for (int g = 0; g < C / INT4_GROUP; g++) assert_true(bf16_to_f32(scale[g]) == 0.5f);
    weight_row_f32(&v, 0, row);
    for (int c = 0; c < C; c++) assert_true(row[c] == (f32)(c % 15 - 7) * 0.5f);
    weight_row_f32(&v, 1, row);
    for (int c = 0; c < C; c++) assert_true(row[c] == 0);
    weight_row_f32(&v, 2, row); /* the bad value's group alone */
    for (int c = 0; c < C; c++) assert_true(c < INT4_GROUP ? isnan(row[c]) : row[c] == 0);
    f32 most_over_7 = 0, best = 0;
    weight_row_f32(&v, 3, row);
    for (int c = 0; c < C; c++) {
        f32 x = bf16_to_f32(in[3][c]), s = bf16_to_f32(f32_to_bf16(12.0f / 7)), whole = rintf(x / s) * s;
        most_over_7 += (whole - x) * (whole - x), best += (row[c] - x) * (row[c] - x);
    }
    assert_true(best < most_over_7);
    assert_memory_equal(requant_bf16(&w, plain).data, in, sizeof in);
    assert_int_equal(expert_stored_as(EXPERTS_W2_BF16, WF_INT4_GROUP, 5), WF_BF16);
    assert_int_equal(expert_stored_as(EXPERTS_W2_BF16, WF_INT4_GROUP, 4), WF_INT4_GROUP);
    assert_int_equal(expert_stored_as(EXPERTS_W4A8, WF_BF16, 2), WF_INT4_GROUP);
}

/* INT4 in groups of 128 keeps its numbers; a scale is rounded to bf16, once, for the four groups in its own. */
static void test_requant_wide_groups(void **state) {
    (void)state;
    enum { R = 2, C = 256 };
    u8 data[R][C / 2];
    f32 scale[R][C / INT4_GROUP_WIDE] = {{1.00390625f, -0.3f}, {0, 3e-30f}}, was[C], is[C];
    for (int i = 0; i < R * C / 2; i++) data[i / (C / 2)][i % (C / 2)] = (u8)(i * 37 + i / 16);
    const weight_view w = {.format = WF_INT4_GROUP128, .rows = R, .cols = C, .data = data, .scale = scale};
    _Alignas(64) u8 room[2048];
    assert_true(requant_bytes(R, C) <= sizeof room);
    const weight_view v = requant_int4(&w, room);
    for (int r = 0; r < R; r++) {
        weight_row_f32(&w, r, was);
        weight_row_f32(&v, r, is);
        for (int c = 0; c < C; c++) {
            const f32 s = scale[r][c / INT4_GROUP_WIDE], rounded = bf16_to_f32(f32_to_bf16(s));
            assert_true(s == 0 ? is[c] == 0 : is[c] == rintf(was[c] / s) * rounded);
        }
    }
    assert_int_equal(expert_on_gpu(EXPERTS_AS_STORED, WF_INT4_GROUP128, 1), WF_INT4_GROUP);
    assert_int_equal(expert_on_gpu(EXPERTS_W2_BF16, WF_INT4_GROUP128, 2), WF_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int4_vectors),
        cmocka_unit_test(test_int4_unrounded),
        cmocka_unit_test(test_int4_groups),
        cmocka_unit_test(test_fp8_partial_blocks),
        cmocka_unit_test(test_fp8_row),
        cmocka_unit_test(test_int4_row),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_requant),
        cmocka_unit_test(test_requant_wide_groups),
        cmocka_unit_test(test_mxfp4_codes),
        cmocka_unit_test(test_mxfp4_scales),
        cmocka_unit_test(test_mxfp4_pieces),
        cmocka_unit_test(test_mxfp4_as_compressed_tensors),
        cmocka_unit_test(test_int8_row),
        cmocka_unit_test(test_int4_group128),
        cmocka_unit_test(test_rows_as_compressed_tensors),
        cmocka_unit_test(test_nvfp4_values),
        cmocka_unit_test(test_nvfp4_pieces),
        cmocka_unit_test(test_nvfp4_as_compressed_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
