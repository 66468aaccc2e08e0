/* Files that are written: what the reader makes of them, and that nothing half-written has the name of a whole file. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "unit.h"
#include "base/file.h"
#include "format/checkpoint.h"
#include "format/safetensors_writer.h"

static char folder[] = "/tmp/moonlet-writer-XXXXXX";

static const char *in_folder(const char *name) {
    static char paths[4][PATH_MAX];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, PATH_MAX, "%s/%s", folder, name);
    return p;
}

static int setup(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    unlink(in_folder("model.safetensors"));
    return rmdir(folder); /* fails if something else is left */
}

static tensor_out tensor(const char *name, dtype type, int n_dims, i64 a, i64 b) {
    tensor_out t = {.name = name, .type = type, .n_dims = n_dims, .shape = {a, b}};
    t.bytes = tensor_out_bytes(&t);
    return t;
}

/* Of all element sizes, in an order that would misalign them, and written out of order. */
static void test_read_back(void **state) {
    (void)state;
    tensor_out t[] = {tensor("odd", DT_U8, 1, 3, 0),    tensor("scale", DT_F32, 2, 5, 1),
                      tensor("half", DT_BF16, 2, 1, 7), tensor("wide", DT_I64, 1, 2, 0),
                      tensor("one", DT_F32, 0, 0, 0),   tensor("none", DT_F32, 2, 0, 9)};
    out_file f;
    err e = {0};
    assert_int_equal(safetensors_create(&f, in_folder("model.safetensors"), t, COUNT_OF(t), &e), ST_OK);
    assert_false(file_exists(in_folder("model.safetensors")));
    for (int i = (int)COUNT_OF(t) - 1; i >= 0; i--)
        for (u64 at = 0; at < t[i].bytes; at++) {
            u8 byte = (u8)(i * 31 + (int)at);
            assert_int_equal(safetensors_put(&f, &t[i], at, &byte, 1, &e), ST_OK);
        }
    assert_int_equal(out_file_finish(&f, &e), ST_OK);
    assert_false(file_exists(in_folder("model.safetensors.part")));
    checkpoint *ck;
    assert_int_equal(checkpoint_open(&ck, folder, &e), ST_OK); /* no holes, all aligned */
    assert_int_equal(checkpoint_n_tensors(ck), COUNT_OF(t));
    for (int i = 0; i < (int)COUNT_OF(t); i++) {
        const tensor_info *x = checkpoint_find(ck, t[i].name);
        assert_true(x && x->type == t[i].type && x->n_dims == t[i].n_dims && x->bytes == t[i].bytes);
        for (u64 at = 0; at < x->bytes; at++) assert_int_equal(x->data[at], (u8)(i * 31 + (int)at));
    }
    checkpoint_close(ck);
}

/* The file of the test before is there. */
static void test_nothing_is_replaced(void **state) {
    (void)state;
    struct stat before, after;
    err e = {0};
    assert_int_equal(stat(in_folder("model.safetensors"), &before), 0);
    assert_int_equal(out_file_whole(in_folder("model.safetensors"), "x", 1, &e), ST_IO);
    assert_non_null(strstr(e.text, "model.safetensors: File exists"));
    assert_int_equal(stat(in_folder("model.safetensors"), &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
    assert_false(file_exists(in_folder("model.safetensors.part")));
}

static void test_no_room(void **state) {
    (void)state;
    struct rlimit was, small = {1000, 1000};
    tensor_out t = tensor("a", DT_F32, 1, 1000, 0);
    out_file f;
    err e = {0};
    getrlimit(RLIMIT_FSIZE, &was);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    status at_once = safetensors_create(&f, in_folder("big"), &t, 1, &e); /* all of it is reserved */
    status later = out_file_create(&f, in_folder("later"), 0, NULL);
    if (later == ST_OK) later = out_file_write(&f, 900, in_folder(""), 200, &e);
    out_file_drop(&f);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(at_once, ST_IO);
    assert_int_equal(later, ST_IO);
    assert_non_null(strstr(e.text, "later: File too large"));
    assert_false(file_exists(in_folder("big.part")) || file_exists(in_folder("big")));
    assert_false(file_exists(in_folder("later.part")) || file_exists(in_folder("later")));
    assert_int_equal(out_file_create(&f, in_folder("no/such/folder"), 0, &e), ST_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read_back), cmocka_unit_test(test_nothing_is_replaced),
                                       cmocka_unit_test(test_no_room)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
