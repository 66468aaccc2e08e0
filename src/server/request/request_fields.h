/* server/request/request_fields.h: the fields of requests for tokens: one table, which all protocols read.
 *
 * A new field is a row of the table, a member of gen_request or `sampling` that it goes to, and what acts on that. A
 * missing field and JSON null leave the member alone. What has a shape of its own (messages, tools, prompts, thinking)
 * is read where it is used. */
#ifndef SERVER_REQUEST_REQUEST_FIELDS_H
#define SERVER_REQUEST_REQUEST_FIELDS_H
#include "server/request/request.h"

/* Where a field stands. */
enum {
    IN_CHAT = 1,       /* /v1/chat/completions, and what is translated to it */
    IN_PROMPT = 2,     /* likewise, and when its tokens are only counted */
    IN_COMPLETION = 4, /* /v1/completions */
    IN_GENERATE = 8,   /* /generate, outside of ... */
    IN_PARAMS = 16,    /* ... its sampling_params */
    IN_MESSAGES = 32,  /* /v1/messages: goes to the chat body as it is */
    IN_RESPONSES = 64  /* /v1/responses, likewise */
};

/* FIELD_NOT: a boolean whose opposite is kept. FIELD_OWN: by `read`, also when the field is missing. FIELD_REFUSED: a
 * 400 if it is given. FIELD_PASSED: goes to the chat body, where it is read with others. */
typedef enum { FIELD_F64, FIELD_I64, FIELD_BOOL, FIELD_NOT, FIELD_OWN, FIELD_REFUSED, FIELD_PASSED } field_kind;

typedef struct request_field {
    const char *key;
    unsigned where;
    field_kind kind;
    size_t at;  /* of the member in gen_request */
    f64 lo, hi; /* of numbers, both included */
    bool (*read)(gen_request *r, const served_model *m, const json_t *o, const struct request_field *f, api_error *e);
} request_field;

const request_field *request_field_rows(size_t *n);

/* What stands in r before its fields are read. Takes over body. */
void request_begin(gen_request *r, const served_model *m, api_kind kind, json_t *body);
/* The fields of `o` that stand in one of the places `where`. False: *e names the first that is wrong. */
bool request_read_fields(gen_request *r, const served_model *m, const json_t *o, unsigned where, api_error *e);
/* The fields of a foreign request that mean the same in a chat body go there. False: no memory. */
bool request_pass_fields(json_t *chat, const json_t *foreign, unsigned where);

#endif
