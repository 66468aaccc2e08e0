/* media/resize_loops.h: the inner loops of resizing, of which there is one set for any processor and one for AVX2. */
#ifndef MEDIA_RESIZE_LOOPS_H
#define MEDIA_RESIZE_LOOPS_H
#include "base/types.h"

enum {
    WEIGHT_BITS = 22, /* fraction bits of a weight */
    ACROSS_ROWS = 4,  /* rows at a time, which share the work on the weights */
    ACROSS_SPARE = 16 /* bytes behind a row's last that loops may read */
};

/* Output i is the sum over k < count[i] of weight[i * taps + k] * source[first[i] + k]. */
typedef struct {
    u32 n, taps; /* outputs; the room for each one's weights, a multiple of 4 */
    u32 *first, *count;
    i32 *weight; /* [n, taps]; 0 from an output's count on */
} resize_windows;

typedef struct {
    /* Rows across: src[r] [width, 3], dst[r] [w->n, 3]. */
    void (*across)(const resize_windows *w, const u8 *const src[ACROSS_ROWS], u8 *const dst[ACROSS_ROWS]);
    /* One output row of n bytes down: src [count, n] is its window's rows. */
    void (*down)(const i32 *weight, u32 count, const u8 *src, size_t n, u8 *dst);
} resize_loops;

extern const resize_loops resize_loops_any, resize_loops_avx2;

#endif
