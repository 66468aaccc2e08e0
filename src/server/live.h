/* server/live.h: the numbers behind the web page's live view, GET /live.
 *
 * A thread of its own looks once a second at the scheduler's statistics (a copy under a lock that is never held during
 * a step) and at the latencies of the last minute, and keeps three minutes of it. A request is answered from what was
 * kept: who looks, and how many, costs the engine nothing. */
#ifndef SERVER_LIVE_H
#define SERVER_LIVE_H
#include "server/metrics.h"

typedef struct live live;
status live_open(live **out, scheduler *s, metrics *m, err *e);
void live_close(live *l);
/* Members of a JSON object, without its braces: what is, the last minute, totals, and the samples after number
 * `since` (0: all that are kept). */
void live_write(live *l, i64 since, buf *out);

#endif
