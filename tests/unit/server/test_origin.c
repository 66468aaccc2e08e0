/* Which pages may use the server: hosts, origins, requests without an origin. */
#include "unit.h"

#include "server/http/origin.h"
#include <string.h>

static const char *const own_app[] = {"https://app.example", "http://localhost:3000"};
static const char *const all[] = {"*"};
static const char *const name[] = {"moon.example"};

static void hosts(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool ok;
    } cases[] = {
        {"127.0.0.1", true},
        {"127.0.0.1:30000", true},
        {"localhost", true},
        {"LocalHost:1", true},
        {"localhost.:1", true},
        {"a.localhost:30000", true},
        {"[::1]:30000", true},
        {"[::1]", true},
        {"192.168.1.2:30000", true},
        {"moon.example", true},
        {"Moon.Example:443", true},
        {"evil.example", false},
        {"evil.example:30000", false},
        {"", false},
        {":30000", false},
        {"[::1", false},
        {"[]", false},
        {"[::1]x", false},
        {"localhost:30000x", false},
        {"localhost:1:2", false},
        {"localhost@evil.example", false},
        {"127.0.0.1.evil.example", false},
        {"notlocalhost", false},
        {".localhost", false},
        {"moon.example.evil", false},
        {"127.0.0.1 ", false},
        {".", false},
    };
    const origin_rules rules = {.hosts = name, .n_hosts = 1};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        origin_request q = {.host = cases[i].host, .loopback = true};
        origin_verdict v = origin_judge(&rules, &q);
        if ((v == ORIGIN_OK) != cases[i].ok) fail_msg("Host: %s", cases[i].host);
        q.loopback = false; /* --allow-host holds there, too */
        assert_int_equal(origin_judge(&rules, &q), v);
        q.page = true;
        assert_int_equal(origin_judge(&rules, &q), v);
    }
    const origin_rules none = {0};
    const origin_request open = {.host = "any.example"}, closed = {.host = "any.example", .loopback = true},
                         old = {.loopback = true};
    assert_int_equal(origin_judge(&none, &open), ORIGIN_OK);
    assert_int_equal(origin_judge(&none, &closed), ORIGIN_HOST);
    assert_int_equal(origin_judge(&none, &old), ORIGIN_OK); /* HTTP/1.0 */
}

static void origins(void **state) {
    (void)state;
    static const struct {
        const char *origin;
        bool ok;
    } cases[] = {
        {"http://127.0.0.1:30000", true},
        {"https://127.0.0.1:30000", true}, /* TLS by a proxy */
        {"http://127.0.0.1:3000", false},
        {"http://127.0.0.1", false},
        {"http://localhost:30000", false},
        {"http://localhost:3000", true},
        {"https://app.example", true},
        {"HTTPS://APP.EXAMPLE", true},
        {"https://app.example:8443", false},
        {"http://app.example", false},
        {"https://app.example.evil", false},
        {"https://evil.example", false},
        {"null", false},
        {"", false},
        {"127.0.0.1:30000", false},
        {"http://127.0.0.1:30000/", false},
        {"http://evil.example, http://127.0.0.1:30000", false},
    };
    const origin_rules rules = {.origins = own_app, .n_origins = 2}, any = {.origins = all, .n_origins = 1};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const origin_request q = {.host = "127.0.0.1:30000", .origin = cases[i].origin, .loopback = true};
        if ((origin_judge(&rules, &q) == ORIGIN_OK) != cases[i].ok) fail_msg("Origin: %s", cases[i].origin);
        assert_int_equal(origin_judge(&any, &q), ORIGIN_OK);
    }
    /* '*' is about pages, not about the server's name */
    const origin_request rebound = {.host = "evil.example", .origin = "http://evil.example", .loopback = true};
    assert_int_equal(origin_judge(&any, &rebound), ORIGIN_HOST);
}

static void without_origin(void **state) {
    (void)state;
    const origin_rules none = {0};
    static const char *const sites[] = {NULL, "none", "same-origin", "same-site", "cross-site", "", "?"};
    for (size_t i = 0; i < COUNT_OF(sites); i++) {
        origin_request q = {.host = "127.0.0.1", .fetch_site = sites[i], .loopback = true};
        assert_int_equal(origin_judge(&none, &q), i < 3 ? ORIGIN_OK : ORIGIN_PAGE);
        q.page = true;
        assert_int_equal(origin_judge(&none, &q), ORIGIN_OK);
    }
}

static void rules_checked(void **state) {
    (void)state;
    static const char *const good[] = {"*", "null", "http://a", "https://a.b:1", "http://[::1]:30000", "app://x"};
    static const char *const bad[] = {"",           "a",    "a.b:1",      "http://",    "http://a/",
                                      "http://a/b", "://a", "http://a b", "http://*.a", "http://a,http://b",
                                      "http://a:x"};
    static const char *const bad_hosts[] = {"", "a:1", "http://a", "a/b", "*"};
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        const origin_rules r = {.origins = &good[i], .n_origins = 1};
        if (origin_check_rules(&r, NULL) != ST_OK) fail_msg("refused: %s", good[i]);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const origin_rules r = {.origins = &bad[i], .n_origins = 1};
        if (origin_check_rules(&r, NULL) != ST_INPUT) fail_msg("taken: %s", bad[i]);
    }
    for (size_t i = 0; i < COUNT_OF(bad_hosts); i++) {
        const origin_rules r = {.hosts = &bad_hosts[i], .n_hosts = 1};
        if (origin_check_rules(&r, NULL) != ST_INPUT) fail_msg("taken: %s", bad_hosts[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins),
        cmocka_unit_test(without_origin),
        cmocka_unit_test(rules_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
