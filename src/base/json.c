#include "base/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 512 };

/* ---- Numbers that jansson's types cannot hold ----
 *
 * jansson has 64-bit integers and doubles and refuses what exceeds them. Such a number gives way to a 0 and blanks
 * in the copy that jansson reads, so that lines and columns stay what they were. Its text is put back when the tree
 * stands: trees keep the order of their text (keys too, and none is there twice), so the k-th number of the text is
 * the k-th of the tree. It becomes an object whose only key is not UTF-8, which no JSON text can spell. */

static const char box_key[] = "\xff";

typedef struct {
    size_t at, len; /* in the text */
    u64 number;     /* how many numbers stand before it in the text */
} big_number;

typedef struct {
    char *text; /* the copy that jansson reads */
    size_t len;
    u32 depth, deepest;
    u64 numbers;
    big_number *big;
    size_t n_big, cap_big;
    size_t too_long; /* 1 + where an integer of too many digits begins */
    bool nomem;
} scan;

const char *json_big_number(const json_t *v) {
    if (!v || json_typeof(v) != JSON_OBJECT || json_object_size(v) != 1) return NULL;
    return json_string_value(json_object_get(v, box_key));
}

bool json_is_big_integer(const json_t *v) {
    const char *s = json_big_number(v);
    return s && !strpbrk(s, ".eE");
}

f64 json_f64(const json_t *v) {
    const char *s = json_big_number(v);
    if (s) return strtod(s, NULL);
    return json_is_integer(v) ? (f64)json_integer_value(v) : json_real_value(v);
}

bool json_same_number(const json_t *a, const json_t *b) {
    const char *sa = json_big_number(a), *sb = json_big_number(b);
    bool whole_a = json_is_integer(a) || json_is_big_integer(a), whole_b = json_is_integer(b) || json_is_big_integer(b);
    if (!json_is_number(a) || !json_is_number(b)) return false;
    if (!whole_a || !whole_b) return json_f64(a) == json_f64(b);
    if (sa || sb) return sa && sb && !strcmp(sa, sb); /* one of 64 bits is no larger one */
    return json_integer_value(a) == json_integer_value(b);
}

static size_t json_digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

/* Is s[n] a number of JSON? *whole: how many digits an integer has, 0 for a real. */
static bool is_number(const char *s, size_t n, size_t *whole) {
    size_t i = *s == '-', d = json_digits(s + i, n - i);
    if (!d || (d > 1 && s[i] == '0')) return false;
    i += d;
    *whole = i == n ? d : 0;
    if (i < n && s[i] == '.') {
        if (!(d = json_digits(s + i + 1, n - i - 1))) return false;
        i += 1 + d;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i += 1 + (i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-'));
        if (!(d = json_digits(s + i, n - i))) return false;
        i += d;
    }
    return i == n;
}

/* s is followed by something that no number goes on with, at the latest a NUL. */
static bool exceeds(const char *s, size_t n, size_t whole) {
    if (whole > 19) return true;
    if (whole)
        return whole == 19 && strncmp(s + n - 19, *s == '-' ? "9223372036854775808" : "9223372036854775807", 19) > 0;
    return isinf(strtod(s, NULL));
}

static void note_big(scan *c, size_t at, size_t n) {
    if (c->n_big == c->cap_big) {
        size_t cap = c->cap_big ? 2 * c->cap_big : 16;
        big_number *more = realloc(c->big, cap * sizeof *more);
        if (!more) {
            c->nomem = true;
            return;
        }
        c->big = more;
        c->cap_big = cap;
    }
    c->big[c->n_big++] = (big_number){at, n, c->numbers};
    memset(c->text + at, ' ', n);
    c->text[at] = '0';
}

/* The number that begins at `at`, outside of strings; how long it is. What is none jansson refuses. */
static size_t scan_number(scan *c, size_t at) {
    const char *s = c->text + at;
    size_t n = strspn(s, "-+.0123456789eE"), whole;
    if (is_number(s, n, &whole) && exceeds(s, n, whole)) {
        if (whole > JSON_MAX_DIGITS && !c->too_long) c->too_long = at + 1;
        note_big(c, at, n);
    }
    c->numbers++;
    return n;
}

static json_t *boxed(const char *text, const big_number *n) {
    json_t *o = json_object(), *s = json_stringn(text + n->at, n->len);
    if (o && s && json_object_set_new_nocheck(o, box_key, s) == 0) return o;
    if (!o) json_decref(s);
    json_decref(o);
    return NULL;
}

typedef struct {
    const char *text; /* as it was given */
    const big_number *next, *end;
    u64 numbers; /* passed so far */
    bool nomem;
} put_back;

/* What takes the place of the number v: NULL when it stays. */
static json_t *replacement(put_back *p, const json_t *v) {
    if (!json_is_integer(v) && !json_is_real(v)) return NULL;
    if (p->next == p->end || p->numbers++ != p->next->number) return NULL;
    json_t *box = boxed(p->text, p->next++);
    if (!box) p->nomem = true;
    return box;
}

static void put_back_numbers(put_back *p, json_t *v) {
    json_t *item, *box;
    size_t i;
    if (json_typeof(v) == JSON_OBJECT) {
        for (void *at = json_object_iter(v); at && p->next < p->end; at = json_object_iter_next(v, at)) {
            item = json_object_iter_value(at);
            box = replacement(p, item);
            if (box ? json_object_iter_set_new(v, at, box) : (put_back_numbers(p, item), 0)) p->nomem = true;
        }
    } else if (json_is_array(v)) {
        for (i = 0; i < json_array_size(v) && p->next < p->end; i++) {
            item = json_array_get(v, i);
            box = replacement(p, item);
            if (box ? json_array_set_new(v, i, box) : (put_back_numbers(p, item), 0)) p->nomem = true;
        }
    }
}

/* The tree v of `text` with its big numbers; NULL when out of memory. */
static json_t *with_big_numbers(json_t *v, const scan *c, const char *text) {
    put_back p = {.text = text, .next = c->big, .end = c->big + c->n_big};
    json_t *box = replacement(&p, v);
    if (box) {
        json_decref(v);
        return box;
    }
    put_back_numbers(&p, v);
    if (!p.nomem) return v;
    json_decref(v);
    return NULL;
}

/* ---- Text to tree ---- */

static bool is_hex4(const char *p, u32 *v) {
    u32 x = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        u32 d;
        if (c >= '0' && c <= '9')
            d = (u32)(c - '0');
        else if (c >= 'a' && c <= 'f')
            d = (u32)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            d = (u32)(c - 'A') + 10;
        else
            return false;
        x = x * 16 + d;
    }
    *v = x;
    return true;
}

/* The escape at s[i], in a string: where it ends. A lone surrogate becomes \ufffd in place. */
static size_t clean_escape(char *s, size_t len, size_t i) {
    u32 hi, lo;
    if (i + 5 >= len || s[i + 1] != 'u' || !is_hex4(s + i + 2, &hi) || hi < 0xd800 || hi >= 0xe000) return i + 1;
    bool pair = hi < 0xdc00 && i + 11 < len && s[i + 6] == '\\' && s[i + 7] == 'u' && is_hex4(s + i + 8, &lo) &&
                lo >= 0xdc00 && lo < 0xe000;
    if (pair) return i + 11;
    memcpy(s + i + 2, "fffd", 4);
    return i + 5;
}

/* Cleans escapes, takes out big numbers and finds the nesting depth: jansson's own limit is a compile-time constant
 * of the distribution's build (2048), deep enough to make recursive users overflow. */
static void scan_text(scan *c) {
    bool in_string = false;
    for (size_t i = 0; i < c->len; i++) {
        char ch = c->text[i];
        if (ch == '"')
            in_string = !in_string;
        else if (in_string)
            i = ch == '\\' ? clean_escape(c->text, c->len, i) : i;
        else if (ch == '-' || (ch >= '0' && ch <= '9'))
            i += scan_number(c, i) - 1;
        else if ((ch == '[' || ch == '{') && ++c->depth > c->deepest)
            c->deepest = c->depth;
        else if ((ch == ']' || ch == '}') && c->depth)
            c->depth--;
    }
}

/* *e names the byte text[at]. */
static void fault_at(const char *text, size_t at, const char *what, const char *fault, err *e) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n') line++, start = i + 1;
    err_set(e, ST_FORMAT, "%s: line %zu column %zu: %s", what, line, at - start + 1, fault);
}

/* Scanned and read; NULL: *e. */
static json_t *read_tree(scan *c, const char *text, const char *what, err *e) {
    json_error_t je;
    json_t *v = NULL;
    scan_text(c);
    if (c->deepest > MAX_DEPTH) {
        err_set(e, ST_FORMAT, "%s: JSON nested deeper than %d", what, MAX_DEPTH);
        return NULL;
    }
    if (c->nomem) goto nomem;
    const char *nul = memchr(text, 0, c->len); /* jansson loses one that follows a number */
    if (nul) {
        fault_at(text, (size_t)(nul - text), what, "a NUL byte", e);
        return NULL;
    }
    v = json_loadb(c->text, c->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!v && (json_error_code(&je) == json_error_out_of_memory || !je.text[0])) goto nomem;
    if (!v) {
        err_set(e, ST_FORMAT, "%s: line %d column %d: %s", what, je.line, je.column, je.text);
    } else if (c->too_long) {
        char fault[64];
        snprintf(fault, sizeof fault, "an integer of more than %d digits", JSON_MAX_DIGITS);
        fault_at(text, c->too_long - 1, what, fault, e);
        json_decref(v);
        v = NULL;
    } else if (c->n_big && !(v = with_big_numbers(v, c, text))) {
        goto nomem;
    }
    return v;
nomem:
    err_nomem(e, what, c->len);
    return NULL;
}

json_t *json_parse(const char *text, size_t len, const char *what, err *e) {
    buf copy = {0};
    buf_add(&copy, text, len);
    buf_char(&copy, 0); /* what is scanned ends, also after a failure */
    if (copy.failed) {
        err_nomem(e, what, len);
        buf_free(&copy);
        return NULL;
    }
    scan c = {.text = copy.data, .len = len};
    json_t *v = read_tree(&c, text, what, e);
    free(c.big);
    buf_free(&copy);
    return v;
}

/* ---- Typed look-ups ---- */

const char *json_type_text(const json_t *v) {
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    if (json_big_number(v)) return json_is_big_integer(v) ? "an integer" : "a number";
    return v ? names[json_typeof(v)] : "nothing";
}

/* The value under key; NULL with *st set when it is missing or null. */
static const json_t *json_find(const json_t *o, const char *key, bool need, status *st, err *e) {
    const json_t *v = json_object_get(o, key);
    *st = ST_OK;
    if (v && !json_is_null(v)) return v;
    if (need) *st = err_set(e, ST_FORMAT, "key \"%s\" is missing", key);
    return NULL;
}

status json_get_i64(const json_t *o, const char *key, i64 lo, i64 hi, bool need, i64 *out, err *e) {
    status st;
    const json_t *v = json_find(o, key, need, &st, e);
    if (!v) return st;
    i64 x;
    if (json_is_integer(v))
        x = json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)) && fabs(json_real_value(v)) < 9e15)
        x = (i64)json_real_value(v);
    else if (json_big_number(v))
        return err_set(e, ST_FORMAT, "key \"%s\" is %.40s, outside %lld..%lld", key, json_big_number(v), (long long)lo,
                       (long long)hi);
    else
        return err_set(e, ST_FORMAT, "key \"%s\" is not an integer", key);
    if (x < lo || x > hi)
        return err_set(e, ST_FORMAT, "key \"%s\" is %lld, outside %lld..%lld", key, (long long)x, (long long)lo,
                       (long long)hi);
    *out = x;
    return ST_OK;
}

status json_get_f64(const json_t *o, const char *key, f64 lo, f64 hi, bool need, f64 *out, err *e) {
    status st;
    const json_t *v = json_find(o, key, need, &st, e);
    if (!v) return st;
    if (!json_is_number(v)) return err_set(e, ST_FORMAT, "key \"%s\" is not a number", key);
    f64 x = json_number_value(v);
    if (!(x >= lo && x <= hi)) return err_set(e, ST_FORMAT, "key \"%s\" is %g, outside %g..%g", key, x, lo, hi);
    *out = x;
    return ST_OK;
}

status json_get_bool(const json_t *o, const char *key, bool need, bool *out, err *e) {
    status st;
    const json_t *v = json_find(o, key, need, &st, e);
    if (!v) return st;
    if (!json_is_boolean(v)) return err_set(e, ST_FORMAT, "key \"%s\" is not true or false", key);
    *out = json_is_true(v);
    return ST_OK;
}

status json_get_str(const json_t *o, const char *key, bool need, const char **out, err *e) {
    status st;
    const json_t *v = json_find(o, key, need, &st, e);
    if (!v) return st;
    if (!json_is_string(v)) return err_set(e, ST_FORMAT, "key \"%s\" is not a string", key);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return err_set(e, ST_FORMAT, "key \"%s\" holds a NUL character", key);
    *out = json_string_value(v);
    return ST_OK;
}
