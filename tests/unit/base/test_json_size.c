/* How deep JSON is and how much memory it takes, told from its text. */
#include "unit.h"

#include "base/json_size.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static int depth(const char *text) { return json_shape_of(text, strlen(text)).depth; }

static void depth_outside_of_strings(void **state) {
    (void)state;
    char deep[201], text[600];
    memset(deep, '[', 200);
    deep[200] = 0;
    assert_int_equal(depth("{\"a\":[{}],\"b\":[[]]}"), 3);
    snprintf(text, sizeof text, "{\"a\":\"x\\\"%s\"}", deep); /* an escaped quote does not end the string */
    assert_int_equal(depth(text), 1);
    snprintf(text, sizeof text, "{\"a\":\"x\\\\\",\"b\":%s", deep); /* an escaped backslash before the quote does */
    assert_int_equal(depth(text), 201);
    snprintf(text, sizeof text, "{\"a\":\"x\\\"%s\",\"b\":%s", deep, deep);
    assert_int_equal(depth(text), 201);
}

static size_t in_use; /* by jansson, the allocator's own 8 bytes a piece included */

static void *counted_malloc(size_t n) {
    void *p = malloc(n);
    if (p) in_use += malloc_usable_size(p) + 8;
    return p;
}

static void counted_free(void *p) {
    if (p) in_use -= malloc_usable_size(p) + 8;
    free(p);
}

/* Both bounds against what malloc gives out for `n` of an item. */
static void bounds(const char *head, const char *item, const char *tail, bool numbered) {
    enum { N = 20000 };
    buf b = {0};
    buf_str(&b, head);
    for (int i = 0; i < N; i++) {
        if (i) buf_char(&b, ',');
        if (numbered) buf_fmt(&b, "\"%d\":", i);
        buf_str(&b, item);
    }
    buf_str(&b, tail);
    json_shape shape = json_shape_of(b.data, b.len);
    size_t before = in_use;
    json_t *v = json_parse(b.data, b.len, "test", NULL);
    size_t took = in_use - before;
    assert_non_null(v);
    if (shape.bytes < took || json_memory(v) < took)
        fail_msg("%s: %zu bytes taken, %llu foretold, %llu found", item, took, (unsigned long long)shape.bytes,
                 (unsigned long long)json_memory(v));
    assert_true(shape.values >= N);
    if (shape.bytes > 4 * took) /* and near enough to be fair */
        fail_msg("%s: %zu bytes taken, %llu foretold", item, took, (unsigned long long)shape.bytes);
    json_decref(v);
    buf_free(&b);
}

static void bytes_are_bounds(void **state) {
    (void)state;
    bounds("[", "{}", "]", false);
    bounds("[", "[]", "]", false);
    bounds("[", "[[1]]", "]", false);
    bounds("[", "{\"a\":1}", "]", false);
    bounds("[", "{\"a\":{\"b\":{}}}", "]", false);
    bounds("[", "\"\"", "]", false);
    bounds("[", "\"some text of a few words, long enough to matter\"", "]", false);
    bounds("[", "7", "]", false);
    bounds("[", "1.5", "]", false);
    bounds("{", "7", "}", true);
    bounds("{", "\"x\"", "}", true);
    bounds("{", "[{}]", "}", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(depth_outside_of_strings), cmocka_unit_test(bytes_are_bounds)};
    json_set_alloc_funcs(counted_malloc, counted_free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
