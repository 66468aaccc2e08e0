#include "device/cuda_driver.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t at; /* in a cuda_driver */
    bool needed;
} symbols[] = {
#define CUDA_NEED(name, args) {#name, offsetof(cuda_driver, name), true},
#define CUDA_MAY(name, args)  {#name, offsetof(cuda_driver, name), false},
    CUDA_SYMBOLS(CUDA_NEED, CUDA_MAY)};

const char *cuda_error_text(const cuda_driver *d, CUresult r, char text[256]) {
    const char *name = NULL, *meaning = NULL;
    if (d->cuGetErrorName && d->cuGetErrorName(r, &name) != CUDA_SUCCESS) name = NULL;
    if (d->cuGetErrorString && d->cuGetErrorString(r, &meaning) != CUDA_SUCCESS) meaning = NULL;
    if (name && meaning)
        snprintf(text, 256, "%s (%s)", name, meaning);
    else
        snprintf(text, 256, "%s%sCUDA error %u", name ? name : "", name ? ", " : "", (unsigned)r);
    return text;
}

/* A driver from before the function that is missing is the usual cause, so the text says its version. */
static status fail_symbol(const cuda_driver *d, const char *library, const char *name, err *e) {
    int v = 0;
    if (!d->cuDriverGetVersion || d->cuDriverGetVersion(&v) != CUDA_SUCCESS) v = 0;
    return err_set(e, ST_DEVICE, "the NVIDIA driver is too old: %s (CUDA %d.%d) has no %s; install a newer driver",
                   library, v / 1000, v % 1000 / 10, name);
}

status cuda_driver_open(cuda_driver *d, const char *library, int oldest, err *e) {
    char text[256];
    const char *missing = NULL;
    memset(d, 0, sizeof *d);
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, ST_DEVICE, "no NVIDIA driver: %s; install the driver, or run on the processor (--device cpu)",
                       dlerror());
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f && symbols[i].needed && !missing) missing = symbols[i].name;
        memcpy((char *)d + symbols[i].at, &f, sizeof f);
    }
    if (missing) return fail_symbol(d, library, missing, e);
    CUresult r = d->cuInit(0);
    if (r == CUDA_ERROR_NO_DEVICE)
        return err_set(e, ST_DEVICE, "no GPU: the NVIDIA driver finds none (nvidia-smi lists what it finds)");
    if (r == CUDA_SUCCESS) r = d->cuDriverGetVersion(&d->version);
    if (r != CUDA_SUCCESS)
        return err_set(e, ST_DEVICE, "the NVIDIA driver does not start: %s", cuda_error_text(d, r, text));
    if (d->version < oldest)
        return err_set(e, ST_DEVICE,
                       "the NVIDIA driver is too old: it knows CUDA up to %d.%d, the kernels were built with %d.%d; "
                       "install a newer driver",
                       d->version / 1000, d->version % 1000 / 10, oldest / 1000, oldest % 1000 / 10);
    return ST_OK;
}
