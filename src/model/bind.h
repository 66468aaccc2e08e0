/* model/bind.h: every weight of the text model, found by name, checked and prepared for a backend.
 *
 * A tensor that is missing, has another shape or a type that its place does not allow ends the binding with its
 * name. How a linear layer is stored is decided per tensor by what exists: NAME.weight_packed is INT4, NAME.weight
 * in F8_E4M3 is block FP8 with NAME.weight_scale_inv, in I32 INT4 with one scale a row (NAME.weight_scale_2, and
 * NAME.weight_scale for all), else BF16 or F32. */
#ifndef MODEL_BIND_H
#define MODEL_BIND_H
#include "format/weight_reader.h"
#include "kernels/ops.h"
#include "model/draft_config.h"

typedef struct {
    op_weight *attn_norm, *ffn_norm;    /* [hidden] */
    op_weight *q;                       /* [H (nope + rope), hidden] when q_lora is 0 */
    op_weight *q_a, *q_a_norm, *q_b;    /* [q_lora, hidden], [q_lora], [H (nope+rope), q_lora] */
    op_weight *kv_a, *kv_a_norm, *kv_b; /* [latent + rope, hidden], [latent], [H (nope+v), latent] */
    op_weight *o;                       /* [hidden, H v] */
    op_weight *gate, *up, *down;        /* dense layer, or the shared expert of a MoE layer; NULL if none */
    op_weight *router, *router_bias;    /* [E, hidden], [E]; NULL in a dense layer */
    op_weight *experts;                 /* 3 E views */
} layer_weights;

/* Columns of matrices, copied for a rank that holds no others. */
typedef struct weight_cut {
    struct weight_cut *next;
    _Alignas(64) u8 data[];
} weight_cut;

typedef struct {
    const ops *ops;
    op_weight *embed, *norm, *head; /* of a pipeline: where model_embeds(); the last stage's; else NULL */
    layer_weights *layers;          /* [n_layers] */
    i64 n_layers;
    u64 bytes;        /* of matrices in the checkpoint */
    weight_cut *cuts; /* or NULL; released with the weights */
    /* Of a plan: the tensors whose data will be looked at, in that order; one may stand there twice. */
    const tensor_info **reads; /* [n_reads] */
    u64 n_reads, reads_cap;
} model_weights;

/* The type that activations need for this checkpoint: DT_F32 if its embedding is float32, else DT_BF16. */
status bind_activation_type(const model_config *c, const checkpoint *ck, dtype *out, err *e);

/* Of both: zero-initialise *w; end with model_weights_free() whatever was returned. ck NULL: dummy weights
 * (weight_desc.dummy_seed), stored as quantization_config says: INT4 experts beside BF16, or all linear layers but
 * router, embedding and head in block FP8. Norms are 1, router biases 0. */
/* What the weights will take, in *room; *w serves the ops' *_workspace alone. Finds all names, types and shapes that
 * are wrong. */
status model_weights_plan(model_weights *w, weight_memory *room, const model_config *c, const checkpoint *ck,
                          const ops *o, err *e);
/* Norms, router weights and biases are scanned for NaN and infinity; with `verify`, quantization scales as well
 * (reads them all). reader: of a plan's list, for rank c->rank; NULL: data are read where they are mapped, which a
 * backend that keeps views wants. bytes: a plan's, for the progress line. */
status model_weights_bind(model_weights *w, const model_config *c, const checkpoint *ck, weight_reader *reader,
                          const ops *o, u64 bytes, bool verify, err *e);
void model_weights_free(model_weights *w);
/* Slot `slot` of a layer's experts (of the whole model's layer `layer`) gets this expert. *kept, which is the caller's
 * to free() behind the weights, is exchanged for what the slot needs beside the checkpoint, or NULL. */
status bind_expert_again(const model_config *c, const checkpoint *ck, const ops *o, op_weight *experts, int layer,
                         i64 slot, i32 expert, weight_cut **kept, err *e);

/* A draft's (model/draft_config.h). In `of`: one layer (attn_norm is the embedding's), norm, head, and embed where the
 * draft has one of its own; head NULL: it is the model's. */
typedef struct {
    model_weights of;
    op_weight *fc;                        /* [hidden, taps hidden] */
    op_weight *tap_norm[DRAFT_TAPS_MOST]; /* [hidden] each: norm_features; NULL: none */
    op_weight *taps_norm;                 /* [taps hidden]: norm_all_features */
    op_weight *hidden_norm;               /* [hidden] */
    op_weight *k, *v;                     /* LLAMA: [KV heads dim, 2 hidden]; the layer's q is its q */
    i32 *ids;                             /* [d->layer.vocab]: the model's id of each, on the host; NULL: the same */
} draft_weights;

/* As model_weights_plan() and _bind(). A plan refuses tensors that it finds no use for, which a model may have (a
 * picture encoder, say): a draft with another layer or bias would only guess worse. d: this rank's share. model: the
 * checkpoint of the model, whose embedding is taken where the draft's is the same bytes, or missing; `embedding` is its
 * name there. */
status draft_weights_plan(draft_weights *w, weight_memory *room, const draft_config *d, const checkpoint *ck,
                          const checkpoint *model, const char *embedding, const ops *o, err *e);
status draft_weights_bind(draft_weights *w, const draft_config *d, const checkpoint *ck, const checkpoint *model,
                          const char *embedding, const ops *o, u64 bytes, err *e);
void draft_weights_free(draft_weights *w);

#endif
