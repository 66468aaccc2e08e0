#include "cmd/profile/profile_forecast.h"
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

static const f64 HOP_S = 20e-6; /* of a message between hosts, beside its bytes */
static const f64 HTTP_RATE =
    7e9; /* bytes a second, measured on loopback: bench/results/h200/serving/2026-11-28-roles.txt */
enum { LINKS_MOST = 1 << 20 /* bytes of a table */, PROMPTS = 3, EMPTY_CALLS = 200, BATCHES = 5 };

typedef struct {
    const forecast_options *o;
    link_table links;
    i64 batches[BATCHES];
    int n_batches;
    forecast_crossing crossings[BATCHES];
    f64 more[BATCHES]; /* seconds for links in a step of the form at hand */
    i64 kv_ranks;      /* of the form at hand: 1, or all of them that divide the KV cache */
    bool apart;        /* in it ranks attend for sequences of their own */
    engine *g;         /* opened so */
    step_timer *m;
} forecast_run;

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

status forecast_layout_parse(const char *text, forecast_layout *out, err *e) {
    char *end = NULL;
    forecast_layout l = {.ranks = strncmp(text, "tp", 2) ? 0 : strtoll(text + 2, &end, 10), .stages = 1};
    const bool staged = end && !strncmp(end, "pp", 2);
    if (staged) l.stages = strtoll(end + 2, &end, 10);
    l.roles = end && !staged && !strncmp(end, "+tp", 3);
    if (l.roles && strtoll(end + 3, &end, 10) != l.ranks) l.ranks = 0;
    if (!end || *end || l.ranks < 2 || l.ranks > COMM_RANKS_MAX || l.stages < 1 + staged ||
        l.stages > COMM_RANKS_MAX / l.ranks)
        return err_set(e, ST_INPUT,
                       "--forecast %.40s is not tp2 to tp%d, or as tp8pp2, of %d ranks at most, or as tp8+tp8", text,
                       COMM_RANKS_MAX, COMM_RANKS_MAX);
    if (l.ranks > FORECAST_HOST_GPUS && l.ranks % FORECAST_HOST_GPUS)
        return err_set(e, ST_INPUT, "--forecast %.40s: hosts have %d GPUs each, of which all are used", text,
                       FORECAST_HOST_GPUS);
    *out = l;
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

f64 link_read_us(const link_table *t, i64 gpus, f64 bytes) {
    const f64 most = 2.0 * (f64)(gpus - 1) / (f64)gpus * (f64)t->rows[t->n - 1] * LINK_DIM * 2;
    return t->us[0] + bytes * t->us[t->n - 1] / most;
}

static status read_links(const forecast_options *o, const char *chip, link_table *t, err *e) {
    const i64 gpus = o->layout.ranks / forecast_hosts(&o->layout);
    char there[4096], file[96] = "links/";
    const char *path = o->links ? o->links : there;
    buf text = {0};
    tuned_file_name(file + strlen(file), sizeof file - strlen(file), chip);
    status st = o->links ? ST_OK : path_join(there, sizeof there, tuned_place(), file, e);
    if (st == ST_OK) st = file_read(path, LINKS_MOST, &text, e);
    if (st != ST_OK) return err_prefix(e, "--links");
    buf_char(&text, 0);
    st = text.failed ? err_nomem(e, "a table", text.len) : link_table_parse(t, text.data, path, gpus, e);
    buf_free(&text);
    if (st == ST_OK) printf("what sums over %lld GPUs take: %s\n", (long long)gpus, path);
    return st;
}

f64 forecast_between_hosts(i64 hosts, f64 bytes, f64 network) {
    if (hosts < 2) return 0;
    return HOP_S + 2 * (f64)(hosts - 1) / (f64)hosts * bytes / FORECAST_HOST_GPUS / network;
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
    status st = ranks_open(&r, &c, &(rank_layout){.tp = n, .pp = 1}, NULL, false, COMM_DEADLINE_S, e);
    r.spin_s = ranks_spin_s(n);
    f64 began = now_s();
    for (int i = 0; st == ST_OK && i < 2 * EMPTY_CALLS; i++) st = ranks_each(&r, do_nothing, NULL, e);
    *seconds = (now_s() - began) / EMPTY_CALLS;
    ranks_close(&r);
    return st;
}

/* ---- measured steps, and what follows from them ---- */

/* A sum of n rows of the residual stream: within a host, and between hosts. */
static f64 sum_us(const forecast_run *f, i64 n) {
    const f64 values = (f64)n * (f64)engine_config(f->g)->hidden;
    return link_us(&f->links, values / LINK_DIM) +
           forecast_between_hosts(forecast_hosts(&f->o->layout), 2 * values, f->o->network) * 1e6;
}

/* A step of n rows: the seconds that its exchanges take more between GPUs than this rank's took with itself. context:
 * of a prompt whose ranks divide the KV cache and collect it; 0: decode. */
static status more_for_links(const forecast_run *f, i64 n, i64 context, f64 *more, err *e) {
    const model_config *c = engine_config(f->g);
    const bool divides = step_timer_divides(f->m, n); /* then experts' sums go on as latent rows */
    const f64 others = (f64)(f->o->layout.ranks - 1),
              sums = (divides ? 1 : 2) * (f64)c->n_layers + 1; /* of layers' halves, and the embedding */
    const f64 row = 2 * (f64)c->n_heads;                       /* bytes of a latent of its heads */
    struct {
        exchange_kind kind;
        const char *name;
        f64 us, times;
    } all[] = {{EXCHANGE_SUM, "a sum", sum_us(f, n), sums},
               {EXCHANGE_QUERIES, "queries",
                link_read_us(&f->links, f->o->layout.ranks, others * (f64)n * row * (f64)(c->kv_lora + c->rope)),
                (f64)c->n_layers},
               {EXCHANGE_PARTS, "parts",
                link_read_us(&f->links, f->o->layout.ranks, others * (f64)n * row * (f64)c->kv_lora),
                (f64)c->n_layers}};
    status st = ST_OK;
    *more = 0;
    for (int i = 0; st == ST_OK && i < (f->kv_ranks > 1 && !context ? 3 : 1); i++) {
        f64 itself;
        st = step_timer_exchange(f->m, all[i].kind, n, &itself, e);
        if (st != ST_OK) break;
        *more += all[i].times * fmax(all[i].us * 1e-6 - itself, 0);
        printf("%8s of %5lld rows: %7.1f us between GPUs, %6.1f us with itself\n", all[i].name, (long long)n, all[i].us,
               itself * 1e6);
    }
    if (divides) {
        /* a sum's first half goes while experts' results are summed, and its second is as wide as these */
        const f64 us = sum_us(f, n) / 2 * (f64)(c->q_lora + c->kv_lora + c->rope) / (f64)c->hidden;
        printf("%8s of %5lld rows: %7.1f us between GPUs\n", "latents", (long long)n, us);
        *more += (f64)c->n_layers * us * 1e-6;
    }
    if (f->kv_ranks > 1 && context) {
        const f64 us = link_read_us(&f->links, f->o->layout.ranks,
                                    others / (f64)f->o->layout.ranks * (f64)(context * (c->kv_lora + c->rope)) * 2);
        printf("%8s of %5lld rows: %7.1f us between GPUs\n", "KV pages", (long long)context, us);
        *more += (f64)c->n_layers * us * 1e-6;
    }
    return st;
}

static status median_step(const forecast_run *f, i64 sequences, i64 context, f64 *seconds, err *e) {
    const i64 steps = f->o->steps;
    f64 *all = calloc((size_t)steps, sizeof *all);
    status st = all ? ST_OK : err_nomem(e, "times", (u64)steps * 8);
    for (int i = 0; st == ST_OK && i < WARM_DECODES; i++)
        st = step_timer_decode(f->m, sequences, 1, context, seconds, e);
    for (i64 i = 0; st == ST_OK && i < steps; i++) st = step_timer_decode(f->m, sequences, 1, context, &all[i], e);
    if (st == ST_OK) qsort(all, (size_t)steps, sizeof *all, f64_ascending), *seconds = all[steps / 2];
    free(all);
    return st;
}

static status median_prompt(const forecast_run *f, i64 n, f64 *seconds, err *e) {
    f64 all[PROMPTS + 1];
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i <= PROMPTS; i++) st = step_timer_prompt(f->m, 0, 0, n, &all[i], e);
    qsort(all + 1, PROMPTS, sizeof *all, f64_ascending); /* behind a first one, to warm up */
    *seconds = all[1 + PROMPTS / 2];
    return st;
}

forecast_result forecast_of(const forecast_load *w, const forecast_times *t) {
    const f64 all = (f64)w->at_a_time, out = (f64)w->out;
    return (forecast_result){.ttft_s = t->prompt + t->step,
                             .tpot_s = t->step + (all - 1) * t->holds / out,
                             .tokens_per_s = all * out / (all * t->holds + out * t->step)};
}

forecast_times forecast_staged(const forecast_times *t, i64 stages, i64 at_a_time, f64 share, f64 prompt_hop,
                               f64 step_hop) {
    const f64 hops = (f64)(stages - 1);
    return (forecast_times){.prompt = t->prompt + hops * prompt_hop,
                            .holds = t->prompt * share + prompt_hop,
                            .step = at_a_time < stages ? t->step + hops * step_hop
                                                       : (f64)stages * (t->step * share + step_hop)};
}

static const char *form_name(const forecast_run *f) {
    return f->apart ? "apart" : f->kv_ranks > 1 ? "divided" : "whole";
}

/* Seconds in which n rows go to the next stage. */
static f64 hop_s(const forecast_run *f, i64 n) {
    return HOP_S + (f64)(n * engine_config(f->g)->hidden * 2) / f->o->network;
}

/* Of such a load, from what all layers take. */
static status stages_of(const forecast_run *f, const forecast_load *w, i64 batch, forecast_times *t, bool links,
                        err *e) {
    i64 layers[STAGES_MAX];
    const i64 n = engine_config(f->g)->n_layers;
    if (f->o->layout.stages < 2) return ST_OK;
    status st = model_divide_layers(n, f->o->layout.stages, NULL, "--forecast, stages", layers, e);
    if (st != ST_OK) return st;
    *t = forecast_staged(t, f->o->layout.stages, w->at_a_time, (f64)layers[0] / (f64)n, links ? hop_s(f, w->in) : 0,
                         links ? hop_s(f, batch) : 0);
    return ST_OK;
}

forecast_result forecast_of_roles(const forecast_load *w, const forecast_times *t, f64 transfer, f64 *busy) {
    const f64 all = (f64)w->at_a_time, out = (f64)w->out, ttft = t->prompt + transfer + t->step;
    const f64 rate = fmin(all / (ttft + (out - 1) * t->step), 1 / t->prompt); /* requests a second */
    *busy = rate * t->prompt;
    return (forecast_result){.ttft_s = ttft, .tpot_s = t->step, .tokens_per_s = rate * out};
}

/* Seconds that the KV rows of a prompt take from one server to another: over HTTP (docs/guide/roles.md). */
static f64 transfer_s(const forecast_run *f, i64 tokens) {
    const model_config *c = engine_config(f->g);
    const f64 bytes = (f64)tokens * (f64)(c->kv_lora + c->rope) * (f64)c->n_layers * 2;
    return bytes / fmin(HTTP_RATE, f->o->network);
}

static void print_roles(const forecast_run *f, const forecast_load *w, const forecast_times *t) {
    f64 busy = 0;
    const f64 transfer = transfer_s(f, w->in);
    const forecast_result r = forecast_of_roles(w, t, transfer, &busy);
    printf(
        "%5lld in, %4lld out, %2lld at a time, KV %s: prompt %6.1f ms, its KV rows %6.1f ms, step %6.2f ms: TTFT %6.1f "
        "ms, TPOT %6.2f ms, %5.0f output tok/s; the prompts' GPUs are busy for %3.0f %%\n",
        (long long)w->in, (long long)w->out, (long long)w->at_a_time, form_name(f), t->prompt * 1e3, transfer * 1e3,
        t->step * 1e3, r.ttft_s * 1e3, r.tpot_s * 1e3, r.tokens_per_s, busy * 100);
    fflush(stdout);
    if (!f->o->json) return;
    fprintf(f->o->json,
            "{\"profile\":\"forecast_roles\",\"ranks\":%lld,\"kv_ranks\":%lld,\"dp_attention\":%s,\"input\":%lld,"
            "\"output\":%lld,\"at_a_time\":%lld,\"prompt_ms\":%.4f,\"transfer_ms\":%.4f,\"step_ms\":%.4f,"
            "\"ttft_ms\":%.4f,\"tpot_ms\":%.4f,\"output_tokens_per_s\":%.2f,\"prompts_busy\":%.4f,\"plan\":\"%s\"}\n",
            (long long)f->o->layout.ranks, (long long)f->kv_ranks, f->apart ? "true" : "false", (long long)w->in,
            (long long)w->out, (long long)w->at_a_time, t->prompt * 1e3, transfer * 1e3, t->step * 1e3, r.ttft_s * 1e3,
            r.tpot_s * 1e3, r.tokens_per_s, busy, engine_plan(f->g));
}

static void print_forecast(const forecast_run *f, const forecast_load *w, const forecast_times *own,
                           const forecast_times *t) {
    const forecast_result r = forecast_of(w, t);
    FILE *json = f->o->json;
    printf("%5lld in, %4lld out, %2lld at a time, KV %s: prompt %6.1f ms (%5.1f of them links), step %6.2f ms (%5.2f): "
           "TTFT %6.1f ms, TPOT %6.2f ms, %5.0f output tok/s\n",
           (long long)w->in, (long long)w->out, (long long)w->at_a_time, form_name(f), t->prompt * 1e3,
           (t->prompt - own->prompt) * 1e3, t->step * 1e3, (t->step - own->step) * 1e3, r.ttft_s * 1e3, r.tpot_s * 1e3,
           r.tokens_per_s);
    fflush(stdout);
    if (!json) return;
    fprintf(
        json,
        "{\"profile\":\"forecast\",\"ranks\":%lld,\"stages\":%lld,\"kv_ranks\":%lld,\"dp_attention\":%s,\"input\":%lld,\"output\":%lld,"
        "\"at_a_time\":%lld,\"prompt_ms\":%.4f,\"prompt_own_ms\":%.4f,\"step_ms\":%.4f,\"step_own_ms\":%.4f,"
        "\"ttft_ms\":%.4f,\"tpot_ms\":%.4f,\"output_tokens_per_s\":%.2f,\"plan\":\"%s\"}\n",
        (long long)f->o->layout.ranks, (long long)f->o->layout.stages, (long long)f->kv_ranks,
        f->apart ? "true" : "false", (long long)w->in, (long long)w->out, (long long)w->at_a_time, t->prompt * 1e3,
        own->prompt * 1e3, t->step * 1e3, own->step * 1e3, r.ttft_s * 1e3, r.tpot_s * 1e3, r.tokens_per_s,
        engine_plan(f->g));
}

/* Of one server, and with roles of two of them, one of which computes the prompts. */
static status forecast_loads(const forecast_run *f, err *e) {
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < f->o->n_loads; i++) {
        const forecast_load *w = &f->o->loads[i];
        const i64 batch = ceil_div(w->at_a_time, f->o->layout.stages);
        forecast_times own = {0}, more = {0};
        st = median_prompt(f, w->in, &own.prompt, e);
        if (st == ST_OK) st = median_step(f, batch, w->in + w->out / 2, &own.step, e);
        if (st == ST_OK) st = more_for_links(f, w->in, w->in, &more.prompt, e);
        if (st == ST_OK) st = more_for_links(f, batch, 0, &more.step, e);
        own.holds = own.prompt;
        forecast_times all = {own.prompt + more.prompt, own.step + more.step, own.prompt + more.prompt};
        if (st == ST_OK) st = stages_of(f, w, batch, &own, false, e);
        if (st == ST_OK) st = stages_of(f, w, batch, &all, true, e);
        if (st == ST_OK) print_forecast(f, w, &own, &all);
        if (st == ST_OK && f->o->layout.roles) print_roles(f, w, &all);
    }
    return st;
}

/* ---- where dividing the KV cache begins to pay ---- */

f64 forecast_crossing_at(const forecast_crossing *x) {
    const f64 first = x->divided[0] - x->whole[0], last = x->divided[1] - x->whole[1];
    const f64 gains = (first - last) / (x->context[1] - x->context[0]); /* milliseconds a token */
    if (gains <= 0) return first < 0 && last < 0 ? 0 : INFINITY;
    return fmax(x->context[0] + first / gains, 0);
}

/* The steps of this form at a short context and at the longest. */
static status measure_crossings(forecast_run *f, i64 longest, err *e) {
    status st = ST_OK;
    for (int b = 0; st == ST_OK && b < f->n_batches; b++)
        for (int i = 0; st == ST_OK && i < 2; i++) {
            forecast_crossing *x = &f->crossings[b];
            f64 *ms = f->kv_ranks > 1 ? &x->divided[i] : &x->whole[i], more = 0;
            x->context[i] = (f64)(i ? longest - 1 : longest / 8);
            st = median_step(f, f->batches[b], (i64)x->context[i], ms, e);
            if (st == ST_OK && !i) st = more_for_links(f, f->batches[b], 0, &more, e);
            if (!i) f->more[b] = more;
            *ms = (*ms + f->more[b]) * 1e3;
        }
    return st;
}

static void print_crossings(const forecast_run *f) {
    printf("A step with its links at contexts of %.0f and %.0f tokens, the KV cache whole on every rank and divided:\n",
           f->crossings[0].context[0], f->crossings[0].context[1]);
    for (int b = 0; b < f->n_batches; b++) {
        const forecast_crossing *x = &f->crossings[b];
        const f64 at = forecast_crossing_at(x);
        printf("%4lld sequences: whole %6.2f and %6.2f ms, divided %6.2f and %6.2f ms: ", (long long)f->batches[b],
               x->whole[0], x->whole[1], x->divided[0], x->divided[1]);
        if (isinf(at))
            printf("whole is faster\n");
        else
            printf("divided is faster from contexts of %.0f tokens on\n", at);
        if (f->o->json)
            fprintf(f->o->json,
                    "{\"profile\":\"forecast_kv\",\"ranks\":%lld,\"sequences\":%lld,\"contexts\":[%.0f,%.0f],"
                    "\"whole_ms\":[%.4f,%.4f],\"divided_ms\":[%.4f,%.4f],\"divided_from\":%.0f}\n",
                    (long long)f->o->layout.ranks, (long long)f->batches[b], x->context[0], x->context[1], x->whole[0],
                    x->whole[1], x->divided[0], x->divided[1], isinf(at) ? -1 : at);
    }
}

/* ---- both forms ---- */

static status forecast_form(forecast_run *f, engine_options *eo, i64 kv_ranks, bool apart, err *e) {
    const i64 shares = apart ? f->o->layout.ranks : 1; /* of the pool, each for whole sequences */
    f->kv_ranks = kv_ranks;
    f->apart = eo->dp_attention = apart;
    eo->dcp = apart ? 0 : kv_ranks;
    eo->kv_tokens = ceil_div(eo->max_running, shares) * shares * eo->context;
    f->g = NULL, f->m = NULL;
    status st = engine_open(&f->g, eo, e);
    if (st == ST_OK) printf("%s\n", engine_plan(f->g));
    if (st == ST_OK && !f->links.n) st = read_links(f->o, engine_ops(f->g)->name, &f->links, e);
    if (st == ST_OK) st = step_timer_open(&f->m, f->g, eo->max_running, eo->context, 1, f->o->seed, e);
    if (st == ST_OK) st = forecast_loads(f, e);
    if (st == ST_OK && !apart && f->o->layout.stages == 1) st = measure_crossings(f, eo->context, e);
    step_timer_close(f->m);
    engine_close(f->g);
    return st;
}

status profile_forecast(const forecast_options *o, engine_options *eo, err *e) {
    static const i64 batches[] = {1, 4, 16, 40, 64};
    const forecast_load most = forecast_largest(o->loads, o->n_loads);
    const i64 asked = eo->dcp, hosts = forecast_hosts(&o->layout);
    forecast_run f = {.o = o};
    f64 host = 0;
    if (asked > 1 && asked != o->layout.ranks)
        return err_set(e, ST_INPUT, "--dcp %lld with --forecast tp%lld: all ranks divide the KV cache, or none does",
                       (long long)asked, (long long)o->layout.ranks);
    if (asked > 1 && hosts > 1)
        return err_set(e, ST_INPUT, "--dcp %lld: ranks of several hosts do not divide the KV cache", (long long)asked);
    eo->tp = 1, eo->tp_slice = o->layout.ranks, eo->load_format = "dummy";
    eo->max_running = ceil_div(most.at_a_time, o->layout.stages),
    eo->context = ceil_div(most.out + 1, KV_PAGE) * KV_PAGE;
    if (!eo->chunk) eo->chunk = most.in;
    if (eo->chunk < most.in)
        return err_set(e, ST_INPUT, "--chunked-prefill-size %lld: a forecast's prompts are single steps of %lld tokens",
                       (long long)eo->chunk, (long long)most.in);
    for (size_t i = 0; i < COUNT_OF(batches); i++)
        if (batches[i] <= most.at_a_time) f.batches[f.n_batches++] = batches[i];
    status st = time_threads(o->layout.ranks, &host, e);
    if (st != ST_OK) return st;
    printf("FORECAST of %lld GPUs, not a run of them: steps of one rank (made-up weights, KV cache of zeros), and what "
           "its exchanges take more between GPUs.\nTTFT: nobody is in front. TPOT and output: each request that "
           "ends is followed by another, whose prompt holds up the others.\nThe threads of %lld ranks take %.0f us a "
           "step on this host, beside the GPUs.\n",
           (long long)(o->layout.ranks * o->layout.stages), (long long)o->layout.ranks, host * 1e6);
    if (eo->ep > 1)
        printf(
            "Experts in %lld groups: this rank's has an average share of the rows; a step waits for the one that has "
            "most.\n",
            (long long)eo->ep);
    if (o->layout.stages > 1)
        printf(
            "%lld stages of these: a batch of as many answers is under way in each. Rows of %.0f Gb/s a GPU and %.0f "
            "us, both of them assumed, go from one to the next.\n",
            (long long)o->layout.stages, o->network * 8e-9, HOP_S * 1e6);
    if (hosts > 1)
        printf("%lld hosts: a sum is made within each, then between them, %.0f Gb/s a GPU and %.0f us, both assumed.\n",
               (long long)hosts, o->network * 8e-9, HOP_S * 1e6);
    if (o->layout.roles)
        printf("One server as described, and behind it two, of which one computes the prompts: KV rows go from it at "
               "%.1f GB/s.\n",
               fmin(HTTP_RATE, o->network) * 1e-9);
    const bool apart = eo->dp_attention || !asked;
    bool whole = asked <= 1 && !eo->dp_attention, divided = asked != 1 && !eo->dp_attention && hosts == 1;
    if (whole) st = forecast_form(&f, eo, 1, false, e);
    if (st == ST_LIMIT && divided) {
        printf("all of the KV cache on every rank: %s\n", e->text);
        whole = false, st = ST_OK, *e = (err){0};
    }
    if (st == ST_OK && divided) st = forecast_form(&f, eo, o->layout.ranks, false, e);
    if (st == ST_OK && apart) st = forecast_form(&f, eo, 1, true, e);
    if (st == ST_OK && whole && divided && o->layout.stages == 1) print_crossings(&f);
    return st;
}
