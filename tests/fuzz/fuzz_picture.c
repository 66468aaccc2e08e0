/* Pictures of all four formats, told apart by their bytes, then resized and cut. The limits are low, so that a header
 * that asks for much is refused and a run stays short. Checksums of PNGs are made right, else no change of a chunk
 * would be seen by what reads it. */
#include "media/grid.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void repair_checksums(u8 *png, size_t n) {
    for (size_t at = 8; at + 12 <= n;) {
        u32 len = (u32)png[at] << 24 | (u32)png[at + 1] << 16 | (u32)png[at + 2] << 8 | png[at + 3];
        if (len > n - at - 12) return;
        u32 crc = (u32)crc32(0, png + at + 4, len + 4);
        for (int i = 0; i < 4; i++) png[at + 8 + len + i] = (u8)(crc >> (24 - 8 * i));
        at += 12 + (size_t)len;
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    static const picture_limits limits = {.bytes = 1 << 20, .pixels = 1 << 18, .side = 20000};
    static const grid_limits small = {.patches = 64, .side = 16};
    u8 *copy = malloc(size ? size : 1); /* without a byte more */
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    if (size > 8 && memcmp(copy, "\x89PNG", 4) == 0) repair_checksums(copy, size);
    picture p;
    err e = {0};
    if (picture_decode(copy, size, &limits, &p, &e) == ST_OK) {
        if (!p.rgb || !p.width || !p.height || (u64)p.width * p.height > limits.pixels) abort();
        media_patches m;
        if (media_patches_make(&p, 1, &small, 1, &m, &e) != ST_OK) abort();
        if (m.grid.rows > 16 || m.grid.cols > 16 || m.grid.width > p.width || m.grid.height > p.height) abort();
        media_patches_free(&m);
        picture_free(&p);
    } else if (!e.text[0] || strchr(e.text, '\n') || p.rgb) {
        abort();
    }
    free(copy);
    return 0;
}
