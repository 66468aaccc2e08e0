/* kernels/gpu/gemm/gemm_cublas.c: matrix products of more than 64 rows: their choice where they run, and what is
 * said of it. */
#include "base/log.h"
#include "kernels/gpu/backend.h"
#include <stdio.h>
#include <string.h>

void ops_gpu_force_gemm(ops *o, const gemm_choice *how) { gpu_of(o)->forced_gemm = how; }
void ops_gpu_watch_gemm(ops *o, gemm_seen *seen) { gpu_of(o)->seen = seen; }

static i64 library_of(const gpu_backend *b) { return b->blas ? cublas_version(b->blas) : 0; }
i64 gpu_gemm_library(const ops *o) { return library_of(gpu_of(o)); }

enum { CALL_TEXT = 120, VERSION_TEXT = 40 };
static void call_text(const gemm_call *c, char out[CALL_TEXT]) {
    int n = snprintf(out, CALL_TEXT, "%s %lld x %lld to %s", gemm_op_text(c->op), (long long)c->rows,
                     (long long)c->cols, c->f32 ? "f32" : "bf16");
    if (c->heads > 1) snprintf(out + n, (size_t)(CALL_TEXT - n), ", %lld heads", (long long)c->heads);
}

static void version_text(i64 v, char out[VERSION_TEXT]) {
    if (v)
        snprintf(out, VERSION_TEXT, "cuBLASLt %lld.%lld.%lld", (long long)(v / 10000), (long long)(v / 100 % 100),
                 (long long)(v % 100));
    else
        snprintf(out, VERSION_TEXT, "no cuBLASLt");
}

/* Once a shape; once for all where the table is another library's. */
static void tell_missed(const gpu_backend *b, const gemm_call *c, i64 library, bool foreign) {
    char key[CALL_TEXT + 8], what[CALL_TEXT], version[VERSION_TEXT];
    call_text(c, what);
    version_text(library, version);
    snprintf(key, sizeof key, "gemm %s", foreign ? "library" : what);
    if (foreign)
        log_once(key,
                 "%s was measured with another library, here is %s: matrix products run by its own choices (moonlet "
                 "tune gemm makes rows)",
                 b->gemms_name, version);
    else
        log_once(key,
                 "%s has no row for %s of %lld rows on %s with %d processors%s: the built-in choice is used "
                 "(moonlet tune gemm makes rows)",
                 b->gemms_name, what, (long long)c->tokens, gpu_name(b->g), gpu_processors(b->g),
                 b->gemms->others ? ", others it has" : "");
}

gemm_choice gpu_gemm_choice(const gpu_backend *b, const gemm_call *c) {
    const i64 library = library_of(b);
    gemm_source from = GEMM_BUILT_IN;
    gemm_choice how = b->forced_gemm ? *b->forced_gemm : gemm_choose(c, b->gemms, library, &from);
    if (from == GEMM_MISSED || from == GEMM_FOREIGN) tell_missed(b, c, library, from == GEMM_FOREIGN);
    if (b->seen) *b->seen = (gemm_seen){.call = *c, .choice = how, .from = from};
    return how;
}

bool gpu_multiply(const gpu_backend *b, cublas_product *p, const gemm_choice *how) {
    char key[96], text[GEMM_CHOICE_TEXT];
    if (b->seen) b->seen->asked = true, b->seen->product = *p;
    p->told = how->path == GEMM_CUBLAS;
    if (p->told) p->how = how->how;
    if (cublas_multiply(b->blas, p)) return true;
    if (!p->told) return false;
    if (b->seen) b->seen->refused = true;
    gemm_choice_text(how, text);
    snprintf(key, sizeof key, "refused %lld %lld %lld", (long long)p->rows, (long long)p->cols, (long long)p->heads);
    if (!b->forced_gemm)
        log_once(key, "cuBLASLt does not take %s for %lld x %lld x %lld: it chooses for itself", text, (long long)p->n,
                 (long long)p->rows, (long long)p->cols);
    p->told = false;
    return cublas_multiply(b->blas, p);
}

static int add_offers(const gpu_backend *b, const cublas_product *p, bool other, gemm_choice *out, int n) {
    cublas_config offers[CUBLAS_OFFERS];
    int offered = cublas_offers(b->blas, p, offers);
    for (int i = 0; i < offered && n < GEMM_CANDIDATES; i++) {
        bool fresh = !other || offers[i].splits <= 1; /* sums in pieces are for few tiles */
        out[n] = (gemm_choice){GEMM_CUBLAS, offers[i]};
        for (int k = 0; k < n; k++) fresh = fresh && memcmp(&out[k], &out[n], sizeof *out) != 0;
        n += fresh;
    }
    return n;
}

int gpu_gemm_candidates(const ops *o, const gemm_seen *seen, const i64 *also, i64 n_also,
                        gemm_choice out[GEMM_CANDIDATES]) {
    const gpu_backend *b = gpu_of(o);
    const i64 library = library_of(b);
    cublas_product p = seen->product;
    int n = 1;
    memset(out, 0, GEMM_CANDIDATES * sizeof *out);
    out[0] = gemm_default(library);
    out[n].path = GEMM_INVARIANT;
    n += gemm_allowed(&seen->call, &out[n], library);
    if (!seen->asked || !b->blas) return n;
    n = add_offers(b, &p, false, out, n);
    for (i64 i = 0; i < n_also; i++) {
        p.n = also[i];
        n = add_offers(b, &p, true, out, n);
    }
    return n;
}
