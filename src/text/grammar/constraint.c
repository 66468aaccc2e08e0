/* text/grammar/constraint.c: a constraint, who holds it, and the walks that its runs share. */
#include "text/grammar/constraint_internal.h"
#include <stdlib.h>
#include <string.h>

/* Fuel, in units of some 5 ns: the engine's steps wait for masks. An answer's token earns 0.5 ms, thirty times what a
 * mask takes; what is new in a grammar may cost 0.2 s more in all, and 80 ms at a time. */
enum { WALK_BUDGET = 64 << 20, CREDIT_MOST = 40 << 20, CREDIT_TOKEN = 100 << 10, WALK_MOST = 16 << 20 };

/* ---- how long walks may take ---- */

void walk_begin(constraint *c, constraint_walk *w) { w->a.g->fuel = min_i64(c->credit, WALK_MOST); }

void walk_end(constraint *c, constraint_walk *w) {
    const i64 left = w->a.g->fuel;
    c->credit -= min_i64(c->credit, WALK_MOST) - left;
    if (left >= 0 || c->too_slow.code != ST_OK) return;
    err_set(&c->too_slow, ST_LIMIT, "the grammar takes too long to follow, for one token or on average");
    if (w->failed.code == ST_OK) w->failed = c->too_slow;
}

void constraint_earn(constraint *c) { c->credit = min_i64(c->credit + CREDIT_TOKEN, CREDIT_MOST); }

/* ---- walks ---- */

static void walk_free(constraint_walk *w) {
    if (!w) return;
    matcher_close(w->m);
    grammar_free(w->a.g);
    free(w);
}

static u64 walk_bytes(const constraint_walk *w) { return grammar_bytes(w->a.g) + matcher_bytes(w->m) + sizeof *w; }

static status walk_make(constraint_walk **out, const constraint_source *source, buf *warnings, err *e) {
    constraint_walk *w = *out = calloc(1, sizeof *w);
    if (!w) return err_nomem(e, "a constraint", sizeof *w);
    status st = answer_grammar_make(&w->a, source, warnings, e);
    if (st == ST_OK) st = matcher_open(&w->m, w->a.g, e);
    if (st == ST_OK) {
        grammar_meter(w->a.g);
        w->first_bytes = walk_bytes(w);
        return ST_OK;
    }
    grammar_free(w->a.g), free(w);
    *out = NULL;
    return st;
}

/* New runs should have another one. */
static bool walk_is_worn(const constraint *c, const constraint_walk *w) {
    return w->failed.code != ST_OK || walk_bytes(w) > w->first_bytes + c->budget;
}

/* A walk for a new run, with the lock held, which is given back while a grammar is compiled. An old walk that has not
 * failed serves where there is no memory for a new one. */
static status walk_take(constraint *c, constraint_walk **out, err *e) {
    constraint_walk *fresh = NULL;
    status st = ST_OK;
    if (walk_is_worn(c, c->walks)) {
        pthread_mutex_unlock(&c->lock);
        st = walk_make(&fresh, &c->source, NULL, e);
        pthread_mutex_lock(&c->lock);
    }
    constraint_walk *old = c->walks;
    if (fresh && walk_is_worn(c, old)) {
        fresh->next = old->runs ? old : old->next;
        if (!old->runs) walk_free(old);
        c->walks = fresh, fresh = NULL;
    }
    walk_free(fresh); /* another thread was faster */
    if (c->walks->failed.code != ST_OK) return st;
    *out = c->walks;
    (*out)->runs++;
    return ST_OK;
}

static void walk_give_back(constraint *c, constraint_walk *w) {
    if (--w->runs || w == c->walks) return;
    constraint_walk **at = &c->walks;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    walk_free(w);
}

/* ---- the constraint ---- */

static void constraint_free(constraint *c) {
    for (constraint_walk *w = c->walks, *next; w; w = next) {
        next = w->next;
        walk_free(w);
    }
    json_decref((json_t *)(uintptr_t)c->source.value);
    json_decref((json_t *)(uintptr_t)c->source.tools);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static status find_marks(constraint *c, err *e) {
    for (int m = 0; m < MARKS; m++) c->marks[m] = tokenizer_special(c->tok, mark_text[m]);
    for (int m = TOKEN_MARK_FIRST; c->source.calls != CALLS_NEVER && m <= TOKEN_MARK_LAST; m++)
        if (c->marks[m] < 0) return err_set(e, ST_UNSUPPORTED, "the tokenizer has no %s", mark_text[m]);
    return ST_OK;
}

status constraint_compile(constraint **out, const constraint_source *source, const token_trie *trie,
                          const tokenizer *tok, buf *warnings, err *e) {
    constraint *c = *out = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "a constraint", sizeof *c);
    *c = (constraint){
        .holders = 1, .trie = trie, .tok = tok, .source = *source, .budget = WALK_BUDGET, .credit = CREDIT_MOST};
    pthread_mutex_init(&c->lock, NULL);
    c->source.value = json_deep_copy(source->value);
    c->source.tools = source->calls == CALLS_NEVER ? NULL : json_deep_copy(source->tools);
    const bool copied = (!source->value || c->source.value) && (!c->source.calls || !source->tools || c->source.tools);
    status st = copied ? find_marks(c, e) : err_nomem(e, "a constraint", 64);
    if (st == ST_OK) st = walk_make(&c->walks, &c->source, warnings, e);
    c->source.stop = NULL; /* the caller's */
    if (st == ST_OK) return ST_OK;
    constraint_free(c);
    *out = NULL;
    return st;
}

constraint *constraint_hold(constraint *c) {
    pthread_mutex_lock(&c->lock);
    c->holders++;
    pthread_mutex_unlock(&c->lock);
    return c;
}

void constraint_release(constraint *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    const bool last = !--c->holders;
    pthread_mutex_unlock(&c->lock);
    if (last) constraint_free(c);
}

u64 constraint_bytes(constraint *c) {
    u64 n = sizeof *c;
    pthread_mutex_lock(&c->lock);
    for (const constraint_walk *w = c->walks; w; w = w->next) n += walk_bytes(w);
    pthread_mutex_unlock(&c->lock);
    return n;
}

void constraint_set_budget(constraint *c, u64 bytes) {
    pthread_mutex_lock(&c->lock);
    c->budget = bytes;
    pthread_mutex_unlock(&c->lock);
}

/* ---- a run begins and ends ---- */

/* States in which it begins, with the lock held. */
static status run_begin(constraint_run *r, answer_begin begin, i64 first_call, err *e) {
    const constraint_source *source = &r->c->source;
    const answer_grammar *a = &r->w->a;
    const i64 i = min_i64(max_i64(first_call, 0), a->n - 1);
    const bool calls = source->calls != CALLS_NEVER,
               is_free = source->content == CONTENT_FREE && source->calls != CALLS_MUST;
    const i32 behind_mark = calls ? matcher_start_at(r->w->m, a->calls[i]) : MATCHER_DEAD;
    const i32 content = is_free ? MATCHER_DEAD : matcher_start_at(r->w->m, a->whole[i]);
    if ((calls && behind_mark < 0) || (!is_free && content < 0)) {
        const status st = matcher_failed(r->w->m, &r->w->failed);
        if (st == ST_OK) return err_set(e, ST_LIMIT, "a grammar without a beginning");
        if (e) *e = r->w->failed;
        return st;
    }
    r->calls = calls ? behind_mark + RUN_STATES : RUN_DEAD;
    r->content = is_free ? RUN_FREE : content + RUN_STATES;
    r->start = begin == BEGIN_IN_THINK ? RUN_THINKING : begin == BEGIN_MAY_THINK ? RUN_MAY_THINK : r->content;
    return ST_OK;
}

status constraint_run_open(constraint_run **out, constraint *c, answer_begin begin, i64 first_call, err *e) {
    constraint_run *r = *out = NULL;
    const i32 think = c->marks[MARK_THINK], think_end = c->marks[MARK_THINK_END];
    if (begin == BEGIN_IN_THINK && think_end < 0)
        return err_set(e, ST_UNSUPPORTED, "the tokenizer has no %s", mark_text[MARK_THINK_END]);
    if (begin == BEGIN_MAY_THINK && (think < 0 || think_end < 0)) begin = BEGIN_CONTENT;
    r = calloc(1, sizeof *r);
    if (!r) return err_nomem(e, "an answer's constraint", sizeof *r);
    r->c = constraint_hold(c);
    pthread_mutex_lock(&c->lock);
    status st = c->too_slow.code;
    if (st != ST_OK && e) *e = c->too_slow;
    if (st == ST_OK) st = walk_take(c, &r->w, e);
    if (st == ST_OK) {
        walk_begin(c, r->w);
        st = run_begin(r, begin, first_call, e);
        walk_end(c, r->w);
        if (st != ST_OK) walk_give_back(c, r->w);
    }
    pthread_mutex_unlock(&c->lock);
    if (st == ST_OK) return *out = r, ST_OK;
    constraint_release(c);
    free(r);
    return st;
}

void constraint_run_close(constraint_run *r) {
    if (!r) return;
    pthread_mutex_lock(&r->c->lock);
    walk_give_back(r->c, r->w);
    pthread_mutex_unlock(&r->c->lock);
    constraint_release(r->c);
    free(r);
}

i32 constraint_run_start(const constraint_run *r) { return r->start; }
