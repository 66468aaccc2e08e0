/* Random requests with pictures beside others without any: chunks that end anywhere, pools and rows of pictures that
 * hold little, passes of the vision tower that take many steps, aborts and preemptions in the middle of them. Each
 * answer is the one that the same request gets alone, bit for bit, and nothing stays behind. */
#include "runtime/sched_util.h"
#include "runtime/scheduler_internal.h"
#include "vision_golden.h"

enum { SHOWN = 14, AT_ONCE = 4, PAD = 1813 };
static media_item *shown[SHOWN]; /* the golden ones, noise, and pictures that differ in one value */
static i64 vocab = 1700;

static void make_noise(vision_input *in, u8 *patches) {
    *in = (vision_input){1, (i32)pick(1, 5) * 2, (i32)pick(1, 5) * 2, patches};
    for (i64 i = 0; i < vision_patches(in) * PATCH_BYTES; i++) patches[i] = (u8)rng();
}

static int open_shown(void **state) {
    static u8 patches[100 * PATCH_BYTES];
    read_golden(state);
    rng_state = 7;
    for (int i = 0; i < SHOWN; i++) {
        vision_input in;
        if (i < ITEMS)
            in = inputs[i];
        else if (i % 2 == 0)
            make_noise(&in, patches);
        else
            patches[vision_patches(&in) * PATCH_BYTES - 1] ^= 1; /* as the one before but for this */
        assert_non_null(shown[i] = media_item_new(&in, PATCH_BYTES));
    }
    return 0;
}

static int close_shown(void **state) {
    for (int i = 0; i < SHOWN; i++) media_item_release(shown[i]);
    return free_golden(state);
}

/* ---- Requests ---- */

typedef struct {
    job j;
    sched_media media[AT_ONCE];
} seen_job;

/* Tokens are even and odd ones in turn, and here and there two are known. */
static status even_mask(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    (void)ud, (void)e;
    *may_end = false;
    for (i32 id = state % 2; id < vocab; id += 2) mask[id / 64] |= (u64)1 << id % 64;
    return ST_OK;
}
static i32 even_next(void *ud, i32 state, i32 id) {
    (void)ud;
    return id % 2 == state % 2 ? state + 1 : TOKEN_FILTER_DEAD;
}
static i64 two_forced(void *ud, i32 state, i32 *ids, i64 most) {
    (void)ud;
    if (state % 8 != 4 || most < 2) return 0;
    ids[0] = 10, ids[1] = 11;
    return 2;
}
static void no_close(void *ud) { (void)ud; }
static const token_filter even = {.mask = even_mask, .next = even_next, .forced = two_forced, .close = no_close};

static void add_words(job *j, i64 n, bool same) {
    for (; n > 0; n--) j->prompt[j->r.n_prompt++] = same ? 300 : (i32)pick(0, vocab - 1);
}

static void random_job(seen_job *s) {
    job *j = &s->j;
    memset(s, 0, sizeof *s);
    const i64 n = pick(0, 3) ? pick(1, AT_ONCE) : 0;
    add_words(j, pick(1, 40), pick(0, 1)); /* many begin alike */
    for (i64 k = 0; k < n; k++) {
        media_item *item = shown[pick(0, 2) ? pick(0, SHOWN - 1) : pick(ITEMS, SHOWN - 1)];
        if (j->r.n_prompt + media_item_tokens(item) > 350) continue;
        s->media[j->r.n_media++] = (sched_media){j->r.n_prompt, item};
        for (i64 i = media_item_tokens(item); i > 0; i--) j->prompt[j->r.n_prompt++] = PAD;
        add_words(j, pick(0, 3) ? pick(0, 30) : 0, pick(0, 1));
    }
    if (!n)
        for (i64 i = pick(0, 90); i > 0; i--) j->prompt[j->r.n_prompt++] = pick(0, 1) ? PAD : 300; /* no picture */
    j->r.max_new = pick(1, 110);
    j->r.sampling = sampling_default();
    j->r.sampling.temperature = pick(0, 2) ? 1 : 0;
    j->r.sampling.seed = rng();
    j->r.choice = (u32)pick(0, 3);
    j->r.n_stop = pick(0, 3);
    for (int i = 0; i < j->r.n_stop; i++) j->stops[i] = (i32)pick(0, vocab - 1);
    j->r.logprobs = !pick(0, 2);
    if (j->r.logprobs && pick(0, 1)) j->r.top_logprobs = TOP;
    j->r.prompt_logprobs = !pick(0, 6);
    j->r.priority = pick(0, 2);
    if (!pick(0, 4)) j->r.filter = &even;
}

/* Its pointers are this one's own. */
static void point(seen_job *s) {
    s->j.r.media = s->media;
    s->j.r.prompt = s->j.prompt;
    s->j.r.user = &s->j;
    if (s->j.r.n_stop) s->j.r.stop_ids = s->j.stops;
}

/* Several answers of one prompt in one submission, now and then. */
static i64 submit_some(scheduler *s, seen_job *jobs, i64 left, bool some_late) {
    err e = {0};
    sched_request r[3];
    u64 ids[3];
    const i64 n = min_i64(left, jobs[0].j.r.max_new % 5 == 0 ? 3 : 1);
    for (i64 i = 0; i < n; i++) {
        point(&jobs[i]);
        r[i] = jobs[i].j.r;
        if (some_late && !pick(0, 9)) r[i].deadline_s = 0.05;
        if (i && !memcmp(jobs[i].j.prompt, jobs[0].j.prompt, sizeof jobs[0].j.prompt) &&
            r[i].n_prompt == r[0].n_prompt && r[i].n_media == r[0].n_media)
            r[i].prompt = r[0].prompt, r[i].media = r[0].media;
    }
    if (scheduler_submit(s, r, n, ids, NULL, &e) != SCHED_ACCEPTED) fail_msg("%s", e.text);
    for (i64 i = 0; i < n; i++) jobs[i].j.id = ids[i];
    return n;
}

/* ---- Scenes ---- */

typedef struct {
    const char *what;
    i64 running, kv_tokens, chunk;
    i64 rows, patches, items, step; /* of the tower, step: multiply-adds; 0: as they are */
    i64 tp, drafts;
    const char *draft;
    bool aborts, dp, dcp;
    scheduler_options o;
} scene;

static engine *open_scene(const scene *c) {
    engine *g;
    err e = {0};
    engine_options o = {.model_dir = "models/nano",
                        .device = "cpu",
                        .threads = 1,
                        .context = MAX_TOKENS,
                        .chunk = c->chunk,
                        .max_running = c->running,
                        .tp = c->tp,
                        .dp_attention = c->dp,
                        .dcp = c->dcp ? c->tp : 0,
                        .draft_dir = c->draft,
                        .draft_steps = c->draft ? c->drafts : 0,
                        .draft_nodes = c->draft ? c->drafts : 0,
                        .kv_tokens = c->kv_tokens};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s: %s", c->what, e.text);
    if (c->rows) g->lim.media_rows = c->rows;
    if (c->patches) g->vision_lim.patches = c->patches;
    if (c->items) g->vision_lim.items = c->items;
    if (c->step) g->media_work = c->step;
    return g;
}

static void run_alone(const scene *like, seen_job *jobs, i64 n) {
    const scene alone = {"alone",
                         1,
                         0,
                         512,
                         .tp = like->tp,
                         .dp = like->dp,
                         .dcp = like->dcp,
                         .o = {.manual = true, .disable_radix_cache = true}};
    engine *g = open_scene(&alone);
    scheduler *s = open_scheduler(g, alone.o);
    for (i64 i = 0; i < n; i++) {
        point(&jobs[i]);
        must_submit(s, &jobs[i].j);
        run_all(s);
        if (jobs[i].j.finish != SCHED_STOP && jobs[i].j.finish != SCHED_LENGTH)
            fail_msg("alone: %d: %s", (int)i, jobs[i].j.error.text);
    }
    scheduler_close(s);
    engine_close(g);
}

/* Places are in order, do not overlap, and have the users that hold them. */
static void check_places(const scheduler *s) {
    const media_rows *m = &s->media;
    i64 from = 0, users = 0, held = 0;
    for (i64 i = 0; i < m->n; i++) {
        assert_true(m->places[i]->from >= from && m->places[i]->from + m->places[i]->n <= m->rows);
        assert_true(m->places[i]->users >= 0 && (m->places[i]->ready || m->under_way));
        from = m->places[i]->from + m->places[i]->n;
        users += m->places[i]->users;
        for (i64 k = 0; k < i; k++) assert_ptr_not_equal(m->places[i]->item, m->places[k]->item);
    }
    for (i64 i = 0; i < s->n_running; i++)
        for (i64 k = 0; k < s->running[i]->r.n_media; k++) held += s->running[i]->media[k].place != NULL;
    assert_int_equal(users, held);
}

static void play(const scene *c, const seen_job *alone, seen_job *jobs, i64 n, sched_stats *stats) {
    engine *g = open_scene(c);
    scheduler *s = open_scheduler(g, c->o);
    i64 sent = 0, steps = 0;
    for (bool busy = true; busy || sent < n; steps++) {
        for (i64 k = pick(0, 6); k > 0 && sent < n; k--) sent += submit_some(s, jobs + sent, n - sent, c->aborts);
        if (c->aborts && sent && !pick(0, 4)) scheduler_abort(s, jobs[pick(0, sent - 1)].j.id);
        busy = scheduler_step(s);
        must_check(s);
        check_places(s);
        if (steps > 100000) fail_msg("%s: no end", c->what);
    }
    for (i64 i = 0; i < n; i++) {
        assert_true(jobs[i].j.ended);
        if (jobs[i].j.finish == SCHED_ERROR) fail_msg("%s: %d: %s", c->what, (int)i, jobs[i].j.error.text);
        if (!c->aborts) assert_int_not_equal(jobs[i].j.finish, SCHED_ABORT);
        if (!c->dcp) must_agree(&alone[i].j, &jobs[i].j, c->what); /* pages lie elsewhere: other sums */
    }
    scheduler_stats(s, stats);
    assert_true(stats->idle && stats->running == 0 && stats->queued == 0 && stats->pages_used == 0);
    for (i64 i = 0; i < s->media.n; i++) assert_int_equal(s->media.places[i]->users, 0);
    scheduler_close(s);
    engine_close(g);
}

static void random_workload(u64 seed, i64 n, const scene *scenes, i64 n_scenes, i64 *preemptions, i64 *cached) {
    seen_job *alone = calloc((size_t)n, sizeof *alone), *jobs = calloc((size_t)n, sizeof *jobs);
    rng_state = seed;
    for (i64 i = 0; i < n; i++) {
        if (i && alone[i - 1].j.r.max_new % 5 == 0) { /* another answer of the same prompt */
            alone[i] = alone[i - 1];
            alone[i].j.r.choice++;
            alone[i].j.r.sampling.seed = rng();
            alone[i].j.r.max_new = pick(1, 60);
        } else {
            random_job(&alone[i]);
        }
    }
    memcpy(jobs, alone, (size_t)n * sizeof *jobs);
    run_alone(scenes, alone, n);
    for (i64 i = 0; i < n_scenes; i++) {
        sched_stats st;
        for (i64 k = 0; k < n; k++) rewind_job(&jobs[k].j);
        play(&scenes[i], alone, jobs, n, &st);
        *preemptions += st.preemptions;
        *cached += st.cached_tokens;
    }
    free(alone);
    free(jobs);
}

static const scene scenes[] = {
    {"everything fits", 16, 16 * MAX_TOKENS, 512, .o = {.manual = true, .cache_prompts_only = true}},
    {"rows for the largest alone, a piece at a time", 8, 8 * MAX_TOKENS, 64, 77, 308, 2, 1,
     .o = {.manual = true, .cache_prompts_only = true}},
    {"tiny pool, few rows", 8, MAX_TOKENS, 50, 90, 400, 64, 1, .aborts = true,
     .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}},
    {"tiny pool, chunks of 3", 6, MAX_TOKENS, 3, 120, 324, 3, 1,
     .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9, .ignore_priority = true}},
    {"no cache, aborts", 5, 2 * MAX_TOKENS, 100, 80, 324, 1, 1, .aborts = true,
     .o = {.manual = true, .disable_radix_cache = true, .conservativeness = 1e-9}},
    {"ahead", 8, 2 * MAX_TOKENS, 64, 100, 400, 64, 1, .aborts = true,
     .o = {.manual = true, .cache_prompts_only = true, .overlap_anywhere = true, .conservativeness = 1e-9}},
    {"drafts by repetition", 8, 2 * MAX_TOKENS, 64, 100, 400, 64, 30000000, .drafts = 4, .aborts = true,
     .o = {.manual = true, .cache_prompts_only = true, .draft_tokens = 4, .conservativeness = 1e-9}},
    {"a draft model", 6, 2 * MAX_TOKENS, 64, 100, 400, 64, 30000000, .drafts = 3, .draft = "models/nano-eagle3",
     .aborts = true,
     .o = {.manual = true,
           .cache_prompts_only = true,
           .draft_tokens = 3,
           .draft_always = true,
           .conservativeness = 1e-9}},
};

static const scene tp[] = {{"two ranks", 8, 8 * MAX_TOKENS, 50, 90, 400, 64, 30000000, .tp = 2, .aborts = true,
                            .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}},
                           {"two ranks, tiny pool", 8, 2 * MAX_TOKENS, 7, 90, 400, 64, 1, .tp = 2,
                            .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}}};
static const scene dcp[] = {{"two ranks, each half of the rows", 8, 2 * MAX_TOKENS, 50, 90, 400, 64, 30000000, .tp = 2,
                             .dcp = true, .aborts = true,
                             .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}}};
static const scene dp[] = {
    {"two ranks, each its own sequences", 8, 4 * MAX_TOKENS, 50, 90, 400, 64, 30000000, .tp = 2, .dp = true,
     .aborts = true, .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}},
    {"two ranks, each its own sequences, tiny pool", 8, 2 * MAX_TOKENS, 16, 77, 308, 64, 1, .tp = 2, .dp = true,
     .o = {.manual = true, .cache_prompts_only = true, .conservativeness = 1e-9}}};

static void several_ranks(void **state) {
    (void)state;
    i64 preemptions = 0, cached = 0;
    random_workload(1, 8, tp, COUNT_OF(tp), &preemptions, &cached);
    random_workload(1, 8, dcp, COUNT_OF(dcp), &preemptions, &cached);
    random_workload(101, 8, dp, COUNT_OF(dp), &preemptions, &cached);
}

static void equal_alone_and_among_others(void **state) {
    (void)state;
    i64 preemptions = 0, cached = 0;
    random_workload(2, 16, scenes, COUNT_OF(scenes), &preemptions, &cached);
    assert_true(preemptions > 0 && cached > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(several_ranks), cmocka_unit_test(equal_alone_and_among_others)};
    return cmocka_run_group_tests(tests, open_shown, close_shown);
}
