#include "server/status/probe.h"
#include "base/log.h"
#include "server/server_internal.h"

static const f64 PATIENCE_S = 20, LOOK_S = 0.05, SHARED_S = 1;
/* A place that is free is taken within this time. */
static const f64 ARRIVING_S = 0.5;

void probe_open(probe *p) {
    *p = (probe){0};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->ended, NULL);
}

void probe_close(probe *p) {
    pthread_cond_destroy(&p->ended);
    pthread_mutex_destroy(&p->lock);
}

/* Grows with every row of a step that ended well. */
static i64 rows_computed(const server *s) {
    sched_stats st;
    scheduler_stats(s->sched, &st);
    return st.prefilled_tokens + st.generated_tokens;
}

/* All that has a place waits for what another server computes: no token is possible, be it for want of a place or of
 * pages, and the engine looks for work. */
static bool all_arrive(const server *s) {
    enum { LOOKS_S = 1 };
    sched_stats st;
    scheduler_stats(s->sched, &st);
    return st.running > 0 && st.arriving == st.running && st.since_step_s < LOOKS_S;
}

/* Waits for j's token, or for anybody's progress beyond `before`. */
static bool wait_for_token(const server *s, job *j, i64 before, api_error *e) {
    const f64 patience = s->o.watchdog_s > 0 && s->o.watchdog_s < PATIENCE_S ? s->o.watchdog_s : PATIENCE_S;
    const f64 began = now_s();
    while (now_s() < began + patience) {
        const job_events *events;
        if (!job_take(j, LOOK_S, &events, e)) return false;
        for (i64 i = 0; i < events->n; i++)
            if (events->ev[i].kind == SCHED_TOKEN) return true;
        const job_end end = job_end_of(j, 0);
        if (end.ended) return api_fail_finish(e, end.finish, &end.error);
        if (rows_computed(s) > before || (now_s() > began + ARRIVING_S && all_arrive(s))) return true;
    }
    return api_fail(e, 503, NULL, NULL, "no token within %g seconds", patience);
}

static bool probe_look(server *s, api_error *e) {
    i32 id = 0;
    ids_buf prompt = {.data = &id, .len = 1};
    job *j = NULL;
    const gen_request one = {.kind = API_GENERATE,
                             .prompts = &prompt,
                             .n_prompts = 1,
                             .n = 1,
                             .sampling = sampling_default(),
                             .max_new = 1,
                             .probe = true,
                             .prompt_field = "prompt"};
    i64 before = rows_computed(s);
    bool works =
        job_submit(&j, s->jobs, s->sched, &one, &s->model, "health", PATIENCE_S, e) && wait_for_token(s, j, before, e);
    job_release(j);
    if (!works) e->http = 503;
    return works;
}

/* With the lock held, which is let go while the engine is asked. */
static void run_probe(server *s, probe *p) {
    api_error why = {0};
    p->running = true;
    pthread_mutex_unlock(&p->lock);
    bool works = probe_look(s, &why);
    pthread_mutex_lock(&p->lock);
    p->running = false;
    p->works = works;
    p->why = why;
    p->ended_s = now_s();
    p->rounds++;
    pthread_cond_broadcast(&p->ended);
}

bool probe_ask(server *s, api_error *e) {
    probe *p = &s->probe;
    pthread_mutex_lock(&p->lock);
    const u64 round = p->rounds;
    bool fresh = round && now_s() - p->ended_s < SHARED_S;
    if (!fresh && !p->running) run_probe(s, p);
    while (!fresh && p->rounds == round) pthread_cond_wait(&p->ended, &p->lock);
    bool works = p->works;
    *e = p->why;
    pthread_mutex_unlock(&p->lock);
    return works;
}

void route_health_generate(server *s, http_request *q, http_reply *r) {
    api_error e;
    (void)q;
    if (!probe_ask(s, &e)) {
        reply_error(s, r, &e);
        return;
    }
    r->status = 200;
    buf_str(&r->body, "{\"status\":\"ok\"}");
}
