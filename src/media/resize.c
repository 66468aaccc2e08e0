/* PIL's bicubic. An output value is a weighted sum of a window of source values; windows and weights are the same for
 * all rows (or columns), so they are computed once, in double precision, and kept as integers with 22 fraction bits.
 * From there on all is integer arithmetic, so that the loops of resize_avx2.c agree with those here to the bit. */
#include "media/resize.h"
#include "base/buf.h"
#include "media/resize_loops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static f64 bicubic(f64 x) {
    const f64 a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static void windows_free(resize_windows *w) {
    free(w->first);
    free(w->count);
    free(w->weight);
    *w = (resize_windows){0};
}

/* The window of output i, and its weights of sum 1 through `real` [taps]. */
static void window_fill(resize_windows *w, u32 i, u32 from, f64 *real) {
    f64 scale = (f64)from / w->n, widened = fmax(scale, 1), support = 2 * widened, centre = (i + 0.5) * scale;
    f64 narrow = 1 / widened, sum = 0;
    i64 begin = max_i64((i64)(centre - support + 0.5), 0), end = min_i64((i64)(centre + support + 0.5), from);
    u32 n = (u32)(end - begin);
    for (u32 k = 0; k < n; k++) {
        real[k] = bicubic(((f64)(k + begin) - centre + 0.5) * narrow);
        sum += real[k];
    }
    for (u32 k = 0; k < n; k++) {
        f64 scaled = (sum != 0 ? real[k] / sum : real[k]) * (1 << WEIGHT_BITS);
        w->weight[(u64)i * w->taps + k] = (i32)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
    w->first[i] = (u32)begin;
    w->count[i] = n;
}

static status windows_make(resize_windows *w, u32 from, u32 to, err *e) {
    f64 support = 2 * fmax((f64)from / to, 1);
    *w = (resize_windows){.n = to, .taps = (2 * (u32)ceil(support) + 1 + 3) / 4 * 4};
    w->first = malloc(to * sizeof *w->first);
    w->count = malloc(to * sizeof *w->count);
    w->weight = calloc((u64)to * w->taps, sizeof *w->weight); /* about 4 * max(from, to) of them */
    f64 *real = malloc(w->taps * sizeof *real);
    bool ok = w->first && w->count && w->weight && real;
    for (u32 i = 0; ok && i < to; i++) window_fill(w, i, from, real);
    free(real);
    if (ok) return ST_OK;
    windows_free(w);
    return err_nomem(e, "resizing a picture", (u64)to * w->taps * sizeof *w->weight);
}

static u8 clipped(i32 sum) {
    sum >>= WEIGHT_BITS;
    return sum < 0 ? 0 : sum > 255 ? 255 : (u8)sum;
}

static void across_any(const resize_windows *w, const u8 *const src[ACROSS_ROWS], u8 *const dst[ACROSS_ROWS]) {
    for (int r = 0; r < ACROSS_ROWS; r++) {
        for (u32 i = 0; i < w->n; i++) {
            const u8 *p = src[r] + 3 * (size_t)w->first[i];
            const i32 *weight = w->weight + (size_t)i * w->taps;
            i32 sum[3] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1)};
            for (u32 k = 0; k < w->count[i]; k++, p += 3)
                for (int c = 0; c < 3; c++) sum[c] += p[c] * weight[k];
            for (int c = 0; c < 3; c++) dst[r][3 * (size_t)i + c] = clipped(sum[c]);
        }
    }
}

static void down_any(const i32 *weight, u32 count, const u8 *src, size_t n, u8 *dst) {
    enum { LANES = 64 };
    for (size_t x = 0; x < n; x += LANES) {
        size_t lanes = n - x < LANES ? n - x : LANES;
        i32 sum[LANES];
        for (size_t j = 0; j < LANES; j++) sum[j] = 1 << (WEIGHT_BITS - 1);
        for (u32 k = 0; k < count; k++)
            for (size_t j = 0; j < lanes; j++) sum[j] += src[k * n + x + j] * weight[k];
        for (size_t j = 0; j < lanes; j++) dst[x + j] = clipped(sum[j]);
    }
}

const resize_loops resize_loops_any = {across_any, down_any};

static const resize_loops *loops_of_cpu(void) {
    return __builtin_cpu_supports("avx2") ? &resize_loops_avx2 : &resize_loops_any;
}

/* The last rows of a picture, as many as ACROSS_SPARE bytes reach into, with so many bytes behind them. */
typedef struct {
    u32 first; /* row; those from here on stand in `bytes` */
    u8 *bytes;
} tail_rows;

static status tail_copy(const picture *in, tail_rows *t, err *e) {
    size_t stride = 3 * (size_t)in->width;
    u64 rows = min_i64(in->height, ceil_div(ACROSS_SPARE, (i64)stride));
    t->first = in->height - (u32)rows;
    t->bytes = calloc(rows * stride + ACROSS_SPARE, 1);
    if (!t->bytes) return err_nomem(e, "resizing a picture", rows * stride + ACROSS_SPARE);
    memcpy(t->bytes, in->rgb + t->first * stride, rows * stride);
    return ST_OK;
}

/* Rows [from, to) of `in` to out [to - from, w->n, 3]. */
static status resize_across(const picture *in, const resize_windows *w, u32 from, u32 to, int threads, u8 *out,
                            err *e) {
    const resize_loops *loops = loops_of_cpu();
    size_t stride = 3 * (size_t)in->width;
    tail_rows tail;
    status s = tail_copy(in, &tail, e);
    if (s != ST_OK) return s;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (u32 y = from; y < to; y += ACROSS_ROWS) {
        const u8 *src[ACROSS_ROWS];
        u8 *dst[ACROSS_ROWS];
        for (u32 r = 0; r < ACROSS_ROWS; r++) {
            u32 row = y + r < to ? y + r : to - 1; /* the last one again where there are no more */
            src[r] = row < tail.first ? in->rgb + row * stride : tail.bytes + (row - tail.first) * stride;
            dst[r] = out + 3 * (size_t)(row - from) * w->n;
        }
        loops->across(w, src, dst);
    }
    free(tail.bytes);
    return ST_OK;
}

/* src: rows from the first window's first on. */
static void resize_rows_down(const u8 *src, const resize_windows *w, int threads, picture *out) {
    const resize_loops *loops = loops_of_cpu();
    size_t stride = 3 * (size_t)out->width;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (u32 y = 0; y < out->height; y++)
        loops->down(w->weight + (size_t)y * w->taps, w->count[y], src + (w->first[y] - w->first[0]) * stride, stride,
                    out->rgb + y * stride);
}

/* Across into a picture between, then down; a direction whose size stays is left out. */
static status resize_both(const picture *in, const resize_windows *across, const resize_windows *down, int threads,
                          picture *out, err *e) {
    if (out->height == in->height) return resize_across(in, across, 0, in->height, threads, out->rgb, e);
    u32 last = down->n - 1, from = down->first[0], to = down->first[last] + down->count[last];
    if (out->width == in->width) {
        resize_rows_down(in->rgb + 3 * (size_t)from * in->width, down, threads, out);
        return ST_OK;
    }
    picture between;
    status s = picture_new(out->width, to - from, &between, e);
    if (s == ST_OK) s = resize_across(in, across, from, to, threads, between.rgb, e);
    if (s == ST_OK) resize_rows_down(between.rgb, down, threads, out);
    picture_free(&between);
    return s;
}

status picture_resize(const picture *in, u32 width, u32 height, int threads, picture *out, err *e) {
    status s = picture_new(width, height, out, e);
    if (s != ST_OK) return s;
    if (width == in->width && height == in->height) {
        memcpy(out->rgb, in->rgb, 3 * (size_t)width * height);
        return ST_OK;
    }
    resize_windows across = {0}, down = {0};
    s = windows_make(&across, in->width, width, e);
    if (s == ST_OK) s = windows_make(&down, in->height, height, e);
    if (s == ST_OK) s = resize_both(in, &across, &down, threads < 1 ? 1 : threads, out, e);
    windows_free(&across);
    windows_free(&down);
    if (s != ST_OK) picture_free(out);
    return s;
}
