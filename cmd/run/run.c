/* cmd/run/run.c: `moonlet run`: one answer with -p, else a conversation. A front end like any other: it uses
 * moonlet.h.
 *
 * stdout carries the model's answer alone. Reasoning is dimmed on a terminal and goes to stderr elsewhere;
 * the speed line and notices go to stderr. Ctrl-C stops the answer at its next piece of text, a
 * second one or one at the prompt ends the program.
 *
 * With --tools the model may call tools. Its calls are shown as OpenAI's JSON; --tool-command names a program that
 * carries them out, and at a terminal a person is asked for the results. The model then goes on. */
#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "cmd/cmd.h"
#include "cmd/lib/picture_blocks.h"
#include "cmd/lib/speculative.h"
#include "moonlet.h"
#include "cmd/lib/tool_calls.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOOL_ROUNDS = 8 }; /* of calls and results in one answer */
enum { PREVIEW_COLUMNS = 32 };

typedef struct {
    model_opts m;
    speculative_opts draft;
    const char *prompt, *system, *template, *tools_file, *tool_command;
    opt_list images, videos;
    const char *schema_file, *regex, *grammar_file;
    bool instant, raw, quiet, ignore_eos;
    i64 max_tokens, top_k, seed;
    f64 temperature, top_p, min_p, repetition, presence, frequency;

    moon_engine *engine;
    json_t *messages;
    json_t *pictures;      /* of --image, parts of the next question; NULL: none, or they were asked about */
    json_t *tools;         /* NULL: none */
    buf must;              /* of --schema or --grammar: the file's text, NUL-terminated */
    buf answer, reasoning; /* content and reasoning of the answer under way */
    json_t *calls;         /* its tool calls, in OpenAI's form */
    bool tty, dimmed;      /* dimmed: the terminal is in dim mode now */
    bool typed;            /* a conversation with a person at a terminal */
    bool reasoning_open, write_failed;
} chat_run;

static volatile sig_atomic_t interrupted;

/* A long prompt, or a tool call that is not shown before it is complete, lets the first Ctrl-C wait. */
static void on_interrupt(int sig) {
    (void)sig;
    if (interrupted++) _exit(EXIT_FAULT);
}

static void set_dim(chat_run *r, bool dim) {
    if (r->tty && dim != r->dimmed) fputs(dim ? "\033[2m" : "\033[0m", stdout);
    r->dimmed = dim;
}

static void show(chat_run *r, FILE *f, const char *text, size_t n) {
    if (fwrite(text, 1, n, f) != n || fflush(f)) r->write_failed = true;
}

/* The model's call as a client of the API would get it. */
static void show_call(chat_run *r, const char *text, size_t n) {
    json_t *call = tool_call_of_event(text, n);
    char *line = call ? json_to_text(call, &json_spaced) : NULL;
    if (line) {
        show(r, stdout, "[tool call] ", 12);
        show(r, stdout, line, strlen(line));
        show(r, stdout, "\n", 1);
    }
    free(line);
    json_array_append_new(r->calls, call);
}

static int cmd_run_on_event(void *user, moon_event event, const char *text, size_t n) {
    chat_run *r = user;
    if (event == MOON_REASONING) {
        set_dim(r, true);
        r->reasoning_open = true;
        buf_add(&r->reasoning, text, n);
        show(r, r->tty ? stdout : stderr, text, n);
    } else {
        if (r->reasoning_open) show(r, r->tty ? stdout : stderr, "\n", 1);
        r->reasoning_open = false;
        set_dim(r, false);
        if (event == MOON_TOOL_CALL) {
            show_call(r, text, n);
        } else {
            buf_add(&r->answer, text, n);
            show(r, stdout, text, n);
        }
    }
    return interrupted || r->write_failed;
}

static char *request_json(const chat_run *r, err *e) {
    json_t *o = json_pack("{s:O}", "messages", r->messages);
    if (o && r->instant) json_object_set_new(o, "chat_template_kwargs", json_pack("{s:b}", "thinking", 0));
    if (o && r->tools) json_object_set(o, "tools", r->tools);
    char *text = o ? json_to_text(o, &json_compact) : NULL;
    json_decref(o);
    if (!text) err_nomem(e, "the request", 0);
    return text;
}

static void print_speed(const chat_run *r, const moon_stats *s) {
    if (r->quiet) return;
    f64 in = (f64)(s->prompt_tokens - s->reused_tokens) / (s->prompt_seconds + 1e-9);
    f64 out = (f64)s->output_tokens / (s->output_seconds + 1e-9);
    fprintf(stderr, "%s[%lld prompt tokens", r->tty ? "\033[2m" : "", (long long)s->prompt_tokens);
    if (s->reused_tokens) fprintf(stderr, " (%lld reused)", (long long)s->reused_tokens);
    fprintf(stderr, ", %.0f tok/s; %lld output tokens, %.0f tok/s; %s]%s\n", in, (long long)s->output_tokens, out,
            s->finish, r->tty ? "\033[0m" : "");
}

/* Asks for the answer to the conversation so far and streams it. */
static moon_status answer(chat_run *r, const char *raw_prompt, moon_error *error) {
    moon_request q = MOON_REQUEST_INIT;
    err e = {0};
    char *chat = NULL;
    if (raw_prompt) {
        q.prompt = raw_prompt;
    } else {
        chat = request_json(r, &e);
        if (!chat) return error->status = MOON_NOMEM, strcpy(error->text, e.text), MOON_NOMEM;
        q.chat = chat;
    }
    q.max_tokens = r->max_tokens;
    q.temperature = r->temperature;
    q.top_k = r->top_k;
    q.top_p = r->top_p;
    q.min_p = r->min_p;
    q.repetition_penalty = r->repetition;
    q.presence_penalty = r->presence;
    q.frequency_penalty = r->frequency;
    q.seed = (uint64_t)r->seed;
    q.ignore_eos = r->ignore_eos;
    q.json_schema = r->schema_file ? r->must.data : NULL;
    q.grammar = r->grammar_file ? r->must.data : NULL;
    q.regex = r->regex;
    moon_stats stats = {0};
    interrupted = 0;
    r->reasoning_open = false;
    buf_clear(&r->answer);
    buf_clear(&r->reasoning);
    json_array_clear(r->calls);
    moon_status st = moon_run(r->engine, &q, cmd_run_on_event, r, &stats, error);
    set_dim(r, false);
    if (r->answer.len || r->reasoning_open) show(r, r->answer.len || r->tty ? stdout : stderr, "\n", 1);
    if (stats.finish) print_speed(r, &stats);
    free(chat);
    return st;
}

/* What was answered, and thought: templates that keep no earlier reasoning leave it out. */
static void cmd_run_add_answer(chat_run *r) {
    json_t *said =
        json_pack("{s:s, s:s%, s:s%}", "role", "assistant", "content", r->answer.data ? r->answer.data : "",
                  r->answer.len, "reasoning_content", r->reasoning.data ? r->reasoning.data : "", r->reasoning.len);
    if (json_array_append_new(r->messages, said))
        fprintf(stderr, "moonlet run: the answer is not kept: out of memory\n");
}

/* False for text that is not UTF-8. */
static bool add_message(chat_run *r, const char *role, const char *content, size_t n) {
    json_t *text = json_stringn(content, n);
    if (text && r->pictures && !strcmp(role, "user")) {
        json_t *parts = r->pictures;
        r->pictures = NULL;
        if (json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "text", "text", text))) text = NULL;
        return !json_array_append_new(r->messages, json_pack("{s:s, s:o}", "role", role, "content", parts));
    }
    if (text) return !json_array_append_new(r->messages, json_pack("{s:s, s:o}", "role", role, "content", text));
    fprintf(stderr, "moonlet run: the %s message is not valid UTF-8\n", role);
    return false;
}

static bool start_over(chat_run *r) {
    json_array_clear(r->messages);
    return !r->system || add_message(r, "system", r->system, strlen(r->system));
}

static void drop_messages(chat_run *r, size_t keep) {
    while (json_array_size(r->messages) > keep) json_array_remove(r->messages, json_array_size(r->messages) - 1);
}

/* The result of one call into *result; false: there is none. The model made up the name and a program the result:
 * neither steers the terminal. */
static bool get_result(chat_run *r, const json_t *call, buf *result) {
    err e = {0};
    char name[256], said[2000];
    buf_clear(result);
    snprintf(name, sizeof name, "%s", tool_call_name(call));
    make_printable(name, false);
    if (!tool_declared(r->tools, tool_call_name(call))) { /* the model's invention: no program sees it */
        buf_fmt(result, "error: there is no tool \"%s\"", tool_call_name(call));
        fprintf(stderr, "(the model called a tool that --tools does not declare: it is told so)\n");
        return !result->failed;
    }
    if (r->tool_command) {
        if (tool_run(r->tool_command, call, result, &e) != ST_OK)
            return fprintf(stderr, "moonlet run: %s\n", e.text), false;
        snprintf(said, sizeof said, "%s", result->data ? result->data : "");
        make_printable(said, true);
        fprintf(stderr, "%s[%s says] %s%s\n", r->tty ? "\033[2m" : "", name, said, r->tty ? "\033[0m" : "");
        return true;
    }
    if (!r->typed) return false;
    char *line = NULL;
    size_t cap = 0;
    fprintf(stderr, "what does %s say? ", name);
    ssize_t n = getline(&line, &cap, stdin);
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (n > 0) buf_add(result, line, (size_t)n);
    free(line);
    return n > 0;
}

/* Adds the calls and their results to the conversation; false, with nothing added, when a result is missing. */
static bool carry_out(chat_run *r) {
    err e = {0};
    buf result = {0};
    size_t before = json_array_size(r->messages);
    json_t *said =
        json_pack("{s:s, s:s, s:s, s:o}", "role", "assistant", "content", r->answer.data ? r->answer.data : "",
                  "reasoning_content", r->reasoning.data ? r->reasoning.data : "", "tool_calls", json_copy(r->calls));
    bool ok = !json_array_append_new(r->messages, said);
    for (size_t i = 0; ok && i < json_array_size(r->calls); i++) {
        const json_t *call = json_array_get(r->calls, i);
        ok = get_result(r, call, &result);
        if (ok && tool_add_result(r->messages, call, &result, &e) != ST_OK)
            ok = (fprintf(stderr, "moonlet run: %s\n", e.text), false);
    }
    buf_free(&result);
    if (!ok) drop_messages(r, before);
    return ok;
}

/* An answer with whatever tool calls it takes. */
static moon_status answer_with_tools(chat_run *r, moon_error *error) {
    for (int round = 0;; round++) {
        moon_status st = answer(r, NULL, error);
        if (st != MOON_OK || !json_array_size(r->calls) || r->write_failed) return st;
        if (!r->tool_command && !r->typed) {
            fprintf(stderr, "(tool calls are shown, not carried out: --tool-command names a program that does)\n");
            return st;
        }
        if (round == TOOL_ROUNDS) {
            fprintf(stderr, "(%d rounds of tool calls: no more are carried out)\n", TOOL_ROUNDS);
            return st;
        }
        if (!carry_out(r)) {
            if (!r->tool_command) return fprintf(stderr, "(no result: the call stands as the answer)\n"), st;
            error->status = MOON_INPUT;
            snprintf(error->text, sizeof error->text, "a tool call could not be carried out");
            return MOON_INPUT;
        }
    }
}

/* The conversation loop. Returns the exit status. */
static int converse(chat_run *r) {
    char *line = NULL;
    size_t cap = 0;
    int result = EXIT_DONE;
    bool typed = r->typed = isatty(0); /* else the questions are shown, so that the output reads as a conversation */
    if (typed) fprintf(stderr, "/reset starts over, /help lists more, Ctrl-D ends.\n");
    for (;;) {
        if (typed) fputs("> ", stderr);
        interrupted = 0;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) break;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (n == 0) continue;
        if (!typed && !r->quiet) fprintf(stderr, "\n> %s\n", line);
        if (!strcmp(line, "/reset")) {
            start_over(r);
            fprintf(stderr, "The conversation starts over.\n");
            continue;
        }
        if (!strcmp(line, "/help")) {
            fprintf(stderr, "/reset  forget the conversation\n/exit   leave (or Ctrl-D)\n"
                            "Ctrl-C  stop the answer, twice: end at once\n");
            continue;
        }
        if (!strcmp(line, "/exit") || !strcmp(line, "/quit")) break;
        size_t before = json_array_size(r->messages);
        if (!add_message(r, "user", line, (size_t)n)) {
            result = EXIT_FAULT;
            continue;
        }
        moon_error error;
        moon_status st = answer_with_tools(r, &error);
        if (st == MOON_OK || st == MOON_CANCELLED) {
            cmd_run_add_answer(r);
        } else {
            fprintf(stderr, "moonlet run: %s\n", error.text);
            drop_messages(r, before);
            result = EXIT_FAULT;
        }
        if (r->write_failed) break;
    }
    if (!feof(stdin) && ferror(stdin) && !interrupted) {
        fprintf(stderr, "moonlet run: cannot read stdin: %s\n", strerror(errno));
        result = EXIT_FAULT;
    }
    free(line);
    if (typed) fputc('\n', stderr);
    return r->write_failed ? EXIT_FAULT : result;
}

static int cmd_run_once(chat_run *r) {
    moon_error error;
    if (!r->raw && !add_message(r, "user", r->prompt, strlen(r->prompt))) return EXIT_FAULT;
    moon_status st = r->raw ? answer(r, r->prompt, &error) : answer_with_tools(r, &error);
    if (r->write_failed) {
        fprintf(stderr, "moonlet run: cannot write the answer: %s\n", strerror(errno));
        return EXIT_FAULT;
    }
    if (st == MOON_OK) return EXIT_DONE;
    fprintf(stderr, "moonlet run: %s\n", st == MOON_CANCELLED ? "stopped" : error.text);
    return EXIT_FAULT;
}

static moon_status cmd_run_open_engine(chat_run *r, moon_error *error) {
    err e = {0};
    scheduler_options so = {0};
    if (model_opts_finish(&r->m, &e) != ST_OK || speculative_not_served(&r->draft, &e) != ST_OK ||
        speculative_finish(&r->draft, &r->m.engine, &so, &e) != ST_OK)
        return error->status = (moon_status)e.code, strcpy(error->text, e.text), error->status;
    moon_options o = MOON_OPTIONS_INIT;
    model_opts_public(&r->m, &o);
    o.chat_template = r->template;
    o.draft_dir = r->m.engine.draft_dir;
    o.draft_optional = r->m.engine.draft_found;
    o.draft_tokens = so.draft_tokens;
    o.draft_topk = r->m.engine.draft_topk;
    o.draft_steps = r->m.engine.draft_steps;
    moon_status st = moon_open(&r->engine, &o, error);
    if (st == MOON_OK && !r->quiet) log_note("%s; %s", moon_plan(r->engine), moon_template(r->engine));
    return st;
}

static bool options_fit(const chat_run *r) {
    const char *wrong = r->tool_command && !r->tools_file     ? "--tool-command needs --tools FILE"
                        : r->raw && r->tools_file             ? "--raw continues plain text: it has no tools"
                        : r->raw && r->images.n + r->videos.n ? "--raw continues plain text: it has no pictures"
                        : !!r->schema_file + !!r->regex + !!r->grammar_file > 1
                            ? "an answer is held to one of --schema, --regex and --grammar only"
                            : NULL;
    if (wrong) fprintf(stderr, "moonlet run: %s\n", wrong);
    return !wrong;
}

static status cmd_run_read_text(const char *path, buf *out, err *e) {
    enum { TEXT_MOST = 1 << 20 };
    status st = file_read(path, TEXT_MOST, out, e);
    if (st == ST_OK && out->len && memchr(out->data, 0, out->len))
        return err_set(e, ST_FORMAT, "%s holds a NUL byte: it is no text", path);
    buf_char(out, 0);
    return st == ST_OK && out->failed ? err_nomem(e, path, out->len) : st;
}

/* A file as a part of the next question, "image_url" or "video_url": a data: URI. */
static status add_file(chat_run *r, const char *kind, const char *path, err *e) {
    enum { FILE_MOST = 512 << 20 };
    static const char head[] = "data:;base64,";
    buf file = {0}, url = {0};
    status st = file_read(path, FILE_MOST, &file, e);
    if (st == ST_OK && r->tty && !r->quiet && !strcmp(kind, "image_url") &&
        picture_blocks(stderr, file.data, file.len, PREVIEW_COLUMNS, e) != ST_OK)
        st = err_prefix(e, "%s", path);
    buf_add(&url, head, sizeof head - 1);
    if (st == ST_OK) base64_encode(&url, file.data, file.len);
    if (!r->pictures) r->pictures = json_array();
    if (st == ST_OK && (url.failed || json_array_append_new(r->pictures, json_pack("{s:s, s:{s:s%}}", "type", kind,
                                                                                   kind, "url", url.data, url.len))))
        st = err_nomem(e, path, file.len);
    buf_free(&file);
    buf_free(&url);
    return st;
}

/* What cannot be had is said before the model is loaded. */
static bool cmd_run_read_files(chat_run *r) {
    err e = {0};
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < r->images.n; i++) st = add_file(r, "image_url", r->images.items[i], &e);
    for (int i = 0; st == ST_OK && i < r->videos.n; i++) st = add_file(r, "video_url", r->videos.items[i], &e);
    if (st == ST_OK && r->tools_file) st = tools_read(&r->tools, r->tools_file, &e);
    if (st == ST_OK && r->schema_file) st = cmd_run_read_text(r->schema_file, &r->must, &e);
    if (st == ST_OK && r->grammar_file) st = cmd_run_read_text(r->grammar_file, &r->must, &e);
    if (st != ST_OK) fprintf(stderr, "moonlet run: %s\n", e.text);
    return st == ST_OK;
}

int cmd_run(int argc, char **argv) {
    chat_run r = {.top_p = 1, .repetition = 1, .tty = isatty(1)};
    const opt_spec specs[] = {
        MODEL_OPTS(r.m),
        SPECULATIVE_OPTS(r.draft),
        OPT_GROUP("Question"),
        {"prompt", 'p', OPT_STR, &r.prompt, "TEXT", "one question; without it a conversation begins", 0, 0},
        {"system", 's', OPT_STR, &r.system, "TEXT", "a system message", 0, 0},
        {"raw", 0, OPT_FLAG, &r.raw, NULL, "continues the prompt as plain text, without the chat template", 0, 0},
        {"instant", 0, OPT_FLAG, &r.instant, NULL, "no thinking (chat_template_kwargs.thinking = false)", 0, 0},
        {"tools", 0, OPT_STR, &r.tools_file, "FILE",
         "tools that the model may call: JSON as in the OpenAI API's \"tools\"", 0, 0},
        {"tool-command", 0, OPT_STR, &r.tool_command, "PROGRAM",
         "carries out the calls: PROGRAM NAME, arguments as JSON on stdin, the result on stdout", 0, 0},
        {"video", 0, OPT_LIST, &r.videos, "FILE",
         "a video for the first question: MP4, MOV, WebM or Matroska; needs moonlet-video; may be repeated", 0, 0},
        {"image", 0, OPT_LIST, &r.images, "FILE",
         "a picture (JPEG, PNG, WebP or GIF) in front of the first question; may be repeated", 0, 0},
        {"template", 0, OPT_STR, &r.template, "NAME",
         "chat template: k2.5, k2.6, k2.7-code, k2-thinking, ... (default: the model's)", 0, 0},
        OPT_GROUP("Answer"),
        {"max-tokens", 'n', OPT_INT, &r.max_tokens, "N", "most tokens of an answer (default: what the context holds)",
         1, 1e9},
        {"temperature", 0, OPT_REAL, &r.temperature, "T", "0 is greedy (default: 0)", 0, 100},
        {"temp", 0, OPT_REAL, &r.temperature, "T", "the same", 0, 100},
        {"top-k", 0, OPT_INT, &r.top_k, "K", "keeps the K most probable tokens (default: 0, off)", 0, 1e9},
        {"top-p", 0, OPT_REAL, &r.top_p, "P", "keeps the most probable tokens up to this share (default: 1, off)",
         1e-12, 1},
        {"min-p", 0, OPT_REAL, &r.min_p, "P", "drops tokens below P times the best (default: 0, off)", 0, 1},
        {"repetition-penalty", 0, OPT_REAL, &r.repetition, "X", "above 1 makes seen tokens less likely (default: 1)",
         1e-6, 100},
        {"presence-penalty", 0, OPT_REAL, &r.presence, "X", "subtracted once from tokens of the answer (default: 0)",
         -100, 100},
        {"frequency-penalty", 0, OPT_REAL, &r.frequency, "X", "subtracted per occurrence in the answer (default: 0)",
         -100, 100},
        {"schema", 0, OPT_STR, &r.schema_file, "FILE", "a JSON Schema that the answer satisfies", 0, 0},
        {"regex", 0, OPT_STR, &r.regex, "TEXT", "a regular expression that matches all of the answer", 0, 0},
        {"grammar", 0, OPT_STR, &r.grammar_file, "FILE", "a grammar in llama.cpp's GBNF that the answer follows", 0, 0},
        {"seed", 0, OPT_INT, &r.seed, "S", "of the random numbers (default: 0)", 0, 0},
        {"ignore-eos", 0, OPT_FLAG, &r.ignore_eos, NULL, "goes on until --max-tokens", 0, 0},
        {"quiet", 'q', OPT_FLAG, &r.quiet, NULL, "no speed line and no notices", 0, 0},
    };
    int exit_status = cmd_options("run", "[-m DIR] [-p TEXT] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (exit_status >= 0) return exit_status;
    log_set_quiet(r.quiet);
    if (!options_fit(&r)) return EXIT_USAGE;
    moon_error error = {0};
    exit_status = EXIT_FAULT;
    if (!cmd_run_read_files(&r)) goto end;
    if (cmd_run_open_engine(&r, &error) != MOON_OK) {
        fprintf(stderr, "moonlet run: %s\n", error.text);
        goto end;
    }
    r.messages = json_array();
    r.calls = json_array();
    bool begun = start_over(&r);
    /* Without SA_RESTART, so that Ctrl-C at the prompt ends the reading of a line. */
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    exit_status = !begun ? EXIT_FAULT : r.prompt ? cmd_run_once(&r) : converse(&r);
end:
    json_decref(r.messages);
    json_decref(r.calls);
    json_decref(r.tools);
    json_decref(r.pictures);
    buf_free(&r.must);
    buf_free(&r.answer);
    buf_free(&r.reasoning);
    moon_close(r.engine);
    return exit_status;
}
