/* cmd/lib/compare_formats.c: which checkpoints, and the runs; compare_scores.c has the numbers. */
#include "cmd/lib/compare_formats.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/lib/compare_scores.h"
#include "format/stored_matrix.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void compare_defaults(compare_options *o) {
    if (!o->scratch) o->scratch = "/var/tmp";
    if (!o->window) o->window = 512;
    if (!o->tokens) o->tokens = 16384;
}

/* ---- which checkpoints ---- */

/* The formats of a bit mask, as "fp8_block + bf16". */
static void format_words(u64 mask, buf *b) {
    const char *separator = "";
    for (int f = 0; f < weight_formats(); f++) {
        if (!(mask >> f & 1)) continue;
        buf_fmt(b, "%s%s", separator, weight_format_name((weight_format)f));
        separator = " + ";
    }
}

/* What matrices lie in: the experts', and all others'. */
static status describe_weights(const checkpoint *ck, compared *row, err *e) {
    u64 experts = 0, others = 0;
    for (u64 i = 0; i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        stored_matrix m;
        bool found;
        status st = stored_matrix_find(ck, t, &m, &found, e);
        if (st != ST_OK) return st;
        if (!found) continue;
        *(strstr(t->name, ".experts.") ? &experts : &others) |= 1ull << m.format;
    }
    buf b = {0};
    if (experts != others) format_words(experts, &b);
    if (b.len) buf_str(&b, others ? " experts, " : " experts");
    format_words(others, &b);
    snprintf(row->weights, sizeof row->weights, "%s", b.data ? b.data : "");
    status st = b.failed ? err_nomem(e, "the names of formats", b.len) : ST_OK;
    buf_free(&b);
    return st;
}

static void name_of_path(const char *path, char out[256]) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(out, 256, "%.*s", (int)min_i64((i64)(n - begin), 255), path + begin);
}

/* The same ids stand for the same bytes: else the same text is not the same tokens. */
static status same_words(const tokenizer *a, const compared *row, err *e) {
    tokenizer *b = NULL;
    status st = tokenizer_open(&b, row->path, e);
    i32 n = tokenizer_vocab_size(a);
    if (st == ST_OK && tokenizer_vocab_size(b) != n)
        st = err_set(e, ST_INPUT, "%s: another vocabulary than the master's: a tokenizer of %d ids, not %d", row->path,
                     tokenizer_vocab_size(b), n);
    for (i32 i = 0; st == ST_OK && i < n; i++) {
        size_t na, nb;
        const char *x = tokenizer_bytes(a, i, &na), *y = tokenizer_bytes(b, i, &nb);
        if (na != nb || memcmp(x, y, na))
            st = err_set(e, ST_INPUT, "%s: another vocabulary than the master's: the id %d is \"%.*s\", not \"%.*s\"",
                         row->path, i, (int)min_i64((i64)nb, 40), y, (int)min_i64((i64)na, 40), x);
    }
    tokenizer_close(b);
    return st;
}

static status look_at(comparison *c, compared *row, err *e) {
    model_config config;
    checkpoint *ck = NULL;
    status st = model_config_load(&config, row->path, e);
    if (st == ST_OK && c->n && config.vocab != c->vocab)
        st = err_set(e, ST_INPUT, "%s: another vocabulary than the master's: %lld ids, not %lld", row->path,
                     (long long)config.vocab, (long long)c->vocab);
    if (st == ST_OK && c->n && c->words.tok) st = same_words(c->words.tok, row, e);
    if (st == ST_OK) st = checkpoint_open(&ck, row->path, e);
    if (st == ST_OK) st = describe_weights(ck, row, e);
    if (st == ST_OK) row->bytes = checkpoint_bytes(ck);
    if (st == ST_OK && !c->n) c->vocab = config.vocab, memcpy(c->model_type, config.model_type, sizeof c->model_type);
    checkpoint_close(ck);
    return st;
}

status comparison_add(comparison *c, const char *folder, err *e) {
    compared *more = realloc(c->rows, (size_t)(c->n + 1) * sizeof *more);
    if (!more) return err_nomem(e, "the table", (u64)c->n * sizeof *more);
    c->rows = more;
    compared *row = &more[c->n];
    *row = (compared){.logprob = 0};
    if (!file_exists(folder)) return err_set(e, ST_IO, "%s: %s", folder, strerror(ENOENT));
    if (snprintf(row->path, sizeof row->path, "%s", folder) >= (int)sizeof row->path)
        return err_set(e, ST_LIMIT, "%.60s...: the path is too long", folder);
    name_of_path(folder, row->name);
    status st = look_at(c, row, e);
    if (st == ST_OK) c->n++;
    return st;
}

/* ---- the text ---- */

static status find_text(comparison *c, err *e) {
    char nano[PATH_MAX], plain[PATH_MAX];
    if (c->o.text && snprintf(c->text, sizeof c->text, "%s", c->o.text) >= (int)sizeof c->text)
        return err_set(e, ST_LIMIT, "%.60s...: the path is too long", c->o.text);
    if (c->o.text) return ST_OK;
    status st = nano_dir(nano, sizeof nano, e);
    if (st != ST_OK) return err_prefix(e, "no --text, and the one that comes along was not found");
    st = path_join(c->text, sizeof c->text, realpath(nano, plain) ? plain : nano, "eval/wordproblems.jsonl", e);
    if (st == ST_OK)
        log_note("the text is nano's word problems, whose answers are scored (%s): --text FILE takes another", c->text);
    return st;
}

status comparison_open(comparison *c, const model_opts *m, const compare_options *o, err *e) {
    *c = (comparison){.m = m, .o = *o};
    status st = comparison_add(c, m->engine.model_dir, e);
    if (st == ST_OK) st = find_text(c, e);
    c->words = (text_encoder){m->engine.model_dir, c->model_type, c->vocab, NULL};
    return st == ST_OK ? documents_read(&c->docs, &c->words, c->text, c->o.window, c->o.tokens, e) : st;
}

void comparison_close(comparison *c) {
    documents_free(&c->docs);
    text_encoder_close(&c->words);
    free(c->rows);
    *c = (comparison){0};
}

/* ---- the runs ---- */

static status run_documents(const comparison *c, score_run *r, seq *s, err *e) {
    status st = ST_OK;
    for (i64 d = 0; st == ST_OK && d < c->docs.n; d++) {
        score_document(r, d);
        seq_truncate(s, 0);
        st = seq_run(s, c->docs.ids.data + c->docs.begin[d], document_tokens(&c->docs, d), false, LOGITS_ALL, score_row,
                     r, e);
        if (st != ST_OK) err_prefix(e, "document %lld", (long long)d + 1);
    }
    return st;
}

static status run_checkpoint(const comparison *c, score_run *r, compared *row, err *e) {
    engine_options o = c->m->engine;
    engine *g = NULL;
    seq *s = NULL;
    o.model_dir = row->path;
    score_checkpoint(r, row->name, row == c->rows);
    status st = engine_open(&g, &o, e);
    if (st == ST_OK) st = seq_open(&s, g, e);
    if (st == ST_OK && engine_config(g)->vocab != c->vocab)
        st = err_set(e, ST_INPUT, "its vocabulary is changed to %lld", (long long)engine_config(g)->vocab);
    if (st == ST_OK) log_note("%s: %s", row->name, engine_plan(g));
    if (st == ST_OK) st = run_documents(c, r, s, e);
    if (st == ST_OK) score_result(r, row);
    seq_close(s);
    engine_close(g);
    return st == ST_OK ? st : err_prefix(e, "%s", row->path);
}

status comparison_run(comparison *c, err *e) {
    score_run r;
    status st = score_open(&r, &c->docs, c->vocab, c->n, c->o.scratch, e);
    for (i64 i = 0; st == ST_OK && i < c->n; i++) st = run_checkpoint(c, &r, &c->rows[i], e);
    score_close(&r);
    return st;
}
