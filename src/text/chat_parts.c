#include "text/chat_parts.h"
#include "text/pyjson.h"
#include <stdlib.h>
#include <string.h>

static chat_str str_of(const json_t *v) {
    return (chat_str){json_is_string(v) ? json_string_value(v) : "", json_string_length(v)};
}

static bool is(chat_str s, const char *word) { return s.len == strlen(word) && !memcmp(s.s, word, s.len); }

/* The string under key; missing and null give "". */
static status get_str(const json_t *o, const char *key, size_t at, chat_str *out, err *e) {
    const json_t *v = json_object_get(o, key);
    *out = str_of(v);
    if (!v || json_is_null(v) || json_is_string(v)) return ST_OK;
    return err_set(e, ST_INPUT, "messages[%zu].%s: expected a string, got %s", at, key, json_type_text(v));
}

static status read_content(const json_t *message, size_t at, chat_message *m, err *e) {
    const json_t *v = json_object_get(message, "content");
    size_t i;
    json_t *part;
    m->content = NULL;
    if (!v || json_is_null(v)) return ST_OK;
    if (!json_is_string(v) && !json_is_array(v))
        return err_set(e, ST_INPUT, "messages[%zu].content: expected a string, null or an array of parts, got %s", at,
                       json_type_text(v));
    json_array_foreach(v, i, part) {
        const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
        if (!json_is_object(part))
            return err_set(e, ST_INPUT, "messages[%zu].content[%zu]: expected an object, got %s", at, i,
                           json_type_text(part));
        if (type && !json_is_string(type))
            return err_set(e, ST_INPUT, "messages[%zu].content[%zu].type: expected a string, got %s", at, i,
                           json_type_text(type));
        if (text && !json_is_string(text) && !json_is_null(text))
            return err_set(e, ST_INPUT, "messages[%zu].content[%zu].text: expected a string, got %s", at, i,
                           json_type_text(text));
    }
    m->content = v;
    return ST_OK;
}

static status read_call(const json_t *call, size_t at, size_t i, err *e) {
    const json_t *id = json_object_get(call, "id"), *function = json_object_get(call, "function");
    const json_t *name = json_object_get(function, "name");
    if (!json_is_object(call))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls[%zu]: expected an object, got %s", at, i,
                       json_type_text(call));
    if (id && !json_is_string(id) && !json_is_null(id))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls[%zu].id: expected a string, got %s", at, i,
                       json_type_text(id));
    if (!json_is_object(function))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls[%zu].function: expected an object, got %s", at, i,
                       json_type_text(function));
    if (name && !json_is_string(name))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls[%zu].function.name: expected a string, got %s", at, i,
                       json_type_text(name));
    if (!json_object_get(function, "arguments"))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls[%zu].function.arguments: missing", at, i);
    return ST_OK;
}

static status read_calls(const json_t *message, size_t at, chat_message *m, err *e) {
    const json_t *v = json_object_get(message, "tool_calls");
    size_t i;
    json_t *call;
    m->calls = NULL;
    if (!v || json_is_null(v)) return ST_OK;
    if (!json_is_array(v))
        return err_set(e, ST_INPUT, "messages[%zu].tool_calls: expected an array, got %s", at, json_type_text(v));
    json_array_foreach(v, i, call) {
        status st = read_call(call, at, i, e);
        if (st != ST_OK) return st;
    }
    if (json_array_size(v)) m->calls = v;
    return ST_OK;
}

static status chat_read_message(const json_t *v, size_t at, chat_message *m, err *e) {
    status st;
    if (!json_is_object(v))
        return err_set(e, ST_INPUT, "messages[%zu]: expected an object, got %s", at, json_type_text(v));
    const json_t *role = json_object_get(v, "role");
    m->role = str_of(role);
    if (!json_is_string(role))
        return err_set(e, ST_INPUT, "messages[%zu].role: expected a string, got %s", at, json_type_text(role));
    if (!m->role.len) return err_set(e, ST_INPUT, "messages[%zu].role: empty", at);
    m->user = is(m->role, "user");
    m->assistant = is(m->role, "assistant");
    m->tool = is(m->role, "tool");
    m->system = is(m->role, "system");
    if ((st = get_str(v, "name", at, &m->name, e)) != ST_OK) return st;
    if ((st = get_str(v, "tool_call_id", at, &m->call_id, e)) != ST_OK) return st;
    if ((st = get_str(v, "reasoning_content", at, &m->reasoning, e)) != ST_OK) return st;
    if (!m->name.len) m->name = m->role;
    if ((st = read_content(v, at, m, e)) != ST_OK) return st;
    return read_calls(v, at, m, e);
}

status chat_messages_read(const json_t *messages, chat_message **out, size_t *n, err *e) {
    *out = NULL;
    *n = json_array_size(messages);
    if (!json_is_array(messages))
        return err_set(e, ST_INPUT, "messages: expected an array, got %s", json_type_text(messages));
    chat_message *list = calloc(*n ? *n : 1, sizeof *list);
    if (!list) return err_nomem(e, "messages", *n * sizeof *list);
    for (size_t i = 0; i < *n; i++) {
        status st = chat_read_message(json_array_get(messages, i), i, &list[i], e);
        if (st != ST_OK) {
            free(list);
            return st;
        }
    }
    *out = list;
    return ST_OK;
}

/* Text and ids have a limit: whoever writes on finds it out at the next control token. */
static bool stopped(chat_writer *w) {
    if (w->st != ST_OK || (!w->text->failed && !w->ids->failed)) return w->st != ST_OK;
    if (w->text->full || w->ids->full)
        w->st = err_set(w->e, ST_LIMIT, "the prompt has more than %zu %s", w->text->full ? w->text->max : w->ids->max,
                        w->text->full ? "bytes" : "tokens");
    else
        w->st = err_nomem(w->e, "prompt", w->text->len);
    return true;
}

static void encode_run(chat_writer *w) {
    size_t n = w->text->len - w->encoded;
    if (stopped(w) || !w->tok || !n) return;
    w->st = tokenizer_encode(w->tok, w->text->data + w->encoded, n, false, w->ids, w->e);
    w->encoded = w->text->len;
}

void chat_bytes(chat_writer *w, chat_str s) {
    if (w->st == ST_OK) buf_add(w->text, s.s, s.len);
}

void chat_text(chat_writer *w, const char *s) { chat_bytes(w, (chat_str){s, strlen(s)}); }

void chat_control(chat_writer *w, const char *name) {
    encode_run(w);
    chat_text(w, name);
    w->encoded = w->text->len;
    if (w->st != ST_OK || !w->tok) return;
    i32 id = tokenizer_special(w->tok, name);
    if (id >= 0)
        ids_add(w->ids, id);
    else
        w->st = err_set(w->e, ST_UNSUPPORTED, "template %s needs the control token %s, which the tokenizer lacks",
                        chat_template_name(w->kind), name);
}

void chat_json(chat_writer *w, const json_t *v, const char *comma, const char *colon) {
    if (w->st == ST_OK) py_dumps(w->text, v, comma, colon);
}

status chat_finish(chat_writer *w) {
    encode_run(w);
    stopped(w);
    return w->st;
}

void chat_frame(chat_writer *w, const chat_message *m) {
    chat_control(w, m->user ? "<|im_user|>" : m->assistant ? "<|im_assistant|>" : "<|im_system|>");
    chat_bytes(w, m->name);
    chat_control(w, "<|im_middle|>");
}

static bool is_image(chat_template t, const json_t *part, chat_str type) {
    if (is(type, "image")) return true;
    if (t >= CHAT_K2_5) return is(type, "image_url");
    return json_object_get(part, "image") || json_object_get(part, "image_url");
}

/* K2.5 and the later text templates end a picture with a newline, the first one does not. The text models
 * write <|media_start|>, a token that no published vocabulary has: pictures fail there when ids are asked
 * for.
 */
static void media(chat_writer *w, const char *kind) {
    chat_control(w, w->kind >= CHAT_K2_5 ? "<|media_begin|>" : "<|media_start|>");
    chat_text(w, kind);
    chat_control(w, "<|media_content|>");
    chat_control(w, "<|media_pad|>");
    chat_control(w, "<|media_end|>");
}

static void image(chat_writer *w) {
    media(w, "image");
    if (w->kind != CHAT_K2_INSTRUCT_0711) chat_text(w, "\n");
}

/* The template's placeholder is text, which K2.5's processor replaces before it tokenises: by each piece behind its
 * time. */
static void video(chat_writer *w, size_t at, size_t i) {
    if (w->n_videos) {
        const chat_video *v = w->videos++;
        w->n_videos--;
        for (size_t k = 0; k < v->n; k++) chat_text(w, v->stamps[k]), media(w, "video");
    } else if (w->tok) {
        w->st = err_set(w->e, ST_INPUT,
                        "messages[%zu].content[%zu]: a video that was not read would stay a placeholder, "
                        "<|kimi_k25_video_placeholder|>",
                        at, i);
    } else {
        chat_text(w, "<|kimi_k25_video_placeholder|>");
    }
    chat_text(w, "\n");
}

static void chat_part(chat_writer *w, const json_t *p, size_t at, size_t i) {
    chat_str type = str_of(json_object_get(p, "type"));
    if (w->st != ST_OK) return;
    if (is_image(w->kind, p, type)) {
        image(w);
    } else if (w->kind >= CHAT_K2_5 && (is(type, "video") || is(type, "video_url"))) {
        video(w, at, i);
    } else if (json_object_get(p, "text") || is(type, "text")) {
        chat_bytes(w, str_of(json_object_get(p, "text")));
    } else {
        w->st = err_set(w->e, ST_INPUT, "messages[%zu].content[%zu].type: template %s has no part \"%.40s\"", at, i,
                        chat_template_name(w->kind), type.s);
    }
}

void chat_content(chat_writer *w, const chat_message *m, size_t at) {
    size_t i;
    json_t *p;
    if (json_is_string(m->content)) chat_bytes(w, str_of(m->content));
    if (json_is_array(m->content)) json_array_foreach(m->content, i, p) chat_part(w, p, at, i);
}

void chat_tool_calls(chat_writer *w, const chat_message *m) {
    size_t i;
    json_t *call;
    if (!m->calls) return;
    chat_control(w, "<|tool_calls_section_begin|>");
    json_array_foreach(m->calls, i, call) {
        const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
        chat_control(w, "<|tool_call_begin|>");
        chat_bytes(w, str_of(json_object_get(call, "id")));
        chat_control(w, "<|tool_call_argument_begin|>");
        if (json_is_string(arguments))
            chat_bytes(w, str_of(arguments));
        else
            chat_json(w, arguments, ", ", ": ");
        chat_control(w, "<|tool_call_end|>");
    }
    chat_control(w, "<|tool_calls_section_end|>");
}

void chat_declare_tools(chat_writer *w, const char *before) {
    chat_control(w, "<|im_system|>");
    chat_text(w, "tool_declare");
    chat_control(w, "<|im_middle|>");
    chat_text(w, before);
}

void chat_default_system(chat_writer *w, const char *text) {
    chat_control(w, "<|im_system|>");
    chat_text(w, "system");
    chat_control(w, "<|im_middle|>");
    chat_text(w, text);
    chat_control(w, "<|im_end|>");
}
