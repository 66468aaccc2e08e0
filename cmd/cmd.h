/* cmd/cmd.h: the sub-commands of the one binary. Each takes its own argv (argv[0] is its name) and returns
 * the exit status: 0 done, 1 the input or the machine was at fault, 2 wrong usage. */
#ifndef CMD_CMD_H
#define CMD_CMD_H
#include "base/opt.h"

enum { EXIT_DONE = 0, EXIT_FAULT = 1, EXIT_USAGE = 2 };

int cmd_inspect(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_text(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_quantize(int argc, char **argv);

/* Prints "moonlet NAME: TEXT" to stderr and returns the exit status that fits e->code. */
int cmd_fail(const char *name, const err *e);
/* Parses the options; prints help to stdout for --help. Returns -1 to go on, else the exit status. */
int cmd_options(const char *name, const char *usage, const opt_spec *specs, size_t n, int argc, char **argv,
                opt_list *words);

#endif
