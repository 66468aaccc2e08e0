/* server/kv/kv_peers.h: the servers of --prefill-url: their addresses, which of them a prompt goes to, which had better
 * be left alone for a moment, and what went well. For any thread. */
#ifndef SERVER_KV_KV_PEERS_H
#define SERVER_KV_KV_PEERS_H
#include "base/curl_api.h"
#include "base/types.h"
#include <pthread.h>

enum { KV_PEERS_MOST = 64, KV_URL_MOST = 1000 };

typedef struct {
    i64 transfers, failures; /* ended; of these, at this server */
    i64 pages, bytes, under_way;
    f64 seconds; /* sum over transfers, waiting for the prompt to be computed included */
} kv_peer_stats;

typedef struct {
    char url[KV_URL_MOST + 16]; /* of its /kv_pages */
    const char *name;           /* as the user wrote it */
    /* under the peers' lock */
    f64 rests_until, busy_until;
    f64 busy_told; /* when the log last said so */
    kv_peer_stats stats;
} kv_peer;

typedef struct {
    kv_peer of[KV_PEERS_MOST]; /* [n] */
    int n;
    pthread_mutex_t lock;
} kv_peers;

/* What became of a transfer. */
typedef enum {
    KV_PEER_GOOD,
    KV_PEER_BLAMELESS, /* it did not come to its end, but not because of the server */
    KV_PEER_FAILED,    /* the server is passed over for a moment */
    KV_PEER_BUSY,      /* it takes no more at the moment: to be asked again, no transfer has ended */
    KV_PEER_NOT_ASKED  /* after all */
} kv_peer_end;

/* Where the server itself listens; port 0: anywhere. */
typedef struct {
    const char *host;
    i64 port;
} kv_own;

/* ST_INPUT names the URL that cannot be one: http(s)://HOST[:PORT][/PATH] without a password, none twice, and not the
 * server's own. urls [n] must outlive p. Behind a failed open, too, _close(). */
status kv_peers_open(kv_peers *p, const char *const *urls, int n, const kv_own *own, const curl_api *c, err *e);
void kv_peers_close(kv_peers *p);

/* Of the servers that are not in `been` (bits) the one with the fewest transfers, those that rest last; NULL: there is
 * none. It counts as under way until _leave(). */
kv_peer *kv_peers_choose(kv_peers *p, u64 been);
/* The chosen one is busy for so many seconds yet; 0: it is not. */
f64 kv_peers_busy_s(kv_peers *p, const kv_peer *at);
void kv_peers_leave(kv_peers *p, kv_peer *at, f64 began_s, kv_peer_end end);
void kv_peers_brought(kv_peers *p, kv_peer *at, i64 page_bytes);
kv_peer_stats kv_peers_stats(kv_peers *p, int i);

#endif
