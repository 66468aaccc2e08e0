/* Decoders, resizing, sizes and patches against Pillow (tests/golden/make_pictures.py), to the bit, with one thread
 * and with several. */
#include "unit.h"

#include "drawn_pictures.h"
#include "media/grid.h"
#include "media/resize.h"
#include "media/resize_loops.h"
#include <stdlib.h>
#include <zlib.h>

/* libjpeg-turbo 2.1 here and 3.1 in Pillow agree on all files of the list; one on which they did not would need a
 * tolerance here, and a reason. */
static u32 crc_of(const u8 *bytes, u64 n) { return (u32)crc32_z(0, bytes, n); }
static u32 crc_of_picture(const picture *p) { return crc_of(p->rgb, 3ull * p->width * p->height); }

static void check_decode(const char *line) {
    char name[64];
    u32 w, h, crc;
    assert_int_equal(sscanf(line, "decode %63s %u %u %x", name, &w, &h, &crc), 4);
    buf file = picture_bytes(name);
    picture p;
    err e = {0};
    if (picture_decode(file.data, file.len, NULL, &p, &e) != ST_OK) fail_msg("%s: %s", name, e.text);
    if (p.width != w || p.height != h) fail_msg("%s: %u x %u, not %u x %u", name, p.width, p.height, w, h);
    if (crc_of_picture(&p) != crc) fail_msg("%s: other pixels than Pillow's", name);
    picture_free(&p);
    buf_free(&file);
}

static void check_resize(const char *line) {
    char kind[16];
    u32 w, h, w2, h2, crc;
    assert_int_equal(sscanf(line, "resize %15s %u %u %u %u %x", kind, &w, &h, &w2, &h2, &crc), 6);
    picture in = draw_picture(kind, w, h), out;
    for (int threads = 1; threads <= 3; threads++) {
        err e = {0};
        if (picture_resize(&in, w2, h2, threads, &out, &e) != ST_OK) fail_msg("%s", e.text);
        if (out.width != w2 || out.height != h2 || crc_of_picture(&out) != crc)
            fail_msg("other pixels than Pillow's with %d threads: %.60s", threads, line);
        picture_free(&out);
    }
    picture_free(&in);
}

static void check_grid(const char *line) {
    u32 w, h, w2, h2, rows, cols, tokens;
    grid_limits l;
    assert_int_equal(
        sscanf(line, "grid %u %u %u %u %u %u %u %u %u", &w, &h, &l.patches, &l.side, &w2, &h2, &rows, &cols, &tokens),
        9);
    patch_grid g;
    err e = {0};
    if (patch_grid_of(w, h, &l, &g, &e) != ST_OK) fail_msg("%s", e.text);
    if (g.width != w2 || g.height != h2 || g.rows != rows || g.cols != cols || g.tokens != tokens)
        fail_msg("%u x %u, %u x %u patches, %u tokens: %.60s", g.width, g.height, g.rows, g.cols, g.tokens, line);
}

static void check_patches(const char *line) {
    char kind[16];
    u32 w, h, crc;
    grid_limits l;
    assert_int_equal(sscanf(line, "patches %15s %u %u %u %u %x", kind, &w, &h, &l.patches, &l.side, &crc), 6);
    picture in = draw_picture(kind, w, h);
    for (int threads = 1; threads <= 3; threads += 2) {
        media_patches m;
        err e = {0};
        if (media_patches_make(&in, 1, &l, threads, &m, &e) != ST_OK) fail_msg("%s", e.text);
        if (crc_of(m.patches, (u64)m.grid.rows * m.grid.cols * PATCH_BYTES) != crc)
            fail_msg("other patches than the reference's with %d threads: %.60s", threads, line);
        media_patches_free(&m);
    }
    picture_free(&in);
}

/* Checks the lines that begin with `kind`. */
static void check_lines(const char *kind, void (*check)(const char *line)) {
    buf all = picture_bytes("expected.txt");
    int n = 0;
    for (char *line = all.data, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (strncmp(line, kind, strlen(kind)) == 0 && line[strlen(kind)] == ' ') check(line), n++;
    }
    assert_true(n >= 10);
    buf_free(&all);
}

static void decoded_as_pillow(void **state) { (void)state, check_lines("decode", check_decode); }
static void resized_as_pillow(void **state) { (void)state, check_lines("resize", check_resize); }
static void sizes(void **state) { (void)state, check_lines("grid", check_grid); }
static void patches(void **state) { (void)state, check_lines("patches", check_patches); }

/* The golden files run the loops of this processor; here those for any against those for AVX2, on windows that no
 * filter has: any weights whose sums stay below 2^31. */
static void loops_agree(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    enum { W = 57, N = 23, TAPS = 12 };
    picture in = draw_picture("noise", W, 40);
    in.rgb = realloc(in.rgb, 3 * W * 40 + ACROSS_SPARE);
    assert_non_null(in.rgb);
    memset(in.rgb + 3 * W * 40, 77, ACROSS_SPARE);
    u32 first[N], count[N];
    i32 weight[N * TAPS] = {0};
    u8 a[ACROSS_ROWS][3 * N], b[ACROSS_ROWS][3 * N], down_a[3 * W], down_b[3 * W];
    const resize_windows w = {.n = N, .taps = TAPS, .first = first, .count = count, .weight = weight};
    for (u32 i = 0; i < N; i++) {
        count[i] = 1 + i % TAPS;
        first[i] = i == N - 1 ? W - count[i] : i * 2;
        for (u32 k = 0; k < count[i]; k++) weight[i * TAPS + k] = (i32)((i * 31 + k * 1299709) % 1400000) - 500000;
    }
    const u8 *src[ACROSS_ROWS];
    u8 *to_a[ACROSS_ROWS], *to_b[ACROSS_ROWS];
    for (int r = 0; r < ACROSS_ROWS; r++) src[r] = in.rgb + 3 * W * (36 + r), to_a[r] = a[r], to_b[r] = b[r];
    resize_loops_any.across(&w, src, to_a);
    resize_loops_avx2.across(&w, src, to_b);
    assert_memory_equal(a, b, sizeof a);
    for (u32 i = 0; i < N; i++) {
        resize_loops_any.down(weight + i * TAPS, count[i], in.rgb, 3 * W, down_a);
        resize_loops_avx2.down(weight + i * TAPS, count[i], in.rgb, 3 * W, down_b);
        assert_memory_equal(down_a, down_b, sizeof down_a);
    }
    picture_free(&in);
}

static void frames_of_a_chunk(void **state) {
    (void)state;
    picture f[CHUNK_FRAMES];
    for (int i = 0; i < CHUNK_FRAMES; i++) f[i] = draw_picture(i & 1 ? "steps" : "noise", 200, 150);
    grid_limits l = {.patches = 64, .side = 16};
    media_patches all, one;
    err e = {0};
    assert_int_equal(media_patches_make(f, CHUNK_FRAMES, &l, 2, &all, &e), ST_OK);
    assert_int_equal(all.frames, CHUNK_FRAMES);
    u64 bytes = (u64)all.grid.rows * all.grid.cols * PATCH_BYTES;
    for (int i = 0; i < CHUNK_FRAMES; i++) {
        assert_int_equal(media_patches_make(&f[i], 1, &l, 1, &one, &e), ST_OK);
        assert_memory_equal(one.patches, all.patches + (u64)i * bytes, bytes);
        media_patches_free(&one);
    }
    media_patches_free(&all);
    f[2].height--;
    assert_int_equal(media_patches_make(f, CHUNK_FRAMES, &l, 2, &all, &e), ST_INPUT);
    assert_string_equal(e.text, "frame 2 has 200 x 149 pixels, the first one 200 x 150");
    assert_int_equal(media_patches_make(f, 0, &l, 2, &all, &e), ST_INPUT);
    assert_int_equal(media_patches_make(f, 5, &l, 2, &all, &e), ST_INPUT);
    for (int i = 0; i < CHUNK_FRAMES; i++) picture_free(&f[i]);
}

static void sizes_that_are_none(void **state) {
    (void)state;
    grid_limits l = GRID_PICTURE, odd = {.patches = 16384, .side = 3};
    patch_grid g;
    picture p = draw_picture("noise", 2, 2), out;
    err e = {0};
    assert_int_equal(patch_grid_of(0, 5, &l, &g, &e), ST_INPUT);
    assert_string_equal(e.text, "a picture of 0 x 5 has no patches");
    assert_int_equal(patch_grid_of(500, 20, &odd, &g, &e), ST_LIMIT);
    assert_string_equal(e.text, "a picture of 500 x 20 becomes 4 x 2 patches; a side may have 3");
    assert_int_equal(picture_resize(&p, 0, 1, 1, &out, &e), ST_INPUT);
    assert_null(out.rgb);
    assert_int_equal(picture_new(4294967295u, 4294967295u, &out, &e), ST_LIMIT);
    picture_free(&out);
    picture_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_as_pillow),
        cmocka_unit_test(resized_as_pillow),
        cmocka_unit_test(sizes),
        cmocka_unit_test(patches),
        cmocka_unit_test(loops_agree),
        cmocka_unit_test(frames_of_a_chunk),
        cmocka_unit_test(sizes_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
