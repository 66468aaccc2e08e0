/* cmd/lib/client_http.c: requests to /v1/completions, /v1/chat/completions or /generate. */
#include "cmd/lib/answer_stream.h"
#include "base/log.h"
#include "cmd/lib/client.h"
#include "cmd/lib/http_pool.h"
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_S = 6 * 3600, ERROR_BYTES = 2048, ERROR_BODY = 1 << 16 };

typedef struct {
    client c;
    http_pool *h;
    client_api api;
    bool token_ids;
    u64 most; /* bytes of an answer */
    char base[1024], url[1088];
    const char *key; /* OPENAI_API_KEY */
} http_client;

/* One request under way. */
typedef struct {
    http_call call;
    answer_stream stream;
    client_answer *a;
    buf refused; /* the body of an answer that is not 200 is an error text; its beginning */
} exchange;

static void on_piece(void *ud, const answer_piece *p) {
    exchange *x = ud;
    buf_add(&x->a->text, p->text, p->len);
    for (size_t i = 0; i < json_array_size(p->ids); i++)
        ids_add(&x->a->ids, (i32)json_integer_value(json_array_get(p->ids, i)));
    if (p->new_tokens != 0) client_tokens(x->a, now_s(), p->new_tokens > 0 ? p->new_tokens : 1);
}

/* An answer that went wrong is not read to its end, but a refusal is, which is no stream and ends soon. */
static bool on_data(http_call *call, const char *bytes, size_t n) {
    exchange *x = call->ud;
    if (x->refused.len < ERROR_BYTES) buf_add(&x->refused, bytes, n < 512 ? n : 512);
    answer_stream_add(&x->stream, bytes, n);
    return !x->stream.error[0] || call->got < ERROR_BODY;
}

/* ---- bodies ---- */

static void add_prompt(buf *b, const client_request *r) {
    if (r->ids) {
        buf_char(b, '[');
        for (i64 i = 0; i < r->n_ids; i++) buf_fmt(b, i ? ",%d" : "%d", r->ids[i]);
        buf_char(b, ']');
    } else {
        buf_json_str(b, r->text, r->text_len);
    }
}

static void add_json(buf *b, const json_t *v) { json_write(b, v, &json_compact); }

static void add_messages(buf *b, const client_request *r) {
    if (r->messages) {
        add_json(b, r->messages);
        return;
    }
    buf_str(b, "[{\"role\":\"user\",\"content\":");
    buf_json_str(b, r->text, r->text_len);
    buf_str(b, "}]");
}

static void add_stops(buf *b, const client_options *o) {
    if (!o->n_stop) return;
    buf_str(b, ",\"stop\":[");
    for (int i = 0; i < o->n_stop; i++) {
        if (i) buf_char(b, ',');
        buf_json_str(b, o->stop[i], strlen(o->stop[i]));
    }
    buf_char(b, ']');
}

static void openai_body(const http_client *h, const client_request *r, buf *b) {
    const client_options *o = &h->c.o;
    buf_str(b, "{\"model\":");
    buf_json_str(b, h->c.name, strlen(h->c.name));
    if (h->api == API_CHAT) {
        buf_str(b, ",\"messages\":");
        add_messages(b, r);
        buf_fmt(b, ",\"max_completion_tokens\":%lld", (long long)r->max_tokens);
    } else {
        buf_str(b, ",\"prompt\":");
        add_prompt(b, r);
        buf_fmt(b, ",\"max_tokens\":%lld", (long long)r->max_tokens);
    }
    buf_fmt(b, ",\"temperature\":%.17g,\"stream\":%s", o->temperature, o->stream ? "true" : "false");
    if (o->stream) buf_str(b, ",\"stream_options\":{\"include_usage\":true}");
    if (o->ignore_eos) buf_str(b, ",\"ignore_eos\":true");
    if (h->token_ids) buf_str(b, ",\"return_token_ids\":true");
    if (o->logprobs) buf_str(b, h->api == API_CHAT ? ",\"logprobs\":true" : ",\"logprobs\":1");
    add_stops(b, o);
}

static void native_body(const http_client *h, const client_request *r, buf *b) {
    const client_options *o = &h->c.o;
    buf_str(b, r->ids ? "{\"input_ids\":" : "{\"text\":");
    add_prompt(b, r);
    buf_fmt(b, ",\"sampling_params\":{\"temperature\":%.17g,\"max_new_tokens\":%lld,\"ignore_eos\":%s", o->temperature,
            (long long)r->max_tokens, o->ignore_eos ? "true" : "false");
    add_stops(b, o);
    buf_fmt(b, "},\"stream\":%s,\"return_logprob\":%s", o->stream ? "true" : "false", o->logprobs ? "true" : "false");
}

/* What the body asks for, all choices together. */
static i64 asked_tokens(const json_t *body, i64 otherwise) {
    const json_t *sampling = json_object_get(body, "sampling_params"), *n = json_object_get(body, "n"),
                 *said[] = {json_object_get(sampling, "max_new_tokens"), json_object_get(body, "max_completion_tokens"),
                            json_object_get(body, "max_tokens")};
    i64 asked = 0;
    for (size_t i = 0; i < COUNT_OF(said); i++)
        if (json_is_integer(said[i])) asked = max_i64(asked, json_integer_value(said[i]));
    if (asked <= 0) asked = otherwise;
    i64 choices = json_is_integer(n) ? max_i64(1, json_integer_value(n)) : 1;
    return asked > ANSWER_TOKENS_MAX / choices ? ANSWER_TOKENS_MAX : asked * choices;
}

/* The members of `extra` replace equal ones. */
static status merge_extra(client_request *r, const json_t *extra, err *e) {
    buf *b = &r->body;
    json_t *o = json_parse(b->data, b->len, "the request", e);
    if (!o) return e->code;
    bool bad = json_object_update(o, (json_t *)extra);
    r->asked_tokens = asked_tokens(o, r->max_tokens);
    buf_clear(b);
    add_json(b, o);
    json_decref(o);
    return bad || b->failed ? err_nomem(e, "a request", b->len) : ST_OK;
}

static status client_http_prepare(client *c, client_request *r, err *e) {
    http_client *h = (http_client *)c;
    buf *b = &r->body;
    buf_clear(b);
    if (h->api == API_CHAT && r->ids) return err_set(e, ST_INPUT, "a chat endpoint takes no token ids");
    if (h->api != API_CHAT && r->messages)
        return err_set(e, ST_INPUT, "messages need a chat endpoint (--backend openai-chat)");
    if (h->api == API_GENERATE)
        native_body(h, r, b);
    else
        openai_body(h, r, b);
    buf_char(b, '}');
    r->asked_tokens = r->max_tokens;
    if (b->failed) return err_nomem(e, "a request", b->len);
    return h->c.o.extra ? merge_extra(r, h->c.o.extra, e) : ST_OK;
}

/* ---- requests ---- */

static status client_http_start(client *c, client_request *r, client_answer *a, err *e) {
    http_client *h = (http_client *)c;
    status st = r->body.len ? ST_OK : client_http_prepare(c, r, e);
    if (st != ST_OK) return st;
    exchange *x = calloc(1, sizeof *x);
    if (!x) return err_nomem(e, "a request", sizeof *x);
    x->a = a;
    x->call.on_data = on_data;
    x->call.ud = x;
    x->call.most = h->most;
    x->stream =
        (answer_stream){.on_piece = on_piece, .ud = x, .keep_body = !h->c.o.stream, .max_tokens = r->asked_tokens};
    a->output_tokens = r->max_tokens;
    a->start_s = now_s();
    st = http_pool_start(h->h, &x->call, h->url, r->body.data, r->body.len, h->key, TIMEOUT_S, e);
    if (st != ST_OK) free(x);
    return st;
}

static void client_http_fail(client_answer *a, const char *fmt, long status, const char *text) {
    err e;
    err_set(&e, ST_IO, fmt, status, text);
    snprintf(a->error, sizeof a->error, "%.250s", e.text);
}

static void client_http_finish(exchange *x) {
    client_answer *a = x->a;
    answer_stream *s = &x->stream;
    a->end_s = x->call.end_s;
    if (x->call.status == 200 && !x->call.error[0]) answer_stream_end(s);
    if (x->call.status == 200 && s->error[0]) /* which may have ended the transfer */
        client_http_fail(a, "status %ld: %s", x->call.status, s->error);
    else if (x->call.error[0])
        client_http_fail(a, "transfer failed (status %ld): %s", x->call.status, x->call.error);
    else if (x->call.status != 200)
        client_http_fail(a, "status %ld: %.200s", x->call.status, x->refused.data ? x->refused.data : "");
    a->ok = !a->error[0];
    a->prompt_tokens = s->started ? s->prompt_tokens : -1;
    a->cached_tokens = s->started ? s->cached_tokens : -1;
    a->counted = s->started && s->output_tokens >= 0;
    if (a->counted) a->output_tokens = s->output_tokens;
    a->stopped = !strcmp(s->finish, "stop");
    if (a->text.failed || a->ids.failed || a->gaps.failed) {
        a->ok = false;
        strcpy(a->error, "out of memory");
    }
}

static client_answer *client_http_wait_answer(client *c, f64 until_s) {
    http_call *call = http_pool_wait(((http_client *)c)->h, until_s);
    if (!call) return NULL;
    exchange *x = call->ud;
    client_answer *a = x->a;
    client_http_finish(x);
    answer_stream_free(&x->stream);
    buf_free(&x->refused);
    free(x);
    return a;
}

/* ---- the server itself ---- */

static json_t *get_json(http_client *h, const char *path, err *e) {
    char url[1200];
    buf body = {0};
    snprintf(url, sizeof url, "%s%s", h->base, path);
    json_t *v = NULL;
    if (http_pool_fetch(h->h, url, NULL, h->key, 10, &body, e) == ST_OK) v = json_parse(body.data, body.len, url, e);
    buf_free(&body);
    return v;
}

static json_t *client_http_info(client *c) {
    json_t *v = get_json((http_client *)c, "/get_server_info", NULL);
    return v ? v : get_json((http_client *)c, "/server_info", NULL);
}

char *client_http_model_info(client *c, const char *key) {
    json_t *v = get_json((http_client *)c, "/get_model_info", NULL);
    const char *s = json_string_value(json_object_get(v, key));
    char *copy = s ? strdup(s) : NULL;
    json_decref(v);
    return copy;
}

static status client_http_flush(client *c, err *e) {
    http_client *h = (http_client *)c;
    char url[1200];
    buf body = {0};
    snprintf(url, sizeof url, "%s/flush_cache", h->base);
    status st = http_pool_fetch(h->h, url, "", h->key, 60, &body, e);
    buf_free(&body);
    return st;
}

static void client_http_close_client(client *c) {
    http_pool_close(((http_client *)c)->h);
    free(c);
}

static const client_table client_http_table = {client_http_prepare, client_http_start, client_http_wait_answer,
                                               client_http_flush,   client_http_info,  client_http_close_client};

static status set_urls(http_client *h, const char *base, err *e) {
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/generate"};
    size_t n = strlen(base);
    if (strncmp(base, "http://", 7) && strncmp(base, "https://", 8))
        return err_set(e, ST_INPUT, "\"%.200s\" is no URL that begins with http:// or https://", base);
    while (n && base[n - 1] == '/') n--;
    for (size_t i = 0; i < COUNT_OF(paths); i++) { /* whole endpoint URLs, as lm_eval wants them, are taken too */
        size_t m = strlen(paths[i]);
        if (n > m && !memcmp(base + n - m, paths[i], m)) n -= m;
    }
    if (n > 3 && !memcmp(base + n - 3, "/v1", 3)) n -= 3;
    if (n >= sizeof h->base) return err_set(e, ST_LIMIT, "the URL is longer than %zu bytes", sizeof h->base);
    memcpy(h->base, base, n);
    snprintf(h->url, sizeof h->url, "%s%s", h->base, paths[h->api]);
    return ST_OK;
}

static status find_model(http_client *h, const char *model, err *e) {
    if (model) {
        snprintf(h->c.name, sizeof h->c.name, "%s", model);
        return ST_OK;
    }
    json_t *v = get_json(h, "/v1/models", e);
    if (!v) return err_prefix(e, "asking for the model's name (or give --model)");
    const json_t *first = json_array_get(json_object_get(v, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    if (id) snprintf(h->c.name, sizeof h->c.name, "%s", id);
    json_decref(v);
    return id ? ST_OK : err_set(e, ST_FORMAT, "%s/v1/models names no model: give --model", h->base);
}

status client_http_open(client **out, const client_http_options *o, err *e) {
    *out = NULL;
    http_client *h = calloc(1, sizeof *h);
    if (!h) return err_nomem(e, "the client", sizeof *h);
    h->c.t = &client_http_table;
    h->c.o = o->o;
    h->api = o->api;
    h->token_ids = o->token_ids;
    h->most = (u64)o->answer_mb * 1000000;
    h->key = opt_env("OPENAI_API_KEY");
    status st = set_urls(h, o->base_url, e);
    if (st == ST_OK) st = http_pool_open(&h->h, e);
    if (st == ST_OK) st = find_model(h, o->model, e);
    if (st == ST_OK) return *out = &h->c, ST_OK;
    client_http_close_client(&h->c);
    return st;
}
