/* Blocks of a recorded step (cmd/profile/blocks.h): launches from their blocks, what is in front of each, points that
 * an earlier run left, names from a trace, the table and the picture. */
#include "unit.h"

#include "cmd/profile/blocks.c"
#include "cmd/profile/blocks_chart.c"
#include "cmd/profile/chart.c"
#include "cmd/profile/timeline.c"
#include "kernels/gpu/block_marks.h"

enum { START = 4000000000u }; /* ns; its lower half wraps within a step */

/* Microseconds behind START. */
static block_times block_at(u64 from, u64 to, u32 processor) {
    return (block_times){.begin = START + from * 1000, .end = START + to * 1000, .processor = processor};
}
static void pass(block_times *b, int mark, u64 at) { b->mark[mark] = (u32)(START + at * 1000); }

static block_timeline made(const gpu_stamped *launches, i64 n) {
    block_timeline b;
    err e = {0};
    if (blocks_make(&b, "a step", launches, n, &e) != ST_OK) fail_msg("%s", e.text);
    return b;
}

static char *text_of(void (*write)(FILE *f, const void *of), const void *of, char *text, size_t size) {
    FILE *f = tmpfile();
    assert_non_null(f);
    write(f, of);
    rewind(f);
    text[fread(text, 1, size - 1, f)] = 0;
    fclose(f);
    return text;
}

static void a_launch_is_its_blocks(void **state) {
    (void)state;
    const block_times first[] = {block_at(0, 10, 0), block_at(2, 14, 1)}, second[] = {block_at(9, 20, 1)},
                      none[] = {{0}, {0}};
    const gpu_stamped launches[] = {{.kernel = "a", .grid = {2, 1, 1}, .blocks = first, .n = 2},
                                    {.kernel = "silent", .grid = {2, 1, 1}, .blocks = none, .n = 2},
                                    {.kernel = "b", .grid = {1, 1, 1}, .blocks = second, .n = 1}};
    block_timeline b = made(launches, 3);
    assert_int_equal(b.t.n, 2);
    assert_int_equal(b.untimed, 1);
    assert_int_equal(b.processors, 2);
    assert_int_equal(b.first[1], 2);
    assert_int_equal(b.first[2], 3);
    assert_float_equal(b.t.all[0].to, 14, 1e-6);
    assert_float_equal(b.t.all[1].from, 9, 1e-6);
    assert_float_equal(b.front[0], 0, 0);
    assert_float_equal(b.front[1], 14, 1e-6);
    assert_float_equal(b.all[2].to, 20, 1e-6);
    blocks_free(&b);
    b = made(launches + 1, 1);
    assert_int_equal(b.t.n, 0);
    assert_int_equal(b.untimed, 1);
    assert_int_equal(blocks_height(&b), 0);
    blocks_free(&b);
}

static void points_of_an_earlier_run_are_none(void **state) {
    (void)state;
    /* the lower half of the clock wraps 294.967 us behind START */
    block_times blocks[] = {block_at(290, 300, 0)};
    pass(&blocks[0], 0, 293);
    pass(&blocks[0], 1, 297);
    pass(&blocks[0], 2, 280);
    const gpu_stamped launches[] = {{.kernel = "k", .grid = {1, 1, 1}, .blocks = blocks, .n = 1}};
    block_timeline b = made(launches, 1);
    assert_float_equal(b.all[0].mark[0], 3, 1e-3);
    assert_float_equal(b.all[0].mark[1], 7, 1e-3);
    assert_float_equal(b.all[0].mark[2], 0, 0);
    assert_float_equal(b.all[0].mark[3], 0, 0);
    blocks_free(&b);
}

static void names_come_from_a_longer_trace(void **state) {
    (void)state;
    const block_times one[] = {block_at(0, 1, 0)}, two[] = {block_at(1, 2, 0)};
    const gpu_stamped launches[] = {{.kernel = "a", .grid = {1, 1, 1}, .blocks = one, .n = 1},
                                    {.kernel = "b", .grid = {1, 1, 1}, .blocks = two, .n = 1}};
    block_timeline b = made(launches, 2);
    const gpu_time of[] = {{.kernel = "a", .what = "norm"},
                           {.kernel = "library", .what = "linear"},
                           {.kernel = "b", .what = "experts"},
                           {.kernel = "draw", .what = "draw"}};
    assert_true(blocks_name(&b, of, 4));
    assert_string_equal(b.t.all[0].op, "norm");
    assert_string_equal(b.t.all[1].op, "experts");
    assert_false(blocks_name(&b, of, 2));
    assert_null(b.t.all[0].op);
    assert_null(b.t.all[1].op);
    blocks_free(&b);
}

static void write_table(FILE *f, const void *of) { blocks_print(f, of); }

static void the_table_tells_from_the_kernel_in_front(void **state) {
    (void)state;
    block_times first[] = {block_at(0, 10, 0)}, second[] = {block_at(8, 30, 0), block_at(12, 34, 1)};
    pass(&second[0], SKINNY_FIRST, 13);
    pass(&second[1], SKINNY_FIRST, 15);
    const gpu_stamped launches[] = {{.kernel = "k_embed", .grid = {1, 1, 1}, .blocks = first, .n = 1},
                                    {.kernel = "k_skinny_cluster_8", .grid = {2, 1, 1}, .blocks = second, .n = 2}};
    block_timeline b = made(launches, 2);
    char text[4096];
    text_of(write_table, &b, text, sizeof text);
    const char *of = strstr(text, "k_skinny_cluster_8, 1 x 2 blocks");
    assert_non_null(of);
    assert_non_null(strstr(of, "begin                            0.00 (  -2.00 ..    2.00)"));
    assert_non_null(strstr(of, "first weights and rows there     4.00 (   3.00 ..    5.00)"));
    assert_non_null(strstr(of, "end                             22.00 (  20.00 ..   24.00)"));
    assert_null(strstr(of, "last product")); /* nobody was there */
    blocks_free(&b);
    assert_null(gpu_block_mark("k_embed", 0));
    assert_null(gpu_block_mark("k_skinny_cluster_8", BLOCK_MARKS));
}

static void the_picture_has_a_line_a_processor(void **state) {
    (void)state;
    const block_times first[] = {block_at(0, 10, 0), block_at(1, 9, 0), block_at(0, 10, 2)};
    const gpu_stamped launches[] = {{.kernel = "a<b>", .grid = {3, 1, 1}, .blocks = first, .n = 3}};
    block_timeline b = made(launches, 1);
    timeline_kind kinds[TIMELINE_KINDS];
    buf out = {0};
    const chart_band d = {&out, &b.t, kinds, timeline_kinds(&b.t, kinds), 0, b.t.us};
    blocks_draw(&d, &b, 0);
    assert_false(out.failed);
    assert_non_null(strstr(out.data, "a&#60;b&#62;"));
    assert_null(strstr(out.data, "a<b>"));
    /* the second block begins while its processor has the first one: half a line lower and high */
    int boxes = 0;
    for (const char *at = out.data; (at = strstr(at, "zM")) != NULL; at++) boxes++;
    assert_int_equal(boxes, 2);
    assert_non_null(strstr(out.data, " 46.0h"));
    assert_non_null(strstr(out.data, " 52.0h"));
    assert_true(blocks_height(&b) > 3 * 4);
    buf_free(&out);
    blocks_free(&b);
    assert_int_equal(blocks_height(&(block_timeline){0}), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_is_its_blocks), cmocka_unit_test(points_of_an_earlier_run_are_none),
        cmocka_unit_test(names_come_from_a_longer_trace), cmocka_unit_test(the_table_tells_from_the_kernel_in_front),
        cmocka_unit_test(the_picture_has_a_line_a_processor)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
