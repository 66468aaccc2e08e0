#include "server/status/dashboard.h"
#include "base/log.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 181, MINUTE = 60 };

typedef struct {
    f64 at; /* now_s() */
    sched_stats s;
} sample;

struct dashboard {
    scheduler *sched;
    metrics *metrics;
    pthread_t thread;
    bool runs, stop;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    i64 n; /* samples ever taken; number k (from 0) is ring[k % SAMPLES] */
    sample ring[SAMPLES];
    latencies minute;
};

static void live_take(dashboard *l) {
    sample now;
    latencies minute;
    scheduler_stats(l->sched, &now.s);
    now.at = now_s();
    metrics_minute(l->metrics, now.at, &minute);
    pthread_mutex_lock(&l->lock);
    l->ring[l->n++ % SAMPLES] = now;
    l->minute = minute;
    pthread_mutex_unlock(&l->lock);
}

static void *once_a_second(void *ud) {
    dashboard *l = ud;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        next.tv_sec++;
        while (!l->stop && !pthread_cond_timedwait(&l->stopped, &l->lock, &next)) {}
        if (l->stop) break;
        pthread_mutex_unlock(&l->lock);
        live_take(l);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

status dashboard_open(dashboard **out, scheduler *s, metrics *m, err *e) {
    dashboard *l = *out = calloc(1, sizeof *l);
    pthread_condattr_t attr;
    if (!l) return err_nomem(e, "the live view", sizeof *l);
    l->sched = s;
    l->metrics = m;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->stopped, &attr);
    pthread_condattr_destroy(&attr);
    live_take(l);
    const status st = thread_start(&l->thread, "live-view", once_a_second, l, e);
    l->runs = st == ST_OK;
    return st;
}

void dashboard_close(dashboard *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->stopped);
    pthread_mutex_unlock(&l->lock);
    if (l->runs) pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->stopped);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- JSON ---- */

static void live_key_i64(buf *b, const char *key, i64 v) { buf_fmt(b, "\"%s\":%lld,", key, (long long)v); }

static void key_quantiles(buf *b, const char *key, const quantiles *q) {
    buf_fmt(b, "\"%s\":{\"n\":%lld,\"p50\":%.6f,\"p90\":%.6f,\"p99\":%.6f},", key, (long long)q->n, q->p50, q->p90,
            q->p99);
}

static void write_now(buf *b, const sched_stats *s) {
    buf_str(b, "\"now\":{");
    live_key_i64(b, "running", s->running);
    live_key_i64(b, "prefilling", s->prefilling);
    live_key_i64(b, "queued", s->queued);
    live_key_i64(b, "queued_tokens", s->queued_tokens);
    live_key_i64(b, "pages_used", s->pages_used);
    live_key_i64(b, "pages_cached", s->pages_cached);
    live_key_i64(b, "pages_free", s->pages_free);
    buf_fmt(b, "\"since_step_s\":%.3f},", s->since_step_s);
}

static void key_drafts(buf *b, i64 rounds, i64 proposed, i64 accepted) {
    live_key_i64(b, "draft_rounds", rounds);
    live_key_i64(b, "draft_tokens", proposed);
    live_key_i64(b, "draft_tokens_accepted", accepted);
}

static void write_minute(buf *b, const sample *from, const sample *to, const latencies *m) {
    const sched_stats *a = &from->s, *z = &to->s;
    i64 steps = z->steps - a->steps, ended = 0;
    f64 past = to->at - from->at, busy = z->busy_s - a->busy_s;
    for (int i = 0; i <= SCHED_ERROR; i++) ended += z->ended[i] - a->ended[i];
    buf_fmt(b, "\"minute\":{\"seconds\":%.3f,", past);
    key_quantiles(b, "ttft_s", &m->ttft);
    key_quantiles(b, "itl_s", &m->itl);
    live_key_i64(b, "requests", ended);
    live_key_i64(b, "prompt_tokens", z->prompt_tokens - a->prompt_tokens);
    live_key_i64(b, "cached_tokens", z->cached_tokens - a->cached_tokens);
    live_key_i64(b, "generated_tokens", z->generated_tokens - a->generated_tokens);
    live_key_i64(b, "preemptions", z->preemptions - a->preemptions);
    key_drafts(b, z->draft_rounds - a->draft_rounds, z->draft_tokens - a->draft_tokens, z->draft_true - a->draft_true);
    live_key_i64(b, "steps", steps);
    buf_fmt(b, "\"step_s\":%.6f,\"rows_per_step\":%.2f,\"busy\":%.4f},", steps ? busy / (f64)steps : 0,
            steps ? (f64)(z->generated_tokens + z->prefilled_tokens - a->generated_tokens - a->prefilled_tokens) /
                        (f64)steps
                  : 0,
            past > 0 ? busy / past : 0);
}

static void write_total(buf *b, const sched_stats *s) {
    i64 ended = 0;
    for (int i = 0; i <= SCHED_ERROR; i++) ended += s->ended[i];
    buf_str(b, "\"total\":{");
    live_key_i64(b, "accepted", s->accepted);
    live_key_i64(b, "refused", s->refused);
    live_key_i64(b, "ended", ended);
    live_key_i64(b, "aborted", s->ended[SCHED_ABORT]);
    live_key_i64(b, "preemptions", s->preemptions);
    live_key_i64(b, "prompt_tokens", s->prompt_tokens);
    live_key_i64(b, "cached_tokens", s->cached_tokens);
    live_key_i64(b, "generated_tokens", s->generated_tokens);
    key_drafts(b, s->draft_rounds, s->draft_tokens, s->draft_true);
    buf_fmt(b, "\"steps\":%lld},", (long long)s->steps);
}

typedef f64 (*series)(const sample *before, const sample *now);

static f64 past(const sample *a, const sample *z) { return z->at > a->at ? z->at - a->at : 1; }
static f64 prompt_rate(const sample *a, const sample *z) {
    return (f64)(z->s.prefilled_tokens - a->s.prefilled_tokens) / past(a, z);
}
static f64 output_rate(const sample *a, const sample *z) {
    return (f64)(z->s.generated_tokens - a->s.generated_tokens) / past(a, z);
}
static f64 running(const sample *a, const sample *z) { return (void)a, (f64)z->s.running; }
static f64 queued(const sample *a, const sample *z) { return (void)a, (f64)z->s.queued; }

static void write_series(buf *b, const dashboard *l, const char *key, i64 from, series f) {
    buf_fmt(b, ",\"%s\":[", key);
    for (i64 k = from; k < l->n; k++)
        buf_fmt(b, "%s%.6g", k > from ? "," : "", f(&l->ring[(k - 1) % SAMPLES], &l->ring[k % SAMPLES]));
    buf_char(b, ']');
}

void dashboard_write(dashboard *l, i64 since, buf *b) {
    pthread_mutex_lock(&l->lock);
    const i64 oldest = l->n > SAMPLES ? l->n - SAMPLES : 0, last = l->n - 1;
    const i64 from = max_i64(since < 0 || since > last ? 0 : since, oldest) + 1;
    const sample *now = &l->ring[last % SAMPLES], *before = &l->ring[max_i64(oldest, last - MINUTE) % SAMPLES];
    write_now(b, &now->s);
    write_minute(b, before, now, &l->minute);
    write_total(b, &now->s);
    buf_fmt(b, "\"history\":{\"period_s\":1,\"last\":%lld", (long long)last);
    write_series(b, l, "prompt_per_s", from, prompt_rate);
    write_series(b, l, "output_per_s", from, output_rate);
    write_series(b, l, "running", from, running);
    write_series(b, l, "queued", from, queued);
    buf_char(b, '}');
    pthread_mutex_unlock(&l->lock);
}
