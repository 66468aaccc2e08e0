/* How a matrix product of more than 64 rows runs: built-in choices, tables of measured ones, and tables that are not
 * what they should be. */
#include "unit.h"

#include "base/file.h"
#include "kernels/gpu/gemm/gemm_tuned.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHIP "NVIDIA H200"
#define HEAD                                                                                                           \
    "chip,sms,cublas,op,in,out,rows,cols,heads,tokens,path,algo,tile,stages,splits,reduction,swizzle,custom,"          \
    "inner,cluster,us,default_us\n"
#define OF   "NVIDIA H200,132,130100,linear,bf16,bf16,7168,1024,1,"
#define NONE ",0,0,0,0,0,0,0,0,0,"
#define SOME ",cublas,66,20,36,1,0,1,5,2,3,"
enum { LIBRARY = 130100, OTHER = 130201 };

static gemm_call call_of(i64 tokens) { return (gemm_call){GEMM_LINEAR, false, 7168, 1024, 1, tokens}; }

static gemm_table table_of(const char *text) {
    gemm_table t;
    err e = {0};
    if (gemm_parse(&t, text, strlen(text), "t.csv", CHIP, 132, &e) != ST_OK) fail_msg("%s", e.text);
    return t;
}

static gemm_choice chosen(const gemm_table *t, gemm_call c, i64 library, gemm_source want) {
    gemm_source from;
    gemm_choice how = gemm_choose(&c, t, library, &from);
    assert_int_equal(from, want);
    assert_true(gemm_allowed(&c, &how, library));
    return how;
}

static void built_in(void **state) {
    (void)state;
    assert_int_equal(chosen(NULL, call_of(8192), LIBRARY, GEMM_BUILT_IN).path, GEMM_FIRST);
    assert_int_equal(chosen(NULL, call_of(8192), 0, GEMM_BUILT_IN).path, GEMM_TILE);
}

static void from_table(void **state) {
    (void)state;
    gemm_table t = table_of("# measured\n" HEAD OF "1024" SOME "50,60.5\n" OF "512,wide" NONE "9,9\r\n\n" OF
                            "4096,first" NONE "1,1\n"
                            "NVIDIA H200,114,130100,linear,bf16,bf16,7168,1024,1,96,wide" NONE "1,1\n"
                            "NVIDIA H200,132,0,linear,bf16,bf16,7168,1024,1,512,wide" NONE "1,1\n"
                            "NVIDIA H200,132,130100,swiglu,bf16,bf16,7168,1024,1,512,wide" NONE "1,1\n"
                            "NVIDIA H200,132,130100,linear,bf16,f32,7168,1024,1,512" SOME "1,1\n");
    const cublas_config want = {66, 20, 36, 1, 0, 1, 5, 2, 3};
    assert_int_equal(t.n, 6);
    assert_int_equal(t.others, 1);
    chosen(&t, call_of(255), LIBRARY, GEMM_MISSED); /* 512 rows say nothing about 255 */
    assert_int_equal(chosen(&t, call_of(256), LIBRARY, GEMM_TUNED).path, GEMM_INVARIANT);
    gemm_choice how = chosen(&t, call_of(513), LIBRARY, GEMM_TUNED);
    assert_true(how.path == GEMM_CUBLAS && !memcmp(&how.how, &want, sizeof want));
    assert_int_equal(chosen(&t, call_of(1024), LIBRARY, GEMM_TUNED).path, GEMM_CUBLAS);
    chosen(&t, call_of(1025), LIBRARY, GEMM_MISSED);
    assert_int_equal(chosen(&t, call_of(2048), LIBRARY, GEMM_TUNED).path, GEMM_FIRST);
    assert_int_equal(chosen(&t, call_of(65536), LIBRARY, GEMM_TUNED).path, GEMM_FIRST); /* the last, for all above */
    gemm_call c = call_of(512);
    c.f32 = true;
    assert_int_equal(chosen(&t, c, LIBRARY, GEMM_TUNED).path, GEMM_CUBLAS);
    c.heads = 8;
    assert_int_equal(chosen(&t, c, LIBRARY, GEMM_MISSED).path, GEMM_FIRST);
    c = call_of(512), c.op = GEMM_ADD; /* a sum into y is no plain product */
    assert_int_equal(chosen(&t, c, LIBRARY, GEMM_MISSED).path, GEMM_FIRST);
    c.op = GEMM_SWIGLU;
    assert_int_equal(chosen(&t, c, LIBRARY, GEMM_TUNED).path, GEMM_INVARIANT);
    const gemm_row *row = gemm_find(&t, &(gemm_call){GEMM_LINEAR, false, 7168, 1024, 1, 600}, LIBRARY);
    assert_true(row && row->us == 50 && row->default_us == 60.5);
    c = call_of(600);
    assert_null(gemm_exact(&t, &c, LIBRARY));
    gemm_free(&t);
}

/* A configuration means something to one version of the library only: with another, or with none, rows do not count. */
static void other_library(void **state) {
    (void)state;
    gemm_table t = table_of(HEAD OF "1024" SOME "50,60.5\n" OF "512,wide" NONE "9,9\n");
    assert_int_equal(chosen(&t, call_of(1024), OTHER, GEMM_FOREIGN).path, GEMM_FIRST);
    assert_int_equal(chosen(&t, call_of(512), OTHER, GEMM_FOREIGN).path, GEMM_FIRST);
    assert_int_equal(chosen(&t, call_of(512), LIBRARY - 1, GEMM_FOREIGN).path, GEMM_FIRST);
    assert_int_equal(chosen(&t, call_of(512), 0, GEMM_FOREIGN).path, GEMM_TILE);
    gemm_call c = call_of(512);
    c.rows = 7169; /* another shape is not there at all */
    chosen(&t, c, OTHER, GEMM_MISSED);
    c.rows = 7167;
    chosen(&t, c, OTHER, GEMM_MISSED);
    gemm_free(&t);
    t = table_of(HEAD OF "1024" SOME "5,6\n"
                         "NVIDIA H200,132,0,linear,bf16,bf16,7168,1024,1,1024,wide" NONE "1,2\n"
                         "NVIDIA H200,132,130201,linear,bf16,bf16,7168,1024,1,1024,first" NONE "1,2\n");
    assert_int_equal(chosen(&t, call_of(1024), 0, GEMM_TUNED).path, GEMM_INVARIANT);
    assert_int_equal(chosen(&t, call_of(1024), LIBRARY, GEMM_TUNED).path, GEMM_CUBLAS);
    assert_int_equal(chosen(&t, call_of(1024), OTHER, GEMM_TUNED).path, GEMM_FIRST);
    chosen(&t, call_of(1024), 1, GEMM_FOREIGN);
    gemm_free(&t);
}

static void allowed(void **state) {
    (void)state;
    gemm_call c = call_of(512);
    gemm_choice told = {GEMM_CUBLAS, {66, 20, 36, 1, 0, 1, 5, 2, 3}};
    assert_true(gemm_allowed(&c, &told, LIBRARY));
    assert_false(gemm_allowed(&c, &told, 0));
    for (told.path = GEMM_FIRST; told.path <= GEMM_TILE; told.path++)
        assert_int_equal(gemm_allowed(&c, &told, LIBRARY), told.path == GEMM_CUBLAS);
    const gemm_choice wide = {.path = GEMM_INVARIANT}, tile = {.path = GEMM_TILE}, first = {.path = GEMM_FIRST};
    assert_true(gemm_allowed(&c, &wide, LIBRARY) && gemm_allowed(&c, &wide, 0));
    assert_false(gemm_allowed(&c, &tile, LIBRARY) || gemm_allowed(&c, &first, 0));
    c.heads = 8;
    assert_false(gemm_allowed(&c, &wide, LIBRARY));
    c.heads = 1, c.rows = 7164;
    assert_false(gemm_allowed(&c, &wide, LIBRARY));
    char text[GEMM_CHOICE_TEXT];
    gemm_choice_text(&(gemm_choice){GEMM_CUBLAS, {66, 20, 36, 1, 0, 1, 5, 2, 3}}, text);
    assert_string_equal(text, "cublas algo 66 tile 20 stages 36 splits 1 swizzle 1 custom 5 inner 2 cluster 3");
    const i32 most = INT32_MAX;
    gemm_choice_text(&(gemm_choice){GEMM_CUBLAS, {most, most, most, most, most, most, most, most, most}}, text);
    assert_true(strlen(text) < GEMM_CHOICE_TEXT - 1);
}

static void columns_by_name(void **state) {
    (void)state;
    gemm_table t = table_of("us,default_us,path,tokens,heads,cols,rows,out,in,op,cublas,sms,chip,tile,algo\n"
                            "1.5,2e3,cublas,4096,1,1024,7168,bf16,bf16,linear,130100,132,NVIDIA H200,7,66\n");
    gemm_choice how = chosen(&t, call_of(4096), LIBRARY, GEMM_TUNED);
    assert_true(how.how.algo == 66 && how.how.tile == 7 && how.how.cluster == 0);
    gemm_free(&t);
}

static void hostile(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } all[] = {
        {"", "t.csv: line 0: there is no line that names the columns"},
        {"chip,sms\n", "t.csv: line 1: there is no column \"cublas\""},
        {"chip,format\n", "t.csv: line 1: column \"format\" is not known to this program"},
        {"chip,chip\n", "t.csv: line 1: column \"chip\" comes twice"},
        {HEAD OF "512,wide" NONE "1,2", "t.csv: line 2: cut off: its end is missing"},
        {HEAD OF "512,wide" NONE "1\n", "t.csv: line 2: 21 fields, 22 columns"},
        {HEAD OF "512,wide" NONE "1,2,3\n", "t.csv: line 2: too many fields"},
        {HEAD "NVIDIA H100,132,130100,linear,bf16,bf16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: the row is for \"NVIDIA H100\", this chip is \"NVIDIA H200\""},
        {HEAD "NVIDIA H200,132,-1,linear,bf16,bf16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: cublas \"-1\" is not a number in 0..99999999"},
        {HEAD "NVIDIA H200,132,1,sum,bf16,bf16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: there is no operation \"sum\""},
        {HEAD "NVIDIA H200,132,1,linear,fp8,bf16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: in is \"fp8\": products are in bf16"},
        {HEAD "NVIDIA H200,132,1,linear,bf16,f16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: out is \"f16\": neither bf16 nor f32"},
        {HEAD "NVIDIA H200,132,1,linear,bf16,bf16,0,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: rows \"0\" is not a number in 1..16777216"},
        {HEAD OF "0,wide" NONE "1,2\n", "t.csv: line 2: tokens \"0\" is not a number in 1..1048576"},
        {HEAD OF "99999999999999999999,wide" NONE "1,2\n",
         "t.csv: line 2: tokens \"99999999999999999999\" is not a number in 1..1048576"},
        {HEAD OF "512,fast" NONE "1,2\n", "t.csv: line 2: there is no path \"fast\""},
        {HEAD OF "512,cublas,66,20,36,1,9,0,0,0,0,1,2\n", "t.csv: line 2: reduction \"9\" is not a number in 0..7"},
        {HEAD OF "512,cublas,66,20,36,x,0,0,0,0,0,1,2\n", "t.csv: line 2: splits \"x\" is not a number in 0..1048576"},
        {HEAD OF "512,cublas,66,20,36,1,0,0,0,65536,0,1,2\n",
         "t.csv: line 2: inner \"65536\" is not a number in 0..65535"},
        {HEAD OF "512,wide,66,0,0,0,0,0,0,0,0,1,2\n",
         "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD OF "512,tile" NONE "1,2\n", "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD "NVIDIA H200,132,0,linear,bf16,bf16,8,8,1,512,cublas" NONE "1,2\n",
         "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD "NVIDIA H200,132,1,across,bf16,bf16,8,8,1,512,wide" NONE "1,2\n",
         "t.csv: line 2: this path and these numbers are none for this call"},
        {HEAD OF "512,wide" NONE "nan,2\n", "t.csv: line 2: us \"nan\" is not a time in microseconds"},
        {HEAD OF "512,wide" NONE "1,-2\n", "t.csv: line 2: default_us \"-2\" is not a time in microseconds"},
        {HEAD OF "512,wide" NONE "1,2\n" OF "1024,wide" NONE "1,2\n" OF "512,first" NONE "1,2\n",
         "t.csv: line 4: the same shape, library and tokens as in line 2"},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        gemm_table t;
        err e = {0};
        assert_int_equal(gemm_parse(&t, all[i].text, strlen(all[i].text), "t.csv", CHIP, 132, &e), ST_FORMAT);
        assert_string_equal(e.text, all[i].want);
        assert_null(t.rows);
    }
}

/* What is written is read back. */
static void written(void **state) {
    (void)state;
    buf text = {0};
    const gemm_row rows[] = {
        {{GEMM_SWIGLU, false, 256, 7168, 1, 512}, LIBRARY, {.path = GEMM_FIRST}, 12.25, 13.5, 0},
        {{GEMM_LINEAR, true, 384, 7168, 1, 512}, LIBRARY, {GEMM_CUBLAS, {1, 2, 3, 4, 2, 6, INT32_MAX, 8, 9}}, 2, 3, 0},
        {{GEMM_ACROSS, false, 512, 128, 64, 96}, OTHER, {GEMM_CUBLAS, {1, 2, 3, 4, 0, 6, 7, 8, 9}}, 20, 21, 0}};
    assert_true(gemm_header(&text));
    assert_string_equal(text.data, HEAD);
    for (size_t i = 0; i < COUNT_OF(rows); i++) assert_true(gemm_line(&text, CHIP, 132, &rows[i]));
    gemm_table t = table_of(text.data);
    assert_int_equal(t.n, 3);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const gemm_row *row = gemm_exact(&t, &rows[i].call, rows[i].library);
        assert_non_null(row);
        assert_memory_equal(&row->choice, &rows[i].choice, sizeof row->choice);
        assert_true(row->us == rows[i].us && row->default_us == rows[i].default_us);
    }
    gemm_free(&t);
    buf_free(&text);
}

/* The tables that come along are what this program reads. */
static void shipped(void **state) {
    (void)state;
    glob_t found;
    if (glob("tuned/*-gemm.csv", 0, NULL, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        buf text = {0};
        gemm_table t;
        err e = {0};
        char chip[96] = "", file[96];
        assert_int_equal(file_read(found.gl_pathv[i], 8 << 20, &text, &e), ST_OK);
        const char *row = strchr(text.data, '\n');
        assert_true(row && sscanf(row + 1, "%95[^,]", chip) == 1);
        tuned_file_name(file, sizeof file, chip);
        strcpy(strrchr(file, '.'), "-gemm.csv");
        assert_string_equal(found.gl_pathv[i] + strlen("tuned/"), file);
        if (gemm_parse(&t, text.data, text.len, found.gl_pathv[i], chip, 132, &e) != ST_OK) fail_msg("%s", e.text);
        assert_true(t.n > 0);
        gemm_free(&t);
        buf_free(&text);
    }
    globfree(&found);
}

static void tiles_of_few_rows(void **state) {
    (void)state;
    static const struct {
        i64 rows[2], processors, height;
    } s[] = {{{1536, 576}, 132, 16}, /* Kimi's q_a and kv_a */
             {{7168, 0}, 132, 64},   /* o */
             {{4200, 0}, 132, 32},    {{2112, 0}, 66, 32},   {{2113, 0}, 132, 0}, {{1536, 0}, 132, 0},
             {{896, 0}, 132, 0},      {{8448, 0}, 132, 64},  {{8449, 0}, 132, 0}, {{20480, 0}, 132, 0},
             {{99 * 16, 0}, 132, 16}, {{98 * 16, 0}, 132, 0}};
    for (size_t i = 0; i < COUNT_OF(s); i++)
        assert_int_equal(gemm_few_rows(s[i].rows, s[i].rows[1] ? 2 : 1, s[i].processors), s[i].height);
    assert_int_equal(gemm_tiles_of((const i64[]){1536, 570}, 2, 16), 132);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in), cmocka_unit_test(from_table),      cmocka_unit_test(other_library),
        cmocka_unit_test(allowed),  cmocka_unit_test(columns_by_name), cmocka_unit_test(hostile),
        cmocka_unit_test(written),  cmocka_unit_test(shipped),         cmocka_unit_test(tiles_of_few_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
