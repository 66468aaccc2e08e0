#include "server/http.h"
#include "base/log.h"
#include "server/no_tls.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 20, BLOCK_BYTES = 16 << 10, BACKLOG = 1024 };

typedef enum { RECEIVING, HANDLING, BETWEEN } phase;

/* One connection, for the limits in time. */
typedef struct client {
    struct client *next, *prev;
    int fd;
    phase phase;
    f64 since;
} client;

struct http_server {
    http_options o;
    struct MHD_Daemon *daemon;
    int listen_fd, port;
    bool loopback;
    pthread_t sweeper;
    pthread_mutex_t lock;
    pthread_cond_t stop_cond;
    bool stop, sweeping;
    client *clients;
    i64 n_clients, busy;
};

/* One request and its answer. */
typedef struct {
    http_server *h;
    struct MHD_Connection *c;
    client *who;
    http_request q;
    buf body;
    bool too_large, answered, counted;
    http_reply reply; /* a stream's */
    buf pending;      /* of a stream: what has been pulled and not been sent, from `sent` on */
    size_t sent;
    bool over;
} exchange;

bool http_peer_gone(int fd) {
    char c;
    ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* ---- Connections and their limits in time ---- */

static void set_phase(http_server *h, client *c, phase p) {
    if (!c) return;
    pthread_mutex_lock(&h->lock);
    c->phase = p;
    c->since = now_s();
    pthread_mutex_unlock(&h->lock);
}

static void on_connection(void *ud, struct MHD_Connection *c, void **socket_context,
                          enum MHD_ConnectionNotificationCode code) {
    http_server *h = ud;
    client *who = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = who = calloc(1, sizeof *who);
        if (!who) return;
        const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        who->fd = i ? i->connect_fd : -1;
        who->since = now_s();
        pthread_mutex_lock(&h->lock);
        who->next = h->clients;
        if (h->clients) h->clients->prev = who;
        h->clients = who;
        h->n_clients++;
        pthread_mutex_unlock(&h->lock);
    } else if (who) {
        pthread_mutex_lock(&h->lock);
        if (who->next) who->next->prev = who->prev;
        *(who->prev ? &who->prev->next : &h->clients) = who->next;
        h->n_clients--;
        pthread_mutex_unlock(&h->lock);
        free(who);
        *socket_context = NULL;
    }
}

/* libmicrohttpd closes connections that are idle. A client that sends a byte now and then is not idle: its request, the
 * first and every further one, has to be complete in time. */
static void *sweep(void *ud) {
    http_server *h = ud;
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&h->stop_cond, &h->lock, &until);
        f64 now = now_s();
        for (client *c = h->clients; c; c = c->next)
            if (c->phase != HANDLING && now - c->since > h->o.receive_s) shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- Answers ---- */

static ssize_t pull(void *ud, uint64_t pos, char *to, size_t max) {
    exchange *x = ud;
    (void)pos;
    /* Waiting for the engine is no idleness of the client. */
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    while (x->sent == x->pending.len) {
        if (x->over) return MHD_CONTENT_READER_END_OF_STREAM;
        buf_clear(&x->pending);
        x->sent = 0;
        x->over = !x->reply.pull(x->reply.ud, &x->pending);
        if (x->pending.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)x->h->o.idle_s);
    size_t n = x->pending.len - x->sent;
    if (n > max) n = max;
    memcpy(to, x->pending.data + x->sent, n);
    x->sent += n;
    return (ssize_t)n;
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
    if (r->body.failed) {
        buf_free(&r->body);
        if (r->pull) x->h->o.stream_done(r->ud);
        return MHD_NO;
    }
    if (r->pull) {
        x->reply = *r;
        x->pending = r->body;
        m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, pull, x, NULL);
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

static enum MHD_Result count_header(void *ud, enum MHD_ValueKind kind, const char *key, const char *value) {
    int *n = ud; /* Content-Length, Transfer-Encoding */
    (void)kind;
    (void)value;
    if (!strcasecmp(key, "Content-Length")) n[0]++;
    if (!strcasecmp(key, "Transfer-Encoding")) n[1]++;
    return MHD_YES;
}

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

static exchange *begin(http_server *h, struct MHD_Connection *c, const char *url, const char *method) {
    exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    step_back();
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x->h = h;
    x->c = c;
    x->who = i ? i->socket_context : NULL;
    i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    int n[2] = {0};
    MHD_get_connection_values(c, MHD_HEADER_KIND, count_header, n);
    x->q = (http_request){.method = method,
                          .path = url,
                          .body = "",
                          .content_type = header(c, "Content-Type"),
                          .authorization = header(c, "Authorization"),
                          .api_key = header(c, "x-api-key"),
                          .timeout = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "timeout"),
                          .bad_framing = n[0] > 1 || n[1] > 1 || (n[0] && n[1]),
                          .loopback = h->loopback,
                          .connection = c,
                          .fd = i ? i->connect_fd : -1};
    if (!x->who || x->who->phase == BETWEEN) set_phase(h, x->who, RECEIVING);
    return x;
}

static void start_busy(exchange *x) {
    pthread_mutex_lock(&x->h->lock);
    x->h->busy++;
    pthread_mutex_unlock(&x->h->lock);
    x->counted = true;
    set_phase(x->h, x->who, HANDLING);
}

static enum MHD_Result too_large(exchange *x) {
    http_reply r = {.status = 413, .close = true};
    buf_fmt(
        &r.body, /* OpenAI's form and Anthropic's at once */
        "{\"type\":\"error\",\"error\":{\"message\":\"the request's body is larger than %lld bytes\",\"type\":"
        "\"invalid_request_error\",\"param\":null,\"code\":413}}",
        (long long)x->h->o.body_max);
    return send_reply(x, &r);
}

/* Headers are complete: refuse what can be refused before the body is read. */
static enum MHD_Result at_headers(exchange *x) {
    http_reply r = {0};
    const char *length = header(x->c, "Content-Length");
    if (x->h->o.check(x->h->o.ud, &x->q, &r)) {
        r.close = r.close || length || header(x->c, "Transfer-Encoding");
        start_busy(x);
        return send_reply(x, &r);
    }
    if (length && strtoull(length, NULL, 10) > (u64)x->h->o.body_max) return too_large(x);
    return MHD_YES;
}

static enum MHD_Result at_body(exchange *x, const char *data, size_t *size) {
    if (x->body.len + *size > (u64)x->h->o.body_max) x->too_large = true;
    if (x->too_large)
        buf_free(&x->body);
    else
        buf_add(&x->body, data, *size);
    *size = 0;
    return x->body.failed ? MHD_NO : MHD_YES;
}

static enum MHD_Result at_end(exchange *x) {
    http_reply r = {0};
    start_busy(x);
    if (x->too_large) return too_large(x);
    x->q.body = x->body.data ? x->body.data : "";
    x->q.body_len = x->body.len;
    /* The handler waits for the engine; then the client has its whole time to read. */
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    x->h->o.handle(x->h->o.ud, &x->q, &r);
    MHD_set_connection_option(x->c, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)x->h->o.idle_s);
    buf_free(&x->body);
    return send_reply(x, &r);
}

static enum MHD_Result on_request(void *ud, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context) {
    exchange *x = *context;
    (void)version;
    if (!x) {
        *context = x = begin(ud, c, url, method);
        return x ? at_headers(x) : MHD_NO;
    }
    if (x->answered) {
        *size = 0;
        return MHD_YES;
    }
    return *size ? at_body(x, data, size) : at_end(x);
}

static void on_completed(void *ud, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode code) {
    exchange *x = *context;
    http_server *h = ud;
    (void)c;
    (void)code;
    if (!x) return;
    if (x->reply.pull) h->o.stream_done(x->reply.ud);
    buf_free(&x->body);
    buf_free(&x->pending);
    pthread_mutex_lock(&h->lock);
    if (x->counted) h->busy--;
    if (x->who) {
        x->who->phase = BETWEEN;
        x->who->since = now_s();
    }
    pthread_mutex_unlock(&h->lock);
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
    if (h->listen_fd < 0)
        return err_set(e, ST_IO, "cannot listen on %s port %s: %s", h->o.host, port, strerror(why));
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getsockname(h->listen_fd, (struct sockaddr *)&at, &n)) return err_set(e, ST_IO, "getsockname failed");
    h->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    h->loopback = is_loopback(&at);
    return ST_OK;
}

static status start(http_server *h, err *e) {
    no_tls();
    h->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL,
        NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->o.connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)h->o.idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)h->o.header_max, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!h->daemon) return err_set(e, ST_IO, "libmicrohttpd did not start");
    h->listen_fd = -1; /* the daemon's now */
    if (pthread_create(&h->sweeper, NULL, sweep, h)) return err_set(e, ST_NOMEM, "no thread for the limits");
    h->sweeping = true;
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
    pthread_cond_init(&h->stop_cond, NULL);
    status st = open_socket(h, e);
    if (st == ST_OK) st = start(h, e);
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

i64 http_connections(http_server *h) {
    pthread_mutex_lock(&h->lock);
    i64 n = h->n_clients;
    pthread_mutex_unlock(&h->lock);
    return n;
}

void http_close(http_server *h) {
    if (!h) return;
    if (h->daemon) MHD_stop_daemon(h->daemon);
    if (h->sweeping) {
        pthread_mutex_lock(&h->lock);
        h->stop = true;
        pthread_cond_signal(&h->stop_cond);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->sweeper, NULL);
    }
    if (h->listen_fd >= 0) close(h->listen_fd);
    pthread_cond_destroy(&h->stop_cond);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
