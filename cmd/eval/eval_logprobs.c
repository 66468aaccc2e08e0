/* cmd/eval/eval_logprobs.c: `moonlet eval logprobs`: JSON lines {"ids"} or {"text"} in, log-probabilities out.
 *
 * {"ids": [n], "logprobs": [n, first null], "top": [n + 1, first null, each K pairs [id, logprob]]}; "top" only
 * with --top K. Numbers have nine significant digits, so float32 values survive. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/lib/documents.h"
#include "cmd/lib/jsonl.h"
#include "kernels/sampling/logprobs.h"
#include "cmd/lib/model_opts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    model_opts m;
    const char *data;
    i64 top;
    bool decode;
    engine *g;
    seq *s;
    text_encoder words;
    ids_buf ids;
    buf scores, tops; /* of a line: ends of the lists, as JSON */
    i32 *best;        /* [top] */
    f64 sum;          /* of all log-probabilities */
    i64 count, lines;
} logprobs;

static status on_logits(void *ud, i64 index, f32 *logits, err *e) {
    (void)e;
    logprobs *l = ud;
    i64 vocab = engine_config(l->g)->vocab;
    f64 lse = log_sum_exp(logits, vocab);
    if (index + 1 < (i64)l->ids.len) {
        f64 lp = (f64)logits[l->ids.data[index + 1]] - lse;
        buf_fmt(&l->scores, ", %.9g", lp);
        l->sum += lp;
        l->count++;
    }
    if (!l->top) return ST_OK;
    largest_of(logits, vocab, l->best, l->top);
    buf_str(&l->tops, ", [");
    for (i64 k = 0; k < l->top; k++)
        buf_fmt(&l->tops, "%s[%d, %.9g]", k ? ", " : "", l->best[k], (f64)logits[l->best[k]] - lse);
    buf_char(&l->tops, ']');
    return ST_OK;
}

static status eval_logprobs_one_line(void *ud, const json_t *line, buf *out, err *e) {
    logprobs *l = ud;
    l->ids.len = 0;
    status st = line_ids(&l->words, line, &l->ids, e);
    if (st != ST_OK) return st;
    if (l->ids.len == 0) return err_set(e, ST_INPUT, "the line has no tokens");
    buf_clear(&l->scores);
    buf_str(&l->scores, "], \"logprobs\": [null");
    buf_clear(&l->tops);
    buf_str(&l->tops, "], \"top\": [null");
    f64 sum = l->sum;
    i64 count = l->count;
    seq_truncate(l->s, 0);
    st = seq_run(l->s, l->ids.data, (i64)l->ids.len, l->decode, LOGITS_ALL, on_logits, l, e);
    if (st != ST_OK) {
        l->sum = sum;
        l->count = count;
        return st;
    }
    if (l->scores.failed || l->tops.failed)
        return err_nomem(e, "a line's log-probabilities", l->scores.len + l->tops.len);
    buf_str(out, "{\"ids\": [");
    for (size_t i = 0; i < l->ids.len; i++) buf_fmt(out, "%s%d", i ? ", " : "", l->ids.data[i]);
    buf_add(out, l->scores.data, l->scores.len);
    if (l->top) buf_add(out, l->tops.data, l->tops.len);
    buf_str(out, "]}");
    l->lines++;
    return ST_OK;
}

static status eval_logprobs_run(logprobs *l, i64 *n_failed, err *e) {
    status st = model_opts_finish(&l->m, e);
    if (st == ST_OK) st = engine_open(&l->g, &l->m.engine, e);
    if (st == ST_OK) st = seq_open(&l->s, l->g, e);
    if (st != ST_OK) return st;
    log_note("%s", engine_plan(l->g));
    l->words = (text_encoder){.model_dir = l->m.engine.model_dir, .vocab = engine_config(l->g)->vocab};
    l->top = min_i64(l->top, engine_config(l->g)->vocab);
    l->best = calloc((size_t)l->top + 1, sizeof *l->best);
    if (!l->best) return err_nomem(e, "the top list", (u64)l->top * 4);
    bool from_stdin = !strcmp(l->data, "-");
    FILE *in = from_stdin ? stdin : fopen(l->data, "r");
    if (!in) return err_set(e, ST_IO, "%s: %s", l->data, strerror(errno));
    f64 start = now_s();
    st = jsonl_run(in, from_stdin ? "stdin" : l->data, eval_logprobs_one_line, l, n_failed, e);
    if (!from_stdin) fclose(in);
    if (st == ST_OK && l->count)
        log_note("%lld lines, %lld tokens scored in %.2f s, mean log-probability %.6f, perplexity %.6g",
                 (long long)l->lines, (long long)l->count, now_s() - start, l->sum / (f64)l->count,
                 exp(-l->sum / (f64)l->count));
    return st;
}

int eval_logprobs(int argc, char **argv) {
    logprobs l = {.data = "-"};
    const opt_spec specs[] = {
        MODEL_OPTS(l.m),
        OPT_GROUP("Texts"),
        {"data", 0, OPT_STR, &l.data, "FILE", "JSON lines {\"ids\"} or {\"text\"} (default: -, stdin)", 0, 0},
        {"top", 0, OPT_INT, &l.top, "K", "also the K most probable tokens at every position (default: 0)", 0, 1000},
        {"decode", 0, OPT_FLAG, &l.decode, NULL,
         "runs every token in decode form (absorbed attention), as generated ones are", 0, 0},
    };
    int exit_status =
        cmd_options("eval logprobs", "[--data FILE] [--top K] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (exit_status >= 0) return exit_status;
    err e = {0};
    i64 n_failed = 0;
    status st = eval_logprobs_run(&l, &n_failed, &e);
    exit_status = st != ST_OK ? cmd_fail("eval logprobs", &e) : n_failed ? EXIT_FAULT : EXIT_DONE;
    seq_close(l.s);
    engine_close(l.g);
    text_encoder_close(&l.words);
    ids_free(&l.ids);
    buf_free(&l.scores);
    buf_free(&l.tops);
    free(l.best);
    return exit_status;
}
