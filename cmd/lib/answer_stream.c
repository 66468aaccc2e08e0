#include "cmd/lib/answer_stream.h"
#include <stdio.h>
#include <string.h>

static void stream_begin(answer_stream *s) {
    if (s->started) return;
    s->started = true;
    s->output_tokens = s->prompt_tokens = s->cached_tokens = -1;
}

static void complain(answer_stream *s, const char *what, const char *detail, size_t n) {
    err e;
    if (s->error[0]) return;
    err_set(&e, ST_FORMAT, "%s%.*s", what, (int)(n > 180 ? 180 : n), detail); /* drops control characters */
    snprintf(s->error, sizeof s->error, "%.250s", e.text);
}

static i64 most_tokens(const answer_stream *s) {
    return s->max_tokens ? min_i64(s->max_tokens, ANSWER_TOKENS_MAX) : ANSWER_TOKENS_MAX;
}

/* A count into *out, which stays as it is where the server does not say. */
static void stream_count(answer_stream *s, const json_t *o, const char *key, i64 most, i64 *out) {
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) return;
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= most) {
        *out = json_integer_value(v);
        return;
    }
    char text[128];
    int n = snprintf(text, sizeof text, "the server's %s is no whole number from 0 to %lld", key, (long long)most);
    complain(s, "", text, (size_t)n);
}

static void read_usage(answer_stream *s, const json_t *usage) {
    stream_count(s, usage, "completion_tokens", most_tokens(s), &s->output_tokens);
    stream_count(s, usage, "prompt_tokens", ANSWER_TOKENS_MAX, &s->prompt_tokens);
    stream_count(s, json_object_get(usage, "prompt_tokens_details"), "cached_tokens", ANSWER_TOKENS_MAX,
                 &s->cached_tokens);
}

/* The ids of a piece; NULL where there are none. */
static const json_t *ids_of(answer_stream *s, const json_t *choice) {
    const json_t *ids = json_object_get(choice, "token_ids");
    if (!json_is_array(ids)) return NULL;
    bool good = (i64)json_array_size(ids) <= most_tokens(s) - s->seen_tokens;
    for (size_t i = 0; good && i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        good = json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
    }
    if (!good) complain(s, "the server's token_ids are no ids, or more than were asked for", "", 0);
    if (good) s->seen_tokens += (i64)json_array_size(ids);
    return good ? ids : NULL;
}

static void read_finish(answer_stream *s, const json_t *reason) {
    if (json_is_object(reason)) reason = json_object_get(reason, "type"); /* /generate */
    if (json_is_string(reason)) snprintf(s->finish, sizeof s->finish, "%.30s", json_string_value(reason));
}

static void stream_deliver(answer_stream *s, const json_t *text, size_t from, i64 new_tokens, const json_t *ids) {
    size_t len = json_string_length(text);
    answer_piece p = {"", 0, new_tokens, ids};
    if (len > from) {
        p.text = json_string_value(text) + from;
        p.len = len - from;
    }
    if (p.len || p.new_tokens > 0) s->on_piece(s->ud, &p);
}

static void read_choice(answer_stream *s, const json_t *choice) {
    static const char *const of_chat[] = {"reasoning_content", "content"};
    const json_t *ids = ids_of(s, choice), *text = json_object_get(choice, "text");
    const json_t *chat = json_object_get(choice, "delta");
    i64 n = ids ? (i64)json_array_size(ids) : -1;
    read_finish(s, json_object_get(choice, "finish_reason"));
    read_usage(s, json_object_get(choice, "usage"));
    if (s->error[0]) return;
    if (!chat) chat = json_object_get(choice, "message");
    if (!chat) {
        stream_deliver(s, text, 0, n, ids);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(of_chat); i++)
        if (json_string_length(json_object_get(chat, of_chat[i]))) {
            stream_deliver(s, json_object_get(chat, of_chat[i]), 0, n, ids);
            n = n < 0 ? -1 : 0; /* tokens are counted once */
            ids = NULL;
        }
    const json_t *calls = json_object_get(chat, "tool_calls");
    if (json_array_size(calls)) {
        answer_piece p = {"", 0, n > 0 ? n : -1, ids};
        s->on_piece(s->ud, &p);
    } else if (n > 0) {
        stream_deliver(s, NULL, 0, n, ids);
    }
}

/* /generate: text and completion_tokens of everything so far. */
static void read_cumulative(answer_stream *s, const json_t *o) {
    const json_t *text = json_object_get(o, "text"), *meta = json_object_get(o, "meta_info");
    size_t len = json_string_length(text);
    i64 total = -1, new_tokens = -1;
    stream_count(s, meta, "completion_tokens", most_tokens(s), &total);
    stream_count(s, meta, "prompt_tokens", ANSWER_TOKENS_MAX, &s->prompt_tokens);
    stream_count(s, meta, "cached_tokens", ANSWER_TOKENS_MAX, &s->cached_tokens);
    read_finish(s, json_object_get(meta, "finish_reason"));
    if (!len || s->error[0]) return; /* the reference's clients wait for text */
    if (total >= 0) {
        new_tokens = max_i64(0, total - s->seen_tokens);
        s->seen_tokens += new_tokens;
        s->output_tokens = total;
    }
    stream_deliver(s, text, s->seen < len ? s->seen : len, new_tokens, NULL);
    if (len > s->seen) s->seen = len;
}

static void read_json(answer_stream *s, const char *text, size_t len) {
    err e = {0};
    json_t *o = json_parse(text, len, "the answer", &e);
    const json_t *wrong = json_object_get(o, "error");
    const json_t *choices = json_object_get(o, "choices");
    if (!json_is_object(o)) {
        complain(s, o ? "not an object: " : "not JSON: ", text, len);
    } else if (wrong && !json_is_null(wrong) && !json_is_false(wrong)) {
        const json_t *m = json_is_object(wrong) ? json_object_get(wrong, "message") : wrong;
        const char *why = json_is_string(m) ? json_string_value(m) : text;
        complain(s, "", why, json_is_string(m) ? json_string_length(m) : len);
    } else if (json_is_array(choices)) {
        if (json_array_size(choices)) read_choice(s, json_array_get(choices, 0));
        read_usage(s, json_object_get(o, "usage"));
    } else if (json_is_string(json_object_get(o, "text"))) {
        read_cumulative(s, o);
    } else {
        complain(s, "neither choices nor text: ", text, len);
    }
    json_decref(o);
}

/* Comments, "event:" and empty lines carry nothing. */
static void read_line(answer_stream *s, const char *line, size_t n) {
    if (n && line[n - 1] == '\r') n--;
    if (n < 5 || memcmp(line, "data:", 5)) {
        if (n && line[0] == '{') complain(s, "not a stream: ", line, n);
        return;
    }
    line += 5, n -= 5;
    if (n && *line == ' ') line++, n--;
    if (n == 6 && !memcmp(line, "[DONE]", 6))
        s->done = true;
    else if (n)
        read_json(s, line, n);
}

void answer_stream_add(answer_stream *s, const char *bytes, size_t n) {
    stream_begin(s);
    while (n && !s->keep_body && !s->error[0]) {
        const char *end = memchr(bytes, '\n', n);
        if (!end) break;
        size_t len = (size_t)(end - bytes);
        if (s->line.len) {
            buf_add(&s->line, bytes, len);
            if (!s->line.failed) read_line(s, s->line.data, s->line.len);
            s->line.len = 0;
        } else {
            read_line(s, bytes, len);
        }
        bytes += len + 1;
        n -= len + 1;
    }
    if (s->error[0]) return;
    if (s->line.len + n > ANSWER_LINE_MAX) {
        complain(s, s->keep_body ? "an answer of more than 64 MiB" : "a line of more than 64 MiB", "", 0);
        buf_free(&s->line);
        return;
    }
    buf_add(&s->line, bytes, n);
    if (s->line.failed) complain(s, "out of memory", "", 0);
}

void answer_stream_end(answer_stream *s) {
    stream_begin(s);
    if (s->error[0]) return;
    if (s->keep_body) {
        if (s->line.len) read_json(s, s->line.data, s->line.len);
        s->done = s->line.len > 0;
    } else if (s->line.len) {
        read_line(s, s->line.data, s->line.len);
    }
    s->line.len = 0;
    if (!s->done) complain(s, "the stream ended before [DONE]", "", 0);
}

void answer_stream_free(answer_stream *s) { buf_free(&s->line); }
