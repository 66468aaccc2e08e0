/* tests/lib/rows_apart.h: steps of many sequences on ranks that attend for some of them each, beside ref on one rank:
 * more rows than a step is recorded of, and rows of prompts among them; each rank's together, as the scheduler brings
 * them, and mixed. */
#ifndef TESTS_ROWS_APART_H
#define TESTS_ROWS_APART_H
#include "runtime/engine_internal.h"
#include <math.h>
#include <stdlib.h>

enum { APART_SEQUENCES = 270, APART_PROMPTS = 7, APART_PAGES = APART_SEQUENCES + 2 * APART_PROMPTS };

typedef struct {
    i32 page[APART_PAGES], pages[APART_PROMPTS][2];
    model_span spans[APART_SEQUENCES + APART_PROMPTS];
    i32 ids[2048], rows[2048], bad[2048];
    model_batch b;
} apart_step;

static void apart_span(apart_step *s, i64 sequence, i64 n, i64 pos0, const i32 *pages, bool absorbed) {
    model_batch *b = &s->b;
    s->spans[b->n_spans++] = (model_span){.first = b->n, .n = n, .pos0 = pos0, .pages = pages, .absorbed = absorbed};
    for (i64 i = 0; i < n; i++) s->ids[b->n++] = (i32)((sequence * 7919 + (pos0 + i) * 31 + 3) % 150);
    s->rows[b->n_out++] = (i32)(b->n - 1);
}

/* A token at pos0 of each of so many sequences, and prompts of 5 to 95 tokens; together: in the order of the ranks that
 * have their pages. */
static void apart_fill(apart_step *s, i64 sequences, i64 prompts, i64 pos0, bool together, i64 ranks) {
    s->b = (model_batch){.ids = s->ids, .spans = s->spans, .out_rows = s->rows, .bad = s->bad};
    for (i64 i = 0; i < APART_PAGES; i++) s->page[i] = (i32)i;
    for (i64 rank = 0; rank < (together ? ranks : 1); rank++)
        for (i64 i = 0; i < sequences; i++)
            if (!together || i % ranks == rank) apart_span(s, i, 1, pos0, &s->page[i], true);
    for (i64 rank = 0; rank < (together ? ranks : 1); rank++)
        for (i64 i = 0; i < prompts; i++) {
            const i64 owner = i % ranks, first = APART_SEQUENCES + (owner + ranks - APART_SEQUENCES % ranks) % ranks;
            if (together && owner != rank) continue;
            /* two pages of one rank, of nobody else */
            for (i64 k = 0; k < 2; k++) s->pages[i][k] = (i32)(first + (i / ranks * 2 + k) * ranks);
            apart_span(s, 1000 + i, 5 + 15 * i, 0, s->pages[i], false);
        }
}

/* Every row; of rounded ones all but a twentieth, whose router may have chosen another expert. */
static void apart_compare(const char *what, int step, const apart_step *s, const f32 *a, const f32 *b, i64 vocab,
                          f64 bound, bool rounded) {
    i64 far = 0, row = 0;
    f64 farthest = 0;
    for (i64 i = 0; i < s->b.n_out; i++) {
        f64 diff = 0, norm = 1e-30;
        for (i64 k = i * vocab; k < (i + 1) * vocab; k++)
            diff += ((f64)a[k] - b[k]) * ((f64)a[k] - b[k]), norm += (f64)b[k] * b[k];
        const f64 distance = sqrt(diff / norm);
        if (distance <= bound) continue;
        far++;
        if (!(distance <= farthest)) farthest = distance, row = s->rows[i];
    }
    if (far > (rounded ? s->b.n_out / 20 : 0))
        fail_msg("%s, step %d: %lld of %lld rows are farther than %.1e from one rank of ref, row %lld of %lld %.2e",
                 what, step, (long long)far, (long long)s->b.n_out, bound, (long long)row, (long long)s->b.n, farthest);
}

/* o: with ranks and dp_attention; the model's vocabulary is at least 150. */
static void rows_apart_agree(const char *what, const char *dir, engine_options o, f64 bound) {
    static const struct {
        i64 sequences, prompts;
        bool together;
    } steps[] = {{APART_SEQUENCES, 0, true},
                 {APART_SEQUENCES, 0, false},
                 {40, 0, true},
                 {33, APART_PROMPTS, true},
                 {APART_SEQUENCES, APART_PROMPTS, false},
                 {0, APART_PROMPTS, true},
                 {APART_SEQUENCES, 0, true}};
    engine *g, *ref;
    err e = {0};
    const i64 ranks = o.tp;
    const bool rounded = strcmp(o.device, "ref") != 0;
    o.model_dir = dir, o.context = 512, o.max_running = APART_SEQUENCES, o.chunk = 512;
    o.kv_tokens = (APART_PAGES + 2 * ranks) * KV_PAGE;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s: %s", what, e.text);
    o.device = "ref", o.tp = 0, o.ep = 0, o.gpus = NULL, o.nccl = o.dp_attention = false;
    if (engine_open(&ref, &o, &e) != ST_OK) fail_msg("ref: %s", e.text);
    const i64 vocab = g->config.vocab, most = g->lim.logit_rows;
    static apart_step s;
    f32 *got = malloc((size_t)(most * vocab) * sizeof *got), *want = malloc((size_t)(most * vocab) * sizeof *want);
    for (int i = 0; i < (int)(sizeof steps / sizeof *steps); i++) {
        apart_fill(&s, steps[i].sequences, steps[i].prompts, i, steps[i].together, ranks);
        s.b.logits = got;
        if (engine_forward(g, &s.b, &e) != ST_OK) fail_msg("%s, step %d: %s", what, i, e.text);
        s.b.logits = want;
        if (engine_forward(ref, &s.b, &e) != ST_OK) fail_msg("ref, step %d: %s", i, e.text);
        apart_compare(what, i, &s, got, want, vocab, bound, rounded);
    }
    free(got), free(want);
    engine_close(g), engine_close(ref);
}

#endif
