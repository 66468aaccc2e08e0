/* server/http/http_limits.h: what connections may take: time until a request is there, and memory for what they send.
 *
 * Time. libmicrohttpd closes connections that are idle. A client that sends a byte now and then is not idle; a
 * thread of this file closes it: headers have to be complete in header_s, and then every header_s seconds must bring
 * body_rate bytes a second, until the body is there.
 *
 * Memory. Bodies, and what becomes of them while they are read, share one budget of bytes. The first HOLD_FREE bytes
 * of each request are not counted (connections are limited, too): whoever fills the budget with large bodies does
 * not stand in the way of small ones. No request gets more than half of it. */
#ifndef SERVER_HTTP_HTTP_LIMITS_H
#define SERVER_HTTP_HTTP_LIMITS_H
#include "base/err.h"

enum { HOLD_FREE = 64 << 10 };

typedef struct http_limits http_limits;
typedef struct http_client http_client;

typedef enum { CLIENT_HEAD, CLIENT_BODY, CLIENT_HANDLING, CLIENT_BETWEEN } client_phase;

typedef struct {
    f64 idle_s, header_s;
    i64 body_rate;  /* bytes a second */
    i64 memory_max; /* bytes of all requests together */
} http_limit_options;

status http_limits_open(http_limits **out, const http_limit_options *o, err *e);
void http_limits_close(http_limits *l); /* its clients are gone by then; NULL allowed */

/* A connection; NULL when out of memory: it is then not limited in time. */
http_client *http_client_new(http_limits *l, int fd);
void http_client_free(http_limits *l, http_client *c);
i64 http_client_count(http_limits *l);
/* The functions below take a NULL client. A body that begins, an answer under way, waiting for the next request. */
void http_client_phase(http_limits *l, http_client *c, client_phase p);
void http_client_received(http_limits *l, http_client *c, size_t bytes);
/* The same connection's requests so far, this one included. */
i64 http_client_requests(http_limits *l, http_client *c);

/* Bytes that a request holds; *held is its own count, 0 at first. False: the budget has no room for `more`, or this
 * request would have more than half of it. */
bool http_limits_hold(http_limits *l, u64 *held, u64 more);
void http_limits_release(http_limits *l, u64 *held, u64 left); /* of *held, `left` stays */
u64 http_limits_memory(http_limits *l);                        /* bytes of the budget in use */

#endif
