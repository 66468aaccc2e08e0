/* server/routes.c: which path is answered by whom, and what a request must bring along. */
#include "base/json_size.h"
#include "server/server_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum { DEPTH_MAX = 128, VALUES_MAX = 4 << 20 };

typedef enum { M_GET = 1, M_POST = 2, M_BOTH = 3 } methods;

typedef struct {
    const char *path;
    methods methods;
    bool open;   /* no key needed */
    bool prefix; /* everything below the path, too */
    route_handler handle;
    server_role only; /* not of servers of another role; ROLE_BOTH: of all */
    bool answers;     /* not of a server that computes prompts alone */
} route;

static const route routes[] = {
    {"/v1/chat/completions", M_POST, false, false, route_chat, ROLE_BOTH, true},
    {"/v1/completions", M_POST, false, false, route_completion, ROLE_BOTH, true},
    {"/v1/messages", M_POST, false, false, route_messages, ROLE_BOTH, true},
    {"/v1/messages/count_tokens", M_POST, false, false, route_count_tokens, ROLE_BOTH, false},
    {"/v1/responses", M_POST, false, false, route_responses, ROLE_BOTH, true},
    {"/generate", M_POST, false, false, route_generate, ROLE_BOTH, true},
    {"/health", M_GET, true, false, route_health, ROLE_BOTH, false},
    {"/health_generate", M_GET, true, false, route_health_generate, ROLE_BOTH, false},
    {"/ping", M_GET, true, false, route_health, ROLE_BOTH, false},
    {"/v1/models", M_GET, false, true, route_models, ROLE_BOTH, false},
    {"/version", M_GET, false, false, route_version, ROLE_BOTH, false},
    {"/server_info", M_GET, false, false, route_server_info, ROLE_BOTH, false},
    {"/get_server_info", M_GET, false, false, route_server_info, ROLE_BOTH, false},
    {"/model_info", M_GET, false, false, route_model_info, ROLE_BOTH, false},
    {"/get_model_info", M_GET, false, false, route_model_info, ROLE_BOTH, false},
    {"/metrics", M_GET, true, false, route_metrics, ROLE_BOTH, false},
    {"/tokenize", M_POST, false, false, route_tokenize, ROLE_BOTH, false},
    {"/v1/tokenize", M_POST, false, false, route_tokenize, ROLE_BOTH, false},
    {"/detokenize", M_POST, false, false, route_detokenize, ROLE_BOTH, false},
    {"/v1/detokenize", M_POST, false, false, route_detokenize, ROLE_BOTH, false},
    {"/tokenizer_info", M_GET, false, false, route_tokenizer_info, ROLE_BOTH, false},
    {"/kv_check", M_GET, false, false, route_kv_check, ROLE_BOTH, false},
    {"/kv_pages", M_BOTH, false, false, route_kv_pages, ROLE_PREFILL, false},
    {"/flush_cache", M_BOTH, false, false, route_flush_cache, ROLE_BOTH, false},
    {"/abort_request", M_POST, false, false, route_abort_request, ROLE_BOTH, false},
    {"/live", M_GET, false, false, route_live, ROLE_BOTH, false},
    {"/", M_GET, true, false, route_page, ROLE_BOTH, false},
    {"/page", M_GET, true, true, route_page, ROLE_BOTH, false},
};

static const route *find_route(const char *path) {
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        size_t n = strlen(routes[i].path);
        if (!strcmp(path, routes[i].path)) return &routes[i];
        if (routes[i].prefix && !strncmp(path, routes[i].path, n) && path[n] == '/') return &routes[i];
    }
    return NULL;
}

void make_id(const char *prefix, char *out, size_t cap) {
    u8 random[12] = {0};
    if (getrandom(random, sizeof random, 0) != sizeof random) memset(random, 0, sizeof random);
    size_t n = (size_t)snprintf(out, cap, "%s", prefix);
    for (size_t i = 0; i < sizeof random && n + 2 < cap; i++, n += 2) snprintf(out + n, cap - n, "%02x", random[i]);
}

void reply_error(server *s, http_reply *r, const api_error *e) {
    buf_clear(&r->body);
    api_error_json(&r->body, e);
    r->status = e->http;
    r->type = NULL;
    r->retry_after = e->retry_after;
    if (s && e->http == 503 && atomic_load(&s->draining)) r->close = r->no_retry = true;
}

void reply_error_at(server *s, const http_request *q, http_reply *r, const api_error *e) {
    static const char anthropic[] = "/v1/messages";
    reply_error(s, r, e);
    if (strncmp(q->path, anthropic, sizeof anthropic - 1)) return;
    buf_clear(&r->body);
    api_error_json_anthropic(&r->body, e);
}

/* The text is copied to be parsed, so for a while there are text, copy and values. */
static bool hold_json(http_request *q, u64 bytes, api_error *e) {
    u64 need = q->body_len + bytes;
    if (http_hold(q, need)) return true;
    if (need + q->held > (u64)http_memory_max(q))
        return api_fail(e, 413, NULL, NULL,
                        "the request's JSON takes up to %llu MiB of memory, more than one request may have (half of "
                        "--max-body-memory)",
                        (unsigned long long)((need + q->held) >> 20) + 1);
    api_fail(e, 503, NULL, NULL, "the memory for requests is used up (--max-body-memory)");
    e->retry_after = 1;
    return false;
}

bool hold_for(void *ud, u64 more) { return http_hold(ud, more); }

json_t *body_object(http_request *q, api_error *e) {
    err why = {0};
    json_shape shape = json_shape_of(q->body, q->body_len);
    if (shape.depth > DEPTH_MAX)
        return api_fail(e, 400, NULL, NULL, "the request's JSON is nested deeper than %d", DEPTH_MAX), NULL;
    if (shape.values > VALUES_MAX)
        return api_fail(e, 400, NULL, NULL, "the request's JSON has more than %d values", VALUES_MAX), NULL;
    if (!hold_json(q, shape.bytes, e)) return NULL;
    json_t *v = json_parse(q->body, q->body_len, "request body", &why);
    http_drop_body(q);
    http_release(q, v ? shape.bytes : 0);
    if (!v) return api_fail_status(e, why.code, NULL, &why), NULL;
    if (json_is_object(v)) return v;
    api_fail(e, 400, NULL, NULL, "the request's body is %s, not a JSON object", json_type_text(v));
    json_decref(v);
    return NULL;
}

/* ---- Before the body is read ---- */

/* Compares in a time that depends on the length of what was sent alone. */
static bool same_key(const char *sent, const char *key) {
    size_t n = strlen(sent), m = strlen(key);
    unsigned differ = n != m;
    for (size_t i = 0; i < n; i++) differ |= (u8)sent[i] ^ (u8)key[m ? i % m : 0];
    return !differ;
}

static bool authorised(const server *s, const http_request *q) {
    if (!s->o.api_key) return true;
    const char *bearer = q->authorization;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) {
        for (bearer += 7; *bearer == ' ';) bearer++;
        if (same_key(bearer, s->o.api_key)) return true;
    }
    return q->api_key && same_key(q->api_key, s->o.api_key);
}

static bool is_json(const char *type) {
    static const char want[] = "application/json";
    size_t n = sizeof want - 1;
    return !type || (!strncasecmp(type, want, n) && (!type[n] || type[n] == ';' || type[n] == ' '));
}

/* Pages of other servers, and names that were made to point here. */
static bool from_allowed_place(const server *s, const http_request *q, bool page, api_error *e) {
    const origin_request o = {.host = http_header(q, "Host"),
                              .origin = http_header(q, "Origin"),
                              .fetch_site = http_header(q, "Sec-Fetch-Site"),
                              .loopback = q->loopback,
                              .page = page};
    switch (origin_judge(&s->o.origin, &o)) {
    case ORIGIN_OK: return true;
    case ORIGIN_HOST:
        return api_fail(e, 403, "host_not_allowed", NULL,
                        "this server listens on this machine only and is not called \"%.200s\": use 127.0.0.1 or "
                        "localhost, or start it with --allow-host NAME",
                        o.host);
    case ORIGIN_PAGE: break;
    }
    return api_fail(e, 403, "origin_not_allowed", NULL,
                    "pages of %.200s may not use this server: start it with --allow-origin to let them",
                    o.origin ? o.origin : "other servers");
}

static bool routes_refuse(server *s, http_request *q, http_reply *r, api_error *e) {
    const route *at = find_route(q->path);
    const char *m = q->method;
    bool get = !strcmp(m, "GET") || !strcmp(m, "HEAD"), post = !strcmp(m, "POST");
    if (q->framing.status) return api_fail(e, q->framing.status, NULL, NULL, "%s", q->framing.text), r->close = true;
    if (!from_allowed_place(s, q, at && at->handle == route_page, e)) return true;
    if (!strcmp(m, "OPTIONS")) {
        r->status = 204;
        r->allow = "GET, POST, OPTIONS";
        origin_preflight(q, r);
        return true;
    }
    if (!authorised(s, q) && !(at && at->open))
        return api_fail(e, 401, "invalid_api_key", NULL,
                        "missing or wrong API key: send Authorization: Bearer KEY or x-api-key: KEY"),
               true;
    if (!at || (at->only != ROLE_BOTH && at->only != s->o.role))
        return api_fail(e, 404, NULL, NULL, "there is no %.200s here", q->path), true;
    if (at->answers && s->o.role == ROLE_PREFILL)
        return api_fail(e, 403, "prefill_only", NULL,
                        "this server computes prompts for others (--role prefill): ask one of --role decode"),
               true;
    if (!((get && at->methods & M_GET) || (post && at->methods & M_POST))) {
        r->allow = at->methods == M_GET    ? "GET, HEAD, OPTIONS"
                   : at->methods == M_POST ? "POST, OPTIONS"
                                           : "GET, HEAD, POST, OPTIONS";
        return api_fail(e, 405, NULL, NULL, "%s takes %s, not %.16s", at->path, r->allow, m), true;
    }
    if (post && !is_json(q->content_type))
        return api_fail(e, 415, NULL, NULL, "Content-Type is \"%.80s\": application/json is expected", q->content_type),
               true;
    q->route = (void *)(uintptr_t)at;
    return false;
}

bool routes_check(void *ud, http_request *q, http_reply *r) {
    server *s = ud;
    api_error e = {0};
    if (!routes_refuse(s, q, r, &e)) return false;
    const char *allow = r->allow;
    bool close = r->close;
    if (e.http) reply_error_at(s, q, r, &e);
    r->allow = allow;
    r->close |= close;
    origin_fields(&s->o.origin, q, r);
    metrics_response(s->metrics, r->status);
    return true;
}

void routes_handle(void *ud, http_request *q, http_reply *r) {
    server *s = ud;
    const route *at = q->route;
    at->handle(s, q, r);
    origin_fields(&s->o.origin, q, r);
    metrics_response(s->metrics, r->status);
}
