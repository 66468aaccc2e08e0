/* tests/unit/device/fake_cublas.c: a library that answers as cuBLASLt does and multiplies nothing: its choice for a
 * product is the product's number of rows. */
#include "fake_cublas.h"
#include "device/cublas_symbols.h"
#include <stdlib.h>

fake_cublas fake_cublas_seen;

typedef struct {
    uint64_t rows, cols;
} thing;

static cublasStatus_t new_thing(void *out, uint64_t rows, uint64_t cols) {
    thing *t = malloc(sizeof *t);
    if (!t) return 1;
    *t = (thing){rows, cols};
    *(thing **)out = t;
    fake_cublas_seen.open++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t end_thing(void *t) {
    fake_cublas_seen.open -= t != NULL;
    free(t);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return 130100; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) { return new_thing(h, 0, 0); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return end_thing(h); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType t) {
    (void)c, (void)t;
    return new_thing(d, 0, 0);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return end_thing(d); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v,
                                              size_t n) {
    (void)d, (void)a, (void)v, (void)n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType t, uint64_t rows, uint64_t cols,
                                          int64_t stride) {
    (void)t, (void)stride;
    return new_thing(l, rows, cols);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return end_thing(l); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
                                                const void *v, size_t n) {
    (void)l, (void)a, (void)v, (void)n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p) { return new_thing(p, 0, 0); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) { return end_thing(p); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t a, const void *v, size_t n) {
    (void)p, (void)a, (void)v, (void)n;
    return CUBLAS_STATUS_SUCCESS;
}

static uint64_t rows_of(cublasLtMatrixLayout_t y) { return ((const thing *)(const void *)y)->cols; }

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t w,
                                              cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t y,
                                              cublasLtMatrixLayout_t z, cublasLtMatmulPreference_t p, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *found) {
    (void)h, (void)d, (void)w, (void)x, (void)z, (void)p;
    fake_cublas_seen.asked++;
    fake_cublas_seen.asked_rows = (int64_t)rows_of(y);
    *found = most > 0;
    *out = (cublasLtMatmulHeuristicResult_t){.algo.data[0] = rows_of(y)};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t h, cublasComputeType_t c, cudaDataType s, cudaDataType w,
                                      cudaDataType x, cudaDataType y, cudaDataType z, int id,
                                      cublasLtMatmulAlgo_t *out) {
    (void)h, (void)c, (void)s, (void)w, (void)x, (void)y, (void)z;
    *out = (cublasLtMatmulAlgo_t){.data[0] = (uint64_t)id};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t w,
                                       cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t y, cublasLtMatrixLayout_t z,
                                       const cublasLtMatmulAlgo_t *a, cublasLtMatmulHeuristicResult_t *out) {
    (void)h, (void)d, (void)w, (void)x, (void)z;
    fake_cublas_seen.checked++;
    *out = (cublasLtMatmulHeuristicResult_t){.algo = *a,
                                             .workspaceSize = fake_cublas_seen.wants_room ? (size_t)1 << 40 : 0};
    return fake_cublas_seen.refuses && a->data[0] != rows_of(y);
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *a,
                                                    cublasLtMatmulAlgoConfigAttributes_t w, void *v, size_t n,
                                                    size_t *written) {
    (void)a, (void)w, (void)v, (void)n, (void)written;
    return 1;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *a, cublasLtMatmulAlgoConfigAttributes_t w,
                                                    const void *v, size_t n) {
    (void)a, (void)w, (void)v, (void)n;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *w,
                              cublasLtMatrixLayout_t wl, const void *x, cublasLtMatrixLayout_t xl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *y, cublasLtMatrixLayout_t yl,
                              const cublasLtMatmulAlgo_t *a, void *room, size_t n, cudaStream_t stream) {
    (void)h, (void)d, (void)alpha, (void)w, (void)wl, (void)x, (void)xl, (void)beta, (void)c, (void)cl, (void)y,
        (void)yl, (void)room, (void)n, (void)stream;
    fake_cublas_seen.multiplied++;
    fake_cublas_seen.run_as = (int64_t)a->data[0];
    return CUBLAS_STATUS_SUCCESS;
}
