#include "text/chat.h"
#include "base/file.h"
#include "text/chat_parts.h"
#include "text/pyjson.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[CHAT_TEMPLATES] = {
    [CHAT_K2_INSTRUCT_0711] = "k2-instruct-0711",
    [CHAT_K2_INSTRUCT_0905] = "k2-instruct-0905",
    [CHAT_K2_INSTRUCT_R3] = "k2-instruct-r3",
    [CHAT_K2_THINKING] = "k2-thinking",
    [CHAT_K2_5] = "k2.5",
};

const char *chat_template_name(chat_template t) { return (unsigned)t < CHAT_TEMPLATES ? names[t] : "?"; }

status chat_template_parse(chat_template *out, const char *name, err *e) {
    for (int i = 0; i < CHAT_TEMPLATES; i++)
        if (!strcmp(name, names[i])) {
            *out = (chat_template)i;
            return ST_OK;
        }
    return err_set(
        e, ST_INPUT,
        "no chat template \"%s\" (k2-instruct-0711, k2-instruct-0905, k2-instruct-r3, k2-thinking, k2.5)",
        name);
}

/* What a template file shows about itself; false when it shows nothing known. */
static bool recognise(const char *jinja, chat_template *out, const char **why) {
    if (strstr(jinja, "<think>")) {
        bool k25 = strstr(jinja, "tools_ts_str") || strstr(jinja, "<|media_begin|>");
        *out = k25 ? CHAT_K2_5 : CHAT_K2_THINKING;
        *why = k25 ? "chat_template.jinja has the TypeScript tools or media tokens of K2.5"
                   : "chat_template.jinja writes <think>";
        return true;
    }
    if (!strstr(jinja, "<|im_middle|>")) return false;
    if (strstr(jinja, "You are a helpful assistant")) {
        *out = CHAT_K2_INSTRUCT_0711;
        *why = "chat_template.jinja has the default system text of July 2025";
        return true;
    }
    if (!strstr(jinja, "You are Kimi")) return false;
    bool r2 = strstr(jinja, "# Tools") != NULL;
    *out = r2 ? CHAT_K2_INSTRUCT_0905 : CHAT_K2_INSTRUCT_R3;
    *why = r2 ? "chat_template.jinja heads its tools with \"# Tools\""
              : "chat_template.jinja names Kimi and has no \"# Tools\"";
    return true;
}

chat_template chat_template_of(const char *dir, const char *model_type, const tokenizer *t,
                               const char **why) {
    char path[4096];
    chat_template kind;
    bool known = false;
    buf jinja = {0};
    if (model_type && !strcmp(model_type, "kimi_k25")) {
        *why = "model_type is kimi_k25";
        return CHAT_K2_5;
    }
    bool unknown_file =
        dir && path_join(path, sizeof path, dir, "chat_template.jinja", NULL) == ST_OK && file_exists(path);
    if (unknown_file && file_read(path, 4 << 20, &jinja, NULL) == ST_OK && jinja.data)
        known = recognise(jinja.data, &kind, why);
    buf_free(&jinja);
    if (known) return kind;
    if (t && tokenizer_special(t, "<think>") >= 0) {
        *why = unknown_file ? "chat_template.jinja is none we know, and <think> is a token"
                            : "no chat_template.jinja, and <think> is a token";
        return CHAT_K2_THINKING;
    }
    *why = unknown_file ? "chat_template.jinja is none we know, and <think> is no token"
                        : "no chat_template.jinja, and <think> is no token";
    return CHAT_K2_INSTRUCT_0905;
}

void chat_prompt_free(chat_prompt *p) {
    buf_free(&p->text);
    ids_free(&p->ids);
    memset(p, 0, sizeof *p);
}

static status read_tools(const json_t *tools, const json_t **out, err *e) {
    size_t i;
    json_t *tool;
    *out = NULL;
    if (!tools || json_is_null(tools)) return ST_OK;
    if (!json_is_array(tools)) return err_set(e, ST_INPUT, "tools: expected an array");
    json_array_foreach(tools, i, tool) if (!json_is_object(tool)) return err_set(
        e, ST_INPUT, "tools[%zu]: expected an object", i);
    if (json_array_size(tools)) *out = tools;
    return ST_OK;
}

status chat_render(chat_template t, const tokenizer *tok, const chat_request *r, chat_prompt *out, err *e) {
    chat_input in = {.add_generation_prompt = r->add_generation_prompt};
    chat_message *messages;
    status st = chat_messages_read(r->messages, &messages, &in.n, e);
    if (st != ST_OK) return st;
    in.messages = messages;
    st = read_tools(r->tools, &in.tools, e);
    if (st == ST_OK && r->kwargs && !json_is_null(r->kwargs) && !json_is_object(r->kwargs))
        st = err_set(e, ST_INPUT, "chat_template_kwargs: expected an object");
    in.thinking = !json_is_false(json_object_get(r->kwargs, "thinking"));
    if (st == ST_OK) {
        chat_writer w = {.kind = t, .tok = tok, .text = &out->text, .ids = &out->ids, .e = e};
        out->text.max = r->max_text;
        out->ids.max = r->max_ids;
        if (t == CHAT_K2_THINKING || t == CHAT_K2_5)
            chat_render_k25(&w, &in, out);
        else
            chat_render_k2(&w, &in);
        st = chat_finish(&w);
    }
    free(messages);
    return st;
}
