/* tests/gpu/timeline.c: when every kernel of recorded steps begins and ends, as the GPU's own clock saw it, through
 * CUPTI. A library that the driver loads into a program under test; the program does not know of it:
 *
 *   gcc -O2 -shared -fPIC -I/usr/local/cuda/include tests/gpu/timeline.c -o timeline.so -ldl
 *   CUDA_INJECTION64_PATH=$PWD/timeline.so TIMELINE_CUPTI=/usr/local/cuda/lib64/libcupti.so moonlet profile --device
 *   cuda ...
 *
 * For every number of rows (the grid of k_embed, a step's second kernel) it prints the last recorded step that is
 * whole: by kernel and grid the launches, their mean time, how far each began before the end of all before it
 * (overlap; negative: a gap), and how far it moved that end (`adds`: the sum over a step is the step); then the
 * launches of one layer in the middle, one by one. TIMELINE_LINES: of how many launches there. */
#define _GNU_SOURCE
#include <cupti.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    uint64_t from, to;
    int grid[3], cluster;
    uint32_t graph;
} launch;

enum { BUFFER = 8 << 20, MOST = 1 << 22, ROWS = 129, KINDS = 256 };
static launch *all;
static size_t n_all;
static CUptiResult (*flush_all)(uint32_t), (*next_record)(uint8_t *, size_t, CUpti_Activity **);

static const char *keep(const char *name) {
    static const char *names[1024];
    static int n;
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return names[i];
    return n < 1024 ? names[n++] = strdup(name) : "?";
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records) {
    *buffer = aligned_alloc(64, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *r = NULL;
    while (next_record(buffer, valid, &r) == CUPTI_SUCCESS) {
        const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)r;
        if (r->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || n_all == MOST) continue;
        all[n_all++] =
            (launch){keep(k->name), k->start, k->end, {k->gridX, k->gridY, k->gridZ}, (int)k->clusterX, k->graphId};
    }
    free(buffer);
}

static int by_start(const void *a, const void *b) {
    const launch *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* k[0..n): one step, in the order of their ends (of launches that overlap the later one ends later). */
static int by_end(const void *a, const void *b) {
    const launch *x = a, *y = b;
    return x->to < y->to ? -1 : x->to > y->to;
}

static void show_kinds(const launch *k, size_t n) {
    struct {
        const launch *first;
        int count;
        double time, overlap, adds;
    } kind[KINDS];
    int kinds = 0;
    uint64_t end = k[0].from;
    for (size_t i = 0; i < n; i++) {
        int j = 0;
        while (j < kinds &&
               (kind[j].first->name != k[i].name || memcmp(kind[j].first->grid, k[i].grid, sizeof k[i].grid)))
            j++;
        if (j == KINDS) break;
        if (j == kinds) memset(&kind[kinds++], 0, sizeof kind[0]), kind[j].first = &k[i];
        kind[j].count++;
        kind[j].time += (double)(k[i].to - k[i].from);
        kind[j].overlap += (double)end - (double)k[i].from;
        kind[j].adds += (double)k[i].to - (double)end;
        end = k[i].to;
    }
    printf("  %-22s %-16s %7s %5s %8s %8s %8s %9s\n", "kernel", "grid", "cluster", "n", "us", "overlap", "adds",
           "us a step");
    for (int j = 0; j < kinds; j++) {
        char grid[32];
        double c = kind[j].count * 1e3;
        snprintf(grid, sizeof grid, "%d,%d,%d", kind[j].first->grid[0], kind[j].first->grid[1], kind[j].first->grid[2]);
        printf("  %-22s %-16s %7d %5d %8.2f %8.2f %8.2f %9.1f\n", kind[j].first->name, grid, kind[j].first->cluster,
               kind[j].count, kind[j].time / c, kind[j].overlap / c, kind[j].adds / c, kind[j].adds / 1e3);
    }
}

static void show_lines(const launch *k, size_t n, size_t lines) {
    size_t from = n / 2, to = from + lines < n ? from + lines : n;
    for (size_t i = from; i < to; i++)
        printf("    %9.2f .. %9.2f  (%6.2f)  adds %6.2f  %s\n", (double)(k[i].from - k[from].from) / 1e3,
               ((double)k[i].to - (double)k[from].from) / 1e3, (double)(k[i].to - k[i].from) / 1e3,
               ((double)k[i].to - (double)k[i - 1].to) / 1e3, k[i].name);
}

static void show_all(void) {
    const char *lines = getenv("TIMELINE_LINES");
    if (flush_all) flush_all(1);
    qsort(all, n_all, sizeof *all, by_start);
    size_t last[ROWS] = {0}, size[ROWS] = {0}, n = 0;
    for (size_t i = 0; i < n_all; i++)
        if (all[i].graph) all[n++] = all[i];
    for (size_t i = 0; i < n;) {
        size_t to = i + 1;
        while (to < n && strcmp(all[to].name, "k_rope_table")) to++;
        if (to < n && to > i + 1 && !strcmp(all[i].name, "k_rope_table")) {
            int rows = 0;
            for (size_t j = i; j < i + 4 && j < to; j++)
                if (!strcmp(all[j].name, "k_embed")) rows = all[j].grid[0];
            if (rows < ROWS) last[rows] = i, size[rows] = to - i;
        }
        i = to;
    }
    printf("timeline: %zu launches, %zu of recorded steps\n", n_all, n);
    for (int rows = 0; rows < ROWS; rows++) {
        if (!size[rows]) continue;
        launch *k = all + last[rows];
        qsort(k, size[rows], sizeof *k, by_end);
        printf("%d rows: %zu launches, %.1f us\n", rows, size[rows], (double)(k[size[rows] - 1].to - k[0].from) / 1e3);
        show_kinds(k, size[rows]);
        show_lines(k, size[rows], lines ? strtoul(lines, NULL, 10) : 36);
    }
    fflush(stdout);
}

int InitializeInjection(void);
int InitializeInjection(void) {
    const char *path = getenv("TIMELINE_CUPTI");
    void *lib = dlopen(path ? path : "libcupti.so", RTLD_NOW);
    if (!lib) return fprintf(stderr, "timeline: %s\n", dlerror()), 0;
    CUptiResult (*callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc),
        (*enable)(CUpti_ActivityKind);
    *(void **)&callbacks = dlsym(lib, "cuptiActivityRegisterCallbacks");
    *(void **)&enable = dlsym(lib, "cuptiActivityEnable");
    *(void **)&flush_all = dlsym(lib, "cuptiActivityFlushAll");
    *(void **)&next_record = dlsym(lib, "cuptiActivityGetNextRecord");
    all = malloc(MOST * sizeof *all);
    if (!callbacks || !enable || !flush_all || !next_record || !all) return fprintf(stderr, "timeline: no CUPTI\n"), 0;
    CUptiResult r = callbacks(give_buffer, take_buffer);
    if (r == CUPTI_SUCCESS) r = enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (r != CUPTI_SUCCESS) return fprintf(stderr, "timeline: CUPTI's error %d\n", (int)r), 0;
    atexit(show_all);
    return 1;
}
