/* model/kv_scales.h: scales that a checkpoint has for an FP8 KV cache.
 *
 * Writers calibrate k_scale and v_scale for a layer; their engines keep x / scale in e4m3. Of latent attention k's
 * alone has a meaning, the latents being keys and values at once. The cache here keeps e4m3 without a scale, which
 * loses something only where latents, which are normed, leave its range: whoever asks for FP8 is told. */
#ifndef MODEL_KV_SCALES_H
#define MODEL_KV_SCALES_H
#include "format/checkpoint.h"
#include "model/config.h"

typedef struct {
    i64 n; /* of keys, other than 1 */
    f32 least, most;
} kv_scales;

/* Looks at SELF_ATTN....k_scale, kv_scale and v_scale of the layers that there are, whatever module is between; -1
 * stands for none. A tensor of another form, or a value that is no scale, is an error with its name. */
status kv_scales_read(kv_scales *s, const model_config *c, const checkpoint *ck, err *e);

#endif
