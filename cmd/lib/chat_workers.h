/* cmd/lib/chat_workers.h: chats put to the model through moonlet.h and collected, several at a time: every worker is
 * a thread with an engine of its own, because an engine answers one chat after the other. The weights are mapped, so
 * the workers share them; each has its own KV cache. What a chat answers does not depend on the others. */
#ifndef CMD_LIB_CHAT_WORKERS_H
#define CMD_LIB_CHAT_WORKERS_H
#include "base/buf.h"
#include "base/json.h"
#include "cmd/lib/model_opts.h"

/* An answer. Zero-initialise and end with reply_free(); ask_chat() empties it first. */
typedef struct {
    buf reasoning, content; /* content.data is NULL when empty */
    json_t *calls;          /* array of OpenAI's {"id", "type", "function": {"name", "arguments"}} */
    bool ended;             /* the model ended its turn itself */
    i64 prompt_tokens, output_tokens;
    size_t max_bytes; /* answers longer than this are stopped; 0: none are. Kept by ask_chat() */
} reply;
void reply_free(reply *r);
const char *reply_text(const reply *r); /* the content, "" when empty */

/* A chat of one user message; the caller's reference. NULL when out of memory. `content` is borrowed. */
json_t *chat_of(json_t *content);
/* Turns thinking off. */
status chat_instant(json_t *chat, err *e);
/* Asks greedily. max_tokens 0: as many as the context holds. */
status ask_chat(moon_engine *m, const json_t *chat, i64 max_tokens, reply *r, err *e);

typedef struct askers askers;
/* Opens `parallel` engines (0: one for every thread that the options allow, one with ranks on GPUs) and divides the
 * threads among them. ST_INPUT: more than one with ranks on GPUs. */
status askers_open(askers **out, const model_opts *o, i64 parallel, err *e);
void askers_close(askers *a); /* NULL allowed */
/* The first engine, for its plan and template lines. */
const moon_engine *askers_first(const askers *a);
i64 askers_parallel(const askers *a);

/* Answers item i with the worker's engine. Called from several threads, never twice for one i: it may change what
 * belongs to item i alone. */
typedef status (*ask_fn)(void *ud, moon_engine *m, i64 i, err *e);
/* All items 0..n in order of their numbers, with a progress line. The first error ends it. */
status askers_run(askers *a, const char *what, i64 n, ask_fn fn, void *ud, err *e);

#endif
