/* model/config.h: config.json of the Kimi family.
 *
 * All dimensions come from here; nothing is Kimi's by assumption. K2.5 nests the text model under
 * `text_config` (model_type kimi_k25); K2-Instruct, K2-Thinking and plain DeepSeek-V3 layouts have it at the
 * top. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H
#include "base/err.h"
#include "format/requant.h"

enum { MODEL_EOS_MAX = 16 };

typedef struct {
    char model_type[32];                             /* "kimi_k25", "kimi_k2", "deepseek_v3" */
    char prefix[32];                                 /* in front of every text tensor's name: "language_model." or "" */
    i64 vocab, hidden, n_layers, n_dense;            /* n_dense = first_k_dense_replace */
    i64 vocab_first, vocab_held;                     /* ids whose embedding and logits are here: all, or a share */
    i64 n_heads, q_lora, kv_lora, nope, rope, v_dim; /* q_lora 0: one q_proj (q_lora_rank null) */
    i64 inter_dense, inter_expert, n_experts, top_k, n_shared;
    i64 inter_shared;  /* n_shared * moe_intermediate_size: the shared expert is one of that width */
    f32 routed_scale;  /* routed_scaling_factor */
    bool norm_topk;    /* norm_topk_prob */
    f64 norm_eps;      /* rms_norm_eps */
    f64 lora_norm_eps; /* of q_a/kv_a_layernorm: 1e-6, as transformers builds them */
    i64 max_positions;
    bool tie_embeddings;
    /* YaRN (Peng et al. 2023, section 3.4), as DeepSeek-V3 applies it; factor 1 means plain RoPE */
    struct {
        f64 theta, factor, beta_fast, beta_slow, mscale, mscale_all_dim;
        i64 original;
    } rope_cfg;
    /* How linear weights may be stored, from quantization_config */
    weight_format quant;     /* that of the experts, at least; WF_BF16: none */
    expert_format experts;   /* how routed experts are kept: --moe-format */
    i64 bos, pad, media_pad; /* -1 when absent */
    i64 eos[MODEL_EOS_MAX];  /* config.json's and generation_config.json's */
    int n_eos;
    /* Tensor parallelism: heads, widths of feed-forward layers and vocab_held above are what rank `rank` of `ranks`
     * holds; 1: the whole model. slice: the first so many of them exist (--tp-slice), and of the vocabulary what they
     * hold; 0: all do. */
    i64 ranks, rank, slice;
    bool whole_attention; /* but all heads, of the sequences that are its own (data-parallel attention) */
    /* Expert parallelism: ranks / ep ranks side by side are a group, which has whole experts among them, each rank
     * inter_expert columns of each; 0, 1: all ranks are one. placement: which ones; not owned, NULL without ep. */
    i64 ep;
    const struct expert_placement *placement;
    /* Pipeline parallelism: n_layers and n_dense above are what stage `stage` of `stages` holds, from layer
     * `layer_first` of the model on; the first has the embedding, the last the final norm and the head, and with
     * ends_embed, for a draft, the embedding as well. stages 0: one has all. */
    i64 stages, stage, layer_first;
    bool ends_embed;
} model_config;

/* Reads DIR/config.json and, when present, DIR/generation_config.json, and where nothing is said of quantization
 * DIR/hf_quant_config.json. */
status model_config_load(model_config *c, const char *dir, err *e);
/* From memory, for tests and fuzzing. `generation` may be NULL. */
status model_config_parse(model_config *c, const char *json, size_t len, const char *generation, size_t gen_len,
                          err *e);
/* Applies "KEY=VALUE" of --override: num_hidden_layers (only downwards), lora_norm_eps, rms_norm_eps, ... */
status model_config_override(model_config *c, const char *assignment, err *e);

/* From here on c describes what rank `rank` of `ranks` holds: its share of the heads (unless c->whole_attention),
 * of every feed-forward layer's width (of routed experts that of its group's ranks) and of the vocabulary; router, q_a
 * and kv_a whole. ST_INPUT says what cannot be divided by `option`. */
status model_config_split(model_config *c, i64 ranks, i64 rank, const char *option, err *e);

/* first [ranks + 1]: where the vocabulary's share of each of so many ranks that exchange begins, of which c is one; the
 * last: where it ends. */
void model_vocab_shares(const model_config *c, i64 ranks, i64 *first);

/* How n layers are divided among stages: `layers` [stages] gets the number of each. given: "31,30"; NULL: as many for
 * each, the first ones one more. ST_INPUT: `option` and what is wrong. */
enum { STAGES_MAX = 64 };
status model_divide_layers(i64 n, i64 stages, const char *given, const char *option, i64 *layers, err *e);
/* From here on c describes what stage `stage` of those holds. */
void model_config_stage(model_config *c, i64 stages, i64 stage, const i64 *layers);
static inline bool model_begins(const model_config *c) { return c->stage == 0; }
static inline bool model_ends(const model_config *c) { return c->stage + 1 >= c->stages; }
static inline bool model_embeds(const model_config *c) { return model_begins(c) || (c->ends_embed && model_ends(c)); }

/* Ranks that have parts of the same experts; which of the groups this one is in, and its place there. */
static inline i64 model_expert_ranks(const model_config *c) { return c->ranks / (c->ep > 1 ? c->ep : 1); }
static inline i64 model_expert_group(const model_config *c) { return c->rank / model_expert_ranks(c); }
static inline i64 model_expert_rank(const model_config *c) { return c->rank % model_expert_ranks(c); }

/* What rank `rank` of a slice holds, of which c describes the first. */
void model_config_slice_rank(model_config *c, i64 rank);
/* Ids that exist; a larger one is taken modulo their number. */
static inline i64 model_vocab_there(const model_config *c) { return c->slice ? c->slice * c->vocab_held : c->vocab; }

/* In which format a matrix of attention and of dense layers would lie in such a checkpoint. */
weight_format model_config_dense_format(const model_config *c);
/* The softmax scale (nope + rope)^-1/2 * m^2 with m = 0.1 * mscale_all_dim * ln(factor) + 1. */
f64 model_softmax_scale(const model_config *c);
/* inv_freq[rope / 2] after YaRN's blend. cos and sin are multiplied by model_rope_mscale() (1 for Kimi). */
void model_inv_freq(const model_config *c, f64 *inv_freq);
f64 model_rope_mscale(const model_config *c);

#endif
