#include "cmd/lib/tool_calls.h"
#include "base/file.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_MAX = 4 << 20, RESULT_MAX = 1 << 20 };

status tools_read(json_t **out, const char *path, err *e) {
    buf text = {0};
    *out = NULL;
    status st = file_read(path, FILE_MAX, &text, e);
    json_t *file = st == ST_OK ? json_parse(text.data ? text.data : "", text.len, path, e) : NULL;
    buf_free(&text);
    if (!file) return st == ST_OK ? e->code : st;
    json_t *tools = json_is_array(file) ? file : json_object_get(file, "tools");
    bool ok = json_array_size(tools) > 0;
    for (size_t i = 0; ok && i < json_array_size(tools); i++)
        ok = json_is_string(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));
    if (ok) *out = json_incref(tools);
    json_decref(file);
    return ok ? ST_OK
              : err_set(e, ST_FORMAT,
                        "%s is not a list of tools: [{\"type\": \"function\", \"function\": {\"name\", "
                        "\"description\", \"parameters\"}}, ...]",
                        path);
}

json_t *tool_call_of_event(const char *text, size_t n) {
    json_t *call = json_parse(text, n, "a tool call", NULL);
    json_t *out =
        json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "type", "function", "function", "name",
                  json_object_get(call, "name"), "arguments", json_object_get(call, "arguments"));
    json_decref(call);
    return out;
}

static const char *call_part(const json_t *call, const char *key) {
    const char *s = json_string_value(json_object_get(json_object_get(call, "function"), key));
    return s ? s : "";
}

bool tool_declared(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *have =
            json_string_value(json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));
        if (have && !strcmp(have, name)) return true;
    }
    return false;
}

const char *tool_call_name(const json_t *call) { return call_part(call, "name"); }

/* The child: the program with its input and output, and with the signals that a shell would give it. Never returns. */
static void become(const char *program, const char *name, int in, int out) {
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0) execlp(program, program, name, (char *)NULL);
    fprintf(stderr, "moonlet: cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

static status calls_collect(int fd, buf *out, err *e) {
    char part[4096];
    for (;;) {
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(e, ST_IO, "cannot read the tool's result: %s", strerror(errno));
        if (n == 0) return out->failed ? err_nomem(e, "a tool's result", out->len) : ST_OK;
        buf_add(out, part, (size_t)n);
        if (out->len > RESULT_MAX) return err_set(e, ST_LIMIT, "the tool printed more than %d bytes", RESULT_MAX);
    }
}

static void tell_failure(int how, buf *result) {
    buf text = {0};
    buf_str(&text, "error: ");
    if (result->len)
        buf_add(&text, result->data, result->len);
    else
        buf_fmt(&text, WIFSIGNALED(how) ? "signal %d" : "exit status %d",
                WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    buf_free(result);
    *result = text;
}

/* The arguments lie in a file, so that a program which prints before it reads cannot block. */
status tool_run(const char *program, const json_t *call, buf *result, err *e) {
    int ends[2], how = 0;
    const char *arguments = call_part(call, "arguments");
    buf_clear(result);
    FILE *input = tmpfile();
    if (!input || fputs(arguments, input) < 0 || fflush(input) || fseek(input, 0, SEEK_SET) || pipe(ends)) {
        if (input) fclose(input);
        return err_set(e, ST_IO, "cannot prepare the call of %s: %s", program, strerror(errno));
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become(program, tool_call_name(call), fileno(input), ends[1]);
    }
    close(ends[1]);
    fclose(input);
    status st = child < 0 ? err_set(e, ST_IO, "cannot start %s: %s", program, strerror(errno))
                          : calls_collect(ends[0], result, e);
    close(ends[0]);
    if (child < 0) return st;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {}
    if (st != ST_OK) return st;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 127) return err_set(e, ST_INPUT, "%s could not be run", program);
    while (result->len && strchr(" \t\r\n", result->data[result->len - 1])) result->data[--result->len] = 0;
    if (how) tell_failure(how, result);
    return result->failed ? err_nomem(e, "a tool's result", 0) : ST_OK;
}

status tool_add_result(json_t *messages, const json_t *call, const buf *result, err *e) {
    json_t *content = json_stringn(result->data ? result->data : "", result->len);
    if (!content) return err_set(e, ST_INPUT, "the result of %s is not valid UTF-8", tool_call_name(call));
    json_t *m = json_pack("{s:s, s:O, s:s, s:o}", "role", "tool", "tool_call_id", json_object_get(call, "id"), "name",
                          tool_call_name(call), "content", content);
    return json_array_append_new(messages, m) ? err_nomem(e, "a message", result->len) : ST_OK;
}
