#include "server/http/origin.h"
#include "server/http/http.h"
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* ---- Host ---- */

/* The name in "name", "name:port", "[address]" or "[address]:port"; false when it is none of these. */
static bool host_name(const char *host, const char **name, size_t *n) {
    bool bracket = *host == '[';
    const char *end = bracket ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    *name = host + bracket;
    *n = (size_t)(end - *name);
    end += bracket;
    if (*end == ':') end += 1 + strspn(end + 1, "0123456789");
    return *n > 0 && !*end;
}

static bool origin_same_name(const char *a, size_t n, const char *b) { return strlen(b) == n && !strncasecmp(a, b, n); }

/* An address cannot be rebound: only names go through DNS. */
static bool is_address(const char *name, size_t n) {
    char text[INET6_ADDRSTRLEN];
    u8 address[16];
    if (n >= sizeof text) return false;
    memcpy(text, name, n);
    text[n] = 0;
    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

static bool host_known(const origin_rules *r, const char *host) {
    static const char local[] = ".localhost"; /* RFC 6761, 6.3: never leaves the machine */
    const size_t tail = sizeof local - 1;
    const char *name;
    size_t n;
    if (!host_name(host, &name, &n)) return false;
    if (name[n - 1] == '.') n--; /* a fully qualified name */
    if (origin_same_name(name, n, "localhost") || is_address(name, n)) return true;
    if (n > tail && !strncasecmp(name + n - tail, local, tail)) return true;
    for (int i = 0; i < r->n_hosts; i++)
        if (origin_same_name(name, n, r->hosts[i])) return true;
    return false;
}

/* ---- Origin ---- */

static bool any_origin(const origin_rules *r) {
    for (int i = 0; i < r->n_origins; i++)
        if (!strcmp(r->origins[i], "*")) return true;
    return false;
}

static bool origin_listed(const origin_rules *r, const char *origin) {
    for (int i = 0; i < r->n_origins; i++)
        if (!strcasecmp(r->origins[i], origin)) return true;
    return false;
}

/* The scheme may differ: a reverse proxy speaks TLS to the browser and plain HTTP to us. */
static bool own(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    return authority && host && !strcasecmp(authority + 3, host);
}

origin_verdict origin_judge(const origin_rules *r, const origin_request *q) {
    if (q->host && (q->loopback || r->n_hosts) && !host_known(r, q->host)) return ORIGIN_HOST;
    if (any_origin(r)) return ORIGIN_OK;
    if (q->origin) return own(q->origin, q->host) || origin_listed(r, q->origin) ? ORIGIN_OK : ORIGIN_PAGE;
    const char *site = q->fetch_site;
    bool foreign = site && strcmp(site, "same-origin") && strcmp(site, "none");
    return foreign && !q->page ? ORIGIN_PAGE : ORIGIN_OK;
}

status origin_check_rules(const origin_rules *r, err *e) {
    for (int i = 0; i < r->n_origins; i++) {
        const char *o = r->origins[i], *name, *at = strstr(o, "://");
        size_t n;
        bool word = !strcmp(o, "*") || !strcmp(o, "null");
        if (!word && (!at || at == o || strpbrk(at + 3, "/?#@ *,") || !host_name(at + 3, &name, &n)))
            return err_set(e, ST_INPUT,
                           "--allow-origin %s: an origin is scheme://host or scheme://host:port, without a path", o);
    }
    for (int i = 0; i < r->n_hosts; i++)
        if (!*r->hosts[i] || strpbrk(r->hosts[i], "/:?#@ *,"))
            return err_set(e, ST_INPUT, "--allow-host %s: a name without scheme, port and path is expected",
                           r->hosts[i]);
    return ST_OK;
}

/* ---- CORS (Fetch Standard, "CORS protocol") ---- */

void origin_fields(const origin_rules *r, const http_request *q, http_reply *reply) {
    const char *origin = http_header(q, "Origin");
    bool any = any_origin(r);
    if (r->n_origins && !any) http_field(reply, "Vary", "Origin");
    if (!origin || !(any || origin_listed(r, origin))) return;
    http_field(reply, "Access-Control-Allow-Origin", any ? "*" : origin);
    http_field(reply, "Access-Control-Expose-Headers", "x-request-id, Retry-After, x-should-retry, X-Moonlet-Warning");
}

/* Header names as the browser lists them, and nothing else. */
static bool are_names(const char *s) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
    return strlen(s) < 2048 && !s[strspn(s, letters)];
}

void origin_preflight(const http_request *q, http_reply *reply) {
    const char *names = http_header(q, "Access-Control-Request-Headers"),
               *private = http_header(q, "Access-Control-Request-Private-Network");
    if (!http_header(q, "Origin") || !http_header(q, "Access-Control-Request-Method")) return;
    http_field(reply, "Access-Control-Allow-Methods", "GET, POST");
    if (names && are_names(names)) http_field(reply, "Access-Control-Allow-Headers", names);
    if (private && !strcmp(private, "true")) http_field(reply, "Access-Control-Allow-Private-Network", "true");
    http_field(reply, "Access-Control-Max-Age", "600");
}
