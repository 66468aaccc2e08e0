/* server/tokens.c: /tokenize and /detokenize, in the shapes of vLLM and SGLang. */
#include "server/reply/reply.h"
#include "server/server_internal.h"
#include <string.h>

static void write_strings(const served_model *m, const ids_buf *ids, buf *out) {
    buf text = {0};
    buf_char(out, '[');
    for (size_t i = 0; i < ids->len; i++) {
        buf_clear(&text);
        token_text(m, ids->data[i], &text);
        if (i) buf_char(out, ',');
        buf_json_str(out, text.data ? text.data : "", text.len);
    }
    buf_char(out, ']');
    out->failed |= text.failed;
    buf_free(&text);
}

/* More than a context, so that a client can cut its text by ids; few enough to be written into an answer. */
enum { COUNTED_MAX = 1 << 20 };

static void limit(server *s, gen_request *g, http_request *q) {
    g->max_ids = max_i64(COUNTED_MAX, s->model.context);
    g->hold = hold_for;
    g->hold_most = (u64)http_memory_max(q);
    g->hold_ud = q;
}

static bool encode(const gen_request *g, const served_model *m, const json_t *v, ids_buf *out, api_error *e) {
    if (json_is_string(v)) return request_encode(g, m, v, "prompt", out, e);
    return api_fail(e, 400, NULL, "prompt", "prompt: expected text, got %s", json_type_text(v));
}

/* "prompt" as an array: lists of lists. */
static bool many(gen_request *g, const served_model *m, const json_t *list, buf *out, api_error *e) {
    buf counts = {0};
    i64 left = g->max_ids; /* of all together */
    size_t i;
    json_t *v;
    bool ok = true;
    buf_str(out, "{\"tokens\":[");
    json_array_foreach(list, i, v) {
        ids_buf ids = {0};
        ok = encode(g, m, v, &ids, e);
        left -= (i64)ids.len;
        if (ok && left < 0) ok = request_too_long(g, m, "prompt", e);
        if (i) buf_char(out, ',');
        json_ids(out, ids.data, ids.len);
        buf_fmt(&counts, "%s%zu", i ? "," : "", ids.len);
        ids_free(&ids);
        if (!ok) break;
    }
    buf_str(out, "],\"count\":[");
    buf_add(out, counts.data, counts.len);
    buf_fmt(out, "],\"max_model_len\":%lld}", (long long)m->context);
    buf_free(&counts);
    return ok;
}

static bool tokenize(server *s, json_t *body, gen_request *g, buf *out, api_error *e) {
    const served_model *m = &s->model;
    const json_t *prompt = json_object_get(body, "prompt");
    bool chat = field_given(body, "messages"), strings = false;
    if (chat == field_given(body, "prompt")) return api_fail(e, 400, NULL, "prompt", "give either prompt or messages");
    if (!field_bool(body, "return_token_strs", &strings, e)) return false;
    if (json_is_array(prompt)) return many(g, m, prompt, out, e);
    g->n = 1;
    if (chat ? !request_render(g, m, e) : !request_prompts(g, 1, e) || !encode(g, m, prompt, &g->prompts[0], e))
        return false;
    const ids_buf *ids = &g->prompts[0];
    buf_fmt(out, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":", ids->len, (long long)m->context);
    json_ids(out, ids->data, ids->len);
    buf_str(out, ",\"token_strs\":");
    if (strings)
        write_strings(m, ids, out);
    else
        buf_str(out, "null");
    buf_char(out, '}');
    return true;
}

void route_tokenize(server *s, http_request *q, http_reply *r) {
    api_error e = {0};
    gen_request g = {.kind = API_CHAT, .prompt_field = "prompt"};
    limit(s, &g, q);
    g.body = body_object(q, &e);
    bool ok = g.body && tokenize(s, g.body, &g, &r->body, &e);
    gen_request_free(&g);
    r->status = 200;
    if (!ok) reply_error(s, r, &e);
}

/* Anthropic's: the tokens that /v1/messages would feed the model. */
void route_count_tokens(server *s, http_request *q, http_reply *r) {
    api_error e = {0};
    gen_request g = {0};
    limit(s, &g, q);
    json_t *body = body_object(q, &e);
    bool ok = body && check_model(s, body, &e);
    if (!ok)
        json_decref(body);
    else
        ok = request_count_tokens(&g, &s->model, body, &e);
    if (ok) buf_fmt(&r->body, "{\"input_tokens\":%zu}", g.prompts[0].len);
    gen_request_free(&g);
    r->status = 200;
    if (!ok) reply_error_at(s, q, r, &e);
}

void route_detokenize(server *s, http_request *q, http_reply *r) {
    api_error e = {0};
    ids_buf ids = {0};
    buf text = {0};
    bool skip = false;
    const json_t *list = NULL;
    json_t *body = body_object(q, &e);
    bool ok =
        body && field_array(body, "tokens", SIZE_MAX, &list, &e) && field_bool(body, "skip_special_tokens", &skip, &e);
    if (ok && !list) ok = api_fail(&e, 400, NULL, "tokens", "tokens: missing");
    ok = ok && field_ids(list, "tokens", tokenizer_vocab_size(s->model.tok), &ids, &e);
    decode_stream d = {0};
    for (size_t i = 0; ok && i < ids.len; i++) decode_stream_add(&d, s->model.tok, ids.data[i], skip, &text, NULL);
    decode_stream_end(&d, &text);
    json_decref(body);
    ids_free(&ids);
    r->status = 200;
    if (ok) {
        buf_str(&r->body, "{\"prompt\":");
        buf_json_str(&r->body, text.data ? text.data : "", text.len);
        buf_str(&r->body, ",\"text\":");
        buf_json_str(&r->body, text.data ? text.data : "", text.len);
        buf_char(&r->body, '}');
        r->body.failed |= text.failed;
    } else {
        reply_error(s, r, &e);
    }
    buf_free(&text);
}

void route_tokenizer_info(server *s, http_request *q, http_reply *r) {
    static const char *const names[][2] = {
        {"eos_token", "[EOS]"}, {"bos_token", "[BOS]"}, {"pad_token", "[PAD]"}, {"unk_token", "[UNK]"}};
    (void)q;
    buf_str(&r->body, "{\"tokenizer_class\":\"TikTokenTokenizer\"");
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        bool has = tokenizer_special(s->model.tok, names[i][1]) >= 0;
        buf_fmt(&r->body, has ? ",\"%s\":\"%s\"" : ",\"%s\":null", names[i][0], names[i][1]);
    }
    /* A client that finds a template renders it: ours is no Jinja text. */
    buf_fmt(&r->body, ",\"chat_template\":null,\"chat_template_name\":\"%s\",\"model_max_length\":%lld}",
            chat_template_name(s->model.template), (long long)s->model.context);
    r->status = 200;
}
