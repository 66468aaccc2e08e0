/* runtime/ranks_media.c: a pass of the vision tower on the ranks of the first stage: each computes its share of the
 * items, whole ones, and gives their rows to the others when all are done. */
#include "runtime/follow.h"

typedef struct {
    const vision_input *items;
    i64 from, work;
    media_share *shares; /* [tp] */
    int threads;
} media_pass;

static u8 *media_rows_at(const rank *k, i64 row, u64 *row_bytes) {
    *row_bytes = (u64)k->config.hidden * dtype_size(k->backend.ops.act);
    return (u8 *)model_media_rows(k->model) + (u64)row * *row_bytes;
}

/* What an item takes: every patch meets the tower's weights and all patches of the item. */
static f64 item_work(const vision_input *in) {
    enum { WEIGHTS = 6500 /* columns of K2.5's products for a patch, counted in rows that it attends to */ };
    const f64 patches = (f64)vision_patches(in);
    return patches * (WEIGHTS + patches);
}

/* Items in their order, cut where a rank's share of the work is full. An item goes to whom its middle falls to. */
static void divide_items(ranks *r, const vision_input *items, i64 n, i64 from) {
    f64 all = 0, before = 0;
    for (i64 i = 0; i < n; i++) all += item_work(&items[i]);
    for (i64 i = 0, at = 0; i < r->tp; i++) {
        media_share *s = &r->media[i];
        *s = (media_share){.first = at, .from = from};
        for (; at < n; at++) {
            const f64 own = item_work(&items[at]);
            if (i + 1 < r->tp && (before + own / 2) * (f64)r->tp >= all * (f64)(i + 1)) break;
            before += own;
            from += vision_tokens(&items[at]);
        }
        s->n = at - s->first;
        s->to = from;
        s->done = !s->n;
    }
}

static status begin_rank_media(rank *k, void *ud, err *e) {
    const media_pass *m = ud;
    const media_share *s = &m->shares[k->place];
    u64 row_bytes;
    if (k->stage) return ST_OK;
    u8 *out = media_rows_at(k, s->from, &row_bytes);
    ops_set_threads(m->threads);
    return s->n ? vision_begin(k->vision, m->items + s->first, s->n, out, e) : ST_OK;
}

status ranks_begin_media(ranks *r, const vision_input *items, i64 n, i64 from, err *e) {
    media_pass m = {.items = items, .from = from, .shares = r->media, .threads = r->threads_each};
    status st = ST_OK;
    if (ranks_tell(r)) {
        wire_media(&r->told, items, n, from);
        st = ranks_send_told(r, e);
    }
    divide_items(r, items, n, from);
    if (st != ST_OK) return st;
    return ranks_each(r, begin_rank_media, &m, e);
}

static status advance_rank_media(rank *k, void *ud, err *e) {
    const media_pass *m = ud;
    (void)e;
    ops_set_threads(m->threads);
    media_share *s = &m->shares[k->place];
    if (!k->stage && !s->done) s->done = vision_advance(k->vision, m->work);
    return ST_OK;
}

/* Every rank has the rows of its own share: each share goes to all. */
static status share_rank_media(rank *k, void *ud, err *e) {
    const ranks *r = ud;
    u64 row_bytes;
    if (k->stage) return ST_OK;
    for (i64 i = 0; i < r->tp; i++) {
        const media_share *s = &r->media[i];
        u8 *rows = media_rows_at(k, s->from, &row_bytes);
        if (s->n) k->data->broadcast(k->data, rows, (u64)(s->to - s->from) * row_bytes, i);
    }
    return rank_finish(k, e);
}

status ranks_advance_media(ranks *r, i64 work, bool *done, err *e) {
    media_pass m = {.work = work, .shares = r->media, .threads = r->threads_each};
    status st = ST_OK;
    if (ranks_tell(r)) {
        wire_begin(&r->told, JOB_ADVANCE_MEDIA, work, 0);
        st = ranks_send_told(r, e);
    }
    if (st == ST_OK) st = ranks_each(r, advance_rank_media, &m, e);
    *done = true;
    for (i64 i = 0; i < r->held; i++) *done &= r->of[i].stage || r->media[r->of[i].place].done;
    if (st == ST_OK) st = ranks_share_done(r, done, e);
    return st == ST_OK && *done && r->tp > 1 ? ranks_each(r, share_rank_media, r, e) : st;
}
