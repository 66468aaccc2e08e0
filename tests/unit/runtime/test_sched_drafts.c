/* Drafts change no answer: the same tokens and log-probabilities, bit for bit on ref and cpu, however many are
 * proposed, by what followed before or by a draft model, alone and among others, drawn by host or device, queued ahead,
 * preempted, over several ranks, with penalties, stops, filters. And a draft model's are those of PyTorch. */
#include "runtime/ngram.h"
#include "base/file.h"
#include "base/json.h"
#include "model/draft_internal.h"
#include "runtime/sched_util.h"
#include "runtime/scheduler_internal.h"

#include "draft_files.h"
#include <sys/stat.h>
#include <unistd.h>

/* Whose answers, and who proposes: NULL: what followed before. */
typedef struct {
    const char *dir, *draft, *device;
    i64 ranks;
    bool brief; /* slow: one scene */
    i64 topk;   /* above 1: trees */
    i64 pp;     /* 0: one stage */
} draft_setup;
enum { JOBS = 8 };

static engine *open_with_draft(const draft_setup *d, i64 running, i64 kv_tokens, i64 steps) {
    engine *g;
    err e = {0};
    engine_options o = {.model_dir = d->dir,
                        .device = d->device,
                        .threads = 1,
                        .context = MAX_TOKENS,
                        .chunk = 64,
                        .tp = d->ranks,
                        .pp = d->pp,
                        .draft_dir = steps ? d->draft : NULL,
                        .draft_steps = d->topk > 1 ? min_i64(steps, 5) : steps,
                        .draft_topk = d->topk,
                        .draft_nodes = steps,
                        .max_running = running,
                        .kv_tokens = kv_tokens};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    return g;
}

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

static i64 draft_scene(const char *what, const draft_setup *d, scheduler_options o, i64 running, i64 kv_tokens,
                       job **want) {
    engine *g = open_with_draft(d, running, kv_tokens, o.draft_tokens);
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
    if (st.draft_differ || (o.draft_verify_rate > 0 && st.draft_checked < st.draft_rounds / 4))
        fail_msg("%s: of %lld rounds %lld tokens again, %lld of them otherwise", what, (long long)st.draft_rounds,
                 (long long)st.draft_checked, (long long)st.draft_differ);
    assert_true(scheduler_flush(s, NULL) == ST_OK && stats_of(s).pages_free == st.pages);
    scheduler_close(s);
    engine_close(g);
    return st.draft_true;
}

static void answers_stay_the_same(void **state) {
    (void)state;
    static const char *const random = "build/golden/k2-thinking-int4", *const nano = "models/nano";
    static const draft_setup setups[] = {{random, NULL, "cpu", 1, false, 1, 0},
                                         {random, NULL, "ref", 1, true, 1, 0},
                                         {nano, "models/nano-eagle3-mla", "cpu", 1, false, 1, 0},
                                         {nano, "models/nano-eagle3", "cpu", 1, true, 1, 0},
                                         {nano, "models/nano-eagle3-mla", "cpu", 2, true, 1, 0},
                                         {nano, "models/nano-eagle3", "cpu", 1, true, 2, 0},
                                         {nano, "models/nano-eagle3-mla", "cpu", 1, true, 4, 0},
                                         {nano, "models/nano-eagle3-mla", "cpu", 2, true, 3, 0},
                                         {nano, "models/nano-eagle3-mla", "ref", 1, true, 3, 0},
                                         {nano, "models/nano-eagle3", "cpu", 1, true, 1, 3},
                                         {nano, "models/nano-eagle3-mla", "cpu", 2, true, 3, 2}};
    for (size_t d = 0; d < COUNT_OF(setups); d++) {
        const draft_setup *u = &setups[d];
        const bool brief = u->brief || SANITIZED;
        if (SANITIZED && !strcmp(u->device, "ref")) continue; /* its arithmetic is watched elsewhere, and slow */
        const i64 most = u->topk > 1 ? 12 : u->draft ? DRAFT_STEPS_MOST : 8;
        job *want[JOBS] = {0};
        i64 came_true = 0;
        scheduler_options o = {.manual = true, .draft_always = true};
        draft_scene("without", u, o, 1, 0, want);
        for (o.draft_tokens = brief ? 4 : 1; o.draft_tokens <= most; o.draft_tokens += brief ? most : 5) {
            came_true += draft_scene("together", u, o, 3, 0, want);
            if (!strcmp(u->device, "ref") && u->draft) continue; /* slow */
            scheduler_options adaptive = o;
            adaptive.draft_always = false, adaptive.overlap_anywhere = true;
            came_true += draft_scene("as many as pay", u, adaptive, 3, 0, want);
            adaptive.draft_verify_rate = 0.5;
            came_true += draft_scene("every other round again", u, adaptive, 3, 0, want);
            if (brief) continue;
            came_true += draft_scene("alone", u, o, 1, 0, want);
            scheduler_options ahead = o;
            ahead.overlap_anywhere = true;
            came_true += draft_scene("ahead", u, ahead, 3, 0, want);
            came_true += draft_scene("a small pool", u, ahead, JOBS, u->draft ? 512 : 256, want);
            ahead.disable_overlap = true;
            came_true += draft_scene("by the device", u, ahead, 2, 0, want);
        }
        if (came_true < (SANITIZED ? 20 : u->draft ? 100 : 50)) /* repetition guesses less */
            fail_msg("%s: %lld drafts came true", u->device, (long long)came_true);
        print_message("%s, %lld ranks, %lld stages, %s, %lld at a step: %lld drafts came true\n", u->device,
                      (long long)u->ranks, (long long)max_i64(u->pp, 1), u->draft ? u->draft : "by repetition",
                      (long long)u->topk, (long long)came_true);
        for (int i = 0; i < JOBS; i++) free(want[i]);
    }
}

/* One whose answer of 200 tokens soon repeats itself; what the scheduler did. */
static sched_stats repeats_itself(u64 seed, scheduler_options o) {
    engine *g = open_engine("models/nano", "cpu", 1, 0, 64);
    o.manual = true;
    scheduler *s = open_scheduler(g, o);
    job *j = make_job(seed, 40, 200);
    for (i64 k = 4; k < 40; k++) j->prompt[k] = j->prompt[k - 4];
    j->r.sampling.temperature = 0, j->r.logprobs = false;
    must_submit(s, j);
    run_all(s);
    const sched_stats st = stats_of(s);
    scheduler_close(s);
    engine_close(g);
    free(j);
    return st;
}

/* How soon it repeats itself depends on the processor's arithmetic: 145 steps with AVX2, fewer with AVX-512. */
static void repetition_takes_fewer_steps(void **state) {
    (void)state;
    const i64 without = repeats_itself(3, (scheduler_options){0}).steps,
              with = repeats_itself(3, (scheduler_options){.draft_tokens = 6}).steps;
    print_message("200 tokens in %lld steps, %lld with drafts\n", (long long)without, (long long)with);
    assert_true(with < without * 3 / 4);
}

/* Where steps are queued ahead of their results an answer whose drafts did not come true tries again, too, once it has
 * rested. */
static void a_rest_ends_where_steps_are_queued_ahead(void **state) {
    (void)state;
    const sched_stats one = repeats_itself(
                          6, (scheduler_options){.draft_tokens = 6, .overlap_anywhere = true, .disable_overlap = true}),
                      ahead = repeats_itself(6, (scheduler_options){.draft_tokens = 6, .overlap_anywhere = true});
    assert_true(ahead.ahead > 0 && !one.ahead);
    if (3 * ahead.draft_true < 2 * one.draft_true)
        fail_msg("%lld drafts came true, %lld where steps are queued ahead", (long long)one.draft_true,
                 (long long)ahead.draft_true);
}

/* Asked for as many as there may be, it does not rest. */
static void always_is_always(void **state) {
    (void)state;
    const scheduler_options adaptive = {.draft_tokens = 6}, always = {.draft_tokens = 6, .draft_always = true};
    const sched_stats some = repeats_itself(1, adaptive), all = repeats_itself(1, always);
    if (all.draft_rounds <= some.draft_rounds || all.steps > some.steps)
        fail_msg("%lld rounds in %lld steps, %lld in %lld", (long long)some.draft_rounds, (long long)some.steps,
                 (long long)all.draft_rounds, (long long)all.steps);
}

/* ---- a draft model ---- */

/* A conversation's prompt, and what PyTorch's greedy loop makes of it (tools/nano/draft_golden.py). */
static job *golden_job(const json_t *golden) {
    job *j = calloc(1, sizeof *j);
    const json_t *ids = json_object_get(golden, "ids");
    j->r.n_prompt = (i64)json_array_size(ids);
    for (i64 i = 0; i < j->r.n_prompt; i++) j->prompt[i] = (i32)json_integer_value(json_array_get(ids, (size_t)i));
    j->r.max_new = 200;
    j->r.sampling = sampling_default();
    j->r.sampling.temperature = 0;
    const json_t *greedy = json_object_get(golden, "greedy");
    j->r.n_stop = 1;
    j->stops[0] = (i32)json_integer_value(json_array_get(greedy, json_array_size(greedy) - 1));
    return j;
}

static void must_be_golden(const json_t *golden, const draft_setup *d) {
    const json_t *greedy = json_object_get(golden, "greedy"), *rounds = json_object_get(golden, "rounds");
    engine *g = open_with_draft(d, 1, 0, 3);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = 3, .draft_always = true});
    job *j = golden_job(golden);
    must_submit(s, j);
    run_all(s);
    const sched_stats st = stats_of(s);
    assert_int_equal(j->n_out, json_array_size(greedy));
    for (i64 i = 0; i < j->n_out; i++)
        assert_int_equal(j->out[i].id, json_integer_value(json_array_get(greedy, (size_t)i)));
    assert_int_equal(st.draft_rounds, json_array_size(rounds));
    assert_int_equal(st.draft_rounds + st.draft_true, j->n_out - 1); /* the first token is the prompt's */
    scheduler_close(s);
    engine_close(g);
    free(j);
}

/* As many rounds, and so as many drafts that come true, as PyTorch's loop has. */
static void rounds_are_those_of_pytorch(void **state) {
    (void)state;
    static const draft_setup llama = {"models/nano", "models/nano-eagle3", "ref", 1, true, 1, 0},
                             mla = {"models/nano", "models/nano-eagle3-mla", "ref", 1, true, 1, 0};
    buf text = {0};
    err e = {0};
    assert_int_equal(file_read("tests/data/nano-eagle3/golden.jsonl", 1 << 24, &text, &e), ST_OK);
    buf_char(&text, 0);
    char *save = NULL;
    i64 checked = 0;
    for (char *line = strtok_r((char *)text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *golden = json_parse(line, strlen(line), "golden.jsonl", &e);
        assert_non_null(golden);
        must_be_golden(golden, strcmp(json_string_value(json_object_get(golden, "layout")), "mla") ? &llama : &mla);
        checked++;
        json_decref(golden);
    }
    assert_int_equal(checked, 10);
    buf_free(&text);
}

/* Runs a prompt of its own for `max_new` tokens; returns how many drafts came true. */
static i64 came_true_of(scheduler *s, u64 seed, i64 n_prompt, i64 max_new) {
    const i64 before = stats_of(s).draft_true;
    job *j = make_job(seed, n_prompt, max_new);
    for (i64 k = 12; k < n_prompt; k++) j->prompt[k] = j->prompt[k - 12];
    j->r.sampling.temperature = 0, j->r.logprobs = false;
    must_submit(s, j);
    run_all(s);
    free(j);
    return stats_of(s).draft_true - before;
}

/* A prompt whose answer ends with its first token has the draft's KV rows, too: who finds it in the prefix cache is
 * proposed what it would be without. And so has the end of an answer. */
static void cached_prompts_have_the_drafts_rows(void **state) {
    (void)state;
    static const char *const drafts[] = {"models/nano-eagle3", "models/nano-eagle3-mla"};
    for (size_t d = 0; d < COUNT_OF(drafts); d++) {
        engine *g;
        err e = {0};
        const engine_options o = {.model_dir = "models/nano",
                                  .device = "cpu",
                                  .threads = 1,
                                  .context = MAX_TOKENS,
                                  .chunk = 256, /* the prompt at once */
                                  .draft_dir = drafts[d],
                                  .draft_steps = 3,
                                  .max_running = 1,
                                  .kv_tokens = 384};
        assert_int_equal(engine_open(&g, &o, &e), ST_OK);
        scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = 3, .draft_always = true});
        for (u64 seed = 1; seed <= 6; seed++) {
            i64 n[2];
            for (int warm = 0; warm < 2; warm++) {
                came_true_of(s, 100 + seed, 300, 3); /* what lies in the pages before */
                assert_true(scheduler_flush(s, NULL) == ST_OK);
                if (warm) came_true_of(s, seed, 200, 1);
                n[warm] = came_true_of(s, seed, 200, 60);
            }
            if (n[0] != n[1])
                fail_msg("%s, seed %llu: %lld drafts came true, %lld behind a cached prompt", drafts[d],
                         (unsigned long long)seed, (long long)n[0], (long long)n[1]);
        }
        scheduler_close(s);
        engine_close(g);
    }
}

/* Of any eight tokens the last three are forced. */
static i64 some_forced(void *ud, i32 state, i32 *ids, i64 most) {
    i64 n = 0;
    (void)ud;
    for (; state % 8 >= 5 && n < most; state++) ids[n++] = 2 * (300 + state) + state % 2;
    return n;
}
static status some_mask(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    i32 id;
    if (!some_forced(ud, state, &id, 1)) return even_mask(ud, state, mask, may_end, e);
    return mask[id / 64] |= (u64)1 << id % 64, *may_end = false, ST_OK;
}

/* The draft's KV rows of an answer, to `out`; returns of how many tokens. */
static i64 draft_rows_of(const task *a, const draft *t, u8 *out) {
    const u64 row = draft_kv_bytes(t->d, 1, t->lim.kv_type) / KV_PAGE;
    const i64 n = min_i64(a->n_kv, a->n - 1);
    for (i64 i = 0; i < n; i++)
        memcpy(out + (u64)i * row, (const u8 *)t->kv + (u64)(a->pages[i / KV_PAGE] * KV_PAGE + i % KV_PAGE) * row, row);
    return n;
}

/* Where no step gets drafts the draft's rows follow each step, queued before its results are known or behind them: the
 * same rows, also where tokens were forced behind one that was queued ahead. */
static void kept_rows_read_what_follows(void **state) {
    (void)state;
    enum { ROW_MOST = 4096, LEFT_OUT = 12 /* tokens that one way may be behind the other */ };
    const draft_setup d = {"models/nano", "models/nano-eagle3", "cpu", 1, true, 1, 0};
    u8 *rows[2];
    i64 n[2] = {0}, width = 0;
    for (int ahead = 0; ahead < 2; ahead++) {
        engine *g = open_with_draft(&d, 1, 0, 3);
        const draft *t = g->ranks.of[0].draft;
        i64 vocab = engine_config(g)->vocab;
        scheduler *s = open_scheduler(
            g, (scheduler_options){
                   .manual = true, .draft_tokens = 3, .overlap_anywhere = true, .disable_overlap = !ahead});
        const token_filter f = {
            .ud = &vocab, .mask = some_mask, .next = even_next, .forced = some_forced, .close = even_close};
        job *j = make_job(9, 20, 200);
        width = (i64)draft_kv_bytes(t->d, 1, t->lim.kv_type) / KV_PAGE;
        assert_true(width <= ROW_MOST);
        rows[ahead] = calloc(MAX_TOKENS, ROW_MOST);
        j->r.filter = &f, j->r.logprobs = false;
        must_submit(s, j);
        do {
            if (s->n_running) n[ahead] = draft_rows_of(s->running[0], t, rows[ahead]);
            s->drafts.next = 0;
        } while (scheduler_step(s));
        assert_true(j->ended && j->n_out == 200 && stats_of(s).forced_tokens > 60);
        assert_true(ahead ? stats_of(s).ahead > 50 : !stats_of(s).ahead);
        scheduler_close(s);
        engine_close(g);
        free(j);
    }
    const i64 both = min_i64(n[0], n[1]) - LEFT_OUT;
    assert_true(both > 180);
    for (i64 i = 0; i < both; i++)
        if (memcmp(rows[0] + i * width, rows[1] + i * width, (size_t)width))
            fail_msg("the draft's row of token %lld read another token behind it", (long long)i);
    free(rows[0]), free(rows[1]);
}

enum { STAGED_ROW = 4096, STAGED = 4 };
typedef struct {
    u8 *rows[STAGED]; /* [MAX_TOKENS, width] of each answer */
    i64 n[STAGED], width, ahead;
} draft_rows;

/* Answers of 100 tokens behind prompts of one to three chunks, without drafts; the host draws the first ones of one. */
static void keep_rows_in_stages(i64 pp, draft_rows *out) {
    const draft_setup d = {"models/nano", "models/nano-eagle3", "cpu", 1, true, 1, pp};
    engine *g = open_with_draft(&d, STAGED, 0, 3);
    const draft *t = g->ranks.of[g->ranks.n - 1].draft;
    job *jobs[STAGED];
    scheduler *s =
        open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = 3, .overlap_anywhere = pp > 1});
    out->width = (i64)draft_kv_bytes(t->d, 1, t->lim.kv_type) / KV_PAGE;
    assert_true(out->width <= STAGED_ROW);
    for (int i = 0; i < STAGED; i++) {
        out->rows[i] = calloc(MAX_TOKENS, STAGED_ROW);
        jobs[i] = make_job(20 + (u64)i, 10 + 55 * i, 100);
        if (i == 1) jobs[i]->r.min_new = 20, jobs[i]->r.n_stop = 1, jobs[i]->stops[0] = 77;
        must_submit(s, jobs[i]);
    }
    do {
        for (i64 i = 0; i < s->n_running; i++) {
            const task *a = s->running[i];
            i64 of = 0;
            while (jobs[of]->id != a->id) of++;
            out->n[of] = draft_rows_of(a, t, out->rows[of]);
        }
        s->drafts.next = 0;
    } while (scheduler_step(s));
    out->ahead = stats_of(s).ahead;
    for (int i = 0; i < STAGED; i++) {
        assert_true(jobs[i]->ended && jobs[i]->n_out >= 20);
        free(jobs[i]);
    }
    scheduler_close(s);
    engine_close(g);
}

/* Where batches are under way beside each other the draft's rows of each follow it: prompts' as well, and the same as
 * where one batch follows the other. */
static void rows_are_kept_of_batches_beside_each_other(void **state) {
    (void)state;
    enum { LEFT_OUT = 12 };
    draft_rows one = {0}, three = {0};
    keep_rows_in_stages(1, &one);
    keep_rows_in_stages(3, &three);
    assert_true(!one.ahead && three.ahead > 60);
    for (int i = 0; i < STAGED; i++) {
        const i64 n = min_i64(one.n[i], three.n[i]) - LEFT_OUT;
        assert_true(n >= 10 + 55 * i + (i == 1 ? 5 : 80));
        for (i64 k = 0; k < n; k++)
            if (memcmp(one.rows[i] + k * one.width, three.rows[i] + k * one.width, (size_t)one.width))
                fail_msg("answer %d: the draft's row of token %lld is another one in stages", i, (long long)k);
        free(one.rows[i]), free(three.rows[i]);
    }
}

/* The draft with a NaN among its weights. */
static void write_sick_draft(const char *dir) {
    char path[128];
    err e = {0};
    buf file = {0};
    assert_int_equal(file_read("models/nano-eagle3-mla/model.safetensors", 1 << 24, &file, &e), ST_OK);
    u64 header;
    memcpy(&header, file.data, sizeof header);
    const char *fc = strstr((const char *)file.data + 8, "\"fc.weight\"");
    assert_non_null(fc);
    long long at = 0;
    assert_int_equal(sscanf(strstr(fc, "data_offsets"), "data_offsets\":[%lld", &at), 1);
    file.data[8 + header + (u64)at] = 0xc0, file.data[8 + header + (u64)at + 1] = 0x7f;
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(file.data, 1, file.len, f) == file.len && fclose(f) == 0);
    buf_clear(&file);
    assert_int_equal(file_read("models/nano-eagle3-mla/config.json", 1 << 20, &file, &e), ST_OK);
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_true(f && fwrite(file.data, 1, file.len, f) == file.len && fclose(f) == 0);
    buf_free(&file);
}

/* What it proposes is dropped and counted, and the answers are what they are without. */
static i64 drops_sick_guesses(const draft_setup *d) {
    job *want[JOBS] = {0};
    scheduler_options o = {.manual = true};
    draft_scene("without", d, o, 3, 0, want);
    o.draft_tokens = 3;
    assert_int_equal(draft_scene("a sick draft", d, o, 3, 0, want), 0);
    engine *g = open_with_draft(d, 2, 0, 3);
    scheduler *s = open_scheduler(g, o);
    for (int i = 0; i < 2; i++) rewind_job(want[i]), must_submit(s, want[i]);
    run_all(s);
    const sched_stats st = stats_of(s);
    assert_true(st.draft_bad > 0 && st.draft_true == 0);
    scheduler_close(s);
    engine_close(g);
    for (int i = 0; i < JOBS; i++) free(want[i]);
    return st.draft_bad;
}

static void a_nan_of_the_draft_costs_no_answer(void **state) {
    (void)state;
    char dir[] = "/tmp/moonlet-sick-XXXXXX", draft[64], path[128];
    assert_non_null(mkdtemp(dir));
    snprintf(draft, sizeof draft, "%s/draft", dir);
    write_sick_draft(draft);
    const draft_setup chain = {"models/nano", draft, "cpu", 1, true, 1, 0},
                      tree = {"models/nano", draft, "cpu", 1, true, 2, 0};
    draft_setup ranks = chain; /* each draws the guesses of some sequences */
    ranks.ranks = 2;
    assert_int_equal(drops_sick_guesses(&chain), drops_sick_guesses(&ranks));
    ranks = tree, ranks.ranks = 2;
    assert_int_equal(drops_sick_guesses(&tree), drops_sick_guesses(&ranks));
    snprintf(path, sizeof path, "%s/model.safetensors", draft), unlink(path);
    snprintf(path, sizeof path, "%s/config.json", draft), unlink(path);
    rmdir(draft), rmdir(dir);
}

/* An answer of 200 tokens, beside a prompt of so many tokens in every step. Returns how many drafts were made; *known:
 * for how many numbers of drafts is known what a step takes. */
static i64 drafts_beside_prompts(const char *draft, i64 n_prompt, i64 *known) {
    enum { STEPS = 200 };
    const draft_setup d = {"models/nano", draft, "cpu", 1, true, 1, 0};
    engine *g = open_with_draft(&d, 2, 0, 3);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .draft_tokens = 3});
    job *answer = make_job(1, 20, STEPS), *prompt = NULL;
    answer->r.logprobs = false;
    must_submit(s, answer);
    scheduler_step(s);
    for (u64 seed = 100; !answer->ended; seed++) {
        assert_true(!prompt || prompt->ended);
        free(prompt);
        must_submit(s, prompt = make_job(seed, n_prompt, 1));
        scheduler_step(s);
    }
    run_all(s);
    const i64 drafts = stats_of(s).draft_tokens;
    *known = 0;
    for (i64 k = 0; k <= 3; k++) *known += s->drafts.policy.cost[1].seconds[k] > 0;
    scheduler_close(s);
    engine_close(g);
    free(answer), free(prompt);
    return drafts;
}

/* Where every step has rows of prompts drafts that do not come true are given up, too; and what steps take is learnt,
 * unless the prompts are what takes it. */
static void prompts_do_not_hide_bad_drafts(void **state) {
    (void)state;
    char dir[] = "/tmp/moonlet-dull-XXXXXX";
    i64 known;
    assert_non_null(mkdtemp(dir));
    draft_files_write_dull(dir);
    const i64 beside = drafts_beside_prompts(dir, 60, &known);
    assert_int_equal(known, 0);
    if (beside < 1 || beside > 150) fail_msg("%lld drafts that do not come true in 200 steps", (long long)beside);
    assert_true(drafts_beside_prompts(dir, 3, &known) > 0 && known > 1);
    draft_files_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(proposes_what_followed),
                                       cmocka_unit_test(finds_what_a_search_finds),
                                       cmocka_unit_test(answers_stay_the_same),
                                       cmocka_unit_test(repetition_takes_fewer_steps),
                                       cmocka_unit_test(a_rest_ends_where_steps_are_queued_ahead),
                                       cmocka_unit_test(always_is_always),
                                       cmocka_unit_test(rounds_are_those_of_pytorch),
                                       cmocka_unit_test(cached_prompts_have_the_drafts_rows),
                                       cmocka_unit_test(kept_rows_read_what_follows),
                                       cmocka_unit_test(rows_are_kept_of_batches_beside_each_other),
                                       cmocka_unit_test(prompts_do_not_hide_bad_drafts),
                                       cmocka_unit_test(a_nan_of_the_draft_costs_no_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
