/* kernels/gpu/weight.c: weights copied into the GPU's memory, in the checkpoint's own layout. */
#include "base/buf.h"
#include "kernels/gpu/inside.h"
#include <stdlib.h>
#include <string.h>

static const gpu_u64 LATENT_MAX = 512, V_DIM_MAX = 256; /* attention.cu: columns that a lane owns */

static u64 scale_bytes(const weight_view *v) {
    if (v->format == WF_FP8_BLOCK)
        return (u64)(ceil_div(v->rows, FP8_BLOCK) * ceil_div(v->cols, FP8_BLOCK)) * 4;
    return v->format == WF_INT4_GROUP ? (u64)(v->rows * (v->cols / INT4_GROUP)) * 2 : 0;
}

static status check_shape(const weight_desc *d, err *e) {
    const weight_view *v = &d->views[0];
    if (d->kind == WK_KV_B && ((u64)v->cols > LATENT_MAX || (u64)d->v_dim > V_DIM_MAX))
        return err_set(e, ST_UNSUPPORTED,
                       "attention with a latent of %lld and values of %lld: the GPU goes to %llu and %llu",
                       (long long)v->cols, (long long)d->v_dim, LATENT_MAX, V_DIM_MAX);
    return ST_OK;
}

/* Puts view v at `at`; returns where the next one goes. */
static u8 *put_view(device *dev, const weight_view *v, u8 *at, gpu_matrix *out) {
    u64 scales = scale_bytes(v), data = weight_bytes(v) - scales;
    *out = (gpu_matrix){.data = at, .rows = v->rows, .cols = v->cols, .format = (int)v->format};
    dev->write(dev, at, v->data, data);
    at += gpu_round(data);
    if (scales) {
        out->scale = at;
        dev->write(dev, at, v->scale, scales);
        at += gpu_round(scales);
    }
    u64 row = data / (u64)v->rows,
        piece = v->format == WF_INT4_GROUP ? 32 : 16 / (row / (u64)v->cols ? row / (u64)v->cols : 1);
    out->wide = row % 16 == 0 && (u64)v->cols % piece == 0;
    return at;
}

static status put_vector(device *dev, const weight_view *v, op_weight *w, err *e) {
    f32 *row = malloc((size_t)v->cols * sizeof *row);
    if (!row) return err_nomem(e, "a vector", (u64)v->cols * 4);
    weight_row_f32(v, 0, row);
    w->vector = w->memory;
    dev->write(dev, w->vector, row, (u64)v->cols * sizeof *row);
    free(row);
    return ST_OK;
}

static status put_views(device *dev, const weight_desc *d, op_weight *w, u8 *at, err *e) {
    gpu_matrix *all = malloc((size_t)d->n_views * sizeof *all);
    if (!all) return err_nomem(e, "a table of weights", (u64)d->n_views * sizeof *all);
    if (d->kind == WK_EXPERTS) {
        w->on_gpu = (gpu_matrix *)at;
        at += gpu_round((u64)d->n_views * sizeof *all);
    }
    for (i64 i = 0; i < d->n_views; i++) at = put_view(dev, &d->views[i], at, &all[i]);
    if (w->on_gpu) dev->write(dev, w->on_gpu, all, (u64)d->n_views * sizeof *all);
    w->views[0] = all[0];
    free(all);
    return ST_OK;
}

status gpu_weight_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e) {
    gpu *g = gpu_of(o)->g;
    device *dev = gpu_device(g);
    *out = NULL;
    status st = check_shape(d, e);
    if (st != ST_OK) return st;
    op_weight *w = calloc(1, sizeof *w);
    if (!w) return err_nomem(e, "a weight", sizeof *w);
    *w = (op_weight){.g = g,
                     .kind = d->kind,
                     .n_views = d->n_views,
                     .n_heads = d->n_heads,
                     .nope = d->nope,
                     .v_dim = d->v_dim};
    u64 bytes =
        d->kind == WK_VECTOR ? (u64)d->views[0].cols * 4 : gpu_round((u64)d->n_views * sizeof(gpu_matrix));
    for (i64 i = 0; d->kind != WK_VECTOR && i < d->n_views; i++) {
        u64 scales = scale_bytes(&d->views[i]);
        bytes += gpu_round(weight_bytes(&d->views[i]) - scales) + gpu_round(scales);
    }
    st = dev->alloc(dev, &w->memory, bytes, "weights", e);
    if (st == ST_OK)
        st = d->kind == WK_VECTOR ? put_vector(dev, d->views, w, e) : put_views(dev, d, w, w->memory, e);
    if (st != ST_OK) return gpu_weight_release(w), st;
    *out = w;
    return ST_OK;
}

void gpu_weight_release(op_weight *w) {
    if (!w) return;
    device *dev = gpu_device(w->g);
    dev->release(dev, w->memory);
    free(w);
}
