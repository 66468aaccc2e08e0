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

#endif
