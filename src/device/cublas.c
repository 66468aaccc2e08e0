#include "device/cublas.h"
#include "base/buf.h"
#include "base/opt.h"
#include "device/cublas_symbols.h"
#include "device/gpu_internal.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { WORKSPACE = 32 << 20 /* what NVIDIA advises for Hopper */, PLANS = 512, CLASS_PLANS = 2048 };

/* What a choice depends on: a product without its addresses. */
typedef struct {
    cublas_product shape;
    bool usable;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t w, x, y;
} plan;

typedef struct {
    plan *of; /* [room] the oldest goes first */
    i64 room, n;
} plan_ring;

struct cublas {
    gpu *g;
    void *workspace;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t limits;
#define CUBLAS_FIELD(name, args) cublasStatus_t(*name) args;
    CUBLAS_SYMBOLS(CUBLAS_FIELD)
#undef CUBLAS_FIELD
#define CUBLAS_FIELD(name, args) size_t(*name) args;
    CUBLAS_SIZES(CUBLAS_FIELD)
#undef CUBLAS_FIELD
    plan_ring exact, classes; /* of the rows that come; of size classes, whose choices others take */
    plan plans[PLANS], of_classes[CLASS_PLANS];
};

static const struct {
    const char *name;
    size_t at;
} symbols[] = {
#define CUBLAS_ROW(name, args) {#name, offsetof(cublas, name)},
    CUBLAS_SIZES(CUBLAS_ROW) CUBLAS_SYMBOLS(CUBLAS_ROW)};

static void *cublas_open_library(const char **name) {
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    void *lib = NULL;
    if ((*name = opt_env("MOONLET_CUBLASLT"))) return dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !lib && i < COUNT_OF(usual); i++) lib = dlopen(*name = usual[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static status find_symbols(cublas *c, err *e) {
    const char *name;
    void *lib = cublas_open_library(&name);
    if (!lib)
        return err_set(e, ST_UNSUPPORTED,
                       "no cuBLASLt: %s (the dynamic linker finds it through LD_LIBRARY_PATH; "
                       "MOONLET_CUBLASLT names its file)",
                       dlerror());
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (!f) return err_set(e, ST_UNSUPPORTED, "%s has no %s", name, symbols[i].name);
        memcpy((char *)c + symbols[i].at, &f, sizeof f);
    }
    return ST_OK;
}

status cublas_open(cublas **out, gpu *g, err *e) {
    u64 room = WORKSPACE;
    *out = NULL;
    cublas *c = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "cuBLASLt's state", sizeof *c);
    c->g = g;
    c->exact = (plan_ring){c->plans, PLANS, 0};
    c->classes = (plan_ring){c->of_classes, CLASS_PLANS, 0};
    status st = find_symbols(c, e);
    if (st == ST_OK) {
        CUresult r = g->cu.cuCtxSetCurrent(g->context);
        if (r != CUDA_SUCCESS) st = gpu_fail(g, r, e, "entering its context");
    }
    if (st == ST_OK) st = g->dev.alloc(&g->dev, &c->workspace, WORKSPACE, "cuBLASLt's workspace", e);
    if (st == ST_OK) {
        cublasStatus_t r = c->cublasLtCreate(&c->handle);
        if (r == CUBLAS_STATUS_SUCCESS) r = c->cublasLtMatmulPreferenceCreate(&c->limits);
        if (r == CUBLAS_STATUS_SUCCESS)
            r = c->cublasLtMatmulPreferenceSetAttribute(c->limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                                        sizeof room);
        if (r != CUBLAS_STATUS_SUCCESS)
            st = err_set(e, ST_UNSUPPORTED, "cuBLASLt does not start on %s (its status %u)", g->name, r);
    }
    if (st == ST_OK)
        *out = c;
    else
        cublas_close(c);
    return st;
}

static void cublas_drop(cublas *c, plan *p) {
    if (p->how) c->cublasLtMatmulDescDestroy(p->how);
    if (p->w) c->cublasLtMatrixLayoutDestroy(p->w);
    if (p->x) c->cublasLtMatrixLayoutDestroy(p->x);
    if (p->y) c->cublasLtMatrixLayoutDestroy(p->y);
    memset(p, 0, sizeof *p);
}

void cublas_close(cublas *c) {
    if (!c) return;
    for (i64 i = 0; i < PLANS; i++) cublas_drop(c, &c->plans[i]);
    for (i64 i = 0; i < CLASS_PLANS; i++) cublas_drop(c, &c->of_classes[i]);
    if (c->limits) c->cublasLtMatmulPreferenceDestroy(c->limits);
    if (c->handle) c->cublasLtDestroy(c->handle);
    c->g->dev.release(&c->g->dev, c->workspace);
    free(c);
}

static bool good(cublasStatus_t r) { return r == CUBLAS_STATUS_SUCCESS; }

/* A matrix as the library counts: columns of `rows` consecutive elements, `stride` apart. */
static bool cublas_layout(cublas *c, cublasLtMatrixLayout_t *out, unsigned type, i64 rows, i64 cols, i64 stride,
                          i64 heads, i64 step) {
    int count = (int)heads;
    if (!good(c->cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols, stride))) return false;
    return heads == 1 ||
           (good(c->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count)) &&
            good(c->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                     sizeof step)));
}

/* Our rows are the library's columns: it computes y^T [rows, n] = op(w) x^T. */
static bool cublas_describe(cublas *c, plan *p) {
    const cublas_product *s = &p->shape;
    int turned = s->across ? CUBLAS_OP_N : CUBLAS_OP_T;
    if (!good(c->cublasLtMatmulDescCreate(&p->how, CUBLAS_COMPUTE_32F, CUDA_R_32F)) ||
        !good(c->cublasLtMatmulDescSetAttribute(p->how, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned)))
        return false;
    return cublas_layout(c, &p->w, CUDA_R_16BF, s->across ? s->rows : s->cols, s->across ? s->cols : s->rows,
                         s->w_stride, s->heads, s->w_step) &&
           cublas_layout(c, &p->x, CUDA_R_16BF, s->cols, s->n, s->x_stride, s->heads, s->x_step) &&
           cublas_layout(c, &p->y, s->wide ? CUDA_R_32F : CUDA_R_16BF, s->rows, s->n, s->y_stride, s->heads, s->y_step);
}

static int cublas_ask(cublas *c, const plan *p, cublasLtMatmulHeuristicResult_t *out, int most) {
    int found = 0;
    gpu_calls(c->g, "asks cuBLASLt for a kernel");
    bool ok = good(
        c->cublasLtMatmulAlgoGetHeuristic(c->handle, p->how, p->w, p->x, p->y, p->y, c->limits, most, out, &found));
    gpu_calls(c->g, NULL);
    return ok ? found : 0;
}

/* The configuration that was told, if the library takes it for this shape. */
static bool obey(cublas *c, plan *p) {
    const cublas_config *how = &p->shape.how;
    unsigned y = p->shape.wide ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtMatmulHeuristicResult_t is;
    if (!good(c->cublasLtMatmulAlgoInit(c->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, y, y,
                                        how->algo, &p->algo)))
        return false;
#define CUBLAS_CONFIG_SET(name, attribute, bytes, most)                                                                \
    if (attribute != CUBLASLT_ALGO_CONFIG_ID &&                                                                        \
        !good(c->cublasLtMatmulAlgoConfigSetAttribute(&p->algo, attribute, &how->name, bytes)))                        \
        return false;
    CUBLAS_CONFIG(CUBLAS_CONFIG_SET)
#undef CUBLAS_CONFIG_SET
    return good(c->cublasLtMatmulAlgoCheck(c->handle, p->how, p->w, p->x, p->y, p->y, &p->algo, &is)) &&
           is.workspaceSize <= WORKSPACE;
}

static const plan *plan_of(cublas *c, plan_ring *r, const cublas_product *p);

/* The next number of rows of which the library is asked: up to 32 each, then sixteen in each
 * doubling. */
static i64 cublas_size_class(i64 n) {
    i64 apart = 1;
    while (32 * apart <= n) apart *= 2;
    return ceil_div(n, apart) * apart;
}

/* What the library chose for the rows' size class. An answer takes 0.3 ms, and as its choices change with every few
 * rows, each names kernels that take 3 ms to load: steps of prompts have other rows each time. */
static bool choose_as_class(cublas *c, plan *p) {
    cublasLtMatmulHeuristicResult_t is;
    cublas_product whole = p->shape;
    whole.n = cublas_size_class(whole.n);
    const plan *other = plan_of(c, &c->classes, &whole);
    if (!other->usable ||
        !good(c->cublasLtMatmulAlgoCheck(c->handle, p->how, p->w, p->x, p->y, p->y, &other->algo, &is)))
        return false;
    p->algo = other->algo;
    return is.workspaceSize <= WORKSPACE;
}

static bool make(cublas *c, plan *p, bool of_class) {
    cublasLtMatmulHeuristicResult_t best;
    if (!cublas_describe(c, p)) return false;
    if (p->shape.told) return obey(c, p);
    if (!of_class && choose_as_class(c, p)) return true;
    if (cublas_ask(c, p, &best, 1) < 1 || !good(best.state)) return false;
    p->algo = best.algo;
    return true;
}

/* A product without its addresses, padding included, for memcmp. */
static void cublas_key_of(cublas_product *key, const cublas_product *p) {
    memset(key, 0, sizeof *key);
    key->n = p->n, key->rows = p->rows, key->cols = p->cols, key->heads = p->heads;
    key->w_stride = p->w_stride, key->x_stride = p->x_stride, key->y_stride = p->y_stride;
    key->w_step = p->w_step, key->x_step = p->x_step, key->y_step = p->y_step;
    key->across = p->across, key->wide = p->wide, key->told = p->told;
    if (p->told) key->how = p->how;
}

static const plan *plan_of(cublas *c, plan_ring *r, const cublas_product *p) {
    cublas_product key;
    cublas_key_of(&key, p);
    for (i64 i = 0; i < min_i64(r->n, r->room); i++)
        if (!memcmp(&r->of[i].shape, &key, sizeof key)) return &r->of[i];
    plan *fresh = &r->of[r->n++ % r->room];
    cublas_drop(c, fresh);
    memcpy(&fresh->shape, &key, sizeof key);
    fresh->usable = make(c, fresh, r == &c->classes);
    return fresh;
}

i64 cublas_version(const cublas *c) { return (i64)c->cublasLtGetVersion(); }

/* Reads an algorithm's configuration; false: one that a table must not have. */
static bool config_of(cublas *c, const cublasLtMatmulAlgo_t *algo, cublas_config *out) {
    size_t n;
    *out = (cublas_config){0};
#define CUBLAS_CONFIG_GET(name, attribute, bytes, most)                                                                \
    if (!good(c->cublasLtMatmulAlgoConfigGetAttribute(algo, attribute, &out->name, bytes, &n)) || out->name < 0 ||     \
        out->name > (most))                                                                                            \
        return false;
    CUBLAS_CONFIG(CUBLAS_CONFIG_GET)
#undef CUBLAS_CONFIG_GET
    return out->reduction == CUBLASLT_REDUCTION_SCHEME_NONE || out->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

int cublas_offers(cublas *c, const cublas_product *p, cublas_config out[CUBLAS_OFFERS]) {
    cublasLtMatmulHeuristicResult_t all[CUBLAS_OFFERS];
    plan k = {0};
    int n = 0, found;
    cublas_key_of(&k.shape, p);
    found = gpu_enter(c->g) && cublas_describe(c, &k) ? cublas_ask(c, &k, all, CUBLAS_OFFERS) : 0;
    for (int i = 0; i < found; i++) {
        if (!good(all[i].state) || !config_of(c, &all[i].algo, &out[n])) continue;
        bool fresh = true;
        for (int j = 0; j < n; j++) fresh = fresh && memcmp(&out[j], &out[n], sizeof *out) != 0;
        n += fresh;
    }
    cublas_drop(c, &k);
    return n;
}

bool cublas_multiply(cublas *c, const cublas_product *p) {
    static const gpu_kernel library = {.name = (char *)"cuBLASLt"}; /* in messages and traces */
    const f32 one = 1, zero = 0;
    gpu *g = c->g;
    if (!gpu_enter(g)) return true; /* the failure is kept */
    const plan *k = plan_of(c, &c->exact, p);
    if (!k->usable) return false;
    g->last = &library;
    if (g->trace.most) gpu_trace_mark(g, &library, true);
    gpu_calls(g, "queues a product of cuBLASLt"); /* which may load its kernel */
    cublasStatus_t r = c->cublasLtMatmul(c->handle, k->how, &one, p->w, k->w, p->x, k->x, p->add ? &one : &zero, p->y,
                                         k->y, p->y, k->y, &k->algo, c->workspace, WORKSPACE, g->stream);
    gpu_calls(g, NULL);
    if (g->trace.most) gpu_trace_mark(g, &library, false);
    if (!good(r) && g->failed.code == ST_OK)
        err_set(&g->failed, ST_DEVICE,
                "GPU %d (%s): cuBLASLt failed (its status %u) on a product of %lld x %lld x %lld", g->ordinal, g->name,
                r, (long long)p->n, (long long)p->rows, (long long)p->cols);
    return true;
}
