/* Grammars in llama.cpp's notation: what they match, what can go on, where mistakes are, and what they cost. */
#include "unit.h"

#include "text/grammar/ebnf.h"
#include "text/grammar/matcher.h"
#include "base/buf.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    grammar *g;
    matcher *m;
} compiled;

static compiled compile(const char *text, size_t len) {
    compiled c;
    err e = {0};
    if (grammar_of_ebnf(&c.g, text, len, &e) != ST_OK) fail_msg("%.200s: %s", text, e.text);
    if (matcher_open(&c.m, c.g, &e) != ST_OK) fail_msg("%.200s: %s", text, e.text);
    return c;
}

static void release(compiled c) {
    matcher_close(c.m);
    grammar_free(c.g);
}

static i32 walk(const compiled *c, i32 state, const char *text, size_t len) {
    for (size_t i = 0; i < len && state != MATCHER_DEAD; i++) state = matcher_next(c->m, state, (u8)text[i]);
    return state;
}

/* '+' a whole text, '.' the beginning of one alone, '-' neither. */
static char judge(const compiled *c, const char *text, size_t len) {
    const i32 s = walk(c, matcher_start(c->m), text, len);
    assert_int_equal(matcher_failed(c->m, NULL), ST_OK);
    return matcher_accepts(c->m, s) ? '+' : s != MATCHER_DEAD ? '.' : '-';
}

/* Each text with its judgement in front. */
static const struct {
    const char *grammar, *texts[14];
} table[] = {
    {"root ::= \"ab\"", {"+ab", ".", ".a", "-abc", "-b"}},
    {"# first\nroot::=\"a\"#x\n\n  # last", {"+a", "-aa"}},
    {"root ::= ", {"+", "-a"}},
    {"root ::= \"\"", {"+", "-a"}},
    {"root ::= \"a\" | | \"b\"", {"+", "+a", "+b", "-ab"}},
    {"root ::= (\"a\" |) \"b\" (| \"c\")", {"+b", "+ab", "+bc", "+abc", ".a", "-ac"}},
    {"root ::= \"a\"\n | \"b\"\n# between\n\n|\n\"c\" |\n\n\"d\"\n", {"+a", "+b", "+c", "+d", "-ab"}},
    {"root ::=\n\n\"a\" (\n\"b\"\n|\r\n\"c\" # here\n*\n)\r\nx ::= \"d\"\r\n", {"+ab", "+a", "+accc", "-ad"}},
    {"root ::= b a\nb ::= \"x\"\na ::= b \"y\"", {"+xxy", ".xx", "-xy"}},
    {"root ::= -1_a-B\n-1_a-B ::= \"q\"", {"+q"}},
    {"root ::= \"a\"* \"b\"+ \"c\"?", {"+b", "+aabbc", ".aa", "-ac", "-bcc"}},
    {"root ::= \"ab\" *", {"+", "+abab", ".aba", "-abb"}},
    {"root ::= \"a\"{2} \"b\"{1,} \"c\"{,2} \"d\"{ 1 , 2 }",
     {"+aabd", "+aabbbccdd", "-abd", "-aabcccd", "-aad", ".aa"}},
    {"root ::= \"a\"{0} \"b\"{0,0} \"c\"", {"+c", "-a", "-b"}},
    {"root ::= (\"a\" | \"bc\"){33,34}\"\"",
     {"+aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "+bcaaaaaaaaaaaaaaaabcaaaaaaaaaaaaaabc",
      ".aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "-b,"}},
    {"root ::= \"a\"{3,5}?", {"+", "+aaa", "+aaaaa", ".aa", "-aaaaaa"}},
    {"root ::= \"a\"{2}+*", {"+", "+aa", "+aaaa", ".aaa"}},
    {"root ::= [a-c_-] [-x] [x-] [^a-c\\]] [\\[\\]\\-\\^\\\\\\\"]",
     {"+_--d[", "+-xx\n\"", "+axx[\\", "-d", "-axxa", ".axx"}},
    {"root ::= [\\x41-\\u0043\\U00000045]+", {"+ABCE", "-D"}},
    {"root ::= [^] . [.*|#()\"]", {"+\n\n#", "+\u00e9\U0010ffff\"", "-aaa", ".\xf0\x9f\x98", "-\xff", "-\xed\xa0\x80"}},
    {"root ::= [a-fc-kz]+ [bbb]", {"+zdb", "+gkb", "-y"}},
    {"root ::= [^\\x00-\\x1f\\uD800-\\uDFFF]", {"+a", "+\ue000", "-\n"}},
    {"root ::= \"a\" | [\\uD800-\\uDFFF]", {"+a", "-\xed\xa0\x80"}},
    {"root ::= [\\u4e00-\\u9fff]+ (\"\u3001\" [\u3041-\u3096]+)* | [\u0430-\u044f\u0451]+ | [\u0e01-\u0e3a]{2}",
     {"+\u4e2d\u6587", "+\u4e2d\u3001\u3042\u3044", "+\u0451\u043b\u043a\u0430", "+\u0e01\u0e02", ".\u0e01",
      ".\xe4\xb8", "-\u4e2da", "-\u3042", "-\u0410"}},
    /* a language that none of them has a regular expression for */
    {"root ::= \"(\" root \")\" | \"\"", {"+", "+()", "+((()))", ".(()", "-())", "-()("}},
    {"root ::= (\"(\" root \")\" | \"[\" root \"]\")*", {"+", "+()[]([()])", ".([", "-([)", "-)"}},
    {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | [ab]?", {"+", "+a", "+abba", "+ababa", ".aab"}},
    /* nodes that may be empty, and ways that are many */
    {"root ::= e* e{0,5} e{3} \"x\"\ne ::= \"a\"? | e2\ne2 ::= \"\" | \"b\" e2 \"b\"",
     {"+x", "+aabbx", ".bb", ".b", "-xb"}},
    {"root ::= (r?)* (r*){0,100000} (r?){2,100000} (\"a\"*){9,100000} (\"\"){20}\nr ::= \"(\" r? \")\"",
     {"+", "+()(())aaa", ".(", "-a("}},
    {"root ::= r r r\nr ::= \"a\" r | \"a\" | \"aa\" r |", {"+", "+a", "+aaaaaaaaaaaaaaaaaaaa", "-b"}},
    {"root ::= x | y\nx ::= \"a\" x \"b\" | \"\"\ny ::= \"a\" y \"bb\" | \"\"",
     {"+aabb", "+aabbbb", ".aabbb", "-aabbbbb"}},
    {"root ::= root | \"a\"", {"+a", "-aa"}},
    {"root ::= \"a\" | never\nnever ::= \"b\" never", {"+a", "-b"}},
    {"root ::= never{0,3} never? \"a\" never*\nnever ::= \"b\" never \"b\"", {"+a", "-b", "-ab"}},
    {"root ::= \"a\"\nunused ::= unused \"a\"", {"+a"}},
    {"root ::= item{2,3}\nitem ::= \"x\" item \"y\" | \",\"", {"+,,", "+xx,yyx,y,", ".,", "-,,,,"}},
};

static void matching(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        compiled c = compile(table[i].grammar, strlen(table[i].grammar));
        for (size_t k = 0; k < 14 && table[i].texts[k]; k++) {
            const char *text = table[i].texts[k], got = judge(&c, text + 1, strlen(text + 1));
            if (got != text[0]) fail_msg("%s: %s is %c", table[i].grammar, text, got);
        }
        release(c);
    }
}

/* ---- grammars as people write them ---- */

static const char arithmetic[] = "root  ::= (expr \"=\" ws term \"\\n\")+\n"
                                 "expr  ::= term ([-+*/] term)*\n"
                                 "term  ::= ident | num | \"(\" ws expr \")\" ws\n"
                                 "ident ::= [a-z] [a-z0-9_]* ws\n"
                                 "num   ::= [0-9]+ ws\n"
                                 "ws    ::= [ \\t\\n]*\n";

static const char json[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "    string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array  ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws     ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char list[] =
    "# a list of points\nroot ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"";

static const char chess[] =
    "root   ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
    "move   ::= (pawn | piece | castle) [+#]?\n"
    "piece  ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
    "pawn   ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBQR])?\n"
    "castle ::= \"O-O\" \"-O\"?\n";

static const char program[] = "root ::= (space | comment | statement)*\n"
                              "space ::= [ \\t\\n]\n"
                              "comment ::= \"//\" [^\\n]* \"\\n\" | \"/*\" ([^*] | \"*\"+ [^*/])* \"*\"+ \"/\"\n"
                              "statement ::= \"if\" space* \"(\" expr \")\" space* statement\n"
                              "            | \"{\" root \"}\"\n"
                              "            | expr? \";\"\n"
                              "expr ::= atom (space* (\"==\" | \"<=\" | [-+*<=]) space* atom)*\n"
                              "atom ::= [a-z]+ (\"(\" (expr (\",\" expr)*)? \")\")? | [0-9]+ | \"(\" expr \")\"\n";

static const struct {
    const char *grammar, *texts[12];
} people[] = {
    {arithmetic,
     {"+x=1\n", "+1 +2*( y_2 -3\n)= 4\n", "+a=1\nb=2\n", ".1 +(", ".a=1\nb", "-1 ++ 2", "-(=1\n", "-(1))", "-A"}},
    {json,
     {"+{}", "+{\"a\": [1, -2.5e+3, \"\\u00e9\\n\u00e9\", {\"b\": null}], \"c\":true}", "+{\n  \"a\": []\n}\n   ", ".",
      ".{\"a", ".{\"a\": [[[", ".{\"a\": t", "-[]", "-{\"a\": 01}", "-{\"a\",", "-{\"\n", "-{\"a\": [1,]}"}},
    {list, {"+- a\n", "+- a b\n- \u4e2d\u6587\n", ".- ", ".- a\n-", "-a", "-- \n", "-- a\xe2\x80\xa8"}},
    {chess,
     {"+1. e4 e5\n2. Nf3 Nc6\n3. Bb5 a6\n", "+1. e4 d5\n2. exd5 Qxd5\n10. O-O-O O-O+\n", ".1. e4 e5\n", ".1. N1",
      "-1. e9", "-1. e4 e5\n2. Nf3 Zc6", "-2. e4", "-1. O-O-O-"}},
    {program,
     {"+", "+a = b + 1; // what\n", "+/* a ** b */ if (f(x,y)) { g(); /***/ }", "-a = ;;b b", "+if(a) if (b<=(c)) ;",
      "./* a *", ".if (f(", "-if (a) }", "-// a\n*", "+;{{}}"}},
};

static void as_people_write(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(people); i++) {
        compiled c = compile(people[i].grammar, strlen(people[i].grammar));
        for (size_t k = 0; k < 12 && people[i].texts[k]; k++) {
            const char *text = people[i].texts[k], got = judge(&c, text + 1, strlen(text + 1));
            if (got != text[0]) fail_msg("%s%s is %c", people[i].grammar, text, got);
        }
        release(c);
    }
}

/* ---- mistakes ---- */

static const struct {
    const char *text;
    status st;
    int line, column;
    const char *says;
} wrong[] = {
    {"", ST_INPUT, 1, 1, "root"},
    {"a ::= \"x\"\n", ST_INPUT, 2, 1, "root"},
    {"root ::= a | bc", ST_INPUT, 1, 10, "rule a,"},
    {"root ::= a\na ::= \"\u00e9\" b_c\"\"", ST_INPUT, 2, 11, "rule b_c,"},
    {"root ::= \"a\"\n\n root ::= \"b\"", ST_INPUT, 3, 2, "root has been defined"},
    {"root ::= \"ab\n\"", ST_INPUT, 1, 10, "closing \""},
    {"root ::= \"ab", ST_INPUT, 1, 10, "closing \""},
    {"root ::= [ab\n]", ST_INPUT, 1, 10, "closing ]"},
    {"root ::= [a-\n]", ST_INPUT, 1, 10, "closing ]"},
    {"root ::= []", ST_INPUT, 1, 10, "characters"},
    {"root ::= [ac-b]", ST_INPUT, 1, 12, "range"},
    {"root ::= \"a\" (\"b\"\n", ST_INPUT, 1, 14, "closing )"},
    {"root ::= (\"a\"\nb ::= \"b\"", ST_INPUT, 2, 3, "its )"},
    {"root ::= \"a\")", ST_INPUT, 1, 13, "("},
    {"root ::= \"a\\q\"", ST_INPUT, 1, 12, "expected behind \\"},
    {"root ::= \"\\", ST_INPUT, 1, 11, "expected behind \\"},
    {"root ::= \"\\x4\"", ST_INPUT, 1, 11, "2 hexadecimal"},
    {"root ::= \"\\u123", ST_INPUT, 1, 11, "4 hexadecimal"},
    {"root ::= [\\U0010FFF]", ST_INPUT, 1, 11, "8 hexadecimal"},
    {"root ::= [\\U00110000]", ST_INPUT, 1, 11, "no character"},
    {"root ::= \"\\uD83D\\uDE00\"", ST_INPUT, 1, 11, "no character"},
    {"root ::= \"a\"{3,2}", ST_INPUT, 1, 13, "m not above n"},
    {"root ::= \"a\"{}", ST_INPUT, 1, 13, "{m,n}"},
    {"root ::= \"a\"{,}", ST_INPUT, 1, 13, "{m,n}"},
    {"root ::= \"a\"{2", ST_INPUT, 1, 13, "{m,n}"},
    {"root ::= \"a\"{1000000001}", ST_LIMIT, 1, 14, "count"},
    {"root ::= *", ST_INPUT, 1, 10, "not *"},
    {"root ::= \"a\" | +", ST_INPUT, 1, 16, "not +"},
    {"root ::= \"a\" 'b'", ST_INPUT, 1, 14, "not '"},
    {"root ::= \"a\" \u00e9", ST_INPUT, 1, 14, "not \u00e9"},
    {"root ::= \"a\"\n\"b\"", ST_INPUT, 2, 1, "name of a rule, not \""},
    {"root = \"a\"", ST_INPUT, 1, 6, "::=, not ="},
    {"root\n::= \"a\"", ST_INPUT, 1, 5, "::=, but the line ends"},
    {"root ::= \"a\" b ::= \"b\"", ST_INPUT, 1, 16, "its line"},
    {"root ::=\nb ::= \"b\"", ST_INPUT, 2, 3, "its line"},
    {"root ::= \"a\"\n# \xff", ST_INPUT, 2, 3, "UTF-8"},
    {"root ::= \"\xe4\xb8\"", ST_INPUT, 1, 11, "UTF-8"},
};

static void mistakes(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        grammar *g;
        err e = {0};
        int line = 0, column = 0;
        const status st = grammar_of_ebnf(&g, wrong[i].text, strlen(wrong[i].text), &e);
        if (st != wrong[i].st || g) fail_msg("%s: %d %s", wrong[i].text, st, e.text);
        assert_int_equal(sscanf(e.text, "grammar, line %d, column %d:", &line, &column), 2);
        if (line != wrong[i].line || column != wrong[i].column || !strstr(e.text, wrong[i].says))
            fail_msg("%s: %s", wrong[i].text, e.text);
        assert_int_equal(grammar_of_ebnf(&g, wrong[i].text, strlen(wrong[i].text), NULL), st);
    }
}

static const struct {
    const char *text;
    status st;
} unusable[] = {
    {"root ::= root \"a\" | \"a\"", ST_UNSUPPORTED},
    {"root ::= a\na ::= b? \"x\"\nb ::= \"\" a \"y\"", ST_UNSUPPORTED},
    {"root ::= a+\na ::= \"x\"* root | \"y\"", ST_UNSUPPORTED},
    {"root ::= \"a\" root", ST_INPUT},
    {"root ::= root", ST_INPUT},
    {"root ::= [\\uD800]", ST_INPUT},
    {"root ::= \"a\" a\na ::= b \"x\"\nb ::= a", ST_INPUT},
};

static void nothing_to_walk(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(unusable); i++) {
        grammar *g;
        err e = {0};
        const status st = grammar_of_ebnf(&g, unusable[i].text, strlen(unusable[i].text), &e);
        if (st != unusable[i].st || g) fail_msg("%s: %d %s", unusable[i].text, st, e.text);
        if (strncmp(e.text, "grammar: ", 9) != 0) fail_msg("%s: %s", unusable[i].text, e.text);
        assert_int_equal(grammar_of_ebnf(&g, unusable[i].text, strlen(unusable[i].text), NULL), st);
    }
}

/* ---- limits ---- */

static void add_times(buf *b, const char *text, int n) {
    while (n-- > 0) buf_str(b, text);
}

static status build(buf *b, grammar **g) {
    err e = {0};
    assert_false(b->failed);
    const status st = grammar_of_ebnf(g, b->data, b->len, &e);
    if (st != ST_OK) assert_true(strlen(e.text) > 10 && !*g);
    buf_free(b);
    return st;
}

static void depth(void **state) {
    (void)state;
    for (int n = EBNF_DEPTH_MAX; n < 300000; n = n * 30 + 1) {
        static const char *const ends[] = {")", "*)", "\"b\"){9,11}", "?|a)+"};
        for (size_t k = 0; k < COUNT_OF(ends); k++) {
            buf b = {0};
            grammar *g;
            buf_str(&b, "a ::= \"c\" a \"d\" | \"e\"\nroot ::= ");
            add_times(&b, "(", n);
            buf_str(&b, "\"a\"");
            add_times(&b, ends[k], n);
            const status st = b.len > EBNF_BYTES_MAX || n > EBNF_DEPTH_MAX ? ST_LIMIT : ST_OK;
            assert_int_equal(build(&b, &g), st);
            grammar_free(g);
        }
    }
    for (int n = 500; n < 1000000; n *= 40) {
        buf b = {0};
        grammar *g;
        buf_str(&b, "root ::= \"a\"");
        add_times(&b, "?", n);
        assert_int_equal(build(&b, &g), n > 500 ? ST_LIMIT : ST_OK);
        grammar_free(g);
    }
}

static void sizes(void **state) {
    (void)state;
    buf b = {0};
    grammar *g;
    buf_str(&b, "root ::= \"a\"");
    add_times(&b, " ", EBNF_BYTES_MAX - (int)b.len);
    assert_int_equal(build(&b, &g), ST_OK);
    grammar_free(g);
    add_times(&b, "#", EBNF_BYTES_MAX + 1);
    assert_int_equal(build(&b, &g), ST_LIMIT);
    for (int more = 0; more < 2; more++) {
        buf_str(&b, "root ::= \"");
        add_times(&b, "a", EBNF_TEXT_MAX + more);
        buf_str(&b, "\"");
        assert_int_equal(build(&b, &g), more ? ST_LIMIT : ST_OK);
        grammar_free(g);
    }
    buf_str(&b, "r ::= r2 \"x\" \nr2 ::= \"(\" r2 \")\" | \"\"\nroot ::= ");
    for (int i = 0; i < EBNF_LEXEMES_MAX + 2; i++) buf_fmt(&b, "r \"%d\"", i);
    assert_int_equal(build(&b, &g), ST_LIMIT);
}

/* Many pieces: of one kind, and such as want to be written out again and again. */
static void large(void **state) {
    static const char *const parts[] = {".",        "[^a]{7}", " \"a\"", " r",   "r r{8}",    "|r",
                                        "\"ab\"|",  "s ",      "(s|r)",  "s|",   "(|r)*",     "s{,9}",
                                        "r{1,2}s ", "[ab]?",   "|.",     "\n|r", "(r \"a\")", "|(s|r)"};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(parts); k++) {
        buf b = {0};
        grammar *g;
        matcher *m = NULL;
        err e = {0};
        buf_str(&b, "r ::= [^b]{2} | [a-z] \"xyz\"{1,3}\ns ::= \"(\" s \")\" | \"-\"\nroot ::= ");
        add_times(&b, parts[k], 30000 / (int)strlen(parts[k]));
        if (grammar_of_ebnf(&g, b.data, b.len, &e) != ST_OK) fail_msg("%s: %s", parts[k], e.text);
        buf_free(&b);
        const status st = matcher_open(&m, g, &e);
        if (st != ST_OK && st != ST_LIMIT) fail_msg("%s: %s", parts[k], e.text);
        matcher_close(m);
        grammar_free(g);
    }
}

static void many_rules(void **state) {
    enum { RULES = 3000 };
    (void)state;
    for (int down = 0; down < 2; down++) {
        buf b = {0};
        buf_fmt(&b, "root ::= r%d\n", down ? 0 : RULES);
        for (int i = down ? 1 : RULES; down ? i <= RULES : i > 0; i += down ? 1 : -1)
            buf_fmt(&b, "r%d ::= \"a\" r%d\n", down ? i - 1 : i, down ? i : i - 1);
        buf_fmt(&b, "r%d ::= \"\"\n", down ? RULES : 0);
        compiled c = compile(b.data, b.len);
        buf_clear(&b);
        add_times(&b, "a", RULES);
        assert_int_equal(judge(&c, b.data, b.len), '+');
        assert_int_equal(judge(&c, b.data, b.len - 1), '.');
        buf_free(&b);
        release(c);
    }
}

/* Lists that go on by naming themselves: no frame an item. */
static void long_lists(void **state) {
    static const struct {
        const char *grammar, *item, *last;
    } lists[] = {
        {"root ::= \"a,\" root | \"a\"", "a,", "a"},
        {"root ::= \"a\" (\",\" root)?", "a,", "a"},
        {"root ::= item (\",\" root)?\nitem ::= \"(\" item \")\" | \"a\"", "((a)),", "a"},
        {"root ::= [a-z]+ rest\nrest ::= \"\" | \", \" root", "abc, ", "abc"},
        {"root ::= (\"a\" | \"b\" root2) root | \".\"\nroot2 ::= \"b\" root2 | \";\"", "abbb;", "."},
        {"root ::= x*\nx ::= \"(\" x* \")\"", "(()(()))", ""},
        {"root ::= (x | \"a\"){1,1000000000}\nx ::= \"(\" x? \")\"", "a(())", ""},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        compiled c = compile(lists[i].grammar, strlen(lists[i].grammar));
        i32 s = matcher_start(c.m);
        for (int k = 0; k < 100000; k++) s = walk(&c, s, lists[i].item, strlen(lists[i].item));
        s = walk(&c, s, lists[i].last, strlen(lists[i].last));
        assert_int_equal(matcher_failed(c.m, NULL), ST_OK);
        if (!matcher_accepts(c.m, s)) fail_msg("%s", lists[i].grammar);
        release(c);
    }
}

static void nested_brackets(void **state) {
    enum { DEEP = 1000 };
    static const char grammar_text[] =
        "root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"{\" value \"}\" | [0-9]+";
    buf b = {0};
    (void)state;
    compiled c = compile(grammar_text, strlen(grammar_text));
    for (int i = 0; i < DEEP; i++) buf_str(&b, i % 3 ? "[1," : "{");
    assert_int_equal(judge(&c, b.data, b.len), '.');
    buf_str(&b, "7");
    for (int i = DEEP - 1; i >= 0; i--) {
        assert_int_equal(judge(&c, b.data, b.len), '.');
        buf_str(&b, i % 3 ? "]" : "}");
    }
    assert_int_equal(judge(&c, b.data, b.len), '+');
    buf_str(&b, "]");
    assert_int_equal(judge(&c, b.data, b.len), '-');
    buf_free(&b);
    release(c);
}

static void counts(void **state) {
    static const char grammar_text[] = "root ::= r{1000,1000000000} \"b\" [x-z]{999}\nr ::= \"a\" | \"(\" r \")\"";
    buf b = {0};
    (void)state;
    compiled c = compile(grammar_text, strlen(grammar_text));
    add_times(&b, "a", 999);
    const i32 before = walk(&c, matcher_start(c.m), b.data, b.len);
    assert_int_equal(walk(&c, before, "b", 1), MATCHER_DEAD);
    add_times(&b, "y", 998);
    i32 s = walk(&c, walk(&c, before, "(a)b", 4), b.data + 999, 998);
    assert_true(s != MATCHER_DEAD && !matcher_accepts(c.m, s));
    s = walk(&c, s, "z", 1);
    assert_true(matcher_accepts(c.m, s));
    assert_int_equal(walk(&c, s, "z", 1), MATCHER_DEAD);
    buf_free(&b);
    release(c);
}

/* Pieces that are equal are one lexeme, neighbours are one, and rules that need no stack are part of it. */
static void lexemes(void **state) {
    static const struct {
        const char *text;
        int dfas;
    } wanted[] = {
        {"root ::= \"a\" [b-d]* (\"x\" | \"y\" \"z\")? \"q\"{3}", 1},
        {"root ::= \"a\" | \"b\" | \"c\" | d\nd ::= [0-9]+ ws\nws ::= \" \"*", 1},
        {"root ::= \"a\" root \"b\" | \"c\" | \"d\" | root2\nroot2 ::= \"a\" root \"b\"", 3},
        {"root ::= \"a\"{33} \"b\"", 2},
        {json, 9},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        compiled c = compile(wanted[i].text, strlen(wanted[i].text));
        if (c.g->n_dfas != wanted[i].dfas) fail_msg("%s: %d", wanted[i].text, c.g->n_dfas);
        release(c);
    }
}

/* ---- random grammars, against the same as a regular expression ---- */

static u32 draw(u64 *seed, u32 n) {
    return (u32)((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 33) % n;
}

/* Parts of it become rules, of which some name themselves around an x, which no text has: they need a stack. */
typedef struct {
    u64 seed;
    int n_rules;
    buf rules;
} drawing;

static void draw_part(drawing *d, int level, buf *ebnf, buf *regex) {
    static const char *const sets[][2] = {{"\"a\"", "a"},   {"\"b\"", "b"}, {"\"ab\"", "(ab)"}, {"[ab]", "[ab]"},
                                          {"[^b]", "[^b]"}, {"\"\"", "()"}, {"\"ba\"", "(ba)"}};
    static const char *const often[] = {"*",   "+",      "?",      "{2}",  "{0,2}", "{1,3}",
                                        "{9}", "{0,40}", "{2,33}", "{1,}", "{9,}"};
    const u32 kind = level ? draw(&d->seed, 8) : 0;
    if (kind < 2) {
        const u32 k = draw(&d->seed, COUNT_OF(sets));
        buf_str(ebnf, sets[k][0]), buf_str(regex, sets[k][1]);
    } else if (kind < 6) {
        const u32 n = 2 + draw(&d->seed, 2);
        buf_str(ebnf, "("), buf_str(regex, "(");
        for (u32 i = 0; i < n; i++) {
            if (i) buf_str(ebnf, kind < 4 ? "|" : " "), buf_str(regex, kind < 4 ? "|" : "");
            draw_part(d, level - 1, ebnf, regex);
        }
        buf_str(ebnf, ")"), buf_str(regex, ")");
    } else if (kind < 7) {
        const char *count = often[draw(&d->seed, COUNT_OF(often))];
        buf_str(regex, "(");
        draw_part(d, level - 1, ebnf, regex);
        buf_fmt(ebnf, "%s", count), buf_fmt(regex, ")%s", count);
    } else {
        buf body = {0};
        const int rule = d->n_rules++;
        draw_part(d, level - 1, &body, regex);
        buf_fmt(&d->rules, draw(&d->seed, 2) ? "r%d ::= %s\n" : "r%d ::= %s | \"x\" r%d \"x\"\n", rule, body.data,
                rule);
        buf_fmt(ebnf, " r%d ", rule);
        buf_free(&body);
    }
}

static void random_grammars(void **state) {
    (void)state;
    for (u64 round = 0; round < 3000; round++) {
        drawing d = {.seed = round};
        buf ebnf = {0}, regex = {0};
        compiled as_regex;
        err e = {0};
        buf_str(&ebnf, "root ::= ");
        draw_part(&d, 5, &ebnf, &regex);
        buf_fmt(&ebnf, "\n%s", d.rules.len ? d.rules.data : "");
        if (grammar_of_regex(&as_regex.g, regex.data, regex.len, &e)) fail_msg("%s: %s", regex.data, e.text);
        assert_int_equal(matcher_open(&as_regex.m, as_regex.g, NULL), ST_OK);
        compiled c = compile(ebnf.data, ebnf.len);
        for (u32 len = 0; len <= 7; len++)
            for (u32 bits = 0; bits < 1u << len; bits++) {
                char text[8];
                for (u32 i = 0; i < len; i++) text[i] = bits >> i & 1 ? 'b' : 'a';
                if (judge(&c, text, len) != judge(&as_regex, text, len))
                    fail_msg("%s%s %.*s", ebnf.data, regex.data, (int)len, text);
            }
        release(c), release(as_regex);
        buf_free(&ebnf), buf_free(&regex), buf_free(&d.rules);
    }
}

/* Anything at all: no crash, and what compiles can be walked. */
static void random_text(void **state) {
    static const char *const words[] = {"root", "::=", "\"", "a", "[", "]", "-",     "^",     "(", ")",
                                        "|",    "*",   "+",  "?", "{", "}", ",",     "2",     "9", " ",
                                        " ",    "\n",  "\\", "x", "#", ".", "\"b\"", "\u00e9"};
    u64 seed = 7;
    (void)state;
    for (int round = 0; round < 30000; round++) {
        buf b = {0};
        grammar *g;
        matcher *m;
        buf_str(&b, round % 4 ? "root ::= \"b\"" : "");
        for (u32 n = draw(&seed, 20); n; n--) buf_str(&b, words[draw(&seed, COUNT_OF(words))]);
        if (grammar_of_ebnf(&g, b.data ? b.data : "", b.len, NULL) == ST_OK && matcher_open(&m, g, NULL) == ST_OK) {
            i32 s = matcher_start(m);
            for (int i = 0; i < 5; i++) s = matcher_next(m, s, (u8) "ab2x"[draw(&seed, 4)]);
            matcher_close(m);
        }
        grammar_free(g);
        buf_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching),        cmocka_unit_test(as_people_write), cmocka_unit_test(mistakes),
        cmocka_unit_test(nothing_to_walk), cmocka_unit_test(depth),           cmocka_unit_test(sizes),
        cmocka_unit_test(large),           cmocka_unit_test(many_rules),      cmocka_unit_test(long_lists),
        cmocka_unit_test(nested_brackets), cmocka_unit_test(counts),          cmocka_unit_test(lexemes),
        cmocka_unit_test(random_grammars), cmocka_unit_test(random_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
