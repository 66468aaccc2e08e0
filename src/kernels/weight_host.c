#include "kernels/weight_host.h"
#include <stdlib.h>

/* Bytes of view i where it is kept in another format than the checkpoint's, else 0. */
static u64 converted_bytes(const weight_desc *d, i64 i) {
    const weight_view *v = &d->views[i];
    if (d->kind != WK_EXPERTS || d->experts == EXPERTS_AS_STORED) return 0;
    if (d->experts == EXPERTS_W4A8) return v->format == WF_INT4_GROUP ? 0 : requant_bytes(v->rows, v->cols);
    return i % 3 == 2 && v->format != WF_BF16 ? (u64)(v->rows * v->cols) * 2 : 0;
}

/* The views as they will be kept, without data. */
static void plan_views(const weight_desc *d, op_weight *w) {
    if (d->kind == WK_VECTOR) d->room->own += (u64)d->views[0].cols * sizeof(f32);
    for (i64 i = 0; d->kind != WK_VECTOR && i < d->n_views; i++) {
        u64 own = converted_bytes(d, i);
        d->room->own += own;
        if (!own) d->room->mapped += weight_bytes(&d->views[i]);
        w->views[i].data = w->views[i].scale = NULL;
        if (own) w->views[i].format = expert_stored_as(d->experts, d->views[i].format, i);
    }
}

static status convert(const weight_desc *d, op_weight *w, err *e) {
    u64 bytes = 0;
    for (i64 i = 0; i < d->n_views; i++) {
        const weight_view *v = &d->views[i];
        if (d->experts == EXPERTS_W4A8 && v->cols % INT4_GROUP)
            return err_set(e, ST_UNSUPPORTED, "w4a8: experts with %lld columns (not a multiple of %d)",
                           (long long)v->cols, INT4_GROUP);
        bytes += converted_bytes(d, i);
    }
    if (!bytes) return ST_OK;
    u8 *at = w->converted = aligned_alloc(64, (bytes + 63) & ~(u64)63);
    if (!at) return err_nomem(e, "experts in another format", bytes);
    for (i64 i = 0; i < d->n_views; i++) {
        u64 own = converted_bytes(d, i);
        if (own)
            w->views[i] = d->experts == EXPERTS_W4A8 ? requant_int4(&d->views[i], at) : requant_bf16(&d->views[i], at);
        at += own;
    }
    return ST_OK;
}

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
    w->int8 = d->kind == WK_EXPERTS && d->experts == EXPERTS_W4A8;
    if (d->room) return plan_views(d, w), *out = w, ST_OK;
    if (d->kind == WK_EXPERTS) {
        status st = convert(d, w, e);
        if (st != ST_OK) return free(w), st;
    }
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
    free(w->converted);
    free(w);
}

/* Converted ones lie one behind the other in memory of the weight's own. */
status weight_host_replace(const ops *o, op_weight *w, i64 first, const weight_desc *d, err *e) {
    (void)o, (void)e;
    for (i64 i = 0; i < d->n_views; i++) {
        weight_view *to = &w->views[first + i];
        void *own = (void *)(uintptr_t)to->data;
        if (!converted_bytes(d, i))
            *to = d->views[i];
        else
            *to = d->experts == EXPERTS_W4A8 ? requant_int4(&d->views[i], own) : requant_bf16(&d->views[i], own);
    }
    return ST_OK;
}

void gate_place(const gate_args *a) {
    for (i64 i = 0; i < a->n * a->k; i++) {
        if (a->routes) a->slots[i] = expert_slot(a->routes[a->ids[i]], i / a->k);
        if (a->counts) a->counts[a->ids[i]]++;
    }
}
