/* device/block_times.h: what a block of a kernel writes down of itself, if its launch asks for it (gpu_stamp() in
 * gpu.h): shared by the host and the kernels. */
#ifndef DEVICE_BLOCK_TIMES_H
#define DEVICE_BLOCK_TIMES_H

enum { BLOCK_MARKS = 10 };

typedef struct {
    unsigned long long begin, end; /* ns of the GPU's clock; end: of the last warp to end. 0: did not run */
    unsigned processor;            /* the multiprocessor that it ran on */
    unsigned unused;
    /* ns of the GPU's clock, the lower 32 bits, at points that the kernel names (cmd/profile/block_marks.c); 0: was
     * never there */
    unsigned mark[BLOCK_MARKS];
} block_times;

#endif
