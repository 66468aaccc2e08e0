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

static void fill(const gpu_backend *b, void *to, u64 n, u64 seed, f32 sigma, int kind) {
    enum { BLOCKS = 132 * 16 };
    gpu_fill_args k = {to, n, seed, sigma, kind};
    gpu_launch(b->g, b->fill, (u32)min_i64((i64)((n + GPU_THREADS - 1) / GPU_THREADS), BLOCKS), 1, 1,
               GPU_THREADS, 0, &k);
}

/* Made-up data and scales of view v, number i of a weight. */
static void fill_view(const gpu_backend *b, const weight_desc *d, i64 i, void *data, void *scale) {
    const weight_view *v = &d->views[i];
    u64 n = (u64)v->rows * (u64)v->cols, seed = (d->dummy_seed << 12) + 2 * (u64)i, scales = scale_bytes(v);
    bool int4 = v->format == WF_INT4_GROUP, fp8 = v->format == WF_FP8_BLOCK;
    fill(b, data, int4 ? n / 2 : n, seed, d->dummy_sigma,
         int4  ? GPU_FILL_NIBBLES
         : fp8 ? GPU_FILL_FP8
               : GPU_FILL_BF16);
    if (int4) fill(b, scale, scales / 2, seed + 1, 0, GPU_FILL_SCALE_BF16);
    if (fp8) fill(b, scale, scales / 4, seed + 1, d->dummy_sigma, GPU_FILL_SCALE_F32);
}

/* Puts view i at `at`; returns where the next one goes. */
static u8 *put_view(const gpu_backend *b, const weight_desc *d, i64 i, u8 *at, gpu_matrix *out) {
    const weight_view *v = &d->views[i];
    device *dev = gpu_device(b->g);
    u64 scales = scale_bytes(v), data = weight_bytes(v) - scales, row = data / (u64)v->rows;
    *out = (gpu_matrix){.data = at, .rows = v->rows, .cols = v->cols, .format = (int)v->format};
    if (scales) out->scale = at + gpu_round(data);
    if (d->dummy_seed) {
        fill_view(b, d, i, at, at + gpu_round(data));
    } else {
        dev->write(dev, at, v->data, data);
        if (scales) dev->write(dev, at + gpu_round(data), v->scale, scales);
    }
    i64 piece = v->format == WF_INT4_GROUP  ? 32
                : v->format == WF_FP8_BLOCK ? 16
                : v->format == WF_BF16      ? 8
                                            : 4;
    out->wide = row % 16 == 0 && v->cols % piece == 0;
    return at + gpu_round(data) + gpu_round(scales);
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

static status put_views(const gpu_backend *b, const weight_desc *d, op_weight *w, u8 *at, err *e) {
    gpu_matrix *all = malloc((size_t)d->n_views * sizeof *all);
    if (!all) return err_nomem(e, "a table of weights", (u64)d->n_views * sizeof *all);
    if (d->kind == WK_EXPERTS) {
        w->on_gpu = (gpu_matrix *)at;
        at += gpu_round((u64)d->n_views * sizeof *all);
    }
    for (i64 i = 0; i < d->n_views; i++) at = put_view(b, d, i, at, &all[i]);
    if (w->on_gpu) gpu_device(b->g)->write(gpu_device(b->g), w->on_gpu, all, (u64)d->n_views * sizeof *all);
    w->views[0] = all[0];
    w->down_wide = d->n_views > 2 && all[2].wide;
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
        st =
            d->kind == WK_VECTOR ? put_vector(dev, d->views, w, e) : put_views(gpu_of(o), d, w, w->memory, e);
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
