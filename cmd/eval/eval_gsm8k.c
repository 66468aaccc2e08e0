/* cmd/eval/eval_gsm8k.c: `moonlet eval gsm8k`: lm-evaluation-harness's task gsm8k (version 3): its few-shot prompts,
 * drawn as it draws them, greedy completions, and its two scores with their standard errors. */
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/eval/gsm8k_score.h"
#include "cmd/eval/eval_items.h"
#include "cmd/lib/load_generator.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOT_SEED = 1234, SHOTS_MAX = 1000 };
static const char *const eval_gsm8k_stops[] = {"Question:", "</s>", "<|im_end|>"};

typedef struct {
    model_opts m;
    const char *data, *shots_path, *base_url, *served_name, *answers_path, *json_path, *details_path;
    i64 shots, limit, max_tokens, concurrency, answer_mb;
    item_file docs, pool; /* all of --data; --shots-data */
    i64 n;                /* of docs that are asked */
    buf *prompts;         /* [n] */
    load_item *asked;     /* [n] */
    FILE *json, *details;
    f64 seconds;
} gsm8k;

typedef struct {
    i64 strict, flexible, failed, stopped;
} score;

static const char *text_at(const json_t *doc, const char *key) { return json_string_value(json_object_get(doc, key)); }

static status check_doc(void *ud, const json_t *item, err *e) {
    (void)ud;
    if (text_at(item, "question") && text_at(item, "answer")) return ST_OK;
    return err_set(e, ST_FORMAT, "not {\"question\": string, \"answer\": string}");
}

/* ---- prompts ---- */

static bool same_doc(const json_t *a, const json_t *b) {
    return !strcmp(text_at(a, "question"), text_at(b, "question")) &&
           !strcmp(text_at(a, "answer"), text_at(b, "answer"));
}

/* The other documents of the same file: one more is drawn, the asked one dropped; when it stands in the file several
 * times and too few are left, all are drawn anew from the rest. */
static bool draw_others(const gsm8k *g, mt19937 *rng, i64 asked, i64 *out) {
    i64 drawn[SHOTS_MAX + 1], n = 0, *rest = NULL, n_rest = 0;
    if (!mt_sample(rng, g->docs.n, g->shots + 1, drawn)) return false;
    for (i64 i = 0; i <= g->shots && n < g->shots; i++)
        if (!same_doc(g->docs.items[drawn[i]], g->docs.items[asked])) out[n++] = drawn[i];
    if (n == g->shots) return true;
    if (!(rest = calloc((size_t)g->docs.n, sizeof *rest))) return false;
    for (i64 i = 0; i < g->docs.n; i++)
        if (!same_doc(g->docs.items[i], g->docs.items[asked])) rest[n_rest++] = i;
    bool ok = mt_sample(rng, n_rest, g->shots, out);
    for (i64 i = 0; ok && i < g->shots; i++) out[i] = rest[out[i]];
    free(rest);
    return ok;
}

static status eval_gsm8k_make_prompts(gsm8k *g, err *e) {
    mt19937 rng;
    i64 drawn[SHOTS_MAX + 1];
    const item_file *pool = g->shots_path ? &g->pool : &g->docs;
    mt_seed_python(&rng, SHOT_SEED);
    for (i64 i = 0; i < g->n; i++) {
        buf *b = &g->prompts[i];
        bool ok = !g->shots       ? true
                  : g->shots_path ? mt_sample(&rng, g->pool.n, g->shots, drawn)
                                  : draw_others(g, &rng, i, drawn);
        if (!ok)
            return err_set(e, ST_INPUT, "%s has %lld documents, too few for %lld shots", pool->path, (long long)pool->n,
                           (long long)g->shots);
        for (i64 k = 0; k < g->shots; k++) {
            const json_t *shot = pool->items[drawn[k]];
            buf_str(b, "Question: ");
            buf_str(b, text_at(shot, "question"));
            buf_str(b, "\nAnswer: ");
            buf_str(b, text_at(shot, "answer"));
            buf_str(b, "\n\n");
        }
        buf_str(b, "Question: ");
        buf_str(b, text_at(g->docs.items[i], "question"));
        buf_str(b, "\nAnswer:");
        if (b->failed) return err_nomem(e, "a prompt", b->len);
    }
    return ST_OK;
}

static status read_data(gsm8k *g, err *e) {
    status st = items_read(&g->docs, g->data, 0, false, check_doc, NULL, e);
    if (st == ST_OK && g->shots_path) st = items_read(&g->pool, g->shots_path, 0, false, check_doc, NULL, e);
    if (st != ST_OK) return st;
    g->n = g->limit ? min_i64(g->limit, g->docs.n) : g->docs.n;
    g->prompts = calloc((size_t)g->n, sizeof *g->prompts);
    g->asked = calloc((size_t)g->n, sizeof *g->asked);
    if (!g->prompts || !g->asked) return err_nomem(e, "the questions", (u64)g->n * sizeof *g->asked);
    return eval_gsm8k_make_prompts(g, e);
}

/* ---- answers ---- */

static status eval_gsm8k_open_client(gsm8k *g, client **c, err *e) {
    client_options o = {.stop = eval_gsm8k_stops, .n_stop = COUNT_OF(eval_gsm8k_stops)};
    if (g->base_url) {
        client_http_options ho = {g->base_url, API_COMPLETIONS, false, g->served_name ? g->served_name : g->m.model,
                                  o,           g->answer_mb};
        return client_http_open(c, &ho, e);
    }
    client_engine_options eo = {.m = &g->m, .max_running = g->concurrency, .decode_stall_s = -1, .o = o};
    return client_engine_open(c, &eo, e);
}

static status eval_gsm8k_ask(gsm8k *g, err *e) {
    client *c = NULL;
    status st = eval_gsm8k_open_client(g, &c, e);
    if (st != ST_OK) return st;
    for (i64 i = 0; i < g->n; i++)
        g->asked[i].q =
            (client_request){.text = g->prompts[i].data, .text_len = g->prompts[i].len, .max_tokens = g->max_tokens};
    load_result r = {0};
    load_options o = {.concurrency = g->concurrency, .progress = true};
    st = load_run(c, g->asked, g->n, &o, &r, e);
    g->seconds = r.end_s - r.start_s;
    client_close(c);
    return st;
}

static status check_answer(void *ud, const json_t *item, err *e) {
    (void)ud;
    return text_at(item, "answer") ? ST_OK : err_set(e, ST_FORMAT, "not {\"answer\": string}");
}

/* Answers that another program gave, one a line. */
static status read_answers(gsm8k *g, err *e) {
    item_file f = {0};
    status st = items_read(&f, g->answers_path, 0, false, check_answer, NULL, e);
    if (st == ST_OK && f.n < g->n)
        st = err_set(e, ST_INPUT, "%s has %lld answers for %lld questions", g->answers_path, (long long)f.n,
                     (long long)g->n);
    for (i64 i = 0; st == ST_OK && i < g->n; i++) {
        const json_t *v = json_object_get(f.items[i], "answer");
        client_answer *a = &g->asked[i].a;
        buf_add(&a->text, json_string_value(v), json_string_length(v));
        a->ok = !a->text.failed;
    }
    items_free(&f);
    return st;
}

/* ---- scores ---- */

static void write_detail(const gsm8k *g, i64 i, const char *strict, bool s_ok, const char *flexible, bool f_ok) {
    const client_answer *a = &g->asked[i].a;
    json_t *o = json_pack("{s:I, s:s, s:s, s:s#, s:[s,b], s:[s,b], s:b, s:s}", "doc", (json_int_t)i, "question",
                          text_at(g->docs.items[i], "question"), "prompt", g->prompts[i].data, "answer",
                          a->text.data ? a->text.data : "", a->text.len, "strict-match", strict, s_ok,
                          "flexible-extract", flexible, f_ok, "stopped", a->stopped, "error", a->error);
    char *text = o ? json_to_text(o, &json_compact) : NULL;
    fprintf(g->details, "%s\n", text ? text : "{\"error\": \"out of memory\"}");
    free(text);
    json_decref(o);
}

/* A request that failed counts as a wrong answer, and is counted. */
static status score_all(gsm8k *g, score *s, err *e) {
    for (i64 i = 0; i < g->n; i++) {
        const client_answer *a = &g->asked[i].a;
        const char *target = text_at(g->docs.items[i], "answer");
        buf strict = {0}, flexible = {0};
        gsm8k_strict(a->text.data ? a->text.data : "", a->text.len, &strict);
        gsm8k_flexible(a->text.data ? a->text.data : "", a->text.len, &flexible);
        if (strict.failed || flexible.failed) return err_nomem(e, "a score", a->text.len);
        bool s_ok = a->ok && gsm8k_match(strict.data, target), f_ok = a->ok && gsm8k_match(flexible.data, target);
        s->strict += s_ok;
        s->flexible += f_ok;
        s->failed += !a->ok;
        s->stopped += a->stopped;
        if (g->details) write_detail(g, i, strict.data, s_ok, flexible.data, f_ok);
        buf_free(&strict);
        buf_free(&flexible);
    }
    return ST_OK;
}

static void eval_gsm8k_print_row(const char *name, i64 right, i64 n) {
    f64 se = gsm8k_stderr(right, n);
    printf("|gsm8k|      3|%-16s|%6lld|exact_match|%.4f|", name, (long long)n, (f64)right / (f64)n);
    printf(isnan(se) ? "   N/A|\n" : "%.4f|\n", se);
}

static json_t *real_or_null(f64 v) { return isnan(v) ? json_null() : json_real(v); }

static status eval_gsm8k_report(const gsm8k *g, const score *s, err *e) {
    const char *from = !g->shots ? "no shots" : g->shots_path ? g->shots_path : "the other documents of --data";
    const char *model = g->answers_path ? g->answers_path : g->base_url ? g->base_url : g->m.engine.model_dir;
    printf("%s: %lld questions, %lld-shot, shots from %s; answered by %s in %.1f s\n", g->data, (long long)g->n,
           (long long)g->shots, from, model, g->seconds);
    printf("|Tasks|Version|Filter          |     n|Metric     |Value |Stderr|\n"
           "|-----|------:|----------------|-----:|-----------|-----:|-----:|\n");
    eval_gsm8k_print_row("flexible-extract", s->flexible, g->n);
    eval_gsm8k_print_row("strict-match", s->strict, g->n);
    if (s->failed) printf("%lld requests failed and count as wrong\n", (long long)s->failed);
    if (!g->json) return ST_OK;
    json_t *o =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:b, s:i, s:f, s:o, s:f, s:o, s:I, s:I, s:f}", "task", "gsm8k", "data",
                  g->data, "n", (json_int_t)g->n, "shots", (json_int_t)g->shots, "shots_from", from, "shots_from_data",
                  g->shots && !g->shots_path, "seed", SHOT_SEED, "exact_match,strict-match", (f64)s->strict / (f64)g->n,
                  "exact_match_stderr,strict-match", real_or_null(gsm8k_stderr(s->strict, g->n)),
                  "exact_match,flexible-extract", (f64)s->flexible / (f64)g->n, "exact_match_stderr,flexible-extract",
                  real_or_null(gsm8k_stderr(s->flexible, g->n)), "failed", (json_int_t)s->failed, "stopped",
                  (json_int_t)s->stopped, "seconds", g->seconds);
    char *text = o ? json_to_text(o, &json_spaced) : NULL;
    json_decref(o);
    if (!text) return err_nomem(e, "the result", 0);
    fprintf(g->json, "%s\n", text);
    free(text);
    return ST_OK;
}

static void print_failures(const gsm8k *g) {
    for (i64 i = 0, shown = 0; i < g->n && shown < 3; i++)
        if (!g->asked[i].a.ok && ++shown) log_warn("question %lld: %s", (long long)i, g->asked[i].a.error);
}

static status eval_gsm8k_run(gsm8k *g, i64 *n_failed, err *e) {
    score s = {0};
    status st = read_data(g, e);
    if (st == ST_OK) st = eval_create(&g->details, g->details_path, e);
    if (st == ST_OK) st = eval_create(&g->json, g->json_path, e);
    if (st == ST_OK && g->shots && !g->shots_path)
        log_note("shots come from the other documents of --data; lm_eval takes the training split: --shots-data");
    if (st == ST_OK) st = g->answers_path ? read_answers(g, e) : eval_gsm8k_ask(g, e);
    if (st == ST_OK) st = score_all(g, &s, e);
    *n_failed = s.failed;
    if (st != ST_OK) return st;
    print_failures(g);
    return eval_gsm8k_report(g, &s, e);
}

static void eval_gsm8k_free_all(gsm8k *g) {
    for (i64 i = 0; i < g->n; i++) {
        if (g->prompts) buf_free(&g->prompts[i]);
        if (!g->asked) continue;
        client_request_free(&g->asked[i].q);
        client_answer_free(&g->asked[i].a);
    }
    free(g->prompts);
    free(g->asked);
    items_free(&g->docs);
    items_free(&g->pool);
}

int eval_gsm8k(int argc, char **argv) {
    gsm8k g = {.shots = 5, .max_tokens = 256, .concurrency = 16, .answer_mb = ANSWER_MB};
    const opt_spec specs[] = {
        MODEL_OPTS(g.m),
        OPT_GROUP("GSM8K"),
        {"data", 0, OPT_STR, &g.data, "FILE", "questions: GSM8K's test.jsonl or lines of its schema", 0, 0},
        {"shots", 0, OPT_INT, &g.shots, "N", "examples before each question (default: 5)", 0, SHOTS_MAX},
        {"shots-data", 0, OPT_STR, &g.shots_path, "FILE",
         "examples: GSM8K's train.jsonl (default: the other documents of --data)", 0, 0},
        {"limit", 0, OPT_INT, &g.limit, "N", "asks the first N (default: 0, all)", 0, 1e9},
        {"max-tokens", 'n', OPT_INT, &g.max_tokens, "N", "most tokens of an answer (default: 256)", 1, 1e9},
        {"base-url", 0, OPT_STR, &g.base_url, "URL", "a server's /v1/completions (default: an engine in this process)",
         0, 0},
        {"served-model-name", 0, OPT_STR, &g.served_name, "NAME",
         "with --base-url (default: --model, else the first of /v1/models)", 0, 0},
        {"num-concurrent", 0, OPT_INT, &g.concurrency, "N", "questions at a time (default: 16)", 1, 65536},
        ANSWER_MB_OPT(g.answer_mb),
        {"answers", 0, OPT_STR, &g.answers_path, "FILE",
         "asks nobody: scores these answers, JSON lines {\"answer\": string}", 0, 0},
        {"details", 0, OPT_STR, &g.details_path, "FILE", "writes prompts, answers and verdicts as JSON lines", 0, 0},
        {"json", 0, OPT_STR, &g.json_path, "FILE", "writes the result as a JSON line", 0, 0},
    };
    int done = cmd_options("eval gsm8k", "--data FILE [--shots N] [--limit N] [options]", specs, COUNT_OF(specs), argc,
                           argv, NULL);
    if (done >= 0) return done;
    if (!g.data || (g.answers_path && g.base_url) || (g.served_name && !g.base_url)) {
        fprintf(stderr, "moonlet eval gsm8k: %s\n",
                !g.data         ? "--data FILE is needed"
                : g.served_name ? "--served-model-name goes with --base-url"
                                : "--answers and --base-url exclude each other");
        return EXIT_USAGE;
    }
    err e = {0};
    i64 n_failed = 0;
    status st = eval_gsm8k_run(&g, &n_failed, &e);
    bool all_failed = st == ST_OK && n_failed == g.n;
    eval_close(g.details, g.details_path, &st, &e);
    eval_close(g.json, g.json_path, &st, &e);
    eval_gsm8k_free_all(&g);
    if (st != ST_OK) return cmd_fail("eval gsm8k", &e);
    return all_failed ? EXIT_FAULT : EXIT_DONE;
}
