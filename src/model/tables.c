#include "model/tables.h"
#include <string.h>

static u64 round8(u64 n) { return (n + 7) & ~(u64)7; }

u64 tables_results(const model_limits *l, i64 n) { return (u64)(2 * l->logit_rows + l->guesses + n) * sizeof(i32); }

/* Bytes before the page tables. */
static u64 fixed_bytes(const model_limits *l) {
    return round8(tables_results(l, l->rows)) + (u64)l->rows * sizeof(i64) + (u64)l->logit_rows * sizeof(sample_row) +
           (u64)l->copies * sizeof(kv_pair) +
           round8((u64)(4 * l->rows + l->decode_rows + 3 * l->logit_rows + 1) * sizeof(i32));
}

u64 tables_bytes(const model_limits *l) {
    return fixed_bytes(l) + (u64)(l->decode_rows + l->prefill_spans) * (u64)l->seq_pages * sizeof(i32);
}

batch_tables tables_at(const model_limits *l, void *block) {
    batch_tables t = {.drawn = block};
    t.guesses = t.drawn + l->logit_rows;
    t.bad_logits = t.guesses + l->guesses;
    t.bad = t.bad_logits + l->logit_rows;
    t.slots = (i64 *)((u8 *)block + round8(tables_results(l, l->rows)));
    t.copies = (kv_pair *)(t.slots + l->rows);
    t.draws = (sample_row *)(t.copies + l->copies);
    t.pos = (i32 *)(t.draws + l->logit_rows);
    t.ids = t.pos + l->rows;
    t.own = t.ids + l->rows;
    t.attends = t.own + l->rows;
    t.kv_len = t.attends + l->rows;
    t.tops = t.kv_len + l->decode_rows;
    t.next = t.tops + l->logit_rows;
    t.out_rows = t.next + l->logit_rows;
    t.n_copies = t.out_rows + l->logit_rows;
    t.pages = (i32 *)((u8 *)block + fixed_bytes(l));
    return t;
}

status copies_check(const model_limits *l, const kv_pair *all, i64 n, err *e) {
    if (n > l->copies)
        return err_set(e, ST_LIMIT, "%lld KV rows to copy, the plan allows %lld", (long long)n, (long long)l->copies);
    for (i64 i = 0; i < n; i++) {
        const i64 from = kv_owner(l->kv, (i32)(all[i].from / KV_PAGE)),
                  to = kv_owner(l->kv, (i32)(all[i].to / KV_PAGE));
        if (from != to)
            return err_set(e, ST_LIMIT, "KV row %lld of rank %lld is to be copied to row %lld of rank %lld",
                           (long long)all[i].from, (long long)from, (long long)all[i].to, (long long)to);
    }
    return ST_OK;
}

status tables_check(const model_limits *l, const model_batch *b, err *e) {
    if (b->n < 1 || b->n > l->rows)
        return err_set(e, ST_LIMIT, "a batch of %lld tokens, the plan allows %lld", (long long)b->n,
                       (long long)l->rows);
    if (b->n_out > l->logit_rows || b->n_out > b->n)
        return err_set(e, ST_LIMIT, "%lld rows of logits wanted, the plan allows %lld", (long long)b->n_out,
                       (long long)min_i64(l->logit_rows, b->n));
    status st = copies_check(l, b->copies, b->n_copies, e);
    if (st != ST_OK) return st;
    i64 next = 0, absorbed = 0, expanded = 0;
    for (i64 s = 0; s < b->n_spans; s++) {
        const model_span *p = &b->spans[s];
        if (p->first != next || p->n < 1 || p->pos0 < 0 || p->pos0 + p->n > l->seq_pages * KV_PAGE ||
            (p->absorbed && absorbed != next))
            return err_set(e, ST_LIMIT, "span %lld of the batch does not fit (rows %lld + %lld at position %lld)",
                           (long long)s, (long long)p->first, (long long)p->n, (long long)p->pos0);
        for (i64 k = 0; k < p->n_media; k++)
            if (p->absorbed || p->media[k].from < 0 || p->media[k].from + p->media[k].n > l->media_rows)
                return err_set(e, ST_LIMIT, "span %lld of the batch has media rows %lld + %lld, of %lld", (long long)s,
                               (long long)p->media[k].from, (long long)p->media[k].n, (long long)l->media_rows);
        next += p->n;
        if (p->absorbed)
            absorbed = next;
        else
            expanded++;
    }
    if (next != b->n || absorbed > l->decode_rows || expanded > l->prefill_spans)
        return err_set(e, ST_LIMIT, "the batch's spans cover %lld of %lld tokens, %lld in decode form", (long long)next,
                       (long long)b->n, (long long)absorbed);
    return ST_OK;
}

/* Row `row` of the page tables: the pages that cover `tokens` tokens. */
static void put_pages(const model_limits *l, batch_tables *t, i64 row, const model_span *p, i64 tokens) {
    const i64 n = ceil_div(tokens, KV_PAGE), own = p->branch ? min_i64(n, p->branch_from) : n;
    i32 *to = t->pages + row * l->seq_pages;
    if (!l->kv.by_sequence)
        memcpy(to, p->pages, (size_t)own * sizeof(i32));
    else
        for (i64 i = 0; i < own; i++) to[i] = kv_local_page(l->kv, p->pages[i]);
    for (i64 i = own; i < n; i++) to[i] = span_page(p, i); /* ranks that have a share come by put_own_pages() */
}

/* Row `row` of the page tables: those pages of `tokens` tokens that lie here. Returns how many of the tokens do: of
 * pages that are not full there is one, the last. */
static i64 put_own_pages(const model_limits *l, batch_tables *t, i64 row, const model_span *p, i64 tokens) {
    i64 own = 0, n = 0;
    if (!kv_is_shared(l->kv)) return put_pages(l, t, row, p, tokens), tokens;
    for (i64 i = 0; i * KV_PAGE < tokens; i++) {
        const i32 page = span_page(p, i);
        if (kv_owner(l->kv, page) != l->kv.rank) continue;
        t->pages[row * l->seq_pages + n++] = kv_local_page(l->kv, page);
        own += min_i64(KV_PAGE, tokens - i * KV_PAGE);
    }
    return own;
}

static i64 kv_slot_of(const model_limits *l, i32 page, i64 at) {
    return kv_owner(l->kv, page) == l->kv.rank ? (i64)kv_local_page(l->kv, page) * KV_PAGE + at : -1;
}

static void put_span(const model_limits *l, batch_tables *t, const model_span *p, i64 *n_abs) {
    const bool own = kv_owner(l->kv, span_page(p, 0)) == l->kv.rank;
    const i64 attends = kv_attends(l->kv, span_page(p, 0));
    for (i64 i = 0; i < p->n; i++) {
        i64 pos = p->pos0 + i, row = p->first + i;
        t->pos[row] = (i32)pos;
        t->own[row] = (i32)(own ? row : l->rows);
        t->attends[row] = (i32)attends;
        t->slots[row] = kv_slot_of(l, span_page(p, pos / KV_PAGE), pos % KV_PAGE);
        if (!p->absorbed) continue;
        t->kv_len[row] = (i32)put_own_pages(l, t, (*n_abs)++, p, pos + 1);
    }
}

static i64 slot_here(const model_limits *l, i64 slot) { return kv_slot_of(l, (i32)(slot / KV_PAGE), slot % KV_PAGE); }

i64 tables_own_copies(const model_limits *l, const kv_pair *all, i64 n, kv_pair *to) {
    i64 own = 0;
    for (i64 i = 0; i < n; i++) {
        const kv_pair p = {slot_here(l, all[i].from), slot_here(l, all[i].to)};
        if (p.from >= 0 && p.to >= 0) to[own++] = p;
    }
    return own;
}

u64 tables_fill(const model_limits *l, const model_batch *b, i64 ids, batch_tables *t, i64 *n_abs) {
    i64 n_expanded = 0;
    *n_abs = 0;
    for (i64 s = 0; s < b->n_spans; s++) {
        const model_span *p = &b->spans[s];
        put_span(l, t, p, n_abs);
        if (!p->absorbed) put_pages(l, t, *n_abs + n_expanded++, p, p->pos0 + p->n);
    }
    for (i64 i = 0; i < b->n; i++) t->ids[i] = b->ids[i] < 0 ? b->ids[i] : (i32)(b->ids[i] % ids);
    if (b->n_out) memcpy(t->out_rows, b->out_rows, (size_t)b->n_out * sizeof(i32));
    if (b->tops) memcpy(t->tops, b->tops, (size_t)b->n_out * sizeof(i32));
    if (b->tops) memcpy(t->next, b->next, (size_t)b->n_out * sizeof(i32));
    if (b->draws) memcpy(t->draws, b->draws, (size_t)b->n_out * sizeof *t->draws);
    *t->n_copies = (i32)tables_own_copies(l, b->copies, b->n_copies, t->copies);
    memset(t->bad, 0, (size_t)b->n * sizeof(i32));
    memset(t->bad_logits, 0, (size_t)b->n_out * sizeof(i32));
    return fixed_bytes(l) - (u64)(l->logit_rows + l->guesses) * sizeof(i32) +
           (u64)(*n_abs + n_expanded) * (u64)l->seq_pages * sizeof(i32);
}
