/* base/opt.h: command-line options from one table per command.
 *
 *   static const opt_spec specs[] = {
 *       {"model", 'm', OPT_STR, &o.model, "DIR", "checkpoint folder (default: the nano model)"},
 *       {"threads", 't', OPT_INT, &o.threads, "N", "CPU threads (default: all cores)", 0, 4096},
 *   };
 *
 * The table is the parser and the help text. An unknown option, a missing or malformed value and a value out
 * of range are errors that name the option: nothing is ignored. This file is also the only place that reads
 * the environment. */
#ifndef BASE_OPT_H
#define BASE_OPT_H
#include "base/err.h"

typedef enum {
    OPT_FLAG,   /* bool *: present means true */
    OPT_INT,    /* i64 *: decimal, within [lo, hi] */
    OPT_REAL,   /* f64 *: finite, within [lo, hi] */
    OPT_STR,    /* const char **                                   */
    OPT_LIST,   /* opt_list *: may be given several times */
    OPT_ENUM,   /* const char **: one of `arg`, written "a|b|c"; "a:N" stands for a:0, a:1 ... */
    OPT_HEADING /* no option: a line of the help text, in front of a group of them */
} opt_kind;

typedef struct {
    const char *items[32];
    int n;
} opt_list;

typedef struct {
    const char *name; /* without the dashes; NULL: a heading; '-' and '_' are the same in what a user types */
    char letter;      /* short form, 0 for none */
    opt_kind kind;
    void *dst;
    const char *arg;  /* name of the value in the help text; NULL for flags */
    const char *help; /* one sentence, default and unit included */
    f64 lo, hi;       /* for numbers; lo == hi means unbounded */
} opt_spec;
#define OPT_GROUP(title)                                                                                               \
    { NULL, 0, OPT_HEADING, NULL, NULL, title, 0, 0 }

/* Parses argv[1..argc). `--name value`, `--name=value`, `-x value`. Words that are no options are an error
 * unless `words` is given (words->n counts them). ST_INPUT on failure. *help is set by --help / -h. */
status opt_parse(const opt_spec *specs, size_t n, int argc, char **argv, opt_list *words, bool *help, err *e);
/* Prints the table, aligned, group by group. */
void opt_print_help(const opt_spec *specs, size_t n);
/* The environment, for the few things that have to come from it; NULL when unset or empty. */
const char *opt_env(const char *name);

#endif
