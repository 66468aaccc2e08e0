/* model/forward.c: the ops of a batch, layer by layer, once for all backends. */
#include "kernels/pipeline_parallel.h"
#include "model/model_internal.h"

static void forward_linear(model *m, const op_weight *w, const void *x, i64 x_stride, void *y, i64 y_stride, i64 n) {
    m->o->linear(m->o,
                 &(linear_args){
                     .w = w, .x = x, .y = y, .n = n, .x_stride = x_stride, .y_stride = y_stride, .y_type = m->o->act});
}

/* h = norm(x + d), x = x + d; d may be NULL. Unless mark is 0, rows of x with a NaN or an infinity get it. */
static norm_args forward_norm_of(const model *m, const op_weight *weight, void *d, i64 n, i32 mark) {
    i64 hidden = m->c->hidden;
    return (norm_args){.weight = weight,
                       .x = m->x,
                       .add = d,
                       .sum = d ? m->x : NULL,
                       .out = m->h,
                       .n = n,
                       .dim = hidden,
                       .x_stride = hidden,
                       .out_stride = hidden,
                       .eps = (f32)m->c->norm_eps,
                       .bad = mark ? m->tables_dev.bad : NULL,
                       .mark = mark};
}

/* d = x w^T, then norm_of. deferred: &m->deferred or NULL (ops.h). */
static void linear_norm(model *m, const op_weight *w, const void *x, i64 x_stride, const norm_args *norm,
                        deferred_norm *deferred) {
    fused_linear_norm(m->o, &(linear_norm_args){.linear = {.w = w,
                                                           .x = x,
                                                           .y = m->delta,
                                                           .n = norm->n,
                                                           .x_stride = x_stride,
                                                           .y_stride = m->c->hidden,
                                                           .y_type = m->o->act},
                                                .norm = *norm,
                                                .deferred = deferred,
                                                .kept = &m->kept});
}

/* What follows a sum over ranks; divide: it can go on with this rank's own rows of h. */
static void expect_rows(model *m, i64 n, bool divide) {
    m->kept = (kept_rows){.divide = divide, .stream = {0, n}, .normed = {0, n}};
}

/* Ranks that have their own rows of x each get all. */
static void gather_stream(model *m, i64 n) {
    if (m->kept.stream.from == 0 && m->kept.stream.to == n) return;
    m->o->ranks->share_rows(m->o, &(divided_rows){m->x, m->c->hidden}, 1, n);
    m->kept.stream = (row_range){0, n};
}

static bool is_dense(const model *m, i64 layer) { return layer < m->c->n_dense; }

static void *forward_row_at(const model *m, void *x, i64 row, i64 width) {
    return (u8 *)x + (u64)(row * width) * m->act_size;
}

static absorb_q_args absorb_of(model *m, const layer_weights *w, i64 first, i64 n) {
    const model_config *c = m->c;
    return (absorb_q_args){.kv_b = w->kv_b,
                           .q = forward_row_at(m, m->q, first, c->n_heads * (c->nope + c->rope)),
                           .out = forward_row_at(m, m->q_abs, first, c->n_heads * (c->kv_lora + c->rope)),
                           .n = n,
                           .n_heads = c->n_heads,
                           .nope = c->nope,
                           .rope = c->rope,
                           .latent = c->kv_lora};
}

/* The latent rows of queries and keys. Ranks that have their own rows of h alone multiply these, and get the others'
 * latents, which are a fourth as wide as h. */
static void project_latents(model *m, const linear_group_args *a) {
    const model_config *c = m->c;
    const row_range own = m->kept.normed;
    linear_group_args part = *a;
    if (m->lim.kv.by_sequence || own.to - own.from == a->n) return fused_linear_group(m->o, a);
    part.n = own.to - own.from;
    part.x = forward_row_at(m, m->h, own.from, c->hidden);
    part.of[0].y = forward_row_at(m, m->q_a, own.from, c->q_lora);
    part.of[1].y = forward_row_at(m, m->kv_a, own.from, c->kv_lora + c->rope);
    if (part.n) fused_linear_group(m->o, &part);
    const divided_rows latents[] = {{m->q_a, c->q_lora}, {m->kv_a, c->kv_lora + c->rope}};
    m->o->ranks->share_rows(m->o, latents, COUNT_OF(latents), a->n);
}

/* Can project() do with this rank's own rows of h? */
static bool projects_own_rows(const model *m) {
    const model_config *c = m->c;
    return !m->lim.kv.by_sequence && c->q_lora && c->q_lora % 8 == 0 && (c->kv_lora + c->rope) % 8 == 0;
}

/* From rows [first, first + n) of h to the KV rows and the queries: q_abs of the first n_abs of them, q, rotated, if
 * there are others. */
static void project(model *m, const layer_weights *w, void *kv, i64 first, i64 n, i64 n_abs) {
    const model_config *c = m->c;
    i64 width = c->n_heads * (c->nope + c->rope), kv_width = c->kv_lora + c->rope;
    void *const q = forward_row_at(m, m->q, first, width), *q_a = forward_row_at(m, m->q_a, first, c->q_lora),
                *kv_a = forward_row_at(m, m->kv_a, first, kv_width);
    f32 *const rope = m->rope + first * c->rope;
    project_latents(
        m, &(linear_group_args){
               .of = {c->q_lora ? (linear_group_item){.w = w->q_a, .y = q_a, .y_stride = c->q_lora, .y_type = m->o->act}
                                : (linear_group_item){.w = w->q, .y = q, .y_stride = width, .y_type = m->o->act},
                      {.w = w->kv_a, .y = kv_a, .y_stride = kv_width, .y_type = m->o->act}},
               .count = 2,
               .x = forward_row_at(m, m->h, first, c->hidden),
               .n = n,
               .x_stride = c->hidden,
               .deferred = first ? NULL : &m->deferred});
    latent_norm_kv_write_args latent_norm_kv_write = {.q = {.weight = w->q_a_norm,
                                                            .x = q_a,
                                                            .out = q_a,
                                                            .n = c->q_lora ? n : 0,
                                                            .dim = c->q_lora,
                                                            .x_stride = c->q_lora,
                                                            .out_stride = c->q_lora,
                                                            .eps = (f32)c->lora_norm_eps},
                                                      .kv = {.kv_a = kv_a,
                                                             .norm = w->kv_a_norm,
                                                             .table = rope,
                                                             .slots = m->tables_dev.slots + first,
                                                             .kv = kv,
                                                             .kv_type = m->lim.kv_type,
                                                             .n = n,
                                                             .latent = c->kv_lora,
                                                             .rope = c->rope,
                                                             .eps = (f32)c->lora_norm_eps}};
    absorb_q_args absorb = absorb_of(m, w, first, n_abs);
    if (n_abs == n && c->q_lora) {
        fused_mla_queries(
            m->o,
            &(mla_queries_args){.latent_norm_kv_write = latent_norm_kv_write, .q_b = w->q_b, .q = q, .absorb = absorb});
        return;
    }
    fused_latent_norm_kv_write(m->o, &latent_norm_kv_write);
    if (c->q_lora) forward_linear(m, w->q_b, q_a, c->q_lora, q, width, n);
    m->o->rope_q(
        m->o, &(rope_q_args){.q = q, .table = rope, .n = n, .n_heads = c->n_heads, .nope = c->nope, .rope = c->rope});
    if (n_abs) m->o->absorb_q(m->o, &absorb);
}

void model_copy_rows(model *m, void *kv, i64 layers) {
    const u64 row = (u64)(m->c->kv_lora + m->c->rope) * dtype_size(m->lim.kv_type);
    m->o->kv_copy(m->o, &(kv_copy_args){.kv = kv,
                                        .pairs = m->tables_dev.copies,
                                        .count = m->tables_dev.n_copies,
                                        .most = m->lim.copies,
                                        .layers = layers,
                                        .row_bytes = row,
                                        .layer_bytes = m->kv_layer});
}

/* Attention of rows in decode form: over the KV rows that are here, of all heads where ranks have a share of them
 * each. */
static mla_decode_args forward_decode_of(const model *m, const void *kv, row_range rows) {
    const model_config *c = m->c;
    mla_decode_args a = {.q = forward_row_at(m, m->q_abs, rows.from, c->n_heads * (c->kv_lora + c->rope)),
                         .kv = kv,
                         .pages = m->tables_dev.pages + rows.from * m->lim.seq_pages,
                         .kv_len = m->tables_dev.kv_len + rows.from,
                         .out = forward_row_at(m, m->attn_latent, rows.from, c->n_heads * c->kv_lora),
                         .workspace = m->workspace,
                         .kv_type = m->lim.kv_type,
                         .n = rows.to - rows.from,
                         .n_heads = c->n_heads,
                         .latent = c->kv_lora,
                         .rope = c->rope,
                         .pages_stride = m->lim.seq_pages,
                         .scale = m->softmax_scale,
                         .group = kv_is_shared(m->lim.kv) ? 1 : m->group,
                         .plan = m->decode_plan};
    if (kv_is_merged(m->lim.kv)) a.q = m->q_all, a.out = m->parts, a.n_heads *= m->lim.kv.ranks;
    if (kv_is_shared(m->lim.kv)) a.lse = m->parts_lse; /* rows of other ranks have no token */
    return a;
}

/* attn_latent of this rank's heads, where ranks have a share of the KV rows each: the parts of all are merged. */
static void attend_in_parts(model *m, const mla_decode_args *here) {
    const rank_seams *r = m->o->ranks;
    const model_config *c = m->c;
    r->queries(m->o, m->q_abs, m->q_all, here->n, c->n_heads * (c->kv_lora + c->rope));
    m->o->mla_decode(m->o, here);
    r->merge(m->o, &(merge_parts_args){.parts = m->parts,
                                       .lse = m->parts_lse,
                                       .here = m->q_all,
                                       .lse_here = m->parts_lse + here->n * here->n_heads,
                                       .out = m->attn_latent,
                                       .n = here->n,
                                       .heads = c->n_heads,
                                       .latent = c->kv_lora});
}

/* attn of rows in decode form, from q_abs; where KV rows are shared, of those from the first on. */
static void attend_absorbed(model *m, const layer_weights *w, const void *kv, row_range rows) {
    const model_config *c = m->c;
    const mla_decode_values_args a = {
        .decode = forward_decode_of(m, kv, rows),
        .values = {.kv_b = w->kv_b,
                   .x = forward_row_at(m, m->attn_latent, rows.from, c->n_heads * c->kv_lora),
                   .out = forward_row_at(m, m->attn, rows.from, c->n_heads * c->v_dim),
                   .n = rows.to - rows.from,
                   .n_heads = c->n_heads,
                   .latent = c->kv_lora,
                   .v_dim = c->v_dim}};
    if (!kv_is_shared(m->lim.kv)) return fused_mla_decode_values(m->o, &a);
    if (kv_is_merged(m->lim.kv))
        attend_in_parts(m, &a.decode);
    else
        m->o->mla_decode(m->o, &a.decode);
    m->o->unabsorb_v(m->o, &a.values);
}

static void attend_expanded(model *m, const layer_weights *w, const void *kv, const model_span *s, const i32 *pages) {
    const model_config *c = m->c;
    u64 q_row = (u64)(c->n_heads * (c->nope + c->rope)) * m->act_size,
        o_row = (u64)(c->n_heads * c->v_dim) * m->act_size;
    if (kv_is_merged(m->lim.kv)) {
        const u64 page = (u64)(KV_PAGE * (c->kv_lora + c->rope)) * dtype_size(m->lim.kv_type);
        m->o->ranks->collect(m->o,
                             &(collect_pages_args){kv, pages, m->collected, ceil_div(s->pos0 + s->n, KV_PAGE), page});
        kv = m->collected, pages = m->in_order;
    }
    m->o->mla_prefill(m->o, &(mla_prefill_args){.kv_b = w->kv_b,
                                                .q = (u8 *)m->q + (u64)s->first * q_row,
                                                .kv = kv,
                                                .pages = pages,
                                                .out = (u8 *)m->attn + (u64)s->first * o_row,
                                                .workspace = m->workspace,
                                                .kv_type = m->lim.kv_type,
                                                .n = s->n,
                                                .pos0 = s->pos0,
                                                .n_heads = c->n_heads,
                                                .nope = c->nope,
                                                .rope = c->rope,
                                                .latent = c->kv_lora,
                                                .v_dim = c->v_dim,
                                                .scale = m->softmax_scale});
}

/* attn of some rows to their place in `attended`. */
static void put_attended(model *m, const layer_weights *w, row_range rows) {
    const model_config *c = m->c;
    const i64 width = c->n_heads * c->v_dim;
    forward_linear(m, w->o, forward_row_at(m, m->attn, rows.from, width), width,
                   forward_row_at(m, m->attended, rows.from, c->hidden), c->hidden, rows.to - rows.from);
}

/* Does a batch's attention begin with rows that hang on whose they are, and not on how many there are? Else it may have
 * been recorded. */
static bool picks_rows(const model *m, i64 n, i64 n_abs) {
    return m->lim.kv.by_sequence && (n > n_abs || n > RECORDED);
}

/* From the first to the last row of spans of a form whose sequences are this rank's: those of others are among them
 * only where the batch does not bring each rank's together. */
static row_range own_rows_of(const model *m, const model_batch *b, bool absorbed) {
    row_range own = {0, 0};
    for (i64 i = 0; i < b->n_spans; i++) {
        const model_span *s = &b->spans[i];
        if (s->absorbed != absorbed || kv_owner(m->lim.kv, span_page(s, 0)) != m->lim.kv.rank) continue;
        if (own.from == own.to) own.from = s->first;
        own.to = s->first + s->n;
    }
    return own;
}

/* The rows in decode form that this rank attends for: of few rows all, since it is the weights that take time. */
static row_range attended_rows_of(const model *m, const model_batch *b, i64 n_abs) {
    return picks_rows(m, b->n, n_abs) ? own_rows_of(m, b, true) : (row_range){0, n_abs};
}

/* Do a batch's rows go between the rank that attends for them and the one that norms them, and nowhere else? */
static bool sends_rows(const model *m, const norm_args *norm, i64 n_abs) {
    const rank_seams *r = m->o->ranks;
    return picks_rows(m, norm->n, n_abs) && r && r->norms_apart && r->norms_apart(m->o, norm);
}

/* attended = Attn(h) of the rows that are this rank's. */
static void attend_apart(model *m, const layer_weights *w, void *kv, const model_batch *b, i64 n_abs) {
    const i32 *pages = m->tables_dev.pages + n_abs * m->lim.seq_pages;
    const row_range decode = attended_rows_of(m, b, n_abs), prompts = own_rows_of(m, b, false);
    if (picks_rows(m, b->n, n_abs)) m->deferred.parts = 0; /* feed_forward() has finished the norm */
    if (decode.to > decode.from) {
        project(m, w, kv, decode.from, decode.to - decode.from, decode.to - decode.from);
        if (m->branched) model_copy_rows(m, kv, 1);
        attend_absorbed(m, w, kv, decode);
        put_attended(m, w, decode);
    }
    if (prompts.to > prompts.from) project(m, w, kv, prompts.from, prompts.to - prompts.from, 0);
    for (i64 i = 0; i < b->n_spans; i++) {
        const model_span *s = &b->spans[i];
        if (s->absorbed) continue;
        if (kv_owner(m->lim.kv, s->pages[0]) == m->lim.kv.rank) attend_expanded(m, w, kv, s, pages);
        pages += m->lim.seq_pages;
    }
    if (prompts.to > prompts.from) put_attended(m, w, prompts);
}

/* x = x + attended, h = its norm: by sums over ranks of what each attended for and zeros, or row by row. */
static void add_attended(model *m, norm_args norm, i64 n_abs, deferred_norm *deferred) {
    const i64 hidden = m->c->hidden;
    expect_rows(m, norm.n, false);
    if (sends_rows(m, &norm, n_abs))
        norm.add = m->attended, m->kept.maker = m->tables_dev.attends;
    else
        m->o->gather(m->o, &(gather_args){.x = m->attended,
                                          .rows = m->tables_dev.own,
                                          .out = m->delta,
                                          .n = norm.n,
                                          .dim = hidden,
                                          .x_stride = hidden,
                                          .out_stride = hidden});
    fused_reduce_norm(m->o, &norm, hidden, deferred, &m->kept);
    m->own = m->kept.stream; /* all have all of h */
}

/* x = x + Attn(h), h = its norm */
static void attention(model *m, i64 layer, const model_batch *b, i64 n_abs) {
    const model_config *c = m->c;
    const layer_weights *w = &m->w.layers[layer];
    void *kv = (u8 *)m->kv + (u64)layer * m->kv_layer;
    const norm_args norm = forward_norm_of(m, w->ffn_norm, m->delta, b->n, 0);
    const bool looked_at = (b->watch && b->watch->x) || m->pairs.most; /* at whole rows */
    deferred_norm *deferred = is_dense(m, layer) || looked_at ? NULL : &m->deferred;
    if (m->lim.kv.by_sequence) {
        attend_apart(m, w, kv, b, n_abs);
        add_attended(m, norm, n_abs, deferred);
        if (looked_at) m->deferred.parts = 0;
        return;
    }
    m->own = m->kept.normed;
    project(m, w, kv, 0, b->n, n_abs);
    if (m->branched) model_copy_rows(m, kv, 1);
    if (n_abs) attend_absorbed(m, w, kv, (row_range){0, n_abs});
    const i32 *pages = m->tables_dev.pages + n_abs * m->lim.seq_pages;
    for (i64 s = 0; s < b->n_spans; s++) {
        if (b->spans[s].absorbed) continue;
        attend_expanded(m, w, kv, &b->spans[s], pages);
        pages += m->lim.seq_pages;
    }
    expect_rows(m, b->n, false);
    linear_norm(m, w->o, m->attn, c->n_heads * c->v_dim, &norm, deferred);
    if (looked_at) m->deferred.parts = 0; /* what is behind takes h as finished */
}

/* Can a rank choose experts for others? Rows of their numbers are shared in pieces of 16 bytes. */
static bool chooses_for_others(const model *m) {
    return !model_spreads_experts(m) && !m->lim.counts_experts && m->c->top_k % 4 == 0;
}

/* Everything between h and d of a layer with experts. */
static moe_ffn_args forward_moe_ffn_of(model *m, i64 layer, i64 n) {
    const model_config *c = m->c;
    const layer_weights *w = &m->w.layers[layer];
    const bool spread = model_spreads_experts(m);
    i64 inter = c->inter_shared;
    dtype act = m->o->act;
    return (moe_ffn_args){
        .own = chooses_for_others(m) ? m->own : (row_range){0, n},
        .linear_group = {.of = {{.w = w->router, .y = m->scores, .y_stride = c->n_experts, .y_type = DT_F32},
                                {.w = w->gate, .up = w->up, .y = m->inter, .y_stride = inter, .y_type = act}},
                         .count = c->n_shared ? 2 : 1,
                         .x = m->h,
                         .n = n,
                         .x_stride = c->hidden,
                         .deferred = &m->deferred},
        .gate = {.logits = m->scores,
                 .bias = w->router_bias,
                 .ids = m->expert_ids,
                 .weights = m->expert_w,
                 .n = n,
                 .n_experts = c->n_experts,
                 .k = c->top_k,
                 .norm_topk = c->norm_topk,
                 .scale = c->routed_scale,
                 .routes = spread ? m->expert_routes + (layer - c->n_dense) * c->n_experts : NULL,
                 .slots = m->expert_slots,
                 .counts = m->lim.counts_experts ? m->expert_counts + (layer - c->n_dense) * c->n_experts : NULL},
        .down = {.w = w->down,
                 .x = m->inter,
                 .y = m->shared,
                 .n = n,
                 .x_stride = inter,
                 .y_stride = c->hidden,
                 .y_type = act},
        .moe = {.moe = {.experts = w->experts,
                        .x = m->h,
                        .ids = spread ? m->expert_slots : m->expert_ids,
                        .weights = m->expert_w,
                        .shared = c->n_shared ? m->shared : NULL,
                        .out = m->delta,
                        .workspace = m->workspace,
                        .n = n,
                        .k = c->top_k,
                        .deferred = &m->deferred,
                        .among = spread ? c->n_experts : 0},
                .pairs = m->pairs.most ? &m->pairs : NULL}};
}

/* What moe_ffn does, but with what the experts are given left in memory, which is read. */
static void moe_ffn_watched(model *m, i64 layer, const moe_ffn_args *moe_ffn, const expert_watch *w) {
    device *dev = m->mem.dev;
    const i64 n = moe_ffn->gate.n, chosen = n * moe_ffn->gate.k;
    if (w->x) dev->read(dev, w->x, m->h, (u64)(n * m->c->hidden) * m->act_size); /* the norm behind overwrites it */
    compose_moe_ffn(m->o, moe_ffn);
    if (w->ids) dev->read(dev, w->ids, m->expert_ids, (u64)chosen * sizeof *w->ids);
    if (w->weights) dev->read(dev, w->weights, m->expert_w, (u64)chosen * sizeof *w->weights);
    w->seen(w->ud, layer, n);
}

/* x = x + FFN(h), h = its norm: the next layer's first, or the last */
static void feed_forward(model *m, i64 layer, i64 n, i64 n_abs, const expert_watch *watch) {
    const model_config *c = m->c;
    const layer_weights *w = &m->w.layers[layer];
    bool last = layer + 1 == c->n_layers;
    /* behind the last layer of a stage the sum alone is needed, whatever norms it */
    const op_weight *weight = !last ? w[1].attn_norm : model_ends(c) ? m->w.norm : w->attn_norm;
    norm_args norm = forward_norm_of(m, weight, m->delta, n, (i32)(c->layer_first + layer) + 1);
    deferred_norm *deferred = last || picks_rows(m, n, n_abs) ? NULL : &m->deferred;
    expect_rows(m, n, last ? !model_ends(c) : projects_own_rows(m));
    if (!last && sends_rows(m, &norm, n_abs)) m->kept.reader = m->tables_dev.attends;
    if (is_dense(m, layer)) {
        m->o->swiglu(m->o, &(swiglu_args){.gate = w->gate,
                                          .up = w->up,
                                          .x = m->h,
                                          .out = m->inter,
                                          .n = n,
                                          .x_stride = c->hidden,
                                          .out_stride = c->inter_dense});
        linear_norm(m, w->down, m->inter, c->inter_dense, &norm, deferred);
        return;
    }
    moe_ffn_args moe_ffn = forward_moe_ffn_of(m, layer, n);
    moe_ffn.moe.norm = norm, moe_ffn.moe.deferred = deferred, moe_ffn.moe.kept = &m->kept;
    if (watch)
        moe_ffn_watched(m, c->layer_first + layer, &moe_ffn, watch);
    else
        fused_moe_ffn(m->o, &moe_ffn);
}

bool model_wants_all(const model_batch *b) {
    for (i64 i = 0; i < b->n_out && b->out_rows; i++)
        if (b->out_rows[i] != i) return false;
    return b->n_out == b->n;
}

/* Logits of the wanted rows of h, gathered in a buffer of the layers, which are done. */
static void head(model *m, const model_batch *b) {
    const model_config *c = m->c;
    bool all = model_wants_all(b);
    if (!all)
        m->o->gather(m->o, &(gather_args){.x = m->h,
                                          .rows = m->tables_dev.out_rows,
                                          .out = m->shared,
                                          .n = b->n_out,
                                          .dim = c->hidden,
                                          .x_stride = c->hidden,
                                          .out_stride = c->hidden});
    m->o->linear(m->o, &(linear_args){.w = m->w.head,
                                      .x = all ? m->h : m->shared,
                                      .y = m->logits,
                                      .n = b->n_out,
                                      .x_stride = c->hidden,
                                      .y_stride = c->vocab_held,
                                      .y_type = DT_F32});
}

static bool is_cut(const sample_row *r, i64 vocab) {
    return (r->top_k > 0 && r->top_k < vocab) || r->top_p < (u64)1 << SAMPLE_BITS;
}

static void mark_logits(model *m, i64 n) {
    const i64 vocab = m->c->vocab_held;
    m->o->mark_nonfinite(m->o, &(mark_nonfinite_args){.x = m->logits,
                                                      .bad = m->tables_dev.bad_logits,
                                                      .n = n,
                                                      .dim = vocab,
                                                      .stride = vocab,
                                                      .x_type = DT_F32,
                                                      .mark = BAD_LOGITS});
}

void model_draw(model *m, const model_batch *b) {
    const rank_seams *r = m->o->ranks;
    const bool whole = r && r->head;
    const i64 vocab = model_vocab_there(m->c);
    const row_range own = model_drawn_rows(m, b->n_out);
    if (!b->draws) return mark_logits(m, b->n_out);
    if (whole) model_rows_of_logits(m->o, m->c, m->logits, b->n_out, m->whole);
    sample_args a = {.logits = whole ? m->whole : m->logits,
                     .rows = m->tables_dev.draws + own.from,
                     .masks = m->masks,
                     .ids = m->tables_dev.drawn + own.from,
                     .bad = m->tables_dev.bad_logits + own.from,
                     .workspace = m->workspace,
                     .n = own.to - own.from,
                     .vocab = vocab,
                     .stride = vocab,
                     .mask_words = model_mask_words(m),
                     .mark = BAD_LOGITS};
    for (i64 i = own.from; i < own.to; i++) {
        a.draws = a.draws || b->draws[i].scale > 0;
        a.cuts = a.cuts || (b->draws[i].scale > 0 && is_cut(&b->draws[i], vocab));
    }
    if (a.n) m->o->sample(m->o, &a);
    if (r && r->draw) r->draw(m->o, m->tables_dev.drawn, b->n_out);
}

void model_logprobs(model *m, const model_batch *b) {
    const bool whole = m->o->ranks && m->o->ranks->head;
    const i64 vocab = model_vocab_there(m->c);
    const row_range own = model_drawn_rows(m, b->n_out);
    if (own.from == own.to) return;
    m->o->logprobs(m->o, &(logprobs_args){.logits = whole ? m->whole : m->logits,
                                          .ids = m->tables_dev.next + own.from,
                                          .drawn = m->tables_dev.drawn + own.from,
                                          .tops = m->tables_dev.tops + own.from,
                                          .top_ids = m->top_ids + own.from * b->top_most,
                                          .logprobs = m->logprobs + own.from * (1 + b->top_most),
                                          .workspace = m->workspace,
                                          .n = own.to - own.from,
                                          .vocab = vocab,
                                          .stride = vocab,
                                          .n_top = b->top_most});
}

/* The residual stream before layer l of this stage, if a draft reads it. */
static void keep_features(model *m, i64 l, i64 n) {
    const i64 hidden = m->c->hidden, wide = m->lim.n_taps * hidden;
    for (i64 i = 0; i < m->lim.n_taps; i++) {
        if (m->lim.taps[i] != m->c->layer_first + l) continue;
        gather_stream(m, n);
        m->o->gather(m->o, &(gather_args){.x = m->x,
                                          .out = forward_row_at(m, m->features, m->features_at * wide + i * hidden, 1),
                                          .n = n,
                                          .dim = hidden,
                                          .x_stride = hidden,
                                          .out_stride = wide});
    }
}

/* Rows of x whose tokens are no words: pictures' and video's. */
static void place_media(model *m, const model_batch *b) {
    const i64 hidden = m->c->hidden;
    for (i64 i = 0; i < b->n_spans; i++) {
        const model_span *s = &b->spans[i];
        for (i64 k = 0; k < s->n_media; k++) {
            const model_media *a = &s->media[k];
            const i64 from = max_i64(a->position, s->pos0), to = min_i64(a->position + a->n, s->pos0 + s->n);
            if (from >= to) continue;
            m->o->gather(m->o, &(gather_args){.x = forward_row_at(m, m->media, a->from + from - a->position, hidden),
                                              .out = forward_row_at(m, m->x, s->first + from - s->pos0, hidden),
                                              .n = to - from,
                                              .dim = hidden,
                                              .x_stride = hidden,
                                              .out_stride = hidden});
        }
    }
}

static void embed_rows(model *m, const model_batch *b) {
    m->o->embed(m->o, &(embed_args){.table = m->w.embed,
                                    .ids = m->tables_dev.ids,
                                    .drawn = m->tables_dev.drawn,
                                    .out = m->x,
                                    .n = b->n,
                                    .first = m->c->vocab_first});
    const rank_seams *r = m->o->ranks;
    if (r && r->embed) r->embed(m->o, m->x, b->n, m->c->hidden);
    place_media(m, b);
}

/* Of n rows what stages before layer `end` kept for the draft, which is on the last one: all columns, those of later
 * layers without meaning. Nothing, if the draft reads none of theirs. */
static void hand_features_on(model *m, i64 end, i64 n, void (*pass)(const ops *, void *, i64)) {
    const i64 wide = m->lim.n_taps * m->c->hidden;
    if (m->lim.n_taps && m->lim.taps[0] < end)
        pass(m->o, forward_row_at(m, m->features, m->features_at, wide), n * wide);
}

/* Rows from the stage before. */
static void receive_rows(model *m, i64 n) {
    pipeline_receive(m->o, m->x, n * m->c->hidden);
    hand_features_on(m, m->c->layer_first, n, pipeline_receive);
}

/* And to the one behind. */
static void send_rows(model *m, i64 n) {
    gather_stream(m, n);
    pipeline_send(m->o, m->x, n * m->c->hidden);
    hand_features_on(m, m->c->layer_first + m->c->n_layers, n, pipeline_send);
}

void model_forward(model *m, const model_batch *b, i64 n_abs) {
    const model_config *c = m->c;
    m->o->rope_table(m->o, &(rope_table_args){.positions = m->tables_dev.pos,
                                              .inv_freq = m->inv_freq,
                                              .table = m->rope,
                                              .n = b->n,
                                              .rope = c->rope,
                                              .mscale = m->rope_mscale});
    const row_range decode = attended_rows_of(m, b, n_abs);
    if (decode.to > decode.from && m->decode_plan)
        fused_mla_decode_plan(m->o, &(mla_decode_plan_args){forward_decode_of(m, NULL, decode)});
    if (model_begins(c))
        embed_rows(m, b);
    else
        receive_rows(m, b->n);
    norm_args first = forward_norm_of(m, m->w.layers[0].attn_norm, NULL, b->n, model_begins(c) ? BAD_EMBEDDING : 0);
    m->o->norm(m->o, &first);
    m->deferred = (deferred_norm){.squares = m->deferred.squares};
    expect_rows(m, b->n, false);
    for (i64 l = 0; l < c->n_layers; l++) {
        keep_features(m, l, b->n);
        attention(m, l, b, n_abs);
        feed_forward(m, l, b->n, n_abs, b->watch);
    }
    if (!model_ends(c)) return send_rows(m, b->n);
    if (b->n_out) head(m, b);
}
