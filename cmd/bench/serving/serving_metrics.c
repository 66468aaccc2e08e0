#include "cmd/bench/serving/serving_metrics.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

static status retokenize(const workload *w, serving_metrics *m, err *e) {
    status st = ST_OK;
    m->retokenized = 0;
    for (i64 i = 0; i < w->n && st == ST_OK; i++) {
        const client_answer *a = &w->items[i].a;
        ids_buf ids = {0};
        if (a->ok) st = tokenizer_encode(w->tok, a->text.data ? a->text.data : "", a->text.len, false, &ids, e);
        m->retokenized += (i64)ids.len;
        ids_free(&ids);
    }
    return st;
}

/* Largest counts in seconds of the run. */
static status find_peaks(const workload *w, const load_result *r, serving_metrics *m, err *e) {
    i64 n = (i64)(r->end_s - r->start_s) + 1;
    f64 *tokens = calloc((size_t)n * 2, sizeof *tokens), *requests = tokens + n;
    if (!tokens) return err_nomem(e, "the peaks", (u64)n * 16);
    for (i64 i = 0; i < w->n; i++) {
        const client_answer *a = &w->items[i].a;
        if (!a->ok) continue;
        i64 from = (i64)(a->start_s - r->start_s), to = (i64)(a->end_s - r->start_s);
        for (i64 s = max_i64(from, 0); s <= to && s < n; s++) requests[s]++;
        f64 t = a->first_s - r->start_s;
        for (i64 k = -1; a->first_s && k < a->gaps.n; k++) {
            if (k >= 0) t += a->gaps.data[k];
            i64 s = (i64)t;
            if (s >= 0 && s < n) tokens[s]++;
        }
    }
    for (i64 s = 0; s < n; s++) {
        m->peak_output = fmax(m->peak_output, tokens[s]);
        m->peak_requests = fmax(m->peak_requests, requests[s]);
    }
    free(tokens);
    return ST_OK;
}

typedef struct {
    f64_list e2e, ttft, tpot, itl;
} samples;

static void metrics_add_answer(const load_item *it, serving_metrics *m, samples *s) {
    const client_answer *a = &it->a;
    f64 e2e = 1e3 * (a->end_s - a->start_s), ttft = 1e3 * (a->first_s - a->start_s);
    m->completed++;
    m->input_tokens += it->input_tokens;
    m->output_tokens += a->output_tokens;
    m->uncounted += !a->counted;
    m->concurrency += e2e / 1e3;
    if (m->server_input_tokens >= 0)
        m->server_input_tokens = a->prompt_tokens < 0 ? -1 : m->server_input_tokens + a->prompt_tokens;
    if (m->cached_tokens >= 0) m->cached_tokens = a->cached_tokens < 0 ? -1 : m->cached_tokens + a->cached_tokens;
    f64_add(&s->e2e, e2e);
    if (!m->streamed || !a->first_s) return;
    f64_add(&s->ttft, ttft);
    if (a->output_tokens > 1) f64_add(&s->tpot, (e2e - ttft) / (f64)(a->output_tokens - 1));
    for (i64 k = 0; k < a->gaps.n; k++) f64_add(&s->itl, 1e3 * a->gaps.data[k]);
}

status serving_measure(const workload *w, const load_result *r, bool streamed, bool again, serving_metrics *m, err *e) {
    *m = (serving_metrics){
        .duration_s = r->end_s - r->start_s, .retokenized = -1, .streamed = streamed, .accept_length = NAN};
    samples s = {0};
    for (i64 i = 0; i < w->n; i++) {
        if (w->items[i].a.ok)
            metrics_add_answer(&w->items[i], m, &s);
        else
            m->failed++;
    }
    bool bad = s.e2e.failed || s.ttft.failed || s.tpot.failed || s.itl.failed;
    m->e2e = summarize(&s.e2e);
    m->ttft = summarize(&s.ttft);
    m->tpot = summarize(&s.tpot);
    m->itl = summarize(&s.itl);
    f64_list_free(&s.e2e);
    f64_list_free(&s.ttft);
    f64_list_free(&s.tpot);
    f64_list_free(&s.itl);
    if (bad) return err_nomem(e, "the measurements", 0);
    m->request_rate = (f64)m->completed / m->duration_s;
    m->input_rate = (f64)m->input_tokens / m->duration_s;
    m->output_rate = (f64)m->output_tokens / m->duration_s;
    m->total_rate = m->input_rate + m->output_rate;
    m->concurrency /= m->duration_s;
    m->client_cpu = r->cpu_s / m->duration_s;
    status st = find_peaks(w, r, m, e);
    return st == ST_OK && again ? retokenize(w, m, e) : st;
}

f64 accept_length_of(const json_t *info) {
    const json_t *decode = json_array_get(json_object_get(info, "decode"), 0);
    const json_t *states = json_object_get(decode ? decode : info, "internal_states");
    const json_t *v = json_object_get(json_array_get(states, 0), "avg_spec_accept_length");
    f64 x = json_is_number(v) ? json_number_value(v) : NAN;
    if (isnan(x) || (x >= 0 && x <= ACCEPT_LENGTH_MOST)) return x;
    log_warn("the server's avg_spec_accept_length is no number from 0 to %d: it is left out", ACCEPT_LENGTH_MOST);
    return NAN;
}
