/* device/cuda_symbols.h: what we use of the NVIDIA driver's library, listed once.
 *
 * The program is built on machines without NVIDIA's headers, so the types and numbers are ours, after the CUDA Driver
 * API reference; tests/unit/device/test_cuda_h.c holds all of them against the toolkit's cuda.h. Included after cuda.h,
 * this file declares nothing but the lists. */
#ifndef DEVICE_CUDA_SYMBOLS_H
#define DEVICE_CUDA_SYMBOLS_H
#include <stddef.h>
#include <stdint.h>

struct CUdevResource_st; /* below: cuda_resource */
struct CUtensorMap_st;   /* 128 bytes, at a multiple of 64; only the driver knows what is in them */

/* (type, what it is to us) */
#define CUDA_TYPES(X)                                                                                                  \
    X(CUresult, unsigned)                                                                                              \
    X(CUdevice, int)                                                                                                   \
    X(CUdevice_attribute, unsigned)                                                                                    \
    X(CUfunction_attribute, unsigned)                                                                                  \
    X(CUdeviceptr, unsigned long long)                                                                                 \
    X(CUcontext, struct CUctx_st *)                                                                                    \
    X(CUmodule, struct CUmod_st *)                                                                                     \
    X(CUfunction, struct CUfunc_st *)                                                                                  \
    X(CUstream, struct CUstream_st *)                                                                                  \
    X(CUevent, struct CUevent_st *)                                                                                    \
    X(CUstreamCaptureMode, unsigned)                                                                                   \
    X(CUgraph, struct CUgraph_st *)                                                                                    \
    X(CUgraphExec, struct CUgraphExec_st *)                                                                            \
    X(CUgreenCtx, struct CUgreenCtx_st *)                                                                              \
    X(CUdevResourceDesc, struct CUdevResourceDesc_st *)                                                                \
    X(CUdevResourceType, unsigned)                                                                                     \
    X(CUtensorMapDataType, unsigned)                                                                                   \
    X(CUtensorMapInterleave, unsigned)                                                                                 \
    X(CUtensorMapSwizzle, unsigned)                                                                                    \
    X(CUtensorMapL2promotion, unsigned)                                                                                \
    X(CUtensorMapFloatOOBfill, unsigned)

/* (name, value) */
#define CUDA_NUMBERS(X)                                                                                                \
    X(CUDA_SUCCESS, 0)                                                                                                 \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                                                                     \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                     \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                                       \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                                   \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                                               \
    X(CUDA_ERROR_NOT_FOUND, 500)                                                                                       \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                                 \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                                     \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                    \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                                                       \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                              \
    X(CU_DEV_RESOURCE_TYPE_SM, 1)                                                                                      \
    X(CU_GREEN_CTX_DEFAULT_STREAM, 1)                                                                                  \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                                     \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                                       \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                                          \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                                      \
    X(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4)                                                                        \
    X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, 6)                                                        \
    X(CU_TENSOR_MAP_DATA_TYPE_UINT16, 1)                                                                               \
    X(CU_TENSOR_MAP_INTERLEAVE_NONE, 0)                                                                                \
    X(CU_TENSOR_MAP_SWIZZLE_64B, 2)                                                                                    \
    X(CU_TENSOR_MAP_SWIZZLE_128B, 3)                                                                                   \
    X(CU_TENSOR_MAP_L2_PROMOTION_L2_256B, 3)                                                                           \
    X(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, 0)

/* NEED(name, arguments): without it the driver is refused. MAY: NULL where the driver is older than the function.
 * All of them return CUresult. The _v2 names are those that cuda.h's macros stand for. */
#define CUDA_SYMBOLS(NEED, MAY)                                                                                        \
    NEED(cuInit, (unsigned))                                                                                           \
    NEED(cuDriverGetVersion, (int *))                                                                                  \
    MAY(cuGetErrorName, (CUresult, const char **))                                                                     \
    MAY(cuGetErrorString, (CUresult, const char **))                                                                   \
    NEED(cuDeviceGetCount, (int *))                                                                                    \
    NEED(cuDeviceGet, (CUdevice *, int))                                                                               \
    NEED(cuDeviceGetName, (char *, int, CUdevice))                                                                     \
    NEED(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                                  \
    NEED(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                            \
    NEED(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                                     \
    NEED(cuCtxSetCurrent, (CUcontext))                                                                                 \
    NEED(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                                                           \
    NEED(cuCtxEnablePeerAccess, (CUcontext, unsigned))                                                                 \
    NEED(cuStreamCreate, (CUstream *, unsigned))                                                                       \
    MAY(cuDeviceGetDevResource, (CUdevice, struct CUdevResource_st *, CUdevResourceType)) /* these: 12.4 */            \
    MAY(cuDevSmResourceSplitByCount, (struct CUdevResource_st *, unsigned *, const struct CUdevResource_st *,          \
                                      struct CUdevResource_st *, unsigned, unsigned))                                  \
    MAY(cuDevResourceGenerateDesc, (CUdevResourceDesc *, struct CUdevResource_st *, unsigned))                         \
    MAY(cuGreenCtxCreate, (CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned))                                       \
    MAY(cuGreenCtxDestroy, (CUgreenCtx))                                                                               \
    MAY(cuCtxFromGreenCtx, (CUcontext *, CUgreenCtx))                                                                  \
    MAY(cuGreenCtxStreamCreate, (CUstream *, CUgreenCtx, unsigned, int))                                               \
    NEED(cuStreamDestroy_v2, (CUstream))                                                                               \
    NEED(cuStreamSynchronize, (CUstream))                                                                              \
    NEED(cuEventCreate, (CUevent *, unsigned))                                                                         \
    NEED(cuEventDestroy_v2, (CUevent))                                                                                 \
    NEED(cuEventRecord, (CUevent, CUstream))                                                                           \
    NEED(cuEventSynchronize, (CUevent))                                                                                \
    MAY(cuEventElapsedTime_v2, (float *, CUevent, CUevent))                                                            \
    NEED(cuMemGetInfo_v2, (size_t *, size_t *))                                                                        \
    NEED(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                       \
    NEED(cuMemFree_v2, (CUdeviceptr))                                                                                  \
    NEED(cuMemHostAlloc, (void **, size_t, unsigned))                                                                  \
    NEED(cuMemFreeHost, (void *))                                                                                      \
    NEED(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                              \
    NEED(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                          \
    NEED(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                                \
    NEED(cuModuleLoadData, (CUmodule *, const void *))                                                                 \
    NEED(cuModuleUnload, (CUmodule))                                                                                   \
    NEED(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                                  \
    NEED(cuFuncSetAttribute, (CUfunction, CUfunction_attribute, int))                                                  \
    MAY(cuFuncLoad, (CUfunction)) /* 12.4 */                                                                           \
    NEED(cuTensorMapEncodeTiled, (struct CUtensorMap_st *, CUtensorMapDataType, uint32_t, void *, const uint64_t *,    \
                                  const uint64_t *, const uint32_t *, const uint32_t *, CUtensorMapInterleave,         \
                                  CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))                \
    NEED(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))                                     \
    NEED(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                                     \
    NEED(cuStreamEndCapture, (CUstream, CUgraph *))                                                                    \
    NEED(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                                    \
    NEED(cuGraphUpload, (CUgraphExec, CUstream))                                                                       \
    NEED(cuGraphLaunch, (CUgraphExec, CUstream))                                                                       \
    NEED(cuGraphDestroy, (CUgraph))                                                                                    \
    NEED(cuGraphExecDestroy, (CUgraphExec))

#ifndef __cuda_cuda_h__ /* the guard of the toolkit's cuda.h */
#define CUDA_TYPE(name, type) typedef type name;
CUDA_TYPES(CUDA_TYPE)
#undef CUDA_TYPE
#define CUDA_NUMBER(name, value) name = value,
enum { CUDA_NUMBERS(CUDA_NUMBER) };
#undef CUDA_NUMBER
#endif

/* cuda.h's CUdevResource: some of a chip's multiprocessors. */
typedef struct {
    CUdevResourceType type;
    unsigned char internal[92];
    union {
        struct {
            unsigned count, smallest_share, multiple; /* of multiprocessors; the last: that lie together */
        } sm;
        unsigned char larger[48];
    };
} cuda_resource;

/* cuda.h's CUlaunchAttribute and CUlaunchConfig. */
typedef struct {
    unsigned id, unused;
    union {
        unsigned char all[64];
        int number;
    } value;
} cuda_launch_attribute;
typedef struct {
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    cuda_launch_attribute *attributes;
    unsigned n_attributes;
} cuda_launch;
#ifndef __cuda_cuda_h__
typedef cuda_launch CUlaunchConfig;
#endif

#endif
