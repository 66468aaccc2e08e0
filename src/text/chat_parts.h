/* text/chat_parts.h: what the templates share: checked messages, and the writer that keeps text and ids in
 * step. Internal to the chat files. */
#ifndef TEXT_CHAT_PARTS_H
#define TEXT_CHAT_PARTS_H
#include "text/chat.h"

typedef struct {
    const char *s; /* may hold NUL bytes */
    size_t len;
} chat_str;

/* A message whose keys have been checked for type. Points into the request. */
typedef struct {
    chat_str role;                      /* never empty */
    chat_str name;                      /* the request's "name", else the role */
    chat_str call_id;                   /* "tool_call_id" */
    chat_str reasoning;                 /* "reasoning_content" */
    const json_t *content;              /* string or array of objects; NULL: nothing */
    const json_t *calls;                /* non-empty array of objects, or NULL */
    bool user, assistant, tool, system; /* the role is this one */
} chat_message;

/* Reads and checks `messages`; *out is malloc'ed, the caller frees it. */
status chat_messages_read(const json_t *messages, chat_message **out, size_t *n, err *e);

/* Appends to text and ids alike. The first failure sticks; later calls do nothing. */
typedef struct {
    chat_template kind;
    const tokenizer *tok; /* NULL: no ids */
    buf *text;
    ids_buf *ids;
    const chat_video *videos; /* [n_videos] that are still to come */
    size_t n_videos;
    size_t encoded; /* bytes of *text whose ids are in *ids */
    status st;
    err *e;
} chat_writer;

void chat_text(chat_writer *w, const char *s);       /* ordinary text */
void chat_bytes(chat_writer *w, chat_str s);         /* the same */
void chat_control(chat_writer *w, const char *name); /* a control token: its name, its id */
status chat_finish(chat_writer *w);                  /* encodes the last run of text; the final status */
void chat_json(chat_writer *w, const json_t *v, const char *comma, const char *colon);

void chat_frame(chat_writer *w, const chat_message *m);              /* <|im_user|>name<|im_middle|> */
void chat_content(chat_writer *w, const chat_message *m, size_t at); /* text and media of messages[at] */
void chat_tool_calls(chat_writer *w, const chat_message *m);         /* the tool call section */
void chat_declare_tools(chat_writer *w, const char *before);         /* opens the block of tools */
void chat_default_system(chat_writer *w, const char *text);

typedef struct {
    const chat_message *messages;
    size_t n;
    const json_t *tools; /* non-empty array, or NULL */
    bool thinking, preserve_thinking, add_generation_prompt;
} chat_input;

/* One function a family of templates. */
void chat_render_k2(chat_writer *w, const chat_input *in);                    /* K2-Instruct */
void chat_render_k25(chat_writer *w, const chat_input *in, chat_prompt *out); /* Thinking and later */

#endif
