/* JPEG by libjpeg-turbo, with its defaults (the accurate integer DCT, smooth upsampling of chroma), which are Pillow's.
 *
 * The library leaves an error by longjmp: what must survive one lives in jpeg_reader, and only jpeg_read() lies below
 * the setjmp. */
#include "media/decoders.h"
#include <stdio.h> /* jpeglib.h wants FILE */
#include <stdlib.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

/* A progressive file may send any number of scans, each a walk over the whole picture for a few bytes. Encoders write
 * about ten. So many pixels are walked over at most, and of a small picture no more than SCANS_MAX scans. */
enum { SCANS_MIN = 20, SCANS_MAX = 100, SCANNED_PIXELS_MAX = 2000000000 };

typedef struct {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    const picture_file *file;
    u8 *cmyk;      /* [width, 4]: a row */
    int scans_max; /* of this picture */
    status code;
    jmp_buf failed;
} jpeg_reader;

static void jpeg_fails(j_common_ptr c) {
    jpeg_reader *r = c->client_data;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    if (c->err->msg_code == JERR_OUT_OF_MEMORY)
        r->code = decoder_nomem(r->file);
    else
        r->code = decoder_error(r->file, "%s", text);
    longjmp(r->failed, 1);
}

static void jpeg_says(j_common_ptr c, int level) { (void)c, (void)level; }

static void jpeg_counts_scans(j_common_ptr c) {
    jpeg_reader *r = c->client_data;
    if (r->jpeg.input_scan_number <= r->scans_max) return;
    r->code = err_set(r->file->e, ST_LIMIT, "JPEG picture: it has more than %d scans", r->scans_max);
    longjmp(r->failed, 1);
}

/* The source: all bytes are there from the start. When they end, calls return early ("suspended"), where a source with
 * more to come would be asked again; that is how a truncated file shows. */
static void jpeg_source_begins(j_decompress_ptr d) { (void)d; }
static boolean jpeg_source_ends(j_decompress_ptr d) {
    (void)d;
    return FALSE;
}
static void jpeg_source_skips(j_decompress_ptr d, long n) {
    struct jpeg_source_mgr *s = d->src;
    if (n <= 0) return;
    size_t skipped = (size_t)n < s->bytes_in_buffer ? (size_t)n : s->bytes_in_buffer;
    s->next_input_byte += skipped;
    s->bytes_in_buffer -= skipped;
}

/* A row of inverted CMYK to RGB in Pillow's arithmetic: with k' = 255 - k, r = k' - c * k' / 255, rounded. */
static void cmyk_to_rgb(const u8 *cmyk, u8 *rgb, u32 width) {
    for (u32 x = 0; x < width; x++, cmyk += 4, rgb += 3) {
        i32 light = cmyk[3]; /* 255 - k; stored inverted */
        for (int c = 0; c < 3; c++) {
            i32 t = (255 - cmyk[c]) * light + 128;
            i32 v = light - ((t + (t >> 8)) >> 8);
            rgb[c] = v < 0 ? 0 : (u8)v;
        }
    }
}

static status jpeg_truncated(const jpeg_reader *r) {
    return decoder_error(r->file, "it is truncated: its %lu bytes end before the picture does",
                         (unsigned long)r->file->n);
}

static status jpeg_read(jpeg_reader *r, picture *out) {
    j_decompress_ptr d = &r->jpeg;
    if (jpeg_read_header(d, TRUE) != JPEG_HEADER_OK) return jpeg_truncated(r);
    bool four = d->num_components == 4;
    if (d->num_components != 1 && d->num_components != 3 && !four)
        return err_set(r->file->e, ST_UNSUPPORTED, "JPEG picture: %d components; 1, 3 and 4 are known",
                       d->num_components);
    status s = decoder_begin(r->file, d->image_width, d->image_height, out);
    if (s != ST_OK) return s;
    /* Coefficients of all components, if there are several scans; rows are padded to blocks. A net: by the header's
     * size there cannot be more. */
    d->mem->max_memory_to_use = (long)(8ull * out->width * out->height + (32u << 20));
    u64 scans = SCANNED_PIXELS_MAX / ((u64)out->width * out->height);
    r->scans_max = scans < SCANS_MIN ? SCANS_MIN : scans > SCANS_MAX ? SCANS_MAX : (int)scans;
    d->out_color_space = four ? JCS_CMYK : JCS_RGB;
    if (!jpeg_start_decompress(d)) return jpeg_truncated(r);
    if (four && !(r->cmyk = malloc(4 * (size_t)out->width))) return decoder_nomem(r->file);
    while (d->output_scanline < d->output_height) {
        u8 *rgb = out->rgb + 3 * (size_t)d->output_scanline * out->width;
        JSAMPROW row = four ? r->cmyk : rgb;
        if (jpeg_read_scanlines(d, &row, 1) != 1) return jpeg_truncated(r);
        if (four) cmyk_to_rgb(r->cmyk, rgb, out->width);
    }
    return jpeg_finish_decompress(d) ? ST_OK : jpeg_truncated(r); /* the end's mark must be there, as for Pillow */
}

static status jpeg_guarded(jpeg_reader *r, picture *out) {
    if (setjmp(r->failed)) return r->code;
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.src = &r->source; /* creating clears all but err and client_data */
    r->jpeg.progress = &r->progress;
    return jpeg_read(r, out);
}

status jpeg_decode(const picture_file *f, picture *out) {
    jpeg_reader *r = calloc(1, sizeof *r);
    if (!r) return decoder_nomem(f);
    r->file = f;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = jpeg_fails;
    r->errors.emit_message = jpeg_says;
    r->progress.progress_monitor = jpeg_counts_scans;
    r->source = (struct jpeg_source_mgr){.next_input_byte = f->data,
                                         .bytes_in_buffer = f->n,
                                         .init_source = jpeg_source_begins,
                                         .fill_input_buffer = jpeg_source_ends,
                                         .skip_input_data = jpeg_source_skips,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = jpeg_source_begins};
    status s = jpeg_guarded(r, out);
    jpeg_destroy_decompress(&r->jpeg);
    free(r->cmyk);
    free(r);
    return s;
}
