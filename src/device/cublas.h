/* device/cublas.h: large matrix products in bf16 by NVIDIA's cuBLASLt, where the library is there. */
#ifndef DEVICE_CUBLAS_H
#define DEVICE_CUBLAS_H
#include "device/gpu.h"

typedef struct cublas cublas;

/* How the library computes a product, as it describes its own configurations: (name, attribute, bytes, most). */
#define CUBLAS_CONFIG(X)                                                                                               \
    X(algo, CUBLASLT_ALGO_CONFIG_ID, 4, 1 << 20)                                                                       \
    X(tile, CUBLASLT_ALGO_CONFIG_TILE_ID, 4, 1 << 20)                                                                  \
    X(stages, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4, 1 << 20)                                                              \
    X(splits, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4, 1 << 20)                                                             \
    X(reduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4, 7)                                                          \
    X(swizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4, 1 << 20)                                                         \
    X(custom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4, INT32_MAX)                                                        \
    X(inner, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2, 65535)                                                            \
    X(cluster, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2, 65535)
typedef struct {
#define CUBLAS_CONFIG_FIELD(name, attribute, bytes, most) i32 name;
    CUBLAS_CONFIG(CUBLAS_CONFIG_FIELD)
#undef CUBLAS_CONFIG_FIELD
} cublas_config;

/* y[n, rows] = x[n, cols] W^T, with W [rows, cols], or y = x W with W [cols, rows] if across; once for each head,
 * whose w, x and y begin w_step, x_step and y_step elements behind those of the one before. w and x are bf16, sums
 * float32, y bf16, or float32 if wide; with add y += that, rounded once. Addresses are multiples of 16. */
typedef struct {
    const void *w, *x;
    void *y;
    i64 n, rows, cols, w_stride, x_stride, y_stride;
    i64 heads, w_step, x_step, y_step;
    bool across, wide, add;
    bool told; /* by the configuration `how`, not by the library's first choice */
    cublas_config how;
} cublas_product;

/* Opens the library: $MOONLET_CUBLASLT, else what the dynamic linker finds as libcublasLt.so.13 or .12. Allocates
 * all memory it will ever need on the GPU. ST_UNSUPPORTED with the reason where there is none. g must outlive it. */
status cublas_open(cublas **out, gpu *g, err *e);
void cublas_close(cublas *c); /* NULL is allowed */
/* Queues the product on g's stream. False: the library has no kernel for this shape, or not the one that it is told,
 * and nothing was queued. The kernel of a shape is chosen once and kept. */
bool cublas_multiply(cublas *c, const cublas_product *p);

/* 130100 is version 13.1.0. A configuration means something to the version that it comes from, and to no other. */
i64 cublas_version(const cublas *c);
/* The configurations that the library offers for a product, which it takes to be the best first; how many, at most
 * CUBLAS_OFFERS. Those whose sums may depend on which of two blocks is first, or are rounded to bf16 on the way, are
 * left out. */
enum { CUBLAS_OFFERS = 64 };
int cublas_offers(cublas *c, const cublas_product *p, cublas_config out[CUBLAS_OFFERS]);

#endif
