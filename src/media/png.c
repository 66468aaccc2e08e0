/* PNG by libpng. It makes RGB of 8 bits of all kinds but 16-bit gray, whose conversion is ours.
 *
 * Ancillary chunks are passed over unread (text, profiles, transparency: nothing of them changes the pixels), so that
 * none of them can inflate. An animated PNG shows the picture that readers without animation see, as in Pillow. The
 * library leaves an error by longjmp: what must survive one lives in png_reader. */
#include "media/decoders.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

typedef struct {
    png_structp png;
    png_infop info;
    const picture_file *file;
    u64 at; /* bytes read so far */
    bool no_memory;
    status code;
    jmp_buf failed;
} png_reader;

static void png_fails(png_structp png, png_const_charp text) {
    png_reader *r = png_get_error_ptr(png);
    if (r->no_memory)
        r->code = decoder_nomem(r->file);
    else
        r->code = decoder_error(r->file, "%s", text);
    longjmp(r->failed, 1);
}

static void png_warns(png_structp png, png_const_charp text) { (void)png, (void)text; }

static png_voidp png_allocates(png_structp png, png_alloc_size_t n) {
    void *p = malloc(n);
    if (!p) ((png_reader *)png_get_mem_ptr(png))->no_memory = true;
    return p;
}

static void png_frees(png_structp png, png_voidp p) {
    (void)png;
    free(p);
}

static void png_takes(png_structp png, png_bytep to, size_t n) {
    png_reader *r = png_get_io_ptr(png);
    if (n > r->file->n - r->at) png_error(png, "it is truncated: its bytes end before the picture does");
    memcpy(to, r->file->data + r->at, n);
    r->at += n;
}

/* 16 bits to 8 as Pillow does it for gray, in place: what exceeds 255 is 255. */
static void png_cuts_16(png_structp png, png_row_infop row, png_bytep data) {
    (void)png;
    for (size_t i = 0; i < row->rowbytes / 2; i++) data[i] = data[2 * i] ? 255 : data[2 * i + 1];
}

static void png_to_rgb(png_structp png, int depth, int type) {
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
    if (type & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(png);
    if (depth == 16 && type != PNG_COLOR_TYPE_GRAY) png_set_strip_16(png); /* the high byte */
    if (depth == 16 && type == PNG_COLOR_TYPE_GRAY) {
        png_set_read_user_transform_fn(png, png_cuts_16);
        png_set_user_transform_info(png, NULL, 8, 3);
    }
}

static status png_read(png_reader *r, picture *out) {
    png_structp png = r->png;
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);                   /* ours are asked, and say more */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* all but PLTE and tRNS */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, (png_const_bytep) "tRNS", 1);
    png_set_read_fn(png, r, png_takes);
    png_read_info(png, r->info);
    int depth = png_get_bit_depth(png, r->info), type = png_get_color_type(png, r->info);
    status s = decoder_begin(r->file, png_get_image_width(png, r->info), png_get_image_height(png, r->info), out);
    if (s != ST_OK) return s;
    png_to_rgb(png, depth, type);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, r->info);
    size_t row = 3 * (size_t)out->width;
    if (png_get_rowbytes(png, r->info) != row)
        return decoder_error(r->file, "%d bits of colour type %d are not what RGB is made of", depth, type);
    if (passes > 1) memset(out->rgb, 0, row * out->height); /* passes add to what is there */
    for (int pass = 0; pass < passes; pass++)
        for (u32 y = 0; y < out->height; y++) png_read_row(png, out->rgb + y * row, NULL);
    return ST_OK; /* what follows the pixels is not looked at */
}

static status png_guarded(png_reader *r, picture *out) {
    if (setjmp(r->failed)) return r->code;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, png_fails, png_warns, r, png_allocates, png_frees);
    if (r->png) r->info = png_create_info_struct(r->png);
    if (!r->info) return decoder_nomem(r->file);
    return png_read(r, out);
}

status png_decode(const picture_file *f, picture *out) {
    png_reader *r = calloc(1, sizeof *r);
    if (!r) return decoder_nomem(f);
    r->file = f;
    status s = png_guarded(r, out);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r);
    return s;
}
