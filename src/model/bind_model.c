/* model/bind_model.c: which weights the text model has, and what its ranks hold of each. */
#include "model/bind_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status bind_attention(binder *b, layer_weights *w, int l) {
    const model_config *c = b->c;
    const i64 q_rows = c->n_heads * (c->nope + c->rope), kv_rows = c->n_heads * (c->nope + c->v_dim);
    BIND_TRY(bind_vector(b, &w->attn_norm, c->hidden, "model.layers.%d.input_layernorm.weight", l));
    BIND_TRY(bind_vector(b, &w->ffn_norm, c->hidden, "model.layers.%d.post_attention_layernorm.weight", l));
    if (c->q_lora) {
        BIND_TRY(bind_linear(b, &w->q_a, WK_LINEAR, whole_matrix(c->q_lora, c->hidden),
                             "model.layers.%d.self_attn.q_a_proj", l));
        BIND_TRY(bind_vector(b, &w->q_a_norm, c->q_lora, "model.layers.%d.self_attn.q_a_layernorm.weight", l));
        BIND_TRY(bind_linear(b, &w->q_b, WK_LINEAR, head_rows(b, q_rows, c->q_lora),
                             "model.layers.%d.self_attn.q_b_proj", l));
    } else {
        BIND_TRY(
            bind_linear(b, &w->q, WK_LINEAR, head_rows(b, q_rows, c->hidden), "model.layers.%d.self_attn.q_proj", l));
    }
    BIND_TRY(bind_linear(b, &w->kv_a, WK_LINEAR, whole_matrix(c->kv_lora + c->rope, c->hidden),
                         "model.layers.%d.self_attn.kv_a_proj_with_mqa", l));
    BIND_TRY(bind_vector(b, &w->kv_a_norm, c->kv_lora, "model.layers.%d.self_attn.kv_a_layernorm.weight", l));
    BIND_TRY(
        bind_linear(b, &w->kv_b, WK_KV_B, head_rows(b, kv_rows, c->kv_lora), "model.layers.%d.self_attn.kv_b_proj", l));
    return bind_linear(b, &w->o, WK_LINEAR, head_cols(b, c->hidden, c->n_heads * c->v_dim),
                       "model.layers.%d.self_attn.o_proj", l);
}

status bind_mlp(binder *b, layer_weights *w, i64 inter, const char *name) {
    const i64 hidden = b->c->hidden;
    BIND_TRY(bind_linear(b, &w->gate, WK_LINEAR, row_share(b, inter, hidden), "%sgate_proj", name));
    BIND_TRY(bind_linear(b, &w->up, WK_LINEAR, row_share(b, inter, hidden), "%sup_proj", name));
    return bind_linear(b, &w->down, WK_LINEAR, col_share(b, hidden, inter), "%sdown_proj", name);
}

static status bind_moe(binder *b, layer_weights *w, int l) {
    const model_config *c = b->c;
    char part[64];
    snprintf(part, sizeof part, "model.layers.%d.mlp.shared_experts.", l);
    BIND_TRY(
        bind_linear(b, &w->router, WK_LINEAR, whole_matrix(c->n_experts, c->hidden), "model.layers.%d.mlp.gate", l));
    BIND_TRY(bind_vector(b, &w->router_bias, c->n_experts, "model.layers.%d.mlp.gate.e_score_correction_bias", l));
    if (c->n_shared) BIND_TRY(bind_mlp(b, w, c->inter_shared, part));
    return bind_experts(b, &w->experts, l);
}

status bind_activation_type(const model_config *c, const checkpoint *ck, dtype *out, err *e) {
    char name[128];
    *out = DT_BF16;
    if (!ck) return ST_OK;
    snprintf(name, sizeof name, "%smodel.embed_tokens.weight", c->prefix);
    const tensor_info *t = checkpoint_find(ck, name);
    if (!t) return err_set(e, ST_FORMAT, "tensor %s is missing", name);
    *out = t->type == DT_F32 ? DT_F32 : DT_BF16;
    return ST_OK;
}

/* l: of the whole model. */
static status bind_layer(binder *b, layer_weights *w, int l) {
    char part[64];
    snprintf(part, sizeof part, "model.layers.%d.mlp.", l);
    BIND_TRY(bind_attention(b, w, l));
    return l < b->c->layer_first + b->c->n_dense ? bind_mlp(b, w, b->c->inter_dense, part) : bind_moe(b, w, l);
}

static status bind_all(binder *b) {
    const model_config *c = b->c;
    model_weights *w = b->weights;
    w->layers = calloc((size_t)c->n_layers, sizeof *w->layers);
    if (!w->layers) return err_nomem(b->e, "layers", (u64)c->n_layers * sizeof *w->layers);
    w->n_layers = c->n_layers;
    if (model_embeds(c)) BIND_TRY(bind_linear(b, &w->embed, WK_TABLE, vocab_share(b), "model.embed_tokens"));
    if (model_ends(c)) {
        BIND_TRY(bind_vector(b, &w->norm, c->hidden, "model.norm.weight"));
        BIND_TRY(bind_linear(b, &w->head, WK_LINEAR, vocab_share(b), "%s",
                             c->tie_embeddings ? "model.embed_tokens" : "lm_head"));
    }
    for (int l = 0; l < c->n_layers; l++) BIND_TRY(bind_layer(b, &w->layers[l], (int)c->layer_first + l));
    return ST_OK;
}

status model_weights_plan(model_weights *w, weight_memory *room, const model_config *c, const checkpoint *ck,
                          const ops *o, err *e) {
    binder b = {.c = c, .ck = ck, .o = o, .weights = w, .room = room, .e = e};
    *room = (weight_memory){0};
    return bind_weights(&b, bind_all, 0);
}

status model_weights_bind(model_weights *w, const model_config *c, const checkpoint *ck, weight_reader *reader,
                          const ops *o, u64 bytes, bool verify, err *e) {
    binder b = {.c = c, .ck = ck, .reader = reader, .o = o, .weights = w, .verify = verify, .e = e};
    return bind_weights(&b, bind_all, bytes);
}
