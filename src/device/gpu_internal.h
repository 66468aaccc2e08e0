/* device/gpu_internal.h: the inside of a gpu, for device/gpu*.c. */
#ifndef DEVICE_GPU_INTERNAL_H
#define DEVICE_GPU_INTERNAL_H
#include "device/cuda_driver.h"
#include "device/gpu.h"
#include <stdatomic.h>

/* Pinned memory through which all copies go: the driver copies from it without another copy of its own, and the
 * caller's buffer is free at once. 16 pieces: a step's small inputs all find one that is not under way. */
enum { STAGE_PIECES = 16, STAGE_BYTES = 512 << 10 };

typedef struct {
    const gpu_image *image;
    CUmodule module;
} gpu_module;

struct gpu_kernel {
    const gpu_image *image;
    char *name; /* of the function */
    CUfunction function;
    gpu_kernel *next;
};

typedef struct {
    CUevent *events; /* [most][2]: before and after */
    gpu_time *times; /* [most], without seconds */
    gpu_time note;   /* of the next launch */
    i64 most, n, missed;
} gpu_trace_state;

typedef struct {
    block_times *room;     /* [blocks_most], of the device; NULL: off */
    gpu_stamped *launches; /* [launches_most] */
    i64 blocks_most, launches_most, n_blocks, n_launches, missed;
    bool recording;
} gpu_stamps_state;

struct gpu {
    device dev; /* first: a device * of this kind is a gpu * */
    cuda_driver cu;
    CUdevice id;
    int ordinal, processors, chip_processors, shared_max; /* bytes of shared memory that a block may have */
    char name[96];
    CUcontext context; /* of the whole GPU, or of `green` */
    CUgreenCtx green;  /* a part's; NULL: all of it */
    CUstream stream;
    gpu_module *modules;
    size_t n_modules;
    gpu_kernel *kernels;
    _Atomic(const gpu_kernel *) last; /* launched: named when the stream fails later */
    _Atomic(const char *) call;       /* a call that may take long, as a verb; NULL: none is being made */
    u8 *stage;                        /* pinned, [STAGE_PIECES + 1][STAGE_BYTES]; the last one is for reading */
    CUevent copied[STAGE_PIECES];
    u64 n_staged;
    gpu_trace_state trace; /* most 0: off */
    gpu_stamps_state stamps;
    err failed; /* the first failure since the last finish; ST_OK: none */
    _Atomic f64 waits_since;
};

/* True for CUDA_SUCCESS. Otherwise keeps "GPU 0 (its name): <what> failed: <the driver's text>", unless an earlier
 * failure is kept, and returns false. */
bool gpu_ok(gpu *g, CUresult r, const char *what, ...) __attribute__((format(printf, 3, 4)));
/* The same straight into *e, as ST_DEVICE. */
status gpu_fail(const gpu *g, CUresult r, err *e, const char *what, ...) __attribute__((format(printf, 4, 5)));
/* The calling thread works on g's context from here on. */
bool gpu_enter(gpu *g);

/* The host begins a call that may never return, or ends it (NULL). */
static inline void gpu_calls(gpu *g, const char *verb) { atomic_store_explicit(&g->call, verb, memory_order_relaxed); }

/* All waits for the GPU: until what is queued, or what was queued before `there`, is done. */
CUresult gpu_wait_stream(gpu *g);
CUresult gpu_wait_event(gpu *g, CUevent there);

/* gpu_trace.c: an event at this point of the stream. */
void gpu_trace_mark(gpu *g, const gpu_kernel *k, bool before);

/* gpu_stamps.c: a recording begins or ends; where a launch's blocks write their times, NULL: nowhere. */
void gpu_stamp_recording(gpu *g, bool begins);
block_times *gpu_stamp_launch(gpu *g, const gpu_kernel *k, const u32 grid[3]);

/* gpu_graph.c: recordings, as device.h wants them. */
status gpu_record(device *d, void (*queue)(void *ud), void *ud, device_recording **out, err *e);
void gpu_replay(device *d, const device_recording *r);
void gpu_forget(device *d, device_recording *r);

/* gpu_courier.c: copies beside the stream, as device.h wants them. */
status gpu_courier_open(device *d, u64 bytes, device_courier **out, err *e);
void gpu_courier_close(device *d, device_courier *c);
void gpu_courier_add(device *d, device_courier *c, bool to_device, void *host, void *there, u64 bytes);
status gpu_courier_wait(device *d, device_courier *c, err *e);

/* gpu_memory.c: fills g->dev and makes what copies need; both parts of it end in gpu_memory_close. */
status gpu_memory_open(gpu *g, err *e);
void gpu_memory_close(gpu *g);

#endif
