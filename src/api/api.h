/* api/api.h: what the files behind moonlet.h share. */
#ifndef API_API_H
#define API_API_H
#include "moonlet.h"
#include "runtime/scheduler.h"
#include "text/chat.h"
#include "text/grammar/constraint.h"
#include "text/stops.h"

struct moon_engine {
    engine *engine;
    tokenizer *tok;
    scheduler *scheduler; /* in manual mode: moon_run() is its thread. Its prefix cache keeps the KV pages of what a
                           * conversation shares with the calls before */
    chat_template template;
    ids_buf stops;    /* ids that end an answer */
    token_trie *trie; /* NULL until an answer is first held to a grammar */
    char template_line[192];
};

/* run.c: where the scheduler's events go. */
void api_on_events(void *ud, const sched_event *ev, i64 n);
/* constrain.c: what q asks of its answer. *out->ud is NULL where it asks nothing; else the scheduler, or who does not
 * submit it, calls out->close(out->ud). tools: the chat's, or NULL. */
status api_constrain(moon_engine *m, const moon_request *q, const json_t *tools, answer_begin begin, token_filter *out,
                     err *e);

/* Copies *e to the caller's struct and returns its status. The values of moon_status and status agree
 * (asserted). */
moon_status api_result(status st, const err *e, moon_error *out);

#endif
