/* model/bind_draft.c: which weights an EAGLE-3 draft has. Its layer's names begin with "midlayer." or "layers.0.", as
 * who trained it exported it. */
#include "model/bind_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *layer_prefix(const binder *b) {
    return !b->ck || checkpoint_find(b->ck, "midlayer.hidden_norm.weight") ? "midlayer." : "layers.0.";
}

/* The matrix NAME of the layer, and a vector. */
static status of_layer(binder *b, op_weight **out, weight_kind kind, matrix_share m, const char *name) {
    return bind_linear(b, out, kind, m, "%s%s", layer_prefix(b), name);
}
static status norm_of_layer(binder *b, op_weight **out, i64 n, const char *name) {
    return bind_vector(b, out, n, "%s%s.weight", layer_prefix(b), name);
}

static status bind_features(binder *b, draft_weights *w) {
    const draft_config *d = b->draft;
    const i64 hidden = d->layer.hidden;
    const i64 wide = draft_features(d), held = draft_features_held(d);
    BIND_TRY(
        bind_linear(b, &w->fc, WK_LINEAR, held < wide ? col_share(b, hidden, held) : whole_matrix(hidden, wide), "fc"));
    for (int i = 0; d->norm_features && i < d->n_taps; i++)
        BIND_TRY(bind_vector(b, &w->tap_norm[i], hidden, "fc_norm.%d.weight", i));
    return d->norm_all_features ? bind_vector(b, &w->taps_norm, wide, "input_norm.weight") : ST_OK;
}

static status bind_latent(binder *b, layer_weights *w) {
    const model_config *c = b->c;
    const i64 wide = 2 * c->hidden;
    BIND_TRY(of_layer(b, &w->q_a, WK_LINEAR, whole_matrix(c->q_lora, wide), "self_attn.q_a_proj"));
    BIND_TRY(norm_of_layer(b, &w->q_a_norm, c->q_lora, "self_attn.q_a_layernorm"));
    BIND_TRY(of_layer(b, &w->q_b, WK_LINEAR, head_rows(b, c->n_heads * (c->nope + c->rope), c->q_lora),
                      "self_attn.q_b_proj"));
    BIND_TRY(
        of_layer(b, &w->kv_a, WK_LINEAR, whole_matrix(c->kv_lora + c->rope, wide), "self_attn.kv_a_proj_with_mqa"));
    BIND_TRY(norm_of_layer(b, &w->kv_a_norm, c->kv_lora, "self_attn.kv_a_layernorm"));
    return of_layer(b, &w->kv_b, WK_KV_B, head_rows(b, c->n_heads * (c->nope + c->v_dim), c->kv_lora),
                    "self_attn.kv_b_proj");
}

static status bind_heads(binder *b, layer_weights *l, draft_weights *w) {
    const model_config *c = b->c;
    const i64 wide = 2 * c->hidden, kv = b->draft->kv_heads * c->rope;
    BIND_TRY(of_layer(b, &l->q, WK_LINEAR, head_rows(b, c->n_heads * c->rope, wide), "self_attn.q_proj"));
    BIND_TRY(of_layer(b, &w->k, WK_LINEAR, head_rows(b, kv, wide), "self_attn.k_proj"));
    return of_layer(b, &w->v, WK_LINEAR, head_rows(b, kv, wide), "self_attn.v_proj");
}

/* Are the two the same bytes? A tensor of 2 GB takes a second. */
static bool same_data(const tensor_info *a, const tensor_info *b) {
    return a->type == b->type && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
}

/* The draft's own embedding, whole on every rank, unless it is the model's, which it usually is. */
static status bind_embedding(binder *b, draft_weights *w) {
    const tensor_info *own = b->ck ? checkpoint_find(b->ck, "embed_tokens.weight") : NULL;
    if (!own || (b->embedding && same_data(own, b->embedding))) return ST_OK;
    return bind_linear(b, &w->of.embed, WK_TABLE, whole_matrix(b->draft->target_vocab, b->c->hidden), "embed_tokens");
}

static status bind_head(binder *b, draft_weights *w) {
    const model_config *c = b->c;
    const bool whole = c->vocab == b->draft->target_vocab;
    if (b->ck && whole && !checkpoint_find(b->ck, "lm_head.weight")) return ST_OK;
    return bind_linear(b, &w->of.head, WK_LINEAR, vocab_share(b), "lm_head");
}

/* d2t: what to add to a draft's id to have the model's. */
static status bind_ids(binder *b, draft_weights *w) {
    const i64 n = b->c->vocab, all = b->draft->target_vocab;
    if (!b->ck || (n == all && !checkpoint_find(b->ck, "d2t"))) return ST_OK;
    const tensor_info *t = bind_find(b, "d2t", &n, 1);
    if (!t) return ST_FORMAT;
    if (t->type != DT_I64) return bind_type_error(b, t, "I64");
    w->ids = malloc((size_t)n * sizeof *w->ids);
    if (!w->ids) return err_nomem(b->e, "d2t", (u64)n * sizeof *w->ids);
    for (i64 i = 0; i < n; i++) {
        i64 offset;
        memcpy(&offset, (const u8 *)t->data + (u64)i * sizeof offset, sizeof offset);
        if (offset < -i || offset >= all - i)
            return err_set(b->e, ST_FORMAT, "tensor d2t holds %lld in place %lld, outside the vocabulary of %lld",
                           (long long)offset, (long long)i, (long long)all);
        w->ids[i] = (i32)(i + offset);
    }
    return ST_OK;
}

static status bind_draft(binder *b) {
    const model_config *c = b->c;
    draft_weights *w = b->draft_weights;
    layer_weights *l = w->of.layers = calloc(1, sizeof *w->of.layers);
    char part[64];
    if (!l) return err_nomem(b->e, "layers", sizeof *l);
    w->of.n_layers = 1;
    snprintf(part, sizeof part, "%smlp.", layer_prefix(b));
    BIND_TRY(bind_embedding(b, w));
    BIND_TRY(bind_features(b, w));
    BIND_TRY(norm_of_layer(b, &l->attn_norm, c->hidden, "input_layernorm"));
    BIND_TRY(norm_of_layer(b, &w->hidden_norm, c->hidden, "hidden_norm"));
    BIND_TRY(b->draft->layout == DRAFT_MLA ? bind_latent(b, l) : bind_heads(b, l, w));
    BIND_TRY(of_layer(b, &l->o, WK_LINEAR, head_cols(b, c->hidden, c->n_heads * c->v_dim), "self_attn.o_proj"));
    BIND_TRY(norm_of_layer(b, &l->ffn_norm, c->hidden, "post_attention_layernorm"));
    BIND_TRY(bind_mlp(b, l, c->inter_dense, part));
    BIND_TRY(bind_vector(b, &w->of.norm, c->hidden, "norm.weight"));
    BIND_TRY(bind_head(b, w));
    return bind_ids(b, w);
}

/* Tensors that say nothing new: which of the model's ids a draft has (d2t says it, too), the model's own embedding,
 * norm and head, and frequencies that follow from config.json; and scales of inputs, which stay as they are here. */
static bool is_known_elsewhere(const char *name) {
    static const char *const names[] = {"d2t", "t2d", "embed_tokens.weight", "verifier_norm.weight",
                                        "verifier_lm_head.weight"};
    static const char *const ends[] = {".rotary_emb.inv_freq", ".input_scale", ".input_global_scale"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(name, names[i])) return true;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i])) return true;
    return false;
}

/* A tensor that no place wants is of a layer, a bias or a norm that this draft was trained with: it would guess, but
 * worse than it can, and nothing else would say so. */
static status check_unused(const binder *b) {
    const char *first = NULL;
    i64 more = 0;
    for (u64 i = 0; i < checkpoint_n_tensors(b->ck); i++) {
        const char *name = checkpoint_tensor(b->ck, i)->name;
        if (b->used[i] || is_known_elsewhere(name)) continue;
        more += first != NULL;
        first = first ? first : name;
    }
    if (!first) return ST_OK;
    char others[48] = "";
    if (more) snprintf(others, sizeof others, " (nor are %lld more)", (long long)more);
    return err_set(b->e, ST_UNSUPPORTED,
                   "tensor %s is none of a draft with this config.json%s: without it the draft would not be the one "
                   "that was trained",
                   first, others);
}

static binder draft_binder(draft_weights *w, const draft_config *d, const checkpoint *ck, const checkpoint *model,
                           const char *embedding, const ops *o, err *e) {
    return (binder){.c = &d->layer,
                    .ck = ck,
                    .o = o,
                    .weights = &w->of,
                    .draft = d,
                    .draft_weights = w,
                    .embedding = model ? checkpoint_find(model, embedding) : NULL,
                    .e = e};
}

status draft_weights_plan(draft_weights *w, weight_memory *room, const draft_config *d, const checkpoint *ck,
                          const checkpoint *model, const char *embedding, const ops *o, err *e) {
    binder b = draft_binder(w, d, ck, model, embedding, o, e);
    *room = (weight_memory){0};
    b.room = room;
    if (ck && !(b.used = calloc(checkpoint_n_tensors(ck) + 1, sizeof *b.used)))
        return err_nomem(e, "the list of a draft's tensors", checkpoint_n_tensors(ck));
    status st = bind_weights(&b, bind_draft, 0);
    if (st == ST_OK && ck) st = check_unused(&b);
    free(b.used);
    return st;
}

status draft_weights_bind(draft_weights *w, const draft_config *d, const checkpoint *ck, const checkpoint *model,
                          const char *embedding, const ops *o, u64 bytes, err *e) {
    binder b = draft_binder(w, d, ck, model, embedding, o, e);
    return bind_weights(&b, bind_draft, bytes);
}

void draft_weights_free(draft_weights *w) {
    if (!w->of.ops) return;
    op_weight *all[] = {w->fc, w->taps_norm, w->hidden_norm, w->k, w->v};
    for (size_t i = 0; i < COUNT_OF(all); i++) w->of.ops->weight_release(all[i]);
    for (size_t i = 0; i < COUNT_OF(w->tap_norm); i++) w->of.ops->weight_release(w->tap_norm[i]);
    free(w->ids);
    model_weights_free(&w->of);
    *w = (draft_weights){0};
}
