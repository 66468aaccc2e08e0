/* model/draft_config.h: config.json of an EAGLE-3 draft: one decoder layer that guesses a model's next tokens from the
 * model's own features (Li et al. 2025, arXiv:2503.01840).
 *
 * Two layouts are published for Kimi: multi-head attention as Llama has it (LlamaForCausalLMEagle3) and the model's own
 * latent attention (Eagle3DeepseekV2ForCausalLM), both with an input of twice the hidden size. */
#ifndef MODEL_DRAFT_CONFIG_H
#define MODEL_DRAFT_CONFIG_H
#include "model/config.h"

enum { DRAFT_TAPS_MOST = 8 };

typedef enum { DRAFT_MLA, DRAFT_LLAMA } draft_layout;

typedef struct {
    /* Its layer as that of a model of one dense layer. vocab: the ids that it can guess, draft_vocab_size. LLAMA: rope
     * is the width of a head, and of the latent widths there are none. */
    model_config layer;
    draft_layout layout;
    i64 kv_heads;              /* LLAMA */
    i64 target_vocab;          /* vocab_size: the ids that it reads */
    i64 n_taps;                /* features a token */
    i64 taps[DRAFT_TAPS_MOST]; /* they are the residual stream before these layers of the model, ascending */
    bool norm_output;          /* EAGLE-3.1: the next pass reads norm(z), not z */
    bool norm_features;        /* EAGLE-3.1: a norm for each feature (fc_norm) */
    bool norm_all_features;    /* one norm over all of them (input_norm) */
    bool norm_residual;        /* norm_before_residual: the residual stream begins with hidden_norm(x), not x */
} draft_config;

/* Reads DIR/config.json of a draft for a model whose config is `target`: whole, not a rank's. ST_INPUT, with both
 * numbers: it is for another model. */
status draft_config_load(draft_config *d, const char *dir, const model_config *target, err *e);
/* From memory, for tests and fuzzing. */
status draft_config_parse(draft_config *d, const char *json, size_t len, const model_config *target, err *e);

/* From here on d is rank `rank`'s share of `ranks`, as model_config_split() has it. */
status draft_config_split(draft_config *d, i64 ranks, i64 rank, const char *option, err *e);

/* Columns of a token's features, and those of them that this rank multiplies with fc, behind which ranks have a sum:
 * all where they cannot be divided into whole blocks of FP8. */
static inline i64 draft_features(const draft_config *d) { return d->n_taps * d->layer.hidden; }
static inline i64 draft_features_held(const draft_config *d) {
    const i64 ranks = d->layer.ranks > 1 ? d->layer.ranks : 1;
    return draft_features(d) % (128 * ranks) ? draft_features(d) : draft_features(d) / ranks;
}

/* Values of a KV row of one token. */
static inline i64 draft_kv_width(const draft_config *d) {
    const model_config *c = &d->layer;
    return d->layout == DRAFT_MLA ? c->kv_lora + c->rope : 2 * d->kv_heads * c->rope;
}
/* Of attention. */
f64 draft_softmax_scale(const draft_config *d);

#endif
