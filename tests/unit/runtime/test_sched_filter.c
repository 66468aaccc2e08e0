/* Requests whose tokens a filter chooses from: the same answers alone and among others, drawn by host or device, queued
 * ahead or not, with forced tokens written at once or drawn one by one. */
#include "runtime/sched_util.h"

static const char *const DIR = "build/golden/k2-thinking-int4";
enum { VOCAB_MOST = 1 << 15, NEVER = 1 << 20, PERIOD = 9, FORCED_AT = 4 };

/* A toy: of token k a third of the vocabulary may come, but at k % PERIOD in [FORCED_AT, PERIOD) one alone. */
typedef struct {
    u64 seed;
    i64 vocab;
    i32 fails_at, whole_at, ends_from; /* states: the mask fails; nothing may come; a stop id may */
    int opened, closed;
    i64 asked_forced;
} toy;

static i32 toy_forced_id(const toy *t, i32 k) { return (i32)(2 + (t->seed * 7 + (u64)k * 13) % (u64)(t->vocab - 2)); }
static bool toy_is_forced(i32 k) { return k % PERIOD >= FORCED_AT; }
static bool toy_allows(const toy *t, i32 k, i32 id) {
    if (k >= t->whole_at || id < 2) return false; /* 0 and 1 are stop ids in these tests */
    return toy_is_forced(k) ? id == toy_forced_id(t, k) : ((u64)id * 31 + (u64)k + t->seed) % 3 == 0;
}

static status toy_mask(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    const toy *t = ud;
    if (state == t->fails_at) return err_set(e, ST_LIMIT, "the toy fails");
    memset(mask, 0, (size_t)ceil_div(t->vocab, 64) * sizeof *mask);
    for (i32 id = 0; id < t->vocab; id++)
        if (toy_allows(t, state, id)) mask[id / 64] |= (u64)1 << id % 64;
    *may_end = state >= t->ends_from;
    return ST_OK;
}
static i32 toy_next(void *ud, i32 state, i32 id) { return toy_allows(ud, state, id) ? state + 1 : TOKEN_FILTER_DEAD; }
static i64 toy_forced(void *ud, i32 state, i32 *ids, i64 most) {
    toy *t = ud;
    i64 n = 0;
    t->asked_forced++;
    for (; toy_is_forced(state) && state < t->whole_at && n < most; state++) ids[n++] = toy_forced_id(t, state);
    return n;
}
static void toy_close(void *ud) { ((toy *)ud)->closed++; }

static toy toy_of(u64 seed, i64 vocab) {
    return (toy){.seed = seed, .vocab = vocab, .fails_at = NEVER, .whole_at = NEVER, .ends_from = NEVER};
}

static token_filter filter_of(toy *t, bool forced) {
    t->opened++;
    return (token_filter){
        .ud = t, .mask = toy_mask, .next = toy_next, .forced = forced ? toy_forced : NULL, .close = toy_close};
}

static job *filtered_job(u64 seed, i64 n_prompt, i64 max_new, const token_filter *f) {
    job *j = make_job(seed, n_prompt, max_new);
    j->r.logprobs = false;
    j->r.filter = f;
    if (seed % 3 == 1) j->r.sampling.top_p = 0.8;
    if (seed % 4 == 2) j->r.sampling.temperature = 0;
    return j;
}

static void tokens_are_allowed(const toy *t, const job *j, const char *what) {
    for (i64 k = 0; k < j->n_out; k++)
        if (!toy_allows(t, (i32)k, j->out[k].id) && !(j->finish == SCHED_STOP && k == j->n_out - 1))
            fail_msg("%s: token %lld is %d", what, (long long)k, j->out[k].id);
}

/* Several requests, every second one with a filter, in one scheduler; `want` is filled by the first call. */
enum { JOBS = 6, LONG = 60 };
static void run_jobs(const char *what, scheduler_options o, i64 running, i64 kv_tokens, bool forced, job **want) {
    engine *g = open_engine(DIR, "cpu", running, kv_tokens, 64);
    scheduler *s = open_scheduler(g, o);
    toy toys[JOBS];
    token_filter filters[JOBS];
    job *jobs[JOBS];
    for (int i = 0; i < JOBS; i++) {
        toys[i] = toy_of((u64)i, engine_config(g)->vocab);
        filters[i] = filter_of(&toys[i], forced);
        jobs[i] = filtered_job(100 + (u64)i, 10 + 7 * i, LONG - 5 * i, i % 3 == 2 ? NULL : &filters[i]);
        must_submit(s, jobs[i]);
    }
    run_all(s);
    const sched_stats st = stats_of(s);
    i64 tokens = 0;
    for (int i = 0; i < JOBS; i++) tokens += LONG - 5 * i;
    assert_int_equal(st.forced_tokens > 0, forced);
    assert_int_equal(st.generated_tokens, tokens);
    scheduler_close(s);
    for (int i = 0; i < JOBS; i++) {
        assert_true(jobs[i]->ended && jobs[i]->finish == SCHED_LENGTH && jobs[i]->n_out == LONG - 5 * i);
        assert_int_equal(jobs[i]->usage.output_tokens, jobs[i]->n_out);
        assert_int_equal(toys[i].closed, i % 3 != 2);
        if (i % 3 != 2) tokens_are_allowed(&toys[i], jobs[i], what);
        if (!want[i])
            want[i] = copy_job(jobs[i]), *want[i] = *jobs[i];
        else
            must_agree(want[i], jobs[i], what);
        free(jobs[i]);
    }
    engine_close(g);
}

static void same_answers_however_they_are_made(void **state) {
    (void)state;
    job *want[JOBS] = {0};
    const scheduler_options host = {.manual = true}, ahead = {.manual = true, .overlap_anywhere = true},
                            device = {.manual = true, .overlap_anywhere = true, .disable_overlap = true};
    run_jobs("one by one, drawn by the host", host, 1, 0, false, want);
    run_jobs("one by one, forced", host, 1, 0, true, want);
    run_jobs("together", host, JOBS, 0, false, want);
    run_jobs("together, forced", host, JOBS, 0, true, want);
    run_jobs("together, drawn by the device", device, JOBS, 0, false, want);
    run_jobs("together, drawn by the device, forced", device, JOBS, 0, true, want);
    run_jobs("queued ahead", ahead, JOBS, 0, false, want);
    run_jobs("queued ahead, forced", ahead, JOBS, 0, true, want);
    run_jobs("a small pool", ahead, JOBS, 256, true, want);
    run_jobs("a small pool, drawn by the host", host, JOBS, 256, true, want);
    for (int i = 0; i < JOBS; i++) free(want[i]);
}

/* Steps are queued ahead while filters hold, and forced rows ride along. */
static void filtered_rows_are_queued_ahead(void **state) {
    (void)state;
    for (int forced = 0; forced < 2; forced++) {
        engine *g = open_engine(DIR, "cpu", 4, 0, 64);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .overlap_anywhere = true});
        toy toys[4];
        token_filter f[4];
        job *jobs[4];
        for (int i = 0; i < 4; i++) {
            toys[i] = toy_of((u64)i, engine_config(g)->vocab);
            f[i] = filter_of(&toys[i], forced);
            jobs[i] = filtered_job(200 + (u64)i, 5, 90, i ? &f[i] : NULL);
            must_submit(s, jobs[i]);
        }
        run_all(s);
        const sched_stats st = stats_of(s);
        if (st.ahead < st.steps - 12) fail_msg("%lld of %lld steps", (long long)st.ahead, (long long)st.steps);
        scheduler_close(s);
        for (int i = 0; i < 4; i++) free(jobs[i]);
        engine_close(g);
    }
}

static void ends(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        engine *g = open_engine(DIR, "cpu", 4, 0, 64);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .overlap_anywhere = ahead});
        const i64 vocab = engine_config(g)->vocab;
        toy fails = toy_of(1, vocab), whole = toy_of(2, vocab), stops = toy_of(3, vocab), late = toy_of(4, vocab);
        fails.fails_at = 3, whole.whole_at = whole.ends_from = 5, stops.ends_from = 0, late.ends_from = 0,
        late.whole_at = 0;
        const token_filter f[4] = {filter_of(&fails, true), filter_of(&whole, true), filter_of(&stops, true),
                                   filter_of(&late, true)};
        job *jobs[4];
        for (int i = 0; i < 4; i++) jobs[i] = filtered_job(300, 5, 40, &f[i]);
        /* every token that the toy does not let come is a stop id: at once, but for min_new */
        for (int i = 2; i < 4; i++) jobs[i]->r.n_stop = 1, jobs[i]->stops[0] = 3 - i;
        jobs[2]->r.bias_ids = jobs[2]->stops, jobs[2]->r.n_bias = 1;
        const f32 much = 900;
        jobs[2]->r.bias = &much, jobs[2]->r.min_new = 4;
        jobs[3]->r.min_new = 2; /* nothing but an end may come, however few tokens there are */
        for (int i = 0; i < 4; i++) must_submit(s, jobs[i]);
        run_all(s);
        assert_int_equal(jobs[0]->finish, SCHED_ERROR);
        assert_string_equal(jobs[0]->error.text, "the toy fails");
        assert_int_equal(jobs[0]->n_out, 3);
        assert_int_equal(jobs[1]->finish, SCHED_STOP);
        assert_int_equal(jobs[1]->stop_id, -1);
        assert_int_equal(jobs[1]->n_out, 5);
        assert_int_equal(jobs[2]->finish, SCHED_STOP);
        assert_int_equal(jobs[2]->stop_id, 1);
        /* token 4 .. are forced with no draw between; behind them the biased stop id comes */
        assert_int_equal(jobs[2]->n_out, PERIOD + 1);
        assert_int_equal(jobs[3]->finish, SCHED_STOP);
        assert_int_equal(jobs[3]->stop_id, 0);
        assert_int_equal(jobs[3]->n_out, 1);
        assert_true(fails.closed == 1 && whole.closed == 1 && stops.closed == 1 && late.closed == 1);
        scheduler_close(s);
        for (int i = 0; i < 4; i++) free(jobs[i]);
        engine_close(g);
    }
}

/* Ids of text among the stop ids, as likely as can be, end no answer where it may not end; where nothing else is left
 * that is an error. */
static void text_ends_only_where_it_may(void **state) {
    (void)state;
    for (int forced = 0; forced < 2; forced++) {
        engine *g = open_engine(DIR, "cpu", 2, 0, 64);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
        const i64 vocab = engine_config(g)->vocab;
        toy late = toy_of(3, vocab), stuck = toy_of(4, vocab);
        late.ends_from = PERIOD;
        const token_filter f[2] = {filter_of(&late, forced), filter_of(&stuck, forced)};
        job *jobs[2];
        const f32 much[2] = {900, 900};
        for (int i = 0; i < 2; i++) jobs[i] = filtered_job(300, 5, 40, &f[i]), jobs[i]->r.n_stop = 1;
        jobs[0]->stops[0] = 2;
        while (!toy_allows(&late, 0, jobs[0]->stops[0])) jobs[0]->stops[0]++;
        jobs[0]->r.bias_ids = jobs[0]->stops, jobs[0]->r.n_bias = 1, jobs[0]->r.bias = much;
        jobs[1]->stops[0] = toy_forced_id(&stuck, FORCED_AT + 1);
        for (int i = 0; i < 2; i++) must_submit(s, jobs[i]);
        run_all(s);
        assert_int_equal(jobs[0]->finish, SCHED_STOP);
        assert_int_equal(jobs[0]->n_out, PERIOD + 1);
        assert_int_equal(jobs[1]->finish, SCHED_ERROR);
        assert_int_equal(jobs[1]->n_out, FORCED_AT + 1);
        assert_non_null(strstr(jobs[1]->error.text, "stop ids"));
        scheduler_close(s);
        for (int i = 0; i < 2; i++) free(jobs[i]);
        engine_close(g);
    }
}

/* Who was refused is not closed by the scheduler; who is aborted is. */
static void filters_are_closed_once(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    toy t = toy_of(1, engine_config(g)->vocab);
    const token_filter f = filter_of(&t, true);
    job *bad = filtered_job(1, 5, -1, &f), *good = filtered_job(1, 5, 30, &f), *waits = copy_job(good);
    bad->r.prompt = bad->prompt;
    assert_int_equal(scheduler_submit(s, &bad->r, 1, NULL, NULL, NULL), SCHED_BAD_REQUEST);
    assert_int_equal(t.closed, 0);
    must_submit(s, good);
    must_submit(s, waits);
    for (int i = 0; i < 3; i++) scheduler_step(s);
    scheduler_abort(s, good->id);
    scheduler_step(s);
    assert_int_equal(t.closed, 1);
    scheduler_close(s);
    assert_int_equal(t.closed, 2);
    assert_true(waits->finish == SCHED_ABORT);
    free(bad), free(good), free(waits);
    engine_close(g);
}

/* With log-probabilities every token is drawn, and has its own. */
static void logprobs_of_every_token(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    toy t = toy_of(1, engine_config(g)->vocab);
    const token_filter f = filter_of(&t, true);
    job *j = filtered_job(9, 5, 30, &f);
    j->r.logprobs = true;
    must_submit(s, j);
    run_all(s);
    assert_int_equal(t.asked_forced, 0);
    for (i64 i = 0; i < j->n_out; i++) assert_true(j->out[i].has && j->out[i].logprob < 0);
    tokens_are_allowed(&t, j, "with log-probabilities");
    scheduler_close(s);
    free(j);
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_answers_however_they_are_made),
                                       cmocka_unit_test(filtered_rows_are_queued_ahead),
                                       cmocka_unit_test(ends),
                                       cmocka_unit_test(text_ends_only_where_it_may),
                                       cmocka_unit_test(filters_are_closed_once),
                                       cmocka_unit_test(logprobs_of_every_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
