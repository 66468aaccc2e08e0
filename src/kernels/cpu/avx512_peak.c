/* kernels/cpu/avx512_peak.c: the loop behind cpu_loop_f32x16(). */
#include <immintrin.h>
#define PEAK_LOOP          cpu_loop_f32x16
#define PEAK_VEC           __m512
#define PEAK_ZERO          _mm512_setzero_ps()
#define PEAK_A             _mm512_set1_ps(0.5f)
#define PEAK_B             _mm512_set1_ps(1e-9f)
#define PEAK_STEP(s, a, b) _mm512_fmadd_ps(a, b, s)
#define PEAK_OPS           32
#include "kernels/cpu/peak_tmpl.h"
