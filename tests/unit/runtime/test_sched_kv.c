/* Prompts whose KV pages come from another engine: the same answers bit for bit, and no page is lost or given away,
 * whatever becomes of the request, of the transfer or of the other engine. */
#include "runtime/engine_kv.h"
#include "runtime/sched_util.h"

static const char *const DIR = "build/golden/k2-thinking-int4";

/* ---- One side that computes prompts, one that has them computed ---- */

enum { FETCHES = 64 };
static const sched_kv *fetches[FETCHES]; /* asked for, and not given back */
static int n_fetches, n_fetched;

static void on_fetch(void *ud, const sched_kv *kv) {
    (void)ud;
    assert_true(n_fetches < FETCHES);
    fetches[n_fetches++] = kv;
    n_fetched++;
}

static void forget_fetch(const sched_kv *kv) {
    int i = 0;
    while (fetches[i] != kv) assert_true(++i < n_fetches);
    fetches[i] = fetches[--n_fetches];
}

static void give_back(scheduler *s, const sched_kv *kv, i64 ready, const err *why) {
    forget_fetch(kv);
    scheduler_kv_done(s, kv, ready, why);
}

typedef struct {
    engine *there, *here, *alone;
    scheduler *prefill, *decode, *whole;
} sides;

static sides open_sides(i64 running, i64 tokens, scheduler_options o) {
    sides s = {.there = open_engine(DIR, "cpu", 4, 0, 96),
               .here = open_engine(DIR, "cpu", running, tokens, 64),
               .alone = open_engine(DIR, "cpu", 1, 0, 64)};
    n_fetches = n_fetched = 0;
    o.manual = true;
    s.whole = open_scheduler(s.alone, o);
    o.fetch = on_fetch;
    s.decode = open_scheduler(s.here, o);
    s.prefill = open_scheduler(s.there, (scheduler_options){.manual = true});
    return s;
}

static void close_sides(sides *s) {
    assert_int_equal(n_fetches, 0);
    must_check(s->decode);
    must_check(s->prefill);
    assert_int_equal(stats_of(s->decode).kv_in, 0);
    assert_int_equal(stats_of(s->prefill).kv_out, 0);
    scheduler_close(s->prefill), scheduler_close(s->decode), scheduler_close(s->whole);
    engine_close(s->there), engine_close(s->here), engine_close(s->alone);
}

/* The request for kv's pages. */
static job *kv_job(const sched_kv *kv) {
    job *j = make_job(1, 1, 1);
    memcpy(j->prompt, kv->ids, (size_t)(kv->rows + 1) * sizeof *j->prompt);
    j->r.n_prompt = kv->rows + 1;
    j->r.kv_only = true;
    j->r.kv_from = kv->from;
    j->r.logprobs = false;
    return j;
}

/* Pages [from, to) of kv by the other engine; *j is what computed them. */
static void bring(sides *s, const sched_kv *kv, i64 to) {
    err e = {0};
    kv_mover *out, *in;
    assert_int_equal(engine_kv_page_bytes(s->there), engine_kv_page_bytes(s->here));
    assert_int_equal(kv_mover_open(&out, s->there, &e), ST_OK);
    assert_int_equal(kv_mover_open(&in, s->here, &e), ST_OK);
    job *j = kv_job(kv);
    must_submit(s->prefill, j);
    run_all(s->prefill);
    assert_int_equal(j->finish, SCHED_LENGTH);
    assert_int_equal(j->kv_ready, kv->n);
    assert_int_equal(j->n_out, 0);
    for (i64 p = kv->from; p < to; p++) {
        assert_int_equal(kv_mover_read(out, j->kv->pages[p], &e), ST_OK);
        memcpy(kv_mover_page(in), kv_mover_page(out), engine_kv_page_bytes(s->here));
        assert_int_equal(kv_mover_write(in, kv->pages[p], &e), ST_OK);
    }
    scheduler_kv_done(s->prefill, j->kv, 0, NULL);
    scheduler_step(s->prefill);
    must_check(s->prefill);
    kv_mover_close(out), kv_mover_close(in);
    free(j);
}

static void step_until_fetch(scheduler *s) {
    for (int i = 0; !n_fetches && i < 1000; i++) scheduler_step(s), must_check(s);
    assert_true(n_fetches > 0);
}

static job *answer_alone(sides *s, const job *j) {
    job *want = copy_job(j);
    must_submit(s->whole, want);
    run_all(s->whole);
    return want;
}

/* ---- The same answers ---- */

static void pages_of_another_engine_change_no_bit(void **state) {
    (void)state;
    sides s = open_sides(4, 0, (scheduler_options){0});
    const i64 lengths[] = {65, 64, 128, 129, 200, 63, 257};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const int before = n_fetched;
        job *j = make_job(100 + i, lengths[i], 12), *want = answer_alone(&s, j);
        must_submit(s.decode, j);
        scheduler_step(s.decode);
        const i64 pages = lengths[i] > KV_PAGE ? ceil_div(lengths[i] - 1, KV_PAGE) : 0; /* fetch_least: a page */
        assert_int_equal(n_fetched - before, pages > 0);
        if (pages) {
            const sched_kv *kv = fetches[0];
            assert_int_equal(kv->from, 0);
            assert_int_equal(kv->n, pages);
            assert_ptr_equal(kv->user, j);
            assert_int_equal(kv->rows, lengths[i] - 1);
            assert_memory_equal(kv->ids, j->prompt, (size_t)lengths[i] * sizeof *kv->ids);
            for (int k = 0; k < 3; k++) assert_false(scheduler_step(s.decode)); /* it waits */
            bring(&s, kv, kv->n);
            give_back(s.decode, kv, kv->n, NULL);
        }
        run_all(s.decode);
        must_agree(want, j, "with pages from elsewhere");
        assert_int_equal(j->usage.cached_tokens, 0);
        free(j), free(want);
    }
    assert_int_equal(stats_of(s.decode).kv_tokens_in, stats_of(s.prefill).kv_tokens_out);
    assert_int_equal(stats_of(s.decode).kv_tokens_in, 64 + 127 + 128 + 199 + 256);
    close_sides(&s);
}

/* What came before is not fetched again, what lacks is fetched from there on, and both prefix caches know. */
static void only_what_lacks_is_fetched(void **state) {
    (void)state;
    sides s = open_sides(4, 0, (scheduler_options){0});
    job *a = make_job(7, 150, 4), *b = copy_job(a);
    for (i64 i = 150; i < 300; i++) b->prompt[i] = (i32)(i % 130);
    b->r.n_prompt = 300;
    job *want_a = answer_alone(&s, a), *want_b = answer_alone(&s, b);
    must_submit(s.decode, a);
    step_until_fetch(s.decode);
    bring(&s, fetches[0], 2);
    give_back(s.decode, fetches[0], 2, NULL);
    run_all(s.decode);
    must_submit(s.decode, b);
    step_until_fetch(s.decode);
    assert_int_equal(fetches[0]->from, 2);
    assert_int_equal(fetches[0]->n, 5);
    const i64 before = stats_of(s.prefill).prefilled_tokens;
    bring(&s, fetches[0], 5);
    assert_int_equal(stats_of(s.prefill).prefilled_tokens - before, 299 - 2 * KV_PAGE);
    bring(&s, fetches[0], 5); /* the other's cache has four whole pages by now */
    assert_int_equal(stats_of(s.prefill).prefilled_tokens - before, 299 - 2 * KV_PAGE + 299 - 4 * KV_PAGE);
    give_back(s.decode, fetches[0], 5, NULL);
    run_all(s.decode);
    must_agree(want_a, a, "first");
    must_agree(want_b, b, "second");
    assert_int_equal(b->usage.cached_tokens, 2 * KV_PAGE);
    close_sides(&s);
    free(a), free(b), free(want_a), free(want_b);
}

static void the_least_that_is_fetched(void **state) {
    (void)state;
    sides s = open_sides(2, 0, (scheduler_options){.fetch_least = 130});
    job *few = make_job(1, 130, 2), *many = make_job(2, 131, 2);
    must_submit(s.decode, few);
    run_all(s.decode);
    assert_int_equal(n_fetched, 0);
    must_submit(s.decode, many);
    scheduler_step(s.decode);
    assert_int_equal(n_fetched, 1);
    give_back(s.decode, fetches[0], 0, NULL); /* none came, and that is no failure: they are computed here */
    run_all(s.decode);
    assert_int_equal(few->finish + many->finish, 2 * SCHED_LENGTH);
    close_sides(&s);
    free(few), free(many);
}

/* ---- Failures ---- */

static void a_lost_server_costs_its_request_alone(void **state) {
    (void)state;
    sides s = open_sides(3, 0, (scheduler_options){0});
    job *lost = make_job(1, 200, 8), *beside = make_job(2, 30, 40), *again = copy_job(lost);
    job *want = answer_alone(&s, again);
    err why = {0};
    err_set(&why, ST_PEER, "prefill server x: it has gone");
    must_submit(s.decode, beside);
    must_submit(s.decode, lost);
    step_until_fetch(s.decode);
    const i64 written = beside->n_out;
    for (int i = 0; i < 5; i++) assert_true(scheduler_step(s.decode));
    assert_int_equal(beside->n_out, written + 5); /* it goes on meanwhile */
    bring(&s, fetches[0], 2);
    give_back(s.decode, fetches[0], 2, &why);
    run_all(s.decode);
    assert_int_equal(lost->finish, SCHED_ERROR);
    assert_int_equal(lost->error.code, ST_PEER);
    assert_string_equal(lost->error.text, why.text);
    assert_int_equal(beside->finish, SCHED_LENGTH);
    assert_int_equal(stats_of(s.decode).kv_failed, 1);
    must_submit(s.decode, again); /* the pages that came are in the cache */
    step_until_fetch(s.decode);
    assert_int_equal(fetches[0]->from, 2);
    bring(&s, fetches[0], 3);
    give_back(s.decode, fetches[0], 3, NULL);
    run_all(s.decode);
    must_agree(want, again, "behind a failure");
    close_sides(&s);
    free(lost), free(beside), free(again), free(want);
}

/* What nobody has begun to fetch is given back with its request; pages that came for a request that has left are the
 * next one's. */
static scheduler *dropping;
static int n_dropped;
static void on_drop(void *ud, const sched_kv *kv) {
    (void)ud;
    n_dropped++;
    if (dropping) give_back(dropping, kv, kv->from, NULL);
}

static void what_is_not_begun_is_given_back(void **state) {
    (void)state;
    sides s = open_sides(2, 0, (scheduler_options){.drop = on_drop});
    job *a = make_job(1, 200, 4), *b = copy_job(a), *want = answer_alone(&s, a);
    n_dropped = 0;
    must_submit(s.decode, a);
    step_until_fetch(s.decode);
    dropping = s.decode;
    scheduler_abort(s.decode, a->id);
    scheduler_step(s.decode);
    scheduler_step(s.decode);
    assert_int_equal(n_dropped, 1);
    assert_int_equal(n_fetches, 0);
    assert_int_equal(stats_of(s.decode).pages_used, 0);
    must_check(s.decode);
    dropping = NULL;
    rewind_job(a);
    must_submit(s.decode, a);
    step_until_fetch(s.decode);
    bring(&s, fetches[0], 2);
    scheduler_abort(s.decode, a->id);
    scheduler_step(s.decode);
    give_back(s.decode, fetches[0], 2, NULL);
    scheduler_step(s.decode);
    assert_int_equal(stats_of(s.decode).pages_used, 0);
    must_submit(s.decode, b);
    step_until_fetch(s.decode);
    assert_int_equal(fetches[0]->from, 2);
    give_back(s.decode, fetches[0], 2, NULL);
    run_all(s.decode);
    must_agree(want, b, "with pages of one that had gone");
    assert_int_equal(b->usage.cached_tokens, 2 * KV_PAGE);
    assert_int_equal(n_dropped, 2);
    close_sides(&s);
    free(a), free(b), free(want);
}

/* One answer needs a page, and there is none: nobody loses a place whose pages would not be free at once. */
static void growth_takes_no_place_in_vain(void **state) {
    (void)state;
    sides s = open_sides(3, 8 * KV_PAGE, (scheduler_options){.conservativeness = 0.01});
    job *old = make_job(1, 60, 150), *young = make_job(2, 50, 150), *coming = make_job(3, 200, 4);
    must_submit(s.decode, old);
    must_submit(s.decode, young);
    while (old->n_out < 2 || young->n_out < 2) scheduler_step(s.decode);
    must_submit(s.decode, coming); /* four of eight pages; the answers have room for two more */
    step_until_fetch(s.decode);
    while (!old->ended && young->usage.preemptions + stats_of(s.decode).preemptions == 0)
        assert_true(scheduler_step(s.decode)), must_check(s.decode);
    assert_true(scheduler_kv_wanted(s.decode, fetches[0]));
    assert_int_equal(stats_of(s.decode).preemptions, 1);
    assert_false(old->ended);
    bring(&s, fetches[0], 4);
    give_back(s.decode, fetches[0], 4, NULL);
    run_all(s.decode);
    assert_int_equal(old->usage.preemptions + coming->usage.preemptions, 0);
    assert_int_equal(young->usage.preemptions, 1);
    close_sides(&s);
    free(old), free(young), free(coming);
}

/* Whoever fills the pages does not know at once that nobody waits: until it does, they are nobody else's. */
static void pages_stay_held_until_they_are_given_back(void **state) {
    (void)state;
    sides s = open_sides(2, 8 * KV_PAGE, (scheduler_options){0});
    job *gone = make_job(1, 300, 4), *other = make_job(2, 300, 4), *want = answer_alone(&s, other);
    must_submit(s.decode, gone);
    step_until_fetch(s.decode);
    const sched_kv *kv = fetches[0];
    assert_true(scheduler_kv_wanted(s.decode, kv));
    scheduler_abort(s.decode, gone->id);
    scheduler_step(s.decode);
    assert_int_equal(gone->finish, SCHED_ABORT);
    assert_false(scheduler_kv_wanted(s.decode, kv));
    must_submit(s.decode, other); /* five of eight pages, of which five are held */
    for (int i = 0; i < 3; i++) scheduler_step(s.decode), must_check(s.decode);
    assert_false(other->started);
    assert_int_equal(stats_of(s.decode).pages_used, 5);
    bring(&s, kv, kv->n); /* too late */
    give_back(s.decode, kv, kv->n, NULL);
    step_until_fetch(s.decode);
    assert_false(other->started); /* said when its prompt is there */
    bring(&s, fetches[0], fetches[0]->n);
    give_back(s.decode, fetches[0], fetches[0]->n, NULL);
    scheduler_step(s.decode);
    assert_true(other->started);
    run_all(s.decode);
    must_agree(want, other, "behind one that had gone");
    close_sides(&s);
    free(gone), free(other), free(want);
}

static void a_preempted_request_fetches_again(void **state) {
    (void)state;
    sides s = open_sides(1, 0, (scheduler_options){.disable_radix_cache = true});
    job *low = make_job(1, 200, 6), *high = make_job(2, 40, 6), *want = answer_alone(&s, low);
    high->r.priority = 3;
    must_submit(s.decode, low);
    step_until_fetch(s.decode);
    const sched_kv *first = fetches[0];
    must_submit(s.decode, high);
    scheduler_step(s.decode);
    assert_false(scheduler_kv_wanted(s.decode, first));
    while (!high->ended) scheduler_step(s.decode), must_check(s.decode);
    scheduler_step(s.decode);
    assert_int_equal(n_fetches, 2);
    bring(&s, fetches[1], 3);
    give_back(s.decode, fetches[1], 3, NULL);
    give_back(s.decode, first, 1, NULL);
    run_all(s.decode);
    must_agree(want, low, "preempted while pages came");
    assert_int_equal(low->usage.preemptions, 1);
    close_sides(&s);
    free(low), free(high), free(want);
}

/* It has been told to its reader: nobody else is needed to go on with it. */
static void a_preempted_answer_outlives_the_other_server(void **state) {
    (void)state;
    sides s = open_sides(1, 0, (scheduler_options){.disable_radix_cache = true});
    job *low = make_job(1, 200, 6), *high = make_job(2, 40, 6), *want = answer_alone(&s, low);
    err lost = {0};
    err_set(&lost, ST_PEER, "the other server is lost");
    high->r.priority = 3;
    must_submit(s.decode, low);
    step_until_fetch(s.decode);
    bring(&s, fetches[0], 4);
    give_back(s.decode, fetches[0], 4, NULL);
    while (low->n_out < 3) assert_true(scheduler_step(s.decode));
    must_submit(s.decode, high);
    while (!high->ended) scheduler_step(s.decode), must_check(s.decode);
    scheduler_step(s.decode);
    assert_int_equal(n_fetched, 2);
    bring(&s, fetches[0], 1);
    give_back(s.decode, fetches[0], 1, &lost);
    run_all(s.decode);
    must_agree(want, low, "preempted, and the other server lost");
    assert_int_equal(low->usage.preemptions, 1);
    assert_int_equal(stats_of(s.decode).kv_failed, 1);
    assert_int_equal(stats_of(s.decode).ended[SCHED_ERROR], 0);
    close_sides(&s);
    free(low), free(high), free(want);
}

/* In each type of cache, at the first, a middle and the last value; what is a number in spite of its bits is none. */
static void a_page_with_a_nan_is_seen(void **state) {
    (void)state;
    static const struct {
        const char *type;
        u64 size;
        u32 good[3], bad[4];
    } types[] = {{"fp32", 4, {0xff7fffff, 0x00000001, 0x80000000}, {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001}},
                 {"bf16", 2, {0xff7f, 0x0001, 0x8000}, {0x7f80, 0xff80, 0x7fc0, 0x7f81}},
                 {"fp8_e4m3", 1, {0xfe, 0x7e, 0x80}, {0x7f, 0xff, 0x7f, 0xff}}};
    for (size_t k = 0; k < COUNT_OF(types); k++) {
        engine_options o = {.model_dir = DIR, .device = "cpu", .kv_tokens = 256, .kv_dtype = types[k].type};
        engine *g = NULL;
        err e = {0};
        assert_int_equal(engine_open(&g, &o, &e), ST_OK);
        const u64 n = engine_kv_page_bytes(g), places[] = {0, n / 2 / types[k].size, n / types[k].size - 1};
        u8 *page = calloc(n, 1);
        for (size_t p = 0; p < COUNT_OF(places); p++) {
            u8 *at = page + places[p] * types[k].size;
            for (int i = 0; i < 3; i++) {
                memcpy(at, &types[k].good[i], types[k].size);
                assert_true(engine_kv_finite(g, page, 0, n));
            }
            for (int i = 0; i < 4; i++) {
                memcpy(at, &types[k].bad[i], types[k].size);
                const u64 here = places[p] * types[k].size & ~(u64)7;
                assert_false(engine_kv_finite(g, page, 0, n));
                assert_false(engine_kv_finite(g, page, here, here + 8));
                assert_true(engine_kv_finite(g, page, 0, here) && engine_kv_finite(g, page, here + 8, n));
            }
            memset(at, 0, types[k].size);
        }
        free(page);
        engine_close(g);
    }
}

/* Whoever takes the pages goes while they are computed, or says so twice. */
static void nobody_takes_the_pages(void **state) {
    (void)state;
    sides s = open_sides(1, 0, (scheduler_options){0});
    job *wait = make_job(3, 257, 1);
    must_submit(s.decode, wait);
    step_until_fetch(s.decode);
    for (int way = 0; way < 3; way++) {
        job *j = kv_job(fetches[0]);
        j->prompt[0] = way; /* not cached */
        must_submit(s.prefill, j);
        for (int i = 0; i < 2; i++) assert_true(scheduler_step(s.prefill));
        assert_true(j->kv_ready > 0 && j->kv_ready < 4 && !j->ended);
        if (way == 1) scheduler_abort(s.prefill, j->id), scheduler_step(s.prefill), must_check(s.prefill);
        if (way == 1) assert_true(stats_of(s.prefill).pages_used > 0);
        scheduler_kv_done(s.prefill, j->kv, 0, NULL);
        if (way == 2) scheduler_kv_done(s.prefill, j->kv, 0, NULL);
        run_all(s.prefill);
        assert_int_equal(j->finish, SCHED_ABORT);
        assert_int_equal(stats_of(s.prefill).pages_used, 0);
        free(j);
    }
    give_back(s.decode, fetches[0], 0, NULL);
    run_all(s.decode);
    close_sides(&s);
    free(wait);
}

/* Handed out at once where the cache has all, and only then. */
static void a_whole_page_is_in_the_cache(void **state) {
    (void)state;
    sides s = open_sides(1, 0, (scheduler_options){0});
    for (int i = 0; i < 2; i++) {
        job *j = make_job(9, 129, 1);
        const i64 before = stats_of(s.prefill).prefilled_tokens;
        j->r.kv_only = true;
        must_submit(s.prefill, j);
        scheduler_step(s.prefill);
        assert_int_equal(j->kv_ready, i ? 2 : 1); /* a chunk of 96 tokens */
        assert_int_equal(j->ended, i);
        run_all(s.prefill);
        assert_int_equal(j->kv_ready, 2);
        assert_int_equal(stats_of(s.prefill).prefilled_tokens - before, i ? 0 : 128);
        scheduler_kv_done(s.prefill, j->kv, 0, NULL);
        run_all(s.prefill);
        free(j);
    }
    close_sides(&s);
}

static void what_is_no_prompt_of_pages(void **state) {
    (void)state;
    sides s = open_sides(1, 0, (scheduler_options){0});
    const i64 bad[][2] = {{1, 0}, {65, 1}, {129, 2}, {129, -1}, {129, INT64_MAX / KV_PAGE}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        err e = {0};
        job *j = make_job(1, bad[i][0], 1);
        j->r.kv_only = true;
        j->r.kv_from = bad[i][1];
        j->r.user = j, j->r.prompt = j->prompt;
        assert_int_equal(scheduler_submit(s.prefill, &j->r, 1, NULL, NULL, &e), SCHED_BAD_REQUEST);
        assert_non_null(strstr(e.text, "KV pages"));
        free(j);
    }
    close_sides(&s);
}

/* ---- Everything at once ---- */

static void whatever_happens_no_page_is_lost(void **state) {
    (void)state;
    enum { JOBS = 60 };
    sides s = open_sides(4, 24 * KV_PAGE, (scheduler_options){0});
    job *all[JOBS], *want[JOBS];
    u64 seed = 5;
    int submitted = 0, done = 0, errors = 0;
    err why = {0};
    err_set(&why, ST_PEER, "lost");
    for (int i = 0; i < JOBS; i++) {
        all[i] = make_job((u64)(i % 23), 20 + (i * 53) % 330, 1 + i % 9);
        all[i]->r.priority = i % 3;
        want[i] = answer_alone(&s, all[i]);
    }
    rng_state = seed;
    while (done < JOBS || n_fetches) {
        const u64 dice = rng() % 12;
        if (submitted < JOBS && dice < 4) must_submit(s.decode, all[submitted++]);
        if (dice == 4 && submitted) scheduler_abort(s.decode, all[rng() % (u64)submitted]->id);
        if (dice > 7 && n_fetches) {
            const u64 state_before = rng_state;
            const sched_kv *kv = fetches[state_before % (u64)n_fetches];
            const i64 to = kv->from + (i64)(state_before / 7 % (u64)(kv->n - kv->from + 1));
            const bool fails = state_before / 64 % 8 == 0;
            bring(&s, kv, to); /* draws numbers, too */
            rng_state = state_before + 1;
            give_back(s.decode, kv, to, fails ? &why : NULL);
        }
        scheduler_step(s.decode);
        must_check(s.decode);
        done = 0;
        for (int i = 0; i < submitted; i++) done += all[i]->ended;
    }
    for (int i = 0; i < JOBS; i++) {
        must_agree(want[i], all[i], "among others");
        errors += all[i]->finish == SCHED_ERROR;
        assert_true(all[i]->finish != SCHED_ERROR || all[i]->error.code == ST_PEER);
        free(all[i]), free(want[i]);
    }
    assert_int_equal(errors, stats_of(s.decode).kv_failed);
    assert_true(errors > 0 && errors < JOBS / 2 && n_fetched > JOBS / 4);
    close_sides(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_another_engine_change_no_bit),
        cmocka_unit_test(only_what_lacks_is_fetched),
        cmocka_unit_test(the_least_that_is_fetched),
        cmocka_unit_test(a_lost_server_costs_its_request_alone),
        cmocka_unit_test(what_is_not_begun_is_given_back),
        cmocka_unit_test(growth_takes_no_place_in_vain),
        cmocka_unit_test(pages_stay_held_until_they_are_given_back),
        cmocka_unit_test(a_preempted_request_fetches_again),
        cmocka_unit_test(a_preempted_answer_outlives_the_other_server),
        cmocka_unit_test(a_page_with_a_nan_is_seen),
        cmocka_unit_test(nobody_takes_the_pages),
        cmocka_unit_test(a_whole_page_is_in_the_cache),
        cmocka_unit_test(what_is_no_prompt_of_pages),
        cmocka_unit_test(whatever_happens_no_page_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
