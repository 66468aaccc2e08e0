/* bf16 weights as INT4: many groups side by side give what one value after the other gives. */
#include "../../cmd/moe_files.c"
#include "../../cmd/synth.c"
#include "unit.h"

static f32 misfit(const f32 *w, f32 scale) {
    f32 sum = 0, inverse = 1.0f / scale;
    for (int i = 0; i < INT4_GROUP; i++) {
        f32 off = w[i] - scale * fminf(fmaxf(rintf(w[i] * inverse), -8.0f), 7.0f);
        sum += off * off;
    }
    return sum;
}

static bf16 scale_of(const f32 *w) {
    f32 most = 0, least = INFINITY;
    bf16 best = 0;
    for (int i = 0; i < INT4_GROUP; i++) {
        if (!isfinite(w[i])) return f32_to_bf16(NAN);
        if (fabsf(w[i]) > fabsf(most)) most = w[i];
    }
    if (fabsf(most) < 0x1p-100f) return 0;
    for (int q = 8; q >= 1; q--)
        for (int by = -1; by <= 1; by++) {
            bf16 scale = (bf16)(f32_to_bf16(q == 8 ? -most / 8 : fabsf(most) / (f32)q) + by);
            f32 off = misfit(w, bf16_to_f32(scale));
            if (off < least) least = off, best = scale;
        }
    return best;
}

enum {
    ROWS = 37,
    COLS = 96,
    N = ROWS * COLS,
    BYTES = (N / 2 + 63) / 64 * 64 + N / INT4_GROUP * 2,
    KINDS = 6
};

static bf16 value(synth *s, int kind, int i) {
    u64 r = synth_bits(s);
    switch (kind) {
    case 0: return f32_to_bf16(synth_normal(s) * 0.03f);
    case 1: return (bf16)r; /* any bits: groups with NaN and infinity, and of all sizes */
    case 2: return (bf16)(r & 0xbfff);
    case 3: /* whole multiples of a bf16 scale */
        return f32_to_bf16(bf16_to_f32((bf16)(0x3c00 + i / 32 * 37 % 16 * 16)) * (f32)((int)(r & 15) - 8));
    case 4: return (bf16)((r & 0x80ff) | 0x7e80);  /* squares overflow, and the largest scale does */
    default: return (bf16)((r & 0x80ff) | 0x0d00); /* around 2^-100 */
    }
}

static void expect_groups(const bf16 *w, const u8 *data, const bf16 *scales, i64 groups) {
    for (i64 g = 0; g < groups; g++) {
        f32 v[INT4_GROUP];
        for (int i = 0; i < INT4_GROUP; i++) v[i] = bf16_to_f32(w[g * INT4_GROUP + i]);
        bf16 want = scale_of(v);
        assert_int_equal(scales[g], want);
        f32 scale = bf16_to_f32(want), inverse = scale != 0 && isfinite(scale) ? 1.0f / scale : 0;
        for (int i = 0; i < INT4_GROUP; i++) {
            int q = inverse != 0 ? (int)fminf(fmaxf(rintf(v[i] * inverse), -8.0f), 7.0f) : 0;
            assert_int_equal((data[(g * INT4_GROUP + i) / 2] >> i % 2 * 4 & 15) - 8, q);
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
        expect_groups(w, v.data, v.scale, N / INT4_GROUP);
        groups_plain(w, data, scales);
        expect_groups(w, data, scales, LANES);
        for (int i = 0; i < N && kind == 3; i++) {
            f32 scale = bf16_to_f32(((const bf16 *)v.scale)[i / INT4_GROUP]);
            int q = (((const u8 *)v.data)[i / 2] >> i % 2 * 4 & 15) - 8;
            assert_true((f32)q * scale == bf16_to_f32(w[i]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
