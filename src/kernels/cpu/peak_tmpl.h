/* kernels/cpu/peak_tmpl.h: a loop of multiplies and adds from registers, once per instruction. Who includes it defines
 * PEAK_LOOP (the function), PEAK_VEC (a sum), PEAK_ZERO, PEAK_A and PEAK_B (the factors), PEAK_STEP(s, a, b) and
 * PEAK_OPS (multiplies and adds of one step). */
#include "kernels/cpu/cpu.h"

/* One step of a sum that the compiler must neither drop nor merge with another. */
#define STEP(s)                                                                                                        \
    s = PEAK_STEP(s, a, b);                                                                                            \
    __asm__ volatile("" : "+v"(s))

/* Twelve independent sums, in registers, hide the latency of two units. */
f64 PEAK_LOOP(void) {
    enum { SUMS = 12, ROUNDS = 2000000 };
    const __typeof__(PEAK_A) a = PEAK_A, b = PEAK_B;
    PEAK_VEC s0 = PEAK_ZERO, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0,
             s11 = s0;
    for (int r = 0; r < ROUNDS; r++) {
        STEP(s0);
        STEP(s1);
        STEP(s2);
        STEP(s3);
        STEP(s4);
        STEP(s5);
        STEP(s6);
        STEP(s7);
        STEP(s8);
        STEP(s9);
        STEP(s10);
        STEP(s11);
    }
    return (f64)ROUNDS * SUMS * PEAK_OPS;
}
