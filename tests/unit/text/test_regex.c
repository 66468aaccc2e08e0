/* Automata and regular expressions: what they match, that every prefix can go on, where they say no. */
#include "unit.h"

#include "text/grammar/regex.h"
#include "text/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static u32 draw(u64 *seed, u32 n) {
    return (u32)((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 33) % n;
}

/* NULL: it matches nothing. */
static dfa *compile(const char *text, bool whole) {
    nfa *n = nfa_new();
    nfa_part part;
    err e = {0};
    dfa *d;
    bool empty;
    if (regex_parse(n, text, strlen(text), whole, &part, &e)) fail_msg("%s: %s", text, e.text);
    assert_int_equal(dfa_make(&d, n, &part, 1, &empty, &e), ST_OK);
    assert_true(empty == !d);
    return d;
}

static i32 walk(dfa *d, const char *text, size_t len) {
    i32 s = d ? dfa_start(d) : DFA_DEAD;
    for (size_t i = 0; i < len && s != DFA_DEAD; i++) s = dfa_next(d, s, (u8)text[i]);
    return s;
}

static bool matches(dfa *d, const char *text) {
    i32 s = walk(d, text, strlen(text));
    return s != DFA_DEAD && dfa_accepts(d, s);
}

/* From each state that there is, an end can be reached. */
static void all_states_live(dfa *d, const char *text) {
    enum { MOST = 6000 };
    static bool good[MOST];
    if (!d) return;
    memset(good, 0, sizeof good);
    for (i32 s = 0; s < dfa_states(d) && s < MOST; s++)
        for (int b = 0; b < 256; b++) dfa_next(d, s, (u8)b);
    assert_int_equal(dfa_failed(d, NULL), ST_OK);
    if (dfa_states(d) > MOST) return;
    for (bool more = true; more;) {
        more = false;
        for (i32 s = (i32)dfa_states(d) - 1; s >= 0; s--) {
            bool was = good[s];
            good[s] |= dfa_accepts(d, s);
            for (int b = 0; b < 256 && !good[s]; b++) {
                i32 to = dfa_next(d, s, (u8)b);
                good[s] = to != DFA_DEAD && good[to];
            }
            more |= good[s] != was;
        }
    }
    for (i32 s = 0; s < dfa_states(d); s++)
        if (!good[s]) fail_msg("%s: state %d has no way to an end", text, s);
}

static const struct {
    const char *text;
    bool whole;
    const char *yes[6], *no[6];
} table[] = {
    {"", true, {""}, {"a"}},
    {"", false, {"", "a", "\n"}, {"\xff"}},
    {"abc", true, {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"abc", false, {"abc", "abcd", "xabc", "ababc"}, {"", "ab", "acb"}},
    {"a.b",
     true,
     {"a.b", "a\u00e9b", "a\U0001f600b"},
     {"a\nb", "a\rb", "a\u2028b", "ab", "a..b",
      "a\xc3"
      "b"}},
    {"a|b|", true, {"a", "b", ""}, {"ab", "c"}},
    {"(a)(?:b)(?<n_1>c)", true, {"abc"}, {"ab"}},
    {"a*b+c?", true, {"b", "aabb", "bc"}, {"", "a", "ac", "bcc"}},
    {"a*?b+?c??d{2,}?", true, {"bdd", "abcddd"}, {"bd"}},
    {"(ab){2}", true, {"abab"}, {"ab", "ababab"}},
    {"(ab){2,}", true, {"abab", "ababab"}, {"ab", "ababa"}},
    {"a{0,2}b{0}c{1}", true, {"c", "ac", "aac"}, {"aaac", "abc", "acc"}},
    {"((a?b?){3}c){0,2}", true, {"", "c", "bbbc", "abababcc"}, {"bbbbc", "ababababc", "ccc"}},
    {"((a*)*|b+)*", true, {"", "aabba"}, {"c"}},
    {"(a?){3,5}", true, {"", "a", "aaaaa"}, {"aaaaaa"}},
    {"(a+){2,3}", true, {"aa", "aaaaaaa"}, {"", "a"}},
    {"[a-c\u00e9\u4e00-\u4e10]+", true, {"abc\u00e9", "\u4e05\u4e00\u4e10"}, {"d", "\u4e11", "\u00e8"}},
    {"[^a-c\"]", true, {"d", "\u00e9", "\U0010ffff", "\n"}, {"a", "\"", "", "\xed\xa0\x80", "\xc0\x80"}},
    {"[\\w-]+", true, {"a-_9"}, {"a b", "\u00e9"}},
    {"[a-\\d]", true, {"a", "-", "5"}, {"b"}},
    {"[-a][a-][^-]", true, {"-aa", "a-b"}, {"a--"}},
    {"[]", true, {NULL}, {"", "a"}},
    {"[^]", true, {"a", "\n"}, {"", "ab"}},
    {"[[.*$]+", true, {"[.*$"}, {"a"}},
    {"[^\\d\\s][\\D]", true, {"ab", "_\u3000"}, {"1a", "\u3000a", "a1"}},
    {"\\d\\D\\w\\W\\s\\S", true, {"1a_- x", "0 A\u00e9\ufeff\u00e9"}, {"aa_- x", "1a_-xx", "1aaa x"}},
    {"\\t\\n\\r\\f\\v\\cA\\x41\\u0042[\\b]", true, {"\t\n\r\f\v\1AB\b"}, {"\t"}},
    {"\\uD83D\\uDE00[\\uD83D\\uDE01-\\u{1F603}]", true, {"\U0001f600\U0001f602"}, {"\U0001f600\U0001f600"}},
    {"\\uD83D|a\\{\\}\\/\\-\\.\\_\\\u00e9", true, {"a{}/-._\u00e9"}, {"\xed\xa0\xbd"}},
    {"\\p{L}+\\P{L}\\p{N}[\\p{Letter}\\p{Number}]*", true, {"\u00e9\u4e2d-\u0663", "a 1a1"}, {"1-1", "aa1", "a--"}},
    {"{a{,2}{x}]}", true, {"{a{,2}{x}]}"}, {"a"}},
    {"^a", false, {"a", "ab"}, {"ba", ""}},
    {"a$", false, {"a", "ba"}, {"ab", "a\n"}},
    {"^a|b$", false, {"a", "ax", "b", "xb"}, {"xa", "bx", ""}},
    {"^(a|b)$", false, {"a", "b"}, {"ab", "ax", ""}},
    {"(^a|b)$", false, {"a", "b", "xb"}, {"xa", "ax", "bx"}},
    {"(^|x)a", false, {"a", "xa", "yxab"}, {"ya", ""}},
    {"a($|,)", false, {"a", "a,", "xa,y"}, {"ab", ","}},
    {"^$", false, {""}, {"a", "\n"}},
    {"$^|($)(^)", false, {""}, {"a"}},
    {"a^b|a$b|^^c$$", false, {"c"}, {"ab", "cc", ""}},
    {"(a^|^b)*c", false, {"c", "bc", "xc", "abc"}, {"ab", ""}},
    {"^a$", true, {"a"}, {"aa", ""}},
    {"(^|b)a(b|$)", true, {"a", "ba", "bab", "ab"}, {"", "aa", "b"}},
};

static void matching(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        dfa *d = compile(table[i].text, table[i].whole);
        for (size_t k = 0; k < 6 && table[i].yes[k]; k++)
            if (!matches(d, table[i].yes[k])) fail_msg("%s does not match %s", table[i].text, table[i].yes[k]);
        for (size_t k = 0; k < 6 && table[i].no[k]; k++)
            if (matches(d, table[i].no[k])) fail_msg("%s matches %s", table[i].text, table[i].no[k]);
        all_states_live(d, table[i].text);
        dfa_free(d);
    }
}

static const struct {
    const char *text;
    status st;
    int place;
} wrong[] = {
    {"a)", ST_INPUT, 2},
    {"\u00e9(a", ST_INPUT, 2},
    {"a[b", ST_INPUT, 2},
    {"a\\", ST_INPUT, 2},
    {"*a", ST_INPUT, 1},
    {"a|+", ST_INPUT, 3},
    {"a**", ST_INPUT, 3},
    {"^*", ST_INPUT, 2},
    {"{2}", ST_INPUT, 1},
    {"ab{2,1}", ST_INPUT, 2},
    {"[b-a]", ST_INPUT, 2},
    {"\\x4g", ST_INPUT, 1},
    {"\\u123", ST_INPUT, 1},
    {"\\u{110000}", ST_INPUT, 1},
    {"\\u{}", ST_INPUT, 1},
    {"\\c1", ST_INPUT, 1},
    {"\\01", ST_INPUT, 1},
    {"\\q", ST_INPUT, 1},
    {"\\p", ST_INPUT, 1},
    {"(?", ST_INPUT, 1},
    {"(?<1>a)", ST_INPUT, 1},
    {"(?<>a)", ST_INPUT, 1},
    {"a\xff", ST_INPUT, 2},
    {"[\xc3", ST_INPUT, 2},
    {"a\\b", ST_UNSUPPORTED, 2},
    {"\\B", ST_UNSUPPORTED, 1},
    {"(a)\\1", ST_UNSUPPORTED, 4},
    {"\\k<a>", ST_UNSUPPORTED, 1},
    {"(?=a)", ST_UNSUPPORTED, 1},
    {"b(?!a)", ST_UNSUPPORTED, 2},
    {"(?<=a)", ST_UNSUPPORTED, 1},
    {"(?<!a)", ST_UNSUPPORTED, 1},
    {"(?i)a", ST_UNSUPPORTED, 1},
    {"(?-i:a)", ST_UNSUPPORTED, 1},
    {"\\p{Greek}", ST_UNSUPPORTED, 1},
    {"a{100000000}", ST_LIMIT, 1},
    {"((a{1000}){1000}){1000}", ST_LIMIT, 2},
    {"((a?){9999}b){9999}", ST_LIMIT, 1},
};

static void errors(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        nfa *n = nfa_new();
        nfa_part part;
        err e = {0};
        int place = 0;
        status st = regex_parse(n, wrong[i].text, strlen(wrong[i].text), i % 2, &part, &e);
        if (st != wrong[i].st) fail_msg("%s: %d %s", wrong[i].text, st, e.text);
        assert_int_equal(sscanf(e.text, "regular expression, character %d:", &place), 1);
        if (place != wrong[i].place) fail_msg("%s: %s", wrong[i].text, e.text);
        nfa_free(n);
    }
}

static void depth(void **state) {
    (void)state;
    for (size_t n = REGEX_DEPTH_MAX; n <= 5000; n += 2400) {
        char *text = calloc(1, 2 * n + 2);
        nfa *a = nfa_new();
        nfa_part part;
        memset(text, '(', n);
        text[n] = 'a';
        memset(text + n + 1, ')', n);
        assert_int_equal(regex_parse(a, text, 2 * n + 1, true, &part, NULL), n > REGEX_DEPTH_MAX ? ST_LIMIT : ST_OK);
        nfa_free(a);
        free(text);
    }
}

static void large(void **state) {
    char *text = calloc(1, 5002);
    dfa *d = compile("[a-z]{1,5000}", true);
    nfa *n = nfa_new();
    nfa_part part;
    bool empty;
    (void)state;
    memset(text, 'q', 5001);
    assert_int_equal(walk(d, text, 5001), DFA_DEAD);
    assert_true(dfa_accepts(d, walk(d, text, 5000)));
    assert_false(dfa_accepts(d, dfa_start(d)));
    assert_int_equal(dfa_states(d), 5001);
    all_states_live(d, "[a-z]{1,5000}");
    dfa_free(d);
    d = compile("(a?q?){4000}", true);
    assert_int_not_equal(walk(d, text, 1000), DFA_DEAD);
    dfa_free(d);
    assert_int_equal(regex_parse(n, "\\p{L}{1,100000}", 15, true, &part, NULL), ST_LIMIT);
    assert_int_equal(dfa_make(&d, n, &part, 1, &empty, NULL), ST_LIMIT); /* once and for all; takes it */
    assert_null(d);
    free(text);
}

/* More states than a dfa may have: it says so, stays as it is and says DFA_DEAD. */
static void too_many_states(void **state) {
    dfa *d = compile("a[ab]{17}c", false);
    u64 seed = 3;
    i32 s = dfa_start(d);
    err e = {0};
    (void)state;
    for (int i = 0; i < 400000 && s != DFA_DEAD; i++) s = dfa_next(d, s, "ab"[draw(&seed, 2)]);
    assert_int_equal(s, DFA_DEAD);
    assert_int_equal(dfa_failed(d, &e), ST_LIMIT);
    assert_true(dfa_states(d) < DFA_STATES_MAX);
    dfa_free(d);
}

/* ---- against a matcher that keeps sets of places ---- */

enum { NODES = 40 };
typedef struct {
    char kind; /* '.' one of a and b, a b ^ $ themselves, '&' row, '|' choice, '{' repeat */
    int left, right, min, max;
} node;
typedef struct {
    node nodes[NODES];
    int n;
    char text[4096];
} tree;

static int grow(tree *t, u64 *seed, int depth_left) {
    int at = t->n++, k = (int)draw(seed, depth_left && t->n < NODES - 4 ? 11 : 6);
    node x = {.kind = "aabb.^&&|{{"[k]};
    size_t len = strlen(t->text);
    if (x.kind == '^' && draw(seed, 2)) x.kind = '$';
    if (k >= 6)
        strcpy(t->text + len, "(?:");
    else
        memcpy(t->text + len, &x.kind, 1);
    if (k >= 6) x.left = grow(t, seed, depth_left - 1);
    if (x.kind == '|') strcat(t->text, "|");
    if (k >= 6 && x.kind != '{') x.right = grow(t, seed, depth_left - 1);
    if (k >= 6) strcat(t->text, ")");
    if (x.kind == '{') {
        x.min = (int)draw(seed, 3);
        x.max = draw(seed, 3) ? x.min + (int)draw(seed, 3) : -1;
        char *end = t->text + strlen(t->text);
        if (x.max < 0)
            sprintf(end, "{%d,}", x.min);
        else
            sprintf(end, "{%d,%d}", x.min, x.max);
    }
    t->nodes[at] = x;
    return at;
}

/* The places behind t's node from any of `places` (bit i: behind i characters). */
static u32 ends(const tree *t, int at, u32 places, const char *text, size_t len) {
    node x = t->nodes[at];
    u32 out = 0, now = places;
    switch (x.kind) {
    case '^': return places & 1;
    case '$': return places & 1u << len;
    case '&': return ends(t, x.right, ends(t, x.left, places, text, len), text, len);
    case '|': return ends(t, x.left, places, text, len) | ends(t, x.right, places, text, len);
    case '{':
        for (int i = 0; i <= (x.max < 0 ? x.min + (int)len + 1 : x.max); i++) {
            if (i >= x.min) out |= now;
            now = ends(t, x.left, now, text, len);
        }
        return out;
    default:
        for (size_t i = 0; i < len; i++)
            if (places >> i & 1 && (x.kind == '.' || x.kind == text[i])) out |= 2u << i;
        return out;
    }
}

static void random_expressions(void **state) {
    u64 seed = 5;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        tree t = {0};
        bool whole = round % 2;
        grow(&t, &seed, 4);
        dfa *d = compile(t.text, whole);
        for (size_t len = 0; len <= 6; len++) {
            for (u32 bits = 0; bits < 1u << len; bits++) {
                char text[8] = {0};
                for (size_t i = 0; i < len; i++) text[i] = "ab"[bits >> i & 1];
                u32 all = (2u << len) - 1, found = ends(&t, 0, whole ? 1 : all, text, len);
                bool want = whole ? found >> len & 1 : found != 0;
                if (matches(d, text) != want) fail_msg("%s %s%s", t.text, want ? "" : "not ", text);
            }
        }
        if (round % 20 == 0) all_states_live(d, t.text);
        dfa_free(d);
    }
}

/* ---- automata ---- */

/* Characters of random ranges: each code point there is, and no other bytes. */
static void chars(void **state) {
    u64 seed = 9;
    (void)state;
    for (int round = 0; round < 12; round++) {
        static const u32 scale[] = {0x100, 0x1000, 0x11000, 0x110000};
        u32 ranges[8], limit = scale[round % 4], at = 0;
        size_t n_ranges = 0;
        for (at = draw(&seed, limit / 2); n_ranges < 4 && at < limit; n_ranges++) {
            ranges[2 * n_ranges] = at;
            at += draw(&seed, limit / 5);
            ranges[2 * n_ranges + 1] = at < limit ? at : limit - 1;
            at += 2 + draw(&seed, limit / 9);
        }
        nfa *n = nfa_new();
        nfa_part part = round ? nfa_chars(n, ranges, n_ranges) : nfa_any_char(n);
        dfa *d;
        assert_int_equal(dfa_make(&d, n, &part, 1, NULL, NULL), ST_OK);
        for (u32 cp = 0x80; cp < 0x110000; cp++) {
            char text[4] = {(char)(0xf0 | cp >> 18), (char)(0x80 | (cp >> 12 & 63)), (char)(0x80 | (cp >> 6 & 63)),
                            (char)(0x80 | (cp & 63))};
            size_t skip = cp < 0x800 ? 2 : cp < 0x10000 ? 1 : 0;
            if (skip) text[skip] = (char)(skip == 2 ? 0xc0 | cp >> 6 : 0xe0 | cp >> 12);
            bool want = !round;
            for (size_t i = 0; i < n_ranges; i++) want |= ranges[2 * i] <= cp && cp <= ranges[2 * i + 1];
            want &= cp < 0xd800 || cp > 0xdfff;
            assert_int_equal(walk(d, text + skip, 4 - skip) != DFA_DEAD, want);
        }
        dfa_free(d);
    }
}

static void any_char_is_utf8(void **state) {
    static const u8 edge[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2,
                              0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf3, 0xf4, 0xf5};
    enum { N = COUNT_OF(edge) };
    dfa *d = compile("[^]*", true);
    (void)state;
    for (u32 i = 0; i < N * N * N * N; i++) {
        u8 text[4] = {edge[i % N], edge[i / N % N], edge[i / N / N % N], edge[i / N / N / N]};
        i32 s = walk(d, (char *)text, 4);
        assert_int_equal(s != DFA_DEAD && dfa_accepts(d, s), utf8_valid(text, 4) == 4);
    }
    dfa_free(d);
}

static void same_list(const i32 *list, size_t n, const char *want) {
    char text[64] = "";
    for (size_t i = 0; i < n; i++) sprintf(text + strlen(text), "%d ", list[i]);
    assert_string_equal(text, want);
}

static void labels(void **state) {
    static const struct {
        const char *text, *labels, *reaches;
    } at[] = {{"", "", "0 1 2 4 "},  {"g", "4 ", "0 1 2 4 "}, {"get", "0 4 ", "0 1 4 "}, {"get_", "", "1 "},
              {"get_x", "1 ", "1 "}, {"go", "4 ", "2 4 "},    {"gone", "2 4 ", "2 4 "},  {"q", "4 ", "4 "},
              {"goner", "4 ", "4 "}, {"getting", "4 ", "4 "}};
    nfa *n = nfa_new();
    nfa_part parts[5] = {nfa_bytes(n, "get", 3), nfa_bytes(n, "get_x", 5), nfa_bytes(n, "gone", 4), nfa_never(n), {0}};
    dfa *d;
    size_t count;
    (void)state;
    assert_int_equal(regex_parse(n, "[a-z]+", 6, true, &parts[4], NULL), ST_OK);
    assert_int_equal(dfa_make(&d, n, parts, 5, NULL, NULL), ST_OK);
    for (size_t i = 0; i < COUNT_OF(at); i++) {
        i32 s = walk(d, at[i].text, strlen(at[i].text));
        assert_int_not_equal(s, DFA_DEAD);
        const i32 *list = dfa_labels(d, s, &count);
        same_list(list, count, at[i].labels);
        assert_true(dfa_accepts(d, s) == (count > 0));
        list = dfa_reaches(d, s, &count);
        same_list(list, count, at[i].reaches);
    }
    assert_int_equal(walk(d, "get_y", 5), DFA_DEAD);
    assert_int_equal(dfa_next(d, DFA_DEAD, 'x'), DFA_DEAD);
    assert_false(dfa_accepts(d, DFA_DEAD));
    dfa_free(d);
}

/* Thousands of literals with much in common: all of them are found, in the time and room of their text. */
static void many_labels(void **state) {
    enum { N = 6000 };
    nfa *n = nfa_new();
    nfa_part *parts = calloc(N, sizeof *parts);
    char text[64];
    dfa *d;
    size_t count;
    (void)state;
    for (int i = 0; i < N; i++)
        parts[i] = nfa_bytes(n, text, (size_t)sprintf(text, "a_long_prefix_that_all_have_%d", i));
    assert_int_equal(dfa_make(&d, n, parts, N, NULL, NULL), ST_OK);
    for (int i = 0; i < N; i++) {
        i32 s = walk(d, text, (size_t)sprintf(text, "a_long_prefix_that_all_have_%d", i));
        const i32 *found = dfa_labels(d, s, &count);
        assert_int_equal(count, 1);
        assert_int_equal(found[0], i);
    }
    dfa_reaches(d, dfa_start(d), &count);
    assert_int_equal(count, N);
    dfa_free(d);
    free(parts);
}

static void both(void **state) {
    static const char *const pairs[][2] = {{"[ab]*", "(a|bb)*"}, {"(..)*", "(...)*"},  {"a*b*", "(ab)*|b*"},
                                           {"\\w+", "[^a]*"},    {"a{2,5}", "a{4,9}"}, {"a+", "b+"}};
    u64 seed = 2;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        nfa *n = nfa_new();
        nfa_part a, b;
        bool empty;
        dfa *d, *one = compile(pairs[i][0], true), *two = compile(pairs[i][1], true);
        assert_int_equal(regex_parse(n, pairs[i][0], strlen(pairs[i][0]), true, &a, NULL), ST_OK);
        assert_int_equal(regex_parse(n, pairs[i][1], strlen(pairs[i][1]), true, &b, NULL), ST_OK);
        a = nfa_both(n, a, b);
        assert_int_equal(dfa_make(&d, n, &a, 1, &empty, NULL), ST_OK);
        assert_int_equal(empty, i == COUNT_OF(pairs) - 1);
        for (int k = 0; k < 2000; k++) {
            char text[16] = {0};
            for (u32 c = 0, len = draw(&seed, 13); c < len; c++) text[c] = "ab"[draw(&seed, k % 8 ? 2 : 1)];
            assert_int_equal(matches(d, text), matches(one, text) && matches(two, text));
        }
        all_states_live(d, pairs[i][0]);
        dfa_free(d);
        dfa_free(one);
        dfa_free(two);
    }
}

/* A copy is the same language, and what happens to one does not touch the other. */
static void copies(void **state) {
    nfa *n = nfa_new();
    nfa_part a = nfa_or(n, nfa_star(n, nfa_bytes(n, "ab", 2)), nfa_range(n, 'x', 'z')), b = nfa_copy(n, a);
    nfa_part parts[3] = {nfa_then(n, a, nfa_bytes(n, "!", 1)), nfa_not_empty(n, nfa_copy(n, b)), nfa_optional(n, b)};
    dfa *d;
    size_t count;
    (void)state;
    assert_int_equal(dfa_make(&d, n, parts, 3, NULL, NULL), ST_OK);
    static const char *const texts[] = {"", "abab", "y", "!", "ab!", "z!"};
    static const char *const want[] = {"2 ", "1 2 ", "1 2 ", "0 ", "0 ", "0 "};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const i32 *found = dfa_labels(d, walk(d, texts[i], strlen(texts[i])), &count);
        same_list(found, count, want[i]);
    }
    assert_int_equal(walk(d, "aba!", 4), DFA_DEAD);
    dfa_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching),
        cmocka_unit_test(errors),
        cmocka_unit_test(depth),
        cmocka_unit_test(large),
        cmocka_unit_test(too_many_states),
        cmocka_unit_test(random_expressions),
        cmocka_unit_test(chars),
        cmocka_unit_test(any_char_is_utf8),
        cmocka_unit_test(labels),
        cmocka_unit_test(many_labels),
        cmocka_unit_test(both),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
