/* server/reply/reply_responses.c: answers of /v1/responses in the form of OpenAI's Responses, whole and as a stream.
 *
 * Every event carries its type twice (`event:` and "type") and a number that counts up. A stream is response.created
 * and response.in_progress as soon as the engine has begun; for every item output_item.added, content_part.added,
 * deltas, the text's done, content_part.done, output_item.done; response.completed, or .incomplete when
 * max_output_tokens cut it, with the whole response. */
#include "server/reply/reply.h"
#include "base/json.h"
#include <string.h>

/* ---- The response ---- */

/* A field of the request as it was sent. */
static void echo(const reply *p, const char *key, const char *otherwise, buf *out) {
    const json_t *v = json_object_get(p->r->original, key);
    buf_fmt(out, ",\"%s\":", key);
    if (v && !json_is_null(v))
        json_write(out, v, &json_compact);
    else
        buf_str(out, otherwise);
}

static void reply_responses_usage(const reply *p, buf *out) {
    const answer *a = &p->all[0];
    i64 input = (i64)a->prompt->len;
    buf_fmt(out,
            "{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,\"cache_write_tokens\":0},"
            "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":%lld},\"total_tokens\":%lld}",
            (long long)input, (long long)p->ends[0].usage.cached_tokens, (long long)a->n_tokens,
            (long long)a->reasoning_tokens, (long long)(input + a->n_tokens));
}

/* status: "in_progress", "completed", "incomplete", "failed"; e: why it failed. */
static void response(const reply *p, const char *status, const api_error *e, buf *out) {
    bool going = !strcmp(status, "in_progress"), cut = !strcmp(status, "incomplete");
    buf_str(out, "{\"id\":");
    buf_json_str(out, p->id, strlen(p->id));
    buf_fmt(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"background\":false,\"error\":",
            (long long)p->created, status);
    if (e) {
        buf_fmt(out, "{\"code\":\"%s\",\"message\":", e->http == 429 ? "rate_limit_exceeded" : "server_error");
        buf_json_str(out, e->text.text, strlen(e->text.text));
        buf_char(out, '}');
    } else {
        buf_str(out, "null");
    }
    buf_str(out, cut ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}" : ",\"incomplete_details\":null");
    echo(p, "instructions", "null", out);
    echo(p, "max_output_tokens", "null", out);
    echo(p, "metadata", "{}", out);
    buf_str(out, ",\"model\":");
    buf_json_str(out, p->m->name, strlen(p->m->name));
    buf_str(out, ",\"output\":[");
    if (!going) buf_add(out, p->blocks.done.data, p->blocks.done.len);
    buf_char(out, ']');
    echo(p, "parallel_tool_calls", "true", out);
    echo(p, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    echo(p, "tool_choice", "\"auto\"", out);
    echo(p, "text", "{\"format\":{\"type\":\"text\"}}", out);
    echo(p, "tools", "[]", out);
    echo(p, "user", "null", out);
    buf_fmt(out,
            ",\"previous_response_id\":null,\"store\":false,\"temperature\":%g,"
            "\"top_p\":%g,\"truncation\":\"disabled\",\"usage\":",
            p->r->sampling.temperature, p->r->sampling.top_p);
    if (going)
        buf_str(out, "null");
    else
        reply_responses_usage(p, out);
    buf_char(out, '}');
}

static const char *reply_responses_status_of(const answer *a) {
    return strcmp(a->finish, "length") ? "completed" : "incomplete";
}

/* ---- Events ---- */

static void reply_responses_event(reply *p, const char *name, buf *out) {
    buf_fmt(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%lld", name, name,
            (long long)p->blocks.sequence++);
}

static void response_event(reply *p, const char *name, const char *status, const api_error *e, buf *out) {
    reply_responses_event(p, name, out);
    buf_str(out, ",\"response\":");
    response(p, status, e, out);
    buf_str(out, "}\n\n");
}

/* The id of the open item; those of one response differ in kind or number. */
static void item_id(const reply *p, buf *out) {
    static const char *const prefix[] = {
        [PIECE_REASONING] = "rs_", [PIECE_CONTENT] = "msg_", [PIECE_CALL_ARGS] = "fc_"};
    const char *hex = strchr(p->id, '_');
    buf_fmt(out, "\"%s%s%02lld\"", prefix[p->blocks.kind], hex ? hex + 1 : "", (long long)p->blocks.index);
}

/* An event about a part of the open item. */
static void item_event(reply *p, const char *name, bool part, buf *out) {
    reply_responses_event(p, name, out);
    buf_str(out, ",\"item_id\":");
    item_id(p, out);
    buf_fmt(out, ",\"output_index\":%lld", (long long)p->blocks.index);
    if (part) buf_str(out, ",\"content_index\":0");
}

static void json_text(const buf *b, buf *out) { buf_json_str(out, b->data ? b->data : "", b->len); }

static void reply_responses_part(const reply *p, bool empty, buf *out) {
    static const buf none = {0};
    bool thinks = p->blocks.kind == PIECE_REASONING;
    buf_str(out, thinks ? "{\"type\":\"reasoning_text\",\"text\":" : "{\"type\":\"output_text\",\"text\":");
    json_text(empty ? &none : &p->blocks.text, out);
    buf_str(out, thinks ? "}" : ",\"annotations\":[],\"logprobs\":[]}");
}

static void item(const reply *p, const char *status, buf *out) {
    const reply_blocks *b = &p->blocks;
    bool begins = !strcmp(status, "in_progress");
    static const buf none = {0};
    buf_str(out, "{\"id\":");
    item_id(p, out);
    buf_fmt(out, ",\"status\":\"%s\"", status);
    if (b->kind == PIECE_CALL_ARGS) {
        buf_str(out, ",\"type\":\"function_call\",\"call_id\":");
        reply_call_id(p, b->name.data ? b->name.data : "", b->name.len, b->call, out);
        buf_str(out, ",\"name\":");
        json_text(&b->name, out);
        buf_str(out, ",\"arguments\":");
        json_text(begins ? &none : &b->text, out);
        buf_char(out, '}');
        return;
    }
    buf_str(out, b->kind == PIECE_REASONING ? ",\"type\":\"reasoning\",\"summary\":[]"
                                            : ",\"type\":\"message\",\"role\":\"assistant\"");
    buf_str(out, ",\"content\":[");
    if (!begins) reply_responses_part(p, false, out);
    buf_str(out, "]}");
}

static void reply_responses_begin(reply *p, buf *out) {
    reply_responses_event(p, "response.output_item.added", out);
    buf_fmt(out, ",\"output_index\":%lld,\"item\":", (long long)p->blocks.index);
    item(p, "in_progress", out);
    buf_str(out, "}\n\n");
    if (p->blocks.kind == PIECE_CALL_ARGS) return;
    item_event(p, "response.content_part.added", true, out);
    buf_str(out, ",\"part\":");
    reply_responses_part(p, true, out);
    buf_str(out, "}\n\n");
}

static void reply_responses_delta(reply *p, const char *text, size_t len, buf *out) {
    static const char *const names[] = {[PIECE_REASONING] = "response.reasoning_text.delta",
                                        [PIECE_CONTENT] = "response.output_text.delta",
                                        [PIECE_CALL_ARGS] = "response.function_call_arguments.delta"};
    item_event(p, names[p->blocks.kind], p->blocks.kind != PIECE_CALL_ARGS, out);
    buf_str(out, ",\"delta\":");
    buf_json_str(out, text, len);
    buf_str(out, p->blocks.kind == PIECE_CONTENT ? ",\"logprobs\":[]}\n\n" : "}\n\n");
}

static void reply_responses_end(reply *p, bool complete, buf *out) {
    static const char *const names[] = {[PIECE_REASONING] = "response.reasoning_text.done",
                                        [PIECE_CONTENT] = "response.output_text.done",
                                        [PIECE_CALL_ARGS] = "response.function_call_arguments.done"};
    const reply_blocks *b = &p->blocks;
    bool call = b->kind == PIECE_CALL_ARGS;
    item_event(p, names[b->kind], !call, out);
    if (call) {
        buf_str(out, ",\"name\":");
        json_text(&b->name, out);
    }
    buf_str(out, call ? ",\"arguments\":" : ",\"text\":");
    json_text(&b->text, out);
    buf_str(out, b->kind == PIECE_CONTENT ? ",\"logprobs\":[]}\n\n" : "}\n\n");
    if (!call) {
        item_event(p, "response.content_part.done", true, out);
        buf_str(out, ",\"part\":");
        reply_responses_part(p, false, out);
        buf_str(out, "}\n\n");
    }
    reply_responses_event(p, "response.output_item.done", out);
    buf_fmt(out, ",\"output_index\":%lld,\"item\":", (long long)b->index);
    item(p, complete ? "completed" : "incomplete", out);
    buf_str(out, "}\n\n");
}

static void reply_responses_block_json(const reply *p, bool complete, buf *out) {
    item(p, complete ? "completed" : "incomplete", out);
}

static const block_writer reply_responses_blocks = {reply_responses_begin, reply_responses_delta, reply_responses_end,
                                                    reply_responses_block_json};

/* ---- The answer ---- */

static void reply_responses_whole(reply *p, buf *out) {
    reply_blocks_write(p, &p->all[0], &reply_responses_blocks, NULL);
    response(p, reply_responses_status_of(&p->all[0]), NULL, out);
    out->failed |= p->blocks.done.failed || p->blocks.text.failed;
}

static void open_stream(reply *p, buf *out) {
    if (p->begun[0]) return;
    response_event(p, "response.created", "in_progress", NULL, out);
    response_event(p, "response.in_progress", "in_progress", NULL, out);
    p->begun[0] = true;
}

static void reply_responses_chunks(reply *p, i64 i, buf *out) {
    open_stream(p, out);
    reply_blocks_write(p, &p->all[i], &reply_responses_blocks, out);
}

static void reply_responses_stream_end(reply *p, buf *out) {
    const char *status = reply_responses_status_of(&p->all[0]);
    response_event(p, status[0] == 'c' ? "response.completed" : "response.incomplete", status, NULL, out);
}

static void reply_responses_stream_error(reply *p, const api_error *e, buf *out) {
    open_stream(p, out);
    response_event(p, "response.failed", "failed", e, out);
}

const reply_writer reply_responses = {reply_responses_whole,
                                      reply_responses_chunks,
                                      reply_responses_stream_end,
                                      reply_responses_stream_error,
                                      NULL,
                                      true};
