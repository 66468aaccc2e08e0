/* cmd/tune/tune.c: `moonlet tune moe`: a table of measured choices for the GPU in front of it. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "kernels/backend.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include "cmd/lib/model_opts.h"
#include "cmd/tune/tune.h"
#include "cmd/lib/stats.h"
#include "cmd/tune/tune_moe_layer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, FILE_MOST = 8 << 20 };
static const f64 tune_TRIAL_US = 300 /* of GPU time of a turn, at least */,
                 REJECT = 1.3 /* times the best, in one trial */,
                 GAIN = 0.98 /* of the default's time, or the default stays */;

typedef struct {
    const char *out;
    opt_list formats, shapes, tokens;
    i64 limit;
    bool again, all;
} tune_opts;

typedef struct {
    tune_opts o;
    tune_gpu t;
    const char *chip;
    int sms;
    tuned_table known; /* rows that are there already */
    FILE *file;
    f64 start;
    progress p;
    u64 done, left;
} tuner;

/* Calls of a layer that are to be timed: not yet in the table, and asked for. */
static i64 tune_buckets_of(const tuner *t, moe_format f, const moe_layer *s, i64 *out) {
    i64 n = 0;
    for (int i = 0; i < moe_n_buckets; i++) {
        moe_call c = {f, s->dim, s->inter, s->experts, s->topk, moe_buckets[i], ROWS_ANY};
        bool asked = !t->o.tokens.n && c.tokens <= s->most;
        for (int k = 0; k < t->o.tokens.n; k++) asked = asked || strtoll(t->o.tokens.items[k], NULL, 10) == c.tokens;
        if (asked && !tuned_exact(&t->known, &c)) out[n++] = c.tokens;
    }
    return n;
}

static void tune_tell(const tuner *t, const moe_call *c, const char *rest) {
    (void)t;
    printf("%-8s %5lld x %-4lld %3lld experts, top-%lld, %5lld tokens  %s\n", moe_format_text(c->format),
           (long long)c->dim, (long long)c->inter, (long long)c->experts, (long long)c->topk, (long long)c->tokens,
           rest);
    fflush(stdout);
}

/* A candidate for one call. */
typedef struct {
    moe_choice how;
    device_recording *r;
    i64 calls, replays;
    f64 error, turns[ROUNDS], us;
    bool in;
} runner;

/* Is it right, and near enough to the best of those before? */
static status admit(tuner *t, tune_layer *l, runner *c, bool first, f64 best, err *e) {
    char text[200], how[MOE_CHOICE_TEXT];
    tune_verdict v;
    status st = tune_right(l, &c->how, first, &v, e);
    c->error = v.error;
    moe_choice_text(c->how, how);
    if (st == ST_OK && !v.right) {
        snprintf(text, sizeof text, "%s is WRONG: error %.2e, a row %.2e from the built-in choice's%s; left out", how,
                 v.error, v.apart, v.same ? "" : ", other bits when repeated");
        tune_tell(t, &l->call, text);
        if (first)
            return err_set(e, ST_NUMERIC, "the built-in choice, %s, does not match the reference (error %.2e)%s", how,
                           c->error, v.same ? "" : " or itself when repeated");
    }
    if (st != ST_OK || !v.right) return st;
    f64 us = 0;
    st = tune_record(l, &c->how, 1, &c->r, e);
    if (st == ST_OK) st = tune_time(l, c->r, 1, 1, &us, e);
    /* Long calls read far more than the second-level cache holds: routings in turn are for short ones. */
    c->calls = us > 1500 ? 1 : us > 500 ? 2 : TUNE_SETS;
    if (st == ST_OK && c->calls > 1) {
        t->t.dev->forget(t->t.dev, c->r);
        c->r = NULL;
        st = tune_record(l, &c->how, c->calls, &c->r, e);
    }
    if (st == ST_OK) st = tune_time(l, c->r, c->calls, 1, &us, e);
    if (st != ST_OK) return st;
    c->replays = max_i64(1, (i64)(tune_TRIAL_US / (us * (f64)c->calls)));
    c->us = us;
    c->in = first || us < REJECT * best;
    return ST_OK;
}

/* Turns of all that are in, one after the other, so that a clock that drifts drifts for all. */
static status tune_compare(tune_layer *l, runner *all, int n, err *e) {
    status st = ST_OK;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; st == ST_OK && i < n; i++)
            if (all[i].in) st = tune_time(l, all[i].r, all[i].calls, all[i].replays, &all[i].turns[round], e);
    for (int i = 0; st == ST_OK && i < n; i++) {
        if (!all[i].in) continue;
        qsort(all[i].turns, ROUNDS, sizeof(f64), f64_ascending);
        all[i].us = all[i].turns[ROUNDS / 2];
    }
    return st;
}

static status tune_keep(tuner *t, const tune_layer *l, const runner *all, int n, int best, err *e) {
    const tuned_row row = {l->call, all[best].how, all[best].us, all[0].us, 0};
    char text[200], how[MOE_CHOICE_TEXT], usual[MOE_CHOICE_TEXT];
    buf line = {0};
    moe_choice_text(all[best].how, how);
    moe_choice_text(all[0].how, usual);
    snprintf(text, sizeof text, "%-18s %9.2f us   built in: %-18s %9.2f us   error %.2e", how, row.us, usual,
             row.default_us, all[best].error);
    tune_tell(t, &l->call, text);
    for (int i = 0; i < n && t->o.all; i++) {
        moe_choice_text(all[i].how, how);
        snprintf(text, sizeof text, "    %-18s %9.2f us%s   error %.2e", how, all[i].us,
                 all[i].in ? "" : " (one trial)", all[i].error);
        tune_tell(t, &l->call, text);
    }
    bool ok = tuned_line(&line, t->chip, t->sms, &row) && fwrite(line.data, 1, line.len, t->file) == line.len &&
              !fflush(t->file);
    buf_free(&line);
    return ok ? ST_OK : err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
}

static status tune_call(tuner *t, tune_layer *l, i64 tokens, err *e) {
    moe_choice choices[MOE_CANDIDATES];
    runner all[MOE_CANDIDATES] = {0};
    status st = tune_layer_tokens(l, tokens, e);
    int n = moe_candidates(&l->call, choices), best = 0;
    f64 least = INFINITY;
    for (int i = 0; st == ST_OK && i < n; i++) {
        all[i].how = choices[i];
        st = admit(t, l, &all[i], i == 0, least, e);
        if (all[i].in && all[i].us < least) least = all[i].us;
    }
    if (st == ST_OK) st = tune_compare(l, all, n, e);
    for (int i = 1; i < n; i++)
        if (all[i].in && all[i].us < GAIN * all[0].us && all[i].us < all[best].us) best = i;
    if (st == ST_OK) st = tune_keep(t, l, all, n, best, e);
    for (int i = 0; i < n; i++) t->t.dev->forget(t->t.dev, all[i].r);
    return st;
}

static bool tune_out_of_time(const tuner *t) { return t->o.limit && now_s() - t->start > (f64)t->o.limit; }

static status tune_one_layer(tuner *t, moe_format f, const moe_layer *s, err *e) {
    i64 tokens[64], n = tune_buckets_of(t, f, s, tokens);
    if (!n || tune_out_of_time(t)) return ST_OK;
    tune_layer *l = malloc(sizeof *l);
    if (!l) return err_nomem(e, "a layer", sizeof *l);
    status st = tune_layer_open(l, &t->t, f, s, tokens[n - 1], e);
    for (i64 i = 0; st == ST_OK && i < n && !tune_out_of_time(t); i++) {
        st = tune_call(t, l, tokens[i], e);
        progress_step(&t->p, ++t->done);
    }
    if (st != ST_OK) err_prefix(e, "%s, %s, %lld tokens", s->what, moe_format_text(f), (long long)l->call.tokens);
    tune_layer_close(l);
    free(l);
    return st;
}

static status tune_read_shape(const char *text, moe_layer *out, err *e) {
    long long v[4];
    char end;
    if (sscanf(text, "%lld,%lld,%lld,%lld%c", v, v + 1, v + 2, v + 3, &end) != 4 || v[0] < 64 || v[0] > 1 << 14 ||
        v[0] % 64 || v[1] < 64 || v[1] > 1 << 14 || v[1] % 64 || v[2] < 1 || v[2] > 4096 || v[3] < 1 || v[3] > v[2] ||
        v[3] > 64)
        return err_set(
            e, ST_INPUT,
            "--shape \"%s\" is not dim,inter,experts,topk (multiples of 64 up to 16384; up to 4096; up to 64)", text);
    *out = (moe_layer){text, v[0], v[1], v[2], v[3], {0}, 16384};
    return ST_OK;
}

static status tune_all(tuner *t, err *e) {
    moe_layer own[32];
    const moe_layer *layers = t->o.shapes.n ? own : moe_layers;
    int n = t->o.shapes.n ? t->o.shapes.n : MOE_LAYERS;
    status st = ST_OK;
    i64 tokens[64];
    for (int i = 0; st == ST_OK && i < t->o.shapes.n; i++) st = tune_read_shape(t->o.shapes.items[i], &own[i], e);
    bool wanted[MOE_OTHER] = {false};
    for (int f = 0; f < MOE_OTHER; f++) {
        wanted[f] = !t->o.formats.n;
        for (int k = 0; k < t->o.formats.n; k++)
            wanted[f] = wanted[f] || !strcmp(t->o.formats.items[k], moe_format_text((moe_format)f));
        for (int i = 0; st == ST_OK && i < n && wanted[f]; i++)
            t->left += (u64)tune_buckets_of(t, (moe_format)f, &layers[i], tokens);
    }
    progress_start(&t->p, "calls tuned", "calls", t->left);
    for (int f = 0; f < MOE_OTHER; f++)
        for (int i = 0; st == ST_OK && i < n && wanted[f]; i++) st = tune_one_layer(t, (moe_format)f, &layers[i], e);
    progress_end(&t->p);
    return st;
}

/* What is there is kept and added to, or begun anew. */
static status tune_open_table(tuner *t, err *e) {
    static char path[4096];
    char name[80];
    buf text = {0};
    status st = ST_OK;
    if (!t->o.out) {
        const char *place = tuned_place();
        tuned_file_name(name, sizeof name, t->chip);
        if (!strcmp(place, "none"))
            return err_set(e, ST_INPUT, "there is no folder for tables: name a file with --out FILE");
        st = path_join(path, sizeof path, place, name, e);
        t->o.out = path;
    }
    bool there = !t->o.again && file_exists(t->o.out);
    if (st == ST_OK && there) st = file_read(t->o.out, FILE_MOST, &text, e);
    if (st == ST_OK && there) st = tuned_parse(&t->known, text.data, text.len, t->o.out, t->chip, t->sms, e);
    buf_clear(&text);
    if (st == ST_OK && !(t->file = fopen(t->o.out, there ? "a" : "w")))
        st = err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
    if (st == ST_OK && !there && (!tuned_header(&text) || fwrite(text.data, 1, text.len, t->file) != text.len))
        st = err_set(e, ST_IO, "--out %s cannot be written", t->o.out);
    buf_free(&text);
    return st;
}

static status check_lists(const tune_opts *o, err *e) {
    moe_format f;
    for (int i = 0; i < o->formats.n; i++)
        if (!moe_format_of(o->formats.items[i], &f) || f == MOE_OTHER)
            return err_set(e, ST_INPUT, "--format \"%s\" is not w4a16, w4a8, bf16, w2_bf16, fp8, mxfp4 or nvfp4",
                           o->formats.items[i]);
    for (int i = 0; i < o->tokens.n; i++) {
        bool is = false;
        for (int k = 0; k < moe_n_buckets; k++) is = is || strtoll(o->tokens.items[i], NULL, 10) == moe_buckets[k];
        if (!is)
            return err_set(
                e, ST_INPUT,
                "--tokens \"%s\" is none of the numbers that tables have rows for (1, 2, 4 ... 16384, 65536)",
                o->tokens.items[i]);
    }
    return ST_OK;
}

static int tune_moe(int argc, char **argv) {
    tuner t = {.start = now_s()};
    err e = {0};
    const opt_spec specs[] = {
        {"out", 0, OPT_STR, &t.o.out, "FILE",
         "the table (default: the chip's, beside the program); rows that it has are not timed again", 0, 0},
        {"again", 0, OPT_FLAG, &t.o.again, NULL, "begins the table anew", 0, 0},
        {"format", 0, OPT_LIST, &t.o.formats, "F",
         "w4a16, w4a8, bf16, w2_bf16, fp8, mxfp4 or nvfp4 (default: all); may be repeated", 0, 0},
        {"shape", 0, OPT_LIST, &t.o.shapes, "D,I,E,K",
         "dim,inter,experts,topk instead of those of `bench moe`; may be repeated", 0, 0},
        {"tokens", 'n', OPT_LIST, &t.o.tokens, "N", "of a call (default: 1, 2, 4 ... 16384); may be repeated", 0, 0},
        {"limit", 0, OPT_INT, &t.o.limit, "S", "seconds after which no further call is begun (default: none)", 1,
         86400},
        {"verbose", 0, OPT_FLAG, &t.o.all, NULL, "prints what every candidate took", 0, 0},
    };
    int done = cmd_options("tune moe", "[options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    status st = check_lists(&t.o, &e);
    backend gpu = {.gpu = NULL};
    if (st == ST_OK) st = backend_open(&gpu, &(backend_options){.name = "cuda", .act = DT_BF16}, &e);
    if (st == ST_OK) {
        ops_init_ref(&t.t.ref);
        t.t.g = gpu.gpu, t.t.o = gpu.ops, t.t.dev = gpu.device;
        t.chip = gpu_name(t.t.g), t.sms = gpu_processors(t.t.g);
        st = tune_open_table(&t, &e);
    }
    if (st == ST_OK) st = tune_all(&t, &e);
    if (t.file && fclose(t.file) && st == ST_OK) st = err_set(&e, ST_IO, "--out %s cannot be written", t.o.out);
    if (st == ST_OK)
        printf("%s: %llu of %llu calls timed in %.0f s%s\n", t.o.out, (unsigned long long)t.done,
               (unsigned long long)t.left, now_s() - t.start,
               t.done < t.left ? "; the same command again does the rest" : "");
    tuned_free(&t.known);
    backend_close(&gpu);
    return st == ST_OK ? EXIT_DONE : cmd_fail("tune moe", &e);
}

int cmd_tune(int argc, char **argv) {
    bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1 && !strcmp(argv[1], "moe")) return tune_moe(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "gemm")) return tune_gemm(argc - 1, argv + 1);
    FILE *f = help ? stdout : stderr;
    if (argc > 1 && !help) fprintf(f, "moonlet tune: nothing to tune is called \"%s\"\n", argv[1]);
    fprintf(f, "usage: moonlet tune moe|gemm [options]\n");
    return help ? EXIT_DONE : EXIT_USAGE;
}
