/* device/cublas.h: large matrix products in bf16 by NVIDIA's cuBLASLt, where the library is there. */
#ifndef DEVICE_CUBLAS_H
#define DEVICE_CUBLAS_H
#include "device/gpu.h"

typedef struct cublas cublas;

/* y[n, rows] = x[n, cols] W^T, with W [rows, cols], or y = x W with W [cols, rows] if across; once for each head, whose w, x
 * and y begin w_step, x_step and y_step elements behind those of the one before. w and x are bf16, sums float32, y bf16,
 * or float32 if wide; with add y += that, rounded once. Addresses are multiples of 16. */
typedef struct {
    const void *w, *x;
    void *y;
    i64 n, rows, cols, w_stride, x_stride, y_stride;
    i64 heads, w_step, x_step, y_step;
    bool across, wide, add;
} cublas_product;

/* Opens the library: $MOONLET_CUBLASLT, else what the dynamic linker finds as libcublasLt.so.13 or .12. Allocates all memory
 * it will ever need on the GPU. ST_UNSUPPORTED with the reason where there is none. g must outlive it. */
status cublas_open(cublas **out, gpu *g, err *e);
void cublas_close(cublas *c); /* NULL is allowed */
/* Queues the product on g's stream. False: the library has no kernel for this shape, and nothing was queued. The kernel of a
 * shape is chosen once and kept. */
bool cublas_multiply(cublas *c, const cublas_product *p);

#endif
