#include "api/remote_media.h"
#include "base/curl_api.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REDIRECTS = 3, URL_MOST = 4096 };

bool remote_is_url(const char *url) { return !strncasecmp(url, "http://", 7) || !strncasecmp(url, "https://", 8); }

/* ---- Where it goes ---- */

/* Networks that are not the Internet (IANA's special-purpose registries): the first `bits` of an address. */
static bool special_v4(u32 a) {
    static const struct {
        u32 net;
        int bits;
    } nets[] = {{0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
                {0xac100000, 12}, {0xc0000000, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xe0000000, 3}};
    for (size_t i = 0; i < COUNT_OF(nets); i++)
        if ((a ^ nets[i].net) >> (32 - nets[i].bits) == 0) return true;
    return false;
}

static u32 v4_at(const u8 *p) { return (u32)p[0] << 24 | (u32)p[1] << 16 | (u32)p[2] << 8 | p[3]; }

/* Global unicast is 2000::/3; of it what carries an address of IPv4 (6to4, Teredo) could mean any. */
static bool special_v6(const u8 *a) {
    static const u8 mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (!memcmp(a, mapped, sizeof mapped)) return special_v4(v4_at(a + 12));
    return (a[0] & 0xe0) != 0x20 || (a[0] == 0x20 && a[1] == 0x02) || v4_at(a) == 0x20010000;
}

static bool is_special(const struct sockaddr *s) {
    if (s->sa_family == AF_INET)
        return special_v4(ntohl(((const struct sockaddr_in *)(const void *)s)->sin_addr.s_addr));
    if (s->sa_family == AF_INET6) return special_v6(((const struct sockaddr_in6 *)(const void *)s)->sin6_addr.s6_addr);
    return true;
}

/* ---- A transfer ---- */

typedef struct {
    const curl_api *c;
    const remote_rules *rules;
    CURL *h;
    buf *out;
    size_t begin; /* of out, before it */
    bool refused; /* an address was */
    bool large;
    char next[URL_MOST]; /* where a redirect goes */
} transfer;

static curl_socket_t open_remote_socket(void *ud, curlsocktype purpose, struct curl_sockaddr *a) {
    transfer *t = ud;
    (void)purpose;
    if (!t->rules->any_address && is_special(&a->addr)) return t->refused = true, CURL_SOCKET_BAD;
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t take_bytes(char *data, size_t size, size_t n, void *ud) {
    transfer *t = ud;
    const size_t bytes = size * n;
    if (t->out->len - t->begin + bytes > t->rules->bytes) return t->large = true, 0;
    buf_add(t->out, data, bytes);
    return t->out->failed ? 0 : bytes;
}

static bool host_allowed(const remote_rules *r, const char *host, const char *port, bool usual) {
    char both[300];
    snprintf(both, sizeof both, "%s:%s", host, port);
    for (int i = 0; i < r->n; i++)
        if ((usual && !strcasecmp(r->hosts[i], host)) || !strcasecmp(r->hosts[i], both)) return true;
    return false;
}

/* The parts of the URL that rules are about, as libcurl itself reads them. */
static status check_url(const transfer *t, const char *url, err *e) {
    CURLU *u = t->c->url();
    char *host = NULL, *port = NULL, *scheme = NULL, *user = NULL;
    if (!u) return err_nomem(e, "a URL", 0);
    status st = ST_OK;
    if (t->c->url_set(u, CURLUPART_URL, url, 0) || t->c->url_get(u, CURLUPART_HOST, &host, 0) ||
        t->c->url_get(u, CURLUPART_SCHEME, &scheme, 0) || t->c->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        st = err_set(e, ST_INPUT, "not a URL that can be fetched");
    else if (strcmp(scheme, "http") && strcmp(scheme, "https"))
        st = err_set(e, ST_INPUT, "a URL of \"%.20s\" is not fetched, only http and https", scheme);
    else if (!t->c->url_get(u, CURLUPART_USER, &user, 0))
        st = err_set(e, ST_INPUT, "a URL with credentials is not fetched");
    else if (!host_allowed(t->rules, host, port, !strcmp(port, strcmp(scheme, "http") ? "443" : "80")))
        st = err_set(e, ST_INPUT, "%.200s, port %.8s, is none of the hosts that media may come from", host, port);
    t->c->free(host);
    t->c->free(port);
    t->c->free(scheme);
    t->c->free(user);
    t->c->url_cleanup(u);
    return st;
}

static bool transfer_setup(transfer *t, const char *url) {
    CURL *h = t->h;
    bool ok = true;
#define SET(option, value) ok = ok && t->c->easy_setopt(h, option, value) == CURLE_OK
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_USERAGENT, "moonlet/" MOON_VERSION);
    SET(CURLOPT_TIMEOUT_MS, (long)(t->rules->seconds * 1e3) + 1);
    SET(CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)t->rules->bytes);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_remote_socket);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_WRITEFUNCTION, take_bytes);
    SET(CURLOPT_WRITEDATA, t);
#undef SET
    return ok;
}

/* One request. *again: t->next is where it redirects to. */
static status fetch_once(transfer *t, const char *url, bool *again, err *e) {
    long code = 0;
    char *to = NULL;
    if (!transfer_setup(t, url)) return err_set(e, ST_UNSUPPORTED, "libcurl lacks an option; 7.85 or newer is needed");
    const __auto_type rc = t->c->easy_perform(t->h);
    if (t->out->failed) return err_nomem(e, "a picture", t->out->len);
    if (t->refused) return err_set(e, ST_INPUT, "its host's address is private: nothing is fetched from there");
    if (t->large || rc == CURLE_FILESIZE_EXCEEDED)
        return err_set(e, ST_LIMIT, "it is larger than %llu bytes", (unsigned long long)t->rules->bytes);
    if (rc == CURLE_OPERATION_TIMEDOUT)
        return err_set(e, ST_LIMIT, "it did not come within %g seconds", t->rules->seconds);
    if (rc) return err_set(e, ST_INPUT, "it cannot be fetched: %s", t->c->easy_strerror(rc));
    t->c->easy_getinfo(t->h, CURLINFO_RESPONSE_CODE, &code);
    t->c->easy_getinfo(t->h, CURLINFO_REDIRECT_URL, &to);
    *again = code >= 300 && code < 400 && to && strlen(to) < sizeof t->next;
    if (*again) strcpy(t->next, to);
    return code == 200 || *again ? ST_OK : err_set(e, ST_INPUT, "its host answers %ld", code);
}

status remote_fetch(const char *url, const remote_rules *rules, buf *out, err *e) {
    transfer t = {.rules = rules, .out = out, .begin = out->len};
    bool again = true;
    status st = curl_api_open(&t.c, e);
    if (st == ST_OK && strlen(url) >= URL_MOST) st = err_set(e, ST_INPUT, "a URL of more than %d bytes", URL_MOST - 1);
    if (st != ST_OK) return st;
    strcpy(t.next, url);
    for (int i = 0; st == ST_OK && again; i++) {
        char now[URL_MOST];
        again = false;
        strcpy(now, t.next);
        out->len = t.begin; /* what came with a redirect */
        if (i > REDIRECTS) st = err_set(e, ST_INPUT, "it redirects more than %d times", REDIRECTS);
        if (st == ST_OK) st = check_url(&t, now, e);
        if (st == ST_OK && !(t.h = t.c->easy_init())) st = err_nomem(e, "a transfer", 0);
        if (st == ST_OK) st = fetch_once(&t, now, &again, e);
        if (t.h) t.c->easy_cleanup(t.h);
        t.h = NULL;
    }
    return st;
}
