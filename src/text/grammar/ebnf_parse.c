/* text/grammar/ebnf_parse.c: GBNF to a tree. */
#include "text/grammar/ebnf.h"
#include "text/grammar/ebnf_internal.h"
#include "text/utf8.h"
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- mistakes: the first one is told, nothing is read behind it ---- */

void ebnf_stop(ebnf *b, status st, const char *text) {
    if (!b->failed) b->failed = err_set(b->e, st, "grammar: %s", text);
    b->at = b->len;
}

__attribute__((format(printf, 4, 5))) static void ebnf_fail(ebnf *b, size_t at, status st, const char *fmt, ...) {
    char text[256];
    size_t line = 1, column = 1;
    va_list ap;
    if (b->failed) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < at; i++) {
        column += (b->text[i] & 0xc0) != 0x80;
        if (b->text[i] == '\n') line++, column = 1;
    }
    b->failed = err_set(b->e, st, "grammar, line %zu, column %zu: %s", line, column, text);
    b->at = b->len;
}

static void ebnf_expected(ebnf *b, const char *what) {
    u32 cp;
    if (b->at == b->len)
        ebnf_fail(b, b->at, ST_INPUT, "expected %s, but the text ends", what);
    else if (b->text[b->at] == '\n' || b->text[b->at] == '\r')
        ebnf_fail(b, b->at, ST_INPUT, "expected %s, but the line ends", what);
    else
        ebnf_fail(b, b->at, ST_INPUT, "expected %s, not %.*s", what, utf8_decode(b->text + b->at, &cp),
                  (const char *)b->text + b->at);
}

/* ---- names and nodes ---- */

static int ebnf_compare_words(const void *a, const void *b) {
    const ebnf_word *x = a, *y = b;
    return x->len == y->len ? memcmp(x->text, y->text, x->len) : x->len < y->len ? -1 : 1;
}

/* The string's number: the count of those before it, if it is new. -1: out of memory. */
i32 ebnf_number(ebnf_words *t, const void *text, size_t len) {
    ebnf_word *word = malloc(sizeof *word + len);
    if (!word) return -1;
    *word = (ebnf_word){t->n, len};
    memcpy(word->text, text, len);
    ebnf_word **found = tsearch(word, &t->tree, ebnf_compare_words);
    const i32 number = found ? (*found)->number : -1;
    if (!found || *found != word) free(word);
    t->n += number == t->n;
    return number;
}

/* Room for one more behind n of *cap. */
static bool ebnf_room(ebnf *b, void *all, i32 n, i32 *cap, size_t size) {
    void **at = all;
    if (n < *cap) return true;
    const i32 more = *cap ? *cap * 2 : 64;
    void *grown = realloc(*at, (size_t)more * size);
    if (!grown) return ebnf_stop(b, ST_NOMEM, "out of host memory"), false;
    *at = grown, *cap = more;
    return true;
}

static i32 ebnf_rule_number(ebnf *b, size_t from, size_t len) {
    const i32 rule = b->failed ? -1 : ebnf_number(&b->names, b->text + from, len);
    if (rule < 0) return ebnf_stop(b, ST_NOMEM, "out of host memory"), 0;
    if (rule < b->n_rules) return rule;
    if (!ebnf_room(b, &b->rules, b->n_rules, &b->cap_rules, sizeof *b->rules)) return 0;
    b->rules[b->n_rules++] = (ebnf_rule){.node = -1};
    return rule;
}

static i64 ebnf_size_of_rounds(const ebnf *b, const ebnf_node *x, i64 size) {
    const bool endless = x->max == UNBOUNDED;
    const i64 rounds = endless ? x->min : x->max;
    if (x->max == 0) return 1;
    if (!size || rounds <= 1) return size ? size + 4 : 0;
    return rounds > EBNF_ROUNDS_MAX || (size + 4) * rounds > b->once_more ? 0 : (size + 4) * rounds;
}

/* How large, how deep, whether empty: by what is known of its children and of rules. */
void ebnf_measure(const ebnf *b, ebnf_node *x) {
    i64 size = 0;
    bool regular = true, all = true, any = false;
    x->depth = 1;
    for (i32 c = x->child; c; c = b->nodes[c].next) {
        const ebnf_node *child = &b->nodes[c];
        regular = regular && child->size;
        size = min_i64(size + child->size + 1, INT32_MAX);
        all = all && child->empty, any = any || child->empty;
        x->depth = (i32)max_i64(x->depth, child->depth + 1);
    }
    if (!regular) size = 0;
    const ebnf_node *body = x->kind == EBNF_NAME ? &b->nodes[b->rules[x->of].body] : NULL;
    switch (x->kind) {
    case EBNF_TEXT: size = x->n + 1, x->empty = x->n == 0; break;
    case EBNF_CHARS: size = !x->n || b->ranges.data[x->of + 2 * x->n - 1] < 0x80 ? 2 : 16 + 6 * (i64)x->n; break;
    case EBNF_NAME:
        if (body->size > b->once_more || body->depth > EBNF_TREE_MAX / 4) break;
        size = body->size, x->empty = body->empty;
        if (size) x->depth = body->depth + 1;
        break;
    case EBNF_ROW: x->empty = all, size = size > EBNF_ROW_MAX ? 0 : size; break;
    case EBNF_CHOICE: x->empty = any, size = size > EBNF_CHOICE_MAX ? 0 : size; break;
    case EBNF_REPEAT: x->empty = all || !x->min, size = ebnf_size_of_rounds(b, x, size); break;
    }
    x->size = (i32)size;
}

static i32 ebnf_add(ebnf *b, ebnf_node x) {
    if (b->failed || !ebnf_room(b, &b->nodes, b->n_nodes, &b->cap_nodes, sizeof *b->nodes)) return 0;
    ebnf_measure(b, &x);
    b->nodes[b->n_nodes] = x;
    return b->n_nodes++;
}

/* ---- characters ---- */

static bool ebnf_next_is(const ebnf *b, char c) { return b->at < b->len && b->text[b->at] == (u8)c; }

static bool ebnf_take(ebnf *b, const char *text) {
    const size_t n = strlen(text);
    if (b->len - b->at < n || memcmp(b->text + b->at, text, n) != 0) return false;
    b->at += n;
    return true;
}

static bool ebnf_line_ends(const ebnf *b) { return b->at == b->len || ebnf_next_is(b, '\n') || ebnf_next_is(b, '\r'); }

/* Blanks and a comment; lines: also ends of lines. */
static void ebnf_skip(ebnf *b, bool lines) {
    for (; b->at < b->len; b->at++) {
        if (ebnf_next_is(b, '#'))
            while (!ebnf_line_ends(b)) b->at++;
        if (b->at == b->len || !(ebnf_line_ends(b) ? lines : ebnf_next_is(b, ' ') || ebnf_next_is(b, '\t'))) return;
    }
}

static bool ebnf_in_name(const ebnf *b) {
    const u8 c = b->at < b->len ? b->text[b->at] : 0;
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' || c == '_';
}

/* The rule that is named here; there is a name. */
static i32 ebnf_take_name(ebnf *b) {
    const size_t from = b->at;
    while (ebnf_in_name(b)) b->at++;
    return ebnf_rule_number(b, from, b->at - from);
}

/* The number of `n` digits behind an escape's letter. */
static u32 ebnf_hex(ebnf *b, size_t begin, int n) {
    u32 v = 0;
    for (int i = 0; i < n; i++, b->at++) {
        const u32 c = b->at < b->len ? b->text[b->at] : 0, letter = c | 32;
        if (c >= '0' && c <= '9')
            v = v << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            v = v << 4 | (letter - 'a' + 10);
        else
            return ebnf_fail(b, begin, ST_INPUT, "expected %d hexadecimal digits in this escape", n), 0;
    }
    return v;
}

static u32 ebnf_escape(ebnf *b, bool in_set) {
    const size_t begin = b->at++;
    const u8 c = b->at < b->len ? b->text[b->at++] : 0;
    u32 cp;
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '"':
    case '\\':
    case '[':
    case ']':
    case '-':
    case '^': return c;
    case 'x': return ebnf_hex(b, begin, 2);
    case 'u': cp = ebnf_hex(b, begin, 4); break;
    case 'U': cp = ebnf_hex(b, begin, 8); break;
    default: ebnf_fail(b, begin, ST_INPUT, "expected behind \\ one of n r t x u U \" \\ [ ] - ^"); return 0;
    }
    if (cp > 0x10ffff || (cp >> 11 == 0xd800 >> 11 && !in_set))
        ebnf_fail(b, begin, ST_INPUT, "this is no character; beyond FFFF, expected \\U and eight digits");
    return cp;
}

static u32 ebnf_char(ebnf *b, bool in_set) {
    u32 cp;
    if (ebnf_next_is(b, '\\')) return ebnf_escape(b, in_set);
    b->at += (size_t)utf8_decode(b->text + b->at, &cp);
    return cp;
}

static void ebnf_add_utf8(buf *out, u32 cp) {
    const char four[] = {(char)(0xf0 | cp >> 18), (char)(0x80 | (cp >> 12 & 63)), (char)(0x80 | (cp >> 6 & 63)),
                         (char)(0x80 | (cp & 63))};
    if (cp < 0x80)
        buf_char(out, (char)cp);
    else if (cp < 0x800)
        buf_char(out, (char)(0xc0 | cp >> 6)), buf_add(out, four + 3, 1);
    else if (cp < 0x10000)
        buf_char(out, (char)(0xe0 | cp >> 12)), buf_add(out, four + 2, 2);
    else
        buf_add(out, four, 4);
}

static i32 ebnf_text(ebnf *b) {
    const size_t begin = b->at++, from = b->bytes.len;
    while (!ebnf_line_ends(b) && !ebnf_next_is(b, '"')) ebnf_add_utf8(&b->bytes, ebnf_char(b, false));
    if (b->failed) return 0;
    if (!ebnf_take(b, "\"")) return ebnf_fail(b, begin, ST_INPUT, "expected a closing \" in the same line"), 0;
    const size_t n = b->bytes.len - from;
    if (n > EBNF_TEXT_MAX) return ebnf_fail(b, begin, ST_LIMIT, "a text of more than %d bytes", EBNF_TEXT_MAX), 0;
    return ebnf_add(b, (ebnf_node){.kind = EBNF_TEXT, .of = (i32)from, .n = (i32)n, .at = (u32)begin});
}

/* ---- sets ---- */

static int ebnf_by_first(const void *a, const void *b) {
    const i32 x = *(const i32 *)a, y = *(const i32 *)b;
    return (x > y) - (x < y);
}

/* The ranges from `from` on: ascending and apart. others: all characters that are in none. */
static void ebnf_settle(ebnf *b, size_t from, bool others) {
    const size_t n = (b->ranges.len - from) / 2;
    i32 *r = n ? b->ranges.data + from : NULL, next = 0;
    size_t to = 0;
    if (n) qsort(r, n, 2 * sizeof *r, ebnf_by_first);
    for (size_t i = 0; i < n; i++) {
        const i32 lo = r[2 * i], hi = r[2 * i + 1];
        if (others) { /* what is between the ones before and this one */
            if (lo > next) r[to] = next, r[to + 1] = lo - 1, to += 2;
            next = (i32)max_i64(next, hi + 1);
        } else if (to && lo <= r[to - 1] + 1) {
            r[to - 1] = (i32)max_i64(r[to - 1], hi);
        } else {
            r[to] = lo, r[to + 1] = hi, to += 2;
        }
    }
    b->ranges.len = from + to;
    if (others && next <= 0x10ffff) ids_append(&b->ranges, (const i32[]){next, 0x10ffff}, 2);
}

static i32 ebnf_chars(ebnf *b, size_t begin, size_t from, bool others) {
    if (b->ranges.failed) return ebnf_stop(b, ST_NOMEM, "out of host memory"), 0;
    ebnf_settle(b, from, others);
    if (b->ranges.failed) return ebnf_stop(b, ST_NOMEM, "out of host memory"), 0;
    const i32 n = (i32)(b->ranges.len - from) / 2;
    return ebnf_add(b, (ebnf_node){.kind = EBNF_CHARS, .of = (i32)from, .n = n, .at = (u32)begin});
}

static i32 ebnf_set(ebnf *b) {
    const size_t begin = b->at++, from = b->ranges.len;
    const bool others = ebnf_take(b, "^");
    while (!ebnf_line_ends(b) && !ebnf_next_is(b, ']')) {
        const size_t first = b->at;
        const u32 lo = ebnf_char(b, true);
        u32 hi = lo;
        if (ebnf_next_is(b, '-') && b->len - b->at > 1 && !memchr("]\n\r", b->text[b->at + 1], 3)) {
            b->at++;
            hi = ebnf_char(b, true);
        }
        if (lo > hi) ebnf_fail(b, first, ST_INPUT, "expected a range whose end is not before its beginning");
        ids_append(&b->ranges, (const i32[]){(i32)lo, (i32)hi}, 2);
    }
    if (b->failed) return 0;
    if (!ebnf_take(b, "]")) return ebnf_fail(b, begin, ST_INPUT, "expected a closing ] in the same line"), 0;
    if (!others && b->ranges.len == from) return ebnf_fail(b, begin, ST_INPUT, "expected characters in this set"), 0;
    return ebnf_chars(b, begin, from, others);
}

/* ---- rules ---- */

static i32 ebnf_choice(ebnf *b);

void ebnf_link(ebnf *b, ebnf_list *list, i32 item) {
    if (list->last)
        b->nodes[list->last].next = item;
    else
        list->first = item;
    for (list->last = item; b->nodes[list->last].next;) list->last = b->nodes[list->last].next;
}

/* A sequence in a sequence, or a choice in a choice, is part of it: what is left of that one has no children. */
static void ebnf_append(ebnf *b, ebnf_list *list, ebnf_kind kind, i32 item) {
    if (!item) return;
    const bool same = b->nodes[item].kind == kind;
    ebnf_link(b, list, same ? b->nodes[item].child : item);
    if (same) b->nodes[item].child = 0;
}

i32 ebnf_add_list(ebnf *b, ebnf_kind kind, ebnf_list list, size_t at) {
    if (!list.first) return ebnf_add(b, (ebnf_node){.kind = EBNF_TEXT, .at = (u32)at});
    return list.first == list.last ? list.first
                                   : ebnf_add(b, (ebnf_node){.kind = kind, .child = list.first, .at = (u32)at});
}

static i32 ebnf_group(ebnf *b) {
    const size_t begin = b->at++;
    if (b->depth == EBNF_DEPTH_MAX) return ebnf_fail(b, begin, ST_LIMIT, "too many groups in each other"), 0;
    b->depth++;
    const i32 node = ebnf_choice(b);
    b->depth--;
    if (!ebnf_take(b, ")")) return ebnf_fail(b, begin, ST_INPUT, "expected a closing )"), 0;
    return node;
}

static i32 ebnf_atom(ebnf *b) {
    const size_t begin = b->at, from = b->ranges.len;
    if (ebnf_next_is(b, '"')) return ebnf_text(b);
    if (ebnf_next_is(b, '[')) return ebnf_set(b);
    if (ebnf_next_is(b, '(')) return ebnf_group(b);
    if (ebnf_take(b, ".")) return ebnf_chars(b, begin, from, true);
    if (ebnf_take(b, "::="))
        return ebnf_fail(b, begin, ST_INPUT, "expected the end of the rule before this one: of its line, or its )"), 0;
    if (!ebnf_in_name(b)) return ebnf_expected(b, "a name, \", [, (, . or |"), 0;
    const i32 rule = ebnf_take_name(b);
    return ebnf_add(b, (ebnf_node){.kind = EBNF_NAME, .of = rule, .at = (u32)begin});
}

/* -1: there is none. */
static i64 ebnf_count(ebnf *b) {
    const size_t begin = b->at;
    i64 v = 0;
    for (; b->at < b->len && b->text[b->at] >= '0' && b->text[b->at] <= '9'; b->at++) {
        v = v * 10 + (b->text[b->at] - '0');
        if (v > EBNF_COUNT_MAX) return ebnf_fail(b, begin, ST_LIMIT, "a count above %d", EBNF_COUNT_MAX), -1;
    }
    return b->at > begin ? v : -1;
}

/* Behind {. */
static void ebnf_braces(ebnf *b, size_t begin, i64 *min, i64 *max) {
    ebnf_skip(b, false);
    *min = *max = ebnf_count(b);
    ebnf_skip(b, false);
    const bool comma = ebnf_take(b, ",");
    ebnf_skip(b, false);
    if (comma) *max = ebnf_count(b);
    ebnf_skip(b, false);
    if ((*min < 0 && *max < 0) || !ebnf_take(b, "}"))
        ebnf_fail(b, begin, ST_INPUT, "expected {m}, {m,}, {m,n} or {,n}");
    else if (*max >= 0 && *min > *max)
        ebnf_fail(b, begin, ST_INPUT, "expected {m,n} with m not above n");
    if (*max < 0) *max = UNBOUNDED;
    if (*min < 0) *min = 0;
}

static bool ebnf_how_often(ebnf *b, i64 *min, i64 *max) {
    const size_t begin = b->at;
    *min = ebnf_next_is(b, '+'), *max = ebnf_next_is(b, '?') ? 1 : UNBOUNDED;
    if (ebnf_take(b, "*") || ebnf_take(b, "+") || ebnf_take(b, "?")) return true;
    if (!ebnf_take(b, "{")) return false;
    return ebnf_braces(b, begin, min, max), true;
}

static i32 ebnf_item(ebnf *b) {
    i32 node = ebnf_atom(b);
    while (!b->failed) {
        ebnf_node repeat = {.kind = EBNF_REPEAT, .child = node};
        ebnf_skip(b, b->depth > 0);
        repeat.at = (u32)b->at;
        if (!ebnf_how_often(b, &repeat.min, &repeat.max)) break;
        node = ebnf_add(b, repeat);
        if (b->nodes[node].depth > EBNF_TREE_MAX)
            ebnf_fail(b, repeat.at, ST_LIMIT, "too many repetitions in each other");
    }
    return node;
}

static i32 ebnf_row(ebnf *b) {
    const size_t begin = b->at;
    ebnf_list list = {0};
    for (;;) {
        ebnf_skip(b, b->depth > 0);
        if (ebnf_line_ends(b) || ebnf_next_is(b, '|') || ebnf_next_is(b, ')')) break;
        ebnf_append(b, &list, EBNF_ROW, ebnf_item(b));
    }
    return ebnf_add_list(b, EBNF_ROW, list, begin);
}

/* At the end of a rule's last alternative this goes on to the next rule. */
static i32 ebnf_choice(ebnf *b) {
    const size_t begin = b->at;
    ebnf_list list = {0};
    do {
        ebnf_skip(b, true);
        ebnf_append(b, &list, EBNF_CHOICE, ebnf_row(b));
        if (ebnf_line_ends(b)) ebnf_skip(b, true);
    } while (ebnf_take(b, "|"));
    return ebnf_add_list(b, EBNF_CHOICE, list, begin);
}

static void ebnf_definition(ebnf *b) {
    const size_t begin = b->at;
    if (ebnf_next_is(b, ')')) return ebnf_fail(b, begin, ST_INPUT, "expected a ( before this )");
    if (!ebnf_in_name(b)) return ebnf_expected(b, "the name of a rule");
    const i32 rule = ebnf_take_name(b), len = (i32)min_i64((i64)(b->at - begin), EBNF_NAME_SHOWN);
    ebnf_skip(b, false);
    if (!ebnf_take(b, "::=")) return ebnf_expected(b, "::=");
    if (b->rules[rule].defined)
        return ebnf_fail(b, begin, ST_INPUT, "the rule %.*s has been defined before", len, b->text + begin);
    const i32 first = b->n_nodes, body = ebnf_choice(b);
    b->rules[rule].defined = true;
    b->rules[rule].first = first, b->rules[rule].body = body;
}

void ebnf_parse(ebnf *b) {
    const size_t good = utf8_valid(b->text, b->len);
    if (b->len > EBNF_BYTES_MAX) return ebnf_stop(b, ST_LIMIT, "more than a MiB");
    if (good < b->len) return ebnf_fail(b, good, ST_INPUT, "expected UTF-8");
    ebnf_add(b, (ebnf_node){.kind = EBNF_CHARS}); /* 0: also the body of a rule that is not known yet */
    if (!b->failed) b->nodes[0].size = 0;
    for (ebnf_skip(b, true); b->at < b->len; ebnf_skip(b, true)) ebnf_definition(b);
    if (b->failed) return;
    const i32 root = b->root = ebnf_number(&b->names, "root", 4);
    if (root < 0 || b->bytes.failed) return ebnf_stop(b, ST_NOMEM, "out of host memory");
    if (root >= b->n_rules || !b->rules[root].defined) return ebnf_expected(b, "a rule with the name root");
    for (i32 i = 1; i < b->n_nodes && !b->failed; i++) {
        const ebnf_node *x = &b->nodes[i];
        if (x->kind != EBNF_NAME || b->rules[x->of].defined) continue;
        b->at = x->at;
        ebnf_take_name(b);
        const int len = (int)min_i64((i64)b->at - x->at, EBNF_NAME_SHOWN);
        ebnf_fail(b, x->at, ST_INPUT, "expected a rule %.*s, but there is none", len, b->text + x->at);
    }
}
