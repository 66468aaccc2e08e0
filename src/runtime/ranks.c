#include "runtime/ranks.h"
#include "base/log.h"
#include "base/thread.h"
#include "device/gpu.h"
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
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

/* What ranks of this process have under way ends: also what GPUs wait for, where another process has failed. */
static void cancel_all(ranks *r, const err *why) {
    for (i64 i = 0; i < r->held; i++) {
        rank *k = &r->of[i];
        comm *const ends[] = {k->comm, k->data != k->comm ? k->data : NULL, k->links.before, k->links.behind};
        for (size_t c = 0; c < COUNT_OF(ends); c++)
            if (ends[c]) ends[c]->cancel(ends[c], why);
    }
}

/* Has a group of some of the ranks failed with it? It has told nobody else. */
static bool of_a_stages_group(const rank *k, const err *why) {
    comm *const ends[] = {k->data, k->links.before, k->links.behind};
    for (size_t i = 0; k->all->pp > 1 && why->code != ST_CANCELLED && i < COUNT_OF(ends); i++) {
        err known;
        if (ends[i] && ends[i]->finish(ends[i], &known) != ST_OK && !strcmp(known.text, why->text)) return true;
    }
    return false;
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
    if (of_a_stages_group(k, &why)) return cancel_all(k->all, &why);
    err_prefix(&why, "rank %lld", (long long)k->index);
    if (k->failure.code == ST_OK) k->failure = why;
    if (why.code == ST_CANCELLED) return; /* whoever cancelled it says why */
    cancel_all(k->all, &why);
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
    status st = ST_OK;
    for (i64 i = from; st == ST_OK && i < to; i++) {
        char name[16];
        rank_thread *own = &t->of[t->n];
        *own = (rank_thread){.all = t, .rank = &r->of[i]};
        snprintf(name, sizeof name, "rank %d", (int)(r->first + i));
        st = thread_start(&own->id, name, rank_main, own, e);
        t->n += st == ST_OK;
    }
    return st;
}

rank *ranks_of_stage(const ranks *r, i64 stage, i64 *n) {
    const i64 from = max_i64(stage * r->tp, r->first), to = min_i64((stage + 1) * r->tp, r->first + r->held);
    *n = max_i64(to - from, 0);
    return *n ? &r->of[from - r->first] : NULL;
}

row_range ranks_places(const ranks *r, i64 process, i64 stage) {
    const i64 first = process * r->held - stage * r->tp;
    return (row_range){max_i64(min_i64(first, r->tp), 0), max_i64(min_i64(first + r->held, r->tp), 0)};
}

static status set_configs(ranks *r, const model_config *c, const i64 *layers, err *e) {
    status st = ST_OK;
    for (i64 i = 0; st == ST_OK && i < r->n; i++) {
        const i64 place = i % r->tp;
        model_config own = *c;
        if (c->slice)
            model_config_slice_rank(&own, place);
        else if (r->tp > 1)
            st = model_config_split(&own, r->tp, place, "--tp", e);
        if (r->pp > 1) model_config_stage(&own, r->pp, i / r->tp, layers);
        if (i < r->first || i >= r->first + r->held) continue;
        rank *k = &r->of[i - r->first];
        k->all = r, k->index = i, k->slot = i - r->first;
        k->stage = i / r->tp, k->place = place;
        k->config = own;
    }
    if (st == ST_OK) model_vocab_shares(&r->of[0].config, r->tp, r->vocab_first);
    return st;
}

/* Processes have as many ranks each, and either whole stages or parts of one. */
static status divide_among_processes(ranks *r, err *e) {
    const i64 processes = hosts_count(r->hosts);
    if (r->n % processes == 0) r->held = r->n / processes;
    if (r->n % processes || (r->held % r->tp && r->tp % r->held))
        return err_set(e, ST_INPUT,
                       "--tp %lld and --pp %lld with --nnodes %lld: every process holds as many ranks as the others, "
                       "whole stages or parts of one",
                       (long long)r->tp, (long long)r->pp, (long long)processes);
    r->first = hosts_self(r->hosts) * r->held;
    hosts_name_ranks(r->hosts, r->held);
    return ST_OK;
}

status ranks_open(ranks *r, const model_config *c, const rank_layout *l, hosts *all, bool meet, f64 deadline_s,
                  err *e) {
    const i64 n = l->tp * l->pp;
    *r = (ranks){.n = n, .tp = l->tp, .pp = l->pp, .held = n, .hosts = all, .deadline_s = deadline_s};
    status st = all ? divide_among_processes(r, e) : ST_OK;
    if (st != ST_OK) return st;
    r->of = calloc((size_t)r->held, sizeof *r->of);
    if (!r->of) return err_nomem(e, "ranks", (u64)r->held * sizeof *r->of);
    st = set_configs(r, c, l->layers, e);
    if (st != ST_OK || (n == 1 && !meet)) return st;
    comm *ends[COMM_RANKS_MAX];
    const host_group everybody = {all, 0, all ? hosts_count(all) : 1, MPI_DATA};
    st = all ? comm_hosts_open(ends, &everybody, n, deadline_s, e) : comm_host_open(ends, n, deadline_s, e);
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

enum { EXCHANGE_ROWS = 64 /* of a step of answers: what goes in one launch between GPUs */, SUM_ROWS = 2048 };

/* Units of 8 bytes: hidden values in bf16, or float32 logits of the rows that one rank draws. */
static i64 exchange_units(const ranks *r) {
    i64 units = EXCHANGE_ROWS * ceil_div(r->of[0].config.hidden, 4), drawn = ceil_div(EXCHANGE_ROWS, r->tp);
    for (i64 i = 0; i < r->tp; i++)
        units = max_i64(units, drawn * ceil_div(r->vocab_first[i + 1] - r->vocab_first[i], 2));
    return units;
}

/* Some of the ranks, n from `first` on, that exchange by themselves. */
typedef struct {
    i64 first, n;
    comm_sizes most;
    mpi_channel channel;
} rank_group;

/* The ends of a group's ranks that are in this process, `here` of them from *slot on; 0: none is. */
static status open_rank_group(ranks *r, const rank_group *g, comm **ends, i64 *slot, i64 *here, err *e) {
    const i64 from = max_i64(g->first, r->first), to = min_i64(g->first + g->n, r->first + r->held);
    const backend *all[COMM_RANKS_MAX];
    host_group of = {r->hosts, g->first / r->held, 0, g->channel};
    *slot = from - r->first, *here = max_i64(to - from, 0);
    if (!*here) return ST_OK;
    of.n = (g->first + g->n - 1) / r->held + 1 - of.first;
    const host_group *others = *here < g->n ? &of : NULL;
    for (i64 i = 0; i < *here; i++) all[i] = &r->of[*slot + i].backend;
    status st = all[0]->gpu ? backend_comm_open(ends, all, *here, &g->most, r->deadline_s, r->nccl, others, e)
                : others    ? comm_hosts_open(ends, others, g->n, r->deadline_s, e)
                            : comm_host_open(ends, g->n, r->deadline_s, e);
    for (i64 i = 0; st == ST_OK && i < *here; i++) ends[i]->named = g->first;
    return st;
}

/* Ranks of a stage: what they have parts of. */
static status connect_stage(ranks *r, i64 stage, err *e) {
    const model_config *c = &r->of[0].config;
    /* more are on several hosts, where rows are not divided */
    const bool played = r->tp == 1 && c->slice && c->ranks <= backend_ranks_max(&r->of[0].backend);
    const comm_sizes most = {exchange_units(r), max_i64(r->rows, SUM_ROWS), c->hidden, played ? c->ranks : 0};
    const rank_group g = {stage * r->tp, r->tp, most, MPI_DATA};
    comm *ends[COMM_RANKS_MAX];
    i64 slot, here;
    status st = open_rank_group(r, &g, ends, &slot, &here, e);
    for (i64 i = 0; st == ST_OK && i < here; i++) r->of[slot + i].data = ends[i];
    return st;
}

/* Between a stage and the next: rows of the residual stream. */
static status connect_link(ranks *r, i64 stage, err *e) {
    const rank_group g = {stage * r->tp, 2 * r->tp, {1, 1, 8, 0}, MPI_STAGES};
    comm *ends[COMM_RANKS_MAX];
    i64 slot, here;
    status st = open_rank_group(r, &g, ends, &slot, &here, e);
    for (i64 i = 0; st == ST_OK && i < here; i++) {
        rank *k = &r->of[slot + i];
        *(k->stage == stage ? &k->links.behind : &k->links.before) = ends[i];
    }
    return st;
}

enum { ORDERED_VALUES = 1 << 22 };

/* NCCL's sums of more than two have an order that hangs on how many values there are, and where. */
static status open_ordered_sums(const ranks *r, rank *k, err *e) {
    device *dev = k->backend.device;
    ordered_sums *s = &k->split.ordered;
    const u64 size = dtype_size(k->backend.ops.act);
    f32 ones[COMM_RANKS_MAX];
    void *at = NULL;
    if (!r->ordered || !k->backend.gpu || !k->data || k->data->peer || r->tp <= 2) return ST_OK;
    const i64 values = ORDERED_VALUES / (8 * r->tp) * (8 * r->tp);
    for (i64 i = 0; i < r->tp; i++) ones[i] = 1;
    status st = dev->alloc(dev, &s->parts, (u64)values * size, "sums in order", e);
    if (st == ST_OK) st = dev->alloc(dev, &s->sum, (u64)(values / r->tp) * size, "sums in order", e);
    if (st == ST_OK) st = dev->alloc(dev, &at, sizeof ones, "sums in order", e);
    s->ones = at;
    if (st != ST_OK) return st;
    dev->write(dev, at, ones, sizeof ones);
    s->values = values;
    return dev->finish(dev, e);
}

static void close_ordered_sums(rank *k) {
    device *dev = k->backend.device;
    void *const all[] = {k->split.ordered.parts, k->split.ordered.sum, (void *)(uintptr_t)k->split.ordered.ones};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i]) dev->release(dev, all[i]);
    k->split.ordered = (ordered_sums){0};
}

static void set_seams(ranks *r, rank *k) {
    if (r->pp > 1) k->backend.ops.pipeline = &k->links;
    if (!k->data) return;
    k->split.c = k->data;
    /* how a sum norms too hangs on how many rows there are */
    if (!r->ordered) k->split.norms = backend_norm_seams(&k->backend, k->data);
    k->seams = tensor_parallel_seams(&k->split);
    k->backend.ops.ranks = &k->seams;
}

status ranks_connect(ranks *r, err *e) {
    status st = ST_OK;
    if (!r->of[0].comm) return ST_OK;
    const model_config *c = &r->of[0].config;
    const bool on_gpus = r->of[0].backend.gpu;
    if (on_gpus) r->spin_s = ranks_spin_s(r->held);
    if (on_gpus && c->hidden % 8)
        return err_set(e, ST_UNSUPPORTED, "ranks on GPUs exchange rows of a multiple of 8 values, not of %lld",
                       (long long)c->hidden);
    for (i64 i = 0; !on_gpus && r->pp == 1 && i < r->held; i++) r->of[i].data = r->of[i].comm;
    for (i64 s = 0; st == ST_OK && (on_gpus || r->pp > 1) && (r->tp > 1 || r->pp == 1) && s < r->pp; s++)
        st = connect_stage(r, s, e);
    for (i64 s = 0; st == ST_OK && s + 1 < r->pp; s++) st = connect_link(r, s, e);
    for (i64 i = 0; st == ST_OK && i < r->held; i++) {
        set_seams(r, &r->of[i]);
        st = open_ordered_sums(r, &r->of[i], e);
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

/* All processes have nothing under way any more. One that does not come is waited for no longer than for a step. */
static status meet_at_end(ranks *r) {
    const host_parcel none[HOSTS_MOST] = {0};
    err e;
    if (hosts_check(r->hosts, &e) != ST_OK) return e.code; /* known already */
    const status st = hosts_exchange(&(host_group){r->hosts, 0, hosts_count(r->hosts), MPI_RESULTS}, "the end",
                                     MPI_TAG_MAX - 3, none, NULL, &e);
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
    comm *const ends[] = {k->data != k->comm ? k->data : NULL, k->links.before, k->links.behind};
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (ends[i]) ends[i]->close(ends[i]);
    close_ordered_sums(k);
    backend_close(&k->backend);
    k->vision = NULL;
    k->draft = NULL;
    k->model = NULL;
    return ST_OK;
}

void ranks_close(ranks *r) {
    err e;
    if (!r->of) return;
    if (r->hosts && hosts_check(r->hosts, &e) != ST_OK) cancel_all(r, &e);
    if (r->held == 1 || (r->threads && r->threads->n >= r->held - 1)) {
        each_here(r, settle_rank, NULL, &e);
        if (r->hosts && meet_at_end(r) != ST_OK && hosts_check(r->hosts, &e) != ST_OK) cancel_all(r, &e);
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
    for (i64 i = r->n > 1 ? 0 : 1; i < r->held; i++) {
        rank *k = &r->of[i];
        k->bad = calloc((size_t)lim->rows, sizeof *k->bad);
        k->drawn = calloc((size_t)lim->logit_rows, sizeof *k->drawn);
        if (!k->bad || !k->drawn) return err_nomem(e, "a rank's results", (u64)lim->rows * sizeof *k->bad);
    }
    return ST_OK;
}

void ranks_say_doing(const ranks *r) {
    for (i64 i = 0; i < r->held; i++) {
        char doing[160];
        if (!r->of[i].backend.gpu) continue;
        gpu_doing(r->of[i].backend.gpu, doing, sizeof doing);
        log_warn("rank %lld, %s: the host %s", (long long)r->of[i].index, r->of[i].backend.device->name, doing);
    }
}
