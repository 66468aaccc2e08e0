/* kernels/cpu/moe_w4a8_tmpl.h: routed experts in W4A8 (ops.h, at moe_args) at every number of tokens, on the primitives
 * of vec_int8_*.h.
 *
 * A row's nibbles become bytes by a table of sixteen for each group, made of its multiplier on the way: a vector of
 * codes has two or four groups, one in sixteen bytes, and a shuffle looks up its even columns, another one its odd
 * ones. Activations lie in that order. For up to TOKENS tokens the bytes stay in registers; for more, strips of STRIP
 * rows are written to a thread's own memory and multiplied from there: four tokens at a time by vectors, or, behind
 * tiles_amx.h (VEC_TILES), sixteen by TDPBUSD. All sums of products are exact, so a row has the same bits whatever way
 * it took, at every level.
 *
 * Bound by the weights' bytes (0.5625 B a weight) up to about 8 tokens an expert. */
#include "kernels/cpu/combine_tmpl.h"
#include "kernels/cpu/silu_tmpl.h"
#include <stddef.h>

enum {
    W4_BYTES = sizeof(vi),                     /* of a vector of codes */
    W4_COLS = 2 * W4_BYTES,                    /* columns of a step */
    W4_GROUPS = W4_COLS / INT4_GROUP,          /* groups of it */
    W4_STRIP = VL,                             /* rows of a weight side by side */
    W4_TOKENS = 4,                             /* tokens in a register tile */
    W4_ROWS = W4_STRIP / W4_TOKENS,            /* rows of a weight in it */
    W4_BATCH = 128,                            /* tokens of an expert at a time */
    W4_CALL = 2048,                            /* tokens of a call at a time, which is what a workspace is for */
    W4_MOST_GROUPS = INT8_COLUMNS / INT4_GROUP /* of a row */
};
_Static_assert(INT8_BLOCK % W4_BYTES == 0 && MOE_OUT % (2 * W4_STRIP) == 0 && INT8_BLOCK % (2 * W4_STRIP) == 0,
               "whole strips");

/* A row of activations: scale * q, columns in the order of the codes, zeros up to a whole step. Of h it has bf16 in q
 * until all of its columns are there. */
typedef struct {
    f32 scale;
    i32 start; /* -WIDE_ZERO * the sum of q: what a sum begins with */
    u8 rest[56];
    i8 q[];
} w4_row;
_Static_assert(sizeof(w4_row) == 64, "whole lines");

static i64 w4_padded(i64 cols) { return ceil_div(cols, W4_COLS) * W4_COLS; }
static u64 w4_x_bytes(i64 hidden) { return sizeof(w4_row) + (u64)w4_padded(hidden); }
static u64 w4_h_bytes(i64 inter) { return cpu_round64(sizeof(w4_row) + (u64)max_i64(2 * inter, w4_padded(inter))); }

/* ---- Activations ---- */

/* The largest |x|, or NaN where one is not finite. */
static f32 w4_most(const bf16 *x, i64 n) {
    vf most = vf_zero();
    bool finite = true;
    for (i64 c = 0; c < n; c += VL) {
        const vf v = vf_bf16(x + c);
        finite = finite && vf_finite(v);
        most = vf_max(most, vf_max(v, vf_sub(vf_zero(), v)));
    }
    return finite ? vf_highest(most) : NAN;
}

/* x may lie in out->q: what is written of a step takes the room of columns that were read before. */
static void w4_quantise(const bf16 *x, i64 n, w4_row *out) {
    const f32 most = w4_most(x, n);
    out->start = 0;
    out->scale = most < 0x1p-100f ? 0 : most / 127.0f;
    if (!(most >= 0x1p-100f)) {
        memset(out->q, 0, (size_t)w4_padded(n));
        return;
    }
    const vf inverse = vf_set(127.0f / most);
    for (i64 c = 0; c < n; c += W4_COLS) {
        i8 q[W4_COLS] = {0};
        const i64 cols = min_i64(W4_COLS, n - c);
        for (i64 i = 0; i < cols; i += VL)
            out->start -= WIDE_ZERO * vf_store_i8(q + i, vf_mul(vf_bf16(x + c + i), inverse));
        for (i64 i = 0; i < W4_BYTES; i++) out->q[c + i] = q[2 * i], out->q[c + W4_BYTES + i] = q[2 * i + 1];
    }
}

/* ---- Weights ---- */

/* Rows of a matrix in INT4 in groups, from row `row` on; `next`: codes that will be read behind them. */
typedef struct {
    const weight_view *w;
    i64 row;
    const u8 *next;
} w4_strip;

static const u8 *w4_codes(const weight_view *w, i64 row) { return (const u8 *)w->data + row * (w->cols / 2); }
static w4_strip w4_strip_at(const weight_view *w, i64 row) {
    return (w4_strip){w, row, w4_codes(w, row) + W4_STRIP * (w->cols / 2)};
}

/* The multipliers of a row's groups, zeros up to a whole step; returns the row's scale. */
static f32 w4_multipliers(const weight_view *w, i64 row, i16 *m) {
    const i64 groups = w->cols / INT4_GROUP;
    const bf16 *scales = (const bf16 *)w->scale + row * groups;
    u16 bits = 0;
    for (i64 g = 0; g < groups; g++) {
        const u16 b = (u16)((scales[g] & 0x7fff) + (scales[g] >> 15) * 2);
        bits = b > bits ? b : bits;
    }
    for (i64 b = 0; b < groups; b += 32) __builtin_prefetch(scales + W4_STRIP * groups + b, 0, 2);
    const f32 most = bf16_to_f32(bits < 0x7fff ? bits : 0x7fff);
    const bool finite = isfinite(most), used = finite && most >= 0x1p-100f;
    if (!used) {
        memset(m, 0, (size_t)(w4_padded(w->cols) / INT4_GROUP) * sizeof *m);
        return finite ? 0 : NAN;
    }
    const f32 per_scale = 256.0f / most;
    i64 g = 0;
    for (; g + VL <= groups; g += VL)
        vf_store_low16(m + g, vf_fma(vf_bf16(scales + g), vf_set(per_scale), vf_set(0x1.8p23f)));
    for (; g < groups; g++) m[g] = (i16)(fmaf(bf16_to_f32(scales[g]), per_scale, 0x1.8p23f) - 0x1.8p23f);
    for (; g % W4_GROUPS; g++) m[g] = 0;
    return most / 16.0f;
}

/* Rows of a strip that are taken together, with their multipliers. */
typedef struct {
    const u8 *codes, *next; /* of the first one; of what to fetch meanwhile */
    i64 bytes, steps;       /* of a row */
    i16 m[W4_ROWS][W4_MOST_GROUPS];
} w4_rows;

static void w4_rows_set(w4_rows *r, const w4_strip *s, i64 first, f32 *scale) {
    r->bytes = s->w->cols / 2, r->steps = ceil_div(s->w->cols, W4_COLS);
    r->codes = w4_codes(s->w, s->row + first);
    r->next = first + W4_ROWS < W4_STRIP ? r->codes + W4_ROWS * r->bytes : s->next;
    for (i64 i = 0; i < W4_ROWS; i++) scale[first + i] = w4_multipliers(s->w, s->row + first + i, r->m[i]);
}

/* Step s of row i as bytes. */
INLINE void w4_step(const w4_rows *r, i64 s, int i, vi q[2]) {
    const i64 at = i * r->bytes + s * W4_BYTES;
    __builtin_prefetch(r->next + at, 0, 2);
    vi_widen(vi_load_codes(r->codes + at, r->bytes - s * W4_BYTES), r->m[i] + s * W4_GROUPS, q);
}

/* Where bytes of a strip lie: `row` apart a row, `step` apart a vector. */
#ifdef VEC_TILES
INLINE i64 w4_row_apart(i64 padded) { return (void)padded, W4_BYTES; }
INLINE i64 w4_vector_apart(void) { return W4_STRIP * W4_BYTES; }
#else
INLINE i64 w4_row_apart(i64 padded) { return padded; }
INLINE i64 w4_vector_apart(void) { return W4_BYTES; }
#endif

static void w4_widen(const w4_strip *s, u8 *out, f32 scale[W4_STRIP]) {
    const i64 row = w4_row_apart(w4_padded(s->w->cols)), vector = w4_vector_apart();
    w4_rows r;
    for (i64 first = 0; first < W4_STRIP; first += W4_ROWS) {
        w4_rows_set(&r, s, first, scale);
        for (i64 at = 0; at < r.steps; at++)
            for (int i = 0; i < W4_ROWS; i++) {
                vi q[2];
                w4_step(&r, at, i, q);
                u8 *to = out + (first + i) * row + 2 * at * vector;
                vi_store(to, q[0]), vi_store(to + vector, q[1]);
            }
    }
}

/* ---- Products ---- */

/* Sums of W4_ROWS rows from `first` on, of T tokens, to out[T][W4_STRIP]. */
INLINE void w4_store(const vi dots[W4_STRIP], const w4_row *const *x, i64 first, i32 *out, const int T) {
    _Alignas(64) i32 sums[W4_STRIP];
    vi_store(sums, vi_sums(dots));
    for (int t = 0; t < T; t++)
        for (int i = 0; i < W4_ROWS; i++) out[t * W4_STRIP + first + i] = sums[t * W4_ROWS + i] + x[t]->start;
}

/* A strip times T tokens, from the codes. */
INLINE void w4_few(const w4_strip *s, const w4_row *const *x, i32 *out, f32 scale[W4_STRIP], const int T) {
    w4_rows r;
    for (i64 first = 0; first < W4_STRIP; first += W4_ROWS) {
        w4_rows_set(&r, s, first, scale);
        vi dots[W4_STRIP];
        for (int j = 0; j < W4_STRIP; j++) dots[j] = vi_set(0);
        for (i64 at = 0; at < r.steps; at++)
#pragma GCC unroll 4
            for (int i = 0; i < W4_ROWS; i++) {
                vi q[2];
                w4_step(&r, at, i, q);
                for (int t = 0; t < T; t++) {
                    const i8 *v = x[t]->q + at * W4_COLS;
                    vi *dot = &dots[t * W4_ROWS + i];
                    *dot = wide_next(wide_next(*dot, q[0], vi_load(v)), q[1], vi_load(v + W4_BYTES));
                }
            }
        w4_store(dots, x, first, out, T);
    }
}

static void w4_few_tokens(const w4_strip *s, const w4_row *const *x, i64 n, i32 *out, f32 scale[W4_STRIP]) {
    switch (n) {
    case 4: w4_few(s, x, out, scale, 4); break;
    case 3: w4_few(s, x, out, scale, 3); break;
    case 2: w4_few(s, x, out, scale, 2); break;
    case 1: w4_few(s, x, out, scale, 1); break;
    }
}

#ifdef VEC_TILES
/* Two strips' bytes times one or two tiles of sixteen tokens, laid down `next` bytes apart: sums [2][tiles][16][16]. */
static void w4_mac(const u8 *first, const u8 *second, const u8 *x, i64 tiles, i64 next, i64 steps, i32 *sums) {
    TILES_SEE_MEMORY(sums);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (i64 k = 0; k < steps; k++, first += TILE * 64, second += TILE * 64, x += TILE * 64) {
        _tile_loadd(4, first, 64);
        _tile_loadd(6, x, 64);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(5, second, 64);
        _tile_dpbusd(2, 5, 6);
        if (tiles == 1) continue;
        _tile_loadd(7, x + next, 64);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE * TILE, 64);
    _tile_stored(2, sums + 2 * TILE * TILE, 64);
    _tile_stored(3, sums + 3 * TILE * TILE, 64);
}

/* Up to sixteen rows of activations as TDPBUSD wants them: [columns / 64][16][16 rows][4 columns]. */
static void w4_lay(const w4_row *const *x, i64 n, i64 padded, u8 *out) {
    for (i64 c = 0; c < padded; c += W4_BYTES) {
        vi v[TILE];
        for (i64 i = 0; i < TILE; i++) v[i] = i < n ? vi_load(x[i]->q + c) : vi_set(0);
        transpose16(v);
        for (i64 i = 0; i < TILE; i++, out += 64) vi_store(out, v[i]);
    }
}

/* out[2][W4_BATCH][W4_STRIP] of two strips' bytes, `apart` from each other, and n tokens. */
static void w4_many(const u8 *bytes, i64 apart, i64 padded, const w4_row *const *x, const u8 *laid, i64 n, i32 *out) {
    _Alignas(64) i32 sums[4 * TILE * TILE];
    const i64 next = TILE * padded;
    for (i64 at = 0; at < n; at += 2 * TILE) {
        const i64 tiles = n - at > TILE ? 2 : 1;
        w4_mac(bytes, bytes + apart, laid + at * padded, tiles, next, padded / W4_BYTES, sums);
        for (i64 s = 0; s < 2; s++)
            for (i64 t = 0; t < tiles; t++) {
                vi v[TILE];
                for (i64 i = 0; i < TILE; i++) v[i] = vi_load(sums + (s * 2 + t) * TILE * TILE + i * TILE);
                transpose16(v);
                const i64 first = at + t * TILE;
                for (i64 i = 0; i < TILE && first + i < n; i++)
                    vi_store(out + (s * W4_BATCH + first + i) * W4_STRIP, vi_add(v[i], vi_set(x[first + i]->start)));
            }
    }
}
#else
/* W4_ROWS rows of bytes times T tokens. */
INLINE void w4_tile(const u8 *rows, i64 padded, const w4_row *const *x, i64 first, i32 *out, const int T) {
    vi dots[W4_STRIP];
    for (int j = 0; j < W4_STRIP; j++) dots[j] = vi_set(0);
    for (i64 c = 0; c < padded; c += W4_BYTES) {
        vi w[W4_ROWS];
        for (int i = 0; i < W4_ROWS; i++) w[i] = vi_load(rows + i * padded + c);
        for (int t = 0; t < T; t++) {
            const vi v = vi_load(x[t]->q + c);
            for (int i = 0; i < W4_ROWS; i++) dots[t * W4_ROWS + i] = wide_next(dots[t * W4_ROWS + i], w[i], v);
        }
    }
    w4_store(dots, x, first, out, T);
}

/* Four tokens, which stay in the first-level cache, times all rows. */
static void w4_many(const u8 *bytes, i64 apart, i64 padded, const w4_row *const *x, const u8 *laid, i64 n, i32 *out) {
    (void)laid;
    for (i64 t = 0, some; t < n; t += some) {
        some = n - t >= W4_TOKENS ? W4_TOKENS : 1;
        for (i64 row = 0; row < 2 * W4_STRIP; row += W4_ROWS) {
            const i64 s = row / W4_STRIP, first = row % W4_STRIP;
            const u8 *rows = bytes + s * apart + first * padded;
            i32 *to = out + (s * W4_BATCH + t) * W4_STRIP;
            if (some == W4_TOKENS)
                w4_tile(rows, padded, x + t, first, to, W4_TOKENS);
            else
                w4_tile(rows, padded, x + t, first, to, 1);
        }
    }
}
#endif

/* ---- The experts ---- */

typedef struct {
    const moe_args *a;
    moe_plan p;
    u8 *bytes; /* [threads][2 strips] */
#ifdef VEC_TILES
    i64 tiles;
    i32 *first_tile; /* [experts]: in `laid` */
    i32 *expert;     /* [tiles]: whose it is */
    u8 *laid;        /* [tiles][16 rows of activations] */
#endif
} w4_moe;

static i64 w4_longest(const moe_plan *p) { return w4_padded(max_i64(p->hidden, p->inter)); }

/* What stands behind the plan in the workspace; returns where it ends. */
static u64 w4_lay_out(w4_moe *m, const moe_args *a, u8 *base) {
    const i64 hidden = a->experts->views[0].cols, inter = a->experts->views[0].rows, experts = a->experts->n_views / 3,
              longest = w4_padded(max_i64(hidden, inter));
    u64 at = moe_plan_bytes(a, w4_x_bytes(hidden), w4_h_bytes(inter));
    m->bytes = base + at, at += (u64)team_max() * 2 * (u64)(W4_STRIP * longest);
#ifdef VEC_TILES
    const i64 pairs = a->n * a->k, tiles = ceil_div(pairs, TILE) + min_i64(pairs, experts);
    m->first_tile = (i32 *)(base + at), at += cpu_round64((u64)experts * sizeof(i32));
    m->expert = (i32 *)(base + at), at += cpu_round64((u64)tiles * sizeof(i32));
    m->laid = base + at, at += (u64)(tiles * TILE * longest);
#else
    (void)experts;
#endif
    return at;
}

static const w4_row *w4_x_of(const moe_plan *p, i64 pair) {
    return (const w4_row *)((const u8 *)p->x + (u64)p->token[pair] * w4_x_bytes(p->hidden));
}
static w4_row *w4_h_of(const moe_plan *p, i64 pair) {
    return (w4_row *)((u8 *)p->h + (u64)pair * w4_h_bytes(p->inter));
}

#ifdef VEC_TILES
/* Expert e's activations from its token `from` on. */
static const u8 *w4_laid(const w4_moe *m, i64 e, i64 from, i64 padded) {
    return m->laid + (m->first_tile[e] * TILE + from) * padded;
}

/* Tiles are made of the tokens of experts that have more than W4_TOKENS. */
static void w4_count_tiles(w4_moe *m) {
    m->tiles = 0;
    for (i64 e = 0; e < m->p.n_experts; e++) {
        const i64 pairs = m->p.first[e + 1] - m->p.first[e];
        m->first_tile[e] = (i32)m->tiles;
        for (i64 at = 0; pairs > W4_TOKENS && at < pairs; at += TILE) m->expert[m->tiles++] = (i32)e;
    }
}

/* Tile t, of h or x. */
static void w4_lay_tile(const w4_moe *m, i64 t, bool of_h) {
    const moe_plan *p = &m->p;
    const i64 padded = w4_padded(of_h ? p->inter : p->hidden), e = m->expert[t],
              at = p->first[e] + (t - m->first_tile[e]) * TILE, n = min_i64(TILE, p->first[e + 1] - at);
    const w4_row *x[TILE];
    for (i64 i = 0; i < n; i++) x[i] = of_h ? w4_h_of(p, at + i) : w4_x_of(p, at + i);
    w4_lay(x, n, padded, m->laid + t * TILE * padded);
}
#else
static const u8 *w4_laid(const w4_moe *m, i64 e, i64 from, i64 padded) {
    return (void)m, (void)e, (void)from, (void)padded, NULL;
}
#endif

/* Two strips times all tokens of expert e; each batch's sums go to `then`. of_h: their activations are h. */
typedef struct {
    const w4_moe *m;
    i64 e, row; /* row: of the weight, or the column of y */
    f32 *y;
} w4_call;
typedef void w4_then(const w4_call *c, i64 at, i64 n, const w4_row *const *x, const i32 *sums, f32 scale[2][W4_STRIP]);

static void w4_two_strips(const w4_call *c, const w4_strip s[2], bool of_h, w4_then *then) {
    const w4_moe *m = c->m;
    const moe_plan *p = &m->p;
    const i64 first = p->first[c->e], last = p->first[c->e + 1], padded = w4_padded(s[0].w->cols),
              apart = W4_STRIP * padded;
    u8 *bytes = m->bytes + (u64)cpu_thread() * 2 * (u64)(W4_STRIP * w4_longest(p));
    _Alignas(64) i32 sums[2 * W4_BATCH * W4_STRIP];
    f32 scale[2][W4_STRIP];
    const bool few = last - first <= W4_TOKENS;
    for (int i = 0; i < 2 && !few; i++) w4_widen(&s[i], bytes + i * apart, scale[i]);
    for (i64 at = first; at < last; at += W4_BATCH) {
        const i64 n = min_i64(W4_BATCH, last - at);
        const w4_row *x[W4_BATCH];
        for (i64 i = 0; i < n; i++) x[i] = of_h ? w4_h_of(p, at + i) : w4_x_of(p, at + i);
        const u8 *laid = w4_laid(m, c->e, at - first, padded);
        for (int i = 0; i < 2 && few; i++) w4_few_tokens(&s[i], x, n, sums + i * W4_BATCH * W4_STRIP, scale[i]);
        if (!few) w4_many(bytes, apart, padded, x, laid, n, sums);
        then(c, at, n, x, sums, scale);
    }
}

INLINE vf w4_result(const i32 *sums, i64 i, const f32 *scale, const w4_row *x) {
    return vf_mul(vi_f32(vi_load(sums + i * W4_STRIP)), vf_mul(vf_load(scale), vf_set(x->scale)));
}

static void w4_keep_h(const w4_call *c, i64 at, i64 n, const w4_row *const *x, const i32 *sums,
                      f32 scale[2][W4_STRIP]) {
    for (i64 i = 0; i < n; i++) {
        const vf gate = w4_result(sums, i, scale[0], x[i]), up = w4_result(sums, W4_BATCH + i, scale[1], x[i]);
        vf_store_bf16((bf16 *)w4_h_of(&c->m->p, at + i)->q + c->row, silu_mul(gate, up));
    }
}

static void w4_keep_y(const w4_call *c, i64 at, i64 n, const w4_row *const *x, const i32 *sums,
                      f32 scale[2][W4_STRIP]) {
    for (i64 i = 0; i < n; i++)
        for (i64 s = 0; s < 2; s++)
            vf_store(c->y + (at + i) * MOE_OUT + c->row + s * W4_STRIP,
                     w4_result(sums, s * W4_BATCH + i, scale[s], x[i]));
}

/* Columns [row, row + W4_STRIP) of h of all pairs of expert e. */
static void w4_up(const w4_moe *m, i64 e, i64 row) {
    const weight_view *w = &m->a->experts->views[3 * e];
    const w4_strip both[2] = {w4_strip_at(&w[0], row), w4_strip_at(&w[1], row)};
    w4_two_strips(&(w4_call){m, e, row, NULL}, both, false, w4_keep_h);
}

/* y[pairs, MOE_OUT] of the t-th touched expert: output columns [col, col + MOE_OUT). */
static void w4_down(const w4_moe *m, i64 t, i64 col, f32 *y) {
    const moe_plan *p = &m->p;
    const i64 e = p->touched[t], after = p->touched[(t + 1) % p->n_touched];
    const weight_view *w = &m->a->experts->views[3 * e + 2], *next = &m->a->experts->views[3 * after + 2];
    for (i64 j = 0; j < MOE_OUT; j += 2 * W4_STRIP) {
        w4_strip both[2] = {w4_strip_at(w, col + j), w4_strip_at(w, col + j + W4_STRIP)};
        if (j + 2 * W4_STRIP >= MOE_OUT) both[1].next = w4_codes(next, col);
        w4_two_strips(&(w4_call){m, e, j, y}, both, true, w4_keep_y);
    }
}

static u64 w4_workspace(const moe_args *a) {
    w4_moe m;
    moe_args most = *a;
    u8 nowhere[64];
    most.n = min_i64(a->n, W4_CALL);
    return w4_lay_out(&m, &most, nowhere);
}

/* At most W4_CALL tokens. */
static void w4_run_some(const moe_args *a) {
    w4_moe m = {.a = a};
    moe_plan *p = &m.p;
    w4_lay_out(&m, a, a->workspace);
    moe_plan_make(p, a, w4_x_bytes(a->experts->views[0].cols), w4_h_bytes(a->experts->views[0].rows));
    const i64 blocks = p->inter / W4_STRIP, together = moe_items_together(p->n_touched * blocks);
#ifdef VEC_TILES
    w4_count_tiles(&m);
#endif
    team tm = team_begin(3 * a->n * a->k * p->inter * p->hidden);
#pragma omp parallel num_threads(tm.threads)
    {
        f32 *y = moe_plan_y(p, a);
#ifdef VEC_TILES
        tiles_begin(64);
#endif
#pragma omp for schedule(static)
        for (i64 i = 0; i < a->n; i++)
            w4_quantise((const bf16 *)a->x + i * p->hidden, p->hidden,
                        (w4_row *)((u8 *)p->x + (u64)i * w4_x_bytes(p->hidden)));
#ifdef VEC_TILES
#pragma omp for schedule(static)
        for (i64 t = 0; t < m.tiles; t++) w4_lay_tile(&m, t, false);
#endif
#pragma omp for schedule(dynamic, together)
        for (i64 it = 0; it < p->n_touched * blocks; it++) w4_up(&m, p->touched[it / blocks], it % blocks * W4_STRIP);
#pragma omp for schedule(static)
        for (i64 i = 0; i < p->n_pairs; i++) w4_quantise((const bf16 *)w4_h_of(p, i)->q, p->inter, w4_h_of(p, i));
#ifdef VEC_TILES
#pragma omp for schedule(static)
        for (i64 t = 0; t < m.tiles; t++) w4_lay_tile(&m, t, true);
#endif
#pragma omp for schedule(dynamic)
        for (i64 col = 0; col < p->hidden; col += MOE_OUT) {
            for (i64 t = 0; t < p->n_touched; t++) w4_down(&m, t, col, y);
            combine_pairs(a, p, col, y);
        }
#ifdef VEC_TILES
        _tile_release();
#endif
    }
    team_end(&tm);
}

/* a->experts are in W4A8 (cpu_in_w4a8()). */
static void w4_run(const moe_args *a) {
    const i64 hidden = a->experts->views[0].cols;
    for (i64 at = 0; at < a->n; at += W4_CALL) {
        moe_args some = *a;
        some.n = min_i64(W4_CALL, a->n - at);
        some.x = (const bf16 *)a->x + at * hidden;
        some.ids += at * a->k, some.weights += at * a->k;
        if (a->shared) some.shared = (const bf16 *)a->shared + at * hidden;
        some.out = (bf16 *)a->out + at * hidden;
        w4_run_some(&some);
    }
}
