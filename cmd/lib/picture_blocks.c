#include "cmd/lib/picture_blocks.h"
#include "media/resize.h"

/* A line shows two rows: the upper one as the text's colour, the lower one as the background's. */
static void draw_line(FILE *to, const picture *p, u32 y) {
    const u8 *up = p->rgb + (u64)y * p->width * 3, *down = y + 1 < p->height ? up + (u64)p->width * 3 : NULL;
    for (u32 x = 0; x < p->width; x++, up += 3) {
        fprintf(to, "\033[38;2;%u;%u;%um", up[0], up[1], up[2]);
        if (down) fprintf(to, "\033[48;2;%u;%u;%um", down[0], down[1], down[2]);
        if (down) down += 3;
        fputs("\u2580", to);
    }
    fputs("\033[0m\n", to);
}

status picture_blocks(FILE *to, const void *file, u64 n, i64 columns, err *e) {
    picture whole = {0}, small = {0};
    status st = picture_decode(file, n, NULL, &whole, e);
    if (st == ST_OK) {
        const u32 most = whole.width > whole.height ? whole.width : whole.height;
        const u32 side = (u32)min_i64(columns, most);
        const u32 w = (u32)((u64)whole.width * side / most), h = (u32)((u64)whole.height * side / most);
        st = picture_resize(&whole, w ? w : 1, h ? h : 1, 1, &small, e);
    }
    for (u32 y = 0; st == ST_OK && y < small.height; y += 2) draw_line(to, &small, y);
    picture_free(&whole);
    picture_free(&small);
    return st;
}
