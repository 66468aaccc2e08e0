/* video/input.h: the stream of a video file that is shown, opened with FFmpeg's libraries. */
#ifndef VIDEO_INPUT_H
#define VIDEO_INPUT_H
#include "media/video_pipe.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <stdbool.h>

typedef struct {
    AVFormatContext *format;
    AVIOContext *io;
    AVCodecContext *codec;
    AVStream *stream;
    AVPacket *packet;
    int64_t until;      /* the end of the packets so far, of all streams, in AV_TIME_BASE */
    double first, last; /* times of the stream, seconds, of `timed` packets */
    uint64_t timed;
} video_input;

/* Sends a VIDEO_ERROR and ends the process. `code`: FFmpeg's, or 0. */
void video_stop(video_fault fault, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));
/* To descriptor 1, all of it; the process ends when nobody reads any more. */
void video_write(const void *data, size_t n);

/* Opens descriptor 0 from its beginning: MP4, MOV, Matroska and WebM; H.264, H.265, VP8, VP9, AV1 and MPEG-4. Frames of
 * more than `pixels` are not decoded. What cannot be is a VIDEO_ERROR. input_close() ends it. */
void input_open(video_input *in, int64_t pixels);
void input_close(video_input *in);
/* The next packet of the stream, in in->packet; false: there are no more. */
bool input_next(video_input *in);
/* The file has ended: is much missing of the time that it names? */
bool input_is_cut(const video_input *in);

#endif
