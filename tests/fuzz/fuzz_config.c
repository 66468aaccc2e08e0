/* config.json, a NUL byte, generation_config.json. What was accepted must be usable: sizes in bounds, finite
 * frequencies. The last line of the input after a second NUL is tried as --override. */
#include "model/config.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void use(const model_config *c) {
    if (c->n_layers < 1 || c->n_dense < 0 || c->n_dense > c->n_layers || c->top_k < 1 || c->top_k > c->n_experts)
        abort();
    if (c->rope % 2 || c->hidden < 1 || c->vocab < 1 || c->n_eos < 0 || c->n_eos > MODEL_EOS_MAX) abort();
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] < 0 || c->eos[i] >= c->vocab) abort();
    f64 *q = malloc((size_t)c->rope / 2 * sizeof *q);
    model_inv_freq(c, q);
    for (i64 j = 0; j < c->rope / 2; j++)
        if (!isfinite(q[j]) || q[j] < 0 || q[j] > 1) abort();
    free(q);
    if (!(model_softmax_scale(c) > 0) || !isfinite(model_rope_mscale(c))) abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    log_set_quiet(true);
    const char *text = (const char *)data, *end = text + size;
    const char *gen = memchr(text, 0, size), *over = gen ? memchr(gen + 1, 0, (size_t)(end - gen - 1)) : NULL;
    size_t len = gen ? (size_t)(gen - text) : size;
    size_t gen_len = gen ? (size_t)((over ? over : end) - gen - 1) : 0;
    model_config c;
    err e = {0};
    status st = model_config_parse(&c, text, len, gen ? gen + 1 : NULL, gen_len, &e);
    if (st != ST_OK && !e.text[0]) abort();
    if (st == ST_OK) use(&c);
    if (st == ST_OK && over) {
        char *a = calloc((size_t)(end - over), 1);
        memcpy(a, over + 1, (size_t)(end - over - 1));
        if (model_config_override(&c, a, &e) == ST_OK) use(&c);
        free(a);
    }
    return 0;
}
