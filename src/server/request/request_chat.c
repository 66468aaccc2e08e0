/* server/request/request_chat.c: /v1/chat/completions: messages, tools and thinking to one prompt. */
#include "base/log.h"
#include "base/json_size.h"
#include "server/request/request_fields.h"
#include <string.h>

/* ---- Thinking: many spellings, one boolean; the first that is given wins. ---- */

static bool effort_thinks(const json_t *v, bool *out, api_error *e, const char *field) {
    if (!json_is_string(v) && !json_is_number(v))
        return api_fail(e, 400, NULL, field, "%s: expected a string, got %s", field, json_type_text(v));
    *out = !json_is_string(v) || strcmp(json_string_value(v), "none");
    return true;
}

/* thinking.keep, as Moonshot's own API spells preserve_thinking. */
static bool read_keep(const json_t *thinking, bool *preserve, api_error *e) {
    const char *keep = NULL;
    if (!thinking || !field_given(thinking, "keep")) return true;
    if (!field_str(thinking, "keep", &keep, e)) return false;
    if (strcmp(keep, "all"))
        return api_fail(e, 400, NULL, "thinking", "thinking.keep: \"%.40s\" is not known, only \"all\"", keep);
    return *preserve = true;
}

static bool from_fields(const json_t *body, bool *out, bool *preserve, api_error *e) {
    const json_t *thinking, *reasoning;
    const char *type = NULL;
    if (!field_object(body, "thinking", &thinking, e) || !field_object(body, "reasoning", &reasoning, e)) return false;
    if (thinking && !field_str(thinking, "type", &type, e)) return false;
    if (!read_keep(thinking, preserve, e)) return false;
    if (type && strcmp(type, "enabled") && strcmp(type, "disabled"))
        return api_fail(e, 400, NULL, "thinking", "thinking.type: \"%.40s\" is neither enabled nor disabled", type);
    if (type) return *out = !strcmp(type, "enabled"), true;
    if (reasoning && field_given(reasoning, "enabled")) return field_bool(reasoning, "enabled", out, e);
    if (reasoning && field_given(reasoning, "effort"))
        return effort_thinks(json_object_get(reasoning, "effort"), out, e, "reasoning");
    if (field_given(body, "reasoning_effort"))
        return effort_thinks(json_object_get(body, "reasoning_effort"), out, e, "reasoning_effort");
    return true;
}

json_t *request_thinking(const json_t *body, chat_template t, bool *thinking, api_error *e) {
    const json_t *kwargs;
    bool always = chat_template_always_thinks(t), preserve = always;
    *thinking = true;
    if (!field_object(body, "chat_template_kwargs", &kwargs, e) || !from_fields(body, thinking, &preserve, e))
        return NULL;
    if (kwargs &&
        (!field_bool(kwargs, "enable_thinking", thinking, e) || !field_bool(kwargs, "thinking", thinking, e) ||
         !field_bool(kwargs, "preserve_thinking", &preserve, e)))
        return NULL;
    if (always && (!*thinking || !preserve)) {
        api_fail(e, 400, "unsupported", *thinking ? "preserve_thinking" : "thinking",
                 "%s: this model (template %s) has it always on", *thinking ? "preserve_thinking" : "thinking",
                 chat_template_name(t));
        return NULL;
    }
    json_t *out = json_pack("{s:b, s:b}", "thinking", *thinking, "preserve_thinking", preserve);
    if (!out) api_nomem(e);
    return out;
}

/* ---- Tools ---- */

static bool read_tool(const json_t *tool, size_t at, const json_t *seen, api_error *e) {
    const json_t *function = json_object_get(tool, "function");
    const char *type = json_string_value(json_object_get(tool, "type"));
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!json_is_object(tool) || (type && strcmp(type, "function")) || !json_is_object(function))
        return api_fail(e, 400, NULL, "tools", "tools[%zu]: expected {\"type\": \"function\", \"function\": {...}}",
                        at);
    if (!name || !*name || strlen(name) > 256)
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.name: expected a string of 1 to 256 bytes", at);
    if (json_object_get(seen, name))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.name: \"%.80s\" is there twice", at, name);
    const json_t *parameters = json_object_get(function, "parameters");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.parameters: expected an object, got %s", at,
                        json_type_text(parameters));
    if (json_is_true(json_object_get(function, "strict")))
        return api_fail(e, 400, "unsupported", "tools",
                        "tools[%zu].function.strict: true is not supported by this version", at);
    return true;
}

static bool request_chat_read_tools(gen_request *r, api_error *e) {
    if (!field_array(r->body, "tools", TOOLS_MAX, &r->tools, e)) return false;
    json_t *seen = json_object(), *tool;
    size_t i;
    bool ok = seen || api_nomem(e);
    if (ok) json_array_foreach(r->tools, i, tool) {
            ok = read_tool(tool, i, seen, e);
            if (!ok) break;
            json_object_set_new(seen, json_string_value(json_object_get(json_object_get(tool, "function"), "name")),
                                json_true());
        }
    json_decref(seen);
    if (ok && !json_array_size(r->tools)) r->tools = NULL;
    return ok;
}

static bool request_chat_read_tool_choice(gen_request *r, bool *none, api_error *e) {
    const json_t *choice = json_object_get(r->body, "tool_choice");
    const char *word = json_string_value(choice);
    *none = false;
    if (!choice || json_is_null(choice) || (word && !strcmp(word, "auto"))) return true;
    if (word && !strcmp(word, "none")) return *none = true;
    if (word && !strcmp(word, "required") && !r->tools)
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice: \"required\" needs tools");
    if ((word && !strcmp(word, "required")) || json_is_object(choice))
        return api_fail(e, 400, "unsupported", "tool_choice",
                        "tool_choice: %s is not supported by this version, only \"auto\" and \"none\"",
                        word ? "\"required\"" : "a named tool");
    return api_fail(e, 400, NULL, "tool_choice", "tool_choice: expected \"auto\", \"none\", \"required\" or a tool");
}

/* ---- The prompt ---- */

/* The last message goes on: its end marker is taken off again. */
static bool open_last(ids_buf *ids, const served_model *m, const json_t *messages, api_error *e) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *who = json_string_value(json_object_get(last, "role"));
    i32 end = tokenizer_special(m->tok, "<|im_end|>");
    if (!who || strcmp(who, "assistant") || field_given(last, "tool_calls"))
        return api_fail(e, 400, NULL, "continue_final_message",
                        "continue_final_message: the last message is not the assistant's text");
    if (ids->len && ids->data[ids->len - 1] == end) ids->len--;
    return true;
}

static bool hold(gen_request *r, u64 more, api_error *e) {
    if (!r->hold || r->hold(r->hold_ud, more)) return true;
    api_fail(e, 503, NULL, NULL, "the memory for requests is used up (--max-body-memory)");
    e->retry_after = 1;
    return false;
}

/* A token stands for so many bytes of text at most that a longer text cannot fit, however it is cut. Up to RENDER_FREE
 * bytes of text are written as they are; beyond, memory for the longest possible prompt is asked for first. Tools are
 * copied to be sorted. */
static bool render(gen_request *r, const served_model *m, chat_request *q, chat_prompt *p, api_error *e) {
    enum { RENDER_FREE = 1 << 20 };
    u64 most;
    err why = {0};
    if (!hold(r, json_memory(q->tools), e)) return false;
    q->max_ids = request_max_ids(r, m);
    if (!mul_size(q->max_ids, tokenizer_longest(m->tok), &most)) most = INT64_MAX;
    q->max_text = most < RENDER_FREE ? most : RENDER_FREE;
    status st = chat_render(m->template, m->tok, q, p, &why);
    if (st == ST_LIMIT && p->text.full && q->max_text < most) {
        chat_prompt_free(p);
        if (!hold(r, most, e)) return false;
        q->max_text = most;
        st = chat_render(m->template, m->tok, q, p, &why);
    }
    if (st == ST_LIMIT) return request_too_long(r, m, "messages", e);
    return st == ST_OK ? true : api_fail_status(e, st, "messages", &why);
}

bool request_render(gen_request *r, const served_model *m, api_error *e) {
    const json_t *messages = json_object_get(r->body, "messages");
    bool thinking, none;
    r->prompt_field = "messages";
    if (!field_array(r->body, "messages", SIZE_MAX, &messages, e)) return false;
    if (!json_array_size(messages)) return api_fail(e, 400, NULL, "messages", "messages: cannot be empty");
    bool ok = request_chat_read_tools(r, e) && request_chat_read_tool_choice(r, &none, e) &&
              normalize_messages((json_t *)messages, &r->history_calls, e) &&
              request_read_fields(r, m, r->body, IN_PROMPT, e) && request_prompts(r, 1, e);
    json_t *kwargs = ok ? request_thinking(r->body, m->template, &thinking, e) : NULL;
    if (!kwargs) return false;
    chat_prompt p = {0};
    chat_request q = {.messages = messages,
                      .tools = r->tools,
                      .kwargs = kwargs,
                      .add_generation_prompt = !r->no_generation_prompt && !r->continue_final};
    ok = render(r, m, &q, &p, e);
    json_decref(kwargs);
    if (ok && p.tools_json.code != ST_OK)
        log_once("tools as JSON", "tools are rendered as JSON, not as TypeScript: %s", p.tools_json.text);
    r->prompts[0] = p.ids;
    p.ids = (ids_buf){0};
    r->in_think = p.in_think;
    chat_prompt_free(&p);
    if (!ok) return false;
    if (r->continue_final && !open_last(&r->prompts[0], m, messages, e)) return false;
    r->plain |= !thinking || !m->parse_reasoning;
    r->calls = r->tools && !none && m->parse_calls;
    return true;
}

bool request_chat_body(gen_request *r, const served_model *m, api_error *e) {
    if (!request_read_fields(r, m, r->body, IN_CHAT, e)) return false;
    if (r->top && !r->logprobs) return api_fail(e, 400, NULL, "top_logprobs", "top_logprobs: needs logprobs: true");
    return request_check_least(r, "min_tokens", "max_tokens", e) && request_render(r, m, e);
}

bool request_chat(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    request_begin(r, m, API_CHAT, body);
    return request_chat_body(r, m, e);
}
