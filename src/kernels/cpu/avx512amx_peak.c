/* kernels/cpu/avx512amx_peak.c: the products of peak_tmpl.h by tiles, of bf16 and of bytes. */
#include "kernels/cpu/tiles_amx.h"

#define DEFINE_TILE_LOOP(NAME, PRODUCT, COLS)                                                                          \
    f64 NAME(void) {                                                                                                   \
        enum { ROUNDS = 1000000, SUMS = 4 };                                                                           \
        tiles_begin(64);                                                                                               \
        _tile_zero(4);                                                                                                 \
        _tile_zero(6);                                                                                                 \
        for (int r = 0; r < ROUNDS; r++) {                                                                             \
            PRODUCT(0, 4, 6);                                                                                          \
            PRODUCT(1, 4, 6);                                                                                          \
            PRODUCT(2, 4, 6);                                                                                          \
            PRODUCT(3, 4, 6);                                                                                          \
        }                                                                                                              \
        _tile_release();                                                                                               \
        return (f64)ROUNDS * SUMS * 2 * TILE * TILE * (COLS);                                                          \
    }
DEFINE_TILE_LOOP(cpu_loop_amx, _tile_dpbf16ps, TILE_K)
DEFINE_TILE_LOOP(cpu_loop_amx_int8, _tile_dpbusd, 64)
