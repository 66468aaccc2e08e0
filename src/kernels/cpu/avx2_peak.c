/* kernels/cpu/avx2_peak.c: the loop behind cpu_loop_f32x8(). */
#include <immintrin.h>
#define PEAK_LOOP          cpu_loop_f32x8
#define PEAK_VEC           __m256
#define PEAK_ZERO          _mm256_setzero_ps()
#define PEAK_A             _mm256_set1_ps(0.5f)
#define PEAK_B             _mm256_set1_ps(1e-9f)
#define PEAK_STEP(s, a, b) _mm256_fmadd_ps(a, b, s)
#define PEAK_OPS           16
#include "kernels/cpu/peak_tmpl.h"
