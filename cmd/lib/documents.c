#include "cmd/lib/documents.h"
#include "base/log.h"
#include "cmd/lib/text_corpus.h"
#include "text/chat.h"
#include <stdlib.h>
#include <string.h>

void text_encoder_close(text_encoder *t) {
    tokenizer_close(t->tok);
    t->tok = NULL;
}

/* Opens the tokenizer, if it is not open. All its ids are the model's. */
static status open_words(text_encoder *t, err *e) {
    status st = t->tok ? ST_OK : tokenizer_open(&t->tok, t->model_dir, e);
    if (st == ST_OK && tokenizer_vocab_size(t->tok) > t->vocab)
        st = err_set(e, ST_FORMAT, "%s: its tokenizer has %d ids, its config.json a vocabulary of %lld", t->model_dir,
                     tokenizer_vocab_size(t->tok), (long long)t->vocab);
    return st;
}

static status encode_text(text_encoder *t, const char *text, size_t n, ids_buf *out, err *e) {
    status st = open_words(t, e);
    return st == ST_OK ? tokenizer_encode(t->tok, text, n, false, out, e) : st;
}

status line_ids(text_encoder *t, const json_t *line, ids_buf *out, err *e) {
    const json_t *ids = json_object_get(line, "ids"), *text = json_object_get(line, "text");
    if (!!ids == !!text) return err_set(e, ST_INPUT, "the line needs \"ids\" or \"text\", and not both");
    if (text) {
        if (!json_is_string(text)) return err_set(e, ST_INPUT, "\"text\" is not a string");
        return encode_text(t, json_string_value(text), json_string_length(text), out, e);
    }
    if (!json_is_array(ids)) return err_set(e, ST_INPUT, "\"ids\" is not an array");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= t->vocab)
            return err_set(e, ST_INPUT, "ids[%zu] is not a token id below %lld", i, (long long)t->vocab);
        ids_add(out, (i32)json_integer_value(v));
    }
    return out->failed ? err_nomem(e, "ids", out->len * 4) : ST_OK;
}

/* ---- chats ---- */

/* What a chat without thinking is, as ids. */
static status render_chat(text_encoder *t, const json_t *messages, bool prompt, chat_prompt *out, err *e) {
    const char *why;
    json_t *kwargs = json_pack("{s:b}", "thinking", 0);
    chat_request r = {.messages = messages, .kwargs = kwargs, .add_generation_prompt = prompt};
    status st = kwargs ? open_words(t, e) : err_nomem(e, "a chat", 0);
    if (st == ST_OK) st = chat_render(chat_template_of(t->model_dir, t->model_type, t->tok, &why), t->tok, &r, out, e);
    json_decref(kwargs);
    return st;
}

/* The ids of a chat that ends with an answer; *from: of those before the answer. */
static status chat_ids(text_encoder *t, const json_t *messages, ids_buf *out, i64 *from, err *e) {
    const size_t n = json_array_size(messages);
    const char *role = n ? json_string_value(json_object_get(json_array_get(messages, n - 1), "role")) : NULL;
    if (!role || strcmp(role, "assistant"))
        return err_set(e, ST_INPUT, "the last of \"messages\" is no answer (role \"assistant\")");
    json_t *before = json_copy((json_t *)(uintptr_t)messages);
    chat_prompt prompt = {0}, whole = {0};
    status st = before && !json_array_remove(before, n - 1) ? ST_OK : err_nomem(e, "a chat", 0);
    if (st == ST_OK) st = render_chat(t, before, true, &prompt, e);
    if (st == ST_OK) st = render_chat(t, messages, false, &whole, e);
    if (st == ST_OK && (prompt.ids.len > whole.ids.len ||
                        memcmp(prompt.ids.data, whole.ids.data, prompt.ids.len * sizeof *prompt.ids.data)))
        st = err_set(e, ST_UNSUPPORTED, "the model's chat template does not put the answer behind its prompt");
    if (st == ST_OK) ids_append(out, whole.ids.data, whole.ids.len), *from = (i64)prompt.ids.len;
    chat_prompt_free(&prompt);
    chat_prompt_free(&whole);
    json_decref(before);
    return st == ST_OK && out->failed ? err_nomem(e, "ids", out->len * 4) : st;
}

static status question_ids(text_encoder *t, const json_t *item, ids_buf *out, i64 *from, err *e) {
    const json_t *question = json_object_get(item, "question");
    const char *answer = json_string_value(json_object_get(item, "answer"));
    if (!answer) return err_set(e, ST_INPUT, "a \"question\" without a string \"answer\"");
    const char *end = answer + strlen(answer);
    for (const char *mark = answer; (mark = strstr(mark, "\n####")); mark++) end = mark;
    json_t *chat = json_pack("[{s:s, s:O}, {s:s, s:s%}]", "role", "user", "content", question, "role", "assistant",
                             "content", answer, (size_t)(end - answer));
    status st = chat ? chat_ids(t, chat, out, from, e) : err_nomem(e, "a chat", 0);
    json_decref(chat);
    return st;
}

/* ---- documents ---- */

static status document_ids(text_encoder *t, const json_t *item, ids_buf *out, i64 *from, err *e) {
    const json_t *messages = json_object_get(item, "messages");
    *from = 1;
    if (messages) return chat_ids(t, messages, out, from, e);
    if (json_object_get(item, "question")) return question_ids(t, item, out, from, e);
    if (json_object_get(item, "ids") || json_object_get(item, "text")) return line_ids(t, item, out, e);
    return err_set(e, ST_INPUT, "needs \"ids\", \"text\", \"messages\", or \"question\" and \"answer\"");
}

/* The ids behind the last document become one; it goes away if none of them would be scored. */
static status end_document(documents *d, i64 from, i64 *left_out, err *e) {
    const i64 n = (i64)d->ids.len - d->begin[d->n];
    if (n <= from) {
        *left_out += 1;
        d->ids.len = (size_t)d->begin[d->n];
        return ST_OK;
    }
    i64 *begin = realloc(d->begin, (size_t)(d->n + 2) * sizeof *begin);
    if (begin) d->begin = begin;
    i64 *starts = realloc(d->from, (size_t)(d->n + 1) * sizeof *starts);
    if (starts) d->from = starts;
    if (!begin || !starts) return err_nomem(e, "the list of documents", (u64)d->n * sizeof *begin);
    d->from[d->n] = from;
    d->begin[++d->n] = (i64)d->ids.len;
    d->scored += n - from;
    return ST_OK;
}

static status read_items(documents *d, text_encoder *t, const json_t *items, i64 most, i64 *left_out, err *e) {
    i64 from;
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < json_array_size(items) && (i64)d->ids.len < most; i++) {
        st = document_ids(t, json_array_get(items, i), &d->ids, &from, e);
        if (st != ST_OK) return err_prefix(e, "document %zu", i + 1);
        d->ids.len = (size_t)min_i64((i64)d->ids.len, most);
        st = end_document(d, from, left_out, e);
    }
    return st;
}

static status cut_windows(documents *d, text_encoder *t, const buf *plain, i64 window, i64 most, i64 *left_out,
                          err *e) {
    status st = encode_text(t, plain->data, plain->len, &d->ids, e);
    const i64 all = min_i64((i64)d->ids.len, most);
    for (i64 at = 0; st == ST_OK && at < all; at += window) {
        d->ids.len = (size_t)min_i64(at + window, all);
        st = end_document(d, 1, left_out, e);
    }
    return st;
}

status documents_read(documents *d, text_encoder *t, const char *path, i64 window, i64 most, err *e) {
    texts x = {0};
    i64 left_out = 0;
    *d = (documents){.begin = calloc(1, sizeof *d->begin)};
    if (!d->begin) return err_nomem(e, "the list of documents", sizeof *d->begin);
    if (!most) most = INT64_MAX;
    status st = texts_read(&x, path, e);
    const bool read = st == ST_OK; /* else the error names the file */
    if (read)
        st = x.items ? read_items(d, t, x.items, most, &left_out, e)
                     : cut_windows(d, t, &x.plain, window, most, &left_out, e);
    texts_free(&x);
    if (st != ST_OK) return read ? err_prefix(e, "%s", path) : st;
    if (!d->n)
        return err_set(e, ST_INPUT, "%s: too short: no document has a token that follows another and is scored", path);
    if (left_out) log_note("%s: %lld documents without a token to score are left out", path, (long long)left_out);
    return ST_OK;
}

void documents_free(documents *d) {
    ids_free(&d->ids);
    free(d->begin);
    free(d->from);
    *d = (documents){0};
}
