#include "api/media_items.h"
#include "kernels/team.h"
#include "media/grid.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)PATCH_MERGE == (int)VISION_MERGE, "a token's patches");
_Static_assert((int)PATCH_SIDE == (int)VISION_PATCH, "a patch's pixels");
_Static_assert((int)CHAT_STAMP == (int)VIDEO_STAMP, "hh:mm:ss.fff");

enum { PICTURE_THREADS = 4 };

static u64 patches_bytes(const media_patches *m) { return (u64)m->frames * m->grid.rows * m->grid.cols * PATCH_BYTES; }

static status too_many_tokens(i64 n, const picture_rules *rules, err *e) {
    return err_set(e, ST_LIMIT, "the chat's pictures have %lld tokens, %lld are left for them", (long long)n,
                   (long long)rules->tokens);
}

static status too_many_bytes(const picture_rules *rules, err *e) {
    return err_set(e, ST_LIMIT, "the pictures take more memory than the %llu MiB that one request may have",
                   (unsigned long long)(rules->bytes >> 20));
}

/* hold: how many bytes more must be asked for. */
static status keep(chat_pictures *p, const media_patches *m, u64 hold, const picture_rules *rules, err *e) {
    const vision_input in = {(i32)m->frames, (i32)m->grid.rows, (i32)m->grid.cols, m->patches};
    const u64 bytes = patches_bytes(m);
    if (p->tokens + vision_tokens(&in) > rules->tokens)
        return too_many_tokens(p->tokens + vision_tokens(&in), rules, e);
    if (rules->bytes && p->bytes + bytes > rules->bytes) return too_many_bytes(rules, e);
    if (hold && rules->hold && !rules->hold(rules->ud, hold)) return err_nomem(e, "a picture", bytes);
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

status media_items_of_picture(chat_pictures *p, const buf *file, const picture_rules *rules, err *e) {
    picture all = {0};
    media_patches m = {0};
    const grid_limits limits = GRID_PICTURE;
    status st = picture_decode(file->data, file->len, &rules->file, &all, e);
    if (st == ST_OK) st = media_patches_make(&all, 1, &limits, PICTURE_THREADS, &m, e);
    team_dismiss(); /* else they are there as long as the connection */
    picture_free(&all);
    if (st == ST_OK) st = keep(p, &m, patches_bytes(&m), rules, e);
    media_patches_free(&m);
    return st;
}

/* ---- Videos ---- */

typedef struct {
    chat_pictures *p;
    const picture_rules *rules;
    i64 first, tokens; /* what p had before */
    u64 bytes;
    u64 kept, held; /* of this video: bytes of its pieces, and how many of them rules->hold has been asked for */
    chat_video *video;
} video_items;

/* Room for the video's pieces, and what they take is known before a frame is decoded. */
static status begin_items(void *ud, const video_info *v, err *e) {
    video_items *w = ud;
    chat_pictures *p = w->p;
    const u64 pieces = video_pieces(v);
    for (; p->n > w->first; p->n--) media_item_release(p->of[p->n - 1].item); /* of a beginning that did not count */
    p->tokens = w->tokens, p->bytes = w->bytes, w->kept = 0;
    if (pieces > INT32_MAX || p->tokens + (i64)pieces * v->grid.tokens > w->rules->tokens)
        return too_many_tokens(p->tokens + (i64)pieces * v->grid.tokens, w->rules, e);
    if (w->rules->bytes && p->bytes + v->chosen * v->grid.rows * v->grid.cols * PATCH_BYTES > w->rules->bytes)
        return too_many_bytes(w->rules, e);
    free(w->video->stamps);
    *w->video = (chat_video){.stamps = calloc(pieces, sizeof *w->video->stamps)};
    return w->video->stamps ? ST_OK : err_nomem(e, "a video's pieces", pieces * sizeof *w->video->stamps);
}

static bool unwanted(void *ud) {
    const picture_rules *rules = ((const video_items *)ud)->rules;
    return rules->gone && rules->gone(rules->ud);
}

static status keep_piece(void *ud, const char *at, const media_patches *m, err *e) {
    video_items *w = ud;
    w->kept += patches_bytes(m);
    const u64 more = w->kept > w->held ? w->kept - w->held : 0; /* a video that began anew has asked for some */
    w->held += more;
    snprintf(w->video->stamps[w->video->n++], CHAT_STAMP, "%s", at);
    return keep(w->p, m, more, w->rules, e);
}

status media_items_of_video(chat_pictures *p, const buf *file, const picture_rules *rules, err *e) {
    chat_video *grown = realloc(p->videos, (p->n_videos + 1) * sizeof *grown);
    if (!grown) return err_nomem(e, "a chat's videos", (p->n_videos + 1) * sizeof *grown);
    p->videos = grown;
    p->videos[p->n_videos] = (chat_video){0};
    video_items w = {.p = p,
                     .rules = rules,
                     .first = p->n,
                     .tokens = p->tokens,
                     .bytes = p->bytes,
                     .video = &p->videos[p->n_videos++]};
    const video_sink sink = {begin_items, keep_piece, unwanted, &w};
    const status st = video_decode(file->data, file->len, &rules->video, &sink, e);
    team_dismiss();
    return st;
}
