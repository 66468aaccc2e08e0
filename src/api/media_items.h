/* api/media_items.h: files to the items of a chat: a picture's one, a video's one a piece. */
#ifndef API_MEDIA_ITEMS_H
#define API_MEDIA_ITEMS_H
#include "api/pictures.h"

/* What the file shows is added to p; after an error what it added may be there. Errors as in chat_pictures_add(). */
status media_items_of_picture(chat_pictures *p, const buf *file, const picture_rules *rules, err *e);
status media_items_of_video(chat_pictures *p, const buf *file, const picture_rules *rules, err *e);

#endif
