#include "server/request/chat_builder.h"
#include "server/request/request_fields.h"
#include <stdio.h>
#include <string.h>

bool chat_builder_open(chat_builder *b, const json_t *foreign, unsigned where, api_error *e) {
    *b = (chat_builder){.body = json_object(), .messages = json_array(), .e = e};
    bool ok = b->body && b->messages && json_object_set(b->body, "messages", b->messages) == 0 &&
              request_pass_fields(b->body, foreign, where);
    return ok ? true : api_nomem(e);
}

void chat_builder_close(chat_builder *b) {
    json_decref(b->body);
    json_decref(b->messages);
    json_decref(b->parts);
    json_decref(b->calls);
    buf_free(&b->reasoning);
    *b = (chat_builder){0};
}

json_t *chat_builder_take(chat_builder *b) {
    if (!chat_builder_end_message(b)) return NULL;
    json_t *body = b->body;
    b->body = NULL;
    return body;
}

bool chat_builder_set(chat_builder *b, const char *key, json_t *v) {
    return v && json_object_set_new(b->body, key, v) == 0 ? true : api_nomem(b->e);
}

bool chat_builder_end_message(chat_builder *b) {
    if (!b->role) return true;
    json_t *m = json_pack("{s:s}", "role", b->role);
    bool ok = m && json_object_set(m, "content", b->parts) == 0 && !b->reasoning.failed;
    if (ok && b->reasoning.len)
        ok = json_object_set_new(m, "reasoning_content", json_stringn(b->reasoning.data, b->reasoning.len)) == 0;
    if (ok && json_array_size(b->calls)) ok = json_object_set(m, "tool_calls", b->calls) == 0;
    ok = ok && json_array_append(b->messages, m) == 0;
    json_decref(m);
    json_decref(b->parts);
    json_decref(b->calls);
    b->parts = b->calls = NULL;
    buf_clear(&b->reasoning);
    b->role = NULL;
    return ok ? true : api_nomem(b->e);
}

bool chat_builder_begin(chat_builder *b, const char *role) {
    if (b->role && !strcmp(b->role, role)) return true;
    if (!chat_builder_end_message(b)) return false;
    b->role = role;
    b->parts = json_array();
    b->calls = json_array();
    return b->parts && b->calls ? true : api_nomem(b->e);
}

bool chat_builder_text(chat_builder *b, const char *role, const json_t *text) {
    if (!chat_builder_begin(b, role)) return false;
    json_t *part = json_pack("{s:s, s:O}", "type", "text", "text", text);
    return part && json_array_append_new(b->parts, part) == 0 ? true : api_nomem(b->e);
}

bool chat_builder_part(chat_builder *b, const char *role, json_t *part) {
    if (!part) return false;
    if (chat_builder_begin(b, role)) return json_array_append_new(b->parts, part) == 0 ? true : api_nomem(b->e);
    json_decref(part);
    return false;
}

bool chat_builder_reasoning(chat_builder *b, const json_t *text) {
    if (!chat_builder_begin(b, "assistant")) return false;
    buf_add(&b->reasoning, json_string_value(text), json_string_length(text));
    return true;
}

bool chat_builder_call(chat_builder *b, const json_t *id, const json_t *name, json_t *arguments) {
    if (!chat_builder_begin(b, "assistant")) return false;
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name,
                             "arguments", arguments);
    return call && json_array_append_new(b->calls, call) == 0 ? true : api_nomem(b->e);
}

bool chat_builder_result(chat_builder *b, const json_t *id, json_t *content) {
    if (!content) return api_nomem(b->e);
    if (!chat_builder_end_message(b)) {
        json_decref(content);
        return false;
    }
    json_t *m = json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", content);
    return m && json_array_append_new(b->messages, m) == 0 ? true : api_nomem(b->e);
}

/* ---- Checks ---- */

bool block_type(const json_t *v, const char *field, const char **type, api_error *e) {
    if (!json_is_object(v))
        return api_fail(e, 400, NULL, field, "%s: expected an object, got %s", field, json_type_text(v));
    *type = json_string_value(json_object_get(v, "type"));
    return *type ? true : api_fail(e, 400, NULL, field, "%s.type: expected a string", field);
}

bool block_text(const json_t *v, const char *field, const char *key, const json_t **text, api_error *e) {
    *text = json_object_get(v, key);
    if (json_is_string(*text)) return true;
    return api_fail(e, 400, NULL, field, "%s.%s: expected a string, got %s", field, key, json_type_text(*text));
}

json_t *picture_part(const json_t *url, const char *field, api_error *e) {
    json_t *part = NULL;
    if (!json_is_string(url))
        api_fail(e, 400, NULL, field, "%s: a picture's URL is a string, not %s", field, json_type_text(url));
    else if (!(part = json_pack("{s:s, s:{s:O}, s:s}", "type", "image_url", "image_url", "url", url, "place", field)))
        api_nomem(e);
    return part;
}

json_t *picture_part_of_source(const json_t *block, const char *field, api_error *e) {
    const json_t *source = json_object_get(block, "source"), *data = json_object_get(source, "data");
    const char *type = json_string_value(json_object_get(source, "type")),
               *media = json_string_value(json_object_get(source, "media_type"));
    if (type && !strcmp(type, "url")) return picture_part(json_object_get(source, "url"), field, e);
    if (!type || strcmp(type, "base64")) {
        api_fail(e, 400, type ? "unsupported" : NULL, field, "%s.source.type: expected \"base64\" or \"url\"", field);
        return NULL;
    }
    if (!json_is_string(data)) {
        api_fail(e, 400, NULL, field, "%s.source.data: expected a string, got %s", field, json_type_text(data));
        return NULL;
    }
    json_t *url =
        json_sprintf("data:%s;base64,%s%s", media && strlen(media) < 100 ? media : "", json_string_value(data),
                     strlen(json_string_value(data)) == json_string_length(data) ? "" : "?"); /* a NUL */
    json_t *part = url ? picture_part(url, field, e) : NULL;
    if (!url) api_nomem(e);
    json_decref(url);
    return part;
}

bool block_refused(const char *field, const char *type, api_error *e) {
    return api_fail(e, 400, "unsupported", field, "%s: \"%.60s\" is not supported by this version", field, type);
}

json_t *chat_tool(const json_t *tool, const char *parameters, api_error *e) {
    static const char *const same[] = {"name", "description", "strict"};
    json_t *function = json_object(), *schema = json_object_get(tool, parameters), *own = NULL;
    bool ok = function != NULL;
    for (size_t i = 0; ok && i < COUNT_OF(same); i++)
        if (field_given(tool, same[i])) ok = json_object_set(function, same[i], json_object_get(tool, same[i])) == 0;
    if (json_is_object(schema) && !json_object_get(schema, "type")) {
        own = json_pack("{s:s}", "type", "object"); /* the type comes first, as clients write it */
        ok = ok && own && json_object_update(own, schema) == 0;
    } else if (schema && !json_is_null(schema)) {
        own = json_incref(schema);
    } else {
        own = json_pack("{s:s, s:{}}", "type", "object", "properties");
    }
    ok = ok && own && json_object_set(function, "parameters", own) == 0;
    json_decref(own);
    json_t *out = ok ? json_pack("{s:s, s:O}", "type", "function", "function", function) : NULL;
    json_decref(function);
    if (!out) api_nomem(e);
    return out;
}
