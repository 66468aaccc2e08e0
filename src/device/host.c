/* device/host.c: host memory as a device. */
#include "base/buf.h"
#include "device/device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each allocation is a mapping of its own: zeroed without being touched, so a large KV pool costs nothing
 * until it is used. The data ends (but for alignment) where the mapping ends, and a page that cannot be
 * touched follows: a kernel that writes past its buffer stops there and damages no other buffer. The header
 * in front of the data tells what to unmap. */
enum { ALIGN = 64 };

typedef struct {
    void *base;
    u64 total;
} header;
_Static_assert(sizeof(header) <= ALIGN, "the header fits in front of the data");

static status host_alloc(device *d, void **out, u64 bytes, const char *what, err *e) {
    (void)d;
    u64 total, guard = (u64)sysconf(_SC_PAGESIZE);
    *out = NULL;
    if (!add_size(bytes, 2 * ALIGN + 2 * guard, &total)) return err_nomem(e, what, bytes);
    total = total / guard * guard;
    u8 *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return err_nomem(e, what, bytes);
    mprotect(p + total - guard, guard, PROT_NONE);           /* refused: as without it */
    if (total >= 4u << 20) madvise(p, total, MADV_HUGEPAGE); /* a hint: refusal costs speed alone */
    u8 *data = p + total - guard - (bytes + ALIGN - 1) / ALIGN * ALIGN;
    memcpy(data - ALIGN, &(header){p, total}, sizeof(header));
    *out = data;
    return ST_OK;
}

static void host_release(device *d, void *p) {
    (void)d;
    header h;
    if (!p) return;
    memcpy(&h, (u8 *)p - ALIGN, sizeof h);
    munmap(h.base, h.total);
}

static void host_write(device *d, void *to, const void *from_host, u64 bytes) {
    (void)d;
    memcpy(to, from_host, bytes);
}

static void host_read(device *d, void *to_host, const void *from, u64 bytes) {
    (void)d;
    memcpy(to_host, from, bytes);
}

/* MemAvailable of /proc/meminfo. */
static u64 host_available(device *d) {
    (void)d;
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1) break;
    if (f) fclose(f);
    return (u64)kb * 1024;
}

static u64 host_takes(u64 bytes) { return bytes; }

static status host_finish(device *d, err *e) {
    (void)d;
    (void)e;
    return ST_OK;
}

static status host_readback_open(device *d, u64 bytes, device_readback **out, err *e) {
    (void)d;
    device_readback *r = *out = calloc(1, sizeof *r);
    if (r && (r->data = calloc(1, bytes ? bytes : 1))) return ST_OK;
    free(r);
    *out = NULL;
    return err_nomem(e, "results", bytes);
}

static void host_readback_close(device *d, device_readback *r) {
    (void)d;
    if (r) free(r->data);
    free(r);
}

static void host_readback_add(device *d, device_readback *r, u64 at, const void *from, u64 bytes) {
    (void)d;
    memcpy(r->data + at, from, bytes);
}

static status host_readback_wait(device *d, const device_readback *r, err *e) {
    (void)r;
    return host_finish(d, e);
}

static status host_courier_open(device *d, u64 bytes, device_courier **out, err *e) {
    (void)d;
    device_courier *c = *out = calloc(1, sizeof *c);
    if (c && (c->data = malloc(bytes ? bytes : 1))) return ST_OK;
    free(c);
    *out = NULL;
    return err_nomem(e, "copies", bytes);
}

static void host_courier_close(device *d, device_courier *c) {
    (void)d;
    if (c) free(c->data);
    free(c);
}

static void host_courier_add(device *d, device_courier *c, bool to_device, void *host, void *there, u64 bytes) {
    (void)d, (void)c;
    if (to_device)
        memcpy(there, host, bytes);
    else
        memcpy(host, there, bytes);
}

static status host_courier_wait(device *d, device_courier *c, err *e) {
    (void)c;
    return host_finish(d, e);
}

device *device_host(void) {
    static device host = {.name = "host",
                          .alloc = host_alloc,
                          .release = host_release,
                          .write = host_write,
                          .read = host_read,
                          .available = host_available,
                          .takes = host_takes,
                          .finish = host_finish,
                          .readback_open = host_readback_open,
                          .readback_close = host_readback_close,
                          .readback_add = host_readback_add,
                          .readback_wait = host_readback_wait,
                          .courier_open = host_courier_open,
                          .courier_close = host_courier_close,
                          .courier_add = host_courier_add,
                          .courier_wait = host_courier_wait};
    return &host;
}
