/* runtime/seq.c: a token timeline that runs alone on an engine. */
#include "runtime/engine_internal.h"
#include <stdlib.h>

struct seq {
    engine *g;
    ids_buf tokens; /* with KV rows */
    i32 *pages;     /* [seq_pages] */
    i64 n_pages;
    f32 *logits;   /* [LOGIT_ROWS, vocab] */
    i32 *out_rows; /* [LOGIT_ROWS] */
    i32 *bad;      /* [rows] */
    const expert_watch *watch;
};

status seq_open(seq **out, engine *g, err *e) {
    *out = NULL;
    seq *s = calloc(1, sizeof *s);
    if (!s) return err_nomem(e, "a sequence", sizeof *s);
    s->g = g;
    s->pages = calloc((size_t)g->lim.seq_pages, sizeof *s->pages);
    s->logits = malloc((size_t)(LOGIT_ROWS * g->config.vocab) * sizeof *s->logits);
    s->out_rows = calloc(LOGIT_ROWS, sizeof *s->out_rows);
    s->bad = calloc((size_t)g->lim.rows, sizeof *s->bad);
    if (!s->pages || !s->logits || !s->out_rows || !s->bad) {
        seq_close(s);
        return err_nomem(e, "a sequence", (u64)(LOGIT_ROWS * g->config.vocab) * sizeof(f32));
    }
    *out = s;
    return ST_OK;
}

void seq_close(seq *s) {
    if (!s) return;
    seq_truncate(s, 0);
    ids_free(&s->tokens);
    free(s->pages);
    free(s->logits);
    free(s->out_rows);
    free(s->bad);
    free(s);
}

void seq_watch(seq *s, const expert_watch *w) { s->watch = w; }
i64 seq_len(const seq *s) { return (i64)s->tokens.len; }
const i32 *seq_tokens(const seq *s) { return s->tokens.data; }

void seq_truncate(seq *s, i64 n) {
    if (n < (i64)s->tokens.len) s->tokens.len = (size_t)n;
    s->tokens.failed = false;
    while (s->n_pages > ceil_div((i64)s->tokens.len, KV_PAGE)) kv_pages_unref(&s->g->pages, s->pages[--s->n_pages]);
}

/* Feeds n tokens (within the plan's rows) and hands out the wanted logits. */
static status run_chunk(seq *s, const i32 *ids, i64 n, bool absorbed, i64 n_out, seq_logits_fn fn, void *ud, err *e) {
    i64 pos0 = (i64)s->tokens.len;
    for (i64 i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->g->config.vocab)
            return err_set(e, ST_INPUT, "token id %d at position %lld is outside the vocabulary of %lld", ids[i],
                           (long long)(pos0 + i), (long long)s->g->config.vocab);
    while (s->n_pages * KV_PAGE < pos0 + n) {
        const i32 before = s->n_pages ? s->pages[s->n_pages - 1] : -1;
        i32 page = s->n_pages < s->g->lim.seq_pages ? kv_pages_take(&s->g->pages, before) : -1;
        if (page < 0) return err_set(e, ST_LIMIT, "the context of %lld tokens is full", (long long)s->g->context);
        s->pages[s->n_pages++] = page;
    }
    ids_append(&s->tokens, ids, (size_t)n);
    if (s->tokens.failed) {
        seq_truncate(s, pos0);
        return err_nomem(e, "token ids", (u64)n * 4);
    }
    for (i64 i = 0; i < n_out; i++) s->out_rows[i] = (i32)(n - n_out + i);
    model_span span = {.n = n, .pos0 = pos0, .pages = s->pages, .absorbed = absorbed};
    model_batch b = {.n = n,
                     .ids = ids,
                     .n_spans = 1,
                     .spans = &span,
                     .n_out = n_out,
                     .out_rows = s->out_rows,
                     .logits = s->logits,
                     .watch = s->watch,
                     .bad = s->bad};
    status st = engine_forward(s->g, &b, e);
    for (i64 i = 0; st == ST_OK && i < n; i++)
        if (s->bad[i]) st = engine_bad_row(s->bad[i], ids[i], pos0 + i, e);
    if (st != ST_OK) {
        seq_truncate(s, pos0);
        return st;
    }
    for (i64 i = 0; st == ST_OK && i < n_out; i++)
        st = fn(ud, pos0 + s->out_rows[i], s->logits + i * s->g->config.vocab, e);
    return st;
}

status seq_run(seq *s, const i32 *ids, i64 n, bool absorbed, seq_logits want, seq_logits_fn fn, void *ud, err *e) {
    i64 rows = absorbed ? s->g->lim.decode_rows : s->g->chunk;
    if (want == LOGITS_ALL) rows = min_i64(rows, LOGIT_ROWS);
    if ((i64)s->tokens.len + n > s->g->context)
        return err_set(e, ST_LIMIT, "%lld tokens do not fit in the context of %lld", (long long)s->tokens.len + n,
                       (long long)s->g->context);
    for (i64 i = 0; i < n; i += rows) {
        i64 part = min_i64(rows, n - i);
        i64 n_out = want == LOGITS_ALL ? part : want == LOGITS_LAST && i + part == n;
        status st = run_chunk(s, ids + i, part, absorbed, n_out, fn, ud, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}
