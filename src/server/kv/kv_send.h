/* server/kv/kv_send.h: `--role prefill`: prompts are computed here, their KV pages answer somebody else's requests.
 *
 * GET /kv_pages says what pages of this server mean, as {"layout": text}. POST /kv_pages takes {"layout", "ids", "from",
 * "cache_space", "priority"} and answers with a stream of records (kv_wire.h): the pages from number `from` on of all tokens of the
 * prompt `ids` but the last one, each as soon as it is computed, KV_RECORD_WAIT once a second while there is none, and
 * KV_RECORD_END. 409: the pages of the two servers do not mean the same. GET /kv_pages?transfer=ID, with the
 * x-request-id of such an answer, is another stream of the same pages: each goes into one of the streams, whichever is
 * ready for one. 404: it is over. */
#ifndef SERVER_KV_KV_SEND_H
#define SERVER_KV_KV_SEND_H
#include "runtime/engine_kv.h"
#include <pthread.h>

/* What is under way, and movers that streams take and give back: opening one waits for the GPU. */
typedef struct {
    pthread_mutex_t lock;
    kv_mover *free[256];
    int n;
    struct kv_source *sources;
} kv_sender;

void kv_sender_open(kv_sender *k);
void kv_sender_close(kv_sender *k); /* behind the last stream, before the engine */

#endif
