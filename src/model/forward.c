#include "model/tables.h"
#include "base/buf.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct model {
    const model_config *c;
    const ops *o;
    model_limits lim;
    model_weights w;
    device_pool mem;
    u64 act_size; /* bytes of an activation element */
    f64 rope_mscale;
    f32 softmax_scale;
    f64 *inv_freq;    /* [rope / 2] */
    void *kv;         /* kv_type [n_layers, pool_pages, KV_PAGE, latent + rope] */
    u64 kv_layer;     /* bytes of one layer's pool */
    void *x, *h, *d;  /* [rows, hidden]: residual stream, normed input, what a sub-layer adds */
    void *q_a;        /* [rows, q_lora]                   */
    void *q;          /* [rows, H, nope + rope]           */
    void *kv_a;       /* [rows, latent + rope]            */
    void *attn;       /* [rows, H, v]                     */
    void *q_abs;      /* [decode_rows, H, latent + rope]  */
    void *o_lat;      /* [decode_rows, H, latent]         */
    void *inter;      /* [rows, widest feed-forward]      */
    void *shared;     /* [rows, hidden]                   */
    f32 *scores;      /* [rows, experts]                  */
    i32 *expert_ids;  /* [rows, k]                       */
    f32 *expert_w;    /* [rows, k]                        */
    f32 *rope;        /* [rows, rope / 2, 2]              */
    rows_later later; /* of h                             */
    batch_tables in;  /* of this batch, on the device      */
    batch_tables up;  /* the same on the host              */
    device_reply *replies[2];
    f32 *logits;   /* [logit_rows, vocab]              */
    f32 *logprobs; /* [logit_rows, 1 + LOGPROBS_TOP]   */
    i32 *top_ids;  /* [logit_rows, LOGPROBS_TOP]       */
    void *workspace;
    model_span *part_spans; /* of a part of a batch: limits.deterministic */
    i32 *part_outs;
    device_recording *
        *steps; /* [RECORDED + 1]: of n rows in decode form, each with its logits; NULL: not yet */
};

/* Batches of up to so many rows, all in decode form, are recorded when they are first met. */
enum { RECORDED = 64 };

u64 model_kv_bytes(const model_config *c, i64 pages, dtype kv_type) {
    return (u64)pages * KV_PAGE * (u64)(c->kv_lora + c->rope) * dtype_size(kv_type) * (u64)c->n_layers;
}

u64 model_memory(const model *m) { return m->mem.bytes; }

static i64 widest_ffn(const model_config *c) {
    i64 shared = c->n_shared * c->inter_expert, dense = c->n_dense ? c->inter_dense : 0;
    return max_i64(max_i64(shared, dense), 1);
}

/* Does a row's place among others matter to the backend, and must it not? */
static bool runs_apart(const model *m) { return m->lim.deterministic && m->o->set_form; }

/* The largest workspace that any call can ask for, in one form. Layers may differ in their formats, and so in their needs. */
static u64 workspace_of_form(const model *m, i64 rows) {
    const model_config *c = m->c;
    mla_decode_args d = {.n = m->lim.decode_rows,
                         .n_heads = c->n_heads,
                         .latent = c->kv_lora,
                         .rope = c->rope,
                         .kv_type = m->lim.kv_type,
                         .pages_stride = m->lim.seq_pages};
    sample_args s = {.n = m->lim.logit_rows, .vocab = c->vocab};
    logprobs_args p = {.n = m->lim.logit_rows, .vocab = c->vocab, .most = LOGPROBS_TOP};
    u64 need = m->o->mla_decode_workspace(m->o, &d), draws = m->o->sample_workspace(m->o, &s),
        logprobs = m->o->logprobs_workspace(m->o, &p);
    need = draws > need ? draws : need;
    need = logprobs > need ? logprobs : need;
    i64 span = min_i64(rows, m->lim.seq_pages * KV_PAGE);
    for (i64 l = 0; l < c->n_layers; l++) {
        const layer_weights *w = &m->w.layers[l];
        mla_prefill_args f = {.kv_b = w->kv_b,
                              .n = span,
                              .pos0 = m->lim.seq_pages * KV_PAGE - span,
                              .kv_type = m->lim.kv_type,
                              .n_heads = c->n_heads,
                              .nope = c->nope,
                              .rope = c->rope,
                              .latent = c->kv_lora,
                              .v_dim = c->v_dim};
        moe_args e = {.experts = w->experts, .n = rows, .k = c->top_k};
        u64 attn = m->o->mla_prefill_workspace(m->o, &f),
            moe = w->experts ? m->o->moe_workspace(m->o, &e) : 0;
        need = attn > need ? attn : need;
        need = moe > need ? moe : need;
    }
    return need;
}

static u64 workspace_bytes(const model *m) {
    if (!runs_apart(m)) return workspace_of_form(m, m->lim.rows);
    m->o->set_form(m->o, ROWS_DECODE);
    u64 decode = workspace_of_form(m, min_i64(m->lim.rows, DECODE_ROWS));
    m->o->set_form(m->o, ROWS_PROMPT);
    u64 prompt = workspace_of_form(m, m->lim.rows);
    return decode > prompt ? decode : prompt;
}

/* One line per buffer: who owns it is the pool. */
static status allocate(model *m, err *e) {
    const model_config *c = m->c;
    const model_limits *l = &m->lim;
    u64 rows = (u64)l->rows, act = m->act_size, hidden = (u64)c->hidden, dec = (u64)l->decode_rows;
    u64 kv_width = (u64)(c->kv_lora + c->rope), heads = (u64)c->n_heads;
    void *block;
    m->kv_layer = model_kv_bytes(c, l->pool_pages, l->kv_type) / (u64)c->n_layers;
    const struct {
        void *slot;
        u64 count, size;
        const char *what;
    } plan[] = {
        {&m->kv, m->kv_layer, (u64)c->n_layers, "KV cache"},
        {&m->inv_freq, (u64)c->rope / 2, sizeof(f64), "rotary frequencies"},
        {&m->x, rows * hidden, act, "activations"},
        {&m->h, rows * hidden, act, "activations"},
        {&m->d, rows * hidden, act, "activations"},
        {&m->q_a, rows * (u64)max_i64(c->q_lora, 1), act, "activations"},
        {&m->q, rows * heads * (u64)(c->nope + c->rope), act, "activations"},
        {&m->kv_a, rows * kv_width, act, "activations"},
        {&m->attn, rows * heads * (u64)c->v_dim, act, "activations"},
        {&m->q_abs, dec * heads * kv_width, act, "activations"},
        {&m->o_lat, dec * heads * (u64)c->kv_lora, act, "activations"},
        {&m->inter, rows * (u64)widest_ffn(c), act, "activations"},
        {&m->shared, rows * hidden, act, "activations"},
        {&m->scores, rows * (u64)max_i64(c->n_experts, 1), sizeof(f32), "router scores"},
        {&m->expert_ids, rows * (u64)max_i64(c->top_k, 1), sizeof(i32), "routing"},
        {&m->expert_w, rows * (u64)max_i64(c->top_k, 1), sizeof(f32), "routing"},
        {&m->rope, rows * (u64)c->rope, sizeof(f32), "rotary table"},
        {&m->later.squares, (u64)LATER_ROWS * LATER_PARTS, sizeof(f32), "sums of squares"},
        {&block, tables_bytes(l), 1, "a batch's tables"},
        {&m->logits, (u64)l->logit_rows * (u64)c->vocab, sizeof(f32), "logits"},
        {&m->logprobs, (u64)l->logit_rows * (1 + LOGPROBS_TOP), sizeof(f32), "log-probabilities"},
        {&m->top_ids, (u64)l->logit_rows * LOGPROBS_TOP, sizeof(i32), "log-probabilities"},
        {&m->workspace, workspace_bytes(m), 1, "workspace"},
    };
    u64 total = 0, bytes;
    for (size_t i = 0; i < COUNT_OF(plan); i++)
        if (!mul_size(plan[i].count, plan[i].size, &bytes) || !add_size(total, bytes, &total))
            return err_nomem(e, plan[i].what, UINT64_MAX);
    if (l->memory_max && total > l->memory_max)
        return err_set(
            e, ST_LIMIT,
            "KV cache for %lld tokens needs %.1f GB and working memory %.1f GB, %.1f GB are available: lower "
            "--context-length, --chunked-prefill-size or --kv-cache-dtype",
            (long long)(l->pool_pages * KV_PAGE), (f64)(m->kv_layer * (u64)c->n_layers) * 1e-9,
            (f64)(total - m->kv_layer * (u64)c->n_layers) * 1e-9, (f64)l->memory_max * 1e-9);
    for (size_t i = 0; i < COUNT_OF(plan); i++) {
        void *p;
        status st = device_pool_add(&m->mem, &p, plan[i].count, plan[i].size, plan[i].what, e);
        if (st != ST_OK) return st;
        memcpy(plan[i].slot, &p, sizeof p);
    }
    m->in = tables_at(l, block);
    return ST_OK;
}

/* A reply: what tables.h says, log-probabilities, best tokens. */
static u64 logprobs_at(const model *m) { return tables_results(&m->lim, m->lim.rows); }
static u64 top_ids_at(const model *m) {
    return logprobs_at(m) + (u64)m->lim.logit_rows * (1 + LOGPROBS_TOP) * sizeof(f32);
}
static u64 reply_bytes(const model *m) {
    return top_ids_at(m) + (u64)m->lim.logit_rows * LOGPROBS_TOP * sizeof(i32);
}

static status allocate_on_host(model *m, err *e) {
    void *block = calloc(1, tables_bytes(&m->lim));
    m->up = tables_at(&m->lim, block);
    m->steps = calloc(RECORDED + 1, sizeof *m->steps);
    m->part_spans = calloc((size_t)(m->lim.decode_rows + m->lim.prefill_spans), sizeof *m->part_spans);
    m->part_outs = calloc((size_t)m->lim.logit_rows, sizeof *m->part_outs);
    if (!block || !m->steps || !m->part_spans || !m->part_outs)
        return err_nomem(e, "a batch's tables", tables_bytes(&m->lim));
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < 2; i++)
        st = m->mem.dev->reply_open(m->mem.dev, reply_bytes(m), &m->replies[i], e);
    return st;
}

/* Ids that a slice of the vocabulary does not hold can never be chosen. */
static status hide_other_ids(model *m, err *e) {
    device *dev = m->mem.dev;
    i64 others = m->c->vocab - m->c->vocab_held;
    if (!others) return ST_OK;
    f32 *never = malloc((size_t)others * sizeof *never);
    if (!never) return err_nomem(e, "a row of logits", (u64)others * sizeof *never);
    for (i64 i = 0; i < others; i++) never[i] = -INFINITY;
    for (i64 r = 0; r < m->lim.logit_rows; r++)
        dev->write(dev, m->logits + r * m->c->vocab + m->c->vocab_held, never, (u64)others * sizeof *never);
    free(never);
    return ST_OK;
}

static status write_frequencies(model *m, err *e) {
    u64 bytes = (u64)m->c->rope / 2 * sizeof(f64);
    f64 *freq = malloc(bytes);
    if (!freq) return err_nomem(e, "rotary frequencies", bytes);
    model_inv_freq(m->c, freq);
    m->mem.dev->write(m->mem.dev, m->inv_freq, freq, bytes);
    free(freq);
    return ST_OK;
}

status model_open(model **out, const model_config *c, const checkpoint *ck, const ops *o, device *dev,
                  const model_limits *lim, bool verify, err *e) {
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m) return err_nomem(e, "the model", sizeof *m);
    m->c = c;
    m->o = o;
    m->lim = *lim;
    m->mem.dev = dev;
    m->act_size = dtype_size(o->act);
    m->softmax_scale = (f32)model_softmax_scale(c);
    m->rope_mscale = model_rope_mscale(c);
    status st = model_weights_bind(&m->w, c, ck, o, verify, e);
    if (st == ST_OK) st = allocate(m, e);
    if (st == ST_OK) st = allocate_on_host(m, e);
    if (st == ST_OK) st = write_frequencies(m, e);
    if (st == ST_OK) st = hide_other_ids(m, e);
    if (st == ST_OK) st = dev->finish(dev, e);
    if (st != ST_OK) return model_close(m), st;
    *out = m;
    return ST_OK;
}

void model_close(model *m) {
    if (!m) return;
    for (i64 n = 0; m->steps && n <= RECORDED; n++)
        if (m->steps[n]) m->mem.dev->forget(m->mem.dev, m->steps[n]);
    free(m->steps);
    free(m->part_spans);
    free(m->part_outs);
    model_weights_free(&m->w);
    device_pool_free(&m->mem);
    for (int i = 0; i < 2; i++) m->mem.dev->reply_close(m->mem.dev, m->replies[i]);
    free(m->up.drawn);
    free(m);
}

static void linear(model *m, const op_weight *w, const void *x, i64 x_stride, void *y, i64 y_stride, i64 n) {
    m->o->linear(
        m->o,
        &(linear_args){
            .w = w, .x = x, .y = y, .n = n, .x_stride = x_stride, .y_stride = y_stride, .y_type = m->o->act});
}

/* h = norm(x + d), x = x + d; d may be NULL. Unless mark is 0, rows of x with a NaN or an infinity get it. */
static norm_args norm_of(const model *m, const op_weight *weight, void *d, i64 n, i32 mark) {
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
                       .bad = mark ? m->in.bad : NULL,
                       .mark = mark};
}

/* d = x w^T, then norm_of. later: m->later or NULL (ops.h). */
static void linear_norm(model *m, const op_weight *w, const void *x, i64 x_stride, const norm_args *norm,
                        rows_later *later) {
    m->o->linear_norm(m->o, &(linear_norm_args){.linear = {.w = w,
                                                           .x = x,
                                                           .y = m->d,
                                                           .n = norm->n,
                                                           .x_stride = x_stride,
                                                           .y_stride = m->c->hidden,
                                                           .y_type = m->o->act},
                                                .norm = *norm,
                                                .later = later});
}

static bool is_dense(const model *m, i64 layer) { return layer < m->c->n_dense; }

static absorb_q_args absorb_of(model *m, const layer_weights *w, i64 n) {
    const model_config *c = m->c;
    return (absorb_q_args){.kv_b = w->kv_b,
                           .q = m->q,
                           .out = m->q_abs,
                           .n = n,
                           .n_heads = c->n_heads,
                           .nope = c->nope,
                           .rope = c->rope,
                           .latent = c->kv_lora};
}

/* From h to the KV rows and the queries: q_abs of the first n_abs rows, q, rotated, if there are others. */
static void project(model *m, const layer_weights *w, void *kv, i64 n, i64 n_abs) {
    const model_config *c = m->c;
    i64 width = c->n_heads * (c->nope + c->rope), kv_width = c->kv_lora + c->rope;
    m->o->products(
        m->o,
        &(products_args){
            .of = {c->q_lora
                       ? (one_product){.w = w->q_a, .y = m->q_a, .y_stride = c->q_lora, .y_type = m->o->act}
                       : (one_product){.w = w->q, .y = m->q, .y_stride = width, .y_type = m->o->act},
                   {.w = w->kv_a, .y = m->kv_a, .y_stride = kv_width, .y_type = m->o->act}},
            .count = 2,
            .x = m->h,
            .n = n,
            .x_stride = c->hidden,
            .later = &m->later});
    latents_args latents = {.q = {.weight = w->q_a_norm,
                                  .x = m->q_a,
                                  .out = m->q_a,
                                  .n = c->q_lora ? n : 0,
                                  .dim = c->q_lora,
                                  .x_stride = c->q_lora,
                                  .out_stride = c->q_lora,
                                  .eps = (f32)c->lora_norm_eps},
                            .kv = {.kv_a = m->kv_a,
                                   .norm = w->kv_a_norm,
                                   .table = m->rope,
                                   .slots = m->in.slots,
                                   .kv = kv,
                                   .kv_type = m->lim.kv_type,
                                   .n = n,
                                   .latent = c->kv_lora,
                                   .rope = c->rope,
                                   .eps = (f32)c->lora_norm_eps}};
    absorb_q_args absorb = absorb_of(m, w, n_abs);
    if (n_abs == n && c->q_lora) {
        m->o->queries(m->o, &(queries_args){.latents = latents, .q_b = w->q_b, .q = m->q, .absorb = absorb});
        return;
    }
    m->o->latents(m->o, &latents);
    if (c->q_lora) linear(m, w->q_b, m->q_a, c->q_lora, m->q, width, n);
    m->o->rope_q(
        m->o,
        &(rope_q_args){
            .q = m->q, .table = m->rope, .n = n, .n_heads = c->n_heads, .nope = c->nope, .rope = c->rope});
    if (n_abs) m->o->absorb_q(m->o, &absorb);
}

/* attn[0..n) for the rows in decode form, from q_abs. */
static void attend_absorbed(model *m, const layer_weights *w, const void *kv, i64 n) {
    const model_config *c = m->c;
    m->o->attend(m->o,
                 &(mla_decode_args){.q = m->q_abs,
                                    .kv = kv,
                                    .pages = m->in.pages,
                                    .kv_len = m->in.kv_len,
                                    .out = m->o_lat,
                                    .workspace = m->workspace,
                                    .kv_type = m->lim.kv_type,
                                    .n = n,
                                    .n_heads = c->n_heads,
                                    .latent = c->kv_lora,
                                    .rope = c->rope,
                                    .pages_stride = m->lim.seq_pages,
                                    .scale = m->softmax_scale},
                 &(unabsorb_v_args){.kv_b = w->kv_b,
                                    .x = m->o_lat,
                                    .out = m->attn,
                                    .n = n,
                                    .n_heads = c->n_heads,
                                    .latent = c->kv_lora,
                                    .v_dim = c->v_dim});
}

static void attend_expanded(model *m, const layer_weights *w, const void *kv, const model_span *s,
                            const i32 *pages) {
    const model_config *c = m->c;
    u64 q_row = (u64)(c->n_heads * (c->nope + c->rope)) * m->act_size,
        o_row = (u64)(c->n_heads * c->v_dim) * m->act_size;
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

/* x = x + Attn(h), h = its norm */
static void attention(model *m, i64 layer, const model_batch *b, i64 n_abs) {
    const model_config *c = m->c;
    const layer_weights *w = &m->w.layers[layer];
    void *kv = (u8 *)m->kv + (u64)layer * m->kv_layer;
    project(m, w, kv, b->n, n_abs);
    if (n_abs) attend_absorbed(m, w, kv, n_abs);
    const i32 *pages = m->in.pages + n_abs * m->lim.seq_pages;
    for (i64 s = 0; s < b->n_spans; s++) {
        if (b->spans[s].absorbed) continue;
        attend_expanded(m, w, kv, &b->spans[s], pages);
        pages += m->lim.seq_pages;
    }
    norm_args norm = norm_of(m, w->ffn_norm, m->d, b->n, 0);
    linear_norm(m, w->o, m->attn, c->n_heads * c->v_dim, &norm, is_dense(m, layer) ? NULL : &m->later);
}

/* scores = the router's logits of h, inter = silu(gate h) * up h of the shared expert, if there is one. */
static void router_and_shared(model *m, const layer_weights *w, i64 n) {
    const model_config *c = m->c;
    i64 inter = c->inter_expert * c->n_shared;
    m->o->products(
        m->o, &(products_args){
                  .of = {{.w = w->router, .y = m->scores, .y_stride = c->n_experts, .y_type = DT_F32},
                         {.w = w->gate, .up = w->up, .y = m->inter, .y_stride = inter, .y_type = m->o->act}},
                  .count = c->n_shared ? 2 : 1,
                  .x = m->h,
                  .n = n,
                  .x_stride = c->hidden,
                  .later = &m->later});
}

/* Chooses the experts; shared = the shared expert's output, if there is one. */
static void route_and_shared(model *m, const layer_weights *w, i64 n) {
    const model_config *c = m->c;
    i64 inter = c->inter_expert * c->n_shared;
    route_args r = {.logits = m->scores,
                    .bias = w->router_bias,
                    .ids = m->expert_ids,
                    .weights = m->expert_w,
                    .n = n,
                    .n_experts = c->n_experts,
                    .k = c->top_k,
                    .norm_topk = c->norm_topk,
                    .scale = c->routed_scale};
    linear_args down = {.w = w->down,
                        .x = m->inter,
                        .y = m->shared,
                        .n = n,
                        .x_stride = inter,
                        .y_stride = c->hidden,
                        .y_type = m->o->act};
    if (inter)
        m->o->route_beside(m->o, &r, &down);
    else
        m->o->route(m->o, &r);
}

/* x = x + FFN(h), h = its norm: the next layer's first, or the last */
static void feed_forward(model *m, i64 layer, i64 n) {
    const model_config *c = m->c;
    const layer_weights *w = &m->w.layers[layer];
    bool last = layer + 1 == c->n_layers;
    norm_args norm = norm_of(m, last ? m->w.norm : w[1].attn_norm, m->d, n, (i32)layer + 1);
    rows_later *later = last ? NULL : &m->later;
    if (is_dense(m, layer)) {
        m->o->swiglu(m->o, &(swiglu_args){.gate = w->gate,
                                          .up = w->up,
                                          .x = m->h,
                                          .out = m->inter,
                                          .n = n,
                                          .x_stride = c->hidden,
                                          .out_stride = c->inter_dense});
        linear_norm(m, w->down, m->inter, c->inter_dense, &norm, later);
        return;
    }
    router_and_shared(m, w, n);
    route_and_shared(m, w, n);
    m->o->moe_norm(m->o, &(moe_norm_args){.moe = {.experts = w->experts,
                                                  .x = m->h,
                                                  .ids = m->expert_ids,
                                                  .weights = m->expert_w,
                                                  .shared = c->n_shared ? m->shared : NULL,
                                                  .out = m->d,
                                                  .workspace = m->workspace,
                                                  .n = n,
                                                  .k = c->top_k,
                                                  .later = &m->later},
                                          .norm = norm,
                                          .later = later});
}

/* Are the wanted rows all rows, in order? */
static bool wants_all(const model_batch *b) {
    for (i64 i = 0; i < b->n_out && b->out_rows; i++)
        if (b->out_rows[i] != i) return false;
    return b->n_out == b->n;
}

/* Logits of the wanted rows of h, gathered in a buffer of the layers, which are done. */
static void head(model *m, const model_batch *b) {
    const model_config *c = m->c;
    bool all = wants_all(b);
    if (!all)
        m->o->gather(
            m->o, &(gather_args){
                      .x = m->h, .rows = m->in.out_rows, .out = m->shared, .n = b->n_out, .dim = c->hidden});
    m->o->linear(m->o, &(linear_args){.w = m->w.head,
                                      .x = all ? m->h : m->shared,
                                      .y = m->logits,
                                      .n = b->n_out,
                                      .x_stride = c->hidden,
                                      .y_stride = c->vocab,
                                      .y_type = DT_F32});
}

static bool is_cut(const sample_row *r, i64 vocab) {
    return (r->top_k > 0 && r->top_k < vocab) || r->top_p < (u64)1 << SAMPLE_BITS;
}

/* Draws the next tokens, or looks for NaN and infinities alone. Not recorded: how tokens are drawn changes from step to step. */
static void draw(model *m, const model_batch *b) {
    i64 vocab = m->c->vocab_held;
    sample_args a = {.logits = m->logits,
                     .rows = m->in.draws,
                     .ids = m->in.drawn,
                     .bad = m->in.bad_logits,
                     .workspace = m->workspace,
                     .n = b->n_out,
                     .vocab = vocab,
                     .stride = m->c->vocab,
                     .mark = BAD_LOGITS};
    for (i64 i = 0; b->draws && i < b->n_out; i++) {
        a.draws = a.draws || b->draws[i].scale > 0;
        a.cuts = a.cuts || (b->draws[i].scale > 0 && is_cut(&b->draws[i], vocab));
    }
    if (b->draws)
        m->o->sample(m->o, &a);
    else
        m->o->finite(m->o, &(finite_args){.x = m->logits,
                                          .bad = m->in.bad_logits,
                                          .n = b->n_out,
                                          .dim = vocab,
                                          .stride = m->c->vocab,
                                          .x_type = DT_F32,
                                          .mark = BAD_LOGITS});
}

/* Behind the draw, whose workspace it takes over. */
static void logprobs(model *m, const model_batch *b) {
    m->o->logprobs(m->o, &(logprobs_args){.logits = m->logits,
                                          .ids = m->in.next,
                                          .drawn = m->in.drawn,
                                          .tops = m->in.tops,
                                          .top_ids = m->top_ids,
                                          .logprobs = m->logprobs,
                                          .workspace = m->workspace,
                                          .n = b->n_out,
                                          .vocab = m->c->vocab_held,
                                          .stride = m->c->vocab,
                                          .most = b->top_most});
}

/* The launches of a batch whose tables are on the device. */
static void queue_step(model *m, const model_batch *b, i64 n_abs) {
    const model_config *c = m->c;
    m->o->rope_table(m->o, &(rope_table_args){.positions = m->in.pos,
                                              .inv_freq = m->inv_freq,
                                              .table = m->rope,
                                              .n = b->n,
                                              .rope = c->rope,
                                              .mscale = m->rope_mscale});
    m->o->embed(
        m->o,
        &(embed_args){.table = m->w.embed, .ids = m->in.ids, .drawn = m->in.drawn, .out = m->x, .n = b->n});
    norm_args first = norm_of(m, m->w.layers[0].attn_norm, NULL, b->n, BAD_EMBEDDING);
    m->o->norm(m->o, &first);
    m->later = (rows_later){.squares = m->later.squares};
    for (i64 l = 0; l < c->n_layers; l++) {
        attention(m, l, b, n_abs);
        feed_forward(m, l, b->n);
    }
    if (b->n_out) head(m, b);
}

typedef struct {
    model *m;
    i64 n;
} decode_step;

static void queue_decode(void *ud) {
    const decode_step *s = ud;
    queue_step(s->m, &(model_batch){.n = s->n, .n_out = s->n}, s->n);
}

/* Runs the step, from its recording where there can be one: decode form alone, the logits of every row wanted. Its launches
 * depend on n alone; all else is in the tables. */
static status run_step(model *m, const model_batch *b, i64 n_abs, err *e) {
    device *dev = m->mem.dev;
    if (!dev->record || m->lim.eager || n_abs != b->n || !wants_all(b) || b->n > RECORDED) {
        queue_step(m, b, n_abs);
        return ST_OK;
    }
    if (!m->steps[b->n]) {
        status st = dev->record(dev, queue_decode, &(decode_step){m, b->n}, &m->steps[b->n], e);
        if (st != ST_OK) return st;
    }
    dev->replay(dev, m->steps[b->n]);
    return ST_OK;
}

/* The wanted logits, in as few reads as there are runs of rows. */
static status read_logits(model *m, const model_batch *b, err *e) {
    const i64 vocab = m->c->vocab;
    bool any = false;
    for (i64 from = 0, to; from < b->n_out; from = to) {
        bool wanted = !b->draws || (b->keep && b->keep[from]);
        for (to = from + 1; to < b->n_out && (!b->draws || (b->keep && b->keep[to]) == wanted);) to++;
        if (wanted)
            m->mem.dev->read(m->mem.dev, b->logits + from * vocab, m->logits + from * vocab,
                             (u64)((to - from) * vocab) * sizeof(f32));
        any = any || wanted;
    }
    return any ? m->mem.dev->finish(m->mem.dev, e) : ST_OK;
}

/* Waits for the results: tokens, logits, and the marks of rows with a NaN or an infinity. */
static status collect(model *m, const model_batch *b, err *e) {
    const device_reply *r = m->replies[b->reply];
    status st = m->mem.dev->reply_wait(m->mem.dev, r, e);
    if (st == ST_OK) st = read_logits(m, b, e);
    if (st != ST_OK) return st;
    const batch_tables t = tables_at(&m->lim, r->data);
    memcpy(b->bad, t.bad, (size_t)b->n * sizeof(i32));
    for (i64 i = 0; i < b->n_out; i++)
        if (t.bad_logits[i] && !b->bad[b->out_rows[i]]) b->bad[b->out_rows[i]] = t.bad_logits[i];
    if (b->draws) memcpy(b->drawn, t.drawn, (size_t)b->n_out * sizeof(i32));
    if (!b->tops) return ST_OK;
    memcpy(b->logprobs, r->data + logprobs_at(m), (size_t)(b->n_out * (1 + b->top_most)) * sizeof(f32));
    memcpy(b->top_ids, r->data + top_ids_at(m), (size_t)(b->n_out * b->top_most) * sizeof(i32));
    return ST_OK;
}

static void send_results(model *m, const model_batch *b) {
    device *dev = m->mem.dev;
    device_reply *r = m->replies[b->reply];
    dev->reply_add(dev, r, 0, m->in.drawn, tables_results(&m->lim, b->n));
    if (!b->tops) return;
    dev->reply_add(dev, r, logprobs_at(m), m->logprobs, (u64)(b->n_out * (1 + b->top_most)) * sizeof(f32));
    dev->reply_add(dev, r, top_ids_at(m), m->top_ids, (u64)(b->n_out * b->top_most) * sizeof(i32));
}

static status queue(model *m, const model_batch *b, err *e) {
    i64 n_abs;
    u64 bytes = tables_fill(&m->lim, b, m->c->vocab_held, &m->up, &n_abs);
    m->mem.dev->write(m->mem.dev, m->in.bad_logits, m->up.bad_logits, bytes);
    status st = run_step(m, b, n_abs, e);
    if (st != ST_OK) return st;
    if (b->n_out) draw(m, b);
    if (b->n_out && b->tops) logprobs(m, b);
    send_results(m, b);
    return ST_OK;
}

/* Rows [from, to) of b as a batch of their own. */
static model_batch part_of(model *m, const model_batch *b, i64 from, i64 to) {
    model_batch p = *b;
    i64 out = 0;
    p.n = to - from, p.ids += from, p.bad += from;
    p.spans = m->part_spans, p.n_spans = 0;
    for (i64 s = 0; s < b->n_spans; s++) {
        model_span span = b->spans[s];
        i64 first = max_i64(span.first, from), end = min_i64(span.first + span.n, to);
        if (first >= end) continue;
        span.pos0 += first - span.first;
        span.first = first - from, span.n = end - first;
        m->part_spans[p.n_spans++] = span;
    }
    while (out < b->n_out && b->out_rows[out] < from) out++;
    p.out_rows = m->part_outs, p.n_out = 0;
    for (i64 o = out; o < b->n_out && b->out_rows[o] < to; o++)
        m->part_outs[p.n_out++] = b->out_rows[o] - (i32)from;
    p.logits += out * m->c->vocab;
    if (b->draws) p.draws += out, p.drawn += out;
    if (b->keep) p.keep += out;
    if (b->tops) {
        p.tops += out, p.next += out;
        p.logprobs += out * (1 + b->top_most), p.top_ids += out * b->top_most;
    }
    return p;
}

static i64 absorbed_rows(const model_batch *b) {
    i64 n = 0;
    for (i64 s = 0; s < b->n_spans; s++)
        if (b->spans[s].absorbed) n += b->spans[s].n;
    return n;
}

static bool in_parts(const model *m, const model_batch *b) {
    return runs_apart(m) && (absorbed_rows(b) < b->n || b->n > DECODE_ROWS);
}

/* Rows in decode form, so many at a time as one set of kernels takes; then the rows of prompts. */
static status run_parts(model *m, const model_batch *b, err *e) {
    i64 n_abs = absorbed_rows(b);
    status st = ST_OK;
    for (i64 from = 0, to; st == ST_OK && from < b->n; from = to) {
        bool decode = from < n_abs;
        to = decode ? min_i64(n_abs, from + DECODE_ROWS) : b->n;
        m->o->set_form(m->o, decode ? ROWS_DECODE : ROWS_PROMPT);
        const model_batch part = part_of(m, b, from, to);
        st = queue(m, &part, e);
        if (st == ST_OK) st = collect(m, &part, e);
    }
    return st;
}

i64 model_ahead_rows(const model *m) { return runs_apart(m) ? DECODE_ROWS : m->lim.decode_rows; }

/* What runs in parts has its results already. */
status model_queue(model *m, const model_batch *b, err *e) {
    status st = tables_check(&m->lim, b, e);
    if (st != ST_OK) return st;
    if (in_parts(m, b)) return run_parts(m, b, e);
    if (runs_apart(m)) m->o->set_form(m->o, ROWS_DECODE);
    return queue(m, b, e);
}

status model_collect(model *m, const model_batch *b, err *e) {
    return in_parts(m, b) ? ST_OK : collect(m, b, e);
}
