/* api/remote_media.h: a picture fetched from a host that the operator of a server has allowed.
 *
 * A server that fetches what clients name can be made to ask its own network for them. So: http and https alone, from
 * the named hosts alone, on the scheme's port unless the name has one; every address is looked at when it is connected
 * to (a name may mean another one by then), and loopback, private, link-local, shared and multicast ones are refused;
 * redirects are followed three times at most, each held against the same rules; no proxy of the environment, no
 * credentials in the URL; limits on size and time. */
#ifndef API_REMOTE_MEDIA_H
#define API_REMOTE_MEDIA_H
#include "base/buf.h"
#include "base/err.h"

typedef struct {
    const char *const *hosts; /* [n]: "example.com" or "example.com:8443"; capitals do not matter */
    int n;
    u64 bytes;        /* most that are taken */
    f64 seconds;      /* for all of it */
    bool any_address; /* private ones too: for tests */
} remote_rules;

/* Is it for remote_fetch(), http:// or https://? */
bool remote_is_url(const char *url);
/* What lies there is appended to *out. ST_INPUT: it may not be fetched, or the other side says something else than 200;
 * ST_LIMIT: larger, or slower; ST_UNSUPPORTED: no libcurl. */
status remote_fetch(const char *url, const remote_rules *rules, buf *out, err *e);

#endif
