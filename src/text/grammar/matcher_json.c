/* text/grammar/matcher_json.c: strings, objects and arrays of JSON, whose counts and sets are in frames.
 *
 * A string's automaton reads its text: escapes are taken apart here, and a part of one is let through only where some
 * character that it can still become may follow. */
#include "text/grammar/matcher_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- quotes and escapes ---- */

typedef enum { AT_QUOTE, IN_TEXT, IN_ESCAPE, IN_HEX, AT_LOW_ESCAPE, AT_LOW_U, IN_LOW_HEX } quote_phase;

/* Where in a string: digits of an escape so far and their value, behind a high surrogate's ten bits. */
typedef struct {
    quote_phase phase;
    u32 digits, value;
} quote_place;
static quote_place quote_of(i32 packed) {
    return (quote_place){(quote_phase)(packed & 15), (u32)packed >> 4 & 15, (u32)packed >> 8};
}
static i32 quote_packed(quote_phase phase, u32 digits, u32 value) {
    return (i32)((u32)phase | digits << 4 | value << 8);
}

/* Whose text is read: keys of an object are taken once. */
typedef struct {
    matcher *m;
    dfa *d;
    const frame *object; /* whose key it is, or NULL */
} quoted;

/* ---- which keys an object may have next ---- */

static const grammar_object *object_of(const matcher *m, i32 node) { return &m->g->objects[m->g->nodes[node].of]; }

static i64 missing_of(const matcher *m, const grammar_object *o, i32 seen) {
    i64 missing = 0;
    for (i32 i = 0; i < o->n; i++) missing += o->of[i].required && !matcher_set_has(m, seen, i);
    return missing;
}

/* Members that surely are there: keys that no property names may be one key written twice, and count as one. */
static i64 sure_members(const frame *f) { return f->other > 1 ? f->count - f->other + 1 : f->count; }

/* Is there room for named members alone, which are required or without which there are too few? */
static bool only_required(const matcher *m, const grammar_object *o, const frame *f) {
    return o->max != UNBOUNDED && f->count + missing_of(m, o, f->seen) >= o->max;
}
static bool only_named(const grammar_object *o, const frame *f) {
    return o->max != UNBOUNDED && f->other && o->max - f->count <= o->min - sure_members(f);
}

static bool property_is_open(const matcher *m, const grammar_object *o, const frame *f, i32 i, bool required) {
    return o->of[i].value != NODE_NONE && (!required || o->of[i].required) && !matcher_set_has(m, f->seen, i);
}

/* Where named members come in order: those from `from` up to `to` may be next, and others if `others`. */
typedef struct {
    i32 from, to;
    bool others;
} member_order;

/* Behind the last one that is there, up to the first required one that is not; and while those behind it are enough
 * for the least number of members. */
static member_order member_order_of(const matcher *m, const grammar_object *o, const frame *f) {
    i32 from = o->n, to;
    if (!m->g->in_order) return (member_order){0, o->n, true};
    while (from > 0 && !matcher_set_has(m, f->seen, from - 1)) from--;
    if (f->other) from = o->n;
    for (to = from; to < o->n && !(o->of[to].required && o->of[to].value != NODE_NONE);) to++;
    const bool others = to == o->n;
    to += to < o->n;
    i64 later = sure_members(f) + 1 + o->others_come; /* with all that stand behind `to` */
    for (i32 i = to; i < o->n; i++) later += o->of[i].value != NODE_NONE;
    for (; to > from && later < o->min; to--) later += o->of[to - 1].value != NODE_NONE;
    return (member_order){from, to, others && (f->other || sure_members(f) + 1 >= o->min)};
}

/* Can a key that has come to this state become one that the object may have? */
static bool key_is_open(const matcher *m, const dfa *d, const frame *f, i32 state) {
    const grammar_object *o = object_of(m, f->node);
    const bool required = only_required(m, o, f);
    const member_order order = member_order_of(m, o, f);
    size_t n;
    const i32 *labels = dfa_reaches(d, state, &n);
    if (o->max != UNBOUNDED && f->count >= o->max) return false;
    while (n-- > 0) { /* the freest are last */
        const i32 i = labels[n];
        if (i >= o->n ? order.others && !required && !only_named(o, f) && o->others[i - o->n] != NODE_NONE
                      : i >= order.from && i < order.to && property_is_open(m, o, f, i, required))
            return true;
    }
    return false;
}

/* The value of a key that ends here, NODE_NONE: no such key; *property: which, or -1. */
static i32 value_of_key(const matcher *m, const dfa *d, const frame *f, i32 state, i32 *property) {
    const grammar_object *o = object_of(m, f->node);
    const bool required = only_required(m, o, f);
    const member_order order = member_order_of(m, o, f);
    size_t n;
    const i32 *labels = dfa_labels(d, state, &n);
    *property = -1;
    if (!n) return NODE_NONE;
    const i32 i = *labels;
    if (i >= o->n) return required || only_named(o, f) || !order.others ? NODE_NONE : o->others[i - o->n];
    *property = i;
    return i >= order.from && i < order.to && property_is_open(m, o, f, i, required) ? o->of[i].value : NODE_NONE;
}

/* ---- text of which nothing is asked ---- */

/* Does every character lead to one state, by ways that all characters of one form of UTF-8 share? */
static bool one_way_on(dfa *d, i32 state) {
    const i32 behind = dfa_next(d, state, ' ');
    static const u8 leads[] = {0xc2, 0xe0, 0xe1, 0xed, 0xf0, 0xf1, 0xf4};
    for (int b = 0; b < 0x80; b++)
        if (dfa_next(d, state, (u8)b) != behind) return false;
    for (int lead = 0xc2, form = 0; lead <= 0xf4; lead++) {
        while (form + 1 < (int)COUNT_OF(leads) && lead >= leads[form + 1]) form++;
        const u8 like = lead == 0xee || lead == 0xef ? 0xe1 : leads[form];
        if (dfa_next(d, state, (u8)lead) != dfa_next(d, state, like)) return false;
    }
    for (size_t i = 0; i < COUNT_OF(leads); i++) {
        i32 at = dfa_next(d, state, leads[i]);
        for (int left = leads[i] < 0xe0 ? 1 : leads[i] < 0xf0 ? 2 : 3; left > 0; left--) {
            const int lo = left > 1 && leads[i] == 0xf0 && left == 3 ? 0x90
                           : left == 2 && leads[i] == 0xe0           ? 0xa0
                                                                     : 0x80,
                      hi = left == 2 && leads[i] == 0xed   ? 0x9f
                           : left == 3 && leads[i] == 0xf4 ? 0x8f
                                                           : 0xbf;
            const i32 to = dfa_next(d, at, (u8)lo);
            for (int b = lo; b <= hi; b++)
                if (dfa_next(d, at, (u8)b) != to) return false;
            at = to;
        }
        if (at != behind) return false;
    }
    return behind != DFA_DEAD && dfa_accepts(d, state);
}

/* From the second character on there is one state. */
static bool any_text_loops(dfa *d, i32 state) {
    const i32 behind = dfa_next(d, state, ' ');
    return behind != DFA_DEAD && dfa_next(d, behind, ' ') == behind && one_way_on(d, state) && one_way_on(d, behind);
}

static bool takes_any_text(matcher *m, i32 number, i32 state) {
    grammar_dfa_state *known = matcher_dfa_state(m, number, state);
    if (known && !known->any_text) known->any_text = any_text_loops(m->g->dfas[number], state) ? 2 : 1;
    return known && known->any_text == 2;
}

/* ---- the text of strings ---- */

static bool quoted_lives(const quoted *q, i32 state) {
    return state != DFA_DEAD && (!q->object || key_is_open(q->m, q->d, q->object, state));
}

/* May some character follow of which `bits` bits are left, between lo and hi? What is let through as a whole has been
 * looked at: automata of text know whole characters alone. */
static bool rest_lives(const quoted *q, i32 state, u32 bits, u32 lo, u32 hi) {
    if (!quoted_lives(q, state)) return false;
    if (!bits || (lo == 0 && hi == (1u << bits) - 1)) return true;
    const u32 shift = bits - 6, mask = (1u << shift) - 1, first = lo >> shift, last = hi >> shift;
    for (u32 c = first; c <= last; c++)
        if (rest_lives(q, dfa_next(q->d, state, (u8)(0x80 | c)), shift, c == first ? lo & mask : 0,
                       c == last ? hi & mask : mask))
            return true;
    return false;
}

/* May a character follow from lo to hi? Surrogates are none, and no automaton takes their bytes. */
static bool some_char_lives(const quoted *q, i32 state, u32 lo, u32 hi) {
    static const struct {
        u32 lo, hi, bits;
        u8 lead;
    } forms[] = {{0, 0x7f, 0, 0}, {0x80, 0x7ff, 6, 0xc0}, {0x800, 0xffff, 12, 0xe0}, {0x10000, 0x10ffff, 18, 0xf0}};
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        const u32 from = lo > forms[i].lo ? lo : forms[i].lo, to = hi < forms[i].hi ? hi : forms[i].hi,
                  mask = (1u << forms[i].bits) - 1;
        if (from > to) continue;
        for (u32 lead = from >> forms[i].bits; lead <= to >> forms[i].bits; lead++)
            if (rest_lives(q, dfa_next(q->d, state, (u8)(forms[i].lead | lead)), forms[i].bits,
                           lead == from >> forms[i].bits ? from & mask : 0,
                           lead == to >> forms[i].bits ? to & mask : mask))
                return true;
    }
    return false;
}

/* Are characters written as they are, where they can be (grammar.plain_escapes)? Of free text that is not asked. */
static bool spells_plainly(const quoted *q, const frame *f) {
    const grammar_node *x = &q->m->g->nodes[f->node];
    return q->m->g->plain_escapes && (f->kind == FRAME_KEY || !(x->any_text || takes_any_text(q->m, x->of, f->at)));
}

enum { LAST_CONTROL = 0x1f };

/* May a character follow that is written as an escape? */
static bool some_escape_lives(const quoted *q, const frame *f) {
    if (!spells_plainly(q, f)) return some_char_lives(q, f->at, 0, 0x10ffff);
    return some_char_lives(q, f->at, 0, LAST_CONTROL) || some_char_lives(q, f->at, '"', '"') ||
           some_char_lives(q, f->at, '\\', '\\');
}

static bool has_room(const matcher *m, const frame *f) {
    const grammar_node *x = &m->g->nodes[f->node];
    return f->kind == FRAME_KEY || x->max == UNBOUNDED || f->count < x->max;
}

/* Bytes of the text itself; a character is items_counted with its first. */
static void read_characters(const quoted *q, const frame *f, const u8 *bytes, int n) {
    const grammar_node *x = &q->m->g->nodes[f->node];
    frame to = *f;
    for (int i = 0; i < n; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            if (!has_room(q->m, &to)) return;
            if (f->kind == FRAME_STRING && (x->max != UNBOUNDED || to.count < x->min)) to.count++;
        }
        to.at = dfa_next(q->d, to.at, bytes[i]);
        if (!quoted_lives(q, to.at)) return;
    }
    to.quote = quote_packed(IN_TEXT, 0, 0);
    matcher_wait(q->m, &to);
}

static void read_char(const quoted *q, const frame *f, u32 c) {
    u8 bytes[4];
    int n = 1;
    if (c < 0x80) {
        bytes[0] = (u8)c;
    } else if (c < 0x800) {
        bytes[0] = (u8)(0xc0 | c >> 6), bytes[1] = (u8)(0x80 | (c & 63)), n = 2;
    } else if (c < 0x10000) {
        bytes[0] = (u8)(0xe0 | c >> 12), bytes[1] = (u8)(0x80 | (c >> 6 & 63)), bytes[2] = (u8)(0x80 | (c & 63)), n = 3;
    } else {
        bytes[0] = (u8)(0xf0 | c >> 18), bytes[1] = (u8)(0x80 | (c >> 12 & 63));
        bytes[2] = (u8)(0x80 | (c >> 6 & 63)), bytes[3] = (u8)(0x80 | (c & 63)), n = 4;
    }
    read_characters(q, f, bytes, n);
}

static int hex_value(u8 byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    const u8 low = byte | 32;
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static void wait_at(const quoted *q, const frame *f, quote_phase phase, u32 digits, u32 value) {
    frame to = *f;
    to.quote = quote_packed(phase, digits, value);
    matcher_wait(q->m, &to);
}

enum { HIGH_SURROGATE = 0xd800, LOW_SURROGATE = 0xdc00, SURROGATES_END = 0xdfff, FIRST_OF_PAIRS = 0x10000 };

/* A digit of \uHHHH. */
static void read_hex(const quoted *q, const frame *f, quote_place p, u8 byte) {
    const int digit = hex_value(byte);
    if (digit < 0) return;
    const u32 value = p.value << 4 | (u32)digit, left = 3 - p.digits, lo = value << 4 * left,
              all = lo + ((1u << 4 * left) - 1), hi = spells_plainly(q, f) && all > LAST_CONTROL ? LAST_CONTROL : all;
    if (lo > hi) return;
    const u32 high_lo = lo > HIGH_SURROGATE ? lo : HIGH_SURROGATE,
              high_hi = hi < LOW_SURROGATE ? hi : LOW_SURROGATE - 1;
    const bool pair =
        high_lo <= high_hi && some_char_lives(q, f->at, FIRST_OF_PAIRS + ((high_lo - HIGH_SURROGATE) << 10),
                                              FIRST_OF_PAIRS + ((high_hi - HIGH_SURROGATE) << 10) + 0x3ff);
    if (left) {
        if (pair || some_char_lives(q, f->at, lo, hi)) wait_at(q, f, IN_HEX, p.digits + 1, value);
    } else if (value >= HIGH_SURROGATE && value < LOW_SURROGATE) {
        if (pair) wait_at(q, f, AT_LOW_ESCAPE, 0, value - HIGH_SURROGATE);
    } else if (value < HIGH_SURROGATE || value > SURROGATES_END) {
        read_char(q, f, value);
    }
}

/* A digit of the second half of a pair, of which value has the first one's ten bits above digits so far. */
static void read_low_hex(const quoted *q, const frame *f, quote_place p, u8 byte) {
    const int digit = hex_value(byte);
    if (digit < 0) return;
    const u32 had = 4 * p.digits, high = p.value >> had, low = (p.value & ((1u << had) - 1)) << 4 | (u32)digit,
              shift = 4 * (3 - p.digits);
    u32 lo = low << shift, hi = lo + ((1u << shift) - 1);
    lo = lo > LOW_SURROGATE ? lo : LOW_SURROGATE, hi = hi < SURROGATES_END ? hi : SURROGATES_END;
    if (lo > hi) return;
    const u32 base = FIRST_OF_PAIRS + (high << 10) - LOW_SURROGATE;
    if (!shift)
        read_char(q, f, base + low);
    else if (some_char_lives(q, f->at, base + lo, base + hi))
        wait_at(q, f, IN_LOW_HEX, p.digits + 1, high << (had + 4) | low);
}

static void read_escape(const quoted *q, const frame *f, u8 byte) {
    static const char names[] = "\"\\/bfnrt", text[] = "\"\\/\b\f\n\r\t";
    const char *at = byte ? strchr(names, byte) : NULL;
    if (at && (byte != '/' || !spells_plainly(q, f))) read_characters(q, f, (const u8 *)&text[at - names], 1);
    if (byte == 'u' && (!spells_plainly(q, f) || some_char_lives(q, f->at, 0, LAST_CONTROL)))
        wait_at(q, f, IN_HEX, 0, 0);
}

/* All but quotes that end it. */
static void quote_step(const quoted *q, const frame *f, u8 byte) {
    const quote_place p = quote_of(f->quote);
    switch (p.phase) {
    case AT_QUOTE:
        if (byte == '"') wait_at(q, f, IN_TEXT, 0, 0);
        return;
    case IN_TEXT:
        if (byte == '\\' && has_room(q->m, f) && some_escape_lives(q, f)) wait_at(q, f, IN_ESCAPE, 0, 0);
        if (byte >= ' ' && byte != '\\') read_characters(q, f, &byte, 1);
        return;
    case IN_ESCAPE: read_escape(q, f, byte); return;
    case IN_HEX: read_hex(q, f, p, byte); return;
    case AT_LOW_ESCAPE:
        if (byte == '\\') wait_at(q, f, AT_LOW_U, 0, p.value);
        return;
    case AT_LOW_U:
        if (byte == 'u') wait_at(q, f, IN_LOW_HEX, 0, p.value);
        return;
    case IN_LOW_HEX: read_low_hex(q, f, p, byte); return;
    }
}

/* A quote in the text ends the string, if it may end. */
void string_step(matcher *m, const frame *f, u8 byte) {
    const grammar_node *x = &m->g->nodes[f->node];
    const quoted q = {m, m->g->dfas[x->of], NULL};
    if (byte != '"' || quote_of(f->quote).phase != IN_TEXT)
        quote_step(&q, f, byte);
    else if (dfa_accepts(q.d, f->at) && f->count >= x->min)
        matcher_leave(m, f->parent);
}

void key_step(matcher *m, const frame *f, u8 byte) {
    const frame object = m->frames[f->parent];
    const grammar_object *o = object_of(m, f->node);
    const quoted q = {m, m->g->dfas[o->keys], &object};
    i32 property;
    if (byte != '"' || quote_of(f->quote).phase != IN_TEXT) return quote_step(&q, f, byte);
    frame to = object;
    to.quote = value_of_key(m, q.d, &object, f->at, &property);
    if (to.quote == NODE_NONE) return;
    to.at = BEFORE_COLON;
    if (property < 0) to.other++;
    if (o->max != UNBOUNDED || (to.count < o->min && to.other <= 1)) to.count++;
    if (o->max == UNBOUNDED && to.other > 1) to.other = 1;
    if (property >= 0) to.seen = matcher_set_with(m, to.seen, (o->n + 63) / 64, property);
    const i32 here = matcher_frame(m, &to);
    if (here >= 0) matcher_enter(m, m->g->colon, here);
}

/* ---- what may follow ---- */

void string_bytes(matcher *m, const frame *f, u64 set[4]) {
    const grammar_node *x = &m->g->nodes[f->node];
    const quote_phase phase = quote_of(f->quote).phase;
    if (phase == AT_QUOTE) {
        set['"' / 64] |= (u64)1 << '"' % 64;
    } else if (phase == IN_TEXT) {
        matcher_dfa_bytes(m, f->kind == FRAME_KEY ? object_of(m, f->node)->keys : x->of, f->at, set);
        set['"' / 64] |= (u64)1 << '"' % 64, set['\\' / 64] |= (u64)1 << '\\' % 64;
    } else {
        set[0] = set[1] = ~(u64)0; /* an escape's are ASCII */
    }
}

bool string_is_in_text(const frame *f) { return quote_of(f->quote).phase == IN_TEXT; }

bool frame_takes_any_text(matcher *m, const frame *f) {
    const grammar_node *x = &m->g->nodes[f->node];
    if ((f->kind != FRAME_STRING && f->kind != FRAME_KEY) || !string_is_in_text(f)) return false;
    if (f->kind == FRAME_STRING) return x->any_text || takes_any_text(m, x->of, f->at);
    const grammar_object *o = object_of(m, f->node);
    const frame *object = &m->frames[f->parent];
    bool any_key = o->any_key;
    for (i32 k = 0; k < 1 << o->n_patterns; k++) any_key = any_key && o->others[k] != NODE_NONE;
    return any_key && member_order_of(m, o, object).others && !only_required(m, o, object) && !only_named(o, object) &&
           (o->max == UNBOUNDED || object->count < o->max);
}

i64 frame_room(const matcher *m, const frame *f) {
    const grammar_node *x = &m->g->nodes[f->node];
    return f->kind == FRAME_KEY || x->max == UNBOUNDED ? INT64_MAX : x->max - f->count;
}

frame frame_behind(const matcher *m, const frame *f, const u8 *text, i32 n, i64 chars) {
    const grammar_node *x = &m->g->nodes[f->node];
    dfa *d = m->g->dfas[f->kind == FRAME_KEY ? object_of(m, f->node)->keys : x->of];
    frame to = *f;
    if (f->kind == FRAME_KEY || x->any_text) {
        for (i32 i = 0; i < n; i++) to.at = dfa_next(d, to.at, text[i]);
    } else {
        if (chars) to.at = dfa_next(d, f->at, ' ');
        to.count = x->max != UNBOUNDED ? f->count + chars : min_i64(f->count + chars, max_i64(x->min, f->count));
    }
    return to;
}

/* ---- objects ---- */

static void container_enter(matcher *m, const frame *f, container_phase phase, i32 node) {
    frame to = *f;
    to.at = phase;
    const i32 here = matcher_frame(m, &to);
    if (here >= 0) matcher_enter(m, node, here);
}

static void key_enter(matcher *m, const frame *f) {
    const grammar_object *o = object_of(m, f->node);
    const dfa *keys = o->keys < 0 ? NULL : m->g->dfas[o->keys];
    frame to = *f;
    to.at = BEFORE_MEMBER;
    if (!keys || !key_is_open(m, keys, f, dfa_start(keys))) return;
    const i32 here = matcher_frame(m, &to);
    if (here < 0) return;
    matcher_wait(m, &(frame){.kind = FRAME_KEY, .parent = here, .node = f->node, .at = dfa_start(keys)});
}

static bool may_have_a_key(const matcher *m, const frame *f) {
    const grammar_object *o = object_of(m, f->node);
    return o->keys >= 0 && key_is_open(m, m->g->dfas[o->keys], f, dfa_start(m->g->dfas[o->keys]));
}

static bool object_may_close(const matcher *m, const frame *f) {
    const grammar_object *o = object_of(m, f->node);
    return sure_members(f) >= o->min && !missing_of(m, o, f->seen);
}

void object_enter(matcher *m, i32 node, i32 parent) {
    container_enter(m, &(frame){.kind = FRAME_OBJECT, .parent = parent, .node = node}, OPENED, m->g->open_object);
}

void object_leave(matcher *m, const frame *f) {
    const i32 value = f->quote;
    frame to = *f;
    to.quote = 0;
    switch ((container_phase)f->at) {
    case OPENED:
        if (object_may_close(m, f)) container_enter(m, f, CLOSING, m->g->close_empty_object);
        key_enter(m, f);
        return;
    case BEFORE_MEMBER: key_enter(m, f); return;
    case BEFORE_COLON: container_enter(m, &to, BEHIND_COLON, value); return;
    case BEHIND_COLON:
    case BEHIND_MEMBER:
        if (object_may_close(m, f)) container_enter(m, f, CLOSING, m->g->close_object);
        if (may_have_a_key(m, f)) container_enter(m, f, BEFORE_MEMBER, m->g->comma);
        return;
    case CLOSING: matcher_leave(m, f->parent); return;
    }
}

/* ---- arrays ---- */

static const grammar_array *array_of(const matcher *m, i32 node) { return &m->g->arrays[m->g->nodes[node].of]; }

static bool may_have_an_item(const matcher *m, const frame *f) {
    const grammar_array *a = array_of(m, f->node);
    if (a->max != UNBOUNDED && f->count >= a->max) return false;
    return f->count < a->n_first || a->rest != NODE_NONE || (a->min_contains && a->contains != NODE_NONE);
}

/* Items are items_counted as far as somebody asks. */
static i64 items_counted(i64 count, i64 ask, i64 max) { return max == UNBOUNDED && count > ask ? ask : count; }

static void item_enter(matcher *m, const frame *f) {
    const grammar_array *a = array_of(m, f->node);
    const i32 item = f->count < a->n_first ? a->first[f->count] : a->rest;
    const i64 left = a->max == UNBOUNDED ? INT64_MAX : a->max - f->count - 1;
    frame to = *f;
    if (!may_have_an_item(m, f)) return;
    to.count = items_counted(f->count + 1, max_i64(a->min, a->n_first), a->max);
    if (left == INT64_MAX || f->other + left >= a->min_contains) container_enter(m, &to, BEHIND_MEMBER, item);
    if (f->other >= a->min_contains) return;
    to.other++;
    container_enter(m, &to, BEHIND_MEMBER, a->contains);
}

static bool array_may_close(const matcher *m, const frame *f) {
    const grammar_array *a = array_of(m, f->node);
    return f->count >= a->min && f->other >= a->min_contains;
}

void array_enter(matcher *m, i32 node, i32 parent) {
    container_enter(m, &(frame){.kind = FRAME_ARRAY, .parent = parent, .node = node}, OPENED, m->g->open_array);
}

void array_leave(matcher *m, const frame *f) {
    switch ((container_phase)f->at) {
    case OPENED:
        if (array_may_close(m, f)) container_enter(m, f, CLOSING, m->g->close_empty_array);
        item_enter(m, f);
        return;
    case BEFORE_MEMBER: item_enter(m, f); return;
    case BEFORE_COLON:
    case BEHIND_COLON: return; /* objects' */
    case BEHIND_MEMBER:
        if (array_may_close(m, f)) container_enter(m, f, CLOSING, m->g->close_array);
        if (may_have_an_item(m, f)) container_enter(m, f, BEFORE_MEMBER, m->g->comma);
        return;
    case CLOSING: matcher_leave(m, f->parent); return;
    }
}
