#include "cmd/lib/cupti.h"
#include "base/opt.h"
#include "cmd/lib/cupti_symbols.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 4 << 20, NAMES = 1024, LAUNCHES_MOST = 1 << 20 };

/* CUPTI hands its records to functions without an argument of ours. */
static struct {
#define CUPTI_FIELD(name, args) CUptiResult(CUPTIAPI *name) args;
    CUPTI_SYMBOLS(CUPTI_FIELD)
#undef CUPTI_FIELD
    bool loaded;
    pthread_mutex_t lock; /* of what is below: CUPTI has a thread of its own */
    kernel_launch *kept;
    i64 n, room;
    bool no_memory;
    char *names[NAMES];
    int n_names;
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER};

static status cupti_refuses(CUptiResult r, const char *what, err *e) {
    const char *why = NULL;
    cupti.cuptiGetResultString(r, &why);
    return err_set(e, ST_UNSUPPORTED, "CUPTI failed at %s: %s (%u)", what, why ? why : "an error without a name",
                   (unsigned)r);
}

status cupti_find(err *e) {
    static const char *const usual[] = {"libcupti.so.13", "libcupti.so.12"};
    static const char *const symbols[] = {
#define CUPTI_NAME(name, args) #name,
        CUPTI_SYMBOLS(CUPTI_NAME)
#undef CUPTI_NAME
    };
    void *const fields[] = {
#define CUPTI_AT(name, args) &cupti.name,
        CUPTI_SYMBOLS(CUPTI_AT)
#undef CUPTI_AT
    };
    if (cupti.loaded) return ST_OK;
    const char *name = opt_env("MOONLET_CUPTI");
    void *lib = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !name && !lib && i < COUNT_OF(usual); i++) lib = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, ST_UNSUPPORTED,
                       "no CUPTI: %s (it comes with the CUDA toolkit; the dynamic linker finds it through "
                       "LD_LIBRARY_PATH; MOONLET_CUPTI names its file)",
                       dlerror());
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        void *f = dlsym(lib, symbols[i]);
        if (!f) return err_set(e, ST_UNSUPPORTED, "%s has no %s", name ? name : "libcupti", symbols[i]);
        memcpy(fields[i], &f, sizeof f);
    }
    uint32_t version = 0;
    CUptiResult r = cupti.cuptiGetVersion(&version);
    if (r != CUPTI_SUCCESS) return cupti_refuses(r, "its version", e);
    if (version < CUPTI_VERSION_MIN)
        return err_set(e, ST_UNSUPPORTED, "CUPTI's version is %u; %d is needed (CUDA 12.0)", (unsigned)version,
                       CUPTI_VERSION_MIN);
    cupti.loaded = true;
    return ST_OK;
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(64, BUFFER);
    *size = *buffer ? BUFFER : 0; /* CUPTI counts what it drops for want of one */
    *records = 0;
}

static const char *kept_name(const char *name) {
    for (int i = 0; i < cupti.n_names; i++)
        if (!strcmp(cupti.names[i], name)) return cupti.names[i];
    if (cupti.n_names == NAMES) return "(another kernel)";
    char *own = strdup(name);
    if (!own) return "(another kernel)";
    return cupti.names[cupti.n_names++] = own;
}

static void keep_launch(const cupti_kernel *k) {
    if (cupti.n == cupti.room) {
        const i64 room = cupti.room ? 2 * cupti.room : 4096;
        kernel_launch *more = room <= LAUNCHES_MOST ? realloc(cupti.kept, (size_t)room * sizeof *more) : NULL;
        if (!more) {
            cupti.no_memory = true;
            return;
        }
        cupti.kept = more;
        cupti.room = room;
    }
    cupti.kept[cupti.n++] = (kernel_launch){kept_name(k->name ? k->name : "?"),
                                            k->start,
                                            k->end,
                                            {k->gridX, k->gridY, k->gridZ},
                                            (i32)k->clusterX,
                                            k->contextId,
                                            k->graphId != 0};
}

static void CUPTIAPI take_buffer(struct CUctx_st *context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid) {
    CUpti_Activity *r = NULL;
    size_t dropped = 0;
    (void)size;
    pthread_mutex_lock(&cupti.lock);
    while (cupti.cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) keep_launch((const cupti_kernel *)(const void *)r);
    if (cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) != CUPTI_SUCCESS || dropped)
        cupti.no_memory = true;
    pthread_mutex_unlock(&cupti.lock);
    free(buffer);
}

status cupti_start(err *e) {
    status st = cupti_find(e);
    if (st != ST_OK) return st;
    CUptiResult r = cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (r == CUPTI_SUCCESS) r = cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    return r == CUPTI_SUCCESS ? ST_OK : cupti_refuses(r, "its start", e);
}

static int by_beginning(const void *a, const void *b) {
    const kernel_launch *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

status cupti_take(kernel_launch **out, i64 *n, err *e) {
    CUptiResult r = cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&cupti.lock);
    const bool lost = cupti.no_memory;
    *out = cupti.kept;
    *n = cupti.n;
    cupti.kept = NULL;
    cupti.n = cupti.room = 0;
    cupti.no_memory = false;
    pthread_mutex_unlock(&cupti.lock);
    if (r == CUPTI_SUCCESS && !lost) {
        if (*n) qsort(*out, (size_t)*n, sizeof **out, by_beginning);
        return ST_OK;
    }
    free(*out);
    *out = NULL;
    *n = 0;
    return r != CUPTI_SUCCESS ? cupti_refuses(r, "handing out its records", e)
                              : err_set(e, ST_DEVICE, "CUPTI lost launches for want of memory: look at shorter steps");
}

void cupti_stop(void) {
    if (!cupti.loaded) return;
    cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&cupti.lock);
    free(cupti.kept);
    cupti.kept = NULL;
    cupti.n = cupti.room = 0;
    pthread_mutex_unlock(&cupti.lock);
}
