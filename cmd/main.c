/* cmd/main.c: finds the sub-command. */
#include "cmd/cmd.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "answers a question or holds a conversation", cmd_run},
    {"serve", "the model behind an OpenAI-compatible HTTP interface", cmd_serve},
    {"eval", "log-probabilities and answers, measured", cmd_eval},
    {"inspect", "what a checkpoint holds: tensors and bytes by kind, memory plan", cmd_inspect},
    {"quantize", "a checkpoint written again in another weight format", cmd_quantize},
    {"check", "every operation of a backend against the reference", cmd_check},
    {"bench", "kernels and machine: time, share of the roofline, error", cmd_bench},
    {"tune", "measured choices of kernels for this GPU, as a table", cmd_tune},
    {"profile", "steps of given shapes on a GPU, and where their time goes", cmd_profile},
    {"text", "tokenizer, chat templates and parsers, JSON lines in and out", cmd_text},
};

int cmd_fail(const char *name, const err *e) {
    fflush(stdout);
    fprintf(stderr, "moonlet %s: %s\n", name, e->text[0] ? e->text : status_text(e->code));
    return EXIT_FAULT;
}

int cmd_options(const char *name, const char *usage, const opt_spec *specs, size_t n, int argc, char **argv,
                opt_list *words) {
    bool help;
    err e = {0};
    if (opt_parse(specs, n, argc, argv, words, &help, &e) != ST_OK) {
        fprintf(stderr, "moonlet %s: %s\n", name, e.text);
        return EXIT_USAGE;
    }
    if (!help) return -1;
    printf("usage: moonlet %s %s\n", name, usage);
    opt_print_help(specs, n);
    return EXIT_DONE;
}

static void print_commands(FILE *f) {
    fprintf(f, "Moonlet %s runs Moonshot's Kimi-K2 family.\n\nusage: moonlet COMMAND [options]\n\n", MOON_VERSION);
    for (size_t i = 0; i < COUNT_OF(commands); i++) fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(f, "\n`moonlet COMMAND --help` lists a command's options.\n");
}

/* OpenMP's threads spin for milliseconds at the end of a parallel loop before they sleep. On cores that are
 * shared, that steals the time of whoever has work; a short spin loses nothing elsewhere. Must be set before
 * libgomp's own constructor reads it; a value from the user's environment stays. */
__attribute__((constructor(101))) static void spin_briefly(void) { setenv("GOMP_SPINCOUNT", "20000", 0); }

/* Weights are mapped: reading a page of a file that was shortened meanwhile (or whose disk failed) raises SIGBUS. */
static void on_bus_error(int sig) {
    (void)sig;
    static const char text[] = "moonlet: a checkpoint file was shortened or became unreadable while it was in use\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(EXIT_FAULT);
    _exit(EXIT_FAULT);
}

/* Files must not take the numbers of closed standard streams: a result file would get what goes to stdout. Opened
 * the wrong way round, so that using the stream fails as it should. */
static void occupy_closed_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) _exit(EXIT_FAULT);
}

static int main_run(int argc, char **argv) {
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_commands(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("moonlet %s\n", MOON_VERSION);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "moonlet: no command \"%s\"\n", argv[1]);
    print_commands(stderr);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    signal(SIGBUS, on_bus_error);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, not a death by signal */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file beyond a limit */
    occupy_closed_streams();
    int result = main_run(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && result == EXIT_DONE) {
        fprintf(stderr, "moonlet: cannot write to stdout\n");
        return EXIT_FAULT;
    }
    return result;
}
