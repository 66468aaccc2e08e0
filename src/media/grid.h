/* media/grid.h: from pictures to the patches that the vision tower reads.
 *
 * A picture is shrunk, if it must be, to what the limits allow (never enlarged), padded to the right and below with
 * black to multiples of 28, and cut into patches of 14 x 14; two by two of them become one token. */
#ifndef MEDIA_GRID_H
#define MEDIA_GRID_H
#include "media/picture.h"

enum {
    PATCH_SIDE = 14,
    PATCH_MERGE = 2,                           /* patches a side of a token */
    PATCH_BYTES = 3 * PATCH_SIDE * PATCH_SIDE, /* [3, 14, 14] */
    CHUNK_FRAMES = 4,
};

typedef struct {
    u32 patches; /* of a picture before padding, which may add a row and a column of tokens */
    u32 side;    /* patches a side, padding included */
} grid_limits;

#define GRID_PICTURE ((grid_limits){.patches = 16384, .side = 512})
#define GRID_FRAME   ((grid_limits){.patches = 4096, .side = 512}) /* a frame of a video */

typedef struct {
    u32 width, height; /* pixels after resizing, before padding */
    u32 rows, cols;    /* patches, padding included: even numbers */
    u32 tokens;        /* rows / 2 * cols / 2 */
} patch_grid;

/* What becomes of a picture of width x height. ST_INPUT: a size of zero; ST_LIMIT: a side's patches exceed the limit,
 * which sides below limits->side * 14 pixels with an even limit cannot. */
status patch_grid_of(u32 width, u32 height, const grid_limits *limits, patch_grid *out, err *e);

/* The patches of a picture of the grid's width x height: out [rows * cols, 3, 14, 14] (channel, y, x), row by row of
 * the grid; padding is 0. Up to `threads` threads share the rows. */
void patches_cut(const picture *resized, const patch_grid *g, int threads, u8 *out);

/* One media item: a picture (frames 1), or up to four frames of a video that the tower sees together. */
typedef struct {
    u32 frames;
    patch_grid grid; /* of each frame */
    u8 *patches;     /* [frames * grid.rows * grid.cols, 3, 14, 14], frame by frame */
} media_patches;

/* Resizes and cuts `n` frames (1 to CHUNK_FRAMES), all of the first one's size, else ST_INPUT names the frame. The
 * caller ends *out with media_patches_free(); after an error it is empty. */
status media_patches_make(const picture *frames, int n, const grid_limits *limits, int threads, media_patches *out,
                          err *e);
void media_patches_free(media_patches *m);

#endif
