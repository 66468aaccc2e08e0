/* Which experts lie where: equal shares, files, balance by counts, and the routes of each rank's gate. */
#include "unit.h"

#include "kernels/ops.h"
#include "model/expert_placement.h"
#include <math.h>
#include <stdlib.h>

static status parse(expert_placement *p, const char *json, i64 redundant, err *e) {
    return expert_placement_parse(p, json, strlen(json), "places.json", 2, 4, 2, redundant, e);
}

static void expect_slots(const expert_placement *p, const i32 *want) {
    for (i64 i = 0; i < p->layers * p->groups * p->held; i++)
        if (p->slots[i] != want[i]) fail_msg("slot %lld has expert %d, not %d", (long long)i, p->slots[i], want[i]);
}

/* Every expert is somewhere, none twice in a group, and every row's is in one place. */
static void expect_whole_in_any_order(const expert_placement *p) {
    i32 *routes = malloc((size_t)(p->groups * p->experts) * sizeof *routes);
    for (i64 l = 0; l < p->layers; l++) {
        for (i64 g = 0; g < p->groups; g++) { expert_placement_routes(p, l, g, routes + g * p->experts); }
        for (i64 x = 0; x < p->experts; x++)
            for (i64 row = 0; row < 130; row++) {
                i64 there = 0;
                for (i64 g = 0; g < p->groups; g++) {
                    const i32 slot = expert_slot(routes[g * p->experts + x], row);
                    if (slot < 0) continue;
                    assert_int_equal(expert_placement_of(p, l, g)[slot], x);
                    there++;
                }
                if (there != 1)
                    fail_msg("layer %lld: row %lld's expert %lld is in %lld places", (long long)l, (long long)row,
                             (long long)x, (long long)there);
            }
    }
    free(routes);
}

static void expect_whole(const expert_placement *p) {
    for (i64 i = 0; i < p->layers * p->groups * p->held; i++)
        assert_true(i % p->held == 0 || p->slots[i] > p->slots[i - 1]);
    expect_whole_in_any_order(p);
}

static void equal_shares(void **state) {
    (void)state;
    expert_placement p;
    err e = {0};
    assert_int_equal(expert_placement_plain(&p, 2, 6, 3, 0, &e), ST_OK);
    expect_slots(&p, (const i32[]){0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
    expect_whole(&p);
    expert_placement_free(&p);
    for (i64 redundant = 0; redundant <= 384 * 7; redundant += 8 * 37) {
        assert_int_equal(expert_placement_plain(&p, 1, 384, 8, redundant, &e), ST_OK);
        assert_int_equal(p.held, (384 + redundant) / 8);
        expect_whole(&p);
        expert_placement_free(&p);
    }
    assert_int_equal(expert_placement_plain(&p, 1, 384, 7, 0, &e), ST_INPUT);
    assert_string_equal(e.text, "--ep 7: 384 experts cannot be divided so");
    expert_placement_free(&p);
    assert_int_equal(expert_placement_plain(&p, 1, 8, 2, 10, &e), ST_INPUT);
    assert_non_null(strstr(e.text, "each of 2 groups would have 9 of 8 experts"));
    expert_placement_free(&p);
    assert_int_equal(expert_placement_plain(&p, 1, 130, 65, 0, &e), ST_INPUT);
    expert_placement_free(&p);
}

static void from_files(void **state) {
    (void)state;
    static const struct {
        const char *json;
        i64 redundant;
        const char *says;
    } bad[] = {
        {"", 0, "places.json"},
        {"[]", 0, "places.json has neither \"physical_to_logical_map\" nor \"logical_count\""},
        {"{}", 0, "has neither"},
        {"{\"physical_to_logical_map\": 3}", 0, "\"physical_to_logical_map\" is no list of 2 layers"},
        {"{\"physical_to_logical_map\": [[0,1,2,3]]}", 0, "is no list of 2 layers"},
        {"{\"physical_to_logical_map\": [[0,1,2],[0,1,2,3]]}", 0, "of layer 0 is no list of 4 numbers"},
        {"{\"physical_to_logical_map\": [[0,1,2,4],[0,1,2,3]]}", 0, "layer 0, number 3: a whole number from 0 to 3"},
        {"{\"physical_to_logical_map\": [[0,1,2,-1],[0,1,2,3]]}", 0, "layer 0, number 3"},
        {"{\"physical_to_logical_map\": [[0,1,2,3.0],[0,1,2,3]]}", 0, "layer 0, number 3"},
        {"{\"physical_to_logical_map\": [[0,1,2,3],[0,1,2,2]]}", 0, "of layer 1: an expert is missing"},
        {"{\"physical_to_logical_map\": [[0,1,2,0,2,3],[0,1,2,3,3,1]]}", 2, "of layer 1: a group has an expert twice"},
        {"{\"logical_count\": [[1,2,3,4]]}", 0, "\"logical_count\" is no list of 2 layers"},
        {"{\"logical_count\": [[1,2,3,4],[1,2,3,1e30]]}", 0, "layer 1, number 3"},
        {"{\"logical_count\": [[[1,2,3,4],[1,2,3,4]],[[1,2,3,4]]]}", 0, "\"logical_count\" is no list of 2"},
        {"{\"logical_count\": [[1,2,3,4],[1,2,3,4],[1,2,3,4]]}", 0, "\"logical_count\" is no list of 2 layers"},
        {"{\"logical_count\": 3, \"physical_to_logical_map\": [[0,1,2,3],[0,1,2,3]]}", 0, "has both"},
        {"{\"logical_count\": [[1,2,3,4],[1,2,3,4]]}", 1, "--ep 2: 5 experts and copies cannot be divided so"},
    };
    expert_placement p;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        err e = {0};
        if (parse(&p, bad[i].json, bad[i].redundant, &e) == ST_OK || !strstr(e.text, bad[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].json, e.text, bad[i].says);
        expert_placement_free(&p);
    }
    err e = {0};
    assert_int_equal(parse(&p, "{\"physical_to_logical_map\": [[3,0,2,1],[0,1,2,3]]}", 0, &e), ST_OK);
    expect_slots(&p, (const i32[]){0, 3, 1, 2, 0, 1, 2, 3}); /* ascending in a group */
    expect_whole(&p);
    expert_placement_free(&p);
    assert_int_equal(parse(&p, "{\"logical_count\": [[9,9,0,0],[1,9,9,1]]}", 0, &e), ST_OK);
    expect_slots(&p, (const i32[]){0, 2, 1, 3, 0, 1, 2, 3});
    expert_placement_free(&p);
    assert_int_equal(parse(&p, "{\"logical_count\": [[[9,0,0,0],[1,9,9,1]],[[0,9,0,0],[0,0,0,0]]]}", 2, &e), ST_OK);
    expect_whole(&p);
    expert_placement_free(&p);
    assert_int_equal(expert_placement_load(&p, "/nonexistent/places.json", 2, 4, 2, 0, &e), ST_IO);
    assert_non_null(strstr(e.text, "/nonexistent/places.json"));
}

/* Counts as a power law gives them: the slowest group's share falls to nearly an equal one, and further with copies. */
static void balance_lowers_the_largest_share(void **state) {
    (void)state;
    enum { EXPERTS = 384, GROUPS = 8, LAYERS = 3 };
    i64 counts[LAYERS * EXPERTS];
    u64 random = 12345;
    for (i64 i = 0; i < LAYERS * EXPERTS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        counts[i] = (i64)(1000 / pow((f64)(1 + (random >> 33) % EXPERTS), 0.6));
    }
    f64 before = 0, after = 0, copied = 0;
    expert_placement p;
    err e = {0};
    for (int way = 0; way < 3; way++) {
        assert_int_equal(expert_placement_plain(&p, LAYERS, EXPERTS, GROUPS, way == 2 ? 32 : 0, &e), ST_OK);
        if (way) assert_int_equal(expert_placement_balance(&p, counts, &e), ST_OK);
        expect_whole(&p);
        for (i64 l = 0; l < LAYERS; l++)
            *(!way       ? &before
              : way == 1 ? &after
                         : &copied) += expert_placement_most(&p, l, counts + l * EXPERTS) * GROUPS / LAYERS;
        expert_placement_free(&p);
    }
    if (!(before > 1.08 && after < 1.02 && copied < 1.01))
        fail_msg("the largest share, of an equal one: %.4f, balanced %.4f, with copies %.4f", before, after, copied);
    /* one expert with half of all rows: no placement helps without copies */
    for (i64 x = 0; x < EXPERTS; x++) counts[x] = x ? 1 : EXPERTS - 1;
    for (i64 redundant = 0; redundant <= 8; redundant += 8) {
        assert_int_equal(expert_placement_plain(&p, 1, EXPERTS, GROUPS, redundant, &e), ST_OK);
        assert_int_equal(expert_placement_balance(&p, counts, &e), ST_OK);
        const f64 most = expert_placement_most(&p, 0, counts) * GROUPS;
        if (redundant ? most > 1.05 : most < 4) fail_msg("%lld copies: %.3f", (long long)redundant, most);
        expect_whole(&p);
        expert_placement_free(&p);
    }
}

/* Few moves from equal shares in order come near what a placement made anew reaches. */
static void few_moves(void **state) {
    (void)state;
    enum { EXPERTS = 384, GROUPS = 8 };
    i64 counts[EXPERTS], most_moves = 0;
    u64 random = 99;
    for (i64 redundant = 0; redundant <= 32; redundant += 32)
        for (int round = 0; round < 10; round++) {
            expert_placement p;
            err e = {0};
            i64 moved = 0, again = 0;
            for (i64 x = 0; x < EXPERTS; x++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                counts[x] = (i64)(1000 / pow((f64)(1 + (random >> 33) % EXPERTS), round < 5 ? 0.6 : 0.9));
            }
            assert_int_equal(expert_placement_plain(&p, 1, EXPERTS, GROUPS, redundant, &e), ST_OK);
            const f64 before = expert_placement_most(&p, 0, counts) * GROUPS;
            assert_int_equal(expert_placement_improve(&p, 0, counts, &moved, &e), ST_OK);
            const f64 after = expert_placement_most(&p, 0, counts) * GROUPS;
            expect_whole_in_any_order(&p);
            assert_int_equal(expert_placement_improve(&p, 0, counts, &again, &e), ST_OK);
            if (!(after <= before && (after < 1.03 || !redundant)) || again)
                fail_msg("%lld copies, round %d: %.3f becomes %.3f by %lld moves, then %lld more", (long long)redundant,
                         round, before, after, (long long)moved, (long long)again);
            most_moves = moved > most_moves ? moved : most_moves;
            expert_placement_free(&p);
        }
    assert_in_range(most_moves, 4, EXPERTS / 3);
}

/* Copies everywhere: the last ones find groups with room that have them already. */
static void places_that_run_out(void **state) {
    (void)state;
    expert_placement p;
    err e = {0};
    for (i64 groups = 2; groups <= 8; groups++)
        for (i64 each = 1; each <= 5; each++)
            for (i64 more = 0; more <= each * (groups - 1); more++) {
                const i64 experts = each * groups;
                i64 counts[40];
                assert_int_equal(expert_placement_plain(&p, 1, experts, groups, more * groups, &e), ST_OK);
                for (i64 x = 0; x < experts; x++) counts[x] = x * x * 7 % 23;
                assert_int_equal(expert_placement_balance(&p, counts, &e), ST_OK);
                expect_whole(&p);
                expert_placement_free(&p);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_shares),
        cmocka_unit_test(from_files),
        cmocka_unit_test(balance_lowers_the_largest_share),
        cmocka_unit_test(few_moves),
        cmocka_unit_test(places_that_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
