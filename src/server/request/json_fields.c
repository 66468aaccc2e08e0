#include "server/request/json_fields.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

bool field_given(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v);
}

static bool wrong_type(api_error *e, const char *key, const char *want, const json_t *v) {
    return api_fail(e, 400, NULL, key, "%s: expected %s, got %s", key, want, json_type_text(v));
}

bool field_i64(const json_t *o, const char *key, i64 lo, i64 hi, i64 *out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    if (!field_given(o, key)) return true;
    i64 x;
    if (json_is_integer(v))
        x = json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 9e15)
        x = (i64)json_real_value(v);
    else if (json_big_number(v))
        return api_fail(e, 400, NULL, key, "%s: %.40s is outside %lld..%lld", key, json_big_number(v), (long long)lo,
                        (long long)hi);
    else
        return wrong_type(e, key, "an integer", v);
    if (x < lo || x > hi)
        return api_fail(e, 400, NULL, key, "%s: %lld is outside %lld..%lld", key, (long long)x, (long long)lo,
                        (long long)hi);
    *out = x;
    return true;
}

bool field_f64(const json_t *o, const char *key, f64 lo, f64 hi, f64 *out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    if (!field_given(o, key)) return true;
    if (!json_is_number(v)) return wrong_type(e, key, "a number", v);
    f64 x = json_number_value(v);
    if (!(x >= lo && x <= hi)) return api_fail(e, 400, NULL, key, "%s: %g is outside %g..%g", key, x, lo, hi);
    *out = x;
    return true;
}

bool field_bool(const json_t *o, const char *key, bool *out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    if (!field_given(o, key)) return true;
    if (!json_is_boolean(v)) return wrong_type(e, key, "true or false", v);
    *out = json_is_true(v);
    return true;
}

bool field_str(const json_t *o, const char *key, const char **out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    if (!field_given(o, key)) return true;
    if (!json_is_string(v)) return wrong_type(e, key, "a string", v);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return api_fail(e, 400, NULL, key, "%s: contains a NUL character", key);
    *out = json_string_value(v);
    return true;
}

bool field_array(const json_t *o, const char *key, size_t max, const json_t **out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    *out = NULL;
    if (!field_given(o, key)) return true;
    if (!json_is_array(v)) return wrong_type(e, key, "an array", v);
    if (json_array_size(v) > max)
        return api_fail(e, 400, NULL, key, "%s: %zu entries, at most %zu are allowed", key, json_array_size(v), max);
    *out = v;
    return true;
}

bool field_object(const json_t *o, const char *key, const json_t **out, api_error *e) {
    const json_t *v = json_object_get(o, key);
    *out = NULL;
    if (!field_given(o, key)) return true;
    if (!json_is_object(v)) return wrong_type(e, key, "an object", v);
    *out = v;
    return true;
}

bool field_ids(const json_t *array, const char *key, i64 vocab, ids_buf *out, api_error *e) {
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v) {
        if (json_is_big_integer(v))
            return api_fail(e, 400, NULL, key, "%s[%zu]: token id %.40s is outside the vocabulary of %lld", key, i,
                            json_big_number(v), (long long)vocab);
        if (!json_is_integer(v))
            return api_fail(e, 400, NULL, key, "%s[%zu]: expected a token id, got %s", key, i, json_type_text(v));
        i64 id = json_integer_value(v);
        if (id < 0 || id >= vocab)
            return api_fail(e, 400, NULL, key, "%s[%zu]: token id %lld is outside the vocabulary of %lld", key, i,
                            (long long)id, (long long)vocab);
        ids_add(out, (i32)id);
    }
    return out->failed ? api_nomem(e) : true;
}
