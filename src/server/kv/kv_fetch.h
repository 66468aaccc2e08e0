/* server/kv/kv_fetch.h: `--role decode`: prompts are computed by servers of --role prefill, whose KV pages are fetched
 * from there into this engine's memory.
 *
 * A transfer is one POST /kv_pages (kv_send.h) in a thread of its own, of which there are so many for each server, with
 * others that help it by further connections; the highest priority goes first, to the server with the fewest. A server
 * that fails a transfer is passed over for a moment, and the transfer goes on at another one that it has not been to;
 * where there is none, its request ends with ST_PEER. A server without room is asked again: for as long as somebody
 * wants the prompt where its queue is full, else for silence_s. A prompt that one does not take and no other brings is
 * computed here. */
#ifndef SERVER_KV_KV_FETCH_H
#define SERVER_KV_KV_FETCH_H
#include "runtime/engine_kv.h"
#include "runtime/scheduler.h"
#include "server/kv/kv_peers.h"

enum { KV_TRANSFERS_EACH = 8, KV_CONNECTIONS_EACH = 4 /* of a transfer */ };

typedef struct {
    const char *const *urls; /* [n], as http://HOST:PORT; 1 <= n <= KV_PEERS_MOST */
    int n;
    kv_own own;
    const char *api_key; /* sent to all; NULL: none */
    f64 silence_s;       /* a server from which nothing came for so long is lost */
    const char *layout;  /* engine_kv_describe() */
    engine *g;
} kv_fetch_options;

typedef struct kv_fetcher kv_fetcher;

/* Asks each server once whether its pages mean the same: ST_INPUT if not. One that does not answer is waited for when
 * a prompt needs it. What o points to must outlive the fetcher. */
status kv_fetcher_open(kv_fetcher **out, const kv_fetch_options *o, err *e);
/* Behind scheduler_open(), before any request. */
status kv_fetcher_start(kv_fetcher *f, scheduler *s, err *e);
/* For scheduler_options.fetch: never waits. Behind kv_fetcher_close(), and without memory, kv's request ends. */
void kv_fetcher_add(kv_fetcher *f, const sched_kv *kv);
/* For scheduler_options.drop: gives kv back if it still waits for a thread. */
void kv_fetcher_drop(kv_fetcher *f, const sched_kv *kv);
/* Ends what is under way; every kv has been given back when it returns. Then, behind scheduler_close(), _free(). NULL
 * is allowed for both. */
void kv_fetcher_close(kv_fetcher *f);
void kv_fetcher_free(kv_fetcher *f);
kv_peer_stats kv_fetcher_peer(kv_fetcher *f, int peer, const char **url); /* peer < options.n */
int kv_fetcher_peers(const kv_fetcher *f);

#endif
