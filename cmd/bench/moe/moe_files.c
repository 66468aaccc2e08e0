#include "cmd/bench/moe/moe_files.h"
#include "base/file.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

status moe_size_is(const char *path, u64 is, u64 should, const char *what, err *e) {
    if (is == should) return ST_OK;
    return err_set(e, ST_INPUT, "%s: %" PRIu64 " bytes, but %s of this shape has %" PRIu64, path, is, what, should);
}

status moe_read_raw(const char *path, void *out, u64 bytes, i64 *sets, const char *what, err *e) {
    enum { MOST = 64 };
    file_map m;
    status st = file_map_open(&m, path, e);
    if (st != ST_OK) return st;
    u64 there = m.size % bytes ? 0 : m.size / bytes;
    bool many = sets && *sets > 1 && there == (u64)*sets;
    if (!many) st = moe_size_is(path, m.size, bytes, what, e);
    if (st != ST_OK && sets && there > 1 && there <= MOST)
        st = err_set(e, ST_INPUT, "%s has %d routings of %" PRIu64 " bytes: --sets %d runs them", path, (int)there,
                     bytes, (int)there);
    if (st == ST_OK) memcpy(out, m.data, m.size);
    if (sets && !many) *sets = 1;
    file_map_close(&m);
    return st;
}

enum {
    LANES = 16 /* groups side by side */,
    QUARTER = 12582912 /* 1.5 * 2^23: added and taken away, it rounds as rintf does */
};
typedef f32 lanes[LANES];
#define EACH_LANE for (int g = 0; g < LANES; g++)

/* As fminf(fmaxf(rintf(w * inverse), -8), 7) of what is not NaN. */
static inline f32 moe_files_step_of(f32 w, f32 inverse) {
    f32 q = (w * inverse + QUARTER) - QUARTER;
    q = q < -8.0f ? -8.0f : q;
    return q > 7.0f ? 7.0f : q;
}

/* One try of a scale for each group: the sum of squared differences, in the order of the group's values, and the
 * best so far. */
static inline __attribute__((always_inline)) void try_scales(const lanes *w, const u32 *bits, f32 *least, u32 *best) {
    lanes scale, inverse, sum;
    EACH_LANE {
        scale[g] = f32_from_bits(bits[g] << 16);
        inverse[g] = 1.0f / scale[g];
        sum[g] = 0;
    }
    for (int i = 0; i < INT4_GROUP; i++) EACH_LANE {
            f32 off = w[i][g] - scale[g] * moe_files_step_of(w[i][g], inverse[g]);
            sum[g] += off * off;
        }
    EACH_LANE {
        bool better = sum[g] < least[g];
        least[g] = better ? sum[g] : least[g];
        best[g] = better ? bits[g] : best[g];
    }
}

/* The best scales; `most`: each group's value that is furthest from zero. */
static inline __attribute__((always_inline)) void find_scales(const lanes *w, const f32 *most, u32 *best) {
    lanes least;
    u32 bits[LANES];
    EACH_LANE least[g] = INFINITY, best[g] = 0;
    bool exact = false;
    for (int q = 8; q >= 1 && !exact; q--) { /* -8 first: what is there is one of them */
        for (int by = -1; by <= 1; by++) {
            for (int g = 0; g < LANES; g++)
                bits[g] = (u16)(f32_to_bf16(q == 8 ? -most[g] / 8 : fabsf(most[g]) / (f32)q) + by);
            try_scales(w, bits, least, best);
        }
        exact = true;
        for (int g = 0; g < LANES; g++) exact = exact && !(least[g] > 0);
    }
}

/* LANES groups, one after the other in w and data. */
static inline __attribute__((always_inline)) void groups_body(const bf16 *w, u8 *data, bf16 *scales) {
    lanes v[INT4_GROUP], most, inverse;
    u32 best[LANES];
    bool finite[LANES], some[LANES];
    u8 q[INT4_GROUP][LANES];
    for (int g = 0; g < LANES; g++) {
        finite[g] = true, most[g] = 0;
        for (int i = 0; i < INT4_GROUP; i++) {
            v[i][g] = bf16_to_f32(w[g * INT4_GROUP + i]);
            finite[g] = finite[g] && isfinite(v[i][g]);
            if (fabsf(v[i][g]) > fabsf(most[g])) most[g] = v[i][g];
        }
        some[g] = finite[g] && !(fabsf(most[g]) < 0x1p-100f);
        if (some[g]) continue;
        most[g] = 1; /* any: what comes of it is not used */
        for (int i = 0; i < INT4_GROUP; i++) v[i][g] = 0;
    }
    find_scales(v, most, best);
    for (int g = 0; g < LANES; g++) {
        scales[g] = some[g] ? (bf16)best[g] : finite[g] ? 0 : f32_to_bf16(NAN);
        f32 scale = bf16_to_f32(scales[g]);
        inverse[g] = scale != 0 && isfinite(scale) ? 1.0f / scale : 0;
    }
    for (int i = 0; i < INT4_GROUP; i++) EACH_LANE q[i][g] = (u8)((int)moe_files_step_of(v[i][g], inverse[g]) + 8);
    for (int g = 0; g < LANES; g++)
        for (int i = 0; i < INT4_GROUP; i += 2) data[(g * INT4_GROUP + i) / 2] = (u8)(q[i][g] | q[i + 1][g] << 4);
}

static void groups_plain(const bf16 *w, u8 *data, bf16 *scales) { groups_body(w, data, scales); }
__attribute__((target("avx2"))) static void groups_avx2(const bf16 *w, u8 *data, bf16 *scales) {
    groups_body(w, data, scales);
}

weight_view moe_int4_of(const bf16 *w, i64 rows, i64 cols, void *memory) {
    u8 *data = memory;
    bf16 *scales = (bf16 *)(data + (((u64)rows * (u64)cols / 2 + 63) & ~(u64)63));
    const i64 groups = rows * cols / INT4_GROUP;
    void (*const convert)(const bf16 *, u8 *, bf16 *) = __builtin_cpu_supports("avx2") ? groups_avx2 : groups_plain;
#pragma omp parallel for schedule(static)
    for (i64 at = 0; at < groups; at += LANES) {
        if (at + LANES <= groups) {
            convert(w + at * INT4_GROUP, data + at * INT4_GROUP / 2, scales + at);
            continue;
        }
        bf16 some[LANES * INT4_GROUP] = {0}, last[LANES];
        u8 packed[LANES * INT4_GROUP / 2];
        i64 left = groups - at;
        memcpy(some, w + at * INT4_GROUP, (u64)(left * INT4_GROUP) * 2);
        convert(some, packed, last);
        memcpy(data + at * INT4_GROUP / 2, packed, (u64)(left * INT4_GROUP / 2));
        memcpy(scales + at, last, (u64)left * 2);
    }
    return (weight_view){.format = WF_INT4_GROUP, .rows = rows, .cols = cols, .data = data, .scale = scales};
}
