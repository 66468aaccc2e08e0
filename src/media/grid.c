#include "media/grid.h"
#include "media/resize.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_SIDE = PATCH_SIDE * PATCH_MERGE };

static u32 padded_patches(u32 pixels) { return (u32)ceil_div(pixels, TOKEN_SIDE) * PATCH_MERGE; }

/* A side after scaling: cut down, not rounded, and at least one pixel. */
static u32 scaled_side(u32 side, f64 scale, u64 most) {
    u64 pixels = (u64)((f64)side * scale);
    if (pixels < 1) pixels = 1;
    return (u32)(pixels < most ? pixels : most);
}

status patch_grid_of(u32 width, u32 height, const grid_limits *limits, patch_grid *out, err *e) {
    *out = (patch_grid){0};
    if (width == 0 || height == 0) return err_set(e, ST_INPUT, "a picture of %u x %u has no patches", width, height);
    u64 cols = width / PATCH_SIDE, rows = height / PATCH_SIDE, most = (u64)limits->side * PATCH_SIDE;
    cols += cols == 0, rows += rows == 0;
    f64 scale = sqrt((f64)limits->patches / (f64)(cols * rows)); /* double precision, as the reference has it */
    scale = fmin(fmin(scale, 1), fmin((f64)most / width, (f64)most / height));
    patch_grid g = {.width = scaled_side(width, scale, most), .height = scaled_side(height, scale, most)};
    g.rows = padded_patches(g.height);
    g.cols = padded_patches(g.width);
    if (g.rows > limits->side || g.cols > limits->side)
        return err_set(e, ST_LIMIT, "a picture of %u x %u becomes %u x %u patches; a side may have %u", width, height,
                       g.cols, g.rows, limits->side);
    g.tokens = g.rows / PATCH_MERGE * (g.cols / PATCH_MERGE);
    *out = g;
    return ST_OK;
}

/* `n` pixels of a row to each channel's row of a patch; what is left of 14 is padding. */
static inline void patch_row(const u8 *rgb, u32 n, u8 *out) {
    enum { CHANNEL = PATCH_SIDE * PATCH_SIDE };
    for (u32 x = 0; x < n; x++) {
        out[x] = rgb[3 * x];
        out[CHANNEL + x] = rgb[3 * x + 1];
        out[2 * CHANNEL + x] = rgb[3 * x + 2];
    }
}

static void patch_cut(const picture *p, u32 left, u32 top, u8 *out) {
    if (left + PATCH_SIDE <= p->width && top + PATCH_SIDE <= p->height) { /* most are whole: loops of known length */
        for (u32 y = 0; y < PATCH_SIDE; y++)
            patch_row(p->rgb + 3 * ((size_t)(top + y) * p->width + left), PATCH_SIDE, out + y * PATCH_SIDE);
        return;
    }
    memset(out, 0, PATCH_BYTES);
    if (left >= p->width) return;
    u32 n = p->width - left < PATCH_SIDE ? p->width - left : PATCH_SIDE;
    for (u32 y = 0; y < PATCH_SIDE && top + y < p->height; y++)
        patch_row(p->rgb + 3 * ((size_t)(top + y) * p->width + left), n, out + y * PATCH_SIDE);
}

void patches_cut(const picture *resized, const patch_grid *g, int threads, u8 *out) {
#pragma omp parallel for num_threads(threads < 1 ? 1 : threads) schedule(static)
    for (u32 r = 0; r < g->rows; r++)
        for (u32 c = 0; c < g->cols; c++)
            patch_cut(resized, c * PATCH_SIDE, r * PATCH_SIDE, out + ((size_t)r * g->cols + c) * PATCH_BYTES);
}

static status frame_cut(const picture *frame, const patch_grid *g, int threads, u8 *out, err *e) {
    if (frame->width == g->width && frame->height == g->height) {
        patches_cut(frame, g, threads, out);
        return ST_OK;
    }
    picture resized;
    status s = picture_resize(frame, g->width, g->height, threads, &resized, e);
    if (s == ST_OK) patches_cut(&resized, g, threads, out);
    picture_free(&resized);
    return s;
}

status media_patches_make(const picture *frames, int n, const grid_limits *limits, int threads, media_patches *out,
                          err *e) {
    *out = (media_patches){0};
    if (n < 1 || n > CHUNK_FRAMES)
        return err_set(e, ST_INPUT, "%d frames at once; 1 to %d are possible", n, CHUNK_FRAMES);
    for (int i = 1; i < n; i++)
        if (frames[i].width != frames[0].width || frames[i].height != frames[0].height)
            return err_set(e, ST_INPUT, "frame %d has %u x %u pixels, the first one %u x %u", i, frames[i].width,
                           frames[i].height, frames[0].width, frames[0].height);
    media_patches m = {.frames = (u32)n};
    status s = patch_grid_of(frames[0].width, frames[0].height, limits, &m.grid, e);
    if (s != ST_OK) return s;
    u64 frame_bytes = (u64)m.grid.rows * m.grid.cols * PATCH_BYTES;
    m.patches = malloc((u64)n * frame_bytes);
    if (!m.patches) return err_nomem(e, "patches", (u64)n * frame_bytes);
    for (int i = 0; i < n && s == ST_OK; i++)
        s = frame_cut(&frames[i], &m.grid, threads, m.patches + (u64)i * frame_bytes, e);
    if (s == ST_OK)
        *out = m;
    else
        media_patches_free(&m);
    return s;
}

void media_patches_free(media_patches *m) {
    free(m->patches);
    *m = (media_patches){0};
}
