/* cmd/eval/eval_nano.c: `moonlet eval nano`: what the small model can do, measured on its held-out questions, beside
 * what PyTorch measured on the same files. Every file is read and checked before the first question is asked. */
#include "cmd/lib/chat_workers.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/eval/nano_rows.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TENTHS = 10, PREFILL_ROWS = 2048 /* long prompts: fewer steps expand the cache's keys less often */ };

typedef struct {
    const nano_pass *pass;
    item_file file;
    char path[PATH_MAX];
    nano_result *results; /* [file.n] */
    f64 seconds;
} part;

typedef struct {
    model_opts m;
    const char *folder, *only, *json_path, *details;
    i64 limit, parallel;
    char in_model[PATH_MAX]; /* the model's own folder of evaluation files */
    haystack hay;
    part *parts;     /* [nano_n_passes]; pass NULL: not asked for */
    json_t *pytorch; /* its rows; NULL: no such file */
    askers *askers;
    FILE *json_file, *details_file;
} nano_eval;

/* ---- which rows ---- */

static bool is_wanted(const char *only, const char *name) {
    if (!only) return true;
    size_t n = strlen(name);
    for (const char *p = only; *p;) {
        size_t len = strcspn(p, ",");
        if (len == n && !memcmp(p, name, n)) return true;
        p += len + (p[len] == ',');
    }
    return false;
}

/* ST_INPUT for a name in the list that no row has. */
static status check_only(const char *only, err *e) {
    for (const char *p = only; p && *p;) {
        size_t len = strcspn(p, ",");
        bool known = false;
        for (i64 i = 0; !known && i < nano_n_passes; i++)
            known = strlen(nano_passes[i].name) == len && !memcmp(nano_passes[i].name, p, len);
        if (!known)
            return err_set(
                e, ST_INPUT,
                "--only %.*s: no such row; wordproblems, handwritten, arithmetic, tools, needles, talk, pictures "
                "and draft are known",
                (int)min_i64((i64)len, 100), p);
        p += len + (p[len] == ',');
    }
    return ST_OK;
}

/* ---- reading ---- */

static status read_haystack(nano_eval *n, err *e) {
    char path[PATH_MAX];
    if (n->hay.n) return ST_OK;
    status st = path_join(path, sizeof path, n->folder, "haystack.txt", e);
    return st == ST_OK ? haystack_read(&n->hay, path, e) : st;
}

static status eval_nano_read_part(nano_eval *n, part *p, err *e) {
    status st = path_join(p->path, sizeof p->path, n->folder, p->pass->file, e);
    if (st == ST_OK && p->pass->needs_haystack) st = read_haystack(n, e);
    if (st == ST_OK) st = items_read(&p->file, p->path, n->limit, true, p->pass->check, &n->hay, e);
    if (st != ST_OK) return st;
    p->results = calloc((size_t)p->file.n, sizeof *p->results);
    return p->results ? ST_OK : err_nomem(e, "results", (u64)p->file.n * sizeof *p->results);
}

/* A row of pytorch.json: [right, of], or a number for a length. */
static bool pytorch_row_ok(const json_t *row) {
    if (json_is_number(row)) return true;
    const json_t *right = json_array_get(row, 0), *of = json_array_get(row, 1);
    return json_array_size(row) == 2 && json_is_integer(right) && json_is_integer(of) &&
           json_integer_value(right) >= 0 && json_integer_value(of) > 0 &&
           json_integer_value(right) <= json_integer_value(of);
}

static status read_pytorch(nano_eval *n, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    const char *key;
    json_t *row;
    status st = path_join(path, sizeof path, n->folder, "pytorch.json", e);
    if (st != ST_OK) return st;
    if (!file_exists(path)) {
        log_note("%s does not exist: PyTorch's column stays empty", path);
        return ST_OK;
    }
    st = file_read(path, 1 << 20, &text, e);
    if (st == ST_OK && !(n->pytorch = json_parse(text.data ? text.data : "", text.len, path, e))) st = e->code;
    buf_free(&text);
    if (st != ST_OK) return st;
    if (!json_is_object(json_object_get(n->pytorch, "rows")))
        return err_set(e, ST_FORMAT, "%s: no object \"rows\"", path);
    json_object_foreach(json_object_get(n->pytorch, "rows"), key, row) if (!pytorch_row_ok(row)) return err_set(
        e, ST_FORMAT, "%s: row \"%s\" is not [right, of] or a number", path, key);
    return ST_OK;
}

static status read_all(nano_eval *n, err *e) {
    status st = ST_OK;
    if (!n->folder) {
        st = path_join(n->in_model, sizeof n->in_model, n->m.engine.model_dir, "eval", e);
        n->folder = n->in_model;
    }
    n->parts = calloc((size_t)nano_n_passes, sizeof *n->parts);
    if (st == ST_OK && !n->parts) st = err_nomem(e, "rows", 0);
    for (i64 i = 0; st == ST_OK && i < nano_n_passes; i++) {
        if (!is_wanted(n->only, nano_passes[i].name)) continue;
        n->parts[i].pass = &nano_passes[i];
        if (nano_passes[i].file) st = eval_nano_read_part(n, &n->parts[i], e);
    }
    return st == ST_OK ? read_pytorch(n, e) : st;
}

/* ---- asking ---- */

typedef struct {
    const nano_eval *n;
    part *p;
} asking;

static status ask_item(void *ud, moon_engine *m, i64 i, err *e) {
    const asking *a = ud;
    const nano_pass *pass = a->p->pass;
    status st = pass->ask(&a->n->hay, a->p->file.items[i], pass->instant, m, &a->p->results[i], e);
    return st == ST_OK ? st : err_prefix(e, "%s line %lld", a->p->path, (long long)a->p->file.lines[i]);
}

static const char *question_of(const json_t *item) {
    const json_t *messages = json_object_get(item, "messages");
    const char *q = json_string_value(json_object_get(item, "question"));
    return q ? q
             : json_string_value(json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content"));
}

static void eval_nano_write_details(const nano_eval *n, const part *p) {
    for (i64 i = 0; n->details_file && i < p->file.n; i++) {
        const json_t *item = p->file.items[i];
        const char *want = wanted_value(item);
        for (int v = 0; v < NANO_VERDICTS && p->pass->rows[v]; v++)
            fprintf(n->details_file, "%s\t%s\t", p->pass->rows[v], p->results[i].right[v] ? "right" : "WRONG");
        eval_column(n->details_file, question_of(item));
        fputc('\t', n->details_file);
        eval_column(n->details_file, want);
        fputc('\t', n->details_file);
        eval_column(n->details_file, p->results[i].answer);
        fputc('\n', n->details_file);
    }
}

static status ask_all(nano_eval *n, err *e) {
    status st = ST_OK;
    for (i64 i = 0; st == ST_OK && i < nano_n_passes; i++) {
        part *p = &n->parts[i];
        if (!p->pass || !p->pass->file) continue;
        asking a = {n, p};
        f64 start = now_s();
        st = askers_run(n->askers, p->pass->rows[1] ? p->pass->name : p->pass->rows[0], p->file.n, ask_item, &a, e);
        p->seconds = now_s() - start;
        if (st != ST_OK) break;
        i64 in = 0, out = 0;
        for (i64 k = 0; k < p->file.n; k++) in += p->results[k].prompt_tokens, out += p->results[k].output_tokens;
        log_note("%s%s: %lld questions, %lld prompt and %lld output tokens in %.1f s", p->pass->name,
                 p->pass->instant ? ", instant" : "", (long long)p->file.n, (long long)in, (long long)out, p->seconds);
        eval_nano_write_details(n, p);
    }
    return st;
}

/* ---- the table ---- */

static i64 count_right(const part *p, int v) {
    i64 right = 0;
    for (i64 i = 0; i < p->file.n; i++) right += p->results[i].right[v];
    return right;
}

/* PyTorch's two columns; *outside: its share lies beyond [low, high]. */
static void print_pytorch(const json_t *row, f64 low, f64 high, bool *outside) {
    char cell[64] = "-", share[32] = "-";
    if (json_is_number(row)) snprintf(cell, sizeof cell, "%.2f", json_number_value(row));
    if (json_is_array(row)) {
        i64 right = json_integer_value(json_array_get(row, 0)), of = json_integer_value(json_array_get(row, 1));
        snprintf(cell, sizeof cell, "%lld of %lld", (long long)right, (long long)of);
        snprintf(share, sizeof share, "%.1f", 100.0 * (f64)right / (f64)of);
        *outside = (f64)right / (f64)of < low || (f64)right / (f64)of > high;
    }
    printf(" %14s | %5s |\n", cell, share);
}

static void eval_nano_print_row(const nano_eval *n, const part *p, int v, i64 *compared, i64 *outside) {
    const char *name = p->pass->rows[v];
    const json_t *theirs = json_object_get(json_object_get(n->pytorch, "rows"), name);
    f64 low = 0, high = 1;
    bool beyond = false;
    if (!p->pass->file) {
        printf("| %-23s | %14s | %5s | %13s |", name, "not yet", "-", "-");
    } else {
        char cell[64], interval[64];
        i64 right = count_right(p, v), of = p->file.n;
        wilson_interval(right, of, &low, &high);
        snprintf(cell, sizeof cell, "%lld of %lld", (long long)right, (long long)of);
        snprintf(interval, sizeof interval, "%.1f to %.1f", 100 * low, 100 * high);
        printf("| %-23s | %14s | %5.1f | %13s |", name, cell, 100.0 * (f64)right / (f64)of, interval);
        *compared += json_is_array(theirs);
    }
    print_pytorch(theirs, low, high, &beyond);
    *outside += beyond;
}

/* Needles by the depth of the fact: tenth by tenth from the beginning of the text. */
static void count_tenths(const part *p, i64 right[TENTHS], i64 of[TENTHS]) {
    for (i64 i = 0; i < p->file.n; i++) {
        f64 depth = json_number_value(json_object_get(p->file.items[i], "depth"));
        i64 t = min_i64(TENTHS - 1, (i64)(depth * TENTHS));
        of[t]++;
        right[t] += p->results[i].right[0];
    }
}

static void print_tenths(const part *p) {
    i64 right[TENTHS] = {0}, of[TENTHS] = {0};
    count_tenths(p, right, of);
    printf("\nneedles by tenths of the depth, from the text's beginning:");
    for (int t = 0; t < TENTHS; t++) printf(" %lld/%lld", (long long)right[t], (long long)of[t]);
    printf("\n");
}

static void eval_nano_print_table(const nano_eval *n) {
    i64 compared = 0, outside = 0;
    bool later = false;
    printf("| %-23s | %14s | %5s | %13s | %14s | %5s |\n", "greedy", "Moonlet", "%", "95 % interval", "PyTorch", "%");
    printf("|%s|%s:|%s:|%s:|%s:|%s:|\n", "-------------------------", "---------------", "------", "--------------",
           "---------------", "------");
    for (i64 i = 0; i < nano_n_passes; i++) {
        const part *p = &n->parts[i];
        for (int v = 0; p->pass && v < NANO_VERDICTS && p->pass->rows[v]; v++)
            eval_nano_print_row(n, p, v, &compared, &outside);
        later = later || (p->pass && !p->pass->file);
    }
    for (i64 i = 0; i < nano_n_passes; i++)
        if (n->parts[i].pass && n->parts[i].pass->needs_haystack) print_tenths(&n->parts[i]);
    if (later) printf("\n\"not yet\": not measured by the engine yet; PyTorch's number alone.\n");
    if (compared)
        printf("\nPyTorch's share lies inside the engine's interval in %lld of %lld rows.\n",
               (long long)(compared - outside), (long long)compared);
}

/* ---- the same as JSON ---- */

static json_t *json_rows(const nano_eval *n) {
    json_t *rows = json_object();
    for (i64 i = 0; i < nano_n_passes; i++) {
        const part *p = &n->parts[i];
        for (int v = 0; p->pass && p->pass->file && v < NANO_VERDICTS && p->pass->rows[v]; v++) {
            f64 low, high;
            i64 right = count_right(p, v);
            wilson_interval(right, p->file.n, &low, &high);
            json_object_set_new(rows, p->pass->rows[v],
                                json_pack("{s:I s:I s:f s:f s:f}", "right", (json_int_t)right, "of",
                                          (json_int_t)p->file.n, "low", low, "high", high, "seconds", p->seconds));
        }
        if (!p->pass || !p->pass->needs_haystack) continue;
        i64 right[TENTHS] = {0}, of[TENTHS] = {0};
        count_tenths(p, right, of);
        json_t *depths = json_array();
        for (int t = 0; t < TENTHS; t++)
            json_array_append_new(depths, json_pack("[I, I]", (json_int_t)right[t], (json_int_t)of[t]));
        json_object_set_new(json_object_get(rows, p->pass->rows[0]), "tenths", depths);
    }
    return rows;
}

static status write_json(const nano_eval *n, err *e) {
    if (!n->json_file) return ST_OK;
    json_t *o = json_pack("{s:s s:s s:s s:I s:o s:O*}", "version", moon_version(), "model", n->m.engine.model_dir,
                          "plan", moon_plan(askers_first(n->askers)), "parallel",
                          (json_int_t)askers_parallel(n->askers), "rows", json_rows(n), "pytorch", n->pytorch);
    char *text = o ? json_to_text(o, &json_compact) : NULL;
    json_decref(o);
    if (!text) return err_nomem(e, "the result", 0);
    fprintf(n->json_file, "%s\n", text);
    free(text);
    return ST_OK;
}

/* ---- the command ---- */

static status eval_nano_run(nano_eval *n, err *e) {
    status st = model_opts_finish(&n->m, e);
    if (!n->m.engine.chunk) n->m.engine.chunk = PREFILL_ROWS;
    if (st == ST_OK) st = read_all(n, e);
    if (st == ST_OK) st = eval_create(&n->json_file, n->json_path, e);
    if (st == ST_OK) st = eval_create(&n->details_file, n->details, e);
    if (st == ST_OK) st = askers_open(&n->askers, &n->m, n->parallel, e);
    if (st != ST_OK) return st;
    log_note("%s; %s; %lld at a time", moon_plan(askers_first(n->askers)), moon_template(askers_first(n->askers)),
             (long long)askers_parallel(n->askers));
    st = ask_all(n, e);
    if (st != ST_OK) return st;
    eval_nano_print_table(n);
    return write_json(n, e);
}

static void eval_nano_close_all(nano_eval *n) {
    for (i64 i = 0; n->parts && i < nano_n_passes; i++) {
        part *p = &n->parts[i];
        for (i64 k = 0; p->results && k < p->file.n; k++) free(p->results[k].answer);
        free(p->results);
        items_free(&p->file);
    }
    free(n->parts);
    haystack_free(&n->hay);
    json_decref(n->pytorch);
    askers_close(n->askers);
}

int eval_nano(int argc, char **argv) {
    nano_eval n = {0};
    const opt_spec specs[] = {
        MODEL_OPTS(n.m),
        OPT_GROUP("Rows"),
        {"data", 0, OPT_STR, &n.folder, "DIR", "folder of the questions (default: eval/ in the model's)", 0, 0},
        {"limit", 0, OPT_INT, &n.limit, "N", "N questions of each file, evenly from all of it (default: 0, all)", 0,
         1e9},
        {"only", 0, OPT_STR, &n.only, "NAME,...",
         "wordproblems, handwritten, arithmetic, tools, needles, talk, pictures, draft (default: all)", 0, 0},
        EVAL_PARALLEL(n.parallel, "0"),
        {"details", 0, OPT_STR, &n.details, "FILE", "writes every question, verdict and answer, tab-separated", 0, 0},
        {"json", 0, OPT_STR, &n.json_path, "FILE", "writes the result as a JSON line", 0, 0},
    };
    int exit_status = cmd_options("eval nano", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (exit_status >= 0) return exit_status;
    err e = {0};
    if (check_only(n.only, &e) != ST_OK) {
        fprintf(stderr, "moonlet eval nano: %s\n", e.text);
        return EXIT_USAGE;
    }
    status st = eval_nano_run(&n, &e);
    eval_close(n.json_file, n.json_path, &st, &e);
    eval_close(n.details_file, n.details, &st, &e);
    eval_nano_close_all(&n);
    return st == ST_OK ? EXIT_DONE : cmd_fail("eval nano", &e);
}
