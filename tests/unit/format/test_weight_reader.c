/* A checkpoint read once for several ranks: every byte counted, by the reader and by the disk; ranks that run ahead,
 * stay behind, fail; disks that fail or give nothing. */
#include "unit.h"

#include "base/log.h"
#include "counted_reads.h"
#include "format/weight_reader.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 3, TENSORS = 120, RANKS_MOST = 8, BIG = 70 /* a tensor of more bytes than one read */ };
static char dir[64];
static checkpoint *ck;
static const tensor_info *all[TENSORS];

static u64 size_of_tensor(int i) {
    return i % 17 == 5 ? 0 : i == BIG ? 20 << 20 : 4 * (u64)(((u32)i * 2654435761u >> 16) % 9000 + 1);
}
static u8 byte_of_tensor(int i, u64 at) { return (u8)(at * 31 + at / 251 + (u64)i * 7); }

static void path_of_shard(int shard, char path[96]) { snprintf(path, 96, "%s/s%d.safetensors", dir, shard); }

/* Tensor i is in shard i % SHARDS. */
static void write_reader_shard(int shard, FILE *index) {
    char path[96], *head = calloc(1, 1 << 16), *at = head;
    u64 end = 0;
    for (int i = shard; i < TENSORS; i += SHARDS) {
        at += sprintf(at, "%c\"t%d\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                      i == shard ? '{' : ',', i, (unsigned long long)size_of_tensor(i) / 4, (unsigned long long)end,
                      (unsigned long long)(end + size_of_tensor(i)));
        end += size_of_tensor(i);
        fprintf(index, "%s\"t%d\":\"s%d.safetensors\"", i ? "," : "", i, shard);
    }
    u64 n = (u64)(at - head) + 1;
    n = (n + 7) / 8 * 8;
    memset(at, ' ', head + n - at);
    *at = '}';
    path_of_shard(shard, path);
    FILE *f = fopen(path, "wb");
    fwrite(&n, 8, 1, f), fwrite(head, n, 1, f);
    for (int i = shard; i < TENSORS; i += SHARDS)
        for (u64 k = 0; k < size_of_tensor(i); k++) fputc(byte_of_tensor(i, k), f);
    assert_int_equal(fclose(f), 0);
    free(head);
}

static int setup(void **state) {
    (void)state;
    char path[96];
    err e = {0};
    strcpy(dir, "/tmp/moonlet-reader-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    FILE *index = fopen(path, "w");
    fprintf(index, "{\"weight_map\":{");
    for (int s = 0; s < SHARDS; s++) write_reader_shard(s, index);
    fprintf(index, "}}");
    fclose(index);
    log_set_quiet(true);
    if (checkpoint_open(&ck, dir, &e) != ST_OK) return fprintf(stderr, "%s\n", e.text), -1;
    for (int i = 0; i < TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        all[i] = checkpoint_find(ck, name);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char path[96];
    checkpoint_close(ck);
    for (int s = 0; s < SHARDS; s++) path_of_shard(s, path), unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    unlink(path);
    return rmdir(dir);
}

static u64 needed_bytes(int n) {
    u64 sum = 0;
    for (int i = 0; i < n; i++) sum += size_of_tensor(i);
    return sum;
}

typedef struct {
    weight_reader *r;
    i64 rank;
    int n, hold;     /* tensors of the list; how many are taken before they are given back */
    unsigned us;     /* at each */
    bool checks;     /* every byte */
    int took, wrong; /* tensors */
    status st;
    err e;
} walker;

static const tensor_info *const *list = all;

static void *walk(void *arg) {
    walker *w = arg;
    for (w->took = 0; w->took < w->n; w->took++) {
        const void *data;
        const tensor_info *t = list[w->took];
        if ((w->st = weight_reader_take(w->r, w->rank, t, &data, &w->e)) != ST_OK) return NULL;
        int i = atoi(t->name + 1);
        if ((uintptr_t)data % 4 || (t->bytes && data == t->data)) w->wrong++;
        if (w->us) usleep(w->us);
        for (u64 k = 0, step = w->checks ? 1 : 97; k < t->bytes; k += step)
            if (((const u8 *)data)[k] != byte_of_tensor(i, k)) {
                w->wrong++;
                break;
            }
        if (w->took % w->hold == w->hold - 1) weight_reader_give_back(w->r, w->rank);
    }
    weight_reader_give_back(w->r, w->rank);
    return NULL;
}

/* Ranks of different patience over list [n]. */
static weight_reads walk_all(i64 ranks, int n, u64 window, u64 by_shard[SHARDS]) {
    weight_reader *r;
    err e = {0};
    walker w[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    disk_reset();
    assert_int_equal(weight_reader_open(&r, ck, list, (u64)n, ranks, window, 20, &e), ST_OK);
    for (i64 k = 0; k < ranks; k++) {
        w[k] = (walker){.r = r, .rank = k, .n = n, .hold = 1 + (int)k % 4, .us = k == 1 ? 300 : 0, .checks = k == 0};
        assert_int_equal(pthread_create(&threads[k], NULL, walk, &w[k]), 0);
    }
    for (i64 k = 0; k < ranks; k++) {
        pthread_join(threads[k], NULL);
        if (w[k].st != ST_OK) fail_msg("%s", w[k].e.text);
        assert_int_equal(w[k].wrong, 0);
    }
    weight_reads reads = weight_reader_reads(r);
    for (int s = 0; s < SHARDS; s++) by_shard[s] = weight_reader_shard_bytes(r, s);
    weight_reader_close(r);
    return reads;
}

static void read_once_for_all_ranks(void **state) {
    (void)state;
    static const u64 windows[] = {0, 64, 50000, 200000};
    u64 shards[SHARDS], expected[SHARDS] = {0};
    for (int i = 0; i < TENSORS; i++) expected[i % SHARDS] += size_of_tensor(i);
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks *= 2)
        for (size_t w = 0; w < COUNT_OF(windows); w++) {
            weight_reads reads = walk_all(ranks, TENSORS, windows[w], shards);
            assert_int_equal(reads.needed, needed_bytes(TENSORS));
            assert_int_equal(reads.bytes, reads.needed);
            assert_int_equal(disk.bytes, reads.needed);
            assert_memory_equal(shards, expected, sizeof shards);
            /* beside the window, at most what a rank may hold at a time (4) of those that had no room */
            if (windows[w]) assert_true(reads.memory <= windows[w] + size_of_tensor(BIG) + 4 * 36064);
        }
}

/* An embedding that is the head, too: far apart, and next to each other. */
static void tensors_that_repeat(void **state) {
    (void)state;
    u64 shards[SHARDS];
    const tensor_info *twice[TENSORS + 3];
    memcpy(twice, all, sizeof all);
    twice[TENSORS] = all[TENSORS - 1], twice[TENSORS + 1] = all[3], twice[TENSORS + 2] = all[5];
    list = twice;
    for (i64 ranks = 1; ranks <= 4; ranks *= 2)
        for (u64 window = 64; window < 1 << 20; window *= 64) {
            weight_reads reads = walk_all(ranks, TENSORS + 3, window, shards);
            assert_int_equal(reads.bytes, needed_bytes(TENSORS));
            assert_int_equal(disk.bytes, reads.bytes);
        }
    list = all;
}

static void lists_that_are_short(void **state) {
    (void)state;
    u64 shards[SHARDS];
    assert_int_equal(walk_all(2, 0, 0, shards).bytes, 0);
    assert_int_equal(walk_all(2, 1, 0, shards).bytes, size_of_tensor(0));
    assert_int_equal(walk_all(1, 6, 64, shards).bytes, needed_bytes(6)); /* the last has no bytes */
}

/* Rank 0 goes as far as the window lets it while rank 1 does nothing; then the deadline, which names rank 1. */
static void a_rank_that_stays_behind(void **state) {
    (void)state;
    enum { WINDOW = 200000 };
    err e = {0};
    walker w = {.n = TENSORS, .hold = 1};
    disk_reset();
    assert_int_equal(weight_reader_open(&w.r, ck, all, TENSORS, 2, WINDOW, 0.3, &e), ST_OK);
    f64 start = now_s();
    walk(&w);
    assert_int_equal(w.st, ST_DEVICE);
    assert_string_equal(w.e.text, "rank 1 was not done with tensor t0 within 0.3 s");
    assert_true(now_s() - start < 10);
    assert_true(w.took > 3 && w.took < BIG && needed_bytes(w.took) <= WINDOW);
    assert_true(disk.bytes <= WINDOW);
    const void *data; /* it fails from then on, for all */
    assert_int_equal(weight_reader_take(w.r, 1, all[0], &data, &e), ST_DEVICE);
    weight_reader_close(w.r);
}

static void a_rank_that_fails(void **state) {
    (void)state;
    err e = {0};
    walker w = {.n = TENSORS, .hold = 1};
    pthread_t thread;
    assert_int_equal(weight_reader_open(&w.r, ck, all, TENSORS, 2, 1 << 16, 60, &e), ST_OK);
    f64 start = now_s();
    assert_int_equal(pthread_create(&thread, NULL, walk, &w), 0);
    usleep(50000);
    weight_reader_cancel(w.r);
    pthread_join(thread, NULL);
    assert_int_equal(w.st, ST_CANCELLED);
    assert_true(now_s() - start < 10);
    weight_reader_close(w.r);
}

static err fails_with(status code, const char *text, f64 deadline_s) {
    err e = {0};
    walker w = {.n = TENSORS, .hold = 1};
    assert_int_equal(weight_reader_open(&w.r, ck, all, TENSORS, 1, 0, deadline_s, &e), ST_OK);
    walk(&w);
    weight_reader_close(w.r);
    assert_int_equal(w.st, code);
    if (!strstr(w.e.text, text)) fail_msg("\"%s\" does not say \"%s\"", w.e.text, text);
    return w.e;
}

static void input_error(void) { disk.error = EIO; }

static void disks_that_fail(void **state) {
    (void)state;
    char path[96];
    disk_reset();
    disk.left = 9;
    disk.wrong = input_error;
    fails_with(ST_IO, "cannot read at byte ", 60);
    disk_reset();
    disk.us = 700000;
    fails_with(ST_IO, "the disk gave nothing for 0.1 s (tensor t0, 0 of ", 0.1);
    disk_reset();
    path_of_shard(1, path); /* cut in the middle of the large one, after it was mapped */
    const u64 cut = (u64)(all[BIG]->data - all[1]->data) + 9000000;
    assert_int_equal(truncate(path, (off_t)cut), 0);
    static const char said[] = "s1.safetensors: is cut off: no byte ";
    const err e = fails_with(ST_IO, said, 60);
    assert_true(strtoull(strstr(e.text, said) + strlen(said), NULL, 10) >= cut); /* which of the reads was first */
}

static void out_of_order(void **state) {
    (void)state;
    weight_reader *r;
    const void *data;
    err e = {0};
    assert_int_equal(weight_reader_open(&r, ck, all, 2, 1, 0, 60, &e), ST_OK);
    assert_int_equal(weight_reader_take(r, 0, all[1], &data, &e), ST_INPUT);
    assert_string_equal(e.text, "tensor t1 is not the next that rank 0 was to take");
    assert_int_equal(weight_reader_take(r, 0, all[0], &data, &e), ST_OK);
    assert_int_equal(weight_reader_take(r, 0, all[1], &data, &e), ST_OK);
    assert_int_equal(weight_reader_take(r, 0, all[1], &data, &e), ST_INPUT);
    weight_reader_close(r); /* with what was not given back */
    weight_reader_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_once_for_all_ranks), cmocka_unit_test(tensors_that_repeat),
        cmocka_unit_test(lists_that_are_short),    cmocka_unit_test(a_rank_that_stays_behind),
        cmocka_unit_test(a_rank_that_fails),       cmocka_unit_test(out_of_order),
        cmocka_unit_test(disks_that_fail), /* the last: it cuts a file */
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
