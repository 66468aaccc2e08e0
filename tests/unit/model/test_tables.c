/* tests/unit/model/test_tables.c: copies between KV rows of ranks that divide the cache, and which rank
 * attends for a row. */
#include "unit.h"

#include "model/tables.h"
#include <string.h>

static i64 row_of(i64 page, i64 at) { return page * KV_PAGE + at; }

/* Two ranks: even pages are the first one's. Each makes its own copies, by its own numbers. */
static void each_rank_makes_its_own(void **state) {
    (void)state;
    const kv_pair all[] = {{row_of(4, 3), row_of(10, 5)}, {row_of(7, 63), row_of(1, 0)}};
    kv_pair own[2];
    err e = {0};
    for (i64 rank = 0; rank < 2; rank++) {
        const model_limits l = {.copies = 2, .kv = {.rank = rank, .ranks = 2}};
        assert_int_equal(copies_check(&l, all, 2, &e), ST_OK);
        assert_int_equal(tables_own_copies(&l, all, 2, own), 1);
        assert_int_equal(own[0].from, rank ? row_of(3, 63) : row_of(2, 3));
        assert_int_equal(own[0].to, rank ? row_of(0, 0) : row_of(5, 5));
    }
}

/* Neither would make this one. */
static void a_copy_between_ranks_is_refused(void **state) {
    (void)state;
    const kv_pair all[] = {{row_of(4, 3), row_of(10, 5)}, {row_of(4, 7), row_of(9, 1)}};
    for (i64 rank = 0; rank < 2; rank++) {
        const model_limits l = {.copies = 2, .kv = {.rank = rank, .ranks = 2}};
        err e = {0};
        assert_int_equal(copies_check(&l, all, 2, &e), ST_LIMIT);
        assert_string_equal(e.text, "KV row 263 of rank 0 is to be copied to row 577 of rank 1");
    }
    const model_limits one = {.copies = 2, .kv = {.ranks = 1}};
    err e = {0};
    assert_int_equal(copies_check(&one, all, 2, &e), ST_OK);
    assert_int_equal(copies_check(&(model_limits){.copies = 1, .kv = {.ranks = 1}}, all, 2, &e), ST_LIMIT);
    assert_non_null(strstr(e.text, "2 KV rows to copy, the plan allows 1"));
}

/* Pages of eight ranks, of which a slice has the first three: they stand in for the others, whose tokens nobody has. */
static void who_attends_is_there(void **state) {
    (void)state;
    enum { SPANS = 16 };
    static model_span spans[SPANS];
    i32 page[SPANS], ids[SPANS] = {0};
    model_batch b = {.n = SPANS, .n_spans = SPANS, .spans = spans, .ids = ids};
    for (i32 i = 0; i < SPANS; i++) {
        page[i] = 5 * i;
        spans[i] = (model_span){.first = i, .n = 1, .pages = &page[i], .absorbed = i < SPANS / 2};
    }
    for (i64 rank = 0; rank < 3; rank++) {
        const model_limits l = {.rows = SPANS,
                                .decode_rows = SPANS,
                                .prefill_spans = SPANS,
                                .logit_rows = SPANS,
                                .seq_pages = 1,
                                .kv = {.rank = rank, .ranks = 8, .there = 3, .by_sequence = true}};
        void *block = test_malloc((size_t)tables_bytes(&l));
        batch_tables t = tables_at(&l, block);
        i64 n_abs;
        tables_fill(&l, &b, 1, &t, &n_abs);
        assert_int_equal(n_abs, SPANS / 2);
        for (i64 i = 0; i < SPANS; i++) {
            const i64 owner = page[i] % 8;
            assert_int_equal(t.attends[i], owner % 3);
            assert_int_equal(t.own[i], owner == rank ? i : SPANS);
            assert_int_equal(t.slots[i], owner == rank ? page[i] / 8 * KV_PAGE : -1);
        }
        test_free(block);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_makes_its_own),
        cmocka_unit_test(a_copy_between_ranks_is_refused),
        cmocka_unit_test(who_attends_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
