/* server/reply/answer.h: one answer growing: token events in, pieces of text and tool calls out.
 *
 * The same machine serves streams and whole answers: a stream writes the pieces after each batch of events and drops
 * them, a whole answer writes them once at the end. Adjacent pieces of one kind are one. */
#ifndef SERVER_REPLY_ANSWER_H
#define SERVER_REPLY_ANSWER_H
#include "server/reply/job.h"
#include "text/parse.h"

typedef enum { PIECE_REASONING, PIECE_CONTENT, PIECE_CALL_BEGIN, PIECE_CALL_ARGS } piece_kind;

typedef struct {
    piece_kind kind;
    size_t at, len; /* in answer.text; a CALL_BEGIN's text is the tool's name */
    i64 call;       /* index of the tool call in this answer, dense from 0 */
} piece;

/* A position whose token, and if asked for logprob, is reported. */
typedef struct {
    i32 token;
    f32 logprob;
    bool has_logprob;
    i32 n_top;
    size_t top; /* first alternative in answer.top */
} position_info;

typedef struct {
    const gen_request *r;
    const served_model *m;
    i64 index; /* of the choice */
    const ids_buf *prompt;
    parser *parser; /* chat */
    decode_stream raw;
    stop_state stop;
    piece_kind stop_kind; /* kind of the text that `stop` holds back */

    buf text;
    piece *pieces;
    size_t n_pieces, cap_pieces;
    position_info *info; /* prompt positions first */
    size_t n_info, cap_info, n_prompt_info;
    sched_top *top;
    size_t n_top, cap_top;
    ids_buf tokens; /* generated ids since answer_clear_positions() */
    buf scratch, hidden;

    i64 n_tokens, reasoning_tokens, calls;
    bool started;        /* the first token or the end has been seen */
    bool done;           /* `finish` is set: what still comes is not looked at */
    bool cut;            /* ended here and not by the engine: the choice is to be aborted */
    bool failed;         /* out of memory */
    const char *finish;  /* "stop", "length", "tool_calls" */
    int matched_string;  /* index of the stop string that ended it, or -1 */
    i32 matched_id;      /* stop id that ended it, or -1 */
    f64 first_s, last_s; /* arrival of the first and the latest token; now_s() clock */
} answer;

status answer_open(answer *a, const gen_request *r, const served_model *m, i64 index, err *e);
void answer_close(answer *a);
/* A PROMPT or TOKEN event of this choice. */
void answer_event(answer *a, const job_event *ev, const sched_top *top);
/* The engine ended the choice with SCHED_STOP or SCHED_LENGTH. */
void answer_end(answer *a, const job_end *end);
/* Forgets what has been written: pieces; positions and tokens. */
void answer_clear_text(answer *a);
void answer_clear_positions(answer *a);

#endif
