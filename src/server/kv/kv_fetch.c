#include "server/kv/kv_fetch.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/kv/kv_pull.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HELPERS = KV_CONNECTIONS_EACH - 1, /* further connections of a transfer: one alone brings 2 GB/s */
    PAGES_A_HELPER = 8                 /* that are wanted for each of them */
};
typedef enum { PAGE_LACKS, PAGE_COMES, PAGE_THERE } page_state;

/* A prompt's pages on their way from one server; what changes is under the fetcher's lock. */
typedef struct {
    kv_fetcher *f;
    const sched_kv *kv;
    u64 been;      /* servers that it has been to */
    bool too_long; /* for one of them */
    status st;     /* of the last one */
    err told;
    kv_peer *at;
    u8 *there;      /* [kv->n]: page_state */
    f64 full_since; /* when a server was first busy without saying that its queue is full; 0: lately none was */
    i64 brought;    /* pages that came from this server */
    int helpers;    /* threads that help, or have been asked to */
    bool stopped;   /* the one that asked for it has ended */
    err why;        /* of the first helper that failed */
    char help_url[KV_URL_MOST + 64 + KV_TICKET_MOST];
} transfer;

/* What waits for a thread: a prompt, or a transfer that wants help. */
typedef struct work {
    const sched_kv *kv; /* NULL: help */
    transfer *begun;    /* of a prompt that has let another go ahead */
    transfer *help;
    struct work *next;
} work;

typedef struct {
    work *head;
    pthread_cond_t wake;
} work_queue;

/* A thread and what it pulls with. */
typedef struct {
    kv_fetcher *f;
    bool helps; /* else it begins transfers */
    pthread_t thread;
    kv_puller puller;
} fetcher_hand;

struct kv_fetcher {
    kv_fetch_options o;
    const curl_api *c;
    struct curl_slist *headers;
    scheduler *s;
    kv_peers peers;
    fetcher_hand *hands; /* [n_hands] */
    int n_hands, n_threads;
    pthread_mutex_t lock;
    work_queue prompts, help;
    pthread_cond_t helped; /* a helper has ended */
    bool closing;
};

/* ---- A transfer ---- */

static bool transfer_wanted(void *ud) {
    transfer *t = ud;
    pthread_mutex_lock(&t->f->lock);
    const bool goes_on = !t->f->closing && !t->stopped;
    pthread_mutex_unlock(&t->f->lock);
    return goes_on && scheduler_kv_wanted(t->f->s, t->kv);
}

static status place_page(void *ud, u64 number, i32 *page, err *e) {
    transfer *t = ud;
    if (number < (u64)t->kv->from || number >= (u64)t->kv->n)
        return err_set(e, ST_FORMAT, "page %llu came, which is not wanted: %lld to %lld are",
                       (unsigned long long)number, (long long)t->kv->from, (long long)t->kv->n - 1);
    pthread_mutex_lock(&t->f->lock);
    const bool first = t->there[number] == PAGE_LACKS;
    if (first) t->there[number] = PAGE_COMES;
    pthread_mutex_unlock(&t->f->lock);
    if (!first) return err_set(e, ST_FORMAT, "page %llu came twice", (unsigned long long)number);
    *page = t->kv->pages[number];
    return ST_OK;
}

static void page_written(void *ud, u64 number) {
    transfer *t = ud;
    pthread_mutex_lock(&t->f->lock);
    t->there[number] = PAGE_THERE;
    t->brought++;
    pthread_mutex_unlock(&t->f->lock);
    kv_peers_brought(&t->f->peers, t->at, (i64)engine_kv_page_bytes(t->f->o.g));
}

static i64 work_priority(const work *w) { return w->kv ? w->kv->priority : 0; }

/* Behind those of the same priority. */
static void put_work(work_queue *q, work *w) {
    work **at = &q->head;
    while (*at && work_priority(*at) >= work_priority(w)) at = &(*at)->next;
    w->next = *at;
    *at = w;
    pthread_cond_signal(&q->wake);
}

/* The server has told by which id others can ask for a share of its pages: they do. Without memory it goes alone. */
static void call_helpers(void *ud, const char *ticket) {
    transfer *t = ud;
    const i64 most = min_i64(HELPERS, (t->kv->n - t->kv->from) / PAGES_A_HELPER);
    snprintf(t->help_url, sizeof t->help_url, "%s?transfer=%s", t->at->url, ticket);
    for (i64 i = 0; i < most; i++) {
        work *w = malloc(sizeof *w);
        if (!w) return;
        *w = (work){.help = t};
        pthread_mutex_lock(&t->f->lock);
        const bool closing = t->f->closing; /* who helps may have ended */
        if (!closing) t->helpers++, put_work(&t->f->help, w);
        pthread_mutex_unlock(&t->f->lock);
        if (closing) return free(w);
    }
}

static kv_question transfer_question(transfer *t) {
    return (kv_question){.url = t->at->url,
                         .headers = t->f->headers,
                         .pages = true,
                         .silence_s = t->f->o.silence_s,
                         .wanted = transfer_wanted,
                         .place = place_page,
                         .written = page_written,
                         .ud = t};
}

/* A helper's failure is the transfer's if pages lack because of it. */
static void help(kv_puller *p, transfer *t) {
    err e = {0};
    long code;
    kv_question q = transfer_question(t);
    q.url = t->help_url;
    if (transfer_wanted(t)) kv_puller_ask(p, &q, &code, &e);
    pthread_mutex_lock(&t->f->lock);
    if (t->why.code == ST_OK && e.code != ST_CANCELLED) t->why = e;
    t->helpers--;
    pthread_cond_broadcast(&t->f->helped);
    pthread_mutex_unlock(&t->f->lock);
}

static void write_body(const transfer *t, i64 from, buf *b) {
    buf_str(b, "{\"layout\":");
    buf_json_str(b, t->f->o.layout, strlen(t->f->o.layout));
    buf_fmt(b, ",\"from\":%lld,\"cache_space\":\"%llx\",\"priority\":%lld,\"ids\":[", (long long)from,
            (unsigned long long)t->kv->cache_space, (long long)t->kv->priority);
    for (i64 i = 0; i <= t->kv->rows; i++) buf_fmt(b, i ? ",%d" : "%d", t->kv->ids[i]);
    buf_str(b, "]}");
}

/* The first page that lacks. */
static i64 first_missing(const transfer *t) {
    i64 p = t->kv->from;
    while (p < t->kv->n && t->there[p] == PAGE_THERE) p++;
    return p;
}

/* Its helpers have ended behind it: nobody writes any more. stop: they are not to bring the rest. */
static void wait_for_helpers(transfer *t, bool stop) {
    pthread_mutex_lock(&t->f->lock);
    t->stopped = stop;
    while (t->helpers) pthread_cond_wait(&t->f->helped, &t->f->lock);
    t->stopped = false;
    pthread_mutex_unlock(&t->f->lock);
}

/* What was the matter is in the log, with the server's name in front. */
static status blame(const transfer *t, i64 from, err *e) {
    err_prefix(e, "prefill server %s, %lld of %lld pages", t->at->name, (long long)t->brought,
               (long long)(t->kv->n - from));
    log_warn("%s", e->text);
    return e->code = ST_PEER;
}

/* A full queue is waited for as long as it is one; what else had no room, a server or a proxy, for silence_s. */
static bool goes_on_asking(transfer *t, bool full) {
    if (full || t->full_since <= 0) t->full_since = full ? 0 : now_s();
    return full || now_s() - t->full_since < t->f->o.silence_s;
}

/* ST_LIMIT: it takes no such prompt; that is not its fault. *busy, with ST_PEER: it takes none now. */
static status fetch_from(kv_puller *p, transfer *t, bool *busy, err *e) {
    const f64 began = now_s();
    const i64 from = first_missing(t);
    buf body = {0};
    long code = 0;
    kv_question q = transfer_question(t);
    q.body = &body;
    q.begins = call_helpers;
    for (i64 i = from; i < t->kv->n; i++) t->there[i] = PAGE_LACKS; /* all behind it are asked for again */
    t->brought = 0;
    t->why = (err){0};
    write_body(t, from, &body);
    status st = body.failed ? err_nomem(e, "a prompt", body.len) : kv_puller_ask(p, &q, &code, e);
    buf_free(&body);
    wait_for_helpers(t, st != ST_OK);
    const bool lack = first_missing(t) < t->kv->n, late = !lack && (st == ST_PEER || st == ST_FORMAT);
    if (late) log_warn("prefill server %s, behind the last page: %s", t->at->name, e->text);
    if (late) st = ST_OK;
    if (st == ST_OK && lack) st = err_set(e, ST_PEER, "%s", t->why.code == ST_OK ? "some were not sent" : t->why.text);
    const bool refused = code == 400, failed = !refused && (st == ST_PEER || st == ST_FORMAT);
    *busy = failed && p->busy && goes_on_asking(t, p->full);
    kv_peers_leave(&t->f->peers, t->at, began,
                   st == ST_OK && !late ? KV_PEER_GOOD
                   : *busy              ? KV_PEER_BUSY
                   : failed || late     ? KV_PEER_FAILED
                                        : KV_PEER_BLAMELESS);
    if (refused) {
        log_note("prefill server %s does not take a prompt of %lld tokens: %s", t->at->name, (long long)t->kv->rows,
                 e->text);
        return ST_LIMIT;
    }
    if (*busy) return err_prefix(e, "prefill server %s", t->at->name);
    return failed ? blame(t, from, e) : st; /* else it is not the server's fault */
}

/* A server that has no room is asked again soon, as if the prompt stood in its queue. Did it have to be waited for? */
static bool wait_while_busy(transfer *t) {
    static const f64 LOOK_S = 0.05;
    bool waited = false;
    for (; kv_peers_busy_s(&t->f->peers, t->at) > 0 && transfer_wanted(t); waited = true)
        nanosleep(&(struct timespec){.tv_nsec = (long)(LOOK_S * 1e9)}, NULL);
    return waited;
}

/* Does a prompt of higher priority wait for a thread? */
static bool is_overtaken(const transfer *t) {
    pthread_mutex_lock(&t->f->lock);
    const work *first = t->f->prompts.head;
    const bool yes = first && work_priority(first) > t->kv->priority;
    pthread_mutex_unlock(&t->f->lock);
    return yes;
}

/* False: it lets another go ahead, and is to be called again. */
static bool fetch_prompt(kv_puller *p, transfer *t) {
    kv_peers *all = &t->f->peers;
    while ((t->st == ST_PEER || t->st == ST_LIMIT) && transfer_wanted(t) && (t->at = kv_peers_choose(all, t->been))) {
        bool busy = false;
        if (wait_while_busy(t) && is_overtaken(t)) return kv_peers_leave(all, t->at, now_s(), KV_PEER_NOT_ASKED), false;
        t->st = fetch_from(p, t, &busy, &t->told);
        if (!busy) t->been |= (u64)1 << (t->at - all->of);
        t->too_long = t->too_long || t->st == ST_LIMIT;
    }
    return true;
}

static transfer *begin_transfer(kv_fetcher *f, const sched_kv *kv) {
    transfer *t = calloc(1, sizeof *t + (size_t)kv->n);
    if (!t) return NULL;
    t->f = f;
    t->kv = kv;
    t->there = (u8 *)(t + 1);
    t->st = err_set(&t->told, ST_PEER, "its transfer has not begun: the server is shutting down");
    return t;
}

/* What one does not take, and no other brings, is computed here. */
static void end_transfer(transfer *t) {
    const bool good = t->st == ST_OK || (t->too_long && t->st != ST_CANCELLED);
    scheduler_kv_done(t->f->s, t->kv, first_missing(t), good ? NULL : &t->told);
    free(t);
}

/* ---- Threads ---- */

/* NULL: the fetcher closes. Prompts that wait by then are taken all the same: each is given back. */
static work *next_work(kv_fetcher *f, work_queue *q) {
    pthread_mutex_lock(&f->lock);
    while (!q->head && !f->closing) pthread_cond_wait(&q->wake, &f->lock);
    work *w = q->head;
    if (w) q->head = w->next;
    pthread_mutex_unlock(&f->lock);
    return w;
}

/* w is used up. */
static void work_on_prompt(kv_fetcher *f, kv_puller *p, work *w) {
    transfer *t = w->begun ? w->begun : begin_transfer(f, w->kv);
    err e = {0};
    if (!t) {
        err_nomem(&e, "a transfer of KV pages", sizeof *t + (u64)w->kv->n);
        scheduler_kv_done(f->s, w->kv, w->kv->from, &e);
    } else if (fetch_prompt(p, t)) {
        end_transfer(t);
    } else {
        w->begun = t;
        pthread_mutex_lock(&f->lock);
        put_work(&f->prompts, w);
        pthread_mutex_unlock(&f->lock);
        return;
    }
    free(w);
}

static void *fetcher_thread(void *ud) {
    fetcher_hand *h = ud;
    for (work *w; (w = next_work(h->f, h->helps ? &h->f->help : &h->f->prompts));) {
        if (w->help)
            help(&h->puller, w->help), free(w);
        else
            work_on_prompt(h->f, &h->puller, w);
    }
    return NULL;
}

void kv_fetcher_drop(kv_fetcher *f, const sched_kv *kv) {
    pthread_mutex_lock(&f->lock);
    work **at = &f->prompts.head;
    while (*at && (*at)->kv != kv) at = &(*at)->next;
    work *w = *at;
    if (w) *at = w->next;
    pthread_mutex_unlock(&f->lock);
    if (w) scheduler_kv_done(f->s, kv, w->begun ? first_missing(w->begun) : kv->from, NULL);
    if (w) free(w->begun);
    free(w);
}

void kv_fetcher_add(kv_fetcher *f, const sched_kv *kv) {
    work *w = malloc(sizeof *w);
    err e = {0};
    if (!w) {
        err_nomem(&e, "a transfer of KV pages", sizeof *w);
        return scheduler_kv_done(f->s, kv, kv->from, &e);
    }
    *w = (work){.kv = kv};
    pthread_mutex_lock(&f->lock);
    const bool closing = f->closing;
    if (!closing) put_work(&f->prompts, w);
    pthread_mutex_unlock(&f->lock);
    if (!closing) return;
    free(w);
    err_set(&e, ST_PEER, "the server is shutting down");
    scheduler_kv_done(f->s, kv, kv->from, &e);
}

status kv_fetcher_start(kv_fetcher *f, scheduler *s, err *e) {
    const int n = f->o.n * KV_TRANSFERS_EACH * KV_CONNECTIONS_EACH;
    status st = ST_OK;
    f->s = s;
    f->hands = calloc((size_t)n, sizeof *f->hands);
    if (!f->hands) return err_nomem(e, "fetching KV pages", (u64)n * sizeof *f->hands);
    for (; st == ST_OK && f->n_hands < n; f->n_hands++) {
        f->hands[f->n_hands] = (fetcher_hand){.f = f, .helps = f->n_hands % KV_CONNECTIONS_EACH};
        st = kv_puller_open(&f->hands[f->n_hands].puller, f->c, f->o.g, e);
    }
    while (st == ST_OK && f->n_threads < n) {
        fetcher_hand *h = &f->hands[f->n_threads];
        st = thread_start(&h->thread, "kv-fetch", fetcher_thread, h, e);
        f->n_threads += st == ST_OK;
    }
    return st;
}

/* ---- Open and close ---- */

/* Do pages of the server mean the same? ST_PEER: it does not answer. */
static status compare(kv_fetcher *f, kv_puller *p, const kv_peer *at, err *e) {
    long code;
    const kv_question q = {.url = at->url, .headers = f->headers, .silence_s = f->o.silence_s};
    status st = kv_puller_ask(p, &q, &code, e);
    if (code == 404) { /* a Moonlet's, or of something between that does not know it yet, or any more */
        const bool own = strstr(e->text, "there is no /kv_pages here") != NULL;
        return own ? err_set(e, ST_INPUT, "it hands out no KV pages: start it with --role prefill") : ST_PEER;
    }
    if (st != ST_OK) return code >= 300 && code < 500 && code != 429 ? e->code = ST_INPUT : st;
    json_t *v = json_parse(p->answer.data ? p->answer.data : "", p->answer.len, "its answer", e);
    const char *layout = json_string_value(json_object_get(v, "layout"));
    if (!layout)
        st = err_set(e, ST_INPUT, "its /kv_pages is not Moonlet's");
    else
        st = engine_kv_compare(f->o.layout, layout, e);
    json_decref(v);
    return st;
}

static status compare_all(kv_fetcher *f, err *e) {
    kv_puller p;
    status st = kv_puller_open(&p, f->c, f->o.g, e);
    for (int i = 0; st == ST_OK && i < f->o.n; i++) {
        const kv_peer *at = &f->peers.of[i];
        st = compare(f, &p, at, e);
        if (st == ST_OK) continue;
        err_prefix(e, "prefill server %s", at->name);
        if (st != ST_PEER) break;
        log_note("%s; prompts wait for it", e->text);
        st = ST_OK;
    }
    kv_puller_close(&p);
    return st;
}

static bool make_headers(kv_fetcher *f) {
    buf key = {0};
    struct curl_slist *l = f->c->slist_append(NULL, "Content-Type: application/json"), *more = l;
    if (l) more = f->c->slist_append(l, "Expect:");
    if (more && f->o.api_key) {
        buf_fmt(&key, "Authorization: Bearer %s", f->o.api_key);
        more = key.failed ? NULL : f->c->slist_append(l, key.data);
    }
    buf_free(&key);
    f->headers = l;
    return more != NULL;
}

status kv_fetcher_open(kv_fetcher **out, const kv_fetch_options *o, err *e) {
    kv_fetcher *f = *out = calloc(1, sizeof *f);
    if (!f) return err_nomem(e, "fetching KV pages", sizeof *f);
    f->o = *o;
    pthread_cond_init(&f->prompts.wake, NULL);
    pthread_cond_init(&f->help.wake, NULL);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->helped, NULL);
    status st = curl_api_open(&f->c, e);
    if (st == ST_OK) st = kv_peers_open(&f->peers, o->urls, o->n, &o->own, f->c, e);
    if (st == ST_OK && !make_headers(f)) st = err_nomem(e, "fetching KV pages", 0);
    if (st == ST_OK) st = compare_all(f, e);
    if (st == ST_OK) return ST_OK;
    kv_fetcher_free(f);
    *out = NULL;
    return st;
}

/* Helpers that nobody was told of leave with what they had: whoever waits for them is woken. */
void kv_fetcher_close(kv_fetcher *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->prompts.wake);
    pthread_cond_broadcast(&f->help.wake);
    pthread_mutex_unlock(&f->lock);
    while (f->n_threads) pthread_join(f->hands[--f->n_threads].thread, NULL);
}

void kv_fetcher_free(kv_fetcher *f) {
    if (!f) return;
    kv_fetcher_close(f);
    while (f->n_hands) kv_puller_close(&f->hands[--f->n_hands].puller);
    free(f->hands);
    if (f->headers) f->c->slist_free_all(f->headers);
    pthread_cond_destroy(&f->prompts.wake);
    pthread_cond_destroy(&f->help.wake);
    pthread_cond_destroy(&f->helped);
    pthread_mutex_destroy(&f->lock);
    kv_peers_close(&f->peers);
    free(f);
}

int kv_fetcher_peers(const kv_fetcher *f) { return f->peers.n; }

kv_peer_stats kv_fetcher_peer(kv_fetcher *f, int i, const char **url) {
    *url = f->peers.of[i].name;
    return kv_peers_stats(&f->peers, i);
}
