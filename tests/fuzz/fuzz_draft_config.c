/* A draft's config.json, for nano and for Kimi's shapes. What was accepted must be usable: sizes in bounds, features of
 * layers that exist, finite frequencies; also divided among ranks. */
#include "model/draft_config.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void use(const draft_config *d, const model_config *target) {
    const model_config *c = &d->layer;
    if (c->n_layers != 1 || c->n_dense != 1 || c->hidden != target->hidden || d->target_vocab != target->vocab) abort();
    if (c->vocab < 1 || c->vocab > target->vocab || c->rope < 2 || c->rope % 2 || c->n_heads < 1) abort();
    if (d->layout == DRAFT_LLAMA && (d->kv_heads < 1 || c->n_heads % d->kv_heads)) abort();
    if (d->n_taps < 1 || d->n_taps > DRAFT_TAPS_MOST || draft_kv_width(d) < 1) abort();
    for (i64 i = 0; i < d->n_taps; i++)
        if (d->taps[i] < 1 || d->taps[i] >= target->n_layers || (i && d->taps[i] <= d->taps[i - 1])) abort();
    f64 *q = malloc((size_t)c->rope / 2 * sizeof *q);
    model_inv_freq(c, q);
    for (i64 j = 0; j < c->rope / 2; j++)
        if (!isfinite(q[j]) || q[j] < 0 || q[j] > 1) abort();
    free(q);
    if (!(draft_softmax_scale(d) > 0) || !isfinite(model_rope_mscale(c))) abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    static const model_config targets[] = {{.hidden = 256, .vocab = 2048, .n_layers = 6},
                                           {.hidden = 7168, .vocab = 163840, .n_layers = 61}};
    log_set_quiet(true);
    for (size_t i = 0; i < COUNT_OF(targets); i++) {
        draft_config d;
        err e = {0};
        status st = draft_config_parse(&d, (const char *)data, size, &targets[i], &e);
        if (st != ST_OK && !e.text[0]) abort();
        if (st != ST_OK) continue;
        use(&d, &targets[i]);
        if (draft_config_split(&d, 2, 1, "--tp", &e) == ST_OK) use(&d, &targets[i]);
    }
    return 0;
}
