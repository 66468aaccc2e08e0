/* server/http.h: HTTP/1.1 by libmicrohttpd; nothing here knows what the requests mean.
 *
 * One thread a connection: a handler may block (it waits for the engine), tokenisation and JSON happen on the thread of
 * the client that asked, a slow client holds up its own thread only, and a thread costs a small stack. Limits: header
 * bytes, body bytes, connections, idle time, time until a request is complete. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H
#include "base/buf.h"
#include "base/err.h"

typedef struct http_request {
    const char *method, *path;
    const char *body; /* [body_len]; never NULL when the handler runs */
    size_t body_len;
    const char *content_type, *authorization, *api_key,
        *timeout;     /* headers, the query's timeout; NULL: absent */
    bool bad_framing; /* lengths that contradict each other */
    bool loopback;    /* the server listens on a loopback address only */
    void *route;      /* the check's note for the handler */
    void *connection; /* for http_header() and http_query() */
    int fd;
} http_request;

/* A header, or an argument behind the path's question mark; NULL: absent. Valid while the request is handled. */
const char *http_header(const http_request *q, const char *name);
const char *http_query(const http_request *q, const char *name);

enum { HTTP_FIELDS_MAX = 12 };

/* Fills *out (empty before) with what is to be sent next; may block. False: that was all. */
typedef bool (*http_pull)(void *ud, buf *out);

typedef struct http_reply {
    int status;       /* 0: not answered */
    const char *type; /* Content-Type; NULL: application/json */
    buf body;         /* taken over */
    i64 retry_after;  /* seconds; 0: none */
    const char *allow;
    const char *field[HTTP_FIELDS_MAX][2]; /* further headers: name, value; static or the request's */
    int n_fields;
    char request_id[160];
    bool close, no_retry; /* Connection: close; x-should-retry: false */
    http_pull pull;       /* a stream instead of a body */
    void *ud;
} http_reply;

void http_field(http_reply *r, const char *name, const char *value);

typedef struct {
    /* Called when the headers are there, before the body: true when *reply already is the answer. */
    bool (*check)(void *ud, http_request *q, http_reply *reply);
    void (*handle)(void *ud, http_request *q, http_reply *reply);
    void (*stream_done)(void *stream); /* the stream's `ud` is given back: sent, or the client has gone */
    void *ud;
    const char *host;
    i64 port, connections, body_max, header_max;
    f64 idle_s;    /* a connection without progress is closed */
    f64 receive_s; /* so is one whose request is not complete after this time */
} http_options;

typedef struct http_server http_server;
status http_open(http_server **out, const http_options *o, err *e);
int http_port(const http_server *h);
/* Accepts no further connection; those that are open go on. */
void http_quiesce(http_server *h);
i64 http_busy(http_server *h); /* requests that are being handled or sent */
i64 http_connections(http_server *h);
/* Ends all connections; handlers that still wait must be about to return. */
void http_close(http_server *h);

/* True when the client has closed its side: nobody waits for the answer. Does not block. */
bool http_peer_gone(int fd);

#endif
