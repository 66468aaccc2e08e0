/* cmd/text/text_chat.c: `moonlet text render` and `moonlet text parse`.
 *
 * render {"messages", "tools", "chat_template_kwargs", "add_generation_prompt": bool (default true)} ->
 *        {"text", "ids"}
 * parse  {"text" or "ids", "tools", "tool_choice", "reasoning": bool (the prompt ended inside <think>)} ->
 *        {"reasoning_content", "content", "tool_calls"} */
#include "cmd/text/text.h"
#include "base/file.h"
#include "base/log.h"
#include "text/chat.h"
#include "text/parse.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    tokenizer *tok;
    chat_template kind;
} render_state;

static status answer_render(void *ud, const json_t *line, buf *out, err *e) {
    static const char *const known[] = {"messages", "tools", "chat_template_kwargs", "add_generation_prompt", NULL};
    const render_state *s = ud;
    chat_prompt p = {0};
    chat_request r = {.messages = json_object_get(line, "messages"),
                      .tools = json_object_get(line, "tools"),
                      .kwargs = json_object_get(line, "chat_template_kwargs"),
                      .add_generation_prompt = true};
    status st = text_known_keys(line, known, e);
    if (st == ST_OK) st = json_get_bool(line, "add_generation_prompt", false, &r.add_generation_prompt, e);
    if (st == ST_OK) st = chat_render(s->kind, s->tok, &r, &p, e);
    if (st == ST_OK) {
        if (p.tools_json.code != ST_OK) log_note("tools are declared in JSON, not TypeScript: %s", p.tools_json.text);
        buf_str(out, "{\"text\": ");
        buf_json_str(out, p.text.data, p.text.len);
        buf_str(out, ", \"ids\": ");
        text_write_ids(out, &p.ids);
        buf_char(out, '}');
    }
    chat_prompt_free(&p);
    return st;
}

/* model_type of the folder's config.json into out[cap]; "" when there is no such file. */
static status read_model_type(const char *dir, char *out, size_t cap, err *e) {
    char path[4096];
    buf text = {0};
    const char *type = "";
    *out = 0;
    status st = path_join(path, sizeof path, dir, "config.json", e);
    if (st != ST_OK || !file_exists(path)) return st;
    st = file_read(path, 16 << 20, &text, e);
    json_t *v = st == ST_OK ? json_parse(text.data ? text.data : "", text.len, path, e) : NULL;
    if (st == ST_OK && !v) st = ST_FORMAT;
    if (st == ST_OK) st = json_get_str(v, "model_type", false, &type, e);
    if (st == ST_OK) snprintf(out, cap, "%s", type);
    json_decref(v);
    buf_free(&text);
    return st;
}

static status text_choose_template(render_state *s, const char *dir, const char *name, err *e) {
    char type[64];
    const char *why;
    if (name) return chat_template_parse(&s->kind, name, e);
    status st = read_model_type(dir, type, sizeof type, e);
    if (st != ST_OK) return st;
    s->kind = chat_template_of(dir, type, s->tok, &why);
    log_note("chat template %s: %s", chat_template_name(s->kind), why);
    return ST_OK;
}

int cmd_text_render(int argc, char **argv) {
    const char *dir = NULL, *name = NULL;
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &dir, "DIR", "folder with tokenizer and config.json (default: nano)", 0, 0},
        {"template", 't', OPT_ENUM, &name,
         "k2-instruct-0711|k2-instruct-0905|k2-instruct-r3|k2-thinking|k2.5|k2.6|k2.7-code",
         "chat template (default: the one the model's folder asks for)", 0, 0},
    };
    int rc = cmd_options("text render",
                         "[-m DIR] [--template NAME] < LINES > LINES\n\n"
                         "in   {\"messages\", \"tools\", \"chat_template_kwargs\": as in the OpenAI API,\n"
                         "      \"add_generation_prompt\": bool (default: true)}\n"
                         "out  {\"text\": the prompt, \"ids\": [...]}\n",
                         specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    render_state s = {0};
    err e = {0};
    i64 n_failed = 0;
    status st = text_open(&dir, &s.tok, &e);
    if (st == ST_OK) st = text_choose_template(&s, dir, name, &e);
    if (st == ST_OK) st = jsonl_run(stdin, "line", answer_render, &s, &n_failed, &e);
    tokenizer_close(s.tok);
    if (st != ST_OK) return cmd_fail("text render", &e);
    return n_failed ? EXIT_FAULT : EXIT_DONE;
}

/* The events joined into one message; `calls` is the inside of the JSON list. */
typedef struct {
    buf reasoning, content, calls, arguments;
} joined;

static status join(void *ud, const parse_event *ev, err *e) {
    (void)e;
    joined *j = ud;
    switch (ev->kind) {
    case PARSE_REASONING: buf_add(&j->reasoning, ev->text, ev->len); break;
    case PARSE_CONTENT: buf_add(&j->content, ev->text, ev->len); break;
    case PARSE_CALL_BEGIN: buf_clear(&j->arguments); break;
    case PARSE_CALL_ARGS: buf_add(&j->arguments, ev->text, ev->len); break;
    case PARSE_CALL_END:
        buf_str(&j->calls, j->calls.len ? ", {\"id\": " : "{\"id\": ");
        buf_json_str(&j->calls, ev->id, strlen(ev->id));
        buf_str(&j->calls, ", \"type\": \"function\", \"function\": {\"name\": ");
        buf_json_str(&j->calls, ev->name, strlen(ev->name));
        buf_str(&j->calls, ", \"arguments\": ");
        buf_json_str(&j->calls, j->arguments.data, j->arguments.len);
        buf_str(&j->calls, "}}");
        break;
    }
    if (j->arguments.failed) j->calls.failed = true;
    return ST_OK;
}

static status parse_request(const json_t *line, parse_options *o, err *e) {
    static const char *const known[] = {"text", "ids", "tools", "tool_choice", "reasoning", NULL};
    const json_t *choice = json_object_get(line, "tool_choice");
    const char *word = json_string_value(choice);
    status st = text_known_keys(line, known, e);
    if (st == ST_OK) st = json_get_bool(line, "reasoning", false, &o->in_think, e);
    if (st != ST_OK) return st;
    o->tools = json_object_get(line, "tools");
    if (json_is_null(o->tools)) o->tools = NULL;
    if (o->tools && !json_is_array(o->tools)) return err_set(e, ST_INPUT, "\"tools\" is not an array");
    if (choice && !json_is_null(choice) && !json_is_object(choice) &&
        (!word || (strcmp(word, "none") && strcmp(word, "auto") && strcmp(word, "required"))))
        return err_set(e, ST_INPUT, "\"tool_choice\" is not none, auto, required or an object");
    o->no_calls = word && !strcmp(word, "none");
    return ST_OK;
}

static status parse_output(parser *p, const json_t *line, err *e) {
    const json_t *text = json_object_get(line, "text");
    ids_buf ids = {0};
    status st = ST_OK;
    if (!text == !json_object_get(line, "ids"))
        return err_set(e, ST_INPUT, "exactly one of \"text\" and \"ids\" is needed");
    if (text && !json_is_string(text)) return err_set(e, ST_INPUT, "\"text\" is not a string");
    if (text)
        st = parse_add_text(p, json_string_value(text), json_string_length(text), e);
    else
        st = text_input_ids(line, &ids, e);
    for (size_t i = 0; st == ST_OK && i < ids.len; i++) st = parse_add(p, ids.data[i], e);
    ids_free(&ids);
    return st == ST_OK ? parse_end(p, e) : st;
}

static status answer_parse(void *ud, const json_t *line, buf *out, err *e) {
    parse_options o = {0};
    parser *p = NULL;
    joined j = {0};
    status st = parse_request(line, &o, e);
    if (st == ST_OK) st = parser_open(&p, ud, &o, join, &j, e);
    if (st == ST_OK) st = parse_output(p, line, e);
    if (st == ST_OK && (j.reasoning.failed || j.content.failed || j.calls.failed))
        st = err_nomem(e, "answer", j.content.len);
    if (st == ST_OK) {
        buf_str(out, "{\"reasoning_content\": ");
        buf_json_str(out, j.reasoning.data, j.reasoning.len);
        buf_str(out, ", \"content\": ");
        buf_json_str(out, j.content.data, j.content.len);
        buf_str(out, ", \"tool_calls\": [");
        buf_add(out, j.calls.data, j.calls.len);
        buf_str(out, "]}");
    }
    parser_close(p);
    buf_free(&j.reasoning);
    buf_free(&j.content);
    buf_free(&j.calls);
    buf_free(&j.arguments);
    return st;
}

int cmd_text_parse(int argc, char **argv) {
    const char *dir = NULL;
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &dir, "DIR", "folder with tiktoken.model and tokenizer_config.json (default: nano)", 0,
         0},
    };
    int rc =
        cmd_options("text parse",
                    "[-m DIR] < LINES > LINES\n\n"
                    "in   {\"text\" or \"ids\": the model's output, \"tools\", \"tool_choice\": as in the OpenAI API,\n"
                    "      \"reasoning\": bool (the prompt ended inside <think>; default: false)}\n"
                    "out  {\"reasoning_content\", \"content\", \"tool_calls\"}\n",
                    specs, COUNT_OF(specs), argc, argv, NULL);
    return rc >= 0 ? rc : text_run("text parse", dir, answer_parse);
}
