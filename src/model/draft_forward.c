/* model/draft_forward.c: the ops of a draft's pass, once for all backends. */
#include "model/draft_internal.h"

static void draft_linear(draft *t, const op_weight *w, const void *x, i64 x_stride, void *y, i64 y_stride, i64 n) {
    t->o->linear(t->o,
                 &(linear_args){
                     .w = w, .x = x, .y = y, .n = n, .x_stride = x_stride, .y_stride = y_stride, .y_type = t->o->act});
}

static void *act_at(const draft *t, void *x, i64 at) { return (u8 *)x + (u64)at * t->act_size; }

static norm_args draft_norm_of(const draft *t, const op_weight *weight, void *x, void *out, i64 n, i64 out_stride) {
    const i64 hidden = t->c->hidden;
    return (norm_args){.weight = weight,
                       .x = x,
                       .out = out,
                       .n = n,
                       .dim = hidden,
                       .x_stride = hidden,
                       .out_stride = out_stride,
                       .eps = (f32)t->c->norm_eps};
}

static void draft_norm(draft *t, const op_weight *weight, void *x, void *out, i64 n, i64 out_stride) {
    const norm_args a = draft_norm_of(t, weight, x, out, n, out_stride);
    t->o->norm(t->o, &a);
}

/* The layer's input [n, 2 hidden]: the norm of the embedding of `ids`, and of x. */
static void layer_input(draft *t, const i32 *ids, const i32 *drawn, const i32 *map, void *x, void *in, i64 n) {
    const rank_seams *r = t->o->ranks;
    const i64 hidden = t->c->hidden;
    const op_weight *own = t->w.of.embed;
    t->o->embed(t->o, &(embed_args){.table = own ? own : t->target->w.embed,
                                    .ids = ids,
                                    .drawn = drawn,
                                    .map = map,
                                    .out = t->embedded,
                                    .n = n,
                                    .first = own ? 0 : t->target->c->vocab_first});
    if (!own && r && r->embed) r->embed(t->o, t->embedded, n, hidden);
    draft_norm(t, t->w.of.layers->attn_norm, t->embedded, in, n, 2 * hidden);
    draft_norm(t, t->w.hidden_norm, x, act_at(t, in, hidden), n, 2 * hidden);
}

static void rope_of(draft *t, const i32 *positions, f32 *table, i64 n) {
    t->o->rope_table(t->o, &(rope_table_args){.positions = positions,
                                              .inv_freq = t->inv_freq,
                                              .table = table,
                                              .n = n,
                                              .rope = t->c->rope,
                                              .mscale = t->rope_mscale});
}

static void draft_gather(draft *t, const void *x, i64 x_stride, const i32 *rows, void *out, i64 n, i64 dim) {
    t->o->gather(
        t->o,
        &(gather_args){.x = x, .rows = rows, .out = out, .n = n, .dim = dim, .x_stride = x_stride, .out_stride = dim});
}

/* x [n, hidden] of the model's features. */
static void narrow_features(draft *t, const i32 *rows, i64 n) {
    const i64 hidden = t->c->hidden, wide = draft_features(t->d), held = draft_features_held(t->d);
    const rank_seams *r = t->o->ranks;
    draft_gather(t, t->target->features, wide, rows, t->features, n, wide);
    norm_args a = draft_norm_of(t, NULL, NULL, NULL, n, wide);
    a.x_stride = wide;
    for (i64 i = 0; t->d->norm_features && i < t->d->n_taps; i++) {
        a.weight = t->w.tap_norm[i];
        a.x = a.out = act_at(t, t->features, i * hidden);
        t->o->norm(t->o, &a);
    }
    if (t->d->norm_all_features) {
        a.weight = t->w.taps_norm, a.x = a.out = t->features, a.dim = wide;
        t->o->norm(t->o, &a);
    }
    draft_linear(t, t->w.fc, act_at(t, t->features, held < wide ? t->c->rank * held : 0), wide, t->x, hidden, n);
    if (held < wide && r && r->reduce) r->reduce(t->o, t->x, n, hidden, hidden);
}

static kv_write_args latent_row(const draft *t, const void *kv_a, const f32 *rope, const i64 *slots, i64 n) {
    const model_config *c = t->c;
    return (kv_write_args){.kv_a = kv_a,
                           .norm = t->w.of.layers->kv_a_norm,
                           .table = rope,
                           .slots = slots,
                           .kv = t->kv,
                           .kv_type = t->lim.kv_type,
                           .n = n,
                           .latent = c->kv_lora,
                           .rope = c->rope,
                           .eps = (f32)c->lora_norm_eps};
}

/* Their keys and values: from the layer's input of n rows to kv_a, keys before values, and to the cache. */
static void write_latent(draft *t, const void *in, const f32 *rope, const i64 *slots, i64 n) {
    draft_linear(t, t->w.of.layers->kv_a, in, 2 * t->c->hidden, t->kv_a, draft_kv_width(t->d), n);
    const kv_write_args a = latent_row(t, t->kv_a, rope, slots, n);
    t->o->kv_write(t->o, &a);
}
static void write_heads(draft *t, const void *in, const f32 *rope, const i64 *slots, i64 n) {
    const i64 width = t->d->kv_heads * t->c->rope;
    void *const v = act_at(t, t->kv_a, n * width);
    draft_linear(t, t->w.k, in, 2 * t->c->hidden, t->kv_a, width, n);
    draft_linear(t, t->w.v, in, 2 * t->c->hidden, v, width, n);
    t->o->heads_write(t->o, &(heads_write_args){.k = t->kv_a,
                                                .v = v,
                                                .table = rope,
                                                .slots = slots,
                                                .kv = t->kv,
                                                .kv_type = t->lim.kv_type,
                                                .n = n,
                                                .kv_heads = t->d->kv_heads,
                                                .dim = t->c->rope});
}

void draft_forward_rows(draft *t, const draft_row_tables *rows, i64 n, i64 first, i64 guessing) {
    const i64 hidden = t->c->hidden;
    narrow_features(t, rows->features, n);
    layer_input(t, rows->ids, t->target->tables_dev.drawn, NULL, t->x, t->in, n);
    rope_of(t, rows->pos, t->rope, n);
    (t->d->layout == DRAFT_MLA ? write_latent : write_heads)(t, t->in, t->rope, rows->slots, n);
    if (!guessing) return;
    const i32 *live = t->step_dev.live + first;
    draft_gather(t, t->in, 2 * hidden, live, act_at(t, t->seq_in, first * 2 * hidden), guessing, 2 * hidden);
    draft_gather(t, t->x, hidden, live, act_at(t, t->seq_x, first * hidden), guessing, hidden);
}

/* ---- Guesses ---- */

/* The page tables of the step's guess rows, of n. */
static const i32 *guess_pages(const draft *t, i64 n, i64 step) {
    return t->step_dev.pages + (step && draft_is_tree(t) ? n / t->lim.topk * t->lim.seq_pages : 0);
}

/* attn of n guess rows from the layer's input; their own KV rows are written with it. */
static void attend_latent(draft *t, i64 n, i64 step) {
    const model_config *c = t->c;
    const layer_weights *w = t->w.of.layers;
    const i64 at = step * t->guess_rows, width = c->kv_lora + c->rope;
    fused_linear_group(
        t->o, &(linear_group_args){.of = {{.w = w->q_a, .y = t->q_a, .y_stride = c->q_lora, .y_type = t->o->act},
                                          {.w = w->kv_a, .y = t->kv_a, .y_stride = width, .y_type = t->o->act}},
                                   .count = 2,
                                   .x = t->seq_in,
                                   .n = n,
                                   .x_stride = 2 * c->hidden});
    const norm_args q_norm = {.weight = w->q_a_norm,
                              .x = t->q_a,
                              .out = t->q_a,
                              .n = n,
                              .dim = c->q_lora,
                              .x_stride = c->q_lora,
                              .out_stride = c->q_lora,
                              .eps = (f32)c->lora_norm_eps};
    fused_mla_queries(t->o, &(mla_queries_args){.latent_norm_kv_write = {q_norm, latent_row(t, t->kv_a, t->seq_rope,
                                                                                            t->step_dev.slots + at, n)},
                                                .q_b = w->q_b,
                                                .q = t->q,
                                                .absorb = {.kv_b = w->kv_b,
                                                           .q = t->q,
                                                           .out = t->q_abs,
                                                           .n = n,
                                                           .n_heads = c->n_heads,
                                                           .nope = c->nope,
                                                           .rope = c->rope,
                                                           .latent = c->kv_lora}});
    fused_mla_decode_values(t->o, &(mla_decode_values_args){.decode = {.q = t->q_abs,
                                                                       .kv = t->kv,
                                                                       .pages = guess_pages(t, n, step),
                                                                       .kv_len = t->step_dev.kv_len + at,
                                                                       .out = t->attn_latent,
                                                                       .workspace = t->workspace,
                                                                       .kv_type = t->lim.kv_type,
                                                                       .n = n,
                                                                       .n_heads = c->n_heads,
                                                                       .latent = c->kv_lora,
                                                                       .rope = c->rope,
                                                                       .pages_stride = t->lim.seq_pages,
                                                                       .scale = t->softmax_scale},
                                                            .values = {.kv_b = w->kv_b,
                                                                       .x = t->attn_latent,
                                                                       .out = t->attn,
                                                                       .n = n,
                                                                       .n_heads = c->n_heads,
                                                                       .latent = c->kv_lora,
                                                                       .v_dim = c->v_dim}});
}

/* The same of Llama's attention. */
static void attend_heads(draft *t, i64 n, i64 step) {
    const model_config *c = t->c;
    const i64 at = step * t->guess_rows, width = c->n_heads * c->rope;
    write_heads(t, t->seq_in, t->seq_rope, t->step_dev.slots + at, n);
    draft_linear(t, t->w.of.layers->q, t->seq_in, 2 * c->hidden, t->q, width, n);
    t->o->heads_decode(t->o, &(heads_decode_args){.q = t->q,
                                                  .table = t->seq_rope,
                                                  .kv = t->kv,
                                                  .pages = guess_pages(t, n, step),
                                                  .kv_len = t->step_dev.kv_len + at,
                                                  .out = t->attn,
                                                  .workspace = t->workspace,
                                                  .kv_type = t->lim.kv_type,
                                                  .n = n,
                                                  .n_heads = c->n_heads,
                                                  .kv_heads = t->d->kv_heads,
                                                  .dim = c->rope,
                                                  .pages_stride = t->lim.seq_pages,
                                                  .scale = t->softmax_scale});
}

/* seq_x += x w^T; h = its norm. */
static void add_linear_norm(draft *t, const op_weight *w, const void *x, i64 x_stride, const op_weight *norm, i64 n) {
    norm_args a = draft_norm_of(t, norm, t->seq_x, t->h, n, t->c->hidden);
    a.add = t->delta, a.sum = t->seq_x;
    fused_linear_norm(t->o, &(linear_norm_args){.linear = {.w = w,
                                                           .x = x,
                                                           .y = t->delta,
                                                           .n = n,
                                                           .x_stride = x_stride,
                                                           .y_stride = t->c->hidden,
                                                           .y_type = t->o->act},
                                                .norm = a});
}

/* From the layer's input to z in seq_x and its norm in h. */
static void decoder_layer(draft *t, i64 n, i64 step) {
    const model_config *c = t->c;
    const layer_weights *w = t->w.of.layers;
    if (t->d->norm_residual)
        draft_gather(t, act_at(t, t->seq_in, c->hidden), 2 * c->hidden, NULL, t->seq_x, n, c->hidden);
    (t->d->layout == DRAFT_MLA ? attend_latent : attend_heads)(t, n, step);
    add_linear_norm(t, w->o, t->attn, c->n_heads * c->v_dim, w->ffn_norm, n);
    t->o->swiglu(t->o, &(swiglu_args){.gate = w->gate,
                                      .up = w->up,
                                      .x = t->h,
                                      .out = t->inter,
                                      .n = n,
                                      .x_stride = c->hidden,
                                      .out_stride = c->inter_dense});
    add_linear_norm(t, w->down, t->inter, c->inter_dense, t->w.of.norm, n);
}

/* The likeliest token behind each of n guess rows; of a tree the likeliest ones. */
static void guess(draft *t, i64 n, i64 step) {
    const model_config *c = t->c;
    const rank_seams *r = t->o->ranks;
    const bool whole = r && r->head;
    const i64 vocab = model_vocab_there(c), at = step * t->guess_rows;
    const row_range own = model_drawn_rows(t->target, n);
    t->o->linear(t->o, &(linear_args){.w = t->w.of.head ? t->w.of.head : t->target->w.head,
                                      .x = t->h,
                                      .y = t->logits,
                                      .n = n,
                                      .x_stride = c->hidden,
                                      .y_stride = c->vocab_held,
                                      .y_type = DT_F32});
    if (whole) model_rows_of_logits(t->o, c, t->logits, n, t->whole);
    if (draft_is_tree(t)) return draft_tree_guess(t, n, step);
    const sample_args a = {.logits = whole ? t->whole : t->logits,
                           .rows = t->greedy,
                           .ids = t->guesses + at + own.from,
                           .bad = t->step_dev.bad + at + own.from,
                           .workspace = t->workspace,
                           .n = own.to - own.from,
                           .vocab = vocab,
                           .stride = vocab,
                           .mark = BAD_LOGITS};
    if (a.n) t->o->sample(t->o, &a);
    if (r && r->draw) r->draw(t->o, t->guesses + at, n);
}

/* seq_x and seq_in of n guess rows, from what the step before left. */
static void next_input(draft *t, i64 n, i64 step) {
    const void *z = t->d->norm_output ? t->h : t->seq_x;
    if (draft_is_tree(t))
        draft_tree_follow(t, z, n);
    else if (t->d->norm_output)
        draft_gather(t, z, t->c->hidden, NULL, t->seq_x, n, t->c->hidden);
    layer_input(t, t->guesses + (step - 1) * t->guess_rows, NULL, t->w.ids ? t->map : NULL, t->seq_x, t->seq_in, n);
}

void draft_forward_guesses(draft *t, i64 n, i64 steps) {
    for (i64 s = 0; s < steps; s++) {
        const i64 rows = s ? n * t->lim.topk : n;
        if (s) next_input(t, rows, s);
        rope_of(t, t->step_dev.pos + s * t->guess_rows, t->seq_rope, rows);
        decoder_layer(t, rows, s);
        guess(t, rows, s);
        if (draft_is_tree(t) && s + 1 < steps) draft_tree_grow(t, n, s);
    }
}
