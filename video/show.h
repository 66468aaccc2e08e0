/* video/show.h: a video's frames, those that the model sees, to descriptor 1 (media/video_pipe.h). */
#ifndef VIDEO_SHOW_H
#define VIDEO_SHOW_H
#include "video/input.h"

/* All zero but for `pixels`. */
typedef struct {
    int64_t pixels;                /* of a frame, at most */
    uint64_t frames, chosen, next; /* of the video; how many are shown; how many have been */
    double rate;
    int width, height; /* of the first frame; 0: it has not come */
    video_input in;
    AVFrame *frame;
    struct SwsContext *colours;
    enum AVPixelFormat format; /* what `colours` reads */
    uint8_t *rgb;              /* a frame, converted */
    int pitch;                 /* bytes a row where it is converted */
} video_show;

/* Reads descriptor 0 and writes all records; what cannot be shown ends in video_stop(). */
void show_video(video_show *s);
/* Frees what it holds, also where it was stopped in the middle. */
void show_end(video_show *s);

#endif
