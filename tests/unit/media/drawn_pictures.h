/* tests/unit/media/drawn_pictures.h: the pictures that tests/golden/make_pictures.py draws, and files read whole. */
#ifndef TESTS_MEDIA_DRAWN_PICTURES_H
#define TESTS_MEDIA_DRAWN_PICTURES_H
#include "unit.h"

#include "base/buf.h"
#include "base/file.h"
#include "media/picture.h"
#include <stdio.h>
#include <string.h>

static inline picture draw_picture(const char *kind, u32 w, u32 h) {
    picture p;
    err e = {0};
    if (picture_new(w, h, &p, &e) != ST_OK) fail_msg("%s", e.text);
    bool noise = strcmp(kind, "noise") == 0;
    for (u64 i = 0; i < (u64)w * h * 3; i++) {
        u32 v = (u32)i * 2654435761u + 12345u;
        v = (v ^ v >> 15) * 2246822519u;
        u64 c = i % 3, x = i / 3 % w, y = i / 3 / w;
        p.rgb[i] = noise ? (u8)(v >> 24) : ((x / (5 + c) + y / 7) & 1) ? 255 : 0;
    }
    return p;
}

/* The whole of a file in tests/golden/pictures; end with buf_free(). */
static inline buf picture_bytes(const char *name) {
    buf all = {0};
    err e = {0};
    char path[256];
    snprintf(path, sizeof path, "tests/golden/pictures/%s", name);
    if (file_read(path, 1 << 20, &all, &e) != ST_OK) fail_msg("%s", e.text);
    return all;
}

#endif
