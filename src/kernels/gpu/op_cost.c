#include "kernels/gpu/op_cost.h"
#include "kernels/gpu/backend.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 256, NAME = 48 };

struct op_costs {
    ops real;
    i64 kv_rows;
    char names[NAMES][NAME]; /* every text once, for as long as the backend lives */
    int n;
};
static struct op_costs *costs_of(const ops *o) { return gpu_of(o)->costs; }

void ops_cost_context(ops *o, i64 kv_rows) { costs_of(o)->kv_rows = kv_rows; }

__attribute__((format(printf, 4, 5))) static void note(const ops *o, f64 bytes, f64 flops, const char *format, ...) {
    struct op_costs *c = costs_of(o);
    char text[NAME];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    int i = 0;
    while (i < c->n && strcmp(c->names[i], text)) i++;
    if (i == NAMES) i = NAMES - 1; /* more shapes than any model has: the last name stands for the rest */
    if (i == c->n) strcpy(c->names[c->n++], text);
    gpu_trace_note(gpu_of(o)->g, c->names[i], bytes, flops);
}

static f64 matrix_bytes(const gpu_matrix *m) {
    static const f64 bits[] = {[GPU_W_F32] = 32,       [GPU_W_BF16] = 16,
                               [GPU_W_FP8] = 8,        [GPU_W_INT4] = 4.5 /* with its scales */,
                               [GPU_W_INT4_ROW] = 4.5, [GPU_W_PACKED] = 4.5,
                               [GPU_W_FP8_PAIRS] = 8,  [GPU_W_FP8_ROW] = 8,
                               [GPU_W_MXFP4] = 4.25,   [GPU_W_PACKED_MXFP4] = 4.5,
                               [GPU_W_NVFP4] = 4.5,    [GPU_W_PACKED_NVFP4] = 4.5,
                               [GPU_W_INT8_ROW] = 8,   [GPU_W_INT4_WIDE] = 4.25};
    return (f64)m->rows * (f64)m->cols * bits[m->format] / 8;
}

static void cost_embed(const ops *o, const embed_args *a) {
    note(o, 4.0 * (f64)(a->n * a->table->views[0].cols), 0, "embed");
    costs_of(o)->real.embed(o, a);
}
static void cost_norm(const ops *o, const norm_args *a) {
    note(o, (a->add ? 8.0 : 4.0) * (f64)(a->n * a->dim), 0, "norm %lld", (long long)a->dim);
    costs_of(o)->real.norm(o, a);
}
static void cost_linear(const ops *o, const linear_args *a) {
    const gpu_matrix *w = &a->w->views[0];
    f64 n = (f64)a->n, out = a->y_type == DT_F32 ? 4 : 2;
    note(o, matrix_bytes(w) + n * ((f64)w->cols * 2 + (f64)w->rows * out), 2 * n * (f64)w->rows * (f64)w->cols,
         "linear %lld x %lld", (long long)w->rows, (long long)w->cols);
    costs_of(o)->real.linear(o, a);
}
static void cost_linear_norm(const ops *o, const linear_norm_args *a) {
    const gpu_matrix *w = &a->linear.w->views[0];
    f64 n = (f64)a->linear.n;
    note(o, matrix_bytes(w) + n * ((f64)w->cols * 2 + (f64)w->rows * 6), 2 * n * (f64)w->rows * (f64)w->cols,
         "linear %lld x %lld, norm", (long long)w->rows, (long long)w->cols);
    costs_of(o)->real.fused->linear_norm(o, a);
}
static void cost_swiglu(const ops *o, const swiglu_args *a) {
    const gpu_matrix *w = &a->gate->views[0];
    f64 n = (f64)a->n;
    note(o, 2 * matrix_bytes(w) + n * 2 * (f64)(w->cols + w->rows), 4 * n * (f64)w->rows * (f64)w->cols,
         "gate and up %lld x %lld", (long long)w->rows, (long long)w->cols);
    costs_of(o)->real.swiglu(o, a);
}
/* Of all of them, with x. */
static void count_products(const linear_group_args *a, f64 *all_bytes, f64 *all_flops, f64 *all_rows) {
    f64 n = (f64)a->n, bytes = 0, flops = 0, cols = 0, rows = 0;
    for (i64 i = 0; i < a->count; i++) {
        const gpu_matrix *w = &a->of[i].w->views[0];
        f64 times = a->of[i].up ? 2 : 1;
        cols = (f64)w->cols;
        rows += times * (f64)w->rows;
        bytes += times * matrix_bytes(w) + n * (f64)w->rows * (a->of[i].y_type == DT_F32 ? 4 : 2);
        flops += times * 2 * n * (f64)w->rows * cols;
    }
    *all_bytes = bytes + 2 * n * cols, *all_flops = flops, *all_rows = rows;
}
static void cost_linear_group(const ops *o, const linear_group_args *a) {
    f64 bytes, flops, rows;
    count_products(a, &bytes, &flops, &rows);
    note(o, bytes, flops, "%lld products %.0f x %lld", (long long)a->count, rows, (long long)a->of[0].w->views[0].cols);
    costs_of(o)->real.fused->linear_group(o, a);
}
static void cost_rope_table(const ops *o, const rope_table_args *a) {
    note(o, 4.0 * (f64)(a->n * a->rope), 0, "rotary table");
    costs_of(o)->real.rope_table(o, a);
}
static void cost_rope_q(const ops *o, const rope_q_args *a) {
    note(o, 4.0 * (f64)(a->n * a->n_heads * a->rope), 0, "rotary queries");
    costs_of(o)->real.rope_q(o, a);
}
static void cost_kv_write(const ops *o, const kv_write_args *a) {
    note(o, 4.0 * (f64)(a->n * (a->latent + a->rope)), 0, "KV write");
    costs_of(o)->real.kv_write(o, a);
}
static void cost_latent_norm_kv_write(const ops *o, const latent_norm_kv_write_args *a) {
    note(o, 4.0 * (f64)(a->q.n * a->q.dim + a->kv.n * (a->kv.latent + a->kv.rope)), 0, "latent rows");
    costs_of(o)->real.fused->latent_norm_kv_write(o, a);
}
static void cost_absorb_q(const ops *o, const absorb_q_args *a) {
    f64 w = (f64)(a->n_heads * a->nope * a->latent), n = (f64)a->n;
    note(o, 2 * w + 2 * n * (f64)(a->n_heads * (a->nope + a->latent + 2 * a->rope)), 2 * n * w, "absorb queries");
    costs_of(o)->real.absorb_q(o, a);
}
static void cost_mla_queries(const ops *o, const mla_queries_args *a) {
    const absorb_q_args *k = &a->absorb;
    const gpu_matrix *b = &a->q_b->views[0];
    f64 w = (f64)(k->n_heads * k->nope * k->latent), n = (f64)k->n;
    note(o,
         matrix_bytes(b) + 2 * w +
             2 * n * ((f64)b->cols + (f64)(k->n_heads * (k->latent + k->rope) + 2 * (k->latent + k->rope))),
         2 * n * (w + (f64)b->rows * (f64)b->cols), "latent rows, queries");
    costs_of(o)->real.fused->mla_queries(o, a);
}
static void cost_mla_decode(const ops *o, const mla_decode_args *a) {
    f64 rows = (f64)costs_of(o)->kv_rows, width = (f64)(a->latent + a->rope);
    note(o, rows * width * (f64)dtype_size(a->kv_type), 2 * rows * (f64)a->n_heads * (width + (f64)a->latent),
         "attention, decode, %lld heads", (long long)a->n_heads);
    costs_of(o)->real.mla_decode(o, a);
}
static void cost_unabsorb_v(const ops *o, const unabsorb_v_args *a) {
    f64 w = (f64)(a->n_heads * a->v_dim * a->latent), n = (f64)a->n;
    note(o, 2 * w + 2 * n * (f64)(a->n_heads * (a->v_dim + a->latent)), 2 * n * w, "values from latent");
    costs_of(o)->real.unabsorb_v(o, a);
}
static void cost_mla_decode_plan(const ops *o, const mla_decode_plan_args *a) {
    note(o, 4.0 * (f64)a->decode.n, 0, "plan of attention, %lld rows", (long long)a->decode.n);
    costs_of(o)->real.fused->mla_decode_plan(o, a);
}
static void cost_mla_decode_values(const ops *o, const mla_decode_values_args *all) {
    const mla_decode_args *a = &all->decode;
    const unabsorb_v_args *v = &all->values;
    f64 rows = (f64)costs_of(o)->kv_rows, width = (f64)(a->latent + a->rope), n = (f64)a->n;
    f64 w = (f64)(v->n_heads * v->v_dim * v->latent);
    note(o, rows * width * (f64)dtype_size(a->kv_type) + 2 * w + 2 * n * (f64)(v->n_heads * v->v_dim),
         2 * rows * (f64)a->n_heads * (width + (f64)a->latent) + 2 * n * w, "attention, values, %lld heads",
         (long long)a->n_heads);
    costs_of(o)->real.fused->mla_decode_values(o, all);
}
static void cost_mla_prefill(const ops *o, const mla_prefill_args *a) {
    f64 n = (f64)a->n, all = n + (f64)a->pos0, pairs = n * (f64)a->pos0 + n * (n + 1) / 2, h = (f64)a->n_heads;
    f64 expand = 2 * all * h * (f64)((a->nope + a->v_dim) * a->latent);
    note(o,
         2 * n * h * (f64)(a->nope + a->rope + a->v_dim) +
             all * (f64)(a->latent + a->rope) * (f64)dtype_size(a->kv_type),
         2 * pairs * h * (f64)(a->nope + a->rope + a->v_dim) + expand, "attention, prefill, %lld heads",
         (long long)a->n_heads);
    costs_of(o)->real.mla_prefill(o, a);
}
static void cost_heads_write(const ops *o, const heads_write_args *a) {
    note(o, 2 * (f64)(a->n * a->kv_heads * a->dim) * (2 + (f64)dtype_size(a->kv_type)), 0, "KV write, %lld heads",
         (long long)a->kv_heads);
    costs_of(o)->real.heads_write(o, a);
}
static void cost_heads_decode(const ops *o, const heads_decode_args *a) {
    f64 rows = (f64)costs_of(o)->kv_rows;
    note(o, 2 * rows * (f64)(a->kv_heads * a->dim) * (f64)dtype_size(a->kv_type), 4 * rows * (f64)(a->n_heads * a->dim),
         "attention of a draft, %lld of %lld heads", (long long)a->n_heads, (long long)a->kv_heads);
    costs_of(o)->real.heads_decode(o, a);
}
static void cost_gate(const ops *o, const gate_args *a) {
    note(o, (f64)(a->n * (4 * a->n_experts + 8 * a->k)), 0, "gate");
    costs_of(o)->real.gate(o, a);
}
static void cost_gate_linear(const ops *o, const gate_linear_args *all) {
    const gate_args *a = &all->gate;
    const linear_args *l = &all->linear;
    const gpu_matrix *w = &l->w->views[0];
    note(o, (f64)(a->n * (4 * a->n_experts + 8 * a->k)) + matrix_bytes(w) + 2.0 * (f64)(l->n * (w->rows + w->cols)),
         2.0 * (f64)l->n * (f64)w->rows * (f64)w->cols, "gate, linear %lld x %lld", (long long)w->rows,
         (long long)w->cols);
    costs_of(o)->real.fused->gate_linear(o, all);
}
/* more_*: of what the same launch does beside the experts. */
static void note_moe(const ops *o, const moe_args *a, f64 more_bytes, f64 more_flops, const char *front) {
    const gpu_matrix *w = &a->experts->views[0];
    f64 all = (f64)a->experts->n_views / 3, n = (f64)a->n, among = fmax(all, (f64)a->among);
    f64 touched = all * (1 - pow(1 - (f64)a->k / among, n));
    bool int8 = a->experts->int8 && moe_is_int8(INT8_MEAN, a->n * a->k, a->experts->n_views / 3, w->cols, w->rows);
    note(o, (2 * matrix_bytes(w) + matrix_bytes(w + 2)) * touched + 4 * n * (f64)w->cols + more_bytes,
         6 * n * (f64)a->k * all / among * (f64)w->rows * (f64)w->cols + more_flops, "%s%sexperts %.0f x %lld x %lld",
         front,
         int8                         ? "W4A8 "
         : a->experts->int8           ? "W4A8 (bf16) "
         : w[2].format != w[0].format ? "w2_bf16 "
                                      : "",
         all, (long long)w->rows, (long long)w->cols);
}
static void cost_moe(const ops *o, const moe_args *a) {
    note_moe(o, a, 0, 0, "");
    costs_of(o)->real.moe(o, a);
}
static void cost_moe_norm(const ops *o, const moe_norm_args *a) {
    note_moe(o, &a->moe, 0, 0, "");
    costs_of(o)->real.fused->moe_norm(o, a);
}
/* In one launch; where it takes several each op says so itself. */
static void cost_moe_ffn(const ops *o, const moe_ffn_args *a) {
    f64 bytes, flops, rows;
    count_products(&a->linear_group, &bytes, &flops, &rows);
    if (a->linear_group.count > 1) {
        const gpu_matrix *down = &a->down.w->views[0];
        bytes += matrix_bytes(down), flops += 2 * (f64)a->down.n * (f64)down->rows * (f64)down->cols;
    }
    note_moe(o, &a->moe.moe, bytes, flops, "feed-forward, ");
    costs_of(o)->real.fused->moe_ffn(o, a);
}
static void cost_sum_pairs(const ops *o, const sum_pairs_args *a) {
    note(o, 2.0 * (f64)(a->n * (a->k + 2) * a->dim), 0, "sum of experts");
    costs_of(o)->real.sum_pairs(o, a);
}
static void cost_gather(const ops *o, const gather_args *a) {
    note(o, 4.0 * (f64)(a->n * a->dim), 0, "gather");
    costs_of(o)->real.gather(o, a);
}
static void cost_mark_nonfinite(const ops *o, const mark_nonfinite_args *a) {
    note(o, (f64)dtype_size(a->x_type) * (f64)(a->n * a->dim), 0, "finite check");
    costs_of(o)->real.mark_nonfinite(o, a);
}

static void cost_sample(const ops *o, const sample_args *a) {
    f64 passes = a->cuts ? 5 : a->draws ? 2 : 1; /* over the logits */
    note(o, 4.0 * passes * (f64)(a->n * a->vocab), 0, "draw");
    costs_of(o)->real.sample(o, a);
}

static void cost_logprobs(const ops *o, const logprobs_args *a) {
    note(o, 4.0 * (f64)(a->n * a->vocab), 40.0 * (f64)(a->n * a->vocab), "log-probabilities");
    costs_of(o)->real.logprobs(o, a);
}

/* How many rows there are is known on the GPU alone. */
static void cost_kv_copy(const ops *o, const kv_copy_args *a) {
    note(o, 0, 0, "KV rows copied");
    costs_of(o)->real.kv_copy(o, a);
}

static void cost_draft_beams(const ops *o, const draft_beams_args *a) {
    note(o, 0, 0, "beams");
    costs_of(o)->real.draft_beams(o, a);
}

static void cost_pixel_rows(const ops *o, const pixel_rows_args *a) {
    note(o, (f64)(a->n * (a->dim + 2 * a->out_stride)), 0, "pixels");
    costs_of(o)->real.pixel_rows(o, a);
}
static void cost_patch_position(const ops *o, const patch_position_args *a) {
    note(o, 4.0 * (f64)(a->n * a->dim), 0, "positions of patches");
    costs_of(o)->real.patch_position(o, a);
}
static void cost_layer_norm(const ops *o, const layer_norm_args *a) {
    note(o, (a->add ? 8.0 : 4.0) * (f64)(a->n * a->dim), 0, "layer norm %lld", (long long)a->dim);
    costs_of(o)->real.layer_norm(o, a);
}
static void cost_bias_act(const ops *o, const bias_act_args *a) {
    note(o, 4.0 * (f64)(a->n * a->dim), 0, "bias and activation %lld", (long long)a->dim);
    costs_of(o)->real.bias_act(o, a);
}
static void cost_vision_rope(const ops *o, const vision_rope_args *a) {
    note(o, 12.0 * (f64)(a->n * a->n_heads * a->dim), 0, "rotary embedding of patches");
    costs_of(o)->real.vision_rope(o, a);
}
/* Counted as one item: how many rows each has is known on the GPU alone. */
static void cost_vision_attention(const ops *o, const vision_attention_args *a) {
    const f64 rows = (f64)(a->count * a->n_heads * a->dim);
    note(o, 8 * rows, 4 * rows * (f64)a->longest, "attention of patches, %lld heads", (long long)a->n_heads);
    costs_of(o)->real.vision_attention(o, a);
}
static void cost_patch_merge(const ops *o, const patch_merge_args *a) {
    note(o, 16.0 * (f64)(a->n * a->dim), 0, "patches to tokens");
    costs_of(o)->real.patch_merge(o, a);
}

status ops_cost(ops *o, err *e) {
#define COST_SLOT(op) .op = cost_##op,
    static const fused_ops fused = {FUSED_OPS(COST_SLOT).mla_decode_plan_bytes = sizeof(gpu_decode_plan),
                                    .mla_groups_pay = gpu_decode_groups_pay};
#undef COST_SLOT
    struct op_costs *c = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "the profile", sizeof *c);
    c->real = *o;
    gpu_of(o)->costs = c;
#define COST_SLOT(op) o->op = cost_##op;
    OPS(COST_SLOT)
#undef COST_SLOT
    if (o->fused) o->fused = &fused;
    return ST_OK;
}
