/* device/cuda_driver.h: the NVIDIA driver's library, opened when it is first needed. */
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H
#include "base/err.h"
#include "device/cuda_symbols.h"

typedef struct {
#define CUDA_FIELD(name, args) CUresult(*name) args;
    CUDA_SYMBOLS(CUDA_FIELD, CUDA_FIELD)
#undef CUDA_FIELD
    int version; /* of CUDA that the driver knows: 13000 is 13.0 */
} cuda_driver;

/* Opens `library` (a name that the dynamic linker looks up, or a path) and initialises it. ST_DEVICE when it is not
 * there, lacks a needed function, fails to start, or knows no CUDA as new as `oldest`. It is never closed again: the
 * driver leaves threads of its own behind. */
status cuda_driver_open(cuda_driver *d, const char *library, int oldest, err *e);
/* "CUDA_ERROR_NAME (what it means)", or the number where the driver has no name for it. Returns `text`. */
const char *cuda_error_text(const cuda_driver *d, CUresult r, char text[256]);

#endif
