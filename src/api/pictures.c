#include "api/pictures.h"
#include "api/media_items.h"
#include "base/base64.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- So many at a time ---- */

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t left;
    int places;
} turnstile;
static turnstile picture_decoders = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 2},
                 video_decoders = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 2},
                 fetchers = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 8};

static bool nobody_wants(const picture_rules *rules) { return rules->gone && rules->gone(rules->ud); }

/* Waits for a place; false: there is nobody any more who wants it. */
static bool turnstile_enter(turnstile *t, const picture_rules *rules) {
    enum { LOOK_NS = 200000000 };
    pthread_mutex_lock(&t->lock);
    bool wanted = !nobody_wants(rules);
    while (wanted && !t->places) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&t->left, &t->lock, &until);
        wanted = !nobody_wants(rules);
    }
    t->places -= wanted;
    pthread_mutex_unlock(&t->lock);
    return wanted;
}

static void turnstile_leave(turnstile *t) {
    pthread_mutex_lock(&t->lock);
    t->places++;
    pthread_cond_signal(&t->left);
    pthread_mutex_unlock(&t->lock);
}

/* ---- From a URL to an item ---- */

/* The bytes behind data:[TYPE][;PARAMETER..];base64,DATA. Moonshot's own example has a blank behind the comma. */
static status bytes_of_url(chat_media kind, const char *url, size_t len, buf *out, err *e) {
    const char *comma = memchr(url, ',', len < 256 ? len : 256), *name = kind == CHAT_VIDEO ? "video" : "picture",
               *type = kind == CHAT_VIDEO ? "video/" : "image/";
    if (len < 5 || strncasecmp(url, "data:", 5))
        return err_set(e, ST_UNSUPPORTED,
                       "%ss come as data: URIs (data:%s;base64,...); others are not fetched, unless a server allows "
                       "their hosts",
                       name, kind == CHAT_VIDEO ? "video/mp4" : "image/png");
    if (!comma || comma - url < 12 || strncasecmp(comma - 7, ";base64", 7))
        return err_set(e, ST_INPUT, "a data: URI begins with its type and \";base64,\"");
    if (url[5] != ';' && strncasecmp(url + 5, type, 6) && strncasecmp(url + 5, "application/octet-stream;", 25))
        return err_set(e, ST_INPUT, "a %s's type is %s..., not %.*s", name, type, (int)strcspn(url + 5, ";,"), url + 5);
    buf text = {0};
    const char *at = comma + 1, *end = url + len;
    bool blank = false;
    for (const char *p = at; p < end && !blank; p++) blank = strchr(" \t\r\n", *p) && *p;
    for (const char *p = at; blank && p < end; p++)
        if (!strchr(" \t\r\n", *p) || !*p) buf_char(&text, *p);
    if (blank) at = text.data ? text.data : "", end = at + text.len;
    const bool good = !text.failed && base64_decode(out, at, (size_t)(end - at));
    const bool room = !text.failed && !out->failed;
    buf_free(&text);
    if (!room) return err_nomem(e, "a file's bytes", len);
    if (!good) return err_set(e, ST_INPUT, "what follows \";base64,\" is not base64");
    return out->len ? ST_OK : err_set(e, ST_INPUT, "the %s is empty", name);
}

status chat_pictures_add(chat_pictures *p, chat_media kind, const char *url, size_t len, const picture_rules *rules,
                         err *e) {
    buf file = {0};
    if (p->shown == rules->most)
        return err_set(e, ST_LIMIT, "more than %lld pictures and videos in one request", (long long)rules->most);
    const bool remote = rules->remote && strlen(url) == len && remote_is_url(url);
    turnstile *t = kind == CHAT_VIDEO ? &video_decoders : &picture_decoders;
    /* until the file is decoded: as many are in memory */
    if (remote && !turnstile_enter(&fetchers, rules)) return err_set(e, ST_CANCELLED, "the client has gone");
    status st = remote ? remote_fetch(url, rules->remote, &file, e) : bytes_of_url(kind, url, len, &file, e);
    if (st == ST_OK && !turnstile_enter(t, rules))
        st = err_set(e, ST_CANCELLED, "the client has gone");
    else if (st == ST_OK) {
        st = kind == CHAT_VIDEO ? media_items_of_video(p, &file, rules, e) : media_items_of_picture(p, &file, rules, e);
        turnstile_leave(t);
    }
    buf_free(&file);
    if (remote) turnstile_leave(&fetchers);
    if (st == ST_OK) p->shown++;
    return st;
}

void chat_pictures_free(chat_pictures *p) {
    for (i64 i = 0; i < p->n; i++) media_item_release(p->of[i].item);
    for (size_t i = 0; i < p->n_videos; i++) free(p->videos[i].stamps);
    free(p->videos);
    free(p->of);
    *p = (chat_pictures){0};
}

/* ---- From messages to ids ---- */

chat_media chat_media_of(const json_t *part, const json_t **url, err *e) {
    static const struct {
        const char *type;
        chat_media kind;
    } types[] = {
        {"image_url", CHAT_PICTURE}, {"image", CHAT_PICTURE}, {"video_url", CHAT_VIDEO}, {"video", CHAT_VIDEO}};
    const char *type = json_string_value(json_object_get(part, "type"));
    size_t i = 0;
    *e = (err){0};
    while (i < COUNT_OF(types) && (!type || strcmp(type, types[i].type))) i++;
    if (i == COUNT_OF(types)) return CHAT_NO_MEDIA;
    const json_t *v = json_object_get(part, type);
    *url = json_is_object(v) ? json_object_get(v, "url") : v;
    if (json_is_string(*url)) return types[i].kind;
    err_set(e, ST_INPUT, "%s.url: expected a string, got %s", type, json_type_text(*url));
    return CHAT_NO_MEDIA;
}

status chat_pictures_read(chat_pictures *p, const json_t *messages, const picture_rules *rules, err *e) {
    size_t i, k;
    json_t *message, *part;
    json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, part) {
        const json_t *url;
        const chat_media kind = chat_media_of(part, &url, e);
        status st = e->code;
        if (kind) st = chat_pictures_add(p, kind, json_string_value(url), json_string_length(url), rules, e);
        if (st == ST_OK) continue;
        const char *place = rules->placed ? json_string_value(json_object_get(part, "place")) : NULL;
        if (place)
            snprintf(p->place, sizeof p->place, "%s", place);
        else
            snprintf(p->place, sizeof p->place, "messages[%zu].content[%zu]", i, k);
        return err_prefix(e, "%s", p->place);
    }
    return ST_OK;
}

status chat_pictures_place(chat_pictures *p, ids_buf *ids, i32 pad, err *e) {
    ids_buf out = {0};
    i64 n = 0;
    for (size_t i = 0; i < ids->len; i++) {
        const bool picture = ids->data[i] == pad;
        if (picture && n < p->n) p->of[n].first = (i64)out.len;
        for (i64 k = picture && n < p->n ? media_item_tokens(p->of[n].item) : 1; k > 0; k--)
            ids_add(&out, ids->data[i]);
        n += picture;
    }
    status st = out.failed ? err_nomem(e, "token ids", out.len * sizeof(i32)) : ST_OK;
    if (st == ST_OK && n != p->n)
        st = err_set(e, ST_INPUT, "%lld pictures for %lld placeholders in the prompt", (long long)p->n, (long long)n);
    if (st != ST_OK) return ids_free(&out), st;
    ids_free(ids);
    *ids = out;
    return ST_OK;
}
