/* kernels/gpu/device/int4_pack.h: how the GPU keeps INT4 experts: in the order in which the tensor cores take them.
 *
 * A matrix [rows, cols] (rows % 16 == 0, cols % 64 == 0) is cut into blocks of 16 rows by 64 columns, PACK_BYTES
 * each. Blocks of the same 16 rows, a strip, lie one after another, then the next strip: block (r, c) begins at (r *
 * cols / 64 + c) * PACK_BYTES. A run of blocks of a strip, or of whole strips, is one copy.
 *
 *   bytes 0..511    16 for each lane 4 g + t of a warp: word s has the nibbles of columns 16 s .. 16 s + 15 that
 *   this lane holds
 *                   of the first operand of mma.m16n8k16 (and of wgmma's, 16 rows a warp):
 *                     pair 0  row g,     columns 16 s + 2t, + 1        pair 2  row g,     columns 16 s + 8 + 2t, + 1
 *                     pair 1  row g + 8, columns 16 s + 2t, + 1        pair 3  row g + 8, columns 16 s + 8 + 2t, + 1
 *                   The even column of pair i lies at bits 4 i .., the odd one at bits 16 + 4 i ..: (word >> 4 i &
 *                   0x000f000f) |
 *                   0x43004300 is the pair as bf16 128 + u, and less 136 it is q = u - 8, exactly.
 *   bytes 512..575  8 for each g: bf16 scales of row g columns 0..31, row g columns 32..63, row g + 8 columns 0..31,
 *   row g + 8
 *                   columns 32..63.
 *
 * As many bytes as INT4's checkpoint has. The value is one rounding to bf16 of q * scale.
 *
 * fp4_pack.h has e2m1 in such blocks. Included by C and by device code. */
#ifndef KERNELS_GPU_DEVICE_INT4_PACK_H
#define KERNELS_GPU_DEVICE_INT4_PACK_H

enum {
    PACK_ROWS = 16,
    PACK_COLS = 64,
    PACK_BYTES = 576,
    PACK_SCALES = 512 /* bytes before them */
};

#endif
