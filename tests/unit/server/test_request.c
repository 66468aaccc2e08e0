/* What all requests share, read from JSON: cache salts and the spaces of the prefix cache that they name. */
#include "unit.h"

#include "base/json.h"
#include "server/request/request_fields.h"
#include <string.h>

static u64 space_of(const char *salt) {
    gen_request r = {0};
    api_error e = {0};
    buf b = {0};
    buf_str(&b, "{\"cache_salt\":");
    buf_json_str(&b, salt, strlen(salt));
    buf_char(&b, '}');
    json_t *body = json_parse(b.data, b.len, "test", NULL);
    assert_non_null(body);
    assert_true(request_read_fields(&r, NULL, body, IN_GENERATE, &e));
    json_decref(body);
    buf_free(&b);
    return r.cache_space;
}

static void a_salt_is_a_space(void **state) {
    (void)state;
    gen_request r = {0};
    api_error e = {0};
    json_t *none = json_parse("{}", 2, "test", NULL);
    assert_true(request_read_fields(&r, NULL, none, IN_GENERATE, &e));
    assert_true(r.cache_space == 0); /* the one of those without a salt */
    json_decref(none);
    assert_true(space_of("") != 0 && space_of("me") != 0);
    assert_true(space_of("me") == space_of("me"));
    assert_true(space_of("me") != space_of("you") && space_of("me") != space_of("me "));
}

/* How two salts differ must not show in how their spaces do: then salts that meet could be computed without the key.
 * FNV-1a is such a hash: its last step, a product with a known odd number, can be undone, and what is left of two
 * salts of a byte differs as the bytes do. */
static void spaces_tell_nothing_of_salts(void **state) {
    (void)state;
    const u64 prime = 0x100000001b3u;
    u64 inverse = prime; /* mod 2^64: each turn doubles the bits that are right */
    for (int i = 0; i < 6; i++) inverse *= 2 - prime * inverse;
    assert_true(prime * inverse == 1);
    for (char c = 'b'; c <= 'z'; c++) {
        const char one[] = {c, 0};
        u64 a = space_of("a"), b = space_of(one);
        assert_true((a * inverse ^ b * inverse) != (u64)('a' ^ c));
        assert_true(a >> 32 != b >> 32);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_salt_is_a_space),
        cmocka_unit_test(spaces_tell_nothing_of_salts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
