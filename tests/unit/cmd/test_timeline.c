/* Timelines (cmd/profile/timeline.h): what launches add, whose they are, which of them make a layer; the picture. */
#include "unit.h"

#include "cmd/profile/blocks.c"
#include "cmd/profile/blocks_chart.c"
#include "cmd/profile/chart.c"
#include "cmd/profile/timeline.c"
#include "cmd/profile/timeline_chart.c"

/* Microseconds behind 1 s. */
static kernel_launch launch_at(const char *kernel, u64 from, u64 to) {
    return (kernel_launch){.kernel = kernel,
                           .from = 1000000000 + from * 1000,
                           .to = 1000000000 + to * 1000,
                           .grid = {4, 1, 1},
                           .cluster = 1,
                           .recorded = true};
}

static gpu_time traced(const char *kernel, const char *what, f64 bytes) {
    return (gpu_time){.kernel = kernel, .what = what, .bytes = bytes, .first = bytes > 0};
}

static timeline made(const kernel_launch *seen, i64 n) {
    timeline t;
    err e = {0};
    if (timeline_make(&t, "a step", seen, n, &e) != ST_OK) fail_msg("%s", e.text);
    return t;
}

static void what_launches_add_is_the_step(void **state) {
    (void)state;
    /* overlapped, inside of another, behind a gap */
    const kernel_launch seen[] = {launch_at("a", 0, 10), launch_at("b", 8, 15), launch_at("c", 9, 12),
                                  launch_at("d", 20, 24)};
    timeline t = made(seen, 4);
    const f64 adds[] = {10, 5, 0, 9}, overlap[] = {0, 2, 6, -5};
    f64 sum = 0;
    for (int i = 0; i < 4; i++) {
        assert_float_equal(t.all[i].adds, adds[i], 1e-6);
        assert_float_equal(t.all[i].overlap, overlap[i], 1e-6);
        sum += t.all[i].adds;
    }
    assert_float_equal(t.us, 24, 1e-6);
    assert_float_equal(sum, t.us, 1e-6);
    timeline_free(&t);
    err e = {0};
    assert_int_equal(timeline_make(&t, "nothing", seen, 0, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "nothing: CUPTI saw no launch"));
}

static void operations_come_from_the_trace(void **state) {
    (void)state;
    const kernel_launch seen[] = {launch_at("norm", 0, 1), launch_at("nvjet_splitK", 1, 3), launch_at("reduce", 3, 4),
                                  launch_at("up", 4, 6), launch_at("down", 6, 9)};
    const gpu_time of[] = {traced("norm", "norm 8", 10), traced("library", "linear 4 x 8", 100),
                           traced("up", "experts", 1000), traced("down", "experts", 0)};
    timeline t = made(seen, 5);
    assert_true(timeline_name(&t, of, 4, "library"));
    const char *const ops[] = {"norm 8", "linear 4 x 8", "linear 4 x 8", "experts", "experts"};
    for (int i = 0; i < 5; i++) assert_string_equal(t.all[i].op, ops[i]);
    assert_float_equal(t.bytes, 1110, 0);
    assert_false(t.all[2].first);
    assert_false(t.all[4].first);

    assert_false(timeline_name(&t, of, 3, "library")); /* one launch too many */
    assert_string_equal(t.strange, "down where nothing was");
    for (int i = 0; i < 5; i++) assert_null(t.all[i].op);
    assert_float_equal(t.bytes, 0, 0);
    const gpu_time other[] = {traced("norm", "norm 8", 10), traced("up", "experts", 1000)};
    assert_false(timeline_name(&t, other, 2, "library"));
    assert_string_equal(t.strange, "nvjet_splitK where up was");
    timeline_free(&t);
}

static void a_layer_is_what_repeats(void **state) {
    (void)state;
    kernel_launch seen[14];
    i64 n = 0;
    seen[n++] = launch_at("embed", 0, 100); /* the longest, but once */
    for (u64 l = 0; l < 4; l++) {
        const u64 at = 100 + 30 * l;
        seen[n++] = launch_at("norm", at, at + 2);
        seen[n++] = launch_at("attend", at + 2, at + 10);
        seen[n++] = launch_at("experts", at + 9, at + 30);
    }
    seen[n++] = launch_at("head", 220, 225);
    timeline t = made(seen, n);
    i64 from, to;
    timeline_layer(&t, &from, &to);
    assert_int_equal(to - from, 3);
    assert_string_equal(t.all[from].kernel, "norm");
    assert_string_equal(t.all[to - 1].kernel, "experts");
    assert_float_equal(t.all[from].from, 160, 1e-6);
    timeline_kind kinds[TIMELINE_KINDS];
    assert_int_equal(timeline_kinds(&t, kinds), 5);
    assert_string_equal(kinds[0].first->kernel, "embed");
    assert_string_equal(kinds[1].first->kernel, "experts");
    assert_int_equal(kinds[1].launches, 4);
    assert_float_equal(kinds[1].adds, 80, 1e-6);
    timeline_free(&t);
    t = made(seen, 2);
    timeline_layer(&t, &from, &to);
    assert_int_equal(from, 0);
    assert_int_equal(to, 2);
    timeline_free(&t);
}

static void a_picture_has_every_launch(void **state) {
    (void)state;
    const kernel_launch seen[] = {launch_at("a<b>&'c'", 0, 10), launch_at("d", 8, 15), launch_at("d", 15, 22)};
    const gpu_time of[] = {traced("a<b>&'c'", "odd", 2e6), traced("d", "even", 1e6), traced("d", "even", 1e6)};
    timeline t = made(seen, 3);
    err e = {0};
    char text[1 << 16];
    assert_true(timeline_name(&t, of, 3, "library"));
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(timeline_chart(f, &t, &(block_timeline){0}, 1, "a chip", 1e12, &e), ST_OK);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    int bars = 0;
    for (const char *at = text; (at = strstr(at, "</title><rect")); at++) bars++;
    assert_int_equal(bars, 3 + 3 + 3); /* the step, the layer, its memory */
    assert_null(strstr(text, "a<b>"));
    assert_non_null(strstr(text, "a step: 3 launches, 22.0 us, 0.004 GB at 0.18 TB/s"));
    assert_non_null(strstr(text, "2.00 MB in the 10.00 us that it adds: 20 %"));
    timeline_free(&t);
    if (!(f = fopen("/dev/full", "w"))) return;
    t = made(seen, 3);
    assert_int_equal(timeline_chart(f, &t, &(block_timeline){0}, 1, "a chip", 0, &e), ST_IO);
    assert_non_null(strstr(e.text, "No space left"));
    fclose(f);
    timeline_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_launches_add_is_the_step),
        cmocka_unit_test(operations_come_from_the_trace),
        cmocka_unit_test(a_layer_is_what_repeats),
        cmocka_unit_test(a_picture_has_every_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
