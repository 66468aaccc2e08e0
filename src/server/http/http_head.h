/* server/http/http_head.h: whether a request's head says without doubt where the request ends.
 *
 * What two readers of the same bytes may understand in two ways (a proxy in front and this server) is how one request
 * is smuggled inside another. Such a request is refused and its connection closed, whatever it asks for. */
#ifndef SERVER_HTTP_HTTP_HEAD_H
#define SERVER_HTTP_HTTP_HEAD_H
#include "base/types.h"

struct MHD_Connection;

typedef struct {
    int status;       /* 400, 501; 0: nothing is wrong */
    const char *text; /* static: what is wrong */
} head_fault;

/* `version` as in the request line, "HTTP/1.1". To be called when the headers are complete. */
head_fault http_head_check(struct MHD_Connection *c, const char *version);

/* Decodes %XX in place, all but %00: what cannot stand in a path stays as it was sent and is found nowhere. The
 * length of the result. */
size_t http_unescape(char *s);

#endif
