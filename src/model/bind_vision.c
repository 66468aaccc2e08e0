/* model/bind_vision.c: which weights the vision tower and its projector have. */
#include "model/bind_internal.h"
#include "model/vision_internal.h"
#include <stdio.h>
#include <stdlib.h>

/* NAME.weight [rows, cols] and NAME.bias [rows]. */
static status bind_biased(binder *b, op_weight **w, op_weight **bias, i64 rows, i64 cols, const char *name) {
    BIND_TRY(bind_linear(b, w, WK_LINEAR, whole_matrix(rows, cols), "%s", name));
    return bind_vector(b, bias, rows, "%s.bias", name);
}
static status bind_norm(binder *b, op_weight **w, op_weight **bias, i64 n, const char *name) {
    BIND_TRY(bind_vector(b, w, n, "%s.weight", name));
    return bind_vector(b, bias, n, "%s.bias", name);
}

static status bind_block(binder *b, const vision_config *v, vision_layer *w, i64 l) {
    char at[64], name[96];
    snprintf(at, sizeof at, "vision_tower.encoder.blocks.%lld", (long long)l);
    const struct {
        const char *name;
        op_weight **w, **bias;
        i64 rows, cols; /* cols 0: a norm */
    } all[] = {{"norm0", &w->norm0, &w->norm0_bias, v->hidden, 0},
               {"wqkv", &w->qkv, &w->qkv_bias, 3 * v->hidden, v->hidden},
               {"wo", &w->o, &w->o_bias, v->hidden, v->hidden},
               {"norm1", &w->norm1, &w->norm1_bias, v->hidden, 0},
               {"mlp.fc0", &w->fc0, &w->fc0_bias, v->inter, v->hidden},
               {"mlp.fc1", &w->fc1, &w->fc1_bias, v->hidden, v->inter}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        snprintf(name, sizeof name, "%s.%s", at, all[i].name);
        BIND_TRY(all[i].cols ? bind_biased(b, all[i].w, all[i].bias, all[i].rows, all[i].cols, name)
                             : bind_norm(b, all[i].w, all[i].bias, all[i].rows, name));
    }
    return ST_OK;
}

/* The convolution of a patch is a product with its kernel's [3, patch, patch] as columns; the position table has a row
 * for each place. */
static status bind_patches(binder *b, const vision_config *v, vision_weights *w) {
    const i64 kernel[4] = {v->hidden, 3, v->patch, v->patch}, table[3] = {v->pos_h, v->pos_w, v->hidden};
    matrix_share k = whole_matrix(v->hidden, 3 * v->patch * v->patch), t = whole_matrix(v->pos_h * v->pos_w, v->hidden);
    k.shape = kernel, k.n_dims = 4;
    t.shape = table, t.n_dims = 3;
    BIND_TRY(bind_linear(b, &w->patch, WK_LINEAR, k, "vision_tower.patch_embed.proj"));
    BIND_TRY(bind_vector(b, &w->patch_bias, v->hidden, "vision_tower.patch_embed.proj.bias"));
    return bind_linear(b, &w->position, WK_TABLE, t, "vision_tower.patch_embed.pos_emb");
}

static status bind_projector(binder *b, const vision_config *v, vision_weights *w) {
    const i64 wide = VISION_MERGE * VISION_MERGE * v->hidden;
    BIND_TRY(bind_norm(b, &w->pre_norm, &w->pre_norm_bias, v->hidden, "mm_projector.pre_norm"));
    BIND_TRY(bind_biased(b, &w->proj0, &w->proj0_bias, wide, wide, "mm_projector.proj.0"));
    return bind_biased(b, &w->proj2, &w->proj2_bias, v->text_hidden, wide, "mm_projector.proj.2");
}

static status bind_tower(binder *b) {
    const vision_config *v = b->vision;
    vision_weights *w = b->vision_weights;
    w->layers = calloc((size_t)v->n_layers, sizeof *w->layers);
    if (!w->layers) return err_nomem(b->e, "layers", (u64)v->n_layers * sizeof *w->layers);
    w->n_layers = v->n_layers;
    BIND_TRY(bind_patches(b, v, w));
    for (i64 l = 0; l < v->n_layers; l++) BIND_TRY(bind_block(b, v, &w->layers[l], l));
    BIND_TRY(bind_norm(b, &w->norm, &w->norm_bias, v->hidden, "vision_tower.encoder.final_layernorm"));
    return bind_projector(b, v, w);
}

/* Names stand alone, and nothing is divided among ranks. */
static const model_config vision_shell = {.ranks = 1, .quant = WF_BF16};

status vision_weights_plan(vision_weights *w, weight_memory *room, const vision_config *v, const checkpoint *ck,
                           const ops *o, err *e) {
    binder b = {.c = &vision_shell, .ck = ck, .o = o, .weights = &w->of, .vision = v, .vision_weights = w, .e = e};
    *room = (weight_memory){0};
    b.room = room;
    return bind_weights(&b, bind_tower, 0);
}

status vision_weights_bind(vision_weights *w, const vision_config *v, const checkpoint *ck, const ops *o, err *e) {
    binder b = {.c = &vision_shell, .ck = ck, .o = o, .weights = &w->of, .vision = v, .vision_weights = w, .e = e};
    const u64 bytes = w->of.bytes;
    vision_weights_free(w);
    return bind_weights(&b, bind_tower, bytes);
}

void vision_weights_free(vision_weights *w) {
    if (!w->of.ops) return;
    void (*release)(op_weight *) = w->of.ops->weight_release;
    for (i64 l = 0; w->layers && l < w->n_layers; l++) {
        vision_layer *p = &w->layers[l];
        op_weight *all[] = {p->norm0, p->norm0_bias, p->norm1, p->norm1_bias, p->qkv, p->qkv_bias,
                            p->o,     p->o_bias,     p->fc0,   p->fc0_bias,   p->fc1, p->fc1_bias};
        for (size_t i = 0; i < COUNT_OF(all); i++) release(all[i]);
    }
    op_weight *all[] = {w->patch,         w->patch_bias, w->position,   w->norm,  w->norm_bias, w->pre_norm,
                        w->pre_norm_bias, w->proj0,      w->proj0_bias, w->proj2, w->proj2_bias};
    for (size_t i = 0; i < COUNT_OF(all); i++) release(all[i]);
    free(w->layers);
    model_weights_free(&w->of);
    *w = (vision_weights){0};
}
