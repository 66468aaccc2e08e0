#include "kernels/gpu/images.h"

/* make passes the list, X(rows/rows) X(gemm/generic) ..., and the folder of the compiled files; nothing without
 * nvcc. */
#ifndef GPU_IMAGES
#define GPU_IMAGES(X)
#define GPU_IMAGE_DIR ""
#endif

/* The files, then the table of them: the assembler knows their lengths, which are no constants of C. They are
 * compressed fat binaries (Makefile), which the driver unpacks into memory of its own; 8 bytes is what their header
 * needs. */
#define BYTES(id)                                                                                                      \
    ".balign 8\n\".Limage_" #id "\":\n.incbin \"" GPU_IMAGE_DIR "/" #id ".fatbin\"\n\".Lend_" #id "\":\n.byte 0\n"     \
    "\".Lname_" #id "\": .asciz \"" #id "\"\n"
#define ROW(id) ".quad \".Lname_" #id "\", \".Limage_" #id "\", \".Lend_" #id "\" - \".Limage_" #id "\"\n"
_Static_assert(sizeof(gpu_image) == 24 && offsetof(gpu_image, data) == 8 && offsetof(gpu_image, bytes) == 16,
               "a row of the table is three quads");

__asm__(".pushsection .rodata\n" GPU_IMAGES(
    BYTES) ".popsection\n"
           ".pushsection .data.rel.ro, \"aw\"\n.balign 8\n.globl gpu_images\ngpu_images:\n" GPU_IMAGES(
               ROW) ".quad 0, 0, 0\n.popsection\n");

#define ONE(id) +1
const int gpu_n_images = 0 GPU_IMAGES(ONE);
