/* device/device.h: who owns memory. A backend's buffers come from its device; ops only compute on them.
 *
 * There is the host, and device/gpu.h fills the same table from the driver's functions. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H
#include "base/err.h"

typedef struct device device;
typedef struct device_recording device_recording;
/* Results on their way to the host: memory there, into which the device copies in its own time. */
typedef struct {
    u8 *data;
} device_readback;
/* Copies beside everything that is queued, in both directions, for one thread at a time, which may be another than the
 * device's. `data` is host memory that couriers of all devices copy fast. */
typedef struct {
    u8 *data;
} device_courier;

struct device {
    const char *name; /* "host", or the chip's */
    /* Zeroed memory, aligned to 64 bytes. `what` names the use in the error. */
    status (*alloc)(device *d, void **out, u64 bytes, const char *what, err *e);
    void (*release)(device *d, void *p); /* NULL is allowed */
    /* Between device and host memory; complete when they return. */
    void (*write)(device *d, void *to, const void *from_host, u64 bytes);
    void (*read)(device *d, void *to_host, const void *from, u64 bytes);
    u64 (*available)(device *d); /* bytes that can be allocated now; 0: cannot be told */
    u64 (*takes)(u64 bytes);     /* what an allocation of so many bytes takes of these */
    /* Waits for everything queued. The first failure since the last finish; on the host there is none. */
    status (*finish)(device *d, err *e);
    status (*readback_open)(device *d, u64 bytes, device_readback **out, err *e);
    void (*readback_close)(device *d, device_readback *r); /* NULL is allowed */
    /* Queues a copy to byte `at` of r->data. */
    void (*readback_add)(device *d, device_readback *r, u64 at, const void *from, u64 bytes);
    /* Waits for all that was added, but not for what was queued after it. Failures as finish. */
    status (*readback_wait)(device *d, const device_readback *r, err *e);
    /* bytes: of data; 0: it has none. courier_add() queues a copy of `bytes` between some courier's data and memory of
     * the device, which nothing that is queued may be writing, or, with to_device, reading; courier_wait() waits for
     * all that were added since the last wait, and says the first failure. */
    status (*courier_open)(device *d, u64 bytes, device_courier **out, err *e);
    void (*courier_close)(device *d, device_courier *c); /* NULL is allowed */
    void (*courier_add)(device *d, device_courier *c, bool to_device, void *host, void *there, u64 bytes);
    status (*courier_wait)(device *d, device_courier *c, err *e);
    /* What `queue` queues is kept instead of run; each replay runs it, on the same addresses. `queue` may neither
     * copy nor allocate. The recording ends with forget(). ST_NOMEM: there is no room for it, and nothing else is
     * the matter; other failures as finish. NULL: the device has nothing to gain from it. */
    status (*record)(device *d, void (*queue)(void *ud), void *ud, device_recording **out, err *e);
    void (*replay)(device *d, const device_recording *r);
    void (*forget)(device *d, device_recording *r); /* NULL is allowed */
};

device *device_host(void); /* shared, never ends */

/* A few buffers that live and die together. Zero-initialise with the device set. */
typedef struct {
    device *dev;
    void *items[64];
    int n;
    u64 bytes;
} device_pool;
/* Allocates into the pool; a multiplication that overflows is ST_NOMEM. */
status device_pool_add(device_pool *p, void **out, u64 count, u64 size, const char *what, err *e);
void device_pool_free(device_pool *p);

#endif
