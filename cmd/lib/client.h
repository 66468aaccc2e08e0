/* cmd/lib/client.h: requests put to a server over HTTP or to an engine in this process, many at a time, and when their
 * answers arrived. What `moonlet bench serving` and `moonlet eval gsm8k` measure with. One thread uses a client. */
#ifndef CMD_LIB_CLIENT_H
#define CMD_LIB_CLIENT_H
#include "cmd/lib/speculative.h"
#include "cmd/lib/stats.h"
#include "text/tokenizer.h"
#include "base/json.h"

/* What to answer: one of text, ids, messages. The caller's until the answer is there. */
typedef struct {
    const char *text; /* [text_len] */
    size_t text_len;
    const i32 *ids; /* [n_ids] */
    i64 n_ids;
    const json_t *messages; /* chat endpoints only */
    i64 max_tokens;
    /* Over HTTP, once client_prepare() made it: */
    buf body;         /* what is sent */
    i64 asked_tokens; /* most tokens of the answer by the body, where "extra" may say something else than max_tokens */
} client_request;
void client_request_free(client_request *r); /* its body */

/* Times are now_s(). Zero-initialise. */
typedef struct {
    bool ok;      /* else `error` says why */
    bool stopped; /* it ended by itself, not because of max_tokens */
    char error[256];
    f64 start_s;   /* when the request was handed over */
    f64 first_s;   /* its first token; 0: none came */
    f64 last_s;    /* its last token */
    f64 end_s;     /* the end of the answer */
    f64_list gaps; /* inter-token latencies: between pieces; a piece of k tokens counts k times with its k-th part */
    i64 output_tokens;                /* as the server counted; where it does not count: max_tokens */
    bool counted;                     /* the server counted */
    i64 prompt_tokens, cached_tokens; /* as the server counted; -1: it did not */
    buf text;
    ids_buf ids; /* of the output, where known */
    /* the client's own */
    i64 unseen; /* tokens since last_s that came without a moment of their own */
    void *own;
} client_answer;
void client_answer_free(client_answer *a);
/* For clients: k tokens (at least 1) became visible at time t. */
void client_tokens(client_answer *a, f64 t, i64 k);

typedef struct {
    bool stream, ignore_eos, chat, logprobs;
    f64 temperature;
    const char *const *stop; /* [n_stop]: strings that end an answer and are not part of it */
    int n_stop;
    const json_t *extra; /* members that are added to every request's body; NULL: none */
} client_options;

typedef struct client client;
typedef struct {
    /* Makes the request's bytes ahead of time, so that this is not measured. */
    status (*prepare)(client *c, client_request *r, err *e);
    status (*start)(client *c, client_request *r, client_answer *a, err *e);
    client_answer *(*wait)(client *c, f64 until_s);
    status (*flush)(client *c, err *e);
    json_t *(*info)(client *c);
    void (*close)(client *c);
} client_table;
/* What every client begins with. */
struct client {
    const client_table *t;
    client_options o;
    char name[256]; /* of the model */
};

static inline status client_prepare(client *c, client_request *r, err *e) { return c->t->prepare(c, r, e); }
/* Both stay where they are until client_wait() returned `a`. A request that fails is an answer that is not ok; an
 * error is returned only when nothing can go on. */
static inline status client_start(client *c, client_request *r, client_answer *a, err *e) {
    return c->t->start(c, r, a, e);
}
/* The next finished answer; NULL when now_s() reaches until_s. */
static inline client_answer *client_wait(client *c, f64 until_s) { return c->t->wait(c, until_s); }
/* Empties the prefix cache. */
static inline status client_flush(client *c, err *e) { return c->t->flush(c, e); }
/* What the server says about itself (/get_server_info), or NULL. The caller's reference. */
static inline json_t *client_info(client *c) { return c->t->info(c); }
/* Nothing may be under way. NULL is allowed. */
static inline void client_close(client *c) {
    if (c) c->t->close(c);
}

/* ---- over HTTP ---- */
typedef enum { API_COMPLETIONS, API_CHAT, API_GENERATE } client_api;
typedef struct {
    const char *base_url; /* "http://host:port", a path "/v1" at its end is allowed */
    client_api api;
    bool token_ids;    /* asks for return_token_ids: Moonlet and vLLM */
    const char *model; /* NULL: the first of /v1/models */
    client_options o;
    i64 answer_mb; /* most bytes of an answer's HTTP body, in MB; a longer one is cut off and failed */
} client_http_options;
enum { ANSWER_MB = 1024, ANSWER_MB_MOST = 1 << 20 };
#define ANSWER_MB_OPT(to)                                                                                              \
    {                                                                                                                  \
        "max-answer-mb", 0, OPT_INT, &(to), "N", "longest answer of a server in MB, as it is sent (default: 1024)", 1, \
            ANSWER_MB_MOST                                                                                             \
    }
status client_http_open(client **out, const client_http_options *o, err *e);
/* A string of /get_model_info ("tokenizer_path"); NULL without. The caller's to free(). */
char *client_http_model_info(client *c, const char *key);

/* ---- in this process ---- */
typedef struct {
    model_opts *m;
    i64 max_running;
    bool disable_overlap;
    f64 decode_stall_s;            /* scheduler_options.decode_stall_s */
    bool warm_up;                  /* on a GPU: as a server does before its first request (runtime/warm_up.h) */
    bool disable_jump_forward;     /* tokens that a grammar forces are drawn like others */
    const speculative_opts *draft; /* NULL: nothing is proposed */
    f64 constrained_share;         /* of the requests are held to what o.extra asks for; it takes nothing else */
    client_options o;
} client_engine_options;
status client_engine_open(client **out, const client_engine_options *o, err *e);
const tokenizer *client_engine_tokenizer(const client *c);
engine *client_engine_engine(const client *c);

#endif
