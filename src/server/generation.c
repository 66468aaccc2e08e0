/* server/generation.c: a request for tokens, from its JSON to the last byte of the answer. */
#include "base/log.h"
#include "server/reply/reply.h"
#include "server/server_internal.h"
#include <stdlib.h>
#include <string.h>

/* Longest sleep between two looks at whether the client is still there. */
static const f64 LOOK_S = 0.25;

/* What an endpoint has of its own. */
static const struct {
    const char *path, *id_prefix;
    bool (*read)(gen_request *r, const served_model *m, json_t *body, api_error *e);
} endpoints[] = {[API_CHAT] = {"/v1/chat/completions", "chatcmpl-", request_chat},
                 [API_COMPLETION] = {"/v1/completions", "cmpl-", request_completion},
                 [API_GENERATE] = {"/generate", "", request_generate},
                 [API_MESSAGES] = {"/v1/messages", "msg_", request_anthropic},
                 [API_RESPONSES] = {"/v1/responses", "resp_", request_responses}};

typedef struct {
    server *s;
    gen_request r;
    reply p;
    job *j;
    int fd;
    i64 left;      /* choices that go on */
    f64 looked_s;  /* when it was last seen that the client is there */
    bool *touched; /* [n]: choices with something new */
    api_kind kind;
} generation;

static void generation_close(generation *g) {
    job_release(g->j);
    if (g->s->o.log_requests && g->p.n) {
        i64 in = 0, out = 0;
        for (i64 i = 0; i < g->r.n_prompts; i++) in += (i64)g->r.prompts[i].len;
        for (i64 i = 0; g->p.all && i < g->p.n; i++) out += g->p.all[i].n_tokens;
        log_note("%s %s: %lld prompt tokens, %lld generated, %.3f s%s", endpoints[g->kind].path, g->p.id, (long long)in,
                 (long long)out, now_s() - g->p.received_s, g->left ? ", not finished" : "");
    }
    reply_close(&g->p);
    gen_request_free(&g->r);
    free(g->touched);
    free(g);
}

static void generation_done(void *stream) { generation_close(stream); }

/* ---- Events ---- */

static void close_choice(generation *g, i64 i) {
    g->p.ends[i] = job_end_of(g->j, i);
    g->left--;
}

static bool end_choice(generation *g, i64 i, api_error *e) {
    answer *a = &g->p.all[i];
    if (a->done) return true; /* it was cut, and its end came after */
    close_choice(g, i);
    const job_end *end = &g->p.ends[i];
    if (end->finish != SCHED_STOP && end->finish != SCHED_LENGTH) return api_fail_finish(e, end->finish, &end->error);
    answer_end(a, end);
    return true;
}

static bool take_event(generation *g, const job_event *ev, const sched_top *top, api_error *e) {
    i64 i = ev->choice;
    answer *a = &g->p.all[i];
    g->touched[i] = true;
    if (ev->kind == SCHED_STARTED) return g->p.ends[i] = job_end_of(g->j, i), true;
    if (ev->kind == SCHED_END) {
        if (!end_choice(g, i, e)) return false;
    } else if (!a->done) {
        answer_event(a, ev, top);
        if (a->done && a->cut) {
            close_choice(g, i);
            job_abort_choice(g->j, i);
        }
    }
    return a->failed ? api_nomem(e) : true;
}

/* Takes what has come, waiting at most `timeout_s`. *n: events taken. */
static bool generation_take(generation *g, f64 timeout_s, i64 *n, api_error *e) {
    const job_events *q;
    *n = 0;
    if (!job_take(g->j, timeout_s, &q, e)) return false;
    *n = q->n;
    for (i64 k = 0; k < q->n; k++)
        if (!take_event(g, &q->ev[k], q->top, e)) return false;
    return true;
}

static void write_chunks(generation *g, buf *out) {
    for (i64 i = 0; i < g->p.n; i++) {
        if (g->touched[i]) reply_chunks(&g->p, i, out);
        g->touched[i] = false;
    }
    if (!g->left) reply_stream_end(&g->p, out);
}

/* Looks now and then, also while tokens keep coming. */
static bool client_gone(generation *g) {
    f64 now = now_s();
    if (now - g->looked_s < LOOK_S) return false;
    g->looked_s = now;
    return http_peer_gone(g->fd);
}

static bool client_gone_ud(void *g) { return client_gone(g); }
/* What is decoded while the server ends would be refused then. */
static bool reading_is_over(void *ud) {
    generation *g = ud;
    return atomic_load(&g->s->draining) || client_gone(g);
}

static bool generation_pull(void *ud, buf *out) {
    generation *g = ud;
    while (g->left) {
        api_error e = {0};
        i64 n;
        if (client_gone(g)) return false;
        if (!generation_take(g, LOOK_S, &n, &e)) {
            reply_stream_error(&g->p, &e, out);
            return false;
        }
        if (n)
            write_chunks(g, out);
        else
            reply_silence(&g->p, out);
        if (out->len) break;
    }
    return g->left > 0;
}

/* ---- From the request to the first event ---- */

bool check_model(const server *s, const json_t *body, api_error *e) {
    const char *name = NULL;
    if (!field_str(body, "model", &name, e)) return false;
    if (!name || s->o.any_model || served_model_is(&s->model, name)) return true;
    return api_fail(e, 404, "model_not_found", "model", "the model \"%.200s\" does not exist; this server has \"%s\"",
                    name, s->model.name);
}

static json_t *read_body(generation *g, http_request *q, api_error *e) {
    json_t *body = body_object(q, e);
    if (!body) return NULL;
    json_t *extra = json_object_get(body, "extra_body"); /* a client's literal spelling of "more fields" */
    if (json_is_object(extra)) json_object_update_missing(body, extra);
    if (check_model(g->s, body, e)) return body;
    json_decref(body);
    return NULL;
}

static bool generation_start(generation *g, http_request *q, api_kind kind, api_error *e) {
    char id[160];
    err why = {0};
    json_t *body = read_body(g, q, e);
    if (!body) return false;
    const served_model *m = &g->s->model;
    g->r.hold = hold_for;
    g->r.hold_most = (u64)http_memory_max(q);
    g->r.gone = reading_is_over;
    g->r.gone_ud = g;
    g->r.hold_ud = q;
    g->r.token_by_token = g->s->o.disable_jump_forward;
    const bool read = endpoints[kind].read(&g->r, m, body, e);
    if (!read && !e->http && atomic_load(&g->s->draining))
        return api_fail(e, 503, NULL, NULL, "the server is shutting down");
    if (!read || !request_constrain(&g->r, g->s->constraints, &g->s->o.json_form, client_gone_ud, g, e)) return false;
    http_release(q, gen_request_drop_read(&g->r));
    if (client_gone(g)) return false; /* nobody waits: the engine need not know */
    make_id(endpoints[kind].id_prefix, id, sizeof id);
    const char *rid = g->r.rid ? g->r.rid : id;
    status st = reply_open(&g->p, &g->r, m, kind == API_GENERATE ? rid : id, &why);
    g->p.incremental = g->s->o.incremental;
    g->left = g->r.n_prompts * g->r.n;
    g->touched = calloc((size_t)g->left, sizeof *g->touched);
    if (st != ST_OK) return api_fail_status(e, st, NULL, &why);
    if (!g->touched) return api_nomem(e);
    return job_submit(&g->j, g->s->jobs, g->s->sched, &g->r, m, rid, g->s->o.request_timeout_s, e);
}

/* Waits until something has happened (`all`: everything). False with e->http 0: the client has gone. */
static bool wait_for(generation *g, bool all, api_error *e) {
    i64 n = 0, seen = 0;
    while (all ? g->left > 0 : seen == 0) {
        if (!generation_take(g, LOOK_S, &n, e)) return false;
        seen += n;
        if (client_gone(g)) return false;
    }
    return true;
}

/* What is passed over of a schema goes to the log now and then: its names are the client's, who could fill it. */
static void log_warning(const char *line) {
    enum { PAUSE_S = 10 };
    static _Atomic i64 next_s;
    i64 now = (i64)now_s(), next = atomic_load(&next_s);
    if (now >= next && atomic_compare_exchange_strong(&next_s, &next, now + PAUSE_S))
        log_note("structured output: %s (said every %d s at most)", line, PAUSE_S);
}

/* All of it in a header. Lines have names of keywords and places. */
static void say_warnings(const buf *lines, http_reply *r) {
    const char *at = lines->len ? lines->data : "", *end;
    size_t room = sizeof r->warning - 1, n = 0;
    for (; *at; at = *end ? end + 1 : end) {
        err line = {0}; /* printable */
        end = at + strcspn(at, "\n");
        if (end == at) continue;
        err_set(&line, ST_INPUT, "%.*s", (int)(end - at), at);
        log_warning(line.text);
        for (const char *p = n ? "; " : ""; *p && n < room; p++) r->warning[n++] = *p;
        for (const char *p = line.text; *p && n < room; p++) r->warning[n++] = *p < ' ' || *p > '~' ? '?' : *p;
    }
    if (n == room) memcpy(r->warning + room - 3, "...", 3);
}

static void generation_run(server *s, http_request *q, http_reply *r, api_kind kind) {
    api_error e = {0};
    generation *g = calloc(1, sizeof *g);
    if (!g) {
        api_nomem(&e);
        reply_error_at(s, q, r, &e);
        return;
    }
    g->s = s;
    g->fd = q->fd;
    g->kind = kind;
    bool ok = generation_start(g, q, kind, &e) && wait_for(g, !g->r.stream, &e);
    memcpy(r->request_id, g->p.id, sizeof r->request_id);
    if (kind == API_GENERATE) r->request_id[0] = 0; /* the client's own words stay out of headers */
    if (!ok) {
        if (!e.http) api_fail(&e, 499, NULL, NULL, "the client has gone");
        reply_error_at(s, q, r, &e);
        generation_close(g);
        return;
    }
    say_warnings(&g->r.warnings, r);
    r->status = 200;
    if (!g->r.stream) {
        reply_whole(&g->p, &r->body);
        generation_close(g);
        return;
    }
    r->type = "text/event-stream; charset=utf-8";
    r->pull = generation_pull;
    r->done = generation_done;
    r->ud = g;
    write_chunks(g, &r->body);
}

void route_chat(server *s, http_request *q, http_reply *r) { generation_run(s, q, r, API_CHAT); }
void route_completion(server *s, http_request *q, http_reply *r) { generation_run(s, q, r, API_COMPLETION); }
void route_generate(server *s, http_request *q, http_reply *r) { generation_run(s, q, r, API_GENERATE); }
void route_messages(server *s, http_request *q, http_reply *r) { generation_run(s, q, r, API_MESSAGES); }
void route_responses(server *s, http_request *q, http_reply *r) { generation_run(s, q, r, API_RESPONSES); }
