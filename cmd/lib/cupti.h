/* cmd/lib/cupti.h: when every kernel of this process began and ended on the GPU's clock, through NVIDIA's CUPTI.
 *
 * The library (libcupti.so.13 or .12, of the CUDA toolkit; MOONLET_CUPTI names another file) is opened when it is first
 * needed. It sees recorded launches one by one and leaves their overlap as it is; launching takes longer meanwhile, so
 * that whole steps are timed without it. One thread at a time; what it keeps is the process's, as CUPTI's is. */
#ifndef CMD_LIB_CUPTI_H
#define CMD_LIB_CUPTI_H
#include "base/err.h"

typedef struct {
    const char *kernel; /* its name; lives as long as the process */
    u64 from, to;       /* ns of the GPU's clock */
    i32 grid[3], cluster;
    u32 context; /* of the GPU, or of its part, that ran it */
    bool recorded;
} kernel_launch;

/* Opens the library, so that one that is not there is told before the work. ST_UNSUPPORTED: none, or one older than
 * CUDA 12.0's. */
status cupti_find(err *e);
/* Launches are kept from here on. ST_UNSUPPORTED: as cupti_find(), or CUPTI refuses. */
status cupti_start(err *e);
/* Those that have ended since the start or the last call, by their beginnings; the caller's to free(), NULL if there
 * were none. ST_DEVICE: CUPTI lost some. The GPU rests meanwhile (device->finish). */
status cupti_take(kernel_launch **out, i64 *n, err *e);
void cupti_stop(void);

#endif
