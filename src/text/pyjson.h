/* text/pyjson.h: JSON values as Python prints them.
 *
 * Kimi's prompts were rendered by Python in training: json.dumps inside the Jinja templates, str() and repr()
 * in the TypeScript declaration of tools. These functions give the same bytes. Source: CPython's
 * json.encoder, float.__repr__ (shortest digits that round-trip) and str/list/dict repr. Integers have any size, and a
 * number beyond a double is infinite: json.dumps says Infinity, repr inf. */
#ifndef TEXT_PYJSON_H
#define TEXT_PYJSON_H
#include "base/json.h"

/* json.dumps(v, ensure_ascii=False, separators=(comma, colon)), keys in their own order. */
void py_dumps(buf *b, const json_t *v, const char *comma, const char *colon);
/* str(v): strings bare, None / True / False, "1e-05", "3.0", containers as Python's repr. */
void py_str(buf *b, const json_t *v);
/* repr(v): as str, strings in Python's quotes. Of the characters Python escapes as not printable, those in
 * use are known here (controls, format and private characters, line separators), unassigned ones are not. */
void py_repr(buf *b, const json_t *v);
/* bool(v): false for NULL, null, false, 0, 0.0, "", [] and {}. */
bool py_truthy(const json_t *v);
/* A deep copy with the keys of every object in code-point order. NULL when out of memory; json_decref(). */
json_t *py_sorted(const json_t *v);

#endif
