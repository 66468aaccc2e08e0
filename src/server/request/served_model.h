/* server/request/served_model.h: what requests need to know of the model that is served. Immutable while requests run.
 * */
#ifndef SERVER_REQUEST_SERVED_MODEL_H
#define SERVER_REQUEST_SERVED_MODEL_H
#include "api/remote_media.h"
#include "media/video.h"
#include "runtime/sampler.h"
#include "text/chat.h"
#include "text/stops.h"

typedef struct {
    tokenizer *tok;
    chat_template template;
    const char *template_why; /* static: how it was chosen */
    ids_buf stops;            /* the model's own end-of-answer ids */
    i64 vocab, context;
    sampling defaults; /* of generation_config.json, else OpenAI's: temperature 1, everything else off */
    bool parse_reasoning, parse_calls;
    bool pictures;               /* there is a vision tower */
    picture_limits picture_file; /* what a picture may ask for, and how many a request may have */
    video_limits video;
    i64 picture_most;
    remote_rules remote; /* where pictures are fetched from; n 0: nowhere */
    const char *name;    /* how the model is called from outside */
    const char *dir;
    i64 created; /* Unix time of the start */
} served_model;

/* Opens the tokenizer, chooses the template (`template` names it; NULL: the folder does), reads
 * generation_config.json of m->dir. model_type, vocab and eos are the model's configuration. End with
 * served_model_close() also after a failure. */
status served_model_open(served_model *m, const char *template, const char *model_type, i64 vocab, const i64 *eos,
                         int n_eos, err *e);
void served_model_close(served_model *m);

/* Whether a request's "model" means this one: the served name, its last path component, the folder, or "default". */
bool served_model_is(const served_model *m, const char *name);
const char *path_last(const char *path); /* the last component; trailing slashes count as part of nothing */

#endif
