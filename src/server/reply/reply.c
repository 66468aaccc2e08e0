#include "server/reply/reply.h"
#include "base/json.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const objects[2][2] = {{"chat.completion", "chat.completion.chunk"},
                                          {"text_completion", "text_completion"}};

static const reply_writer openai, generate;

static void write_head(const reply *p, bool chunk, buf *out) {
    buf_str(out, "{\"id\":");
    buf_json_str(out, p->id, strlen(p->id));
    buf_fmt(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", objects[p->r->kind == API_COMPLETION][chunk],
            (long long)p->created);
    buf_json_str(out, p->m->name, strlen(p->m->name));
    buf_str(out, ",\"choices\":[");
}

status reply_open(reply *p, const gen_request *r, const served_model *m, const char *id, err *e) {
    static const reply_writer *const writers[] = {&openai, &openai, &generate, &reply_messages, &reply_responses};
    *p = (reply){.writer = writers[r->kind],
                 .r = r,
                 .m = m,
                 .created = (i64)time(NULL),
                 .received_s = now_s(),
                 .n = r->n_prompts * r->n};
    p->written_s = p->received_s;
    strncpy(p->id, id, sizeof p->id - 1);
    size_t n = (size_t)p->n;
    p->all = calloc(n, sizeof *p->all);
    p->ends = calloc(n, sizeof *p->ends);
    p->sent = calloc(n, sizeof *p->sent);
    p->begun = calloc(2 * n, sizeof *p->begun);
    p->offset = calloc(n, sizeof *p->offset);
    if (!p->all || !p->ends || !p->sent || !p->begun || !p->offset)
        return err_nomem(e, "an answer", n * sizeof *p->all);
    p->finished = p->begun + n;
    for (i64 i = 0; i < p->n; i++) {
        status st = answer_open(&p->all[i], r, m, i, e);
        if (st != ST_OK) return st;
    }
    buf_str(&p->head, "data: ");
    write_head(p, true, &p->head);
    return p->head.failed ? err_nomem(e, "an answer", 256) : ST_OK;
}

void reply_close(reply *p) {
    for (i64 i = 0; i < p->n; i++) {
        if (p->all) answer_close(&p->all[i]);
        if (p->sent) buf_free(&p->sent[i]);
    }
    free(p->all);
    free(p->ends);
    free(p->sent);
    free(p->begun);
    free(p->offset);
    buf_free(&p->head);
    buf_free(&p->blocks.name);
    buf_free(&p->blocks.text);
    buf_free(&p->blocks.done);
    *p = (reply){0};
}

/* What ended the choice: a stop string, a stop id, or null. */
static void matched(const answer *a, buf *out) {
    if (a->matched_string >= 0) {
        const stop_string *s = &a->r->stops.all[a->matched_string];
        buf_json_str(out, s->text, s->len);
    } else if (a->matched_id >= 0) {
        buf_fmt(out, "%d", a->matched_id);
    } else {
        buf_str(out, "null");
    }
}

static void all_of(const answer *a, piece_kind kind, i64 call, buf *out) {
    for (size_t i = 0; i < a->n_pieces; i++)
        if (a->pieces[i].kind == kind && a->pieces[i].call == call)
            buf_add(out, a->text.data + a->pieces[i].at, a->pieces[i].len);
}

static void text_field(const answer *a, piece_kind kind, i64 call, buf *out) {
    buf text = {0};
    all_of(a, kind, call, &text);
    buf_json_str(out, text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    buf_free(&text);
}

static bool has_piece(const answer *a, piece_kind kind) {
    for (size_t i = 0; i < a->n_pieces; i++)
        if (a->pieces[i].kind == kind) return true;
    return false;
}

void reply_call_id(const reply *p, const char *name, size_t len, i64 call, buf *out) {
    buf id = {0};
    buf_fmt(&id, "functions.%.*s:%lld", (int)len, name, (long long)(p->r->history_calls + call));
    buf_json_str(out, id.data ? id.data : "", id.len);
    out->failed |= id.failed;
    buf_free(&id);
}

static void token_ids_field(const answer *a, buf *out) {
    if (!a->r->return_token_ids) return;
    buf_str(out, ",\"token_ids\":");
    json_ids(out, a->tokens.data, a->tokens.len);
}

static void prompt_ids_field(const answer *a, buf *out) {
    if (!a->r->return_token_ids) return;
    buf_str(out, ",\"prompt_token_ids\":");
    json_ids(out, a->prompt->data, a->prompt->len);
}

static void finish_fields(const answer *a, buf *out) {
    buf_fmt(out, ",\"finish_reason\":\"%s\",\"matched_stop\":", a->finish);
    matched(a, out);
}

/* ---- Whole answers ---- */

static void whole_message(const reply *p, const answer *a, buf *out) {
    buf_str(out, "{\"role\":\"assistant\",\"content\":");
    if (a->calls && !has_piece(a, PIECE_CONTENT))
        buf_str(out, "null");
    else
        text_field(a, PIECE_CONTENT, -1, out);
    buf_str(out, ",\"reasoning_content\":");
    if (has_piece(a, PIECE_REASONING))
        text_field(a, PIECE_REASONING, -1, out);
    else
        buf_str(out, "null");
    buf_str(out, ",\"tool_calls\":");
    if (!a->calls) buf_str(out, "null}");
    if (!a->calls) return;
    char open = '[';
    for (size_t i = 0; i < a->n_pieces; i++) {
        const piece *b = &a->pieces[i];
        if (b->kind != PIECE_CALL_BEGIN) continue;
        buf_char(out, open);
        open = ',';
        buf_str(out, "{\"id\":");
        reply_call_id(p, a->text.data + b->at, b->len, b->call, out);
        buf_fmt(out, ",\"type\":\"function\",\"index\":%lld,\"function\":{\"name\":", (long long)b->call);
        buf_json_str(out, a->text.data + b->at, b->len);
        buf_str(out, ",\"arguments\":");
        text_field(a, PIECE_CALL_ARGS, b->call, out);
        buf_str(out, "}}");
    }
    buf_str(out, "]}");
}

static void echo_text(const answer *a, buf *out) {
    decode_stream s = {0};
    for (size_t i = 0; i < a->prompt->len; i++)
        decode_stream_add(&s, a->m->tok, a->prompt->data[i], a->r->skip_special, out, NULL);
    decode_stream_end(&s, out);
}

static void whole_completion_text(const answer *a, buf *out) {
    buf text = {0};
    if (a->r->echo) echo_text(a, &text);
    all_of(a, PIECE_CONTENT, -1, &text);
    buf_json_str(out, text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    buf_free(&text);
}

static void whole_choice(const reply *p, const answer *a, buf *out) {
    i64 offset = 0;
    buf_fmt(out, "%s{\"index\":%lld,", a->index ? "," : "", (long long)a->index);
    if (p->r->kind == API_CHAT) {
        buf_str(out, "\"message\":");
        whole_message(p, a, out);
    } else {
        buf_str(out, "\"text\":");
        whole_completion_text(a, out);
    }
    buf_str(out, ",\"logprobs\":");
    if (!p->r->logprobs)
        buf_str(out, "null");
    else if (p->r->kind == API_CHAT)
        chat_logprobs(out, a, 0, a->n_info);
    else
        completion_logprobs(out, a, 0, a->n_info, &offset);
    finish_fields(a, out);
    token_ids_field(a, out);
    prompt_ids_field(a, out);
    buf_char(out, '}');
}

/* ---- /generate ---- */

static void generate_reason(const answer *a, buf *out) {
    if (!a->done) {
        buf_str(out, "null");
    } else if (!strcmp(a->finish, "length")) {
        buf_fmt(out, "{\"type\":\"length\",\"length\":%lld}", (long long)a->n_tokens);
    } else {
        buf_str(out, "{\"type\":\"stop\",\"matched\":");
        matched(a, out);
        buf_char(out, '}');
    }
}

/* The prompt's go with the first chunk of a stream, and with the last one of those that carry all so far: a long
 * prompt's in every chunk would be more than the answer by far. */
static bool shows_prompt(const reply *p, const answer *a) {
    if (!a->r->prompt_logprobs) return false;
    return !a->r->stream || !p->begun[a->index] || (a->done && !p->incremental);
}

static void generate_meta_logprobs(const reply *p, const answer *a, buf *out) {
    const gen_request *r = a->r;
    const bool shown = shows_prompt(p, a);
    size_t prompt = a->n_prompt_info, from = (size_t)r->logprob_start < prompt ? (size_t)r->logprob_start : prompt;
    if (shown) {
        buf_str(out, ",\"input_token_logprobs\":");
        generate_logprobs(out, a, from, prompt, r->logprob_text);
    }
    buf_str(out, ",\"output_token_logprobs\":");
    generate_logprobs(out, a, prompt, a->n_info, r->logprob_text);
    if (!r->top) return;
    if (shown) {
        buf_str(out, ",\"input_top_logprobs\":");
        generate_top_logprobs(out, a, from, prompt, r->logprob_text);
    }
    buf_str(out, ",\"output_top_logprobs\":");
    generate_top_logprobs(out, a, prompt, a->n_info, r->logprob_text);
}

/* One output; `text` is what it shows. */
static void generate_object(const reply *p, i64 i, const char *text, size_t len, buf *out) {
    const answer *a = &p->all[i];
    buf_str(out, "{\"text\":");
    buf_json_str(out, text ? text : "", len);
    if (a->done) {
        buf_str(out, ",\"output_ids\":");
        json_ids(out, a->tokens.data, a->tokens.len);
    }
    buf_str(out, ",\"meta_info\":{\"id\":");
    buf id = {0};
    buf_str(&id, p->id);
    if (p->n > 1) buf_fmt(&id, "-%lld", (long long)i);
    buf_json_str(out, id.data ? id.data : "", id.len);
    out->failed |= id.failed;
    buf_free(&id);
    buf_str(out, ",\"finish_reason\":");
    generate_reason(a, out);
    buf_fmt(out,
            ",\"prompt_tokens\":%zu,\"completion_tokens\":%lld,\"cached_tokens\":%lld,\"weight_version\":\"default\","
            "\"e2e_latency\":%.6f",
            a->prompt->len, (long long)a->n_tokens, (long long)p->ends[i].usage.cached_tokens, now_s() - p->received_s);
    if (p->r->logprobs) generate_meta_logprobs(p, a, out);
    buf_str(out, "}");
    if (p->n > 1 && p->r->stream) buf_fmt(out, ",\"index\":%lld", (long long)i);
    buf_char(out, '}');
}

static void generate_whole(reply *p, buf *out) {
    bool array = p->n > 1 || p->r->prompt_array;
    if (array) buf_char(out, '[');
    for (i64 i = 0; i < p->n; i++) {
        if (i) buf_char(out, ',');
        buf text = {0};
        all_of(&p->all[i], PIECE_CONTENT, -1, &text);
        generate_object(p, i, text.data, text.len, out);
        out->failed |= text.failed;
        buf_free(&text);
    }
    if (array) buf_char(out, ']');
}

static void generate_chunk(reply *p, i64 i, buf *out) {
    answer *a = &p->all[i];
    buf *text = &p->sent[i];
    if (p->incremental) buf_clear(text);
    all_of(a, PIECE_CONTENT, -1, text);
    buf_str(out, "data: ");
    generate_object(p, i, text->data, text->len, out);
    buf_str(out, "\n\n");
    out->failed |= text->failed;
    p->begun[i] = true;
    if (p->incremental) answer_clear_positions(a);
}

static void openai_whole(reply *p, buf *out) {
    write_head(p, false, out);
    for (i64 i = 0; i < p->n; i++) whole_choice(p, &p->all[i], out);
    buf_str(out, "],\"usage\":");
    reply_usage(p, -1, out);
    buf_char(out, '}');
}

/* ---- Streams ---- */

/* A chunk of choice a around `body` ("delta":{...} or "text":...); log-probabilities and ids go with the first chunk
 * after they became known. */
static void chunk(reply *p, answer *a, const buf *body, bool last, buf *out) {
    const gen_request *r = p->r;
    buf_add(out, p->head.data, p->head.len);
    buf_fmt(out, "{\"index\":%lld,", (long long)a->index);
    buf_add(out, body->data, body->len);
    buf_str(out, ",\"logprobs\":");
    if (!r->logprobs || !a->n_info)
        buf_str(out, "null");
    else if (r->kind == API_CHAT)
        chat_logprobs(out, a, 0, a->n_info);
    else
        completion_logprobs(out, a, 0, a->n_info, &p->offset[a->index]);
    if (last)
        finish_fields(a, out);
    else
        buf_str(out, ",\"finish_reason\":null");
    if (a->tokens.len) token_ids_field(a, out);
    answer_clear_positions(a);
    if (last) {
        buf_str(out, ",\"usage\":");
        reply_usage(p, a->index, out);
    }
    buf_str(out, "}]");
    if (r->continuous_usage) {
        buf_str(out, ",\"usage\":");
        reply_usage(p, -1, out);
    }
    buf_str(out, "}\n\n");
    out->failed |= body->failed;
}

static void delta_body(const reply *p, const answer *a, const piece *b, buf *body) {
    const char *text = a->text.data + b->at;
    buf_str(body, "\"delta\":{");
    if (b->kind == PIECE_REASONING || b->kind == PIECE_CONTENT) {
        buf_str(body, b->kind == PIECE_CONTENT ? "\"content\":" : "\"reasoning_content\":");
        buf_json_str(body, text, b->len);
        buf_char(body, '}');
        return;
    }
    buf_fmt(body, "\"tool_calls\":[{\"index\":%lld,", (long long)b->call);
    if (b->kind == PIECE_CALL_BEGIN) {
        buf_str(body, "\"id\":");
        reply_call_id(p, text, b->len, b->call, body);
        buf_str(body, ",\"type\":\"function\",\"function\":{\"name\":");
        buf_json_str(body, text, b->len);
        buf_str(body, ",\"arguments\":\"\"}}]}");
    } else {
        buf_str(body, "\"function\":{\"arguments\":");
        buf_json_str(body, text, b->len);
        buf_str(body, "}}]}");
    }
}

static void chat_chunks(reply *p, answer *a, buf *out) {
    buf body = {0};
    if (!p->begun[a->index]) {
        buf_str(&body, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
        position_info *info = a->info; /* the log-probabilities belong to the chunk with the token's text */
        size_t n = a->n_info, n_ids = a->tokens.len;
        a->n_info = a->tokens.len = 0;
        size_t n_top = a->n_top;
        chunk(p, a, &body, false, out);
        a->info = info;
        a->n_info = n;
        a->n_top = n_top;
        a->tokens.len = n_ids;
        p->begun[a->index] = true;
    }
    for (size_t i = 0; i < a->n_pieces; i++) {
        buf_clear(&body);
        delta_body(p, a, &a->pieces[i], &body);
        chunk(p, a, &body, false, out);
    }
    if (a->done) {
        buf_clear(&body);
        buf_str(&body, "\"delta\":{}");
        chunk(p, a, &body, true, out);
    }
    buf_free(&body);
}

static void completion_chunks(reply *p, answer *a, buf *out) {
    buf body = {0}, text = {0};
    if (a->r->echo && !p->begun[a->index]) echo_text(a, &text);
    all_of(a, PIECE_CONTENT, -1, &text);
    if (text.len || a->done) {
        buf_str(&body, "\"text\":");
        buf_json_str(&body, text.data ? text.data : "", text.len);
        body.failed |= text.failed;
        chunk(p, a, &body, a->done, out);
    }
    p->begun[a->index] = true;
    buf_free(&text);
    buf_free(&body);
}

static void openai_chunks(reply *p, i64 i, buf *out) {
    if (p->r->kind == API_CHAT)
        chat_chunks(p, &p->all[i], out);
    else
        completion_chunks(p, &p->all[i], out);
}

static void done(reply *p, buf *out) {
    (void)p;
    buf_str(out, "data: [DONE]\n\n");
}

static void openai_end(reply *p, buf *out) {
    if (p->r->include_usage) {
        buf_add(out, p->head.data, p->head.len);
        buf_str(out, "],\"usage\":");
        reply_usage(p, -1, out);
        buf_str(out, "}\n\n");
    }
    done(p, out);
}

static void openai_error(reply *p, const api_error *e, buf *out) {
    buf_str(out, "data: ");
    api_error_json(out, e);
    buf_str(out, "\n\n");
    done(p, out);
}

static const reply_writer openai = {openai_whole, openai_chunks, openai_end, openai_error, NULL, false},
                          generate = {generate_whole, generate_chunk, done, openai_error, NULL, false};

/* ---- Whatever the protocol ---- */

void reply_whole(reply *p, buf *out) { p->writer->whole(p, out); }

void reply_chunks(reply *p, i64 i, buf *out) {
    answer *a = &p->all[i];
    if (p->finished[i] || (!a->started && !p->writer->early)) return;
    p->writer->chunks(p, i, out);
    answer_clear_text(a);
    p->finished[i] = a->done;
    p->written_s = now_s();
}

void reply_stream_end(reply *p, buf *out) { p->writer->end(p, out); }
void reply_stream_error(reply *p, const api_error *e, buf *out) { p->writer->error(p, e, out); }

void reply_silence(reply *p, buf *out) {
    static const f64 PATIENCE_S = 15;
    if (!p->writer->silence || now_s() - p->written_s < PATIENCE_S) return;
    p->writer->silence(p, out);
    p->written_s = now_s();
}
