/* KV pages in the host's memory behind the prefix cache: prompts whose pages the pool had no room for come back, with
 * the bits of those that are computed; who stays, who goes; what is refused; ends at any time. */
#include "runtime/sched_util.h"

#include "runtime/host_cache.h"

static const char MODEL[] = "build/golden/k2-thinking-int4";
enum { POOL = 512, PROMPT = 300, PAGES = PROMPT / KV_PAGE }; /* tokens; whole pages of a prompt */

/* Until nothing is under way, also not to the host's memory. */
static void settle(scheduler *s) {
    do run_all(s);
    while (!stats_of(s).idle);
    must_check(s);
}

static void ask(scheduler *s, job *j) {
    rewind_job(j);
    must_submit(s, j);
    settle(s);
    assert_true(j->ended && j->finish == SCHED_LENGTH);
}

static scheduler *open_with(engine *g, f64 ratio) {
    return open_scheduler(g, (scheduler_options){.manual = true, .host_cache_ratio = ratio});
}

/* More prompts than the pool holds, again and again. */
static void prompts_come_back(void **state) {
    (void)state;
    enum { JOBS = 6 };
    engine *g = open_engine(MODEL, "cpu", 2, POOL, 64);
    scheduler *s = open_with(g, 8);
    job *first[JOBS], *again[JOBS];
    for (i64 i = 0; i < JOBS; i++) {
        ask(s, first[i] = make_job((u64)i + 1, PROMPT, 5));
        again[i] = copy_job(first[i]);
        assert_int_equal(first[i]->usage.cached_tokens, 0);
    }
    assert_int_equal(stats_of(s).host.saved, JOBS * PAGES);
    for (i64 round = 1; round <= 2; round++)
        for (i64 i = 0; i < JOBS; i++) {
            ask(s, again[i]);
            must_agree(first[i], again[i], "from the host's memory");
            assert_int_equal(again[i]->usage.cached_tokens, PAGES * KV_PAGE);
        }
    const sched_stats st = stats_of(s);
    assert_int_equal(st.host.saved, JOBS * PAGES); /* what is there is not copied again */
    assert_int_equal(st.host.held, JOBS * PAGES);
    assert_true(st.host.loaded > JOBS * PAGES && st.host.loaded <= 2 * JOBS * PAGES);
    assert_int_equal(st.cached_tokens, 2 * JOBS * PAGES * KV_PAGE);
    for (i64 i = 0; i < JOBS; i++) free(first[i]), free(again[i]);
    scheduler_close(s);
    engine_close(g);
}

/* Room for two prompts: of three in turn each has gone when it is asked for; the one that is used between others
 * stays. */
static void the_least_recently_used_goes(void **state) {
    (void)state;
    engine *g = open_engine(MODEL, "cpu", 1, POOL, 64);
    scheduler *s = open_with(g, 2.0 * PAGES * KV_PAGE / POOL);
    job *often = make_job(1, PROMPT, 2), *other[4];
    assert_int_equal(stats_of(s).host.places, 2 * PAGES);
    ask(s, often);
    for (i64 i = 0; i < 4; i++) {
        ask(s, other[i] = make_job((u64)i + 2, PROMPT, 2));
        ask(s, often);
        assert_true(often->usage.cached_tokens >= (PAGES - 1) * KV_PAGE); /* one page alone is not fetched */
    }
    ask(s, other[0]);
    assert_int_equal(other[0]->usage.cached_tokens, 0);
    assert_true(stats_of(s).host.evicted >= 3 * PAGES);
    for (i64 i = 0; i < 4; i++) free(other[i]);
    free(often);
    scheduler_close(s);
    engine_close(g);
}

/* A namespace's pages are nobody else's; a flush forgets all. */
static void spaces_are_apart_and_all_is_flushed(void **state) {
    (void)state;
    engine *g = open_engine(MODEL, "cpu", 1, POOL, 64);
    scheduler *s = open_with(g, 8);
    job *a = make_job(1, PROMPT, 2), *b = make_job(2, 500, 2);
    ask(s, a);
    ask(s, b);
    a->r.cache_space = 7;
    ask(s, a);
    assert_int_equal(a->usage.cached_tokens, 0);
    ask(s, b);
    ask(s, a);
    assert_int_equal(a->usage.cached_tokens, PAGES * KV_PAGE);
    assert_int_equal(scheduler_flush(s, NULL), ST_OK);
    must_check(s);
    ask(s, a);
    assert_int_equal(a->usage.cached_tokens, 0);
    free(a), free(b);
    scheduler_close(s);
    engine_close(g);
}

/* Answers to one prompt that end together: its pages go once, and nobody else's make room for them. */
static void equal_beginnings_are_saved_once(void **state) {
    (void)state;
    enum { ANSWERS = 4 };
    engine *g = open_engine(MODEL, "cpu", ANSWERS, 4 * POOL, 512);
    scheduler *s = open_with(g, (2.0 * PAGES + 1) * KV_PAGE / (4.0 * POOL));
    job *before = make_job(1, PROMPT, 2), *jobs[ANSWERS];
    ask(s, before);
    for (i64 i = 0; i < ANSWERS; i++) {
        jobs[i] = make_job(2, PROMPT, 3);
        jobs[i]->r.choice = (u32)i;
        must_submit(s, jobs[i]);
    }
    settle(s);
    const host_cache_stats st = stats_of(s).host;
    assert_int_equal(st.saved, 2 * PAGES);
    assert_int_equal(st.held, 2 * PAGES);
    assert_int_equal(st.evicted, 0);
    for (i64 i = 0; i < ANSWERS; i++) free(jobs[i]);
    free(before);
    scheduler_close(s);
    engine_close(g);
}

/* Who loses its place while its pages come begins again; what it had found before counts once. */
static void what_is_found_twice_counts_once(void **state) {
    (void)state;
    for (i64 round = 0; round < 6; round++) {
        engine *g = open_engine(MODEL, "cpu", 1, POOL, 64);
        scheduler *s = open_with(g, 8);
        job *a = make_job(1, PROMPT, 2), *b = make_job(2, 380, 2), *c = make_job(3, 150, 2), *d = make_job(4, 500, 2);
        ask(s, a);
        ask(s, b);
        rewind_job(a);
        must_submit(s, a);
        for (i64 i = 0; i <= round % 3; i++) scheduler_step(s);
        c->r.priority = d->r.priority = 5;
        must_submit(s, c), must_submit(s, d);
        settle(s);
        assert_true(a->usage.cached_tokens > 0 && a->usage.cached_tokens <= PAGES * KV_PAGE);
        assert_true(stats_of(s).cached_tokens <= a->usage.cached_tokens);
        free(a), free(b), free(c), free(d);
        scheduler_close(s);
        engine_close(g);
    }
}

/* Prompts of a few families with long beginnings in common, several at a time in a pool for two, some aborted. */
static void many_at_a_time(const char *dir, bool aborts, u64 seed) {
    enum { JOBS = 24, FAMILIES = 4 };
    job *alone[JOBS], *jobs[JOBS];
    engine *g = open_engine(dir, "cpu", 1, MAX_TOKENS, 512), *h = open_engine(dir, "cpu", 4, 2 * MAX_TOKENS, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .disable_radix_cache = true});
    for (i64 i = 0; i < JOBS; i++) {
        alone[i] = make_job(seed * 100 + (u64)i, pick(300, 430), 1);
        alone[i]->r.max_new = pick(1, 40);
        job *const family = make_job(seed * 1000 + (u64)pick(0, FAMILIES - 1), MAX_TOKENS, 1);
        memcpy(alone[i]->prompt, family->prompt, (size_t)pick(150, 290) * sizeof *family->prompt);
        free(family);
        jobs[i] = copy_job(alone[i]);
        must_submit(s, alone[i]);
        run_all(s);
    }
    scheduler_close(s);
    engine_close(g);
    s = open_with(h, 16);
    for (i64 i = 0; i < JOBS || !stats_of(s).idle;) {
        for (i64 k = pick(0, 2); k && i < JOBS; k--) must_submit(s, jobs[i++]);
        if (aborts && i && !pick(0, 5)) scheduler_abort(s, jobs[pick(0, i - 1)]->id);
        scheduler_step(s);
        must_check(s);
    }
    for (i64 i = 0; i < JOBS; i++) {
        must_agree(alone[i], jobs[i], "beside others");
        assert_true(jobs[i]->ended && (aborts || jobs[i]->finish != SCHED_ABORT));
    }
    const host_cache_stats st = stats_of(s).host;
    if (st.loaded < 4 || st.saved < 24)
        fail_msg("%lld pages saved, %lld loaded", (long long)st.saved, (long long)st.loaded);
    assert_int_equal(stats_of(s).pages_used, 0);
    for (i64 i = 0; i < JOBS; i++) free(alone[i]), free(jobs[i]);
    scheduler_close(s);
    engine_close(h);
}

static void the_bits_of_prompts_alone(void **state) {
    (void)state;
    many_at_a_time(MODEL, false, 3);
    many_at_a_time("build/golden/plain-bf16", true, 4);
}

/* Copies under way end with the scheduler, by hand and with its own thread. */
static void ends_at_any_time(void **state) {
    (void)state;
    for (i64 steps = 0; steps < 14; steps += 2)
        for (int manual = 0; manual < 2; manual++) {
            engine *g = open_engine(MODEL, "cpu", 2, POOL, 64);
            scheduler *s = open_scheduler(g, (scheduler_options){.manual = manual, .host_cache_ratio = 8});
            job *a = make_job(1, PROMPT, 2), *b = make_job(2, PROMPT, 2), *c;
            must_submit(s, a), must_submit(s, b);
            for (i64 i = 0; manual && i < steps; i++) scheduler_step(s);
            if (manual && a->ended)
                must_submit(s, c = copy_job(a));
            else
                c = NULL;
            for (i64 i = 0; c && i < 2; i++) scheduler_step(s);
            scheduler_close(s);
            assert_true(a->ended && b->ended && (!c || c->ended));
            free(a), free(b), free(c);
            engine_close(g);
        }
}

static void is_refused(engine *g, scheduler_options o, status want, const char *word) {
    scheduler *s;
    err e = {0};
    o.on_events = on_events;
    const status st = scheduler_open(&s, g, &o, &e);
    if (st != want || !strstr(e.text, word)) fail_msg("%d instead of %d: %s", st, want, e.text);
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    engine *g = open_engine(MODEL, "cpu", 1, POOL, 64);
    is_refused(g, (scheduler_options){.host_cache_bytes = 100}, ST_INPUT, "from one page");
    is_refused(g, (scheduler_options){.host_cache_bytes = (u64)1 << 45}, ST_NOMEM, "of memory left");
    is_refused(g, (scheduler_options){.host_cache_ratio = 1, .disable_radix_cache = true}, ST_INPUT,
               "--disable-radix-cache");
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_come_back),
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(spaces_are_apart_and_all_is_flushed),
        cmocka_unit_test(equal_beginnings_are_saved_once),
        cmocka_unit_test(what_is_found_twice_counts_once),
        cmocka_unit_test(the_bits_of_prompts_alone),
        cmocka_unit_test(ends_at_any_time),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
