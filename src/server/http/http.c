#include "server/http/http.h"
#include "base/log.h"
#include "server/http/gnutls_stub.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 20, BLOCK_BYTES = 16 << 10, BACKLOG = 1024 };

struct http_server {
    http_options o;
    struct MHD_Daemon *daemon;
    int listen_fd, port;
    bool loopback;
    http_limits *limits;
    pthread_mutex_t lock;
    i64 busy;
};

/* One request and its answer. */
typedef struct {
    http_server *h;
    struct MHD_Connection *c;
    http_client *who;
    http_request q;
    buf body;
    bool answered, counted;
    bool unread;      /* it was answered before its body was read */
    http_reply reply; /* a stream's */
    buf pending;      /* of a stream: what has been pulled and not been sent, from `sent` on */
    size_t sent;
    const u8 *lent; /* of a stream: what follows that, and has not been sent */
    size_t n_lent;
    bool over;
} exchange;

bool http_peer_gone(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

bool http_hold(http_request *q, u64 more) { return http_limits_hold(q->server->limits, &q->held, more); }
void http_release(http_request *q, u64 left) { http_limits_release(q->server->limits, &q->held, left); }
i64 http_memory_max(const http_request *q) { return q->server->o.limits.memory_max / 2; }

void http_drop_body(http_request *q) {
    buf_free(q->text);
    q->body = "";
    q->body_len = 0;
}

static void on_connection(void *ud, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
    http_server *h = ud;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = http_client_new(h->limits, i ? i->connect_fd : -1);
    } else {
        http_client_free(h->limits, *socket_context);
        *socket_context = NULL;
    }
}

/* A connection that is closed while its client still sends is reset, and the reset may overtake the answer on the
 * client's side. So the client gets a moment to read it; what it sends meanwhile is thrown away. */
static void linger(int fd) {
    static const f64 LINGER_S = 1;
    char waste[4096];
    shutdown(fd, SHUT_WR);
    for (f64 until = now_s() + LINGER_S, now; (now = now_s()) < until;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((until - now) * 1000) + 1) <= 0) return;
        ssize_t n = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return;
    }
}

/* ---- Answers ---- */

static ssize_t conn_pull(void *ud, uint64_t pos, char *to, size_t max) {
    exchange *x = ud;
    (void)pos;
    /* Waiting for the engine is no idleness of the client. */
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    while (x->sent == x->pending.len && !x->n_lent) {
        if (x->over) return MHD_CONTENT_READER_END_OF_STREAM;
        buf_clear(&x->pending);
        x->sent = 0;
        x->over = !x->reply.pull(x->reply.ud, &x->pending);
        if (x->pending.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
        const void *lent = NULL;
        x->n_lent = x->reply.lend ? x->reply.lend(x->reply.ud, &lent) : 0;
        x->lent = lent;
    }
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)x->h->o.limits.idle_s);
    size_t n = x->pending.len - x->sent;
    if (n > max) n = max;
    if (n) memcpy(to, x->pending.data + x->sent, n);
    x->sent += n;
    const size_t more = max - n < x->n_lent ? max - n : x->n_lent;
    if (more) {
        memcpy(to + n, x->lent, more);
        x->lent += more;
        x->n_lent -= more;
    }
    return (ssize_t)(n + more);
}

static void headers(struct MHD_Response *m, const http_reply *r) {
    char number[24];
    MHD_add_response_header(m, "Content-Type", r->type ? r->type : "application/json");
    if (r->pull || r->retry_after) MHD_add_response_header(m, "Cache-Control", "no-cache");
    if (r->allow) MHD_add_response_header(m, "Allow", r->allow);
    if (r->request_id[0]) {
        MHD_add_response_header(m, "x-request-id", r->request_id);
        MHD_add_response_header(m, "request-id", r->request_id); /* Anthropic's name for it */
    }
    if (r->close) MHD_add_response_header(m, "Connection", "close");
    if (r->no_retry) MHD_add_response_header(m, "x-should-retry", "false");
    MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
    if (r->warning[0]) MHD_add_response_header(m, "X-Moonlet-Warning", r->warning);
    for (int i = 0; i < r->n_fields; i++) MHD_add_response_header(m, r->field[i][0], r->field[i][1]);
    if (r->status == 401) MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
    if (r->retry_after) {
        snprintf(number, sizeof number, "%lld", (long long)r->retry_after);
        MHD_add_response_header(m, "Retry-After", number);
    }
}

static enum MHD_Result send_reply(exchange *x, http_reply *r) {
    struct MHD_Response *m;
    x->answered = true;
    if (http_client_requests(x->h->limits, x->who) >= x->h->o.requests_max) r->close = true;
    if (r->body.failed) {
        buf_free(&r->body);
        if (r->pull) r->done(r->ud);
        return MHD_NO;
    }
    if (r->pull) {
        x->reply = *r;
        x->pending = r->body;
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, conn_pull, x, NULL);
    } else {
        size_t n = r->body.len;
        char *text = buf_take(&r->body);
        m = MHD_create_response_from_buffer(text ? n : 0, text ? text : (char *)"",
                                            text ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (!m) free(text);
    }
    if (!m) return MHD_NO;
    headers(m, r);
    enum MHD_Result result = MHD_queue_response(x->c, (unsigned)r->status, m);
    MHD_destroy_response(m);
    return result;
}

/* ---- Requests ---- */

static const char *header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

const char *http_header(const http_request *q, const char *name) { return header(q->connection, name); }

const char *http_query(const http_request *q, const char *name) {
    return MHD_lookup_connection_value(q->connection, MHD_GET_ARGUMENT_KIND, name);
}

void http_field(http_reply *r, const char *name, const char *value) {
    if (r->n_fields == HTTP_FIELDS_MAX) return;
    r->field[r->n_fields][0] = name;
    r->field[r->n_fields++][1] = value;
}

/* The engine thread goes before those that write: where all cores are taken it would get one share among hundreds, and
 * everybody waits for it. nano, 64 chats at a time on two shared cores: 800 to 1,200 tok/s without this, 1,250 to 1,620
 * with it. */
static void step_back(void) {
    enum { NICER = 5 };
    static _Thread_local bool done;
    if (done) return;
    done = true;
    id_t me = (id_t)gettid();
    setpriority(PRIO_PROCESS, me, getpriority(PRIO_PROCESS, me) + NICER);
}

static exchange *conn_begin(http_server *h, struct MHD_Connection *c, const char *url, const char *method,
                            const char *version) {
    exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    step_back();
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->h = h;
    x->c = c;
    x->who = i ? i->socket_context : NULL;
    i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->q = (http_request){.method = method,
                          .path = url,
                          .body = "",
                          .content_type = header(c, "Content-Type"),
                          .authorization = header(c, "Authorization"),
                          .api_key = header(c, "x-api-key"),
                          .timeout = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "timeout"),
                          .framing = http_head_check(c, version),
                          .loopback = h->loopback,
                          .connection = c,
                          .fd = i ? i->connect_fd : -1,
                          .server = h,
                          .text = &x->body};
    http_client_phase(h->limits, x->who, CLIENT_BODY);
    return x;
}

static void start_busy(exchange *x) {
    pthread_mutex_lock(&x->h->lock);
    x->h->busy++;
    pthread_mutex_unlock(&x->h->lock);
    x->counted = true;
    http_client_phase(x->h->limits, x->who, CLIENT_HANDLING);
}

/* Answers in the middle of a body, where libmicrohttpd takes no response: the bytes are written to the socket, whose
 * buffer is empty, and the connection ends. */
static enum MHD_Result refuse_now(exchange *x, int status, const char *reason, const char *type, const char *message) {
    buf body = {0}, all = {0};
    x->answered = x->unread = true;
    buf_fmt(&body, /* OpenAI's form and Anthropic's at once */
            "{\"type\":\"error\",\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,\"code\":%d}}", message,
            type, status);
    buf_fmt(&all,
            "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n",
            status, reason, status == 503 ? "Retry-After: 1\r\n" : "", body.len);
    buf_add(&all, body.data, body.len);
    start_busy(x); /* from here on it is no slow client */
    if (!all.failed && !body.failed && send(x->q.fd, all.data, all.len, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        x->h->o.refused(x->h->o.ud, status);
    buf_free(&body);
    buf_free(&all);
    buf_free(&x->body);
    return MHD_NO;
}

static enum MHD_Result too_large(exchange *x) {
    char text[80];
    snprintf(text, sizeof text, "the request's body is larger than %lld bytes", (long long)x->h->o.body_max);
    return refuse_now(x, 413, "Content Too Large", "invalid_request_error", text);
}

/* Headers are complete: refuse what can be refused before the body is read. */
static enum MHD_Result at_headers(exchange *x) {
    http_reply r = {0};
    const char *length = header(x->c, "Content-Length");
    if (x->h->o.check(x->h->o.ud, &x->q, &r)) {
        x->unread = length || header(x->c, "Transfer-Encoding");
        r.close = r.close || x->unread;
        start_busy(x);
        return send_reply(x, &r);
    }
    if (length && strtoull(length, NULL, 10) > (u64)x->h->o.body_max) return too_large(x);
    return MHD_YES;
}

static enum MHD_Result at_body(exchange *x, const char *data, size_t *size) {
    http_client_received(x->h->limits, x->who, *size);
    if (x->body.len + *size > (u64)x->h->o.body_max) return too_large(x);
    if (!http_hold(&x->q, *size))
        return refuse_now(x, 503, "Service Unavailable", "overloaded_error",
                          "the memory for requests is used up (--max-body-memory)");
    buf_add(&x->body, data, *size);
    *size = 0;
    return x->body.failed ? MHD_NO : MHD_YES;
}

static enum MHD_Result at_end(exchange *x) {
    http_reply r = {0};
    start_busy(x);
    x->q.body = x->body.data ? x->body.data : "";
    x->q.body_len = x->body.len;
    /* The handler waits for the engine; then the client has its whole time to read. */
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    x->h->o.handle(x->h->o.ud, &x->q, &r);
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)x->h->o.limits.idle_s);
    http_drop_body(&x->q);
    return send_reply(x, &r);
}

static enum MHD_Result on_request(void *ud, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context) {
    exchange *x = *context;
    if (!x) {
        *context = x = conn_begin(ud, c, url, method, version);
        return x ? at_headers(x) : MHD_NO;
    }
    if (x->answered) {
        *size = 0;
        return MHD_YES;
    }
    return *size ? at_body(x, data, size) : at_end(x);
}

static void on_completed(void *ud, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode code) {
    exchange *x = *context;
    http_server *h = ud;
    (void)c;
    (void)code;
    if (!x) return;
    if (x->reply.pull) x->reply.done(x->reply.ud);
    buf_free(&x->body);
    buf_free(&x->pending);
    http_release(&x->q, 0);
    pthread_mutex_lock(&h->lock);
    if (x->counted) h->busy--;
    pthread_mutex_unlock(&h->lock);
    if (x->unread && x->answered) linger(x->q.fd);
    http_client_phase(h->limits, x->who, CLIENT_BETWEEN);
    free(x);
    *context = NULL;
}

/* ---- Opening and closing ---- */

static int listen_on(const struct addrinfo *a) {
    int one = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static bool is_loopback(const struct sockaddr_storage *at) {
    if (at->ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)at)->sin6_addr);
    return at->ss_family == AF_INET && ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
}

static status open_socket(http_server *h, err *e) {
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    snprintf(port, sizeof port, "%d", (int)h->o.port);
    int bad = getaddrinfo(h->o.host, port, &hints, &list);
    if (bad) return err_set(e, ST_INPUT, "--host %s: %s", h->o.host, gai_strerror(bad));
    h->listen_fd = -1;
    for (const struct addrinfo *a = list; a && h->listen_fd < 0; a = a->ai_next) h->listen_fd = listen_on(a);
    int why = errno;
    freeaddrinfo(list);
    if (h->listen_fd < 0) return err_set(e, ST_IO, "cannot listen on %s port %s: %s", h->o.host, port, strerror(why));
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &n)) return err_set(e, ST_IO, "getsockname failed");
    h->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    h->loopback = is_loopback(&at);
    return ST_OK;
}

static size_t unescape(void *ud, struct MHD_Connection *c, char *s) {
    (void)ud;
    (void)c;
    return http_unescape(s);
}

static status conn_start(http_server *h, err *e) {
    status st = http_limits_open(&h->limits, &h->o.limits, e);
    if (st != ST_OK) return st;
    gnutls_stub();
    h->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL,
        on_request, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->o.connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->o.limits.idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)h->o.header_max, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_END);
    if (!h->daemon) return err_set(e, ST_IO, "libmicrohttpd did not start");
    h->listen_fd = -1; /* the daemon's now */
    return ST_OK;
}

status http_open(http_server **out, const http_options *o, err *e) {
    http_server *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return err_nomem(e, "the HTTP server", sizeof *h);
    h->o = *o;
    *out = h; /* handlers may ask for it before this function has returned */
    h->listen_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    status st = open_socket(h, e);
    if (st == ST_OK) st = conn_start(h, e);
    if (st != ST_OK) {
        http_close(h);
        *out = NULL;
    }
    return st;
}

int http_port(const http_server *h) { return h->port; }

void http_quiesce(http_server *h) {
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0) close(fd);
}

i64 http_busy(http_server *h) {
    pthread_mutex_lock(&h->lock);
    i64 n = h->busy;
    pthread_mutex_unlock(&h->lock);
    return n;
}

i64 http_connections(http_server *h) { return http_client_count(h->limits); }
u64 http_memory(http_server *h) { return http_limits_memory(h->limits); }

void http_close(http_server *h) {
    if (!h) return;
    if (h->daemon) MHD_stop_daemon(h->daemon);
    http_limits_close(h->limits);
    if (h->listen_fd >= 0) close(h->listen_fd);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
