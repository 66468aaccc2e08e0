#include "server/kv/kv_send.h"
#include "base/log.h"
#include "server/kv/kv_wire.h"
#include "server/server_internal.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Longest sleep between two looks at whether the other server is there; how often it is told that this one is. */
static const f64 STREAM_LOOK_S = 0.25, BEAT_S = 1;

/* A prompt that is computed for somebody, and its pages' way into streams. */
typedef struct kv_source {
    server *s;
    gen_request r;
    job *j;
    char ticket[KV_TICKET_MOST];
    struct kv_source *after; /* the sender's list, under its lock */
    int streams;             /* under the sender's lock */
    /* under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool looking;       /* a stream waits for the job's events, for all */
    i64 next, n, ready; /* pages: to be sent next, all, that can be read */
    const sched_kv *kv;
    bool failed, full; /* full: for want of room, before it was begun */
    api_error why;
} kv_source;

typedef struct {
    kv_source *of;
    kv_mover *mover; /* NULL: it has sent none yet */
    int fd;
    u64 lent; /* bytes of the mover's page that follow what was pulled */
    f64 told_s;
} kv_stream;

/* ---- What is under way ---- */

void kv_sender_open(kv_sender *k) {
    *k = (kv_sender){.n = 0};
    pthread_mutex_init(&k->lock, NULL);
}

void kv_sender_close(kv_sender *k) {
    while (k->n) kv_mover_close(k->free[--k->n]);
    pthread_mutex_destroy(&k->lock);
}

static status take_mover(server *s, kv_mover **out, err *e) {
    kv_sender *k = &s->sender;
    pthread_mutex_lock(&k->lock);
    *out = k->n ? k->free[--k->n] : NULL;
    pthread_mutex_unlock(&k->lock);
    return *out ? ST_OK : kv_mover_open(out, s->engine, e);
}

static void give_mover(server *s, kv_mover *m) {
    kv_sender *k = &s->sender;
    if (!m) return;
    pthread_mutex_lock(&k->lock);
    const bool room = k->n < (int)COUNT_OF(k->free);
    if (room) k->free[k->n++] = m;
    pthread_mutex_unlock(&k->lock);
    if (!room) kv_mover_close(m);
}

static void source_free(kv_source *k) {
    job_release(k->j);
    gen_request_free(&k->r);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static kv_source *source_new(server *s) {
    kv_source *k = calloc(1, sizeof *k);
    pthread_condattr_t attr;
    if (!k) return NULL;
    k->s = s;
    k->streams = 1;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->changed, &attr);
    pthread_condattr_destroy(&attr);
    return k;
}

static void source_list(kv_source *k) {
    kv_sender *all = &k->s->sender;
    pthread_mutex_lock(&all->lock);
    k->after = all->sources;
    all->sources = k;
    pthread_mutex_unlock(&all->lock);
}

static kv_source *source_find(server *s, const char *ticket) {
    pthread_mutex_lock(&s->sender.lock);
    kv_source *k = s->sender.sources;
    while (k && strcmp(k->ticket, ticket)) k = k->after;
    if (k) k->streams++;
    pthread_mutex_unlock(&s->sender.lock);
    return k;
}

/* A stream less; with the last one the prompt is nobody's. */
static void source_leave(kv_source *k) {
    kv_sender *all = &k->s->sender;
    pthread_mutex_lock(&all->lock);
    const bool last = !--k->streams;
    kv_source **at = &all->sources;
    while (last && *at && *at != k) at = &(*at)->after;
    if (last && *at) *at = k->after;
    pthread_mutex_unlock(&all->lock);
    if (last) source_free(k);
}

/* ---- A stream ---- */

static void stream_done(void *ud) {
    kv_stream *k = ud;
    give_mover(k->of->s, k->mover);
    source_leave(k->of);
    free(k);
}

static void put_end(buf *out, kv_record_kind kind, const char *text) {
    const size_t n = strlen(text);
    kv_record_put(out, kind, 0, text, n < KV_TEXT_MOST ? n : KV_TEXT_MOST);
}

static void put_error(buf *out, const char *text) { put_end(out, KV_RECORD_ERROR, text); }

static void send_page(kv_stream *k, i64 number, i32 page, buf *out) {
    err e = {0};
    if (!k->mover && take_mover(k->of->s, &k->mover, &e) != ST_OK) return put_error(out, e.text);
    if (kv_mover_read(k->mover, page, &e) != ST_OK) return put_error(out, e.text);
    k->lent = engine_kv_page_bytes(k->of->s->engine);
    kv_record_head(out, KV_RECORD_PAGE, (u64)number, kv_mover_page(k->mover), k->lent);
}

/* http_reply.lend: the page behind its head. */
static size_t stream_lend(void *ud, const void **data) {
    kv_stream *k = ud;
    const size_t n = k->lent;
    *data = n ? kv_mover_page(k->mover) : NULL;
    k->lent = 0;
    return n;
}

/* Waits for what becomes of the prompt; one stream does, the others wait for that one. With the lock. */
static void source_look(kv_source *k) {
    const job_events *q;
    api_error e = {0};
    struct timespec until;
    if (k->looking) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += (long)(STREAM_LOOK_S * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&k->changed, &k->lock, &until);
        return;
    }
    k->looking = true;
    pthread_mutex_unlock(&k->lock);
    bool ok = job_take(k->j, STREAM_LOOK_S, &q, &e);
    const job_end end = job_end_of(k->j, 0);
    pthread_mutex_lock(&k->lock);
    k->looking = false;
    k->kv = job_kv(k->j, &k->ready);
    if (ok && end.ended && k->ready < k->n) ok = api_fail_finish(&e, end.finish, &end.error);
    if (!ok) k->failed = true, k->why = e;
    k->full = end.ended && !end.started && (end.finish == SCHED_DISPLACED || end.finish == SCHED_TIMEOUT);
    pthread_cond_broadcast(&k->changed);
}

typedef enum { NEXT_PAGE, NEXT_NOTHING, NEXT_END, NEXT_FAILED } next_kind;

/* The page that this stream sends next. */
static next_kind next_page(kv_source *k, i64 *number, i32 *page) {
    pthread_mutex_lock(&k->lock);
    if (k->next >= k->ready && k->next < k->n && !k->failed) source_look(k);
    next_kind kind = k->next < k->ready ? NEXT_PAGE
                     : k->next == k->n  ? NEXT_END
                     : k->failed        ? NEXT_FAILED
                                        : NEXT_NOTHING;
    if (kind == NEXT_PAGE) {
        *number = k->next++;
        *page = k->kv->pages[*number];
    }
    pthread_mutex_unlock(&k->lock);
    return kind;
}

/* Nobody is told to wait for an engine that does nothing any more. */
static bool engine_hangs(const server *s, buf *out) {
    sched_stats st;
    err e = {0};
    scheduler_stats(s->sched, &st);
    if (st.since_step_s <= s->o.watchdog_s) return false;
    err_set(&e, ST_LIMIT, "no step has ended for %.0f s (--watchdog-timeout)", st.since_step_s);
    put_error(out, e.text);
    return true;
}

static bool stream_pull(void *ud, buf *out) {
    kv_stream *k = ud;
    i64 number = 0;
    i32 page = 0;
    for (;;) {
        if (http_peer_gone(k->fd)) return false;
        switch (next_page(k->of, &number, &page)) {
        case NEXT_PAGE: return send_page(k, number, page, out), k->lent > 0;
        case NEXT_END: return kv_record_put(out, KV_RECORD_END, 0, NULL, 0), false;
        case NEXT_FAILED:
            return put_end(out, k->of->full ? KV_RECORD_FULL : KV_RECORD_ERROR, k->of->why.text.text), false;
        case NEXT_NOTHING: break;
        }
        if (now_s() - k->told_s < BEAT_S) continue;
        k->told_s = now_s();
        if (engine_hangs(k->of->s, out)) return false;
        return kv_record_put(out, KV_RECORD_WAIT, 0, NULL, 0), true;
    }
}

/* ---- From the request to the stream ---- */

static bool same_layout(const server *s, const json_t *body, api_error *e) {
    const char *theirs = NULL;
    err why = {0};
    if (!field_str(body, "layout", &theirs, e)) return false;
    if (!theirs) return api_fail(e, 400, NULL, "layout", "layout: missing");
    return engine_kv_compare(s->kv_layout, theirs, &why) == ST_OK ||
           api_fail(e, 409, "kv_layout", "layout", "%s", why.text);
}

static bool read_space(const json_t *body, u64 *out, api_error *e) {
    const char *text = NULL;
    if (!field_str(body, "cache_space", &text, e)) return false;
    if (!text) return true;
    *out = strtoull(text, NULL, 16);
    return (*text && strspn(text, "0123456789abcdef") == strlen(text) && strlen(text) <= 16) ||
           api_fail(e, 400, NULL, "cache_space", "cache_space: not a hexadecimal number");
}

static bool read_request(kv_source *k, http_request *q, api_error *e) {
    gen_request *r = &k->r;
    const json_t *ids = NULL;
    r->kind = API_GENERATE;
    r->n = r->max_new = 1;
    r->kv_only = true;
    r->sampling = sampling_default();
    r->prompt_field = "ids";
    r->body = body_object(q, e);
    if (!r->body || !same_layout(k->s, r->body, e)) return false;
    if (!field_array(r->body, "ids", (size_t)k->s->model.context, &ids, e)) return false;
    if (!ids) return api_fail(e, 400, NULL, "ids", "ids: missing");
    if (!field_i64(r->body, "from", 0, INT32_MAX, &r->kv_from, e) || !read_space(r->body, &r->cache_space, e) ||
        !field_i64(r->body, "priority", INT64_MIN, INT64_MAX, &r->priority, e))
        return false;
    const i64 vocab = engine_config(k->s->engine)->vocab;
    if (!request_prompts(r, 1, e) || !field_ids(ids, "ids", vocab, &r->prompts[0], e)) return false;
    k->next = r->kv_from;
    k->n = ceil_div((i64)r->prompts[0].len - 1, KV_PAGE);
    return true;
}

/* A prompt to be computed; NULL: *e. */
static kv_source *source_open(server *s, http_request *q, api_error *e) {
    kv_source *k = source_new(s);
    if (!k) return api_nomem(e), NULL;
    make_id("kv-", k->ticket, sizeof k->ticket);
    if (read_request(k, q, e) &&
        job_submit(&k->j, s->jobs, s->sched, &k->r, &s->model, k->ticket, s->o.request_timeout_s, e))
        return source_list(k), k;
    source_free(k);
    return NULL;
}

static void answer_layout(const server *s, http_reply *r) {
    r->status = 200;
    buf_str(&r->body, "{\"layout\":");
    buf_json_str(&r->body, s->kv_layout, strlen(s->kv_layout));
    buf_fmt(&r->body, ",\"role\":\"prefill\",\"page_bytes\":%llu}",
            (unsigned long long)engine_kv_page_bytes(s->engine));
}

void route_kv_pages(server *s, http_request *q, http_reply *r) {
    api_error e = {0};
    const char *ticket = http_query(q, "transfer");
    const bool get = strcmp(q->method, "POST") != 0;
    if (get && !ticket) return answer_layout(s, r);
    kv_stream *k = calloc(1, sizeof *k);
    if (!k) return api_nomem(&e), reply_error(s, r, &e);
    k->fd = q->fd;
    k->of = get ? source_find(s, ticket) : source_open(s, q, &e);
    if (!k->of && !e.http) api_fail(&e, 404, NULL, "transfer", "there is no transfer %.80s, or no more", ticket);
    if (e.http) {
        free(k);
        return reply_error(s, r, &e);
    }
    memcpy(r->request_id, k->of->ticket, sizeof k->of->ticket);
    r->status = 200;
    r->type = "application/octet-stream";
    r->pull = stream_pull;
    r->lend = stream_lend;
    r->done = stream_done;
    r->ud = k;
}
