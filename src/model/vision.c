/* model/vision.c: the tower's memory, and a pass from its patches to the rows of a prompt. */
#include "model/vision.h"
#include "base/buf.h"
#include "model/vision_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIXEL_ALIGN = 8 }; /* rows of pixels are widened to so many values: what the GPU's products take */

struct vision {
    const vision_config *c;
    const checkpoint *ck;
    const ops *o;
    vision_limits lim;
    vision_weights w;
    model_memory memory;
    device_pool mem;
    u64 act_size;
    i64 pixel_stride;    /* values of a row of pixels, widened */
    u8 *pixels;          /* [patches, 3 patch^2] */
    void *x, *h, *delta; /* [patches, hidden]: residual stream, normed, what a sub-layer adds */
    void *qkv;           /* [patches, 3 hidden] */
    void *inter;         /* [patches, wider of inter and pixel_stride] */
    f32 *angles;         /* [VISION_SIDE, head / 4, 2] */
    f32 *time;           /* [frames, hidden] */
    vision_item *items;  /* [items] */
    /* The pass under way. */
    vision_item *items_host;
    i64 n_items, n, tokens, longest;
    i64 layer, attended; /* the next one; rows that have attended in it */
    void *out;
};

const model_memory *vision_memory_plan(const vision *v) { return &v->memory; }

status vision_open(vision **out, const vision_config *c, const checkpoint *ck, const ops *o, device *dev, err *e) {
    *out = NULL;
    vision *v = calloc(1, sizeof *v);
    if (!v) return err_nomem(e, "the vision tower", sizeof *v);
    *v = (vision){.c = c, .ck = ck, .o = o, .mem = {.dev = dev}, .act_size = dtype_size(o->act)};
    v->pixel_stride = ceil_div(3 * c->patch * c->patch, PIXEL_ALIGN) * PIXEL_ALIGN;
    const ops_widths widths = {.vision = c->hidden / c->n_heads};
    status st = o->fits ? o->fits(o, &widths, e) : ST_OK;
    if (st == ST_OK) st = vision_weights_plan(&v->w, &v->memory.weights, c, ck, o, e);
    if (st != ST_OK) return vision_close(v), st;
    *out = v;
    return ST_OK;
}

typedef struct {
    void *slot;
    u64 count, size;
} vision_buffer;
enum { VISION_BUFFERS = 9 };

static void vision_buffers(vision *v, vision_buffer out[VISION_BUFFERS]) {
    const vision_config *c = v->c;
    const u64 rows = (u64)v->lim.patches, hidden = (u64)c->hidden, act = v->act_size;
    const vision_buffer all[] = {{&v->pixels, rows * (u64)(3 * c->patch * c->patch), 1},
                                 {&v->x, rows * hidden, act},
                                 {&v->h, rows * hidden, act},
                                 {&v->delta, rows * hidden, act},
                                 {&v->qkv, rows * 3 * hidden, act},
                                 {&v->inter, rows * (u64)max_i64(c->inter, v->pixel_stride), act},
                                 {&v->angles, (u64)(VISION_SIDE * (c->hidden / c->n_heads / 4) * 2), sizeof(f32)},
                                 {&v->time, (u64)c->frames * hidden, sizeof(f32)},
                                 {&v->items, (u64)v->lim.items, sizeof(vision_item)}};
    _Static_assert(COUNT_OF(all) == VISION_BUFFERS, "every buffer");
    memcpy(out, all, sizeof all);
}

status vision_plan(vision *v, const vision_limits *l, err *e) {
    vision_buffer all[VISION_BUFFERS];
    u64 bytes;
    v->lim = *l;
    v->memory.work = 0;
    vision_buffers(v, all);
    for (size_t i = 0; i < VISION_BUFFERS; i++)
        if (!mul_size(all[i].count, all[i].size, &bytes) ||
            !add_size(v->memory.work, v->mem.dev->takes(bytes), &v->memory.work))
            return err_nomem(e, "the vision tower's activations", UINT64_MAX);
    return ST_OK;
}

/* Angles of places and the sinusoids of frames, in double. */
static status vision_constants(vision *v, err *e) {
    const vision_config *c = v->c;
    const i64 head = c->hidden / c->n_heads, quarter = head / 4, half = c->hidden / 2;
    const u64 angle_bytes = (u64)(VISION_SIDE * quarter * 2) * sizeof(f32),
              time_bytes = (u64)(c->frames * c->hidden) * sizeof(f32);
    f32 *angles = malloc(angle_bytes), *time = calloc(1, time_bytes);
    status st = angles && time ? ST_OK : err_nomem(e, "rotary frequencies", angle_bytes + time_bytes);
    for (i64 p = 0; st == ST_OK && p < VISION_SIDE; p++)
        for (i64 j = 0; j < quarter; j++) {
            const f64 angle = (f64)p * pow(10000.0, -4.0 * (f64)j / (f64)head);
            angles[(p * quarter + j) * 2] = (f32)cos(angle);
            angles[(p * quarter + j) * 2 + 1] = (f32)sin(angle);
        }
    for (i64 f = 0; st == ST_OK && f < c->frames; f++)
        for (i64 j = 0; j < half; j++) {
            const f64 angle = (f64)f * pow(10000.0, -(f64)j / (f64)half);
            time[f * c->hidden + j] = (f32)sin(angle);
            time[f * c->hidden + half + j] = (f32)cos(angle);
        }
    if (st == ST_OK) {
        v->mem.dev->write(v->mem.dev, v->angles, angles, angle_bytes);
        v->mem.dev->write(v->mem.dev, v->time, time, time_bytes);
    }
    free(angles);
    free(time);
    return st;
}

status vision_load(vision *v, err *e) {
    vision_buffer all[VISION_BUFFERS];
    status st = vision_weights_bind(&v->w, v->c, v->ck, v->o, e);
    vision_buffers(v, all);
    for (size_t i = 0; st == ST_OK && i < VISION_BUFFERS; i++) {
        void *p;
        st = device_pool_add(&v->mem, &p, all[i].count, all[i].size, "the vision tower's activations", e);
        if (st == ST_OK) memcpy(all[i].slot, &p, sizeof p);
    }
    v->items_host = calloc((size_t)v->lim.items, sizeof *v->items_host);
    if (st == ST_OK && !v->items_host) st = err_nomem(e, "a pass's items", (u64)v->lim.items * sizeof *v->items_host);
    if (st == ST_OK) st = vision_constants(v, e);
    return st == ST_OK ? v->mem.dev->finish(v->mem.dev, e) : st;
}

void vision_close(vision *v) {
    if (!v) return;
    vision_weights_free(&v->w);
    device_pool_free(&v->mem);
    free(v->items_host);
    free(v);
}

/* ---- A pass ---- */

static status vision_take_item(vision *v, i64 i, const vision_input *in, err *e) {
    const vision_config *c = v->c;
    if (in->t < 1 || in->t > c->frames || in->h < 1 || in->w < 1 || in->h % VISION_MERGE || in->w % VISION_MERGE ||
        in->h > VISION_SIDE || in->w > VISION_SIDE)
        return err_set(e, ST_INPUT, "%d frames of %d x %d patches: at most %lld frames, sides even and at most %d",
                       in->t, in->h, in->w, (long long)c->frames, VISION_SIDE);
    if (v->n + vision_patches(in) > v->lim.patches)
        return err_set(e, ST_LIMIT, "%lld patches in a pass of the vision tower, which takes %lld",
                       (long long)(v->n + vision_patches(in)), (long long)v->lim.patches);
    v->items_host[i] = (vision_item){(i32)v->n, (i32)v->tokens, in->t, in->h, in->w};
    v->n += vision_patches(in);
    v->tokens += vision_tokens(in);
    v->longest = max_i64(v->longest, vision_patches(in));
    return ST_OK;
}

status vision_begin(vision *v, const vision_input *items, i64 n, void *out, err *e) {
    device *dev = v->mem.dev;
    const u64 pixels = (u64)(3 * v->c->patch * v->c->patch);
    v->n = v->tokens = v->longest = v->layer = v->attended = 0;
    v->n_items = n;
    v->out = out;
    if (n < 1 || n > v->lim.items)
        return err_set(e, ST_LIMIT, "%lld items in a pass of the vision tower, which takes %lld", (long long)n,
                       (long long)v->lim.items);
    for (i64 i = 0; i < n; i++) {
        status st = vision_take_item(v, i, &items[i], e);
        if (st != ST_OK) return st;
    }
    for (i64 i = 0; i < n; i++)
        dev->write(dev, v->pixels + (u64)v->items_host[i].first * pixels, items[i].patches,
                   (u64)vision_patches(&items[i]) * pixels);
    dev->write(dev, v->items, v->items_host, (u64)n * sizeof *v->items);
    return ST_OK;
}

/* y [n, rows] = x [n, cols] W^T, rows of x `stride` apart. */
static void product(vision *v, const op_weight *w, const void *x, i64 n, i64 stride, void *y, i64 rows) {
    v->o->linear(v->o, &(linear_args){
                           .w = w, .x = x, .y = y, .n = n, .x_stride = stride, .y_stride = rows, .y_type = v->o->act});
}

/* x += delta + its bias, unless bias is NULL; h = norm of that. */
static void vision_norm(vision *v, const op_weight *bias, const op_weight *weight, const op_weight *shift) {
    v->o->layer_norm(v->o, &(layer_norm_args){.weight = weight,
                                              .bias = shift,
                                              .add_bias = bias,
                                              .x = v->x,
                                              .add = bias ? v->delta : NULL,
                                              .sum = bias ? v->x : NULL,
                                              .out = v->h,
                                              .n = v->n,
                                              .dim = v->c->hidden,
                                              .eps = (f32)v->c->eps});
}

static void embed_patches(vision *v) {
    const vision_config *c = v->c;
    const i64 dim = 3 * c->patch * c->patch;
    v->o->pixel_rows(v->o, &(pixel_rows_args){v->pixels, v->inter, v->n, dim, v->pixel_stride});
    product(v, v->w.patch, v->inter, v->n, v->pixel_stride, v->x, c->hidden);
    v->o->patch_position(v->o, &(patch_position_args){.table = v->w.position,
                                                      .bias = v->w.patch_bias,
                                                      .time = v->time,
                                                      .items = v->items,
                                                      .x = v->x,
                                                      .n = v->n,
                                                      .n_items = v->n_items,
                                                      .dim = c->hidden,
                                                      .table_h = c->pos_h,
                                                      .table_w = c->pos_w});
}

/* A layer up to queries, keys and values. */
static void layer_before(vision *v, i64 l) {
    const vision_config *c = v->c;
    const vision_layer *w = &v->w.layers[l];
    vision_norm(v, l ? v->w.layers[l - 1].fc1_bias : NULL, w->norm0, w->norm0_bias);
    product(v, w->qkv, v->h, v->n, c->hidden, v->qkv, 3 * c->hidden);
    v->o->vision_rope(v->o, &(vision_rope_args){w->qkv_bias, v->angles, v->items, v->qkv, v->n, v->n_items, c->n_heads,
                                                c->hidden / c->n_heads});
}

static void attend(vision *v, i64 first, i64 count) {
    const i64 head = v->c->hidden / v->c->n_heads;
    v->o->vision_attention(v->o, &(vision_attention_args){.qkv = v->qkv,
                                                          .items = v->items,
                                                          .out = v->h,
                                                          .n = v->n,
                                                          .n_items = v->n_items,
                                                          .n_heads = v->c->n_heads,
                                                          .dim = head,
                                                          .longest = v->longest,
                                                          .first = first,
                                                          .count = count,
                                                          .scale = (f32)(1.0 / sqrt((f64)head))});
}

static void layer_behind(vision *v, i64 l) {
    const vision_config *c = v->c;
    const vision_layer *w = &v->w.layers[l];
    product(v, w->o, v->h, v->n, c->hidden, v->delta, c->hidden);
    vision_norm(v, w->o_bias, w->norm1, w->norm1_bias);
    product(v, w->fc0, v->h, v->n, c->hidden, v->inter, c->inter);
    v->o->bias_act(v->o, &(bias_act_args){w->fc0_bias, v->inter, v->n, c->inter, BIAS_GELU_TANH});
    product(v, w->fc1, v->inter, v->n, c->inter, v->delta, c->hidden);
}

/* The last norm, four patches to a token, the projector. The buffers of the blocks are free again: a token of four
 * patches is as wide as they. */
static void vision_project(vision *v) {
    const vision_config *c = v->c;
    const i64 wide = VISION_MERGE * VISION_MERGE * c->hidden;
    vision_norm(v, v->w.layers[c->n_layers - 1].fc1_bias, v->w.norm, v->w.norm_bias);
    v->o->patch_merge(v->o, &(patch_merge_args){v->w.pre_norm, v->w.pre_norm_bias, v->items, v->h, v->delta, v->tokens,
                                                v->n_items, c->hidden, (f32)c->projector_eps});
    product(v, v->w.proj0, v->delta, v->tokens, wide, v->h, wide);
    v->o->bias_act(v->o, &(bias_act_args){v->w.proj0_bias, v->h, v->tokens, wide, BIAS_GELU});
    product(v, v->w.proj2, v->h, v->tokens, wide, v->out, c->text_hidden);
    v->o->bias_act(v->o, &(bias_act_args){v->w.proj2_bias, v->out, v->tokens, c->text_hidden, BIAS_ONLY});
}

/* Pieces of attention are so many rows, or a multiple: what kernels take at a time. */
enum { ATTEND_ROWS = 128 };

bool vision_advance(vision *v, i64 work) {
    const vision_config *c = v->c;
    const i64 a_row = 2 * v->longest * c->hidden, products = v->n * 2 * c->hidden * (2 * c->hidden + c->inter);
    if (v->o->set_row_mode) v->o->set_row_mode(v->o, v->lim.fastest ? ROWS_ANY : ROWS_PROMPT);
    if (!v->layer && !v->attended) embed_patches(v);
    while (v->layer < c->n_layers) {
        if (!v->attended) layer_before(v, v->layer);
        const i64 rows = max_i64(work / a_row / ATTEND_ROWS, 1) * ATTEND_ROWS, n = min_i64(rows, v->n - v->attended);
        attend(v, v->attended, n);
        v->attended += n;
        work -= n * a_row;
        if (v->attended < v->n) return false;
        layer_behind(v, v->layer++);
        v->attended = 0;
        work -= products;
        if (work <= 0 && v->layer < c->n_layers) return false;
    }
    vision_project(v);
    return true;
}
