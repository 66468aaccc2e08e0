/* kernels/cpu/avx512vnni_peak.c: the loop behind cpu_loop_int8(). */
#include <immintrin.h>
#define PEAK_LOOP          cpu_loop_int8
#define PEAK_VEC           __m512i
#define PEAK_ZERO          _mm512_setzero_si512()
#define PEAK_A             _mm512_set1_epi8(3)
#define PEAK_B             _mm512_set1_epi8(-2)
#define PEAK_STEP(s, a, b) _mm512_dpbusd_epi32(s, a, b)
#define PEAK_OPS           128
#include "kernels/cpu/peak_tmpl.h"
