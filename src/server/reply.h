/* server/reply.h: answers as JSON: whole, or as the chunks of a stream (server-sent events, one `data: ` line each).
 *
 * Streams follow what clients were seen to need: the role comes with the first token; each choice has exactly one
 * chunk with a finish_reason, the last with its index, which carries the choice's usage; a chunk with empty `choices`
 * is sent only when stream_options.include_usage asks for it; no comments, no `event:` lines; `[DONE]` ends. */
#ifndef SERVER_REPLY_H
#define SERVER_REPLY_H
#include "server/answer.h"

typedef struct {
    const gen_request *r;
    const served_model *m;
    char id[160];
    i64 created;            /* Unix time */
    f64 received_s;         /* now_s() clock */
    bool incremental;       /* /generate streams what is new instead of everything so far */
    buf head;               /* the beginning that all chunks share */
    answer *all;            /* [n] */
    job_end *ends;          /* [n] */
    buf *sent;              /* [n]: /generate: the text so far */
    i64 *offset;            /* [n]: characters of the tokens whose text_offset was written */
    bool *begun, *finished; /* [n]: role chunk, finish chunk written */
    i64 n;
} reply;

/* `id`: of the response ("chatcmpl-..."), or the client's rid for /generate. */
status reply_open(reply *p, const gen_request *r, const served_model *m, const char *id, err *e);
void reply_close(reply *p);

void reply_whole(reply *p, buf *out);
/* Appends the events for everything choice i has gathered, with its finish chunk when it is done, and clears it. */
void reply_chunks(reply *p, i64 i, buf *out);
/* After the last choice: usage if asked for, and [DONE]. */
void reply_stream_end(reply *p, buf *out);
/* An error after the status line was sent, and [DONE]. */
void reply_stream_error(const api_error *e, buf *out);

/* ---- Parts (reply_parts.c) ---- */

/* The text of one token for people: bad UTF-8 as U+FFFD. */
void token_text(const served_model *m, i32 id, buf *out);
/* chat: {"content": [...]}; from and to index answer.info. */
void chat_logprobs(buf *out, const answer *a, size_t from, size_t to);
/* completions: parallel arrays; *offset is the running text_offset in characters. */
void completion_logprobs(buf *out, const answer *a, size_t from, size_t to, i64 *offset);
/* /generate: [[logprob, id, text or null], ...] and [[[...], ...], ...] */
void generate_logprobs(buf *out, const answer *a, size_t from, size_t to, bool text);
void generate_top_logprobs(buf *out, const answer *a, size_t from, size_t to, bool text);
void json_ids(buf *out, const i32 *ids, size_t n);
/* {"prompt_tokens": ...}: of one choice, or with i < 0 of the whole response. */
void reply_usage(const reply *p, i64 i, buf *out);

#endif
