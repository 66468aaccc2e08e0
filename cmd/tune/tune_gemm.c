/* cmd/tune/tune_gemm.c: `moonlet tune gemm`: a table of measured choices for matrix products of more than 64 rows. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/lib/gemm_problem.h"
#include "kernels/gpu/gemm/gemm_tuned.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/synthetic.h"
#include "cmd/lib/stats.h"
#include "cmd/tune/tune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 5,
    AGAIN = 4,
    FILE_MOST = 8 << 20,
    SPREAD = 10,     /* rows that are compared with those of the built-in choice, and with a second run */
    WANT_TOKENS = 2, /* rows of which elements are compared with a product in double */
    WANT_ACROSS = 8, /* such elements where each reads many rows of the weight */
    CALLS_MOST = 64,
    FEW = 512 /* rows of answers and of logits */
};
static const u64 tune_gemm_ROTATE = 160u << 20; /* bytes of weights used in turn: the L2 has 60 MB */
static const f64 tune_gemm_TRIAL_US = 250,      /* of GPU time of a turn, at least */
    NEAR = 1.06,                                /* times the best of one trial: what is timed in turns */
    STEADY = 1.04,                              /* times the least turn: a median that nothing disturbed */
    LEAST_US = 0.5, LONG_US = 1500,             /* a call for which only what the library offers for it is tried */
    GAIN = 0.98,                                /* of the built-in choice's time, or that one stays */
    BOUND = 4e-3, BOUND_USUAL = 4e-3;

typedef struct {
    gemm_shape s;
    i64 most;
} tuned_shape;

/* What a tensor-parallel rank of Kimi-K2.5 with 64 heads multiplies with. */
#define KIMI_RANK(of, tp)                                                                                              \
    {{"q_b" of, G_LINEAR, 12288 / tp, 1536}, 16384}, {{"kv_b" of, G_LINEAR, 16384 / tp, 512}, 16384},                  \
        {{"o" of, G_ADD, 7168, 8192 / tp}, 16384}, {{"dense gate, up" of, G_SWIGLU, 18432 / tp, 7168}, 16384},         \
        {{"dense down" of, G_ADD, 7168, 18432 / tp}, 16384},                                                           \
        {{"shared gate, up" of, G_SWIGLU, 2048 / tp, 7168}, 16384},                                                    \
        {{"shared down" of, G_LINEAR, 7168, 2048 / tp}, 16384}, {{"absorb_q" of, G_ABSORB, 64 / tp, 0}, FEW},          \
        {{"unabsorb_v" of, G_UNABSORB, 64 / tp, 0}, FEW}, {{"head" of, G_LOGITS, 163840 / tp, 7168}, FEW},
static const tuned_shape shapes[] = {{{"q_a", G_LINEAR, 1536, 7168}, 16384},
                                     {{"kv_a", G_LINEAR, 576, 7168}, 16384},
                                     {{"router", G_LOGITS, 384, 7168}, 16384},
                                     KIMI_RANK(" /8", 8) KIMI_RANK("", 1) KIMI_RANK(" /4", 4)
                                         KIMI_RANK(" /2", 2){{"nano q_a", G_LINEAR, 128, 256}, 4096},
                                     {{"nano kv_a", G_LINEAR, 576, 256}, 4096},
                                     {{"nano router", G_LOGITS, 64, 256}, 4096},
                                     {{"nano q_b", G_LINEAR, 384, 128}, 4096},
                                     {{"nano kv_b", G_LINEAR, 512, 512}, 4096},
                                     {{"nano o", G_ADD, 256, 256}, 4096},
                                     {{"nano dense gate, up", G_SWIGLU, 512, 256}, 4096},
                                     {{"nano dense down", G_ADD, 256, 512}, 4096},
                                     {{"nano shared gate, up", G_SWIGLU, 64, 256}, 4096},
                                     {{"nano shared down", G_LINEAR, 256, 64}, 4096},
                                     {{"nano head", G_LOGITS, 2048, 256}, FEW}};
static const i64 buckets[] = {96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384};

typedef struct {
    const char *out;
    opt_list only, shapes, tokens;
    i64 limit;
    bool again, all;
} tune_opts;

typedef struct {
    tune_opts o;
    gemm_gpu gpu;
    const char *chip;
    int sms;
    i64 library;
    gemm_table known; /* rows that are there already */
    FILE *file;
    f64 start;
    progress p;
    u64 done, left;
} tuner;

/* A candidate for one call. */
typedef struct {
    gemm_choice how;
    device_recording *r;
    f64 error, turns[ROUNDS], us;
    bool in;
} runner;

/* One product at one number of rows. */
typedef struct {
    tuner *t;
    gemm_case *c;
    gemm_call call;
    i64 calls, replays; /* of a recording, of a turn */
    bool ahead;         /* a turn begins behind one more replay, so that it does not wait for the host */
    i64 tokens[WANT_TOKENS], at[GEMM_SAMPLES], samples;
    f32 want[WANT_TOKENS * GEMM_SAMPLES];
    f32 *usual, *got, *more; /* [SPREAD, y_width] */
    runner all[GEMM_CANDIDATES];
    int n;
} job;

static gemm_call tune_gemm_call_of(const gemm_shape *s, i64 tokens) {
    enum { NOPE = 128, V_DIM = 128, LATENT = 512 };
    if (s->kind == G_ABSORB) return (gemm_call){GEMM_ACROSS, false, LATENT, NOPE, s->rows, tokens};
    if (s->kind == G_UNABSORB) return (gemm_call){GEMM_LINEAR, false, V_DIM, LATENT, s->rows, tokens};
    const gemm_op op = s->kind == G_SWIGLU ? GEMM_SWIGLU : s->kind == G_ADD ? GEMM_ADD : GEMM_LINEAR;
    return (gemm_call){op, s->kind == G_LOGITS, s->rows, s->cols, 1, tokens};
}

/* Numbers of rows that are to be timed: not yet in the table, and asked for. */
static i64 tune_gemm_buckets_of(const tuner *t, const tuned_shape *s, i64 out[COUNT_OF(buckets)]) {
    i64 n = 0;
    bool named = !t->o.only.n;
    if (s->s.kind == G_ADD && !t->library) return 0; /* nothing to choose from */
    for (int i = 0; i < t->o.only.n; i++) named = named || !strcmp(t->o.only.items[i], s->s.name);
    for (size_t i = 0; named && i < COUNT_OF(buckets); i++) {
        gemm_call c = tune_gemm_call_of(&s->s, buckets[i]);
        bool asked = !t->o.tokens.n && buckets[i] <= s->most;
        for (int k = 0; k < t->o.tokens.n; k++) asked = asked || strtoll(t->o.tokens.items[k], NULL, 10) == buckets[i];
        if (asked && !gemm_exact(&t->known, &c, t->library)) out[n++] = buckets[i];
    }
    return n;
}

static void tune_gemm_tell(const job *j, const char *rest) {
    printf("%-20s %6lld x %-6lld %5lld rows  %s\n", j->c->s->name, (long long)j->call.rows, (long long)j->call.cols,
           (long long)j->call.tokens, rest);
    fflush(stdout);
}

static void tune_gemm_queue_calls(void *ud) {
    const job *j = ud;
    for (i64 i = 0; i < j->calls; i++) gemm_case_call(&j->t->gpu, j->c, i);
}

static status tune_gemm_record(job *j, const gemm_choice *how, device_recording **out, err *e) {
    ops_gpu_force_gemm(&j->t->gpu.on.ops, how);
    status st = j->t->gpu.on.device->record(j->t->gpu.on.device, tune_gemm_queue_calls, j, out, e);
    ops_gpu_force_gemm(&j->t->gpu.on.ops, NULL);
    return st;
}

typedef struct {
    const job *j;
    const device_recording *r;
} turn;
static void queue_turn(void *ud) {
    const turn *t = ud;
    for (i64 i = 0; i < t->j->replays; i++) t->j->t->gpu.on.device->replay(t->j->t->gpu.on.device, t->r);
}

/* Microseconds a call, by the GPU's clock. */
static status time_turn(const job *j, const device_recording *r, f64 *us, err *e) {
    turn t = {j, r};
    if (j->ahead) j->t->gpu.on.device->replay(j->t->gpu.on.device, r);
    status st = gpu_clock(j->t->gpu.on.gpu, queue_turn, &t, us, e);
    *us *= 1e6 / (f64)(j->calls * j->replays);
    return st;
}

static void call_once(job *j, const gemm_choice *how, gemm_seen *seen) {
    gemm_gpu *g = &j->t->gpu;
    ops_gpu_force_gemm(&g->on.ops, how);
    ops_gpu_watch_gemm(&g->on.ops, seen);
    gemm_case_call(g, j->c, 0);
    ops_gpu_watch_gemm(&g->on.ops, NULL);
    ops_gpu_force_gemm(&g->on.ops, NULL);
}

/* Runs the call once and reads rows of it, which held no numbers before, or zeros where it adds to them. */
static status tune_gemm_run_once(job *j, const gemm_choice *how, gemm_seen *seen, f32 *rows, err *e) {
    gemm_gpu *g = &j->t->gpu;
    const i64 n = j->c->n, width = j->c->y_width, size = j->c->wide ? 4 : 2;
    memset(rows, j->c->s->kind == G_ADD ? 0 : 0xff, (size_t)(width * size));
    for (i64 i = 0; i < SPREAD; i++)
        g->on.device->write(g->on.device, (u8 *)j->c->y + i * (n - 1) / (SPREAD - 1) * width * size, rows,
                            (u64)(width * size));
    call_once(j, how, seen);
    for (i64 i = 0; i < SPREAD; i++) gemm_case_read(g, j->c, i * (n - 1) / (SPREAD - 1), rows + i * width);
    return g->on.device->finish(g->on.device, e);
}

/* Is it near a product in double, and its other rows near those of the built-in choice? */
static bool near_enough(const job *j, const f32 *rows, f64 *error) {
    const i64 width = j->c->y_width;
    f32 got[WANT_TOKENS * GEMM_SAMPLES];
    for (i64 t = 0; t < WANT_TOKENS; t++)
        for (i64 i = 0; i < j->samples; i++) got[t * j->samples + i] = rows[t * (SPREAD - 1) * width + j->at[i]];
    *error = relative_error(got, j->want, WANT_TOKENS * j->samples);
    return *error <= BOUND && relative_error(rows, j->usual, SPREAD * width) <= BOUND_USUAL;
}

/* Right, and the same bits when it runs again? */
static status check(job *j, runner *c, bool first, bool *right, err *e) {
    const u64 bytes = (u64)(SPREAD * j->c->y_width) * 4;
    gemm_seen seen = {0};
    status st = tune_gemm_run_once(j, &c->how, &seen, j->got, e);
    if (first) memcpy(j->usual, j->got, bytes);
    *right = st == ST_OK && !seen.refused && near_enough(j, j->got, &c->error);
    if (*right) st = tune_gemm_run_once(j, &c->how, &seen, j->more, e);
    if (*right && memcmp(j->got, j->more, bytes)) {
        *right = false;
        tune_gemm_tell(j, "a second run has other bits; left out");
    }
    return st;
}

/* The call as it is built in: what it is to the library, what it takes, what it should give. */
static status tune_gemm_begin(job *j, err *e) {
    runner *c = &j->all[0];
    gemm_seen seen = {0};
    gemm_choice all[GEMM_CANDIDATES];
    f64 us = 0;
    j->call = tune_gemm_call_of(j->c->s, j->c->n);
    j->samples = j->c->s->kind == G_ABSORB ? WANT_ACROSS : GEMM_SAMPLES;
    for (i64 i = 0; i < j->samples; i++) j->at[i] = i * (j->c->y_width - 1) / (j->samples - 1);
    for (i64 i = 0; i < WANT_TOKENS; i++) j->tokens[i] = i * (j->c->n - 1);
    c->how = gemm_default(j->t->library);
    status st = gemm_case_want(&j->t->gpu, j->c, j->tokens, WANT_TOKENS, j->at, j->samples, j->want, e);
    if (st == ST_OK) st = tune_gemm_run_once(j, &c->how, &seen, j->got, e);
    if (st != ST_OK) return st;
    if (!gemm_same(&seen.call, &j->call)) return err_set(e, ST_UNSUPPORTED, "this product is not chosen by a table");
    j->calls = j->replays = 1;
    st = tune_gemm_record(j, &c->how, &c->r, e);
    for (int i = 0; st == ST_OK && i < 2; i++) st = time_turn(j, c->r, &us, e);
    j->t->gpu.on.device->forget(j->t->gpu.on.device, c->r);
    c->r = NULL;
    us = fmax(us, LEAST_US);
    j->calls = max_i64(1, min_i64(min_i64(CALLS_MOST, j->c->sets), (i64)(4 * tune_gemm_TRIAL_US / us)));
    j->replays = max_i64(1, (i64)(tune_gemm_TRIAL_US / (us * (f64)j->calls)));
    j->ahead = us * (f64)j->calls < 2 * tune_gemm_TRIAL_US;
    j->n = gpu_gemm_candidates(&j->t->gpu.on.ops, &seen, buckets, us > LONG_US ? 0 : (i64)COUNT_OF(buckets), all);
    for (int i = 0; i < j->n; i++) j->all[i].how = all[i];
    return st;
}

/* What the library does not refuse is tried once, or twice where it may be near the best. */
static status try_all(job *j, f64 *least, err *e) {
    status st = ST_OK;
    *least = INFINITY;
    for (int i = 0; st == ST_OK && i < j->n; i++) {
        runner *c = &j->all[i];
        gemm_seen seen = {0};
        f64 us = INFINITY;
        call_once(j, &c->how, &seen); /* the library loads a kernel when it is first run */
        c->in = !seen.refused;
        if (!c->in) continue;
        st = tune_gemm_record(j, &c->how, &c->r, e);
        if (st == ST_OK) st = time_turn(j, c->r, &c->us, e);
        if (st == ST_OK && c->us < 1.5 * *least) st = time_turn(j, c->r, &us, e);
        c->us = fmin(c->us, us);
        *least = fmin(*least, c->us);
    }
    return st;
}

/* Turns of all that are in, one after the other, so that a clock that drifts drifts for all. *steady: the median of
 * none is far from its least turn. */
static status take_turns(job *j, bool *steady, err *e) {
    status st = ST_OK;
    *steady = true;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; st == ST_OK && i < j->n; i++)
            if (j->all[i].in) st = time_turn(j, j->all[i].r, &j->all[i].turns[round], e);
    for (int i = 0; st == ST_OK && i < j->n; i++) {
        runner *c = &j->all[i];
        if (!c->in) continue;
        qsort(c->turns, ROUNDS, sizeof(f64), f64_ascending);
        c->us = c->turns[ROUNDS / 2];
        *steady = *steady && c->us < STEADY * c->turns[0];
    }
    return st;
}

/* One trial of each; then those near the best are checked and timed in turns, again where something else disturbed
 * them. */
static status tune_gemm_compare(job *j, err *e) {
    f64 least;
    bool steady = false;
    status st = try_all(j, &least, e);
    for (int i = 0; st == ST_OK && i < j->n; i++) {
        runner *c = &j->all[i];
        bool right = false;
        c->in = c->in && (!i || c->us <= NEAR * least);
        if (!c->in) continue;
        st = check(j, c, i == 0, &right, e);
        c->in = right;
        if (st == ST_OK && !i && !right)
            return err_set(e, ST_NUMERIC, "the built-in choice is not right (error %.2e)", c->error);
    }
    for (int k = 0; st == ST_OK && !steady && k < AGAIN; k++) st = take_turns(j, &steady, e);
    return st;
}

static status tune_gemm_keep(const job *j, int best, err *e) {
    const tuner *t = j->t;
    const gemm_row row = {j->call, t->library, j->all[best].how, j->all[best].us, j->all[0].us, 0};
    char text[GEMM_CHOICE_TEXT + 120], how[GEMM_CHOICE_TEXT];
    buf line = {0};
    gemm_choice_text(&j->all[best].how, how);
    snprintf(text, sizeof text, "%9.2f us, built in %9.2f us, %5.1f %%, error %.2e, candidate %d of %d: %s", row.us,
             row.default_us, 100 * (row.us / row.default_us - 1), j->all[best].error, best, j->n, how);
    tune_gemm_tell(j, text);
    for (int i = 0; i < j->n && t->o.all; i++) {
        gemm_choice_text(&j->all[i].how, how);
        snprintf(text, sizeof text, "    %2d %9.2f us%s  %s", i, j->all[i].us,
                 j->all[i].in       ? ""
                 : j->all[i].us > 0 ? " (one trial)"
                                    : " (refused)",
                 how);
        tune_gemm_tell(j, text);
    }
    bool ok = gemm_line(&line, t->chip, t->sms, &row) && fwrite(line.data, 1, line.len, t->file) == line.len &&
              !fflush(t->file);
    buf_free(&line);
    return ok ? ST_OK : err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
}

static status tune_gemm_tune_call(tuner *t, gemm_case *c, err *e) {
    const u64 bytes = (u64)(SPREAD * c->y_width) * 4;
    job *j = calloc(1, sizeof *j);
    if (!j) return err_nomem(e, "a product", sizeof *j);
    j->t = t, j->c = c;
    j->usual = malloc(bytes), j->got = malloc(bytes), j->more = malloc(bytes);
    status st = j->usual && j->got && j->more ? tune_gemm_begin(j, e) : err_nomem(e, "rows", bytes);
    int best = 0;
    if (st == ST_OK) st = tune_gemm_compare(j, e);
    for (int i = 1; i < j->n; i++)
        if (j->all[i].in && j->all[i].us < GAIN * j->all[0].us && j->all[i].us < j->all[best].us) best = i;
    if (st == ST_OK) st = tune_gemm_keep(j, best, e);
    for (int i = 0; i < j->n; i++) t->gpu.on.device->forget(t->gpu.on.device, j->all[i].r);
    free(j->usual), free(j->got), free(j->more), free(j);
    return st;
}

static bool tune_gemm_out_of_time(const tuner *t) { return t->o.limit && now_s() - t->start > (f64)t->o.limit; }

static status tune_shape(tuner *t, const tuned_shape *s, err *e) {
    i64 rows[COUNT_OF(buckets)], n = tune_gemm_buckets_of(t, s, rows);
    if (!n || tune_gemm_out_of_time(t)) return ST_OK;
    gemm_case c = {.s = &s->s, .n = rows[n - 1]};
    status st = gemm_case_make(&t->gpu, &c, tune_gemm_ROTATE, e);
    for (i64 i = 0; st == ST_OK && i < n && !tune_gemm_out_of_time(t); i++) {
        c.n = rows[i];
        st = tune_gemm_tune_call(t, &c, e);
        progress_step(&t->p, ++t->done);
    }
    if (st != ST_OK) err_prefix(e, "%s, %lld rows", s->s.name, (long long)c.n);
    gemm_case_free(&t->gpu, &c);
    return st;
}

/* Some ranks have weights of one shape under two names. */
static bool is_again(const tuned_shape *list, size_t i) {
    const gemm_call c = tune_gemm_call_of(&list[i].s, 1);
    for (size_t k = 0; k < i; k++) {
        const gemm_call before = tune_gemm_call_of(&list[k].s, 1);
        if (gemm_same(&c, &before)) return true;
    }
    return false;
}

static status tune_gemm_tune_all(tuner *t, const tuned_shape *list, size_t n, err *e) {
    i64 rows[COUNT_OF(buckets)];
    status st = ST_OK;
    for (size_t i = 0; i < n; i++)
        if (!is_again(list, i)) t->left += (u64)tune_gemm_buckets_of(t, &list[i], rows);
    progress_start(&t->p, "products tuned", "products", t->left);
    for (size_t i = 0; st == ST_OK && i < n; i++)
        if (!is_again(list, i)) st = tune_shape(t, &list[i], e);
    progress_end(&t->p);
    return st;
}

/* What is there is kept and added to, or begun anew. */
static status tune_gemm_open_table(tuner *t, err *e) {
    static char path[4096];
    char name[80];
    buf text = {0};
    status st = ST_OK;
    if (!t->o.out) {
        const char *place = tuned_place();
        tuned_file_name(name, sizeof name - 8, t->chip);
        strcpy(strrchr(name, '.'), "-gemm.csv");
        if (!strcmp(place, "none"))
            return err_set(e, ST_INPUT, "there is no folder for tables: name a file with --out FILE");
        st = path_join(path, sizeof path, place, name, e);
        t->o.out = path;
    }
    bool there = !t->o.again && file_exists(t->o.out);
    if (st == ST_OK && there) st = file_read(t->o.out, FILE_MOST, &text, e);
    if (st == ST_OK && there) st = gemm_parse(&t->known, text.data, text.len, t->o.out, t->chip, t->sms, e);
    buf_clear(&text);
    if (st == ST_OK && !(t->file = fopen(t->o.out, there ? "a" : "w")))
        st = err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
    if (st == ST_OK && !there && (!gemm_header(&text) || fwrite(text.data, 1, text.len, t->file) != text.len))
        st = err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
    buf_free(&text);
    return st;
}

static status read_lists(const tune_opts *o, tuned_shape own[32], err *e) {
    for (int i = 0; i < o->only.n; i++) {
        bool is = false;
        for (size_t k = 0; k < COUNT_OF(shapes); k++) is = is || !strcmp(o->only.items[i], shapes[k].s.name);
        if (!is)
            return err_set(e, ST_INPUT, "--only \"%s\" is no name of a shape (\"q_a\", \"o /8\", \"nano o\" ...)",
                           o->only.items[i]);
    }
    for (int i = 0; i < o->tokens.n; i++) {
        bool is = false;
        for (size_t k = 0; k < COUNT_OF(buckets); k++) is = is || strtoll(o->tokens.items[i], NULL, 10) == buckets[k];
        if (!is)
            return err_set(e, ST_INPUT,
                           "--tokens \"%s\" is none of the numbers that tables have rows for (96, 128, 192 ... 16384)",
                           o->tokens.items[i]);
    }
    for (int i = 0; i < o->shapes.n; i++) {
        long long v[2];
        char end;
        if (sscanf(o->shapes.items[i], "%lld,%lld%c", v, v + 1, &end) != 2 || v[0] < 1 || v[0] > 1 << 24 || v[1] < 8 ||
            v[1] > 32768)
            return err_set(e, ST_INPUT, "--shape \"%s\" is not rows,cols (cols 8..32768)", o->shapes.items[i]);
        own[i] = (tuned_shape){{o->shapes.items[i], G_LINEAR, v[0], v[1]}, 16384};
    }
    return ST_OK;
}

int tune_gemm(int argc, char **argv) {
    tuner t = {.start = now_s()};
    tuned_shape own[32];
    err e = {0};
    const opt_spec specs[] = {
        {"out", 0, OPT_STR, &t.o.out, "FILE",
         "the table (default: the chip's, beside the program); rows that it has are not timed again", 0, 0},
        {"again", 0, OPT_FLAG, &t.o.again, NULL, "begins the table anew", 0, 0},
        {"only", 0, OPT_LIST, &t.o.only, "NAME",
         "one of the shapes only: \"q_a\", \"o /8\", \"nano o\" ...; may be repeated", 0, 0},
        {"shape", 0, OPT_LIST, &t.o.shapes, "ROWS,COLS", "of a weight instead; may be repeated", 0, 0},
        {"tokens", 'n', OPT_LIST, &t.o.tokens, "N", "rows of x (default: 96, 128 ... 16384); may be repeated", 0, 0},
        {"limit", 0, OPT_INT, &t.o.limit, "S", "seconds after which no further product is begun (default: none)", 1,
         86400},
        {"verbose", 0, OPT_FLAG, &t.o.all, NULL, "prints what every candidate took", 0, 0},
    };
    int done = cmd_options("tune gemm", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    status st = read_lists(&t.o, own, &e);
    if (st == ST_OK) st = backend_open(&t.gpu.on, &(backend_options){.name = "cuda", .act = DT_BF16}, &e);
    if (st == ST_OK) {
        t.library = gpu_gemm_library(&t.gpu.on.ops);
        t.chip = gpu_name(t.gpu.on.gpu), t.sms = gpu_processors(t.gpu.on.gpu);
        st = tune_gemm_open_table(&t, &e);
    }
    if (st == ST_OK)
        st = t.o.shapes.n ? tune_gemm_tune_all(&t, own, (size_t)t.o.shapes.n, &e)
                          : tune_gemm_tune_all(&t, shapes, COUNT_OF(shapes), &e);
    if (t.file && fclose(t.file) && st == ST_OK) st = err_set(&e, ST_IO, "--out %s cannot be written", t.o.out);
    if (st == ST_OK)
        printf("%s: %llu of %llu products timed in %.0f s%s\n", t.o.out, (unsigned long long)t.done,
               (unsigned long long)t.left, now_s() - t.start,
               t.done < t.left ? "; the same command again does the rest" : "");
    gemm_free(&t.known);
    backend_close(&t.gpu.on);
    return st == ST_OK ? EXIT_DONE : cmd_fail("tune gemm", &e);
}
