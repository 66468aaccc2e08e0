/* kernels/cpu/dot_amx_tmpl.h: products of bf16 rows by AMX's tiles, sixteen rows of a weight by sixteen of x.
 *
 * TDPBF16PS adds 32 columns to sixteen by sixteen sums. The columns of a sum come in an order of their own, whatever
 * stands in the other rows of a tile, so a result's bits depend on its two rows alone. A weight's rows are read where
 * they lie; rows of x are laid down in pairs of columns, sixteen rows side by side, as the instruction wants them. */
#include "kernels/cpu/tiles_amx.h"

static __mmask32 first_cols(i64 n) { return n >= TILE_K ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1; }

/* Columns [c, c + n) of x's rows as [tiles][steps][16 pairs][16 rows] pairs of bf16, zero where there is none; of a
 * single row [steps][16 pairs]. */
static void lay_pairs(const bf16 *const *x, i64 nx, i64 c, i64 n, u8 *out) {
    for (i64 at = 0; at < nx; at += TILE)
        for (i64 k = 0; k < n; k += TILE_K) {
            __m512i v[TILE];
            for (i64 i = 0; i < TILE; i++)
                v[i] = at + i < nx ? _mm512_maskz_loadu_epi16(first_cols(n - k), x[at + i] + c + k)
                                   : _mm512_setzero_si512();
            const i64 rows = nx == 1 ? 1 : TILE;
            if (rows > 1) transpose16(v);
            for (i64 i = 0; i < rows; i++, out += 64) _mm512_storeu_si512(out, v[i]);
        }
}

/* Rows of a weight of which there are fewer than sixteen, or columns of fewer than 32: with zeros behind them. */
static void lay_rest(const bf16 *w, i64 ws, i64 rows, i64 n, bf16 *out, i64 stride) {
    for (i64 r = 0; r < TILE; r++)
        for (i64 k = 0; k < n; k += TILE_K)
            _mm512_storeu_si512(out + r * stride + k, r < rows
                                                          ? _mm512_maskz_loadu_epi16(first_cols(n - k), w + r * ws + k)
                                                          : _mm512_setzero_si512());
}

/* Tiles of sums in memory: the first, the bytes from one to the next and from row to row. */
typedef struct {
    void *p;
    i64 next, stride;
} tile_sums;

/* Does A for the sums in use: n of four. */
#define EACH_SUM(n, s, A)                                                                                              \
    A(0, (u8 *)(s).p, (s).stride);                                                                                     \
    if ((n) > 1) A(1, (u8 *)(s).p + (s).next, (s).stride);                                                             \
    if ((n) > 2) A(2, (u8 *)(s).p + 2 * (s).next, (s).stride);                                                         \
    if ((n) > 3) A(3, (u8 *)(s).p + 3 * (s).next, (s).stride)
#define SUM_LOAD(t, p, stride)  _tile_loadd(t, p, stride)
#define SUM_STORE(t, p, stride) _tile_stored(t, p, stride)
#define SUM_ZERO(t, p, stride)  _tile_zero(t)

/* sums [strips][tiles] of [16 rows of w][16 of x] (+)= `steps` tiles of columns; strips * tiles <= X_TILES. ws in
 * bytes; x as lay_pairs() leaves it. */
static void tiles_mac(const void *rows, i64 ws, i64 strips, const void *pairs, i64 tiles, i64 steps, i64 width,
                      tile_sums sums, bool first) {
    const i64 n = strips * tiles, bytes = TILE * width, next = steps * bytes, down = TILE * ws;
    const u8 *w = rows, *x = pairs;
    TILES_SEE_MEMORY(sums.p);
    if (first) {
        EACH_SUM(n, sums, SUM_ZERO);
    } else {
        EACH_SUM(n, sums, SUM_LOAD);
    }
    for (i64 k = 0; k < steps; k++, w += TILE_K * sizeof(bf16), x += bytes) {
        _tile_loadd(4, w, ws);
        _tile_loadd(6, x, width);
        _tile_dpbf16ps(0, 4, 6);
        if (tiles > 2) {
            _tile_loadd(7, x + next, width);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(6, x + 2 * next, width);
            _tile_dpbf16ps(2, 4, 6);
            if (tiles == 3) continue;
            _tile_loadd(7, x + 3 * next, width);
            _tile_dpbf16ps(3, 4, 7);
        } else if (tiles == 2) {
            _tile_loadd(7, x + next, width);
            _tile_dpbf16ps(1, 4, 7);
            if (strips == 1) continue;
            _tile_loadd(5, w + down, ws);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        } else if (strips > 1) {
            _tile_loadd(5, w + down, ws);
            _tile_dpbf16ps(1, 5, 6);
            if (strips == 2) continue;
            _tile_loadd(4, w + 2 * down, ws);
            _tile_dpbf16ps(2, 4, 6);
            if (strips == 3) continue;
            _tile_loadd(5, w + 3 * down, ws);
            _tile_dpbf16ps(3, 5, 6);
        }
    }
    EACH_SUM(n, sums, SUM_STORE);
}

/* Sums [strips][tiles][16 rows of w][16 of x] as y[nx, ys]. */
static void tiles_store(const u8 *sums, i64 strips, i64 nx, f32 *y, i64 ys) {
    if (nx == 1) {
        memcpy(y, sums, (size_t)(strips * TILE) * sizeof *y);
        return;
    }
    for (i64 s = 0; s < strips; s++)
        for (i64 at = 0; at < nx; at += TILE, sums += SUM_BYTES) {
            __m512i v[TILE];
            for (i64 i = 0; i < TILE; i++) v[i] = _mm512_load_si512(sums + i * 64);
            transpose16(v);
            for (i64 i = 0; i < TILE && at + i < nx; i++) _mm512_storeu_si512(y + (at + i) * ys + s * TILE, v[i]);
        }
}

/* y[nx, ys] = the rows of x times nw rows of w [nw, ws] of k columns; nx at most 16 * X_TILES, nw at most 16 * STRIPS.
 * Up to the next multiple of sixteen y is zero behind a row's results. Of a weight 32 rows at most are read at a time:
 * a processor fetches ahead of so many, and of 64 few rows of x had half of the memory's rate. */
static void dot_tiles(const bf16 *const *x, i64 nx, const bf16 *w, i64 ws, i64 nw, i64 k, f32 *y, i64 ys) {
    _Alignas(64) u8 pairs[PAIRS_BYTES], sums[STRIPS * X_TILES * SUM_BYTES];
    _Alignas(64) bf16 rest[TILE * PAIRS_COLS];
    const i64 tiles = ceil_div(nx, TILE), width = nx == 1 ? 4 : 64, strips = ceil_div(nw, TILE),
              full = k / TILE_K * TILE_K, most = tiles > 2 ? 1 : 2,
              block = min_i64(PAIRS_COLS, PAIRS_BYTES / (tiles * width) * 2) / TILE_K * TILE_K;
    tiles_begin(width);
    for (i64 c = 0, n; c < k; c += n) {
        n = c < full ? min_i64(block, full - c) : k - c;
        const i64 steps = ceil_div(n, TILE_K);
        lay_pairs(x, nx, c, n, pairs);
        for (i64 s = 0, m; s < strips; s += m) {
            const bf16 *from = w + s * TILE * ws + c;
            const tile_sums to = {sums + s * tiles * TILE * width, TILE * width, width};
            m = min_i64(most, nw / TILE - s);
            if (n % TILE_K || m < 1) {
                m = 1;
                lay_rest(from, ws, min_i64(TILE, nw - s * TILE), n, rest, steps * TILE_K);
                tiles_mac(rest, steps * TILE_K * 2, 1, pairs, tiles, steps, width, to, c == 0);
            } else {
                tiles_mac(from, ws * 2, m, pairs, tiles, steps, width, to, c == 0);
            }
        }
    }
    _tile_release();
    tiles_store(sums, strips, nx, y, ys);
}
