/* media/decoder_process.h: the process that decodes a video: started, read from, and ended in any case. */
#ifndef MEDIA_DECODER_PROCESS_H
#define MEDIA_DECODER_PROCESS_H
#include "media/video.h"
#include <sys/types.h>

typedef struct {
    pid_t pid; /* 0: none */
    int out, err;
    f64 deadline;           /* now_s() */
    bool (*gone)(void *ud); /* video_sink's */
    void *ud;
    const video_limits *limits;
    char path[1024];
} decoder_process;

/* Starts it with the file as its descriptor 0; decoder_end() ends it, also after a failure. */
status decoder_start(decoder_process *p, const void *file, u64 n, const video_limits *limits, const video_sink *to,
                     err *e);
/* Exactly n bytes of what it writes; else *e says what became of it. ST_CANCELLED: to->gone. */
status decoder_read(decoder_process *p, void *to, u64 n, err *e);
void decoder_end(decoder_process *p);

#endif
