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

/* ---- The prompt ---- */

static void add_text_of(buf *b, const json_t *v) {
    if (json_is_string(v)) buf_add(b, json_string_value(v), json_string_length(v));
}

/* The last message goes on: its end marker is taken off again, its text is the answer's beginning. */
static bool open_last(gen_request *r, const served_model *m, const json_t *messages, api_error *e) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *who = json_string_value(json_object_get(last, "role"));
    ids_buf *ids = &r->prompts[0];
    size_t i;
    json_t *part;
    i32 end = tokenizer_special(m->tok, "<|im_end|>");
    if (!who || strcmp(who, "assistant") || field_given(last, "tool_calls"))
        return api_fail(e, 400, NULL, "continue_final_message",
                        "continue_final_message: the last message is not the assistant's text");
    if (ids->len && ids->data[ids->len - 1] == end) ids->len--;
    add_text_of(&r->continued, content);
    json_array_foreach(content, i, part) add_text_of(&r->continued, json_object_get(part, "text"));
    return r->continued.failed ? api_nomem(e) : true;
}

/* A token stands for so many bytes of text at most that a longer text cannot fit, however it is cut. Up to RENDER_FREE
 * bytes of text are written as they are; beyond, memory for the longest possible prompt is asked for first. Tools are
 * copied to be sorted. */
static bool render(gen_request *r, const served_model *m, chat_request *q, chat_prompt *p, api_error *e) {
    enum { RENDER_FREE = 1 << 20 };
    u64 most;
    err why = {0};
    if (!request_hold(r, json_memory(q->tools), e)) return false;
    q->max_ids = request_max_ids(r, m);
    if (!mul_size(q->max_ids, tokenizer_longest(m->tok), &most)) most = INT64_MAX;
    q->max_text = most < RENDER_FREE ? most : RENDER_FREE;
    status st = chat_render(m->template, m->tok, q, p, &why);
    if (st == ST_LIMIT && p->text.full && q->max_text < most) {
        chat_prompt_free(p);
        if (!request_hold(r, most, e)) return false;
        q->max_text = most;
        st = chat_render(m->template, m->tok, q, p, &why);
    }
    if (st == ST_LIMIT) return request_too_long(r, m, "messages", e);
    return st == ST_OK ? true : api_fail_status(e, st, "messages", &why);
}

/* Before the prompt is written: what is wrong with a picture is said first. */
static bool read_pictures(gen_request *r, const served_model *m, const json_t *messages, api_error *e) {
    picture_rules rules;
    err why = {0};
    size_t i, k;
    json_t *message, *part;
    const json_t *url;
    bool any = false;
    json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, part) any |=
        chat_media_of(part, &url, &why) || why.code != ST_OK;
    if (!any) return true;
    if (!request_picture_rules(r, m, &rules, "messages", e)) return false;
    status st = chat_pictures_read(&r->pictures, messages, &rules, &why);
    return st == ST_OK ? true : st != ST_CANCELLED && api_fail_status(e, st, r->pictures.place, &why);
}

/* Where the prompt leaves the model. Whether its thinking is told apart from its answer is another question. */
static answer_begin begin_of(const gen_request *r, const served_model *m, bool in_think, bool thinking) {
    if (in_think) return BEGIN_IN_THINK;
    bool own = chat_template_model_opens_think(m->template);
    return own && thinking && !r->continue_final ? BEGIN_MAY_THINK : BEGIN_CONTENT;
}

bool request_render(gen_request *r, const served_model *m, api_error *e) {
    const json_t *messages = json_object_get(r->body, "messages");
    bool thinking;
    r->prompt_field = "messages";
    if (!field_array(r->body, "messages", SIZE_MAX, &messages, e)) return false;
    if (!json_array_size(messages)) return api_fail(e, 400, NULL, "messages", "messages: cannot be empty");
    bool ok = request_read_tools(r, e) && normalize_messages((json_t *)messages, &r->history_calls, e) &&
              request_read_fields(r, m, r->body, IN_PROMPT, e) && request_prompts(r, 1, e);
    json_t *kwargs = ok ? request_thinking(r->body, m->template, &thinking, e) : NULL;
    if (!kwargs) return false;
    chat_prompt p = {0};
    chat_request q = {.messages = messages,
                      .tools = r->tools,
                      .kwargs = kwargs,
                      .add_generation_prompt = !r->no_generation_prompt && !r->continue_final};
    ok = read_pictures(r, m, messages, e);
    q.videos = r->pictures.videos, q.n_videos = r->pictures.n_videos;
    ok = ok && render(r, m, &q, &p, e);
    json_decref(kwargs);
    if (ok && p.tools_json.code != ST_OK)
        log_once("tools as JSON", "tools are rendered as JSON, not as TypeScript: %s", p.tools_json.text);
    r->prompts[0] = p.ids;
    p.ids = (ids_buf){0};
    r->in_think = p.in_think;
    r->begin = begin_of(r, m, p.in_think, thinking);
    chat_prompt_free(&p);
    if (!ok) return false;
    if (!request_place_pictures(r, m, "messages", e)) return false;
    if (r->continue_final && !open_last(r, m, messages, e)) return false;
    r->plain |= !thinking || !m->parse_reasoning;
    r->calls = r->tools && r->choice != CHOOSE_NONE && m->parse_calls;
    return true;
}

bool request_chat_body(gen_request *r, const served_model *m, api_error *e) {
    if (!request_read_fields(r, m, r->body, IN_CHAT, e)) return false;
    if (r->top && !r->logprobs) return api_fail(e, 400, NULL, "top_logprobs", "top_logprobs: needs logprobs: true");
    return request_check_least(r, "min_tokens", "max_tokens", e) && request_render(r, m, e) &&
           request_must_call(r, m, e);
}

bool request_chat(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    request_begin(r, m, API_CHAT, body);
    return request_chat_body(r, m, e);
}
