/* The first frame of a GIF by giflib, on its canvas.
 *
 * Pillow's view of it: the canvas grows to hold the frame; where the frame leaves it uncovered it has the transparent
 * colour if there is one, else colour 0 (not the background that the file names). The frame's own palette stands before
 * the file's, unless its colour i is gray of level i: such a palette counts as none, in either place. (That the file's
 * colours then paint a frame whose own are a gray ramp is an oddity of Pillow.) Without palette a pixel is its level of
 * gray, and beyond the end of a palette there is black. */
#include "media/decoders.h"
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

typedef struct {
    const picture_file *file;
    u64 at;         /* bytes read so far */
    bool truncated; /* more was asked for than there is */
} gif_source;

static int gif_takes(GifFileType *g, GifByteType *to, int n) {
    gif_source *s = g->UserData;
    u64 there = s->file->n - s->at;
    if (n < 0) return 0;
    if ((u64)n > there)
        s->truncated = true;
    else
        there = (u64)n;
    memcpy(to, s->file->data + s->at, there);
    s->at += there;
    return (int)there;
}

static status gif_failed(const gif_source *s, int code) {
    const picture_file *f = s->file;
    bool no_header = code == D_GIF_ERR_NO_SCRN_DSCR; /* not read to its end, or no memory for its palette */
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM || (no_header && !s->truncated)) return decoder_nomem(f);
    if (s->truncated || code == D_GIF_ERR_EOF_TOO_SOON) /* the latter: the data says that it has ended */
        return decoder_error(f, "it is truncated: its bytes end before the picture does");
    const char *text = GifErrorString(code);
    return decoder_error(f, "%s", text ? text : "it cannot be decoded");
}

/* Walks to the first frame; what stands before it may name a transparent colour, else *transparent stays. */
static status gif_find_frame(const picture_file *f, GifFileType *g, int *transparent) {
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(g, &type) == GIF_ERROR) return gif_failed(g->UserData, g->Error);
        if (type == TERMINATE_RECORD_TYPE) return decoder_error(f, "it holds no frame");
        if (type == IMAGE_DESC_RECORD_TYPE)
            return DGifGetImageDesc(g) == GIF_ERROR ? gif_failed(g->UserData, g->Error) : ST_OK;
        int code;
        GifByteType *block; /* its length, then its bytes; NULL at the end */
        if (DGifGetExtension(g, &code, &block) == GIF_ERROR) return gif_failed(g->UserData, g->Error);
        if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4 && (block[1] & 1)) *transparent = block[4];
        while (block)
            if (DGifGetExtensionNext(g, &block) == GIF_ERROR) return gif_failed(g->UserData, g->Error);
    }
}

/* Colour i is gray of level i, for all of them. */
static bool gif_is_gray(const ColorMapObject *m) {
    for (int i = 0; i < m->ColorCount; i++) {
        GifColorType c = m->Colors[i];
        if (c.Red != i || c.Green != i || c.Blue != i) return false;
    }
    return true;
}

static void gif_palette(const GifFileType *g, u8 rgb[256][3]) {
    const ColorMapObject *m = g->Image.ColorMap;
    if (!m || gif_is_gray(m)) m = g->SColorMap;
    if (m && gif_is_gray(m)) m = NULL;
    for (int i = 0; i < 256; i++) {
        GifColorType c = {0};
        if (!m)
            c = (GifColorType){(u8)i, (u8)i, (u8)i};
        else if (i < m->ColorCount)
            c = m->Colors[i];
        rgb[i][0] = c.Red, rgb[i][1] = c.Green, rgb[i][2] = c.Blue;
    }
}

static void gif_paint(u8 *rgb, const u8 *index, u64 n, u8 palette[256][3]) {
    for (u64 i = 0; i < n; i++) memcpy(rgb + 3 * i, palette[index[i]], 3);
}

static status gif_read_rows(GifFileType *g, u8 palette[256][3], u8 *line, picture *out) {
    static const u8 first[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2}; /* of the four passes when rows are interlaced */
    const GifImageDesc *d = &g->Image;
    for (int pass = d->Interlace ? 0 : 4; pass < (d->Interlace ? 4 : 5); pass++) {
        for (int y = pass < 4 ? first[pass] : 0; y < d->Height; y += pass < 4 ? step[pass] : 1) {
            if (DGifGetLine(g, line, d->Width) == GIF_ERROR) return gif_failed(g->UserData, g->Error);
            u64 at = (u64)(d->Top + y) * out->width + (u64)d->Left;
            gif_paint(out->rgb + 3 * at, line, (u64)d->Width, palette);
        }
    }
    return ST_OK;
}

static status gif_read(const picture_file *f, GifFileType *g, picture *out) {
    int transparent = 0; /* colour 0 where there is none */
    status s = gif_find_frame(f, g, &transparent);
    if (s != ST_OK) return s;
    const GifImageDesc *d = &g->Image; /* 16-bit numbers, none negative */
    if (d->Width <= 0 || d->Height <= 0) return decoder_error(f, "its frame is %d x %d", d->Width, d->Height);
    i64 right = (i64)d->Left + d->Width, bottom = (i64)d->Top + d->Height;
    s = decoder_begin(f, (u64)max_i64(g->SWidth, right), (u64)max_i64(g->SHeight, bottom), out);
    if (s != ST_OK) return s;
    u8 palette[256][3];
    gif_palette(g, palette);
    u64 pixels = (u64)out->width * out->height;
    if (right - d->Left < out->width || bottom - d->Top < out->height)
        for (u64 i = 0; i < pixels; i++) memcpy(out->rgb + 3 * i, palette[transparent], 3);
    u8 *line = malloc((size_t)d->Width);
    s = line ? gif_read_rows(g, palette, line, out) : decoder_nomem(f);
    free(line);
    return s;
}

status gif_decode(const picture_file *f, picture *out) {
    gif_source source = {.file = f};
    int code = 0;
    GifFileType *g = DGifOpen(&source, gif_takes, &code);
    if (!g) return gif_failed(&source, code);
    status s = gif_read(f, g, out);
    DGifCloseFile(g, &code);
    return s;
}
