#include "text/parse.h"
#include "text/call_name.h"
#include "text/marks.h"
#include <stdlib.h>
#include <string.h>

typedef enum { AT_START, AT_REASONING, AT_CONTENT, AT_SECTION, AT_ID, AT_ARGUMENTS } place;

enum { MAX_ID = 4096 }; /* bytes; a longer id names nothing */

struct parser {
    const tokenizer *tok;
    parse_options o;
    parse_sink sink;
    void *ud;
    place at;
    bool in_section;     /* between section_begin and section_end */
    bool think_open;     /* a call ended the reasoning: the next </think> belongs to it */
    bool after_call;     /* CONTENT, and nothing but white space since a call's end */
    i32 ids[MARKS];      /* -1: not in the vocabulary */
    mark_scanner scan;   /* spelled markers */
    decode_stream bytes; /* an unfinished character */
    buf text;            /* of one id */
    buf pending;         /* START: white space. ARGUMENTS: white space that may be the last, or all of a held call */
    buf id, name;        /* of the open call */
    buf maybe;           /* a singular section_begin and white space: dropped when a call follows, else text */
    bool named;          /* CALL_BEGIN was sent */
    bool any_argument;   /* something but white space was seen in the arguments */
    size_t n_calls, n_dropped;
    status st; /* the first failure sticks */
    err *e;
};

static void send(parser *p, parse_kind kind, const char *s, size_t n, bool complete) {
    if (p->st != ST_OK) return;
    parse_event ev = {.kind = kind, .text = s, .len = n, .complete = complete};
    if (kind >= PARSE_CALL_BEGIN) {
        ev.id = p->id.data ? p->id.data : "";
        ev.name = p->name.data ? p->name.data : "";
        ev.index = p->n_calls - 1;
    }
    p->st = p->sink(p->ud, &ev, p->e);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static size_t parse_spaces(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && is_space(s[i])) i++;
    return i;
}

static void trim(buf *b) {
    size_t lead = parse_spaces(b->data, b->len);
    while (b->len > lead && is_space(b->data[b->len - 1])) b->len--;
    if (!b->data) return;
    memmove(b->data, b->data + lead, b->len - lead);
    b->len -= lead;
    b->data[b->len] = 0;
}

/* A NUL inside an id or name would cut it short: such an id names nothing. */
static bool usable(const buf *b) { return !b->failed && b->len && b->len <= MAX_ID && !memchr(b->data, 0, b->len); }

static void begin_call(parser *p) {
    p->n_calls++;
    p->named = true;
    send(p, PARSE_CALL_BEGIN, NULL, 0, false);
}

/* argument_begin: the id is complete. */
static void open_arguments(parser *p) {
    trim(&p->id);
    buf_clear(&p->name);
    buf_clear(&p->pending);
    p->at = AT_ARGUMENTS;
    p->named = p->any_argument = false;
    if (usable(&p->id) && call_name_of_id(&p->name, p->id.data, p->id.len, p->o.tools)) begin_call(p);
}

static void arguments_text(parser *p, const char *s, size_t n) {
    if (!p->any_argument) {
        size_t lead = parse_spaces(s, n);
        s += lead;
        n -= lead;
        if (!n) return;
        p->any_argument = true;
    }
    if (!p->named) { /* the arguments will tell the tool */
        buf_add(&p->pending, s, n);
        return;
    }
    size_t solid = n;
    while (solid && is_space(s[solid - 1])) solid--;
    if (solid) {
        if (p->pending.len) send(p, PARSE_CALL_ARGS, p->pending.data, p->pending.len, false);
        buf_clear(&p->pending);
        send(p, PARSE_CALL_ARGS, s, solid, false);
    }
    buf_add(&p->pending, s + solid, n - solid);
}

static void close_call(parser *p, bool complete) {
    if (!p->named && complete) {
        trim(&p->pending);
        if (usable(&p->id) && p->pending.len &&
            call_name_of_arguments(&p->name, p->pending.data, p->pending.len, p->o.tools)) {
            begin_call(p);
            send(p, PARSE_CALL_ARGS, p->pending.data, p->pending.len, false);
        }
    }
    if (p->named)
        send(p, PARSE_CALL_END, NULL, 0, complete);
    else
        p->n_dropped++;
    buf_clear(&p->pending);
    p->at = p->in_section ? AT_SECTION : AT_CONTENT;
    p->after_call = true;
}

static void plain_text(parser *p, const char *s, size_t n);

static void settle_maybe(parser *p) {
    buf held = p->maybe;
    p->maybe = (buf){0};
    if (held.len) plain_text(p, held.data, held.len);
    if (held.failed) p->text.failed = true;
    buf_free(&held);
}

static void plain_text(parser *p, const char *s, size_t n) {
    if (!n || p->st != ST_OK) return;
    bool blank = parse_spaces(s, n) == n;
    if (p->at == AT_START) {
        buf_add(&p->pending, s, n);
        if (blank) return;
        p->at = AT_CONTENT;
        send(p, PARSE_CONTENT, p->pending.data, p->pending.len, false);
        buf_clear(&p->pending);
        return;
    }
    if (!blank) p->after_call = false;
    switch (p->at) {
    case AT_REASONING: send(p, PARSE_REASONING, s, n, false); break;
    case AT_CONTENT: send(p, PARSE_CONTENT, s, n, false); break;
    case AT_ID:
        if (p->id.len <= MAX_ID) buf_add(&p->id, s, n);
        break;
    case AT_ARGUMENTS: arguments_text(p, s, n); break;
    default: break; /* noise in a section */
    }
}

static void parse_on_text(void *ud, const char *s, size_t n) {
    parser *p = ud;
    if (p->maybe.len && parse_spaces(s, n) == n)
        buf_add(&p->maybe, s, n);
    else {
        settle_maybe(p);
        plain_text(p, s, n);
    }
}

static void leave_start(parser *p) {
    if (p->at != AT_START) return;
    if (p->pending.len) send(p, PARSE_CONTENT, p->pending.data, p->pending.len, false);
    buf_clear(&p->pending);
    p->at = AT_CONTENT;
}

static void on_think(parser *p, bool end) {
    const char *tag = mark_text[end ? MARK_THINK_END : MARK_THINK];
    if (p->o.plain) {
        parse_on_text(p, tag, strlen(tag));
    } else if (p->at == AT_START && !end) {
        buf_clear(&p->pending);
        p->at = AT_REASONING;
    } else if (p->at == AT_REASONING) {
        if (end) p->at = AT_CONTENT; /* a second <think> inside says nothing new */
    } else if (end && p->think_open && p->at != AT_ARGUMENTS) {
        p->think_open = false;
    } else {
        parse_on_text(p, tag, strlen(tag));
    }
}

static void on_tool_mark(parser *p, mark m) {
    if (p->at == AT_REASONING && (m == MARK_SECTION || m == MARK_CALL)) {
        p->think_open = true;
        p->at = AT_CONTENT;
    }
    if (p->o.no_calls || p->at == AT_REASONING) return;
    leave_start(p);
    if (m == MARK_ARGUMENT) {
        if (p->at == AT_ID) open_arguments(p);
        return; /* elsewhere it says nothing */
    }
    if (p->at == AT_ARGUMENTS) close_call(p, true);
    if (m == MARK_CALL) {
        buf_clear(&p->id);
        p->at = AT_ID;
    } else if (m == MARK_SECTION || m == MARK_SECTION_END) {
        p->in_section = m == MARK_SECTION;
        p->at = p->in_section ? AT_SECTION : AT_CONTENT;
    } else if (p->at == AT_ID) { /* call_end before argument_begin */
        p->n_dropped++;
        p->at = p->in_section ? AT_SECTION : AT_CONTENT;
    }
}

/* The singular spellings are text to the model, so a person may well be talking about them: they count as
 * markers only right before and right after a call. */
static void on_singular(parser *p, mark m) {
    bool begin = m == MARK_SECTION_1;
    if (!begin && p->at == AT_CONTENT && p->after_call) return;
    if (begin && !p->o.no_calls && (p->at == AT_START || p->at == AT_CONTENT || p->at == AT_REASONING)) {
        leave_start(p);
        buf_str(&p->maybe, mark_text[m]);
    } else {
        plain_text(p, mark_text[m], strlen(mark_text[m]));
    }
}

static void on_mark(void *ud, mark m) {
    parser *p = ud;
    if (p->st != ST_OK) return;
    if (m == MARK_CALL) buf_clear(&p->maybe);
    settle_maybe(p);
    if (m == MARK_THINK || m == MARK_THINK_END)
        on_think(p, m == MARK_THINK_END);
    else if (m == MARK_SECTION_1 || m == MARK_SECTION_END_1)
        on_singular(p, m);
    else
        on_tool_mark(p, m);
}

static status result(parser *p, err *e) {
    bool nomem = p->text.failed || p->pending.failed || p->id.failed || p->name.failed || p->maybe.failed;
    if (p->st == ST_OK && nomem) p->st = err_nomem(e, "the parsed output", p->pending.len);
    p->e = NULL;
    return p->st;
}

status parser_open(parser **out, const tokenizer *tok, const parse_options *o, parse_sink sink, void *ud, err *e) {
    parser *p = *out = calloc(1, sizeof *p);
    if (!p) return err_nomem(e, "parser", sizeof *p);
    p->tok = tok;
    p->o = *o;
    p->sink = sink;
    p->ud = ud;
    p->at = o->plain ? AT_CONTENT : o->in_think ? AT_REASONING : AT_START;
    for (int m = 0; m < MARKS; m++) p->ids[m] = tok ? tokenizer_special(tok, mark_text[m]) : -1;
    return ST_OK;
}

void parser_close(parser *p) {
    if (!p) return;
    buf_free(&p->text);
    buf_free(&p->pending);
    buf_free(&p->id);
    buf_free(&p->maybe);
    buf_free(&p->name);
    free(p);
}

/* Everything held back for a spelled marker or an unfinished character is text. */
static void settle(parser *p) {
    buf_clear(&p->text);
    decode_stream_end(&p->bytes, &p->text);
    if (p->text.len) mark_scan(&p->scan, p->text.data, p->text.len, parse_on_text, on_mark, p);
    mark_scan_end(&p->scan, parse_on_text, p);
}

status parse_add(parser *p, i32 id, err *e) {
    p->e = e;
    if (p->st != ST_OK) return p->st;
    if (!p->tok) return err_set(e, ST_INPUT, "a parser without a tokenizer takes text, not ids");
    for (int m = 0; m < MARKS; m++)
        if (id == p->ids[m]) {
            settle(p);
            on_mark(p, (mark)m);
            return result(p, e);
        }
    p->scan.wanted = 1u << MARK_SECTION_1 | 1u << MARK_SECTION_END_1;
    buf_clear(&p->text);
    p->st = decode_stream_add(&p->bytes, p->tok, id, true, &p->text, e);
    if (p->text.len) mark_scan(&p->scan, p->text.data, p->text.len, parse_on_text, on_mark, p);
    return result(p, e);
}

status parse_add_text(parser *p, const char *text, size_t len, err *e) {
    p->e = e;
    if (p->st != ST_OK) return p->st;
    p->scan.wanted = (1u << MARKS) - 1;
    mark_scan(&p->scan, text, len, parse_on_text, on_mark, p);
    return result(p, e);
}

status parse_end(parser *p, err *e) {
    p->e = e;
    if (p->st != ST_OK) return p->st;
    settle(p);
    settle_maybe(p);
    leave_start(p);
    if (p->at == AT_ID) p->n_dropped++;
    if (p->at == AT_ARGUMENTS) close_call(p, false);
    return result(p, e);
}

bool parse_in_reasoning(const parser *p) { return p->at == AT_REASONING; }
size_t parse_calls(const parser *p) { return p->n_calls; }
size_t parse_dropped(const parser *p) { return p->n_dropped; }
