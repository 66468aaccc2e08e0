/* The cache of constraints: compiled once for all who ask, kept and forgotten within bounds, failures remembered, a few
 * at a time, nobody waits for ever. */
#include "unit.h"

#include "base/log.h"
#include "server/request/constraints.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static tokenizer *tok;
static atomic_int compiles, at_once, most_at_once, niceness;
static atomic_bool held; /* compiles wait */

static status slow_compile(constraint **out, const constraint_source *source, const token_trie *trie,
                           const tokenizer *t, buf *warnings, err *e) {
    int now = atomic_fetch_add(&at_once, 1) + 1, most = atomic_load(&most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&most_at_once, &most, now)) {}
    atomic_fetch_add(&compiles, 1);
    atomic_store(&niceness, getpriority(PRIO_PROCESS, (id_t)gettid()));
    while (atomic_load(&held)) usleep(1000);
    status st = constraint_compile(out, source, trie, t, warnings, e);
    atomic_fetch_sub(&at_once, 1);
    return st;
}

static constraint_cache *opened(constraint_cache_options o) {
    constraint_cache *c;
    o.tok = tok;
    o.compile = slow_compile;
    atomic_store(&compiles, 0);
    atomic_store(&most_at_once, 0);
    assert_int_equal(constraint_cache_open(&c, &o, NULL), ST_OK);
    return c;
}

static json_t *parse(const char *text) {
    json_t *v = json_parse(text, strlen(text), "test", NULL);
    if (!v) fail_msg("%s", text);
    return v;
}

/* The error's status, 0: it is there, -1: the client has gone. */
static int ask(constraint_cache *c, const char *schema, bool strict, buf *warnings, bool (*gone)(void *)) {
    json_t *v = parse(schema);
    const constraint_source s = {.content = CONTENT_SCHEMA, .value = v, .strict = strict};
    const constraint_asker who = {.field = "response_format", .gone = gone};
    constraint *out = NULL;
    buf none = {0};
    api_error e = {0};
    bool ok = constraints_get(c, &s, &who, &out, warnings ? warnings : &none, &e);
    json_decref(v);
    buf_free(&none);
    if (ok != (out != NULL)) return 999;
    constraint_release(out);
    if (e.http == 400 && strcmp(e.param, "response_format")) return 998;
    return ok ? 0 : e.http ? e.http : -1;
}

static constraint_stats stats_of(constraint_cache *c) {
    constraint_stats s;
    constraint_cache_stats(c, &s);
    return s;
}

static void kept_by_content(void **state) {
    constraint_cache *c = opened((constraint_cache_options){0});
    (void)state;
    assert_int_equal(ask(c, "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}}}", true, NULL, NULL), 0);
    assert_int_equal(ask(c, "{\"properties\":{\"b\":{},\"a\":{}},\"type\":\"object\"}", true, NULL, NULL), 0);
    assert_int_equal(atomic_load(&compiles), 1);
    assert_int_equal(atomic_load(&niceness), 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), 0); /* nobody else's */
    assert_int_equal(ask(c, "{\"properties\":{\"b\":{},\"a\":{}},\"type\":\"object\"}", false, NULL, NULL), 0);
    assert_int_equal(ask(c, "{\"type\":\"array\"}", true, NULL, NULL), 0);
    assert_int_equal(atomic_load(&compiles), 3);
    constraint_stats s = stats_of(c);
    assert_int_equal(s.compiles, 3);
    assert_int_equal(s.hits, 1);
    assert_int_equal(s.kept, 3);
    assert_int_equal(s.waiting + s.failures + s.timeouts + s.aborted, 0);
    assert_true(s.bytes > 0 && s.seconds > 0);
    constraint_cache_close(c);
}

static void descriptions_of_tools_are_no_content(void **state) {
    constraint_cache *c = opened((constraint_cache_options){0});
    const constraint_asker who = {.field = "tools"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *text = i == 0   ? "[{\"function\":{\"name\":\"f\",\"description\":\"a\"}}]"
                           : i == 1 ? "[{\"function\":{\"name\":\"f\",\"description\":\"b\"}}]"
                                    : "[{\"function\":{\"name\":\"g\",\"description\":\"a\"}}]";
        json_t *tools = parse(text);
        constraint *out;
        buf warnings = {0};
        api_error e = {0};
        const constraint_source s = {.calls = CALLS_MUST, .tools = tools};
        if (!constraints_get(c, &s, &who, &out, &warnings, &e)) fail_msg("%s", e.text.text);
        constraint_release(out);
        json_decref(tools);
        buf_free(&warnings);
    }
    assert_int_equal(atomic_load(&compiles), 2);
    constraint_cache_close(c);
}

static void warnings_come_again(void **state) {
    static const char odd[] = "{\"type\":\"object\",\"not\":{\"type\":\"array\"},\"unheard_of\":1}";
    constraint_cache *c = opened((constraint_cache_options){0});
    (void)state;
    for (int i = 0; i < 2; i++) {
        buf warnings = {0};
        assert_int_equal(ask(c, odd, false, &warnings, NULL), 0);
        assert_true(warnings.len > 0);
        assert_non_null(strstr(warnings.data, "not"));
        buf_free(&warnings);
    }
    assert_int_equal(atomic_load(&compiles), 1);
    constraint_cache_close(c);
}

static void failures_are_remembered_for_a_while(void **state) {
    static const char odd[] = "{\"not\":{\"type\":\"array\"}}";
    constraint_cache *c = opened((constraint_cache_options){.failure_s = 0.2, .most_failures = 2});
    (void)state;
    for (int i = 0; i < 3; i++) assert_int_equal(ask(c, odd, true, NULL, NULL), 400);
    assert_int_equal(atomic_load(&compiles), 1);
    assert_int_equal(stats_of(c).failures, 1);
    usleep(250000);
    assert_int_equal(ask(c, odd, true, NULL, NULL), 400);
    assert_int_equal(atomic_load(&compiles), 2);
    constraint_cache_close(c);

    c = opened((constraint_cache_options){.most_failures = 2});
    char text[64];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) {
            snprintf(text, sizeof text, "{\"not\":{\"const\":%d}}", i);
            assert_int_equal(ask(c, text, true, NULL, NULL), 400);
        }
    assert_int_equal(atomic_load(&compiles), 6); /* the oldest of three is always forgotten */
    assert_int_equal(stats_of(c).kept, 0);
    constraint_cache_close(c);
}

static void least_recently_used_goes(void **state) {
    constraint_cache *c = opened((constraint_cache_options){.most = 2});
    (void)state;
    assert_int_equal(ask(c, "{\"const\":1}", true, NULL, NULL), 0);
    assert_int_equal(ask(c, "{\"const\":2}", true, NULL, NULL), 0);
    assert_int_equal(ask(c, "{\"const\":1}", true, NULL, NULL), 0);
    assert_int_equal(ask(c, "{\"const\":3}", true, NULL, NULL), 0); /* 2 goes */
    assert_int_equal(atomic_load(&compiles), 3);
    assert_int_equal(ask(c, "{\"const\":1}", true, NULL, NULL), 0);
    assert_int_equal(atomic_load(&compiles), 3);
    assert_int_equal(ask(c, "{\"const\":2}", true, NULL, NULL), 0);
    assert_int_equal(atomic_load(&compiles), 4);
    assert_int_equal(stats_of(c).kept, 2);
    constraint_cache_close(c);

    c = opened((constraint_cache_options){.bytes = 1}); /* nothing fits: what is asked for is there all the same */
    for (int i = 0; i < 2; i++) assert_int_equal(ask(c, "{\"const\":1}", true, NULL, NULL), 0);
    assert_int_equal(stats_of(c).kept, 0);
    assert_int_equal(stats_of(c).bytes, 0);
    constraint_cache_close(c);
}

static void too_long(void **state) {
    constraint_cache *c = opened((constraint_cache_options){0});
    buf b = {0};
    (void)state;
    buf_str(&b, "{\"description\":\"");
    for (int i = 0; i < 1 << 20; i++) buf_char(&b, 'x');
    buf_str(&b, "\"}");
    assert_int_equal(ask(c, b.data, true, NULL, NULL), 400);
    assert_int_equal(atomic_load(&compiles), 0);
    buf_free(&b);
    constraint_cache_close(c);
}

/* ---- Several at a time ---- */

typedef struct {
    constraint_cache *c;
    char schema[64];
    bool (*gone)(void *);
    int got;
} asker;

static void *asking(void *ud) {
    asker *a = ud;
    a->got = ask(a->c, a->schema, true, NULL, a->gone);
    return NULL;
}

enum { MANY = 6 };

static void ask_many(constraint_cache *c, asker *all, pthread_t *threads, bool same) {
    for (int i = 0; i < MANY; i++) {
        all[i].c = c;
        snprintf(all[i].schema, sizeof all[i].schema, "{\"const\":%d}", same ? 0 : i);
        assert_int_equal(pthread_create(&threads[i], NULL, asking, &all[i]), 0);
    }
    for (int i = 0; i < 2000 && stats_of(c).waiting < MANY; i++) usleep(1000);
    assert_int_equal(stats_of(c).waiting, MANY);
}

static void join_all(pthread_t *threads) {
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
}

static void equal_ones_compile_once(void **state) {
    constraint_cache *c = opened((constraint_cache_options){0});
    asker all[MANY] = {0};
    pthread_t threads[MANY];
    (void)state;
    atomic_store(&held, true);
    ask_many(c, all, threads, true);
    atomic_store(&held, false);
    join_all(threads);
    for (int i = 0; i < MANY; i++) assert_int_equal(all[i].got, 0);
    assert_int_equal(atomic_load(&compiles), 1);
    assert_int_equal(stats_of(c).hits, MANY - 1);
    constraint_cache_close(c);
}

static void a_few_at_a_time(void **state) {
    constraint_cache *c = opened((constraint_cache_options){.at_a_time = 2});
    asker all[MANY] = {0};
    pthread_t threads[MANY];
    (void)state;
    atomic_store(&held, true);
    ask_many(c, all, threads, false);
    for (int i = 0; i < 1000 && atomic_load(&at_once) < 2; i++) usleep(1000);
    atomic_store(&held, false);
    join_all(threads);
    for (int i = 0; i < MANY; i++) assert_int_equal(all[i].got, 0);
    assert_int_equal(atomic_load(&compiles), MANY);
    assert_int_equal(atomic_load(&most_at_once), 2);
    assert_int_equal(stats_of(c).kept, MANY);
    constraint_cache_close(c);
}

static bool has_gone(void *ud) {
    (void)ud;
    return true;
}

/* The first one compiles; the others wait for a place, or for what it makes. */
static void nobody_waits_for_ever(void **state) {
    constraint_cache *c = opened((constraint_cache_options){.at_a_time = 1, .patience_s = 0.3});
    asker all[MANY] = {0};
    pthread_t threads[MANY];
    (void)state;
    atomic_store(&held, true);
    for (int i = 0; i < MANY; i++) {
        all[i] = (asker){.c = c, .gone = i == 1 ? has_gone : NULL};
        snprintf(all[i].schema, sizeof all[i].schema, "{\"const\":%d}", i < 4 ? i : 0);
        assert_int_equal(pthread_create(&threads[i], NULL, asking, &all[i]), 0);
        for (int k = 0; !i && k < 1000 && !atomic_load(&at_once); k++) usleep(1000);
    }
    for (int i = 1; i < MANY; i++) pthread_join(threads[i], NULL);
    atomic_store(&held, false);
    pthread_join(threads[0], NULL);
    assert_int_equal(all[0].got, 0);
    assert_int_equal(all[1].got, -1);
    for (int i = 2; i < MANY; i++) assert_int_equal(all[i].got, 503);
    constraint_stats s = stats_of(c);
    assert_int_equal(s.timeouts, MANY - 2);
    assert_int_equal(s.aborted, 1);
    assert_int_equal(s.waiting, 0);
    assert_int_equal(ask(c, "{\"const\":2}", true, NULL, NULL), 0); /* given up, not forgotten how */
    assert_int_equal(ask(c, "{\"const\":0}", true, NULL, NULL), 0);
    assert_int_equal(atomic_load(&compiles), 2);
    constraint_cache_close(c);
}

/* As long as somebody waits for it. */
static status endless_compile(constraint **out, const constraint_source *source, const token_trie *trie,
                              const tokenizer *t, buf *warnings, err *e) {
    (void)trie, (void)t, (void)warnings;
    *out = NULL;
    atomic_fetch_add(&at_once, 1);
    while (!atomic_load(source->stop)) usleep(1000);
    atomic_fetch_sub(&at_once, 1);
    return err_set(e, ST_CANCELLED, "given up");
}

static atomic_bool all_gone;
static bool may_have_gone(void *ud) {
    (void)ud;
    return atomic_load(&all_gone);
}

/* MANY askers of endless compiles, of one or of several sources; each has the same fate. */
static void nobody_waits(bool same, bool stop, int got) {
    constraint_cache *c;
    asker all[MANY] = {0};
    pthread_t threads[MANY];
    assert_int_equal(
        constraint_cache_open(&c, &(constraint_cache_options){.tok = tok, .compile = endless_compile}, NULL), ST_OK);
    atomic_store(&all_gone, false);
    for (int i = 0; i < MANY; i++) all[i].gone = may_have_gone;
    ask_many(c, all, threads, same);
    for (int i = 0; i < 2000 && atomic_load(&at_once) < (same ? 1 : MANY); i++) usleep(1000);
    if (stop)
        constraint_cache_stop(c);
    else
        atomic_store(&all_gone, true);
    join_all(threads);
    for (int i = 0; i < MANY; i++) assert_int_equal(all[i].got, got);
    assert_int_equal(stats_of(c).waiting, 0);
    assert_int_equal(stats_of(c).aborted, stop ? 0 : MANY);
    assert_int_equal(stats_of(c).compiles, same ? 1 : MANY);
    if (stop) assert_int_equal(ask(c, "{\"const\":9}", true, NULL, NULL), 503);
    constraint_cache_close(c);
}

static void compiles_of_nobody_are_given_up(void **state) {
    (void)state;
    nobody_waits(true, false, -1);
    nobody_waits(false, false, -1);
}

static void nothing_is_compiled_at_the_end(void **state) {
    (void)state;
    nobody_waits(true, true, 503);
    nobody_waits(false, true, 503);
}

/* Who asked first goes, others stay: it is compiled for them. */
static void others_may_still_wait(void **state) {
    constraint_cache *c = opened((constraint_cache_options){0});
    asker all[MANY] = {0};
    pthread_t threads[MANY];
    (void)state;
    atomic_store(&held, true);
    for (int i = 0; i < MANY; i++) {
        all[i] = (asker){.c = c, .schema = "{\"const\":1}", .gone = i ? NULL : has_gone};
        assert_int_equal(pthread_create(&threads[i], NULL, asking, &all[i]), 0);
        for (int k = 0; !i && k < 1000 && !atomic_load(&at_once); k++) usleep(1000);
    }
    for (int i = 0; i < 2000 && stats_of(c).waiting < MANY; i++) usleep(1000);
    atomic_store(&held, false);
    join_all(threads);
    for (int i = 1; i < MANY; i++) assert_int_equal(all[i].got, 0);
    constraint_cache_close(c);
}

static int open_tokenizer(void **state) {
    (void)state;
    return tokenizer_open(&tok, "models/nano", NULL) != ST_OK;
}

static int close_tokenizer(void **state) {
    (void)state;
    tokenizer_close(tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_by_content),
        cmocka_unit_test(descriptions_of_tools_are_no_content),
        cmocka_unit_test(warnings_come_again),
        cmocka_unit_test(failures_are_remembered_for_a_while),
        cmocka_unit_test(least_recently_used_goes),
        cmocka_unit_test(too_long),
        cmocka_unit_test(equal_ones_compile_once),
        cmocka_unit_test(a_few_at_a_time),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(compiles_of_nobody_are_given_up),
        cmocka_unit_test(nothing_is_compiled_at_the_end),
        cmocka_unit_test(others_may_still_wait),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
