/* kernels/gpu/vision/vision.c: to be written. */
#include "kernels/gpu/backend.h"

void gpu_op_pixel_rows(const ops *o, const pixel_rows_args *a) { (void)o, (void)a; }
void gpu_op_patch_position(const ops *o, const patch_position_args *a) { (void)o, (void)a; }
void gpu_op_layer_norm(const ops *o, const layer_norm_args *a) { (void)o, (void)a; }
void gpu_op_bias_act(const ops *o, const bias_act_args *a) { (void)o, (void)a; }
void gpu_op_vision_rope(const ops *o, const vision_rope_args *a) { (void)o, (void)a; }
void gpu_op_vision_attention(const ops *o, const vision_attention_args *a) { (void)o, (void)a; }
void gpu_op_patch_merge(const ops *o, const patch_merge_args *a) { (void)o, (void)a; }
