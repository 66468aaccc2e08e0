/* kernels/cpu/avx512bf16_peak.c: the loop behind cpu_loop_bf16(). */
#include <immintrin.h>
#define PEAK_LOOP          cpu_loop_bf16
#define PEAK_VEC           __m512
#define PEAK_ZERO          _mm512_setzero_ps()
#define PEAK_A             (__m512bh) _mm512_set1_epi16(0x3f80)
#define PEAK_B             (__m512bh) _mm512_set1_epi16(0x3000)
#define PEAK_STEP(s, a, b) _mm512_dpbf16_ps(s, a, b)
#define PEAK_OPS           64
#include "kernels/cpu/peak_tmpl.h"
