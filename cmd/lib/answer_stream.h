/* cmd/lib/answer_stream.h: what a server sends back, read as it arrives: an SSE stream or one JSON document, of
 * /v1/completions, /v1/chat/completions or /generate. Pure: bytes in, pieces out. Every number is held against what was
 * asked for: one that no honest server sends is an error that names its field, and nothing more is read. */
#ifndef CMD_LIB_ANSWER_STREAM_H
#define CMD_LIB_ANSWER_STREAM_H
#include "base/json.h"

/* One event of a stream, or the whole answer. */
typedef struct {
    const char *text; /* new text, not NULL; lives during the call */
    size_t len;
    i64 new_tokens;    /* that came with it; -1: the server does not say */
    const json_t *ids; /* their ids (array), or NULL */
} answer_piece;

typedef struct answer_stream answer_stream;
typedef void (*answer_piece_fn)(void *ud, const answer_piece *p);

/* Zero-initialise but for the first four; end with answer_stream_free(). */
struct answer_stream {
    answer_piece_fn on_piece; /* called for events that bring text or tokens */
    void *ud;
    bool keep_body; /* the answer is no stream: JSON that is read at the end */
    i64 max_tokens; /* that were asked for: neither the counts nor the token_ids may be more; 0: ANSWER_TOKENS_MAX */
    bool done;      /* [DONE] came */
    i64 output_tokens, prompt_tokens, cached_tokens; /* what the server counted; -1: it did not say */
    char error[256];                                 /* the first thing that was wrong, or the server's own error */
    char finish[32];                                 /* finish_reason, "" while none came */
    /* its own */
    bool started;
    buf line;
    size_t seen;     /* bytes of a cumulative text that were passed on */
    i64 seen_tokens; /* that pieces brought */
};

enum {
    ANSWER_LINE_MAX = 64 << 20,  /* bytes of an event, or of an answer that is no stream */
    ANSWER_TOKENS_MAX = 1 << 30, /* no prompt and no answer has more: sums of many stay exact */
};

void answer_stream_add(answer_stream *s, const char *bytes, size_t n);
/* No more bytes come: reads a document, finds a stream that was cut off. */
void answer_stream_end(answer_stream *s);
void answer_stream_free(answer_stream *s);

#endif
