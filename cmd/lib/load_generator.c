#include "cmd/lib/load_generator.h"
#include "base/log.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A turn that waits for its time. */
typedef struct {
    f64 due_s;
    i64 item;
} pause;

typedef struct {
    client *c;
    load_item *items;
    i64 n;
    const load_options *o;
    i64 next;      /* the first item that was not looked at yet */
    f64 arrival_s; /* when the next conversation arrives */
    i64 open;      /* conversations under way */
    i64 running;   /* requests under way */
    i64 done;
    f64 answered_s; /* what finished requests took, together */
    pause *pauses;  /* [n] at most one an open conversation */
    i64 n_pauses;
    progress p;
} load;

static f64 thread_cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (f64)t.tv_sec + (f64)t.tv_nsec / 1e9;
}

static status generator_start(load *l, i64 i, err *e) {
    load_item *it = &l->items[i];
    if (it->follows) {
        status st = l->o->extend(l->o->ud, &l->items[i - 1], it, e);
        if (st != ST_OK) return st;
    }
    status st = client_start(l->c, &it->q, &it->a, e);
    l->running += st == ST_OK;
    return st;
}

static void skip_conversation(load *l, i64 i) {
    for (; i < l->n && l->items[i].follows; i++) {
        snprintf(l->items[i].a.error, sizeof l->items[i].a.error, "an earlier turn failed");
        l->done++;
    }
}

/* New conversations whose time has come and for which there is a place. */
static status start_new(load *l, err *e) {
    while (l->next < l->n && (!l->o->concurrency || l->open < l->o->concurrency) &&
           (!l->o->rate || now_s() >= l->arrival_s)) {
        i64 i = l->next;
        do l->next++;
        while (l->next < l->n && l->items[l->next].follows);
        l->open++;
        if (l->o->rate) l->arrival_s += mt_exponential(l->o->rng, 1 / l->o->rate);
        status st = generator_start(l, i, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static status start_paused(load *l, err *e) {
    for (i64 k = 0; k < l->n_pauses;) {
        if (l->pauses[k].due_s > now_s()) {
            k++;
            continue;
        }
        i64 i = l->pauses[k].item;
        l->pauses[k] = l->pauses[--l->n_pauses];
        status st = generator_start(l, i, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

static f64 next_due(const load *l) {
    f64 due = INFINITY;
    if (l->next < l->n && l->o->rate && (!l->o->concurrency || l->open < l->o->concurrency)) due = l->arrival_s;
    for (i64 k = 0; k < l->n_pauses; k++) due = fmin(due, l->pauses[k].due_s);
    return fmin(due, now_s() + 10);
}

/* Of the requests under way, as if each took what finished ones took on the mean: where all begin together nothing is
 * done for long, and then nearly all is. */
static f64 under_way(const load *l) {
    const f64 each = l->answered_s / (f64)l->done, now = now_s();
    f64 sum = 0;
    for (i64 i = 0; i < l->next; i++) {
        const client_answer *a = &l->items[i].a;
        if (a->start_s > 0 && !(a->end_s > 0)) sum += fmin((now - a->start_s) / each, 1);
    }
    return sum;
}

static void generator_finish(load *l, const client_answer *a) {
    load_item *it = (load_item *)((char *)(uintptr_t)a - offsetof(load_item, a));
    i64 i = it - l->items;
    l->running--;
    l->done++;
    l->answered_s += a->end_s - a->start_s;
    bool more = i + 1 < l->n && it[1].follows;
    if (more && a->ok) {
        l->pauses[l->n_pauses++] = (pause){a->end_s + it[1].delay_s, i + 1};
    } else {
        l->open--;
        if (more) skip_conversation(l, i + 1);
    }
    if (!l->o->progress || !progress_due(&l->p)) return;
    l->p.under_way = under_way(l);
    progress_step(&l->p, (u64)l->done);
}

static status generator_run(load *l, err *e) {
    while (l->done < l->n) {
        status st = start_new(l, e);
        if (st == ST_OK) st = start_paused(l, e);
        if (st != ST_OK) return st;
        const client_answer *a = client_wait(l->c, next_due(l));
        if (a) generator_finish(l, a);
    }
    return ST_OK;
}

status load_run(client *c, load_item *items, i64 n, const load_options *o, load_result *r, err *e) {
    load l = {.c = c, .items = items, .n = n, .o = o, .pauses = calloc((size_t)n + 1, sizeof *l.pauses)};
    if (!l.pauses) return err_nomem(e, "the waiting turns", (u64)n * sizeof *l.pauses);
    if (o->progress) progress_start(&l.p, "requests", "req", (u64)n);
    f64 cpu = thread_cpu_s();
    r->start_s = l.arrival_s = now_s();
    status st = generator_run(&l, e);
    while (st != ST_OK && l.running) /* nothing may be under way when the caller frees the items */
        l.running -= client_wait(c, now_s() + 3600) != NULL;
    r->end_s = now_s();
    r->cpu_s = thread_cpu_s() - cpu;
    if (o->progress) progress_end(&l.p);
    free(l.pauses);
    return st;
}
