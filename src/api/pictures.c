#include "api/pictures.h"
#include "base/base64.h"
#include "media/grid.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

_Static_assert((int)PATCH_MERGE == (int)VISION_MERGE, "a token's patches");
_Static_assert((int)PATCH_SIDE == (int)VISION_PATCH, "a patch's pixels");

/* ---- So many at a time ---- */

enum { PICTURE_THREADS = 4 };
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t left;
    int places;
} turnstile;
static turnstile decoders = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 2},
                 fetchers = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 8};

static void turnstile_enter(turnstile *t) {
    pthread_mutex_lock(&t->lock);
    while (!t->places) pthread_cond_wait(&t->left, &t->lock);
    t->places--;
    pthread_mutex_unlock(&t->lock);
}

static void turnstile_leave(turnstile *t) {
    pthread_mutex_lock(&t->lock);
    t->places++;
    pthread_cond_signal(&t->left);
    pthread_mutex_unlock(&t->lock);
}

/* ---- From a URL to an item ---- */

/* The bytes behind data:[TYPE][;PARAMETER..];base64,DATA. Moonshot's own example has a blank behind the comma. */
static status bytes_of_url(const char *url, size_t len, buf *out, err *e) {
    const char *comma = memchr(url, ',', len < 256 ? len : 256);
    if (len < 5 || strncasecmp(url, "data:", 5))
        return err_set(
            e, ST_UNSUPPORTED,
            "pictures come as data: URIs (data:image/png;base64,...); others are not fetched, unless a server "
            "allows their hosts");
    if (!comma || comma - url < 12 || strncasecmp(comma - 7, ";base64", 7))
        return err_set(e, ST_INPUT, "a data: URI begins with its type and \";base64,\"");
    if (url[5] != ';' && strncasecmp(url + 5, "image/", 6) && strncasecmp(url + 5, "application/octet-stream;", 25))
        return err_set(e, ST_INPUT, "a picture's type is image/..., not %.*s", (int)strcspn(url + 5, ";,"), url + 5);
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
    if (!room) return err_nomem(e, "a picture's bytes", len);
    if (!good) return err_set(e, ST_INPUT, "what follows \";base64,\" is not base64");
    return out->len ? ST_OK : err_set(e, ST_INPUT, "the picture is empty");
}

static status patches_of_file(const buf *file, const picture_rules *rules, media_patches *out, err *e) {
    picture all = {0};
    const grid_limits limits = GRID_PICTURE;
    turnstile_enter(&decoders);
    status st = picture_decode(file->data, file->len, &rules->file, &all, e);
    if (st == ST_OK) st = media_patches_make(&all, 1, &limits, PICTURE_THREADS, out, e);
    picture_free(&all);
    turnstile_leave(&decoders);
    return st;
}

static status keep(chat_pictures *p, const media_patches *m, const picture_rules *rules, err *e) {
    const vision_input in = {(i32)m->frames, (i32)m->grid.rows, (i32)m->grid.cols, m->patches};
    const u64 bytes = (u64)vision_patches(&in) * PATCH_BYTES;
    if (p->tokens + vision_tokens(&in) > rules->tokens)
        return err_set(e, ST_LIMIT, "the chat's pictures have %lld tokens, %lld are left for them",
                       (long long)(p->tokens + vision_tokens(&in)), (long long)rules->tokens);
    if (rules->bytes && p->bytes + bytes > rules->bytes)
        return err_set(e, ST_LIMIT, "the pictures take more memory than the %llu MiB that one request may have",
                       (unsigned long long)(rules->bytes >> 20));
    if (rules->hold && !rules->hold(rules->ud, bytes)) return err_nomem(e, "a picture", bytes);
    if (p->n == p->cap) {
        const i64 cap = p->cap ? 2 * p->cap : 4;
        sched_media *grown = realloc(p->of, (size_t)cap * sizeof *grown);
        if (!grown) return err_nomem(e, "a chat's pictures", (u64)cap * sizeof *grown);
        p->of = grown;
        p->cap = cap;
    }
    media_item *item = media_item_new(&in, PATCH_BYTES);
    if (!item) return err_nomem(e, "a picture", bytes);
    p->of[p->n++] = (sched_media){.item = item};
    p->tokens += vision_tokens(&in);
    p->bytes += bytes;
    return ST_OK;
}

status chat_pictures_add(chat_pictures *p, const char *url, size_t len, const picture_rules *rules, err *e) {
    buf file = {0};
    media_patches m = {0};
    if (p->n == rules->most)
        return err_set(e, ST_LIMIT, "more than %lld pictures in one request", (long long)rules->most);
    if (rules->gone && rules->gone(rules->ud)) return err_set(e, ST_CANCELLED, "the client has gone");
    const bool remote = rules->remote && strlen(url) == len && remote_is_url(url);
    if (remote) turnstile_enter(&fetchers); /* until the file is decoded: as many are in memory */
    status st = remote ? remote_fetch(url, rules->remote, &file, e) : bytes_of_url(url, len, &file, e);
    if (st == ST_OK) st = patches_of_file(&file, rules, &m, e);
    buf_free(&file);
    if (remote) turnstile_leave(&fetchers);
    if (st == ST_OK) st = keep(p, &m, rules, e);
    media_patches_free(&m);
    return st;
}

void chat_pictures_free(chat_pictures *p) {
    for (i64 i = 0; i < p->n; i++) media_item_release(p->of[i].item);
    free(p->of);
    *p = (chat_pictures){0};
}

/* ---- From messages to ids ---- */

const json_t *chat_picture_url(const json_t *part, err *e) {
    const char *type = json_string_value(json_object_get(part, "type"));
    *e = (err){0};
    if (!type || (strcmp(type, "image_url") && strcmp(type, "image"))) return NULL;
    const json_t *v = json_object_get(part, type), *url = json_is_object(v) ? json_object_get(v, "url") : v;
    if (json_is_string(url)) return url;
    err_set(e, ST_INPUT, "%s.url: expected a string, got %s", type, json_type_text(url));
    return NULL;
}

status chat_pictures_read(chat_pictures *p, const json_t *messages, const picture_rules *rules, err *e) {
    size_t i, k;
    json_t *message, *part;
    json_array_foreach(messages, i, message) json_array_foreach(json_object_get(message, "content"), k, part) {
        const json_t *url = chat_picture_url(part, e);
        status st = e->code;
        if (url) st = chat_pictures_add(p, json_string_value(url), json_string_length(url), rules, e);
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
