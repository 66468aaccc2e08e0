/* cmd/eval/eval.c: `moonlet eval`: finds the evaluation. */
#include "cmd/eval/eval.h"
#include "cmd/cmd.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} evals[] = {
    {"nano", "what the small model that comes along can do: the table of its accuracy", eval_nano},
    {"gsm8k", "GSM8K as lm-evaluation-harness asks and scores it, by a model or over HTTP", eval_gsm8k},
    {"answers", "asks questions in GSM8K's schema and counts right answers", eval_answers},
    {"vision", "what the vision tower makes of pictures, for comparison with any other engine", eval_vision},
    {"formats", "checkpoints of one model beside a master: perplexity, divergence, agreement", eval_formats},
    {"logprobs", "log-probabilities of given tokens, for comparison with any other engine", eval_logprobs},
};

static void print_evals(FILE *f) {
    fprintf(f, "usage: moonlet eval NAME [options]\n\n");
    for (size_t i = 0; i < COUNT_OF(evals); i++) fprintf(f, "  %-10s %s\n", evals[i].name, evals[i].help);
}

status eval_create(FILE **f, const char *path, err *e) {
    if (!path || (*f = fopen(path, "w"))) return ST_OK;
    return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
}

void eval_close(FILE *f, const char *path, status *st, err *e) {
    if (!f) return;
    bool bad = ferror(f);
    if ((fclose(f) || bad) && *st == ST_OK) *st = err_set(e, ST_IO, "%s cannot be written", path);
}

void eval_column(FILE *f, const char *text) {
    for (; text && *text; text++) putc(*text == '\n' || *text == '\r' || *text == '\t' ? ' ' : *text, f);
}

int cmd_eval(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < COUNT_OF(evals); i++)
        if (!strcmp(argv[1], evals[i].name)) return evals[i].run(argc - 1, argv + 1);
    bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1 && !help) fprintf(stderr, "moonlet eval: no evaluation \"%s\"\n", argv[1]);
    print_evals(help ? stdout : stderr);
    return help ? EXIT_DONE : EXIT_USAGE;
}
