/* The scheduler's rules, one by one: limits, ends, priorities, prefix cache, fairness, errors. */
#include "random_model.h"
#include "kernels/sampling/sample.h"
#include "runtime/sched_util.h"
#include <unistd.h>

static const char *const DIR = "build/golden/k2-thinking-int4";
static const scheduler_options BY_HAND = {.manual = true};

static job *alone(const job *from) {
    job *j = copy_job(from);
    engine *g = open_engine(DIR, "cpu", 1, 0, 512);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .disable_radix_cache = true});
    must_submit(s, j);
    run_all(s);
    scheduler_close(s);
    engine_close(g);
    return j;
}

/* ---- Limits ---- */

static void bad_requests_are_named(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 256, 64);
    scheduler *s = open_scheduler(g, BY_HAND);
    i32 ids[300] = {0}, bad_id[] = {1, 100000}, negative[] = {-1};
    f32 nan_bias[] = {NAN}, bias[] = {1};
    const sampling good = sampling_default();
    sampling hot = good;
    hot.temperature = -1;
    const struct {
        sched_request r;
        sched_verdict want;
        const char *text;
    } cases[] = {
        {{.prompt = ids, .n_prompt = 0, .sampling = good}, SCHED_BAD_REQUEST, "empty"},
        {{.prompt = bad_id, .n_prompt = 2, .sampling = good}, SCHED_BAD_REQUEST, "100000"},
        {{.prompt = negative, .n_prompt = 1, .sampling = good}, SCHED_BAD_REQUEST, "-1"},
        {{.prompt = ids, .n_prompt = 1, .sampling = hot}, SCHED_BAD_REQUEST, "temperature"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .max_new = -1}, SCHED_BAD_REQUEST, "max_tokens"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .max_new = 3, .min_new = 4}, SCHED_BAD_REQUEST, "min_tokens"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .top_logprobs = 1000}, SCHED_BAD_REQUEST, "top_logprobs"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .prompt_top_logprobs = -1},
         SCHED_BAD_REQUEST,
         "top_logprobs"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .stop_ids = bad_id, .n_stop = 2},
         SCHED_BAD_REQUEST,
         "stop_token_ids"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .stop_ids = ids, .n_stop = 5000},
         SCHED_BAD_REQUEST,
         "stop_token_ids"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .bias_ids = negative, .bias = bias, .n_bias = 1},
         SCHED_BAD_REQUEST,
         "logit_bias"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .bias_ids = ids, .bias = nan_bias, .n_bias = 1},
         SCHED_BAD_REQUEST,
         "logit_bias"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .deadline_s = -1}, SCHED_BAD_REQUEST, "deadline"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .deadline_s = NAN}, SCHED_BAD_REQUEST, "deadline"},
        /* the pool of 256 tokens is smaller than the context */
        {{.prompt = ids, .n_prompt = 256, .sampling = good}, SCHED_TOO_LONG, "maximum context length"},
        {{.prompt = ids, .n_prompt = 200, .sampling = good, .max_new = 57}, SCHED_TOO_LONG, "maximum context length"},
        {{.prompt = ids, .n_prompt = 1, .sampling = good, .max_new = INT64_MAX},
         SCHED_TOO_LONG,
         "maximum context length"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        err e = {0};
        assert_int_equal(scheduler_submit(s, &cases[i].r, 1, NULL, NULL, &e), cases[i].want);
        if (!strstr(e.text, cases[i].text)) fail_msg("case %zu: %s", i, e.text);
    }
    assert_int_equal(scheduler_submit(s, NULL, 0, NULL, NULL, NULL), SCHED_BAD_REQUEST);
    sched_request two[2] = {{.prompt = ids, .n_prompt = 1, .sampling = good}, {.prompt = ids, .n_prompt = 0}};
    assert_int_equal(scheduler_submit(s, two, 2, NULL, NULL, NULL), SCHED_BAD_REQUEST); /* all or none */
    assert_false(scheduler_step(s));
    assert_int_equal(stats_of(s).refused, COUNT_OF(cases) + 2);
    scheduler_close(s);
    engine_close(g);
}

static void the_memory_plan_is_checked(void **state) {
    (void)state;
    const struct {
        engine_options o;
        status want;
        const char *text;
    } cases[] = {
        {{.max_running = -1}, ST_INPUT, "--max-running-requests"},
        {{.max_running = 2, .kv_tokens = -5}, ST_INPUT, "--max-total-tokens"},
        {{.max_running = 2, .mem_fraction = 1.5}, ST_INPUT, "--mem-fraction-static"},
        {{.max_running = 2, .mem_fraction = NAN}, ST_INPUT, "--mem-fraction-static"},
        {{.max_running = 2, .mem_fraction = 1e-9}, ST_LIMIT, "--mem-fraction-static"},
        {{.max_running = 2, .kv_tokens = (i64)1 << 36}, ST_LIMIT, "KV cache"},
        {{.max_running = 2, .kv_tokens = 100}, ST_OK, ""},
        {{.max_running = 2, .mem_fraction = 0.01}, ST_OK, ""},
        {{.max_running = 2}, ST_OK, ""},
    };
    const i64 tokens[] = {128, 1024, 1024}; /* whole pages; no more than two contexts */
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        engine *g = NULL;
        err e = {0};
        engine_options o = cases[i].o;
        o.model_dir = DIR;
        o.context = MAX_TOKENS;
        assert_int_equal(engine_open(&g, &o, &e), cases[i].want);
        if (!strstr(e.text, cases[i].text)) fail_msg("case %zu: %s", i, e.text);
        if (g) assert_int_equal(engine_kv_tokens(g), tokens[i - (COUNT_OF(cases) - 3)]);
        engine_close(g);
    }
    engine *g = open_engine(DIR, "cpu", 0, 0, 64); /* without places: no scheduler */
    scheduler *s;
    scheduler_options o = {.on_events = on_events};
    assert_int_equal(scheduler_open(&s, g, &o, NULL), ST_INPUT);
    engine_close(g);
    g = open_engine(DIR, "cpu", 1, 0, 64);
    o.conservativeness = NAN;
    assert_int_equal(scheduler_open(&s, g, &o, NULL), ST_INPUT);
    o = (scheduler_options){0};
    assert_int_equal(scheduler_open(&s, g, &o, NULL), ST_INPUT);
    engine_close(g);
}

static void the_whole_pool_serves_one(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 4, 256, 64);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *a = make_job(1, 100, 156), *b = make_job(2, 200, 0);
    must_submit(s, a);
    must_submit(s, b);
    run_all(s);
    assert_int_equal(a->n_out, 156);
    assert_int_equal(b->n_out, 56); /* max_new 0: to the end */
    assert_int_equal(b->finish, SCHED_LENGTH);
    scheduler_close(s);
    engine_close(g);
    free(a), free(b);
}

static void deadlines_end_requests(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 1, 0, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .queue_timeout_s = 0.05});
    job *a = make_job(1, 10, 400), *b = make_job(2, 10, 400);
    a->r.deadline_s = 0.1;
    must_submit(s, a);
    must_submit(s, b);
    for (int i = 0; i < 3; i++) scheduler_step(s);
    usleep(60000);
    scheduler_step(s);
    assert_true(b->ended && b->finish == SCHED_TIMEOUT && !b->started && strstr(b->error.text, "waited"));
    assert_false(a->ended);
    usleep(60000);
    scheduler_step(s);
    assert_true(a->ended && a->finish == SCHED_TIMEOUT && a->n_out > 0 && strstr(a->error.text, "deadline"));
    must_check(s);
    scheduler_close(s);
    engine_close(g);
    free(a), free(b);
}

/* ---- Same results ---- */

static i64 logits_vocab;
static status keep_logits(void *ud, i64 index, f32 *logits, err *e) {
    (void)index, (void)e;
    memcpy(ud, logits, (size_t)logits_vocab * sizeof *logits);
    return ST_OK;
}

/* One sequence through seq_*, which makes no choices, and through the scheduler. */
static void agrees_with_a_single_sequence(void **state) {
    (void)state;
    job *j = make_job(9, 100, 40);
    j->r.sampling.temperature = 0;
    engine *g = open_engine(DIR, "cpu", 2, 0, 33);
    scheduler *s = open_scheduler(g, BY_HAND);
    must_submit(s, j);
    run_all(s);
    scheduler_close(s);
    f32 logits[256];
    seq *q;
    logits_vocab = engine_config(g)->vocab;
    assert_true(logits_vocab <= 256);
    assert_int_equal(seq_open(&q, g, NULL), ST_OK);
    assert_int_equal(seq_run(q, j->prompt, 100, false, LOGITS_LAST, keep_logits, logits, NULL), ST_OK);
    for (i64 i = 0; i < 40; i++) {
        i32 id = argmax_f32(logits, logits_vocab);
        assert_int_equal(id, j->out[i].id);
        assert_int_equal(seq_run(q, &id, 1, true, LOGITS_LAST, keep_logits, logits, NULL), ST_OK);
    }
    seq_close(q);
    engine_close(g);
    free(j);
}

static void choices_share_one_prompt(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 8, 0, 64);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *j[4], *want[4];
    sched_request r[4];
    for (int i = 0; i < 4; i++) {
        j[i] = make_job(3, 200, 10);
        j[i]->r.choice = (u32)i;
        want[i] = alone(j[i]);
        r[i] = j[i]->r;
        r[i].user = j[i], r[i].prompt = j[i]->prompt;
    }
    u64 ids[4];
    assert_int_equal(scheduler_submit(s, r, 4, ids, NULL, NULL), SCHED_ACCEPTED);
    run_all(s);
    for (int i = 0; i < 4; i++) {
        must_agree(want[i], j[i], "choice");
        assert_int_equal(j[i]->usage.cached_tokens, i ? 192 : 0);
        assert_true(!i || ids[i] != ids[i - 1]);
    }
    assert_true(j[0]->out[5].id != j[1]->out[5].id || j[0]->out[6].id != j[1]->out[6].id);
    assert_int_equal(stats_of(s).prefilled_tokens, 200 + 3 * 8);
    scheduler_close(s);
    engine_close(g);
    for (int i = 0; i < 4; i++) free(j[i]), free(want[i]);
}

/* A prompt of whole pages that is known entirely still runs its last page; other spaces share nothing. */
static void a_known_prompt_runs_its_last_page(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 8, 0, 512);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *first = make_job(4, 128, 5), *second = copy_job(first), *other = copy_job(first);
    must_submit(s, first);
    run_all(s);
    must_submit(s, second);
    run_all(s);
    other->r.cache_space = 7;
    must_submit(s, other);
    run_all(s);
    assert_int_equal(first->usage.cached_tokens, 0);
    assert_int_equal(second->usage.cached_tokens, 64);
    assert_int_equal(other->usage.cached_tokens, 0);
    must_agree(first, second, "second");
    must_agree(first, other, "other");
    scheduler_close(s);
    engine_close(g);
    free(first), free(second), free(other);
}

/* A second turn, whose prompt is the first turn with its answer: found in the cache; with cache_prompts_only the
 * answer is computed anew and the result is that of a fresh request, bit for bit. */
static void second_turns_reuse_the_answer(void **state) {
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        engine *g = open_engine(DIR, "cpu", 2, 0, 512);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .cache_prompts_only = strict});
        job *a = make_job(5, 100, 100), *b = make_job(6, 250, 30);
        must_submit(s, a);
        run_all(s);
        memcpy(b->prompt, a->prompt, 100 * 4);
        for (int i = 0; i < 100; i++) b->prompt[100 + i] = a->out[i].id;
        job *fresh = alone(b);
        must_submit(s, b);
        run_all(s);
        assert_int_equal(b->usage.cached_tokens, strict ? 64 : 192);
        if (strict) must_agree(fresh, b, "second turn");
        scheduler_close(s);
        engine_close(g);
        free(a), free(b), free(fresh);
    }
}

/* ---- Order ---- */

static void priorities_take_places_and_give_them_back(void **state) {
    (void)state;
    job *low[2], *want[2], *high = make_job(30, 40, 20);
    for (int i = 0; i < 2; i++) low[i] = make_job((u64)i + 20, 90, 60), want[i] = alone(low[i]);
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    scheduler *s = open_scheduler(g, BY_HAND);
    for (int i = 0; i < 2; i++) must_submit(s, low[i]);
    for (int i = 0; i < 30; i++) scheduler_step(s);
    high->r.priority = 1;
    must_submit(s, high);
    scheduler_step(s);
    assert_true(high->started && stats_of(s).preemptions == 1);
    i64 had = low[1]->n_out;
    run_all(s);
    assert_true(high->usage.ended_s < low[0]->usage.ended_s && low[1]->n_out > had);
    assert_int_equal(low[1]->usage.preemptions, 1); /* the youngest of the lowest */
    for (int i = 0; i < 2; i++) must_agree(want[i], low[i], "preempted"), free(low[i]), free(want[i]);
    scheduler_close(s);
    engine_close(g);
    free(high);
}

/* While a long prompt is computed, a running stream gets a token a step, and a short prompt overtakes. */
static void a_long_prompt_stalls_nobody(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 4, 4 * MAX_TOKENS, 32);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *stream = make_job(1, 5, 200), *longest = make_job(2, 480, 5), *brief = make_job(3, 16, 5);
    must_submit(s, stream);
    scheduler_step(s);
    must_submit(s, longest);
    scheduler_step(s);
    must_submit(s, brief);
    i64 steps = 0;
    while (!longest->n_out) {
        i64 before = stream->n_out;
        scheduler_step(s);
        assert_int_equal(stream->n_out, before + 1);
        assert_true(stats_of(s).batch <= 32 + 2);
        if (++steps == 1) assert_int_equal(brief->n_out, 1);
    }
    assert_in_range(steps, 480 / 32 - 1, 480 / 32 + 1);
    run_all(s);
    scheduler_close(s);
    engine_close(g);
    free(stream), free(longest), free(brief);
}

/* Long prompts may fill the machine: a short one still gets its first token within a few steps, and they end. */
static void short_prompts_pass_many_long_ones(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 8, 8 * MAX_TOKENS, 32);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *longest[5], *brief = make_job(3, 16, 5);
    for (int i = 0; i < 5; i++) must_submit(s, longest[i] = make_job((u64)i + 10, 480, 5));
    for (int i = 0; i < 4; i++) scheduler_step(s);
    assert_int_equal(stats_of(s).running, 2);
    must_submit(s, brief);
    for (int i = 0; i < 2; i++) scheduler_step(s);
    assert_true(brief->n_out >= 1);
    run_all(s);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(longest[i]->n_out, 5);
        if (i) assert_true(longest[i]->usage.first_token_s > longest[i - 1]->usage.first_token_s);
    }
    scheduler_close(s);
    engine_close(g);
    for (int i = 0; i < 5; i++) free(longest[i]);
    free(brief);
}

/* One of two equal prompts waits for the other; when that is aborted, it goes on from where it was. */
static void who_waits_for_a_prefix_survives_its_end(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 4, 0, 32);
    scheduler *s = open_scheduler(g, BY_HAND);
    job *a = make_job(8, 300, 5), *b = make_job(8, 300, 5), *want = alone(b);
    must_submit(s, a);
    must_submit(s, b);
    for (int i = 0; i < 5; i++) scheduler_step(s);
    assert_false(b->started);
    scheduler_abort(s, a->id);
    run_all(s);
    assert_int_equal(b->usage.cached_tokens, 128); /* of 5 * 32 */
    must_agree(want, b, "after the one it waited for");
    scheduler_close(s);
    engine_close(g);
    free(a), free(b), free(want);
}

static void aborts_anywhere_free_everything(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 640, 16);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .disable_radix_cache = true});
    for (int where = 0; where < 5; where++) {
        job *a = make_job(1, 100, 200), *b = make_job(2, 100, 200), *c = make_job(3, 100, 200);
        job *all[] = {a, b, c};
        for (int i = 0; i < (where == 4 ? 2 : 3); i++) must_submit(s, all[i]);
        if (where == 0) scheduler_abort(s, c->id); /* in the inbox */
        if (where > 0) scheduler_step(s);
        if (where == 1) scheduler_abort(s, c->id); /* queued */
        if (where == 2) scheduler_abort(s, a->id); /* within its prompt */
        for (int i = 0; where > 2 && i < 40; i++) scheduler_step(s);
        if (where == 3) scheduler_abort(s, a->id); /* decoding */
        if (where == 4) {                          /* preempted */
            c->r.priority = 1;
            must_submit(s, c);
            scheduler_step(s);
            assert_int_equal(stats_of(s).preemptions, 1);
            scheduler_abort(s, b->id);
        }
        run_all(s);
        int aborted = 0;
        for (int i = 0; i < 3; i++) aborted += all[i]->finish == SCHED_ABORT;
        assert_int_equal(aborted, 1);
        assert_int_equal(stats_of(s).pages_free, stats_of(s).pages);
        scheduler_abort(s, a->id); /* long gone */
        assert_false(scheduler_step(s));
        for (int i = 0; i < 3; i++) free(all[i]);
    }
    scheduler_close(s);
    engine_close(g);
}

static void flush_needs_an_idle_scheduler(void **state) {
    (void)state;
    engine *g = open_engine(DIR, "cpu", 2, 0, 64);
    scheduler *s = open_scheduler(g, BY_HAND);
    err e = {0};
    job *a = make_job(1, 200, 4);
    must_submit(s, a);
    assert_int_equal(scheduler_flush(s, &e), ST_LIMIT);
    run_all(s);
    assert_int_equal(stats_of(s).pages_cached, 3);
    assert_int_equal(scheduler_flush(s, &e), ST_OK);
    assert_int_equal(stats_of(s).pages_cached, 0);
    scheduler_close(s);
    engine_close(g);
    free(a);
}

/* ---- Errors ---- */

enum { POISON = 7 };
static const i32 poison[] = {POISON};
static const f32 never[] = {-1000};

static const random_model poisoned = {.name = "poisoned",
                                      .vocab = 96,
                                      .hidden = 64,
                                      .layers = 2,
                                      .dense = 1,
                                      .heads = 2,
                                      .q_lora = 32,
                                      .kv_lora = 32,
                                      .nope = 16,
                                      .rope = 16,
                                      .v = 16,
                                      .inter = 64,
                                      .expert_inter = 32,
                                      .experts = 4,
                                      .top_k = 2,
                                      .shared = 1,
                                      .context = 512,
                                      .attn = WF_BF16,
                                      .mlp = WF_BF16,
                                      .expert = {WF_BF16, WF_BF16},
                                      .embed = WF_BF16,
                                      .router = WF_BF16};

static void poison_embedding(const char *name, dtype t, u8 *data, u64 bytes) {
    (void)bytes;
    if (!strcmp(name, "model.embed_tokens.weight") && t == DT_BF16)
        for (int i = 0; i < 64; i++) ((u16 *)(void *)data)[POISON * 64 + i] = 0x7fc0;
}

/* A token whose embedding is NaN fails its request alone; pages with its rows harm nobody afterwards. */
static void numeric_errors_fail_one_request(void **state) {
    (void)state;
    char dir[64];
    assert_true(random_model_write(&poisoned, 1, dir, poison_embedding));
    for (int d = 0; d < 2; d++) {
        engine *g = open_engine(dir, d ? "ref" : "cpu", 3, 320, 40);
        scheduler *s = open_scheduler(g, BY_HAND);
        job *good[4], *bad = make_job(50, 90, 10), *want = NULL;
        for (int i = 0; i < 4; i++) {
            good[i] = make_job(40, 120, 30);
            for (int t = 0; t < 120; t++) good[i]->prompt[t] = 8 + good[i]->prompt[t] % 80;
            good[i]->r.bias_ids = poison; /* never drawn */
            good[i]->r.bias = never;
            good[i]->r.n_bias = 1;
        }
        for (int t = 0; t < 90; t++) bad->prompt[t] = 8 + bad->prompt[t] % 80;
        bad->prompt[70] = POISON;
        must_submit(s, good[0]);
        run_all(s);
        want = good[0];
        for (int round = 0; round < 3; round++) {
            rewind_job(bad);
            must_submit(s, good[round + 1]);
            must_submit(s, bad);
            run_all(s);
            assert_int_equal(bad->finish, SCHED_ERROR);
            assert_int_equal(bad->error.code, ST_NUMERIC);
            assert_non_null(strstr(bad->error.text, "token 7 (position 70)"));
            must_agree(want, good[round + 1], "beside a poisoned one");
            assert_int_equal(scheduler_flush(s, NULL), ST_OK); /* so that bad pages are used again */
        }
        scheduler_close(s);
        engine_close(g);
        for (int i = 0; i < 4; i++) free(good[i]);
        free(bad);
    }
    random_model_remove(dir);
}

/* The same jobs, whose answers sooner or later draw the poisoned token, in turn and ahead: every answer ends where
 * its own NaN is, with the same tokens before it, although the step behind it had been queued. */
static void numeric_errors_ahead(void **state) {
    (void)state;
    char dir[64];
    assert_true(random_model_write(&poisoned, 1, dir, poison_embedding));
    for (int d = 0; d < 2; d++) {
        enum { JOBS = 12 };
        job *jobs[JOBS], *want[JOBS];
        i64 failed = 0;
        for (int i = 0; i < JOBS; i++) {
            jobs[i] = make_job(70 + i, 30 + i, 200);
            for (int t = 0; t < 30 + i; t++) jobs[i]->prompt[t] = 8 + jobs[i]->prompt[t] % 80;
            jobs[i]->r.sampling.temperature = 1;
            jobs[i]->r.logprobs = true;
            want[i] = malloc(sizeof *want[i]);
        }
        for (int ahead = 0; ahead < 2; ahead++) {
            sched_stats st;
            scheduler_options o = BY_HAND;
            o.overlap_anywhere = ahead;
            engine *g = open_engine(dir, d ? "ref" : "cpu", 4, 1024, 40);
            scheduler *s = open_scheduler(g, o);
            for (int i = 0; i < JOBS; i++) must_submit(s, jobs[i]);
            run_all(s);
            scheduler_stats(s, &st);
            assert_int_equal(st.ahead > 100, ahead);
            for (int i = 0; i < JOBS; i++) {
                if (ahead) {
                    assert_int_equal(jobs[i]->finish, want[i]->finish);
                    assert_int_equal(jobs[i]->n_out, want[i]->n_out);
                    assert_string_equal(jobs[i]->error.text, want[i]->error.text);
                    must_agree(want[i], jobs[i], "ahead");
                }
                failed += jobs[i]->error.code == ST_NUMERIC;
                *want[i] = *jobs[i];
                rewind_job(jobs[i]);
            }
            assert_int_equal(scheduler_flush(s, NULL), ST_OK);
            scheduler_close(s);
            engine_close(g);
        }
        assert_true(failed > 10);
        for (int i = 0; i < JOBS; i++) free(jobs[i]), free(want[i]);
    }
    random_model_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(the_memory_plan_is_checked),
        cmocka_unit_test(the_whole_pool_serves_one),
        cmocka_unit_test(deadlines_end_requests),
        cmocka_unit_test(agrees_with_a_single_sequence),
        cmocka_unit_test(choices_share_one_prompt),
        cmocka_unit_test(a_known_prompt_runs_its_last_page),
        cmocka_unit_test(second_turns_reuse_the_answer),
        cmocka_unit_test(priorities_take_places_and_give_them_back),
        cmocka_unit_test(a_long_prompt_stalls_nobody),
        cmocka_unit_test(short_prompts_pass_many_long_ones),
        cmocka_unit_test(who_waits_for_a_prefix_survives_its_end),
        cmocka_unit_test(aborts_anywhere_free_everything),
        cmocka_unit_test(flush_needs_an_idle_scheduler),
        cmocka_unit_test(numeric_errors_fail_one_request),
        cmocka_unit_test(numeric_errors_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
