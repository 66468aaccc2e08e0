/* tests/lib/vision_golden.h: the items of tests/data/nano/vision.safetensors (tools/nano/golden_vision.py): pictures as
 * patches, and what PyTorch in float32 makes of them. */
#ifndef TESTS_VISION_GOLDEN_H
#define TESTS_VISION_GOLDEN_H
#include "unit.h"

#include "base/file.h"
#include "format/safetensors.h"
#include "model/vision.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 8, PATCH = 14, PATCH_BYTES = 3 * PATCH * PATCH };

static file_map golden_file;
static safetensors golden;
static vision_input inputs[ITEMS];
static const f32 *media[ITEMS]; /* [tokens, 256] */

static inline const tensor_info *golden_tensor(int i, const char *name) {
    char all[32];
    snprintf(all, sizeof all, "%d.%s", i, name);
    for (u64 k = 0; k < golden.n; k++)
        if (!strcmp(golden.tensors[k].name, all)) return &golden.tensors[k];
    fail_msg("no tensor %s", all);
    return NULL;
}

/* Small pictures are not resized: padded with black to whole tokens, and cut. */
static inline void golden_cut(const tensor_info *pixels, vision_input *in) {
    const i64 frames = pixels->shape[0], h = pixels->shape[1], w = pixels->shape[2];
    *in = (vision_input){(i32)frames, (i32)ceil_div(h, 28) * 2, (i32)ceil_div(w, 28) * 2, NULL};
    u8 *out = calloc((size_t)vision_patches(in), PATCH_BYTES);
    for (i64 f = 0; f < frames; f++)
        for (i64 y = 0; y < h; y++)
            for (i64 x = 0; x < w; x++)
                for (i64 c = 0; c < 3; c++) {
                    const i64 patch = (f * in->h + y / PATCH) * in->w + x / PATCH;
                    out[patch * PATCH_BYTES + (c * PATCH + y % PATCH) * PATCH + x % PATCH] =
                        pixels->data[((f * h + y) * w + x) * 3 + c];
                }
    in->patches = out;
}

static inline int read_golden(void **state) {
    (void)state;
    err e = {0};
    if (file_map_open(&golden_file, "tests/data/nano/vision.safetensors", &e) != ST_OK ||
        safetensors_parse(&golden, golden_file.data, golden_file.size, &e) != ST_OK)
        fail_msg("%s", e.text);
    for (int i = 0; i < ITEMS; i++) {
        golden_cut(golden_tensor(i, "pixels"), &inputs[i]);
        media[i] = (const f32 *)(const void *)golden_tensor(i, "media")->data;
        assert_int_equal(golden_tensor(i, "media")->shape[0], vision_tokens(&inputs[i]));
    }
    return 0;
}

static inline int free_golden(void **state) {
    (void)state;
    for (int i = 0; i < ITEMS; i++) free((void *)(uintptr_t)inputs[i].patches);
    safetensors_free(&golden);
    file_map_close(&golden_file);
    return 0;
}
#endif
