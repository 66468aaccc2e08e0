#include "video/input.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void video_write(const void *data, size_t n) {
    const char *at = data;
    while (n) {
        const ssize_t k = write(STDOUT_FILENO, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) _exit(1);
        at += k, n -= (size_t)k;
    }
}

void video_stop(video_fault fault, int code, const char *fmt, ...) {
    video_record r = {
        VIDEO_PIPE_VERSION, VIDEO_ERROR, {.error = {.fault = code == AVERROR(ENOMEM) ? VIDEO_NO_MEMORY : fault}}};
    char why[AV_ERROR_MAX_STRING_SIZE] = "";
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(r.of.error.text, sizeof r.of.error.text, fmt, args);
    va_end(args);
    if (code && n >= 0 && n < (int)sizeof r.of.error.text && !av_strerror(code, why, sizeof why))
        snprintf(r.of.error.text + n, sizeof r.of.error.text - (size_t)n, ": %s", why);
    video_write(&r, sizeof r);
    _exit(1);
}

/* ---- The file, which is descriptor 0 ---- */

static int read_file(void *unused, uint8_t *to, int n) {
    (void)unused;
    ssize_t k;
    do k = read(STDIN_FILENO, to, (size_t)n);
    while (k < 0 && errno == EINTR);
    return k < 0 ? AVERROR(errno) : k ? (int)k : AVERROR_EOF;
}

static int64_t seek_file(void *unused, int64_t at, int whence) {
    (void)unused;
    whence &= ~AVSEEK_FORCE;
    if (whence == AVSEEK_SIZE) {
        const off_t now = lseek(STDIN_FILENO, 0, SEEK_CUR), size = lseek(STDIN_FILENO, 0, SEEK_END);
        lseek(STDIN_FILENO, now, SEEK_SET);
        return size < 0 ? AVERROR(errno) : size;
    }
    const off_t there = lseek(STDIN_FILENO, at, whence);
    return there < 0 ? AVERROR(errno) : there;
}

/* No demuxer opens anything else than the file that it was given. */
static int open_nothing(AVFormatContext *f, AVIOContext **io, const char *url, int flags, AVDictionary **options) {
    (void)f, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EACCES);
}

static const enum AVCodecID codecs[] = {AV_CODEC_ID_H264, AV_CODEC_ID_HEVC, AV_CODEC_ID_VP8,
                                        AV_CODEC_ID_VP9,  AV_CODEC_ID_AV1,  AV_CODEC_ID_MPEG4};

static void open_file(video_input *in) {
    enum { BUFFER = 1 << 16 };
    uint8_t *memory = av_malloc(BUFFER);
    AVDictionary *options = NULL;
    lseek(STDIN_FILENO, 0, SEEK_SET);
    in->format = avformat_alloc_context();
    in->io = memory ? avio_alloc_context(memory, BUFFER, 0, NULL, read_file, NULL, seek_file) : NULL;
    in->packet = av_packet_alloc();
    if (!in->format || !in->io || !in->packet) video_stop(VIDEO_NO_MEMORY, 0, "out of memory");
    in->format->pb = in->io;
    in->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    in->format->io_open = open_nothing;
    av_dict_set(&options, "format_whitelist", "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm", 0);
    in->format->max_streams = 64;
    /* what is looked into while streams are found, too */
    av_dict_set(&options, "codec_whitelist", "h264,hevc,vp8,vp9,av1,libdav1d,libaom-av1,mpeg4", 0);
    int code = avformat_open_input(&in->format, NULL, NULL, &options);
    av_dict_free(&options);
    if (code < 0) video_stop(VIDEO_BAD, code, "no MP4, MOV, Matroska or WebM video that can be read");
    if ((code = avformat_find_stream_info(in->format, NULL)) < 0)
        video_stop(VIDEO_BAD, code, "the video's streams cannot be read");
}

static void open_codec(video_input *in, int64_t pixels) {
    const AVCodecParameters *p = in->stream->codecpar;
    const char *name = avcodec_get_name(p->codec_id);
    size_t i = 0;
    while (i < sizeof codecs / sizeof *codecs && codecs[i] != p->codec_id) i++;
    if (i == sizeof codecs / sizeof *codecs) video_stop(VIDEO_UNKNOWN, 0, "video in %s is not decoded", name);
    if ((int64_t)p->width * p->height > pixels)
        video_stop(VIDEO_TOO_LARGE, 0, "the video's frames have %d x %d pixels, %lld in all are allowed", p->width,
                   p->height, (long long)pixels);
    const AVCodec *codec = avcodec_find_decoder(p->codec_id);
    if (!codec) video_stop(VIDEO_UNKNOWN, 0, "this FFmpeg decodes no %s", name);
    in->codec = avcodec_alloc_context3(codec);
    if (!in->codec) video_stop(VIDEO_NO_MEMORY, 0, "out of memory");
    int code = avcodec_parameters_to_context(in->codec, p);
    in->codec->max_pixels = pixels;
    in->codec->thread_count = 2;
    in->codec->pkt_timebase = in->stream->time_base;
    if (code >= 0) code = avcodec_open2(in->codec, codec, NULL);
    if (code < 0) video_stop(VIDEO_BAD, code, "%s cannot be decoded", name);
}

void input_open(video_input *in, int64_t pixels) {
    memset(in, 0, sizeof *in);
    open_file(in);
    const int best = av_find_best_stream(in->format, AVMEDIA_TYPE_VIDEO, -1, -1, NULL, 0);
    if (best < 0) video_stop(VIDEO_BAD, 0, "the file has no video in it");
    in->stream = in->format->streams[best];
    open_codec(in, pixels);
}

bool input_next(video_input *in) {
    for (;;) {
        av_packet_unref(in->packet);
        const int code = av_read_frame(in->format, in->packet);
        if (code == AVERROR_EOF && in->io->error >= 0) return false;
        if (code < 0 || in->packet->flags & AV_PKT_FLAG_CORRUPT)
            video_stop(VIDEO_BAD, code < 0 ? code : 0, "the video's file ends too early, or is damaged");
        const AVPacket *p = in->packet;
        const AVRational base = in->format->streams[p->stream_index]->time_base;
        const int64_t at = p->pts == AV_NOPTS_VALUE ? p->dts : p->pts;
        if (at != AV_NOPTS_VALUE) {
            const int64_t end = av_rescale_q(av_sat_add64(at, p->duration), base, AV_TIME_BASE_Q);
            if (end > in->until) in->until = end;
        }
        if (p->stream_index != in->stream->index) continue;
        if (p->pts != AV_NOPTS_VALUE && !(p->flags & AV_PKT_FLAG_DISCARD)) {
            const double t = (double)p->pts * av_q2d(base);
            if (!in->timed || t < in->first) in->first = t;
            if (!in->timed || t > in->last) in->last = t;
            in->timed++;
        }
        return true;
    }
}

/* Matroska's packets just stop where a file was cut. Durations in headers are not exact: a tenth and a second. */
bool input_is_cut(const video_input *in) {
    const int64_t all = in->format->duration; /* counts from 0, as its times do */
    if (!strstr(in->format->iformat->name, "matroska") || all == AV_NOPTS_VALUE || !in->until) return false;
    const int64_t missing = av_sat_sub64(all, in->until);
    return missing > AV_TIME_BASE && missing > all / 10;
}

void input_close(video_input *in) {
    av_packet_free(&in->packet);
    avcodec_free_context(&in->codec);
    avformat_close_input(&in->format);
    if (in->io) av_freep(&in->io->buffer);
    avio_context_free(&in->io);
}
