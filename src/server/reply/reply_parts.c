/* server/reply/reply_parts.c: usage and log-probabilities in the shapes of the three protocols. */
#include "server/reply/reply.h"
#include "base/json.h"
#include "text/utf8.h"
#include <string.h>

void token_text(const served_model *m, i32 id, buf *out) {
    size_t len;
    const char *bytes = tokenizer_bytes(m->tok, id, &len);
    if (bytes) utf8_repair(out, (const u8 *)bytes, len);
}

/* JSON has no infinities; OpenAI's "very unlikely" is -9999. */
static void parts_number(buf *out, f32 logprob) { buf_fmt(out, "%.9g", logprob > -9999 ? (f64)logprob : -9999.0); }

static void token_string(buf *out, const served_model *m, i32 id) {
    buf text = {0};
    token_text(m, id, &text);
    buf_json_str(out, text.data ? text.data : "", text.len);
    out->failed |= text.failed;
    buf_free(&text);
}

void json_ids(buf *out, const i32 *ids, size_t n) {
    buf_char(out, '[');
    for (size_t i = 0; i < n; i++) buf_fmt(out, "%s%d", i ? "," : "", ids[i]);
    buf_char(out, ']');
}

/* ---- Chat ---- */

static void chat_entry(buf *out, const served_model *m, i32 id, f32 logprob) {
    size_t len = 0;
    const char *bytes = tokenizer_bytes(m->tok, id, &len);
    buf_str(out, "{\"token\":");
    token_string(out, m, id);
    buf_str(out, ",\"logprob\":");
    parts_number(out, logprob);
    buf_str(out, ",\"bytes\":[");
    for (size_t i = 0; i < len; i++) buf_fmt(out, "%s%d", i ? "," : "", (u8)bytes[i]);
    buf_char(out, ']');
}

void chat_logprobs(buf *out, const answer *a, size_t from, size_t to) {
    buf_str(out, "{\"content\":[");
    for (size_t i = from; i < to; i++) {
        const position_info *p = &a->info[i];
        if (i > from) buf_char(out, ',');
        chat_entry(out, a->m, p->token, p->logprob);
        buf_str(out, ",\"top_logprobs\":[");
        for (i32 k = 0; k < p->n_top; k++) {
            if (k) buf_char(out, ',');
            chat_entry(out, a->m, a->top[p->top + (size_t)k].id, a->top[p->top + (size_t)k].logprob);
            buf_char(out, '}');
        }
        buf_str(out, "]}");
    }
    buf_str(out, "],\"refusal\":null}");
}

/* ---- Completions ---- */

static i64 characters(const char *s, size_t len) {
    i64 n = 0;
    for (size_t i = 0; i < len; i++) n += ((u8)s[i] & 0xc0) != 0x80;
    return n;
}

/* The object {text: logprob}: the alternatives and the token itself. Of ids with one text the most probable counts;
 * alternatives come most probable first. */
static void completion_top(buf *out, const answer *a, const position_info *p) {
    json_t *seen = json_object();
    bool any = false;
    buf text = {0};
    buf_char(out, '{');
    for (i32 k = 0; seen && k <= p->n_top; k++) {
        sampled t = k < p->n_top ? a->top[p->top + (size_t)k] : (sampled){p->token, p->logprob};
        buf_clear(&text);
        token_text(a->m, t.id, &text);
        const char *s = text.data ? text.data : "";
        if (json_object_getn(seen, s, text.len)) continue;
        json_object_setn_new(seen, s, text.len, json_true());
        if (any) buf_char(out, ',');
        any = true;
        buf_json_str(out, s, text.len);
        buf_char(out, ':');
        parts_number(out, t.logprob);
    }
    buf_char(out, '}');
    out->failed |= !seen || text.failed;
    buf_free(&text);
    json_decref(seen);
}

/* How many characters begin in a token: one that is cut into several counts where its first byte is. */
static i64 token_characters(const served_model *m, i32 id) {
    size_t len = 0;
    const char *bytes = tokenizer_bytes(m->tok, id, &len);
    return characters(bytes, len);
}

void completion_logprobs(buf *out, const answer *a, size_t from, size_t to, i64 *offset) {
    buf_str(out, "{\"tokens\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) buf_char(out, ',');
        token_string(out, a->m, a->info[i].token);
    }
    buf_str(out, "],\"token_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) buf_char(out, ',');
        if (a->info[i].has_logprob)
            parts_number(out, a->info[i].logprob);
        else
            buf_str(out, "null");
    }
    buf_str(out, "],\"top_logprobs\":[");
    for (size_t i = from; i < to; i++) {
        if (i > from) buf_char(out, ',');
        if (a->info[i].has_logprob)
            completion_top(out, a, &a->info[i]);
        else
            buf_str(out, "null");
    }
    buf_str(out, "],\"text_offset\":[");
    for (size_t i = from; i < to; i++) {
        buf_fmt(out, "%s%lld", i > from ? "," : "", (long long)*offset);
        *offset += token_characters(a->m, a->info[i].token);
    }
    buf_str(out, "]}");
}

/* ---- /generate ---- */

static void triple(buf *out, const served_model *m, i32 id, f32 logprob, bool has, bool text) {
    buf_char(out, '[');
    if (has)
        parts_number(out, logprob);
    else
        buf_str(out, "null");
    buf_fmt(out, ",%d,", id);
    if (text)
        token_string(out, m, id);
    else
        buf_str(out, "null");
    buf_char(out, ']');
}

void generate_logprobs(buf *out, const answer *a, size_t from, size_t to, bool text) {
    buf_char(out, '[');
    for (size_t i = from; i < to; i++) {
        const position_info *p = &a->info[i];
        if (i > from) buf_char(out, ',');
        triple(out, a->m, p->token, p->logprob, p->has_logprob, text);
    }
    buf_char(out, ']');
}

void generate_top_logprobs(buf *out, const answer *a, size_t from, size_t to, bool text) {
    buf_char(out, '[');
    for (size_t i = from; i < to; i++) {
        const position_info *p = &a->info[i];
        buf_str(out, i > from ? "," : "");
        if (!p->has_logprob) {
            buf_str(out, "null");
            continue;
        }
        buf_char(out, '[');
        for (i32 k = 0; k < p->n_top; k++) {
            const sched_top *t = &a->top[p->top + (size_t)k];
            if (k) buf_char(out, ',');
            triple(out, a->m, t->id, t->logprob, true, text);
        }
        buf_char(out, ']');
    }
    buf_char(out, ']');
}

/* ---- Usage ---- */

void reply_usage(const reply *p, i64 i, buf *out) {
    i64 prompt = 0, output = 0, cached = 0, reasoning = 0;
    for (i64 k = i < 0 ? 0 : i; k < (i < 0 ? p->n : i + 1); k++) {
        output += p->all[k].n_tokens;
        reasoning += p->all[k].reasoning_tokens;
        if (i < 0 && k % p->r->n) continue; /* n answers share one prompt */
        prompt += (i64)p->all[k].prompt->len;
        cached += p->ends[k].usage.cached_tokens;
    }
    buf_fmt(out,
            "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
            "\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
            "\"completion_tokens_details\":{\"reasoning_tokens\":%lld},\"reasoning_tokens\":%lld}",
            (long long)prompt, (long long)output, (long long)(prompt + output), (long long)cached, (long long)reasoning,
            (long long)reasoning);
}
