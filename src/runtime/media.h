/* runtime/media.h: pictures and pieces of video in prompts: prepared by whoever has them, shared by all requests that
 * show them, and turned into rows by the vision tower when their turn comes. */
#ifndef RUNTIME_MEDIA_H
#define RUNTIME_MEDIA_H
#include "model/vision.h"

/* Any thread may hold and release one. */
typedef struct media_item media_item;

/* A copy of in's patches [t h w, patch_bytes], held once; NULL: out of memory. What it shows is known by a keyed hash
 * of sizes and patches, so that equal ones are computed once and share the prefix cache. */
media_item *media_item_new(const vision_input *in, u64 patch_bytes);
media_item *media_item_hold(media_item *m);
void media_item_release(media_item *m); /* NULL is allowed */
const vision_input *media_item_input(const media_item *m);
u64 media_item_key(const media_item *m);
static inline i64 media_item_tokens(const media_item *m) { return vision_tokens(media_item_input(m)); }

#endif
