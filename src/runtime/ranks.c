#include "runtime/ranks.h"
#include "base/log.h"
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 100 /* between looks at the clock */ };
/* Longer than the scheduler takes between a step's two jobs, and than it takes from one step to the next. */
static const f64 SPIN_S = 200e-6;

typedef struct {
    struct rank_threads *all;
    rank *rank;
    pthread_t id;
    u64 done; /* jobs */
} rank_thread;

/* The other ranks' threads: a job has a number, and each does it once. Who waits looks at the numbers for spin_s, then
 * sleeps. */
struct rank_threads {
    pthread_mutex_t lock;
    pthread_cond_t work, rest;
    rank_fn fn; /* of the job whose number is `job` */
    void *ud;
    atomic_ullong job;
    atomic_bool over;
    atomic_llong busy;
    _Atomic f64 spin_s;
    i64 n;
    rank_thread of[];
};

f64 ranks_spin_s(i64 n) { return omp_get_num_procs() >= 2 * n ? SPIN_S : 0; }

static bool has_job(rank_threads *t, u64 done) { return atomic_load(&t->job) != done || atomic_load(&t->over); }
static bool all_rest(rank_threads *t, u64 unused) { return (void)unused, !atomic_load(&t->busy); }

/* Until `is`; asleep from spin_s on. */
static void await(rank_threads *t, bool (*is)(rank_threads *t, u64 done), u64 done, pthread_cond_t *changed) {
    const f64 spin_s = atomic_load(&t->spin_s), until = spin_s > 0 ? now_s() + spin_s : 0;
    while (until > 0 && !is(t, done) && now_s() < until)
        for (int i = 0; i < SPINS && !is(t, done); i++) spin_pause();
    if (is(t, done)) return;
    pthread_mutex_lock(&t->lock);
    while (!is(t, done)) pthread_cond_wait(changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

/* The others must not wait for a rank that has failed. What one of them says of that is not its own failure. */
static void run_on(rank *k, rank_fn fn, void *ud) {
    err why = {0}, known = {0};
    status st = fn(k, ud, &why);
    if (st == ST_OK) return;
    if (!k->comm || k->comm->ranks == 1) { /* there is no other */
        k->failure = why;
        k->failure.code = st;
        return;
    }
    if (k->comm->finish(k->comm, &known) != ST_OK && !strcmp(known.text, why.text)) return;
    err_prefix(&why, "rank %lld", (long long)k->index);
    if (k->failure.code == ST_OK) k->failure = why;
    if (why.code == ST_CANCELLED) return; /* whoever cancelled it says why */
    k->comm->cancel(k->comm, &why);
    if (k->data && k->data != k->comm) k->data->cancel(k->data, &why);
}

static void *rank_main(void *arg) {
    rank_thread *t = arg;
    rank_threads *all = t->all;
    for (;;) {
        await(all, has_job, t->done, &all->work);
        if (atomic_load(&all->over)) return NULL;
        run_on(t->rank, all->fn, all->ud);
        t->done++;
        if (atomic_fetch_sub(&all->busy, 1) > 1) continue;
        pthread_mutex_lock(&all->lock); /* whoever waits has looked before, or sleeps */
        pthread_cond_signal(&all->rest);
        pthread_mutex_unlock(&all->lock);
    }
}

static void stop_threads(rank_threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    atomic_store(&t->over, true);
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (i64 i = 0; i < t->n; i++) pthread_join(t->of[i].id, NULL);
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->rest);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* One for each rank in [from, to). */
static status start_threads(ranks *r, i64 from, i64 to, err *e) {
    u64 bytes = sizeof(rank_threads) + (u64)r->held * sizeof(rank_thread);
    rank_threads *t = r->threads;
    if (!t) {
        if (!(t = r->threads = calloc(1, bytes))) return err_nomem(e, "the ranks' threads", bytes);
        pthread_mutex_init(&t->lock, NULL);
        pthread_cond_init(&t->work, NULL);
        pthread_cond_init(&t->rest, NULL);
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    int failed = 0;
    i64 i = from;
    for (; !failed && i < to; i++) {
        rank_thread *own = &t->of[t->n];
        *own = (rank_thread){.all = t, .rank = &r->of[i]};
        failed = pthread_create(&own->id, NULL, rank_main, own);
        if (!failed) t->n++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(e, ST_NOMEM, "the thread of rank %lld: %s", (long long)i - 1, strerror(failed)) : ST_OK;
}

/* Every rank's share of the vocabulary begins where the one before ends. */
static status set_configs(ranks *r, const model_config *c, err *e) {
    status st = ST_OK;
    for (i64 i = 0; st == ST_OK && i < r->n; i++) {
        model_config own = *c;
        if (c->slice)
            model_config_slice_rank(&own, i);
        else if (r->n > 1)
            st = model_config_split(&own, r->n, i, "--tp", e);
        r->vocab_first[i] = own.vocab_first;
        r->vocab_first[i + 1] = model_vocab_there(&own);
        if (i < r->first || i >= r->first + r->held) continue;
        rank *k = &r->of[i - r->first];
        k->index = i, k->slot = i - r->first;
        k->config = own;
    }
    return st;
}

status ranks_open(ranks *r, const model_config *c, i64 n, hosts *all, bool meet, f64 deadline_s, err *e) {
    *r = (ranks){.n = n, .held = n, .hosts = all, .deadline_s = deadline_s};
    if (all && n % hosts_count(all))
        return err_set(e, ST_INPUT, "--tp %lld with --nnodes %lld: every process holds as many ranks as the others",
                       (long long)n, (long long)hosts_count(all));
    if (all) r->held = n / hosts_count(all), r->first = hosts_self(all) * r->held;
    if (all) hosts_name_ranks(all, r->held);
    r->of = calloc((size_t)r->held, sizeof *r->of);
    if (!r->of) return err_nomem(e, "ranks", (u64)r->held * sizeof *r->of);
    status st = set_configs(r, c, e);
    if (st != ST_OK || (n == 1 && !meet)) return st;
    comm *ends[COMM_RANKS_MAX];
    st = all ? comm_hosts_open(ends, all, n, deadline_s, e) : comm_host_open(ends, n, deadline_s, e);
    for (i64 i = 0; st == ST_OK && i < r->held; i++) r->of[i].comm = ends[i];
    return st == ST_OK && r->held > 1 ? start_threads(r, 1, r->held, e) : st;
}

static status bind_rank(rank *k, void *ud, err *e) {
    k->node = ((const numa_node *)ud)[k->slot];
    return numa_bind(&k->node, e);
}

status ranks_bind(ranks *r, const numa_node *nodes, err *e) {
    status st = start_threads(r, 0, 1, e);
    if (st == ST_OK) st = ranks_each(r, bind_rank, (void *)(uintptr_t)nodes, e);
    r->bound = st == ST_OK;
    return st;
}

enum { EXCHANGE_ROWS = 64 /* of a step of answers: what goes in one launch between GPUs */ };

/* Units of 8 bytes: hidden values in bf16, or float32 logits of the rows that one rank draws. */
static i64 exchange_units(const ranks *r) {
    i64 units = EXCHANGE_ROWS * ceil_div(r->of[0].config.hidden, 4), drawn = ceil_div(EXCHANGE_ROWS, r->n);
    for (i64 i = 0; i < r->n; i++)
        units = max_i64(units, drawn * ceil_div(r->vocab_first[i + 1] - r->vocab_first[i], 2));
    return units;
}

status ranks_connect(ranks *r, err *e) {
    const backend *all[COMM_RANKS_MAX];
    comm *ends[COMM_RANKS_MAX];
    if (!r->of[0].comm) return ST_OK;
    const model_config *c = &r->of[0].config;
    bool on_gpus = r->of[0].backend.gpu;
    if (on_gpus) r->spin_s = ranks_spin_s(r->held);
    for (i64 i = 0; i < r->held; i++) all[i] = &r->of[i].backend, ends[i] = r->of[i].comm;
    if (on_gpus && c->hidden % 8)
        return err_set(e, ST_UNSUPPORTED, "ranks on GPUs exchange rows of a multiple of 8 values, not of %lld",
                       (long long)c->hidden);
    status st = ST_OK;
    if (on_gpus)
        st = backend_comm_open(ends, all, r->held, exchange_units(r), c->hidden, r->deadline_s, r->nccl, r->hosts, e);
    for (i64 i = 0; st == ST_OK && i < r->held; i++) {
        rank *k = &r->of[i];
        k->data = ends[i];
        k->split.c = k->data;
        for (i64 p = 0; p <= r->n; p++) k->split.vocab_first[p] = r->vocab_first[p];
        k->split.reduce_norm = backend_reduce_norm(&k->backend, k->data);
        k->seams = tensor_parallel_seams(&k->split);
        k->backend.ops.ranks = &k->seams;
    }
    return st;
}

bool ranks_can_divide_kv(const ranks *r, i64 kv_ranks) {
    const model_config *c = &r->of[0].config;
    const backend *b = &r->of[0].backend;
    const comm *data = r->of[0].data;
    if (!b->gpu || !data) return true;
    return data->peer && kv_ranks <= backend_ranks_max(b) && c->kv_lora % 8 == 0 && c->rope % 8 == 0;
}

status ranks_divide_kv(ranks *r, i64 kv_ranks, err *e) {
    const model_config *c = &r->of[0].config;
    if (kv_ranks < 2) return ST_OK;
    if (r->of[0].backend.gpu && !r->of[0].data->peer)
        return err_set(e, ST_UNSUPPORTED,
                       "--dcp %lld: GPUs that divide the KV cache read each other's memory, which NCCL is no way to",
                       (long long)kv_ranks);
    if (kv_ranks > backend_ranks_max(&r->of[0].backend))
        return err_set(e, ST_UNSUPPORTED, "--dcp %lld on %s: at most %lld", (long long)kv_ranks,
                       r->of[0].backend.device->name, (long long)backend_ranks_max(&r->of[0].backend));
    if (!ranks_can_divide_kv(r, kv_ranks))
        return err_set(
            e, ST_UNSUPPORTED,
            "--dcp on GPUs takes a kv_lora_rank and a qk_rope_head_dim of a multiple of 8, not %lld and %lld",
            (long long)c->kv_lora, (long long)c->rope);
    for (i64 i = 0; i < r->held; i++) {
        r->of[i].split.kv_ranks = kv_ranks;
        backend_context_parallel(&r->of[i].backend, &r->of[i].seams);
    }
    return ST_OK;
}

/* Of the ranks of this process. */
static status each_here(ranks *r, rank_fn fn, void *ud, err *e) {
    rank_threads *t = r->threads;
    if (!t || !t->n) {
        if (r->n == 1) return fn(&r->of[0], ud, e);
        run_on(&r->of[0], fn, ud);
    } else {
        t->fn = fn, t->ud = ud;
        atomic_store(&t->spin_s, r->spin_s);
        atomic_store(&t->busy, t->n);
        pthread_mutex_lock(&t->lock);
        atomic_fetch_add(&t->job, 1);
        pthread_cond_broadcast(&t->work);
        pthread_mutex_unlock(&t->lock);
        if (t->n < r->held) run_on(&r->of[0], fn, ud);
        await(t, all_rest, 0, &t->rest);
    }
    err first = {0};
    for (i64 i = 0; i < r->held; i++) {
        err *own = &r->of[i].failure;
        if (own->code != ST_OK && (first.code == ST_OK || first.code == ST_CANCELLED)) first = *own;
        if (r->n == 1) *own = (err){0}; /* it may well do what it is asked next */
    }
    if (first.code != ST_OK && e) *e = first;
    if (first.code != ST_OK) return first.code;
    return r->of[0].comm ? r->of[0].comm->finish(r->of[0].comm, e) : ST_OK;
}

/* What ranks of this process have under way ends: also what GPUs wait for, where another process has failed. */
static void cancel_here(ranks *r, const err *why) {
    for (i64 i = 0; i < r->held; i++) {
        rank *k = &r->of[i];
        if (k->comm) k->comm->cancel(k->comm, why);
        if (k->data && k->data != k->comm) k->data->cancel(k->data, why);
    }
}

/* All processes have nothing under way any more. One that does not come is waited for no longer than for a step. */
static status meet_at_end(ranks *r) {
    const host_parcel none[HOSTS_MOST] = {0};
    err e;
    if (hosts_check(r->hosts, &e) != ST_OK) return e.code; /* known already */
    const status st = hosts_exchange(r->hosts, "the end", MPI_TAG_MAX - 3, none, NULL, &e);
    if (st != ST_OK && !hosts_self(r->hosts)) log_warn("%s", e.text);
    return st;
}

/* Nobody's memory ends while another rank's GPU may write there. */
static status settle_rank(rank *k, void *ud, err *e) {
    err ignored;
    (void)ud, (void)e;
    if (k->backend.device) k->backend.device->finish(k->backend.device, &ignored);
    return ST_OK;
}

static status close_rank(rank *k, void *ud, err *e) {
    (void)ud, (void)e;
    vision_close(k->vision);
    draft_close(k->draft);
    model_close(k->model);
    if (k->data && k->data != k->comm) k->data->close(k->data);
    backend_close(&k->backend);
    k->vision = NULL;
    k->draft = NULL;
    k->model = NULL;
    return ST_OK;
}

void ranks_close(ranks *r) {
    err e;
    if (!r->of) return;
    if (r->hosts && hosts_check(r->hosts, &e) != ST_OK) cancel_here(r, &e);
    if (r->held == 1 || (r->threads && r->threads->n >= r->held - 1)) {
        each_here(r, settle_rank, NULL, &e);
        if (r->hosts && meet_at_end(r) != ST_OK && hosts_check(r->hosts, &e) != ST_OK) cancel_here(r, &e);
        each_here(r, close_rank, NULL, &e);
    }
    stop_threads(r->threads);
    buf_free(&r->told);
    for (i64 i = 0; i < r->held; i++) {
        rank *k = &r->of[i];
        free(k->bad);
        free(k->drawn);
        if (k->comm) k->comm->close(k->comm);
    }
    free(r->of);
    *r = (ranks){0};
}

status ranks_each(ranks *r, rank_fn fn, void *ud, err *e) {
    const status st = each_here(r, fn, ud, e);
    return r->hosts && !r->serving ? hosts_agree(r->hosts, st, e) : st;
}

status ranks_reserve(ranks *r, const model_limits *lim, err *e) {
    for (i64 i = 1; i < r->held; i++) {
        rank *k = &r->of[i];
        k->bad = calloc((size_t)lim->rows, sizeof *k->bad);
        k->drawn = calloc((size_t)lim->logit_rows, sizeof *k->drawn);
        if (!k->bad || !k->drawn) return err_nomem(e, "a rank's results", (u64)lim->rows * sizeof *k->bad);
    }
    return ST_OK;
}
