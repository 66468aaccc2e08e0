#include "text/chat.h"
#include "base/file.h"
#include "text/chat_parts.h"
#include "text/pyjson.h"
#include <stdlib.h>
#include <string.h>

static const char *const chat_names[CHAT_TEMPLATES] = {
    [CHAT_K2_INSTRUCT_0711] = "k2-instruct-0711",
    [CHAT_K2_INSTRUCT_0905] = "k2-instruct-0905",
    [CHAT_K2_INSTRUCT_R3] = "k2-instruct-r3",
    [CHAT_K2_THINKING] = "k2-thinking",
    [CHAT_K2_5] = "k2.5",
    [CHAT_K2_6] = "k2.6",
    [CHAT_K2_7_CODE] = "k2.7-code",
};

const char *chat_template_name(chat_template t) { return (unsigned)t < CHAT_TEMPLATES ? chat_names[t] : "?"; }

status chat_template_parse(chat_template *out, const char *name, err *e) {
    for (int i = 0; i < CHAT_TEMPLATES; i++)
        if (!strcmp(name, chat_names[i])) {
            *out = (chat_template)i;
            return ST_OK;
        }
    return err_set(
        e, ST_INPUT,
        "no chat template \"%s\" (k2-instruct-0711, k2-instruct-0905, k2-instruct-r3, k2-thinking, k2.5, k2.6, "
        "k2.7-code)",
        name);
}

bool chat_template_model_opens_think(chat_template t) { return t == CHAT_K2_THINKING; }
bool chat_template_always_thinks(chat_template t) { return t == CHAT_K2_7_CODE; }

/* A file of the model's folder without its white space, as a string; empty when it cannot be read. Is it there? */
static bool read_squeezed(buf *out, const char *dir, const char *name) {
    char path[4096];
    buf text = {0};
    bool there = dir && path_join(path, sizeof path, dir, name, NULL) == ST_OK && file_exists(path);
    if (there) file_read(path, 4 << 20, &text, NULL);
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] && !strchr(" \t\r\n", text.data[i])) buf_char(out, text.data[i]);
    buf_char(out, 0);
    buf_free(&text);
    return there;
}

static bool has_one(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i])) return true;
    return false;
}

/* A template of K2.5's kind: which release? */
static chat_template release_of(const char *jinja, const char *dir, const char **why) {
    static const char *const on[] = {"setpreserve_thinking=true", "preserve_thinking|default(true",
                                     "preserve_thinkingisnotdefinedor", "preserve_thinkingisundefinedor"};
    static const char *const wrapper_on[] = {"preserve_thinking=True", "preserve_thinking:bool=True",
                                             "preserve_thinking:Optional[bool]=True", "preserve_thinking\",True"};
    if (!strstr(jinja, "<think></think>") && !strstr(jinja, "thinkingis") && !strstr(jinja, "enable_thinking")) {
        *why = "chat_template.jinja cannot do without thinking";
        return CHAT_K2_7_CODE;
    }
    if (!strstr(jinja, "preserve_thinking")) {
        *why = "chat_template.jinja has TypeScript tools or K2.5's media tokens, and no preserve_thinking";
        return CHAT_K2_5;
    }
    if (has_one(jinja, on, COUNT_OF(on))) {
        *why = "chat_template.jinja has preserve_thinking on by default";
        return CHAT_K2_7_CODE;
    }
    buf wrapper = {0};
    read_squeezed(&wrapper, dir, "tokenization_kimi.py");
    bool forced = wrapper.data && has_one(wrapper.data, wrapper_on, COUNT_OF(wrapper_on));
    buf_free(&wrapper);
    *why = forced ? "tokenization_kimi.py has preserve_thinking on by default"
                  : "chat_template.jinja has preserve_thinking, off by default";
    return forced ? CHAT_K2_7_CODE : CHAT_K2_6;
}

/* What a template file shows about itself; false when it shows nothing known. */
static bool recognise(const char *jinja, const char *dir, chat_template *out, const char **why) {
    if (strstr(jinja, "<think>")) {
        bool k25 = strstr(jinja, "tools_ts_str") || strstr(jinja, "<|media_begin|>");
        *why = "chat_template.jinja writes <think>";
        *out = k25 ? release_of(jinja, dir, why) : CHAT_K2_THINKING;
        return true;
    }
    if (!strstr(jinja, "<|im_middle|>")) return false;
    if (strstr(jinja, "Youareahelpfulassistant")) {
        *out = CHAT_K2_INSTRUCT_0711;
        *why = "chat_template.jinja has the default system text of July 2025";
        return true;
    }
    if (!strstr(jinja, "YouareKimi")) return false;
    bool r2 = strstr(jinja, "#Tools") != NULL;
    *out = r2 ? CHAT_K2_INSTRUCT_0905 : CHAT_K2_INSTRUCT_R3;
    *why = r2 ? "chat_template.jinja heads its tools with \"# Tools\""
              : "chat_template.jinja names Kimi and has no \"# Tools\"";
    return true;
}

chat_template chat_template_of(const char *dir, const char *model_type, const tokenizer *t, const char **why) {
    static const char *const reasons[2][3] = {{"model_type is kimi_k25, no chat_template.jinja",
                                               "no chat_template.jinja, and <think> is a token",
                                               "no chat_template.jinja, and <think> is no token"},
                                              {"model_type is kimi_k25, chat_template.jinja is none of its kind",
                                               "chat_template.jinja is none we know, and <think> is a token",
                                               "chat_template.jinja is none we know, and <think> is no token"}};
    static const chat_template otherwise[3] = {CHAT_K2_5, CHAT_K2_THINKING, CHAT_K2_INSTRUCT_0905};
    bool k25 = model_type && !strcmp(model_type, "kimi_k25");
    chat_template kind;
    buf jinja = {0};
    bool there = read_squeezed(&jinja, dir, "chat_template.jinja");
    bool known = there && jinja.data && recognise(jinja.data, dir, &kind, why);
    buf_free(&jinja);
    if (known && (kind >= CHAT_K2_5 || !k25)) return kind;
    int i = k25 ? 0 : t && tokenizer_special(t, "<think>") >= 0 ? 1 : 2;
    *why = reasons[there][i];
    return otherwise[i];
}

void chat_prompt_free(chat_prompt *p) {
    buf_free(&p->text);
    ids_free(&p->ids);
    memset(p, 0, sizeof *p);
}

static status chat_read_tools(const json_t *tools, const json_t **out, err *e) {
    size_t i;
    json_t *tool;
    *out = NULL;
    if (!tools || json_is_null(tools)) return ST_OK;
    if (!json_is_array(tools)) return err_set(e, ST_INPUT, "tools: expected an array");
    json_array_foreach(tools, i, tool) if (!json_is_object(tool)) return err_set(e, ST_INPUT,
                                                                                 "tools[%zu]: expected an object", i);
    if (json_array_size(tools)) *out = tools;
    return ST_OK;
}

/* The arguments of the template. */
static status read_kwargs(chat_template t, const json_t *kwargs, chat_input *in, err *e) {
    const json_t *preserve = json_object_get(kwargs, "preserve_thinking");
    bool given = preserve && !json_is_null(preserve);
    if (kwargs && !json_is_null(kwargs) && !json_is_object(kwargs))
        return err_set(e, ST_INPUT, "chat_template_kwargs: expected an object");
    in->thinking = !json_is_false(json_object_get(kwargs, "thinking"));
    if (t < CHAT_K2_6) return ST_OK; /* no such argument: ignored, as Jinja does */
    if (given && !json_is_boolean(preserve))
        return err_set(e, ST_INPUT, "chat_template_kwargs.preserve_thinking: expected true or false, got %s",
                       json_type_text(preserve));
    in->preserve_thinking = json_is_true(preserve);
    if (!chat_template_always_thinks(t)) return ST_OK;
    if (!in->thinking || json_is_false(preserve))
        return err_set(e, ST_INPUT, "chat_template_kwargs.%s: template %s has it always on",
                       in->thinking ? "preserve_thinking" : "thinking", chat_template_name(t));
    in->preserve_thinking = true;
    return ST_OK;
}

status chat_render(chat_template t, const tokenizer *tok, const chat_request *r, chat_prompt *out, err *e) {
    chat_input in = {.add_generation_prompt = r->add_generation_prompt};
    chat_message *messages;
    status st = chat_messages_read(r->messages, &messages, &in.n, e);
    if (st != ST_OK) return st;
    in.messages = messages;
    st = chat_read_tools(r->tools, &in.tools, e);
    if (st == ST_OK) st = read_kwargs(t, r->kwargs, &in, e);
    if (st == ST_OK) {
        chat_writer w = {.kind = t,
                         .tok = tok,
                         .text = &out->text,
                         .ids = &out->ids,
                         .videos = r->videos,
                         .n_videos = r->n_videos,
                         .e = e};
        out->text.max = r->max_text;
        out->ids.max = r->max_ids;
        if (t >= CHAT_K2_THINKING)
            chat_render_k25(&w, &in, out);
        else
            chat_render_k2(&w, &in);
        st = chat_finish(&w);
    }
    free(messages);
    return st;
}
