/* kernels/cpu/peak.h: what this machine can do at best, for the shares that `moonlet bench` prints. */
#ifndef KERNELS_CPU_PEAK_H
#define KERNELS_CPU_PEAK_H
#include "kernels/ops.h"

/* Bytes a second that all threads together read from `p` [bytes], which should be far larger than the caches;
 * the best of a few passes. */
f64 cpu_peak_read(const void *p, u64 bytes);
/* Multiplies and adds a second (two per product) of all threads, from registers; 0 without the instruction
 * that the cpu backend would use: VPDPBUSD, TDPBF16PS or VDPBF16PS, FMA on zmm or ymm. */
f64 cpu_peak_int8(u32 isa);
f64 cpu_peak_bf16(u32 isa);
f64 cpu_peak_int8_tiles(u32 isa); /* TDPBUSD, for W4A8 */
f64 cpu_peak_f32(u32 isa);

#endif
