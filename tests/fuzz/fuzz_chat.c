/* A chat request as JSON: every template renders it, or says which part is wrong; its "text" goes through the
 * parser. */
#include "base/json.h"
#include "text/chat.h"
#include "text/parse.h"
#include <stdlib.h>
#include <string.h>

static status ignore(void *ud, const parse_event *ev, err *e) {
    (void)e;
    *(size_t *)ud += ev->len;
    return ST_OK;
}

static void render_all(const json_t *v) {
    for (int t = 0; t < CHAT_TEMPLATES; t++) {
        chat_request r = {.messages = json_object_get(v, "messages"),
                          .tools = json_object_get(v, "tools"),
                          .kwargs = json_object_get(v, "chat_template_kwargs"),
                          .add_generation_prompt = true};
        chat_prompt p = {0};
        err e = {0};
        status st = chat_render((chat_template)t, NULL, &r, &p, &e);
        if (st != ST_OK && (st != ST_INPUT || !e.text[0])) abort();
        chat_prompt_free(&p);
    }
}

/* Whole and cut in the middle: the same number of bytes comes out. */
static void parse_both(const json_t *v, bool in_think) {
    const json_t *text = json_object_get(v, "text"), *tools = json_object_get(v, "tools");
    parse_options o = {.tools = json_is_array(tools) ? tools : NULL, .in_think = in_think};
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), out[2] = {0};
    for (int k = 0; s && k < 2; k++) {
        parser *p;
        if (parser_open(&p, NULL, &o, ignore, &out[k], NULL) != ST_OK) return;
        size_t half = k ? n / 2 : 0;
        parse_add_text(p, s, half, NULL);
        parse_add_text(p, s + half, n - half, NULL);
        parse_end(p, NULL);
        parser_close(p);
    }
    if (out[0] != out[1] || out[0] > n) abort();
}

/* What is printed reads back as the same value, numbers of any size included. */
static void print_and_read(const json_t *v) {
    char *text = json_to_text(v, &json_spaced);
    json_t *again = text ? json_parse(text, strlen(text), "printed", NULL) : NULL;
    if (!again || !json_equal(v, again)) abort();
    json_decref(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    json_t *v = json_parse((const char *)data, size, "request", NULL);
    if (!v) return 0;
    print_and_read(v);
    render_all(v);
    parse_both(v, false);
    parse_both(v, true);
    json_decref(v);
    return 0;
}
