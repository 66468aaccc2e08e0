#include "device/hosts.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Tags of MPI_CONTROL; those of MPI_DATA are the exchanges' own. */
enum { TAG_SHARE, TAG_JOB };
enum { TAG_FAULT, TAG_CALL, TAG_HERE }; /* of MPI_FAULTS */
enum { LOOKS = 16 /* at one message between looks for faults */, WATCH_MS = 100 };

static const f64 YIELD_S = 200e-6; /* a wait gives its processor away so long, then it sleeps */
/* LEAVE_S: process 0 answers its clients, says why and ends; with that mpirun ends the others, who say nothing. */
static const f64 SETUP_S = 3600, SAY_S = 30, FAULT_S = 0.1, LEAVE_S = 10;

typedef struct {
    i32 code;
    char text[sizeof(((err *)0)->text)];
} fault_text;

typedef struct left_memory {
    struct left_memory *next;
    void *memory;
} left_memory;

struct hosts {
    const mpi_plugin *mpi;
    i64 self, n, here, place;
    atomic_llong ranks_each; /* 0: not yet known */
    f64 deadline_s;
    char (*names)[HOST_NAME_MOST];
    pthread_mutex_t calls; /* of MPI: one thread at a time */
    atomic_bool failed, over;
    atomic_ullong answered; /* a roll call: a bit a process */
    pthread_mutex_t lock;   /* of why, counts and left */
    err why;
    hosts_counts counts;
    left_memory *left;
    fault_text said, heard; /* faults, while MPI sends and receives them */
    pid_t parent;           /* mpirun, or its daemon on this host */
    bool watched;
    pthread_t watcher;
};

i64 hosts_self(const hosts *h) { return h->self; }
i64 hosts_count(const hosts *h) { return h->n; }
const char *hosts_name(const hosts *h, i64 process) { return h->names[process]; }
i64 hosts_here(const hosts *h) { return h->here; }
i64 hosts_place(const hosts *h) { return h->place; }
const char *hosts_library(const hosts *h) { return h->mpi->library(); }
void hosts_name_ranks(hosts *h, i64 each) { atomic_store(&h->ranks_each, each); }

enum { WHO_MOST = HOST_NAME_MOST + 96 };

/* "process 1 (node7, ranks 8 to 15)" */
static const char *who(const hosts *h, i64 process, char out[WHO_MOST]) {
    const i64 each = atomic_load(&h->ranks_each), first = process * each, last = first + each - 1;
    int n = snprintf(out, WHO_MOST, "process %lld (%s", (long long)process, h->names[process]);
    if (each) n += snprintf(out + n, WHO_MOST - (size_t)n, ", rank%s %lld", last > first ? "s" : "", (long long)first);
    if (last > first) n += snprintf(out + n, WHO_MOST - (size_t)n, " to %lld", (long long)last);
    snprintf(out + n, WHO_MOST - (size_t)n, ")");
    return out;
}

/* ---- failing ---- */

/* For calls of MPI; false: the group has failed, and there are none any more: who sees that may leave memory that MPI
 * would have written to. With true: leave(). */
static bool enter(hosts *h) {
    pthread_mutex_lock(&h->calls);
    if (!atomic_load(&h->failed)) return true;
    pthread_mutex_unlock(&h->calls);
    return false;
}

static void leave(hosts *h) { pthread_mutex_unlock(&h->calls); }

/* Inside of enter(): the first reason. */
static void keep_why(hosts *h, const err *why) {
    pthread_mutex_lock(&h->lock);
    h->why = *why;
    if (h->why.code == ST_OK) h->why.code = ST_DEVICE;
    atomic_store(&h->failed, true);
    pthread_mutex_unlock(&h->lock);
}

static void fail_silently(hosts *h, const err *why) {
    if (!enter(h)) return;
    keep_why(h, why);
    leave(h);
}

static status why_of(hosts *h, err *e) {
    pthread_mutex_lock(&h->lock);
    if (e) *e = h->why;
    const status st = h->why.code;
    pthread_mutex_unlock(&h->lock);
    return st;
}

/* Is a message under way done within FAULT_S? Messages of MPI_FAULTS are small: MPI takes them at once, or the other
 * side is gone. Inside of enter(). */
static bool fault_done(hosts *h, mpi_message *m) {
    bool done = false;
    for (const f64 until = now_s() + FAULT_S; !done && now_s() < until;)
        if (h->mpi->test(m, &done, NULL)) break;
    return done;
}

/* The next message of MPI_FAULTS, if there is one; *of says from whom and what. MPI writes to memory that stays. */
static bool hear(hosts *h, mpi_envelope *of, fault_text *text) {
    mpi_message m;
    bool there = false;
    if (!enter(h)) return false;
    there = !h->mpi->probe(MPI_FAULTS, &there, of) && there && of->bytes <= (i64)sizeof h->heard &&
            !h->mpi->receive(MPI_FAULTS, of->peer, &h->heard, of->bytes, &m) && fault_done(h, &m);
    if (there && of->tag == TAG_CALL && !h->mpi->send(MPI_FAULTS, of->peer, TAG_HERE, NULL, 0, &m)) fault_done(h, &m);
    *text = h->heard; /* another thread may hear the next one there */
    leave(h);
    return there;
}

/* Another process's reason, if one has come, and whether mpirun is still there; roll calls are answered. */
static void hear_faults(hosts *h) {
    char name[WHO_MOST];
    mpi_envelope of;
    fault_text heard;
    err why;
    if (h->parent && getppid() != h->parent) {
        err_set(&why, ST_DEVICE, "mpirun has ended, which has started %s", who(h, h->self, name));
        fail_silently(h, &why);
        return;
    }
    while (hear(h, &of, &heard)) {
        if (of.tag == TAG_HERE) atomic_fetch_or(&h->answered, (u64)1 << of.peer);
        if (of.tag != TAG_FAULT) continue;
        heard.text[sizeof heard.text - 1] = 0;
        err_set(&why, (status)heard.code, "%s", heard.text);
        err_prefix(&why, "%s", who(h, of.peer, name));
        fail_silently(h, &why);
    }
}

/* To all others. Inside of enter(). */
static void send_all(hosts *h, i32 tag, const void *bytes, i64 n) {
    mpi_message m[HOSTS_MOST];
    bool sent[HOSTS_MOST];
    for (i64 p = 0; p < h->n; p++) sent[p] = p != h->self && !h->mpi->send(MPI_FAULTS, p, tag, bytes, n, &m[p]);
    for (i64 p = 0; p < h->n; p++)
        if (sent[p]) fault_done(h, &m[p]);
}

static void say_fault(hosts *h, const err *why) {
    h->said.code = (i32)why->code;
    memcpy(h->said.text, why->text, sizeof h->said.text);
    send_all(h, TAG_FAULT, &h->said, sizeof h->said);
}

void hosts_cancel(hosts *h, const err *why) {
    if (!enter(h)) return;
    say_fault(h, why);
    keep_why(h, why);
    leave(h);
}

status hosts_check(hosts *h, err *e) {
    if (!atomic_load(&h->failed)) hear_faults(h);
    return atomic_load(&h->failed) ? why_of(h, e) : ST_OK;
}

status hosts_roll_call(hosts *h, f64 seconds, err *e) {
    char name[WHO_MOST];
    err why;
    const u64 all = h->n == HOSTS_MOST ? ~(u64)0 : ((u64)1 << h->n) - 1;
    atomic_store(&h->answered, (u64)1 << h->self);
    if (!enter(h)) return why_of(h, e);
    send_all(h, TAG_CALL, NULL, 0);
    leave(h);
    for (const f64 until = now_s() + seconds; atomic_load(&h->answered) != all && now_s() < until;) {
        const status st = hosts_check(h, e);
        if (st != ST_OK) return st;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (i64 p = 0; p < h->n; p++) {
        if (atomic_load(&h->answered) >> p & 1) continue;
        err_set(&why, ST_DEVICE, "%s does not answer: it has ended, or stands still", who(h, p, name));
        hosts_cancel(h, &why);
        return why_of(h, e);
    }
    return ST_OK;
}

static void *watch_hosts(void *arg) {
    hosts *h = arg;
    while (!atomic_load(&h->over) && !atomic_load(&h->failed)) {
        hear_faults(h);
        nanosleep(&(struct timespec){.tv_nsec = WATCH_MS * 1000000}, NULL);
    }
    return NULL;
}

/* ---- messages ---- */

/* Between two looks of a wait that began at `since`: the longer it takes, the longer it sleeps. */
static void rest(f64 since) {
    const f64 waited = now_s() - since;
    if (waited < YIELD_S) {
        sched_yield();
        return;
    }
    const f64 s = waited / 16 < 20e-6 ? 20e-6 : waited / 16 > 1e-3 ? 1e-3 : waited / 16;
    nanosleep(&(struct timespec){.tv_nsec = (long)(s * 1e9)}, NULL);
}

static status mpi_fails(hosts *h, const char *what, i64 peer, err *e) {
    char name[WHO_MOST];
    err why;
    if (!enter(h)) return why_of(h, e);
    err_set(&why, ST_DEVICE, "%s with %s: MPI: %s", what, who(h, peer, name), h->mpi->why());
    leave(h);
    hosts_cancel(h, &why);
    return why_of(h, e);
}

typedef struct {
    mpi_message m;
    i64 peer;
    u64 bytes; /* expected */
    i32 tag;
    bool done, receives;
} host_wait;

static status wrong_message(hosts *h, const char *what, const host_wait *w, const mpi_envelope *of, err *e) {
    char name[WHO_MOST];
    err why;
    err_set(&why, ST_DEVICE, "%s: %s sent %lld bytes under tag %d, expected are %llu under %d", what,
            who(h, w->peer, name), (long long)of->bytes, of->tag, (unsigned long long)w->bytes, w->tag);
    hosts_cancel(h, &why);
    return why_of(h, e);
}

/* One look at each message; *left: how many are under way, *late: the process of one of them. */
static status look_at_messages(hosts *h, const char *what, host_wait *all, i64 n, i64 *left, i64 *late, err *e) {
    *left = 0;
    for (i64 i = 0; i < n; i++) {
        host_wait *w = &all[i];
        mpi_envelope of = {0};
        if (w->done) continue;
        if (!enter(h)) return why_of(h, e);
        const int failed = h->mpi->test(&w->m, &w->done, &of);
        leave(h);
        if (failed) return mpi_fails(h, what, w->peer, e);
        if (!w->done) *late = w->peer, ++*left;
        if (w->done && w->receives && (of.tag != w->tag || (u64)of.bytes != w->bytes))
            return wrong_message(h, what, w, &of, e);
    }
    return ST_OK;
}

static status too_late(hosts *h, const char *what, i64 late, f64 deadline_s, err *e) {
    char name[WHO_MOST];
    err why;
    err_set(&why, ST_DEVICE, "%s did not come to %s within %.3g s", who(h, late, name), what, deadline_s);
    hosts_cancel(h, &why);
    return why_of(h, e);
}

static status wait_messages(hosts *h, const char *what, host_wait *all, i64 n, f64 deadline_s, const atomic_bool *stop,
                            err *e) {
    const f64 since = now_s();
    f64 say = since + SAY_S;
    i64 left = n, late = 0;
    for (i64 looks = 1; left; looks++) {
        status st = look_at_messages(h, what, all, n, &left, &late, e);
        if (st != ST_OK || !left) return st;
        if (atomic_load(&h->failed) || (looks % LOOKS == 0 && hosts_check(h, NULL) != ST_OK)) return why_of(h, e);
        if (stop && atomic_load(stop)) return err_set(e, ST_CANCELLED, "%s: another rank has failed", what);
        const f64 now = now_s();
        if (now - since > deadline_s) return too_late(h, what, late, deadline_s, e);
        if (deadline_s == SETUP_S && now > say) {
            char name[WHO_MOST];
            log_note("waiting for %s for %.0f s (%s)", who(h, late, name), now - since, what);
            say = now + SAY_S;
        }
        rest(since);
    }
    return ST_OK;
}

/* Bytes [at, at + MPI_BYTES_MAX) of n. */
static u64 piece_of(u64 n, u64 at) { return n <= at ? 0 : n - at < MPI_BYTES_MAX ? n - at : MPI_BYTES_MAX; }

/* Messages of no bytes are sent, too: who waits for them meets the sender. */
static status exchange_piece(const host_group *g, const char *what, i32 tag, const host_parcel *with, u64 at,
                             f64 deadline_s, const atomic_bool *stop, err *e) {
    host_wait all[2 * HOSTS_MOST];
    hosts *h = g->all;
    i64 n = 0;
    for (i64 i = 0; i < g->n; i++) {
        const i64 p = g->first + i;
        if (p == h->self) continue;
        const u64 in = piece_of(with[i].in_bytes, at), out = piece_of(with[i].out_bytes, at);
        int failed = 0;
        if (!enter(h)) return why_of(h, e);
        if (!at || in) {
            all[n] = (host_wait){.peer = p, .bytes = in, .tag = tag, .receives = true};
            failed |= h->mpi->receive(g->channel, p, in ? (u8 *)with[i].in + at : NULL, (i64)in, &all[n++].m);
        }
        if (!failed && (!at || out)) {
            all[n] = (host_wait){.peer = p, .bytes = out, .tag = tag};
            const u8 *from = out ? (const u8 *)with[i].out + at : NULL;
            failed |= h->mpi->send(g->channel, p, tag, from, (i64)out, &all[n++].m);
        }
        leave(h);
        if (failed) return mpi_fails(h, what, p, e);
    }
    return wait_messages(h, what, all, n, deadline_s, stop, e);
}

static status exchange_all(const host_group *g, const char *what, i32 tag, const host_parcel *with, f64 deadline_s,
                           const atomic_bool *stop, err *e) {
    u64 most = 1;
    status st = atomic_load(&g->all->failed) ? why_of(g->all, e) : ST_OK;
    for (i64 i = 0; i < g->n; i++) {
        if (g->first + i == g->all->self) continue;
        most = with[i].in_bytes > most ? with[i].in_bytes : most;
        most = with[i].out_bytes > most ? with[i].out_bytes : most;
    }
    for (u64 at = 0; st == ST_OK && at < most; at += MPI_BYTES_MAX)
        st = exchange_piece(g, what, tag, with, at, deadline_s, stop, e);
    return st;
}

status hosts_exchange(const host_group *g, const char *what, i32 tag, const host_parcel *with, const atomic_bool *stop,
                      err *e) {
    const f64 since = now_s();
    hosts *h = g->all;
    const status st = exchange_all(g, what, tag, with, h->deadline_s, stop, e);
    pthread_mutex_lock(&h->lock);
    h->counts.exchanges++;
    h->counts.exchanged_s += now_s() - since;
    for (i64 i = 0; i < g->n; i++) h->counts.exchanged_bytes += g->first + i == h->self ? 0 : with[i].out_bytes;
    pthread_mutex_unlock(&h->lock);
    return st;
}

void hosts_forget_counts(hosts *h) {
    pthread_mutex_lock(&h->lock);
    h->counts = (hosts_counts){0};
    pthread_mutex_unlock(&h->lock);
}

hosts_counts hosts_counted(hosts *h) {
    pthread_mutex_lock(&h->lock);
    const hosts_counts c = h->counts;
    pthread_mutex_unlock(&h->lock);
    return c;
}

status hosts_share_among(const host_group *g, const char *what, const void *mine, void *all, u64 bytes, err *e) {
    host_parcel with[HOSTS_MOST] = {0};
    for (i64 i = 0; i < g->n; i++) with[i] = (host_parcel){mine, (u8 *)all + (u64)i * bytes, bytes, bytes};
    memcpy((u8 *)all + (u64)(g->all->self - g->first) * bytes, mine, bytes);
    return exchange_all(g, what, TAG_SHARE, with, SETUP_S, NULL, e);
}

status hosts_share(hosts *h, const char *what, const void *mine, void *all, u64 bytes, err *e) {
    return hosts_share_among(&(host_group){h, 0, h->n, MPI_CONTROL}, what, mine, all, bytes, e);
}

status hosts_agree(hosts *h, status st, err *e) {
    char name[WHO_MOST];
    fault_text mine = {.code = (i32)st}, *all = calloc((size_t)h->n, sizeof *all);
    if (!all) return err_nomem(e, "what other processes say", (u64)h->n * sizeof *all);
    if (st != ST_OK && e) memcpy(mine.text, e->text, sizeof mine.text);
    status first = hosts_share(h, "opening the model", &mine, all, sizeof mine, e);
    for (i64 p = 0; first == ST_OK && p < h->n; p++) {
        if (all[p].code == ST_OK) continue;
        all[p].text[sizeof all[p].text - 1] = 0;
        first = err_set(e, (status)all[p].code, "%s", all[p].text);
        if (p != h->self) err_prefix(e, "%s", who(h, p, name));
    }
    free(all);
    return first;
}

status hosts_tell(hosts *h, const void *bytes, u64 n, err *e) {
    const f64 since = now_s();
    host_wait all[HOSTS_MOST];
    i64 sent = 0;
    if (atomic_load(&h->failed)) return why_of(h, e);
    if (n > MPI_BYTES_MAX)
        return err_set(e, ST_LIMIT, "a step's tables of %llu bytes: at most %d go to other processes",
                       (unsigned long long)n, MPI_BYTES_MAX);
    for (i64 p = 1; p < h->n; p++) {
        all[sent] = (host_wait){.peer = p, .bytes = n, .tag = TAG_JOB};
        if (!enter(h)) return why_of(h, e);
        const int failed = h->mpi->send(MPI_CONTROL, p, TAG_JOB, bytes, (i64)n, &all[sent++].m);
        leave(h);
        if (failed) return mpi_fails(h, "the next step", p, e);
    }
    const status st = wait_messages(h, "the next step", all, sent, h->deadline_s, NULL, e);
    pthread_mutex_lock(&h->lock);
    h->counts.jobs++;
    h->counts.told_s += now_s() - since;
    h->counts.told_bytes += n * (u64)(h->n - 1);
    pthread_mutex_unlock(&h->lock);
    return st;
}

status hosts_listen(hosts *h, buf *out, err *e) {
    const f64 since = now_s();
    mpi_envelope of;
    buf_clear(out);
    for (bool there = false; !there;) {
        if (!enter(h)) return why_of(h, e);
        const int failed = h->mpi->probe(MPI_CONTROL, &there, &of);
        leave(h);
        if (failed) return mpi_fails(h, "the next step", 0, e);
        if (!there) rest(since);
    }
    host_wait w = {.peer = of.peer, .bytes = (u64)of.bytes, .tag = TAG_JOB, .receives = true};
    if (!buf_reserve(out, (size_t)of.bytes)) return err_nomem(e, "a step's tables", (u64)of.bytes);
    if (!enter(h)) return why_of(h, e);
    const int failed = h->mpi->receive(MPI_CONTROL, of.peer, out->data, of.bytes, &w.m);
    leave(h);
    if (failed) return mpi_fails(h, "the next step", 0, e);
    out->len = (size_t)of.bytes;
    const status st = wait_messages(h, "the next step", &w, 1, h->deadline_s, NULL, e);
    if (st == ST_OK) return ST_OK;
    hosts_leave(h, out->data);
    *out = (buf){0};
    return st;
}

/* ---- start and end ---- */

/* Open MPI's own launcher, then MPICH's and its relatives, say how many; others, as Slurm's, that there are some. */
i64 hosts_started(void) {
    const char *n = opt_env("OMPI_COMM_WORLD_SIZE");
    if (!n) n = opt_env("PMI_SIZE");
    return n ? strtoll(n, NULL, 10) : opt_env("PMIX_RANK") ? 0 : 1;
}

static const char *plugin_path(char *out, size_t cap) {
    static const char *const places[] = {"", "../lib/moonlet/"};
    char self[4000];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (opt_env("MOONLET_MPI")) return opt_env("MOONLET_MPI");
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) slash[1] = 0;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        snprintf(out, cap, "%s%smoonlet-mpi.so", self, places[i]);
        if (!access(out, R_OK)) return out;
    }
    return NULL;
}

static status load_plugin(const mpi_plugin **out, err *e) {
    char place[4096];
    const char *path = plugin_path(place, sizeof place);
    if (!path)
        return err_set(e, ST_UNSUPPORTED,
                       "--nnodes: no moonlet-mpi.so beside this program or in ../lib/moonlet: it is built where the "
                       "distribution's Open MPI is there (tools/setup mpi installs it)");
    void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI loads parts of itself, which look for the rest */
    if (!lib) return err_set(e, ST_UNSUPPORTED, "--nnodes: %s", dlerror());
    *out = dlsym(lib, MPI_PLUGIN_SYMBOL);
    if (!*out) return err_set(e, ST_UNSUPPORTED, "--nnodes: %s has no %s", path, MPI_PLUGIN_SYMBOL);
    if ((*out)->abi == MPI_PLUGIN_ABI) return ST_OK;
    return err_set(e, ST_UNSUPPORTED, "--nnodes: %s is of another version of Moonlet (%d, this one needs %d)", path,
                   (*out)->abi, MPI_PLUGIN_ABI);
}

/* Everybody's host; which of the processes are on this one's. */
static status meet_others(hosts *h, err *e) {
    char own[HOST_NAME_MOST] = "";
    gethostname(own, sizeof own - 1);
    for (i64 p = 0; p < h->n; p++) snprintf(h->names[p], HOST_NAME_MOST, "?");
    status st = hosts_share(h, "the start", own, h->names, sizeof own, e);
    for (i64 p = 0; st == ST_OK && p < h->n; p++) {
        h->names[p][HOST_NAME_MOST - 1] = 0;
        if (strcmp(h->names[p], own)) continue;
        h->here++;
        h->place += p < h->self;
    }
    return st;
}

/* parent: of this process, which is to stay so; 0: any. */
static status open_with(hosts **out, const mpi_plugin *p, i64 processes, f64 deadline_s, pid_t parent, err *e) {
    hosts *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return err_nomem(e, "the processes' group", sizeof *h);
    h->mpi = p, h->deadline_s = deadline_s, h->parent = parent;
    pthread_mutex_init(&h->calls, NULL);
    pthread_mutex_init(&h->lock, NULL);
    status st = p->start(&h->self, &h->n) ? err_set(e, ST_DEVICE, "MPI does not start: %s", p->why()) : ST_OK;
    if (st == ST_OK && (h->n != processes || h->n > HOSTS_MOST))
        st = err_set(e, ST_INPUT, "--nnodes %lld, and mpirun has started %lld processes (at most %d)",
                     (long long)processes, (long long)h->n, HOSTS_MOST);
    if (st == ST_OK && !(h->names = calloc((size_t)h->n, sizeof *h->names)))
        st = err_nomem(e, "the hosts' names", (u64)h->n * sizeof *h->names);
    if (st == ST_OK) st = meet_others(h, e);
    if (st == ST_OK) h->watched = (st = thread_start(&h->watcher, "host-watch", watch_hosts, h, e)) == ST_OK;
    *out = h;
    if (st != ST_OK) fail_silently(h, e);
    return st;
}

status hosts_open_with(hosts **out, const mpi_plugin *p, i64 processes, f64 deadline_s, err *e) {
    return open_with(out, p, processes, deadline_s, 0, e);
}

status hosts_open(hosts **out, i64 processes, f64 deadline_s, err *e) {
    const pid_t parent = getppid();
    const mpi_plugin *p;
    *out = NULL;
    if (hosts_started() && hosts_started() != processes)
        return err_set(e, ST_INPUT,
                       "--nnodes %lld needs as many processes, one a host, and mpirun has started %lld: mpirun -n %lld "
                       "moonlet ...",
                       (long long)processes, (long long)hosts_started(), (long long)processes);
    status st = load_plugin(&p, e);
    return st == ST_OK ? open_with(out, p, processes, deadline_s, parent, e) : st;
}

void hosts_leave(hosts *h, void *memory) {
    left_memory *l = memory ? malloc(sizeof *l) : NULL;
    if (!l) return;
    pthread_mutex_lock(&h->lock);
    *l = (left_memory){h->left, memory};
    h->left = l;
    pthread_mutex_unlock(&h->lock);
}

void hosts_close(hosts *h) {
    if (!h) return;
    atomic_store(&h->over, true);
    if (h->watched) pthread_join(h->watcher, NULL);
    if (atomic_load(&h->failed)) {
        for (const f64 until = now_s() + LEAVE_S; h->self && h->parent == getppid() && now_s() < until;)
            nanosleep(&(struct timespec){.tv_nsec = WATCH_MS * 1000000}, NULL);
        return;
    }
    if (h->mpi->end()) log_warn("MPI does not end: %s", h->mpi->why());
    pthread_mutex_destroy(&h->calls);
    pthread_mutex_destroy(&h->lock);
    free(h->names);
    free(h);
}
