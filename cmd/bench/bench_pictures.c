/* cmd/bench/bench_pictures.c: `moonlet bench pictures`: a picture's file to the patches that the vision tower reads. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/bench/bench.h"
#include "cmd/lib/stats.h"
#include "media/grid.h"
#include <stdio.h>
#include <string.h>

enum { PICTURE_FILE_MOST = 256 << 20 };

typedef struct {
    i64 threads, runs;
    f64_list decode, cut; /* milliseconds of each run */
    picture all;
    media_patches patches;
} picture_bench;

static status picture_run(picture_bench *b, const buf *file, err *e) {
    const grid_limits limits = GRID_PICTURE;
    picture_free(&b->all);
    media_patches_free(&b->patches);
    const f64 begin = now_s();
    status st = picture_decode(file->data, file->len, NULL, &b->all, e);
    const f64 decoded = now_s();
    if (st == ST_OK) st = media_patches_make(&b->all, 1, &limits, (int)b->threads, &b->patches, e);
    f64_add(&b->decode, (decoded - begin) * 1e3);
    f64_add(&b->cut, (now_s() - decoded) * 1e3);
    return st;
}

/* The first run is not counted: memory is touched, threads are made. */
static status time_picture(picture_bench *b, const char *path, err *e) {
    buf file = {0};
    b->decode.n = b->cut.n = 0;
    status st = file_read(path, PICTURE_FILE_MOST, &file, e);
    for (i64 i = 0; st == ST_OK && i <= b->runs; i++) {
        if (i == 1) b->decode.n = b->cut.n = 0;
        st = picture_run(b, &file, e);
    }
    buf_free(&file);
    if (st == ST_OK && (b->decode.failed || b->cut.failed)) st = err_nomem(e, "times", 0);
    if (st != ST_OK) return err_prefix(e, "%s", path);
    const summary d = summarize(&b->decode), c = summarize(&b->cut);
    printf("%s: %u x %u, %u tokens; decoding %.1f ms (best %.1f), resizing and cutting %.1f ms (best %.1f) with %lld "
           "threads; together %.1f ms, medians of %lld\n",
           path, b->all.width, b->all.height, b->patches.grid.tokens, d.median, b->decode.data[0], c.median,
           b->cut.data[0], (long long)b->threads, d.median + c.median, (long long)d.n);
    return ST_OK;
}

int bench_pictures(int argc, char **argv) {
    picture_bench b = {.threads = 4, .runs = 10};
    opt_list files = {0};
    const opt_spec specs[] = {
        {"threads", 't', OPT_INT, &b.threads, "N", "for resizing and cutting; decoding has one (default: 4)", 1, 256},
        {"runs", 0, OPT_INT, &b.runs, "N", "runs timed (default: 10)", 1, 10000},
    };
    int done = cmd_options("bench pictures", "FILE ... [options]", specs, COUNT_OF(specs), argc, argv, &files);
    if (done >= 0) return done;
    err e = {0};
    status st = files.n ? ST_OK : err_set(&e, ST_INPUT, "name the files of pictures");
    if (st == ST_OK) printf("%s\n", bench_chip());
    for (int i = 0; st == ST_OK && i < files.n; i++) st = time_picture(&b, files.items[i], &e);
    picture_free(&b.all);
    media_patches_free(&b.patches);
    f64_list_free(&b.decode);
    f64_list_free(&b.cut);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench pictures", &e);
}
