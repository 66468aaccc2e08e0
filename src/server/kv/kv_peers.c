#include "server/kv/kv_peers.h"
#include "base/log.h"
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* How long a server is passed over that has failed, and one that had no room; how often the log says the latter. */
static const f64 REST_S = 2, BUSY_S = 0.5, BUSY_TOLD_S = 10;

/* ---- Addresses ---- */

/* The parts of a URL that are compared, as libcurl itself reads them; NULL: there is no such part. */
typedef struct {
    char *scheme, *host, *port;
} url_parts;

static char *url_part(const curl_api *c, CURLU *u, int part) {
    char *text = NULL;
    return c->url_get(u, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) ? NULL : text;
}

/* False: it is no URL of a server. */
static bool read_parts(const curl_api *c, CURLU *u, const char *url, url_parts *p) {
    *p = (url_parts){0};
    if (strpbrk(url, "?#") || c->url_set(u, CURLUPART_URL, url, 0)) return false;
    *p = (url_parts){.scheme = url_part(c, u, CURLUPART_SCHEME),
                     .host = url_part(c, u, CURLUPART_HOST),
                     .port = url_part(c, u, CURLUPART_PORT)};
    return p->scheme && p->host && *p->host && p->port && strcmp(p->port, "0") &&
           (!strcmp(p->scheme, "http") || !strcmp(p->scheme, "https"));
}

static bool is_loopback_v4(const char *host) {
    return !strncmp(host, "127.", 4) && host[strspn(host, "0123456789.")] == 0;
}

/* Is a server that listens on own:own_port the one at host:port? Names are compared, not looked up. */
static bool is_own(const char *host, const char *port, const char *own, i64 own_port) {
    char name[256] = "", bare[256] = "", number[24];
    const size_t n = strlen(host);
    snprintf(number, sizeof number, "%lld", (long long)own_port);
    if (!own_port || strcmp(port, number)) return false;
    gethostname(name, sizeof name - 1);
    snprintf(bare, sizeof bare, "%.*s", (int)(*host == '[' ? n - 2 : n), *host == '[' ? host + 1 : host);
    const bool local = !strcasecmp(bare, "localhost"), v6 = !strcmp(bare, "::1");
    if (!strcmp(own, "0.0.0.0") || !strcmp(own, "::"))
        return local || v6 || is_loopback_v4(bare) || !strcmp(bare, own) || !strcasecmp(bare, name);
    if (local) return !strcasecmp(own, "localhost") || !strcmp(own, "::1") || is_loopback_v4(own);
    return !strcasecmp(bare, own) || (!strcasecmp(own, "localhost") && (v6 || !strcmp(bare, "127.0.0.1")));
}

/* The same server as another: host names in any case, what is behind them as it is. */
static bool same_server(const curl_api *c, const char *a, const char *b) {
    CURLU *u[2] = {c->url(), c->url()};
    const char *const urls[] = {a, b};
    static const int parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT, CURLUPART_ZONEID, CURLUPART_PATH};
    bool same = u[0] && u[1];
    for (int i = 0; same && i < 2; i++) same = !c->url_set(u[i], CURLUPART_URL, urls[i], 0);
    for (size_t k = 0; same && k < COUNT_OF(parts); k++) {
        char *of[2] = {url_part(c, u[0], parts[k]), url_part(c, u[1], parts[k])};
        same = of[0] && of[1] ? !(parts[k] == CURLUPART_HOST ? strcasecmp : strcmp)(of[0], of[1]) : of[0] == of[1];
        c->free(of[0]), c->free(of[1]);
    }
    for (int i = 0; i < 2; i++) c->url_cleanup(u[i]);
    return same;
}

static status check_peer(kv_peers *p, const url_parts *u, const char *url, const kv_own *own, const curl_api *c,
                         err *e) {
    kv_peer *at = &p->of[p->n];
    size_t n = strlen(url);
    while (n && url[n - 1] == '/') n--;
    if (n > KV_URL_MOST) return err_set(e, ST_INPUT, "--prefill-url %.80s...: longer than %d bytes", url, KV_URL_MOST);
    snprintf(at->url, sizeof at->url, "%.*s/kv_pages", (int)n, url);
    if (is_own(u->host, u->port, own->host, own->port))
        return err_set(e, ST_INPUT, "--prefill-url %s: that is this server itself; prompts are computed by another one",
                       url);
    for (int i = 0; i < p->n; i++)
        if (same_server(c, p->of[i].url, at->url)) return err_set(e, ST_INPUT, "--prefill-url %s: given twice", url);
    at->name = url;
    p->n++;
    return ST_OK;
}

static status peer_add(kv_peers *p, const char *url, const kv_own *own, const curl_api *c, err *e) {
    CURLU *u = c->url();
    url_parts parts;
    if (!u) return err_nomem(e, "a URL", 0);
    const bool good = read_parts(c, u, url, &parts);
    status st = ST_OK;
    if (strchr(url, '@')) /* the text is not repeated: it has a secret */
        st =
            err_set(e, ST_INPUT, "--prefill-url: a URL with a name or a password in it; --api-key is the servers' key");
    else if (!good)
        st = err_set(e, ST_INPUT, "--prefill-url %.200s: expected http://HOST:PORT", url);
    else
        st = check_peer(p, &parts, url, own, c, e);
    c->free(parts.scheme), c->free(parts.host), c->free(parts.port);
    c->url_cleanup(u);
    return st;
}

status kv_peers_open(kv_peers *p, const char *const *urls, int n, const kv_own *own, const curl_api *c, err *e) {
    pthread_mutex_init(&p->lock, NULL);
    p->n = 0;
    if (n > KV_PEERS_MOST) return err_set(e, ST_INPUT, "--prefill-url: %d of them, %d are possible", n, KV_PEERS_MOST);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++) st = peer_add(p, urls[i], own, c, e);
    return st;
}

void kv_peers_close(kv_peers *p) { pthread_mutex_destroy(&p->lock); }

/* ---- Whose turn it is ---- */

kv_peer *kv_peers_choose(kv_peers *p, u64 been) {
    const f64 now = now_s();
    kv_peer *best = NULL;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n; i++) {
        kv_peer *at = &p->of[i];
        if (been >> i & 1) continue;
        const bool rests = fmax(at->rests_until, at->busy_until) > now;
        const bool best_rests = best && fmax(best->rests_until, best->busy_until) > now;
        if (!best || rests < best_rests || (rests == best_rests && at->stats.under_way < best->stats.under_way))
            best = at;
    }
    if (best) best->stats.under_way++;
    pthread_mutex_unlock(&p->lock);
    return best;
}

f64 kv_peers_busy_s(kv_peers *p, const kv_peer *at) {
    pthread_mutex_lock(&p->lock);
    const f64 s = at->busy_until - now_s();
    pthread_mutex_unlock(&p->lock);
    return fmax(s, 0);
}

void kv_peers_leave(kv_peers *p, kv_peer *at, f64 began_s, kv_peer_end end) {
    const f64 now = now_s();
    pthread_mutex_lock(&p->lock);
    at->stats.under_way--;
    at->stats.transfers += end != KV_PEER_BUSY && end != KV_PEER_NOT_ASKED;
    at->stats.failures += end == KV_PEER_FAILED;
    at->stats.seconds += now - began_s;
    if (end == KV_PEER_GOOD) at->rests_until = at->busy_until = 0;
    if (end == KV_PEER_FAILED) at->rests_until = now + REST_S;
    if (end == KV_PEER_BUSY) at->busy_until = now + BUSY_S;
    const bool tell = end == KV_PEER_BUSY && now - at->busy_told > BUSY_TOLD_S;
    if (tell) at->busy_told = now;
    pthread_mutex_unlock(&p->lock);
    if (tell) log_note("prefill server %s takes no more prompts at the moment; those that wait ask again", at->name);
}

void kv_peers_brought(kv_peers *p, kv_peer *at, i64 page_bytes) {
    pthread_mutex_lock(&p->lock);
    at->stats.pages++;
    at->stats.bytes += page_bytes;
    pthread_mutex_unlock(&p->lock);
}

kv_peer_stats kv_peers_stats(kv_peers *p, int i) {
    pthread_mutex_lock(&p->lock);
    const kv_peer_stats out = p->of[i].stats;
    pthread_mutex_unlock(&p->lock);
    return out;
}
