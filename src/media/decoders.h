/* media/decoders.h: what the decoders of the four formats share.
 *
 * Each reads its header, calls decoder_begin(), which holds the size against the limits and takes the memory, and fills
 * it. Libraries' messages become the error's text behind the format's name. On failure a decoder may leave *out filled
 * in part: picture_decode() frees it. */
#ifndef MEDIA_DECODERS_H
#define MEDIA_DECODERS_H
#include "media/picture.h"

typedef struct {
    const char *format; /* its name in errors */
    const u8 *data;     /* [n] */
    u64 n;
    const picture_limits *limits;
    err *e;
} picture_file;

status jpeg_decode(const picture_file *f, picture *out);
status png_decode(const picture_file *f, picture *out);
status webp_decode(const picture_file *f, picture *out);
status gif_decode(const picture_file *f, picture *out);

/* Checks a header's size and takes memory for its pixels. */
status decoder_begin(const picture_file *f, u64 width, u64 height, picture *out);
/* ST_INPUT with "<format> picture: " in front. */
status decoder_error(const picture_file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* ST_NOMEM: a library got no memory. */
status decoder_nomem(const picture_file *f);

#endif
