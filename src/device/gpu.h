/* device/gpu.h: one NVIDIA GPU: its memory, one stream, and kernels that were compiled into the program.
 *
 * Everything is queued on the one stream and runs in the order of the calls. One thread at a time uses a gpu; which
 * one may change. A failure inside a queued call is kept, and device->finish reports the first. */
#ifndef DEVICE_GPU_H
#define DEVICE_GPU_H
#include "device/block_times.h"
#include "device/device.h"

typedef struct gpu gpu;
typedef struct gpu_kernel gpu_kernel;
enum { GPU_PARTS_MAX = 8 };

/* A compiled kernel file: "rows" from rows.cu. The bytes are the caller's and stay. */
typedef struct {
    const char *name;
    const void *data;
    u64 bytes;
} gpu_image;

/* Opens GPU number `ordinal` as the driver counts (CUDA_VISIBLE_DEVICES included). ST_DEVICE with one clear line: no
 * driver, a driver too old, no GPU, no such ordinal, a driver call that failed; ST_UNSUPPORTED for another chip than
 * compute capability 9.0. The caller ends *out with gpu_close(). On failure *out is NULL. */
status gpu_open(gpu **out, int ordinal, err *e);
/* A share of a GPU: one of `shares` equal parts of its multiprocessors, the one of number `share`, as if it were a GPU
 * by itself, so that several can be open and run at a time whose kernels wait for each other. Memory and its bandwidth
 * are not divided. shares 1: all of it. ST_UNSUPPORTED: the driver is older than CUDA 12.4, or the chip has too few. */
typedef struct {
    int ordinal, share, shares;
} gpu_part;
status gpu_open_part(gpu **out, gpu_part part, err *e);
/* What rank `at` of n has of its GPU, where ordinals [n] names each one's: ranks of one GPU divide it. */
gpu_part gpu_part_of(const i64 *ordinals, i64 n, i64 at);
/* The same with another library than the driver's libcuda.so.1, for tests. */
status gpu_open_from(gpu **out, const char *library, gpu_part part, err *e);
/* Waits for what is queued. NULL is allowed. Memory that was not released ends too, unless another library in the
 * process holds the GPU's context. */
void gpu_close(gpu *g);

/* Kernels of g may read and write other's memory from here on, over NVLink or PCIe, where it lies at its own addresses.
 * ST_UNSUPPORTED: these two cannot. */
status gpu_reach(gpu *g, const gpu *other, err *e);

/* The table of device.h; lives as long as g. Memory is refused (ST_NOMEM) with what was asked, free and there in total.
 * write and read are ordered with the kernels on the stream and leave the host's buffer free to use when they return:
 * write does not wait for the GPU unless more is under way than its staging memory holds, read does. What a failed
 * read would have brought is zero. */
device *gpu_device(gpu *g);
/* Since when (now_s()) a thread has been waiting for what is queued; 0: none waits. From any thread. */
f64 gpu_waits_since(const gpu *g);
/* What the host is about, for messages about a GPU that others wait for: "prepares a recorded step; what it queued or
 * recorded last: moe_up". Calls that ask for memory, wait, launch, make recordings or go to cuBLASLt are watched. From
 * any thread, at this moment: who waited in the driver for a kernel that has given up may be elsewhere by now. */
void gpu_doing(const gpu *g, char *text, size_t size);
const char *gpu_name(const gpu *g);    /* "NVIDIA H200" */
int gpu_processors(const gpu *g);      /* streaming multiprocessors: 132, or a part's */
int gpu_chip_processors(const gpu *g); /* of all of it */

/* The kernel `function` of `image`; loads the image when it is first seen. The kernel belongs to g. */
status gpu_find(gpu *g, const gpu_image *image, const char *function, gpu_kernel **out, err *e);
/* Lets launches of k use up to `bytes` of dynamic shared memory; needed above 48 KiB. */
status gpu_shared(gpu *g, gpu_kernel *k, u32 bytes, err *e);
/* Writes into *map, 128 bytes at a multiple of 64, what a kernel's copy engine must know to fetch boxes of a tensor
 * of 16-bit values (tma_load in kernels/gpu/device/sm90.cuh): lines of sizes[0] values, 64 of them in a box, in the
 * 128-byte swizzle, or 32, in that of 64 bytes; strides in bytes of the other two dimensions. What lies outside of the
 * sizes is zero. */
void gpu_tensor(gpu *g, void *map, const void *at, const u64 sizes[3], const u64 strides[2], const u32 box[3]);

/* Queues a launch of gx * gy * gz blocks. args: the kernel's single parameter, a struct; copied before it returns. */
void gpu_launch(gpu *g, const gpu_kernel *k, u32 gx, u32 gy, u32 gz, u32 threads, u32 shared_bytes, const void *args);

/* The same in clusters of `cluster` blocks, which divides gx and is at most 8. */
void gpu_launch_cluster(gpu *g, const gpu_kernel *k, u32 cluster, u32 gx, u32 gy, u32 gz, u32 threads, u32 shared_bytes,
                        const void *args);

/* Seconds of the GPU's own clock from the beginning to the end of what `queue` queues; waits for it. */
status gpu_clock(gpu *g, void (*queue)(void *ud), void *ud, f64 *seconds, err *e);

/* Times every launch from here on, the first `most` until the next gpu_times(); 0 ends it. Two events a launch: a
 * step of small kernels takes longer, the kernels themselves do not. */
status gpu_trace(gpu *g, i64 most, err *e);
/* The launches from here on belong to `what` (NULL: to nothing), which must move so many bytes and do so much
 * arithmetic. The text stays the caller's and must outlive the trace. */
void gpu_trace_note(gpu *g, const char *what, f64 bytes, f64 flops);
typedef struct gpu_time {
    const char *kernel, *what;
    f64 seconds, bytes, flops; /* of the note, with its first launch; 0 with the others */
    bool first;                /* of its note */
} gpu_time;
/* Waits, then hands out the launches since the last call in their order; *missed: how many there were beyond `most`. */
typedef void (*gpu_time_fn)(void *ud, const gpu_time *t);
status gpu_times(gpu *g, gpu_time_fn fn, void *ud, i64 *missed, err *e);

/* In recordings that begin from here on every block of our kernels writes down when it ran (block_times.h): of the last
 * such recording, up to so many blocks of so many launches; 0, 0 ends it. Recordings that were made meanwhile must have
 * ended (forget) by then, as they write into memory that is gone. */
status gpu_stamp(gpu *g, i64 blocks, i64 launches, err *e);
typedef struct gpu_stamped {
    const char *kernel;
    u32 grid[3];
    const block_times *blocks; /* [n], x fastest; all zero: the kernel writes no times */
    i64 n, first;              /* first: of all blocks of the recording */
} gpu_stamped;
/* Waits, then hands out that recording's launches in their order, as its last run left them; *missed: launches that
 * found no room. */
typedef void (*gpu_stamped_fn)(void *ud, const gpu_stamped *s);
status gpu_stamps(gpu *g, gpu_stamped_fn fn, void *ud, i64 *missed, err *e);

#endif
