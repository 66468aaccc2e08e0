/* Which guesses are checked in a step, and in what order: paths, parents in front, the likeliest. */
#include "unit.h"

#include "runtime/draft_tree.h"
#include "runtime/engine_internal.h"
#include <math.h>
#include <stdlib.h>

static void a_chain_is_one_path(void **state) {
    (void)state;
    const i32 ids[] = {7, 8, 9};
    draft_tree t;
    draft_tree_chain(&t, ids, 3);
    assert_int_equal(t.n, 3);
    for (i32 i = 0; i < 3; i++)
        assert_true(t.nodes[i].id == 7 + i && t.nodes[i].parent == i - 1 && !t.nodes[i].path &&
                    t.nodes[i].depth == i + 1);
    assert_true(draft_tree_trunk(&t) == 3 && draft_tree_depth(&t) == 3);
    draft_tree_chain(&t, ids, 0);
    assert_true(draft_tree_trunk(&t) == 0 && draft_tree_depth(&t) == 0);
}

/*        10 (-0.2)            11 (-1.7)
 *    20 (-0.5) 21 (-1.9)    22 (-1.8) 23 (-9)
 *  30 (-0.6)   31 (-2)      32 (-1.85)  */
static const draft_candidate some[] = {{10, -1, -0.2f}, {11, -1, -1.7f}, {20, 0, -0.5f}, {21, 0, -1.9f}, {22, 1, -1.8f},
                                       {23, 1, -9},     {30, 2, -0.6f},  {31, 3, -2.0f}, {32, 4, -1.85f}};

static void expect_node(const draft_tree *t, i64 i, i32 id, i32 parent, i32 path, i32 depth) {
    const draft_node *n = &t->nodes[i];
    if (n->id != id || n->parent != parent || n->path != path || n->depth != depth)
        fail_msg("node %d: %d behind %d, path %d, depth %d", (int)i, n->id, n->parent, n->path, n->depth);
}

static void the_likeliest_come_in_paths(void **state) {
    (void)state;
    draft_tree t;
    draft_tree_choose(&t, some, COUNT_OF(some), 7);
    assert_int_equal(t.n, 7);
    expect_node(&t, 0, 10, -1, 0, 1);
    expect_node(&t, 1, 20, 0, 0, 2);
    expect_node(&t, 2, 30, 1, 0, 3);
    expect_node(&t, 3, 11, -1, 1, 1);
    expect_node(&t, 4, 22, 3, 1, 2);
    expect_node(&t, 5, 32, 4, 1, 3);
    expect_node(&t, 6, 21, 0, 2, 2);
    assert_true(draft_tree_trunk(&t) == 3 && draft_tree_depth(&t) == 3);
    draft_tree_choose(&t, some, COUNT_OF(some), 4);
    assert_int_equal(t.n, 4);
    expect_node(&t, 3, 11, -1, 1, 1);
    draft_tree_choose(&t, some, COUNT_OF(some), 99);
    assert_int_equal(t.n, COUNT_OF(some));
}

/* Candidates of no id take nothing with them but what stands behind them. */
static void what_is_no_number_is_left_out(void **state) {
    (void)state;
    draft_candidate all[COUNT_OF(some)];
    draft_tree t;
    memcpy(all, some, sizeof some);
    all[0].id = all[2].id = all[3].id = all[6].id = all[7].id = -1;
    all[0].score = all[2].score = -INFINITY;
    draft_tree_choose(&t, all, COUNT_OF(all), 9);
    assert_int_equal(t.n, 4);
    expect_node(&t, 0, 11, -1, 0, 1);
    for (size_t i = 0; i < COUNT_OF(all); i++) all[i].id = -1;
    draft_tree_choose(&t, all, COUNT_OF(all), 9);
    assert_int_equal(t.n, 0);
}

/* Random trees: parents stand in front, depths count, paths run on, no chosen candidate is worse than one left out
 * whose parent was chosen, and no two nodes are one. */
static void any_tree_is_in_order(void **state) {
    (void)state;
    draft_candidate all[200];
    srand(5);
    for (int round = 0; round < 300; round++) {
        const i64 n = 1 + rand() % 200, most = 1 + rand() % 40;
        draft_tree t;
        for (i64 i = 0; i < n; i++) {
            const i32 parent = (i32)(rand() % (i + 1)) - 1;
            all[i] = (draft_candidate){(i32)i, parent, (parent < 0 ? 0 : all[parent].score) - (f32)(rand() % 8) / 4};
        }
        draft_tree_choose(&t, all, n, most);
        assert_int_equal(t.n, min_i64(min_i64(n, most), DRAFT_NODES_MOST));
        f32 worst = 0;
        bool chosen[200] = {0};
        for (i64 i = 0; i < t.n; i++) {
            const draft_node *x = &t.nodes[i];
            const i32 parent = all[x->id].parent;
            assert_true(x->parent < i && !chosen[x->id] && parent == (x->parent < 0 ? -1 : t.nodes[x->parent].id));
            assert_int_equal(x->depth, x->parent < 0 ? 1 : t.nodes[x->parent].depth + 1);
            assert_true(i ? x->path - t.nodes[i - 1].path <= 1 : x->path == 0);
            assert_true(!i || x->path != t.nodes[i - 1].path || x->parent == i - 1);
            chosen[x->id] = true;
            worst = fminf(worst, all[x->id].score);
        }
        for (i64 i = 0; i < n; i++)
            assert_true(chosen[i] || all[i].score <= worst || (all[i].parent >= 0 && !chosen[all[i].parent]));
    }
}

/* Of each rank every branch has pages of its own, behind the pool's: none is given twice, and each lies where the page
 * does whose rows it gets. */
static void branches_have_pages_on_every_rank(void **state) {
    (void)state;
    for (i64 ranks = 1; ranks <= 8; ranks++) {
        engine g = {.draft_lim = {.topk = 4, .sequences = 3}, .draft_nodes = 6};
        g.lim.kv.ranks = ranks, g.lim.pool_pages = 43;
        const i64 branches = engine_branches(&g), each = g.draft_lim.sequences * branches * BRANCH_PAGES,
                  first = kv_local_pages(g.lim.kv, g.lim.pool_pages);
        bool *taken = calloc((size_t)((first + each) * ranks), sizeof *taken);
        for (i64 i = 0; i < each; i++)
            for (i32 beside = 0; beside < ranks; beside++) {
                const i64 of = i / BRANCH_PAGES;
                const i32 page = engine_branch_page(&g, of / branches, of % branches, i % BRANCH_PAGES, 16 + beside);
                const i32 here = kv_local_page(g.lim.kv, page);
                assert_true(page >= g.lim.pool_pages && here >= first && here < first + each);
                assert_true(ranks == 1 || kv_owner(g.lim.kv, page) == (16 + beside) % ranks);
                assert_false(taken[page]);
                taken[page] = true;
            }
        free(taken);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_one_path), cmocka_unit_test(the_likeliest_come_in_paths),
        cmocka_unit_test(what_is_no_number_is_left_out), cmocka_unit_test(any_tree_is_in_order),
        cmocka_unit_test(branches_have_pages_on_every_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
