/* The law of a token that a grammar restricts: the model's own, with the request's temperature, penalties, top-k, top-p
 * and min-p, over the tokens that may come. Counts of many draws from nano beside probabilities that are worked out
 * here from logits read without a mask. */
#include "unit.h"

#include "runtime/scheduler.h"
#include "text/grammar/constraint.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char DIR[] = "models/nano";
static const char SCHEMA[] =
    "{\"type\": \"object\", \"properties\": {\"answer\": {\"type\": \"integer\"}, "
    "\"unit\": {\"enum\": [\"apples\", \"pears\", \"plums\"]}, \"why\": {\"type\": \"string\"}},"
    "\"required\": [\"answer\", \"unit\"]}";
static const char QUESTION[] = "Question: 3 apples and 4 apples?\nAnswer: ";
enum { DRAWS = SANITIZED ? 120 : 600, AT_A_TIME = 60 };

static tokenizer *tok;
static token_trie *trie;
static constraint *must;
static engine *g;
static i64 vocab;

/* ---- what is expected ---- */

static status keep_logits(void *ud, i64 index, f32 *logits, err *e) {
    (void)index, (void)e;
    memcpy(ud, logits, (size_t)vocab * sizeof *logits);
    return ST_OK;
}

static void read_logits(const ids_buf *ids, f32 *logits) {
    seq *s;
    err e = {0};
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    assert_int_equal(seq_run(s, ids->data, (i64)ids->len, false, LOGITS_LAST, keep_logits, logits, &e), ST_OK);
    seq_close(s);
}

static const f64 *sort_by;
static int better_first(const void *a, const void *b) {
    const i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return sort_by[x] != sort_by[y] ? (sort_by[x] < sort_by[y]) - (sort_by[x] > sort_by[y]) : (x > y) - (x < y);
}

/* p [vocab] of the next token. */
static void law(const f32 *logits, const u64 *mask, const sampling *how, const ids_buf *seen, f64 *p) {
    i32 *order = malloc((size_t)vocab * sizeof *order);
    f64 most = -INFINITY, sum = 0, reached = 0;
    i64 n = 0;
    for (i64 t = 0; t < vocab; t++) {
        f64 x = logits[t];
        for (size_t k = 0; k < seen->len; k++)
            if (seen->data[k] == t) {
                x = x > 0 ? x / how->repetition_penalty : x * how->repetition_penalty;
                break;
            }
        p[t] = mask[t / 64] >> t % 64 & 1 ? x / how->temperature : -INFINITY;
        if (p[t] > most) most = p[t];
    }
    for (i64 t = 0; t < vocab; t++) {
        p[t] = exp(p[t] - most);
        if (p[t] > 0) order[n++] = (i32)t;
    }
    sort_by = p;
    qsort(order, (size_t)n, sizeof *order, better_first);
    if (how->top_k && how->top_k < n) n = how->top_k;
    for (i64 i = 0; i < n; i++) sum += p[order[i]];
    for (i64 i = 0; how->top_p < 1 && i < n; i++)
        if ((reached += p[order[i]]) >= how->top_p * sum) n = i + 1;
    while (n > 1 && p[order[n - 1]] < how->min_p) n--;
    f64 *kept = calloc((size_t)vocab, sizeof *kept);
    sum = 0;
    for (i64 i = 0; i < n; i++) sum += kept[order[i]] = p[order[i]];
    for (i64 t = 0; t < vocab; t++) p[t] = kept[t] / sum;
    free(kept);
    free(order);
}

/* ---- what comes ---- */

static i64 *counts;
static void count_tokens(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++)
        if (ev[i].kind == SCHED_TOKEN) counts[ev[i].token]++;
}

static status mask_of(void *ud, i32 state, u64 *mask, bool *may_end, err *e) {
    return constraint_run_mask(ud, state, mask, may_end, e);
}
static i32 next_of(void *ud, i32 state, i32 id) { return constraint_run_next(ud, state, id); }
static void nothing(void *ud) { (void)ud; }

static void draw(const ids_buf *ids, const token_filter *f, const sampling *how, const ids_buf *stops) {
    scheduler *s;
    err e = {0};
    const scheduler_options o = {.on_events = count_tokens, .manual = true};
    assert_int_equal(scheduler_open(&s, g, &o, &e), ST_OK);
    for (u32 at = 0; at < DRAWS; at += AT_A_TIME) {
        sched_request r[AT_A_TIME];
        for (u32 i = 0; i < AT_A_TIME; i++)
            r[i] = (sched_request){.prompt = ids->data,
                                   .n_prompt = (i64)ids->len,
                                   .max_new = 1,
                                   .sampling = *how,
                                   .choice = at + i,
                                   .stop_ids = stops->data,
                                   .n_stop = (i64)stops->len,
                                   .filter = f};
        if (scheduler_submit(s, r, AT_A_TIME, NULL, NULL, &e) != SCHED_ACCEPTED) fail_msg("%s", e.text);
        while (scheduler_step(s)) continue;
    }
    scheduler_close(s);
}

/* Chi-square over the tokens that are expected five times or more, the others as one. */
static void counts_follow(const char *what, const f64 *p) {
    f64 chi = 0, rest = 0;
    i64 rest_seen = 0, cells = 0;
    for (i64 t = 0; t < vocab; t++) {
        const f64 want = p[t] * DRAWS;
        if (counts[t] && p[t] <= 0) fail_msg("%s: token %d came, which may not", what, (int)t);
        if (want < 5)
            rest += want, rest_seen += counts[t];
        else
            chi += ((f64)counts[t] - want) * ((f64)counts[t] - want) / want, cells++;
    }
    if (rest >= 5) chi += ((f64)rest_seen - rest) * ((f64)rest_seen - rest) / rest, cells++;
    const f64 freedom = (f64)(cells - 1), z = freedom > 0 ? (chi - freedom) / sqrt(2 * freedom) : 0;
    if (z > 5) fail_msg("%s: chi-square %.1f with %lld cells", what, chi, (long long)cells);
    if (cells > 1) print_message("%s: chi-square %.1f, %lld cells\n", what, chi, (long long)cells);
}

/* Some token in front, so that all but the last one are whole pages: those are computed once. */
static void fill_pages(ids_buf *ids) {
    ids_buf all = {0};
    while ((all.len + ids->len) % KV_PAGE != 1) ids_add(&all, ids->data[0]);
    ids_append(&all, ids->data, ids->len);
    ids_free(ids);
    *ids = all;
}

static void law_at(const char *begun, const sampling *how, const char *what) {
    ids_buf ids = {0}, stops = {0};
    constraint_run *run;
    bool may_end = false;
    err e = {0};
    char text[256], name[256];
    snprintf(text, sizeof text, "%s%s", QUESTION, begun);
    snprintf(name, sizeof name, "behind \"%s\", %s", begun, what);
    assert_int_equal(tokenizer_encode(tok, text, strlen(text), false, &ids, &e), ST_OK);
    fill_pages(&ids);
    ids_add(&stops, tokenizer_special(tok, "<|im_end|>"));
    assert_int_equal(constraint_run_open(&run, must, BEGIN_CONTENT, 0, &e), ST_OK);
    const i32 start = constraint_run_next_text(run, constraint_run_start(run), begun, strlen(begun));
    assert_true(start != RUN_DEAD);
    u64 *mask = calloc((size_t)ceil_div(vocab, 64), sizeof *mask);
    f32 *logits = malloc((size_t)vocab * sizeof *logits);
    f64 *p = malloc((size_t)vocab * sizeof *p);
    counts = calloc((size_t)vocab, sizeof *counts);
    assert_int_equal(constraint_run_mask(run, start, mask, &may_end, &e), ST_OK);
    if (may_end) mask[stops.data[0] / 64] |= (u64)1 << stops.data[0] % 64;
    read_logits(&ids, logits);
    law(logits, mask, how, &ids, p);
    const token_filter f = {.ud = run, .start = start, .mask = mask_of, .next = next_of, .close = nothing};
    draw(&ids, &f, how, &stops);
    counts_follow(name, p);
    constraint_run_close(run);
    ids_free(&ids), ids_free(&stops);
    free(mask), free(logits), free(p), free(counts);
}

static sampling plain(f64 temperature) {
    sampling p = sampling_default();
    p.temperature = temperature;
    p.seed = 11;
    return p;
}

static void the_models_law_over_what_may_come(void **state) {
    (void)state;
    sampling warm = plain(1), hot = plain(2.5), k = plain(2), share = plain(2), least = plain(1.5), repeated = plain(2);
    k.top_k = 4;
    share.top_p = 0.7;
    least.min_p = 0.05;
    repeated.repetition_penalty = 1.7, repeated.top_k = 40, repeated.top_p = 0.95;
    law_at("", &warm, "temperature 1");
    law_at("{\"answer\": ", &hot, "temperature 2.5");
    law_at("{\"answer\": ", &k, "top-k");
    law_at("{\"answer\": 7, \"unit\": \"", &share, "temperature 2, top-p");
    law_at("{\"answer\": 7, \"why\": \"three and four", &hot, "temperature 2.5");
    law_at("{\"answer\": 7, \"why\": \"three and four", &repeated, "repetition penalty, top-k, top-p");
    law_at("{\"answer\": 7, \"unit\": \"apples\"", &least, "min-p");
    law_at("{\"answer\": 7, \"unit\": \"apples\"}", &warm, "temperature 1");
}

static int set_up(void **state) {
    (void)state;
    err e = {0};
    const engine_options o = {
        .model_dir = DIR, .device = "cpu", .threads = 1, .context = 256, .max_running = AT_A_TIME};
    json_t *schema = json_parse(SCHEMA, strlen(SCHEMA), "schema", &e);
    const constraint_source source = {.content = CONTENT_SCHEMA, .value = schema, .strict = true};
    bool made = tokenizer_open(&tok, DIR, &e) == ST_OK && token_trie_open(&trie, tok, &e) == ST_OK &&
                constraint_compile(&must, &source, trie, tok, NULL, &e) == ST_OK && engine_open(&g, &o, &e) == ST_OK;
    json_decref(schema);
    if (!made) print_error("%s\n", e.text);
    if (made) vocab = engine_config(g)->vocab;
    return made ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    engine_close(g);
    constraint_release(must);
    token_trie_close(trie);
    tokenizer_close(tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_models_law_over_what_may_come)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
