/* server/http/origin.h: which web pages may use the server.
 *
 * A browser lets any page send requests to any address, 127.0.0.1 and the local network included. Three rules keep
 * foreign pages out; programs that are no browsers send none of the headers they look at and notice nothing.
 *
 *   1. Origin (Fetch Standard, "Origin header"): sent with every request of a script and with every form. It has to
 *   be
 *      this server's own or one of --allow-origin. So a refused page cannot even cause work, which CORS alone, about
 *      reading answers, would allow.
 *   2. Sec-Fetch-Site (W3C, Fetch Metadata): what comes without Origin (pictures, scripts, links) has to come from
 *   the
 *      server's own page or from the user. The page's own files are open: a link to them is harmless.
 *   3. Host: with DNS rebinding a page's own name is made to point here, so that Origin and Host agree. On a server
 *   that
 *      listens on loopback only, Host has to be an address, localhost or one of --allow-host; with --allow-host the
 *      same holds for every server. */
#ifndef SERVER_HTTP_ORIGIN_H
#define SERVER_HTTP_ORIGIN_H
#include "base/err.h"

struct http_request;
struct http_reply;

typedef struct {
    const char *const *origins; /* [n_origins]: "scheme://host[:port]", "null" or "*" */
    const char *const *hosts;   /* [n_hosts]: names without port */
    int n_origins, n_hosts;
} origin_rules;

/* The request's headers; NULL: absent. */
typedef struct {
    const char *host, *origin, *fetch_site;
    bool loopback; /* the server listens on a loopback address */
    bool page;     /* the path is one of the web page's files */
} origin_request;

typedef enum { ORIGIN_OK, ORIGIN_HOST, ORIGIN_PAGE } origin_verdict; /* at fault: the host's name, the page */

/* ST_INPUT for an origin or a host that can never match. */
status origin_check_rules(const origin_rules *r, err *e);
origin_verdict origin_judge(const origin_rules *r, const origin_request *q);

/* What CORS wants in the answer to an allowed page of another origin: in every answer, and to its OPTIONS before. */
void origin_fields(const origin_rules *r, const struct http_request *q, struct http_reply *reply);
void origin_preflight(const struct http_request *q, struct http_reply *reply);

#endif
