/* server/request/request.h: a request's JSON, checked, templated and tokenised: what the scheduler has to run, and how
 * the answer is to be written. Pure functions of the JSON and the model; any thread.
 *
 * Fields that no endpoint knows are ignored (clients add new ones all the time); fields that are known and cannot be
 * honoured yet are a 400 that names them. */
#ifndef SERVER_REQUEST_REQUEST_H
#define SERVER_REQUEST_REQUEST_H
#include "api/pictures.h"
#include "server/request/constraints.h"
#include "server/request/json_fields.h"
#include "server/request/served_model.h"
#include "text/stop_text.h"

enum { PROMPTS_MAX = 2048, CHOICES_MAX = 4096, N_MAX = 128, TOOLS_MAX = 1024 };
/* Nesting of a request's JSON, and of JSON inside of its strings. */
enum { REQUEST_DEPTH_MAX = 128 };

typedef enum { API_CHAT, API_COMPLETION, API_GENERATE, API_MESSAGES, API_RESPONSES } api_kind;
static inline bool api_is_chat(api_kind k) { return k != API_COMPLETION && k != API_GENERATE; }

typedef enum { CHOOSE_AUTO, CHOOSE_NONE, CHOOSE_REQUIRED } tool_choice;

typedef struct {
    api_kind kind;
    json_t *body;     /* everything below that points into JSON points into this */
    json_t *original; /* what a foreign protocol's request was before it became a chat body; else NULL */

    /* What to compute: prompts x n answers. */
    ids_buf *prompts; /* [n_prompts] */
    i64 n_prompts, n;
    chat_pictures pictures; /* of the only prompt; their ids stand in it */
    bool prompt_array;      /* the prompts came as an array of prompts: so do /generate's answers */
    sampling sampling;
    i64 max_new, min_new; /* max_new 0: to the end of the context */
    bool score;           /* max_tokens 0 with echo: the one token that is computed is not shown */
    bool ignore_eos;
    ids_buf stop_ids; /* the request's own; the model's are added at submission unless ignore_eos */
    stop_set stops;
    bool keep_stop; /* the stop string stays in the text */
    ids_buf bias_ids;
    f32 *bias; /* [bias_ids.len] */
    bool logprobs, prompt_logprobs;
    i64 top; /* alternatives a position */
    i64 priority;
    bool probe;   /* the server's own (server/status/probe.h) */
    bool kv_only; /* its prompt's KV pages from kv_from on, and no answer (server/kv/kv_send.h) */
    i64 kv_from;
    u64 cache_space;
    const char *rid; /* NULL: the server makes one up */

    /* How to answer. */
    bool stream, include_usage, continuous_usage;
    bool echo, return_token_ids, skip_special;
    i64 logprob_start; /* /generate: first prompt position whose logprob is wanted; -1: none */
    bool logprob_text; /* /generate: return_text_in_logprobs */
    const char *prompt_field;

    /* Chat. */
    const json_t *tools;
    bool no_generation_prompt, continue_final; /* how the prompt ends */
    bool in_think, plain, calls;               /* the parser's options; calls: it looks for tool calls */
    bool one_call;                             /* parallel_tool_calls: false */
    bool hide_reasoning, whole_reasoning;
    i64 history_calls; /* tool calls in the messages: ids go on counting from there */
    tool_choice choice;
    const json_t *callable; /* of the tools: those that tool_choice lets be called */
    bool some_tools;        /* callable is not all of them */
    bool one_tool;          /* tool_choice names it: exactly one call of it */

    /* What the answer must be. `must` and what it points to is as read, until gen_request_drop_read(); what holds the
     * answers to it is `constraint`, made by request_constrain(), NULL: nothing. */
    constraint_source must;
    const char *must_field; /* static: which field asks for the content; NULL: none does */
    json_t *made;           /* values of `must` that stand nowhere in the body; an array or NULL */
    bool require_reasoning; /* /generate: the answer thinks first */
    answer_begin begin;     /* where the prompt leaves the model */
    buf continued;          /* text that the answer has already: of the message that goes on */
    bool token_by_token;    /* text that must come is drawn like any other */
    constraint *constraint;
    buf warnings; /* what it does not hold, a line each */

    /* Limits of reading it, set by the caller. */
    i64 max_ids;                      /* a prompt's; 0: the context */
    bool (*hold)(void *ud, u64 more); /* may so many bytes more be used for a while? NULL: yes */
    u64 hold_most;                    /* bytes that it may hold however few others do; 0: any */
    bool (*gone)(void *ud); /* has its client gone, or does the server end? asked before what takes long; NULL: no */
    void *gone_ud;
    void *hold_ud; /* of both */
} gen_request;

/* Takes over `body` (a JSON object) also when it fails. End with gen_request_free() also after a failure;
 * zero-initialise. */
bool request_chat(gen_request *r, const served_model *m, json_t *body, api_error *e);
bool request_completion(gen_request *r, const served_model *m, json_t *body, api_error *e);
bool request_generate(gen_request *r, const served_model *m, json_t *body, api_error *e);
bool request_anthropic(gen_request *r, const served_model *m, json_t *body, api_error *e);
/* /v1/messages/count_tokens: the prompt alone. */
bool request_count_tokens(gen_request *r, const served_model *m, json_t *body, api_error *e);
bool request_responses(gen_request *r, const served_model *m, json_t *body, api_error *e);
void gen_request_free(gen_request *r);
/* The wishes of r about what its answers are become r->constraint, warnings with it; `gone`, asked now and then while
 * it waits, says whether anybody still does (NULL: yes). False with e->http 0: nobody. */
bool request_constrain(gen_request *r, constraint_cache *c, const json_form *form, bool (*gone)(void *ud), void *ud,
                       api_error *e);
/* The request has been read: of its JSON only what the answer needs is kept (tools, its name, fields that are shown
 * again). The bytes that this takes. */
u64 gen_request_drop_read(gen_request *r);

/* ---- What these share ---- */

/* Fields of their own are read by the table of server/request/request_fields.h. */

/* r->body is a chat body, r begun: reads it all. */
bool request_chat_body(gen_request *r, const served_model *m, api_error *e);
/* Room for `n` prompts, each empty. */
bool request_prompts(gen_request *r, size_t n, api_error *e);
/* "prompt" or "text": a string, ids, or an array of either. */
bool request_read_prompts(gen_request *r, const served_model *m, const json_t *v, const char *key, api_error *e);

/* `more` bytes of memory for what is read from r. 503: there is no room. */
bool request_hold(gen_request *r, u64 more, api_error *e);

/* ---- Tools (request_tools.c) ---- */

/* "tools" and "tool_choice". */
bool request_read_tools(gen_request *r, api_error *e);
/* Behind all fields: which calls r->must has. */
bool request_must_call(gen_request *r, const served_model *m, api_error *e);

/* ---- What the content must be (request_structured.c); readers of the table in request_fields.h ---- */

struct request_field;
bool request_read_format(gen_request *r, const served_model *m, const json_t *o, const struct request_field *f,
                         api_error *e);
bool request_read_grammar(gen_request *r, const served_model *m, const json_t *o, const struct request_field *f,
                          api_error *e);
bool request_read_structured_outputs(gen_request *r, const served_model *m, const json_t *o,
                                     const struct request_field *f, api_error *e);

/* The messages as text/chat expects them: roles, part types and tool call ids of other clients are rewritten in
 * place. *calls: tool calls in the history. Video and sound are refused. */
bool normalize_messages(json_t *messages, i64 *calls, api_error *e);
/* What the request says about thinking, reduced to chat_template_kwargs; the caller's reference. NULL: *e. */
json_t *request_thinking(const json_t *body, chat_template t, bool *thinking, api_error *e);
/* 400: the fewest tokens are more than the most; so the two fields are called. */
bool request_check_least(const gen_request *r, const char *least, const char *most, api_error *e);
/* Pictures are read as this model and the server's limits have it; *rules points into r. 400: it reads none. */
bool request_picture_rules(gen_request *r, const served_model *m, picture_rules *rules, const char *field,
                           api_error *e);
/* /generate's "image_data": a URL, {"url"}, or a list of them, one for each <|media_pad|> in the prompt. */
struct request_field;
bool request_read_image_data(gen_request *r, const served_model *m, const json_t *o, const struct request_field *f,
                             api_error *e);
/* r->prompts[0] has a placeholder for each of r->pictures: their ids take its place. */
bool request_place_pictures(gen_request *r, const served_model *m, const char *field, api_error *e);
/* 400: more ids than fit. */
bool request_too_long(const gen_request *r, const served_model *m, const char *key, api_error *e);
/* The most ids that a prompt of r may have. */
size_t request_max_ids(const gen_request *r, const served_model *m);
/* Text with control tokens to ids; *out is empty. */
bool request_encode(const gen_request *r, const served_model *m, const json_t *text, const char *key, ids_buf *out,
                    api_error *e);
/* Renders "messages" with "tools" into r->prompts[0], reading what says how; sets the parser's options. */
bool request_render(gen_request *r, const served_model *m, api_error *e);

#endif
