/* api/pictures.h: the pictures and videos of a chat: from the parts of its messages to items of the vision tower, and
 * to the ids that stand for them in the prompt. A picture is one item, a video one for each four frames. */
#ifndef API_PICTURES_H
#define API_PICTURES_H
#include "api/remote_media.h"
#include "base/buf.h"
#include "base/json.h"
#include "media/picture.h"
#include "media/video.h"
#include "runtime/scheduler.h"
#include "text/chat.h"

/* What a chat may ask for. */
typedef struct {
    picture_limits file;              /* each picture */
    video_limits video;               /* each video */
    i64 most;                         /* pictures and videos */
    i64 tokens;                       /* of all together */
    u64 bytes;                        /* of all together; 0: any */
    bool (*hold)(void *ud, u64 more); /* may so many bytes be kept? NULL: yes */
    bool (*gone)(void *ud);           /* asked before each: is there nobody any more who wants them? NULL: no */
    void *ud;
    const remote_rules *remote; /* which hosts pictures are fetched from; NULL: none */
    bool placed; /* the messages were written from another request: parts say where they stood there ("place") */
} picture_rules;

/* Zero-initialise; end with chat_pictures_free(), also after a failure. */
typedef struct {
    sched_media *of; /* [n], in the order in which they were added; held */
    i64 n, cap;
    i64 shown; /* pictures and videos that they are of */
    i64 tokens;
    chat_video *videos; /* [n_videos], for the template */
    size_t n_videos;
    u64 bytes; /* that they take */
    char place[80];
} chat_pictures;
void chat_pictures_free(chat_pictures *p);

typedef enum { CHAT_NO_MEDIA, CHAT_PICTURE, CHAT_VIDEO } chat_media;

/* The picture or video behind `url`: what rules->remote lets be fetched, eight at a time, else a data: URI, whose
 * blanks do not matter; of its type only that it is no other than its kind's, since the file's first bytes say what it
 * is. Errors do not name the place. ST_LIMIT: beyond the rules; ST_CANCELLED: rules->gone.
 *
 * A picture is decoded and resized in the calling thread, and not in a process of its own: the libraries keep limits
 * that are set from its header before memory is taken, and two at a time, so that a crowd of requests takes no more
 * memory than two of them; others wait. A video is (media/video.h), and two at a time as well. */
status chat_pictures_add(chat_pictures *p, chat_media kind, const char *url, size_t len, const picture_rules *rules,
                         err *e);

/* Whether a message's part is a picture or a video, {"type": "image_url", "image_url": {"url": URL} or URL}, or
 * video_url in its place, and its URL; CHAT_NO_MEDIA: it is another part, or *e says what is wrong with it. */
chat_media chat_media_of(const json_t *part, const json_t **url, err *e);

/* All of them that `messages` have, in the order in which the template writes them. An error names the place, which is
 * in p->place too: "messages[1].content[0]", or what the part says under "place" where rules->placed. */
status chat_pictures_read(chat_pictures *p, const json_t *messages, const picture_rules *rules, err *e);

/* Each `pad` among ids becomes as many of them as its item has tokens, whose place is noted. ST_INPUT: there are not
 * as many of them as items. */
status chat_pictures_place(chat_pictures *p, ids_buf *ids, i32 pad, err *e);

#endif
