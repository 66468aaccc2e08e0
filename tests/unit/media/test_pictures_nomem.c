/* Every allocation of decoding, resizing and cutting fails once, those inside of the libraries too: a clean error, and
 * no leak (under AddressSanitizer). Lossless WebP is left out: libwebp 1.2.4 as Debian 12 has it follows a NULL where a
 * lossless picture's first table finds no memory. The linker wraps malloc, calloc and realloc (Makefile). */
#include "unit.h"

#include "drawn_pictures.h"
#include "media/grid.h"
#include <stdlib.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long left = -1; /* allocations that succeed before one fails; negative: all */
static bool failed;
static size_t largest; /* allocation asked for */

static bool fails(size_t n) {
    if (n > largest) largest = n;
    if (left < 0 || left-- > 0) return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t n) { return fails(n) ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails(n * size) ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails(n) ? NULL : __real_realloc(p, n); }

/* From the bytes of a file to patches, with one allocation that fails: number n. */
static status patches_of(const buf *file, long n, err *e) {
    const grid_limits l = {.patches = 4, .side = 8};
    picture p;
    media_patches m;
    left = n, failed = false;
    status s = picture_decode(file->data, file->len, NULL, &p, e);
    if (s != ST_OK) {
        assert_null(p.rgb);
        return left = -1, s;
    }
    s = media_patches_make(&p, 1, &l, 1, &m, e);
    left = -1;
    if (s != ST_OK) assert_null(m.patches);
    media_patches_free(&m);
    picture_free(&p);
    return s;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const files[] = {
        "jpeg-420.jpg",  "jpeg-420-progressive.jpg", "jpeg-cmyk.jpg",      "png-n-8-3.png",   "png-i-16-0.png",
        "png-n-8-6.png", "gif-part-local.gif",       "gif-interlaced.gif", "webp-lossy.webp", "webp-animated.webp",
    };
    for (size_t k = 0; k < COUNT_OF(files); k++) {
        buf file = picture_bytes(files[k]);
        err e = {0};
        assert_int_equal(patches_of(&file, -1, &e), ST_OK); /* OpenMP takes its memory once, and keeps it */
        bool webp = strstr(files[k], "webp") != NULL;       /* whose library often calls it damage */
        long n = 0;
        for (; patches_of(&file, n, &e) != ST_OK || failed; n++) { /* libjpeg may ask again, for less */
            if (e.code != ST_OK && e.code != ST_NOMEM && !webp) fail_msg("%s, allocation %ld: %s", files[k], n, e.text);
            e = (err){0};
        }
        assert_true(n >= 4);
        buf_free(&file);
    }
}

/* What a header asks for is refused before anything of that size is taken. */
static void limits_come_before_memory(void **state) {
    (void)state;
    static const char *const files[] = {"jpeg-420-progressive.jpg", "png-i-8-6.png", "gif-saved.gif",
                                        "webp-lossy.webp"};
    const picture_limits l = {.bytes = 1 << 20, .pixels = 100, .side = 65535};
    for (size_t k = 0; k < COUNT_OF(files); k++) {
        buf file = picture_bytes(files[k]);
        picture p;
        err e = {0};
        largest = 0;
        assert_int_equal(picture_decode(file.data, file.len, &l, &p, &e), ST_LIMIT);
        assert_true(largest > 0 && largest < 100000); /* the libraries' own state */
        buf_free(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(limits_come_before_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
