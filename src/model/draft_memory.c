/* model/draft_memory.c: a draft's weights, KV cache and buffers: how much they need, and where they lie. */
#include "base/buf.h"
#include "base/log.h"
#include "model/draft_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAFT_PIECE = 1024 };

u64 draft_kv_bytes(const draft_config *d, i64 pages, dtype kv_type) {
    return (u64)pages * KV_PAGE * (u64)draft_kv_width(d) * dtype_size(kv_type);
}

const model_memory *draft_memory_plan(const draft *t) { return &t->memory; }

u64 draft_page_bytes(const draft_limits *l) {
    return (u64)(l->topk > 1 ? 1 + l->topk : 1) * (u64)l->seq_pages * sizeof(i32);
}

/* Most KV rows that branches share. */
static i64 shared_rows(const draft_limits *l) { return l->topk > 1 ? draft_guess_rows(l) * KV_PAGE : 0; }

u64 draft_step_fixed_bytes(const draft_limits *l) {
    const u64 each = (u64)(l->steps * draft_guess_rows(l));
    return (each * (sizeof(i64) + 3 * sizeof(i32)) + (u64)shared_rows(l) * sizeof(kv_pair) +
            (u64)(l->sequences + 1) * sizeof(i32) + 7) &
           ~(u64)7;
}

u64 draft_step_bytes(const draft_limits *l) {
    return (draft_step_fixed_bytes(l) + (u64)l->sequences * draft_page_bytes(l) + 7) & ~(u64)7;
}

draft_step_tables draft_steps_at(const draft_limits *l, void *block) {
    const i64 each = l->steps * draft_guess_rows(l);
    draft_step_tables t = {.slots = block};
    t.shared = (kv_pair *)(t.slots + each);
    t.bad = (i32 *)(t.shared + shared_rows(l));
    t.pos = t.bad + each;
    t.kv_len = t.pos + each;
    t.live = t.kv_len + each;
    t.n_shared = t.live + l->sequences;
    t.pages = (i32 *)((u8 *)block + draft_step_fixed_bytes(l));
    return t;
}

u64 draft_row_bytes(i64 rows) { return (u64)rows * (sizeof(i64) + 3 * sizeof(i32)); }

draft_row_tables draft_rows_at(void *block, i64 rows) {
    draft_row_tables t = {.slots = block};
    t.features = (i32 *)(t.slots + rows);
    t.ids = t.features + rows;
    t.pos = t.ids + rows;
    return t;
}

static i64 draft_drawn_most(const draft *t) {
    const rank_seams *r = t->o->ranks;
    const i64 rows = draft_guess_rows(&t->lim);
    return r && r->head ? ceil_div(rows, r->ranks) : rows;
}

static u64 draft_workspace_bytes(const draft *t) {
    const model_config *c = t->c;
    const mla_decode_args d = {.n = draft_guess_rows(&t->lim),
                               .n_heads = c->n_heads,
                               .latent = c->kv_lora,
                               .rope = c->rope,
                               .kv_type = t->lim.kv_type,
                               .pages_stride = t->lim.seq_pages};
    const heads_decode_args h = {.n = draft_guess_rows(&t->lim),
                                 .n_heads = c->n_heads,
                                 .kv_heads = t->d->kv_heads,
                                 .dim = c->rope,
                                 .kv_type = t->lim.kv_type,
                                 .pages_stride = t->lim.seq_pages};
    const sample_args s = {.n = draft_drawn_most(t), .vocab = model_vocab_there(c)};
    const logprobs_args p = {.n = draft_drawn_most(t), .vocab = model_vocab_there(c), .n_top = t->lim.topk};
    if (t->o->set_row_mode) t->o->set_row_mode(t->o, ROWS_ANY);
    const u64 attend = t->d->layout == DRAFT_MLA ? t->o->mla_decode_workspace(t->o, &d)
                                                 : t->o->heads_decode_workspace(t->o, &h),
              sample = draft_is_tree(t) ? t->o->logprobs_workspace(t->o, &p) : t->o->sample_workspace(t->o, &s);
    return attend > sample ? attend : sample;
}

typedef struct {
    void *slot;
    u64 count, size;
    const char *what;
} buffer;
enum { DRAFT_BUFFERS = 33 };

/* One line per buffer: who owns it is the pool. */
static void draft_buffers(draft *t, buffer out[DRAFT_BUFFERS]) {
    const model_config *c = t->c;
    const draft_limits *l = &t->lim;
    const u64 tree = draft_is_tree(t), k = (u64)l->topk, rows = (u64)t->piece, seqs = (u64)draft_guess_rows(l),
              act = t->act_size, hidden = (u64)c->hidden, heads = (u64)c->n_heads, width = (u64)draft_kv_width(t->d),
              steps = (u64)l->steps;
    const buffer all[] = {
        {&t->kv, draft_kv_bytes(t->d, l->pool_pages, l->kv_type), 1, "the draft's KV cache"},
        {&t->inv_freq, (u64)c->rope / 2, sizeof(f64), "rotary frequencies"},
        {&t->features, rows * (u64)t->d->n_taps * hidden, act, "the draft's activations"},
        {&t->embedded, max_i64(t->piece, draft_guess_rows(l)) * c->hidden, act, "the draft's activations"},
        {&t->x, rows * hidden, act, "the draft's activations"},
        {&t->in, rows * 2 * hidden, act, "the draft's activations"},
        {&t->kv_a, (u64)max_i64(t->piece, draft_guess_rows(l)) * width, act, "the draft's activations"},
        {&t->rope, rows * (u64)c->rope, sizeof(f32), "rotary table"},
        {&t->seq_x, seqs * hidden, act, "the draft's activations"},
        {&t->seq_in, seqs * 2 * hidden, act, "the draft's activations"},
        {&t->h, seqs * hidden, act, "the draft's activations"},
        {&t->delta, seqs * hidden, act, "the draft's activations"},
        {&t->q_a, seqs * (u64)max_i64(c->q_lora, 1), act, "the draft's activations"},
        {&t->q, seqs * heads * (u64)(c->nope + c->rope), act, "the draft's activations"},
        {&t->q_abs, seqs * heads * (u64)(c->kv_lora + c->rope), act, "the draft's activations"},
        {&t->attn_latent, seqs * heads * (u64)max_i64(c->kv_lora, 1), act, "the draft's activations"},
        {&t->attn, seqs * heads * (u64)c->v_dim, act, "the draft's activations"},
        {&t->inter, seqs * (u64)c->inter_dense, act, "the draft's activations"},
        {&t->seq_rope, seqs * (u64)c->rope, sizeof(f32), "rotary table"},
        {&t->logits, seqs * (u64)c->vocab_held, sizeof(f32), "the draft's logits"},
        {&t->whole, t->o->ranks && t->o->ranks->head ? (u64)(draft_drawn_most(t) * model_vocab_there(c)) : 0,
         sizeof(f32), "the draft's logits"},
        {&t->greedy, seqs, sizeof(sample_row), "the draft's tables"},
        {&t->map, t->w.ids ? (u64)c->vocab : 0, sizeof(i32), "the draft's ids"},
        {&t->top_ids, tree * steps * seqs * k, sizeof(i32), "the draft's guesses"},
        {&t->logprobs, tree * steps * seqs * (1 + k), sizeof(f32), "the draft's guesses"},
        {&t->chosen, tree * steps * seqs, sizeof(i32), "the draft's guesses"},
        {&t->from, tree * seqs, sizeof(i32), "the draft's guesses"},
        {&t->scores, tree * seqs, sizeof(f32), "the draft's guesses"},
        {&t->tops, tree * seqs, sizeof(i32), "the draft's guesses"},
        {&t->any, tree * seqs, sizeof(i32), "the draft's guesses"},
        {&t->pairs, tree * steps * seqs, sizeof(kv_pair), "the draft's guesses"},
        {&t->workspace, t->workspace_bytes, 1, "the draft's workspace"},
        {&t->tables, steps * seqs * sizeof(i32) + 8 + draft_step_bytes(l) + draft_row_bytes(t->piece), 1,
         "the draft's tables"},
    };
    _Static_assert(COUNT_OF(all) == DRAFT_BUFFERS, "every buffer");
    memcpy(out, all, sizeof all);
}

status draft_open(draft **out, const draft_config *d, const checkpoint *ck, model *target, err *e) {
    *out = NULL;
    draft *t = calloc(1, sizeof *t);
    if (!t) return err_nomem(e, "the draft", sizeof *t);
    char embedding[64];
    snprintf(embedding, sizeof embedding, "%smodel.embed_tokens.weight", target->c->prefix);
    t->d = d;
    t->c = &d->layer;
    t->ck = ck;
    t->target = target;
    t->o = target->o;
    t->mem.dev = target->mem.dev;
    t->act_size = target->act_size;
    t->softmax_scale = (f32)draft_softmax_scale(d);
    t->rope_mscale = model_rope_mscale(t->c);
    const bool latent = d->layout == DRAFT_MLA;
    const ops_widths widths = {.latent = t->c->kv_lora,
                               .nope = t->c->nope,
                               .rope = latent ? t->c->rope : 0,
                               .v_dim = latent ? t->c->v_dim : 0,
                               .dim = latent ? 0 : t->c->rope};
    status st = t->o->fits ? t->o->fits(t->o, &widths, e) : ST_OK;
    if (st == ST_OK) st = draft_weights_plan(&t->w, &t->memory.weights, d, ck, target->ck, embedding, t->o, e);
    if (st != ST_OK) return draft_close(t), st;
    *out = t;
    return ST_OK;
}

status draft_plan(draft *t, const draft_limits *lim, err *e) {
    buffer all[DRAFT_BUFFERS];
    u64 total = 0, bytes;
    t->lim = *lim;
    t->lim.topk = max_i64(lim->topk, 1);
    t->piece = min_i64(lim->rows, DRAFT_PIECE);
    t->guess_rows = draft_guess_rows(&t->lim);
    t->workspace_bytes = draft_workspace_bytes(t);
    draft_buffers(t, all);
    for (size_t i = 0; i < DRAFT_BUFFERS; i++) {
        if (!mul_size(all[i].count, all[i].size, &bytes) || !add_size(total, t->mem.dev->takes(bytes), &total))
            return err_nomem(e, all[i].what, UINT64_MAX);
        if (i == 0) t->memory.kv = total;
    }
    t->memory.work = total - t->memory.kv;
    return ST_OK;
}

static status draft_allocate(draft *t, err *e) {
    buffer all[DRAFT_BUFFERS];
    draft_buffers(t, all);
    for (size_t i = 0; i < DRAFT_BUFFERS; i++) {
        void *p;
        status st = device_pool_add(&t->mem, &p, all[i].count, all[i].size, all[i].what, e);
        if (st != ST_OK) return st;
        memcpy(all[i].slot, &p, sizeof p);
    }
    u8 *block = t->tables;
    t->step_dev = draft_steps_at(&t->lim, block);
    t->row_tables = block + draft_step_bytes(&t->lim);
    t->guesses = draft_fills_guesses(t)
                     ? model_guesses(t->target)
                     : (i32 *)(void *)(block + draft_step_bytes(&t->lim) + draft_row_bytes(t->piece));
    block = calloc(1, draft_step_bytes(&t->lim));
    if (block) t->step_host = draft_steps_at(&t->lim, block);
    t->row_block = calloc(1, draft_row_bytes(t->piece));
    t->recorded = calloc((size_t)((RECORDED + 1) * (t->lim.steps + 1)), sizeof *t->recorded);
    if (!block || !t->row_block || !t->recorded) return err_nomem(e, "the draft's tables", draft_step_bytes(&t->lim));
    const u64 bytes =
        draft_is_tree(t) ? draft_tree_bytes(&t->lim) : 2 * (u64)(t->lim.steps * t->guess_rows) * sizeof(i32);
    return t->mem.dev->readback_open(t->mem.dev, bytes, &t->readback, e);
}

/* Rotary frequencies, how guesses are drawn, and the model's ids of the draft's. */
static status write_constants(draft *t, err *e) {
    device *dev = t->mem.dev;
    const u64 freq_bytes = (u64)t->c->rope / 2 * sizeof(f64), row_bytes = (u64)t->lim.sequences * sizeof(sample_row);
    f64 *freq = malloc(freq_bytes);
    i32 *tops = calloc((size_t)t->guess_rows, sizeof *tops);
    sample_row *rows = calloc(1, row_bytes);
    status st = freq && rows && tops ? ST_OK : err_nomem(e, "rotary frequencies", freq_bytes);
    if (st == ST_OK) {
        model_inv_freq(t->c, freq);
        for (i64 i = 0; i < t->lim.sequences; i++) rows[i].top_p = (u64)1 << SAMPLE_BITS;
        dev->write(dev, t->inv_freq, freq, freq_bytes);
        dev->write(dev, t->greedy, rows, row_bytes);
        for (i64 i = 0; i < t->guess_rows; i++) tops[i] = (i32)t->lim.topk;
        if (draft_is_tree(t)) dev->write(dev, t->tops, tops, (u64)t->guess_rows * sizeof *tops);
        if (t->w.ids) dev->write(dev, t->map, t->w.ids, (u64)t->c->vocab * sizeof(i32));
    }
    free(freq);
    free(rows);
    free(tops);
    return st;
}

status draft_load(draft *t, err *e) {
    char embedding[64];
    const u64 bytes = t->w.of.bytes;
    snprintf(embedding, sizeof embedding, "%smodel.embed_tokens.weight", t->target->c->prefix);
    draft_weights_free(&t->w);
    status st = draft_weights_bind(&t->w, t->d, t->ck, t->target->ck, embedding, t->o, bytes, e);
    if (st == ST_OK) st = draft_allocate(t, e);
    if (st == ST_OK) st = write_constants(t, e);
    return st == ST_OK ? t->mem.dev->finish(t->mem.dev, e) : st;
}

kv_rows draft_kv_page(const draft *t, i32 page) {
    const u64 bytes = draft_kv_bytes(t->d, 1, t->lim.kv_type);
    return (kv_rows){(u8 *)t->kv + (u64)page * bytes, bytes};
}

void draft_close(draft *t) {
    if (!t) return;
    for (i64 i = 0; t->recorded && i < (RECORDED + 1) * (t->lim.steps + 1); i++)
        if (t->recorded[i]) t->mem.dev->forget(t->mem.dev, t->recorded[i]);
    free(t->recorded);
    draft_weights_free(&t->w);
    device_pool_free(&t->mem);
    t->mem.dev->readback_close(t->mem.dev, t->readback);
    free(t->step_host.slots);
    free(t->row_block);
    free(t);
}
