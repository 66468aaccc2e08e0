#include "server/request/constraints.h"
#include "base/json_size.h"
#include "base/log.h"
#include "base/siphash.h"
#include "base/thread.h"
#include "text/pyjson.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const f64 GONE_LOOK_S = 0.1, TRIM_S = 1;

/* TO_COMPILE: somebody who waits for it will. */
typedef enum { TO_COMPILE, COMPILING, KEPT, FAILED } entry_state;

typedef struct {
    buf key; /* the source, written canonically */
    u64 hash;
    entry_state state;
    u64 source_bytes;
    constraint *of; /* KEPT */
    buf warnings;   /* KEPT */
    err why;        /* FAILED */
    f64 until_s;    /* FAILED: is remembered until then */
    i64 users;      /* that look at it; it is not freed while there are any */
    i64 used;       /* when it last was: number of the question */
} cache_entry;

struct constraint_cache {
    constraint_cache_options o;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    cache_entry **all; /* [n] */
    i64 n, cap, running, questions;
    u64 salt[2];
    f64 trimmed_s;
    bool stopped;
    constraint_stats stats;
    /* Made by the first compile: it takes a moment and some memory, which a server that is never asked for anything of
     * the kind should not cost, nor delay its start. */
    pthread_mutex_t trie_lock;
    token_trie *trie;
};

status constraint_cache_open(constraint_cache **out, const constraint_cache_options *o, err *e) {
    constraint_cache *c = *out = calloc(1, sizeof *c);
    if (!c) return err_nomem(e, "constraints", sizeof *c);
    c->o = *o;
    if (!c->o.most) c->o.most = 256;
    if (!c->o.bytes) c->o.bytes = (u64)512 << 20;
    if (!c->o.most_failures) c->o.most_failures = 32;
    if (!(c->o.failure_s > 0)) c->o.failure_s = 60;
    if (!c->o.at_a_time) c->o.at_a_time = 8;
    if (!(c->o.patience_s > 0)) c->o.patience_s = 10;
    if (!c->o.compile) c->o.compile = constraint_compile;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->trie_lock, NULL);
    /* The hash spares comparing; keys are compared whole, so without random numbers it only could be slower. */
    if (getrandom(c->salt, sizeof c->salt, GRND_NONBLOCK) < 0) c->salt[0] = 1;
    return ST_OK;
}

static void entry_free(cache_entry *x) {
    constraint_release(x->of);
    buf_free(&x->key);
    buf_free(&x->warnings);
    free(x);
}

void constraint_cache_close(constraint_cache *c) {
    if (!c) return;
    for (i64 i = 0; i < c->n; i++) entry_free(c->all[i]);
    free(c->all);
    token_trie_close(c->trie);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->trie_lock);
    free(c);
}

void constraint_cache_stop(constraint_cache *c) {
    pthread_mutex_lock(&c->lock);
    c->stopped = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void constraint_cache_stats(constraint_cache *c, constraint_stats *out) {
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}

/* ---- Keys ---- */

/* Descriptions of tools stay out: they change nothing, and conversations that differ in them share. */
static bool tool_key(const json_t *tool, bool sort, buf *key) {
    static const char *const parts[] = {"name", "strict", "parameters"};
    const json_t *function = json_object_get(tool, "function");
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        json_t *v = json_object_get(function, parts[i]), *sorted = v && sort ? py_sorted(v) : json_incref(v);
        if (v && !sorted) return false;
        buf_char(key, '\n');
        if (v) json_write(key, sorted, &json_compact);
        json_decref(sorted);
    }
    return true;
}

static bool source_key(const constraint_source *s, bool sort, buf *key) {
    json_t *sorted = s->value && sort ? py_sorted(s->value) : json_incref((json_t *)s->value), *tool;
    size_t i;
    bool ok = sorted || !s->value;
    buf_fmt(key, "%d %d %d %d %d %d\n", s->content, s->strict, s->calls, s->one_call, s->space, s->in_order);
    if (sorted) json_write(key, sorted, &json_compact);
    json_decref(sorted);
    json_array_foreach(s->tools, i, tool) ok = ok && tool_key(tool, sort, key);
    return ok;
}

/* First as it is, to see that it is not too long: sorting copies it. Where the order of properties counts, so it stays.
 */
static bool write_key(const constraint_source *s, const char *field, buf *key, api_error *e) {
    for (int sort = 0; sort < (s->in_order ? 1 : 2); sort++) {
        buf_free(key);
        key->max = CONSTRAINT_SOURCE_MAX;
        if (!source_key(s, sort, key) || (key->failed && !key->full)) return api_nomem(e);
        if (key->full)
            return api_fail(e, 400, NULL, field, "%s: more than %d bytes of schemas", field, CONSTRAINT_SOURCE_MAX);
    }
    return true;
}

/* ---- Entries; all with the lock held ---- */

static bool over(const cache_entry *x, f64 now) { return x->state == FAILED && now >= x->until_s; }

static void drop_entry(constraint_cache *c, i64 i) {
    entry_free(c->all[i]);
    c->all[i] = c->all[--c->n];
}

/* Takes *key, also without success. NULL: no memory. */
static cache_entry *find_or_add(constraint_cache *c, buf *key) {
    const u64 hash = siphash(c->salt, key->data, key->len);
    const f64 now = now_s();
    for (i64 i = 0; i < c->n; i++) {
        cache_entry *x = c->all[i];
        if (x->hash != hash || over(x, now) || x->key.len != key->len || memcmp(x->key.data, key->data, key->len))
            continue;
        buf_free(key);
        return x;
    }
    cache_entry *x = calloc(1, sizeof *x);
    if (x && c->n == c->cap) {
        i64 cap = c->cap ? 2 * c->cap : 64;
        cache_entry **all = realloc(c->all, (size_t)cap * sizeof *all);
        if (all) c->all = all, c->cap = cap;
    }
    if (!x || c->n == c->cap) {
        free(x);
        buf_free(key);
        return NULL;
    }
    *x = (cache_entry){.key = *key, .hash = hash};
    *key = (buf){0};
    return c->all[c->n++] = x;
}

/* A constraint keeps its source beside what it counts. */
static u64 entry_bytes(const cache_entry *x) {
    return constraint_bytes(x->of) + x->source_bytes + x->key.cap + x->warnings.cap;
}

/* The one of that state which nobody looks at and was not used for longest; -1: none. */
static i64 oldest(const constraint_cache *c, entry_state state) {
    i64 at = -1;
    for (i64 i = 0; i < c->n; i++)
        if (c->all[i]->state == state && !c->all[i]->users && (at < 0 || c->all[i]->used < c->all[at]->used)) at = i;
    return at;
}

/* A constraint that an answer still uses goes from here all the same, and is freed with the answer. */
static void trim_cache(constraint_cache *c) {
    const f64 now = c->trimmed_s = now_s();
    i64 kept = 0, failed = 0, at;
    u64 bytes = 0;
    for (i64 i = c->n - 1; i >= 0; i--) {
        const cache_entry *x = c->all[i];
        if (!x->users && (over(x, now) || x->state == TO_COMPILE)) {
            drop_entry(c, i);
            continue;
        }
        kept += x->state == KEPT;
        failed += x->state == FAILED;
        if (x->state == KEPT) bytes += entry_bytes(x);
    }
    while (failed > c->o.most_failures && (at = oldest(c, FAILED)) >= 0) drop_entry(c, at), failed--;
    while ((kept > c->o.most || bytes > c->o.bytes) && (at = oldest(c, KEPT)) >= 0) {
        bytes -= min_i64((i64)bytes, (i64)entry_bytes(c->all[at])); /* it may have grown since */
        drop_entry(c, at);
        kept--;
    }
    c->stats.kept = kept;
    c->stats.bytes = bytes;
}

/* ---- Compiling ---- */

typedef struct {
    constraint_cache *c;
    constraint_source source;
    atomic_bool stop;
    bool done; /* with the cache's lock */
    constraint *out;
    buf warnings;
    status st;
    err why;
    f64 seconds;
} compile_job;

static status trie_of(constraint_cache *c, const token_trie **out, err *e) {
    pthread_mutex_lock(&c->trie_lock);
    status st = c->trie ? ST_OK : token_trie_open(&c->trie, c->o.tok, e);
    *out = c->trie;
    pthread_mutex_unlock(&c->trie_lock);
    return st;
}

static void *compile_thread(void *ud) {
    compile_job *j = ud;
    const token_trie *trie;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* of this thread alone */
    j->st = trie_of(j->c, &trie, &j->why);
    f64 t = now_s();
    if (j->st == ST_OK) j->st = j->c->o.compile(&j->out, &j->source, trie, j->c->o.tok, &j->warnings, &j->why);
    j->seconds = now_s() - t;
    pthread_mutex_lock(&j->c->lock);
    j->done = true;
    pthread_cond_broadcast(&j->c->changed);
    pthread_mutex_unlock(&j->c->lock);
    return NULL;
}

static void wait_a_moment(constraint_cache *c) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    i64 ns = until.tv_nsec + (i64)(GONE_LOOK_S * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

/* ---- Waiting; with the lock held, which is let go meanwhile ---- */

typedef enum { WAIT_GOES_ON, WAIT_STOPPED, WAIT_TOO_LONG, WAIT_GONE } wait_end;

static wait_end wait_ends(const constraint_cache *c, const constraint_asker *who, f64 until) {
    if (c->stopped) return WAIT_STOPPED;
    if (now_s() >= until) return WAIT_TOO_LONG;
    return who->gone && who->gone(who->ud) ? WAIT_GONE : WAIT_GOES_ON;
}

static void leave_with(constraint_cache *c, wait_end why, const constraint_asker *who, api_error *e) {
    c->stats.timeouts += why == WAIT_TOO_LONG;
    c->stats.aborted += why == WAIT_GONE;
    if (why == WAIT_GONE) return;
    if (why == WAIT_STOPPED)
        api_fail(e, 503, NULL, NULL, "%s: the server is shutting down", who->field);
    else
        api_fail(e, 503, "timeout", NULL, "%s waited too long for its turn to be compiled", who->field);
    e->retry_after = 1;
}

/* Until the job is done, which it is soon after it was given up: for a client that has gone only when no other waits
 * for the same. The thread has the request's source, so it is waited for whatever happens. */
static wait_end watch_compile(constraint_cache *c, const cache_entry *x, compile_job *j, const constraint_asker *who) {
    wait_end end = WAIT_GOES_ON;
    while (!j->done) {
        if (end == WAIT_GOES_ON || end == WAIT_GONE) end = wait_ends(c, who, INFINITY);
        if (end != WAIT_GOES_ON && (end != WAIT_GONE || x->users == 1)) atomic_store(&j->stop, true);
        wait_a_moment(c);
    }
    return end;
}

static void keep_result(constraint_cache *c, cache_entry *x, compile_job *j, const constraint_source *source) {
    const bool given_up = j->st == ST_CANCELLED;
    c->stats.compiles++;
    c->stats.seconds += j->seconds;
    c->stats.failures += j->st != ST_OK;
    x->state = j->st == ST_OK ? KEPT : given_up ? TO_COMPILE : FAILED;
    x->why = j->why;
    x->why.code = j->st;
    /* For want of memory the next one tries again. */
    x->until_s = j->st == ST_NOMEM ? 0 : now_s() + c->o.failure_s;
    if (j->st == ST_OK) {
        x->of = j->out;
        x->source_bytes = json_memory(source->value) + json_memory(source->tools);
        x->warnings = j->warnings;
    } else {
        constraint_release(j->out);
        buf_free(&j->warnings);
    }
}

/* Compiles x for who asks. WAIT_GOES_ON: it is kept or has failed. */
static wait_end compile_entry(constraint_cache *c, cache_entry *x, const constraint_source *source,
                              const constraint_asker *who) {
    compile_job j = {.c = c, .source = *source};
    wait_end end = WAIT_GOES_ON;
    pthread_t thread;
    j.source.stop = &j.stop;
    x->state = COMPILING;
    c->running++;
    const status started = thread_start(&thread, "constraint", compile_thread, &j, &j.why);
    if (started != ST_OK) {
        j.st = started;
    } else {
        end = watch_compile(c, x, &j, who);
        pthread_mutex_unlock(&c->lock);
        pthread_join(thread, NULL);
        if (c->o.compiled) c->o.compiled(c->o.ud, j.seconds);
        pthread_mutex_lock(&c->lock);
    }
    if (j.warnings.failed && j.st == ST_OK) j.st = err_nomem(&j.why, "warnings", 0);
    c->running--;
    keep_result(c, x, &j, source);
    c->trimmed_s = 0;
    pthread_cond_broadcast(&c->changed);
    return j.st == ST_CANCELLED ? end : WAIT_GOES_ON;
}

/* Until x is kept or has failed. */
static bool settle_entry(constraint_cache *c, cache_entry *x, const constraint_source *source,
                         const constraint_asker *who, api_error *e) {
    wait_end end = WAIT_GOES_ON;
    bool own = false;
    const f64 until = now_s() + c->o.patience_s;
    c->stats.waiting++;
    while (end == WAIT_GOES_ON && (x->state == TO_COMPILE || x->state == COMPILING)) {
        if (c->stopped) {
            end = WAIT_STOPPED;
        } else if (x->state == TO_COMPILE && c->running < c->o.at_a_time) {
            own = true;
            end = compile_entry(c, x, source, who);
        } else {
            end = wait_ends(c, who, until);
            if (end == WAIT_GOES_ON) wait_a_moment(c);
        }
    }
    if (end != WAIT_GOES_ON) leave_with(c, end, who, e);
    c->stats.waiting--;
    c->stats.hits += !own && end == WAIT_GOES_ON;
    return end == WAIT_GOES_ON;
}

/* Faults of tools say so; others are put down to the field that asked. */
static bool fail_with(const cache_entry *x, const constraint_asker *who, api_error *e) {
    static const char tools[] = "tools:";
    err why = x->why;
    bool of_tools = !strncmp(why.text, tools, sizeof tools - 1);
    if (!of_tools) err_prefix(&why, "%s", who->field);
    return api_fail_status(e, why.code, of_tools ? "tools" : who->field, &why);
}

bool constraints_get(constraint_cache *c, const constraint_source *source, const constraint_asker *who,
                     constraint **out, buf *warnings, api_error *e) {
    buf key = {0};
    *out = NULL;
    if (!write_key(source, who->field, &key, e)) return buf_free(&key), false;
    pthread_mutex_lock(&c->lock);
    cache_entry *x = find_or_add(c, &key);
    bool ok = x || api_nomem(e);
    if (ok) {
        x->users++;
        x->used = ++c->questions;
        ok = settle_entry(c, x, source, who, e);
    }
    if (ok && x->state == FAILED) ok = fail_with(x, who, e);
    if (ok) {
        *out = constraint_hold(x->of);
        buf_add(warnings, x->warnings.data, x->warnings.len);
    }
    if (x) x->users--;
    if (now_s() - c->trimmed_s >= TRIM_S) trim_cache(c);
    pthread_mutex_unlock(&c->lock);
    return ok;
}
