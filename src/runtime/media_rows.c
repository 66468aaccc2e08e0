/* runtime/media_rows.c: pictures on their way into prompts: whose turn it is in the vision tower, where its rows lie,
 * and how long they stay.
 *
 * A prompt runs up to its first picture that is not on the device yet. A pass of the tower takes the next pictures of
 * the prompts that run, oldest first, as many as fit, and goes on by a piece with each step, beside the answers.
 * Rows stay after their use, for others that show the same, until room is needed. What has a place is always the next
 * that its prompt runs, so that places come free again. */
#include "runtime/scheduler_internal.h"
#include <stdlib.h>
#include <string.h>

static i64 item_tokens_of(const media_place *p) { return media_item_tokens(p->item); }

/* ---- Places ---- */

static media_place *find_place(const media_rows *m, const media_item *item) {
    for (i64 i = 0; i < m->n; i++)
        if (media_item_key(m->places[i]->item) == media_item_key(item) &&
            item_tokens_of(m->places[i]) == media_item_tokens(item))
            return m->places[i];
    return NULL;
}

static void drop_place(media_rows *m, i64 i) {
    media_item_release(m->places[i]->item);
    free(m->places[i]);
    memmove(m->places + i, m->places + i + 1, (size_t)(--m->n - i) * sizeof *m->places);
}

/* Of those that nobody needs, the one that was used longest ago; false: there is none. */
static bool drop_oldest(media_rows *m) {
    i64 oldest = -1;
    for (i64 i = 0; i < m->n; i++)
        if (!m->places[i]->users && m->places[i]->ready && (oldest < 0 || m->places[i]->used < m->places[oldest]->used))
            oldest = i;
    if (oldest >= 0) drop_place(m, oldest);
    return oldest >= 0;
}

/* The first gap of n rows; -1: there is none. *at: between which places. */
static i64 find_gap(const media_rows *m, i64 n, i64 *at) {
    i64 from = 0;
    for (*at = 0; *at < m->n; ++*at) {
        if (m->places[*at]->from - from >= n) return from;
        from = m->places[*at]->from + m->places[*at]->n;
    }
    return m->rows - from >= n ? from : -1;
}

static bool more_places(media_rows *m, i64 more) {
    if (m->n + more <= m->cap) return true;
    const i64 cap = 2 * (m->n + more);
    media_place **grown = realloc(m->places, (size_t)cap * sizeof *grown);
    if (!grown) return false;
    m->places = grown;
    m->cap = cap;
    return true;
}

/* ---- A pass ---- */

/* What a pass takes: new items, in the order of the tasks that want them. */
typedef struct {
    media_item *items[MEDIA_ITEMS_MOST];
    i64 n, patches, tokens;
} media_wish;

static bool wishes(const media_wish *w, const media_item *item) {
    for (i64 i = 0; i < w->n; i++)
        if (media_item_key(w->items[i]) == media_item_key(item)) return true;
    return false;
}

/* t's next items that have no place, as far as the pass takes them. False: it is full. */
static bool add_wishes(scheduler *s, const task *t, media_wish *w) {
    const vision_limits *l = &s->g->vision_lim;
    if (is_arriving(t)) return true; /* with rows of what it shows, perhaps */
    for (i64 k = 0; k < t->r.n_media; k++) {
        media_item *item = t->media[k].item;
        if (t->spans[k].first + t->spans[k].n <= t->n_kv || t->media[k].place || find_place(&s->media, item) ||
            wishes(w, item))
            continue;
        const i64 patches = vision_patches(media_item_input(item));
        if (w->n == l->items || w->patches + patches > l->patches ||
            w->tokens + media_item_tokens(item) > s->media.rows)
            return false;
        w->items[w->n++] = item;
        w->patches += patches;
        w->tokens += media_item_tokens(item);
    }
    return true;
}

static i64 room_for(media_rows *m, i64 tokens, i64 *at) {
    i64 from = find_gap(m, tokens, at);
    while (from < 0 && drop_oldest(m)) from = find_gap(m, tokens, at);
    return from;
}

/* Places for the wish, one behind the other. Out of memory: false. */
static bool add_places(media_rows *m, const media_wish *w, i64 from, i64 at) {
    if (!more_places(m, w->n)) return false;
    for (i64 i = 0; i < w->n; i++) {
        media_place *p = calloc(1, sizeof *p);
        if (!p) return false;
        *p = (media_place){.item = media_item_hold(w->items[i]), .from = from, .n = media_item_tokens(w->items[i])};
        from += p->n;
        memmove(m->places + at + 1, m->places + at, (size_t)(m->n - at) * sizeof *m->places);
        m->places[at++] = p;
        m->n++;
    }
    return true;
}

/* The wish, or as much of it as there is room for; nothing where those who have the room must run first. */
static status begin_pass(scheduler *s, media_wish *w, err *e) {
    vision_input in[MEDIA_ITEMS_MOST];
    i64 at = 0, from = room_for(&s->media, w->tokens, &at);
    while (from < 0 && w->n > 1) {
        w->n--;
        w->tokens -= media_item_tokens(w->items[w->n]);
        w->patches -= vision_patches(media_item_input(w->items[w->n]));
        from = room_for(&s->media, w->tokens, &at);
    }
    if (from < 0) return ST_OK;
    for (i64 i = 0; i < w->n; i++) in[i] = *media_item_input(w->items[i]);
    if (!add_places(&s->media, w, from, at)) return err_nomem(e, "places of pictures", sizeof(media_place));
    s->media.under_way = true;
    return engine_begin_media(s->g, in, w->n, from, e);
}

static status plan_pass(scheduler *s, err *e) {
    media_wish w = {.n = 0};
    for (i64 i = 0; i < s->n_running && add_wishes(s, s->running[i], &w); i++) continue;
    return w.n ? begin_pass(s, &w, e) : ST_OK;
}

/* ---- Tasks ---- */

/* t takes the places that its next items have, and can be run up to the first that is not ready. */
static void take_places(scheduler *s, task *t) {
    if (is_arriving(t)) return;
    t->media_ready = t->r.n_prompt;
    for (i64 k = 0; k < t->r.n_media; k++) {
        const radix_span *span = &t->spans[k];
        task_media *m = &t->media[k];
        if (span->first + span->n <= t->n_kv) continue;
        if (!m->place && (m->place = find_place(&s->media, m->item))) m->place->users++;
        if (m->place) t->placed[k] = (model_media){span->first, span->n, m->place->from};
        if (!m->place || !m->place->ready) {
            t->media_ready = max_i64(span->first, t->n_kv);
            return;
        }
    }
}

status media_advance(scheduler *s, err *e) {
    bool any = s->media.under_way, done = false;
    for (i64 i = 0; i < s->n_running; i++)
        any |= s->running[i]->r.n_media && s->running[i]->n_kv < s->running[i]->r.n_prompt;
    if (!any) return ST_OK;
    s->media.rows = s->g->lim.media_rows;
    for (i64 i = 0; i < s->n_running; i++) take_places(s, s->running[i]);
    status st = s->media.under_way ? ST_OK : plan_pass(s, e);
    if (st == ST_OK && s->media.under_way) st = engine_advance_media(s->g, s->g->media_work, &done, e);
    if (st != ST_OK) return st;
    if (done) {
        s->media.under_way = false;
        for (i64 i = 0; i < s->media.n; i++) s->media.places[i]->ready = true;
    }
    for (i64 i = 0; i < s->n_running; i++) take_places(s, s->running[i]);
    return ST_OK;
}

static void give_place(scheduler *s, task_media *m) {
    if (!m->place) return;
    m->place->users--;
    m->place->used = s->round;
    m->place = NULL;
}

void media_done(scheduler *s, task *t) {
    for (i64 k = 0; k < t->r.n_media; k++)
        if (t->spans[k].first + t->spans[k].n <= t->n_kv) give_place(s, &t->media[k]);
}

void media_leave(scheduler *s, task *t) {
    for (i64 k = 0; k < t->r.n_media; k++) give_place(s, &t->media[k]);
    t->media_ready = t->r.n_media ? 0 : t->r.n_prompt;
}

void media_of_span(const task *t, model_span *span) {
    i64 k = 0;
    if (!t->r.n_media) return;
    while (k < t->r.n_media && t->spans[k].first + t->spans[k].n <= span->pos0) k++;
    span->media = t->placed + k;
    for (; k < t->r.n_media && t->spans[k].first < span->pos0 + span->n; k++) span->n_media++;
}

void media_rows_close(scheduler *s) {
    while (s->media.n) drop_place(&s->media, s->media.n - 1);
    free(s->media.places);
}
