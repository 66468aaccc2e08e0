/* kernels/gpu/images.h: the kernel files that were compiled into the program, one image each. None where make found
 * no compiler for GPUs. */
#ifndef KERNELS_GPU_IMAGES_H
#define KERNELS_GPU_IMAGES_H
#include "device/gpu.h"

extern const gpu_image gpu_images[]; /* [gpu_n_images] */
extern const int gpu_n_images;

#endif
