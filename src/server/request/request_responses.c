/* server/request/request_responses.c: /v1/responses, OpenAI's Responses without a store, as a chat request.
 *
 * Neighbouring reasoning, assistant's text and function_call items are one message of the assistant, as they were when
 * the model wrote them. What needs a memory of earlier responses, or a tool that the provider would run, is refused by
 * name; `store` is not: the answer says "store": false. */
#include "server/request/chat_builder.h"
#include "server/request/request_fields.h"
#include <stdio.h>
#include <string.h>

typedef struct {
    chat_builder b;
    api_error *e;
} translation;

/* ---- Items ---- */

/* A text part under whatever name; *text NULL: a part that cannot be read and says nothing. */
static bool from_responses_read_part(translation *t, const json_t *part, const char *field, const json_t **text) {
    static const char *const texts[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text"};
    const char *type;
    if (!block_type(part, field, &type, t->e)) return false;
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        if (!strcmp(type, texts[i])) return block_text(part, field, "text", text, t->e);
    if (!strcmp(type, "refusal")) return block_text(part, field, "refusal", text, t->e);
    return block_refused(field, type, t->e);
}

/* A picture by its URL: those of files that were uploaded are refused. */
static bool is_picture_part(const json_t *part, const char *type) {
    return type && !strcmp(type, "input_image") && !field_given(part, "file_id");
}

/* The role as the template knows it; NULL: none. */
static const char *role_of(const char *said) {
    static const char *const roles[][2] = {
        {"user", "user"}, {"assistant", "assistant"}, {"system", "system"}, {"developer", "system"}};
    for (size_t i = 0; said && i < COUNT_OF(roles); i++)
        if (!strcmp(said, roles[i][0])) return roles[i][1];
    return NULL;
}

static bool message_item(translation *t, const json_t *item, const char *field) {
    const json_t *content = json_object_get(item, "content"), *text;
    const char *said = NULL;
    char name[128];
    size_t i;
    json_t *part;
    if (!field_str(item, "role", &said, t->e)) return false;
    const char *role = role_of(said);
    if (!role)
        return api_fail(t->e, 400, NULL, field, "%s.role: \"%.40s\" is none of user, assistant, system, developer",
                        field, said ? said : "");
    bool assistant = !strcmp(role, "assistant");
    if (!assistant && !chat_builder_end_message(&t->b)) return false; /* two messages stay two */
    if (!chat_builder_begin(&t->b, role)) return false;
    if (json_is_string(content)) return chat_builder_text(&t->b, role, content);
    if (!json_is_array(content))
        return api_fail(t->e, 400, NULL, field, "%s.content: expected a string or an array of parts, got %s", field,
                        json_type_text(content));
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        snprintf(name, sizeof name, "%s.content[%zu]", field, i);
        if (is_picture_part(part, type)) {
            if (!chat_builder_part(&t->b, role, picture_part(json_object_get(part, "image_url"), name, t->e)))
                return false;
        } else if (!from_responses_read_part(t, part, name, &text) || !chat_builder_text(&t->b, role, text)) {
            return false;
        }
    }
    return true;
}

/* What a reasoning item shows: its content, else its summary. Encrypted content is another server's. */
static bool reasoning_item(translation *t, const json_t *item, const char *field) {
    const json_t *list, *text;
    const char *key = "content";
    char name[128];
    size_t i;
    json_t *part;
    if (!field_array(item, key, SIZE_MAX, &list, t->e)) return false;
    if (!json_array_size(list)) {
        key = "summary";
        if (!field_array(item, key, SIZE_MAX, &list, t->e)) return false;
    }
    json_array_foreach(list, i, part) {
        snprintf(name, sizeof name, "%s.%s[%zu]", field, key, i);
        if (!from_responses_read_part(t, part, name, &text) || !chat_builder_reasoning(&t->b, text)) return false;
    }
    return true;
}

static bool call_item(translation *t, const json_t *item, const char *field) {
    const json_t *id, *name, *arguments;
    return block_text(item, field, "call_id", &id, t->e) && block_text(item, field, "name", &name, t->e) &&
           block_text(item, field, "arguments", &arguments, t->e) &&
           chat_builder_call(&t->b, id, name, (json_t *)arguments);
}

static bool output_item(translation *t, const json_t *item, const char *field) {
    const json_t *id, *output = json_object_get(item, "output"), *text = NULL;
    char name[128];
    size_t i;
    json_t *part;
    if (!block_text(item, field, "call_id", &id, t->e)) return false;
    if (json_is_string(output)) return chat_builder_result(&t->b, id, json_incref((json_t *)output));
    if (!json_is_array(output))
        return api_fail(t->e, 400, NULL, field, "%s.output: expected a string or an array of parts, got %s", field,
                        json_type_text(output));
    json_t *parts = json_array();
    bool ok = parts || api_nomem(t->e);
    json_array_foreach(output, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        snprintf(name, sizeof name, "%s.output[%zu]", field, i);
        if (ok && is_picture_part(part, type)) {
            json_t *picture = picture_part(json_object_get(part, "image_url"), name, t->e);
            ok = picture && (json_array_append_new(parts, picture) == 0 || api_nomem(t->e));
            if (ok) continue;
        }
        ok = ok && from_responses_read_part(t, part, name, &text);
        if (ok && json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text)))
            ok = api_nomem(t->e);
        if (!ok) break;
    }
    if (ok) return chat_builder_result(&t->b, id, parts);
    json_decref(parts);
    return false;
}

static bool read_item(translation *t, const json_t *item, size_t at) {
    const char *type = "message";
    char field[40];
    snprintf(field, sizeof field, "input[%zu]", at);
    if (!json_is_object(item))
        return api_fail(t->e, 400, NULL, field, "%s: expected an object, got %s", field, json_type_text(item));
    if (!field_str(item, "type", &type, t->e)) return false;
    if (!strcmp(type, "message")) return message_item(t, item, field);
    if (!strcmp(type, "reasoning")) return reasoning_item(t, item, field);
    if (!strcmp(type, "function_call")) return call_item(t, item, field);
    if (!strcmp(type, "function_call_output")) return output_item(t, item, field);
    return block_refused(field, type, t->e);
}

static bool read_input(translation *t, const json_t *body) {
    const json_t *input = json_object_get(body, "input"), *instructions = json_object_get(body, "instructions");
    const char *checked;
    size_t i;
    json_t *item;
    if (!field_str(body, "instructions", &checked, t->e)) return false;
    if (json_string_length(instructions) &&
        (!chat_builder_text(&t->b, "system", instructions) || !chat_builder_end_message(&t->b)))
        return false;
    if (json_is_string(input)) return chat_builder_text(&t->b, "user", input);
    if (!json_is_array(input) || !json_array_size(input))
        return api_fail(t->e, 400, NULL, "input", "input: expected text or an array of items, got %s",
                        json_is_array(input) ? "an empty one" : json_type_text(input));
    json_array_foreach(input, i, item) if (!read_item(t, item, i)) return false;
    return true;
}

/* ---- Fields ---- */

static bool from_responses_read_tools(translation *t, const json_t *body) {
    const json_t *list;
    const char *type;
    char field[40];
    size_t i;
    json_t *tool, *out;
    if (!field_array(body, "tools", TOOLS_MAX, &list, t->e)) return false;
    if (!list) return true;
    json_t *tools = json_array();
    if (!chat_builder_set(&t->b, "tools", tools)) return false;
    json_array_foreach(list, i, tool) {
        snprintf(field, sizeof field, "tools[%zu]", i);
        if (!block_type(tool, field, &type, t->e)) return false;
        if (strcmp(type, "function")) return block_refused(field, type, t->e);
        if (!(out = chat_tool(tool, "parameters", t->e))) return false;
        if (json_array_append_new(tools, out)) return api_nomem(t->e);
    }
    return true;
}

static bool from_responses_read_refused(translation *t, const json_t *body) {
    static const char *const fields[] = {"previous_response_id", "conversation", "prompt"};
    bool background = false;
    i64 top = 0;
    const json_t *include;
    size_t i;
    json_t *v;
    for (size_t k = 0; k < COUNT_OF(fields); k++)
        if (field_given(body, fields[k]))
            return api_fail(t->e, 400, "unsupported", fields[k],
                            "%s: this server keeps no responses; send the whole conversation as input", fields[k]);
    if (!field_bool(body, "background", &background, t->e) || !field_i64(body, "top_logprobs", 0, 20, &top, t->e) ||
        !field_array(body, "include", 64, &include, t->e))
        return false;
    if (background)
        return api_fail(t->e, 400, "unsupported", "background", "background: true is not supported by this version");
    if (top)
        return api_fail(t->e, 400, "unsupported", "top_logprobs",
                        "top_logprobs is not supported here by this version; /v1/chat/completions has it");
    json_array_foreach(include, i, v) {
        const char *word = json_string_value(v);
        if (word && !strcmp(word, "message.output_text.logprobs"))
            return api_fail(t->e, 400, "unsupported", "include",
                            "include[%zu]: \"%s\" is not supported here by this version", i, word);
    }
    return true;
}

/* text.format is chat's response_format, but that a schema's members stand beside "type". */
static bool read_text_format(translation *t, const json_t *body) {
    static const char *const members[] = {"name", "schema", "strict"};
    const json_t *text, *format = NULL;
    if (!field_object(body, "text", &text, t->e)) return false;
    if (text && !field_object(text, "format", &format, t->e)) return strcpy(t->e->param, "text.format"), false;
    if (!format) return true;
    if (field_given(body, "response_format"))
        return api_fail(t->e, 400, NULL, "text.format", "text.format beside response_format: an answer has one format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type || strcmp(type, "json_schema"))
        return chat_builder_set(&t->b, "response_format", json_incref((json_t *)format));
    json_t *schema = json_object();
    bool ok = schema != NULL;
    for (size_t i = 0; ok && i < COUNT_OF(members); i++)
        if (json_object_get(format, members[i]))
            ok = json_object_set(schema, members[i], json_object_get(format, members[i])) == 0;
    if (ok)
        return chat_builder_set(&t->b, "response_format", json_pack("{s:s, s:o}", "type", type, "json_schema", schema));
    json_decref(schema);
    return api_nomem(t->e);
}

/* Fields that chat has under another name, or not at all. */
static bool read_fields(translation *t, const json_t *body) {
    const json_t *metadata;
    i64 max = 0;
    bool store;
    if (!field_i64(body, "max_output_tokens", 1, INT32_MAX, &max, t->e) || !field_bool(body, "store", &store, t->e) ||
        !field_object(body, "metadata", &metadata, t->e))
        return false;
    return !max || chat_builder_set(&t->b, "max_tokens", json_integer(max));
}

static bool from_responses_translate(translation *t, const json_t *body) {
    return chat_builder_open(&t->b, body, IN_RESPONSES, t->e) && from_responses_read_refused(t, body) &&
           read_text_format(t, body) && read_fields(t, body) && from_responses_read_tools(t, body) &&
           read_input(t, body);
}

bool request_responses(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    translation t = {.e = e};
    request_begin(r, m, API_RESPONSES, NULL);
    r->original = body;
    r->body = from_responses_translate(&t, body) ? chat_builder_take(&t.b) : NULL;
    chat_builder_close(&t.b);
    if (!r->body) return false;
    if (request_chat_body(r, m, e)) {
        r->prompt_field = "input";
        return true;
    }
    if (!strcmp(e->param, "messages")) strcpy(e->param, "input");
    return false;
}
