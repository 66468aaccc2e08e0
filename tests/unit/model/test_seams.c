/* Fused operations and the seams between ranks (kernels/fused.h): backends that fill the primitives alone run every
 * model, and the seams are called where they must be, in order, with the right shapes. */
#include "unit.h"

#include "kernels/fused.h"
#include "random_model.h"
#include "runtime/engine_internal.h"

enum { VOCAB = 61, HIDDEN = 48, LAYERS = 3, TOKENS = 5 };

static char dir[64];

static int setup(void **state) {
    (void)state;
    const random_model m = {.name = "seams",
                            .vocab = VOCAB,
                            .hidden = HIDDEN,
                            .layers = LAYERS,
                            .dense = 1,
                            .heads = 3,
                            .q_lora = 24,
                            .kv_lora = 40,
                            .nope = 12,
                            .rope = 6,
                            .v = 10,
                            .inter = 56,
                            .expert_inter = 24,
                            .experts = 5,
                            .top_k = 2,
                            .shared = 1,
                            .context = 512,
                            .attn = WF_BF16,
                            .mlp = WF_BF16,
                            .expert = {WF_BF16, WF_BF16},
                            .embed = WF_BF16,
                            .router = WF_BF16};
    return !random_model_write(&m, 1, dir, NULL);
}

static int teardown(void **state) {
    (void)state;
    random_model_remove(dir);
    return 0;
}

/* What the seams saw, a word each. */
static char seen[1024];
static i64 more_rows; /* that gather pretends to have got */
static bool zeros;    /* reduce makes nothing of every product */

static void note(const char *format, ...) {
    va_list ap;
    size_t n = strlen(seen);
    va_start(ap, format);
    vsnprintf(seen + n, sizeof seen - n, format, ap);
    va_end(ap);
}

static void embed(const ops *o, void *x, i64 n, i64 dim) {
    (void)x;
    note("embed%d %lldx%lld;", *(int *)o->ranks->state, (long long)n, (long long)dim);
}
static void reduce(const ops *o, void *x, i64 n, i64 dim, i64 stride) {
    note("reduce %lldx%lld;", (long long)n, (long long)dim);
    assert_int_equal(stride, dim);
    if (zeros) memset(x, 0, (size_t)(n * dim) * dtype_size(o->act));
}
static i64 gather(const ops *o, void *x, i64 n, i64 dim) {
    (void)o;
    note("gather %lldx%lld;", (long long)n, (long long)dim);
    if (more_rows) memcpy((f32 *)x + n * dim, x, (size_t)(more_rows * dim) * sizeof(f32));
    return n + more_rows;
}
static void scatter(const ops *o, void *y, i64 gathered, i64 n, i64 dim) {
    (void)o;
    note("scatter %lld to %lldx%lld;", (long long)gathered, (long long)n, (long long)dim);
    /* what was gathered was the first rows once more: so is what comes back */
    if (more_rows) assert_memory_equal((f32 *)y + n * dim, y, (size_t)(more_rows * dim) * sizeof(f32));
}
static void draw(const ops *o, i32 *ids, i64 n) {
    (void)o, (void)ids;
    note("draw %lld;", (long long)n);
}

static status keep(void *ud, i64 index, f32 *logits, err *e) {
    (void)e;
    memcpy((f32 *)ud + index * VOCAB, logits, VOCAB * sizeof *logits);
    return ST_OK;
}

/* The logits of all rows; `layers` of the model, 0: all. */
static void logits_of(const char *device, const rank_seams *ranks, const char *layers, f32 out[TOKENS * VOCAB]) {
    static const i32 ids[TOKENS] = {3, 1, 4, 1, 5};
    engine *g;
    seq *s;
    err e;
    const engine_options o = {
        .model_dir = dir, .device = device, .context = 64, .overrides = &layers, .n_overrides = layers ? 1 : 0};
    if (engine_open(&g, &o, &e) != ST_OK) fail_msg("%s", e.text);
    g->ranks.of[0].backend.ops.ranks = ranks;
    seen[0] = 0;
    assert_int_equal(seq_open(&s, g, &e), ST_OK);
    if (seq_run(s, ids, TOKENS, false, LOGITS_ALL, keep, out, &e) != ST_OK) fail_msg("%s", e.text);
    seq_close(s);
    engine_close(g);
}

static int number = 7;
static const rank_seams all = {.rank = 0,
                               .ranks = 2,
                               .state = &number,
                               .embed = embed,
                               .reduce = reduce,
                               .gather = gather,
                               .scatter = scatter,
                               .draw = draw};

static void called_in_order(void **state) {
    (void)state;
    f32 one[TOKENS * VOCAB], two[TOKENS * VOCAB];
    static const char *const devices[] = {"ref", "cpu"};
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        logits_of(devices[i], NULL, NULL, one);
        assert_string_equal(seen, "");
        logits_of(devices[i], &all, NULL, two);
        assert_string_equal(seen, "embed7 5x48;reduce 5x48;reduce 5x48;"
                                  "reduce 5x48;gather 5x48;scatter 5 to 5x48;reduce 5x48;"
                                  "reduce 5x48;gather 5x48;scatter 5 to 5x48;reduce 5x48;");
        assert_memory_equal(one, two, sizeof one);
        logits_of(devices[i], &(rank_seams){.ranks = 2}, NULL, two); /* no slot filled */
        assert_memory_equal(one, two, sizeof one);
    }
}

/* Tokens that are drawn where the logits are (on a GPU; here a batch asks for it). */
static void draw_is_last(void **state) {
    (void)state;
    engine *g;
    err e;
    const engine_options o = {.model_dir = dir, .device = "ref", .context = 64};
    assert_int_equal(engine_open(&g, &o, &e), ST_OK);
    static const i32 ids[2] = {3, 1}, rows[1] = {1}, pages[1] = {0};
    i32 bad[2], drawn[1];
    f32 logits[VOCAB];
    const model_span span = {.n = 2, .pages = pages};
    const sample_row greedy = {.top_p = (u64)1 << SAMPLE_BITS};
    const model_batch b = {.n = 2,
                           .ids = ids,
                           .n_spans = 1,
                           .spans = &span,
                           .n_out = 1,
                           .out_rows = rows,
                           .logits = logits,
                           .draws = &greedy,
                           .drawn = drawn,
                           .bad = bad};
    g->ranks.of[0].backend.ops.ranks = &all;
    seen[0] = 0;
    if (engine_forward(g, &b, &e) != ST_OK) fail_msg("%s", e.text);
    assert_non_null(strstr(seen, ";draw 1;"));
    engine_close(g);
}

/* reduce lies in front of the residual stream and nowhere else: where it makes zeros of all products, layers do
 * nothing, however many there are. */
static void reduce_is_before_the_residual(void **state) {
    (void)state;
    f32 one[TOKENS * VOCAB], three[TOKENS * VOCAB];
    zeros = true;
    logits_of("ref", &all, "num_hidden_layers=1", one);
    logits_of("ref", &all, NULL, three);
    zeros = false;
    assert_memory_equal(one, three, sizeof one);
    logits_of("ref", &all, NULL, three);
    assert_memory_not_equal(one, three, sizeof one);
}

/* Rows that another rank sent go through the router and the experts, and not back into this rank's stream. */
static void gathered_rows_pass_the_experts(void **state) {
    (void)state;
    f32 one[TOKENS * VOCAB], two[TOKENS * VOCAB];
    logits_of("ref", NULL, NULL, one);
    more_rows = 2;
    logits_of("ref", &all, NULL, two);
    more_rows = 0;
    assert_non_null(strstr(seen, "gather 5x48;scatter 7 to 5x48;reduce 5x48;"));
    assert_memory_equal(one, two, sizeof one);
}

/* A fused slot is used where there is one rank; with ranks those that end in the residual stream are composed. */
static int fused_calls;
static void my_linear_norm(const ops *o, const linear_norm_args *a) {
    fused_calls++;
    compose_linear_norm(o, a);
}
static void my_linear_group(const ops *o, const linear_group_args *a) {
    fused_calls++;
    compose_linear_group(o, a);
}

static void fused_slots(void **state) {
    (void)state;
    static const fused_ops mine = {.linear_norm = my_linear_norm, .linear_group = my_linear_group};
    ops o;
    linear_group_args none = {.count = 0};
    ops_init_ref(&o);
    assert_null(o.fused); /* the definition has primitives alone */
    for (u32 isa = 0; isa <= ISA_ALL; isa = isa * 2 + 1) {
        ops cpu;
        assert_int_equal(ops_init_cpu(&cpu, DT_BF16, isa, NULL), ST_OK);
        assert_null(cpu.fused);
    }
    o.fused = &mine;
    fused_linear_group(&o, &none);
    assert_int_equal(fused_calls, 1);
    f32 x[2] = {3, 4}, y[2], d[2], weights[4] = {1, 0, 0, 1}, ones[2] = {1, 1};
    const weight_view square = {.data = weights, .format = WF_F32, .rows = 2, .cols = 2},
                      vector = {.data = ones, .format = WF_F32, .rows = 1, .cols = 2};
    op_weight *w, *v;
    assert_int_equal(o.weight_prepare(&o, &(weight_desc){.kind = WK_LINEAR, .views = &square, .n_views = 1}, &w, NULL),
                     ST_OK);
    assert_int_equal(o.weight_prepare(&o, &(weight_desc){.kind = WK_VECTOR, .views = &vector, .n_views = 1}, &v, NULL),
                     ST_OK);
    const linear_norm_args a = {
        .linear = {.w = w, .x = x, .y = d, .n = 1, .x_stride = 2, .y_stride = 2, .y_type = DT_F32},
        .norm = {
            .weight = v, .x = x, .add = d, .sum = NULL, .out = y, .n = 1, .dim = 2, .x_stride = 2, .out_stride = 2}};
    fused_linear_norm(&o, &a);
    assert_int_equal(fused_calls, 2);
    o.ranks = &all;
    seen[0] = 0;
    fused_linear_norm(&o, &a);
    assert_int_equal(fused_calls, 2);
    assert_string_equal(seen, "reduce 1x2;");
    fused_linear_group(&o, &none);
    assert_int_equal(fused_calls, 3);
    o.weight_release(w), o.weight_release(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(called_in_order),
        cmocka_unit_test(draw_is_last),
        cmocka_unit_test(reduce_is_before_the_residual),
        cmocka_unit_test(gathered_rows_pass_the_experts),
        cmocka_unit_test(fused_slots),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
