/* server/server_internal.h: what the files of this room share of a running server. */
#ifndef SERVER_SERVER_INTERNAL_H
#define SERVER_SERVER_INTERNAL_H
#include "server/http/http.h"
#include "server/kv/kv_fetch.h"
#include "server/kv/kv_send.h"
#include "server/reply/job.h"
#include "server/status/dashboard.h"
#include "server/status/metrics.h"
#include "server/status/probe.h"
#include "server/server.h"
#include <stdatomic.h>

struct server {
    server_options o;
    engine *engine;
    scheduler *sched;
    served_model model;
    job_table *jobs;
    metrics *metrics;
    constraint_cache *constraints;
    dashboard *dashboard;
    http_server *http;
    probe probe;
    char *kv_layout;     /* --role: what KV pages of this server mean; else NULL */
    kv_sender sender;    /* --role prefill */
    kv_fetcher *fetcher; /* --role decode; else NULL */
    atomic_bool draining;
    f64 started_s;
};

typedef void (*route_handler)(server *s, http_request *q, http_reply *r);

/* routes.c: the callbacks of http_options. */
bool routes_check(void *ud, http_request *q, http_reply *r);
void routes_handle(void *ud, http_request *q, http_reply *r);

/* generation.c */
void route_chat(server *s, http_request *q, http_reply *r);
void route_completion(server *s, http_request *q, http_reply *r);
void route_generate(server *s, http_request *q, http_reply *r);
void route_messages(server *s, http_request *q, http_reply *r);
void route_responses(server *s, http_request *q, http_reply *r);
/* 404 unless the body's "model" is the one that is served. */
bool check_model(const server *s, const json_t *body, api_error *e);

/* probe.c */
void route_health_generate(server *s, http_request *q, http_reply *r);

/* tokens.c */
void route_tokenize(server *s, http_request *q, http_reply *r);
void route_detokenize(server *s, http_request *q, http_reply *r);
void route_count_tokens(server *s, http_request *q, http_reply *r);
void route_tokenizer_info(server *s, http_request *q, http_reply *r);

/* info.c */
void route_health(server *s, http_request *q, http_reply *r);
void route_models(server *s, http_request *q, http_reply *r);
void route_version(server *s, http_request *q, http_reply *r);
void route_server_info(server *s, http_request *q, http_reply *r);
void route_model_info(server *s, http_request *q, http_reply *r);
void route_metrics(server *s, http_request *q, http_reply *r);
void route_live(server *s, http_request *q, http_reply *r);
void route_kv_check(server *s, http_request *q, http_reply *r);
void route_flush_cache(server *s, http_request *q, http_reply *r);
void route_abort_request(server *s, http_request *q, http_reply *r);

/* kv/kv_send.c */
void route_kv_pages(server *s, http_request *q, http_reply *r);

/* page.c: the web page and its files. */
void route_page(server *s, http_request *q, http_reply *r);

/* The request's body as a JSON object, at most 128 levels deep; NULL: *e. The text is gone afterwards, and what the
 * values take is held in q's account: whoever frees them releases it. */
json_t *body_object(http_request *q, api_error *e);
/* gen_request.hold for the request at `ud`, an http_request. */
bool hold_for(void *ud, u64 more);
/* Fills r with the error. */
void reply_error(server *s, http_reply *r, const api_error *e);
/* The same in the form that clients of q's path expect. */
void reply_error_at(server *s, const http_request *q, http_reply *r, const api_error *e);
/* 24 random hexadecimal digits behind `prefix`, NUL-terminated; out has room for prefix + 25. */
void make_id(const char *prefix, char *out, size_t cap);

#endif
