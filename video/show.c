#include "video/show.h"
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <string.h>

/* ---- How many frames ---- */

/* Frames a second, once all packets have been seen. Without a duration the average is that of what was probed, or a
 * guess: a recording of a browser has 1000. */
static double rate_of(const video_input *in) {
    const AVRational r = in->stream->avg_frame_rate;
    const double seen = in->timed > 1 && in->last > in->first ? (double)(in->timed - 1) / (in->last - in->first) : 0,
                 rate = r.num > 0 && r.den > 0 ? av_q2d(r) : seen;
    const bool guess = in->format->duration == AV_NOPTS_VALUE && seen > 0;
    return guess && (rate > 2 * seen || rate < seen / 2) ? seen : rate;
}

static void count_packets(video_show *s) {
    s->frames = 0;
    input_open(&s->in, s->pixels);
    while (input_next(&s->in)) s->frames += !(s->in.packet->flags & AV_PKT_FLAG_DISCARD);
    if (input_is_cut(&s->in)) video_stop(VIDEO_BAD, 0, "the video's file ends too early");
    if (!s->frames) video_stop(VIDEO_BAD, 0, "the video has no frames");
    s->rate = rate_of(&s->in);
    if (s->rate <= 0 && s->frames == 1) s->rate = VIDEO_SAMPLE_RATE; /* of a single frame it does not matter */
    if (s->rate <= 0) video_stop(VIDEO_BAD, 0, "the video names no frame rate");
    input_close(&s->in);
}

/* ---- A frame's pixels ---- */

static void read_colours(video_show *s, const AVFrame *f) {
    if (s->colours && s->format == f->format) return;
    sws_freeContext(s->colours);
    s->format = f->format;
    s->colours = sws_getContext(f->width, f->height, f->format, f->width, f->height, AV_PIX_FMT_RGB24, SWS_BICUBIC,
                                NULL, NULL, NULL);
    if (!s->colours)
        video_stop(VIDEO_UNKNOWN, 0, "frames in %s are not read",
                   av_get_pix_fmt_name(f->format) ? av_get_pix_fmt_name(f->format) : "an unknown format");
    int *from, *to, from_range, to_range, brightness, contrast, saturation;
    if (sws_getColorspaceDetails(s->colours, &from, &from_range, &to, &to_range, &brightness, &contrast, &saturation) <
        0)
        return; /* colours that have no matrix */
    if (f->color_range == AVCOL_RANGE_JPEG) from_range = 1;
    sws_setColorspaceDetails(s->colours, sws_getCoefficients(f->colorspace), from_range, to, to_range, brightness,
                             contrast, saturation);
}

/* The scaler's fast ways write whole vectors, and leave the end of a row alone that has no room for one. */
static void make_room(video_show *s) {
    s->pitch = (3 * s->width + 63) / 64 * 64;
    s->rgb = av_malloc((size_t)s->pitch * (size_t)s->height + 64);
    if (!s->rgb) video_stop(VIDEO_NO_MEMORY, 0, "out of memory");
}

static void show_frame(video_show *s, const AVFrame *f, uint64_t index) {
    const video_record r = {VIDEO_PIPE_VERSION, VIDEO_FRAME, {.index = index}};
    const size_t row = 3 * (size_t)s->width;
    if (!s->rgb) make_room(s);
    read_colours(s, f);
    const int rows = sws_scale(s->colours, (const uint8_t *const *)f->data, f->linesize, 0, f->height,
                               (uint8_t *const[]){s->rgb, NULL, NULL, NULL}, (const int[]){s->pitch, 0, 0, 0});
    if (rows != s->height) video_stop(VIDEO_BAD, 0, "frame %llu cannot be converted", (unsigned long long)index);
    for (size_t y = 1; y < (size_t)s->height; y++) memmove(s->rgb + y * row, s->rgb + y * (size_t)s->pitch, row);
    video_write(&r, sizeof r);
    video_write(s->rgb, row * (size_t)s->height);
}

static void take_frame(video_show *s, const AVFrame *f, uint64_t index) {
    if (f->decode_error_flags || (f->flags & AV_FRAME_FLAG_CORRUPT))
        video_stop(VIDEO_BAD, 0, "frame %llu is damaged", (unsigned long long)index);
    if (!s->width) {
        const video_record r = {
            VIDEO_PIPE_VERSION, VIDEO_HEAD, {.head = {s->frames, s->rate, (uint32_t)f->width, (uint32_t)f->height}}};
        s->width = f->width, s->height = f->height;
        video_write(&r, sizeof r);
    }
    if (f->width != s->width || f->height != s->height)
        video_stop(VIDEO_UNKNOWN, 0, "frame %llu has %d x %d pixels, those before it %d x %d",
                   (unsigned long long)index, f->width, f->height, s->width, s->height);
    if (s->next < s->chosen && index == video_frame_at(s->next, s->chosen, s->frames))
        show_frame(s, f, index), s->next++;
}

/* ---- All of them ---- */

/* Frames that the decoder has ready; how many came so far is in *n. */
static void drain(video_show *s, uint64_t *n) {
    int code;
    while (!(code = avcodec_receive_frame(s->in.codec, s->frame))) {
        take_frame(s, s->frame, (*n)++);
        av_frame_unref(s->frame);
    }
    if (code != AVERROR(EAGAIN) && code != AVERROR_EOF)
        video_stop(VIDEO_BAD, code, "frame %llu cannot be decoded", (unsigned long long)*n);
}

/* Shows what s->frames has chosen; the true number of frames. */
static uint64_t decode_all(video_show *s) {
    uint64_t n = 0;
    s->frame = av_frame_alloc();
    if (!s->frame) video_stop(VIDEO_NO_MEMORY, 0, "out of memory");
    s->chosen = video_chosen(s->frames, s->rate);
    input_open(&s->in, s->pixels);
    for (bool more = true; more;) {
        more = input_next(&s->in);
        const int code = avcodec_send_packet(s->in.codec, more ? s->in.packet : NULL);
        if (code < 0) video_stop(VIDEO_BAD, code, "what follows frame %llu cannot be decoded", (unsigned long long)n);
        drain(s, &n);
    }
    show_end(s);
    if (!n) video_stop(VIDEO_BAD, 0, "no frame of the video can be decoded");
    return n;
}

void show_video(video_show *s) {
    count_packets(s);
    for (int again = 0;; again++) {
        const uint64_t n = decode_all(s);
        if (n == s->frames) break;
        if (again)
            video_stop(VIDEO_BAD, 0, "the video decodes to %llu frames, then to %llu", (unsigned long long)s->frames,
                       (unsigned long long)n);
        s->frames = n;
    }
    const video_record end = {.version = VIDEO_PIPE_VERSION, .kind = VIDEO_END};
    video_write(&end, sizeof end);
}

void show_end(video_show *s) {
    input_close(&s->in);
    av_frame_free(&s->frame);
    sws_freeContext(s->colours);
    av_freep(&s->rgb);
    s->colours = NULL;
    s->next = 0;
    s->width = s->height = 0;
}
