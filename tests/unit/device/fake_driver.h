/* tests/unit/device/fake_driver.h: the strings of the fake driver; a test finds `fake` in the library by dlsym(). */
#ifndef TESTS_DEVICE_FAKE_DRIVER_H
#define TESTS_DEVICE_FAKE_DRIVER_H
#include "base/types.h"

typedef struct {
    /* set by a test */
    int version, n_gpus, major, minor;
    u64 total;            /* bytes of memory */
    u64 largest;          /* bytes of the largest piece that an allocation gets; 0: any that is free */
    const char *fail_in;  /* this function fails ... */
    int fail_after;       /* ... when called this many times more */
    unsigned fail_result; /* ... with this */
    bool no_peers;        /* GPUs do not reach each other's memory */
    unsigned parts;       /* the most that a GPU's multiprocessors are split into; 0: any number */
    /* told by the driver */
    u64 used;                                               /* bytes of device memory */
    int contexts, streams, events, pinned, modules, graphs; /* that live */
    int loaded, queued, run; /* functions loaded; operations queued and run, of all time */
    int free_while_busy;     /* memory freed while operations were queued */
    int shared_limit;        /* the last one set */
    int peers;               /* times that peer access was asked for */
    int greens, part;        /* contexts of a part that live; the first multiprocessor of the last one's */
    unsigned block[3], grid[3], shared;
} fake_state;

/* Images are text, "name bytes-of-arguments" a line. These functions exist:
 * scale: x[i] = x[i] * mul + add;  trap: an illegal address, after which every call fails */
typedef struct {
    u64 x; /* i32 [n] */
    u64 n;
    i32 mul, add;
} fake_scale_args;

#endif
