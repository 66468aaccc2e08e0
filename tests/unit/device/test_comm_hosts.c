/* The ranks' exchanges among processes (device/comm_hosts.c), which a fake MPI joins: whatever the exchange and its
 * sizes, the bits are those of the same ranks in one process, and of a computation by hand; and a process that stays
 * away, calls something else or fails ends all others. */
#include "unit.h"

#include "base/log.h"
#include "rank_processes.h"
#include <stdlib.h>
#include <unistd.h>

enum { RANDOM_CALLS = 150 };

typedef enum { REDUCE, GATHER, SCATTER, ALL_TO_ALL, COLUMNS, BROADCAST, BARRIER, KINDS } kind;

/* A call; what ranks put into it follows from `seed`. */
typedef struct {
    kind kind;
    i64 n; /* elements, bytes or rows */
    dtype type;
    i64 root, size; /* of an element of all-to-all */
    bool in_place;
    u32 seed;
} call;

static const struct { i64 processes, each; } layouts[] = {{1, 2}, {2, 1}, {2, 2}, {4, 1}, {3, 2}};

static u32 mix(u32 seed, i64 a, i64 b) {
    u32 z = seed * 2654435761u + (u32)a * 40503u + (u32)b * 2246822519u + 1;
    z = (z ^ z >> 15) * 2246822519u;
    z = (z ^ z >> 13) * 3266489917u;
    return z ^ z >> 16;
}

/* Values whose sums depend on their order. */
static f32 value_of(u32 seed, i64 rank, i64 i) {
    const u32 z = mix(seed, rank, i);
    return (f32)((i32)z >> 8) * (z & 1 ? 1e-3f : 3e3f);
}

static void put_values(void *x, u32 seed, i64 rank, i64 n, dtype type) {
    for (i64 i = 0; i < n; i++)
        if (type == DT_F32)
            ((f32 *)x)[i] = value_of(seed, rank, i);
        else
            ((bf16 *)x)[i] = f32_to_bf16(value_of(seed, rank, i));
}

static void put_bytes(u8 *x, u32 seed, i64 rank, i64 n) {
    for (i64 i = 0; i < n; i++) x[i] = (u8)mix(seed, rank, i);
}

/* From rank a to rank b: so many, often none. */
static i64 count_of(u32 seed, i64 a, i64 b) {
    const u32 z = mix(seed, a + 100, b);
    return z % 3 ? z / 3 % 9 : 0;
}

static i64 width_of(u32 seed, i64 rank) { return 1 + mix(seed, rank, 7) % 5; }

/* ---- by hand ---- */

static void plain_sums(const call *k, i64 ranks, i64 from, i64 n, void *out) {
    for (i64 i = 0; i < n; i++) {
        f32 sum = 0;
        for (i64 r = 0; r < ranks; r++) {
            f32 v = value_of(k->seed, r, from + i);
            if (k->type == DT_BF16) v = bf16_to_f32(f32_to_bf16(v));
            sum = r ? sum + v : v;
        }
        if (k->type == DT_F32)
            ((f32 *)out)[i] = sum;
        else
            ((bf16 *)out)[i] = f32_to_bf16(sum);
    }
}

/* Element i that rank a sends to rank b. */
static void plain_parcel(const call *k, i64 a, i64 b, u8 *out) {
    put_bytes(out, k->seed + (u32)b, a, count_of(k->seed, a, b) * k->size);
}

static u32 cell_of(const call *k, i64 row, i64 column) { return mix(k->seed, row, column); }

/* What rank `rank` gets; the bytes of it. */
static u64 plain_call(const call *k, i64 ranks, i64 rank, u8 *out) {
    u64 n = 0, size = dtype_size(k->type);
    switch (k->kind) {
    case REDUCE: plain_sums(k, ranks, 0, k->n, out); return (u64)k->n * size;
    case SCATTER: plain_sums(k, ranks, rank * k->n, k->n, out); return (u64)k->n * size;
    case GATHER:
        for (i64 r = 0; r < ranks; r++, n += (u64)k->n) put_bytes(out + n, k->seed, r, k->n);
        return n;
    case ALL_TO_ALL:
        for (i64 r = 0; r < ranks; n += (u64)(count_of(k->seed, r, rank) * k->size), r++)
            plain_parcel(k, r, rank, out + n);
        return n;
    case COLUMNS: {
        const i64 each = (k->n + ranks - 1) / ranks;
        i64 all = 0;
        for (i64 r = 0; r < ranks; r++) all += width_of(k->seed, r);
        for (i64 row = rank * each; row < (rank + 1) * each && row < k->n; row++)
            for (i64 c = 0; c < all; c++) ((u32 *)(void *)out)[n++] = cell_of(k, row, c);
        return n * sizeof(u32);
    }
    case BROADCAST: put_bytes(out, k->seed, k->root, k->n); return (u64)k->n;
    default: return 0;
    }
}

/* ---- by exchanges ---- */

static void gather(comm *c, const call *k, u8 *out) {
    u8 *mine = k->in_place ? out + c->rank * k->n : malloc((size_t)k->n + 1);
    put_bytes(mine, k->seed, c->rank, k->n);
    c->all_gather(c, mine, out, (u64)k->n);
    if (!k->in_place) free(mine);
}

static void scatter(comm *c, const call *k, u8 *out) {
    void *x = malloc((size_t)(c->ranks * k->n) * sizeof(f32) + 1);
    put_values(x, k->seed, c->rank, c->ranks * k->n, k->type);
    c->reduce_scatter(c, x, out, k->n, k->type);
    free(x);
}

static void to_all(comm *c, const call *k, u8 *out) {
    i64 out_counts[RANKS_MOST], in_counts[RANKS_MOST], n = 0;
    u8 *x = malloc((size_t)(9 * c->ranks * k->size) + 1);
    for (i64 r = 0; r < c->ranks; n += out_counts[r++] * k->size) {
        out_counts[r] = count_of(k->seed, c->rank, r), in_counts[r] = count_of(k->seed, r, c->rank);
        plain_parcel(k, c->rank, r, x + n);
    }
    c->all_to_all(c, x, out_counts, out, in_counts, (u64)k->size);
    free(x);
}

static void columns(comm *c, const call *k, u8 *out) {
    i64 first[RANKS_MOST + 1] = {0};
    for (i64 r = 0; r < c->ranks; r++) first[r + 1] = first[r] + width_of(k->seed, r);
    const i64 width = width_of(k->seed, c->rank);
    u32 *x = malloc((size_t)(k->n * width) * sizeof *x + 1);
    for (i64 i = 0; i < k->n * width; i++) x[i] = cell_of(k, i / width, first[c->rank] + i % width);
    c->columns_to_rows(c, x, k->n, first, out);
    free(x);
}

static void do_call(comm *c, const call *k, u8 *out) {
    switch (k->kind) {
    case REDUCE:
        put_values(out, k->seed, c->rank, k->n, k->type);
        c->all_reduce(c, out, k->n, k->type);
        break;
    case GATHER: gather(c, k, out); break;
    case SCATTER: scatter(c, k, out); break;
    case ALL_TO_ALL: to_all(c, k, out); break;
    case COLUMNS: columns(c, k, out); break;
    case BROADCAST:
        if (c->rank == k->root) put_bytes(out, k->seed, k->root, k->n);
        c->broadcast(c, out, (u64)k->n, k->root);
        break;
    default: c->barrier(c);
    }
}

static u64 room_of(const call *k, i64 ranks) {
    return (u64)(ranks * (k->n * 4 + 9 * k->size) + k->n * ranks * 5 * 4 + 64);
}

typedef struct {
    const call *calls;
    i64 n;
    atomic_llong wrong; /* 1 + the first call that a rank found wrong */
} call_list;

/* Nothing is written beyond a result, and nothing into it that does not belong there. */
static void calls_body(comm *c, void *ud) {
    call_list *l = ud;
    for (i64 i = 0; i < l->n; i++) {
        const call *k = &l->calls[i];
        const u64 room = room_of(k, c->ranks);
        u8 *got = malloc(room), *want = malloc(room);
        memset(got, 0xa5, room);
        memset(want, 0xa5, room);
        plain_call(k, c->ranks, c->rank, want);
        do_call(c, k, got);
        long long none = 0;
        if (memcmp(got, want, room)) atomic_compare_exchange_strong(&l->wrong, &none, i + 1);
        free(got);
        free(want);
    }
    long long none = 0;
    if (c->finish(c, NULL) != ST_OK) atomic_compare_exchange_strong(&l->wrong, &none, -1);
}

/* The list in every layout, and by the same number of ranks in one process without any hosts. */
static void same_everywhere(const call *calls, i64 n) {
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        const i64 ranks = layouts[l].processes * layouts[l].each;
        call_list alone = {calls, n, 0}, joined = {calls, n, 0};
        comm *all[RANKS_MOST];
        assert_int_equal(comm_host_open(all, ranks, 60, NULL), ST_OK);
        on_ends(all, ranks, calls_body, &alone);
        in_processes(layouts[l].processes, layouts[l].each, 60, calls_body, &joined);
        const long long a = atomic_load(&alone.wrong), j = atomic_load(&joined.wrong);
        if (a || j)
            fail_msg("%lld processes of %lld: call %lld (alone %lld) of kind %d, n %lld",
                     (long long)layouts[l].processes, (long long)layouts[l].each, j - 1, a - 1,
                     j > 0 ? (int)calls[j - 1].kind : -1, j > 0 ? (long long)calls[j - 1].n : -1);
    }
}

static void sums(void **state) {
    static const i64 reduced[] = {0, 1, 2, 3, 5, 31, 33, 4095, 4096, 4097, 8191, 8192, 8193, 20001};
    static const i64 scattered[] = {0, 1, 3, 257, 4097};
    call calls[2 * (COUNT_OF(reduced) + COUNT_OF(scattered))];
    i64 n = 0;
    (void)state;
    for (int t = 0; t < 2; t++) {
        const dtype type = t ? DT_BF16 : DT_F32;
        for (size_t i = 0; i < COUNT_OF(reduced); i++, n++)
            calls[n] = (call){.kind = REDUCE, .n = reduced[i], .type = type, .seed = (u32)n};
        for (size_t i = 0; i < COUNT_OF(scattered); i++, n++)
            calls[n] = (call){.kind = SCATTER, .n = scattered[i], .type = type, .seed = (u32)n};
    }
    same_everywhere(calls, n);
}

static void gathers_and_parcels(void **state) {
    static const i64 sizes[] = {0, 1, 3, 4096, 4097, 30011}, elements[] = {1, 4, 12, 1000};
    call calls[64];
    i64 n = 0;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int place = 0; place < 2; place++, n++)
            calls[n] = (call){.kind = GATHER, .n = sizes[i], .type = DT_F32, .in_place = place, .seed = (u32)n};
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < COUNT_OF(elements); i++, n++)
            calls[n] = (call){.kind = ALL_TO_ALL, .size = elements[i], .type = DT_F32, .seed = (u32)n};
    for (i64 rows = 0; rows < 14; rows++, n++)
        calls[n] = (call){.kind = COLUMNS, .n = rows, .type = DT_F32, .seed = (u32)n};
    calls[n] = (call){.kind = COLUMNS, .n = 1001, .type = DT_F32, .seed = (u32)n}, n++;
    calls[n++] = (call){.kind = BARRIER, .type = DT_F32};
    same_everywhere(calls, n);
}

/* From every rank of each layout. */
static void roots(void **state) {
    static const i64 sizes[] = {0, 4096, 20003};
    (void)state;
    for (size_t l = 0; l < COUNT_OF(layouts); l++) {
        const i64 ranks = layouts[l].processes * layouts[l].each;
        call calls[RANKS_MOST * COUNT_OF(sizes)];
        call_list list = {calls, 0, 0};
        for (i64 root = 0; root < ranks; root++)
            for (size_t i = 0; i < COUNT_OF(sizes); i++, list.n++)
                calls[list.n] =
                    (call){.kind = BROADCAST, .n = sizes[i], .type = DT_F32, .root = root, .seed = (u32)list.n};
        in_processes(layouts[l].processes, layouts[l].each, 60, calls_body, &list);
        assert_int_equal(atomic_load(&list.wrong), 0);
    }
}

static void many_at_random(void **state) {
    static call calls[RANDOM_CALLS];
    (void)state;
    for (i64 i = 0; i < RANDOM_CALLS; i++) {
        const u32 a = mix(20, i, 0), b = mix(20, i, 1);
        call *k = &calls[i];
        *k = (call){.kind = a % KINDS, .type = a >> 8 & 1 ? DT_BF16 : DT_F32, .in_place = a >> 9 & 1, .seed = (u32)i};
        k->n = b % 3 == 0 ? b / 3 % 9 : b % 3 == 1 ? b / 3 % 700 : b / 3 % (k->kind == COLUMNS ? 700 : 9000);
        k->root = (a >> 10) % 2; /* every layout has two ranks */
        k->size = k->kind == ALL_TO_ALL ? 1 + (a >> 12) % 40 : 0;
    }
    same_everywhere(calls, RANDOM_CALLS);
}

/* ---- failing ---- */

typedef enum { STAYS_AWAY, ONE_STAYS_AWAY, OTHER_CALL, OTHER_SIZE, OTHER_COUNT, CANCELS, HELD, FAULTS } fault;

typedef struct {
    fault what;
    i64 each;
    atomic_int kept;             /* ranks whose end is as it should be */
    char texts[RANKS_MOST][512]; /* whose is not */
} fault_case;

/* Others' reasons may be on their way. */
static status end_of(comm *c, err *e) {
    status st = ST_OK;
    for (const f64 until = now_s() + 5; st == ST_OK && now_s() < until; usleep(1000)) st = c->finish(c, e);
    return st;
}

/* What ranks of process 1 do in place of the third exchange; false: what the others do. */
static bool goes_astray(comm *c, const fault_case *f, u8 *all) {
    u8 x[64] = {0};
    i64 counts[RANKS_MOST];
    const i64 last = 2 * f->each - 1;
    for (i64 r = 0; r < c->ranks; r++) counts[r] = 2;
    if (c->rank / f->each != 1 || f->what == HELD) return false;
    switch (f->what) {
    case STAYS_AWAY: return true;
    case ONE_STAYS_AWAY: return c->rank == last;
    case OTHER_CALL: c->barrier(c); return true;
    case OTHER_SIZE: c->all_gather(c, x, all, 63); return true;
    case OTHER_COUNT: c->all_to_all(c, x, counts, all, counts, 1); return true;
    default:
        if (c->rank == last) c->cancel(c, &(err){ST_DEVICE, "its device is gone"});
        return c->rank == last;
    }
}

static void fault_body(comm *c, void *ud) {
    static const char *const said[] = {[STAYS_AWAY] = "did not come to exchange 3 (",
                                       [ONE_STAYS_AWAY] = "did not come to exchange 3 (",
                                       [OTHER_CALL] = "exchange 3 (",
                                       [OTHER_SIZE] = "exchange 3 (",
                                       [OTHER_COUNT] = "exchange 3 (all-to-all)",
                                       [CANCELS] = "its device is gone",
                                       [HELD] = "did not come to exchange 3 ("};
    fault_case *f = ud;
    enum { LARGE = 20000 };
    const bool held = f->what == HELD;
    u8 x[64] = {0}, *large = calloc(LARGE, RANKS_MOST + 1);
    i64 counts[RANKS_MOST];
    err e = {0};
    for (i64 r = 0; r < c->ranks; r++) counts[r] = 1;
    c->all_reduce(c, large, 5001, DT_F32);
    c->barrier(c);
    if (held && c->rank == 0) fake_set(&fake_mpi.held, true);
    c->finish(c, NULL);
    if (!goes_astray(c, f, large)) {
        if (f->what == OTHER_COUNT)
            c->all_to_all(c, x, counts, large, counts, 1);
        else
            c->all_gather(c, held ? large + LARGE : x, large + (held ? LARGE : 0), held ? LARGE : 64);
    }
    const f64 since = now_s();
    const status st = end_of(c, &e);
    for (int i = 0; i < 100; i++) c->all_gather(c, x, large, 64); /* at once */
    const bool named = strstr(e.text, "process ") || f->what == ONE_STAYS_AWAY || f->what == CANCELS;
    if (st == ST_DEVICE && strstr(e.text, said[f->what]) && named && now_s() - since < 3)
        atomic_fetch_add(&f->kept, 1);
    else
        memcpy(f->texts[c->rank], e.text, sizeof e.text);
    free(large);
}

static void faults_end_all(void **state) {
    static const struct { i64 processes, each; } of[] = {{3, 2}, {4, 1}};
    (void)state;
    for (size_t l = 0; l < COUNT_OF(of); l++)
        for (int what = 0; what < FAULTS; what++) {
            if (of[l].each == 1 && what != STAYS_AWAY && what != OTHER_SIZE && what != CANCELS) continue;
            fault_case f = {.what = (fault)what, .each = of[l].each};
            const bool waits = what == STAYS_AWAY || what == ONE_STAYS_AWAY || what == HELD;
            in_processes(of[l].processes, of[l].each, waits ? 0.2 : 30, fault_body, &f);
            for (i64 r = 0; r < of[l].processes * of[l].each; r++)
                if (f.texts[r][0]) print_error("rank %lld: %s\n", (long long)r, f.texts[r]);
            if (atomic_load(&f.kept) != of[l].processes * of[l].each)
                fail_msg("%lld processes of %lld: fault %d", (long long)of[l].processes, (long long)of[l].each, what);
        }
}

static void refusals(void **state) {
    process_thread p[2];
    comm *all[RANKS_MOST];
    err e;
    (void)state;
    open_processes(p, 2, 1);
    assert_int_equal(comm_hosts_open(all, &(host_group){p[0].h, 0, hosts_count(p[0].h), MPI_DATA}, 3, 1, &e), ST_INPUT);
    assert_string_equal(e.text, "3 ranks in 2 processes: each holds as many as the others");
    assert_int_equal(comm_hosts_open(all, &(host_group){p[0].h, 0, hosts_count(p[0].h), MPI_DATA}, 0, 1, &e), ST_INPUT);
    assert_int_equal(
        comm_hosts_open(all, &(host_group){p[0].h, 0, hosts_count(p[0].h), MPI_DATA}, COMM_RANKS_MAX + 2, 1, &e),
        ST_INPUT);
    in_each(p, 2, close_process);
}

/* ---- groups of some processes ---- */

enum { STAGE = 2, ROUNDS = 60, WIDTH = 300 };
typedef struct {
    comm *stage, *link;
} stage_rank;

/* Two ranks of a stage sum what is theirs, and the first stage's hand it to the second's. */
static void *run_stage_rank(void *arg) {
    const stage_rank *k = arg;
    const i64 rank = k->link->rank, other = rank < STAGE ? rank + STAGE : rank - STAGE;
    f32 x[WIDTH], got[WIDTH];
    for (u32 round = 0; round < ROUNDS; round++) {
        const i64 n = 1 + (i64)(mix(round, 1, 1) % WIDTH);
        i64 out[2 * STAGE] = {0}, in[2 * STAGE] = {0};
        put_values(x, round, rank, n, DT_F32);
        k->stage->all_reduce(k->stage, x, n, DT_F32);
        *(rank < STAGE ? &out[other] : &in[other]) = n;
        k->link->all_to_all(k->link, x, out, got, in, sizeof *x);
        const i64 first = rank < STAGE ? rank / STAGE * STAGE : 0;
        for (i64 i = 0; i < n; i++) {
            const f32 sum = value_of(round, first, i) + value_of(round, first + 1, i);
            if ((rank < STAGE ? x : got)[i] != sum)
                fail_msg("round %u, rank %lld: value %lld", round, (long long)rank, (long long)i);
        }
    }
    return NULL;
}

/* Processes with parts of a stage, or with one: each stage a group, the link another, on a channel of its own. */
static void stages_of_processes(void **state) {
    (void)state;
    for (i64 processes = 2; processes <= 4; processes += 2) {
        const i64 each = 2 * STAGE / processes, of_stage = STAGE / each;
        process_thread p[FAKE_PROCESSES];
        stage_rank all[2 * STAGE];
        comm *ends[2 * STAGE];
        pthread_t id[2 * STAGE];
        err e;
        open_processes(p, processes, 30);
        for (i64 i = 0; i < processes; i++) {
            const host_group stage = {p[i].h, i / of_stage * of_stage, of_stage, MPI_DATA},
                             link = {p[i].h, 0, processes, MPI_STAGES};
            assert_int_equal(comm_hosts_open(ends, &stage, STAGE, 30, &e), ST_OK);
            for (i64 r = 0; r < each; r++) all[i * each + r].stage = ends[r];
            assert_int_equal(comm_hosts_open(ends, &link, 2 * STAGE, 30, &e), ST_OK);
            for (i64 r = 0; r < each; r++) all[i * each + r].link = ends[r];
        }
        for (i64 r = 0; r < 2 * STAGE; r++) assert_int_equal(pthread_create(&id[r], NULL, run_stage_rank, &all[r]), 0);
        for (i64 r = 0; r < 2 * STAGE; r++) pthread_join(id[r], NULL);
        for (i64 r = 0; r < 2 * STAGE; r++) {
            assert_int_equal(all[r].stage->finish(all[r].stage, &e), ST_OK);
            assert_int_equal(all[r].link->finish(all[r].link, &e), ST_OK);
            all[r].stage->close(all[r].stage);
            all[r].link->close(all[r].link);
        }
        fake_mpi_let_go();
        in_each(p, processes, close_process);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(gathers_and_parcels),
        cmocka_unit_test(roots),
        cmocka_unit_test(many_at_random),
        cmocka_unit_test(faults_end_all),
        cmocka_unit_test(refusals),
        cmocka_unit_test(stages_of_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
