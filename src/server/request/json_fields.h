/* server/request/json_fields.h: fields of a request's JSON object, checked as they are read.
 *
 * A missing field and JSON null leave *out alone. Anything else of the wrong type or out of range is a 400 that names
 * the field; each function then returns false. */
#ifndef SERVER_REQUEST_JSON_FIELDS_H
#define SERVER_REQUEST_JSON_FIELDS_H
#include "base/json.h"
#include "server/request/errors.h"

bool field_i64(const json_t *o, const char *key, i64 lo, i64 hi, i64 *out, api_error *e);
bool field_f64(const json_t *o, const char *key, f64 lo, f64 hi, f64 *out, api_error *e);
bool field_bool(const json_t *o, const char *key, bool *out, api_error *e);
/* *out points into the object. A NUL inside the string is refused. */
bool field_str(const json_t *o, const char *key, const char **out, api_error *e);
/* *out is the array or object under key, NULL when there is none. */
bool field_array(const json_t *o, const char *key, size_t max, const json_t **out, api_error *e);
bool field_object(const json_t *o, const char *key, const json_t **out, api_error *e);
/* An array of token ids inside [0, vocab), appended to *out. `key` only names it. */
bool field_ids(const json_t *array, const char *key, i64 vocab, ids_buf *out, api_error *e);
/* True for a key that is there and not null. */
bool field_given(const json_t *o, const char *key);

#endif
