#include "runtime/marks.h"
#include "base/file.h"
#include "base/siphash.h"
#include <string.h>

u64 marks_hash(const void *data, u64 n) {
    static const u64 key[2] = {0x6d6f6f6e6c657421, 0x686f737473};
    return siphash(key, data, n);
}

/* Names, types and shapes of all tensors, and some bytes of some of them: enough to tell one model's checkpoint from
 * another's of the same shapes, which are read in a moment whatever the checkpoint's size. */
static status checkpoint_mark(const checkpoint *ck, u64 *mark, err *e) {
    enum { SAMPLES = 64, SAMPLE = 4096 };
    const u64 n = checkpoint_n_tensors(ck);
    u8 bytes[SAMPLE];
    u64 sum = n;
    for (u64 i = 0; i < n; i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        const u64 own[] = {sum, marks_hash(t->name, strlen(t->name)), (u64)t->type, t->bytes,
                           marks_hash(t->shape, sizeof t->shape)};
        sum = marks_hash(own, sizeof own);
    }
    for (u64 i = 0; i < SAMPLES && n; i++) {
        const tensor_info *t = checkpoint_tensor(ck, i * n / SAMPLES);
        const u64 some = t->bytes < SAMPLE ? t->bytes : SAMPLE;
        status st = checkpoint_read(ck, t, (t->bytes - some) / 2, some, bytes, e);
        if (st != ST_OK) return st;
        const u64 own[] = {sum, marks_hash(bytes, some)};
        sum = marks_hash(own, sizeof own);
    }
    *mark = sum;
    return ST_OK;
}

status marks_of_checkpoint(buf *b, const char *what, const checkpoint *ck, err *e) {
    u64 mark = 0;
    status st = ck ? checkpoint_mark(ck, &mark, e) : ST_OK;
    buf_fmt(b, "%s=%llu tensors, %llu bytes, mark %016llx\n", what,
            (unsigned long long)(ck ? checkpoint_n_tensors(ck) : 0),
            (unsigned long long)(ck ? checkpoint_bytes(ck) : 0), (unsigned long long)mark);
    return st;
}

status marks_of_config(buf *b, const char *what, const char *dir, err *e) {
    char path[4096];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "config.json", e);
    if (st == ST_OK) st = file_read(path, 64 << 20, &text, e);
    if (st == ST_OK) buf_fmt(b, "%s=%016llx\n", what, (unsigned long long)marks_hash(text.data, text.len));
    buf_free(&text);
    return st;
}

/* The line at `at`; its end. */
static const char *marks_read_line(const char *at, marks_line *l) {
    const size_t n = strcspn(at, "\n"), name = strcspn(at, "=");
    const size_t split = name < n ? name : n;
    *l = (marks_line){.name = *at ? at : NULL,
                      .n = (int)n,
                      .n_name = (int)split,
                      .value = at + split + (split < n),
                      .n_value = (int)(n - split - (split < n))};
    return at + n + (at[n] != 0);
}

bool marks_differ(const char *a, const char *b, marks_line *of_a, marks_line *of_b) {
    while (*a || *b) {
        a = marks_read_line(a, of_a);
        b = marks_read_line(b, of_b);
        if (of_a->n != of_b->n || !of_a->name || !of_b->name || memcmp(of_a->name, of_b->name, (size_t)of_a->n))
            return true;
    }
    return false;
}
