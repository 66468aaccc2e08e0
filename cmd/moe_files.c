#include "moe_files.h"
#include "base/file.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

status moe_size_is(const char *path, u64 is, u64 should, const char *what, err *e) {
    if (is == should) return ST_OK;
    return err_set(e, ST_INPUT, "%s: %" PRIu64 " bytes, but %s of this shape has %" PRIu64, path, is, what,
                   should);
}

status moe_read_raw(const char *path, void *out, u64 bytes, i64 *sets, const char *what, err *e) {
    file_map m;
    status st = file_map_open(&m, path, e);
    if (st != ST_OK) return st;
    bool many = *sets > 1 && m.size == bytes * (u64)*sets;
    if (!many) st = moe_size_is(path, m.size, bytes, what, e);
    if (st == ST_OK) memcpy(out, m.data, m.size);
    if (!many) *sets = 1;
    file_map_close(&m);
    return st;
}

/* Sum of the squared differences with this scale. */
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
    for (int q = 8; q >= 1 && least > 0; q--) { /* -8 first: what is there is one of them */
        bf16 near = f32_to_bf16(q == 8 ? -most / 8 : fabsf(most) / (f32)q);
        for (int by = -1; by <= 1 && least > 0; by++) {
            bf16 scale = (bf16)(near + by);
            f32 off = misfit(w, bf16_to_f32(scale));
            if (off < least) least = off, best = scale;
        }
    }
    return best;
}

weight_view moe_int4_of(const bf16 *w, i64 rows, i64 cols, void *memory) {
    u8 *data = memory;
    bf16 *scales = (bf16 *)(data + (((u64)rows * (u64)cols / 2 + 63) & ~(u64)63));
#pragma omp parallel for schedule(static)
    for (i64 g = 0; g < rows * cols / INT4_GROUP; g++) {
        f32 v[INT4_GROUP];
        for (int i = 0; i < INT4_GROUP; i++) v[i] = bf16_to_f32(w[g * INT4_GROUP + i]);
        scales[g] = scale_of(v);
        f32 scale = bf16_to_f32(scales[g]), inverse = scale != 0 && isfinite(scale) ? 1.0f / scale : 0;
        u8 q[INT4_GROUP];
        for (int i = 0; i < INT4_GROUP; i++)
            q[i] = (u8)(inverse != 0 ? (int)fminf(fmaxf(rintf(v[i] * inverse), -8.0f), 7.0f) + 8 : 8);
        for (int i = 0; i < INT4_GROUP; i += 2) data[(g * INT4_GROUP + i) / 2] = (u8)(q[i] | q[i + 1] << 4);
    }
    return (weight_view){.format = WF_INT4_GROUP, .rows = rows, .cols = cols, .data = data, .scale = scales};
}
