#include "text/grammar/regex.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

enum { REGEX_ENDLESS = -1, REGEX_COUNT_MAX = 1 << 30, REGEX_RANGES_MAX = 1 << 20, REGEX_CP_MAX = 0x10ffff };
#define REGEX_SET UINT32_MAX /* an escape that is no single character */

typedef enum { REGEX_EMPTY, REGEX_CHARS, REGEX_ROW, REGEX_CHOICE, REGEX_REPEAT, REGEX_BEGIN, REGEX_END } regex_kind;

/* Node 0 stands for "none" and for what was not understood. */
typedef struct {
    regex_kind kind;
    bool nullable;   /* the empty string is in it, wherever it stands */
    i32 child, next; /* the first of its own, the one behind it */
    i64 min, max;    /* REGEX_REPEAT: how often; REGEX_CHARS: ranges [min, max) */
    u64 size;        /* states that it takes at least */
} regex_node;

typedef struct {
    nfa *n;
    const u8 *text;
    size_t len, at;
    int depth;
    i32 anchors; /* those that an automaton has to know of */
    regex_node *nodes;
    i32 n_nodes, cap_nodes;
    u32 (*ranges)[2];
    size_t n_ranges, cap_ranges;
    size_t known[3]; /* letters are the ranges [known[0], known[1]), numbers those up to known[2] */
    status failed;
    err *e;
} regex;

/* The first mistake is the one to tell; nothing is read behind it. */
static void regex_fail(regex *r, size_t at, status why, const char *text) {
    size_t place = 1;
    if (r->failed) return;
    for (size_t i = 0; i < at && i < r->len; i++) place += (r->text[i] & 0xc0) != 0x80;
    r->failed = err_set(r->e, why, "regular expression, character %zu: %s", place, text);
    r->at = r->len;
}

static i32 regex_node_add(regex *r, regex_node node) {
    if (r->failed) return 0;
    if (r->n_nodes == r->cap_nodes) {
        i32 cap = r->cap_nodes ? r->cap_nodes * 2 : 32;
        regex_node *grown = cap > NFA_STATES_MAX ? NULL : realloc(r->nodes, (size_t)cap * sizeof *grown);
        if (!grown && cap > NFA_STATES_MAX) return regex_fail(r, r->at, ST_LIMIT, "it is too long"), 0;
        if (!grown) return r->failed = err_nomem(r->e, "a regular expression", (u64)cap * sizeof *grown), 0;
        r->nodes = grown;
        r->cap_nodes = cap;
    }
    r->nodes[r->n_nodes] = node;
    return r->n_nodes++;
}

/* ---- sets of characters: the ranges from `from` on ---- */

static void regex_range_add(regex *r, u32 lo, u32 hi) {
    if (r->failed) return;
    if (r->n_ranges == r->cap_ranges) {
        size_t cap = r->cap_ranges ? r->cap_ranges * 2 : 64;
        if (cap > REGEX_RANGES_MAX) {
            regex_fail(r, r->at, ST_LIMIT, "its sets of characters are too large");
            return;
        }
        void *grown = realloc(r->ranges, cap * sizeof *r->ranges);
        if (!grown) {
            r->failed = err_nomem(r->e, "a regular expression", cap * sizeof *r->ranges);
            return;
        }
        r->ranges = grown;
        r->cap_ranges = cap;
    }
    r->ranges[r->n_ranges][0] = lo;
    r->ranges[r->n_ranges++][1] = hi;
}

static int regex_compare_ranges(const void *a, const void *b) {
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return (x > y) - (x < y);
}

/* Ascending and apart. */
static void regex_ranges_settle(regex *r, size_t from) {
    size_t to = from;
    if (r->n_ranges - from < 2) return;
    qsort(r->ranges + from, r->n_ranges - from, sizeof *r->ranges, regex_compare_ranges);
    for (size_t i = from + 1; i < r->n_ranges; i++) {
        u32 *last = r->ranges[to], *next = r->ranges[i];
        if (next[0] > last[1] + 1)
            memcpy(r->ranges[++to], next, sizeof *r->ranges);
        else if (next[1] > last[1])
            last[1] = next[1];
    }
    r->n_ranges = to + 1;
}

/* All other characters. */
static void regex_ranges_invert(regex *r, size_t from) {
    size_t to = from;
    u32 next = 0;
    regex_ranges_settle(r, from);
    for (size_t i = from; i < r->n_ranges; i++) {
        u32 lo = r->ranges[i][0], hi = r->ranges[i][1];
        if (lo > next) {
            r->ranges[to][0] = next;
            r->ranges[to++][1] = lo - 1;
        }
        next = hi + 1;
    }
    r->n_ranges = to;
    if (next <= REGEX_CP_MAX) regex_range_add(r, next, REGEX_CP_MAX);
}

static void regex_ranges_named(regex *r, char name) {
    static const u32 digit[] = {'0', '9'}, word[] = {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'},
                     line_end[] = {'\n', '\n', '\r', '\r', 0x2028, 0x2029},
                     space[] = {'\t',   '\r',   ' ',    ' ',    0xa0,   0xa0,   0x1680, 0x1680, 0x2000, 0x200a,
                                0x2028, 0x2029, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff};
    const u32 *set = space;
    size_t n = COUNT_OF(space), from = r->n_ranges;
    if (name == 'd' || name == 'D') set = digit, n = COUNT_OF(digit);
    if (name == 'w' || name == 'W') set = word, n = COUNT_OF(word);
    if (name == '.') set = line_end, n = COUNT_OF(line_end);
    for (size_t i = 0; i < n; i += 2) regex_range_add(r, set[i], set[i + 1]);
    if (name < 'a') regex_ranges_invert(r, from);
}

/* Letters, then numbers: before all other ranges, because it takes long. */
static void regex_ranges_known(regex *r) {
    for (int k = 0; k < 2; k++) {
        u8 mask = k ? UNI_NUMBER : UNI_LETTER;
        for (u32 cp = 0, end; cp <= REGEX_CP_MAX; cp = end + 1) {
            bool in = unicode_class(cp) & mask;
            for (end = cp; end < REGEX_CP_MAX && !(unicode_class(end + 1) & mask) == !in;) end++;
            if (in) regex_range_add(r, cp, end);
        }
        r->known[k + 1] = r->n_ranges;
    }
}

static void regex_ranges_property(regex *r, bool number) {
    for (size_t i = r->known[number]; i < r->known[number + 1]; i++)
        regex_range_add(r, r->ranges[i][0], r->ranges[i][1]);
}

static i32 regex_set_node(regex *r, size_t from) {
    regex_ranges_settle(r, from);
    return regex_node_add(r, (regex_node){REGEX_CHARS, .min = (i64)from, .max = (i64)r->n_ranges, .size = 2});
}

/* ---- escapes ---- */

static bool regex_next_is(const regex *r, char c) { return r->at < r->len && r->text[r->at] == (u8)c; }

static bool regex_skip(regex *r, const char *text) {
    size_t n = strlen(text);
    if (r->len - r->at < n || memcmp(r->text + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static u32 regex_char(regex *r) {
    u32 cp;
    r->at += (size_t)utf8_decode(r->text + r->at, &cp);
    return cp;
}

static bool regex_is_digit(u32 c) { return c >= '0' && c <= '9'; }

static bool regex_is_letter(u32 c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* n hexadecimal digits at *at. */
static bool regex_hex(const regex *r, size_t *at, int n, u32 *out) {
    u32 v = 0;
    if (r->len - *at < (size_t)n) return false;
    for (int i = 0; i < n; i++) {
        u32 c = r->text[*at + (size_t)i];
        if (regex_is_digit(c))
            v = v << 4 | (c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v << 4 | ((c | 32) - 'a' + 10);
        else
            return false;
    }
    *at += (size_t)n;
    return *out = v, true;
}

/* Behind \u. */
static u32 regex_escape_u(regex *r, size_t begin) {
    u32 cp = 0, digit, low;
    if (regex_skip(r, "{")) {
        size_t first = r->at;
        while (regex_hex(r, &r->at, 1, &digit) && cp <= REGEX_CP_MAX) cp = cp << 4 | digit;
        bool good = r->at > first && cp <= REGEX_CP_MAX && regex_skip(r, "}");
        if (!good) regex_fail(r, begin, ST_INPUT, "\\u{ needs the digits of a character and a }");
        return good ? cp : 0;
    }
    if (!regex_hex(r, &r->at, 4, &cp)) return regex_fail(r, begin, ST_INPUT, "\\u needs four hexadecimal digits"), 0;
    size_t at = r->at + 2;
    bool pair = cp >> 10 == 0xd800 >> 10 && r->len - r->at >= 6 && !memcmp(r->text + r->at, "\\u", 2);
    if (!pair || !regex_hex(r, &at, 4, &low) || low >> 10 != 0xdc00 >> 10) return cp;
    r->at = at;
    return 0x10000 + ((cp & 0x3ff) << 10 | (low & 0x3ff));
}

/* Behind \p or \P. */
static void regex_escape_p(regex *r, size_t begin, bool inverse) {
    size_t from = r->n_ranges;
    if (!regex_next_is(r, '{') || !memchr(r->text + r->at, '}', r->len - r->at)) {
        regex_fail(r, begin, ST_INPUT, "\\p needs a {name}");
        return;
    }
    if (regex_skip(r, "{L}") || regex_skip(r, "{Letter}"))
        regex_ranges_property(r, false);
    else if (regex_skip(r, "{N}") || regex_skip(r, "{Number}"))
        regex_ranges_property(r, true);
    else
        regex_fail(r, begin, ST_UNSUPPORTED, "of \\p there are {L} and {N} only");
    if (inverse && !r->failed) regex_ranges_invert(r, from);
}

/* Behind \c, \x and \0. */
static u32 regex_escape_number(regex *r, size_t begin, char kind) {
    u32 cp = 0;
    if (kind == 'c') {
        if (r->at < r->len && regex_is_letter(r->text[r->at])) return r->text[r->at++] & 31;
        regex_fail(r, begin, ST_INPUT, "\\c needs a letter");
    } else if (kind == 'x') {
        if (regex_hex(r, &r->at, 2, &cp)) return cp;
        regex_fail(r, begin, ST_INPUT, "\\x needs two hexadecimal digits");
    } else if (r->at < r->len && regex_is_digit(r->text[r->at])) {
        regex_fail(r, begin, ST_INPUT, "a digit behind \\0");
    }
    return 0;
}

/* The character; or REGEX_SET, and the ranges are added. */
static u32 regex_escape(regex *r, bool in_class) {
    size_t begin = r->at++;
    if (r->at == r->len) return regex_fail(r, begin, ST_INPUT, "nothing behind the \\"), 0;
    u32 c = regex_char(r);
    switch (c) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'c':
    case 'x':
    case '0': return regex_escape_number(r, begin, (char)c);
    case 'u': return regex_escape_u(r, begin);
    case 'p':
    case 'P': return regex_escape_p(r, begin, c == 'P'), REGEX_SET;
    case 'd':
    case 'D':
    case 'w':
    case 'W':
    case 's':
    case 'S': return regex_ranges_named(r, (char)c), REGEX_SET;
    case 'b':
        if (in_class) return '\b';
        /* fall through */
    case 'B': return regex_fail(r, begin, ST_UNSUPPORTED, "word boundaries are not supported"), 0;
    case 'k': return regex_fail(r, begin, ST_UNSUPPORTED, "back-references are not supported"), 0;
    default: break;
    }
    if (regex_is_digit(c)) regex_fail(r, begin, ST_UNSUPPORTED, "back-references are not supported");
    if (regex_is_letter(c)) regex_fail(r, begin, ST_INPUT, "there is no such escape");
    return c;
}

/* ---- parsing ---- */

static i32 regex_choice(regex *r);

/* One character or escape of [...]. */
static u32 regex_class_item(regex *r) { return regex_next_is(r, '\\') ? regex_escape(r, true) : regex_char(r); }

static i32 regex_class(regex *r) {
    size_t begin = r->at++, from = r->n_ranges;
    bool inverse = regex_skip(r, "^");
    while (r->at < r->len && !regex_next_is(r, ']')) {
        size_t first = r->at;
        u32 lo = regex_class_item(r), hi = lo;
        bool range = regex_next_is(r, '-') && r->len - r->at >= 2 && r->text[r->at + 1] != ']';
        if (range) {
            r->at++;
            hi = regex_class_item(r);
        }
        if (range && (lo == REGEX_SET || hi == REGEX_SET)) { /* [\d-x]: no range, so three things */
            regex_range_add(r, '-', '-');
            if (lo != REGEX_SET) regex_range_add(r, lo, lo);
            if (hi != REGEX_SET) regex_range_add(r, hi, hi);
        } else if (lo > hi) {
            regex_fail(r, first, ST_INPUT, "a range that ends before it begins");
        } else if (lo != REGEX_SET) {
            regex_range_add(r, lo, hi);
        }
    }
    if (!regex_skip(r, "]")) regex_fail(r, begin, ST_INPUT, "a [ without its ]");
    if (r->failed) return 0;
    if (inverse) regex_ranges_invert(r, from);
    return regex_set_node(r, from);
}

/* Behind "(?<". */
static void regex_group_name(regex *r, size_t begin) {
    size_t first = r->at;
    while (r->at < r->len) {
        u8 c = r->text[r->at];
        if (c < 0x80 && !regex_is_letter(c) && c != '_' && c != '$' && (!regex_is_digit(c) || r->at == first)) break;
        r->at++;
    }
    if (r->at == first || !regex_skip(r, ">")) regex_fail(r, begin, ST_INPUT, "a group's name that is none");
}

static void regex_group_head(regex *r, size_t begin) {
    if (!regex_skip(r, "?") || regex_skip(r, ":")) return;
    u8 c = r->at < r->len ? r->text[r->at] : 0, behind = r->len - r->at > 1 ? r->text[r->at + 1] : 0;
    if (c == '=' || c == '!' || (c == '<' && (behind == '=' || behind == '!')))
        regex_fail(r, begin, ST_UNSUPPORTED, "look-around is not supported");
    else if (regex_skip(r, "<"))
        regex_group_name(r, begin);
    else if (regex_is_letter(c) || c == '-' || c == '^')
        regex_fail(r, begin, ST_UNSUPPORTED, "flags and groups of other kinds are not supported");
    else
        regex_fail(r, begin, ST_INPUT, "there is no such group");
}

static i32 regex_group(regex *r) {
    size_t begin = r->at++;
    if (r->depth == REGEX_DEPTH_MAX) return regex_fail(r, begin, ST_LIMIT, "too many groups in each other"), 0;
    regex_group_head(r, begin);
    if (r->failed) return 0;
    r->depth++;
    i32 node = regex_choice(r);
    r->depth--;
    if (!regex_skip(r, ")")) regex_fail(r, begin, ST_INPUT, "a ( without its )");
    return node;
}

static i64 regex_number(const regex *r, size_t *at) {
    i64 v = 0;
    for (; *at < r->len && regex_is_digit(r->text[*at]); ++*at)
        if (v < REGEX_COUNT_MAX) v = v * 10 + (r->text[*at] - '0');
    return min_i64(v, REGEX_COUNT_MAX);
}

/* {n}, {n,} or {n,m}; everything else is text. */
static bool regex_braces(regex *r, i64 *min, i64 *max) {
    size_t at = r->at + 1, first = at;
    *min = *max = regex_number(r, &at);
    if (at == first) return false;
    if (at < r->len && r->text[at] == ',') {
        first = ++at;
        *max = regex_number(r, &at);
        if (at == first) *max = REGEX_ENDLESS;
    }
    if (at == r->len || r->text[at] != '}') return false;
    r->at = at + 1;
    return true;
}

static bool regex_quantifier(regex *r, i64 *min, i64 *max) {
    u8 c = r->at < r->len ? r->text[r->at] : 0;
    if (c == '{') return regex_braces(r, min, max);
    *min = c == '+';
    *max = c == '?' ? 1 : REGEX_ENDLESS;
    if (c != '*' && c != '+' && c != '?') return false;
    r->at++;
    return true;
}

static i32 regex_anchor(regex *r, bool end) {
    r->at++;
    r->anchors++;
    return regex_node_add(r, (regex_node){end ? REGEX_END : REGEX_BEGIN, .size = 2});
}

static i32 regex_atom(regex *r) {
    size_t begin = r->at, from = r->n_ranges;
    i64 min, max;
    u32 cp = r->text[begin];
    switch (cp) {
    case '(': return regex_group(r);
    case '[': return regex_class(r);
    case '.': r->at++; return regex_ranges_named(r, '.'), regex_set_node(r, from);
    case '^':
    case '$': return regex_anchor(r, cp == '$');
    case '\\': cp = regex_escape(r, false); break;
    default:
        if (regex_quantifier(r, &min, &max)) return regex_fail(r, begin, ST_INPUT, "nothing to repeat"), 0;
        cp = regex_char(r);
    }
    if (cp != REGEX_SET) regex_range_add(r, cp, cp);
    return regex_set_node(r, from);
}

/* A repeated repeat is one, where its counts leave no gap: so nothing that is empty is repeated for nothing. */
static i32 regex_repeat(regex *r, size_t begin, i32 node, i64 min, i64 max) {
    if (max != REGEX_ENDLESS && max < min)
        return regex_fail(r, begin, ST_INPUT, "it is to be repeated more often than it may be"), 0;
    regex_node x = r->nodes[node];
    if (r->failed || x.kind == REGEX_EMPTY) return node;
    if (!max) return regex_node_add(r, (regex_node){REGEX_EMPTY, .nullable = true, .size = 1});
    if (x.nullable) min = 0;
    bool endless = max == REGEX_ENDLESS || (x.kind == REGEX_REPEAT && x.max == REGEX_ENDLESS);
    if (x.kind == REGEX_REPEAT && (x.min == 0 || (x.min == 1 && endless && x.max == REGEX_ENDLESS))) {
        max = endless ? REGEX_ENDLESS : max * x.max;
        node = x.child;
        x = r->nodes[node];
    }
    u64 uses = (u64)(max == REGEX_ENDLESS ? max_i64(min, 1) : max);
    if (uses > NFA_STATES_MAX / x.size) return regex_fail(r, begin, ST_LIMIT, "it is repeated too often"), 0;
    return regex_node_add(r, (regex_node){REGEX_REPEAT, x.nullable || !min, node, 0, min, max, uses * x.size});
}

static i32 regex_term(regex *r) {
    size_t begin = r->at;
    i64 min, max;
    i32 node = regex_atom(r);
    bool anchor = r->text[begin] == '^' || r->text[begin] == '$';
    if (r->failed || anchor || !regex_quantifier(r, &min, &max)) return node;
    regex_skip(r, "?");
    return regex_repeat(r, begin, node, min, max);
}

/* Puts a node behind those of a row or choice. */
static void regex_append(regex *r, regex_node *list, i32 *last, i32 node) {
    const regex_node *x = &r->nodes[node];
    bool row = list->kind == REGEX_ROW;
    list->nullable = row ? list->nullable && x->nullable : list->nullable || x->nullable;
    list->size += x->size;
    if (*last)
        r->nodes[*last].next = node;
    else
        list->child = node;
    *last = node;
}

static i32 regex_row(regex *r) {
    regex_node row = {REGEX_ROW, .nullable = true};
    i32 last = 0;
    while (r->at < r->len && r->text[r->at] != '|' && r->text[r->at] != ')') {
        i32 node = regex_term(r);
        if (r->failed) return 0;
        if (r->nodes[node].kind != REGEX_EMPTY) regex_append(r, &row, &last, node);
    }
    if (!last) return regex_node_add(r, (regex_node){REGEX_EMPTY, .nullable = true, .size = 1});
    return last == row.child ? last : regex_node_add(r, row);
}

static i32 regex_choice(regex *r) {
    regex_node choice = {REGEX_CHOICE, .nullable = false};
    i32 last = 0;
    do {
        i32 node = regex_row(r);
        if (r->failed) return 0;
        regex_append(r, &choice, &last, node);
    } while (regex_skip(r, "|"));
    return last == choice.child ? last : regex_node_add(r, choice);
}

/* ---- the automaton ---- */

static nfa_part regex_emit(regex *r, i32 node);

/* The part itself when nobody needs it any more, else a copy. */
static nfa_part regex_use(regex *r, nfa_part x, i64 *left) { return --*left ? nfa_copy(r->n, x) : x; }

/* From the end: what may be left out lies in each other, so that each step out leads to the end at once. */
static nfa_part regex_emit_repeat(regex *r, regex_node node) {
    bool endless = node.max == REGEX_ENDLESS;
    i64 left = endless ? max_i64(node.min, 1) : node.max, may = endless ? 0 : node.max - node.min;
    nfa_part x = regex_emit(r, node.child), out;
    if (may > 1 && r->nodes[node.child].nullable) x = nfa_not_empty(r->n, x); /* or a state was in all copies at once */
    if (endless) {
        out = nfa_plus(r->n, regex_use(r, x, &left));
        if (!node.min) out = nfa_optional(r->n, out);
    } else {
        out = nfa_nothing(r->n);
    }
    while (left && !nfa_failed(r->n, NULL)) {
        out = nfa_then(r->n, regex_use(r, x, &left), out);
        if (may-- > 0) out = nfa_optional(r->n, out);
    }
    return out;
}

static nfa_part regex_emit(regex *r, i32 node) {
    regex_node x = r->nodes[node];
    switch (x.kind) {
    case REGEX_CHARS:
        if (x.min == x.max) return nfa_never(r->n);
        return nfa_chars(r->n, r->ranges[x.min], (size_t)(x.max - x.min));
    case REGEX_REPEAT: return regex_emit_repeat(r, x);
    case REGEX_BEGIN:
    case REGEX_END: return nfa_anchor(r->n, x.kind == REGEX_END);
    case REGEX_ROW:
    case REGEX_CHOICE: break;
    default: return nfa_nothing(r->n);
    }
    nfa_part out = regex_emit(r, x.child);
    for (i32 c = r->nodes[x.child].next; c && !nfa_failed(r->n, NULL); c = r->nodes[c].next) {
        nfa_part part = regex_emit(r, c);
        out = x.kind == REGEX_ROW ? nfa_then(r->n, out, part) : nfa_or(r->n, out, part);
    }
    return out;
}

/* Takes ^ and $ away where an alternative of the whole begins and ends: most expressions have them there alone, and
 * need no nfa_anchored(), which takes more states. */
static void regex_strip(regex *r, i32 node, bool *begin, bool *end) {
    regex_node *x = &r->nodes[node];
    if (x->kind == REGEX_BEGIN || x->kind == REGEX_END) {
        *(x->kind == REGEX_BEGIN ? begin : end) = true;
        x->kind = REGEX_EMPTY;
        r->anchors--;
    }
    if (x->kind != REGEX_ROW) return;
    for (; x->child && r->nodes[x->child].kind == REGEX_BEGIN; x->child = r->nodes[x->child].next) {
        *begin = true;
        r->anchors--;
    }
    i32 kept = 0;
    for (i32 c = x->child; c; c = r->nodes[c].next)
        if (r->nodes[c].kind != REGEX_END) kept = c;
    for (i32 c = kept ? r->nodes[kept].next : x->child; c; c = r->nodes[c].next) {
        *end = true;
        r->anchors--;
    }
    if (kept)
        r->nodes[kept].next = 0;
    else
        x->kind = REGEX_EMPTY;
}

static nfa_part regex_any_text(regex *r) { return nfa_star(r->n, nfa_any_char(r->n)); }

/* Alternatives that are open at the same ends share the text around them. */
static nfa_part regex_emit_whole(regex *r, i32 root, bool whole) {
    enum { BEGINS = 1, ENDS = 2 };
    nfa_part parts[4], out = {0};
    bool used[4] = {0}, any = false, choice = r->nodes[root].kind == REGEX_CHOICE;
    for (i32 c = choice ? r->nodes[root].child : root; c && !nfa_failed(r->n, NULL); c = r->nodes[c].next) {
        bool begin = false, end = false;
        regex_strip(r, c, &begin, &end);
        int k = whole ? BEGINS | ENDS : (begin ? BEGINS : 0) | (end ? ENDS : 0);
        nfa_part part = regex_emit(r, c);
        parts[k] = used[k] ? nfa_or(r->n, parts[k], part) : part;
        used[k] = true;
    }
    for (int k = 0; k < 4; k++) {
        if (!used[k]) continue;
        if (!(k & BEGINS)) parts[k] = nfa_then(r->n, regex_any_text(r), parts[k]);
        if (!(k & ENDS)) parts[k] = nfa_then(r->n, parts[k], regex_any_text(r));
        out = any ? nfa_or(r->n, out, parts[k]) : parts[k];
        any = true;
    }
    return r->anchors && any ? nfa_anchored(r->n, out) : out;
}

/* \\p or \\P somewhere: then the table of characters is read. */
static bool regex_names_property(const char *text, size_t len) {
    for (size_t i = 0; i + 1 < len; i++)
        if (text[i] == '\\' && (text[i + 1] | 32) == 'p') return true;
    return false;
}

status regex_parse(nfa *n, const char *text, size_t len, bool whole, nfa_part *out, err *e) {
    regex r = {.n = n, .text = (const u8 *)text, .len = len, .e = e};
    *out = (nfa_part){0};
    size_t good = utf8_valid(r.text, len);
    if (good < len) regex_fail(&r, good, ST_INPUT, "it is not UTF-8");
    regex_node_add(&r, (regex_node){REGEX_EMPTY, .size = 1});
    if (!r.failed && len && regex_names_property(text, len)) regex_ranges_known(&r);
    i32 root = r.failed ? 0 : regex_choice(&r);
    if (r.at < len) regex_fail(&r, r.at, ST_INPUT, "a ) without a (");
    if (!r.failed) *out = regex_emit_whole(&r, root, whole);
    status st = r.failed ? r.failed : nfa_failed(n, e);
    free(r.nodes);
    free(r.ranges);
    return st;
}
