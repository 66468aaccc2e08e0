/* model/step.c: a batch from its tables to its results: queued, from a recording where there can be one, and
 * collected. */
#include "base/log.h"
#include "model/model_internal.h"
#include <math.h>
#include <string.h>

typedef struct {
    model *m;
    i64 n;
} decode_step;

static void queue_decode(void *ud) {
    const decode_step *s = ud;
    model_forward(s->m, &(model_batch){.n = s->n, .n_out = s->n}, s->n);
}

/* Is there no recording of n rows yet, room for it, and does it come often enough, this time counted? */
static bool step_is_due(const model *m, i64 n) {
    if (*model_recording(m, n) || m->unrecorded) return false;
    return n <= RECORDED_AT_ONCE || m->met[model_recording_at(m, n)] + 1 >= RECORDED_AFTER;
}

static status step_record(model *m, i64 n, err *e) {
    device *dev = m->mem.dev;
    status st = dev->record(dev, queue_decode, &(decode_step){m, n}, model_recording(m, n), e);
    if (st != ST_NOMEM) return st;
    m->unrecorded = true;
    log_warn("%s (%lld sequences): this size and others not met before run launch by launch, slower", e->text,
             (long long)n);
    return ST_OK;
}

/* Can there be a recording: decode form alone, the logits of every row wanted? Its launches depend on n alone; all else
 * is in the tables. */
static bool can_be_recorded(const model *m, const model_batch *b, i64 n_abs) {
    /* a later part of a batch keeps its features elsewhere */
    return m->mem.dev->record && !m->lim.eager && !b->watch && !m->features_at && n_abs == b->n && model_wants_all(b) &&
           b->n <= RECORDED;
}

/* Runs the step, from its recording where there can be one. */
static status run_step(model *m, const model_batch *b, i64 n_abs, err *e) {
    device *dev = m->mem.dev;
    const bool can = can_be_recorded(m, b, n_abs);
    status st = can && step_is_due(m, b->n) ? step_record(m, b->n, e) : ST_OK;
    if (st != ST_OK) return st;
    if (can && *model_recording(m, b->n)) {
        dev->replay(dev, *model_recording(m, b->n));
        return ST_OK;
    }
    if (can && b->n > RECORDED_AT_ONCE && !m->unrecorded) m->met[model_recording_at(m, b->n)]++;
    model_forward(m, b, n_abs);
    return ST_OK;
}

/* Logits of rows [from, to), of a share of the vocabulary: to their places in the whole one. Those that nobody has, of
 * a slice, can never be chosen. */
static void read_share(model *m, const model_batch *b, i64 from, i64 to) {
    const model_config *c = m->c;
    for (i64 row = from; row < to; row++) {
        f32 *out = b->logits + row * c->vocab;
        for (i64 id = model_vocab_there(c); !c->rank && id < c->vocab; id++) out[id] = -INFINITY;
        m->mem.dev->read(m->mem.dev, out + c->vocab_first, m->logits + row * c->vocab_held,
                         (u64)c->vocab_held * sizeof(f32));
    }
}

/* The wanted logits, in as few reads as there are runs of rows. */
static status read_logits(model *m, const model_batch *b, err *e) {
    if (!model_ends(m->c)) return ST_OK;
    const i64 vocab = m->c->vocab;
    bool any = false;
    for (i64 from = 0, to; from < b->n_out; from = to) {
        bool wanted = !b->draws || (b->keep && b->keep[from]);
        for (to = from + 1; to < b->n_out && (!b->draws || (b->keep && b->keep[to]) == wanted);) to++;
        if (wanted && m->c->vocab_held < vocab)
            read_share(m, b, from, to);
        else if (wanted)
            m->mem.dev->read(m->mem.dev, b->logits + from * vocab, m->logits + from * vocab,
                             (u64)((to - from) * vocab) * sizeof(f32));
        any = any || wanted;
    }
    return any ? m->mem.dev->finish(m->mem.dev, e) : ST_OK;
}

/* Waits for the results: tokens, logits, and the marks of rows with a NaN or an infinity. */
static status step_collect(model *m, const model_batch *b, err *e) {
    const device_readback *r = m->readbacks[b->reply];
    status st = m->mem.dev->readback_wait(m->mem.dev, r, e);
    if (st == ST_OK) st = read_logits(m, b, e);
    if (st != ST_OK) return st;
    const batch_tables t = tables_at(&m->lim, r->data);
    memcpy(b->bad, t.bad, (size_t)b->n * sizeof(i32));
    for (i64 i = 0; i < b->n_out; i++)
        if (t.bad_logits[i] && !b->bad[b->out_rows[i]]) b->bad[b->out_rows[i]] = t.bad_logits[i];
    if (b->draws) memcpy(b->drawn, t.drawn, (size_t)b->n_out * sizeof(i32));
    if (!b->tops) return ST_OK;
    const row_range own = model_drawn_rows(m, b->n_out);
    const i64 n = own.to - own.from, each = 1 + b->top_most, at = own.from * each, top = own.from * b->top_most;
    memcpy(b->logprobs + at, (f32 *)(void *)(r->data + model_logprobs_at(m)) + at, (size_t)(n * each) * sizeof(f32));
    memcpy(b->top_ids + top, (i32 *)(void *)(r->data + model_top_ids_at(m)) + top,
           (size_t)(n * b->top_most) * sizeof(i32));
    return ST_OK;
}

static void send_results(model *m, const model_batch *b) {
    device *dev = m->mem.dev;
    device_readback *r = m->readbacks[b->reply];
    dev->readback_add(dev, r, 0, m->tables_dev.drawn, tables_results(&m->lim, b->n));
    if (!b->tops) return;
    dev->readback_add(dev, r, model_logprobs_at(m), m->logprobs, (u64)(b->n_out * (1 + b->top_most)) * sizeof(f32));
    dev->readback_add(dev, r, model_top_ids_at(m), m->top_ids, (u64)(b->n_out * b->top_most) * sizeof(i32));
}

/* Of all masks those of the rows that are drawn here. Their numbers ascend with the rows. */
static void send_masks(model *m, const model_batch *b) {
    const row_range own = model_drawn_rows(m, b->n_out);
    i64 first = 0, end = 0;
    for (i64 i = own.from; i < own.to; i++) {
        if (!b->draws[i].mask) continue;
        if (!first) first = b->draws[i].mask;
        end = b->draws[i].mask + 1;
    }
    if (!first) return;
    const i64 words = model_mask_words(m), at = (first - 1) * words;
    m->mem.dev->write(m->mem.dev, m->masks + at, b->masks + at, (u64)((end - first) * words) * sizeof *m->masks);
}

static void queue_draw(model *m, const model_batch *b) {
    const bool here = b->n_out && model_ends(m->c);
    if (here && b->draws && b->masks) send_masks(m, b);
    if (here) model_draw(m, b);
    if (here && b->tops) model_logprobs(m, b);
    send_results(m, b);
}

bool model_reads_together(const model *m, i64 each, i64 rows, i64 tokens) {
    return each > 1 && each <= GROUP_MOST && fused_mla_groups_pay(m->o, m->c->n_heads, rows, tokens, m->lim.kv_type);
}

/* Rows of each sequence in decode form, if all have as many and had better be read together; else 1. */
static i64 rows_each(const model *m, const model_batch *b) {
    const i64 first = b->n_spans && b->spans[0].absorbed ? b->spans[0].n : 1;
    i64 rows = 0, tokens = 0;
    for (i64 s = 0; s < b->n_spans; s++) {
        const model_span *p = &b->spans[s];
        if (!p->absorbed) continue;
        if (p->n != first) return 1;
        rows += p->n, tokens += p->n * (p->pos0 + p->n);
    }
    return model_reads_together(m, first, rows, tokens) ? first : 1;
}

/* Which recording it is, beside how many rows. */
static void set_kind(model *m, const model_batch *b) {
    m->group = rows_each(m, b);
    m->branched = b->n_copies > 0;
}

static status queue(model *m, const model_batch *b, err *e) {
    i64 n_abs;
    set_kind(m, b);
    u64 bytes = tables_fill(&m->lim, b, model_vocab_there(m->c), &m->tables_host, &n_abs);
    m->mem.dev->write(m->mem.dev, m->tables_dev.bad_logits, m->tables_host.bad_logits, bytes);
    status st = run_step(m, b, n_abs, e);
    if (st == ST_OK && !b->late_draw) queue_draw(m, b);
    return st;
}

/* Rows [from, to) of b as a batch of their own. */
static model_batch step_part_of(model *m, const model_batch *b, i64 from, i64 to) {
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
    p.watch = NULL;
    p.out_rows = m->part_outs, p.n_out = 0;
    for (i64 o = out; o < b->n_out && b->out_rows[o] < to; o++) m->part_outs[p.n_out++] = b->out_rows[o] - (i32)from;
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
    return model_runs_apart(m) && (absorbed_rows(b) < b->n || b->n > DECODE_ROWS);
}

/* Rows in decode form, so many at a time as one set of kernels takes; then the rows of prompts. */
static status run_parts(model *m, const model_batch *b, err *e) {
    i64 n_abs = absorbed_rows(b);
    status st = ST_OK;
    for (i64 from = 0, to; st == ST_OK && from < b->n; from = to) {
        bool decode = from < n_abs;
        to = decode ? min_i64(n_abs, from + DECODE_ROWS) : b->n;
        m->o->set_row_mode(m->o, decode ? ROWS_DECODE : ROWS_PROMPT);
        const model_batch part = step_part_of(m, b, from, to);
        m->features_at = from;
        st = queue(m, &part, e);
        if (st == ST_OK) st = step_collect(m, &part, e);
    }
    m->features_at = 0;
    return st;
}

void *model_media_rows(const model *m) { return m->media; }

i64 model_ahead_rows(const model *m) { return model_runs_apart(m) ? DECODE_ROWS : m->lim.decode_rows; }

i32 *model_guesses(const model *m) { return m->tables_dev.guesses; }

status model_check(const model *m, const model_batch *b, err *e) { return tables_check(&m->lim, b, e); }

bool model_records(model *m, const model_batch *b) {
    set_kind(m, b);
    return !in_parts(m, b) && can_be_recorded(m, b, absorbed_rows(b)) && step_is_due(m, b->n);
}

status model_record(model *m, const model_batch *b, err *e) {
    if (!model_records(m, b)) return ST_OK;
    if (model_runs_apart(m)) m->o->set_row_mode(m->o, ROWS_DECODE);
    return step_record(m, b->n, e);
}

/* What runs in parts has its results already; if it draws late, it has not begun. */
status model_queue(model *m, const model_batch *b, err *e) {
    status st = model_check(m, b, e);
    if (st != ST_OK) return st;
    if (in_parts(m, b)) return b->late_draw ? ST_OK : run_parts(m, b, e);
    if (model_runs_apart(m)) m->o->set_row_mode(m->o, ROWS_DECODE);
    return queue(m, b, e);
}

status model_queue_draw(model *m, const model_batch *b, err *e) {
    model_batch whole = *b;
    whole.late_draw = false;
    if (in_parts(m, b)) return run_parts(m, &whole, e);
    /* how each row is drawn has been sent with the tables; of a row with a mask, which one is known now */
    memcpy(m->tables_host.draws, b->draws, (size_t)b->n_out * sizeof *b->draws);
    m->mem.dev->write(m->mem.dev, m->tables_dev.draws, m->tables_host.draws, (u64)b->n_out * sizeof *b->draws);
    queue_draw(m, b);
    return ST_OK;
}

status model_copy_kv(model *m, const kv_pair *pairs, i64 n, err *e) {
    status st = copies_check(&m->lim, pairs, n, e);
    if (st != ST_OK) return st;
    kv_pair *const own = m->tables_host.copies;
    const i32 count = (i32)tables_own_copies(&m->lim, pairs, n, own);
    if (!count) return ST_OK;
    m->mem.dev->write(m->mem.dev, m->tables_dev.copies, own, (u64)count * sizeof *own);
    m->mem.dev->write(m->mem.dev, m->tables_dev.n_copies, &count, sizeof count);
    model_copy_rows(m, m->kv, m->c->n_layers);
    return ST_OK;
}

kv_rows model_kv_page(const model *m, i32 page, i64 layer) {
    const u64 bytes = model_kv_bytes(m->c, 1, m->lim.kv_type) / (u64)m->c->n_layers;
    return (kv_rows){(u8 *)m->kv + (u64)layer * m->kv_layer + (u64)kv_local_page(m->lim.kv, page) * bytes, bytes};
}

status model_collect(model *m, const model_batch *b, err *e) { return in_parts(m, b) ? ST_OK : step_collect(m, b, e); }
