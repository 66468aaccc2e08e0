#include "server/request/served_model.h"
#include "base/file.h"
#include "base/json.h"
#include <string.h>

enum { CONFIG_MAX = 1 << 20 };

static status read_defaults(served_model *m, const json_t *v, err *e) {
    sampling *s = &m->defaults;
    status st = json_get_f64(v, "temperature", 0, 100, false, &s->temperature, e);
    if (st == ST_OK) st = json_get_i64(v, "top_k", -1, 1 << 30, false, &s->top_k, e);
    if (st == ST_OK) st = json_get_f64(v, "top_p", 0, 1, false, &s->top_p, e);
    if (st == ST_OK) st = json_get_f64(v, "min_p", 0, 1, false, &s->min_p, e);
    if (st == ST_OK) st = json_get_f64(v, "repetition_penalty", 0.01, 100, false, &s->repetition_penalty, e);
    if (s->top_k < 0) s->top_k = 0;
    return st == ST_OK ? sampling_check(s, e) : st;
}

static status generation_config(served_model *m, err *e) {
    char path[4096];
    m->defaults = sampling_default();
    m->defaults.temperature = 1;
    status st = path_join(path, sizeof path, m->dir, "generation_config.json", e);
    if (st != ST_OK || !file_exists(path)) return st;
    buf text = {0};
    st = file_read(path, CONFIG_MAX, &text, e);
    json_t *v = st == ST_OK ? json_parse(text.data ? text.data : "", text.len, path, e) : NULL;
    if (st == ST_OK) st = v ? read_defaults(m, v, e) : ST_FORMAT;
    if (v && st != ST_OK) err_prefix(e, "%s", path);
    json_decref(v);
    buf_free(&text);
    return st;
}

status served_model_open(served_model *m, const char *template, const char *model_type, i64 vocab, const i64 *eos,
                         int n_eos, err *e) {
    m->vocab = vocab;
    status st = tokenizer_open(&m->tok, m->dir, e);
    if (st != ST_OK) return st;
    if (tokenizer_vocab_size(m->tok) > vocab)
        return err_set(e, ST_FORMAT, "%s: the tokenizer has %d ids, config.json's vocab_size is %lld", m->dir,
                       tokenizer_vocab_size(m->tok), (long long)vocab);
    m->template_why = "asked for";
    if (!template)
        m->template = chat_template_of(m->dir, model_type, m->tok, &m->template_why);
    else if ((st = chat_template_parse(&m->template, template, e)) != ST_OK)
        return st;
    st = stops_of(eos, n_eos, m->tok, &m->stops, e);
    return st == ST_OK ? generation_config(m, e) : st;
}

void served_model_close(served_model *m) {
    tokenizer_close(m->tok);
    ids_free(&m->stops);
    m->tok = NULL;
}

const char *path_last(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool served_model_is(const served_model *m, const char *name) {
    return !strcmp(name, m->name) || !strcmp(name, "default") || !strcmp(name, m->dir) ||
           !strcmp(path_last(name), path_last(m->name));
}
