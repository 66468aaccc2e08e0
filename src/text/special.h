/* text/special.h: the 256 special slots behind the ranks.
 *
 * `added_tokens_decoder` of tokenizer_config.json names some of them; each other slot is called
 * `<|reserved_token_ID|>`. Names are at most SPECIAL_NAME_MAX bytes, not empty, and all different. */
#ifndef TEXT_SPECIAL_H
#define TEXT_SPECIAL_H
#include "base/err.h"

enum { SPECIAL_SLOTS = 256, SPECIAL_NAME_MAX = 256 };

typedef struct {
    i32 first; /* id of slot 0 */
    struct {
        char *name; /* malloc'ed, NUL behind it (a name may also contain one) */
        u32 len;
        bool special; /* "special": true in added_tokens_decoder */
    } slot[SPECIAL_SLOTS];
    u8 sorted[SPECIAL_SLOTS]; /* slots in the order of their names' bytes */
    bool begins[256];         /* a name begins with this byte */
} special_set;

/* Reads the JSON text[len] of tokenizer_config.json; `what` names it in errors. Zero-initialised *s; end with
 * special_free() even after an error. */
status special_read(special_set *s, i32 first_id, const char *text, size_t len, const char *what, err *e);
void special_free(special_set *s);

/* The slot with this name, or -1. */
int special_find(const special_set *s, const char *name, size_t len);
/* Finds the first special token in text[len]: its slot, *at where it begins; -1 when there is none. Of
 * several names that begin there the longest counts. */
int special_search(const special_set *s, const u8 *text, size_t len, size_t *at);

#endif
