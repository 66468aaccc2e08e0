/* media/video.h: videos to pieces of up to four frames, which the vision tower sees as one item each.
 *
 * A program of its own, moonlet-video, decodes them (video/main.c says how): FFmpeg's libraries are many parsers of
 * strangers' bytes, and there a limit on memory is the system's, and a crash is one request's error. It is started once
 * a video. */
#ifndef MEDIA_VIDEO_H
#define MEDIA_VIDEO_H
#include "media/grid.h"

typedef struct {
    const char *decoder; /* path of moonlet-video; NULL: beside this program, else where PATH says */
    u64 pixels;          /* of a frame */
    u32 mib;             /* memory that it may take */
    u32 seconds;         /* processor time of it; what it does not answer in twice that counts as too slow, too */
} video_limits;

#define VIDEO_LIMITS ((video_limits){.pixels = 8192 * 8192 / 2, .mib = 3072, .seconds = 60})

typedef struct {
    u64 frames; /* of the whole video */
    f64 rate;   /* frames a second */
    u64 chosen; /* of them the model sees */
    patch_grid grid;
} video_info;
static inline u64 video_pieces(const video_info *v) { return (v->chosen + CHUNK_FRAMES - 1) / CHUNK_FRAMES; }

/* Who gets the pieces. begin() comes before the first, and may come a second time: then the file's number of frames was
 * not true, and all pieces until then do not count. An error of either ends the decoding. */
typedef struct {
    status (*begin)(void *ud, const video_info *v, err *e);
    /* `at`: when the first frame is shown, "00:00:02.000", as the model's prompt has it */
    status (*piece)(void *ud, const char *at, const media_patches *m, err *e);
    bool (*gone)(void *ud); /* asked a few times a second: does nobody want it any more? NULL: no */
    void *ud;
} video_sink;

/* Decodes the `n` bytes of a file: MP4, MOV, Matroska or WebM. ST_INPUT: damaged, cut or no video; ST_UNSUPPORTED: no
 * moonlet-video, or a codec that it has not; ST_LIMIT;
 * ST_CANCELLED: to->gone. */
status video_decode(const void *data, u64 n, const video_limits *limits, const video_sink *to, err *e);

enum { VIDEO_STAMP = 16 };
/* "hh:mm:ss.fff" of `seconds`, as Moonshot's datetime.utcfromtimestamp() and trunc(fraction * 1000) print it. */
void video_stamp(char out[VIDEO_STAMP], f64 seconds);

#endif
