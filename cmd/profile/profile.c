/* cmd/profile/profile.c: `moonlet profile`: how long steps of given shapes take on a GPU, and where their time goes. */
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/lib/speculative.h"
#include "cmd/bench/bench.h"
#include "cmd/bench/profile_table.h"
#include "cmd/lib/stats.h"
#include "cmd/profile/profile_forecast.h"
#include "cmd/profile/blocks.h"
#include "cmd/profile/timeline.h"
#include "runtime/step_timer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPES = 16, STEPS_MOST = 1000, WARM = 3, PROMPT_RUNS = 5, TRACED = 3 };

typedef struct {
    model_opts m;
    speculative_opts draft;
    const char *batch_list, *rows_list, *prompt_list, *json, *forecast, *links, *timeline;
    f64 network;
    opt_list workloads;
    i64 context, steps, seed;
    bool empty, no_table;
    i64 batches[SHAPES], rows[SHAPES], prompts[SHAPES];
    int n_batches, n_rows, n_prompts;
    FILE *out, *picture;
} profile_opts;

static status parse_list(const char *text, i64 *out, int *n, const char *name, err *e) {
    *n = 0;
    for (const char *at = text; *at; at += *at == ',') {
        char *end;
        i64 v = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || v < 1 || v > 1 << 20 || *n == SHAPES)
            return err_set(e, ST_INPUT, "%s %.100s is not a list of at most %d numbers", name, text, SHAPES);
        out[(*n)++] = v;
        at = end;
    }
    return ST_OK;
}

static i64 profile_largest(const i64 *v, int n) {
    i64 most = 0;
    for (int i = 0; i < n; i++) most = max_i64(most, v[i]);
    return most;
}

static void profile_report(const profile_opts *o, engine *g, const char *kind, i64 rows, i64 context, f64 *seconds,
                           i64 n) {
    qsort(seconds, (size_t)n, sizeof *seconds, f64_ascending);
    f64 median = seconds[n / 2] * 1e3;
    printf("%-10s %6lld %s, context %7lld: %9.3f ms a step (best %.3f, worst %.3f of %lld)  %.0f tok/s\n", kind,
           (long long)rows, strcmp(kind, "prompt") ? "sequences" : "tokens   ", (long long)context, median,
           seconds[0] * 1e3, seconds[n - 1] * 1e3, (long long)n, (f64)rows / median * 1e3);
    fflush(stdout);
    if (o->out)
        fprintf(o->out,
                "{\"profile\":\"%s\",\"rows\":%lld,\"context\":%lld,\"ms_median\":%.6f,\"ms_min\":%.6f,\"ms_max\":%.6f,"
                "\"steps\":%lld,\"plan\":\"%s\"}\n",
                kind, (long long)rows, (long long)context, median, seconds[0] * 1e3, seconds[n - 1] * 1e3, (long long)n,
                engine_plan(g));
}

static status profile_prompts(const profile_opts *o, engine *g, step_timer *m, err *e) {
    f64 seconds[PROMPT_RUNS + 1], ignored;
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < o->n_prompts; i++) {
        st = step_timer_prompt(m, 0, 0, o->prompts[i], &ignored, e);
        for (int r = 0; st == ST_OK && r < PROMPT_RUNS; r++)
            st = step_timer_prompt(m, 0, 0, o->prompts[i], &seconds[r], e);
        if (st == ST_OK) profile_report(o, g, "prompt", o->prompts[i], o->prompts[i], seconds, PROMPT_RUNS);
    }
    return st;
}

/* Every sequence gets KV rows for its whole context. */
static status profile_fill(const profile_opts *o, step_timer *m, i64 chunk, err *e) {
    i64 all = profile_largest(o->batches, o->n_batches);
    f64 began = now_s(), ignored;
    status st = ST_OK;
    for (i64 s = 0; st == ST_OK && s < all; s++) {
        for (i64 at = 0; st == ST_OK && at < o->context; at += chunk)
            st = step_timer_prompt(m, s, at, min_i64(chunk, o->context - at), &ignored, e);
        f64 gone = now_s() - began;
        fprintf(stderr, "\rcontext of %lld of %lld sequences, %.0f tokens/s, %.0f s left ", (long long)(s + 1),
                (long long)all, (f64)((s + 1) * o->context) / gone, gone / (f64)(s + 1) * (f64)(all - s - 1));
    }
    fprintf(stderr, "\n");
    return st;
}

/* Were the experts chosen as evenly as the shares of the roofline assume? Made-up weights may prefer some. */
static status report_experts(const profile_opts *o, step_timer *m, i64 rows, err *e) {
    measured_experts x;
    status st = step_timer_experts(m, rows, o->context, &x, e);
    if (st != ST_OK || !x.layers) return st;
    printf(
        "                                    experts touched in a layer: %.1f of %lld (%lld to %lld; %.1f if chosen evenly)\n",
        x.mean, (long long)x.experts, (long long)x.least, (long long)x.most, x.uniform);
    fflush(stdout);
    if (o->out)
        fprintf(
            o->out,
            "{\"profile\":\"experts\",\"rows\":%lld,\"experts\":%lld,\"mean\":%.2f,\"min\":%lld,\"max\":%lld,\"uniform\":%.2f}\n",
            (long long)rows, (long long)x.experts, x.mean, (long long)x.least, (long long)x.most, x.uniform);
    return ST_OK;
}

typedef status (*timed_fn)(step_timer *m, i64 sequences, i64 rows, i64 pos, f64 *seconds, err *e);

/* Steps, or draft passes, of so many rows for each of so many sequences. */
static status time_shape(const profile_opts *o, engine *g, step_timer *m, timed_fn fn, i64 batch, i64 rows,
                         f64 *seconds, err *e) {
    status st = ST_OK;
    char kind[32];
    for (i64 r = -WARM_DECODES; st == ST_OK && r < o->steps; r++)
        st = fn(m, batch, rows, o->context, &seconds[max_i64(r, 0)], e);
    if (st != ST_OK) return st;
    snprintf(kind, sizeof kind, rows > 1 || fn == step_timer_drafts ? "%s x%lld" : "%s",
             fn == step_timer_drafts ? "drafts" : "decode", (long long)rows);
    profile_report(o, g, kind, batch, o->context + rows, seconds, o->steps);
    return ST_OK;
}

static status decodes(const profile_opts *o, engine *g, step_timer *m, err *e) {
    f64 *seconds = calloc((size_t)o->steps, sizeof *seconds);
    status st = seconds ? ST_OK : err_nomem(e, "times", (u64)o->steps * 8);
    for (int i = 0; st == ST_OK && i < o->n_batches; i++) {
        for (int k = 0; st == ST_OK && k < o->n_rows; k++) {
            st = time_shape(o, g, m, step_timer_decode, o->batches[i], o->rows[k], seconds, e);
            if (st == ST_OK && engine_draft_steps(g))
                st = time_shape(o, g, m, step_timer_drafts, o->batches[i], o->rows[k], seconds, e);
        }
        /* what they are given is seen in steps whose rows run together, of one stage */
        if (st == ST_OK && !o->m.engine.deterministic && engine_stages(g) == 1)
            st = report_experts(o, m, o->batches[i], e);
    }
    free(seconds);
    return st;
}

/* What is looked at launch by launch: prompts, and steps with the most rows that were asked for. */
typedef struct {
    bool prompt;
    i64 sequences, tokens; /* tokens: of the prompt, or of each sequence's step */
} traced_shape;

static int traced_shapes(const profile_opts *o, traced_shape out[2 * SHAPES]) {
    int n = 0;
    for (int i = 0; i < o->n_prompts; i++) out[n++] = (traced_shape){true, 1, o->prompts[i]};
    for (int i = 0; i < o->n_batches; i++)
        out[n++] = (traced_shape){false, o->batches[i], profile_largest(o->rows, o->n_rows)};
    return n;
}

static status run_traced(const profile_opts *o, step_timer *m, const traced_shape *s, err *e) {
    f64 ignored;
    return s->prompt ? step_timer_prompt(m, 0, 0, s->tokens, &ignored, e)
                     : step_timer_decode(m, s->sequences, s->tokens, o->context, &ignored, e);
}

/* Ranks do the same, but for one that draws the tokens: keeps the launches of the context that has most of them. Their
 * number. */
static i64 of_one_context(kernel_launch *seen, i64 n) {
    i64 most = 0, own = 0;
    u32 which = 0;
    for (i64 i = 0; i < n; i++) {
        i64 count = 0;
        bool counted = false;
        for (i64 k = 0; k < i && !counted; k++) counted = seen[k].context == seen[i].context;
        for (i64 k = i; k < n && !counted; k++) count += seen[k].context == seen[i].context;
        if (count > most) most = count, which = seen[i].context;
    }
    for (i64 i = 0; i < n; i++)
        if (seen[i].context == which) seen[own++] = seen[i];
    return own;
}

static void title_of(const profile_opts *o, const traced_shape *s, char *title, size_t size) {
    if (s->prompt)
        snprintf(title, size, "prompt of %lld tokens", (long long)s->tokens);
    else
        snprintf(title, size, "decode, %lld sequence%s%s, context %lld", (long long)s->sequences,
                 s->sequences > 1 ? "s" : "", s->tokens > 1 ? " of several rows" : "",
                 (long long)(o->context + s->tokens));
}

/* The shortest of several steps as CUPTI sees them. */
static status timeline_of(const profile_opts *o, step_timer *m, const traced_shape *s, timeline *t, err *e) {
    char title[96];
    status st = ST_OK;
    title_of(o, s, title, sizeof title);
    for (int r = -WARM; st == ST_OK && r < PROMPT_RUNS; r++) {
        kernel_launch *seen = NULL;
        i64 n = 0;
        timeline fresh = {0};
        st = run_traced(o, m, s, e);
        if (st == ST_OK) st = cupti_take(&seen, &n, e);
        const i64 own = of_one_context(seen, n);
        if (st == ST_OK && r >= 0) st = timeline_make(&fresh, title, seen, own, e);
        free(seen);
        if (st == ST_OK && r >= 0 && (!t->n || fresh.us < t->us)) {
            const timeline longer = *t;
            *t = fresh;
            fresh = longer;
        }
        timeline_free(&fresh);
    }
    return st;
}

static status timelines(const profile_opts *o, step_timer *m, timeline *t, err *e) {
    traced_shape shapes[2 * SHAPES];
    const int n = traced_shapes(o, shapes);
    status st = cupti_start(e);
    for (int i = 0; st == ST_OK && i < n; i++) st = timeline_of(o, m, &shapes[i], &t[i], e);
    cupti_stop();
    return st;
}

/* Steps that only decode, with their blocks' times: they are recorded anew for it. */
static status block_timelines(const profile_opts *o, step_timer *m, block_timeline *b, err *e) {
    traced_shape shapes[2 * SHAPES];
    const int n = traced_shapes(o, shapes);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < n; i++) {
        char title[96];
        if (shapes[i].prompt) continue;
        title_of(o, &shapes[i], title, sizeof title);
        st = blocks_run(&b[i], m, title, shapes[i].sequences, shapes[i].tokens, o->context, e);
        if (st == ST_NOMEM) { /* the other pictures need none */
            printf("%s: no times of its blocks: %s\n", title, e->text);
            st = ST_OK;
            continue;
        }
        if (st == ST_OK && !b[i].t.n)
            printf("%s: no times of its blocks: %s\n", title,
                   b[i].untimed ? "the kernels of a build of its own write them (make TIMES=1)"
                                : "it is not recorded as a whole");
    }
    return st;
}

enum { LAUNCHES_MOST = 32768 };
typedef struct {
    gpu_time *all; /* [LAUNCHES_MOST] */
    i64 n;
} launch_list;

static void list_launch(void *ud, const gpu_time *t) {
    launch_list *l = ud;
    if (l->n < LAUNCHES_MOST) l->all[l->n++] = *t;
}

/* What a trace tells of the launches of a shape's pictures. */
static void name_launches(timeline *t, block_timeline *b, const launch_list *list) {
    if (!timeline_name(t, list->all, list->n, "cuBLASLt"))
        printf("%s: launched one by one it is other kernels (%s): operations are not known\n", t->title, t->strange);
    blocks_name(b, list->all, list->n);
    timeline_print(stdout, t);
    blocks_print(stdout, b);
}

/* The same shapes again, every launch timed; t and b, unless they are NULL, learn from it which operation each belongs
 * to. */
static status tables(const profile_opts *o, engine *g, step_timer *m, timeline *t, block_timeline *b, err *e) {
    traced_shape shapes[2 * SHAPES];
    const int n = traced_shapes(o, shapes);
    launch_list list = {.all = t ? calloc(LAUNCHES_MOST, sizeof *list.all) : NULL};
    status st = t && !list.all ? err_nomem(e, "a step's launches", LAUNCHES_MOST * sizeof *list.all) : ST_OK;
    if (st == ST_OK) st = engine_profile_start(g, e);
    if (st == ST_OK && t) engine_profile_launches(g, list_launch, &list);
    for (int i = 0; st == ST_OK && i < n; i++) {
        engine_profile_clear(g);
        for (int r = 0; st == ST_OK && r < TRACED; r++) {
            list.n = 0;
            st = run_traced(o, m, &shapes[i], e);
        }
        if (st == ST_OK && !o->no_table) profile_print(stdout, g);
        if (st == ST_OK && t) name_launches(&t[i], &b[i], &list);
    }
    engine_profile_launches(g, NULL, NULL);
    free(list.all);
    return st;
}

/* Behind the times, which CUPTI and events would change. */
static status profile_launches(const profile_opts *o, engine *g, step_timer *m, err *e) {
    timeline t[2 * SHAPES] = {0};
    block_timeline b[2 * SHAPES] = {0};
    status st = o->timeline ? timelines(o, m, t, e) : ST_OK;
    if (st == ST_OK && o->timeline) st = block_timelines(o, m, b, e);
    if (st == ST_OK && (o->timeline || !o->no_table)) st = tables(o, g, m, o->timeline ? t : NULL, b, e);
    if (st == ST_OK && o->timeline) {
        const char *chip = engine_ops(g)->name;
        st = timeline_chart(o->picture, t, b, o->n_prompts + o->n_batches, chip, bench_gpu_peaks(chip).read, e);
        if (st != ST_OK) err_prefix(e, "%s", o->timeline);
    }
    for (int i = 0; i < 2 * SHAPES; i++) timeline_free(&t[i]), blocks_free(&b[i]);
    return st;
}

static status profile_forecast_options(profile_opts *o, err *e) {
    engine_options *eo = &o->m.engine;
    forecast_load loads[FORECAST_LOADS];
    forecast_options f = {.links = o->links, .steps = o->steps, .json = o->out, .loads = loads, .seed = (u64)o->seed};
    status st = forecast_layout_parse(o->forecast, &f.layout, e);
    const bool one_host = f.layout.stages < 2 && !f.layout.roles && forecast_hosts(&f.layout) < 2;
    f.network = (o->network > 0 ? o->network : 400) * 1e9 / 8;
    if (st == ST_OK && o->network > 0 && one_host)
        st = err_set(e, ST_INPUT, "--network is for several hosts: --forecast tp8pp2, tp16 or tp8+tp8");
    if (st == ST_OK && !(f.n_loads = forecast_loads_parse(loads, o->workloads.items, o->workloads.n, e))) st = e->code;
    if (st == ST_OK && (eo->tp || eo->tp_slice || eo->pp))
        st = err_set(e, ST_INPUT, "--forecast %s runs --tp-slice %lld --tp 1 by itself", o->forecast,
                     (long long)f.layout.ranks);
    return st == ST_OK ? profile_forecast(&f, eo, e) : st;
}

/* A step with several rows of a sequence is one with drafts, and the plan has room for the draft's. */
static status profile_drafts(profile_opts *o, err *e) {
    scheduler_options none = {0};
    const i64 rows = profile_largest(o->rows, o->n_rows);
    if (!o->draft.algorithm && !o->draft.draft_dir) o->draft.algorithm = "NONE";
    status st = speculative_not_served(&o->draft, e);
    if (st == ST_OK) st = speculative_finish(&o->draft, &o->m.engine, &none, e);
    if (st == ST_OK && rows > 1 && rows > o->m.engine.draft_steps + 1)
        st = err_set(e, ST_INPUT, "--rows %lld needs --speculative-draft-model-path DIR --speculative-num-steps %lld",
                     (long long)rows, (long long)rows - 1);
    return st;
}

static status profile_run(profile_opts *o, err *e) {
    engine *g = NULL;
    step_timer *m = NULL;
    engine_options *eo = &o->m.engine;
    status st = parse_list(o->batch_list, o->batches, &o->n_batches, "--batch", e);
    if (st == ST_OK) st = parse_list(o->rows_list, o->rows, &o->n_rows, "--rows", e);
    if (st == ST_OK) st = parse_list(o->prompt_list, o->prompts, &o->n_prompts, "--prompt", e);
    if (st == ST_OK) st = profile_drafts(o, e);
    if (st != ST_OK) return st;
    i64 prompt = profile_largest(o->prompts, o->n_prompts), each = profile_largest(o->rows, o->n_rows),
        most = max_i64(prompt, o->context + each + DRAFT_STEPS_MOST),
        all = max_i64(profile_largest(o->batches, o->n_batches), 1), pages = ceil_div(most, 64) * 64;
    eo->max_running = all;
    eo->context = most;
    const i64 shares = eo->dp_attention ? max_i64(eo->tp_slice, eo->tp) : 1; /* of the pool, each for whole sequences */
    eo->kv_tokens = ceil_div(all, max_i64(shares, 1)) * max_i64(shares, 1) * pages;
    if (!eo->chunk) eo->chunk = max_i64(prompt, 8192);
    if (prompt > eo->chunk)
        return err_set(e, ST_INPUT, "--prompt %lld is longer than --chunked-prefill-size %lld: no single step",
                       (long long)prompt, (long long)eo->chunk);
    st = engine_open(&g, eo, e);
    if (st == ST_OK) printf("%s\n", engine_plan(g));
    if (st == ST_OK) st = step_timer_open(&m, g, all, most, each, (u64)o->seed, e);
    if (st == ST_OK) st = profile_prompts(o, g, m, e);
    if (st == ST_OK && o->n_batches && o->empty) printf("the KV cache is empty (--empty-cache): its rows are zeros\n");
    if (st == ST_OK && o->n_batches && !o->empty) st = profile_fill(o, m, min_i64(eo->chunk, o->context), e);
    if (st == ST_OK) st = decodes(o, g, m, e);
    if (st == ST_OK) st = profile_launches(o, g, m, e);
    step_timer_close(m);
    engine_close(g);
    return st;
}

int cmd_profile(int argc, char **argv) {
    profile_opts o = {
        .batch_list = "1,4,16,40,64", .rows_list = "1", .prompt_list = "8192", .context = 8192, .steps = 31, .seed = 1};
    err e = {0};
    const opt_spec specs[] = {
        MODEL_OPTS(o.m),
        OPT_GROUP("Steps"),
        {"batch", 'b', OPT_STR, &o.batch_list, "N,N,...", "sequences of the decode steps (default: 1,4,16,40,64)", 0,
         0},
        {"rows", 0, OPT_STR, &o.rows_list, "N,N,...",
         "tokens of a sequence in a decode step: more than 1 checks drafts (default: 1)", 0, 0},
        {"prompt", 'p', OPT_STR, &o.prompt_list, "N,N,...", "tokens of the steps with a prompt (default: 8192)", 0, 0},
        {"context", 0, OPT_INT, &o.context, "N", "tokens before a decode step (default: 8192)", 1, 1 << 20},
        {"steps", 0, OPT_INT, &o.steps, "N", "timed decode steps (default: 31)", 1, STEPS_MOST},
        {"empty-cache", 0, OPT_FLAG, &o.empty, NULL, "decode on a KV cache of zeros: quicker to start", 0, 0},
        {"timeline", 0, OPT_STR, &o.timeline, "FILE",
         "draws every launch of these steps on the GPU's clock, as SVG, and lists what each adds (needs NVIDIA's CUPTI)",
         0, 0},
        {"no-table", 0, OPT_FLAG, &o.no_table, NULL, "the steps' times alone", 0, 0},
        {"seed", 0, OPT_INT, &o.seed, "N", "of the made-up tokens (default: 1)", 0, 1e18},
        {"json", 0, OPT_STR, &o.json, "FILE", "the same as JSON lines", 0, 0},
        SPECULATIVE_OPTS(o.draft),
        OPT_GROUP("Forecast"),
        {"forecast", 0, OPT_STR, &o.forecast, "tpN|tpNppM|tpN+tpN",
         "instead: TTFT, TPOT and tokens/s of N GPUs, of M stages of N, or of N for prompts and N for answers, from "
         "steps of one rank and what their links take",
         0, 0},
        {"network", 0, OPT_REAL, &o.network, "GBIT",
         "between stages, hosts of 8 and servers: Gb/s from a GPU to its peer (default: 400)", 0.001, 1e6},
        {"workload", 0, OPT_LIST, &o.workloads, "IN,OUT,N",
         "tokens of a prompt and its answer, and requests at a time; may be repeated (default: 10240,512,2 10240,512,40 "
         "8192,1024,4 8192,1024,64)",
         0, 0},
        {"links", 0, OPT_STR, &o.links, "FILE", "what sums over GPUs take (default: tuned/links, for this chip)", 0, 0},
    };
    int rc = cmd_options("profile", "--device cuda [-m DIR] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    status st = ST_OK;
    if (o.json && !(o.out = fopen(o.json, "w"))) st = err_set(&e, ST_IO, "%s: %s", o.json, strerror(errno));
    if (st == ST_OK) st = model_opts_finish(&o.m, &e);
    if (st == ST_OK && !o.forecast && (o.links || o.workloads.n || o.network > 0))
        st = err_set(&e, ST_INPUT, "--%s is for --forecast",
                     o.links         ? "links"
                     : o.network > 0 ? "network"
                                     : "workload");
    if (st == ST_OK && o.forecast && o.timeline)
        st = err_set(&e, ST_INPUT, "--timeline draws steps that run: not with --forecast");
    if (st == ST_OK && o.timeline) st = cupti_find(&e);
    if (st == ST_OK && o.timeline && !(o.picture = fopen(o.timeline, "w")))
        st = err_set(&e, ST_IO, "%s: %s", o.timeline, strerror(errno));
    if (st == ST_OK) st = o.forecast ? profile_forecast_options(&o, &e) : profile_run(&o, &e);
    if (o.picture && fclose(o.picture) && st == ST_OK) st = err_set(&e, ST_IO, "%s: %s", o.timeline, strerror(errno));
    if (o.out && fclose(o.out) && st == ST_OK) st = err_set(&e, ST_IO, "%s: %s", o.json, strerror(errno));
    return st == ST_OK ? EXIT_DONE : cmd_fail("profile", &e);
}
