/* kernels/cpu/avx512amx_peak.c: cpu_loop_amx(), the products of peak_tmpl.h by tiles. */
#include "kernels/cpu/tiles_amx.h"

f64 cpu_loop_amx(void) {
    enum { ROUNDS = 1000000, SUMS = 4 };
    tiles_begin(64);
    _tile_zero(4);
    _tile_zero(6);
    for (int r = 0; r < ROUNDS; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 6);
    }
    _tile_release();
    return (f64)ROUNDS * SUMS * 2 * TILE * TILE * TILE_K;
}
