/* api/api.h: what the files behind moonlet.h share. */
#ifndef API_API_H
#define API_API_H
#include "moonlet.h"
#include "runtime/engine.h"
#include "text/chat.h"
#include "text/stops.h"

struct moon_engine {
    engine *engine;
    tokenizer *tok;
    seq *seq; /* kept between calls: a conversation reuses the KV rows of what it shares with the call before
               */
    sampler *sampler;
    chat_template template;
    ids_buf stops; /* ids that end an answer */
    char template_line[192];
    f32 *logits; /* [vocab]: of the last token */
};

/* Copies *e to the caller's struct and returns its status. The values of moon_status and status agree
 * (asserted). */
moon_status api_result(status st, const err *e, moon_error *out);

#endif
