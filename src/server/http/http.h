/* server/http/http.h: HTTP/1.1 by libmicrohttpd; nothing here knows what the requests mean.
 *
 * One thread a connection: a handler may block (it waits for the engine), tokenisation and JSON happen on the thread
 * of the client that asked, a slow client holds up its own thread only, and a thread costs a small stack. Limits:
 * header bytes, body bytes, connections, requests a connection, and those of http_limits.h. An answer that comes
 * before the body was read ends the connection. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H
#include "base/buf.h"
#include "base/err.h"
#include "server/http/http_head.h"
#include "server/http/http_limits.h"

typedef struct http_request {
    const char *method, *path;
    const char *body; /* [body_len]; never NULL when the handler runs */
    size_t body_len;
    const char *content_type, *authorization, *api_key, *timeout; /* headers, the query's timeout; NULL: absent */
    head_fault framing; /* where the request ends is in doubt: to be refused and closed */
    bool loopback;      /* the server listens on a loopback address only */
    void *route;        /* the check's note for the handler */
    void *connection;   /* for http_header() and http_query() */
    int fd;
    u64 held; /* bytes of the budget for bodies; http_hold() */
    struct http_server *server;
    buf *text; /* where `body` lies */
} http_request;

/* A header, or an argument behind the path's question mark; NULL: absent. Valid while the request is handled. */
const char *http_header(const http_request *q, const char *name);
const char *http_query(const http_request *q, const char *name);

/* Memory that is needed because of the request, counted in the budget for bodies until it is given back, at the latest
 * when the request ends. False: there is no room for `more` bytes now. */
bool http_hold(http_request *q, u64 more);
void http_release(http_request *q, u64 left); /* `left` bytes stay counted */
i64 http_memory_max(const http_request *q);   /* what one request may hold */
/* The body has been read: its text is freed, q->body is "" from then on. What is held stays. */
void http_drop_body(http_request *q);

enum { HTTP_FIELDS_MAX = 12 };

/* Fills *out (empty before) with what is to be sent next; may block. False: that was all. */
typedef bool (*http_pull)(void *ud, buf *out);

/* More to be sent behind what was pulled, from memory that stays as it is until the next pull: *data, so many bytes. */
typedef size_t (*http_lend)(void *ud, const void **data);

typedef struct http_reply {
    int status;       /* 0: not answered */
    const char *type; /* Content-Type; NULL: application/json */
    buf body;         /* taken over */
    i64 retry_after;  /* seconds; 0: none */
    const char *allow;
    const char *field[HTTP_FIELDS_MAX][2]; /* further headers: name, value; static or the request's */
    int n_fields;
    char request_id[160];
    char warning[512];      /* X-Moonlet-Warning; printable ASCII */
    bool close, no_retry;   /* Connection: close; x-should-retry: false */
    http_pull pull;         /* a stream instead of a body */
    http_lend lend;         /* with pull; NULL: nothing */
    void (*done)(void *ud); /* with pull: the stream's `ud` is given back: sent, or the client has gone */
    void *ud;
} http_reply;

void http_field(http_reply *r, const char *name, const char *value);

typedef struct {
    /* Called when the headers are there, before the body: true when *reply already is the answer. */
    bool (*check)(void *ud, http_request *q, http_reply *reply);
    void (*handle)(void *ud, http_request *q, http_reply *reply);
    void (*refused)(void *ud, int status); /* this room answered by itself */
    void *ud;
    const char *host;
    i64 port, connections, body_max, header_max;
    i64 requests_max; /* on a connection; the last one's answer says that it is closed */
    http_limit_options limits;
} http_options;

typedef struct http_server http_server;
status http_open(http_server **out, const http_options *o, err *e);
int http_port(const http_server *h);
/* Accepts no further connection; those that are open go on. */
void http_quiesce(http_server *h);
i64 http_busy(http_server *h); /* requests that are being handled or sent */
i64 http_connections(http_server *h);
u64 http_memory(http_server *h); /* bytes of the budget for bodies in use */
/* Ends all connections; handlers that still wait must be about to return. */
void http_close(http_server *h);

/* True when the client has closed its side: nobody waits for the answer. Does not block. Bytes that it sent behind
 * its request (pipelined, or to hide that it goes) change nothing. A client that closed only its sending side cannot
 * be told from one that has gone and counts as gone: HTTP has no use for half-closed connections. */
bool http_peer_gone(int fd);

#endif
