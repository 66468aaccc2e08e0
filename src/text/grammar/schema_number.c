/* text/grammar/schema_number.c: numbers between bounds and multiples, as languages of decimal digits.
 *
 * Texts without sign, leading zeros and exponent compare like their numbers: first the length of what is in front of
 * the point, then digit by digit. So "at most" and "at least" are automata as long as the bound's text, and what
 * asks for both is their product. */
#include "text/grammar/schema_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 320, MULTIPLE_MAX = 1 << 14, MULTIPLE_DIGITS = 9, MULTIPLE_STATES = 1 << 15 };

/* |x|: digits in front of the point without leading zeros ("0" if there are none), and behind it without trailing
 * ones. */
typedef struct {
    bool negative;
    int n_whole, n_part;
    char digits[2 * DIGITS_MAX];
} decimal;

static bool decimal_is_zero(const decimal *x) { return x->n_whole == 1 && x->digits[0] == '0' && !x->n_part; }

/* Of a JSON number's text. false: too many digits. */
static bool decimal_read(decimal *x, const char *text) {
    char all[DIGITS_MAX];
    int n = 0, point = -1;
    *x = (decimal){.negative = *text == '-'};
    for (text += *text == '-'; *text && (*text | 32) != 'e'; text++) {
        if (*text == '.')
            point = n;
        else if (n == DIGITS_MAX)
            return false;
        else
            all[n++] = *text;
    }
    if (point < 0) point = n;
    if (*text) point += (int)fmax(fmin(strtod(text + 1, NULL), DIGITS_MAX), -DIGITS_MAX);
    if (point > DIGITS_MAX || n - point > DIGITS_MAX) return false;
    for (int i = 0; i < point; i++) {
        const char digit = i < n ? all[i] : '0';
        if (x->n_whole || digit != '0') x->digits[x->n_whole++] = digit;
    }
    if (!x->n_whole) x->digits[x->n_whole++] = '0';
    for (int i = point; i < n; i++) {
        if (x->n_whole + x->n_part == (int)sizeof x->digits) return false;
        x->digits[x->n_whole + x->n_part++] = i < 0 ? '0' : all[i];
    }
    while (x->n_part && x->digits[x->n_whole + x->n_part - 1] == '0') x->n_part--;
    if (decimal_is_zero(x)) x->negative = false; /* -0 is 0 */
    return true;
}

static bool decimal_of(schema_compiler *c, decimal *x, const json_t *v, const char *key) {
    char *text = json_is_number(v) ? json_to_text(v, &json_compact) : NULL;
    const bool read = text && decimal_read(x, text);
    if (!text)
        schema_fails(c, ST_INPUT, "\"%s\" is %s", key, json_type_text(v));
    else if (!read)
        schema_fails(c, ST_UNSUPPORTED, "\"%s\" has too many digits", key);
    free(text);
    return read;
}

static int decimal_compare_sizes(const decimal *a, const decimal *b) {
    if (a->n_whole != b->n_whole) return a->n_whole < b->n_whole ? -1 : 1;
    const int na = a->n_whole + a->n_part, nb = b->n_whole + b->n_part;
    const int differ = memcmp(a->digits, b->digits, (size_t)min_i64(na, nb));
    return differ ? differ : (na > nb) - (na < nb);
}
static int decimal_compare(const decimal *a, const decimal *b) {
    if (decimal_is_zero(a) && decimal_is_zero(b)) return 0;
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? decimal_compare_sizes(b, a) : decimal_compare_sizes(a, b);
}

/* ---- bounds ---- */

typedef struct {
    bool there, open; /* open: the bound itself is out */
    decimal at;
} number_bound;

static void bound_tighten(number_bound *b, const decimal *x, bool open, bool upper) {
    const int order = b->there ? decimal_compare(x, &b->at) : 0;
    if (b->there && (upper ? order > 0 : order < 0)) return;
    *b = (number_bound){true, open || (b->there && order == 0 && b->open), *x};
}

/* Draft 4 says exclusiveMinimum: true beside minimum. */
static number_bound number_bound_of(schema_compiler *c, const schema_parts *p, bool upper) {
    const char *plain = upper ? "maximum" : "minimum", *open = upper ? "exclusiveMaximum" : "exclusiveMinimum";
    number_bound b = {0};
    decimal x;
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        const json_t *v = json_object_get(p->of[i], plain), *w = json_object_get(p->of[i], open);
        if (v && decimal_of(c, &x, v, plain)) bound_tighten(&b, &x, json_is_true(w), upper);
        if (w && !json_is_boolean(w) && decimal_of(c, &x, w, open)) bound_tighten(&b, &x, true, upper);
    }
    return b;
}

/* ---- languages of sizes ---- */

typedef struct {
    nfa *n;
    bool part; /* digits behind a point are allowed */
} number_words;

static nfa_part some_digits(nfa *n) { return nfa_plus(n, nfa_range(n, '0', '9')); }
static nfa_part any_digits(nfa *n) { return nfa_star(n, nfa_range(n, '0', '9')); }
static nfa_part exactly_digits(nfa *n, int count) {
    nfa_part all = nfa_nothing(n);
    for (int i = 0; i < count; i++) all = nfa_then(n, all, nfa_range(n, '0', '9'));
    return all;
}
static nfa_part point(nfa *n) { return nfa_range(n, '.', '.'); }
static nfa_part any_part(const number_words *w) {
    nfa *n = w->n;
    return w->part ? nfa_optional(n, nfa_then(n, point(n), some_digits(n))) : nfa_nothing(n);
}
/* 0*[1-9][0-9]* */
static nfa_part digits_not_zero(nfa *n) {
    return nfa_then(n, nfa_star(n, nfa_range(n, '0', '0')), nfa_then(n, nfa_range(n, '1', '9'), any_digits(n)));
}

/* Whole numbers of from to `to` digits; to < 0: of any more. */
static nfa_part wholes_of(nfa *n, int from, int to) {
    nfa_part all = nfa_never(n);
    if (from <= 1 && (to < 0 || to >= 1)) all = nfa_range(n, '0', '0');
    if (to >= 0 && from > to) return all;
    nfa_part rest = to < 0 ? any_digits(n) : nfa_nothing(n);
    for (int i = from; to >= 0 && i < to; i++) rest = nfa_optional(n, nfa_then(n, nfa_range(n, '0', '9'), rest));
    return nfa_or(n, all, nfa_then(n, nfa_range(n, '1', '9'), nfa_then(n, exactly_digits(n, from - 1), rest)));
}

/* The digits behind the point of a number whose others are the bound's, the point with them. */
static nfa_part part_beyond(const number_words *w, const decimal *x, bool open, bool less) {
    nfa *n = w->n;
    const char *digits = x->digits + x->n_whole;
    const int m = x->n_part;
    nfa_part all = nfa_never(n);
    for (int j = 0; j < m; j++) {
        const nfa_part same = nfa_bytes(n, digits, (size_t)j);
        const u8 lo = less ? '0' : (u8)(digits[j] + 1), hi = less ? (u8)(digits[j] - 1) : '9';
        if (lo <= hi) all = nfa_or(n, all, nfa_then(n, same, nfa_then(n, nfa_range(n, lo, hi), any_digits(n))));
        if (less && j) all = nfa_or(n, all, nfa_bytes(n, digits, (size_t)j)); /* it ends before the bound does */
    }
    nfa_part behind = nfa_never(n); /* the bound's digits, or where it has none at least one */
    if (less && !open)
        behind = m ? nfa_star(n, nfa_range(n, '0', '0')) : nfa_plus(n, nfa_range(n, '0', '0'));
    else if (!less)
        behind = open ? digits_not_zero(n) : m ? any_digits(n) : some_digits(n);
    all = nfa_or(n, all, nfa_then(n, nfa_bytes(n, digits, (size_t)m), behind));
    const bool whole = less ? m > 0 || !open : !m && !open; /* is it enough to have no digits there? */
    all = w->part ? nfa_then(n, point(n), all) : nfa_never(n);
    return whole ? nfa_optional(n, all) : all;
}

/* Sizes below or above a bound, or at it unless it is open. */
static nfa_part sizes_beyond(const number_words *w, const decimal *x, bool open, bool less) {
    nfa *n = w->n;
    const int k = x->n_whole;
    nfa_part all = less ? wholes_of(n, 1, k - 1) : wholes_of(n, k + 1, -1);
    if (less && k == 1) all = nfa_never(n);
    all = nfa_then(n, all, any_part(w));
    for (int i = 0; i < k; i++) {
        const u8 least = i == 0 && k > 1 ? '1' : '0';
        const u8 lo = less ? least : (u8)(x->digits[i] + 1), hi = less ? (u8)(x->digits[i] - 1) : '9';
        if (lo > hi) continue;
        const nfa_part rest = nfa_then(n, exactly_digits(n, k - i - 1), any_part(w));
        all = nfa_or(n, all, nfa_then(n, nfa_bytes(n, x->digits, (size_t)i), nfa_then(n, nfa_range(n, lo, hi), rest)));
    }
    return nfa_or(n, all, nfa_then(n, nfa_bytes(n, x->digits, (size_t)k), part_beyond(w, x, open, less)));
}

/* Sizes from lo to hi, each of which may be NULL. */
static nfa_part sizes_between(const number_words *w, const number_bound *lo, const number_bound *hi) {
    nfa *n = w->n;
    if (!lo && !hi) return nfa_then(n, wholes_of(n, 1, -1), any_part(w));
    if (!lo) return sizes_beyond(w, &hi->at, hi->open, true);
    if (!hi) return sizes_beyond(w, &lo->at, lo->open, false);
    return nfa_both(n, sizes_beyond(w, &lo->at, lo->open, false), sizes_beyond(w, &hi->at, hi->open, true));
}

static nfa_part numbers_between(const number_words *w, const number_bound *lo, const number_bound *hi) {
    const number_bound zero = {true, true, {false, 1, 0, "0"}};
    const bool low = lo->there, high = hi->there;
    nfa *n = w->n;
    nfa_part all = nfa_never(n);
    if (!high || !hi->at.negative || decimal_is_zero(&hi->at))
        all = sizes_between(w, low && !lo->at.negative ? lo : NULL, high ? hi : NULL);
    if (low && (!lo->at.negative || decimal_is_zero(&lo->at))) return all;
    const nfa_part below = sizes_between(w, high && hi->at.negative ? hi : &zero, low ? lo : NULL);
    return nfa_or(n, all, nfa_then(n, nfa_range(n, '-', '-'), below));
}

/* ---- multiples ---- */

/* of / 10 ^ places: a number is a multiple if its digits up to that place make a multiple of `of`, and the others are
 * zero. */
typedef struct {
    u32 of;
    int places;
} number_multiple;

static bool multiple_of(schema_compiler *c, const json_t *v, number_multiple *m) {
    decimal x;
    if (!decimal_of(c, &x, v, "multipleOf")) return false;
    if (x.negative || decimal_is_zero(&x)) return schema_fails(c, ST_INPUT, "\"multipleOf\" is not above 0"), false;
    u64 of = 0;
    for (int i = 0; i < x.n_whole + x.n_part && of <= MULTIPLE_MAX; i++) of = of * 10 + (u64)(x.digits[i] - '0');
    if (of > MULTIPLE_MAX || x.n_part > MULTIPLE_DIGITS || of * (u64)(x.n_part + 2) > MULTIPLE_STATES)
        return schema_fails(c, ST_UNSUPPORTED, "\"multipleOf\" of too many digits"), false;
    *m = (number_multiple){(u32)of, x.n_part};
    return true;
}

/* Does a remainder with `left` places to come, all zero, make a multiple? */
static bool remainder_ends(const number_multiple *m, u32 remainder, int left) {
    u64 r = remainder;
    for (int i = 0; i < left; i++) r = r * 10 % m->of;
    return r == 0;
}

typedef struct {
    nfa_move *moves;
    size_t n, cap;
} move_list;

static void move_add(schema_compiler *c, move_list *l, i32 from, i32 to, char digit) {
    if (l->n == l->cap) {
        nfa_move *more = realloc(l->moves, (l->cap ? 2 * l->cap : 256) * sizeof *more);
        if (!more) {
            schema_fails(c, ST_NOMEM, "out of host memory");
            return;
        }
        l->moves = more, l->cap = l->cap ? 2 * l->cap : 256;
    }
    l->moves[l->n++] = (nfa_move){from, to, (u8)digit, (u8)digit};
}

/* Digits, a point, digits. States are remainders: row 0 those of the digits in front of the point, row 1 + j those
 * behind it and j digits more; then the first state, and that of zeros behind a point that has no more to say. */
static nfa_part multiples(schema_compiler *c, const number_words *w, const number_multiple *m) {
    const i32 of = (i32)m->of, begin = (2 + m->places) * of, zeros = begin + 1, states = begin + 2;
    bool *ends = calloc((size_t)states, sizeof *ends);
    move_list l = {0};
    if (!ends) return schema_fails(c, ST_NOMEM, "out of host memory"), nfa_never(w->n);
    ends[zeros] = true;
    move_add(c, &l, zeros, zeros, '0');
    for (i32 d = 0; d < 10; d++) move_add(c, &l, begin, d % of, (char)('0' + d));
    for (i32 s = 0; s < begin && c->st == ST_OK; s++) {
        const i32 row = s / of, r = s % of, places = row - 1; /* behind the point, if there is one */
        if (row != 1) ends[s] = remainder_ends(m, (u32)r, m->places - (row ? places : 0));
        if (row == 0 && w->part) move_add(c, &l, s, of + r, '.');
        if (row && places == m->places && r == 0) move_add(c, &l, s, zeros, '0');
        for (i32 d = 0; d < 10 && (row == 0 || places < m->places); d++)
            move_add(c, &l, s, (row ? row + 1 : 0) * of + (i32)(((i64)r * 10 + d) % of), (char)('0' + d));
    }
    const nfa_part made = c->st == ST_OK ? nfa_table(w->n, states, begin, l.moves, l.n, ends) : nfa_never(w->n);
    free(l.moves), free(ends);
    return made;
}

/* ---- the whole ---- */

/* -?(0|[1-9][0-9]*), with a part behind the point and an exponent of up to three digits where those are allowed */
static nfa_part any_number(const number_words *w) {
    nfa *n = w->n;
    const nfa_part sign = nfa_optional(n, nfa_range(n, '-', '-'));
    nfa_part all = nfa_then(n, sign, nfa_then(n, wholes_of(n, 1, -1), any_part(w)));
    if (!w->part) return all;
    nfa_part e = nfa_or(n, nfa_range(n, 'e', 'e'), nfa_range(n, 'E', 'E'));
    e = nfa_then(n, e, nfa_optional(n, nfa_or(n, nfa_range(n, '+', '+'), nfa_range(n, '-', '-'))));
    nfa_part digits = nfa_range(n, '0', '9');
    for (int i = 0; i < 2; i++) digits = nfa_then(n, digits, nfa_optional(n, nfa_range(n, '0', '9')));
    return nfa_then(n, all, nfa_optional(n, nfa_then(n, e, digits)));
}

static bool is_any_number(const schema_parts *p);
static nfa_part number_part(schema_compiler *c, const schema_parts *p, bool integer, nfa *n) {
    const number_words w = {n, !integer};
    const number_bound lo = number_bound_of(c, p, false), hi = number_bound_of(c, p, true);
    number_multiple m;
    if (is_any_number(p) || c->st != ST_OK) return any_number(&w);
    nfa_part all = numbers_between(&w, &lo, &hi);
    for (int i = 0; i < p->n && c->st == ST_OK; i++) {
        const json_t *v = json_object_get(p->of[i], "multipleOf");
        if (!v || !multiple_of(c, v, &m)) continue;
        all = nfa_both(n, all, nfa_then(n, nfa_optional(n, nfa_range(n, '-', '-')), multiples(c, &w, &m)));
    }
    return all;
}

static bool is_any_number(const schema_parts *p) {
    static const char *const words[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
    for (int i = 0; i < p->n; i++)
        for (size_t k = 0; k < COUNT_OF(words); k++)
            if (json_object_get(p->of[i], words[k])) return false;
    return true;
}

i32 schema_number(schema_compiler *c, const schema_parts *p, bool integer) {
    i32 *shared = integer ? &c->any_integer : &c->any_number;
    const bool any = is_any_number(p);
    if (any && *shared != NODE_NONE) return *shared;
    nfa *n = nfa_new();
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), NODE_NONE;
    const nfa_part all = number_part(c, p, integer, n);
    const i32 node = grammar_lexeme(c->g, grammar_dfa(c->g, n, &all, 1));
    if (any) *shared = node;
    return node;
}

bool schema_number_fits(schema_compiler *c, const schema_parts *p, const json_t *v) {
    decimal x;
    char text[2 * DIGITS_MAX + 4];
    if (is_any_number(p)) return true;
    if (!decimal_of(c, &x, v, "enum")) return false;
    snprintf(text, sizeof text, "%s%.*s%s%.*s", x.negative && !decimal_is_zero(&x) ? "-" : "", x.n_whole, x.digits,
             x.n_part ? "." : "", x.n_part, x.digits + x.n_whole);
    nfa *n = nfa_new();
    if (!n) return schema_fails(c, ST_NOMEM, "out of host memory"), false;
    const nfa_part all = number_part(c, p, !(schema_types(p) & TYPE_NUMBER), n);
    return schema_fits(c, n, all, text, strlen(text));
}
