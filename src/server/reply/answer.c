#include "server/reply/answer.h"
#include <stdlib.h>
#include <string.h>

static bool answer_grow(void **p, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return true;
    size_t grown = *cap ? 2 * *cap : 16;
    if (grown < need) grown = need;
    void *q = realloc(*p, grown * size);
    if (!q) return false;
    *p = q;
    *cap = grown;
    return true;
}

/* ---- Pieces ---- */

/* Appends text as a piece; it joins the piece before when that is of the same kind. */
static void answer_add_piece(answer *a, piece_kind kind, i64 call, const char *text, size_t len) {
    piece *last = a->n_pieces ? &a->pieces[a->n_pieces - 1] : NULL;
    bool join = last && last->kind == kind && last->call == call && kind != PIECE_CALL_BEGIN;
    if (!len && kind != PIECE_CALL_BEGIN) return;
    if (!join) {
        if (!answer_grow((void **)&a->pieces, &a->cap_pieces, a->n_pieces + 1, sizeof *a->pieces)) {
            a->failed = true;
            return;
        }
        last = &a->pieces[a->n_pieces++];
        *last = (piece){kind, a->text.len, 0, call};
    }
    buf_add(&a->text, text, len);
    last->len += len;
}

/* Reasoning may be left out, or sent in one piece. */
static void add_text(answer *a, piece_kind kind, const char *text, size_t len) {
    if (kind == PIECE_REASONING && a->r->hide_reasoning) return;
    if (kind == PIECE_REASONING && a->r->whole_reasoning) {
        buf_add(&a->hidden, text, len);
        return;
    }
    if (a->hidden.len && kind != PIECE_REASONING) {
        answer_add_piece(a, PIECE_REASONING, -1, a->hidden.data, a->hidden.len);
        buf_clear(&a->hidden);
    }
    answer_add_piece(a, kind, -1, text, len);
}

/* What the stop strings held back is ordinary text after all. */
static void release_held(answer *a) {
    buf_clear(&a->scratch);
    stop_flush(&a->stop, &a->scratch);
    if (a->scratch.len) add_text(a, a->stop_kind, a->scratch.data, a->scratch.len);
}

static void answer_finish(answer *a, const char *why, bool cut) {
    if (a->done) return;
    a->done = true;
    a->cut = cut;
    a->finish = why;
}

/* Text of the answer. Stop strings are looked for in reasoning and content, each run of one kind by itself. */
static void answer_on_text(answer *a, piece_kind kind, const char *text, size_t len) {
    if (a->done) return;
    if (kind != a->stop_kind) release_held(a);
    a->stop_kind = kind;
    if (a->n_tokens <= a->r->min_new && a->r->min_new) {
        add_text(a, kind, text, len);
        return;
    }
    buf_clear(&a->scratch);
    int hit = stop_feed(&a->stop, &a->r->stops, text, len, a->r->keep_stop, &a->scratch);
    if (a->scratch.len) add_text(a, kind, a->scratch.data, a->scratch.len);
    a->failed |= a->scratch.failed || a->stop.held.failed;
    if (hit < 0) return;
    a->matched_string = hit;
    answer_finish(a, a->calls ? "tool_calls" : "stop", true);
    add_text(a, PIECE_CONTENT, "", 0); /* reasoning that was kept together */
}

static status answer_on_parsed(void *ud, const parse_event *ev, err *e) {
    answer *a = ud;
    (void)e;
    if (a->done) return ST_OK;
    switch (ev->kind) {
    case PARSE_REASONING: answer_on_text(a, PIECE_REASONING, ev->text, ev->len); break;
    case PARSE_CONTENT: answer_on_text(a, PIECE_CONTENT, ev->text, ev->len); break;
    case PARSE_CALL_BEGIN:
        release_held(a);
        add_text(a, PIECE_CONTENT, "", 0);
        answer_add_piece(a, PIECE_CALL_BEGIN, a->calls++, ev->name, strlen(ev->name));
        break;
    case PARSE_CALL_ARGS: answer_add_piece(a, PIECE_CALL_ARGS, a->calls - 1, ev->text, ev->len); break;
    case PARSE_CALL_END:
        if (a->r->one_call && ev->complete) answer_finish(a, "tool_calls", true);
        break;
    }
    return ST_OK;
}

/* ---- Life ---- */

status answer_open(answer *a, const gen_request *r, const served_model *m, i64 index, err *e) {
    *a = (answer){.r = r,
                  .m = m,
                  .index = index,
                  .prompt = &r->prompts[index / r->n],
                  .stop_kind = PIECE_CONTENT,
                  .matched_string = -1,
                  .matched_id = -1};
    if (!api_is_chat(r->kind)) return ST_OK;
    const parse_options o = {
        .tools = r->tools, .in_think = r->in_think && !r->plain, .plain = r->plain, .no_calls = !r->calls};
    return parser_open(&a->parser, m->tok, &o, answer_on_parsed, a, e);
}

void answer_close(answer *a) {
    parser_close(a->parser);
    buf_free(&a->text);
    buf_free(&a->scratch);
    buf_free(&a->hidden);
    buf_free(&a->stop.held);
    ids_free(&a->tokens);
    free(a->pieces);
    free(a->info);
    free(a->top);
    *a = (answer){0};
}

static void note_position(answer *a, const job_event *ev, const sched_top *top) {
    if (!answer_grow((void **)&a->info, &a->cap_info, a->n_info + 1, sizeof *a->info) ||
        !answer_grow((void **)&a->top, &a->cap_top, a->n_top + (size_t)ev->n_top, sizeof *a->top)) {
        a->failed = true;
        return;
    }
    a->info[a->n_info++] = (position_info){ev->token, ev->logprob, ev->has_logprob, ev->n_top, a->n_top};
    if (ev->n_top) memcpy(a->top + a->n_top, top + ev->top, (size_t)ev->n_top * sizeof *top);
    a->n_top += (size_t)ev->n_top;
}

static void feed(answer *a, i32 token) {
    err e = {0};
    status st;
    if (a->parser) {
        if (parse_in_reasoning(a->parser)) a->reasoning_tokens++;
        st = parse_add(a->parser, token, &e);
    } else {
        buf piece = {0};
        st = decode_stream_add(&a->raw, a->m->tok, token, a->r->skip_special, &piece, &e);
        answer_on_text(a, PIECE_CONTENT, piece.data ? piece.data : "", piece.len);
        a->failed |= piece.failed;
        buf_free(&piece);
    }
    if (st != ST_OK) a->failed = true;
}

void answer_event(answer *a, const job_event *ev, const sched_top *top) {
    if (a->done) return;
    if (ev->kind == SCHED_PROMPT) {
        note_position(a, ev, top);
        a->n_prompt_info++;
        return;
    }
    if (!a->n_tokens) a->first_s = ev->at_s;
    a->last_s = ev->at_s;
    a->started = true;
    if (a->r->score) return;
    a->n_tokens++;
    if (a->r->return_token_ids || a->r->kind == API_GENERATE) ids_add(&a->tokens, ev->token);
    if (a->r->logprobs) note_position(a, ev, top);
    if (!ev->is_stop) feed(a, ev->token);
    a->failed |= a->text.failed || a->tokens.failed || a->hidden.failed;
}

static void flush_text(answer *a) {
    err e = {0};
    if (a->parser) {
        if (parse_end(a->parser, &e) != ST_OK) a->failed = true;
    } else {
        buf piece = {0};
        decode_stream_end(&a->raw, &piece);
        answer_on_text(a, PIECE_CONTENT, piece.data ? piece.data : "", piece.len);
        buf_free(&piece);
    }
}

void answer_end(answer *a, const job_end *end) {
    a->started = true;
    if (a->done) return;
    flush_text(a);
    release_held(a);
    add_text(a, PIECE_CONTENT, "", 0); /* reasoning that was kept together */
    bool length = end->finish == SCHED_LENGTH || a->r->score;
    if (!length && !a->done) a->matched_id = end->stop_id;
    answer_finish(a, length ? "length" : a->calls ? "tool_calls" : "stop", false);
    a->failed |= a->text.failed;
}

void answer_clear_text(answer *a) {
    buf_clear(&a->text);
    a->n_pieces = 0;
}

void answer_clear_positions(answer *a) {
    a->n_info = a->n_prompt_info = a->n_top = 0;
    a->tokens.len = 0;
}
