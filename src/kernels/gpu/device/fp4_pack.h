/* kernels/gpu/device/fp4_pack.h: how the GPU keeps MXFP4 and NVFP4 experts: int4_pack.h's blocks, of e2m1.
 *
 *   bytes 0..511    16 for each lane as there, the same columns in the same words, but of a pair not its nibbles: e2m1
 *   is s e e m, and bf16 has the same bits at 15, 8, 7 and 6, so that those of all pairs are spread over the word such
 *   that a shift and a mask put a pair where bf16 wants it (FP4_BITS: even column in the lower half, odd in the upper).
 *                     pair 0  word                    pair 2  word turned right by 6
 *                     pair 1  word << 6               pair 3  word << 4 (s, e, e), word >> 4 (m)
 *   That is the value times 2^-126, zero and 0.5 too: bf16's exponents end below as e2m1's do.
 *   bytes 512..575  8 for each g, 4 of row g, then 4 of row g + 8: what a value is multiplied with, as bf16.
 *                     MXFP4   two bf16, of columns 0..31 and 32..63: the scale * 2^(126 - FP4_MXFP4_GAIN)
 *                     NVFP4   four bytes, of 16 columns each: bits 4..11 of bf16, FP4_NVFP4_HIGH above them: the
 *                             scale's size * 2^(126 - FP4_NVFP4_GAIN). The nibbles have the sign of a scale below 0,
 *                             and are 0 where it is 0; a byte of 255 is NaN.
 *
 * gpu_matrix.factor is the rest: 2^FP4_MXFP4_GAIN, or NVFP4's factor * 2^FP4_NVFP4_GAIN. Both products with the scale
 * are exact: e2m1 has two significant bits, e4m3 four, bf16 eight. MXFP4's scales of
 * 2^26 and more become NaN; values below 2^-109 become 0.
 *
 * Included by C and by device code. */
#ifndef KERNELS_GPU_DEVICE_FP4_PACK_H
#define KERNELS_GPU_DEVICE_FP4_PACK_H
#include "kernels/gpu/device/int4_pack.h"

enum { FP4_MXFP4_GAIN = 24, FP4_NVFP4_GAIN = 9 };
#define FP4_BITS       0x81c081c0u
#define FP4_NVFP4_HIGH 0x7000u

#endif
