/* model/memory.c: a model's weights, KV cache and buffers: how much they need, and where they lie. */
#include "model/model_internal.h"
#include "base/buf.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

u64 model_kv_bytes(const model_config *c, i64 pages, dtype kv_type) {
    return (u64)pages * KV_PAGE * (u64)(c->kv_lora + c->rope) * dtype_size(kv_type) * (u64)c->n_layers;
}

const model_memory *model_memory_plan(const model *m) { return &m->memory; }

/* Heads of a call of attention in decode form. */
static i64 decode_heads(const model *m) { return m->c->n_heads * (kv_is_merged(m->lim.kv) ? m->lim.kv.ranks : 1); }

static i64 widest_ffn(const model_config *c) {
    i64 shared = c->inter_shared, dense = c->n_dense ? c->inter_dense : 0;
    return max_i64(max_i64(shared, dense), 1);
}

enum { PAIR_ROWS = 256 };
/* Rows whose experts' results are brought together one by one at a time. */
static i64 pairs_most(const model *m) {
    return model_spreads_experts(m) && m->lim.deterministic ? min_i64(m->lim.rows, PAIR_ROWS) : 0;
}

/* Rows that one rank draws, at most. */
static i64 drawn_most(const model *m) {
    const rank_seams *r = m->o->ranks;
    if (!model_ends(m->c)) return 0;
    return r && r->head ? ceil_div(m->lim.logit_rows, r->ranks) : m->lim.logit_rows;
}

/* The largest workspace that any call can ask for, in one form. Layers may differ in their formats, and so in their
 * needs. */
static u64 workspace_of_form(const model *m, i64 rows) {
    const model_config *c = m->c;
    mla_decode_args d = {.n = m->lim.decode_rows,
                         .n_heads = decode_heads(m),
                         .latent = c->kv_lora,
                         .rope = c->rope,
                         .kv_type = m->lim.kv_type,
                         .pages_stride = m->lim.seq_pages};
    const i64 drawn = drawn_most(m), vocab = model_vocab_there(c);
    sample_args s = {.n = drawn, .vocab = vocab};
    logprobs_args p = {.n = drawn, .vocab = vocab, .n_top = LOGPROBS_TOP};
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
        const i64 among = model_spreads_experts(m) ? c->n_experts : 0, pairs = min_i64(rows, pairs_most(m)) * c->top_k;
        moe_args e = {.experts = w->experts, .n = rows, .k = c->top_k, .among = among};
        moe_args one = {.experts = w->experts, .n = pairs, .k = 1, .among = among};
        u64 attn = m->o->mla_prefill_workspace(m->o, &f), moe = w->experts ? m->o->moe_workspace(m->o, &e) : 0;
        need = attn > need ? attn : need;
        need = moe > need ? moe : need;
        if (w->experts && pairs) moe = m->o->moe_workspace(m->o, &one);
        need = moe > need ? moe : need;
    }
    return need;
}

static u64 workspace_bytes(const model *m) {
    if (!model_runs_apart(m)) return workspace_of_form(m, m->lim.rows);
    m->o->set_row_mode(m->o, ROWS_DECODE);
    u64 decode = workspace_of_form(m, min_i64(m->lim.rows, DECODE_ROWS));
    m->o->set_row_mode(m->o, ROWS_PROMPT);
    u64 prompt = workspace_of_form(m, m->lim.rows);
    return decode > prompt ? decode : prompt;
}

typedef struct {
    void *slot;
    u64 count, size;
    const char *what;
} buffer;
enum { BUFFERS = 41 };

/* One line per buffer: who owns it is the pool. */
static void list_buffers(model *m, buffer out[BUFFERS]) {
    const model_config *c = m->c;
    const model_limits *l = &m->lim;
    u64 rows = (u64)l->rows, act = m->act_size, hidden = (u64)c->hidden, dec = (u64)l->decode_rows;
    u64 kv_width = (u64)(c->kv_lora + c->rope), heads = (u64)c->n_heads;
    u64 all_heads = kv_is_merged(l->kv) ? (u64)decode_heads(m) : 0, pages = all_heads ? (u64)l->seq_pages : 0;
    u64 apart = l->kv.by_sequence, spread = model_spreads_experts(m), k = (u64)max_i64(c->top_k, 1);
    u64 pairs = (u64)pairs_most(m) * k;
    const buffer all[] = {
        {&m->kv, m->kv_layer, (u64)c->n_layers, "KV cache"},
        {&m->inv_freq, (u64)c->rope / 2, sizeof(f64), "rotary frequencies"},
        {&m->x, rows * hidden, act, "activations"},
        {&m->h, rows * hidden, act, "activations"},
        {&m->delta, rows * hidden, act, "activations"},
        {&m->q_a, rows * (u64)max_i64(c->q_lora, 1), act, "activations"},
        {&m->q, rows * heads * (u64)(c->nope + c->rope), act, "activations"},
        {&m->kv_a, rows * kv_width, act, "activations"},
        {&m->attn, rows * heads * (u64)c->v_dim, act, "activations"},
        {&m->q_abs, dec * heads * kv_width, act, "activations"},
        {&m->attn_latent, dec * heads * (u64)c->kv_lora, act, "activations"},
        {&m->q_all, dec * all_heads * kv_width, act, "all ranks' queries"},
        {&m->parts, dec * all_heads * (u64)c->kv_lora, act, "parts of attention"},
        {&m->parts_lse, (dec + 1) * (apart ? heads : all_heads), sizeof(f32), "parts of attention"},
        {&m->attended, apart * (rows + 1) * hidden, act, "activations"},
        {&m->collected, pages * KV_PAGE * kv_width, dtype_size(l->kv_type), "collected KV pages"},
        {&m->in_order, pages, sizeof(i32), "collected KV pages"},
        {&m->features, rows * (u64)l->n_taps * hidden, act, "features for a draft"},
        {&m->media, model_begins(c) * (u64)l->media_rows * hidden, act, "rows of pictures"},
        {&m->inter, rows * (u64)widest_ffn(c), act, "activations"},
        {&m->shared, rows * hidden, act, "activations"},
        {&m->scores, rows * (u64)max_i64(c->n_experts, 1), sizeof(f32), "router scores"},
        {&m->expert_ids, rows * k, sizeof(i32), "routing"},
        {&m->expert_w, rows * k, sizeof(f32), "routing"},
        {&m->expert_routes, spread * (u64)(model_expert_layers(m) * c->n_experts), sizeof(i32), "routing"},
        {&m->expert_slots, spread * rows * k, sizeof(i32), "routing"},
        {&m->expert_counts, l->counts_experts * (u64)(model_expert_layers(m) * c->n_experts), sizeof(u32), "routing"},
        {&m->pairs.rows, pairs, sizeof(i32), "experts' pairs"},
        {&m->pairs.ones, pairs, sizeof(f32), "experts' pairs"},
        {&m->pairs.x, pairs * hidden, act, "experts' pairs"},
        {&m->pairs.y, pairs * hidden, act, "experts' pairs"},
        {&m->rope, rows * (u64)c->rope, sizeof(f32), "rotary table"},
        {&m->deferred.squares, (u64)DEFERRED_ROWS * DEFERRED_PARTS, sizeof(f32), "sums of squares"},
        {&m->tables, tables_bytes(l), 1, "a batch's tables"},
        {&m->logits, model_ends(c) * (u64)l->logit_rows * (u64)c->vocab_held, sizeof(f32), "logits"},
        {&m->whole, m->o->ranks && m->o->ranks->head ? (u64)(drawn_most(m) * model_vocab_there(c)) : 0, sizeof(f32),
         "logits"},
        {&m->masks, (u64)l->logit_rows * (u64)model_mask_words(m), sizeof(u64), "sets of tokens"},
        {&m->logprobs, (u64)l->logit_rows * (1 + LOGPROBS_TOP), sizeof(f32), "log-probabilities"},
        {&m->top_ids, (u64)l->logit_rows * LOGPROBS_TOP, sizeof(i32), "log-probabilities"},
        {&m->decode_plan, fused_mla_decode_plan_bytes(m->o), 1, "plan of attention"},
        {&m->workspace, m->workspace_bytes, 1, "workspace"},
    };
    _Static_assert(COUNT_OF(all) == BUFFERS, "every buffer");
    memcpy(out, all, sizeof all);
}

static status memory_refuse(const model *m, err *e) {
    const model_memory *r = &m->memory;
    char weights[BYTES_TEXT], kv[BYTES_TEXT], work[BYTES_TEXT], reserve[BYTES_TEXT], there[BYTES_TEXT];
    return err_set(
        e, ST_LIMIT,
        "weights of %s, a KV cache of %s for %lld tokens, working memory of %s and a reserve of %s do not fit "
        "in the %s free on %s: lower --max-total-tokens, --mem-fraction-static, --context-length or "
        "--chunked-prefill-size, or take --kv-cache-dtype fp8_e4m3",
        bytes_text(weights, r->weights.own), bytes_text(kv, r->kv), (long long)(m->lim.pool_pages * KV_PAGE),
        bytes_text(work, r->work), bytes_text(reserve, m->lim.reserve), bytes_text(there, m->lim.memory_max),
        m->mem.dev->name);
}

status model_plan(model *m, const model_limits *lim, err *e) {
    buffer all[BUFFERS];
    u64 total = 0, bytes;
    m->lim = *lim;
    m->kv_layer = model_kv_bytes(m->c, kv_local_pages(lim->kv, lim->pool_pages) + lim->branch_pages, lim->kv_type) /
                  (u64)m->c->n_layers;
    m->workspace_bytes = workspace_bytes(m);
    list_buffers(m, all);
    for (size_t i = 0; i < BUFFERS; i++) {
        if (!mul_size(all[i].count, all[i].size, &bytes) || !add_size(total, m->mem.dev->takes(bytes), &total))
            return err_nomem(e, all[i].what, UINT64_MAX);
        if (i == 0) m->memory.kv = total;
    }
    m->memory.work = total - m->memory.kv;
    if (!add_size(total, m->memory.weights.own, &total) || !add_size(total, lim->reserve, &total))
        return err_nomem(e, "the model", UINT64_MAX);
    return lim->memory_max && total > lim->memory_max ? memory_refuse(m, e) : ST_OK;
}

static status memory_allocate(model *m, err *e) {
    buffer all[BUFFERS];
    list_buffers(m, all);
    for (size_t i = 0; i < BUFFERS; i++) {
        void *p;
        status st = device_pool_add(&m->mem, &p, all[i].count, all[i].size, all[i].what, e);
        if (st != ST_OK) return st;
        memcpy(all[i].slot, &p, sizeof p);
    }
    if (!fused_mla_decode_plan_bytes(m->o)) m->decode_plan = NULL; /* no bytes have an address, too */
    m->tables_dev = tables_at(&m->lim, m->tables);
    m->pairs.most = pairs_most(m), m->pairs.dim = m->c->hidden;
    return ST_OK;
}

static status allocate_on_host(model *m, err *e) {
    void *block = calloc(1, tables_bytes(&m->lim));
    if (block) m->tables_host = tables_at(&m->lim, block);
    m->steps = calloc(RECORDINGS, sizeof *m->steps);
    m->met = calloc(RECORDINGS, sizeof *m->met);
    m->part_spans = calloc((size_t)(m->lim.decode_rows + m->lim.prefill_spans), sizeof *m->part_spans);
    m->part_outs = calloc((size_t)m->lim.logit_rows, sizeof *m->part_outs);
    if (!block || !m->steps || !m->met || !m->part_spans || !m->part_outs)
        return err_nomem(e, "a batch's tables", tables_bytes(&m->lim));
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < MODEL_REPLIES; i++)
        st = m->mem.dev->readback_open(m->mem.dev, model_readback_bytes(m), &m->readbacks[i], e);
    return st;
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

static status write_page_order(model *m, err *e) {
    const u64 bytes = (u64)m->lim.seq_pages * sizeof(i32);
    if (!kv_is_merged(m->lim.kv)) return ST_OK;
    i32 *order = malloc(bytes);
    if (!order) return err_nomem(e, "a page table", bytes);
    for (i64 i = 0; i < m->lim.seq_pages; i++) order[i] = (i32)i;
    m->mem.dev->write(m->mem.dev, m->in_order, order, bytes);
    free(order);
    return ST_OK;
}

/* Which row each pair is of, and ones. */
static status write_pairs(model *m, err *e) {
    const i64 k = m->c->top_k, n = m->pairs.most * k;
    const u64 bytes = (u64)n * sizeof(i32);
    if (!n) return ST_OK;
    i32 *rows = malloc(bytes);
    f32 *ones = malloc(bytes);
    for (i64 i = 0; rows && ones && i < n; i++) rows[i] = (i32)(i / k), ones[i] = 1;
    if (rows && ones) {
        m->mem.dev->write(m->mem.dev, (void *)(uintptr_t)m->pairs.rows, rows, bytes);
        m->mem.dev->write(m->mem.dev, (void *)(uintptr_t)m->pairs.ones, ones, bytes);
    }
    const status st = rows && ones ? ST_OK : err_nomem(e, "experts' pairs", 2 * bytes);
    free(rows);
    free(ones);
    return st;
}

status model_open(model **out, const model_config *c, const checkpoint *ck, const ops *o, device *dev, err *e) {
    *out = NULL;
    model *m = calloc(1, sizeof *m);
    if (!m) return err_nomem(e, "the model", sizeof *m);
    m->c = c;
    m->ck = ck;
    m->o = o;
    m->mem.dev = dev;
    m->act_size = dtype_size(o->act);
    m->softmax_scale = (f32)model_softmax_scale(c);
    m->rope_mscale = model_rope_mscale(c);
    const ops_widths widths = {.latent = c->kv_lora, .nope = c->nope, .rope = c->rope, .v_dim = c->v_dim};
    status st = o->fits ? o->fits(o, &widths, e) : ST_OK;
    if (st == ST_OK) st = model_weights_plan(&m->w, &m->memory.weights, c, ck, o, e);
    if (st != ST_OK) return model_close(m), st;
    *out = m;
    return ST_OK;
}

const tensor_info *const *model_reads(const model *m, u64 *n) {
    *n = m->w.n_reads;
    return m->w.reads;
}

status model_load(model *m, weight_reader *reader, bool verify, err *e) {
    u64 bytes = m->w.bytes;
    model_weights_free(&m->w);
    status st = model_weights_bind(&m->w, m->c, m->ck, reader, m->o, bytes, verify, e);
    if (st == ST_OK) st = memory_allocate(m, e);
    if (st == ST_OK) st = allocate_on_host(m, e);
    if (st == ST_OK) st = write_frequencies(m, e);
    if (st == ST_OK) st = write_page_order(m, e);
    if (st == ST_OK) st = model_open_placement(m, e);
    if (st == ST_OK) st = write_pairs(m, e);
    return st == ST_OK ? m->mem.dev->finish(m->mem.dev, e) : st;
}

void model_forget_steps(model *m) {
    for (i64 n = 0; m->steps && n < RECORDINGS; n++) {
        if (m->steps[n]) m->mem.dev->forget(m->mem.dev, m->steps[n]);
        m->steps[n] = NULL;
    }
}

void model_close(model *m) {
    if (!m) return;
    model_forget_steps(m);
    free(m->steps);
    free(m->met);
    free(m->part_spans);
    free(m->part_outs);
    model_weights_free(&m->w);
    model_close_placement(m);
    device_pool_free(&m->mem);
    for (int i = 0; i < MODEL_REPLIES; i++) m->mem.dev->readback_close(m->mem.dev, m->readbacks[i]);
    free(m->tables_host.drawn);
    free(m);
}
