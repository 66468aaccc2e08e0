/* server/request/request_anthropic.c: /v1/messages, Anthropic's protocol, as a chat request.
 *
 * thinking blocks are the reasoning of their message, tool_use blocks its calls, every tool_result is a tool's message
 * of its own. redacted_thinking cannot be read and is left out; what else this version cannot show to the model
 * (documents, results of a provider's own tools) is refused by name. */
#include "server/request/chat_builder.h"
#include "server/request/request_fields.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct {
    chat_builder b;
    api_error *e;
} translation;

/* ---- System ---- */

/* Claude Code puts a line about itself in front of its system prompt, whose hash changes with every request: the
 * prefix cache would never serve it (vllm-project/vllm#36829). It says nothing to the model. */
static bool is_billing_header(const json_t *text) {
    static const char head[] = "x-anthropic-billing-header:";
    return !strncasecmp(json_string_value(text), head, sizeof head - 1);
}

static json_t *without_billing_header(const json_t *text) {
    const char *s = json_string_value(text), *line = memchr(s, '\n', json_string_length(text));
    size_t skip = line ? (size_t)(line + 1 - s) : json_string_length(text);
    return json_stringn(s + skip, json_string_length(text) - skip);
}

static bool system_text(translation *t, const json_t *text, size_t at) {
    json_t *rest = is_billing_header(text) ? without_billing_header(text) : json_incref((json_t *)text);
    json_t *newline = json_string("\n");
    bool ok = rest && newline ? true : api_nomem(t->e);
    /* Blocks are texts of their own: a line ends between them. */
    if (ok && json_string_length(rest))
        ok = (!at || !t->b.role || chat_builder_text(&t->b, "system", newline)) &&
             chat_builder_text(&t->b, "system", rest);
    json_decref(rest);
    json_decref(newline);
    return ok;
}

static bool read_system(translation *t, const json_t *system) {
    const char *type;
    const json_t *text;
    char field[40];
    size_t i;
    json_t *block;
    if (!system || json_is_null(system)) return true;
    if (json_is_string(system)) return system_text(t, system, 0) && chat_builder_end_message(&t->b);
    if (!json_is_array(system))
        return api_fail(t->e, 400, NULL, "system", "system: expected a string or an array of blocks, got %s",
                        json_type_text(system));
    json_array_foreach(system, i, block) {
        snprintf(field, sizeof field, "system[%zu]", i);
        if (!block_type(block, field, &type, t->e)) return false;
        if (strcmp(type, "text")) return block_refused(field, type, t->e);
        if (!block_text(block, field, "text", &text, t->e) || !system_text(t, text, i)) return false;
    }
    return chat_builder_end_message(&t->b);
}

/* ---- Messages ---- */

/* The content of a tool_result as that of a tool's message. A result that is an error says so: the templates have no
 * other place for it. NULL: *e. */
static json_t *result_content(translation *t, const json_t *content, bool is_error, const char *field) {
    json_t *parts = json_array(), *block;
    const json_t *text = NULL, *first = NULL;
    const char *type;
    char name[128];
    size_t i;
    bool ok = parts != NULL;
    if (!ok) api_nomem(t->e);
    if (json_is_string(content)) {
        first = content;
        ok = ok && json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content)) == 0;
    } else if (json_is_array(content)) {
        json_array_foreach(content, i, block) {
            snprintf(name, sizeof name, "%s.content[%zu]", field, i);
            ok = ok && block_type(block, name, &type, t->e);
            if (ok && !strcmp(type, "image")) {
                json_t *part = picture_part_of_source(block, name, t->e);
                ok = part && json_array_append_new(parts, part) == 0;
                if (ok) continue;
            }
            ok = ok && (!strcmp(type, "text") || block_refused(name, type, t->e)) &&
                 block_text(block, name, "text", &text, t->e) &&
                 json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text)) == 0;
            if (!ok) break;
            if (!first) first = text;
        }
    } else if (content && !json_is_null(content)) {
        ok = api_fail(t->e, 400, NULL, field, "%s.content: expected a string or an array of blocks, got %s", field,
                      json_type_text(content));
    }
    if (ok && is_error && (!first || strncasecmp(json_string_value(first), "error", 5)))
        ok = json_array_insert_new(parts, 0, json_pack("{s:s, s:s}", "type", "text", "text", "Error: ")) == 0;
    if (ok) return parts;
    json_decref(parts);
    if (!t->e->http) api_nomem(t->e);
    return NULL;
}

static bool tool_result(translation *t, const json_t *block, const char *field) {
    const json_t *id;
    bool is_error = false;
    if (!block_text(block, field, "tool_use_id", &id, t->e) || !field_bool(block, "is_error", &is_error, t->e))
        return false;
    json_t *content = result_content(t, json_object_get(block, "content"), is_error, field);
    return content && chat_builder_result(&t->b, id, content);
}

static bool tool_use(translation *t, const json_t *block, const char *field) {
    const json_t *id, *name;
    json_t *input = json_object_get(block, "input");
    if (!block_text(block, field, "id", &id, t->e) || !block_text(block, field, "name", &name, t->e)) return false;
    if (!json_is_object(input))
        return api_fail(t->e, 400, NULL, field, "%s.input: expected an object, got %s", field, json_type_text(input));
    /* How arguments that are not JSON were sent (reply_messages.c): back to the model's own text. */
    json_t *raw = json_object_get(input, "_raw");
    if (json_object_size(input) == 1 && json_is_string(raw)) input = raw;
    return chat_builder_call(&t->b, id, name, input);
}

static bool read_block(translation *t, const char *role, const json_t *block, const char *field) {
    const char *type;
    const json_t *text;
    bool assistant = !strcmp(role, "assistant");
    if (!block_type(block, field, &type, t->e)) return false;
    if (!strcmp(type, "text"))
        return block_text(block, field, "text", &text, t->e) && chat_builder_text(&t->b, role, text);
    if (!assistant && !strcmp(type, "image"))
        return chat_builder_part(&t->b, role, picture_part_of_source(block, field, t->e));
    if (assistant && !strcmp(type, "thinking"))
        return block_text(block, field, "thinking", &text, t->e) && chat_builder_reasoning(&t->b, text);
    if (assistant && !strcmp(type, "redacted_thinking")) return true;
    if (assistant && !strcmp(type, "tool_use")) return tool_use(t, block, field);
    if (!strcmp(role, "user") && !strcmp(type, "tool_result")) return tool_result(t, block, field);
    if (!strcmp(type, "thinking") || !strcmp(type, "tool_use") || !strcmp(type, "tool_result"))
        return api_fail(t->e, 400, NULL, field, "%s: \"%s\" does not belong to the role \"%s\"", field, type, role);
    return block_refused(field, type, t->e);
}

static bool from_messages_read_message(translation *t, const json_t *message, size_t at) {
    static const char *const roles[] = {"user", "assistant", "system"};
    const char *said = NULL, *role = NULL;
    const json_t *content = json_object_get(message, "content");
    char field[80];
    size_t i;
    json_t *block;
    snprintf(field, sizeof field, "messages[%zu]", at);
    if (!json_is_object(message))
        return api_fail(t->e, 400, NULL, field, "%s: expected an object, got %s", field, json_type_text(message));
    if (!field_str(message, "role", &said, t->e)) return false;
    for (i = 0; said && i < COUNT_OF(roles); i++)
        if (!strcmp(said, roles[i])) role = roles[i];
    if (!role)
        return api_fail(t->e, 400, NULL, field, "%s.role: \"%.40s\" is neither user nor assistant", field,
                        said ? said : "");
    if (json_is_string(content)) return chat_builder_text(&t->b, role, content) && chat_builder_end_message(&t->b);
    if (!json_is_array(content))
        return api_fail(t->e, 400, NULL, field, "%s.content: expected a string or an array of blocks, got %s", field,
                        json_type_text(content));
    if (!strcmp(role, "assistant") && !chat_builder_begin(&t->b, role)) return false;
    json_array_foreach(content, i, block) {
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", at, i);
        if (!read_block(t, role, block, field)) return false;
    }
    return chat_builder_end_message(&t->b);
}

static bool read_messages(translation *t, const json_t *body) {
    const json_t *list;
    size_t i;
    json_t *message;
    if (!read_system(t, json_object_get(body, "system")) || !field_array(body, "messages", SIZE_MAX, &list, t->e))
        return false;
    if (!json_array_size(list))
        return api_fail(t->e, 400, NULL, "messages", "messages: at least one message is required");
    json_array_foreach(list, i, message) if (!from_messages_read_message(t, message, i)) return false;
    /* The answer goes on where the assistant's last message ends. */
    const json_t *last = json_array_get(t->b.messages, json_array_size(t->b.messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant")) return true;
    if (json_object_get(last, "tool_calls"))
        return api_fail(t->e, 400, NULL, "messages",
                        "messages: the conversation ends with a tool_use; a tool_result is expected");
    return chat_builder_set(&t->b, "continue_final_message", json_true());
}

/* ---- Tools and thinking ---- */

static bool from_messages_read_tools(translation *t, const json_t *body) {
    const json_t *list;
    const char *type;
    char field[40];
    size_t i;
    json_t *tool, *out;
    if (!field_array(body, "tools", TOOLS_MAX, &list, t->e)) return false;
    if (!list) return true;
    json_t *tools = json_array();
    bool ok = chat_builder_set(&t->b, "tools", tools);
    json_array_foreach(list, i, tool) {
        snprintf(field, sizeof field, "tools[%zu]", i);
        if (ok && !json_is_object(tool))
            ok = api_fail(t->e, 400, NULL, field, "%s: expected an object, got %s", field, json_type_text(tool));
        type = NULL;
        ok = ok && field_str(tool, "type", &type, t->e) &&
             (!type || !strcmp(type, "custom") || block_refused(field, type, t->e));
        if (ok && !field_given(tool, "input_schema"))
            ok = api_fail(t->e, 400, NULL, field, "%s.input_schema: missing", field);
        if (!ok || !(out = chat_tool(tool, "input_schema", t->e))) return false;
        if (json_array_append_new(tools, out)) return api_nomem(t->e);
    }
    return ok;
}

static bool from_messages_read_tool_choice(translation *t, const json_t *body) {
    const json_t *choice;
    const char *type = NULL;
    bool one = false;
    if (!field_object(body, "tool_choice", &choice, t->e)) return false;
    if (!choice) return true;
    if (!field_str(choice, "type", &type, t->e) || !field_bool(choice, "disable_parallel_tool_use", &one, t->e))
        return false;
    if (one && !chat_builder_set(&t->b, "parallel_tool_calls", json_false())) return false;
    if (type && !strcmp(type, "any")) return chat_builder_set(&t->b, "tool_choice", json_string("required"));
    if (type && !strcmp(type, "tool")) {
        const json_t *name;
        if (!block_text(choice, "tool_choice", "name", &name, t->e)) return false;
        return chat_builder_set(&t->b, "tool_choice",
                                json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
    }
    if (!type || (strcmp(type, "auto") && strcmp(type, "none")))
        return api_fail(t->e, 400, NULL, "tool_choice",
                        "tool_choice.type: expected \"auto\", \"any\", \"tool\" or \"none\"");
    return chat_builder_set(&t->b, "tool_choice", json_string(type));
}

/* budget_tokens is checked and is no limit: max_tokens is. */
static bool read_thinking(translation *t, const json_t *body) {
    const json_t *thinking;
    const char *type = NULL, *display = "summarized";
    i64 budget = 0;
    if (!field_object(body, "thinking", &thinking, t->e)) return false;
    if (!thinking) return true;
    if (!field_str(thinking, "type", &type, t->e) || !field_str(thinking, "display", &display, t->e) ||
        !field_i64(thinking, "budget_tokens", 1, INT32_MAX, &budget, t->e))
        return false;
    bool on = type && (!strcmp(type, "enabled") || !strcmp(type, "adaptive")), off = type && !strcmp(type, "disabled");
    if (!on && !off)
        return api_fail(t->e, 400, NULL, "thinking",
                        "thinking.type: expected \"enabled\", \"adaptive\" or \"disabled\"");
    if (strcmp(display, "summarized") && strcmp(display, "omitted"))
        return api_fail(t->e, 400, NULL, "thinking", "thinking.display: expected \"summarized\" or \"omitted\"");
    return chat_builder_set(&t->b, "thinking", json_pack("{s:s}", "type", on ? "enabled" : "disabled")) &&
           chat_builder_set(&t->b, "include_reasoning", json_boolean(strcmp(display, "omitted")));
}

/* ---- The rest ---- */

/* What asks for something that is not there. */
static bool from_messages_read_refused(translation *t, const json_t *body) {
    static const char *const fields[] = {"mcp_servers", "container"};
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        const json_t *v = json_object_get(body, fields[i]);
        if (field_given(body, fields[i]) && (!json_is_array(v) || json_array_size(v)))
            return api_fail(t->e, 400, "unsupported", fields[i], "%s is not supported by this version", fields[i]);
    }
    return true;
}

/* The schema of the answer: output_config.format, called output_format while it was a beta. Chat's has a name, too. */
static bool from_messages_read_format(translation *t, const json_t *body) {
    const json_t *config, *format = NULL, *beta;
    if (!field_object(body, "output_config", &config, t->e) || !field_object(body, "output_format", &beta, t->e))
        return false;
    if (config && !field_object(config, "format", &format, t->e))
        return strcpy(t->e->param, "output_config.format"), false;
    const char *field = format ? "output_config.format" : "output_format";
    if (!format && !beta) return true;
    if ((format && beta) || field_given(body, "response_format"))
        return api_fail(t->e, 400, NULL, field, "%s beside %s: an answer has one format", field,
                        format && beta ? "output_format" : "response_format");
    if (!format) format = beta;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type || strcmp(type, "json_schema"))
        return api_fail(t->e, 400, NULL, field, "%s.type: expected \"json_schema\"", field);
    if (!json_is_object(json_object_get(format, "schema")))
        return api_fail(t->e, 400, NULL, field, "%s.schema: expected an object, got %s", field,
                        json_type_text(json_object_get(format, "schema")));
    return chat_builder_set(&t->b, "response_format",
                            json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer",
                                      "schema", json_object_get(format, "schema")));
}

static bool read_limits(translation *t, const json_t *body) {
    const json_t *metadata, *stops;
    i64 max = 0;
    size_t i;
    json_t *v;
    if (!field_given(body, "max_tokens")) return api_fail(t->e, 400, NULL, "max_tokens", "max_tokens: missing");
    if (!field_i64(body, "max_tokens", 1, INT32_MAX, &max, t->e) || !field_object(body, "metadata", &metadata, t->e) ||
        !field_array(body, "stop_sequences", SIZE_MAX, &stops, t->e))
        return false;
    json_array_foreach(stops, i, v) if (!json_is_string(v) || !json_string_length(v)) return api_fail(
        t->e, 400, NULL, "stop_sequences", "stop_sequences[%zu]: expected some text", i);
    return chat_builder_set(&t->b, "max_tokens", json_integer(max)) &&
           (!stops || chat_builder_set(&t->b, "stop", json_incref((json_t *)stops)));
}

static bool from_messages_translate(translation *t, const json_t *body, bool count) {
    return chat_builder_open(&t->b, body, IN_MESSAGES, t->e) && (count || read_limits(t, body)) &&
           from_messages_read_refused(t, body) && from_messages_read_format(t, body) &&
           from_messages_read_tools(t, body) && from_messages_read_tool_choice(t, body) && read_thinking(t, body) &&
           read_messages(t, body);
}

static bool read(gen_request *r, const served_model *m, json_t *body, bool count, api_error *e) {
    translation t = {.e = e};
    request_begin(r, m, API_MESSAGES, NULL);
    r->original = body;
    json_t *chat = from_messages_translate(&t, body, count) ? chat_builder_take(&t.b) : NULL;
    chat_builder_close(&t.b);
    r->body = chat;
    if (!chat) return false;
    if (count) return request_render(r, m, e);
    bool ok = request_chat_body(r, m, e);
    if (!ok && !strcmp(e->param, "stop")) strcpy(e->param, "stop_sequences");
    return ok;
}

bool request_anthropic(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    return read(r, m, body, false, e);
}

bool request_count_tokens(gen_request *r, const served_model *m, json_t *body, api_error *e) {
    return read(r, m, body, true, e);
}
