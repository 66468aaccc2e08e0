/* media/picture.h: a picture as a client sent it, from the bytes of a file to RGB.
 *
 * JPEG, PNG, WebP and GIF, told apart by their first bytes and not by what a client calls them. The pixels are those
 * of Pillow 12.0's Image.open(file).convert("RGB"), with which the model's pictures were prepared:
 *  - alpha and transparency are dropped, not blended with anything;
 *  - 16-bit channels keep their high byte, but 16-bit gray is cut at 255, as Pillow's mode I;16 is;
 *  - JPEGs of four components are taken for Adobe's, which store CMYK inverted;
 *  - of an animation the first frame counts. In a GIF what lies around it has the transparent colour, else colour 0; in
 *    a WebP it is black;
 *  - colours of a palette that are not there are black;
 *  - EXIF's orientation, colour profiles and gamma are ignored: Moonshot's pipeline and its ports look at none of them.
 *
 * A file that ends too early is an error, and so is one with fewer pixels than it announces; never half a picture. Two
 * things differ from Pillow on purpose: checksums of a PNG's image data count, and so do missing rows of it. What
 * libjpeg calls a warning (bytes between segments, a damaged scan that does end) is none here either, as there. */
#ifndef MEDIA_PICTURE_H
#define MEDIA_PICTURE_H
#include "base/err.h"

typedef struct {
    u32 width, height;
    u8 *rgb; /* [height, width, 3] */
} picture;

/* What a file may ask for. Its header is held against this before memory is taken for its pixels. Decoding takes at
 * most 11 bytes a pixel (3 of them the result, 8 the coefficients of a progressive JPEG) and 32 MiB. */
typedef struct {
    u64 bytes;  /* of the file */
    u64 pixels; /* width * height */
    u32 side;   /* width and height */
} picture_limits;

#define PICTURE_LIMITS ((picture_limits){.bytes = 64 << 20, .pixels = 100 * 1000 * 1000, .side = 65535})

/* Decodes `n` bytes; limits NULL: PICTURE_LIMITS. The caller ends *out with picture_free(); after an error it is empty.
 * ST_INPUT: damaged, truncated or no picture; ST_UNSUPPORTED: a kind that is not decoded; ST_LIMIT; ST_NOMEM. */
status picture_decode(const void *data, u64 n, const picture_limits *limits, picture *out, err *e);
void picture_free(picture *p); /* empties it; an empty one is allowed */

/* A picture whose pixels are not set yet. Sides of zero are ST_INPUT. */
status picture_new(u32 width, u32 height, picture *out, err *e);

#endif
