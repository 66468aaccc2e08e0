/* What reaches a terminal or a log: no control characters, notices once, none when asked for quiet. */
#include "unit.h"
#include "base/err.h"
#include "base/log.h"
#include "base/printable.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* stderr goes to a file from begin() to end(). */
typedef struct {
    int before;
    FILE *file;
    char text[1 << 16];
} captured;

static void begin(captured *c) {
    fflush(stderr);
    c->before = dup(2);
    c->file = tmpfile();
    assert_non_null(c->file);
    assert_true(c->before >= 0 && dup2(fileno(c->file), 2) == 2);
}

static const char *end(captured *c) {
    fflush(stderr);
    assert_int_equal(dup2(c->before, 2), 2);
    close(c->before);
    rewind(c->file);
    size_t n = fread(c->text, 1, sizeof c->text - 1, c->file);
    c->text[n] = 0;
    fclose(c->file);
    return c->text;
}

static captured cap;

/* What log_warn() prints of a text, without its frame. */
static const char *warned(const char *text) {
    begin(&cap);
    log_warn("%s", text);
    const char *s = end(&cap);
    assert_int_equal(strncmp(s, "warning: ", 9), 0);
    cap.text[strlen(cap.text) - 1] = 0;
    return s + 9;
}

static const struct {
    const char *text, *shown;
} cases[] = {
    {"a\nb\tc\x1b[2Jd\x7f", "a?b?c?[2Jd?"},
    {"\xc2\x80 \xc2\x85 \xc2\x9b"
     "31m \xc2\x9f \xc2\xa0",
     "? ? ?31m ? \xc2\xa0"},
    {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c|", "???|"}, /* LRM, RLM, ALM */
    {"\xe2\x80\xaa\xe2\x80\xab\xe2\x80\xac\xe2\x80\xad\xe2\x80\xae|\xe2\x80\xa9", "?????|\xe2\x80\xa9"},
    {"\xe2\x81\xa6\xe2\x81\xa7\xe2\x81\xa8\xe2\x81\xa9|\xe2\x81\xaa", "????|\xe2\x81\xaa"}, /* isolates */
    {"\xff\xc0\x80\xed\xa0\x80\xe0\x80\x80\xf4\x90\x80\x80\xc3", "??????????????"},
    {"é 月 🌙 \xd8\xa7", "é 月 🌙 \xd8\xa7"},
};

static void controls_are_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        err e = {0};
        err_set(&e, ST_INPUT, "%s", cases[i].text);
        assert_string_equal(e.text, cases[i].shown);
        assert_string_equal(warned(cases[i].text), cases[i].shown);
    }
    char text[] = "one\n\ttwo\r\x1b";
    make_printable(text, true);
    assert_string_equal(text, "one\n\ttwo??");
}

static void quiet_drops_notices(void **state) {
    (void)state;
    log_set_quiet(true);
    begin(&cap);
    log_once("quiet", "a notice");
    log_note("another");
    log_warn("a warning");
    log_set_quiet(false);
    assert_string_equal(end(&cap), "warning: a warning\n");
}

static void a_full_list_says_so_once(void **state) {
    (void)state;
    begin(&cap);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < LOG_ONCE_MOST + 100; i++) {
            char key[32];
            snprintf(key, sizeof key, "key %d", i);
            log_once(key, "notice %d\n", i);
        }
    const char *s = end(&cap);
    i64 lines = 0;
    for (const char *c = s; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, LOG_ONCE_MOST + 1);
    assert_int_equal(strncmp(s, "note: notice 0?\nnote: notice 1?\n", 32), 0);
    assert_non_null(strstr(s, "note: further notices are not shown\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(controls_are_replaced),
        cmocka_unit_test(quiet_drops_notices),
        cmocka_unit_test(a_full_list_says_so_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
