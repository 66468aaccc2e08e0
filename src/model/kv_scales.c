#include "model/kv_scales.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* k 'k', v 'v': what the tensor `name` is a scale of in one of the layers; 0: it is none. */
static char kv_scale_of(const char *name, const model_config *c) {
    const size_t n = strlen(c->prefix);
    long long layer;
    int used = 0;
    if (strncmp(name, c->prefix, n) != 0 || sscanf(name + n, "model.layers.%lld.self_attn%n", &layer, &used) != 1)
        return 0;
    const char *last = strrchr(name, '.');
    if (!used || layer >= c->n_layers) return 0;
    return !strcmp(last, ".k_scale") || !strcmp(last, ".kv_scale") ? 'k' : !strcmp(last, ".v_scale") ? 'v' : 0;
}

static status kv_scale_value(const tensor_info *t, f32 *x, err *e) {
    if (t->type != DT_F32 && t->type != DT_BF16)
        return err_set(e, ST_FORMAT, "tensor %s is %s, not F32 or BF16", t->name, dtype_name(t->type));
    if (t->bytes != dtype_size(t->type))
        return err_set(e, ST_FORMAT, "tensor %s has %llu elements: a scale of the KV cache is one", t->name,
                       (unsigned long long)(t->bytes / dtype_size(t->type)));
    *x = t->type == DT_F32 ? *(const f32 *)t->data : bf16_to_f32(*(const bf16 *)t->data);
    if (*x == -1) *x = 1;
    return isfinite(*x) && *x > 0 ? ST_OK : err_set(e, ST_NUMERIC, "tensor %s is %g, no scale", t->name, (f64)*x);
}

status kv_scales_read(kv_scales *s, const model_config *c, const checkpoint *ck, err *e) {
    *s = (kv_scales){0, INFINITY, 0};
    for (u64 i = 0; i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        const char what = kv_scale_of(t->name, c);
        f32 x = 1;
        const status st = what ? kv_scale_value(t, &x, e) : ST_OK;
        if (st != ST_OK) return st;
        if (what != 'k' || x == 1) continue;
        s->n++;
        s->least = fminf(s->least, x), s->most = fmaxf(s->most, x);
    }
    return ST_OK;
}
