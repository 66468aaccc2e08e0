/* CUPTI's functions on the emulated GPU, for tests of cmd/lib/cupti.c: launches in their order, of which each lasts
 * 2 us and begins half of one before the end of the one in front, whatever they really take.
 *
 * FAKE_CUPTI is "old": CUDA 11's; "refuses": it does not start; "drops": it loses records. */
extern "C" {
#include "cmd/lib/cupti_symbols.h"
}
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <vector>

namespace {
enum { RECORD = 256 }; /* bytes; CUPTI's own are longer than what we read of them, too */
std::mutex lock;
bool on;
uint64_t clock_ns = 1000000;
std::vector<cupti_kernel> seen;
CUpti_BuffersCallbackRequestFunc give;
CUpti_BuffersCallbackCompleteFunc take;
typedef void (*launch_hook)(const void *kernel, const unsigned *grid, int cluster, const void *context, bool recorded);

bool told(const char *what) {
    const char *to = getenv("FAKE_CUPTI");
    return to && !strcmp(to, what);
}

void see(const void *kernel, const unsigned *grid, int cluster, const void *context, bool recorded) {
    std::lock_guard<std::mutex> hold(lock);
    if (!on) return;
    Dl_info is;
    cupti_kernel k = {};
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.name = dladdr(kernel, &is) && is.dli_sname ? is.dli_sname : "unknown";
    k.start = clock_ns - 500, k.end = clock_ns += 1500;
    k.gridX = (int)grid[0], k.gridY = (int)grid[1], k.gridZ = (int)grid[2];
    k.clusterX = (unsigned)cluster;
    k.contextId = (uint32_t)(size_t)context; /* its lower half tells them apart */
    k.graphId = recorded;
    seen.push_back(k);
}

void set_hook(launch_hook to) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    launch_hook *hook = driver ? (launch_hook *)dlsym(driver, "emu_launched") : nullptr;
    if (hook) *hook = to;
}
} // namespace

extern "C" {
CUptiResult cuptiGetVersion(uint32_t *version) { return *version = told("old") ? 17 : 130000, 0; }
CUptiResult cuptiGetResultString(CUptiResult r, const char **text) {
    return *text = r == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN", 0;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc give_buffer,
                                           CUpti_BuffersCallbackCompleteFunc take_buffer) {
    give = give_buffer, take = take_buffer;
    return 0;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (told("refuses") || kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return 35;
    std::lock_guard<std::mutex> hold(lock);
    on = true;
    set_hook(see);
    return 0;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
    std::lock_guard<std::mutex> hold(lock);
    on = false;
    return 0;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
    std::vector<cupti_kernel> all;
    {
        std::lock_guard<std::mutex> hold(lock);
        all.swap(seen);
    }
    for (size_t at = 0; at < all.size();) {
        uint8_t *buffer = nullptr;
        size_t size = 0, records = 0, used = 0;
        give(&buffer, &size, &records);
        for (; at < all.size() && used + RECORD <= size; at++, used += RECORD)
            memcpy(buffer + used, &all[at], sizeof all[at]);
        if (!used) return 1;
        take(nullptr, 0, buffer, size, used);
    }
    return 0;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record ? (uint8_t *)*record + RECORD : buffer;
    if (next + RECORD > buffer + valid) return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    return *record = (CUpti_Activity *)next, 0;
}
CUptiResult cuptiActivityGetNumDroppedRecords(struct CUctx_st *, uint32_t, size_t *dropped) {
    return *dropped = told("drops") ? 7 : 0, 0;
}
}
