/* server/status/dashboard.h: the numbers behind the web page's live view, GET /live.
 *
 * A thread of its own looks once a second at the scheduler's statistics (a copy under a lock that is never held during
 * a step) and at the latencies of the last minute, and keeps three minutes of it. A request is answered from what was
 * kept: who looks, and how many, costs the engine nothing. */
#ifndef SERVER_STATUS_DASHBOARD_H
#define SERVER_STATUS_DASHBOARD_H
#include "server/status/metrics.h"

typedef struct dashboard dashboard;
status dashboard_open(dashboard **out, scheduler *s, metrics *m, err *e);
void dashboard_close(dashboard *l);
/* Members of a JSON object, without its braces: what is, the last minute, totals, and the samples after number
 * `since` (0: all that are kept). */
void dashboard_write(dashboard *l, i64 since, buf *out);

#endif
