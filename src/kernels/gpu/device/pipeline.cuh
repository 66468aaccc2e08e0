/* kernels/gpu/device/pipeline.cuh: the ring of stages in shared memory between the threads that fill them (producers)
 * and those that read them (consumers); words as in CUTLASS.
 *
 * A stage has two barriers: a phase of `full` ends when all that belongs into the stage is there, a phase of `empty`
 * when all of its readers are done with it. Round r over the stages is phase r of each. */
#ifndef KERNELS_GPU_DEVICE_PIPELINE_CUH
#define KERNELS_GPU_DEVICE_PIPELINE_CUH
#include "kernels/gpu/device/sm90.cuh"

/* Where a thread stands. */
typedef struct {
    gpu_u64 *full, *empty; /* [stages] */
    int stage;
    gpu_u32 parity; /* of the round: 0 in the first */
} pipeline;

static __device__ __forceinline__ pipeline pipeline_begin(gpu_u64 *full, gpu_u64 *empty) {
    return pipeline{full, empty, 0, 0};
}
/* At the k-th stage that was filled since the beginning. */
static __device__ __forceinline__ pipeline pipeline_at(gpu_u64 *full, gpu_u64 *empty, int stages, int k) {
    return pipeline{full, empty, k % stages, (gpu_u32)(k / stages & 1)};
}
/* One thread; mbarrier_fence_init() and a barrier of the block follow. fills, reads: arrivals that end a phase of
 * `full` (bytes of the copy engine count beside them) and of `empty`. */
static __device__ __forceinline__ void pipeline_init(const pipeline &p, int stages, gpu_u32 fills, gpu_u32 reads) {
    for (int i = 0; i < stages; i++) mbarrier_init(p.full + i, fills), mbarrier_init(p.empty + i, reads);
}
static __device__ __forceinline__ void pipeline_next(pipeline &p, int stages) {
    if (++p.stage == stages) p.stage = 0, p.parity ^= 1;
}
static __device__ __forceinline__ gpu_u64 *pipeline_full(const pipeline &p) { return p.full + p.stage; }
static __device__ __forceinline__ gpu_u64 *pipeline_empty(const pipeline &p) { return p.empty + p.stage; }

/* Until the stage may be filled: in the first round at once. */
static __device__ __forceinline__ void producer_acquire(const pipeline &p) {
    mbarrier_wait(pipeline_empty(p), p.parity ^ 1);
}
/* Until the stage is full. */
static __device__ __forceinline__ void consumer_wait(const pipeline &p) { mbarrier_wait(pipeline_full(p), p.parity); }
/* One of the stage's readers is done. */
static __device__ __forceinline__ void consumer_release(const pipeline &p) { mbarrier_arrive(pipeline_empty(p)); }

#endif
