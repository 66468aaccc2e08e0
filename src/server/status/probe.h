/* server/status/probe.h: does the engine still make tokens? What `/health_generate` answers, for everybody who asks at
 * a time.
 *
 * One probe runs at most, and its result holds for all who ask meanwhile and for a second after it, so that asking,
 * which needs no key, costs the engine one token a second however many ask. The probe is a request of one token that
 * stands in front of the queue and takes nobody's place; where all places are taken, what the others get computed
 * meanwhile proves as much. */
#ifndef SERVER_STATUS_PROBE_H
#define SERVER_STATUS_PROBE_H
#include "server/request/errors.h"
#include <pthread.h>

typedef struct server server;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool running;
    u64 rounds; /* probes that ended */
    f64 ended_s;
    bool works; /* the last one's result */
    api_error why;
} probe;

void probe_open(probe *p);
void probe_close(probe *p);
/* Whether the engine works; else *e, a 503, says what is known. Any thread; takes at most 20 seconds, or
 * --watchdog-timeout if that is less. */
bool probe_ask(server *s, api_error *e);

#endif
