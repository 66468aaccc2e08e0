#include "server/request/errors.h"
#include "base/json.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool api_fail(api_error *e, int http, const char *code, const char *param, const char *fmt, ...) {
    char text[sizeof e->text.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err name = {0}; /* a field's name may come from the client: cleaned like every other text */
    err_set(&name, ST_INPUT, "%s", param ? param : "");
    *e = (api_error){.http = http, .code = code};
    snprintf(e->param, sizeof e->param, "%.*s", (int)sizeof e->param - 1, name.text);
    err_set(&e->text, ST_INPUT, "%s", text);
    return false;
}

bool api_nomem(api_error *e) { return api_fail(e, 503, NULL, NULL, "out of memory"); }

bool api_fail_status(api_error *e, status st, const char *param, const err *why) {
    const char *text = why->text[0] ? why->text : status_text(st);
    if (st != ST_NOMEM) return api_fail(e, 400, NULL, param, "%s", text);
    api_fail(e, 503, NULL, NULL, "%s", text);
    e->retry_after = 1;
    return false;
}

bool api_fail_verdict(api_error *e, sched_verdict v, const char *param, i64 retry_after, const err *why) {
    switch (v) {
    case SCHED_TOO_LONG: return api_fail(e, 400, "context_length_exceeded", param, "%s", why->text);
    case SCHED_QUEUE_FULL: api_fail(e, 429, "rate_limit_exceeded", NULL, "%s", why->text); break;
    case SCHED_CLOSING:
    case SCHED_NO_MEMORY: api_fail(e, 503, NULL, NULL, "%s", why->text); break;
    default: return api_fail(e, 400, NULL, NULL, "%s", why->text);
    }
    e->retry_after = max_i64(retry_after, 1);
    return false;
}

bool api_fail_finish(api_error *e, sched_finish f, const err *why) {
    const char *text = why && why->text[0] ? why->text : NULL;
    if (f == SCHED_ERROR && why && why->code == ST_PEER) {
        api_fail(e, 503, "prefill_failed", NULL, "%s", why->text);
        e->retry_after = 1;
        return false;
    }
    if (f == SCHED_ERROR) return api_fail(e, 500, NULL, NULL, "%s", text ? text : "the engine failed");
    if (f == SCHED_ABORT) return api_fail(e, 503, "aborted", NULL, "the request was aborted");
    api_fail(e, 503, f == SCHED_TIMEOUT ? "timeout" : NULL, NULL, "%s", text ? text : "the request waited too long");
    e->retry_after = 1;
    return false;
}

static const char *type_of(int http) {
    switch (http) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return http >= 500 ? "server_error" : "invalid_request_error";
    }
}

void api_error_json(buf *b, const api_error *e) {
    buf_str(b, "{\"error\":{\"message\":");
    buf_json_str(b, e->text.text, strlen(e->text.text));
    buf_fmt(b, ",\"type\":\"%s\",\"param\":", type_of(e->http));
    if (e->param[0])
        buf_json_str(b, e->param, strlen(e->param));
    else
        buf_str(b, "null");
    if (e->code)
        buf_fmt(b, ",\"code\":\"%s\"}}", e->code);
    else
        buf_fmt(b, ",\"code\":%d}}", e->http);
}

void api_error_json_anthropic(buf *b, const api_error *e) {
    const char *type = e->http == 413                     ? "request_too_large"
                       : e->http >= 500 && e->http != 503 ? "api_error"
                                                          : type_of(e->http);
    buf_fmt(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    buf_json_str(b, e->text.text, strlen(e->text.text));
    buf_str(b, "}}");
}
