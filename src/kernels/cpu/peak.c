#include "kernels/cpu/peak.h"
#include "base/log.h"
#include "kernels/cpu/cpu.h"
#include <omp.h>

f64 cpu_peak_read(const void *p, u64 bytes) {
    f64 best = 0;
    u64 words = bytes / 8, sink = 0;
    for (int pass = 0; pass < 5; pass++) {
        f64 start = now_s();
        u64 sum = 0;
#pragma omp parallel reduction(+ : sum)
        {
            u64 t = (u64)omp_get_thread_num(), n = (u64)omp_get_num_threads();
            const u64 *w = p;
            u64 s[8] = {0}, k = words / n * t / 8 * 8, end = words / n * (t + 1) / 8 * 8;
            for (; k < end; k += 8)
                for (int l = 0; l < 8; l++) s[l] += w[k + (u64)l];
            for (int l = 0; l < 8; l++) sum += s[l];
        }
        f64 rate = (f64)bytes / (now_s() - start);
        if (rate > best) best = rate;
        sink += sum;
    }
    __asm__ volatile("" : : "r"(sink));
    return best;
}

/* Runs `loop` on every thread; it returns the operations that it did. */
static f64 rate(f64 (*loop)(void)) {
    f64 best = 0;
    for (int pass = 0; pass < 8; pass++) {
        f64 start = now_s(), done = 0;
#pragma omp parallel reduction(+ : done)
        done += loop();
        f64 r = done / (now_s() - start);
        if (r > best) best = r;
    }
    return best;
}

f64 cpu_peak_int8(u32 isa) { return isa & ISA_VNNI ? rate(cpu_loop_int8) : 0; }
f64 cpu_peak_int8_tiles(u32 isa) { return isa & ISA_AMX_INT8 ? rate(cpu_loop_amx_int8) : 0; }
f64 cpu_peak_bf16(u32 isa) { return isa & ISA_AMX ? rate(cpu_loop_amx) : isa & ISA_BF16 ? rate(cpu_loop_bf16) : 0; }
f64 cpu_peak_f32(u32 isa) {
    return isa & ISA_AVX512 ? rate(cpu_loop_f32x16) : isa & ISA_AVX2 ? rate(cpu_loop_f32x8) : 0;
}
