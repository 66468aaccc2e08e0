/* Every allocation of moon_open() and moon_run() fails once: a clean error, no leak (under AddressSanitizer), and
 * the engine still works. jansson is left out: 2.14 ends the process with an assertion when a string's memory is
 * refused. malloc, calloc, realloc and mmap of this program are wrapped by the linker (Makefile). */
#include "unit.h"

#include "moonlet.h"
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

static long left = -1; /* allocations that succeed before one fails; negative: all */
static bool failed;

static bool fails(void) {
    if (left < 0 || left-- > 0) return false;
    failed = true;
    errno = ENOMEM;
    return true;
}

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
    return fails() ? MAP_FAILED : __real_mmap(at, n, prot, flags, fd, offset);
}

static moon_options options(void) {
    moon_options o = MOON_OPTIONS_INIT;
    o.model_dir = "models/nano";
    o.context_length = 256;
    o.threads = 1;
    return o;
}

typedef struct {
    char text[4096];
    size_t len;
} collected;

static int collect(void *user, moon_event event, const char *text, size_t n) {
    collected *c = user;
    (void)event;
    if (c->len + n < sizeof c->text) memcpy(c->text + c->len, text, n), c->len += n;
    return 0;
}

static moon_status ask(moon_engine *m, collected *c, moon_error *e) {
    moon_request q = MOON_REQUEST_INIT;
    *c = (collected){.len = 0};
    q.chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}], \"tools\": [{\"type\": "
             "\"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\", \"properties\": "
             "{\"a\": {\"type\": \"integer\", \"maximum\": 12345678901234567890}}}}}]}";
    q.max_tokens = 24;
    q.temperature = 1;
    return moon_run(m, &q, collect, c, NULL, e);
}

static void every_allocation_of_open_may_fail(void **state) {
    (void)state;
    moon_options o = options();
    moon_engine *first;
    collected unused;
    assert_int_equal(moon_open(&first, &o, NULL),
                     MOON_OK); /* OpenMP allocates once, and ends the process if it cannot */
    assert_int_equal(ask(first, &unused, NULL), MOON_OK);
    moon_close(first);
    long n = 0;
    for (bool done = false; !done; n += n < 300 ? 1 : 17) {
        moon_engine *m = (void *)&o;
        moon_error e = {0};
        failed = false;
        left = n;
        moon_status st = moon_open(&m, &o, &e);
        left = -1;
        done = !failed;
        if (st == MOON_OK) {
            collected c;
            if (failed) fail_msg("allocation %ld failed and moon_open did not", n);
            assert_int_equal(ask(m, &c, &e), MOON_OK);
            moon_close(m);
        } else {
            assert_true(failed);
            assert_null(m);
            bool mapping = st == MOON_IO && strstr(e.text, "cannot map");
            if (st != MOON_NOMEM && !mapping) fail_msg("allocation %ld: status %d, \"%s\"", n, st, e.text);
        }
    }
    print_message("%ld allocations\n", n);
}

static void every_allocation_of_a_request_may_fail(void **state) {
    (void)state;
    moon_options o = options();
    moon_engine *m;
    moon_error e = {0};
    collected want, got;
    assert_int_equal(moon_open(&m, &o, &e), MOON_OK);
    assert_int_equal(ask(m, &want, &e), MOON_OK);
    long n = 0;
    for (bool done = false; !done; n++) {
        failed = false;
        left = n;
        moon_status st = ask(m, &got, &e);
        left = -1;
        done = !failed;
        if (failed && st == MOON_OK) fail_msg("allocation %ld failed and moon_run did not", n);
        if (failed && st != MOON_NOMEM) fail_msg("allocation %ld: status %d, \"%s\"", n, st, e.text);
        if (!failed || n % 16 == 0) {
            if (ask(m, &got, &e) != MOON_OK) fail_msg("after allocation %ld: %s", n, e.text);
            assert_memory_equal(&got, &want, sizeof want.len + want.len);
        }
    }
    print_message("%ld allocations\n", n);
    moon_close(m);
}

int main(void) {
    json_set_alloc_funcs(__real_malloc, free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_open_may_fail),
        cmocka_unit_test(every_allocation_of_a_request_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
