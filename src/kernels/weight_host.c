#include "kernels/weight_host.h"
#include <stdlib.h>

status weight_host_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e) {
    (void)o;
    *out = NULL;
    if (d->dummy_seed) return err_set(e, ST_UNSUPPORTED, "dummy weights are made on a GPU (--device cuda)");
    u64 bytes = sizeof(op_weight) + (u64)d->n_views * sizeof(weight_view);
    op_weight *w = calloc(1, bytes);
    if (!w) return err_nomem(e, "a weight's description", bytes);
    w->kind = d->kind;
    w->n_views = d->n_views;
    w->n_heads = d->n_heads;
    w->nope = d->nope;
    w->v_dim = d->v_dim;
    for (i64 i = 0; i < d->n_views; i++) w->views[i] = d->views[i];
    if (d->kind == WK_VECTOR) {
        u64 size = (u64)d->views[0].cols * sizeof(f32);
        w->vector = malloc(size);
        if (!w->vector) {
            free(w);
            return err_nomem(e, "a vector", size);
        }
        weight_row_f32(&d->views[0], 0, w->vector);
    }
    *out = w;
    return ST_OK;
}

void weight_host_release(op_weight *w) {
    if (!w) return;
    free(w->vector);
    free(w);
}
