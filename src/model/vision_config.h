/* model/vision_config.h: the vision part of config.json: MoonViT3d and its projector. */
#ifndef MODEL_VISION_CONFIG_H
#define MODEL_VISION_CONFIG_H
#include "base/err.h"

enum { VISION_SIDE = 512, VISION_FRAMES_MOST = 64 }; /* patches down and across of an item: what positions reach */
enum { VISION_PATCH = 14 };                          /* pixels a side of a patch: what media/grid.h cuts */

typedef struct vision_config {
    bool there; /* config.json has a vision_config: else nothing below means anything */
    i64 hidden, n_layers, n_heads, inter;
    i64 patch;        /* VISION_PATCH */
    i64 pos_h, pos_w; /* of the position table */
    i64 frames;       /* most frames of an item */
    i64 text_hidden;  /* width of what comes out: the text model's */
    f64 eps;          /* of the tower's norms, and of the projector's */
    f64 projector_eps;
} vision_config;

/* Reads DIR/config.json. Keys may have the checkpoint's "vt_" in front, or none as transformers writes them. What this
 * tower does in one way only is refused by the key's name (ST_UNSUPPORTED), and so is what
 * DIR/preprocessor_config.json, where it is, wants to be done to pictures otherwise than src/media does. */
status vision_config_load(vision_config *c, const char *dir, err *e);
/* From memory, for tests and fuzzing. */
status vision_config_parse(vision_config *c, const char *json, size_t len, err *e);
status vision_preprocessor_parse(const char *json, size_t len, err *e);

#endif
