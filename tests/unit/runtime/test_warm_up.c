/* tests/unit/runtime/test_warm_up.c: steps before the first request take no room, and change no answer. */
#include "runtime/engine_internal.h"
#include "runtime/sched_util.h"
#include "runtime/warm_up.h"

typedef struct {
    const char *draft; /* NULL: none */
    i64 chunk, context, running, kv_tokens, tp, pp, topk;
    i64 steps; /* that it takes */
} warm_case;

static engine *open_to_warm(const warm_case *c) {
    engine *g;
    err e = {0};
    const engine_options o = {.model_dir = "models/nano",
                              .device = "cpu",
                              .threads = 1,
                              .context = c->context,
                              .chunk = c->chunk,
                              .draft_dir = c->draft,
                              .draft_steps = c->draft ? 3 : 0,
                              .draft_topk = c->topk,
                              .draft_nodes = c->topk ? 6 : 3,
                              .max_running = c->running,
                              .kv_tokens = c->kv_tokens,
                              .tp = c->tp,
                              .pp = c->pp};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

/* Three requests' answers. */
static void answers_of(engine *g, const warm_case *c, job *jobs[3]) {
    const i64 drafts = !c->draft ? 0 : c->topk ? 6 : 3;
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = drafts});
    for (u64 i = 0; i < 3; i++) must_submit(s, jobs[i] = make_job(7 + i, 20 + 15 * (i64)i, 12));
    while (scheduler_step(s)) {}
    must_check(s);
    scheduler_close(s);
}

static void a_warm_engine_answers_alike(void **state) {
    (void)state;
    static const warm_case cases[] = {
        {NULL, 300, 512, 4, 2048, 1, 1, 0, 3 + 4},                             /* prompts of 300, 150, 75 */
        {"models/nano-eagle3-mla", 200, 512, 4, 2048, 1, 1, 0, 2 + 4 + 3 * 4}, /* 200, 100 */
        {"models/nano-eagle3-mla", 200, 512, 4, 2048, 1, 1, 3, 2 + 4 + 3 * 4}, /* trees */
        {NULL, 512, 512, 1, 64, 1, 1, 0, 1},                                   /* a pool of one page */
        {NULL, 32, 512, 100, 128, 1, 1, 0, 2},                                 /* no chunk that is long, two pages */
        {"models/nano-eagle3-mla", 512, 128, 2, 256, 1, 1, 0, 1 + 2 + 3 * 2},  /* a context as short as a prompt */
        {NULL, 130, 512, 3, 1024, 2, 1, 0, 2 + 3},                             /* 130, 65 */
        {NULL, 130, 512, 3, 1024, 1, 2, 0, 2 + 3},
        {"models/nano-eagle3-mla", 200, 512, 4, 2048, 1, 2, 0, 2 + 4 + 3 * 4},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const warm_case *c = &cases[i];
        job *cold[3], *warm[3];
        i64 steps = -1;
        err e = {0};
        engine *g = open_to_warm(c);
        answers_of(g, c, cold);
        engine_close(g);
        g = open_to_warm(c);
        const i64 pages = g->pages.n_free;
        if (engine_warm_up(g, &steps, &e) != ST_OK) fail_msg("case %zu: %s", i, e.text);
        if (steps != c->steps) fail_msg("case %zu: %lld steps, not %lld", i, (long long)steps, (long long)c->steps);
        assert_int_equal(g->pages.n_free, pages);
        answers_of(g, c, warm);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(cold[k]->n_out, warm[k]->n_out);
            assert_memory_equal(cold[k]->out, warm[k]->out, (size_t)cold[k]->n_out * sizeof *cold[k]->out);
            free(cold[k]), free(warm[k]);
        }
        engine_close(g);
    }
}

/* Rows of one sequence are read together from 1500 tokens on, or where there are more than 12. */
static bool long_ones_pay(i64 heads, i64 rows, i64 tokens, dtype kv) {
    (void)heads, (void)kv;
    return tokens > 1500 || rows > 12;
}

/* Steps of long contexts come besides: of 4 rows each 1 to 3 sequences (4 are together anyway), of 3 rows 1 to 4, of 2
 * rows 2 to 4 (no sequence may have more than 512 tokens). Pages stand for each other: the pool has but 15 of them. */
static void long_contexts_are_warmed_as_well(void **state) {
    (void)state;
    const warm_case c = {"models/nano-eagle3-mla", 60, 512, 4, 960, 1, 1, 0, 0};
    i64 short_ones, all;
    err e = {0};
    engine *g = open_to_warm(&c);
    assert_int_equal(engine_warm_up(g, &short_ones, &e), ST_OK);
    engine_close(g);
    g = open_to_warm(&c);
    ops *const o = &engine_backend(g)->ops;
    fused_ops fused = o->fused ? *o->fused : (fused_ops){0};
    fused.mla_groups_pay = long_ones_pay, o->fused = &fused;
    const i64 pages = g->pages.n_free;
    assert_int_equal(engine_warm_up(g, &all, &e), ST_OK);
    assert_int_equal(g->pages.n_free, pages);
    assert_int_equal(all - short_ones, 3 + 4 + 3);
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_warm_engine_answers_alike),
                                       cmocka_unit_test(long_contexts_are_warmed_as_well)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
