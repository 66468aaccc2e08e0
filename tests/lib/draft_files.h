/* tests/lib/draft_files.h: a draft's folder read, changed and written again: drafts that are not in the repository. */
#ifndef TESTS_DRAFT_FILES_H
#define TESTS_DRAFT_FILES_H
#include "base/buf.h"
#include "base/file.h"
#include "format/checkpoint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char name[96];
    dtype type;
    int n_dims;
    i64 shape[2];
    u8 *data; /* owned */
    u64 bytes;
} draft_tensor;

enum { DRAFT_TENSORS_MOST = 64 };
typedef struct {
    draft_tensor t[DRAFT_TENSORS_MOST];
    int n;
} draft_files;

/* data: copied; NULL: zeros. cols 0: a vector of `rows`. */
static draft_tensor *draft_tensor_add(draft_files *f, const char *name, dtype type, i64 rows, i64 cols,
                                      const void *data) {
    assert_true(f->n < DRAFT_TENSORS_MOST);
    draft_tensor *t = &f->t[f->n++];
    *t = (draft_tensor){.type = type, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    snprintf(t->name, sizeof t->name, "%s", name);
    t->bytes = (u64)rows * (u64)(cols ? cols : 1) * dtype_size(type);
    t->data = calloc(1, t->bytes);
    assert_non_null(t->data);
    if (data) memcpy(t->data, data, t->bytes);
    return t;
}

static void draft_files_read(draft_files *f, const char *dir) {
    checkpoint *ck;
    err e = {0};
    f->n = 0;
    if (checkpoint_open(&ck, dir, &e) != ST_OK) fail_msg("%s", e.text);
    for (u64 i = 0; i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        draft_tensor_add(f, t->name, t->type, t->shape[0], t->n_dims > 1 ? t->shape[1] : 0, t->data);
    }
    checkpoint_close(ck);
}

static void draft_files_write(const draft_files *f, const char *dir, const char *config) {
    char path[160];
    buf head = {0};
    u64 at = 0;
    for (int i = 0; i < f->n; i++) {
        const draft_tensor *t = &f->t[i];
        buf_fmt(&head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", i ? "," : "{", t->name, dtype_name(t->type),
                (long long)t->shape[0]);
        if (t->n_dims > 1) buf_fmt(&head, ",%lld", (long long)t->shape[1]);
        buf_fmt(&head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    buf_char(&head, '}');
    while (head.len % 8) buf_char(&head, ' ');
    mkdir(dir, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *out = fopen(path, "wb");
    const u64 len = head.len;
    assert_true(out && fwrite(&len, 8, 1, out) == 1 && fwrite(head.data, 1, head.len, out) == head.len);
    for (int i = 0; i < f->n; i++) assert_int_equal(fwrite(f->t[i].data, 1, f->t[i].bytes, out), f->t[i].bytes);
    assert_int_equal(fclose(out), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    out = fopen(path, "w");
    assert_true(out && fputs(config, out) >= 0 && fclose(out) == 0);
    buf_free(&head);
}

static void draft_files_free(draft_files *f) {
    for (int i = 0; i < f->n; i++) free(f->t[i].data);
    f->n = 0;
}

static void draft_files_remove(const char *dir) {
    static const char *const files[] = {"model.safetensors", "config.json"};
    char path[160];
    for (size_t i = 0; i < COUNT_OF(files); i++) snprintf(path, sizeof path, "%s/%s", dir, files[i]), unlink(path);
    rmdir(dir);
}

/* nano's draft, whose guesses are all the same token. */
static inline void draft_files_write_dull(const char *dir) {
    draft_files f;
    buf config = {0};
    err e = {0};
    draft_files_read(&f, "models/nano-eagle3");
    for (int i = 0; i < f.n; i++)
        if (!strcmp(f.t[i].name, "norm.weight")) memset(f.t[i].data, 0, f.t[i].bytes);
    assert_int_equal(file_read("models/nano-eagle3/config.json", 1 << 20, &config, &e), ST_OK);
    buf_char(&config, 0);
    draft_files_write(&f, dir, (const char *)config.data);
    draft_files_free(&f), buf_free(&config);
}

#endif
