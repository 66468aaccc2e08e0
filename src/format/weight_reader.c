#include "format/weight_reader.h"
#include "base/log.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    READ_THREADS = 8,              /* disks of several GB/s want more than one request at a time */
    READ_PIECE = 8 << 20,          /* bytes of a request */
    READ_ALIGN = 64,               /* of tensors in the window */
    READER_TICK_NS = 100 * 1000000 /* who waits looks at the clock so often */
};
static const u64 WINDOW_LEAST = 32 << 20, WINDOW_MOST = 512 << 20;

/* A place in the list. One that repeats a tensor is `first`'s, and only counts its takers.
 *
 *   listed --make_room()--> has data --piece_is_read(), until there == bytes--> can be taken
 *          --drop(), when left is 0--> over */
typedef struct {
    const tensor_info *t;
    u64 first;        /* the first place of the same tensor: this one, or one before */
    u8 *data;         /* in the window or, if `alone`, memory of its own */
    bool alone;       /* more than the window had room for */
    u64 takes;        /* bytes of the window, with those skipped in front of it */
    u64 begun, there; /* bytes that a thread has begun to read, that have been read */
    i64 left;         /* takes of all ranks that have not been given back */
} read_place;

typedef struct {
    u64 taken, given; /* places of the list */
    bool waits;       /* for place `taken` */
} read_rank;

struct weight_reader {
    const checkpoint *ck;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;  /* for readers: there may be room */
    pthread_cond_t ready; /* for ranks: a tensor is there, or all has failed */
    read_place *places;   /* [n] */
    u64 n, next;          /* the first place that is not wholly begun */
    u64 oldest;           /* the first whose part of the window is not free again */
    u8 *window;           /* a ring: tensors lie in one piece, in the order of the list */
    u64 size, head, used;
    u64 held;         /* bytes of tensors that have data */
    i64 idle;         /* readers that wait for room */
    i64 ranks, first; /* first: the number of of[0] */
    read_rank of[READER_RANKS_MAX];
    f64 deadline_s, start, moved; /* moved: when disk or ranks last did anything */
    u64 *by_shard;                /* [shards] */
    weight_reads reads;
    progress shown;
    err failure; /* the first */
    bool over;
    int n_threads;
    pthread_t threads[READ_THREADS];
};

static u64 round_to(u64 n, u64 unit) { return (n + unit - 1) / unit * unit; }

/* ---- with the lock held ---- */

static void reader_fail(weight_reader *r, const err *why) {
    if (r->failure.code == ST_OK) r->failure = *why;
    pthread_cond_broadcast(&r->ready);
    pthread_cond_broadcast(&r->work);
}

/* Will no rank give anything back before place `at` is there? */
static bool all_wait_for(const weight_reader *r, u64 at) {
    for (i64 k = 0; k < r->ranks; k++)
        if (r->of[k].taken < r->n && !(r->of[k].waits && r->of[k].taken >= at)) return false;
    return true;
}

/* Memory for place p at r->next, if it may have some now. */
static bool make_room(weight_reader *r, read_place *p) {
    u64 bytes = round_to(p->t->bytes, READ_ALIGN);
    if (!r->used) r->head = 0;
    bool wraps = r->head + bytes > r->size;
    u64 at = wraps ? 0 : r->head, skipped = wraps ? r->size - r->head : 0;
    if (bytes <= r->size && skipped + bytes <= r->size - r->used) {
        p->takes = skipped + bytes;
        p->data = r->window + at;
        r->head = at + bytes;
        r->used += p->takes;
    } else if (!r->held || all_wait_for(r, r->next)) {
        p->data = aligned_alloc(READ_ALIGN, bytes);
        p->alone = true;
    } else {
        return false;
    }
    err e;
    if (!p->data) err_nomem(&e, p->t->name, bytes), reader_fail(r, &e);
    r->held += bytes;
    r->reads.memory = r->held > r->reads.memory ? r->held : r->reads.memory;
    return p->data;
}

/* All ranks have given it back. */
static void drop(weight_reader *r, read_place *p) {
    r->held -= round_to(p->t->bytes, READ_ALIGN);
    if (p->alone) free(p->data);
    p->data = NULL;
    for (; r->oldest < r->next && !r->places[r->oldest].left; r->oldest++) r->used -= r->places[r->oldest].takes;
    if (r->idle) pthread_cond_broadcast(&r->work);
}

typedef struct {
    read_place *place;
    u64 at, n;
} read_piece;

/* The next bytes to be read; false: there is no room, or no more. */
static bool next_piece(weight_reader *r, read_piece *job) {
    while (r->next < r->n && (r->places[r->next].first != r->next || !r->places[r->next].t->bytes)) r->next++;
    if (r->next == r->n || r->failure.code != ST_OK) return false;
    read_place *p = &r->places[r->next];
    if (!p->data && !make_room(r, p)) return false;
    *job = (read_piece){p, p->begun, p->t->bytes - p->begun};
    if (job->n > READ_PIECE) job->n = READ_PIECE;
    p->begun += job->n;
    if (p->begun == p->t->bytes) r->next++;
    return true;
}

static void piece_is_read(weight_reader *r, const read_piece *job) {
    read_place *p = job->place;
    p->there += job->n;
    r->moved = now_s();
    r->reads.bytes += job->n;
    r->reads.seconds = r->moved - r->start;
    r->by_shard[p->t->shard] += job->n;
    progress_step(&r->shown, r->reads.bytes);
    if (p->there == p->t->bytes) pthread_cond_broadcast(&r->ready);
}

/* Nothing has moved for too long: what the rank that is behind waits for, or it itself, is to blame. */
static void stalled(weight_reader *r) {
    err e;
    i64 last = 0;
    for (i64 k = 1; k < r->ranks; k++)
        if (r->of[k].given < r->of[last].given) last = k;
    const read_rank *k = &r->of[last];
    const read_place *p = k->waits ? &r->places[r->places[k->taken].first] : NULL;
    if (p)
        err_set(&e, ST_IO, "%s: the disk gave nothing for %.3g s (tensor %s, %llu of %llu bytes)",
                checkpoint_shard_name(r->ck, p->t->shard), r->deadline_s, p->t->name, (unsigned long long)p->there,
                (unsigned long long)p->t->bytes);
    else
        err_set(&e, ST_DEVICE, "rank %lld was not done with tensor %s within %.3g s", (long long)(r->first + last),
                r->places[k->given].t->name, r->deadline_s);
    if (p) log_warn("%s", e.text); /* close() waits for that disk */
    reader_fail(r, &e);
}

/* ---- threads ---- */

static void *reader_main(void *arg) {
    weight_reader *r = arg;
    read_piece job;
    err e;
    pthread_mutex_lock(&r->lock);
    while (!r->over && r->next < r->n && r->failure.code == ST_OK) {
        if (!next_piece(r, &job)) {
            if (r->next == r->n || r->failure.code != ST_OK) break;
            r->idle++;
            pthread_cond_wait(&r->work, &r->lock);
            r->idle--;
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        status st = checkpoint_read(r->ck, job.place->t, job.at, job.n, job.place->data + job.at, &e);
        pthread_mutex_lock(&r->lock);
        if (st == ST_OK)
            piece_is_read(r, &job);
        else
            reader_fail(r, &e);
    }
    pthread_cond_broadcast(&r->work); /* the others may be at the end too */
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static status start_readers(weight_reader *r, err *e) {
    u64 wanted = r->reads.needed / READ_PIECE + 1;
    status st = ST_OK;
    while (st == ST_OK && r->n_threads < READ_THREADS && (u64)r->n_threads < wanted) {
        st = thread_start(&r->threads[r->n_threads], "weights", reader_main, r, e);
        r->n_threads += st == ST_OK;
    }
    return r->n_threads ? ST_OK : st; /* fewer threads read slower */
}

/* ---- open and close ---- */

/* The places, each with the first one of its tensor. */
static bool make_places(weight_reader *r, const tensor_info *const *list) {
    const tensor_info *base = r->n ? checkpoint_tensor(r->ck, 0) : NULL;
    u64 *seen = calloc(checkpoint_n_tensors(r->ck) + 1, sizeof *seen); /* 1 + the first place */
    for (u64 i = 0; seen && i < r->n; i++) {
        u64 *first = &seen[list[i] - base];
        if (!*first) *first = i + 1, r->reads.needed += list[i]->bytes;
        r->places[i] = (read_place){.t = list[i], .first = *first - 1};
        r->places[*first - 1].left += r->ranks;
    }
    free(seen);
    return seen;
}

static status reader_prepare(weight_reader *r, const tensor_info *const *list, u64 window, err *e) {
    r->places = calloc(r->n + 1, sizeof *r->places);
    r->by_shard = calloc((size_t)checkpoint_n_shards(r->ck) + 1, sizeof *r->by_shard);
    if (!r->places || !r->by_shard || !make_places(r, list))
        return err_nomem(e, "the list of tensors to read", r->n * sizeof *r->places);
    u64 share = r->reads.needed / 16;
    r->size = window ? window : share < WINDOW_LEAST ? WINDOW_LEAST : share > WINDOW_MOST ? WINDOW_MOST : share;
    r->size = round_to(r->size, READ_ALIGN);
    r->window = aligned_alloc(READ_ALIGN, r->size);
    if (!r->window) return err_nomem(e, "weights on their way", r->size);
    checkpoint_read_exactly(r->ck);
    r->start = r->moved = now_s();
    progress_start(&r->shown, "weights", "B", r->reads.needed);
    return start_readers(r, e);
}

status weight_reader_open(weight_reader **out, const checkpoint *ck, const tensor_info *const *list, u64 n, i64 ranks,
                          u64 window, f64 deadline_s, err *e) {
    *out = NULL;
    weight_reader *r = calloc(1, sizeof *r);
    if (!r) return err_nomem(e, "the reader of weights", sizeof *r);
    r->ck = ck, r->n = n, r->ranks = ranks, r->deadline_s = deadline_s;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->ready, NULL);
    status st = reader_prepare(r, list, window, e);
    if (st != ST_OK) return weight_reader_close(r), st;
    *out = r;
    return ST_OK;
}

void weight_reader_first_rank(weight_reader *r, i64 first) { r->first = first; }

void weight_reader_close(weight_reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->over = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++) pthread_join(r->threads[i], NULL);
    progress_end(&r->shown);
    for (u64 i = 0; r->places && i < r->n; i++)
        if (r->places[i].alone) free(r->places[i].data);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->ready);
    pthread_mutex_destroy(&r->lock);
    free(r->window);
    free(r->places);
    free(r->by_shard);
    free(r);
}

/* ---- ranks ---- */

static void wait_a_tick(weight_reader *r) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += READER_TICK_NS;
    t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&r->ready, &r->lock, &t);
}

status weight_reader_take(weight_reader *r, i64 rank, const tensor_info *t, const void **data, err *e) {
    read_rank *k = &r->of[rank - r->first];
    pthread_mutex_lock(&r->lock);
    if (k->taken == r->n || r->places[k->taken].t != t) {
        status st =
            err_set(e, ST_INPUT, "tensor %s is not the next that rank %lld was to take", t->name, (long long)rank);
        pthread_mutex_unlock(&r->lock);
        return st;
    }
    read_place *p = &r->places[r->places[k->taken].first];
    k->waits = true;
    while (p->there < t->bytes && r->failure.code == ST_OK) {
        if (!p->data && r->idle) pthread_cond_broadcast(&r->work); /* all may be waiting for it now */
        wait_a_tick(r);
        if (now_s() - r->moved > r->deadline_s && p->there < t->bytes && r->failure.code == ST_OK) stalled(r);
    }
    k->waits = false;
    status st = r->failure.code == ST_OK ? ST_OK : err_set(e, r->failure.code, "%s", r->failure.text);
    if (st == ST_OK) {
        *data = p->data ? p->data : t->data; /* of no bytes */
        r->moved = now_s();
        k->taken++;
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

void weight_reader_give_back(weight_reader *r, i64 rank) {
    read_rank *k = &r->of[rank - r->first];
    pthread_mutex_lock(&r->lock);
    for (; k->given < k->taken; k->given++) {
        read_place *p = &r->places[r->places[k->given].first];
        if (!--p->left) drop(r, p);
    }
    r->moved = now_s();
    pthread_mutex_unlock(&r->lock);
}

void weight_reader_cancel(weight_reader *r) {
    err e;
    err_set(&e, ST_CANCELLED, "loading was stopped: another rank has failed");
    pthread_mutex_lock(&r->lock);
    reader_fail(r, &e);
    pthread_mutex_unlock(&r->lock);
}

weight_reads weight_reader_reads(weight_reader *r) {
    pthread_mutex_lock(&r->lock);
    weight_reads all = r->reads;
    pthread_mutex_unlock(&r->lock);
    return all;
}

u64 weight_reader_shard_bytes(weight_reader *r, int shard) {
    pthread_mutex_lock(&r->lock);
    u64 n = r->by_shard[shard];
    pthread_mutex_unlock(&r->lock);
    return n;
}
