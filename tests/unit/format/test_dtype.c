/* Element types: names, sizes, and every conversion against its definition computed another way. */
#include <math.h>
#include "unit.h"
#include "format/dtype.h"

static void test_names(void **state) {
    (void)state;
    for (int t = 0; t < DT_COUNT; t++) {
        dtype back;
        const char *n = dtype_name((dtype)t);
        assert_true(dtype_parse(n, strlen(n), &back));
        assert_int_equal(back, t);
        assert_false(dtype_parse(n, strlen(n) - 1, &back));
        u32 size = dtype_size((dtype)t);
        assert_true(size == 1 || size == 2 || size == 4 || size == 8);
    }
    dtype d;
    assert_false(dtype_parse("", 0, &d));
    assert_false(dtype_parse("bf16", 4, &d));
    assert_false(dtype_parse("BF16 ", 5, &d));
    assert_int_equal(dtype_size(DT_BF16), 2);
    assert_int_equal(dtype_size(DT_F8_E4M3), 1);
}

/* sign, 4 bits of exponent with bias 7, 3 bits of mantissa; S.1111.111 is the only NaN, there is no infinity
 * (OCP 8-bit floating point specification, table 1). */
static f64 e4m3_value(int code) {
    int ex = code >> 3 & 15, man = code & 7;
    f64 v = ex ? ldexp(8 + man, ex - 7 - 3) : ldexp(man, 1 - 7 - 3);
    return code & 128 ? -v : v;
}

static void test_e4m3_all_codes(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        f32 f = f8_e4m3_to_f32((u8)code);
        if ((code & 127) == 127) {
            assert_true(isnan(f));
            assert_int_equal(f32_to_f8_e4m3(f) & 127, 127);
            continue;
        }
        assert_true((f64)f == e4m3_value(code));
        assert_int_equal(signbit(f) != 0, code >> 7);
        assert_int_equal(f32_to_f8_e4m3(f), code);
    }
    assert_true(f8_e4m3_to_f32(0x7e) == 448.0f);
    assert_true(f8_e4m3_to_f32(0x01) == 0x1p-9f);
}

/* Between neighbours: the nearer one, at the middle the one with an even mantissa. */
static void test_e4m3_rounding(void **state) {
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        f64 lo = e4m3_value(code), hi = e4m3_value(code + 1), mid = (lo + hi) / 2;
        int even = code & 1 ? code + 1 : code;
        const f64 sign[2] = {1, -1};
        for (int s = 0; s < 2; s++) {
            int bit = s << 7;
            assert_int_equal(f32_to_f8_e4m3((f32)(sign[s] * mid)), even | bit);
            assert_int_equal(f32_to_f8_e4m3(nextafterf((f32)(sign[s] * mid), 0)), code | bit);
            assert_int_equal(f32_to_f8_e4m3(nextafterf((f32)(sign[s] * mid), (f32)sign[s] * 1e9f)), (code + 1) | bit);
        }
    }
    const f32 large[] = {448, 464, 465, 1e30f, INFINITY};
    for (size_t i = 0; i < COUNT_OF(large); i++) {
        assert_int_equal(f32_to_f8_e4m3(large[i]), 0x7e);
        assert_int_equal(f32_to_f8_e4m3(-large[i]), 0xfe);
    }
    assert_int_equal(f32_to_f8_e4m3(0x1p-11f), 0);
    assert_int_equal(f32_to_f8_e4m3(-0.0f), 0x80);
    assert_int_equal(f32_to_f8_e4m3(1e-45f), 0);
}

static void test_bf16(void **state) {
    (void)state;
    for (u32 h = 0; h < 65536; h++) { /* every bf16 survives the way there and back */
        f32 f = bf16_to_f32((bf16)h);
        assert_int_equal(f32_bits(f), h << 16);
        bf16 back = f32_to_bf16(f);
        if (isnan(f))
            assert_true(isnan(bf16_to_f32(back)));
        else
            assert_int_equal(back, h);
    }
    for (u32 h = 0; h < 0x7f7f; h += 3) { /* halves go to even, everything else to the nearer */
        u32 mid = h << 16 | 0x8000;
        assert_int_equal(f32_to_bf16(f32_from_bits(mid)), h & 1 ? h + 1 : h);
        assert_int_equal(f32_to_bf16(f32_from_bits(mid - 1)), h);
        assert_int_equal(f32_to_bf16(f32_from_bits(mid + 1)), h + 1);
    }
    assert_int_equal(f32_to_bf16(f32_from_bits(0x7f7fffff)), 0x7f80); /* the largest float becomes infinity */
    assert_int_equal(f32_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0x7f800001))))); /* not infinity */
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f32_from_bits(0xffffffff)))));
}

static void test_f16(void **state) {
    (void)state;
    for (u32 h = 0; h < 65536; h++) {
        f32 f = f16_to_f32((u16)h);
        int ex = (int)(h >> 10 & 31), man = (int)(h & 1023);
        if (ex == 31) {
            assert_true(man ? isnan(f) : isinf(f));
            continue;
        }
        f64 v = ex ? ldexp(1024 + man, ex - 25) : ldexp(man, -24);
        assert_true((f64)f == (h >> 15 ? -v : v));
        assert_int_equal(signbit(f) != 0, h >> 15);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_e4m3_all_codes),
        cmocka_unit_test(test_e4m3_rounding), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
