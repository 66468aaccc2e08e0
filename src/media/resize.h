/* media/resize.h: pictures resampled as PIL's Image.resize(size, BICUBIC) does it, bit for bit.
 *
 * The order of Pillow up to 12.0: across first, rounded to bytes, then down. (Pillow 13 turns it round for some shapes;
 * the model's pictures were prepared with the older one.) */
#ifndef MEDIA_RESIZE_H
#define MEDIA_RESIZE_H
#include "media/picture.h"

/* *out gets `in` at width x height, a copy if that is its size already; the caller ends it with picture_free(). Up to
 * `threads` threads share the rows; the result does not depend on them. ST_INPUT: a size of zero. */
status picture_resize(const picture *in, u32 width, u32 height, int threads, picture *out, err *e);

#endif
