/* cmd/lib/cupti_symbols.h: what we use of NVIDIA's CUPTI, listed once.
 *
 * Types and numbers are ours, after the CUPTI documentation; tests/unit/cmd/test_cupti_h.c holds all of them against
 * the toolkit's cupti.h. Included after it, this file declares nothing but the lists and the record. */
#ifndef CMD_LIB_CUPTI_SYMBOLS_H
#define CMD_LIB_CUPTI_SYMBOLS_H
#include <stddef.h>
#include <stdint.h>

/* (name, value); CUPTI_VERSION_MIN: of CUDA 12.0, whose record of a kernel has all that is below */
#define CUPTI_NUMBERS(X)                                                                                               \
    X(CUPTI_SUCCESS, 0)                                                                                                \
    X(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 10)                                                                       \
    X(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, 1)
enum { CUPTI_VERSION_MIN = 18 };

#ifndef CUPTIAPI
#define CUPTIAPI
typedef unsigned CUptiResult, CUpti_ActivityKind;
struct CUctx_st;
/* Any record: its kind comes first. */
typedef struct {
    CUpti_ActivityKind kind;
} CUpti_Activity;
typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size, size_t *records);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(struct CUctx_st *context, uint32_t stream, uint8_t *buffer,
                                                  size_t size, size_t valid);
#define CUPTI_NUMBER(name, value) name = value,
enum { CUPTI_NUMBERS(CUPTI_NUMBER) };
#undef CUPTI_NUMBER
#endif

/* (name, arguments); all return a CUptiResult */
#define CUPTI_SYMBOLS(X)                                                                                               \
    X(cuptiGetVersion, (uint32_t * version))                                                                           \
    X(cuptiGetResultString, (CUptiResult r, const char **text))                                                        \
    X(cuptiActivityRegisterCallbacks, (CUpti_BuffersCallbackRequestFunc give, CUpti_BuffersCallbackCompleteFunc take)) \
    X(cuptiActivityEnable, (CUpti_ActivityKind kind))                                                                  \
    X(cuptiActivityDisable, (CUpti_ActivityKind kind))                                                                 \
    X(cuptiActivityFlushAll, (uint32_t flags))                                                                         \
    X(cuptiActivityGetNextRecord, (uint8_t * buffer, size_t valid, CUpti_Activity * *record))                          \
    X(cuptiActivityGetNumDroppedRecords, (struct CUctx_st * context, uint32_t stream, size_t * dropped))

/* The beginning of the record of a kernel: CUpti_ActivityKernel8 (CUDA 12.0) and all since. */
typedef struct {
    CUpti_ActivityKind kind;
    uint8_t cache, shared_config;
    uint16_t registers;
    int32_t partitioned[2];
    uint64_t start, end, completed; /* ns */
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ, blockX, blockY, blockZ;
    int32_t staticSharedMemory, dynamicSharedMemory;
    uint32_t local_thread, local_total, correlationId;
    int64_t gridId;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch[4];
    uint32_t shared_executed;
    uint64_t graphNodeId;
    uint32_t shared_limit;
    uint32_t graphId; /* 0: launched by itself */
    void *window;
    uint32_t channel, channel_type, clusterX;
} cupti_kernel;

#endif
