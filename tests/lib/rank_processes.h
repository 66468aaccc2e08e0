/* tests/lib/rank_processes.h: ranks by a thread each, in one process or in several that a fake MPI joins. */
#ifndef TESTS_RANK_PROCESSES_H
#define TESTS_RANK_PROCESSES_H
#include "unit.h"

#include "device/comm.h"
#include "device/hosts.h"
#include "fake_mpi.h"

enum { RANKS_MOST = 8 };

typedef void (*rank_body)(comm *c, void *ud);
typedef struct {
    comm *c;
    rank_body body;
    void *ud;
} rank_thread;

static inline void *run_rank(void *arg) {
    const rank_thread *t = arg;
    t->body(t->c, t->ud);
    return NULL;
}

typedef struct {
    i64 process, processes;
    f64 deadline_s;
    hosts *h;
} process_thread;

static inline void *open_process(void *arg) {
    process_thread *p = arg;
    err e;
    if (hosts_open_with(&p->h, &fake_processes[p->process], p->processes, p->deadline_s, &e) != ST_OK)
        fail_msg("%s", e.text);
    return NULL;
}

/* Groups that have failed are not freed: who looks for leaks finds them here. */
static hosts *volatile kept[64];
static atomic_int n_kept;

static inline void *close_process(void *arg) {
    hosts *h = ((process_thread *)arg)->h;
    if (hosts_check(h, NULL) != ST_OK) kept[atomic_fetch_add(&n_kept, 1) % 64] = h;
    hosts_close(h);
    return NULL;
}

/* Each by a thread: one waits for its watcher. */
static inline void in_each(process_thread *p, i64 n, void *(*does)(void *)) {
    pthread_t id[FAKE_PROCESSES];
    for (i64 i = 0; i < n; i++) assert_int_equal(pthread_create(&id[i], NULL, does, &p[i]), 0);
    for (i64 i = 0; i < n; i++) pthread_join(id[i], NULL);
}

static inline void open_processes(process_thread *p, i64 n, f64 deadline_s) {
    fake_mpi_start(n);
    for (i64 i = 0; i < n; i++) p[i] = (process_thread){.process = i, .processes = n, .deadline_s = deadline_s};
    in_each(p, n, open_process);
}

static inline void on_ends(comm **all, i64 ranks, rank_body body, void *ud) {
    rank_thread t[RANKS_MOST];
    pthread_t id[RANKS_MOST];
    for (i64 r = 0; r < ranks; r++) {
        t[r] = (rank_thread){all[r], body, ud};
        assert_int_equal(pthread_create(&id[r], NULL, run_rank, &t[r]), 0);
    }
    for (i64 r = 0; r < ranks; r++) pthread_join(id[r], NULL);
    for (i64 r = 0; r < ranks; r++) all[r]->close(all[r]);
}

static inline void in_processes(i64 processes, i64 each, f64 deadline_s, rank_body body, void *ud) {
    process_thread p[FAKE_PROCESSES];
    comm *all[RANKS_MOST];
    err e;
    open_processes(p, processes, deadline_s);
    for (i64 i = 0; i < processes; i++) {
        hosts_name_ranks(p[i].h, each);
        assert_int_equal(comm_hosts_open(all + i * each, &(host_group){p[i].h, 0, processes, MPI_DATA},
                                         processes * each, deadline_s, &e),
                         ST_OK);
        for (i64 r = i * each; r < (i + 1) * each; r++)
            assert_true(all[r]->rank == r && all[r]->ranks == processes * each);
    }
    on_ends(all, processes * each, body, ud);
    fake_mpi_let_go();
    in_each(p, processes, close_process);
}

#endif
