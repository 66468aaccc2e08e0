#include "base/log.h"
#include "base/printable.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool quiet_notes;
static char process_name[96];
static pthread_mutex_t once_lock = PTHREAD_MUTEX_INITIALIZER;
static char once_seen[LOG_ONCE_MOST][96];
static int n_once_seen;
static bool once_full;

void log_set_quiet(bool quiet) { quiet_notes = quiet; }
void log_set_process(const char *name) { snprintf(process_name, sizeof process_name, "%s", name); }

static void say(const char *prefix, const char *fmt, va_list ap) {
    char line[1024];
    vsnprintf(line, sizeof line, fmt, ap);
    make_printable(line, false);
    fprintf(stderr, "%s%s%s\n", process_name, prefix, line);
}

void log_note(const char *fmt, ...) {
    if (quiet_notes) return;
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void log_warn(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say("warning: ", fmt, ap);
    va_end(ap);
}

typedef enum { SEEN, FIRST, FULL } once;

/* Is this key new? FULL: it is, the list has no room, and that was not said yet. */
static once look_up(const char *key) {
    once what = FIRST;
    pthread_mutex_lock(&once_lock);
    for (int i = 0; i < n_once_seen && what == FIRST; i++)
        if (!strncmp(once_seen[i], key, sizeof once_seen[0] - 1)) what = SEEN;
    if (what == FIRST && n_once_seen < LOG_ONCE_MOST) {
        snprintf(once_seen[n_once_seen++], sizeof once_seen[0], "%s", key);
    } else if (what == FIRST) {
        what = once_full ? SEEN : FULL;
        once_full = true;
    }
    pthread_mutex_unlock(&once_lock);
    return what;
}

void log_once(const char *key, const char *fmt, ...) {
    if (quiet_notes) return;
    once what = look_up(key);
    if (what == FULL) fprintf(stderr, "note: further notices are not shown\n");
    if (what != FIRST) return;
    va_list ap;
    va_start(ap, fmt);
    say("note: ", fmt, ap);
    va_end(ap);
}

static f64 clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (f64)t.tv_sec + 1e-9 * (f64)t.tv_nsec;
}
f64 now_s(void) { return clock_s(CLOCK_MONOTONIC); }
f64 thread_s(void) { return clock_s(CLOCK_THREAD_CPUTIME_ID); }

void progress_start(progress *p, const char *what, const char *unit, u64 total) {
    *p = (progress){.what = what, .unit = unit, .total = total, .start_s = now_s()};
    p->last_s = p->start_s;
}

const char *bytes_text(char out[BYTES_TEXT], u64 bytes) {
    bool giga = bytes >= 1000000000;
    snprintf(out, BYTES_TEXT, "%.1f %s", (f64)bytes * (giga ? 1e-9 : 1e-6), giga ? "GB" : "MB");
    return out;
}

static void say_progress(const progress *p, u64 done, f64 rate) {
    char a[BYTES_TEXT], b[BYTES_TEXT];
    if (!strcmp(p->unit, "B")) {
        fprintf(stderr, "%s: %s", p->what, bytes_text(a, done));
        if (p->total) fprintf(stderr, " of %s", bytes_text(b, p->total));
        fprintf(stderr, ", %s/s", bytes_text(a, (u64)rate));
    } else {
        fprintf(stderr, "%s %llu", p->what, (unsigned long long)done);
        if (p->total) fprintf(stderr, "/%llu", (unsigned long long)p->total);
        fprintf(stderr, ", %.3g %s/s", rate, p->unit);
    }
}

bool progress_due(const progress *p) { return !quiet_notes && now_s() - p->last_s >= (isatty(2) ? 0.2 : 10.0); }

void progress_step(progress *p, u64 done) {
    if (!progress_due(p)) return;
    const bool tty = isatty(2);
    const f64 t = now_s(), all = (f64)done + p->under_way, rate = all / (t - p->start_s);
    p->last_s = t;
    if (tty) fprintf(stderr, "\r");
    say_progress(p, done, rate);
    if (p->total && rate > 0) fprintf(stderr, ", %.0f s left", fmax((f64)p->total - all, 0) / rate);
    fprintf(stderr, "%s", tty ? "  " : "\n");
    p->shown = tty;
}

void progress_end(progress *p) {
    if (p->shown) fprintf(stderr, "\r%60s\r", "");
}
