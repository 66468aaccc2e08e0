/* cmd/bench/bench_grammar.c: `moonlet bench grammar`: what structured output costs beside the model: compiling a
 * grammar, and asking it at each token of a text which tokens may come. */
#include "cmd/bench/bench.h"
#include "base/log.h"
#include "cmd/lib/grammar_line.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include "text/grammar/token_trie.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    tokenizer *t;
    token_trie *tokens;
    u64 *mask;
    f64_list compile, masks;              /* seconds */
    i64 grammars, refused, texts, broken; /* broken: texts of which a token was not allowed */
    f64 tree_s;
} grammar_bench;

static i32 grammar_take(const grammar_bench *b, matcher *m, i32 state, i32 id) {
    size_t n;
    const char *bytes = tokenizer_bytes(b->t, id, &n);
    for (size_t i = 0; i < n && state != MATCHER_DEAD; i++) state = matcher_next(m, state, (u8)bytes[i]);
    return state;
}

/* A mask before each token of a text, as a server would ask for them. */
static status time_text(grammar_bench *b, matcher *m, const json_t *text, err *e) {
    ids_buf ids = {0};
    i32 state = matcher_start(m);
    status st = tokenizer_encode(b->t, json_string_value(text), json_string_length(text), false, &ids, e);
    b->texts++;
    for (size_t i = 0; st == ST_OK && i < ids.len; i++) {
        const f64 began = now_s();
        st = matcher_mask(m, b->tokens, state, b->mask, e);
        f64_add(&b->masks, now_s() - began);
        if (st != ST_OK) break;
        if (!(b->mask[ids.data[i] / 64] >> ids.data[i] % 64 & 1)) {
            b->broken++;
            break;
        }
        state = grammar_take(b, m, state, ids.data[i]);
    }
    ids_free(&ids);
    return st;
}

static status time_line(void *ud, const json_t *line, buf *out, err *e) {
    grammar_bench *b = ud;
    const json_t *texts = json_object_get(line, "valid"), *text = json_object_get(line, "text");
    grammar *g;
    matcher *m = NULL;
    size_t i;
    (void)out;
    const f64 began = now_s();
    const status compiled = grammar_of_line(&g, line, e);
    b->grammars++;
    if (compiled != ST_OK) return b->refused++, compiled == ST_NOMEM ? compiled : ST_OK;
    f64_add(&b->compile, now_s() - began);
    status st = matcher_open(&m, g, e);
    if (st == ST_OK && json_is_string(text)) st = time_text(b, m, text, e);
    json_array_foreach(texts, i, text) if (st == ST_OK && json_is_string(text)) st = time_text(b, m, text, e);
    matcher_close(m);
    grammar_free(g);
    return st;
}

static void print_times(const char *what, f64_list *l) {
    const summary s = summarize(l);
    printf("%-8s %9lld %10.1f %10.1f %10.1f %10.1f\n", what, (long long)s.n, s.mean * 1e6, s.median * 1e6, s.p99 * 1e6,
           s.max * 1e6);
}

static void grammar_print(grammar_bench *b, FILE *json) {
    printf(
        "%lld grammars, %lld refused; %lld texts, %lld of which have a token that is not allowed; a tree of %d tokens "
        "in %.0f ms; %s\n",
        (long long)b->grammars, (long long)b->refused, (long long)b->texts, (long long)b->broken,
        (int)b->tokens->n_tokens, b->tree_s * 1e3, bench_chip());
    printf("%-8s %9s %10s %10s %10s %10s\n", "", "count", "mean us", "P50 us", "P99 us", "worst us");
    print_times("compile", &b->compile);
    print_times("mask", &b->masks);
    if (!json) return;
    const summary c = summarize(&b->compile), m = summarize(&b->masks);
    fprintf(json,
            "{\"bench\":\"grammar\",\"grammars\":%lld,\"refused\":%lld,\"texts\":%lld,\"broken\":%lld,"
            "\"compile_us\":{\"mean\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f},"
            "\"masks\":%lld,\"mask_us\":{\"mean\":%.2f,\"p50\":%.2f,\"p99\":%.2f,\"max\":%.2f}}\n",
            (long long)b->grammars, (long long)b->refused, (long long)b->texts, (long long)b->broken, c.mean * 1e6,
            c.median * 1e6, c.p99 * 1e6, c.max * 1e6, (long long)m.n, m.mean * 1e6, m.median * 1e6, m.p99 * 1e6,
            m.max * 1e6);
}

static status read_grammars(grammar_bench *b, const char *path, err *e) {
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t cap = 0;
    buf out = {0};
    status st = f ? ST_OK : err_set(e, ST_IO, "--data %s cannot be read", path);
    for (i64 line = 1; st == ST_OK; line++) {
        const ssize_t n = getline(&text, &cap, f);
        if (n <= 0) break;
        char where[64];
        snprintf(where, sizeof where, "line %lld", (long long)line);
        json_t *v = json_parse(text, (size_t)n, where, e);
        st = v ? time_line(b, v, &out, e) : ST_FORMAT;
        json_decref(v);
    }
    if (st == ST_OK && (b->compile.failed || b->masks.failed)) st = err_nomem(e, "times", 0);
    free(text);
    buf_free(&out);
    if (f) fclose(f);
    return st;
}

int bench_grammar(int argc, char **argv) {
    static char nano[PATH_MAX];
    const char *dir = NULL, *data = NULL, *json = NULL;
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &dir, "DIR", "folder with tiktoken.model and tokenizer_config.json (default: nano)", 0,
         0},
        {"data", 0, OPT_STR, &data, "FILE",
         "JSON lines {\"schema\", \"regex\" or \"grammar\", \"text\" or \"valid\": [texts]}", 0, 0},
        {"json", 0, OPT_STR, &json, "FILE", "writes the same as a JSON line", 0, 0},
    };
    int rc = cmd_options("bench grammar", "[-m DIR] --data FILE", specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    grammar_bench b = {0};
    err e = {0};
    FILE *out = NULL;
    status st = data ? ST_OK : err_set(&e, ST_INPUT, "--data FILE is needed");
    if (st == ST_OK && !dir && (st = nano_dir(nano, sizeof nano, &e)) == ST_OK) dir = nano;
    if (st == ST_OK && json && !(out = fopen(json, "w"))) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    if (st == ST_OK) st = tokenizer_open(&b.t, dir, &e);
    const f64 began = now_s();
    if (st == ST_OK) st = token_trie_open(&b.tokens, b.t, &e);
    b.tree_s = now_s() - began;
    if (st == ST_OK && !(b.mask = malloc((size_t)ceil_div(b.tokens->vocab, 64) * sizeof *b.mask)))
        st = err_nomem(&e, "a mask", (u64)b.tokens->vocab / 8);
    if (st == ST_OK) st = read_grammars(&b, data, &e);
    if (st == ST_OK) grammar_print(&b, out);
    if (out && fclose(out) && st == ST_OK) st = err_set(&e, ST_IO, "--json %s cannot be written", json);
    free(b.mask), f64_list_free(&b.compile), f64_list_free(&b.masks);
    token_trie_close(b.tokens);
    tokenizer_close(b.t);
    return st == ST_OK ? EXIT_DONE : cmd_fail("bench grammar", &e);
}
