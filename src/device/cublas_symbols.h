/* device/cublas_symbols.h: what we use of NVIDIA's cuBLASLt, listed once.
 *
 * Types and numbers are ours, after the cuBLAS documentation; tests/unit/device/test_cublas_h.c holds all of them
 * against the toolkit's cublasLt.h. Included after it, this file declares nothing but the lists. */
#ifndef DEVICE_CUBLAS_SYMBOLS_H
#define DEVICE_CUBLAS_SYMBOLS_H
#include "device/cuda_symbols.h"
#include <stdint.h>

/* (type, what it is to us); all other enums are plain unsigned numbers */
#define CUBLAS_TYPES(X)                                                                                                \
    X(cublasStatus_t, unsigned)                                                                                        \
    X(cublasComputeType_t, unsigned)                                                                                   \
    X(cudaDataType, unsigned)                                                                                          \
    X(cublasLtMatmulDescAttributes_t, unsigned)                                                                        \
    X(cublasLtMatrixLayoutAttribute_t, unsigned)                                                                       \
    X(cublasLtMatmulPreferenceAttributes_t, unsigned)                                                                  \
    X(cublasLtMatmulAlgoConfigAttributes_t, unsigned)                                                                  \
    X(cudaStream_t, struct CUstream_st *)                                                                              \
    X(cublasLtHandle_t, struct cublasLtContext *)

/* Types of the library that we only point to. */
#define CUBLAS_OPAQUE(X)                                                                                               \
    X(cublasLtMatmulDesc_t)                                                                                            \
    X(cublasLtMatrixLayout_t)                                                                                          \
    X(cublasLtMatmulPreference_t)

/* (name, value) */
#define CUBLAS_NUMBERS(X)                                                                                              \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                                        \
    X(CUBLAS_COMPUTE_32F, 68)                                                                                          \
    X(CUDA_R_32F, 0)                                                                                                   \
    X(CUDA_R_16BF, 14)                                                                                                 \
    X(CUBLAS_OP_N, 0)                                                                                                  \
    X(CUBLAS_OP_T, 1)                                                                                                  \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                  \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                                           \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                                                  \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                     \
    X(CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                                                               \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                                       \
    X(CUBLASLT_ALGO_CONFIG_ID, 0)                                                                                      \
    X(CUBLASLT_ALGO_CONFIG_TILE_ID, 1)                                                                                 \
    X(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)                                                                              \
    X(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 3)                                                                        \
    X(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4)                                                                           \
    X(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 5)                                                                           \
    X(CUBLASLT_ALGO_CONFIG_STAGES_ID, 6)                                                                               \
    X(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 7)                                                                          \
    X(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 8)

/* X(name, arguments): without one of them the library is not used. All return cublasStatus_t, but for the first
 * list's. */
#define CUBLAS_SIZES(X) X(cublasLtGetVersion, (void))
#define CUBLAS_SYMBOLS(X)                                                                                              \
    X(cublasLtCreate, (cublasLtHandle_t *))                                                                            \
    X(cublasLtDestroy, (cublasLtHandle_t))                                                                             \
    X(cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType))                           \
    X(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t))                                                               \
    X(cublasLtMatmulDescSetAttribute, (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))    \
    X(cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t))               \
    X(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t))                                                           \
    X(cublasLtMatrixLayoutSetAttribute,                                                                                \
      (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t))                                 \
    X(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *))                                                  \
    X(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t))                                                   \
    X(cublasLtMatmulPreferenceSetAttribute,                                                                            \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t))                        \
    X(cublasLtMatmulAlgoGetHeuristic,                                                                                  \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, \
       cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *))             \
    X(cublasLtMatmulAlgoInit, (cublasLtHandle_t, cublasComputeType_t, cudaDataType, cudaDataType, cudaDataType,        \
                               cudaDataType, cudaDataType, int, cublasLtMatmulAlgo_t *))                               \
    X(cublasLtMatmulAlgoCheck,                                                                                         \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, \
       cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, cublasLtMatmulHeuristicResult_t *))                       \
    X(cublasLtMatmulAlgoConfigGetAttribute,                                                                            \
      (const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t, void *, size_t, size_t *))                  \
    X(cublasLtMatmulAlgoConfigSetAttribute,                                                                            \
      (cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t, const void *, size_t))                            \
    X(cublasLtMatmul, (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t,     \
                       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,       \
                       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t))

#ifndef CUBLASAPI /* the guard of the toolkit's cublasLt.h */
#define CUBLAS_TYPE(name, type) typedef type name;
CUBLAS_TYPES(CUBLAS_TYPE)
#undef CUBLAS_TYPE
#define CUBLAS_POINTED(name) typedef struct name##_behind *name;
CUBLAS_OPAQUE(CUBLAS_POINTED)
#undef CUBLAS_POINTED
#define CUBLAS_NUMBER(name, value) name = value,
enum { CUBLAS_NUMBERS(CUBLAS_NUMBER) };
#undef CUBLAS_NUMBER
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#endif

#endif
