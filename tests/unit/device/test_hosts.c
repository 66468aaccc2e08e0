/* Processes that share a model (device/hosts.h), by threads and a fake MPI: what is said to all, to those that listen,
 * and what becomes of a group when one stays away, says something else, fails or does not answer. */
#include "unit.h"

#include "base/log.h"
#include "device/hosts.h"
#include "fake_mpi.h"
#include <unistd.h>

typedef void (*process_body)(hosts *h, void *ud);
typedef struct {
    i64 process;
    f64 deadline_s;
    process_body body;
    void *ud;
} process;

/* Groups that have failed are not freed: who looks for leaks finds them here. */
enum { KEPT = 256 };
static hosts *volatile kept[KEPT];
static atomic_int n_kept;

static void *run_process(void *arg) {
    const process *p = arg;
    hosts *h;
    err e;
    if (hosts_open_with(&h, &fake_processes[p->process], fake_mpi.n, p->deadline_s, &e) != ST_OK)
        fail_msg("%s", e.text);
    hosts_name_ranks(h, 2);
    p->body(h, p->ud);
    kept[atomic_fetch_add(&n_kept, 1) % KEPT] = hosts_check(h, NULL) == ST_OK ? NULL : h;
    hosts_close(h);
    return NULL;
}

static void on_processes(i64 n, f64 deadline_s, process_body body, void *ud) {
    process all[FAKE_PROCESSES];
    pthread_t id[FAKE_PROCESSES];
    fake_mpi_start(n);
    for (i64 p = 0; p < n; p++) {
        all[p] = (process){p, deadline_s, body, ud};
        assert_int_equal(pthread_create(&id[p], NULL, run_process, &all[p]), 0);
    }
    for (i64 p = 0; p < n; p++) pthread_join(id[p], NULL);
}

/* A second thread of a process. */
typedef struct {
    hosts *h;
    i64 calls; /* of MPI when it saw that the group has failed */
    err e;
} beside;

static void *look_beside(void *arg) {
    beside *b = arg;
    while (hosts_check(b->h, &b->e) == ST_OK) continue;
    b->calls = atomic_load(&fake_mpi.calls[hosts_self(b->h)]);
    return NULL;
}

static u8 byte_of(i64 from, i64 to, i64 i) { return (u8)(from * 31 + to * 7 + i * 13 + 5); }

static void exchange_body(hosts *h, void *ud) {
    static const i64 sizes[] = {0, 1, 777, FAKE_EAGER, 3 * FAKE_EAGER + 1};
    const i64 n = hosts_count(h), self = hosts_self(h);
    (void)ud;
    assert_int_equal(hosts_here(h), n);
    assert_int_equal(hosts_place(h), self);
    for (i64 round = 0; round < 60; round++) {
        host_parcel with[HOSTS_MOST] = {0};
        u8 *out[FAKE_PROCESSES], *in[FAKE_PROCESSES];
        err e;
        for (i64 p = 0; p < n; p++) {
            const u64 to = (u64)sizes[(self + 2 * p + round) % 5], from = (u64)sizes[(p + 2 * self + round) % 5];
            out[p] = malloc(to + 1), in[p] = malloc(from + 1);
            in[p][from] = 0x5a;
            for (u64 i = 0; i < to; i++) out[p][i] = byte_of(self, p, (i64)i + round);
            with[p] = (host_parcel){out[p], in[p], to, from};
        }
        if (hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", (i32)round, with, NULL, &e) !=
            ST_OK)
            fail_msg("%s", e.text);
        for (i64 p = 0; p < n; p++) {
            for (u64 i = 0; p != self && i < with[p].in_bytes; i++)
                assert_int_equal(in[p][i], byte_of(p, self, (i64)i + round));
            assert_int_equal(in[p][with[p].in_bytes], 0x5a);
            free(out[p]);
            free(in[p]);
        }
    }
    assert_true(hosts_counted(h).exchanges == 60 && hosts_counted(h).exchanged_bytes > 0);
}

static void parcels_of_every_size(void **state) {
    (void)state;
    for (i64 n = 2; n <= FAKE_PROCESSES; n++) on_processes(n, 60, exchange_body, NULL);
}

static void share_body(hosts *h, void *ud) {
    const i64 n = hosts_count(h), self = hosts_self(h);
    i64 mine[] = {self, 100 + self}, all[FAKE_PROCESSES][2];
    err e = {0};
    (void)ud;
    assert_int_equal(hosts_share(h, "a test", mine, all, sizeof mine, &e), ST_OK);
    for (i64 p = 0; p < n; p++) assert_true(all[p][0] == p && all[p][1] == 100 + p);
    assert_int_equal(hosts_agree(h, ST_OK, &e), ST_OK);
    /* the first that has failed; the group goes on */
    status own = self ? err_set(&e, ST_FORMAT, "shard %lld is cut", (long long)self) : ST_OK;
    assert_int_equal(hosts_agree(h, own, &e), ST_FORMAT);
    assert_true(strstr(e.text, "shard 1 is cut") != NULL);
    assert_true((strstr(e.text, "process 1 (") != NULL) == (self != 1));
    assert_int_equal(hosts_agree(h, ST_OK, &e), ST_OK);
}

/* Whoever fails, all of them too: the first of them is everybody's reason. */
static void agree_body(hosts *h, void *ud) {
    const i64 n = hosts_count(h), self = hosts_self(h);
    char text[64];
    (void)ud;
    for (i64 failing = 1; failing < 1 << n; failing++) {
        const i64 first = __builtin_ctzll((u64)failing);
        err e = {0};
        const status own =
            failing >> self & 1 ? err_set(&e, self % 2 ? ST_IO : ST_NOMEM, "it is %lld", (long long)self) : ST_OK;
        assert_int_equal(hosts_agree(h, own, &e), first % 2 ? ST_IO : ST_NOMEM);
        assert_int_equal(e.code, first % 2 ? ST_IO : ST_NOMEM);
        if (self == first) {
            snprintf(text, sizeof text, "it is %lld", (long long)first);
            assert_string_equal(e.text, text);
        } else {
            snprintf(text, sizeof text, "process %lld (", (long long)first);
            assert_int_equal(strncmp(e.text, text, strlen(text)), 0);
            snprintf(text, sizeof text, ", ranks %lld to %lld): it is %lld", (long long)first * 2,
                     (long long)first * 2 + 1, (long long)first);
            assert_non_null(strstr(e.text, text));
        }
    }
    assert_int_equal(hosts_agree(h, self == 1 ? ST_IO : ST_OK, NULL), ST_IO);
    assert_int_equal(hosts_check(h, NULL), ST_OK);
}

static void all_learn_of_all(void **state) {
    (void)state;
    for (i64 n = 2; n <= FAKE_PROCESSES; n++) on_processes(n, 60, share_body, NULL);
    on_processes(3, 60, agree_body, NULL);
}

static void tell_body(hosts *h, void *ud) {
    static const u64 sizes[] = {1, 24, FAKE_EAGER + 1, 0, 5000000, 8, 0};
    buf heard = {0};
    err e;
    (void)ud;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        u8 *bytes = malloc(sizes[s] + 1);
        for (u64 i = 0; i < sizes[s]; i++) bytes[i] = byte_of((i64)s, 1, (i64)i);
        if (hosts_self(h) == 0) {
            assert_int_equal(hosts_tell(h, bytes, sizes[s], &e), ST_OK);
        } else {
            usleep(hosts_self(h) == 2 ? 20000 : 0);
            assert_int_equal(hosts_listen(h, &heard, &e), ST_OK);
            assert_int_equal(heard.len, sizes[s]);
            if (sizes[s]) assert_memory_equal(heard.data, bytes, sizes[s]);
        }
        free(bytes);
    }
    if (!hosts_self(h)) assert_true(hosts_counted(h).jobs == COUNT_OF(sizes));
    buf_free(&heard);
}

static void who_listens_hears_in_order(void **state) {
    (void)state;
    on_processes(3, 60, tell_body, NULL);
}

static void fails_with(hosts *h, status st, const err *e, const char *text) {
    err later = {0};
    assert_int_equal(st, ST_DEVICE);
    if (!strstr(e->text, text)) fail_msg("\"%s\" does not say \"%s\"", e->text, text);
    assert_int_equal(hosts_check(h, &later), ST_DEVICE); /* from then on */
    assert_string_equal(later.text, e->text);
}

/* Process 1 comes too late, or with something else. */
static void astray_body(hosts *h, void *ud) {
    const bool late = *(const bool *)ud;
    host_parcel with[HOSTS_MOST] = {0};
    const f64 since = now_s();
    err e = {0};
    if (late && hosts_self(h) == 1) {
        while (hosts_check(h, &e) == ST_OK) usleep(1000);
        assert_true(strstr(e.text, "process 1 (") &&
                    strstr(e.text, ", ranks 2 to 3) did not come to a test within 0.2 s"));
        return;
    }
    const status st = hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test",
                                     hosts_self(h) == 1 ? 8 : 7, with, NULL, &e);
    fails_with(h, st, &e, late ? ", ranks 2 to 3) did not come to a test within 0.2 s" : " sent 0 bytes under tag ");
    assert_int_equal(hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "another", 9, with, NULL, &e),
                     ST_DEVICE); /* at once */
    assert_true(now_s() - since < 10);
}

static void one_goes_astray(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) on_processes(3, late ? 0.2 : 30, astray_body, &(bool){late});
}

/* What one process fails with ends whatever the others wait for. */
static void cancel_body(hosts *h, void *ud) {
    host_parcel with[HOSTS_MOST] = {0};
    buf heard = {0};
    const f64 since = now_s();
    err e = {0};
    status st;
    (void)ud;
    if (hosts_self(h) == 1) {
        usleep(30000);
        hosts_cancel(h, &(err){ST_DEVICE, "rank 3: its device is gone"});
        hosts_cancel(h, &(err){ST_IO, "a later reason"});
        st = hosts_check(h, &e);
    } else if (hosts_self(h) == 2) {
        st = hosts_listen(h, &heard, &e);
    } else {
        st = hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", 1, with, NULL, &e);
    }
    fails_with(h, st, &e, "rank 3: its device is gone");
    assert_true((strstr(e.text, "process 1 (") != NULL) == (hosts_self(h) != 1));
    assert_true(now_s() - since < 10);
    buf_free(&heard);
}

static void all_learn_of_a_failure(void **state) {
    (void)state;
    on_processes(3, 30, cancel_body, NULL);
}

/* Several fail at a time: each keeps one reason, whole, with the name of whose it is. */
static void several_body(hosts *h, void *ud) {
    const i64 self = hosts_self(h);
    beside all[3];
    pthread_t id[3];
    err own = {.code = ST_DEVICE};
    (void)ud;
    memset(own.text, 'a' + (int)self, 400);
    for (int i = 0; i < 3; i++) {
        all[i] = (beside){.h = h};
        assert_int_equal(pthread_create(&id[i], NULL, look_beside, &all[i]), 0);
    }
    usleep(3000);
    if (self) hosts_cancel(h, &own);
    for (int i = 0; i < 3; i++) {
        pthread_join(id[i], NULL);
        const char *at = strstr(all[i].e.text, "): ");
        const i64 from = at ? all[i].e.text[strlen("process ")] - '0' : self;
        at = at ? at + 3 : all[i].e.text;
        assert_true(at == all[i].e.text || strncmp(all[i].e.text, "process ", 8) == 0);
        assert_int_equal(strlen(at), 400);
        for (int k = 0; k < 400; k++) assert_int_equal(at[k], 'a' + from);
    }
}

static void each_reason_is_whole(void **state) {
    (void)state;
    for (int round = 0; round < 4; round++) on_processes(4, 30, several_body, NULL);
}

/* Who sees that the group has failed may end the memory that MPI would have written to. */
static void quiet_body(hosts *h, void *ud) {
    beside b = {.h = h};
    pthread_t id;
    host_parcel with[HOSTS_MOST] = {0};
    err e;
    (void)ud;
    assert_int_equal(pthread_create(&id, NULL, look_beside, &b), 0);
    usleep(2000);
    if (hosts_self(h) == 1) hosts_cancel(h, &(err){ST_DEVICE, "its device is gone"});
    pthread_join(id, NULL);
    assert_int_equal(hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", 1, with, NULL, &e),
                     ST_DEVICE);
    assert_int_equal(hosts_tell(h, "", 1, &e), ST_DEVICE);
    assert_int_equal(hosts_roll_call(h, 1, &e), ST_DEVICE);
    hosts_cancel(h, &(err){ST_IO, "a later reason"});
    usleep(2000);
    assert_int_equal(atomic_load(&fake_mpi.calls[hosts_self(h)]), b.calls);
}

static void a_failed_group_calls_no_mpi(void **state) {
    (void)state;
    for (int round = 0; round < 4; round++) on_processes(4, 30, quiet_body, NULL);
}

/* A large message is under way to who listens when the group ends: its memory stays. */
static void under_way_body(hosts *h, void *ud) {
    static u8 bytes[100 * FAKE_EAGER];
    buf heard = {0};
    err e;
    (void)ud;
    if (!hosts_self(h)) fake_set(&fake_mpi.held, true);
    if (!hosts_self(h)) assert_int_equal(hosts_tell(h, bytes, sizeof bytes, &e), ST_DEVICE);
    if (hosts_self(h) == 1) {
        assert_int_equal(hosts_listen(h, &heard, &e), ST_DEVICE);
        assert_true(strstr(e.text, "its device is gone") && !heard.data);
    }
    if (hosts_self(h) == 2) {
        usleep(20000);
        hosts_cancel(h, &(err){ST_DEVICE, "its device is gone"});
    }
    buf_free(&heard);
}

static void what_is_under_way_stays(void **state) {
    (void)state;
    on_processes(3, 30, under_way_body, NULL);
    fake_mpi_let_go();
}

/* MPI itself refuses, in process 1. */
static void mpi_body(hosts *h, void *ud) {
    host_parcel with[HOSTS_MOST] = {0};
    buf heard = {0};
    err e = {0};
    status st;
    if (hosts_self(h) == 1) fake_set(&fake_mpi.fails[1], true);
    if (*(const bool *)ud)
        st = hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", 1, with, NULL, &e);
    else
        st = hosts_self(h) ? hosts_listen(h, &heard, &e) : hosts_tell(h, "x", 1, &e);
    if (hosts_self(h) == 1) {
        fails_with(h, st, &e, *(const bool *)ud ? "a test with process 0 (" : "the next step with process 0 (");
        assert_non_null(strstr(e.text, "MPI: a message is too long"));
    } else if (st != ST_OK) { /* it learns of it by its own deadline at the latest */
        assert_non_null(strstr(e.text, "process 1 ("));
    }
    buf_free(&heard);
}

static void mpi_fails(void **state) {
    (void)state;
    for (int exchange = 0; exchange < 2; exchange++) on_processes(2, 0.3, mpi_body, &(bool){exchange});
}

/* Roll calls are answered by who listens, computes or waits in an exchange. */
static void busy_body(hosts *h, void *ud) {
    host_parcel with[HOSTS_MOST] = {0};
    buf heard = {0};
    err e;
    (void)ud;
    if (!hosts_self(h)) {
        for (int i = 0; i < 3; i++) assert_int_equal(hosts_roll_call(h, 10, &e), ST_OK);
        assert_int_equal(hosts_tell(h, "x", 1, &e), ST_OK);
    } else {
        assert_int_equal(hosts_listen(h, &heard, &e), ST_OK);
    }
    if (hosts_self(h) == 1) assert_int_equal(hosts_roll_call(h, 10, &e), ST_OK);
    assert_int_equal(hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", 1, with, NULL, &e), ST_OK);
    buf_free(&heard);
}

static void who_is_busy_answers(void **state) {
    (void)state;
    on_processes(3, 30, busy_body, NULL);
}

static void stop_body(hosts *h, void *ud) {
    host_parcel with[HOSTS_MOST] = {0};
    atomic_bool stop = true;
    err e;
    (void)ud;
    if (!hosts_self(h))
        assert_int_equal(hosts_exchange(&(host_group){h, 0, hosts_count(h), MPI_DATA}, "a test", 1, with, &stop, &e),
                         ST_CANCELLED);
    usleep(10000);
    assert_int_equal(hosts_check(h, &e), ST_OK); /* whose reason it is says so by itself */
}

static void a_wait_can_be_stopped(void **state) {
    (void)state;
    on_processes(2, 30, stop_body, NULL);
}

static void roll_call_body(hosts *h, void *ud) {
    static atomic_int called;
    err e = {0};
    (void)ud;
    if (!hosts_self(h)) {
        atomic_store(&called, 0);
        assert_int_equal(hosts_roll_call(h, 10, &e), ST_OK);
        pthread_mutex_lock(&fake_mpi.lock);
        fake_mpi.deaf[2] = true;
        pthread_mutex_unlock(&fake_mpi.lock);
        fails_with(h, hosts_roll_call(h, 0.3, &e), &e,
                   ", ranks 4 to 5) does not answer: it has ended, or stands still");
        atomic_store(&called, 1);
    } else {
        while (!atomic_load(&called)) usleep(1000);
    }
}

static void who_does_not_answer_is_named(void **state) {
    (void)state;
    on_processes(3, 30, roll_call_body, NULL);
}

static void refusals(void **state) {
    hosts *h;
    err e;
    (void)state;
    fake_mpi_start(3);
    assert_int_equal(hosts_open_with(&h, &fake_processes[0], 2, 1, &e), ST_INPUT);
    assert_true(strstr(e.text, "--nnodes 2, and mpirun has started 3") != NULL);
    kept[atomic_fetch_add(&n_kept, 1) % KEPT] = h;
    hosts_close(h);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    unsetenv("PMIX_RANK");
    assert_int_equal(hosts_started(), 1);
    assert_int_equal(hosts_open(&h, 2, 1, &e), ST_INPUT);
    assert_true(strstr(e.text, "mpirun has started 1") != NULL && !h);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("MOONLET_MPI", "/dev/null", 1);
    assert_int_equal(hosts_open(&h, 2, 1, &e), ST_UNSUPPORTED);
    assert_true(strstr(e.text, "--nnodes: /dev/null") != NULL && !h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parcels_of_every_size),        cmocka_unit_test(all_learn_of_all),
        cmocka_unit_test(who_listens_hears_in_order),   cmocka_unit_test(one_goes_astray),
        cmocka_unit_test(all_learn_of_a_failure),       cmocka_unit_test(a_wait_can_be_stopped),
        cmocka_unit_test(who_does_not_answer_is_named), cmocka_unit_test(refusals),
        cmocka_unit_test(each_reason_is_whole),         cmocka_unit_test(a_failed_group_calls_no_mpi),
        cmocka_unit_test(what_is_under_way_stays),      cmocka_unit_test(mpi_fails),
        cmocka_unit_test(who_is_busy_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
