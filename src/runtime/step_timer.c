#include "runtime/step_timer.h"
#include "base/log.h"
#include "device/gpu.h"
#include "runtime/engine_internal.h"
#include "runtime/philox.h"
#include "runtime/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct step_timer {
    engine *g;
    i64 sequences, each; /* KV pages of a sequence */
    i32 *pages;          /* [sequences, each] */
    i32 *own;            /* [taken]: those of the pool that it took */
    i64 taken;
    i32 *ids, *bad, *out_rows;
    f32 *logits;
    sample_row *draws; /* [sequences * rows]: temperature 1; drawn on a GPU as in serving */
    i32 *next;         /* [sequences * rows] */
    draft_span *drafts;
    model_span *spans;
    const expert_watch *watch; /* of the step, or NULL */
    u64 seed;
    u32 drawn;
};

status step_timer_open(step_timer **out, engine *g, i64 sequences, i64 context, i64 most, u64 seed, err *e) {
    *out = NULL;
    i64 each = ceil_div(context, KV_PAGE), rows = g->lim.rows;
    const size_t outs = (size_t)(sequences * most);
    if (sequences > g->max_running || each > g->lim.seq_pages)
        return err_set(e, ST_LIMIT, "%lld sequences of %lld tokens: the engine takes %lld of %lld",
                       (long long)sequences, (long long)context, (long long)g->max_running, (long long)g->context);
    if (sequences * each > g->pages.n_free)
        return err_set(e, ST_LIMIT, "%lld sequences of %lld tokens need %lld KV pages, %lld are free",
                       (long long)sequences, (long long)context, (long long)(sequences * each),
                       (long long)g->pages.n_free);
    step_timer *m = calloc(1, sizeof *m);
    if (!m) return err_nomem(e, "a measurement", sizeof *m);
    *m = (step_timer){.g = g, .sequences = sequences, .each = each, .seed = seed};
    m->pages = calloc((size_t)(sequences * each), sizeof *m->pages);
    m->own = calloc((size_t)(sequences * each), sizeof *m->own);
    m->ids = calloc((size_t)rows, sizeof *m->ids);
    m->bad = calloc((size_t)rows, sizeof *m->bad);
    m->out_rows = calloc(outs, sizeof *m->out_rows);
    m->spans = calloc((size_t)sequences, sizeof *m->spans);
    m->logits = malloc(outs * (size_t)g->config.vocab * sizeof *m->logits);
    m->draws = calloc(outs, sizeof *m->draws);
    m->next = calloc(outs, sizeof *m->next);
    m->drafts = calloc((size_t)sequences, sizeof *m->drafts);
    if (!m->pages || !m->own || !m->ids || !m->bad || !m->out_rows || !m->spans || !m->logits || !m->draws ||
        !m->next || !m->drafts) {
        step_timer_close(m);
        return err_nomem(e, "a measurement", outs * (u64)g->config.vocab * sizeof(f32));
    }
    for (; m->taken < sequences * each; m->taken++) {
        m->own[m->taken] = kv_pages_take(&g->pages, m->taken % each ? m->own[m->taken - 1] : -1);
        if (m->own[m->taken] >= 0) continue;
        step_timer_close(m);
        return err_set(e, ST_LIMIT, "the KV pool of %lld tokens has no room for %lld sequences of %lld",
                       (long long)engine_kv_tokens(g), (long long)sequences, (long long)(each * KV_PAGE));
    }
    memcpy(m->pages, m->own, (size_t)m->taken * sizeof *m->pages);
    *out = m;
    return ST_OK;
}

status step_timer_stretch(step_timer *m, i64 context, err *e) {
    const i64 each = ceil_div(context, KV_PAGE), had = m->each;
    if (each > m->g->lim.seq_pages)
        return err_set(e, ST_LIMIT, "a sequence of %lld tokens: the engine takes %lld", (long long)context,
                       (long long)m->g->context);
    if (each <= had) return ST_OK;
    i32 *pages = calloc((size_t)(m->sequences * each), sizeof *pages);
    if (!pages) return err_nomem(e, "a measurement", (u64)(m->sequences * each) * sizeof *pages);
    for (i64 i = 0; i < m->sequences * each; i++) pages[i] = m->pages[i / each * had + min_i64(i % each, had - 1)];
    free(m->pages);
    m->pages = pages, m->each = each;
    return ST_OK;
}

void step_timer_close(step_timer *m) {
    if (!m) return;
    while (m->taken) kv_pages_unref(&m->g->pages, m->own[--m->taken]);
    free(m->pages);
    free(m->own);
    free(m->ids);
    free(m->bad);
    free(m->out_rows);
    free(m->spans);
    free(m->logits);
    free(m->draws);
    free(m->next);
    free(m->drafts);
    free(m);
}

static status step(step_timer *m, i64 n, i64 n_spans, i64 n_out, f64 *seconds, err *e) {
    for (i64 i = 0; i < n; i++) m->ids[i] = (i32)(philox_uniform(m->seed, 0, m->drawn++) * (f64)m->g->config.vocab);
    sampling p = sampling_default();
    p.temperature = 1;
    p.seed = m->seed;
    for (i64 i = 0; i < n_out; i++) m->draws[i] = sampler_row(&p, 1, m->drawn++);
    const model_batch b = {.n = n,
                           .ids = m->ids,
                           .n_spans = n_spans,
                           .spans = m->spans,
                           .n_out = n_out,
                           .out_rows = m->out_rows,
                           .logits = m->logits,
                           .draws = engine_backend(m->g)->gpu && !m->g->step ? m->draws : NULL,
                           .drawn = m->next,
                           .watch = m->watch,
                           .bad = m->bad};
    f64 began = now_s();
    status st = engine_forward(m->g, &b, e);
    *seconds = now_s() - began;
    for (i64 i = 0; st == ST_OK && i < n; i++)
        if (m->bad[i]) st = engine_bad_row(m->bad[i], m->ids[i], i, e);
    return st;
}

status step_timer_prompt(step_timer *m, i64 sequence, i64 pos0, i64 n, f64 *seconds, err *e) {
    m->spans[0] = (model_span){.n = n, .pos0 = pos0, .pages = m->pages + sequence * m->each};
    m->out_rows[0] = (i32)(n - 1);
    return step(m, n, 1, 1, seconds, e);
}

status step_timer_decode(step_timer *m, i64 sequences, i64 rows, i64 pos, f64 *seconds, err *e) {
    const i64 n = sequences * rows, shares = engine_sequence_ranks(m->g);
    i64 at = 0;
    for (i64 share = 0; share < shares; share++) /* as in serving, those of a rank stand together */
        for (i64 i = 0; i < sequences; i++) {
            const i32 *pages = m->pages + i * m->each;
            if (pages[0] % shares != share) continue;
            m->spans[at] = (model_span){.first = at * rows, .n = rows, .pos0 = pos, .pages = pages, .absorbed = true};
            at++;
        }
    for (i64 i = 0; i < n; i++) m->out_rows[i] = (i32)i;
    return step(m, n, sequences, n, seconds, e);
}

status step_timer_drafts(step_timer *m, i64 sequences, i64 rows, i64 pos, f64 *seconds, err *e) {
    for (i64 i = 0; i < sequences; i++)
        m->drafts[i] = (draft_span){.first = i * rows,
                                    .n = rows,
                                    .pos0 = pos,
                                    .following = m->ids + i * rows,
                                    .pages = m->pages + i * m->each,
                                    .guess = true,
                                    .branches = engine_guess_pages(m->g, min_i64(i, m->g->draft_lim.sequences - 1))};
    const i64 most = engine_draft_steps(m->g);
    const draft_batch b = {
        .n_spans = sequences, .spans = m->drafts, .steps = rows > 1 ? min_i64(rows - 1, most) : most};
    const f64 began = now_s();
    status st = engine_queue_drafts(m->g, &b, e);
    if (st == ST_OK) st = engine_collect_drafts(m->g, &b, e);
    *seconds = now_s() - began;
    return st;
}

enum { EXCHANGES = 50, EXCHANGE_RUNS = 5 };
typedef struct {
    rank *k;
    exchange_kind kind;
    u8 *x; /* whatever lies there */
    i64 n, ranks;
    op_weight *norm; /* of a sum's rows that are normed with it; NULL: the sum alone */
} exchanges_of;

/* Values of act that a row has in all parts of an exchange together. */
static i64 exchange_width(const exchanges_of *s) {
    const model_config *c = &s->k->config;
    switch (s->kind) {
    case EXCHANGE_QUERIES: return (s->ranks + 1) * c->n_heads * (c->kv_lora + c->rope);
    case EXCHANGE_PARTS: return (s->ranks + 1) * c->n_heads * c->kv_lora + 2 * s->ranks * c->n_heads;
    case EXCHANGE_SUM: break;
    }
    return (s->norm ? 3 : 1) * c->hidden;
}

static void queue_sum(const exchanges_of *s) {
    const i64 dim = s->k->config.hidden;
    bf16 *const x = (bf16 *)s->x, *const stream = x + s->n * dim;
    const norm_args norm = {.weight = s->norm,
                            .x = stream,
                            .add = x,
                            .sum = stream,
                            .out = stream + s->n * dim,
                            .n = s->n,
                            .dim = dim,
                            .x_stride = dim,
                            .out_stride = dim,
                            .eps = (f32)s->k->config.norm_eps};
    kept_rows kept = {0};
    if (s->norm)
        s->k->seams.reduce_norm(&s->k->backend.ops, &norm, NULL, &kept);
    else
        s->k->data->all_reduce(s->k->data, x, s->n * dim, DT_BF16);
}

/* A weight for norms that are timed. */
static status weight_of_ones(rank *k, op_weight **w, err *e) {
    const i64 dim = k->config.hidden;
    f32 *ones = malloc((size_t)dim * sizeof *ones);
    if (!ones) return err_nomem(e, "a weight", (u64)dim * sizeof *ones);
    for (i64 i = 0; i < dim; i++) ones[i] = 1;
    const weight_view view = {.format = WF_F32, .rows = 1, .cols = dim, .data = ones};
    const weight_desc desc = {.kind = WK_VECTOR, .views = &view, .n_views = 1};
    status st = k->backend.ops.weight_prepare(&k->backend.ops, &desc, w, e);
    free(ones);
    return st;
}

static void queue_exchange(const exchanges_of *s) {
    const model_config *c = &s->k->config;
    const ops *o = &s->k->backend.ops;
    const i64 q = c->n_heads * (c->kv_lora + c->rope), out = s->n * c->n_heads * c->kv_lora;
    bf16 *const x = (bf16 *)s->x;
    switch (s->kind) {
    case EXCHANGE_SUM: queue_sum(s); return;
    case EXCHANGE_QUERIES: s->k->seams.queries(o, x, x + s->n * q, s->n, q); return;
    case EXCHANGE_PARTS:
        s->k->seams.merge(o, &(merge_parts_args){.out = x,
                                                 .parts = x + out,
                                                 .lse = (f32 *)(x + (s->ranks + 1) * out),
                                                 .n = s->n,
                                                 .heads = c->n_heads,
                                                 .latent = c->kv_lora});
    }
}

static void queue_exchanges(void *ud) {
    for (int i = 0; i < EXCHANGES; i++) queue_exchange(ud);
}

status step_timer_exchange(step_timer *m, exchange_kind kind, i64 n, f64 *seconds, err *e) {
    rank *k = &m->g->ranks.of[0];
    device *dev = k->backend.device;
    exchanges_of s = {k, kind, NULL, n, m->g->lim.kv.ranks, NULL};
    device_recording *all = NULL;
    void *x = NULL;
    if (m->g->ranks.n > 1 || !k->data || !dev->record || (kind != EXCHANGE_SUM && !kv_is_shared(m->g->lim.kv)))
        return err_set(e, ST_INPUT, "exchanges are timed of one rank on a GPU that has them with itself");
    status st = ST_OK;
    const bool normed = kind == EXCHANGE_SUM && k->seams.reduce_norm;
    if (normed && n >= backend_norms_apart_from(&k->backend, k->data)) st = weight_of_ones(k, &s.norm, e);
    if (st == ST_OK) st = dev->alloc(dev, &x, (u64)(n * exchange_width(&s)) * sizeof(bf16), "rows to exchange", e);
    s.x = x;
    if (st == ST_OK) st = dev->record(dev, queue_exchanges, &s, &all, e);
    *seconds = INFINITY;
    for (int i = 0; st == ST_OK && i < EXCHANGE_RUNS; i++) {
        f64 began = now_s();
        dev->replay(dev, all);
        st = dev->finish(dev, e);
        if (st == ST_OK) st = rank_finish(k, e);
        *seconds = fmin(*seconds, (now_s() - began) / EXCHANGES);
    }
    if (all) dev->forget(dev, all);
    if (s.norm) k->backend.ops.weight_release(s.norm);
    dev->release(dev, x);
    return st;
}

enum { STAMPED_BLOCKS = 1 << 20, STAMPED_LAUNCHES = 4096 };

status step_timer_stamp(step_timer *m, bool on, err *e) {
    gpu *of = engine_backend(m->g)->gpu;
    if (!of || !engine_backend(m->g)->device->record)
        return err_set(e, ST_UNSUPPORTED, "blocks write down when they ran in steps that a GPU has recorded alone");
    model_forget_steps(engine_model(m->g));
    return gpu_stamp(of, on ? STAMPED_BLOCKS : 0, on ? STAMPED_LAUNCHES : 0, e);
}

status step_timer_stamps(step_timer *m, gpu_stamped_fn fn, void *ud, i64 *missed, err *e) {
    return gpu_stamps(engine_backend(m->g)->gpu, fn, ud, missed, e);
}

bool step_timer_divides(const step_timer *m, i64 n) {
    const rank *k = &m->g->ranks.of[0];
    return k->data && k->seams.share_rows && k->config.q_lora && !m->g->lim.kv.by_sequence &&
           n >= backend_divides_from(&k->backend, k->data);
}

/* Distinct ids among n, each in 0 .. experts - 1. there: [experts], all false, and again afterwards. */
static i64 distinct(const i32 *ids, i64 n, bool *there) {
    i64 count = 0;
    for (i64 i = 0; i < n; i++) count += !there[ids[i]], there[ids[i]] = true;
    for (i64 i = 0; i < n; i++) there[ids[i]] = false;
    return count;
}

typedef struct {
    expert_watch watch;
    const model_config *c;
    bool *there; /* [experts] for distinct() */
    measured_experts *out;
} expert_count;

static void count_layer(void *ud, i64 layer, i64 n) {
    expert_count *k = ud;
    measured_experts *out = k->out;
    const i64 met = distinct(k->watch.ids, n * k->c->top_k, k->there);
    (void)layer;
    out->least = min_i64(out->least, met), out->most = max_i64(out->most, met);
    out->mean += (f64)met / (f64)out->layers;
}

status step_timer_experts(step_timer *m, i64 sequences, i64 pos, measured_experts *out, err *e) {
    const model_config *c = &m->g->config;
    *out = (measured_experts){0};
    if (c->n_dense >= c->n_layers) return ST_OK;
    const i64 chosen = sequences * c->top_k;
    const f64 missed = pow(1 - (f64)c->top_k / (f64)c->n_experts, (f64)sequences);
    *out = (measured_experts){.layers = c->n_layers - c->n_dense,
                              .experts = c->n_experts,
                              .least = c->n_experts,
                              .uniform = (f64)c->n_experts * (1 - missed)};
    expert_count k = {.c = c, .out = out, .watch = {.seen = count_layer, .ud = &k}};
    f64 ignored;
    k.watch.ids = calloc((size_t)chosen, sizeof *k.watch.ids);
    k.there = calloc((size_t)c->n_experts, sizeof *k.there);
    m->watch = &k.watch;
    status st = k.watch.ids && k.there ? step_timer_decode(m, sequences, 1, pos, &ignored, e)
                                       : err_nomem(e, "the experts of a step", (u64)chosen * sizeof *k.watch.ids);
    m->watch = NULL;
    free(k.watch.ids);
    free(k.there);
    return st;
}
