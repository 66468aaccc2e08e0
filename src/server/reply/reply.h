/* server/reply/reply.h: answers as JSON: whole, or as the chunks of a stream (server-sent events, one `data: ` line
 * each).
 *
 * Streams follow what clients were seen to need: the role comes with the first token; each choice has exactly one
 * chunk with a finish_reason, the last with its index, which carries the choice's usage; a chunk with empty `choices`
 * is sent only when stream_options.include_usage asks for it; no comments, no `event:` lines; `[DONE]` ends. */
#ifndef SERVER_REPLY_REPLY_H
#define SERVER_REPLY_REPLY_H
#include "server/reply/answer.h"

typedef struct reply reply;

/* How a protocol writes answers. */
typedef struct {
    void (*whole)(reply *p, buf *out);
    void (*chunks)(reply *p, i64 i, buf *out);
    void (*end)(reply *p, buf *out);
    void (*error)(reply *p, const api_error *e, buf *out);
    void (*silence)(reply *p, buf *out); /* NULL: nothing may be sent */
    bool early;                          /* a stream begins before the first token */
} reply_writer;

/* An answer as blocks (Anthropic) or items (Responses): one at a time, each begun and ended (reply_blocks.c). */
typedef struct {
    bool open;
    piece_kind kind; /* PIECE_REASONING, PIECE_CONTENT, PIECE_CALL_ARGS */
    i64 index, call; /* of the block; of the tool call */
    buf name, text;  /* of the open block: the tool, everything so far */
    buf done;        /* the ended blocks as JSON, a comma between them */
    i64 sequence;    /* number of the next event */
} reply_blocks;

struct reply {
    const reply_writer *writer;
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
    bool *begun, *finished; /* [n]: first chunk, finish chunk written */
    reply_blocks blocks;    /* protocols with one choice */
    f64 written_s;          /* when the stream was last written to; now_s() clock */
    i64 n;
};

/* `id`: of the response ("chatcmpl-..."), or the client's rid for /generate. */
status reply_open(reply *p, const gen_request *r, const served_model *m, const char *id, err *e);
void reply_close(reply *p);

void reply_whole(reply *p, buf *out);
/* Appends the events for everything choice i has gathered, with its finish chunk when it is done, and clears it. */
void reply_chunks(reply *p, i64 i, buf *out);
/* After the last choice: usage if asked for, and [DONE]. */
void reply_stream_end(reply *p, buf *out);
/* An error after the status line was sent; nothing follows. */
void reply_stream_error(reply *p, const api_error *e, buf *out);
/* The engine is busy with other things: protocols that have a sign of life send one every 15 seconds. */
void reply_silence(reply *p, buf *out);

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
/* "functions.NAME:IDX", a JSON string; `call` counts within the answer. */
void reply_call_id(const reply *p, const char *name, size_t len, i64 call, buf *out);
/* {"prompt_tokens": ...}: of one choice, or with i < 0 of the whole response. */
void reply_usage(const reply *p, i64 i, buf *out);

/* ---- Blocks (reply_blocks.c) ---- */

typedef struct {
    void (*begin)(reply *p, buf *out);
    void (*delta)(reply *p, const char *text, size_t len, buf *out);
    void (*end)(reply *p, bool complete, buf *out);        /* complete: not cut by max_tokens */
    void (*json)(const reply *p, bool complete, buf *out); /* the ended block */
} block_writer;

/* Everything that a has gathered, as events to out (NULL: none) and into p->blocks. */
void reply_blocks_write(reply *p, const answer *a, const block_writer *w, buf *out);

extern const reply_writer reply_messages, reply_responses;

#endif
