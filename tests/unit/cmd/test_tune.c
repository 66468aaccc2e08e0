/* `moonlet tune moe` with a device whose fastest kernels are wrong: the table that is written does without them. */
#define ops_gpu_force forced
#define now_s         clock_s /* the test's own clock: a busy machine must not decide which choice is the fastest */
#include "cmd/lib/model_opts.c"
#include "cmd/lib/moe_shapes.c"
#include "cmd/lib/stats.c"
#include "cmd/lib/synthetic.c"
#include "cmd/tune/tune.c"
#include "cmd/tune/tune_moe_layer.c"
#include "unit.h"

int tune_gemm(int argc, char **argv) { return (void)argv, argc; }
int cmd_fail(const char *name, const err *e) { return (void)name, (int)e->code; }
int cmd_options(const char *name, const char *usage, const opt_spec *specs, size_t n, int argc, char **argv,
                opt_list *words) {
    return (void)name, (void)usage, (void)specs, (void)n, (void)argc, (void)argv, (void)words, 0;
}

typedef enum { FINE, ONE_VALUE, NO_NUMBER, LAST_BIT_ONCE } fault;
enum { DIM = 256, TOKENS = 40 };
static ops base;
static moe_choice now, fast, odd; /* what runs; what takes no time; what has the fault */
static fault its;
static int calls;
static f64 passed_s;

f64 clock_s(void) { return passed_s; }

void forced(ops *o, const moe_choice *how) {
    (void)o;
    now = how ? *how : (moe_choice){0};
}

static bool same(const moe_choice *a, const moe_choice *b) { return !memcmp(a, b, sizeof *a); }

static void fake_moe(const ops *o, const moe_args *a) {
    (void)o;
    base.moe(&base, a);
    bf16 *middle = (bf16 *)a->out + TOKENS / 2 * DIM + 9;
    if (!same(&now, &odd)) return;
    if (its == ONE_VALUE) *middle = f32_to_bf16(bf16_to_f32(*middle) + 1.0f);
    if (its == NO_NUMBER) *middle = 0x7fc0;
    if (its == LAST_BIT_ONCE && calls++ == 1) *middle ^= 1;
}

struct device_recording {
    f64 us;
};
static status fake_record(device *d, void (*queue)(void *), void *ud, device_recording **out, err *e) {
    (void)d, (void)queue, (void)ud, (void)e;
    *out = malloc(sizeof **out);
    assert_non_null(*out);
    (*out)->us = same(&now, &fast) ? 100 : 2000;
    return ST_OK;
}
static void fake_replay(device *d, const device_recording *r) { (void)d, passed_s += r->us * 1e-6; }
static void fake_forget(device *d, device_recording *r) { (void)d, free(r); }

/* The table's row when one choice of a call is the fastest and one has a fault. */
static status tuned_with(moe_choice fastest, moe_choice faulty, fault f, tuned_row *row, err *e) {
    const moe_layer shape = {"odd", DIM, 64, 8, 2, {0}, TOKENS};
    static tune_layer l; /* large */
    device dev = *device_host();
    dev.record = fake_record, dev.replay = fake_replay, dev.forget = fake_forget;
    tuner t = {.chip = "A", .sms = 1, .t = {.dev = &dev}};
    fast = fastest, odd = faulty, its = f, calls = 0;
    assert_int_equal(ops_init_cpu(&base, DT_BF16, 0, e), ST_OK);
    ops_init_ref(&t.t.ref);
    t.t.o = base;
    t.t.o.moe = fake_moe;
    t.file = tmpfile();
    buf text = {0};
    tuned_table table;
    char line[200];
    assert_true(t.file && tuned_header(&text));
    status st = tune_layer_open(&l, &t.t, MOE_W4A16, &shape, TOKENS, e);
    if (st == ST_OK) st = tune_call(&t, &l, TOKENS, e);
    tune_layer_close(&l);
    rewind(t.file);
    while (fgets(line, sizeof line, t.file)) buf_str(&text, line);
    fclose(t.file);
    assert_int_equal(tuned_parse(&table, text.data, text.len, "t", "A", 1, e), ST_OK);
    assert_int_equal(table.n, st == ST_OK);
    if (table.n) *row = table.rows[0];
    tuned_free(&table);
    buf_free(&text);
    return st;
}

static void wrong_ones_are_left_out(void **state) {
    (void)state;
    moe_choice all[MOE_CANDIDATES];
    const moe_call c = {MOE_W4A16, DIM, 64, 8, 2, TOKENS, ROWS_ANY};
    err e = {0};
    tuned_row row;
    assert_in_range(moe_candidates(&c, all), 2, MOE_CANDIDATES);
    assert_int_equal(tuned_with(all[1], all[1], FINE, &row, &e), ST_OK);
    assert_true(same(&row.choice, &all[1]) && row.us < row.default_us);
    for (fault f = ONE_VALUE; f <= LAST_BIT_ONCE; f++) { /* in a row that is not compared with ref */
        assert_int_equal(tuned_with(all[1], all[1], f, &row, &e), ST_OK);
        assert_true(same(&row.choice, &all[0]));
    }
    assert_int_equal(tuned_with(all[1], all[0], LAST_BIT_ONCE, &row, &e), ST_NUMERIC); /* no row is written */
    assert_non_null(strstr(e.text, "or itself when repeated"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_ones_are_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
