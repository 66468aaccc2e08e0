/* server/messages.c: messages as clients of many engines send them, rewritten to what Kimi's templates know. */
#include "server/request.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    json_t *was, *now; /* the client's id and ours: strings */
    bool answered;
    i64 turn;
} old_call;

typedef struct {
    old_call *calls;
    size_t n, cap;
    i64 turn;
} call_ids;

static bool nomem(api_error *e) { return api_fail(e, 503, NULL, NULL, "out of memory"); }

static bool set_str(json_t *o, const char *key, const char *s, api_error *e) {
    return json_object_set_new(o, key, json_string(s)) == 0 ? true : nomem(e);
}

static bool role(json_t *m, size_t at, api_error *e) {
    const char *s = json_string_value(json_object_get(m, "role"));
    char low[32];
    size_t n = s ? strlen(s) : 0;
    if (!n || n >= sizeof low) return true; /* the renderer says what is wrong */
    for (size_t i = 0; i <= n; i++) low[i] = (char)tolower((u8)s[i]);
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(known); i++) found = found || !strcmp(low, known[i]);
    if (!found)
        return api_fail(e, 400, NULL, "messages",
                        "messages[%zu].role: \"%s\" is none of system, developer, user, assistant, tool", at,
                        low);
    if (!strcmp(low, "developer")) return set_str(m, "role", "system", e);
    if (!strcmp(low, "function")) return set_str(m, "role", "tool", e);
    return strcmp(low, s) ? set_str(m, "role", low, e) : true;
}

/* Parts: other names of text, pieces of reasoning, and what cannot be read. */
static bool parts(json_t *m, size_t at, api_error *e) {
    json_t *list = json_object_get(m, "content"), *p;
    char field[64];
    if (!json_is_array(list)) return true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        p = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(p, "type"));
        if (!type) continue;
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", at, i);
        if (strstr(type, "image") || strstr(type, "video") || strstr(type, "audio") || !strcmp(type, "file"))
            return api_fail(e, 400, "unsupported", field,
                            "%s: \"%.40s\" is not supported yet: this version reads text only", field, type);
        if (!strcmp(type, "input_text") || !strcmp(type, "output_text")) {
            if (!set_str(p, "type", "text", e)) return false;
        } else if (!strcmp(type, "thinking") || !strcmp(type, "reasoning")) {
            json_t *text = json_object_get(p, type);
            if (!text) text = json_object_get(p, "text");
            if (json_is_string(text) && !field_given(m, "reasoning_content") &&
                json_object_set(m, "reasoning_content", text))
                return nomem(e);
            json_array_remove(list, i--);
        }
    }
    return true;
}

/* Notes the call `id` of the tool `name` and gives it our id. */
static bool rename_call(json_t *call, json_t *id, const char *name, call_ids *c, api_error *e) {
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        old_call *grown = realloc(c->calls, cap * sizeof *grown);
        if (!grown) return nomem(e);
        c->calls = grown;
        c->cap = cap;
    }
    json_t *now = json_sprintf("functions.%s:%zu", name, c->n);
    if (!now) return nomem(e);
    c->calls[c->n++] = (old_call){json_is_string(id) ? json_incref(id) : NULL, now, false, c->turn};
    return json_object_set(call, "id", now) == 0 ? true : nomem(e);
}

static bool rename_calls(json_t *m, call_ids *c, api_error *e) {
    json_t *list = json_object_get(m, "tool_calls"), *call;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list)) return true;
    c->turn++;
    json_array_foreach(list, i, call) {
        const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
        if (!name) continue; /* the renderer says what is wrong */
        if (!rename_call(call, json_object_get(call, "id"), name, c, e)) return false;
    }
    return true;
}

/* The call that a result belongs to: in the latest turn that has its id, the first without a result. */
static old_call *find_call(call_ids *c, const char *id) {
    old_call *best = NULL;
    for (size_t i = c->n; i-- > 0;) {
        old_call *k = &c->calls[i];
        if (!k->was || strcmp(json_string_value(k->was), id)) continue;
        if (best && k->turn != best->turn) break;
        if (!best || !k->answered) best = k;
    }
    return best;
}

static bool rename_result(json_t *m, size_t at, call_ids *c, api_error *e) {
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    if (!id || !*id)
        return api_fail(e, 400, NULL, "messages", "messages[%zu].tool_call_id: missing in a tool's message",
                        at);
    old_call *k = find_call(c, id);
    if (!k) return true; /* the call is not in this conversation: nothing to be consistent with */
    k->answered = true;
    return json_object_set(m, "tool_call_id", k->now) == 0 ? true : nomem(e);
}

bool messages_normalise(json_t *messages, i64 *calls, api_error *e) {
    call_ids c = {0};
    size_t i;
    json_t *m;
    bool ok = true;
    json_array_foreach(messages, i, m) {
        if (!json_is_object(m)) continue;
        ok = ok && role(m, i, e) && parts(m, i, e);
        if (ok && !field_given(m, "reasoning_content") && json_is_string(json_object_get(m, "reasoning")))
            ok = json_object_set(m, "reasoning_content", json_object_get(m, "reasoning")) == 0 || nomem(e);
        ok = ok && rename_calls(m, &c, e);
        const char *who = json_string_value(json_object_get(m, "role"));
        if (ok && who && !strcmp(who, "tool")) ok = rename_result(m, i, &c, e);
        if (!ok) break;
    }
    *calls = (i64)c.n;
    for (size_t k = 0; k < c.n; k++) {
        json_decref(c.calls[k].was);
        json_decref(c.calls[k].now);
    }
    free(c.calls);
    return ok;
}
