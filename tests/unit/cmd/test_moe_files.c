/* bf16 weights as INT4: many groups side by side give what one value after the other gives. */
#include "cmd/bench/moe/moe_files.c"
#include "cmd/lib/synthetic.c"
#include "unit.h"

static f32 rounded(f32 w, f32 inverse) { return fminf(fmaxf(rintf(w * inverse), -8.0f), 7.0f); }

static bf16 scale_of(const f32 *w) {
    f32 most = 0, least = INFINITY;
    bf16 best = 0;
    for (int i = 0; i < INT4_GROUP; i++) {
        if (!isfinite(w[i])) return f32_to_bf16(NAN);
        if (fabsf(w[i]) > fabsf(most)) most = w[i];
    }
    for (int t = 0; t < 24 && !(fabsf(most) < 0x1p-100f); t++) {
        bf16 bits = (bf16)(f32_to_bf16(t < 3 ? -most / 8 : fabsf(most) / (f32)(8 - t / 3)) + t % 3 - 1);
        f32 sum = 0, scale = bf16_to_f32(bits), inverse = 1.0f / scale;
        for (int i = 0; i < INT4_GROUP; i++) {
            f32 off = w[i] - scale * rounded(w[i], inverse);
            sum += off * off;
        }
        if (sum < least) least = sum, best = bits;
    }
    return best;
}

enum { ROWS = 37, COLS = 96, N = ROWS * COLS, BYTES = (N / 2 + 63) / 64 * 64 + N / INT4_GROUP * 2, KINDS = 5 };

static bf16 value(synth *s, int kind, int i) {
    u64 r = synth_bits(s);
    f32 scale = bf16_to_f32((bf16)(0x3c00 + i / 32 * 37 % 16 * 16));
    switch (kind) {
    case 0: return f32_to_bf16(synth_normal(s) * 0.03f);
    case 1: return (bf16)r; /* any bits: groups with NaN and infinity, and of all sizes */
    case 2: return f32_to_bf16(scale * (f32)((int)(r & 15) - 8)); /* stays what it is */
    case 3: return (bf16)((r & 0x80ff) | 0x7e80);                 /* squares overflow, and the largest scale */
    default: return (bf16)((r & 0x80ff) | 0x0d00);                /* around 2^-100 */
    }
}

static void expect_groups(const bf16 *w, const u8 *data, const bf16 *scales, i64 groups, bool exact) {
    for (i64 g = 0; g < groups; g++) {
        f32 v[INT4_GROUP];
        for (int i = 0; i < INT4_GROUP; i++) v[i] = bf16_to_f32(w[g * INT4_GROUP + i]);
        assert_int_equal(scales[g], scale_of(v));
        f32 scale = bf16_to_f32(scales[g]), inverse = scale != 0 && isfinite(scale) ? 1.0f / scale : 0;
        for (int i = 0; i < INT4_GROUP; i++) {
            int q = (data[(g * INT4_GROUP + i) / 2] >> i % 2 * 4 & 15) - 8;
            assert_int_equal(q, inverse != 0 ? (int)rounded(v[i], inverse) : 0);
            assert_true(!exact || (f32)q * scale == v[i]);
        }
    }
}

static void as_one_by_one(void **state) {
    (void)state;
    static bf16 w[N], scales[LANES];
    static _Alignas(64) u8 memory[BYTES];
    u8 data[LANES * INT4_GROUP / 2];
    for (int kind = 0; kind < KINDS; kind++) {
        synth s = {(u64)kind};
        for (int i = 0; i < N; i++) w[i] = value(&s, kind, i);
        weight_view v = moe_int4_of(w, ROWS, COLS, memory);
        expect_groups(w, v.data, v.scale, N / INT4_GROUP, kind == 2);
        groups_plain(w, data, scales);
        expect_groups(w, data, scales, LANES, kind == 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
