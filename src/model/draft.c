/* model/draft.c: a pass of a draft: its tables, its launches, and the guesses that come back. */
#include "base/log.h"
#include "model/draft_internal.h"
#include <string.h>

/* ---- Tables ---- */

static i64 draft_slot_of(const draft_span *s, i64 pos) {
    return (i64)s->pages[pos / KV_PAGE] * KV_PAGE + pos % KV_PAGE;
}

static status pass_check(const draft *t, const draft_batch *b, err *e) {
    i64 guessing = 0, end = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        const draft_span *s = &b->spans[i];
        guessing += s->guess;
        if (s->guess && draft_is_tree(t) && !s->branches)
            return err_set(e, ST_LIMIT, "span %lld of the draft has no pages for branches", (long long)i);
        if (s->first < end || s->n < 1 || s->first + s->n > t->lim.rows || s->pos0 < 0 ||
            s->pos0 + s->n + (s->guess ? b->steps - 1 : 0) > t->lim.seq_pages * KV_PAGE)
            return err_set(e, ST_LIMIT, "span %lld of the draft does not fit (rows %lld + %lld at position %lld)",
                           (long long)i, (long long)s->first, (long long)s->n, (long long)s->pos0);
        end = s->first + s->n;
    }
    if (b->steps < 1 || b->steps > t->lim.steps || guessing > t->lim.sequences)
        return err_set(e, ST_LIMIT, "%lld guesses for %lld sequences, the plan allows %lld for %lld",
                       (long long)b->steps, (long long)guessing, (long long)t->lim.steps, (long long)t->lim.sequences);
    return ST_OK;
}

/* What guess g, from 0, of sequence i of n needs: its row stands behind the span's last by g. */
static void put_guesses(draft *t, const draft_span *s, i64 i, i64 n, i64 steps) {
    const i64 last = s->pos0 + s->n - 1, pages = ceil_div(last + steps, KV_PAGE);
    for (i64 g = 0; g < (draft_is_tree(t) ? 1 : steps); g++) {
        const i64 at = g * t->guess_rows + i;
        t->step_host.slots[at] = draft_slot_of(s, last + g);
        t->step_host.pos[at] = (i32)(last + g);
        t->step_host.kv_len[at] = (i32)(last + g + 1);
    }
    memcpy(t->step_host.pages + i * t->lim.seq_pages, s->pages, (size_t)pages * sizeof(i32));
    if (draft_is_tree(t)) draft_tree_tables(t, s, i, n, steps);
}

/* A piece: the next `rows` rows, from row `done` of span `span` on. */
typedef struct {
    i64 span, done;
    i64 rows, first, guessing; /* sequences [first, first + guessing) start from rows of it */
} draft_piece;

/* The rows of the piece to the host's tables; p goes on to the next. */
static void put_draft_rows(draft *t, const draft_batch *b, draft_piece *p) {
    const i64 ids = model_vocab_there(t->target->c);
    const draft_row_tables rows = draft_rows_at(t->row_block, p->rows);
    p->first += p->guessing;
    p->guessing = 0;
    for (i64 row = 0; row < p->rows; row++) {
        const draft_span *s = &b->spans[p->span];
        const i64 i = p->done++;
        rows.features[row] = (i32)(s->first + i);
        rows.ids[row] = s->following[i] < 0 ? s->following[i] : (i32)(s->following[i] % ids);
        rows.pos[row] = (i32)(s->pos0 + i);
        rows.slots[row] = draft_slot_of(s, s->pos0 + i);
        if (p->done < s->n) continue;
        p->guessing += s->guess;
        p->span++, p->done = 0;
    }
}

/* ---- Launches ---- */

typedef struct {
    draft *t;
    i64 n, steps;
} guess_pass;

static void queue_guesses(void *ud) {
    const guess_pass *p = ud;
    draft_forward_guesses(p->t, p->n, p->steps);
}

static i64 guessing_spans(const draft_batch *b) {
    i64 n = 0;
    for (i64 i = 0; i < b->n_spans; i++) n += b->spans[i].guess;
    return n;
}

/* Where the recording of a pass is, or will be; NULL: it has none. */
static device_recording **recording_of(const draft *t, i64 n, i64 steps) {
    const bool can = t->mem.dev->record && !t->lim.eager && n > 0 && n <= RECORDED && steps <= t->lim.steps;
    return can ? &t->recorded[n * (t->lim.steps + 1) + steps] : NULL;
}

static status record_guesses(draft *t, i64 n, i64 steps, err *e) {
    device_recording **r = recording_of(t, n, steps);
    if (!r || *r || t->unrecorded) return ST_OK;
    guess_pass pass = {t, n, steps};
    status st = t->mem.dev->record(t->mem.dev, queue_guesses, &pass, r, e);
    if (st != ST_NOMEM) return st;
    t->unrecorded = true;
    log_warn("%s (guesses of %lld sequences): this size and others not met before run launch by launch, slower",
             e->text, (long long)n);
    return ST_OK;
}

/* From a recording where there can be one. */
static status run_guesses(draft *t, i64 n, i64 steps, err *e) {
    device_recording **r = recording_of(t, n, steps);
    status st = record_guesses(t, n, steps, e);
    if (st != ST_OK) return st;
    if (r && *r)
        t->mem.dev->replay(t->mem.dev, *r);
    else
        queue_guesses(&(guess_pass){t, n, steps});
    return ST_OK;
}

/* All rows, piece by piece. */
static void queue_rows(draft *t, const draft_batch *b, i64 rows) {
    draft_piece p = {0};
    for (; rows > 0; rows -= p.rows) {
        p.rows = min_i64(rows, t->piece);
        put_draft_rows(t, b, &p);
        t->mem.dev->write(t->mem.dev, t->row_tables, t->row_block, draft_row_bytes(p.rows));
        const draft_row_tables there = draft_rows_at(t->row_tables, p.rows);
        draft_forward_rows(t, &there, p.rows, p.first, p.guessing);
    }
}

/* The tables of all guesses; returns how many rows the pass has. */
static i64 put_tables(draft *t, const draft_batch *b) {
    const i64 all = guessing_spans(b);
    i64 rows = 0;
    t->n_guessing = 0, t->steps = b->steps;
    *t->step_host.n_shared = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        rows += b->spans[i].n;
        if (!b->spans[i].guess) continue;
        t->step_host.live[t->n_guessing] = (i32)((rows - 1) % t->piece);
        put_guesses(t, &b->spans[i], t->n_guessing++, all, b->steps);
    }
    if (t->n_guessing)
        t->mem.dev->write(t->mem.dev, t->step_dev.slots, t->step_host.slots,
                          draft_step_fixed_bytes(&t->lim) + (u64)t->n_guessing * draft_page_bytes(&t->lim));
    return rows;
}

bool draft_records(const draft *t, const draft_batch *b) {
    device_recording **r = recording_of(t, guessing_spans(b), b->steps);
    return r && !*r && !t->unrecorded;
}

status draft_record(draft *t, const draft_batch *b, err *e) {
    if (t->o->set_row_mode) t->o->set_row_mode(t->o, ROWS_ANY);
    return record_guesses(t, guessing_spans(b), b->steps, e);
}

bool draft_fills_guesses(const draft *t) { return !draft_is_tree(t) && !t->w.ids; }

status draft_queue(draft *t, const draft_batch *b, err *e) {
    device *dev = t->mem.dev;
    status st = pass_check(t, b, e);
    if (st != ST_OK) return st;
    const i64 rows = put_tables(t, b);
    if (t->o->set_row_mode) t->o->set_row_mode(t->o, ROWS_ANY);
    queue_rows(t, b, rows);
    if (!t->n_guessing) return ST_OK;
    st = run_guesses(t, t->n_guessing, b->steps, e);
    if (draft_is_tree(t)) return draft_tree_send(t), st;
    const u64 bytes = (u64)(t->lim.steps * t->guess_rows) * sizeof(i32);
    dev->readback_add(dev, t->readback, 0, t->guesses, bytes);
    dev->readback_add(dev, t->readback, bytes, t->step_dev.bad, bytes);
    return st;
}

status draft_collect(draft *t, const draft_batch *b, err *e) {
    if (!t->n_guessing) return ST_OK;
    status st = t->mem.dev->readback_wait(t->mem.dev, t->readback, e);
    if (st == ST_OK && b->tree) draft_tree_collect(t, b->tree);
    if (st != ST_OK || !b->ids) return st;
    const i32 *guesses = (const i32 *)(const void *)t->readback->data;
    for (i64 i = 0; i < t->n_guessing; i++)
        for (i64 g = 0; g < t->steps; g++) {
            const i32 id = guesses[g * t->guess_rows + i];
            b->ids[i * t->steps + g] = t->w.ids ? t->w.ids[id] : id;
        }
    draft_drop_bad(t, b);
    return ST_OK;
}

void draft_drop_bad(const draft *t, const draft_batch *b) {
    const i32 *bad = (const i32 *)(const void *)t->readback->data + t->lim.steps * t->guess_rows;
    for (i64 i = 0; i < t->n_guessing; i++) {
        bool good = true;
        for (i64 g = 0; g < t->steps; g++) {
            good = good && !bad[g * t->guess_rows + i];
            if (!good) b->ids[i * t->steps + g] = -1;
        }
    }
}
