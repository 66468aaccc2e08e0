#include "cmd/eval/nano_rows.h"
#include "cmd/lib/chat_workers.h"
#include "base/file.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_TOKENS = 512 }; /* thinking included; the longest that nano was trained on has fewer */
enum { NEEDLE_BYTES = 2048 }; /* of an answer to a needle, whose prompt may fill the context */

/* ---- arithmetic and word problems ---- */

/* Exact final number in an answer that the model ended itself, in the form that was asked for: after a reasoning
 * that was closed (only then is there content), or in instant mode without a trace of one. */
static status ask_question(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out,
                           err *e) {
    (void)h;
    reply r = {0};
    f64 want = 0, have;
    json_t *chat = chat_of(json_object_get(item, "question"));
    status st = chat ? ST_OK : err_nomem(e, "the request", 0);
    if (st == ST_OK && instant) st = chat_instant(chat, e);
    if (st == ST_OK) st = ask_chat(m, chat, ANSWER_TOKENS, &r, e);
    if (st == ST_OK) {
        last_number(wanted_value(item), &want);
        bool form = r.content.len && (!instant || (!r.reasoning.len && !strstr(r.content.data, "think>")));
        out->right[0] = r.ended && form && last_number(r.content.data, &have) && have == want;
        out->prompt_tokens = r.prompt_tokens;
        out->output_tokens = r.output_tokens;
        out->answer = buf_take(&r.content);
    }
    json_decref(chat);
    reply_free(&r);
    return st;
}

/* ---- tools ---- */

static status check_tools(void *ud, const json_t *item, err *e) {
    (void)ud;
    const json_t *calls = json_object_get(item, "calls"), *results = json_object_get(item, "results");
    const char *want = wanted_value(item);
    if (!json_is_array(json_object_get(item, "messages")) || !json_array_size(json_object_get(item, "tools")) ||
        !json_array_size(calls) || json_array_size(results) != json_array_size(calls) || !want || !*want)
        return err_set(
            e, ST_FORMAT,
            "not {\"messages\", \"tools\", \"calls\", \"results\" (one a call), \"answer\": \"... #### VALUE\"}");
    bool well_formed, right;
    judge_calls(item, calls, &well_formed, &right);
    return right ? ST_OK : err_set(e, ST_FORMAT, "\"calls\" do not fit the item's own \"tools\"");
}

/* The chat after the wanted calls were carried out. The caller's; NULL when out of memory. */
static json_t *with_results(const json_t *item) {
    json_t *messages = json_copy(json_object_get(item, "messages"));
    json_t *said =
        json_pack("{s:s, s:s, s:O}", "role", "assistant", "content", "", "tool_calls", json_object_get(item, "calls"));
    if (!messages || json_array_append_new(messages, said) ||
        json_array_extend(messages, json_object_get(item, "results"))) {
        json_decref(messages);
        return NULL;
    }
    return json_pack("{s:o, s:O}", "messages", messages, "tools", json_object_get(item, "tools"));
}

/* Three verdicts: the calls are well-formed, they are the wanted ones, and the answer given to the results of the
 * wanted calls (whatever the model called itself) holds the wanted value. */
static status ask_tools(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out, err *e) {
    (void)h;
    (void)instant;
    reply r = {0};
    json_t *chat = json_pack("{s:O, s:O}", "messages", json_object_get(item, "messages"), "tools",
                             json_object_get(item, "tools")),
           *after = NULL;
    status st = ask_chat(m, chat, ANSWER_TOKENS, &r, e);
    if (st == ST_OK) {
        bool well_formed, right;
        judge_calls(item, r.calls, &well_formed, &right);
        out->right[0] = well_formed && r.ended;
        out->right[1] = right && r.ended;
        out->prompt_tokens = r.prompt_tokens;
        out->output_tokens = r.output_tokens;
    }
    if (st == ST_OK && json_array_size(r.calls)) out->answer = json_to_text(r.calls, &json_compact);
    if (st == ST_OK) {
        after = with_results(item);
        st = ask_chat(m, after, ANSWER_TOKENS, &r, e);
        out->prompt_tokens += r.prompt_tokens;
        out->output_tokens += r.output_tokens;
        out->right[2] =
            st == ST_OK && r.ended && !json_array_size(r.calls) && has_value(reply_text(&r), wanted_value(item));
    }
    if (st == ST_OK && (out->answer == NULL || out->right[1])) { /* a wrong call is what a reader wants to see */
        free(out->answer);
        out->answer = buf_take(&r.content);
    }
    json_decref(chat);
    json_decref(after);
    reply_free(&r);
    return st;
}

/* ---- needles ---- */

status haystack_read(haystack *h, const char *path, err *e) {
    buf text = {0};
    status st = file_read(path, 64 << 20, &text, e);
    if (st != ST_OK) return buf_free(&text), st;
    i64 lines = 1;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    h->lines = calloc((size_t)lines, sizeof *h->lines);
    h->text = buf_take(&text);
    if (!h->lines) return err_nomem(e, path, (u64)lines * sizeof *h->lines);
    for (char *at = h->text, *end; at && *at; at = end) {
        end = at + strcspn(at, "\n");
        if (*end) *end++ = 0;
        if (*at) h->lines[h->n++] = at;
    }
    return h->n ? ST_OK : err_set(e, ST_FORMAT, "%s: no sentences", path);
}

void haystack_free(haystack *h) {
    free(h->text);
    free(h->lines);
    *h = (haystack){0};
}

static status check_needle(void *ud, const json_t *item, err *e) {
    const haystack *h = ud;
    const json_t *plant = json_object_get(item, "plant");
    const char *form = NULL, *question = NULL, *want = wanted_value(item);
    i64 start = 0, sentences = 0;
    f64 depth = 0;
    status st = json_get_i64(item, "start", 0, h->n - 1, true, &start, e);
    if (st == ST_OK) st = json_get_i64(item, "sentences", 0, 1 << 20, true, &sentences, e);
    if (st == ST_OK) st = json_get_str(item, "form", true, &form, e);
    if (st == ST_OK) st = json_get_str(item, "question", true, &question, e);
    if (st == ST_OK) st = json_get_f64(item, "depth", 0, 1, true, &depth, e);
    if (st != ST_OK) return st;
    if (strcmp(form, "system") && strcmp(form, "before") && strcmp(form, "after"))
        return err_set(e, ST_FORMAT, "\"form\" is not system, before or after");
    if (!want || !*want) return err_set(e, ST_FORMAT, "\"answer\" has no value behind ####");
    if (!json_array_size(plant)) return err_set(e, ST_FORMAT, "\"plant\" is not a list of [index, sentence]");
    for (size_t i = 0; i < json_array_size(plant); i++) {
        const json_t *p = json_array_get(plant, i), *at = json_array_get(p, 0);
        if (json_array_size(p) != 2 || !json_is_integer(at) || !json_is_string(json_array_get(p, 1)) ||
            json_integer_value(at) < 0 || json_integer_value(at) > sentences + (i64)i)
            return err_set(e, ST_FORMAT, "plant[%zu] is not [index within the text, sentence]", i);
    }
    return ST_OK;
}

/* Lines of the haystack from `start` on, round its end, with the planted sentences put in one after the other, each
 * at its index in the text as it is by then; joined by single spaces. */
static status needle_text(const haystack *h, const json_t *item, buf *out, err *e) {
    i64 start = json_integer_value(json_object_get(item, "start")),
        n = json_integer_value(json_object_get(item, "sentences"));
    const json_t *plant = json_object_get(item, "plant");
    i64 all = n + (i64)json_array_size(plant);
    const char **text = calloc((size_t)all, sizeof *text);
    if (!text) return err_nomem(e, "a long text", (u64)all * sizeof *text);
    for (i64 i = 0; i < n; i++) text[i] = h->lines[(start + i) % h->n];
    for (size_t i = 0; i < json_array_size(plant); i++, n++) {
        i64 at = json_integer_value(json_array_get(json_array_get(plant, i), 0));
        memmove(text + at + 1, text + at, (size_t)(n - at) * sizeof *text);
        text[at] = json_string_value(json_array_get(json_array_get(plant, i), 1));
    }
    for (i64 i = 0; i < all; i++) {
        if (i) buf_char(out, ' ');
        buf_str(out, text[i]);
    }
    free(text);
    return out->failed ? err_nomem(e, "a long text", out->len) : ST_OK;
}

static json_t *needle_chat(const json_t *item, const buf *text) {
    const char *form = json_string_value(json_object_get(item, "form")),
               *question = json_string_value(json_object_get(item, "question"));
    if (!strcmp(form, "system"))
        return json_pack("{s:[{s:s, s:s}, {s:s, s:s}]}", "messages", "role", "system", "content", text->data, "role",
                         "user", "content", question);
    bool before = !strcmp(form, "before");
    return json_pack("{s:[{s:s, s:s++}]}", "messages", "role", "user", "content", before ? question : text->data,
                     "\n\n", before ? text->data : question);
}

static status ask_needle(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out,
                         err *e) {
    (void)instant;
    buf text = {0};
    reply r = {.max_bytes = NEEDLE_BYTES};
    status st = needle_text(h, item, &text, e);
    json_t *chat = st == ST_OK ? needle_chat(item, &text) : NULL;
    if (st == ST_OK) st = ask_chat(m, chat, 0, &r, e);
    if (st == ST_OK) {
        out->right[0] = r.ended && has_value(reply_text(&r), wanted_value(item));
        out->prompt_tokens = r.prompt_tokens;
        out->output_tokens = r.output_tokens;
        out->answer = buf_take(&r.content);
    }
    json_decref(chat);
    buf_free(&text);
    reply_free(&r);
    return st;
}

/* ---- talk ---- */

static status check_talk(void *ud, const json_t *item, err *e) {
    (void)ud;
    const json_t *expect = json_object_get(item, "expect");
    i64 length = 0;
    status st = json_get_i64(item, "length", 1, 1 << 20, true, &length, e);
    if (st != ST_OK) return st;
    bool ok =
        (json_array_size(json_object_get(item, "messages")) || json_is_string(json_object_get(item, "question"))) &&
        json_array_size(expect);
    for (size_t i = 0; ok && i < json_array_size(expect); i++) ok = json_is_string(json_array_get(expect, i));
    return ok ? ST_OK
              : err_set(e, ST_FORMAT, "not {\"question\" or \"messages\", \"expect\": [text, ...], \"length\"}");
}

/* One of the expected texts occurs, capitals aside, in an answer that the model ended itself and that has at most
 * `length` characters. */
static status ask_talk(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out, err *e) {
    (void)h;
    (void)instant;
    reply r = {0};
    json_t *messages = json_object_get(item, "messages"),
           *chat = messages ? json_pack("{s:O}", "messages", messages) : chat_of(json_object_get(item, "question"));
    const json_t *expect = json_object_get(item, "expect");
    status st = ask_chat(m, chat, ANSWER_TOKENS, &r, e);
    if (st == ST_OK) {
        i64 length = 0;
        bool found = false;
        for (const char *p = reply_text(&r); *p; p++) length += (*p & 0xc0) != 0x80;
        for (size_t i = 0; !found && i < json_array_size(expect); i++)
            found = strcasestr(reply_text(&r), json_string_value(json_array_get(expect, i)));
        out->right[0] = r.ended && found && length <= json_integer_value(json_object_get(item, "length"));
        out->prompt_tokens = r.prompt_tokens;
        out->output_tokens = r.output_tokens;
        out->answer = buf_take(&r.content);
    }
    json_decref(chat);
    reply_free(&r);
    return st;
}

/* ---- pictures ---- */

/* The line in front of the value: what the model says once it has thought. The caller frees it; NULL: there is none. */
static char *wanted_line(const json_t *item) {
    const char *all = json_string_value(json_object_get(item, "answer")), *end = all ? strstr(all, "\n#### ") : NULL,
               *begin = end;
    while (begin && begin > all && begin[-1] != '\n') begin--;
    return begin ? strndup(begin, (size_t)(end - begin)) : NULL;
}

static status check_picture(void *ud, const json_t *item, err *e) {
    (void)ud;
    char *line = wanted_line(item);
    bool ok = line && *line && json_is_string(json_object_get(item, "question")) &&
              json_is_string(json_object_get(item, "image"));
    free(line);
    return ok ? ST_OK
              : err_set(e, ST_FORMAT,
                        "not {\"image\": a data: URI, \"question\", \"answer\": \"...\\nSENTENCE\\n#### VALUE\"}");
}

/* The answer behind the reasoning is the wanted sentence, ended by the model. */
static status ask_picture(const haystack *h, const json_t *item, bool instant, moon_engine *m, nano_result *out,
                          err *e) {
    (void)h;
    (void)instant;
    enum { PICTURE_TOKENS = 200 };
    reply r = {0};
    char *want = wanted_line(item);
    json_t *chat = json_pack("{s:[{s:s, s:[{s:s, s:{s:O}}, {s:s, s:O}]}]}", "messages", "role", "user", "content",
                             "type", "image_url", "image_url", "url", json_object_get(item, "image"), "type", "text",
                             "text", json_object_get(item, "question"));
    status st = want ? ask_chat(m, chat, PICTURE_TOKENS, &r, e) : err_nomem(e, "an answer", 0);
    if (st == ST_OK) {
        out->right[0] = r.ended && r.content.len && !strcmp(reply_text(&r), want);
        out->prompt_tokens = r.prompt_tokens;
        out->output_tokens = r.output_tokens;
        out->answer = buf_take(&r.content);
    }
    free(want);
    json_decref(chat);
    reply_free(&r);
    return st;
}

/* ---- the table's rows ---- */

#define QUESTIONS(set, mode, is_instant)                                                                               \
    {                                                                                                                  \
        .name = set, .file = set ".jsonl", .rows = {set " " mode}, .instant = is_instant, .check = check_question,     \
        .ask = ask_question                                                                                            \
    }

const nano_pass nano_passes[] = {
    QUESTIONS("wordproblems", "thinking", false),
    QUESTIONS("wordproblems", "instant", true),
    QUESTIONS("handwritten", "thinking", false),
    QUESTIONS("handwritten", "instant", true),
    QUESTIONS("arithmetic", "thinking", false),
    QUESTIONS("arithmetic", "instant", true),
    {.name = "tools",
     .file = "tools.jsonl",
     .rows = {"tools well-formed", "tools call", "tools answer"},
     .check = check_tools,
     .ask = ask_tools},
    {.name = "needles",
     .file = "needles.jsonl",
     .rows = {"needles 16k"},
     .needs_haystack = true,
     .check = check_needle,
     .ask = ask_needle},
    {.name = "talk", .file = "talk.jsonl", .rows = {"talk"}, .check = check_talk, .ask = ask_talk},
    {.name = "pictures", .file = "pictures.jsonl", .rows = {"pictures"}, .check = check_picture, .ask = ask_picture},
    {.name = "draft", .rows = {"draft acceptance length"}},
};
const i64 nano_n_passes = COUNT_OF(nano_passes);
