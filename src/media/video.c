#include "media/video.h"
#include "media/decoder_process.h"
#include "media/video_pipe.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIDEO_THREADS = 4 }; /* of the resize */

typedef struct {
    decoder_process p;
    const video_sink *to;
    video_info info;
    picture frames[CHUNK_FRAMES]; /* of the piece that is growing */
    int n;
    u64 next, first; /* chosen frames so far; the piece's first among all of the video's */
} video_work;

void video_stamp(char out[VIDEO_STAMP], f64 seconds) {
    f64 t;
    const f64 fraction = modf(seconds, &t);
    const i64 whole = (i64)t + (nearbyint(fraction * 1e6) >= 1e6); /* to microseconds, as Python's datetime has it */
    snprintf(out, VIDEO_STAMP, "%02d:%02d:%02d.%03d", (int)(whole / 3600 % 24), (int)(whole / 60 % 60),
             (int)(whole % 60), (int)(fraction * 1000));
}

static void drop_frames(video_work *w) {
    for (int i = 0; i < CHUNK_FRAMES; i++) picture_free(&w->frames[i]);
    w->n = 0;
}

static status begin_video(video_work *w, const video_record *r, const video_limits *limits, err *e) {
    const grid_limits frame = GRID_FRAME;
    const u32 width = r->of.head.width, height = r->of.head.height;
    w->info = (video_info){.frames = r->of.head.frames, .rate = r->of.head.rate};
    drop_frames(w);
    w->next = 0;
    if (!w->info.frames || !(w->info.rate > 0) || !width || !height || (u64)width * height > limits->pixels)
        return err_set(e, ST_INPUT, "the video has %llu frames of %u x %u at %g a second",
                       (unsigned long long)w->info.frames, width, height, w->info.rate);
    w->info.chosen = video_chosen(w->info.frames, w->info.rate);
    status st = patch_grid_of(width, height, &frame, &w->info.grid, e);
    if (st == ST_OK) st = w->to->begin(w->to->ud, &w->info, e);
    const u64 together = w->info.chosen < CHUNK_FRAMES ? w->info.chosen : CHUNK_FRAMES;
    for (u64 i = 0; st == ST_OK && i < together; i++) st = picture_new(width, height, &w->frames[i], e);
    return st;
}

static status end_piece(video_work *w, err *e) {
    const grid_limits frame = GRID_FRAME;
    char at[VIDEO_STAMP];
    media_patches m = {0};
    status st = media_patches_make(w->frames, w->n, &frame, VIDEO_THREADS, &m, e);
    video_stamp(at, (f64)w->first / w->info.rate);
    if (st == ST_OK) st = w->to->piece(w->to->ud, at, &m, e);
    media_patches_free(&m);
    w->n = 0;
    return st;
}

static status take_frame(video_work *w, const video_record *r, err *e) {
    picture *p = &w->frames[w->n];
    if (w->next >= w->info.chosen || r->of.index != video_frame_at(w->next, w->info.chosen, w->info.frames))
        return err_set(e, ST_UNSUPPORTED, "%s sends other frames than this program wants: are both of one version?",
                       w->p.path);
    status st = decoder_read(&w->p, p->rgb, 3 * (u64)p->width * p->height, e);
    if (!w->n) w->first = r->of.index;
    w->n++, w->next++;
    return st == ST_OK && (w->n == CHUNK_FRAMES || w->next == w->info.chosen) ? end_piece(w, e) : st;
}

static status decoder_fault(const video_record *r, err *e) {
    const u32 fault = r->of.error.fault;
    return err_set(e,
                   fault == VIDEO_UNKNOWN     ? ST_UNSUPPORTED
                   : fault == VIDEO_TOO_LARGE ? ST_LIMIT
                   : fault == VIDEO_NO_MEMORY ? ST_LIMIT
                                              : ST_INPUT,
                   "%.*s", VIDEO_PIPE_TEXT - 1, r->of.error.text);
}

static status run_video(video_work *w, const video_limits *limits, err *e) {
    for (int heads = 0;;) {
        video_record r;
        status st = decoder_read(&w->p, &r, sizeof r, e);
        if (st != ST_OK) return st;
        if (r.version != VIDEO_PIPE_VERSION)
            return err_set(e, ST_UNSUPPORTED, "%s is not of this program's version", w->p.path);
        if (r.kind == VIDEO_HEAD && heads++ < 2)
            st = begin_video(w, &r, limits, e);
        else if (r.kind == VIDEO_FRAME && heads)
            st = take_frame(w, &r, e);
        else if (r.kind == VIDEO_END && heads && w->next == w->info.chosen)
            return ST_OK;
        else
            st = r.kind == VIDEO_ERROR ? decoder_fault(&r, e)
                                       : err_set(e, ST_UNSUPPORTED, "%s sends what nobody asked for", w->p.path);
        if (st != ST_OK) return st;
    }
}

status video_decode(const void *data, u64 n, const video_limits *limits, const video_sink *to, err *e) {
    video_work w = {.to = to};
    status st = decoder_start(&w.p, data, n, limits, to, e);
    if (st == ST_OK) st = run_video(&w, limits, e);
    decoder_end(&w.p);
    drop_frames(&w);
    return st;
}
