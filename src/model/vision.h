/* model/vision.h: MoonViT3d, the vision tower of Kimi-K2.5, and the projector behind it: patches of pictures and pieces
 * of video to rows that stand in a prompt where their placeholders are.
 *
 * A tower comes in three steps as a model does (model/forward.h): open finds every weight, plan says what memory a
 * pass of the limits takes, load binds and allocates. The config, the checkpoint, the device and the ops table must
 * outlive it. */
#ifndef MODEL_VISION_H
#define MODEL_VISION_H
#include "device/device.h"
#include "format/checkpoint.h"
#include "kernels/ops.h"
#include "model/forward.h"
#include "model/vision_config.h"

/* Most patches of an item as Kimi's pictures are resized: 16384 before the sides are padded to whole tokens. */
enum { VISION_PATCHES_MOST = 18432 };

typedef struct vision vision;

typedef struct {
    i64 patches;  /* most in a pass, of all items */
    i64 items;    /* most in a pass */
    bool fastest; /* on a GPU kernels are chosen by the number of rows: what else is in a pass may then move the last
                     bits of a row */
} vision_limits;

/* A picture, or the frames of a piece of video: t grids of h rows of w patches; h and w even, at most VISION_SIDE. */
typedef struct {
    i32 t, h, w;
    const u8 *patches; /* [t h w, 3, patch, patch]: red, green, blue; padding is 0 */
} vision_input;
static inline i64 vision_patches(const vision_input *in) { return (i64)in->t * in->h * in->w; }
static inline i64 vision_tokens(const vision_input *in) { return (i64)(in->h / VISION_MERGE) * (in->w / VISION_MERGE); }

/* ck NULL: dummy weights. ST_FORMAT names the tensor that is missing or has another shape. */
status vision_open(vision **out, const vision_config *c, const checkpoint *ck, const ops *o, device *dev, err *e);
/* What was planned: weights from open on, working memory from plan on. */
const model_memory *vision_memory_plan(const vision *v);
status vision_plan(vision *v, const vision_limits *l, err *e);
status vision_load(vision *v, err *e);
void vision_close(vision *v);

/* A pass over n items, whose rows are written to `out` [tokens of all items, text_hidden], of ops.act, on the device.
 * begin copies the patches, which may go then; advance queues about `work` multiply-adds of it, at least a piece, and
 * says whether that was all: what a row becomes does not depend on the pieces. One pass at a time. ST_INPUT, ST_LIMIT:
 * an item or their number is beyond the limits. */
status vision_begin(vision *v, const vision_input *items, i64 n, void *out, err *e);
#define VISION_ALL INT64_MAX
bool vision_advance(vision *v, i64 work);

#endif
