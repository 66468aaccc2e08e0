#include "media/picture.h"
#include "base/buf.h"
#include "media/decoders.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

status picture_new(u32 width, u32 height, picture *out, err *e) {
    *out = (picture){0};
    u64 bytes = (u64)width * height; /* below 2^64 */
    if (bytes == 0) return err_set(e, ST_INPUT, "a picture of %u x %u has no pixels", width, height);
    if (!mul_size(bytes, 3, &bytes)) return err_set(e, ST_LIMIT, "a picture of %u x %u is too large", width, height);
    out->rgb = malloc(bytes);
    if (!out->rgb) return err_nomem(e, "a picture", bytes);
    out->width = width;
    out->height = height;
    return ST_OK;
}

void picture_free(picture *p) {
    free(p->rgb);
    *p = (picture){0};
}

status decoder_begin(const picture_file *f, u64 width, u64 height, picture *out) {
    const picture_limits *l = f->limits;
    if (width == 0 || height == 0)
        return decoder_error(f, "its size is %lu x %lu, there is nothing to see", (unsigned long)width,
                             (unsigned long)height);
    if (width > l->side || height > l->side)
        return err_set(f->e, ST_LIMIT, "%s picture: %lu x %lu pixels; a side may have %u", f->format,
                       (unsigned long)width, (unsigned long)height, l->side);
    if (width * height > l->pixels)
        return err_set(f->e, ST_LIMIT, "%s picture: %lu x %lu are %llu pixels; %llu are allowed", f->format,
                       (unsigned long)width, (unsigned long)height, (unsigned long long)(width * height),
                       (unsigned long long)l->pixels);
    status s = picture_new((u32)width, (u32)height, out, f->e);
    if (s != ST_OK) err_prefix(f->e, "%s picture", f->format);
    return s;
}

status decoder_error(const picture_file *f, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(f->e, ST_INPUT, "%s picture: %s", f->format, text);
}

status decoder_nomem(const picture_file *f) {
    return err_set(f->e, ST_NOMEM, "%s picture: out of memory while decoding", f->format);
}

typedef struct {
    const char *name;
    status (*decode)(const picture_file *, picture *); /* NULL: known by its first bytes, but not decoded */
    const char *magic;
    u8 at, len; /* where these bytes stand, and how many they are */
} picture_format;

/* What is not decoded is named, so that a client learns more than "no picture". */
static const picture_format picture_formats[] = {
    {"JPEG", jpeg_decode, "\xff\xd8\xff", 0, 3},
    {"PNG", png_decode, "\x89PNG\r\n\x1a\n", 0, 8},
    {"WebP", webp_decode, "WEBP", 8, 4},
    {"GIF", gif_decode, "GIF87a", 0, 6},
    {"GIF", gif_decode, "GIF89a", 0, 6},
    {"TIFF", NULL, "II*\0", 0, 4},
    {"TIFF", NULL, "MM\0*", 0, 4},
    {"AVIF", NULL, "ftypavif", 4, 8},
    {"HEIC", NULL, "ftyphe", 4, 6},
    {"HEIC", NULL, "ftypmif1", 4, 8},
    {"JPEG XL", NULL, "\xff\x0a", 0, 2},
    {"JPEG XL", NULL, "\0\0\0\x0cJXL ", 0, 8},
    {"PDF", NULL, "%PDF-", 0, 5},
    {"SVG", NULL, "<svg", 0, 4},
    {"BMP", NULL, "BM", 0, 2},
};

static const picture_format *picture_format_of(const u8 *data, u64 n) {
    for (size_t i = 0; i < COUNT_OF(picture_formats); i++) {
        const picture_format *f = &picture_formats[i];
        if (n >= (u64)f->at + f->len && memcmp(data + f->at, f->magic, f->len) == 0) return f;
    }
    return NULL;
}

status picture_decode(const void *data, u64 n, const picture_limits *limits, picture *out, err *e) {
    static const picture_limits usual = PICTURE_LIMITS;
    *out = (picture){0};
    if (!limits) limits = &usual;
    if (n == 0) return err_set(e, ST_INPUT, "the picture is empty");
    if (n > limits->bytes)
        return err_set(e, ST_LIMIT, "the picture has %.1f MiB; %.1f MiB are allowed", (f64)n / 1048576.0,
                       (f64)limits->bytes / 1048576.0);
    const picture_format *format = picture_format_of(data, n);
    if (!format) return err_set(e, ST_INPUT, "this is no picture in JPEG, PNG, WebP or GIF (by its first bytes)");
    if (!format->decode)
        return err_set(e, ST_UNSUPPORTED, "%s is not supported; pictures are JPEG, PNG, WebP or GIF", format->name);
    picture_file f = {.format = format->name, .data = data, .n = n, .limits = limits, .e = e};
    status s = format->decode(&f, out);
    if (s != ST_OK) picture_free(out);
    return s;
}
