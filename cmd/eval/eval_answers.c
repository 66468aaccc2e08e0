/* cmd/eval/eval_answers.c: `moonlet eval answers`: asks every question of a JSONL file in GSM8K's schema
 * ({"question", "answer": "... #### 42"}) in a chat of its own, greedily, and compares the last number of the
 * model's content with the one behind ####. */
#include "cmd/lib/chat_workers.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/eval/eval_items.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool right, ended;
    i64 tokens;
    char *content;
} verdict;

typedef struct {
    model_opts m;
    const char *data, *json_path, *details;
    bool instant;
    i64 limit, max_tokens, parallel;
    item_file file;
    verdict *verdicts; /* [file.n] */
    f64 seconds;
    FILE *details_file, *json_file; /* opened before the first question, closed with their errors at the end */
} answers;

static status one_question(void *ud, moon_engine *m, i64 i, err *e) {
    answers *a = ud;
    verdict *v = &a->verdicts[i];
    reply r = {0};
    f64 want = 0, have;
    json_t *chat = chat_of(json_object_get(a->file.items[i], "question"));
    status st = chat ? ST_OK : err_nomem(e, "the request", 0);
    if (st == ST_OK && a->instant) st = chat_instant(chat, e);
    if (st == ST_OK) st = ask_chat(m, chat, a->max_tokens, &r, e);
    if (st == ST_OK) {
        last_number(wanted_value(a->file.items[i]), &want);
        v->right = last_number(reply_text(&r), &have) && have == want;
        v->ended = r.ended;
        v->tokens = r.output_tokens;
        v->content = buf_take(&r.content);
    } else {
        err_prefix(e, "%s line %lld", a->data, (long long)a->file.lines[i]);
    }
    json_decref(chat);
    reply_free(&r);
    return st;
}

static void eval_answers_write_details(const answers *a) {
    for (i64 i = 0; i < a->file.n; i++) {
        f64 want = 0;
        last_number(wanted_value(a->file.items[i]), &want);
        fputs(a->verdicts[i].right ? "right\t" : "WRONG\t", a->details_file);
        eval_column(a->details_file, json_string_value(json_object_get(a->file.items[i], "question")));
        fprintf(a->details_file, "\t%g\t", want);
        eval_column(a->details_file, a->verdicts[i].content);
        putc('\n', a->details_file);
    }
}

static status eval_answers_report(const answers *a, err *e) {
    i64 right = 0, tokens = 0, unfinished = 0, n = a->file.n;
    for (i64 i = 0; i < n; i++) {
        right += a->verdicts[i].right;
        tokens += a->verdicts[i].tokens;
        unfinished += !a->verdicts[i].ended;
    }
    f64 p = (f64)right / (f64)n, se = sqrt(p * (1 - p) / (f64)n);
    printf("%s: %lld of %lld right, %.1f %% (standard error %.1f), %lld tokens in %.1f s, %.0f tok/s, %lld cut off\n",
           a->data, (long long)right, (long long)n, 100 * p, 100 * se, (long long)tokens, a->seconds,
           (f64)tokens / a->seconds, (long long)unfinished);
    if (!a->json_file) return ST_OK;
    buf name = {0};
    buf_json_str(&name, a->data, strlen(a->data));
    if (name.failed) return err_nomem(e, "the result", strlen(a->data));
    fprintf(
        a->json_file,
        "{\"data\": %s, \"asked\": %lld, \"right\": %lld, \"accuracy\": %.6f, \"stderr\": %.6f, \"tokens\": %lld, \"seconds\": %.3f}\n",
        name.data, (long long)n, (long long)right, p, se, (long long)tokens, a->seconds);
    buf_free(&name);
    return ST_OK;
}

static status eval_answers_run(answers *a, err *e) {
    askers *k = NULL;
    status st = model_opts_finish(&a->m, e);
    if (st == ST_OK) st = items_read(&a->file, a->data, a->limit, false, check_question, NULL, e);
    if (st == ST_OK) st = eval_create(&a->details_file, a->details, e);
    if (st == ST_OK) st = eval_create(&a->json_file, a->json_path, e);
    if (st != ST_OK) return st;
    a->verdicts = calloc((size_t)a->file.n, sizeof *a->verdicts);
    if (!a->verdicts) return err_nomem(e, "verdicts", (u64)a->file.n * sizeof *a->verdicts);
    st = askers_open(&k, &a->m, a->parallel, e);
    if (st != ST_OK) return st;
    log_note("%s; %s", moon_plan(askers_first(k)), moon_template(askers_first(k)));
    f64 start = now_s();
    st = askers_run(k, "questions", a->file.n, one_question, a, e);
    a->seconds = now_s() - start;
    askers_close(k);
    if (st == ST_OK && a->details_file) eval_answers_write_details(a);
    return st == ST_OK ? eval_answers_report(a, e) : st;
}

int eval_answers(int argc, char **argv) {
    answers a = {.max_tokens = 512, .parallel = 1};
    const opt_spec specs[] = {
        MODEL_OPTS(a.m),
        OPT_GROUP("Answers"),
        {"data", 0, OPT_STR, &a.data, "FILE", "questions, JSON lines in GSM8K's schema", 0, 0},
        {"limit", 0, OPT_INT, &a.limit, "N", "asks the first N (default: 0, all)", 0, 1e9},
        {"max-tokens", 'n', OPT_INT, &a.max_tokens, "N", "most tokens of an answer (default: 512)", 1, 1e9},
        {"instant", 0, OPT_FLAG, &a.instant, NULL, "without thinking", 0, 0},
        EVAL_PARALLEL(a.parallel, "1"),
        {"details", 0, OPT_STR, &a.details, "FILE", "writes every question, verdict and answer, tab-separated", 0, 0},
        {"json", 0, OPT_STR, &a.json_path, "FILE", "writes the result as a JSON line", 0, 0},
    };
    int exit_status = cmd_options("eval answers", "--data FILE [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (exit_status >= 0) return exit_status;
    if (!a.data) {
        fprintf(stderr, "moonlet eval answers: --data FILE is needed\n");
        return EXIT_USAGE;
    }
    err e = {0};
    status st = eval_answers_run(&a, &e);
    eval_close(a.details_file, a.details, &st, &e);
    eval_close(a.json_file, a.json_path, &st, &e);
    for (i64 i = 0; a.verdicts && i < a.file.n; i++) free(a.verdicts[i].content);
    free(a.verdicts);
    items_free(&a.file);
    return st == ST_OK ? EXIT_DONE : cmd_fail("eval answers", &e);
}
