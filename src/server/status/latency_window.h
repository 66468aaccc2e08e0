/* server/status/latency_window.h: the distribution of a time over the last minute, in a fixed amount of memory.
 *
 * One histogram a second, 61 of them in a ring; whole microseconds, 16 buckets in each power of two, so that a quantile
 * is at most 1/16 off (the middle of its bucket: 3 %). Not locked. */
#ifndef SERVER_STATUS_LATENCY_WINDOW_H
#define SERVER_STATUS_LATENCY_WINDOW_H
#include "base/types.h"

enum { WINDOW_S = 60, WINDOW_BUCKETS = 16 + 27 * 16 }; /* up to 2^31 us = 36 minutes; longer counts as that */

typedef struct {
    struct {
        i64 second; /* whose counts these are; 0: none yet */
        u32 count[WINDOW_BUCKETS];
    } slot[WINDOW_S + 1];
} latency_window;

typedef struct {
    i64 n;
    f64 p50, p90, p99; /* seconds; 0 when n is 0 */
} quantiles;

/* `now`: a clock in seconds that starts above 1 and does not go back. */
void latency_window_add(latency_window *w, f64 now, f64 seconds);
/* Of what was added during the last 60 whole seconds and the one under way. */
quantiles latency_window_quantiles(const latency_window *w, f64 now);

#endif
