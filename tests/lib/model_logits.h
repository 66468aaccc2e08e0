/* tests/lib/model_logits.h: the logits of a fixed line of tokens on a random checkpoint, and how far two of them are
 * apart. */
#ifndef TESTS_MODEL_LOGITS_H
#define TESTS_MODEL_LOGITS_H
#include "random_model.h"
#include "runtime/engine.h"

enum { TOKENS = 80 }; /* more than a page */

typedef struct {
    f32 *rows; /* [TOKENS, vocab] */
    i64 vocab;
} table;

static status keep(void *ud, i64 index, f32 *logits, err *e) {
    (void)e;
    table *t = ud;
    memcpy(t->rows + index * t->vocab, logits, (size_t)t->vocab * sizeof *logits);
    return ST_OK;
}

static void (*logits_opened)(engine *g); /* what is done with an engine before its first step, or NULL */

static f32 *logits_of(const char *dir, const random_model *m, engine_options o, bool absorbed) {
    engine *g;
    seq *s;
    err e = {0};
    i32 ids[TOKENS];
    table t = {calloc((size_t)(TOKENS * m->vocab), sizeof(f32)), m->vocab};
    for (int i = 0; i < TOKENS; i++) ids[i] = (i32)(((u32)i * 2654435761u >> 8) % (u32)m->vocab);
    o.model_dir = dir;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s: %s", m->name, e.text);
    if (logits_opened) logits_opened(g);
    if (seq_open(&s, g, &e) != ST_OK || seq_run(s, ids, TOKENS, absorbed, LOGITS_ALL, keep, &t, &e) != ST_OK)
        fail_msg("%s: %s", m->name, e.text);
    seq_close(s);
    engine_close(g);
    return t.rows;
}

static int by_value(const void *a, const void *b) {
    f64 x = *(const f64 *)a, y = *(const f64 *)b;
    return (x > y) - (x < y);
}

/* Median over positions from `first` on of the relative distance. */
static f64 distance(const f32 *a, const f32 *b, i64 vocab, int first) {
    f64 d[TOKENS];
    for (int i = first; i < TOKENS; i++) {
        f64 diff = 0, norm = 1e-30;
        for (i64 k = i * vocab; k < (i + 1) * vocab; k++) {
            diff += ((f64)a[k] - b[k]) * ((f64)a[k] - b[k]);
            norm += (f64)b[k] * b[k];
        }
        d[i] = sqrt(diff / norm);
        if (isnan(d[i])) d[i] = INFINITY;
    }
    qsort(d + first, (size_t)(TOKENS - first), sizeof *d, by_value);
    return d[first + (TOKENS - first) / 2];
}

static void near_from(const random_model *m, const char *what, const f32 *a, const f32 *b, int first, f64 bound) {
    f64 d = distance(a, b, m->vocab, first);
    if (!(d <= bound)) fail_msg("%s, %s: median distance %.2e, bound %.1e", m->name, what, d, bound);
}

static void near(const random_model *m, const char *what, const f32 *a, const f32 *b, f64 bound) {
    near_from(m, what, a, b, 0, bound);
}

#endif
