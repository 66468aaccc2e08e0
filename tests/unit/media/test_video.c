/* Videos through moonlet-video: frames, sizes, times and patches against what PyAV, Pillow and numpy make of the same
 * files (tests/golden/make_videos.py), to the bit; and what is no video, or a decoder that is none. */
#include "unit.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "media/video.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED
#endif
#endif

static char decoder[512], scratch[] = "/tmp/moonlet-test-video-XXXXXX";
static video_limits limits;

typedef struct {
    int begun;
    u64 pieces;
    video_info info;
    char at[64][VIDEO_STAMP];
    u32 frames[64], crc[64];
    status fail; /* of piece() */
    bool (*gone)(void *ud);
} seen;

static status seen_begin(void *ud, const video_info *v, err *e) {
    seen *s = ud;
    (void)e;
    s->begun++;
    s->pieces = 0;
    s->info = *v;
    return ST_OK;
}

static status seen_piece(void *ud, const char *at, const media_patches *m, err *e) {
    seen *s = ud;
    const u64 bytes = (u64)m->frames * m->grid.rows * m->grid.cols * PATCH_BYTES;
    assert_true(s->pieces < 64);
    snprintf(s->at[s->pieces], VIDEO_STAMP, "%s", at);
    s->frames[s->pieces] = m->frames;
    s->crc[s->pieces++] = (u32)crc32_z(0, m->patches, bytes);
    return s->fail == ST_OK ? ST_OK : err_set(e, s->fail, "enough");
}

static buf video_bytes(const char *name) {
    buf all = {0};
    err e = {0};
    char path[256];
    snprintf(path, sizeof path, "tests/golden/videos/%s", name);
    if (file_read(path, 1 << 20, &all, &e) != ST_OK) fail_msg("%s", e.text);
    return all;
}

static status see(const buf *file, seen *s, err *e) {
    *s = (seen){.fail = s->fail, .gone = s->gone};
    *e = (err){0};
    return video_decode(file->data, file->len, &limits, &(video_sink){seen_begin, seen_piece, s->gone, s}, e);
}

static void test_golden(void **state) {
    (void)state;
    FILE *f = fopen("tests/golden/videos/expected.txt", "r");
    char line[256], name[64], at[VIDEO_STAMP];
    u32 frames, chosen, w, h, rows, cols, crc, videos = 0;
    u64 piece = 0;
    f64 rate;
    seen s = {0};
    err e;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "video %63s %u %lf %u %u %u %u %u", name, &frames, &rate, &chosen, &w, &h, &rows, &cols) ==
            8) {
            buf file = video_bytes(name);
            assert_true(piece == s.pieces);
            if (see(&file, &s, &e) != ST_OK) fail_msg("%s: %s", name, e.text);
            buf_free(&file);
            const video_info *v = &s.info;
            if (v->frames != frames || v->rate != rate || v->chosen != chosen || v->grid.width != w ||
                v->grid.height != h || v->grid.rows != rows || v->grid.cols != cols || s.begun != 1)
                fail_msg("%s: %llu frames at %.17g, %llu of %u x %u shown", name, (unsigned long long)v->frames,
                         v->rate, (unsigned long long)v->chosen, v->grid.width, v->grid.height);
            assert_true(s.pieces == video_pieces(v));
            piece = 0;
            videos++;
        } else if (sscanf(line, "piece %63s %15s %u %x", name, at, &frames, &crc) == 4) {
            assert_true(piece < s.pieces);
            if (strcmp(s.at[piece], at) || s.frames[piece] != frames)
                fail_msg("%s: piece at %s, not %s", name, s.at[piece], at);
            if (s.crc[piece] != crc) fail_msg("%s: other patches at %s", name, at);
            piece++;
        } else {
            assert_true(*line == '#');
        }
    }
    fclose(f);
    assert_true(piece == s.pieces);
    assert_true(videos >= 11);
}

/* A recording that names neither a duration nor a frame rate: its times tell. */
static void test_recording(void **state) {
    (void)state;
    buf file = video_bytes("jitter.webm");
    seen s = {0};
    err e;
    assert_int_equal(see(&file, &s, &e), ST_OK);
    assert_true(s.info.rate > 9.5 && s.info.rate < 10.5);
    assert_int_equal(s.info.frames, 60);
    assert_int_equal(s.info.chosen, 12);
    assert_int_equal(s.pieces, 3);
    buf_free(&file);
}

static void test_stamps(void **state) {
    (void)state;
    static const struct {
        f64 at;
        const char *text;
    } stamps[] = {{0, "00:00:00.000"},         {2, "00:00:02.000"},         {61.5, "00:01:01.500"},
                  {3599.9996, "00:59:59.999"}, {0.9999999, "00:00:01.999"}, {7.1, "00:00:07.099"},
                  {86399, "23:59:59.000"}};
    char out[VIDEO_STAMP];
    for (size_t i = 0; i < COUNT_OF(stamps); i++) {
        video_stamp(out, stamps[i].at);
        assert_string_equal(out, stamps[i].text);
    }
}

static void refused_bytes(const void *data, u64 n, status code, const char *word) {
    seen s = {0};
    err e;
    const buf file = {.data = (char *)(uintptr_t)data, .len = n};
    const f64 start = now_s();
    const status st = see(&file, &s, &e);
    if (st != code || !strstr(e.text, word)) fail_msg("%s: %s, not \"%s\"", status_text(st), e.text, word);
    assert_true(now_s() - start < 20);
}

/* Every file cut at many places, and with bytes that are others: an error, or all that it has; never a hang or more. */
static void test_cut(void **state) {
    (void)state;
    static const char *const names[] = {"h264-sound.mp4", "vp9.webm", "slow.mkv"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        buf all = video_bytes(names[i]);
        for (u64 n = 0; n < all.len; n += all.len / 7 + 1) {
            seen s = {0};
            err e;
            const buf cut = {.data = all.data, .len = n};
            if (see(&cut, &s, &e) == ST_OK) fail_msg("%s cut at %llu is a video", names[i], (unsigned long long)n);
            assert_true(e.code == ST_INPUT);
        }
        buf_free(&all);
    }
}

static void test_bad(void **state) {
    (void)state;
    buf mp4 = video_bytes("h264.mp4");
    refused_bytes("", 0, ST_INPUT, "no MP4, MOV, Matroska or WebM video");
    refused_bytes("GIF89a and more of it", 21, ST_INPUT, "no MP4");
    refused_bytes("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", 38, ST_INPUT, "no MP4");
    limits.pixels = 1280 * 720 - 1;
    refused_bytes(mp4.data, mp4.len, ST_LIMIT, "1280 x 720 pixels");
    limits.pixels = VIDEO_LIMITS.pixels;
    buf_free(&mp4);
}

static void test_sink_ends_it(void **state) {
    (void)state;
    buf file = video_bytes("vp9.webm");
    seen s = {.fail = ST_CANCELLED};
    err e;
    assert_int_equal(see(&file, &s, &e), ST_CANCELLED);
    assert_true(s.pieces == 1);
    buf_free(&file);
}

/* ---- Other decoders ---- */

static void script(const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/moonlet-video", scratch);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", text);
    fclose(f);
    chmod(path, 0755);
    limits.decoder = strdup(path);
}

static void with_script(const char *text, status code, const char *word) {
    script(text);
    refused_bytes("abc", 3, code, word);
    free((void *)(uintptr_t)limits.decoder);
    limits.decoder = decoder;
}

static void test_decoders(void **state) {
    (void)state;
    limits.decoder = "/nonexistent/moonlet-video";
    refused_bytes("abc", 3, ST_UNSUPPORTED, "cannot be started (/nonexistent/moonlet-video: No such file");
    limits.decoder = decoder;
    with_script("echo 'moonlet-video: error while loading shared libraries: libavcodec.so.58: no' >&2; exit 127",
                ST_UNSUPPORTED, "cannot run: moonlet-video: error while loading shared libraries: libavcodec.so.58");
    with_script("exit 3", ST_UNSUPPORTED, "ended early, with status 3");
    with_script("kill -SEGV $$", ST_INPUT, "ended by signal 11");
    with_script("head -c 4096 /dev/zero", ST_UNSUPPORTED, "not of this program's version");
    limits.seconds = 1;
    with_script("while :; do :; done", ST_LIMIT, "takes more than 2 s");
    with_script("exec sleep 60", ST_LIMIT, "takes more than 2 s");
    with_script("exec 1>&-; exec sleep 60", ST_LIMIT, "processor time");
    limits.seconds = VIDEO_LIMITS.seconds;
}

static bool at_once(void *ud) {
    (void)ud;
    return true;
}

/* Nobody waits any more: the decoder is ended, whatever it does. */
static void test_gone(void **state) {
    (void)state;
    seen s = {.gone = at_once};
    err e;
    const buf file = {.data = "abc", .len = 3};
    const f64 start = now_s();
    script("exec sleep 60");
    assert_int_equal(see(&file, &s, &e), ST_CANCELLED);
    free((void *)(uintptr_t)limits.decoder);
    script("sleep 5 > /dev/null & exit 3"); /* who inherits what it says need not end */
    s.gone = NULL;
    assert_int_equal(see(&file, &s, &e), ST_UNSUPPORTED);
    free((void *)(uintptr_t)limits.decoder);
    limits.decoder = decoder;
    assert_true(now_s() - start < 4);
}

/* The real one with hardly any memory. Under sanitizers, which reserve terabytes, it has no such limit. */
static void test_limits(void **state) {
    (void)state;
#ifdef ADDRESS_SANITIZED
    skip();
#endif
    buf file = video_bytes("h264.mp4");
    seen s = {0};
    err e;
    limits.mib = 24;
    assert_int_not_equal(see(&file, &s, &e), ST_OK);
    limits.mib = VIDEO_LIMITS.mib;
    assert_int_equal(see(&file, &s, &e), ST_OK);
    buf_free(&file);
}

static int find_decoder(void **state) {
    (void)state;
    const ssize_t n = readlink("/proc/self/exe", decoder, sizeof decoder - 1);
    char *tests = n > 0 ? strstr(decoder, "/tests/unit/media/") : NULL;
    if (!tests || !mkdtemp(scratch)) return -1;
    strcpy(tests, "/moonlet-video");
    limits = VIDEO_LIMITS;
    limits.decoder = decoder;
    return 0;
}

static int drop_scratch(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/moonlet-video", scratch);
    unlink(path);
    return rmdir(scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),   cmocka_unit_test(test_recording), cmocka_unit_test(test_stamps),
        cmocka_unit_test(test_cut),      cmocka_unit_test(test_bad),       cmocka_unit_test(test_sink_ends_it),
        cmocka_unit_test(test_decoders), cmocka_unit_test(test_gone),      cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, find_decoder, drop_scratch);
}
