/* server/kv/kv_pull.h: one request to a server of --role prefill, by libcurl, and the KV pages of its answer on their
 * way into the engine's memory. */
#ifndef SERVER_KV_KV_PULL_H
#define SERVER_KV_KV_PULL_H
#include "base/curl_api.h"
#include "runtime/engine_kv.h"
#include "server/kv/kv_wire.h"

enum { KV_ANSWER_MOST = 64 << 10 };

/* What a request is about. Functions are called in the thread that pulls. */
typedef struct {
    const char *url;
    const struct curl_slist *headers;
    const buf *body;                              /* of a POST; NULL: a GET */
    bool pages;                                   /* an answer of status 200 is pages; else it is kept as text */
    f64 silence_s;                                /* nothing came for so long: it is lost */
    bool (*wanted)(void *ud);                     /* asked about once a second */
    void (*begins)(void *ud, const char *ticket); /* pages: the answer's x-request-id */
    status (*place)(void *ud, u64 number, i32 *pool_page, err *e); /* where page `number` belongs; else it is refused */
    void (*written)(void *ud, u64 number);                         /* it is there */
    void *ud;
} kv_question;

/* What a thread needs for all of its requests. */
typedef struct {
    const curl_api *c;
    CURL *h;
    kv_mover *mover;
    kv_reader reader;
    buf answer;
    /* of the request under way */
    const kv_question *q;
    bool ended;  /* KV_RECORD_END came */
    f64 heard_s; /* when the last byte came */
    bool silent, unwanted;
    bool answers, come_back, stay_away; /* a header has come; Retry-After; x-should-retry: false */
    bool busy;                          /* behind _ask() with ST_PEER: the server had no room, ask again */
    bool full;                          /* and it is the server that says so, of its queue */
    char ticket[KV_TICKET_MOST];
    err why; /* ST_OK: nothing that was read is at fault */
} kv_puller;

status kv_puller_open(kv_puller *p, const curl_api *c, engine *g, err *e);
void kv_puller_close(kv_puller *p); /* also behind a failed open */
/* Asks, and takes the whole answer. ST_OK: *code is 200, and of pages all were said to be sent. ST_PEER, ST_FORMAT:
 * what was wrong with the server or its answer, without its name; ST_CANCELLED: it is not wanted any more. *code 0:
 * there was no answer. */
status kv_puller_ask(kv_puller *p, const kv_question *q, long *code, err *e);

#endif
