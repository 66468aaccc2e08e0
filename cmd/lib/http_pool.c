#include "cmd/lib/http_pool.h"
#include "base/log.h"
#include "base/curl_api.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct http_pool {
    const curl_api *c;
    CURLM *multi;
    int epoll;
    f64 timer_s; /* when curl wants to be called without an event; < 0: not */
    i64 active;
    http_call *done, **done_end;
};

/* curl tells which sockets it watches, and for what. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ud, void *mine) {
    (void)easy;
    (void)mine;
    http_pool *h = ud;
    struct epoll_event ev = {.data.fd = fd};
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(h->epoll, EPOLL_CTL_DEL, fd, &ev);
        return 0;
    }
    if (what & CURL_POLL_IN) ev.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) ev.events |= EPOLLOUT;
    if (epoll_ctl(h->epoll, EPOLL_CTL_MOD, fd, &ev) && errno == ENOENT) epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &ev);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *ud) {
    (void)multi;
    ((http_pool *)ud)->timer_s = ms < 0 ? -1 : now_s() + (f64)ms / 1e3;
    return 0;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *ud) {
    http_call *c = ud;
    c->got += one * n;
    return c->got <= c->most && c->on_data(c, bytes, one * n) ? one * n : 0; /* other than all: an error */
}

status http_pool_open(http_pool **out, err *e) {
    *out = NULL;
    const curl_api *api;
    status st = curl_api_open(&api, e);
    if (st != ST_OK) return st;
    http_pool *h = calloc(1, sizeof *h);
    if (!h) return err_nomem(e, "the HTTP client", sizeof *h);
    *h = (http_pool){.c = api, .epoll = epoll_create1(EPOLL_CLOEXEC), .timer_s = -1};
    h->done_end = &h->done;
    h->multi = api->multi_init();
    if (h->epoll < 0 || !h->multi) {
        http_pool_close(h);
        return err_set(e, ST_IO, "the HTTP client cannot start: %s", strerror(errno));
    }
    api->multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    api->multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    api->multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    api->multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    *out = h;
    return ST_OK;
}

void http_pool_close(http_pool *h) {
    if (!h) return;
    if (h->multi) h->c->multi_cleanup(h->multi);
    if (h->epoll >= 0) close(h->epoll);
    free(h);
}

static bool add_header(const curl_api *c, struct curl_slist **list, const char *line) {
    struct curl_slist *more = c->slist_append(*list, line);
    if (more) *list = more;
    return more != NULL;
}

static struct curl_slist *headers_of(const curl_api *c, const char *key) {
    struct curl_slist *list = NULL;
    buf auth = {0};
    /* without "Expect:" curl waits up to a second for "100 Continue" before it sends a long prompt */
    bool ok = add_header(c, &list, "Content-Type: application/json") && add_header(c, &list, "Expect:");
    if (key) {
        buf_fmt(&auth, "Authorization: Bearer %s", key);
        ok = ok && !auth.failed && add_header(c, &list, auth.data);
    }
    buf_free(&auth);
    if (ok) return list;
    c->slist_free_all(list);
    return NULL;
}

status http_pool_start(http_pool *h, http_call *call, const char *url, const char *body, size_t n, const char *key,
                       f64 timeout_s, err *e) {
    const curl_api *c = h->c;
    CURL *easy = c->easy_init();
    struct curl_slist *headers = headers_of(c, key);
    if (!easy || !headers) {
        if (easy) c->easy_cleanup(easy);
        c->slist_free_all(headers);
        return err_nomem(e, "a request", 0);
    }
    call->h = h;
    call->easy = easy;
    call->headers = headers;
    call->status = 0;
    call->got = 0;
    call->error[0] = 0;
    c->easy_setopt(easy, CURLOPT_URL, url);
    c->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    c->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    c->easy_setopt(easy, CURLOPT_PROXY, ""); /* what is measured is the server, not a proxy of the environment */
    c->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(timeout_s * 1e3));
    c->easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    c->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(easy, CURLOPT_WRITEDATA, call);
    c->easy_setopt(easy, CURLOPT_PRIVATE, call);
    if (body) {
        c->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
        c->easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    }
    CURLMcode bad = c->multi_add_handle(h->multi, easy);
    if (bad) {
        c->easy_cleanup(easy);
        c->slist_free_all(headers);
        return err_set(e, ST_IO, "%s: %s", url, c->multi_strerror(bad));
    }
    h->active++;
    return ST_OK;
}

static void collect_done(http_pool *h) {
    int left;
    for (CURLMsg *m; (m = h->c->multi_info_read(h->multi, &left));) {
        if (m->msg != CURLMSG_DONE) continue;
        CURL *easy = m->easy_handle;
        CURLcode code = m->data.result;
        http_call *c = NULL;
        h->c->easy_getinfo(easy, CURLINFO_PRIVATE, &c);
        h->c->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &c->status);
        c->end_s = now_s();
        if (c->got > c->most)
            snprintf(c->error, sizeof c->error, "the answer is longer than %llu bytes", (unsigned long long)c->most);
        else if (code)
            snprintf(c->error, sizeof c->error, "%.250s", h->c->easy_strerror(code));
        h->c->multi_remove_handle(h->multi, easy);
        h->c->easy_cleanup(easy);
        h->c->slist_free_all(c->headers);
        h->active--;
        c->next = NULL;
        *h->done_end = c;
        h->done_end = &c->next;
    }
}

static int milliseconds(f64 seconds) { return seconds <= 0 ? 0 : (int)fmin(ceil(seconds * 1e3), 1e6); }

/* Waits for events or until `until_s` and lets curl handle them. */
static void pool_turn(http_pool *h, f64 until_s) {
    struct epoll_event ev[256];
    f64 now = now_s(), wait = until_s - now;
    if (h->timer_s >= 0) wait = fmin(wait, h->timer_s - now);
    int running, n = epoll_wait(h->epoll, ev, COUNT_OF(ev), milliseconds(wait));
    for (int i = 0; i < n; i++) {
        int what = (ev[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                   (ev[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) | (ev[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0);
        h->c->multi_socket_action(h->multi, ev[i].data.fd, what, &running);
    }
    if (h->timer_s >= 0 && now_s() >= h->timer_s) {
        h->timer_s = -1;
        h->c->multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    collect_done(h);
}

http_call *http_pool_wait(http_pool *h, f64 until_s) {
    while (!h->done && (h->active || until_s > now_s())) {
        pool_turn(h, until_s);
        if (!h->done && now_s() >= until_s) break;
    }
    http_call *c = h->done;
    if (!c) return NULL;
    h->done = c->next;
    if (!h->done) h->done_end = &h->done;
    return c;
}

static bool append_body(http_call *c, const char *bytes, size_t n) {
    buf *b = c->ud;
    buf_add(b, bytes, n);
    return !b->failed;
}

status http_pool_fetch(http_pool *h, const char *url, const char *body, const char *key, f64 timeout_s, buf *out,
                       err *e) {
    http_call c = {.on_data = append_body, .ud = out, .most = HTTP_FETCH_MOST};
    size_t before = out->len;
    status st = http_pool_start(h, &c, url, body, body ? strlen(body) : 0, key, timeout_s, e);
    if (st != ST_OK) return st;
    while (!http_pool_wait(h, now_s() + 3600)) continue;
    if (c.error[0]) return err_set(e, ST_IO, "%s: %s", url, c.error);
    if (out->failed) return err_nomem(e, "an answer", out->len);
    if (c.status / 100 != 2)
        return err_set(e, ST_IO, "%s: status %ld: %.200s", url, c.status, out->data ? out->data + before : "");
    return ST_OK;
}
