/* What trees of guesses need, as the reference does it: KV rows copied, and the beams that go on. */
#include "unit.h"

#include "kernels/ops.h"
#include <math.h>

static void rows_are_copied(void **state) {
    (void)state;
    ops o;
    ops_init_ref(&o);
    u8 kv[48];
    for (int i = 0; i < 48; i++) kv[i] = (u8)i;
    const kv_pair pairs[] = {{1, 5}, {-1, 0}, {2, 2}, {0, 7}, {1, 6}};
    const i32 four = 4;
    o.kv_copy(&o,
              &(kv_copy_args){
                  .kv = kv, .pairs = pairs, .count = &four, .most = 5, .layers = 2, .row_bytes = 3, .layer_bytes = 24});
    for (u8 l = 0; l < 2; l++)
        for (u8 r = 0; r < 8; r++)
            for (u8 c = 0; c < 3; c++)
                assert_int_equal(kv[l * 24 + r * 3 + c], l * 24 + (r == 5 ? 1 : r == 7 ? 0 : r) * 3 + c);
}

typedef struct {
    f32 scores[3];
    i32 ids[3], from[3], chosen[3];
    kv_pair pairs[6];
} beams;

static beams grow(i64 n_beams, const f32 *logprobs, const f32 *scores) {
    static const i32 top_ids[] = {10, 11, 12, 20, 21, 22, 30, 31, 32};
    static const i64 slots[] = {100, 101, 102, 200, 201, 202};
    ops o;
    beams b;
    ops_init_ref(&o);
    memcpy(b.scores, scores, sizeof b.scores);
    o.draft_beams(&o, &(draft_beams_args){.top_ids = top_ids,
                                          .logprobs = logprobs,
                                          .scores = b.scores,
                                          .ids = b.ids,
                                          .from = b.from,
                                          .chosen = b.chosen,
                                          .n = 1,
                                          .beams = n_beams,
                                          .k = 3,
                                          .slots = slots,
                                          .pairs = b.pairs,
                                          .copies = n_beams > 1 ? 2 : 0,
                                          .slots_stride = 3});
    return b;
}

static void the_first_guesses_are_the_beams(void **state) {
    (void)state;
    const f32 logprobs[] = {-9, -0.5f, -1, -2}, anything[] = {5, 6, 7};
    const beams b = grow(1, logprobs, anything);
    for (int j = 0; j < 3; j++)
        assert_true(b.ids[j] == 10 + j && b.from[j] == 0 && b.chosen[j] == j && b.scores[j] == logprobs[1 + j]);
}

/* Beam 1's child stays in its place, beam 0 has two: one takes the place of beam 2, which has none. */
static void children_stay_or_take_what_is_left(void **state) {
    (void)state;
    const f32 scores[] = {-1, -2, -5}, logprobs[] = {-9, -0.5f, -2, -9, -9, -0.25f, -9, -9, -9, -0.1f, -9, -9};
    const beams b = grow(3, logprobs, scores);
    const i32 ids[] = {10, 20, 11}, from[] = {0, 1, 0}, chosen[] = {0, 3, 1};
    const f32 sums[] = {-1.5f, -2.25f, -3};
    for (int j = 0; j < 3; j++)
        assert_true(b.ids[j] == ids[j] && b.from[j] == from[j] && b.chosen[j] == chosen[j] && b.scores[j] == sums[j]);
    for (int g = 0; g < 2; g++) {
        assert_true(b.pairs[3 * g].from == -1 && b.pairs[3 * g + 1].from == -1);
        assert_true(b.pairs[3 * g + 2].from == 100 * (g + 1) && b.pairs[3 * g + 2].to == 100 * (g + 1) + 2);
    }
}

/* A NaN, and a row whose logits were none, come last; equal ones in their order. */
static void no_numbers_come_last(void **state) {
    (void)state;
    const f32 scores[] = {-1, -1, -1}, logprobs[] = {NAN, -0.1f, -0.2f, -0.3f, -9, NAN, -1, -1, -9, -1, -2, -3};
    const beams b = grow(3, logprobs, scores);
    const i32 chosen[] = {5, 4, 6};
    for (int j = 0; j < 3; j++) assert_int_equal(b.chosen[j], chosen[j]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_copied), cmocka_unit_test(the_first_guesses_are_the_beams),
        cmocka_unit_test(children_stay_or_take_what_is_left), cmocka_unit_test(no_numbers_come_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
