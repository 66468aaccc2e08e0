/* base/json_size.h: how much memory JSON takes as values, which is many times its text: an empty object has two bytes
 * and becomes some 240. Upper bounds, so that a budget kept with them holds. */
#ifndef BASE_JSON_SIZE_H
#define BASE_JSON_SIZE_H
#include "base/json.h"

typedef struct {
    int depth; /* arrays and objects inside each other */
    i64 values;
    u64 bytes; /* of memory, at most */
} json_shape;

/* Looks at text that has not been parsed, JSON or not; what stands inside quotes counts as text. */
json_shape json_shape_of(const char *text, size_t len);
/* The bytes of values that are there; NULL: 0. */
u64 json_memory(const json_t *v);

#endif
