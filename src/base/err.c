#include "base/err.h"
#include "base/printable.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

status err_set(err *e, status code, const char *fmt, ...) {
    if (!e) return code;
    e->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    make_printable(e->text, false);
    return code;
}

status err_prefix(err *e, const char *fmt, ...) {
    enum { ROOM = sizeof e->text - 1, PREFIX_MIN = ROOM / 2 };
    if (!e) return ST_OK;
    char prefix[4096 + 256] = "", old[sizeof e->text]; /* a path and some words */
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    size_t n = strlen(prefix), n_old = strlen(old), most = PREFIX_MIN;
    if (n_old + 2 + PREFIX_MIN < ROOM) most = ROOM - 2 - n_old;
    const char *from = prefix;
    if (n > most) { /* of a long path the end tells more, and what went wrong must stay */
        from += n - most;
        memcpy(prefix + (n - most), "...", 3);
        n = most;
    }
    memcpy(e->text, from, n);
    memcpy(e->text + n, ": ", 2);
    if (n_old > ROOM - 2 - n) n_old = ROOM - 2 - n;
    memcpy(e->text + n + 2, old, n_old);
    e->text[n + 2 + n_old] = 0;
    make_printable(e->text, false);
    return e->code;
}

status err_nomem(err *e, const char *what, u64 bytes) {
    return err_set(e, ST_NOMEM, "out of memory: %s needs %.1f MiB", what, (double)bytes / 1048576.0);
}

const char *status_text(status s) {
    switch (s) {
#define STATUS_CASE(name, text)                                                                                        \
    case name: return text;
        STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}
