/* The KV pool that an engine plans for a machine with little memory. What the machine has is what this program says:
 * fopen is wrapped by the linker (Makefile). */
#include "runtime/sched_util.h"

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

static u64 memory_kb;

FILE *__wrap_fopen(const char *path, const char *mode) {
    static char text[80];
    if (strcmp(path, "/proc/meminfo") || !memory_kb) return __real_fopen(path, mode);
    snprintf(text, sizeof text, "MemTotal: 1 kB\nMemAvailable: %llu kB\n", (unsigned long long)memory_kb);
    return fmemopen(text, strlen(text), "r");
}

/* Tokens of the pool with so much memory, 0 where the plan is refused. */
static i64 pool(u64 kb, f64 fraction, err *e) {
    const engine_options o = {.model_dir = "models/nano",
                              .language_only = true,
                              .context = MAX_TOKENS,
                              .threads = 1,
                              .max_running = 4,
                              .mem_fraction = fraction};
    engine *g = NULL;
    memory_kb = kb;
    status st = engine_open(&g, &o, e);
    memory_kb = 0;
    i64 tokens = st == ST_OK ? engine_kv_tokens(g) : 0;
    engine_close(g);
    return tokens;
}

/* The default share gives at least one context, as long as the machine has room for it: a share that is less is a
 * server which refuses requests that it could serve. */
static void a_small_share_is_still_a_context(void **state) {
    (void)state;
    err e = {0};
    u64 least = 1;
    for (u64 step = 1 << 20; step; step /= 2) /* the least memory with which it opens */
        if (!pool(least + step, 0, &e)) least += step;
    least++;
    assert_true(least > 16 && least < 1 << 20);
    assert_int_equal(pool(least, 0, &e), MAX_TOKENS);
    assert_int_equal(pool(16 * least, 0, &e), 4 * MAX_TOKENS); /* no more than what four requests can use */
    assert_int_equal(pool(least, 1e-6, &e), 0);
    assert_non_null(strstr(e.text, "--mem-fraction-static"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_share_is_still_a_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
