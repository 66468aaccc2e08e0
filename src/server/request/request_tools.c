/* server/request/request_tools.c: a chat request's tools, and which of them may or must be called. */
#include "server/request/request.h"
#include <string.h>

static const json_t *tool_function(const json_t *tool) { return json_object_get(tool, "function"); }

static const char *tool_name(const json_t *tool) {
    return json_string_value(json_object_get(tool_function(tool), "name"));
}

static bool read_tool(const json_t *tool, size_t at, const json_t *seen, api_error *e) {
    const json_t *function = tool_function(tool);
    const char *type = json_string_value(json_object_get(tool, "type")), *name = tool_name(tool);
    if (!json_is_object(tool) || (type && strcmp(type, "function")) || !json_is_object(function))
        return api_fail(e, 400, NULL, "tools", "tools[%zu]: expected {\"type\": \"function\", \"function\": {...}}",
                        at);
    if (!name || !*name || strlen(name) > 256)
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.name: expected a string of 1 to 256 bytes", at);
    if (json_object_get(seen, name))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.name: \"%.80s\" is there twice", at, name);
    const json_t *parameters = json_object_get(function, "parameters"), *strict = json_object_get(function, "strict");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.parameters: expected an object, got %s", at,
                        json_type_text(parameters));
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].function.strict: expected true or false, got %s", at,
                        json_type_text(strict));
    return true;
}

static bool read_tool_list(gen_request *r, api_error *e) {
    if (!field_array(r->body, "tools", TOOLS_MAX, &r->tools, e)) return false;
    json_t *seen = json_object(), *tool;
    size_t i;
    bool ok = seen || api_nomem(e);
    if (ok) json_array_foreach(r->tools, i, tool) {
            ok = read_tool(tool, i, seen, e);
            if (!ok) break;
            json_object_set_new(seen, tool_name(tool), json_true());
        }
    json_decref(seen);
    if (ok && !json_array_size(r->tools)) r->tools = NULL;
    r->callable = r->tools;
    return ok;
}

/* ---- tool_choice ---- */

/* The tool that v names: {"type": "function", "function": {"name"}} as in chat, or {"type": "function", "name"} as in
 * Responses. NULL: *e. */
static json_t *named_tool(const gen_request *r, const json_t *v, api_error *e) {
    const char *type = json_string_value(json_object_get(v, "type")), *name = tool_name(v);
    size_t i;
    json_t *tool;
    if (!name) name = json_string_value(json_object_get(v, "name"));
    if (!json_is_object(v) || (type && strcmp(type, "function")) || !name) {
        api_fail(e, 400, NULL, "tool_choice",
                 "tool_choice: expected \"auto\", \"none\", \"required\", a tool as {\"type\": \"function\", "
                 "\"function\": {\"name\": ...}} or {\"type\": \"allowed_tools\", ...}");
        return NULL;
    }
    json_array_foreach(r->tools, i, tool) if (!strcmp(tool_name(tool), name)) return tool;
    api_fail(e, 400, NULL, "tool_choice", "tool_choice: there is no tool \"%.80s\" in tools", name);
    return NULL;
}

/* From now on only the tools of `list` may be called; it is taken over. */
static bool call_only(gen_request *r, json_t *list, api_error *e) {
    if (!r->made) r->made = json_array();
    bool ok = list && r->made && json_array_append(r->made, list) == 0;
    if (ok) r->callable = list;
    json_decref(list);
    r->some_tools = true;
    return ok ? true : api_nomem(e);
}

/* {"mode": "auto" | "required", "tools": [...]}, under its own key as in chat or not as in Responses. */
static bool allowed_tools(gen_request *r, const json_t *choice, api_error *e) {
    const json_t *inner = json_object_get(choice, "allowed_tools"), *at = json_is_object(inner) ? inner : choice;
    const json_t *names = json_object_get(at, "tools");
    const char *mode = json_string_value(json_object_get(at, "mode"));
    size_t i;
    json_t *v, *tool;
    if (!mode || (strcmp(mode, "auto") && strcmp(mode, "required")))
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice: mode: expected \"auto\" or \"required\"");
    if (!json_array_size(names) || json_array_size(names) > TOOLS_MAX)
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice: tools: expected an array of 1 to %d tools",
                        TOOLS_MAX);
    if (!strcmp(mode, "required")) r->choice = CHOOSE_REQUIRED;
    json_t *list = json_array();
    if (!list) return api_nomem(e);
    json_array_foreach(names, i, v) {
        tool = named_tool(r, v, e);
        size_t k = 0;
        while (tool && k < json_array_size(list) && json_array_get(list, k) != tool) k++;
        bool twice = k < json_array_size(list);
        if (tool && (twice || json_array_append(list, tool) == 0)) continue;
        json_decref(list);
        return e->http ? false : api_nomem(e);
    }
    return call_only(r, list, e);
}

static bool read_tool_choice(gen_request *r, api_error *e) {
    const json_t *choice = json_object_get(r->body, "tool_choice");
    const char *word = json_string_value(choice), *type = json_string_value(json_object_get(choice, "type"));
    if (!choice || json_is_null(choice) || (word && !strcmp(word, "auto"))) return true;
    if (word && !strcmp(word, "none")) return r->choice = CHOOSE_NONE, true;
    if (word && !strcmp(word, "required")) {
        r->choice = CHOOSE_REQUIRED;
        return r->tools ? true : api_fail(e, 400, NULL, "tool_choice", "tool_choice: \"required\" needs tools");
    }
    if (type && !strcmp(type, "allowed_tools")) return allowed_tools(r, choice, e);
    json_t *tool = named_tool(r, choice, e);
    if (!tool) return false;
    r->choice = CHOOSE_REQUIRED;
    r->one_tool = true;
    return call_only(r, json_pack("[O]", tool), e);
}

bool request_read_tools(gen_request *r, api_error *e) { return read_tool_list(r, e) && read_tool_choice(r, e); }

/* ---- What it means ---- */

static bool any_strict(const json_t *tools) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) if (json_is_true(json_object_get(tool_function(tool), "strict"))) return true;
    return false;
}

/* "auto" asks nothing of an answer unless something else does: then calls may stand in its place, and are held to
 * their tools. Where calls must come there is no content, whatever else says what it would be. */
bool request_must_call(gen_request *r, const served_model *m, api_error *e) {
    bool strict = any_strict(r->callable), must = r->choice == CHOOSE_REQUIRED;
    if (!r->callable || r->choice == CHOOSE_NONE) return true;
    if (!m->parse_calls && (must || strict || r->some_tools))
        return api_fail(e, 400, "unsupported", strict && !must ? "tools" : "tool_choice",
                        "%s: this server does not look for tool calls (--tool-call-parser none)",
                        strict && !must ? "strict" : "tool_choice");
    if (!m->parse_calls || (!must && !strict && !r->some_tools && !r->must_field)) return true;
    r->must.calls = must ? CALLS_MUST : CALLS_MAYBE;
    r->must.tools = r->callable;
    r->must.one_call = r->one_call || r->one_tool;
    if (must) r->must.content = CONTENT_FREE, r->must.value = NULL;
    return true;
}
