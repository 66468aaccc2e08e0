/* kernels/gpu/vision/vision.c: the vision tower's operations: which kernel takes a call, and its launch. */
#include "kernels/gpu/backend.h"

enum { EACH = VISION_MERGE * VISION_MERGE /* patches of a token */ };
_Static_assert(sizeof(gpu_vision_item) == sizeof(vision_item), "params.h");
_Static_assert((int)GPU_VISION_HEAD == (int)VISION_HEAD && EACH == 4, "params.h");
_Static_assert((int)GPU_BIAS_ONLY == (int)BIAS_ONLY && (int)GPU_BIAS_GELU == (int)BIAS_GELU &&
                   (int)GPU_BIAS_GELU_TANH == (int)BIAS_GELU_TANH,
               "params.h");

status gpu_vision_fits(const ops_widths *w, err *e) {
    if (w->vision > VISION_HEAD || w->vision % 4)
        return err_set(e, ST_UNSUPPORTED,
                       "heads of %lld columns in the vision tower: attention on a GPU takes multiples of 4, at most %d",
                       (long long)w->vision, VISION_HEAD);
    return ST_OK;
}

status gpu_vision_open(gpu_backend *b, err *e) {
    status st = gpu_shared(b->g, b->vision_attention_wgmma, GPU_VISION_SHARED_WGMMA, e);
    if (st == ST_OK) st = gpu_shared(b->g, b->vision_attention_72, GPU_VISION_SHARED_72, e);
    return st == ST_OK ? gpu_shared(b->g, b->vision_attention_128, GPU_VISION_SHARED_128, e) : st;
}

/* Are all addresses multiples of 16 bytes, and so are rows of dim values of 2? */
static bool in_pieces(i64 dim, const void *a, const void *b, const void *c, const void *d) {
    const u64 all = (u64)(uintptr_t)a | (u64)(uintptr_t)b | (u64)(uintptr_t)c | (u64)(uintptr_t)d | (u64)dim * 2;
    return all % 16 == 0;
}

static const gpu_vision_item *items_of(const vision_item *items) { return (const gpu_vision_item *)items; }

static void launch_rows(const gpu_backend *b, const gpu_kernel *k, i64 blocks, const void *args) {
    if (blocks) gpu_launch(b->g, k, (u32)blocks, 1, 1, GPU_THREADS, 0, args);
}

void gpu_op_pixel_rows(const ops *o, const pixel_rows_args *a) {
    const gpu_pixel_rows_args k = {.pixels = a->pixels,
                                   .out = a->out,
                                   .n = a->n,
                                   .dim = a->dim,
                                   .out_stride = a->out_stride,
                                   .wide = in_pieces(a->out_stride, a->out, NULL, NULL, NULL) &&
                                           ((u64)(uintptr_t)a->pixels | (u64)a->dim) % 4 == 0};
    launch_rows(gpu_of(o), gpu_of(o)->pixel_rows, a->n, &k);
}

void gpu_op_patch_position(const ops *o, const patch_position_args *a) {
    const gpu_backend *b = gpu_of(o);
    const gpu_matrix *table = &a->table->views[0];
    const gpu_patch_position_args k = {.table = *table,
                                       .bias = a->bias->vector,
                                       .time = a->time,
                                       .items = items_of(a->items),
                                       .x = a->x,
                                       .n_items = a->n_items,
                                       .dim = a->dim,
                                       .table_h = (int)a->table_h,
                                       .table_w = (int)a->table_w};
    const bool wide = (table->format == GPU_W_BF16 || table->format == GPU_W_F32) &&
                      in_pieces(a->dim, a->x, table->data, k.bias, a->time);
    launch_rows(b, wide ? b->patch_position : b->patch_position_any, a->n, &k);
}

void gpu_op_layer_norm(const ops *o, const layer_norm_args *a) {
    const gpu_backend *b = gpu_of(o);
    const gpu_layer_norm_args k = {.weight = a->weight->vector,
                                   .bias = a->bias->vector,
                                   .add_bias = a->add ? a->add_bias->vector : NULL,
                                   .x = a->x,
                                   .add = a->add,
                                   .sum = a->sum,
                                   .out = a->out,
                                   .n = a->n,
                                   .dim = a->dim,
                                   .eps = a->eps};
    if (a->dim <= GPU_LAYER_NORM_WARP && in_pieces(a->dim, a->x, a->add, a->sum, a->out) &&
        in_pieces(a->dim, k.weight, k.bias, k.add_bias, NULL))
        launch_rows(b, b->layer_norm, ceil_div(a->n, GPU_WARPS), &k);
    else
        launch_rows(b, b->layer_norm_any, a->n, &k);
}

void gpu_op_bias_act(const ops *o, const bias_act_args *a) {
    const gpu_bias_act_args k = {.bias = a->bias->vector,
                                 .x = a->x,
                                 .dim = a->dim,
                                 .activation = (int)a->activation,
                                 .wide = in_pieces(a->dim, a->x, a->bias->vector, NULL, NULL)};
    launch_rows(gpu_of(o), gpu_of(o)->bias_act, a->n, &k);
}

void gpu_op_vision_rope(const ops *o, const vision_rope_args *a) {
    const gpu_vision_rope_args k = {.bias = a->bias->vector,
                                    .table = a->table,
                                    .items = items_of(a->items),
                                    .qkv = a->qkv,
                                    .n_items = a->n_items,
                                    .heads = a->n_heads,
                                    .dim = a->dim,
                                    .wide = in_pieces(a->dim, a->qkv, a->table, a->bias->vector, NULL)};
    launch_rows(gpu_of(o), gpu_of(o)->vision_rope, a->n, &k);
}

/* A kernel of the tensor cores: by the width of a head alone, so that a row's bits do not depend on the call. */
typedef struct {
    const gpu_kernel *kernel;
    i64 rows; /* of a block */
    u32 threads, shared;
} attention_kernel;
static attention_kernel attention_for(const gpu_backend *b, i64 dim) {
    if (dim > 72)
        return (attention_kernel){b->vision_attention_128, GPU_VISION_QUERIES_128, GPU_VISION_THREADS,
                                  GPU_VISION_SHARED_128};
    if (dim > 56) /* fewer would be padded to 72 in vain */
        return (attention_kernel){b->vision_attention_wgmma, GPU_VISION_QUERIES_WGMMA, GPU_VISION_THREADS_WGMMA,
                                  GPU_VISION_SHARED_WGMMA};
    return (attention_kernel){b->vision_attention_72, GPU_VISION_QUERIES_72, GPU_VISION_THREADS, GPU_VISION_SHARED_72};
}

/* How many tiles the items have is known on the GPU alone: each has at most one that is not full. Blocks without a tile
 * end at once. */
void gpu_op_vision_attention(const ops *o, const vision_attention_args *a) {
    const gpu_backend *b = gpu_of(o);
    const gpu_vision_attention_args k = {.qkv = a->qkv,
                                         .items = items_of(a->items),
                                         .out = a->out,
                                         .n_items = a->n_items,
                                         .heads = a->n_heads,
                                         .dim = a->dim,
                                         .begin = a->first,
                                         .end = a->first + a->count,
                                         .scale2 = a->scale * LOG2_E};
    const u32 heads = (u32)a->n_heads;
    if (!a->count || !heads) return;
    if (a->dim <= 128 && in_pieces(a->dim, a->qkv, a->out, NULL, NULL)) {
        const attention_kernel use = attention_for(b, a->dim);
        const i64 most = min_i64(a->n / use.rows + a->n_items, a->n_items * ceil_div(a->longest, use.rows));
        gpu_launch(b->g, use.kernel, (u32)most, heads, 1, use.threads, use.shared, &k);
        return;
    }
    gpu_launch(b->g, b->vision_attention_any, gpu_blocks(a->count, GPU_WARPS), heads, 1, GPU_THREADS, 0, &k);
}

void gpu_op_patch_merge(const ops *o, const patch_merge_args *a) {
    const gpu_backend *b = gpu_of(o);
    const gpu_patch_merge_args k = {.weight = a->weight->vector,
                                    .bias = a->bias->vector,
                                    .items = items_of(a->items),
                                    .x = a->x,
                                    .out = a->out,
                                    .n = a->n,
                                    .n_items = a->n_items,
                                    .dim = a->dim,
                                    .eps = a->eps};
    if (a->dim <= GPU_LAYER_NORM_WARP && in_pieces(a->dim, a->x, a->out, k.weight, k.bias))
        launch_rows(b, b->patch_merge, ceil_div(EACH * a->n, GPU_WARPS), &k);
    else
        launch_rows(b, b->patch_merge_any, EACH * a->n, &k);
}
