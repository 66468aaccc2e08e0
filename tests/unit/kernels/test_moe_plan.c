/* Which launches a call of routed experts becomes (kernels/gpu/moe/moe_plan.h), at the borders of every kernel. */
#include "unit.h"

#include "kernels/gpu/moe/moe_plan.h"

/* Experts of one rank of TP8, everything aligned, a norm behind it that may be finished later, the whole feed-forward
 * part asked for. */
static moe_request request(moe_format f, i64 tokens) {
    moe_request r = {.call = {f, 7168, 256, 384, 8, tokens, ROWS_ANY},
                     .processors = 132,
                     .x_16 = true,
                     .shared_8 = true,
                     .shared_16 = true,
                     .norm = true,
                     .norm_of_sum = true,
                     .defer_strips = tokens <= 32,
                     .defer_blocks = tokens <= 32,
                     .ffn = true,
                     .shared_inter = 256};
    r.how = moe_default(&r.call);
    return r;
}

static void is(const moe_request *r, moe_run run, moe_norm_by norm) {
    moe_plan p = moe_plan_of(r);
    if (p.run != run || p.norm != norm)
        fail_msg("%lld tokens: plan %d with norm %d, not %d with %d", (long long)r->call.tokens, p.run, p.norm, run,
                 norm);
}

static void int4_by_tokens(void **state) {
    (void)state;
    moe_request r = request(MOE_W4A16, 0);
    is(&r, MOE_RUN_NOTHING, MOE_NORM_BEHIND);
    for (i64 n = 1; n <= 4; n++) {
        r = request(MOE_W4A16, n);
        is(&r, MOE_RUN_FFN_FUSED, MOE_NORM_DEFERRED);
        r.defer_strips = r.defer_blocks = false;
        is(&r, MOE_RUN_FFN_FUSED, MOE_NORM_BEHIND);
    }
    r = request(MOE_W4A16, 5);
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_DEFERRED);
    r = request(MOE_W4A16, 33); /* no longer deferred; a launch that holds a row is worth it above 64 */
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_BEHIND);
    r = request(MOE_W4A16, 64);
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_BEHIND);
    r = request(MOE_W4A16, 65);
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_IN_SUM);
    r = request(MOE_W4A16, 384);
    is(&r, MOE_RUN_GROUPED, MOE_NORM_IN_SUM);
    r = request(MOE_W4A8, 384);
    is(&r, MOE_RUN_GROUPED_W4A8, MOE_NORM_IN_SUM);
    r.norm_of_sum = false;
    is(&r, MOE_RUN_GROUPED_W4A8, MOE_NORM_BEHIND);
    r.norm = false;
    is(&r, MOE_RUN_GROUPED_W4A8, MOE_NORM_NONE);
}

static void fp4_by_tokens(void **state) {
    (void)state;
    for (moe_format f = MOE_MXFP4; f <= MOE_NVFP4; f++) {
        for (i64 n = 1; n <= 64; n *= 4) {
            moe_request r = request(f, n);
            is(&r, MOE_RUN_DECODE_FP4, n <= 16 ? MOE_NORM_DEFERRED : MOE_NORM_BEHIND);
            assert_true(moe_prepares_beside_gate(&r));
            r.x_16 = false;
            assert_false(moe_prepares_beside_gate(&r));
            is(&r, MOE_RUN_GENERIC, MOE_NORM_BEHIND);
        }
        moe_request r = request(f, 65);
        is(&r, MOE_RUN_DECODE_FP4, MOE_NORM_IN_SUM);
        assert_false(moe_prepares_beside_gate(&r));
        r = request(f, 384);
        is(&r, MOE_RUN_GROUPED, MOE_NORM_IN_SUM);
    }
}

/* What is in front of the experts does not fit, or is not asked for: they alone in one launch. */
static void experts_alone(void **state) {
    (void)state;
    moe_request r = request(MOE_W4A16, 2);
    r.ffn = false;
    is(&r, MOE_RUN_DECODE_FUSED, MOE_NORM_DEFERRED);
    r.defer_strips = false; /* a norm of fewer parts still can */
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_DEFERRED);
    r.shared_8 = false;
    is(&r, MOE_RUN_DECODE_FUSED, MOE_NORM_BEHIND);
    r.norm = r.defer_blocks = false;
    is(&r, MOE_RUN_DECODE_FUSED, MOE_NORM_NONE);
    r = request(MOE_W4A16, 1);
    r.call.inter = 2048; /* where experts are large a launch less did not show */
    is(&r, MOE_RUN_DECODE_FUSED, MOE_NORM_BEHIND);
    r = request(MOE_W4A16, 1);
    r.processors = 8; /* more rows of the router a block than its ring holds */
    is(&r, MOE_RUN_DECODE_FUSED, MOE_NORM_DEFERRED);
}

static void borders_of_one_launch(void **state) {
    (void)state;
    static const struct {
        i64 dim, inter, topk;
        bool fits;
    } s[] = {{8192, 256, 8, true},
             {8256, 256, 8, false},
             {7168, 256, 9, false},
             {1024, 1280, 8, true},
             {1024, 1344, 8, false}};
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        moe_request r = request(MOE_W4A16, 4);
        r.call.dim = s[i].dim, r.call.inter = s[i].inter, r.call.topk = s[i].topk, r.ffn = false, r.norm = false;
        r.defer_strips = r.defer_blocks = false;
        is(&r, s[i].fits ? MOE_RUN_DECODE_FUSED : MOE_RUN_DECODE_INT4, MOE_NORM_NONE);
    }
}

static void addresses(void **state) {
    (void)state;
    moe_request r = request(MOE_W4A16, 2);
    r.x_16 = false;
    is(&r, MOE_RUN_GENERIC, MOE_NORM_BEHIND);
    r = request(MOE_W4A16, 65);
    r.shared_16 = false;
    is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_BEHIND);
    r = request(MOE_BF16, 400);
    r.shared_16 = false;
    is(&r, MOE_RUN_GROUPED, MOE_NORM_BEHIND);
}

/* --deterministic: one kernel for any number of rows, and nothing that depends on them. */
static void rows_that_decode(void **state) {
    (void)state;
    for (i64 n = 1; n <= DECODE_ROWS; n++) {
        moe_request r = request(MOE_W4A16, n);
        r.call.form = ROWS_DECODE, r.how = moe_default(&r.call);
        r.defer_strips = r.defer_blocks = true;
        is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_DEFERRED);
        r.defer_strips = r.defer_blocks = false;
        is(&r, MOE_RUN_DECODE_INT4, MOE_NORM_BEHIND);
        r = request(MOE_W4A16, n);
        r.call.form = ROWS_PROMPT, r.how = moe_default(&r.call);
        is(&r, MOE_RUN_GROUPED, MOE_NORM_IN_SUM);
    }
}

static void other_formats(void **state) {
    (void)state;
    moe_request r = request(MOE_BF16, 1);
    is(&r, MOE_RUN_DECODE_STORED, MOE_NORM_BEHIND);
    r = request(MOE_FP8, 95);
    is(&r, MOE_RUN_DECODE_STORED, MOE_NORM_BEHIND);
    r = request(MOE_FP8, 96);
    is(&r, MOE_RUN_GROUPED, MOE_NORM_IN_SUM);
    r = request(MOE_OTHER, 1);
    is(&r, MOE_RUN_GENERIC, MOE_NORM_BEHIND);
    r = request(MOE_W2_BF16, 1); /* rounded to bf16 in tiles: 7168 columns average that out */
    is(&r, MOE_RUN_GROUPED, MOE_NORM_IN_SUM);
}

static void digits_beside_the_gate(void **state) {
    (void)state;
    for (i64 n = 1; n <= 70; n++) {
        moe_request r = request(MOE_W4A16, n);
        assert_int_equal(moe_prepares_beside_gate(&r), n > 4 && n <= 64);
        r.x_16 = false;
        assert_false(moe_prepares_beside_gate(&r));
        r = request(MOE_BF16, n);
        assert_false(moe_prepares_beside_gate(&r));
    }
    moe_request r = request(MOE_W4A16, 8);
    r.call.topk = 33;
    assert_false(moe_prepares_beside_gate(&r));
}

/* Pieces of a block's shared memory lie behind each other within what there is. */
static void shared_memory(void **state) {
    (void)state;
    for (int group = 4; group <= 8; group += 4)
        for (int pairs = 1; pairs <= DECODE_INT4_PAIRS; pairs *= 2) {
            gpu_decode_int4_args f = {.pairs = pairs, .experts = 384};
            if (!moe_divide_packed(&f, group, DECODE_INT4_X_STRIDE)) continue;
            int ring = DECODE_INT4_BARRIERS + f.slots * f.slot_bytes;
            assert_true(ring <= f.at_sums && f.at_sums < f.at_groups && f.at_groups < f.at_cursor);
            assert_true(f.at_cursor < f.at_pairs && f.at_pairs + 4 * pairs <= f.shared && f.shared <= 227 * 1024);
            assert_in_range(f.slots, 3, DECODE_INT4_SLOTS);
        }
    gpu_decode_int4_args many = {.pairs = DECODE_INT4_PAIRS, .experts = 40960};
    assert_false(moe_divide_packed(&many, 4, DECODE_INT4_X_STRIDE));
    gpu_decode_fused_args one = {.n = 4, .k = 8, .hidden = 7168, .inter = 256};
    u32 all = moe_divide_fused(&one, moe_ffn_more(256));
    assert_true(all && all <= 227 * 1024 && one.at_shared_h > one.at_digits && one.at_digits > one.at_sums);
    one.hidden = 1 << 16;
    assert_int_equal(moe_divide_fused(&one, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4_by_tokens), cmocka_unit_test(fp4_by_tokens),
        cmocka_unit_test(experts_alone),  cmocka_unit_test(borders_of_one_launch),
        cmocka_unit_test(addresses),      cmocka_unit_test(rows_that_decode),
        cmocka_unit_test(other_formats),  cmocka_unit_test(digits_beside_the_gate),
        cmocka_unit_test(shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
