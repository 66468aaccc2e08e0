/* The ranks' exchanges (device/comm.h) among threads: sums in the order of the ranks, the same bits for all, whatever
 * the sizes; and groups that fail: a rank that stays away, calls something else, or says that it has failed. All of it
 * in one process, and in two and four that a fake MPI joins (device/comm_hosts.c). */
#include "unit.h"

#include "base/log.h"
#include "rank_processes.h"
#include <stdlib.h>
#include <unistd.h>

static i64 processes = 1;

/* In `processes` processes, where these can hold as many ranks each. */
static void on_ranks(i64 ranks, f64 deadline_s, rank_body body, void *ud) {
    comm *all[RANKS_MOST];
    err e;
    if (ranks % processes) return;
    if (processes > 1) {
        in_processes(processes, ranks / processes, deadline_s, body, ud);
        return;
    }
    assert_int_equal(comm_host_open(all, ranks, deadline_s, &e), ST_OK);
    on_ends(all, ranks, body, ud);
}

/* A value whose sums depend on their order. */
static f32 value_of(i64 rank, i64 i) {
    u32 z = (u32)(rank * 7919 + i * 104729 + 1) * 2654435761u;
    return (f32)((i32)z >> 8) * (z & 1 ? 1e-3f : 3e3f);
}

/* By hand, in the order of the ranks. */
static f32 sum_at(i64 ranks, i64 i, dtype type) {
    f32 sum = 0;
    for (i64 r = 0; r < ranks; r++) {
        f32 v = value_of(r, i);
        if (type == DT_BF16) v = bf16_to_f32(f32_to_bf16(v));
        sum = r ? sum + v : v;
    }
    return type == DT_BF16 ? bf16_to_f32(f32_to_bf16(sum)) : sum;
}

static void put(void *x, i64 i, f32 v, dtype type) {
    if (type == DT_F32)
        ((f32 *)x)[i] = v;
    else
        ((bf16 *)x)[i] = f32_to_bf16(v);
}

static f32 get(const void *x, i64 i, dtype type) {
    return type == DT_F32 ? ((const f32 *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

static bool same_bits(f32 a, f32 b) { return f32_bits(a) == f32_bits(b); }

static void all_reduce_body(comm *c, void *ud) {
    static const i64 sizes[] = {1, 2, 31, 33, 257, 4096, 8191, 8192, 8193, 70001, 300000};
    (void)ud;
    for (int again = 0; again < 3; again++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++)
            for (int t = 0; t < 2; t++) {
                dtype type = t ? DT_BF16 : DT_F32;
                i64 n = sizes[s];
                void *x = malloc((size_t)n * 4 + 8);
                memset((u8 *)x + (u64)n * dtype_size(type), 0x5a, 4);
                for (i64 i = 0; i < n; i++) put(x, i, value_of(c->rank, i), type);
                c->all_reduce(c, x, n, type);
                for (i64 i = 0; i < n; i++) assert_true(same_bits(get(x, i, type), sum_at(c->ranks, i, type)));
                for (int k = 0; k < 4; k++) assert_int_equal(((u8 *)x)[(u64)n * dtype_size(type) + (u64)k], 0x5a);
                free(x);
            }
    assert_int_equal(c->finish(c, NULL), ST_OK);
}

static void all_reduce(void **state) {
    (void)state;
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks += ranks < 4 ? 1 : 4) on_ranks(ranks, 60, all_reduce_body, NULL);
}

static void others_body(comm *c, void *ud) {
    enum { N = 1000 };
    (void)ud;
    for (i64 round = 0; round < 50; round++) {
        i64 mine[3] = {c->rank, round, c->rank * round}, all[RANKS_MOST][3];
        c->all_gather(c, mine, all, sizeof mine);
        for (i64 r = 0; r < c->ranks; r++) {
            assert_int_equal(all[r][0], r);
            assert_int_equal(all[r][2], r * round);
        }
        f32 x[RANKS_MOST * N], part[N];
        for (i64 i = 0; i < c->ranks * N; i++) x[i] = value_of(c->rank, i + round);
        c->reduce_scatter(c, x, part, N, DT_F32);
        for (i64 i = 0; i < N; i++) assert_true(same_bits(part[i], sum_at(c->ranks, c->rank * N + i + round, DT_F32)));
        i64 word = c->rank == round % c->ranks ? 1000 + round : -1;
        c->broadcast(c, &word, sizeof word, round % c->ranks);
        assert_int_equal(word, 1000 + round);
        c->barrier(c);
    }
    assert_int_equal(c->finish(c, NULL), ST_OK);
}

static void gathers_and_scatters(void **state) {
    (void)state;
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks *= 2) on_ranks(ranks, 60, others_body, NULL);
}

/* From rank a to rank b: so many, none at times. */
static i64 count_of(i64 a, i64 b, i64 round) { return (a * 5 + b * 3 + round) % 7; }

static void all_to_all_body(comm *c, void *ud) {
    (void)ud;
    for (i64 round = 0; round < 40; round++) {
        i64 out_counts[RANKS_MOST], in_counts[RANKS_MOST], n = 0;
        i32 out[RANKS_MOST * 7], in[RANKS_MOST * 7];
        for (i64 r = 0; r < c->ranks; r++) {
            out_counts[r] = count_of(c->rank, r, round), in_counts[r] = count_of(r, c->rank, round);
            for (i64 i = 0; i < out_counts[r]; i++) out[n++] = (i32)(c->rank * 10000 + r * 100 + i);
        }
        c->all_to_all(c, out, out_counts, in, in_counts, sizeof(i32));
        n = 0;
        for (i64 r = 0; r < c->ranks; r++)
            for (i64 i = 0; i < in_counts[r]; i++) assert_int_equal(in[n++], r * 10000 + c->rank * 100 + i);
    }
    assert_int_equal(c->finish(c, NULL), ST_OK);
}

static void all_to_all(void **state) {
    (void)state;
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks += 3) on_ranks(ranks, 60, all_to_all_body, NULL);
}

/* A share of a matrix's columns becomes all columns of some rows; and a gather in place. */
static void columns_to_rows_body(comm *c, void *ud) {
    (void)ud;
    i64 first[RANKS_MOST + 1] = {0};
    for (i64 r = 0; r < c->ranks; r++) first[r + 1] = first[r] + 3 + 2 * r;
    const i64 total = first[c->ranks], at = first[c->rank], width = first[c->rank + 1] - at;
    for (i64 n = 0; n < 20; n++) {
        u32 mine[20 * 20], rows[20 * 100], all[3 * RANKS_MOST];
        const row_range own = comm_rows(n, c->ranks, c->rank);
        for (i64 i = 0; i < n * width; i++) mine[i] = (u32)(n * 100000 + i / width * 1000 + at + i % width);
        memset(rows, 0xff, sizeof rows);
        c->columns_to_rows(c, mine, n, first, rows);
        for (i64 i = 0; i < (own.to - own.from) * total; i++)
            assert_int_equal(rows[i], n * 100000 + (own.from + i / total) * 1000 + i % total);
        assert_int_equal(rows[(own.to - own.from) * total], UINT32_MAX);
        for (i64 i = 0; i < 3; i++) all[c->rank * 3 + i] = (u32)(n + c->rank * 3 + i);
        c->all_gather(c, all + c->rank * 3, all, 3 * sizeof *all);
        for (i64 i = 0; i < 3 * c->ranks; i++) assert_int_equal(all[i], n + i);
    }
    assert_int_equal(c->finish(c, NULL), ST_OK);
}

static void columns_to_rows(void **state) {
    (void)state;
    for (i64 ranks = 1; ranks <= RANKS_MOST; ranks += 3) on_ranks(ranks, 60, columns_to_rows_body, NULL);
    for (i64 n = 0; n < 40; n++) /* every row is somebody's, once */
        for (i64 ranks = 1, at = 0; ranks < 9; ranks++, at = 0) {
            for (i64 r = 0; r < ranks; r++) {
                row_range p = comm_rows(n, ranks, r);
                assert_true(p.from == at && p.to >= p.from && p.to - p.from <= ceil_div(n, ranks));
                at = p.to;
            }
            assert_int_equal(at, n);
        }
}

static void expect_failure(comm *c, const char *text) {
    err e = {0};
    status st = c->finish(c, &e);
    for (const f64 until = now_s() + 10; processes > 1 && st == ST_OK && now_s() < until; st = c->finish(c, &e))
        usleep(1000); /* another process's reason is on its way */
    assert_int_equal(st, ST_DEVICE);
    if (!strstr(e.text, text)) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
}

/* Rank 1 stays away from the third exchange. */
static void late_body(comm *c, void *ud) {
    f32 x[20000] = {0};
    (void)ud;
    c->all_reduce(c, x, 20000, DT_F32);
    c->barrier(c);
    if (c->rank == 1) return;
    f64 start = now_s();
    c->all_reduce(c, x, 20000, DT_F32);
    expect_failure(c, "rank 1 did not come to exchange 3 (all-reduce) within 0.2 s");
    for (int i = 0; i < 100; i++) c->all_reduce(c, x, 20000, DT_F32); /* at once */
    assert_true(now_s() - start < 10);
}

static void a_rank_stays_away(void **state) {
    (void)state;
    on_ranks(3, 0.2, late_body, NULL);
}

static void different_body(comm *c, void *ud) {
    char x[64] = {0}, all[64 * RANKS_MOST];
    if (*(int *)ud == 0) {
        if (c->rank == 2)
            c->barrier(c);
        else
            c->all_gather(c, x, all, 64);
        expect_failure(c, processes < 4 ? "rank" : "exchange 1 (");
    } else if (*(int *)ud == 1) {
        c->all_gather(c, x, all, c->rank == 2 ? 32 : 64);
        expect_failure(c, processes < 4 ? "all-gather of 32" : "(all-gather)");
    } else {
        i64 out[RANKS_MOST] = {1, 1, 1, 1}, in[RANKS_MOST] = {1, 1, 1, 1};
        if (c->rank == 0) out[3] = 2;
        c->all_to_all(c, x, out, all, in, 4);
        expect_failure(c, processes == 1 ? "rank 0 sends 2 elements to rank 3, which expects 1" : "(all-to-all)");
    }
}

static void ranks_disagree(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) on_ranks(4, 60, different_body, &how);
}

static void fails_body(comm *c, void *ud) {
    (void)ud;
    if (c->rank == 1) {
        err why;
        err_set(&why, ST_DEVICE, "its device is gone");
        usleep(50000);
        c->cancel(c, &why);
        err_set(&why, ST_IO, "a later one");
        c->cancel(c, &why);
    } else {
        f64 start = now_s();
        c->barrier(c);
        assert_true(now_s() - start < 30);
    }
    expect_failure(c, "its device is gone");
}

static void a_rank_says_that_it_failed(void **state) {
    (void)state;
    on_ranks(4, 60, fails_body, NULL);
}

static void refusals(void **state) {
    (void)state;
    comm *all[1];
    err e;
    assert_int_equal(comm_host_open(all, 0, 1, &e), ST_INPUT);
    assert_int_equal(comm_host_open(all, COMM_RANKS_MAX + 1, 1, &e), ST_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce),
        cmocka_unit_test(gathers_and_scatters),
        cmocka_unit_test(columns_to_rows),
        cmocka_unit_test(all_to_all),
        cmocka_unit_test(a_rank_stays_away),
        cmocka_unit_test(ranks_disagree),
        cmocka_unit_test(a_rank_says_that_it_failed),
        cmocka_unit_test(refusals),
    };
    int failed = 0;
    for (processes = 1; processes <= FAKE_PROCESSES; processes *= 2)
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    return failed;
}
