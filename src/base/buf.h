/* base/buf.h: a growable run of bytes, and sizes that cannot wrap. */
#ifndef BASE_BUF_H
#define BASE_BUF_H
#include "base/types.h"

/* Zero-initialise ({0}) and end with buf_free(). After a failed allocation `failed` stays true, further
 * additions do nothing, and what was there before is intact: check once at the end. */
typedef struct {
    char *data; /* NUL-terminated when not NULL; the NUL does not count in len */
    size_t len, cap;
    size_t max; /* the most that len may become; 0: no limit. Set by who owns the buffer, while it is empty */
    bool failed;
    bool full; /* it failed because of max */
} buf;

void buf_add(buf *b, const void *bytes, size_t n);
void buf_str(buf *b, const char *s);
void buf_char(buf *b, char c);
void buf_fmt(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool buf_reserve(buf *b, size_t more); /* room for `more` bytes beyond len; false when out of memory */
void buf_clear(buf *b);                /* empties it and forgets a failure, keeps the memory */
void buf_free(buf *b);
char *buf_take(buf *b); /* the bytes, now the caller's to free(); NULL after a failure. *b is empty after */

/* A growable run of token ids; max, failed and full as above. */
typedef struct {
    i32 *data;
    size_t len, cap, max;
    bool failed, full;
} ids_buf;

void ids_add(ids_buf *b, i32 id);
void ids_append(ids_buf *b, const i32 *ids, size_t n);
void ids_free(ids_buf *b);

/* *out = a * b or a + b for sizes that come from files; false when the result does not fit in 63 bits. */
static inline bool mul_size(u64 a, u64 b, u64 *out) { return !__builtin_mul_overflow(a, b, out) && *out <= INT64_MAX; }
static inline bool add_size(u64 a, u64 b, u64 *out) { return !__builtin_add_overflow(a, b, out) && *out <= INT64_MAX; }

#endif
