/* base/log.h: notices for a person, on stderr. The library prints only through here, and only what a reader
 * must know (a fallback, a plan, progress); errors travel as values instead (base/err.h). Each is one line, made
 * printable (base/printable.h). */
#ifndef BASE_LOG_H
#define BASE_LOG_H
#include "base/types.h"

void log_set_quiet(bool quiet); /* drops notices and progress, not warnings */
/* In front of every line of this process, among others' on one terminal: "process 1 (node7): ". Copied. */
void log_set_process(const char *name);
void log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A notice, the first time that this `key` (its first 95 bytes) is seen in the process. For fallbacks. Behind
 * LOG_ONCE_MOST keys it is said once that no more are shown: the key must not be a client's text. */
enum { LOG_ONCE_MOST = 64 };
void log_once(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "22.2 MB", from 1 GB on "95.1 GB". */
enum { BYTES_TEXT = 24 };
const char *bytes_text(char out[BYTES_TEXT], u64 bytes);

/* A progress line with rate and time left. On a terminal it rewrites itself; elsewhere it prints a line every
 * ten seconds. `total` 0 means unknown. */
typedef struct {
    const char *what, *unit; /* "questions", "q"; unit "B": bytes, as bytes_text() */
    u64 total;
    f64 under_way; /* of things that are not done yet, so much is: for rate and time left */
    f64 start_s, last_s;
    bool shown;
} progress;
void progress_start(progress *p, const char *what, const char *unit, u64 total);
/* Would progress_step() print something now? For who has to count what is under way first. */
bool progress_due(const progress *p);
void progress_step(progress *p, u64 done);
void progress_end(progress *p);

f64 now_s(void);    /* monotonic clock, seconds */
f64 thread_s(void); /* processor time of the thread that asks: others' load does not count */

#endif
