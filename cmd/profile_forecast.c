#include "cmd/profile_forecast.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include "runtime/ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINKS_MOST = 1 << 20 /* bytes of a table */, PROMPTS = 3, EMPTY_CALLS = 200 };

int forecast_loads_parse(forecast_load loads[FORECAST_LOADS], const char *const *texts, int n, err *e) {
    static const forecast_load published[] = {{10240, 512, 2}, {10240, 512, 40}, {8192, 1024, 4}, {8192, 1024, 64}};
    if (!n) return memcpy(loads, published, sizeof published), (int)COUNT_OF(published);
    for (int i = 0; i < n; i++) {
        long long in, out, at_a_time;
        int used = 0;
        if (i == FORECAST_LOADS) return err_set(e, ST_INPUT, "--workload: at most %d", FORECAST_LOADS), 0;
        if (sscanf(texts[i], "%lld,%lld,%lld%n", &in, &out, &at_a_time, &used) != 3 || texts[i][used] || in < 1 ||
            in > 1 << 20 || out < 1 || out > 1 << 20 || at_a_time < 1 || at_a_time > 4096)
            return err_set(e, ST_INPUT,
                           "--workload %.60s is not IN,OUT,N: tokens of a prompt and of its answer, and "
                           "requests at a time",
                           texts[i]),
                   0;
        loads[i] = (forecast_load){in, out, at_a_time};
    }
    return n;
}

forecast_load forecast_largest(const forecast_load *loads, int n) {
    forecast_load most = {0};
    for (int i = 0; i < n; i++)
        most = (forecast_load){max_i64(most.in, loads[i].in), max_i64(most.out, loads[i].in + loads[i].out),
                               max_i64(most.at_a_time, loads[i].at_a_time)};
    return most;
}

status forecast_ranks(const char *text, i64 *ranks, err *e) {
    char *end = NULL;
    *ranks = strncmp(text, "tp", 2) ? 0 : strtoll(text + 2, &end, 10);
    if (!end || *end || *ranks < 2 || *ranks > COMM_RANKS_MAX)
        return err_set(e, ST_INPUT, "--forecast %.40s is not tp2 to tp%d", text, COMM_RANKS_MAX);
    return ST_OK;
}

/* ---- what the links take ---- */

status link_table_parse(link_table *t, const char *text, const char *name, i64 gpus, err *e) {
    i64 number = 1;
    *t = (link_table){0};
    for (const char *at = text; *at; number++) {
        const char *next = strchr(at, '\n');
        const size_t length = next ? (size_t)(next - at) : strlen(at);
        char line[128];
        long long of, rows;
        f64 us;
        int used = 0;
        snprintf(line, sizeof line, "%.*s", (int)min_i64((i64)length, sizeof line - 1), at);
        at = next ? next + 1 : at + length;
        if (!line[0] || line[0] == '#' || !strcmp(line, "gpus,rows,us")) continue;
        if (sscanf(line, "%lld,%lld,%lf%n", &of, &rows, &us, &used) != 3 || line[used] || of < 2 || rows < 1 ||
            !(us > 0 && us < 1e9))
            return err_set(e, ST_FORMAT, "%s:%lld: \"%.60s\" is not gpus,rows,us", name, (long long)number, line);
        if (of != gpus) continue;
        if (t->n == LINK_LINES || (t->n && rows <= t->rows[t->n - 1]))
            return err_set(e, ST_FORMAT, "%s:%lld: at most %d lines for %lld GPUs, their rows ascending", name,
                           (long long)number, LINK_LINES, of);
        t->rows[t->n] = rows, t->us[t->n++] = us;
    }
    return t->n ? ST_OK : err_set(e, ST_FORMAT, "%s has no line for %lld GPUs", name, (long long)gpus);
}

f64 link_us(const link_table *t, f64 rows) {
    i64 i = 1;
    if (rows <= (f64)t->rows[0] || t->n == 1) return t->us[0] * (rows > (f64)t->rows[0] ? rows / (f64)t->rows[0] : 1);
    while (i + 1 < t->n && rows > (f64)t->rows[i]) i++;
    const f64 slope = (t->us[i] - t->us[i - 1]) / (f64)(t->rows[i] - t->rows[i - 1]);
    return t->us[i - 1] + slope * (rows - (f64)t->rows[i - 1]);
}

static status read_links(const forecast_options *o, const char *chip, link_table *t, err *e) {
    char there[4096], file[96] = "links/";
    const char *path = o->links ? o->links : there;
    buf text = {0};
    tuned_file_name(file + strlen(file), sizeof file - strlen(file), chip);
    status st = o->links ? ST_OK : path_join(there, sizeof there, tuned_place(), file, e);
    if (st == ST_OK) st = file_read(path, LINKS_MOST, &text, e);
    if (st != ST_OK) return err_prefix(e, "--links");
    buf_char(&text, 0);
    st = text.failed ? err_nomem(e, "a table", text.len) : link_table_parse(t, text.data, path, o->ranks, e);
    buf_free(&text);
    if (st == ST_OK) printf("what sums over %lld GPUs take: %s\n", (long long)o->ranks, path);
    return st;
}

/* ---- what the host takes ---- */

static status do_nothing(rank *k, void *ud, err *e) {
    (void)k, (void)ud, (void)e;
    return ST_OK;
}

/* Seconds in which the threads of n ranks are told to queue a step and to collect one, and have done nothing. */
static status time_threads(i64 n, f64 *seconds, err *e) {
    const model_config c = {.n_heads = n, .inter_dense = n, .inter_expert = n, .vocab = n, .ranks = 1};
    ranks r;
    status st = ranks_open(&r, &c, n, false, COMM_DEADLINE_S, e);
    f64 began = now_s();
    for (int i = 0; st == ST_OK && i < 2 * EMPTY_CALLS; i++) st = ranks_each(&r, do_nothing, NULL, e);
    *seconds = (now_s() - began) / EMPTY_CALLS;
    ranks_close(&r);
    return st;
}

/* ---- measured steps, and what follows from them ---- */

/* What `sums` sums of n rows take more between GPUs than this rank's took with itself. */
static status more_for_links(const link_table *t, step_timer *m, i64 n, i64 dim, i64 sums, f64 *more, err *e) {
    f64 itself;
    status st = step_timer_sum(m, n, &itself, e);
    const f64 us = link_us(t, (f64)n * (f64)dim / LINK_DIM);
    *more = (f64)sums * fmax(us * 1e-6 - itself, 0);
    if (st == ST_OK)
        printf("a sum of %5lld rows: %7.1f us between GPUs, %6.1f us with itself\n", (long long)n, us, itself * 1e6);
    return st;
}

static status median_step(const forecast_options *o, step_timer *m, const forecast_load *w, f64 *seconds, err *e) {
    f64 *all = calloc((size_t)o->steps, sizeof *all);
    status st = all ? ST_OK : err_nomem(e, "times", (u64)o->steps * 8);
    for (int i = 0; st == ST_OK && i < 3; i++) st = step_timer_decode(m, w->at_a_time, w->in + w->out / 2, seconds, e);
    for (i64 i = 0; st == ST_OK && i < o->steps; i++)
        st = step_timer_decode(m, w->at_a_time, w->in + w->out / 2, &all[i], e);
    if (st == ST_OK) qsort(all, (size_t)o->steps, sizeof *all, f64_ascending), *seconds = all[o->steps / 2];
    free(all);
    return st;
}

static status median_prompt(step_timer *m, i64 n, f64 *seconds, err *e) {
    f64 all[PROMPTS + 1];
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i <= PROMPTS; i++) st = step_timer_prompt(m, 0, 0, n, &all[i], e);
    qsort(all + 1, PROMPTS, sizeof *all, f64_ascending); /* behind a first one, to warm up */
    *seconds = all[1 + PROMPTS / 2];
    return st;
}

forecast_result forecast_of(const forecast_load *w, const forecast_times *t) {
    const f64 all = (f64)w->at_a_time, out = (f64)w->out;
    return (forecast_result){.ttft_s = t->prompt + t->step,
                             .tpot_s = t->step + (all - 1) * t->prompt / out,
                             .tokens_per_s = all * out / (all * t->prompt + out * t->step)};
}

static void print_forecast(const forecast_options *o, const forecast_load *w, const forecast_times *own,
                           const forecast_times *t, const char *plan) {
    const forecast_result r = forecast_of(w, t);
    printf("%5lld in, %4lld out, %2lld at a time: prompt %6.1f ms (%5.1f of them links), step %6.2f ms (%5.2f): "
           "TTFT %6.1f ms, TPOT %6.2f ms, %5.0f output tok/s\n",
           (long long)w->in, (long long)w->out, (long long)w->at_a_time, t->prompt * 1e3,
           (t->prompt - own->prompt) * 1e3, t->step * 1e3, (t->step - own->step) * 1e3, r.ttft_s * 1e3, r.tpot_s * 1e3,
           r.tokens_per_s);
    fflush(stdout);
    if (!o->json) return;
    fprintf(o->json,
            "{\"profile\":\"forecast\",\"ranks\":%lld,\"input\":%lld,\"output\":%lld,\"at_a_time\":%lld,"
            "\"prompt_ms\":%.4f,\"prompt_own_ms\":%.4f,\"step_ms\":%.4f,\"step_own_ms\":%.4f,\"ttft_ms\":%.4f,"
            "\"tpot_ms\":%.4f,\"output_tokens_per_s\":%.2f,\"plan\":\"%s\"}\n",
            (long long)o->ranks, (long long)w->in, (long long)w->out, (long long)w->at_a_time, t->prompt * 1e3,
            own->prompt * 1e3, t->step * 1e3, own->step * 1e3, r.ttft_s * 1e3, r.tpot_s * 1e3, r.tokens_per_s, plan);
}

status profile_forecast(const forecast_options *o, engine *g, step_timer *m, err *e) {
    const model_config *c = engine_config(g);
    const i64 sums = 2 * c->n_layers + 1; /* of every layer's two halves, and of the embedding */
    link_table t;
    f64 host = 0;
    status st = read_links(o, engine_ops(g)->name, &t, e);
    if (st == ST_OK) st = time_threads(o->ranks, &host, e);
    if (st != ST_OK) return st;
    printf("FORECAST of %lld GPUs, not a run of them: steps of one rank (made-up weights, KV cache of zeros), and what "
           "%lld sums a step take more between GPUs.\nTTFT: nobody is in front. TPOT and output: each request that "
           "ends is followed by another, whose prompt holds up the others.\nThe threads of %lld ranks take %.0f us a "
           "step on this host, beside the GPUs.\n",
           (long long)o->ranks, (long long)sums, (long long)o->ranks, host * 1e6);
    for (int i = 0; st == ST_OK && i < o->n_loads; i++) {
        const forecast_load *w = &o->loads[i];
        forecast_times own, more;
        st = median_prompt(m, w->in, &own.prompt, e);
        if (st == ST_OK) st = median_step(o, m, w, &own.step, e);
        if (st == ST_OK) st = more_for_links(&t, m, w->in, c->hidden, sums, &more.prompt, e);
        if (st == ST_OK) st = more_for_links(&t, m, w->at_a_time, c->hidden, sums, &more.step, e);
        const forecast_times all = {own.prompt + more.prompt, own.step + more.step};
        if (st == ST_OK) print_forecast(o, w, &own, &all, engine_plan(g));
    }
    return st;
}
