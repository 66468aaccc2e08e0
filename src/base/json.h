/* base/json.h: JSON through jansson, with the same strictness everywhere.
 *
 * Objects keep the order of their keys (templates depend on it). Duplicate keys, nesting deeper than 512, integers
 * of more than 4300 digits (Python's own limit), malformed UTF-8 and anything after the value are errors that name
 * the line and column. A lone surrogate escape becomes U+FFFD, as Python's readers of Kimi's tokenizer end up with.
 *
 * Numbers may have any size. jansson's integers have 64 bits and its reals are finite doubles; a number beyond these
 * is a *big number*, which keeps its text. To jansson it is an object with a key that no text can spell, so this
 * header redefines the macros with which one asks: json_is_object() is false for it, json_is_number() and
 * json_number_value() know it, json_is_integer() and json_is_real() say what jansson's own functions can read.
 * json_typeof(), json_dumps() and json_equal() for numbers are not to be used (tools/lint.py): json_type_text(),
 * json_write(), json_same_number(). */
#ifndef BASE_JSON_H
#define BASE_JSON_H
#include "base/buf.h"
#include "base/err.h"
#include <jansson.h>

enum { JSON_MAX_DIGITS = 4300 };

/* Parses `len` bytes. NULL and *e on failure; `what` names the source ("config.json") in the error. The
 * caller ends the value with json_decref(). */
json_t *json_parse(const char *text, size_t len, const char *what, err *e);

/* ---- Numbers ---- */

/* The text of a number beyond 64 bits (an integer) or beyond a double (a real); NULL for every other value, and for
 * NULL. It belongs to the value. */
const char *json_big_number(const json_t *v);
bool json_is_big_integer(const json_t *v);
f64 json_f64(const json_t *v); /* rounded; infinite beyond a double; 0 for what is no number */
/* Integers exactly, whatever their size; a real and any number as doubles: 1 is 1.0. */
bool json_same_number(const json_t *a, const json_t *b);

static inline bool json_is_map(const json_t *v) { return v && json_typeof(v) == JSON_OBJECT && !json_big_number(v); }
static inline bool json_is_any_number(const json_t *v) {
    return json_is_integer(v) || json_is_real(v) || json_big_number(v);
}
#undef json_is_object
#undef json_is_number
#define json_is_object(v)    json_is_map(v)
#define json_is_number(v)    json_is_any_number(v)
#define json_number_value(v) json_f64(v)

/* ---- Look-ups and printing ---- */

const char *json_type_text(const json_t *v); /* "a string", ... for messages; NULL is "nothing" */

/* Typed look-ups in an object for configuration files. A missing key or JSON null leaves *out alone and
 * returns ST_OK when `need` is false; a wrong type or a value outside [lo, hi] is an error that names the
 * key. */
status json_get_i64(const json_t *o, const char *key, i64 lo, i64 hi, bool need, i64 *out, err *e);
status json_get_f64(const json_t *o, const char *key, f64 lo, f64 hi, bool need, f64 *out, err *e);
status json_get_bool(const json_t *o, const char *key, bool need, bool *out, err *e);
/* *out points into the object and lives as long as it. */
status json_get_str(const json_t *o, const char *key, bool need, const char **out, err *e);

/* Appends a JSON string literal, quotes included; non-ASCII stays as it is, malformed UTF-8 must not occur.
 */
void buf_json_str(buf *b, const char *s, size_t len);
/* The fewest digits that read back as the same double, as Python spells them: 0.1, 100.0, 1e+16. Finite v. */
void buf_json_f64(buf *b, f64 v);

typedef struct {
    const char *comma, *colon;
    /* what a real beyond a double is called, behind its sign; NULL: its own text, which is JSON */
    const char *infinity;
    int indent; /* spaces a level, items on lines of their own; 0: all on one line */
} json_style;
extern const json_style json_compact, json_spaced; /* "," ":" and ", " ": " */

/* Appends v, big numbers as they were written. */
void json_write(buf *b, const json_t *v, const json_style *s);
/* The same as a string of its own, to be freed; NULL when out of memory. */
char *json_to_text(const json_t *v, const json_style *s);

#endif
