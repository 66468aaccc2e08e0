/* tests/lib/vector_exp.h: e^x as the processors' vector layer makes it (kernels/cpu/vec_*.h), a value at a time. */
#ifndef TESTS_VECTOR_EXP_H
#define TESTS_VECTOR_EXP_H
#include "base/types.h"
#include <math.h>

/* n ln 2 in two pieces, Taylor to degree 7. */
static inline f32 exp_as_vectors(f32 x) {
    static const f32 terms[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1, 1};
    if (isnan(x)) return x;
    x = fminf(88.7f, fmaxf(-87.3f, x));
    f32 n = nearbyintf(x * 1.44269504f), r = fmaf(-n, 0x1.62e4p-1f, x), p = terms[0];
    r = fmaf(-n, 1.42860677e-6f, r);
    for (int i = 1; i < 8; i++) p = fmaf(p, r, terms[i]);
    return ldexpf(p, (int)n);
}

#endif
