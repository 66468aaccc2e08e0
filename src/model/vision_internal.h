/* model/vision_internal.h: what the files of the vision tower share. */
#ifndef MODEL_VISION_INTERNAL_H
#define MODEL_VISION_INTERNAL_H
#include "model/bind.h"
#include "model/vision.h"

typedef struct {
    op_weight *norm0, *norm0_bias, *norm1, *norm1_bias; /* [hidden] */
    op_weight *qkv, *qkv_bias;                          /* [3 hidden, hidden] */
    op_weight *o, *o_bias;                              /* [hidden, hidden] */
    op_weight *fc0, *fc0_bias, *fc1, *fc1_bias;         /* [inter, hidden], [hidden, inter] */
} vision_layer;

typedef struct vision_weights {
    model_weights of;              /* what binding keeps beside the weights */
    op_weight *patch, *patch_bias; /* [hidden, 3 patch^2] */
    op_weight *position;           /* [pos_h pos_w, hidden] */
    vision_layer *layers;          /* [n_layers] */
    i64 n_layers;
    op_weight *norm, *norm_bias; /* [hidden] */
    op_weight *pre_norm, *pre_norm_bias;
    op_weight *proj0, *proj0_bias; /* [4 hidden, 4 hidden] */
    op_weight *proj2, *proj2_bias; /* [text_hidden, 4 hidden] */
} vision_weights;

/* As model_weights_plan() and _bind(); bind takes a plan, or zeros. */
status vision_weights_plan(vision_weights *w, weight_memory *room, const vision_config *v, const checkpoint *ck,
                           const ops *o, err *e);
status vision_weights_bind(vision_weights *w, const vision_config *v, const checkpoint *ck, const ops *o, err *e);
void vision_weights_free(vision_weights *w);

#endif
