/* kernels/cpu/tiles_amx.h: AMX's tiles as dot_amx_tmpl.h uses them. */
#ifndef KERNELS_CPU_TILES_AMX_H
#define KERNELS_CPU_TILES_AMX_H
#include "kernels/cpu/cpu.h"
#include <immintrin.h>

enum {
    TILE = 16,                           /* rows of a tile; columns of a tile of sums */
    TILE_K = 32,                         /* columns of a tile of bf16 */
    X_TILES = 4,                         /* tiles of sums in registers at a time */
    PAIRS_COLS = 8192,                   /* most columns of x that are laid down at a time */
    PAIRS_BYTES = PAIRS_COLS * TILE * 2, /* of them, in the second-level cache: of more than 16 rows fewer columns */
    STRIPS = 16,                         /* tiles of a weight's rows that one call takes */
    SUM_BYTES = TILE * TILE * 4          /* of a tile of sums */
};

/* What was stored so far is in memory behind this. gcc's intrinsics do not say that tiles and their configuration are
 * loaded from memory, so stores in front of them may be moved behind them or dropped. */
#define TILES_SEE_MEMORY(p) __asm__ volatile("" : : "r"(p) : "memory")

/* Tiles 0 to 3 are sums, 4 and 5 a weight's, 6 and 7 those of x, whose rows have `width` bytes. */
INLINE void tiles_begin(i64 width) {
    struct {
        u8 palette, start, reserved[14];
        u16 bytes[16];
        u8 rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        config.rows[t] = TILE;
        config.bytes[t] = (u16)(t == 4 || t == 5 ? TILE_K * sizeof(bf16) : (u64)width);
    }
    _Static_assert(sizeof config == 64, "what LDTILECFG reads");
    TILES_SEE_MEMORY(&config);
    _tile_loadconfig(&config);
}

/* Sixteen rows of sixteen 32-bit words change places with their columns. */
static inline void transpose16(__m512i v[TILE]) {
    __m512i w[TILE];
    for (int i = 0; i < TILE; i += 2) {
        w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < TILE; i += 4)
        for (int j = 0; j < 2; j++) {
            v[i + 2 * j] = _mm512_unpacklo_epi64(w[i + j], w[i + j + 2]);
            v[i + 2 * j + 1] = _mm512_unpackhi_epi64(w[i + j], w[i + j + 2]);
        }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            w[i + 8 * j] = _mm512_shuffle_i32x4(v[i + 8 * j], v[i + 8 * j + 4], 0x88);
            w[i + 8 * j + 4] = _mm512_shuffle_i32x4(v[i + 8 * j], v[i + 8 * j + 4], 0xdd);
        }
    for (int i = 0; i < 4; i++) { /* w[i] has columns i and i + 8 of the first eight rows, w[i + 4] i + 4 and i + 12 */
        v[i] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(w[i + 4], w[i + 12], 0xdd);
    }
}

#endif
