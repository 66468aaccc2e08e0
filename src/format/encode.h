/* format/encode.h: values to the bytes of a weight format: the functions of format/quantize.h's table, whose head says
 * how scales are chosen. w[n, cols] is finite; data and scale are where its rows begin; counts[cols] weigh squared
 * differences where a scale is searched for. */
#ifndef FORMAT_ENCODE_H
#define FORMAT_ENCODE_H
#include "format/weights.h"

void encode_int4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
f32 encode_w4a8_factor(f32 most);
void encode_w4a8(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
void encode_mxfp4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
/* ModelOpt's factor multiplies the scales, compressed-tensors' divides them. */
f32 encode_nvfp4_factor(f32 most);
f32 encode_nvfp4_divisor(f32 most);
void encode_nvfp4(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
void encode_nvfp4_divided(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
void encode_int8(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
void encode_fp8_block(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
void encode_bf16(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);

/* gptq_code (gptq.h) of each. */
f32 code_int4(void *data, const void *scale, f32 factor, i64 c, f32 w);
f32 code_w4a8(void *data, const void *scale, f32 factor, i64 c, f32 w);
f32 code_mxfp4(void *data, const void *scale, f32 factor, i64 c, f32 w);
f32 code_nvfp4(void *data, const void *scale, f32 factor, i64 c, f32 w);
f32 code_nvfp4_divided(void *data, const void *scale, f32 factor, i64 c, f32 w);

/* w / scale as -8..7, as -128..127, and |x| as an e2m1 of 0..7: nearest, ties to even. */
int int4_nearest(f32 w, f32 scale);
int int8_nearest(f32 w, f32 scale);
u8 e2m1_nearest(f32 x);

#endif
