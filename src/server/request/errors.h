/* server/request/errors.h: what a client is told when something is wrong. OpenAI's form is
 * {"error": {"message": ..., "type": ..., "param": field or null, "code": word, number or null}}. */
#ifndef SERVER_REQUEST_ERRORS_H
#define SERVER_REQUEST_ERRORS_H
#include "base/buf.h"
#include "base/err.h"
#include "runtime/scheduler.h"

typedef struct {
    int http;         /* status; 0: no error */
    const char *code; /* static; NULL: the status as a number */
    char param[96];   /* the field at fault, "" for none */
    err text;
    i64 retry_after; /* seconds for Retry-After; 0: no such header */
} api_error;

/* Fills *e and returns false, so that `return api_fail(...)` reads as one step. `param` NULL: no field. */
bool api_fail(api_error *e, int http, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* 503: out of memory. */
bool api_nomem(api_error *e);
/* An error of a room below: ST_NOMEM is 503, everything else 400 on `param`. */
bool api_fail_status(api_error *e, status st, const char *param, const err *why);
/* What scheduler_submit() said. */
bool api_fail_verdict(api_error *e, sched_verdict v, const char *param, i64 retry_after, const err *why);
/* An answer that ended as anything but SCHED_STOP or SCHED_LENGTH; `why` may be NULL. */
bool api_fail_finish(api_error *e, sched_finish f, const err *why);

void api_error_json(buf *b, const api_error *e);
/* The same in Anthropic's form: {"type": "error", "error": {"type": ..., "message": ...}}. */
void api_error_json_anthropic(buf *b, const api_error *e);

#endif
