/* base/opt.h: command-line options from one table per command.
 *
 *   static const opt_spec specs[] = {
 *       {"model", 'm', OPT_STR, &o.model, "DIR", "checkpoint folder (default: the nano model)"},
 *       {"threads", 't', OPT_INT, &o.threads, "N", "CPU threads (default: all cores)", 0, 4096},
 *   };
 *
 * The table is the parser and the help text. An unknown option, a missing or malformed value and a value out
 * of range are errors that name the option: nothing is ignored. What users of other programs write can be in a table
 * of its own, which says what becomes of each such option (OPT_ELSEWHERE). This file is also the only place that reads
 * the environment. */
#ifndef BASE_OPT_H
#define BASE_OPT_H
#include "base/err.h"

typedef enum {
    OPT_FLAG,    /* bool *: present means true */
    OPT_INT,     /* i64 *: decimal, within [lo, hi] */
    OPT_REAL,    /* f64 *: finite, within [lo, hi] */
    OPT_STR,     /* const char **                                   */
    OPT_LIST,    /* opt_list *: may be given several times */
    OPT_NUMBERS, /* opt_list *: one word, and the words behind it that are numbers */
    OPT_ENUM,    /* const char **: one of `arg`, written "a|b|c"; "a:N" stands for a:0, a:1 ... */
    OPT_HEADING, /* no option: a line of the help text, in front of a group of them */
    OPT_TABLE    /* no option: `dst` is a table of other programs' */
} opt_kind;

typedef struct {
    const char *items[64];
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

/* An option of another program. The first row that has its name, and its value if the row has one, says what becomes
 * of it; one of the program's own name goes first. */
typedef enum {
    ELSEWHERE_SAME,    /* it is our option `text`, under another name */
    ELSEWHERE_NOTHING, /* taken, changes nothing, and a notice says so: `text` is why */
    ELSEWHERE_REFUSED  /* an error: `text` is what to write instead */
} elsewhere_kind;
typedef struct {
    const char *name; /* without the dashes, unless it is one of one dash; "speculative-*": all that begin so */
    elsewhere_kind kind;
    bool has_value;    /* a word follows; SAME: as our own has it */
    const char *value; /* the row is for this value alone; NULL: for any */
    const char *text;
} opt_elsewhere;
#define OPT_SAME(name, ours)                                                                                           \
    { name, ELSEWHERE_SAME, true, NULL, ours }
#define OPT_ELSEWHERE(table, n)                                                                                        \
    { NULL, 0, OPT_TABLE, (void *)(uintptr_t)(table), NULL, NULL, 0, (f64)(n) }

/* Parses argv[1..argc). `--name value`, `--name=value`, `-x value`. Words that are no options are an error
 * unless `words` is given (words->n counts them). ST_INPUT on failure. *help is set by --help / -h. */
status opt_parse(const opt_spec *specs, size_t n, int argc, char **argv, opt_list *words, bool *help, err *e);
/* Prints the table, aligned, group by group. */
void opt_print_help(const opt_spec *specs, size_t n);
/* The environment, for the few things that have to come from it; NULL when unset or empty. */
const char *opt_env(const char *name);

#endif
