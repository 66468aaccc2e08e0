/* Drafts change no answer: the same tokens and log-probabilities, bit for bit on ref and cpu, however many are
 * proposed, alone and among others, drawn by host or device, queued ahead, preempted, with penalties, stops, filters.
 */
#include "runtime/ngram.h"
#include "runtime/sched_util.h"

static const char *const DIR = "build/golden/k2-thinking-int4";
enum { JOBS = 8 };

/* ---- the index ---- */

static void proposes_what_followed(void **state) {
    (void)state;
    ngram_index g = {0};
    i32 tokens[64] = {1, 2, 3, 4, 5, 6, 7, 1, 2, 3}, draft[8];
    assert_int_equal(ngram_propose(&g, tokens, 3, draft, 8), 0);
    assert_int_equal(ngram_propose(&g, tokens, 9, draft, 8), 0);
    assert_int_equal(ngram_propose(&g, tokens, 10, draft, 8), 3); /* as many as agree */
    assert_true(draft[0] == 4 && draft[1] == 5 && draft[2] == 6);
    assert_int_equal(ngram_propose(&g, tokens, 10, draft, 2), 2);
    tokens[10] = 4, tokens[11] = 9, tokens[12] = 1, tokens[13] = 2, tokens[14] = 3, tokens[15] = 4;
    assert_int_equal(ngram_propose(&g, tokens, 16, draft, 8), 4); /* of two places the latest one, and four agree */
    assert_true(draft[0] == 9 && draft[1] == 1 && draft[2] == 2 && draft[3] == 3);
    for (int i = 0; i < 64; i++) tokens[i] = 7;
    ngram_free(&g);
    assert_int_equal(ngram_propose(&g, tokens, 20, draft, 8), 1); /* up to the end of what there is */
    ngram_free(&g);
}

/* Beside a search through all of them; tokens behind the n are not looked at. */
static void finds_what_a_search_finds(void **state) {
    (void)state;
    enum { N = 3000, MOST = 6 };
    i32 *tokens = malloc(N * sizeof *tokens), draft[MOST];
    ngram_index g = {0};
    rng_state = 5;
    for (i64 n = 0; n < N; n++) {
        tokens[n] = (i32)pick(0, n % 500 < 250 ? 2 : 300);
        if (n % 3) continue;
        i64 from = 0, want = 0;
        for (i64 p = n; n >= NGRAM_LENGTH && p >= NGRAM_LENGTH && !from; p--)
            if (!memcmp(tokens + p - NGRAM_LENGTH, tokens + n + 1 - NGRAM_LENGTH, NGRAM_LENGTH * sizeof *tokens))
                from = p;
        while (from && want < from && want < MOST && tokens[from - 1 - want] == tokens[n - want]) want++;
        if (from) want = min_i64(want, n + 1 - from);
        const i64 got = ngram_propose(&g, tokens, n + 1, draft, MOST);
        if (got != want)
            fail_msg("%lld tokens: %lld proposed, not %lld", (long long)n + 1, (long long)got, (long long)want);
        if (got) assert_memory_equal(draft, tokens + from, (size_t)got * sizeof *draft);
    }
    ngram_free(&g), free(tokens);
}

/* ---- answers ---- */

static bool even_mask_allows(i32 state, i32 id) { return id % 2 == state % 2; }
static status even_mask(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    (void)e;
    *may_end = false;
    for (i32 id = 0; id < *(i64 *)ud; id++)
        if (even_mask_allows(state, id)) mask[id / 64] |= (u64)1 << id % 64;
    return ST_OK;
}
static i32 even_next(void *ud, i32 state, i32 id) {
    (void)ud;
    return even_mask_allows(state, id) ? state + 1 : TOKEN_FILTER_DEAD;
}
static void even_close(void *ud) { (void)ud; }

/* Greedy ones soon repeat themselves; prompts that do so, too. */
static void draft_jobs(job **jobs, const token_filter *f) {
    for (int i = 0; i < JOBS; i++) {
        job *j = jobs[i] = make_job(40 + (u64)i, 12 + 9 * i, 70 - 4 * i);
        for (i64 k = 6; k < j->r.n_prompt; k++) j->prompt[k] = j->prompt[k - 6];
        j->r.logprobs = i % 4 == 1;
        if (i % 4 == 1) j->r.top_logprobs = TOP;
        if (i % 3 != 1) j->r.sampling.temperature = 0;
        if (i % 4 == 2) j->r.sampling.frequency_penalty = 0.02;
        if (i == 5) j->r.n_stop = 1, j->stops[0] = 77, j->r.min_new = 20;
        if (i == 3 || i == 6) j->r.filter = f;
    }
}

static i64 draft_scene(const char *what, const char *dir, const char *device, scheduler_options o, i64 running,
                       i64 kv_tokens, job **want) {
    engine *g = open_engine(dir, device, running, kv_tokens, 64);
    scheduler *s = open_scheduler(g, o);
    i64 vocab = engine_config(g)->vocab, tokens = 0;
    const token_filter f = {.ud = &vocab, .mask = even_mask, .next = even_next, .close = even_close};
    job *jobs[JOBS];
    draft_jobs(jobs, &f);
    for (int i = 0; i < JOBS; i++) must_submit(s, jobs[i]);
    run_all(s);
    const sched_stats st = stats_of(s);
    for (int i = 0; i < JOBS; i++) {
        assert_true(jobs[i]->ended);
        tokens += jobs[i]->n_out;
        if (want[i])
            must_agree(want[i], jobs[i], what), free(jobs[i]);
        else
            want[i] = jobs[i];
    }
    assert_int_equal(st.generated_tokens, tokens);
    assert_true(st.draft_true <= st.draft_tokens && (o.draft_tokens || !st.draft_tokens));
    assert_true(scheduler_flush(s, NULL) == ST_OK && stats_of(s).pages_free == st.pages);
    scheduler_close(s);
    engine_close(g);
    return st.draft_true;
}

static void answers_stay_the_same(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "ref"};
    for (size_t d = 0; d < COUNT_OF(devices); d++) {
        job *want[JOBS] = {0};
        i64 came_true = 0;
        scheduler_options o = {.manual = true};
        draft_scene("without", DIR, devices[d], o, 1, 0, want);
        for (o.draft_tokens = 1; o.draft_tokens < 9; o.draft_tokens += 3) {
            came_true += draft_scene("alone", DIR, devices[d], o, 1, 0, want);
            came_true += draft_scene("together", DIR, devices[d], o, 3, 0, want);
            scheduler_options ahead = o;
            ahead.overlap_anywhere = true;
            came_true += draft_scene("ahead", DIR, devices[d], ahead, 3, 0, want);
            came_true += draft_scene("a small pool", DIR, devices[d], ahead, JOBS, 256, want);
            ahead.disable_overlap = true;
            came_true += draft_scene("by the device", DIR, devices[d], ahead, 2, 0, want);
        }
        if (came_true < 100) fail_msg("%s: %lld drafts came true", devices[d], (long long)came_true);
        print_message("%s: %lld drafts came true\n", devices[d], (long long)came_true);
        for (int i = 0; i < JOBS; i++) free(want[i]);
    }
}

/* An answer that repeats itself takes fewer steps. */
static void repetition_takes_fewer_steps(void **state) {
    (void)state;
    i64 steps[2];
    for (int with = 0; with < 2; with++) {
        engine *g = open_engine("models/nano", "cpu", 1, 0, 64);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = with ? 6 : 0});
        job *j = make_job(3, 40, 200);
        for (i64 k = 4; k < 40; k++) j->prompt[k] = j->prompt[k - 4];
        j->r.sampling.temperature = 0, j->r.logprobs = false;
        must_submit(s, j);
        run_all(s);
        steps[with] = stats_of(s).steps;
        scheduler_close(s);
        engine_close(g);
        free(j);
    }
    print_message("200 tokens in %lld steps, %lld with drafts\n", (long long)steps[0], (long long)steps[1]);
    assert_true(steps[1] < steps[0] * 2 / 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposes_what_followed), cmocka_unit_test(finds_what_a_search_finds),
        cmocka_unit_test(answers_stay_the_same), cmocka_unit_test(repetition_takes_fewer_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
