/* How a call of routed experts runs: built-in choices, tables of measured ones, and tables that are not what they
 * should be. */
#include "unit.h"

#include "base/file.h"
#include "kernels/gpu/moe/decode_int4.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHIP  "NVIDIA H200"
#define HEAD  "chip,sms,format,dim,inter,experts,topk,tokens,path,group,tile,us,default_us\n"
#define SHAPE "NVIDIA H200,132,w4a16,7168,256,384,8,"

static moe_call call_of(moe_format f, i64 tokens) { return (moe_call){f, 7168, 256, 384, 8, tokens, ROWS_ANY}; }

static moe_choice chosen(const tuned_table *t, moe_call c, moe_source want) {
    moe_source from;
    moe_choice how = moe_choose(&c, t, &from);
    assert_int_equal(from, want);
    assert_true(moe_allowed(&c, &how));
    return how;
}

static tuned_table table_of(const char *text) {
    tuned_table t;
    err e = {0};
    if (tuned_parse(&t, text, strlen(text), "t.csv", CHIP, 132, &e) != ST_OK) fail_msg("%s", e.text);
    return t;
}

/* The rules that are built in, at their borders. */
static void built_in(void **state) {
    (void)state;
    moe_choice c = chosen(NULL, call_of(MOE_W4A16, 1), MOE_BUILT_IN);
    assert_true(c.path == MOE_DECODE && c.group == 4 && !c.tile);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 96), MOE_BUILT_IN).group, 4);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 97), MOE_BUILT_IN).group, 8);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 383), MOE_BUILT_IN).path, MOE_DECODE);
    c = chosen(NULL, call_of(MOE_W4A16, 384), MOE_BUILT_IN);
    assert_true(c.path == MOE_GROUPED && c.tile == 64 && !c.group);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 2304), MOE_BUILT_IN).tile, 64);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 2305), MOE_BUILT_IN).tile, 128);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 5376), MOE_BUILT_IN).tile, 128);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A16, 5377), MOE_BUILT_IN).tile, 176);
    assert_int_equal(chosen(NULL, call_of(MOE_W2_BF16, 5377), MOE_BUILT_IN).tile, 176);
    assert_int_equal(chosen(NULL, call_of(MOE_BF16, 65536), MOE_BUILT_IN).tile, 176);
    assert_int_equal(chosen(NULL, call_of(MOE_W4A8, 383), MOE_BUILT_IN).path, MOE_DECODE);
    for (moe_format f = MOE_MXFP4; f <= MOE_NVFP4; f++) {
        c = chosen(NULL, call_of(f, 383), MOE_BUILT_IN);
        assert_true(c.path == MOE_DECODE && !c.group);
        const moe_call call = call_of(f, 96);
        assert_false(moe_allowed(&call, &(moe_choice){.path = MOE_DECODE, .group = 4}));
        assert_int_equal(chosen(NULL, call_of(f, 384), MOE_BUILT_IN).path, MOE_GROUPED);
        assert_int_equal(chosen(NULL, call_of(f, 5377), MOE_BUILT_IN).tile, 176);
    }
    c = chosen(NULL, call_of(MOE_W4A8, 8192), MOE_BUILT_IN);
    assert_true(c.path == MOE_GROUPED_W4A8 && c.tile == 176);
    assert_int_equal(chosen(NULL, call_of(MOE_W2_BF16, 384), MOE_BUILT_IN).path, MOE_GROUPED);
    assert_int_equal(chosen(NULL, call_of(MOE_OTHER, 8192), MOE_BUILT_IN).path, MOE_GENERIC);
}

/* Rows that decode and rows of prompts: one path each, whatever their number. */
static void forms(void **state) {
    (void)state;
    for (i64 n = 1; n <= DECODE_ROWS; n++) {
        moe_call c = call_of(MOE_W4A16, n);
        c.form = ROWS_DECODE;
        moe_choice how = chosen(NULL, c, MOE_BUILT_IN);
        assert_true(how.path == MOE_DECODE && how.group == 4);
        c.form = ROWS_PROMPT;
        assert_int_equal(chosen(NULL, c, MOE_BUILT_IN).path, MOE_GROUPED);
    }
    tuned_table t = table_of(HEAD SHAPE "8,grouped,0,16,1,2\n");
    moe_call c = call_of(MOE_W4A16, 8);
    assert_int_equal(chosen(&t, c, MOE_TUNED).path, MOE_GROUPED);
    c.form = ROWS_DECODE; /* no table: bits must not depend on how many rows there are */
    assert_int_equal(chosen(&t, c, MOE_BUILT_IN).path, MOE_DECODE);
    tuned_free(&t);
}

/* Tables of the release before have other words for the same paths. */
static void words_of_before(void **state) {
    (void)state;
    tuned_table t = table_of(HEAD SHAPE "64,few,8,0,50,60.5\n" SHAPE "512,many,0,96,1,2\n"
                                        "NVIDIA H200,132,w4a8,7168,256,384,8,512,int8,0,128,1,1\n");
    moe_path p;
    assert_int_equal(t.n, 3);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 64), MOE_TUNED).path, MOE_DECODE);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 512), MOE_TUNED).path, MOE_GROUPED);
    assert_int_equal(chosen(&t, call_of(MOE_W4A8, 512), MOE_TUNED).path, MOE_GROUPED_W4A8);
    assert_true(moe_path_of("plain", &p) && p == MOE_GENERIC && !strcmp(moe_path_text(p), "generic"));
    tuned_free(&t);
}

static void from_table(void **state) {
    (void)state;
    tuned_table t = table_of("# measured\n" HEAD SHAPE "64,decode,8,0,50,60.5\n" SHAPE "16,decode,4,0,9,9\r\n\n" SHAPE
                             "512,grouped,0,96,1,2\n"
                             "NVIDIA H200,114,w4a16,7168,256,384,8,16,decode,8,0,1,1\n"
                             "NVIDIA H200,132,w4a8,7168,256,384,8,512,grouped_w4a8,0,128,1,1\n");
    assert_int_equal(t.n, 4);
    assert_int_equal(t.others, 1);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 8), MOE_TUNED).group, 4);
    chosen(&t, call_of(MOE_W4A16, 7), MOE_MISSED); /* 16 tokens say nothing about 7 */
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 16), MOE_TUNED).group, 4);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 32), MOE_TUNED).group, 8);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 64), MOE_TUNED).group, 8);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 256), MOE_TUNED).tile, 96);
    /* between 64 and 512: the row above down to its half, the one below up to twice, nothing between */
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 65), MOE_TUNED).group, 8);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 128), MOE_TUNED).group, 8);
    chosen(&t, call_of(MOE_W4A16, 129), MOE_MISSED);
    chosen(&t, call_of(MOE_W4A16, 255), MOE_MISSED);
    assert_int_equal(chosen(&t, call_of(MOE_W4A16, 65536), MOE_TUNED).tile, 96); /* the last for all above */
    assert_int_equal(chosen(&t, call_of(MOE_W4A8, 512), MOE_TUNED).tile, 128);
    /* ops.h fixes the arithmetic of W4A8 at 8 tokens an expert: a row cannot */
    assert_int_equal(chosen(&t, call_of(MOE_W4A8, 383), MOE_BUILT_IN).path, MOE_DECODE);
    assert_int_equal(chosen(&t, call_of(MOE_BF16, 16), MOE_MISSED).path, MOE_DECODE);
    moe_call other = call_of(MOE_W4A16, 16);
    other.topk = 6;
    assert_int_equal(chosen(&t, other, MOE_MISSED).path, MOE_DECODE);
    const tuned_row *row = tuned_find(&t, &(moe_call){MOE_W4A16, 7168, 256, 384, 8, 64, ROWS_ANY});
    assert_true(row && row->us == 50 && row->default_us == 60.5);
    moe_call c = call_of(MOE_W4A16, 63);
    assert_null(tuned_exact(&t, &c));
    tuned_free(&t);
}

/* bf16 and FP8 have a path for few tokens of their own, without knobs; FP8's takes any number of them. */
static void stored(void **state) {
    (void)state;
    moe_call c = call_of(MOE_BF16, 35);
    assert_int_equal(moe_default(&c).path, MOE_DECODE);
    assert_int_equal(moe_default(&c).group, 0);
    c.tokens = 36;
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
    assert_true(moe_allowed(&c, &(moe_choice){.path = MOE_DECODE}));
    assert_false(moe_allowed(&c, &(moe_choice){.path = MOE_DECODE, .group = 4}));
    c.tokens = 257; /* 2056 pairs */
    assert_false(moe_can(&c, MOE_DECODE));
    c.form = ROWS_DECODE;
    assert_int_equal(moe_default(&c).path, MOE_DECODE); /* for any number of rows */
    c.topk = 33;
    assert_int_equal(moe_default(&c).path, MOE_GENERIC);
    c = call_of(MOE_FP8, 95); /* from two tokens an expert on many */
    assert_int_equal(moe_default(&c).path, MOE_DECODE);
    c.tokens = 96;
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
    assert_int_equal(moe_default(&c).tile, 64);
    c.tokens = 65536;
    assert_true(moe_can(&c, MOE_DECODE));
    assert_int_equal(moe_default(&c).tile, 128);
    c.form = ROWS_PROMPT;
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
    c.form = ROWS_DECODE;
    assert_false(moe_can(&c, MOE_GROUPED));
    assert_int_equal(moe_default(&c).path, MOE_DECODE);
    c.experts = 513; /* no room for a ring */
    assert_int_equal(moe_default(&c).path, MOE_GENERIC);
    c = call_of(MOE_W2_BF16, 1);
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
    c.dim = 256;
    assert_int_equal(moe_default(&c).path, MOE_GENERIC);
    c.tokens = 384;
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
}

/* More tokens than the kernels of few take, and still few an expert. */
static void many_tokens_few_pairs(void **state) {
    (void)state;
    moe_call c = call_of(MOE_W4A16, 2048);
    c.topk = 1;
    assert_int_equal(moe_default(&c).path, MOE_GROUPED);
    assert_int_equal(moe_default(&c).tile, 64);
    c.tokens = 1024;
    assert_int_equal(moe_default(&c).path, MOE_DECODE);
}

/* Columns in any order, knobs left out. */
static void columns_by_name(void **state) {
    (void)state;
    tuned_table t = table_of("us,default_us,path,tokens,topk,experts,inter,dim,format,sms,chip\n"
                             "1.5,2e3,grouped,4096,8,384,256,7168,bf16,132,NVIDIA H200\n");
    moe_choice how = chosen(&t, call_of(MOE_BF16, 4096), MOE_TUNED);
    assert_true(how.path == MOE_GROUPED && how.tile == 128); /* what is left open is the default's */
    assert_int_equal(chosen(&t, call_of(MOE_BF16, 2048), MOE_TUNED).tile, 64);
    tuned_free(&t);
}

static void hostile(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } all[] = {
        {"", "t.csv: line 0: there is no line that names the columns"},
        {"# only\n", "t.csv: line 1: there is no line that names the columns"},
        {"chip,sms\n", "t.csv: line 1: there is no column \"format\""},
        {"chip,chip\n", "t.csv: line 1: column \"chip\" comes twice"},
        {"chip,speed\n", "t.csv: line 1: column \"speed\" is not known to this program"},
        {HEAD SHAPE "8,decode,4,0,1,2", "t.csv: line 2: cut off: its end is missing"},
        {HEAD SHAPE "8,decode,4,0,1\n", "t.csv: line 2: 12 fields, 13 columns"},
        {HEAD SHAPE "8,decode,4,0,1,2,3\n", "t.csv: line 2: too many fields"},
        {HEAD "NVIDIA H100,132,w4a16,7168,256,384,8,8,decode,4,0,1,2\n",
         "t.csv: line 2: the row is for \"NVIDIA H100\", this chip is \"NVIDIA H200\""},
        {HEAD SHAPE "0,decode,4,0,1,2\n", "t.csv: line 2: tokens \"0\" is not a number in 1..1048576"},
        {HEAD SHAPE "-8,decode,4,0,1,2\n", "t.csv: line 2: tokens \"-8\" is not a number in 1..1048576"},
        {HEAD SHAPE "99999999999999999999,decode,4,0,1,2\n",
         "t.csv: line 2: tokens \"99999999999999999999\" is not a number in 1..1048576"},
        {HEAD SHAPE "8x,decode,4,0,1,2\n", "t.csv: line 2: tokens \"8x\" is not a number in 1..1048576"},
        {HEAD SHAPE ",decode,4,0,1,2\n", "t.csv: line 2: tokens \"\" is not a number in 1..1048576"},
        {HEAD SHAPE "8,fast,4,0,1,2\n", "t.csv: line 2: there is no path \"fast\""},
        {HEAD "NVIDIA H200,132,int3,7168,256,384,8,8,decode,4,0,1,2\n", "t.csv: line 2: there is no format \"int3\""},
        {HEAD "NVIDIA H200,132,other,7168,256,384,8,8,generic,0,0,1,2\n",
         "t.csv: line 2: there is no format \"other\""},
        {HEAD "NVIDIA H200,132,w4a16,7168,256,4,8,8,decode,4,0,1,2\n", "t.csv: line 2: topk is more than experts"},
        {HEAD SHAPE "8,decode,5,0,1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD SHAPE "8,decode,4,64,1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD SHAPE "8,grouped_w4a8,0,64,1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD SHAPE "2000,decode,4,0,1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD SHAPE "512,grouped,0,184,1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD SHAPE "512,grouped,0,264,1,2\n", "t.csv: line 2: tile \"264\" is not a number in 0..256"},
        {HEAD SHAPE "8,decode,4,0,nan,2\n", "t.csv: line 2: us \"nan\" is not a time in microseconds"},
        {HEAD SHAPE "8,decode,4,0,1,0\n", "t.csv: line 2: default_us \"0\" is not a time in microseconds"},
        {HEAD SHAPE "8,decode,4,0,1,2\n" SHAPE "16,decode,4,0,1,2\n" SHAPE "8,decode,8,0,1,2\n",
         "t.csv: line 4: the same shape and tokens as in line 2"},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        tuned_table t;
        err e = {0};
        assert_int_equal(tuned_parse(&t, all[i].text, strlen(all[i].text), "t.csv", CHIP, 132, &e), ST_FORMAT);
        assert_string_equal(e.text, all[i].want);
        assert_null(t.rows);
    }
    static char longer[5000];
    tuned_table t;
    err e = {0};
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 2] = '\n';
    assert_int_equal(tuned_parse(&t, longer, strlen(longer), "t.csv", CHIP, 132, &e), ST_FORMAT);
    assert_string_equal(e.text, "t.csv: line 1: no line of text, or far too long");
}

/* What is written is read back. */
static void written(void **state) {
    (void)state;
    buf text = {0};
    const tuned_row rows[] = {{{MOE_W4A8, 7168, 2048, 48, 1, 512, ROWS_ANY}, {MOE_GROUPED_W4A8, 0, 96}, 12.25, 13.5, 0},
                              {{MOE_W4A16, 7168, 256, 384, 8, 2, ROWS_ANY}, {MOE_DECODE, 4, 0}, 20, 21, 0}};
    tuned_table t;
    assert_true(tuned_header(&text));
    for (size_t i = 0; i < COUNT_OF(rows); i++) assert_true(tuned_line(&text, CHIP, 132, &rows[i]));
    t = table_of(text.data);
    assert_int_equal(t.n, 2);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const tuned_row *row = tuned_exact(&t, &rows[i].call);
        assert_non_null(row);
        assert_memory_equal(&row->choice, &rows[i].choice, sizeof row->choice);
        assert_true(row->us == rows[i].us && row->default_us == rows[i].default_us);
    }
    tuned_free(&t);
    buf_free(&text);
    char file[64];
    tuned_file_name(file, sizeof file, "NVIDIA H100 80GB HBM3");
    assert_string_equal(file, "nvidia-h100-80gb-hbm3.csv");
    tuned_file_name(file, sizeof file, "../(x)");
    assert_string_equal(file, "x.csv");
}

/* What the tuner times: the default first, no choice twice, each allowed. */
static void candidates(void **state) {
    (void)state;
    for (int f = MOE_W4A16; f < MOE_OTHER; f++)
        for (i64 n = 1; n <= 65536; n = n * 3 / 2 + 1) {
            moe_choice all[MOE_CANDIDATES];
            moe_call c = call_of((moe_format)f, n);
            int count = moe_candidates(&c, all);
            moe_choice usual = moe_default(&c);
            assert_in_range(count, 1, MOE_CANDIDATES);
            assert_memory_equal(&all[0], &usual, sizeof usual);
            for (int i = 0; i < count; i++) {
                assert_true(moe_allowed(&c, &all[i]));
                for (int k = 0; k < i; k++) assert_memory_not_equal(&all[i], &all[k], sizeof usual);
            }
        }
    moe_choice all[MOE_CANDIDATES];
    char text[MOE_CHOICE_TEXT];
    moe_call c = call_of(MOE_W4A8, 4096);
    moe_choice_text(moe_default(&c), text);
    assert_string_equal(text, "grouped_w4a8 tile 176");
    assert_int_equal(moe_candidates(&c, all), 2); /* the other kind of arithmetic is none */
}

/* The tables that come along are what this program reads. */
static void shipped(void **state) {
    (void)state;
    glob_t found;
    if (glob("tuned/*.csv", 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        buf text = {0};
        tuned_table t;
        err e = {0};
        char chip[96] = "", file[96];
        if (strstr(found.gl_pathv[i], "-gemm.csv")) continue; /* test_gemm_table.c */
        assert_int_equal(file_read(found.gl_pathv[i], 8 << 20, &text, &e), ST_OK);
        const char *row = strchr(text.data, '\n');
        assert_true(row && sscanf(row + 1, "%95[^,]", chip) == 1);
        tuned_file_name(file, sizeof file, chip);
        assert_string_equal(found.gl_pathv[i] + strlen("tuned/"), file);
        if (tuned_parse(&t, text.data, text.len, found.gl_pathv[i], chip, 132, &e) != ST_OK) fail_msg("%s", e.text);
        assert_true(t.n > 0);
        tuned_free(&t);
        buf_free(&text);
    }
    globfree(&found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in),        cmocka_unit_test(forms),   cmocka_unit_test(words_of_before),
        cmocka_unit_test(from_table),      cmocka_unit_test(stored),  cmocka_unit_test(many_tokens_few_pairs),
        cmocka_unit_test(columns_by_name), cmocka_unit_test(hostile), cmocka_unit_test(written),
        cmocka_unit_test(candidates),      cmocka_unit_test(shipped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
