/* Pictures that are damaged, lie or ask for too much: a clear error each, and nothing of them stays in memory. */
#include "unit.h"

#include "drawn_pictures.h"
#include <stdlib.h>
#include <zlib.h>

/* Decodes a copy without a spare byte behind it; expects an error that begins with `text`. */
static void refused(const void *data, u64 n, const picture_limits *l, status code, const char *text) {
    picture p;
    err e = {0};
    u8 *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, data, n);
    status s = picture_decode(copy, n, l, &p, &e);
    free(copy);
    if (s != code || strncmp(e.text, text, strlen(text)) != 0) fail_msg("%d, \"%s\", not \"%s\"", s, e.text, text);
    assert_null(p.rgb);
    assert_null(strchr(e.text, '\n'));
}

static void put_be(u8 *at, u32 v, int n) {
    for (int i = 0; i < n; i++) at[i] = (u8)(v >> 8 * (n - 1 - i));
}

/* A PNG's header with another size, its checksum right. */
static void png_resize(buf *b, u32 w, u32 h) {
    u8 *ihdr = (u8 *)b->data + 12;
    put_be(ihdr + 4, w, 4);
    put_be(ihdr + 8, h, 4);
    put_be(ihdr + 17, (u32)crc32(0, ihdr, 17), 4);
}

static void jpeg_resize(buf *b, u32 w, u32 h) {
    for (size_t i = 2; i + 9 < b->len;) { /* from segment to segment */
        u8 *s = (u8 *)b->data + i;
        if (s[1] >= 0xc0 && s[1] <= 0xc2) {
            put_be(s + 5, h, 2);
            put_be(s + 7, w, 2);
            return;
        }
        i += 2 + (size_t)(s[2] << 8 | s[3]);
    }
    fail_msg("no frame in this JPEG");
}

static void not_a_picture(void **state) {
    (void)state;
    refused("", 0, NULL, ST_INPUT, "the picture is empty");
    refused("hello", 5, NULL, ST_INPUT, "this is no picture in JPEG, PNG, WebP or GIF");
    refused("\xff\xd8", 2, NULL, ST_INPUT, "this is no picture");
    refused("II*\0....", 8, NULL, ST_UNSUPPORTED, "TIFF is not supported; pictures are JPEG, PNG, WebP or GIF");
    refused("\0\0\0\x1c"
            "ftypavif",
            12, NULL, ST_UNSUPPORTED, "AVIF is not supported");
    refused("\xff\xd8\xff", 3, NULL, ST_INPUT, "JPEG picture: it is truncated");
    refused("\x89PNG\r\n\x1a\n", 8, NULL, ST_INPUT, "PNG picture: it is truncated");
    refused("RIFF\4\0\0\0WEBP", 12, NULL, ST_INPUT, "WebP picture: it is truncated");
    refused("GIF89a", 6, NULL, ST_INPUT, "GIF picture: it is truncated");
    static const char long_one[101] = "GIF89a";
    picture_limits few = {.bytes = 100, .pixels = 1000, .side = 100};
    refused(long_one, sizeof long_one, &few, ST_LIMIT, "the picture has 0.0 MiB; 0.0 MiB are allowed");
}

/* Every beginning of a file is an error, or, where only the end of the container is missing, the whole picture. */
static void every_truncation(void **state) {
    (void)state;
    static const char *const files[] = {"jpeg-420.jpg",          "jpeg-420-progressive.jpg", "jpeg-cmyk.jpg",
                                        "png-i-8-6.png",         "png-n-16-0.png",           "png-n-4-3.png",
                                        "webp-lossy.webp",       "webp-lossless-alpha.webp", "webp-animated.webp",
                                        "webp-lossy-alpha.webp", "gif-part-local.gif",       "gif-interlaced.gif"};
    for (size_t k = 0; k < COUNT_OF(files); k++) {
        buf b = picture_bytes(files[k]);
        picture whole, p;
        assert_int_equal(picture_decode(b.data, b.len, NULL, &whole, NULL), ST_OK);
        bool ok = false;
        for (size_t n = 0; n < b.len; n++) {
            u8 *copy = malloc(n ? n : 1);
            assert_non_null(copy);
            memcpy(copy, b.data, n);
            err e = {0};
            if (picture_decode(copy, n, NULL, &p, &e) == ST_OK) {
                ok = true;
                assert_memory_equal(p.rgb, whole.rgb, 3ull * whole.width * whole.height);
                picture_free(&p);
            } else {
                if (ok) fail_msg("%s: %zu bytes are not enough, fewer were", files[k], n);
                assert_null(p.rgb);
                assert_true(e.text[0] && e.code != ST_OK);
            }
            free(copy);
        }
        assert_true(!ok || strncmp(files[k], "jpeg", 4) != 0); /* the end's mark must be there, as for Pillow */
        picture_free(&whole);
        buf_free(&b);
    }
}

static void headers_that_lie(void **state) {
    (void)state;
    buf b = picture_bytes("png-n-8-2.png");
    png_resize(&b, 0, 5);
    refused(b.data, b.len, NULL, ST_INPUT, "PNG picture: ");
    png_resize(&b, 2000000000, 2);
    refused(b.data, b.len, NULL, ST_LIMIT, "PNG picture: 2000000000 x 2 pixels; a side may have 65535");
    png_resize(&b, 65535, 65535);
    refused(b.data, b.len, NULL, ST_LIMIT, "PNG picture: 65535 x 65535 are 4294836225 pixels; 100000000 are allowed");
    png_resize(&b, 13, 12); /* a row more than there is */
    refused(b.data, b.len, NULL, ST_INPUT, "PNG picture: ");
    png_resize(&b, 65535, 1);
    refused(b.data, b.len, NULL, ST_INPUT, "PNG picture: ");
    b.data[29] ^= 1;
    refused(b.data, b.len, NULL, ST_INPUT, "PNG picture: IHDR: CRC error");
    buf_free(&b);

    b = picture_bytes("jpeg-420.jpg");
    jpeg_resize(&b, 0, 20);
    refused(b.data, b.len, NULL, ST_INPUT, "JPEG picture: Empty JPEG image (DNL not supported)");
    jpeg_resize(&b, 65535, 1);
    refused(b.data, b.len, NULL, ST_INPUT, "JPEG picture: Maximum supported image dimension is 65500 pixels");
    jpeg_resize(&b, 65500, 65500);
    refused(b.data, b.len, NULL, ST_LIMIT, "JPEG picture: 65500 x 65500 are 4290250000 pixels");
    buf_free(&b);

    b = picture_bytes("gif-plain.gif");
    memset(b.data + 6, 0xff, 4);
    refused(b.data, b.len, NULL, ST_LIMIT, "GIF picture: 65535 x 65535 are 4294836225 pixels");
    buf_free(&b);

    b = picture_bytes("webp-frame-part.webp");
    memset(b.data + 24, 0xff, 3); /* the canvas' width: 2^24 */
    refused(b.data, b.len, NULL, ST_LIMIT, "WebP picture: 16777216 x 21 pixels; a side may have 65535");
    memset(b.data + 24, 0, 6); /* 1 x 1, with a frame that does not fit */
    refused(b.data, b.len, NULL, ST_INPUT, "WebP picture: its structure is damaged");
    buf_free(&b);
}

static void limits_of_the_caller(void **state) {
    (void)state;
    static const char *const files[] = {"jpeg-cmyk.jpg", "png-n-8-2.png", "webp-lossy.webp", "gif-plain.gif"};
    for (size_t k = 0; k < COUNT_OF(files); k++) {
        buf b = picture_bytes(files[k]);
        picture p;
        assert_int_equal(picture_decode(b.data, b.len, NULL, &p, NULL), ST_OK);
        u32 most = p.width > p.height ? p.width : p.height;
        picture_limits l = {.bytes = b.len, .pixels = (u64)p.width * p.height, .side = most};
        picture_free(&p);
        assert_int_equal(picture_decode(b.data, b.len, &l, &p, NULL), ST_OK);
        picture_free(&p);
        picture_limits less = l;
        less.bytes--;
        refused(b.data, b.len, &less, ST_LIMIT, "the picture has ");
        less = l, less.pixels--;
        assert_int_equal(picture_decode(b.data, b.len, &less, &p, NULL), ST_LIMIT);
        less = l, less.side--;
        assert_int_equal(picture_decode(b.data, b.len, &less, &p, NULL), ST_LIMIT);
        buf_free(&b);
    }
}

/* 40 million pixels of one colour in 40 KB are a picture, and one of 65535 x 1 is; JPEG's 65500 x 1, too. */
static void large_and_thin(void **state) {
    (void)state;
    static const u32 sizes[][2] = {{65535, 1}, {1, 65535}, {SANITIZED ? 800 : 8000, 5000}};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        u32 w = sizes[k][0], h = sizes[k][1];
        u64 raw_n = (3ull * w + 1) * h;
        u8 *raw = calloc(raw_n, 1);
        uLongf n = compressBound(raw_n);
        buf b = picture_bytes("png-n-8-2.png"), z = {0};
        assert_non_null(raw);
        assert_true(buf_reserve(&z, n));
        assert_int_equal(compress((Bytef *)z.data, &n, raw, raw_n), Z_OK);
        b.len = 33; /* the signature and IHDR */
        png_resize(&b, w, h);
        u8 word[4];
        put_be(word, (u32)n, 4);
        buf_add(&b, word, 4);
        buf_str(&b, "IDAT");
        buf_add(&b, z.data, n);
        put_be(word, (u32)crc32(0, (u8 *)b.data + 37, (uInt)n + 4), 4);
        buf_add(&b, word, 4);
        picture p;
        err e = {0};
        if (picture_decode(b.data, b.len, NULL, &p, &e) != ST_OK) fail_msg("%s", e.text);
        assert_int_equal(p.width, w);
        assert_int_equal(p.height, h);
        assert_int_equal(p.rgb[3ull * w * h - 1], 0);
        picture_free(&p);
        buf_free(&b);
        buf_free(&z);
        free(raw);
    }
}

/* A progressive JPEG whose last scan comes again and again. */
static void too_many_scans(void **state) {
    (void)state;
    buf b = picture_bytes("jpeg-gray-progressive.jpg"), many = {0};
    size_t last = 0;
    for (size_t i = 0; i + 1 < b.len; i++)
        if ((u8)b.data[i] == 0xff && (u8)b.data[i + 1] == 0xda) last = i;
    buf_add(&many, b.data, b.len - 2);
    for (int i = 0; i < 200; i++) buf_add(&many, b.data + last, b.len - 2 - last);
    buf_add(&many, b.data + b.len - 2, 2);
    refused(many.data, many.len, NULL, ST_LIMIT, "JPEG picture: it has more than 100 scans");
    buf_free(&many);
    buf_free(&b);
}

static void kinds_that_are_not_known(void **state) {
    (void)state;
    buf b = picture_bytes("jpeg-gray.jpg");
    for (size_t i = 2; i + 9 < b.len; i += 2 + (size_t)((u8)b.data[i + 2] << 8 | (u8)b.data[i + 3])) {
        if ((u8)b.data[i + 1] != 0xc0) continue;
        b.data[i + 4] = 12;
        refused(b.data, b.len, NULL, ST_INPUT, "JPEG picture: Unsupported JPEG data precision 12");
        b.data[i + 4] = 8;
        b.data[i + 1] = (char)0xc3;
        refused(b.data, b.len, NULL, ST_INPUT, "JPEG picture: Unsupported JPEG process: SOF type 0xc3");
        break;
    }
    buf_free(&b);
    b = picture_bytes("png-n-8-3.png");
    memcpy(b.data + 37, "pLTE", 4); /* the palette as an ancillary chunk: there is none */
    put_be((u8 *)b.data + 41 + 768, (u32)crc32(0, (u8 *)b.data + 37, 772), 4);
    refused(b.data, b.len, NULL, ST_INPUT, "PNG picture: ");
    buf_free(&b);
    refused("GIF89a\4\0\4\0\0\0\0;", 14, NULL, ST_INPUT, "GIF picture: it holds no frame");
    refused("GIF89a\4\0\4\0\0\0\0,\0\0\0\0\0\0\4\0\0\2", 24, NULL, ST_INPUT, "GIF picture: its frame is 0 x 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_a_picture),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(limits_of_the_caller),
        cmocka_unit_test(large_and_thin),
        cmocka_unit_test(too_many_scans),
        cmocka_unit_test(kinds_that_are_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
