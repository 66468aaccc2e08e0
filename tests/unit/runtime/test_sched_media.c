/* Pictures in prompts, through the scheduler: the small model says of each what PyTorch in float32 says
 * (tests/data/nano/vision.jsonl), whole or in chunks that end inside a picture, alone or beside others, from the prefix
 * cache, and after it was preempted. */
#include "runtime/sched_util.h"
#include "vision_golden.h"

#include "base/buf.h"
#include "base/json.h"
#include "runtime/engine_internal.h"

enum { CHATS = 7 }; /* the last item is no picture */
static i32 prompts[CHATS][MAX_TOKENS], answers[CHATS][MAX_TOKENS];
static i64 n_prompt[CHATS], n_answer[CHATS];
static media_item *items[CHATS];
static sched_media places[CHATS];

static i64 read_ids(const json_t *list, i32 *out) {
    const size_t n = json_array_size(list);
    assert_in_range(n, 1, MAX_TOKENS);
    for (size_t i = 0; i < n; i++) out[i] = (i32)json_integer_value(json_array_get(list, i));
    return (i64)n;
}

static int read_chats(void **state) {
    buf text = {0};
    err e = {0};
    read_golden(state);
    if (file_read("tests/data/nano/vision.jsonl", 1 << 20, &text, &e) != ST_OK) fail_msg("%s", e.text);
    const char *at = text.data;
    for (int i = 0; i < CHATS; i++) {
        const char *end = strchr(at, '\n');
        json_t *line = json_parse(at, (size_t)(end - at), "vision.jsonl", &e);
        n_prompt[i] = read_ids(json_object_get(line, "ids"), prompts[i]);
        n_answer[i] = read_ids(json_object_get(line, "greedy"), answers[i]);
        json_decref(line);
        at = end + 1;
        assert_non_null(items[i] = media_item_new(&inputs[i], PATCH_BYTES));
        places[i].item = items[i];
        while (prompts[i][places[i].first] != 1813) places[i].first++; /* <|media_pad|> */
    }
    buf_free(&text);
    return 0;
}

static int free_chats(void **state) {
    for (int i = 0; i < CHATS; i++) media_item_release(items[i]);
    return free_golden(state);
}

static job *chat(int i) {
    job *j = calloc(1, sizeof *j);
    memcpy(j->prompt, prompts[i], (size_t)n_prompt[i] * sizeof(i32));
    j->stops[0] = 1794; /* <|im_end|> */
    j->r = (sched_request){.n_prompt = n_prompt[i],
                           .max_new = 60,
                           .sampling = sampling_default(),
                           .n_stop = 1,
                           .media = &places[i],
                           .n_media = 1};
    return j;
}

static void check_answer(const job *j, int i) {
    if (j->finish == SCHED_ERROR) fail_msg("chat %d: %s", i, j->error.text);
    assert_true(j->ended);
    assert_int_equal(j->n_out, n_answer[i]);
    for (i64 k = 0; k < j->n_out; k++) assert_int_equal(j->out[k].id, answers[i][k]);
}

static void run(scheduler *s) {
    while (scheduler_step(s)) continue;
    must_check(s);
}

/* All chats at once, twice: the second time from the prefix cache. */
static void check_chats(const char *device, i64 chunk, i64 kv_tokens, const char *dir) {
    engine *g = open_engine(dir, device, CHATS, kv_tokens, chunk);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .conservativeness = 1e-9});
    i64 cached = 0, preempted = 0;
    for (int again = 0; again < 2; again++) {
        job *all[CHATS];
        for (int i = 0; i < CHATS; i++) must_submit(s, all[i] = chat(i));
        run(s);
        for (int i = 0; i < CHATS; i++) {
            check_answer(all[i], i);
            if (again) cached += all[i]->usage.cached_tokens;
            preempted += all[i]->usage.preemptions;
            free(all[i]);
        }
    }
    if (kv_tokens > 2048) assert_true(cached >= 128);
    if (kv_tokens < 256) assert_true(preempted > 0);
    scheduler_close(s);
    engine_close(g);
}

static void test_ref(void **state) {
    (void)state;
    check_chats("ref", 512, 4096, "models/nano");
}
static void test_cpu(void **state) {
    (void)state;
    check_chats("cpu", 512, 4096, "models/nano");
    check_chats("cpu", 7, 4096, "models/nano"); /* chunks end inside pictures */
}
static void test_little_memory(void **state) {
    (void)state;
    check_chats("cpu", 64, 192, "models/nano");
}

/* Who has no pictures is preempted and comes back, too, also where nobody has any. */
static void test_words_only(void **state) {
    (void)state;
    engine *g = open_engine("models/nano", "cpu", 4, 192, 64);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true, .conservativeness = 1e-9});
    i64 preempted = 0;
    job *all[4];
    for (int i = 0; i < 4; i++) must_submit(s, all[i] = make_job((u64)i, 50, 100));
    run(s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(all[i]->n_out, 100);
        preempted += all[i]->usage.preemptions;
        free(all[i]);
    }
    assert_true(preempted > 0);
    scheduler_close(s);
    engine_close(g);
}

/* The same words about pictures of one size are no common beginning; the same picture is. */
static void test_prefix_cache(void **state) {
    (void)state;
    engine *g = open_engine("models/nano", "cpu", 2, 4096, 512);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    vision_input other = inputs[2];
    const u64 bytes = (u64)vision_patches(&other) * PATCH_BYTES;
    u8 *changed = malloc(bytes);
    memcpy(changed, other.patches, bytes);
    changed[bytes / 2] ^= 0x80;
    other.patches = changed;
    sched_media place = {places[2].first, media_item_new(&other, PATCH_BYTES)};
    job *first = chat(2), *second = chat(2), *third = chat(2);
    second->r.media = &place;
    third->r.media = &place;
    must_submit(s, first);
    run(s);
    check_answer(first, 2);
    must_submit(s, second);
    run(s);
    assert_int_equal(second->usage.cached_tokens, places[2].first / KV_PAGE * KV_PAGE);
    must_submit(s, third);
    run(s);
    assert_true(third->usage.cached_tokens >= KV_PAGE);
    assert_int_equal(third->n_out, second->n_out);
    media_item_release(place.item);
    free(changed);
    free(first);
    free(second);
    free(third);
    scheduler_close(s);
    engine_close(g);
}

/* Two pictures in one prompt; one of them twice in a row. */
static void test_several(void **state) {
    (void)state;
    engine *g = open_engine("models/nano", "cpu", 2, 4096, 16);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    const sched_media three[] = {{4, items[0]}, {8, items[0]}, {20, items[1]}};
    job *j = calloc(1, sizeof *j), *same = calloc(1, sizeof *same);
    for (int i = 0; i < 60; i++) j->prompt[i] = 300;
    j->r = (sched_request){.n_prompt = 60, .max_new = 8, .sampling = sampling_default(), .media = three, .n_media = 3};
    *same = *j;
    must_submit(s, j);
    must_submit(s, same);
    run(s);
    assert_int_equal(j->n_out, 8);
    for (int k = 0; k < 8; k++) assert_int_equal(j->out[k].id, same->out[k].id);
    free(j);
    free(same);
    scheduler_close(s);
    engine_close(g);
}

static void refused(scheduler *s, const sched_media *m, i64 n, const char *word) {
    err e = {0};
    i32 ids[64] = {0};
    const sched_request r = {
        .prompt = ids, .n_prompt = 64, .max_new = 1, .sampling = sampling_default(), .media = m, .n_media = n};
    assert_int_equal(scheduler_submit(s, &r, 1, NULL, NULL, &e), SCHED_BAD_REQUEST);
    if (!strstr(e.text, word)) fail_msg("%s", e.text);
}

static void test_refused(void **state) {
    (void)state;
    engine *g = open_engine("models/nano", "cpu", 2, 4096, 16);
    scheduler *s = open_scheduler(g, (scheduler_options){.manual = true});
    const sched_media overlap[] = {{0, items[0]}, {3, items[0]}}, beyond = {61, items[0]};
    refused(s, overlap, 2, "picture 1");
    refused(s, &beyond, 1, "picture 0");
    scheduler_close(s);
    engine_close(g);
    err e = {0};
    engine_options o = {
        .model_dir = "models/nano", .device = "cpu", .context = 256, .max_running = 1, .language_only = true};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    s = open_scheduler(g, (scheduler_options){.manual = true});
    refused(s, overlap, 1, "without a vision tower");
    scheduler_close(s);
    engine_close(g);
}

/* On two ranks each makes rows of its own items, one behind the other's, and then all have all: PyTorch's. */
static void test_shares(void **state) {
    (void)state;
    const engine_options o = {.model_dir = "models/nano", .device = "cpu", .max_running = 1, .tp = 2};
    engine *g = NULL;
    err e = {0};
    i64 next = 0, shares = 0, row = 5;
    bool done = false;
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    if (engine_begin_media(g, inputs, ITEMS, row, &e) != ST_OK) fail_msg("%s", e.text);
    while (!done)
        if (engine_advance_media(g, 50000000, &done, &e) != ST_OK) fail_msg("%s", e.text);
    for (int r = 0; r < 2; r++) {
        const media_share *m = &g->ranks.media[r];
        assert_int_equal(m->first, next);
        next += m->n, shares += m->n > 0;
    }
    assert_int_equal(next, ITEMS);
    assert_int_equal(shares, 2);
    for (int i = 0; i < ITEMS; i++)
        for (int r = 0; r < 2; r++) {
            const bf16 *rows = model_media_rows(g->ranks.of[r].model);
            f64 off = 0, size = 0;
            for (i64 k = 0; k < vision_tokens(&inputs[i]) * 256; k++) {
                const f64 want = media[i][k], got = bf16_to_f32(rows[row * 256 + k]);
                off += (got - want) * (got - want), size += want * want;
            }
            if (!(off < 1e-4 * size)) fail_msg("item %d on rank %d: %g of %g", i, r, off, size);
            if (r == 1) row += vision_tokens(&inputs[i]);
        }
    engine_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref),           cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_little_memory), cmocka_unit_test(test_prefix_cache),
                                       cmocka_unit_test(test_several),       cmocka_unit_test(test_words_only),
                                       cmocka_unit_test(test_refused),       cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, read_chats, free_chats);
}
