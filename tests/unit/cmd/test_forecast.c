/* Forecasts (cmd/profile/profile_forecast.h): tables of links, what lies between their lines, and the arithmetic of
 * loads. */
#include "unit.h"

#include "cmd/lib/model_opts.c"
#include "cmd/lib/stats.c"
#include "cmd/profile/profile_forecast.c"
#include "base/buf.h"
#include "base/file.h"
#include <math.h>

static void parses(const char *text, i64 gpus, i64 n) {
    link_table t;
    err e = {0};
    if (link_table_parse(&t, text, "t.csv", gpus, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(t.n, n);
}

static void refused(const char *text, const char *want) {
    link_table t;
    err e = {0};
    assert_int_equal(link_table_parse(&t, text, "t.csv", 8, &e), ST_FORMAT);
    if (!strstr(e.text, want)) fail_msg("\"%s\" does not say \"%s\"", e.text, want);
}

static void tables(void **state) {
    (void)state;
    char many[4096] = "";
    parses("# x\ngpus,rows,us\n8,1,10\n8,4,20\n4,1,5\n", 8, 2);
    parses("4,1,5.25", 4, 1);
    refused("", "t.csv has no line for 8 GPUs");
    refused("4,1,5\n", "no line for 8 GPUs");
    refused("8,1,10\n8,1,20\n", "t.csv:2: at most 64 lines for 8 GPUs, their rows ascending");
    refused("8,0,10\n", "t.csv:1: \"8,0,10\" is not gpus,rows,us");
    refused("8,1,-1\n", "is not");
    refused("8,1,nan\n", "is not");
    refused("8,1,1e300\n", "is not");
    refused("8,1\n", "is not");
    refused("8,1,2,3\n", "is not");
    refused("8,99999999999999999999,2\n8,5,1\n", "t.csv:2");
    for (int i = 1; i <= LINK_LINES + 1; i++) snprintf(many + strlen(many), 24, "8,%d,%d\n", i, i);
    refused(many, "t.csv:65: at most 64 lines");
}

static void between_the_lines(void **state) {
    (void)state;
    link_table t;
    err e = {0};
    assert_int_equal(link_table_parse(&t, "8,4,10\n8,8,30\n8,16,40\n", "t", 8, &e), ST_OK);
    const f64 want[][2] = {{1, 10}, {4, 10}, {6, 20}, {8, 30}, {12, 35}, {16, 40}, {32, 60}};
    for (size_t i = 0; i < COUNT_OF(want); i++) assert_true(fabs(link_us(&t, want[i][0]) - want[i][1]) < 1e-9);
    assert_int_equal(link_table_parse(&t, "8,4,10\n", "t", 8, &e), ST_OK);
    assert_true(link_us(&t, 2) == 10 && link_us(&t, 8) == 20);
}

static void reads(void **state) {
    (void)state;
    link_table t;
    err e = {0};
    assert_int_equal(link_table_parse(&t, "4,1,7\n4,1000,207\n", "t", 4, &e), ST_OK);
    /* Of 1000 rows each of four reads 1.5 times 14.336 MB in 207 us. */
    assert_true(fabs(link_read_us(&t, 4, 0) - 7) < 1e-9);
    assert_true(fabs(link_read_us(&t, 4, 1.5 * 14.336e6) - 214) < 1e-9);
}

static void crossings(void **state) {
    (void)state;
    const struct {
        forecast_crossing x;
        f64 want;
    } cases[] = {{{{1000, 9000}, {4, 12}, {6, 7}}, 1000 + 2 / (7 / 8000.0)}, /* 2 ms behind, then 5 ahead */
                 {{{1000, 9000}, {4, 12}, {6, 13}}, 17000},                  /* beyond what was measured */
                 {{{1000, 9000}, {4, 12}, {2, 11}}, 0},                      /* its lead shrinks, and is there */
                 {{{1000, 9000}, {4, 12}, {3, 5}}, 0},
                 {{{1000, 9000}, {4, 12}, {3.5, 4}}, 1000 - .5 / (7.5 / 8000)},
                 {{{100, 9000}, {4, 12}, {3, 4}}, 0},
                 {{{1000, 9000}, {4, 5}, {6, 7}}, INFINITY},
                 {{{1000, 9000}, {4, 5}, {6, 8}}, INFINITY}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const f64 got = forecast_crossing_at(&cases[i].x), want = cases[i].want;
        if (got != want && !(fabs(got - want) < 1e-6)) fail_msg("%zu: %g, not %g", i, got, want);
    }
}

/* The one that comes along is for these. */
static void our_table(void **state) {
    (void)state;
    buf text = {0};
    err e = {0};
    link_table t;
    assert_int_equal(file_read("tuned/links/nvidia-h200.csv", 1 << 20, &text, &e), ST_OK);
    buf_char(&text, 0);
    for (i64 gpus = 2; gpus <= 8; gpus *= 2) {
        if (link_table_parse(&t, text.data, "h200", gpus, &e) != ST_OK) fail_msg("%s", e.text);
        for (i64 i = 1; i < t.n; i++) assert_true(t.us[i] > t.us[i - 1]);
    }
    buf_free(&text);
}

static void loads(void **state) {
    (void)state;
    const forecast_load w = {1000, 100, 5};
    const forecast_times t = {.prompt = 0.2, .step = 0.01, .holds = 0.2};
    const forecast_result r = forecast_of(&w, &t);
    /* Five requests take five prompts and a hundred steps: 2 s, in which each has a hundred tokens. */
    assert_true(fabs(r.tokens_per_s - 500 / 2.0) < 1e-9);
    assert_true(fabs(r.ttft_s - 0.21) < 1e-12);
    assert_true(fabs(r.tpot_s - (0.01 + 4 * 0.2 / 100)) < 1e-12);
}

static void pipelines(void **state) {
    (void)state;
    const forecast_times t = {.prompt = 0.2, .step = 0.01, .holds = 0.2};
    const forecast_times two = forecast_staged(&t, 2, 8, 0.6, 0.003, 0.0001),
                         alone = forecast_staged(&t, 4, 3, 0.25, 0.003, 0.0001);
    assert_true(fabs(two.prompt - 0.203) < 1e-12 && fabs(two.holds - (0.12 + 0.003)) < 1e-12);
    assert_true(fabs(two.step - 2 * (0.006 + 0.0001)) < 1e-12); /* each batch waits for the busiest stage */
    assert_true(fabs(alone.step - (0.01 + 3 * 0.0001)) < 1e-12);
}

static void workloads(void **state) {
    (void)state;
    forecast_load w[FORECAST_LOADS];
    err e = {0};
    assert_int_equal(forecast_loads_parse(w, NULL, 0, &e), 4);
    const forecast_load most = forecast_largest(w, 4);
    assert_true(most.in == 10240 && most.out == 10752 && most.at_a_time == 64);
    const char *const own[] = {"7,3,2", "5,9,1"};
    assert_int_equal(forecast_loads_parse(w, own, 2, &e), 2);
    assert_true(w[0].in == 7 && w[0].out == 3 && w[0].at_a_time == 2 && forecast_largest(w, 2).out == 14);
    const char *const bad[] = {"", "7,3", "7,3,0", "7,3,2,1", "0,3,2", "7,-3,2", "7,3,99999", "x"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) assert_int_equal(forecast_loads_parse(w, &bad[i], 1, &e), 0);
    const char *many[FORECAST_LOADS + 1];
    for (int i = 0; i <= FORECAST_LOADS; i++) many[i] = "7,3,2";
    assert_int_equal(forecast_loads_parse(w, many, FORECAST_LOADS, &e), FORECAST_LOADS);
    assert_int_equal(forecast_loads_parse(w, many, FORECAST_LOADS + 1, &e), 0);
}

/* Two that wait for nobody; and so many that the prompts' GPUs cannot do more. */
static void servers_with_roles(void **state) {
    (void)state;
    const forecast_times t = {.prompt = 0.2, .step = 0.01, .holds = 0.2};
    const forecast_load two = {1000, 100, 2}, many = {1000, 100, 20};
    f64 busy;
    const forecast_result r = forecast_of_roles(&two, &t, 0.05, &busy);
    assert_true(fabs(r.ttft_s - 0.26) < 1e-12 && fabs(r.tpot_s - 0.01) < 1e-12);
    assert_true(fabs(r.tokens_per_s - 2 * 100 / 1.25) < 1e-9 && fabs(busy - 2 / 1.25 * 0.2) < 1e-12);
    const forecast_result full = forecast_of_roles(&many, &t, 0.05, &busy);
    assert_true(fabs(full.tokens_per_s - 100 / 0.2) < 1e-9 && fabs(busy - 1) < 1e-12);
}

static void several_hosts(void **state) {
    (void)state;
    const forecast_layout eight = {.ranks = 8}, sixteen = {.ranks = 16}, all = {.ranks = 64};
    assert_true(forecast_hosts(&eight) == 1 && forecast_hosts(&sixteen) == 2 && forecast_hosts(&all) == 8);
    assert_true(forecast_between_hosts(1, 1e9, 50e9) == 0);
    assert_true(fabs(forecast_between_hosts(2, 8e6, 50e9) - (HOP_S + 1e6 / 50e9)) < 1e-15);
    assert_true(fabs(forecast_between_hosts(8, 8e6, 50e9) - (HOP_S + 1.75e6 / 50e9)) < 1e-15);
}

static void names(void **state) {
    (void)state;
    forecast_layout l;
    err e = {0};
    static const char *const bad[] = {"tp8pp",    "tp8pp1",     "tp8pp9", "tp8pp2x", "pp2",     "tp1pp2",
                                      "tp8pp-2",  "tp",         "tp1",    "tp65",    "8",       "tp8x",
                                      "dp8",      "tp-8",       "",       "tp12",    "tp8+tp4", "tp8+",
                                      "tp8+tp8x", "tp8pp2+tp8", "tp8+8",  "tp1+tp1"};
    assert_int_equal(forecast_layout_parse("tp8", &l, &e), ST_OK);
    assert_true(l.ranks == 8 && l.stages == 1 && !l.roles);
    assert_int_equal(forecast_layout_parse("tp4pp16", &l, &e), ST_OK);
    assert_true(l.ranks == 4 && l.stages == 16 && !l.roles);
    assert_int_equal(forecast_layout_parse("tp16", &l, &e), ST_OK);
    assert_true(l.ranks == 16 && l.stages == 1);
    assert_int_equal(forecast_layout_parse("tp8+tp8", &l, &e), ST_OK);
    assert_true(l.ranks == 8 && l.stages == 1 && l.roles);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        e = (err){0};
        assert_int_equal(forecast_layout_parse(bad[i], &l, &e), ST_INPUT);
        assert_non_null(strstr(e.text, "--forecast"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables), cmocka_unit_test(between_the_lines),  cmocka_unit_test(our_table),
        cmocka_unit_test(loads),  cmocka_unit_test(pipelines),          cmocka_unit_test(workloads),
        cmocka_unit_test(names),  cmocka_unit_test(servers_with_roles), cmocka_unit_test(several_hosts),
        cmocka_unit_test(reads),  cmocka_unit_test(crossings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
