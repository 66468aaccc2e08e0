/* Every row of the table of request fields, in every place where it stands: what is sent arrives in its member, what
 * is out of range or refused is a 400 that names it, and the guide knows it. */
#include "unit.h"

#include "base/file.h"
#include "server/request/request_fields.h"
#include <stdio.h>
#include <string.h>

static served_model served = {
    .dir = "models/nano", .name = "nano", .context = 4096, .parse_calls = true, .parse_reasoning = true};

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]"

/* A place, and a request in it around %s. */
static const struct {
    unsigned where;
    bool (*read)(gen_request *r, const served_model *m, json_t *body, api_error *e);
    const char *body;
} places[] = {
    {IN_CHAT | IN_PROMPT, request_chat, "{" CHAT "%s}"},
    {IN_COMPLETION, request_completion, "{\"prompt\":\"a\"%s}"},
    {IN_GENERATE, request_generate, "{\"text\":\"a\"%s}"},
    {IN_PARAMS, request_generate, "{\"text\":\"a\",\"sampling_params\":{\"nobody_knows\":1%s}}"},
    {IN_MESSAGES, request_anthropic, "{\"max_tokens\":99," CHAT "%s}"},
    {IN_RESPONSES, request_responses, "{\"input\":\"a\"%s}"},
};

static bool ask(gen_request *r, size_t place, const char *field, api_error *e) {
    buf b = {0};
    buf_fmt(&b, places[place].body, field);
    json_t *body = json_parse(b.data, b.len, "test", NULL);
    if (!body) print_message("%s\n", b.data);
    assert_non_null(body);
    buf_free(&b);
    *r = (gen_request){0};
    *e = (api_error){0};
    return places[place].read(r, &served, body, e);
}

static f64 member(const gen_request *r, const request_field *f) {
    const u8 *at = (const u8 *)r + f->at;
    if (f->kind == FIELD_F64) return *(const f64 *)at;
    if (f->kind == FIELD_I64) return (f64) * (const i64 *)at;
    return *(const bool *)at;
}

/* Something allowed that is no field's default. */
static f64 good_value(const request_field *f, f64 present) {
    if (f->kind == FIELD_F64) return (3 * f->lo + f->hi) / 4;
    if (f->kind == FIELD_I64) return f->lo + 2;
    return f->kind == FIELD_NOT ? present : !present;
}

static void print_field(char *to, size_t room, const request_field *f, f64 v) {
    bool truth = f->kind == FIELD_BOOL || f->kind == FIELD_NOT;
    const char *also = !strcmp(f->key, "top_logprobs")       ? ",\"logprobs\":true"
                       : !strcmp(f->key, "top_logprobs_num") ? ",\"return_logprob\":true"
                                                             : "";
    if (truth)
        snprintf(to, room, "%s,\"%s\":%s", also, f->key, v != 0 ? "true" : "false");
    else
        snprintf(to, room, "%s,\"%s\":%.17g", also, f->key, v);
}

static void one_value(const request_field *f, size_t place) {
    gen_request r;
    api_error e;
    char text[160];
    assert_true(ask(&r, place, "", &e));
    f64 before = member(&r, f), sent = good_value(f, before), kept = f->kind == FIELD_NOT ? !sent : sent;
    gen_request_free(&r);
    print_field(text, sizeof text, f, sent);
    bool ok = ask(&r, place, text, &e);
    if (!ok || member(&r, f) != kept || before == kept)
        print_message("%s by %s: %s\n", text, places[place].body, e.text.text);
    assert_true(ok);
    assert_true(member(&r, f) == kept && before != kept);
    gen_request_free(&r);
}

static void one_refusal(const request_field *f, size_t place, const char *text) {
    gen_request r;
    api_error e;
    bool ok = ask(&r, place, text, &e);
    if (ok || strcmp(e.param, f->key)) print_message("%s by %s: \"%s\"\n", text, places[place].body, e.param);
    assert_false(ok);
    assert_int_equal(e.http, 400);
    assert_string_equal(e.param, f->key);
    gen_request_free(&r);
}

static void fields_arrive(void **state) {
    size_t n, tried = 0;
    const request_field *rows = request_field_rows(&n);
    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < COUNT_OF(places); p++)
            if (rows[i].kind <= FIELD_NOT && rows[i].where & places[p].where) one_value(&rows[i], p), tried++;
    assert_true(tried > 80);
}

static void wrong_ones_are_named(void **state) {
    size_t n;
    const request_field *rows = request_field_rows(&n);
    char text[160];
    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < COUNT_OF(places); p++) {
            const request_field *f = &rows[i];
            if (!(f->where & places[p].where) || f->kind == FIELD_PASSED) continue;
            if (f->kind == FIELD_REFUSED) {
                snprintf(text, sizeof text, ",\"%s\":1", f->key);
                one_refusal(f, p, text);
            }
            if (f->kind > FIELD_NOT) continue;
            snprintf(text, sizeof text, ",\"%s\":\"x\"", f->key);
            one_refusal(f, p, text);
            if (f->kind > FIELD_I64) continue;
            print_field(text, sizeof text, f, f->lo - 1);
            one_refusal(f, p, text);
            print_field(text, sizeof text, f, f->hi + 1);
            one_refusal(f, p, text);
        }
}

static void the_guide_knows_them(void **state) {
    size_t n;
    const request_field *rows = request_field_rows(&n);
    buf guide = {0};
    err e = {0};
    char name[64];
    (void)state;
    assert_int_equal(file_read("docs/guide/serving.md", 1 << 20, &guide, &e), ST_OK);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "`%s`", rows[i].key);
        if (!strstr(guide.data, name)) print_message("docs/guide/serving.md does not name %s\n", name);
        assert_non_null(strstr(guide.data, name));
    }
    buf_free(&guide);
}

static int open_model(void **state) {
    err e = {0};
    (void)state;
    status st = served_model_open(&served, NULL, "kimi_k25", 4096, NULL, 0, &e);
    if (st != ST_OK) print_message("%s\n", e.text);
    return st != ST_OK;
}

static int close_model(void **state) {
    (void)state;
    served_model_close(&served);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_arrive), cmocka_unit_test(wrong_ones_are_named),
                                       cmocka_unit_test(the_guide_knows_them)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
