/* cmd/check/check_determinism.c: `moonlet check bits`: do equal requests give equal bits?
 *
 * The same requests run together, again, and (cuda) with every launch by itself: tokens, log-probabilities and a
 * digest of all logits must be the same bits. Where a request's bits must not depend on the others (ref, cpu, and
 * cuda with --deterministic) they also run one by one, in another order, joining one after the other, in other
 * chunks, and over prefixes out of the cache. */
#include "cmd/check/check_determinism.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/lib/model_opts.h"
#include "runtime/philox.h"
#include "runtime/scheduler.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 20, MOST = 256 };

/* What came back for a token of the prompt or of the answer. */
typedef struct {
    i32 id;
    f32 logprob;
    u64 digest; /* of both and of the alternatives */
} seen;

typedef struct {
    seen *of; /* [requests][each] */
    i64 *n;   /* [requests] */
    u64 logits;
    i64 rows; /* whose logits were seen */
    i64 steps, ahead;
} outcome;

typedef struct {
    model_opts m;
    i64 requests, tokens, longest, seed, each;
    i32 **prompts;
    i64 *lengths;
    outcome *to; /* of the run under way */
    bool ended_badly;
    i64 compared, failed;
} bits;

typedef enum { ONE_BY_ONE, TOGETHER, REVERSED, JOINING } order;
enum {
    CACHED = 1,
    UNCHANGED = 2,
    IN_TURN = 4
}; /* with the prefix cache; nobody's logits are changed; no step is queued ahead */

static u64 digest_of(u64 h, const void *p, size_t bytes) {
    const u8 *at = p;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x100000001b3u; /* FNV-1a */
    return h;
}

/* Engine thread (our own). */
static void after_step(void *ud, const model_batch *b, i64 vocab) {
    bits *k = ud;
    for (i64 i = 0; k->to && i < b->n_out; i++) {
        if (b->draws && !(b->keep && b->keep[i])) continue;
        k->to->logits = digest_of(k->to->logits, b->logits + i * vocab, (size_t)vocab * sizeof(f32));
        k->to->rows++;
    }
}

static void determinism_on_events(void *ud, const sched_event *ev, i64 n) {
    bits *k = ud;
    for (i64 i = 0; i < n; i++) {
        i64 r = (i64)((const i32 *const *)ev[i].user - (const i32 *const *)k->prompts);
        if (ev[i].kind == SCHED_END && ev[i].finish != SCHED_LENGTH) {
            fprintf(stderr, "moonlet check: request %lld ended: %s\n", (long long)r,
                    ev[i].error ? ev[i].error->text : "not by its length");
            k->ended_badly = true;
        }
        if (ev[i].kind != SCHED_TOKEN && ev[i].kind != SCHED_PROMPT) continue;
        if (k->to->n[r] == k->each) continue;
        seen *s = &k->to->of[r * k->each + k->to->n[r]++];
        *s = (seen){.id = ev[i].token, .logprob = ev[i].has_logprob ? ev[i].logprob : 0};
        s->digest = digest_of(0xcbf29ce484222325u, &s->id, sizeof s->id);
        s->digest = digest_of(s->digest, &s->logprob, sizeof s->logprob);
        for (i64 t = 0; t < ev[i].n_top; t++) {
            s->digest = digest_of(s->digest, &ev[i].top[t].id, sizeof ev[i].top[t].id);
            s->digest = digest_of(s->digest, &ev[i].top[t].logprob, sizeof ev[i].top[t].logprob);
        }
    }
}

/* Request r: greedy or drawn, cut or not; some with their logits changed (by nothing), so that the host sees them;
 * some with the prompt's log-probabilities. */
static status submit(bits *k, scheduler *s, i64 r, int flags, err *e) {
    static const i32 id = 0;
    static const f32 nothing = 0;
    sched_request q = {.user = &k->prompts[r],
                       .prompt = k->prompts[r],
                       .n_prompt = k->lengths[r],
                       .max_new = k->tokens,
                       .sampling = sampling_default(),
                       .logprobs = true,
                       .top_logprobs = r % 4 == 3 ? 0 : TOP,
                       .prompt_logprobs = r % 5 == 1,
                       .prompt_top_logprobs = r % 5 == 1 ? TOP : 0};
    q.sampling.seed = (u64)(k->seed + r);
    q.sampling.temperature = r % 3 ? 1 : 0;
    if (r % 6 == 2) q.sampling.top_p = 0.9, q.sampling.top_k = 50;
    if (r % 2 == 0 && !(flags & UNCHANGED)) q.bias_ids = &id, q.bias = &nothing, q.n_bias = 1;
    return scheduler_submit(s, &q, 1, NULL, NULL, e) == SCHED_ACCEPTED ? ST_OK : e->code;
}

static status run_order(bits *k, scheduler *s, order how, int flags, err *e) {
    for (i64 i = 0; i < k->requests; i++) {
        status st = submit(k, s, how == REVERSED ? k->requests - 1 - i : i, flags, e);
        if (st != ST_OK) return st;
        for (i64 steps = 0; (how == ONE_BY_ONE || (how == JOINING && steps < 2)) && scheduler_step(s);) steps++;
    }
    while (scheduler_step(s)) {}
    return k->ended_badly ? err_set(e, ST_NUMERIC, "a request did not come to its end") : ST_OK;
}

static void forget(outcome *o) {
    free(o->of);
    free(o->n);
    *o = (outcome){0};
}

static status determinism_run(bits *k, engine *g, order how, int flags, outcome *out, err *e) {
    scheduler_options so = {.on_events = determinism_on_events,
                            .ud = k,
                            .manual = true,
                            .disable_radix_cache = !(flags & CACHED),
                            .disable_overlap = flags & IN_TURN,
                            .cache_prompts_only = true};
    scheduler *s;
    sched_stats stats;
    *out = (outcome){.of = calloc((size_t)(k->requests * k->each), sizeof *out->of),
                     .n = calloc((size_t)k->requests, sizeof *out->n),
                     .logits = 0xcbf29ce484222325u};
    if (!out->of || !out->n) return err_nomem(e, "what came back", (u64)(k->requests * k->each) * sizeof(seen));
    status st = scheduler_open(&s, g, &so, e);
    if (st != ST_OK) return st;
    k->to = out;
    st = run_order(k, s, how, flags, e);
    if (st == ST_OK && flags & CACHED) { /* the second time over what the first one left */
        memset(out->n, 0, (size_t)k->requests * sizeof *out->n);
        st = run_order(k, s, how, flags, e);
    }
    k->to = NULL;
    scheduler_stats(s, &stats);
    out->steps = stats.steps, out->ahead = stats.ahead;
    scheduler_close(s);
    return st;
}

/* How two runs must agree. STEPS: the same steps, so all logits in the same order; MAY_DIFFER: said, not counted. */
typedef enum { TOKENS, STEPS, MAY_DIFFER } agreement;

/* Prints a line. */
static void determinism_compare(bits *k, const char *what, const outcome *a, const outcome *b, agreement how) {
    i64 n = 0, differ = 0, r0 = 0, i0 = 0;
    for (i64 r = 0; r < k->requests; r++)
        for (i64 i = 0; i < max_i64(a->n[r], b->n[r]); i++, n++) {
            i64 at = r * k->each + i;
            bool same = i < a->n[r] && i < b->n[r] && a->of[at].digest == b->of[at].digest;
            if (!same && !differ++) r0 = r, i0 = i;
        }
    bool logits = how != STEPS || (a->logits == b->logits && a->rows == b->rows);
    printf("%-48s %5lld tokens of %lld requests", what, (long long)n, (long long)k->requests);
    if (how == STEPS) printf(", %lld rows of logits", (long long)b->rows);
    if (differ && how == MAY_DIFFER) {
        printf("  %lld differ, as they may without --deterministic\n", (long long)differ);
        return;
    }
    if (differ) {
        const seen *x = &a->of[r0 * k->each + i0], *y = &b->of[r0 * k->each + i0];
        printf("  FAIL: %lld tokens differ, first %lld of request %lld: %d (%.9g) and %d (%.9g)\n", (long long)differ,
               (long long)i0, (long long)r0, x->id, (f64)x->logprob, y->id, (f64)y->logprob);
    } else
        printf("  %s\n", logits ? "equal" : "FAIL: logits differ");
    fflush(stdout);
    k->compared++;
    k->failed += differ || !logits;
}

static status determinism_open_engine(bits *k, engine **g, bool eager, i64 chunk, err *e) {
    engine_options o = k->m.engine;
    o.eager = eager;
    o.chunk = chunk;
    o.max_running = k->requests;
    o.after_step = after_step;
    o.after_ud = k;
    o.kv_tokens = k->requests * ceil_div(k->longest + k->tokens, KV_PAGE) * KV_PAGE;
    return engine_open(g, &o, e);
}

static status determinism_make_prompts(bits *k, i64 vocab, err *e) {
    for (i64 r = 0; r < k->requests; r++) {
        i64 n = k->lengths[r] = r ? 1 + (i64)(philox_uniform((u64)k->seed, 1, (u64)r) * (f64)k->longest) : k->longest;
        k->prompts[r] = malloc((size_t)n * sizeof(i32));
        if (!k->prompts[r]) return err_nomem(e, "prompts", (u64)n * sizeof(i32));
        for (i64 i = 0; i < n; i++)
            k->prompts[r][i] = (i32)(philox_uniform((u64)k->seed, (u32)(2 + r), (u64)i) * (f64)vocab);
    }
    return ST_OK;
}

/* One more run and its comparison with `base`. */
static status also(bits *k, engine *g, const char *what, order how, int flags, const outcome *base, agreement must,
                   err *e) {
    outcome o;
    status st = determinism_run(k, g, how, flags, &o, e);
    if (st == ST_OK) determinism_compare(k, what, base, &o, must);
    forget(&o);
    return st;
}

/* Steps queued ahead of the results of the one before, and one after the other. */
static status ahead_and_in_turn(bits *k, engine *g, err *e) {
    outcome o;
    char what[64];
    status st = determinism_run(k, g, TOGETHER, UNCHANGED, &o, e);
    snprintf(what, sizeof what, "%lld of %lld steps queued ahead, and in turn", (long long)o.ahead, (long long)o.steps);
    if (st == ST_OK) st = also(k, g, what, TOGETHER, UNCHANGED | IN_TURN, &o, STEPS, e);
    forget(&o);
    return st;
}

static status first_engine(bits *k, outcome *base, bool *apart, err *e) {
    engine *g;
    status st = determinism_open_engine(k, &g, false, k->m.engine.chunk, e);
    if (st != ST_OK) return st;
    *apart = engine_deterministic(g);
    printf("%s\n", engine_plan(g));
    st = determinism_make_prompts(k, engine_config(g)->vocab, e);
    if (st == ST_OK) st = determinism_run(k, g, TOGETHER, 0, base, e);
    if (st == ST_OK) st = also(k, g, "again", TOGETHER, 0, base, STEPS, e);
    if (st == ST_OK) st = ahead_and_in_turn(k, g, e);
    if (st == ST_OK) st = also(k, g, "one by one", ONE_BY_ONE, 0, base, *apart ? TOKENS : MAY_DIFFER, e);
    if (st == ST_OK && *apart) st = also(k, g, "prompts out of the prefix cache", TOGETHER, CACHED, base, TOKENS, e);
    engine_close(g);
    return st;
}

static status determinism_run_all(bits *k, err *e) {
    outcome base = {0};
    bool apart = false;
    engine *g;
    status st = first_engine(k, &base, &apart, e);
    if (st == ST_OK && backend_name_is_gpu(k->m.engine.device)) {
        st = determinism_open_engine(k, &g, true, k->m.engine.chunk, e);
        if (st == ST_OK) st = also(k, g, "every launch by itself, no recorded steps", TOGETHER, 0, &base, STEPS, e);
        engine_close(g);
    }
    if (st == ST_OK && apart) {
        st = determinism_open_engine(k, &g, false, 24, e);
        if (st == ST_OK) st = also(k, g, "chunks of 24, joining one after the other", JOINING, 0, &base, TOKENS, e);
        if (st == ST_OK) st = also(k, g, "chunks of 24, in the opposite order", REVERSED, 0, &base, TOKENS, e);
        engine_close(g);
    }
    forget(&base);
    return st;
}

int cmd_check_bits(int argc, char **argv) {
    bits k = {.requests = 12, .tokens = 6, .longest = 150, .seed = 1};
    const opt_spec specs[] = {
        MODEL_OPTS(k.m),
        OPT_GROUP("Requests"),
        {"requests", 0, OPT_INT, &k.requests, "N", "requests (default: 12)", 2, MOST},
        {"tokens", 0, OPT_INT, &k.tokens, "N", "tokens of an answer (default: 6)", 1, 4096},
        {"prompt", 0, OPT_INT, &k.longest, "N", "tokens of the longest prompt (default: 150)", 1, 1 << 20},
        {"seed", 0, OPT_INT, &k.seed, "N", "of prompts and draws (default: 1)", 0, 1e9},
    };
    int done = cmd_options("check bits", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    k.each = k.longest + k.tokens;
    k.prompts = calloc((size_t)k.requests, sizeof *k.prompts);
    k.lengths = calloc((size_t)k.requests, sizeof *k.lengths);
    status st = k.prompts && k.lengths ? model_opts_finish(&k.m, &e) : err_nomem(&e, "prompts", 0);
    if (st == ST_OK && k.m.engine.eager)
        st = err_set(&e, ST_INPUT, "--disable-cuda-graph: the check itself runs with and without");
    if (st == ST_OK) st = determinism_run_all(&k, &e);
    for (i64 r = 0; k.prompts && r < k.requests; r++) free(k.prompts[r]);
    free(k.prompts);
    free(k.lengths);
    if (st != ST_OK) return cmd_fail("check bits", &e);
    printf("%lld passed, %lld failed, 0 skipped\n", (long long)(k.compared - k.failed), (long long)k.failed);
    return k.failed ? EXIT_FAULT : EXIT_DONE;
}
