/* base/err.h: errors are values.
 *
 * A function that can fail returns a `status` and fills the caller's `err` with one line that names the thing
 * that was wrong, where it is and, when that helps, what to do. The library never prints, exits or aborts for
 * bad input. Every `err *` argument may be NULL when the caller does not want the text. */
#ifndef BASE_ERR_H
#define BASE_ERR_H
#include "base/types.h"

#define STATUS_MAP(X)                                                                                                  \
    X(ST_OK, "ok")                                                                                                     \
    X(ST_NOMEM, "out of host memory")                                                                                  \
    X(ST_IO, "a file could not be read or written")                                                                    \
    X(ST_FORMAT, "a file is not what it should be")                                                                    \
    X(ST_INPUT, "a request or an argument is not valid")                                                               \
    X(ST_UNSUPPORTED, "valid, but not supported")                                                                      \
    X(ST_LIMIT, "a limit was reached")                                                                                 \
    X(ST_NUMERIC, "not-a-number or infinity in the computation")                                                       \
    X(ST_DEVICE, "a device or its driver failed")                                                                      \
    X(ST_CANCELLED, "cancelled by the caller")                                                                         \
    X(ST_PEER, "another server did not do its part")

typedef enum {
#define STATUS_ENUM(name, text) name,
    STATUS_MAP(STATUS_ENUM)
#undef STATUS_ENUM
} status;

typedef struct {
    status code;
    char text[512]; /* one line, no newline at its end; always terminated */
} err;

/* Sets *e (unless NULL) and returns `code`, so that `return err_set(e, ST_IO, ...)` reads as one step. The text is
 * made printable (base/printable.h), because names out of files and what clients sent end up in it. */
status err_set(err *e, status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " in front of the text already there; returns e->code (ST_OK for NULL). A prefix that is too
 * long loses its beginning. */
status err_prefix(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "out of memory" for `what` of `bytes` bytes. */
status err_nomem(err *e, const char *what, u64 bytes);
const char *status_text(status s);

#endif
