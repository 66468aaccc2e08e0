/* server/request/chat_builder.h: a foreign request rewritten as the body of /v1/chat/completions.
 *
 * Anthropic's messages and OpenAI's responses say the same things in other words. They are translated into a chat
 * body, which then goes the way of every chat request: one renderer, one parser, one set of checks. Values are shared
 * with the foreign body, not copied. Every function returns false when *e is filled. */
#ifndef SERVER_REQUEST_CHAT_BUILDER_H
#define SERVER_REQUEST_CHAT_BUILDER_H
#include "server/request/json_fields.h"

typedef struct {
    json_t *body, *messages; /* the chat body and its messages */
    /* The message that is being gathered; role NULL: none. */
    const char *role;
    json_t *parts, *calls;
    buf reasoning;
    api_error *e;
} chat_builder;

/* Starts a body with the fields of `foreign` that mean the same in chat: those of the table in request_fields.h that
 * stand in `where`. End with chat_builder_close() also after a failure. */
bool chat_builder_open(chat_builder *b, const json_t *foreign, unsigned where, api_error *e);
/* Ends the last message. The chat body is the caller's; NULL after a failure. */
json_t *chat_builder_take(chat_builder *b);
void chat_builder_close(chat_builder *b);

/* A field of the chat body; takes over `v`. */
bool chat_builder_set(chat_builder *b, const char *key, json_t *v);
/* Pieces of one message; another role than that of the message being gathered ends it and begins the next. */
bool chat_builder_text(chat_builder *b, const char *role, const json_t *text);
/* Takes over `part` (NULL: *e is filled): a picture's, from picture_part(). */
bool chat_builder_part(chat_builder *b, const char *role, json_t *part);
bool chat_builder_reasoning(chat_builder *b, const json_t *text);
/* arguments: a string, or an object as the model is to see it. */
bool chat_builder_call(chat_builder *b, const json_t *id, const json_t *name, json_t *arguments);
/* A tool's message; takes over `content` (a string or an array of parts). */
bool chat_builder_result(chat_builder *b, const json_t *id, json_t *content);
/* What was gathered is a message; a role alone is an empty one. */
bool chat_builder_end_message(chat_builder *b);
/* Begins a message even if nothing comes. */
bool chat_builder_begin(chat_builder *b, const char *role);

/* ---- Checks that both protocols need; `field` names the place ---- */

/* The type of a block, item, part or tool: *type is its "type" string. */
bool block_type(const json_t *v, const char *field, const char **type, api_error *e);
/* *text is the string under key. */
bool block_text(const json_t *v, const char *field, const char *key, const json_t **text, api_error *e);
/* A chat's part for a picture that stands in `field`: from a URL, a string; from Anthropic's {"type": "image", "source": {"type": "base64",
 * "media_type", "data"} or {"type": "url", "url"}}. NULL: *e. */
json_t *picture_part(const json_t *url, const char *field, api_error *e);
json_t *picture_part_of_source(const json_t *block, const char *field, api_error *e);
/* 400: this type of block is not read. */
bool block_refused(const char *field, const char *type, api_error *e);

/* A function for "tools"; `parameters` NULL: an object without properties. NULL: *e. */
json_t *chat_tool(const json_t *tool, const char *parameters, api_error *e);

#endif
