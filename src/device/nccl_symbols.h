/* device/nccl_symbols.h: what we use of NVIDIA's NCCL, listed once.
 *
 * Types and numbers are ours, after the NCCL API reference (2.18 and newer); tests/unit/device/test_nccl_h.c holds them
 * against nccl.h where there is one. Included after it, this file declares nothing but the lists. */
#ifndef DEVICE_NCCL_SYMBOLS_H
#define DEVICE_NCCL_SYMBOLS_H
#include "device/cuda_symbols.h"

/* (name, value); all enums are plain unsigned numbers to us */
#define NCCL_NUMBERS(X)                                                                                                \
    X(ncclSuccess, 0)                                                                                                  \
    X(ncclInternalError, 3)                                                                                            \
    X(ncclInProgress, 7)                                                                                               \
    X(ncclUint8, 1)                                                                                                    \
    X(ncclUint32, 3)                                                                                                   \
    X(ncclFloat32, 7)                                                                                                  \
    X(ncclBfloat16, 9)                                                                                                 \
    X(ncclSum, 0)

#ifndef NCCL_H_ /* the guard of NVIDIA's nccl.h */
typedef unsigned ncclResult_t;
typedef unsigned ncclDataType_t;
typedef unsigned ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
#define NCCL_NUMBER(name, value) name = value,
enum { NCCL_NUMBERS(NCCL_NUMBER) };
#undef NCCL_NUMBER
#endif

/* All of them return ncclResult_t. */
#define NCCL_SYMBOLS(X)                                                                                                \
    X(ncclGetVersion, (int *))                                                                                         \
    X(ncclGetUniqueId, (ncclUniqueId *))                                                                               \
    X(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int))                                                        \
    X(ncclCommDestroy, (ncclComm_t))                                                                                   \
    X(ncclCommAbort, (ncclComm_t))                                                                                     \
    X(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))                                                             \
    X(ncclGroupStart, (void))                                                                                          \
    X(ncclGroupEnd, (void))                                                                                            \
    X(ncclAllReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))            \
    X(ncclReduceScatter, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))        \
    X(ncclAllGather, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))                         \
    X(ncclBroadcast, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                    \
    X(ncclSend, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                                 \
    X(ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))

/* These return text. */
#define NCCL_TEXTS(X)                                                                                                  \
    X(ncclGetErrorString, (ncclResult_t))                                                                              \
    X(ncclGetLastError, (ncclComm_t))

#endif
