/* api/run.c: one request: through the scheduler, as a server's, with the caller's thread for its steps; its tokens as
 * text to the caller. */
#include "api/api.h"
#include "api/pictures.h"
#include "base/log.h"
#include "text/parse.h"
#include <string.h>

/* A request under way. */
typedef struct {
    moon_engine *m;
    const moon_request *q;
    moon_callback callback;
    void *user;
    chat_prompt prompt;
    chat_pictures pictures;
    answer_begin begin;
    json_t *chat;      /* the parsed request; the parser looks at its tools */
    parser *parser;    /* chat */
    decode_stream raw; /* raw prompt */
    buf piece;         /* text of one token in raw mode, or the JSON of the call under way */
    bool calls_seen, ended;
    status st; /* of delivery, or what the scheduler ended it with */
    err e;
    moon_stats stats;
} job;

static status emit(job *j, moon_event event, const char *text, size_t n, err *e) {
    if (n && j->callback && j->callback(j->user, event, text, n))
        return err_set(e, ST_CANCELLED, "stopped by the caller");
    return ST_OK;
}

/* Tool calls are handed out whole: {"id": ..., "name": ..., "arguments": "..."}; the arguments are text, as
 * in the OpenAI API, because a model may write something that is no JSON. A call cut off by the end is
 * dropped. */
static status api_on_parsed(void *ud, const parse_event *ev, err *e) {
    job *j = ud;
    switch (ev->kind) {
    case PARSE_REASONING: return emit(j, MOON_REASONING, ev->text, ev->len, e);
    case PARSE_CONTENT: return emit(j, MOON_CONTENT, ev->text, ev->len, e);
    case PARSE_CALL_BEGIN: buf_clear(&j->piece); return ST_OK;
    case PARSE_CALL_ARGS: buf_add(&j->piece, ev->text, ev->len); return ST_OK;
    case PARSE_CALL_END: break;
    }
    if (!ev->complete) return ST_OK;
    buf call = {0};
    buf_str(&call, "{\"id\": ");
    buf_json_str(&call, ev->id, strlen(ev->id));
    buf_str(&call, ", \"name\": ");
    buf_json_str(&call, ev->name, strlen(ev->name));
    buf_str(&call, ", \"arguments\": ");
    buf_json_str(&call, j->piece.data ? j->piece.data : "", j->piece.len);
    buf_char(&call, '}');
    j->calls_seen = true;
    status st = call.failed || j->piece.failed ? err_nomem(e, "a tool call", j->piece.len)
                                               : emit(j, MOON_TOOL_CALL, call.data, call.len, e);
    buf_free(&call);
    return st;
}

static status prepare_chat(job *j, err *e) {
    j->chat = json_parse(j->q->chat, strlen(j->q->chat), "chat", e);
    if (!j->chat) return e->code == ST_NOMEM ? ST_NOMEM : ST_INPUT;
    static const char *const known[] = {"messages", "tools", "chat_template_kwargs"};
    const char *key;
    json_t *value;
    if (!json_is_object(j->chat)) return err_set(e, ST_INPUT, "the chat is not a JSON object");
    json_object_foreach(j->chat, key, value) {
        bool ok = false;
        for (size_t i = 0; i < COUNT_OF(known); i++) ok = ok || !strcmp(key, known[i]);
        if (!ok)
            return err_set(e, ST_INPUT, "the chat has a key \"%s\": messages, tools, chat_template_kwargs are known",
                           key);
    }
    const json_t *kwargs = json_object_get(j->chat, "chat_template_kwargs");
    chat_request r = {.messages = json_object_get(j->chat, "messages"),
                      .tools = json_object_get(j->chat, "tools"),
                      .kwargs = kwargs,
                      .add_generation_prompt = true};
    const picture_rules rules = {
        .file = PICTURE_LIMITS, .video = VIDEO_LIMITS, .most = INT64_MAX, .tokens = engine_context(j->m->engine)};
    status st = chat_pictures_read(&j->pictures, r.messages, &rules, e);
    if (st == ST_OK && j->pictures.n && !engine_vision(j->m->engine))
        st = err_set(e, ST_UNSUPPORTED, "the chat holds a picture: this model runs without a vision tower");
    r.videos = j->pictures.videos, r.n_videos = j->pictures.n_videos;
    if (st == ST_OK) st = chat_render(j->m->template, j->m->tok, &r, &j->prompt, e);
    if (st == ST_OK && j->pictures.n)
        st = chat_pictures_place(&j->pictures, &j->prompt.ids, tokenizer_special(j->m->tok, "<|media_pad|>"), e);
    if (st != ST_OK) return st;
    if (j->prompt.tools_json.code != ST_OK)
        log_warn("tools are rendered as JSON, not as TypeScript: %s", j->prompt.tools_json.text);
    const parse_options po = {
        .tools = r.tools, .in_think = j->prompt.in_think, .plain = json_is_false(json_object_get(kwargs, "thinking"))};
    j->begin = po.in_think                                                    ? BEGIN_IN_THINK
               : !po.plain && chat_template_model_opens_think(j->m->template) ? BEGIN_MAY_THINK
                                                                              : BEGIN_CONTENT;
    return parser_open(&j->parser, j->m->tok, &po, api_on_parsed, j, e);
}

static status api_prepare(job *j, err *e) {
    const moon_request *q = j->q;
    if (!q || q->size != sizeof *q)
        return err_set(e, ST_INPUT, "moon_request.size is not that of this version (%zu)", sizeof *q);
    if (!q->chat == !q->prompt) return err_set(e, ST_INPUT, "a request has a chat or a prompt, and not both");
    if (q->chat) return prepare_chat(j, e);
    return tokenizer_encode(j->m->tok, q->prompt, strlen(q->prompt), false, &j->prompt.ids, e);
}

static status api_deliver(job *j, i32 id, err *e) {
    if (j->parser) return parse_add(j->parser, id, e);
    buf_clear(&j->piece);
    status st = decode_stream_add(&j->raw, j->m->tok, id, false, &j->piece, e);
    return st == ST_OK ? emit(j, MOON_TOKEN, j->piece.data, j->piece.len, e) : st;
}

static status deliver_end(job *j, err *e) {
    if (j->parser) return parse_end(j->parser, e);
    buf_clear(&j->piece);
    decode_stream_end(&j->raw, &j->piece);
    return emit(j, MOON_TOKEN, j->piece.data, j->piece.len, e);
}

static void on_end(job *j, const sched_event *ev) {
    const sched_usage *u = &ev->usage;
    j->ended = true;
    j->stats.prompt_tokens = u->prompt_tokens;
    j->stats.reused_tokens = u->cached_tokens;
    j->stats.output_tokens = u->output_tokens;
    if (u->first_token_s > 0) {
        j->stats.finish = ev->finish == SCHED_STOP ? "stop" : "length";
        j->stats.prompt_seconds = u->first_token_s - u->submitted_s;
        j->stats.output_seconds = u->ended_s - u->first_token_s;
    }
    if (j->st != ST_OK) {
        if (j->st == ST_CANCELLED) j->stats.finish = "cancelled";
        return;
    }
    if (ev->finish == SCHED_STOP || ev->finish == SCHED_LENGTH)
        j->st = deliver_end(j, &j->e);
    else
        j->st = ev->error ? (j->e = *ev->error).code : err_set(&j->e, ST_CANCELLED, "the engine was closed");
    if (j->st == ST_OK && j->calls_seen && ev->finish == SCHED_STOP) j->stats.finish = "tool_calls";
    if (j->st == ST_CANCELLED) j->stats.finish = "cancelled";
}

void api_on_events(void *ud, const sched_event *ev, i64 n) {
    (void)ud;
    for (i64 i = 0; i < n; i++) {
        job *j = ev[i].user;
        if (ev[i].kind == SCHED_END) on_end(j, &ev[i]);
        if (ev[i].kind == SCHED_TOKEN && !ev[i].is_stop && j->st == ST_OK) {
            j->st = api_deliver(j, ev[i].token, &j->e);
            if (j->st != ST_OK) scheduler_abort(j->m->scheduler, ev[i].id);
        }
    }
}

static status api_status_of(sched_verdict v, const err *e) {
    if (e->code != ST_OK) return e->code;
    return v == SCHED_TOO_LONG ? ST_LIMIT : v == SCHED_NO_MEMORY ? ST_NOMEM : v == SCHED_CLOSING ? ST_DEVICE : ST_INPUT;
}

static status api_run(job *j, err *e) {
    const moon_request *q = j->q;
    status st = api_prepare(j, e);
    if (st != ST_OK) return st;
    const sampling p = {q->temperature,       q->top_k, q->top_p, q->min_p, q->repetition_penalty, q->presence_penalty,
                        q->frequency_penalty, q->seed};
    st = sampling_check(&p, e);
    if (st != ST_OK) return st;
    i64 n = (i64)j->prompt.ids.len, context = engine_context(j->m->engine), room = context - n;
    if (n == 0) return err_set(e, ST_INPUT, "the prompt is empty");
    if (room < 1 || q->max_tokens < 0 || q->max_tokens > room)
        return err_set(e, ST_LIMIT, "%lld prompt tokens and %lld to generate do not fit in the context of %lld",
                       (long long)n, (long long)q->max_tokens, (long long)context);
    sched_request r = {.user = j,
                       .prompt = j->prompt.ids.data,
                       .n_prompt = n,
                       .media = j->pictures.of,
                       .n_media = j->pictures.n,
                       .max_new = q->max_tokens ? q->max_tokens : room,
                       .sampling = p,
                       .stop_ids = j->m->stops.data,
                       .n_stop = q->ignore_eos ? 0 : (i64)j->m->stops.len};
    token_filter filter;
    st = api_constrain(j->m, q, json_object_get(j->chat, "tools"), j->begin, &filter, e);
    if (st != ST_OK) return st;
    if (filter.ud) r.filter = &filter;
    sched_verdict v = scheduler_submit(j->m->scheduler, &r, 1, NULL, NULL, e);
    if (v != SCHED_ACCEPTED && filter.ud) filter.close(filter.ud);
    if (v != SCHED_ACCEPTED) return api_status_of(v, e);
    while (!j->ended)
        if (!scheduler_step(j->m->scheduler) && !j->ended) return err_set(e, ST_DEVICE, "the engine makes no steps");
    *e = j->e;
    return j->st;
}

moon_status moon_run(moon_engine *m, const moon_request *q, moon_callback callback, void *user, moon_stats *stats,
                     moon_error *error) {
    err e = {0};
    job j = {.m = m, .q = q, .callback = callback, .user = user};
    status st = api_run(&j, &e);
    if (stats && j.stats.finish) *stats = j.stats;
    parser_close(j.parser);
    json_decref(j.chat);
    chat_prompt_free(&j.prompt);
    chat_pictures_free(&j.pictures);
    buf_free(&j.piece);
    return api_result(st, &e, error);
}
