/* server/request/normalize_messages.c: messages as clients of many engines send them, rewritten to what Kimi's
 * templates know. */
#include "server/request/request.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The calls of the history that results look for, by the client's id. Under an id stand the calls of the latest turn
 * that has it, first to last. */
typedef struct {
    i64 turn;
    size_t first, last; /* the first without a result (NONE: all have one), the last */
} id_calls;

typedef struct {
    json_t *now; /* our id: a string */
    size_t next; /* the next call of its turn that has the same id; NONE */
} old_call;

#define NONE SIZE_MAX

typedef struct {
    old_call *calls;
    id_calls *ids;
    size_t n, n_ids, cap, cap_ids;
    json_t *by_id; /* the client's id -> its place in ids; jansson's hashes are seeded */
    i64 turn;
} call_ids;

static bool set_str(json_t *o, const char *key, const char *s, api_error *e) {
    return json_object_set_new(o, key, json_string(s)) == 0 ? true : api_nomem(e);
}

static bool role(json_t *m, size_t at, api_error *e) {
    const json_t *v = json_object_get(m, "role");
    const char *s = json_string_value(v);
    char low[16] = "";
    size_t n = json_string_length(v);
    if (!n) return true; /* the renderer says what is wrong */
    for (size_t i = 0; i < n && n < sizeof low; i++) low[i] = (char)tolower((u8)s[i]);
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(known); i++) found = found || (n == strlen(known[i]) && !memcmp(low, known[i], n));
    if (!found)
        return api_fail(e, 400, NULL, "messages",
                        "messages[%zu].role: \"%.40s\"%s is none of system, developer, user, assistant, tool", at, s,
                        strlen(s) == n ? "" : " and what follows a NUL in it");
    if (!strcmp(low, "developer")) return set_str(m, "role", "system", e);
    if (!strcmp(low, "function")) return set_str(m, "role", "tool", e);
    return strcmp(low, s) ? set_str(m, "role", low, e) : true;
}

/* One part: other names of text, and what cannot be read. *reasoning: the text of a piece of reasoning, which is no
 * part of the content. */
static bool history_part(json_t *p, const char *field, const json_t **reasoning, api_error *e) {
    const json_t *v = json_object_get(p, "type");
    const char *type = json_string_value(v);
    *reasoning = NULL;
    if (!json_is_object(p)) return true; /* the renderer says what is wrong */
    if (!type) return api_fail(e, 400, NULL, field, "%s.type: expected a string, got %s", field, json_type_text(v));
    if (strstr(type, "audio") || !strcmp(type, "file"))
        return api_fail(e, 400, "unsupported", field,
                        "%s: \"%.40s\" is not supported: text, pictures and videos are read", field, type);
    if (!strcmp(type, "input_image")) return set_str(p, "type", "image_url", e); /* its image_url is the URL itself */
    if (!strcmp(type, "input_video")) return set_str(p, "type", "video_url", e);
    if (!strcmp(type, "input_text") || !strcmp(type, "output_text")) return set_str(p, "type", "text", e);
    if (strcmp(type, "thinking") && strcmp(type, "reasoning")) return true;
    *reasoning = json_object_get(p, type);
    if (!*reasoning) *reasoning = json_object_get(p, "text");
    if (!*reasoning) *reasoning = p; /* without text: only taken out */
    return true;
}

/* The parts that stay move to the front, and the rest is cut off behind them: linear in the number of parts. */
static bool parts(json_t *m, size_t at, api_error *e) {
    json_t *list = json_object_get(m, "content"), *p;
    const json_t *reasoning;
    size_t i, kept = 0;
    char field[64];
    if (!json_is_array(list)) return true;
    json_array_foreach(list, i, p) {
        snprintf(field, sizeof field, "messages[%zu].content[%zu]", at, i);
        if (!history_part(p, field, &reasoning, e)) return false;
        if (json_is_string(reasoning) && !field_given(m, "reasoning_content") &&
            json_object_set(m, "reasoning_content", (json_t *)reasoning))
            return api_nomem(e);
        if (!reasoning && kept++ < i && json_array_set(list, kept - 1, p)) return api_nomem(e);
    }
    while (json_array_size(list) > kept) json_array_remove(list, json_array_size(list) - 1);
    return true;
}

/* Room for one more element behind n. */
static bool history_grow(void **p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t more = *cap ? 2 * *cap : 16;
    void *q = realloc(*p, more * size);
    if (!q) return false;
    *p = q;
    *cap = more;
    return true;
}

/* Notes call number `at` under the client's id. */
static bool note_id(call_ids *c, const char *id, size_t at) {
    const json_t *known = json_object_get(c->by_id, id);
    if (!known) {
        if (!c->by_id) c->by_id = json_object();
        if (!history_grow((void **)&c->ids, c->n_ids, &c->cap_ids, sizeof *c->ids) ||
            json_object_set_new_nocheck(c->by_id, id, json_integer((json_int_t)c->n_ids)))
            return false;
        c->ids[c->n_ids++] = (id_calls){c->turn, at, at};
        return true;
    }
    id_calls *k = &c->ids[json_integer_value(known)];
    if (k->turn != c->turn) {
        *k = (id_calls){c->turn, at, at};
        return true;
    }
    c->calls[k->last].next = at;
    k->last = at;
    if (k->first == NONE) k->first = at;
    return true;
}

/* Notes the call `id` of the tool `name` and gives it our id. */
static bool rename_call(json_t *call, json_t *id, const char *name, call_ids *c, api_error *e) {
    if (!history_grow((void **)&c->calls, c->n, &c->cap, sizeof *c->calls)) return api_nomem(e);
    json_t *now = json_sprintf("functions.%s:%zu", name, c->n);
    if (!now) return api_nomem(e);
    c->calls[c->n++] = (old_call){now, NONE};
    if (json_is_string(id) && !note_id(c, json_string_value(id), c->n - 1)) return api_nomem(e);
    return json_object_set(call, "id", now) == 0 ? true : api_nomem(e);
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

/* The call that a result belongs to: in the latest turn that has its id, the first without a result; where all have
 * one, the last. NULL: there is no such call. */
static old_call *find_call(call_ids *c, const char *id) {
    const json_t *known = json_object_get(c->by_id, id);
    if (!known) return NULL;
    id_calls *k = &c->ids[json_integer_value(known)];
    if (k->first == NONE) return &c->calls[k->last];
    old_call *found = &c->calls[k->first];
    k->first = found->next;
    return found;
}

static bool rename_result(json_t *m, size_t at, call_ids *c, api_error *e) {
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    if (!id || !*id)
        return api_fail(e, 400, NULL, "messages", "messages[%zu].tool_call_id: missing in a tool's message", at);
    old_call *k = find_call(c, id);
    if (!k) return true; /* the call is not in this conversation: nothing to be consistent with */
    return json_object_set(m, "tool_call_id", k->now) == 0 ? true : api_nomem(e);
}

bool normalize_messages(json_t *messages, i64 *calls, api_error *e) {
    call_ids c = {0};
    size_t i;
    json_t *m;
    bool ok = true;
    json_array_foreach(messages, i, m) {
        if (!json_is_object(m)) continue;
        ok = ok && role(m, i, e) && parts(m, i, e);
        if (ok && !field_given(m, "reasoning_content") && json_is_string(json_object_get(m, "reasoning")))
            ok = json_object_set(m, "reasoning_content", json_object_get(m, "reasoning")) == 0 || api_nomem(e);
        ok = ok && rename_calls(m, &c, e);
        const char *who = json_string_value(json_object_get(m, "role"));
        if (ok && who && !strcmp(who, "tool")) ok = rename_result(m, i, &c, e);
        if (!ok) break;
    }
    *calls = (i64)c.n;
    for (size_t k = 0; k < c.n; k++) json_decref(c.calls[k].now);
    free(c.calls);
    free(c.ids);
    json_decref(c.by_id);
    return ok;
}
