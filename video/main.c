/* video/main.c: moonlet-video: the frames of a video that the model sees, out of a process of their own.
 *
 * FFmpeg's libraries read what strangers send, in more formats than anybody has looked through, so they run here:
 * without files, sockets and programs (confine.h), with limits on memory and time, one process a video. What is said to
 * whom: media/video_pipe.h.
 *
 * The colours of a frame are those of FFmpeg's own scaler without options: of the frame's matrix (BT.601 where the file
 * names none) and range. What a file says of rotation, aspect of pixels and high dynamic range is not applied, nor is
 * the timing of frames: the rule of choice counts frames, at the stream's average rate. */
#include "video/confine.h"
#include "video/show.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 5) {
        fputs(
            "moonlet-video MIB SECONDS PIXELS PARENT < FILE: decodes a video for moonlet, which starts it (docs/guide/pictures.md)\n",
            stderr);
        return 2;
    }
    video_show s = {.pixels = atoll(argv[3])};
    av_log_set_level(AV_LOG_QUIET);
    const char *kept = confine(atol(argv[1]), atol(argv[2]), atol(argv[4]));
    if (kept) video_stop(VIDEO_BAD, 0, "moonlet-video cannot limit %s", kept);
    show_video(&s);
    return 0;
}
