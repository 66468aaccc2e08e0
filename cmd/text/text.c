/* cmd/text/text.c: `moonlet text`: the text room from outside. */
#include "cmd/text/text.h"
#include "cmd/lib/model_opts.h"
#include "text/tokenizer.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"encode", "text to token ids", cmd_text_tokens},
    {"decode", "token ids to text", cmd_text_tokens},
    {"render", "chat messages to the prompt and its ids", cmd_text_render},
    {"parse", "a model's output to reasoning, content and tool calls", cmd_text_parse},
    {"match", "what a JSON Schema or a regular expression lets through", cmd_text_match},
};

static void print_verbs(FILE *f) {
    fprintf(f, "usage: moonlet text VERB [-m DIR] < LINES > LINES\n\nOne JSON object a line in, one a line out.\n\n");
    for (size_t i = 0; i < COUNT_OF(verbs); i++) fprintf(f, "  %-8s %s\n", verbs[i].name, verbs[i].help);
}

int cmd_text(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (!strcmp(verb, "--help") || !strcmp(verb, "-h")) {
        print_verbs(stdout);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < COUNT_OF(verbs); i++)
        if (!strcmp(verb, verbs[i].name)) return verbs[i].run(argc - 1, argv + 1);
    if (argc > 1) fprintf(stderr, "moonlet text: no verb \"%s\"\n", verb);
    print_verbs(stderr);
    return EXIT_USAGE;
}

status text_open(const char **dir, tokenizer **t, err *e) {
    static char nano[PATH_MAX];
    *t = NULL;
    if (!*dir) {
        status st = nano_dir(nano, sizeof nano, e);
        if (st != ST_OK) return st;
        *dir = nano;
    }
    return tokenizer_open(t, *dir, e);
}

int text_run(const char *name, const char *dir, jsonl_fn answer) {
    tokenizer *t;
    err e = {0};
    i64 n_failed = 0;
    status st = text_open(&dir, &t, &e);
    if (st == ST_OK) st = jsonl_run(stdin, "line", answer, t, &n_failed, &e);
    tokenizer_close(t);
    if (st != ST_OK) return cmd_fail(name, &e);
    return n_failed ? EXIT_FAULT : EXIT_DONE;
}

status text_known_keys(const json_t *line, const char *const *known, err *e) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)line, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key)) k++;
        if (!*k) return err_set(e, ST_INPUT, "unknown key \"%s\"", key);
    }
    return ST_OK;
}

status text_input_ids(const json_t *line, ids_buf *ids, err *e) {
    const json_t *list = json_object_get(line, "ids"), *item;
    size_t i;
    if (!json_is_array(list)) return err_set(e, ST_INPUT, "\"ids\" is not an array");
    json_array_foreach(list, i, item) {
        json_int_t x = json_is_integer(item) ? json_integer_value(item) : -1;
        if (!json_is_integer(item)) return err_set(e, ST_INPUT, "ids[%zu] is not an integer", i);
        if (x < 0 || x > INT32_MAX)
            return err_set(e, ST_INPUT, "ids[%zu] is %" JSON_INTEGER_FORMAT ", not a token id", i, x);
        ids_add(ids, (i32)x);
    }
    return ids->failed ? err_nomem(e, "ids", json_array_size(list) * sizeof(i32)) : ST_OK;
}

void text_write_ids(buf *out, const ids_buf *ids) {
    buf_str(out, "[");
    for (size_t i = 0; i < ids->len; i++) {
        char digits[16], *d = digits + sizeof digits;
        u32 x = (u32)ids->data[i];
        do *--d = (char)('0' + x % 10);
        while (x /= 10);
        if (i) buf_add(out, ", ", 2);
        buf_add(out, d, (size_t)(digits + sizeof digits - d));
    }
    buf_str(out, "]");
}
