/* server/reply/reply_anthropic.c: answers of /v1/messages in Anthropic's form, whole and as a stream.
 *
 * A stream is message_start with the input's usage as soon as the engine has begun; for every block
 * content_block_start, its deltas and content_block_stop; message_delta with the reason and the usage;
 * message_stop. `ping` fills long silences. */
#include "server/reply/reply.h"
#include "base/json.h"
#include <string.h>

/* Anthropic counts what came from the cache apart from the rest of the input. */
static void reply_messages_usage(const reply *p, buf *out) {
    i64 cached = p->ends[0].usage.cached_tokens;
    buf_fmt(out,
            "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%lld,"
            "\"output_tokens\":%lld,\"output_tokens_details\":{\"thinking_tokens\":%lld}}",
            (long long)p->all[0].prompt->len - (long long)cached, (long long)cached, (long long)p->all[0].n_tokens,
            (long long)p->all[0].reasoning_tokens);
}

static void stop_reason(const answer *a, bool over, buf *out) {
    const bool string = over && a->matched_string >= 0 && !strcmp(a->finish, "stop");
    const char *reason = !over                              ? NULL
                         : !strcmp(a->finish, "length")     ? "max_tokens"
                         : !strcmp(a->finish, "tool_calls") ? "tool_use"
                         : string                           ? "stop_sequence"
                                                            : "end_turn";
    buf_str(out, "\"stop_reason\":");
    if (reason)
        buf_json_str(out, reason, strlen(reason));
    else
        buf_str(out, "null");
    buf_str(out, ",\"stop_sequence\":");
    if (string)
        buf_json_str(out, a->r->stops.all[a->matched_string].text, a->r->stops.all[a->matched_string].len);
    else
        buf_str(out, "null");
}

/* content NULL: as it stands at the beginning. */
static void reply_messages_message(const reply *p, const buf *content, buf *out) {
    buf_str(out, "{\"id\":");
    buf_json_str(out, p->id, strlen(p->id));
    buf_str(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    buf_json_str(out, p->m->name, strlen(p->m->name));
    buf_str(out, ",\"content\":[");
    if (content) buf_add(out, content->data, content->len);
    buf_str(out, "],");
    stop_reason(&p->all[0], content != NULL, out);
    buf_str(out, ",\"usage\":");
    reply_messages_usage(p, out);
    buf_char(out, '}');
}

static void reply_messages_event(const char *name, buf *out) {
    buf_fmt(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

/* ---- Blocks ---- */

static void call_head(const reply *p, buf *out) {
    const reply_blocks *b = &p->blocks;
    buf_str(out, "{\"type\":\"tool_use\",\"id\":");
    reply_call_id(p, b->name.data ? b->name.data : "", b->name.len, b->call, out);
    buf_str(out, ",\"name\":");
    buf_json_str(out, b->name.data ? b->name.data : "", b->name.len);
    buf_str(out, ",\"input\":");
}

static void reply_messages_begin(reply *p, buf *out) {
    reply_messages_event("content_block_start", out);
    buf_fmt(out, ",\"index\":%lld,\"content_block\":", (long long)p->blocks.index);
    if (p->blocks.kind == PIECE_REASONING) {
        buf_str(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (p->blocks.kind == PIECE_CONTENT) {
        buf_str(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else {
        call_head(p, out);
        buf_str(out, "{}}");
    }
    buf_str(out, "}\n\n");
}

static void reply_messages_delta(reply *p, const char *text, size_t len, buf *out) {
    static const char *const types[][2] = {[PIECE_REASONING] = {"thinking_delta", "thinking"},
                                           [PIECE_CONTENT] = {"text_delta", "text"},
                                           [PIECE_CALL_ARGS] = {"input_json_delta", "partial_json"}};
    const char *const *type = types[p->blocks.kind];
    reply_messages_event("content_block_delta", out);
    buf_fmt(out, ",\"index\":%lld,\"delta\":{\"type\":\"%s\",\"%s\":", (long long)p->blocks.index, type[0], type[1]);
    buf_json_str(out, text, len);
    buf_str(out, "}}\n\n");
}

static void reply_messages_end(reply *p, bool complete, buf *out) {
    (void)complete;
    if (p->blocks.kind == PIECE_REASONING) { /* clients keep the block for the history once it is signed */
        reply_messages_event("content_block_delta", out);
        buf_fmt(out, ",\"index\":%lld,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}}\n\n",
                (long long)p->blocks.index);
    }
    reply_messages_event("content_block_stop", out);
    buf_fmt(out, ",\"index\":%lld}\n\n", (long long)p->blocks.index);
}

/* `input` is an object. Arguments that are none (cut off, or not JSON) travel as {"_raw": text}; request_anthropic.c
 * takes them out again. */
static void write_input(const buf *text, buf *out) {
    if (!text->len) {
        buf_str(out, "{}");
        return;
    }
    json_t *v = json_parse(text->data, text->len, "arguments", NULL);
    if (json_is_object(v)) {
        buf_add(out, text->data, text->len);
    } else {
        buf_str(out, "{\"_raw\":");
        buf_json_str(out, text->data, text->len);
        buf_char(out, '}');
    }
    json_decref(v);
}

static void reply_messages_block_json(const reply *p, bool complete, buf *out) {
    const reply_blocks *b = &p->blocks;
    (void)complete;
    if (b->kind == PIECE_CALL_ARGS) {
        call_head(p, out);
        write_input(&b->text, out);
        buf_char(out, '}');
        return;
    }
    bool thinks = b->kind == PIECE_REASONING;
    buf_str(out, thinks ? "{\"type\":\"thinking\",\"thinking\":" : "{\"type\":\"text\",\"text\":");
    buf_json_str(out, b->text.data ? b->text.data : "", b->text.len);
    buf_str(out, thinks ? ",\"signature\":\"\"}" : "}");
}

static const block_writer reply_messages_blocks = {reply_messages_begin, reply_messages_delta, reply_messages_end,
                                                   reply_messages_block_json};

/* ---- The answer ---- */

static void reply_messages_whole(reply *p, buf *out) {
    reply_blocks_write(p, &p->all[0], &reply_messages_blocks, NULL);
    reply_messages_message(p, &p->blocks.done, out);
    out->failed |= p->blocks.done.failed || p->blocks.text.failed;
}

static void reply_messages_chunks(reply *p, i64 i, buf *out) {
    const answer *a = &p->all[i];
    if (!p->begun[i]) {
        reply_messages_event("message_start", out);
        buf_str(out, ",\"message\":");
        reply_messages_message(p, NULL, out);
        buf_str(out, "}\n\n");
        p->begun[i] = true;
    }
    reply_blocks_write(p, a, &reply_messages_blocks, out);
    if (!a->done) return;
    reply_messages_event("message_delta", out);
    buf_str(out, ",\"delta\":{");
    stop_reason(a, true, out);
    buf_str(out, "},\"usage\":");
    reply_messages_usage(p, out);
    buf_str(out, "}\n\n");
}

static void reply_messages_stream_end(reply *p, buf *out) {
    (void)p;
    reply_messages_event("message_stop", out);
    buf_str(out, "}\n\n");
}

static void reply_messages_stream_error(reply *p, const api_error *e, buf *out) {
    (void)p;
    buf_str(out, "event: error\ndata: ");
    api_error_json_anthropic(out, e);
    buf_str(out, "\n\n");
}

static void ping(reply *p, buf *out) {
    (void)p;
    reply_messages_event("ping", out);
    buf_str(out, "}\n\n");
}

const reply_writer reply_messages = {
    reply_messages_whole, reply_messages_chunks, reply_messages_stream_end, reply_messages_stream_error, ping, true};
