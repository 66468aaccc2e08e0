/* media/video_pipe.h: what moonlet-video, the program that decodes videos, and Moonlet say to each other.
 *
 *   moonlet-video MIB SECONDS PIXELS PARENT
 *
 * Its limits, and the process with which it ends. Descriptor 0 is the video file, which can be sought in. To descriptor
 * 1 go records, in the order of bytes of the machine that both are on: VIDEO_HEAD, then a VIDEO_FRAME for each chosen
 * frame, followed by its pixels [height, width, 3], then VIDEO_END; or VIDEO_ERROR, which ends it. The number of frames
 * comes from the file's packets; where fewer or more come out of them, another VIDEO_HEAD with the true number says
 * that everything begins anew, once. */
#ifndef MEDIA_VIDEO_PIPE_H
#define MEDIA_VIDEO_PIPE_H
#include <math.h>
#include <stdint.h>

enum { VIDEO_PIPE_VERSION = 1, VIDEO_PIPE_TEXT = 200 };
typedef enum { VIDEO_HEAD = 1, VIDEO_FRAME, VIDEO_END, VIDEO_ERROR } video_record_kind;
typedef enum { VIDEO_BAD = 1, VIDEO_UNKNOWN, VIDEO_TOO_LARGE, VIDEO_NO_MEMORY } video_fault; /* of a VIDEO_ERROR */

typedef struct {
    uint32_t version, kind;
    union {
        struct {
            uint64_t frames; /* of the video */
            double rate;     /* frames a second, on average */
            uint32_t width, height;
        } head;
        uint64_t index; /* of a VIDEO_FRAME, among all frames */
        struct {
            uint32_t fault;
            char text[VIDEO_PIPE_TEXT]; /* one line, terminated */
        } error;
    } of;
} video_record;

/* ---- Which frames the model sees: Moonshot's rule, in double precision ---- */

#define VIDEO_SAMPLE_RATE 2.0 /* frames a second, at most */

/* How many of `frames` (at least 1) at `rate` frames a second: at least 1. */
static inline uint64_t video_chosen(uint64_t frames, double rate) {
    const double wanted = rate < VIDEO_SAMPLE_RATE ? rate : VIDEO_SAMPLE_RATE;
    const double n = nearbyint((double)frames * wanted / rate); /* halves go to the even number, as Python's round() */
    return n < 1 ? 1 : n > (double)frames ? frames : (uint64_t)n;
}

/* The k-th of n chosen frames, k < n: evenly from the first to the last, as numpy.linspace() rounded. */
static inline uint64_t video_frame_at(uint64_t k, uint64_t n, uint64_t frames) {
    if (k + 1 == n && n > 1) return frames - 1;
    return n > 1 ? (uint64_t)nearbyint((double)k * ((double)(frames - 1) / (double)(n - 1))) : 0;
}

#endif
