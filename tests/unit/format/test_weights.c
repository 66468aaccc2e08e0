/* How matrices lie in checkpoints: test vectors of each layout. */
#include <math.h>
#include <stdlib.h>
#include "unit.h"
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
    weight_view v = requant_rows(&w, memory);
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
    _Alignas(64) u8 memory[1024], again[1024], plain[R * C * 2];
    assert_true(requant_bytes(R, C) <= sizeof memory);
    weight_view v = requant_rows(&w, memory);
    const bf16 *scale = v.scale;
    f32 row[C];
    for (int g = 0; g < C / INT4_GROUP; g++) assert_true(bf16_to_f32(scale[g]) == 0.5f);
    weight_row_f32(&v, 0, row);
    for (int c = 0; c < C; c++) assert_true(row[c] == (f32)(c % 15 - 7) * 0.5f);
    weight_row_f32(&v, 1, row);
    for (int c = 0; c < C; c++) assert_true(row[c] == 0);
    weight_row_f32(&v, 2, row);
    for (int c = 0; c < C; c++) assert_true(isnan(row[c]));
    f32 most_over_7 = 0, best = 0;
    weight_row_f32(&v, 3, row);
    for (int c = 0; c < C; c++) {
        f32 x = bf16_to_f32(in[3][c]), s = bf16_to_f32(f32_to_bf16(12.0f / 7)), whole = rintf(x / s) * s;
        most_over_7 += (whole - x) * (whole - x), best += (row[c] - x) * (row[c] - x);
    }
    assert_true(best < most_over_7);
    weight_view same = requant_rows(&v, again); /* rows of one scale stay */
    assert_memory_equal(same.data, v.data, R * C / 2);
    assert_memory_equal(same.scale, v.scale, R * C / INT4_GROUP * 2);
    assert_memory_equal(requant_bf16(&w, plain).data, in, sizeof in);
    assert_int_equal(expert_stored_as(EXPERTS_W2_BF16, WF_INT4_GROUP, 5), WF_BF16);
    assert_int_equal(expert_stored_as(EXPERTS_W2_BF16, WF_INT4_GROUP, 4), WF_INT4_GROUP);
    assert_int_equal(expert_stored_as(EXPERTS_W4A8, WF_BF16, 2), WF_INT4_GROUP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int4_vectors), cmocka_unit_test(test_int4_unrounded),
        cmocka_unit_test(test_int4_groups),  cmocka_unit_test(test_fp8_partial_blocks),
        cmocka_unit_test(test_fp8_row),      cmocka_unit_test(test_int4_row),
        cmocka_unit_test(test_plain),        cmocka_unit_test(test_requant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
