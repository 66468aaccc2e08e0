/* cmd/lib/http_pool.h: many HTTP requests at a time from one thread, on libcurl and epoll. */
#ifndef CMD_LIB_HTTP_POOL_H
#define CMD_LIB_HTTP_POOL_H
#include "base/buf.h"
#include "base/err.h"

typedef struct http_pool http_pool;
typedef struct http_call http_call;

/* A request. Zero-initialise; `on_data`, `ud` and `most` are the caller's. It must stay where it is until
 * http_pool_wait() returned it or http_pool_close(). */
struct http_call {
    /* Takes what arrived of the body; false ends the transfer, which then failed. */
    bool (*on_data)(http_call *c, const char *bytes, size_t n);
    void *ud;
    u64 most;        /* bytes of the body; a longer one fails the transfer */
    u64 got;         /* bytes of the body that arrived */
    long status;     /* of the response; 0: none came */
    char error[256]; /* why the transfer failed, else "" */
    f64 end_s;       /* now_s() when it was over */
    /* http_pool.c's own */
    http_pool *h;
    void *easy, *headers;
    http_call *next;
};

status http_pool_open(http_pool **out, err *e);
void http_pool_close(http_pool *h); /* ends what is under way; NULL is allowed */

/* POSTs body [n] as JSON (NULL: GETs); `url` is copied, the body is not. `key`: for "Authorization: Bearer", or NULL.
 * `timeout_s`: for everything. */
status http_pool_start(http_pool *h, http_call *c, const char *url, const char *body, size_t n, const char *key,
                       f64 timeout_s, err *e);
/* The next call that is over, failed ones too; NULL when now_s() reaches until_s (or nothing is under way and until_s
 * is 0). */
http_call *http_pool_wait(http_pool *h, f64 until_s);

/* One request, waited for; nothing else may be under way. The body is appended to *out. An answer other than 2xx is an
 * error that quotes its beginning, and so is one of more than HTTP_FETCH_MOST bytes. */
enum { HTTP_FETCH_MOST = 16 << 20 };
status http_pool_fetch(http_pool *h, const char *url, const char *body, const char *key, f64 timeout_s, buf *out,
                       err *e);

#endif
