/* cmd/lib/speculative.h: the options of speculative decoding, under SGLang's names. */
#ifndef CMD_LIB_SPECULATIVE_H
#define CMD_LIB_SPECULATIVE_H
#include "cmd/lib/model_opts.h"
#include "runtime/scheduler.h"

typedef struct {
    const char *algorithm; /* "EAGLE3", "NGRAM", "NONE"; NULL: what there is */
    const char *draft_dir;
    i64 steps, topk, draft_tokens; /* 0: not given */
    f64 pinned;                    /* 0: not given */
    bool always;
    f64 verify_rate;
} speculative_opts;

/* Entries for an opt_spec table; `o` is a speculative_opts. */
/* clang-format off */
#define SPECULATIVE_OPTS(o) \
    OPT_GROUP("Speculative decoding: no answer changes"), \
    {"speculative-algorithm", 0, OPT_ENUM, &(o).algorithm, "EAGLE3|NGRAM|NONE", \
     "tokens are proposed by a draft model, or where text repeats itself, and checked in one step (default: EAGLE3 " \
     "with a draft, which the nano model has beside it, else NONE)", 0, 0}, \
    {"speculative-draft-model-path", 0, OPT_STR, &(o).draft_dir, "DIR", \
     "folder of the EAGLE-3 draft (default: the model's folder with -eagle3 or -eagle3-mla behind it, if there is one)", \
     0, 0}, \
    {"speculative-num-steps", 0, OPT_INT, &(o).steps, "N", "EAGLE3: most tokens proposed at a time (default: 3)", 1, \
     DRAFT_STEPS_MOST}, \
    {"speculative-eagle-topk", 0, OPT_INT, &(o).topk, "K", \
     "EAGLE3: guesses at each step: 1 is a chain, more make a tree (default: 1)", 1, 64}, \
    {"speculative-num-draft-tokens", 0, OPT_INT, &(o).draft_tokens, "N", \
     "rows of an answer in a step, the last token's own among them (default: EAGLE3 steps + 1, of trees 8, NGRAM 9)", 2, \
     64}, \
    {"speculative-pinned-accept", 0, OPT_REAL, &(o).pinned, "A", \
     "for dummy weights: drafts come true by a chance with which all of them give A tokens a step, whatever is drawn; " \
     "the text means nothing", 1, 64}, \
    {"speculative-disable-adaptive", 0, OPT_FLAG, &(o).always, NULL, \
     "always as many drafts as there may be, also where steps without them give more tokens a second", 0, 0}, \
    {"speculative-verify-rate", 0, OPT_REAL, &(o).verify_rate, "R", \
     "share of the steps with drafts that are decoded again without, to compare (default: 0)", 0, 1}
/* clang-format on */

/* What was asked for, in words of the engine and the scheduler. Behind model_opts_finish(), whose model it looks
 * beside. A draft that was found and not asked for is left out where the other options rule it out, and by the engine
 * where it cannot be used (engine_options.draft_found). ST_INPUT: contradictory flags. */
status speculative_finish(const speculative_opts *o, engine_options *g, scheduler_options *s, err *e);
/* For commands without a scheduler of their own: refuses the options that are a scheduler's alone. */
status speculative_not_served(const speculative_opts *o, err *e);

#endif
