/* cmd/quantize/quantize.c: `moonlet quantize`: a checkpoint written again in another weight format. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/lib/compare_formats.h"
#include "cmd/quantize/folder.h"
#include "cmd/quantize/report.h"
#include "cmd/quantize/shard.h"
#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

typedef struct {
    const char *source, *folder, *format, *only, *layout, *calibrate;
    i64 calibration_tokens;
    i64 shard_mb;
    bool quiet, evaluate;
    model_opts m; /* how both are run to be compared; threads count for all */
    compare_options text;
} quantize_options;

/* All of a run. */
typedef struct {
    const quantizer *q;
    bool linears;
    checkpoint *ck;
    model_config config;
    char *config_text; /* of the new folder */
    quantize_plan plan;
    sums_table sums;
    quantize_job_file job;
    char calibrate[PATH_MAX]; /* the text's whole path */
    text_encoder words;
    documents docs; /* to calibrate with; none: not asked for */
    calibration calibration;
    comparison compared; /* source and new folder; no rows: not asked for */
} quantize_run;

static void run_close(quantize_run *r) {
    comparison_close(&r->compared);
    calibration_close(&r->calibration);
    documents_free(&r->docs);
    text_encoder_close(&r->words);
    job_close(&r->job);
    sums_table_free(&r->sums);
    quantize_plan_free(&r->plan);
    free(r->config_text);
    checkpoint_close(r->ck);
}

/* The quantizer's name; NULL: the format has not this layout. */
static const char *quantizer_of(const char *format, const char *layout) {
    static const char *const all[][3] = {
        {"mxfp4", "quark", "mxfp4"},     {"mxfp4", "compressed-tensors", "mxfp4-packed"},
        {"nvfp4", "modelopt", "nvfp4"},  {"nvfp4", "compressed-tensors", "nvfp4-packed"},
        {"int8", "quark", "int8-quark"}, {"int8", "compressed-tensors", "int8"},
    };
    if (!layout) return format;
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (!strcmp(format, all[i][0]) && !strcmp(layout, all[i][1])) return all[i][2];
    return NULL;
}

/* What the options mean together. */
static status choose(quantize_run *r, quantize_options *o, err *e) {
    const char *name = quantizer_of(o->format, o->layout);
    if (!name)
        return err_set(
            e, ST_INPUT,
            "--layout %s is not for --format %s: of mxfp4 and int8 there are quark and compressed-tensors, of "
            "nvfp4 modelopt and compressed-tensors, of the others one each",
            o->layout, o->format);
    r->q = quantizer_named(name);
    if (!o->only) o->only = weight_layout_of(r->q->format)->bits >= 8 ? "linears" : "experts";
    r->linears = !strcmp(o->only, "linears");
    if (r->linears && weight_layout_of(r->q->format)->experts_only)
        return err_set(e, ST_INPUT, "--only linears: only routed experts may be in %s", o->format);
    if (o->calibrate && !r->q->code)
        return err_set(e, ST_INPUT, "--calibrate is for int4, w4a8, mxfp4 and nvfp4: %s leaves nothing to make up for",
                       o->format);
    return ST_OK;
}

/* What would be written can be read here, too: refused by the reader's own words, before the work. */
static status check_new_config(const quantize_run *r, err *e) {
    model_config c;
    status st = model_config_parse(&c, r->config_text, strlen(r->config_text), NULL, 0, e);
    return st == ST_OK ? ST_OK : (err_prefix(e, "in %s", r->q->name), st);
}

static status quantize_prepare(quantize_run *r, const quantize_options *o, err *e) {
    status st = model_config_load(&r->config, o->source, e);
    if (st == ST_OK) st = checkpoint_open(&r->ck, o->source, e);
    if (st == ST_OK) st = quantized_config(o->source, &r->config, r->q, r->linears, &r->config_text, e);
    if (st == ST_OK)
        st = quantize_plan_make(&r->plan, r->ck, &r->config, r->q, r->linears, o->calibrate != NULL,
                                (u64)o->shard_mb * 1000000, e);
    if (st == ST_OK) st = check_new_config(r, e);
    if (st == ST_OK && !r->plan.n_chosen)
        st = err_set(e, ST_INPUT, "%s has no matrix that --only %s chooses", o->source, o->only);
    return st == ST_OK ? sums_table_make(&r->sums, r->config.n_layers, e) : st;
}

/* ---- calibration ---- */

#define INPUTS_NAME "quantize-inputs.bin"

static bool rounds_experts(const quantize_run *r) {
    for (u64 i = 0; i < r->plan.n_pieces; i++)
        if (r->plan.pieces[i].q == r->q && piece_meets_inputs(&r->plan.pieces[i], &r->config)) return true;
    return false;
}

static i64 longest_document(const documents *d) {
    i64 most = 0;
    for (i64 i = 0; i < d->n; i++) most = max_i64(most, document_tokens(d, i));
    return most;
}

/* The text, before anything is written. */
static status read_calibration_text(quantize_run *r, quantize_options *o, err *e) {
    if (!rounds_experts(r))
        return err_set(e, ST_INPUT, "--calibrate is for routed experts: none of %s is written in another format",
                       o->source);
    if (!realpath(o->calibrate, r->calibrate)) return err_set(e, ST_IO, "%s: %s", o->calibrate, strerror(errno));
    r->words = (text_encoder){o->source, r->config.model_type, r->config.vocab, NULL};
    status st = documents_read(&r->docs, &r->words, r->calibrate, o->text.window, o->calibration_tokens, e);
    if (st != ST_OK || longest_document(&r->docs) <= r->config.max_positions) return st;
    return err_set(e, ST_INPUT, "%s: a document has %lld tokens; the model reads %lld at most", r->calibrate,
                   (long long)longest_document(&r->docs), (long long)r->config.max_positions);
}

/* Runs the source's model on the text, unless a run before this one has; its inputs lie in the folder until the end. */
static status calibrate(quantize_run *r, const quantize_options *o, err *e) {
    char path[PATH_MAX];
    const i64 tokens = r->docs.begin[r->docs.n];
    engine_options runs = o->m.engine;
    runs.context = longest_document(&r->docs);
    status st = path_join(path, sizeof path, r->job.folder, INPUTS_NAME, e);
    if (st == ST_OK && !file_exists(path)) st = expert_inputs_make(path, &runs, &r->docs, e);
    return st == ST_OK ? calibration_open(&r->calibration, path, &r->config, tokens, r->ck, &r->plan, e) : st;
}

static status remove_inputs(const quantize_run *r, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, r->job.folder, INPUTS_NAME, e);
    return st == ST_OK && unlink(path) != 0 && errno != ENOENT ? err_set(e, ST_IO, "%s: %s", path, strerror(errno))
                                                               : st;
}

static status open_job(quantize_run *r, const quantize_options *o, err *e) {
    quantize_job_file *j = &r->job;
    j->format = r->q->name, j->only = o->only;
    j->calibrate = r->docs.n ? r->calibrate : NULL, j->calibration_tokens = o->calibration_tokens;
    j->calibration_window = o->text.window, j->calibration_read = r->docs.n ? r->docs.begin[r->docs.n] : 0;
    j->shard_bytes = (u64)o->shard_mb * 1000000, j->n_shards = r->plan.n_shards;
    if (!realpath(o->source, j->source)) return err_set(e, ST_IO, "%s: %s", o->source, strerror(errno));
    size_t n = strlen(o->folder);
    while (n > 1 && o->folder[n - 1] == '/') n--;
    if (snprintf(j->folder, sizeof j->folder, "%.*s", (int)n, o->folder) >= (int)sizeof j->folder)
        return err_set(e, ST_LIMIT, "%.60s...: the path is too long", o->folder);
    return job_open(j, r->ck, &r->sums, e);
}

/* What is to do: before hours of work, not after. */
static void quantize_say(const quantize_run *r, u64 left_in, u64 left_out) {
    char in[BYTES_TEXT], out[BYTES_TEXT], there[BYTES_TEXT];
    struct statvfs fs;
    log_note("%llu matrices to %s, %llu of them in another format now; %s in %llu shards%s",
             (unsigned long long)r->plan.n_chosen, r->q->name, (unsigned long long)r->plan.n_encoded,
             bytes_text(out, r->plan.bytes_out), (unsigned long long)r->plan.n_shards,
             r->job.resumed ? ", some of which are there" : "");
    if (r->job.resumed) log_note("goes on: %s to read", bytes_text(in, left_in));
    if (statvfs(r->job.folder, &fs) == 0 && (u64)fs.f_bavail * fs.f_frsize < left_out)
        log_warn("%s: %s are free, %s are needed", r->job.folder, bytes_text(there, (u64)fs.f_bavail * fs.f_frsize),
                 bytes_text(out, left_out));
}

/* Bytes of the shards that are not there, of the source and of the new folder. */
static u64 bytes_left(const quantize_run *r, u64 *out) {
    const quantize_plan *p = &r->plan;
    u64 in = *out = 0;
    for (u64 s = 0; s < p->n_shards; s++)
        for (u64 k = p->shards[s]; !r->job.done[s] && k < p->shards[s + 1]; k++)
            in += p->pieces[k].bytes_in, *out += p->pieces[k].bytes_out;
    return in;
}

static status write_shards(quantize_run *r, const quantize_options *o, err *e) {
    const quantize_plan *p = &r->plan;
    u64 left_out, left_in = bytes_left(r, &left_out);
    status st = ST_OK;
    quantize_say(r, left_in, left_out);
    if (o->calibrate && left_in) st = calibrate(r, o, e);
    if (st != ST_OK) return st;
    progress shown;
    progress_start(&shown, "quantize", "B", left_in);
    shard_writer w = {.ck = r->ck, .plan = p, .calibration = r->docs.n ? &r->calibration : NULL, .shown = &shown};
    for (u64 s = 0; s < p->n_shards && st == ST_OK; s++)
        if (!r->job.done[s]) st = shard_write(&w, &r->job, s, &r->sums, e);
    progress_end(&shown);
    shard_writer_free(&w);
    return st;
}

/* The source beside the folder that is now a checkpoint, and the report with that. */
static status evaluate(quantize_run *r, err *e) {
    status st = comparison_add(&r->compared, r->job.folder, e);
    if (st == ST_OK) st = comparison_run(&r->compared, e);
    if (st == ST_OK) st = folder_take_back(&r->job, "quantize-report.svg", e);
    if (st == ST_OK) st = folder_take_back(&r->job, "quantize-report.md", e);
    if (st == ST_OK) st = report_write(&r->job, &r->sums, r->q, r->linears, &r->compared, e);
    return st == ST_OK
               ? st
               : err_prefix(e, "%s is whole, but for its report; the same command evaluates again", r->job.folder);
}

/* The index last: until then the folder is no checkpoint. What a checkpoint is needed for comes behind it. */
static status finish(quantize_run *r, err *e) {
    const bool compare = r->compared.n > 0;
    status st = folder_copy_files(&r->job, e);
    if (st == ST_OK) st = folder_write(&r->job, "config.json", r->config_text, strlen(r->config_text), e);
    if (st == ST_OK && !compare) st = report_write(&r->job, &r->sums, r->q, r->linears, NULL, e);
    if (st == ST_OK) st = folder_write_index(&r->job, &r->plan, e);
    calibration_close(&r->calibration); /* the file's bytes go with its name */
    if (st == ST_OK && r->docs.n) st = remove_inputs(r, e);
    if (st == ST_OK && compare) st = evaluate(r, e);
    return st == ST_OK ? job_end(&r->job, e) : st;
}

static status say_result(const quantize_run *r, f64 seconds, err *e) {
    char in[BYTES_TEXT], out[BYTES_TEXT];
    buf table = {0};
    const quantize_sums s = chosen_sums(&r->sums, r->linears);
    printf("%s: %s -> %s in %.1f s, relative error %.3e; %s/quantize-report.md\n", r->job.folder,
           bytes_text(in, r->plan.bytes_in), bytes_text(out, r->plan.bytes_out), seconds, sums_error(&s),
           r->job.folder);
    if (r->compared.n) compare_table(&r->compared, &table);
    status st = table.failed ? err_nomem(e, "the table", table.len) : ST_OK;
    if (table.data) printf("\n%s", table.data);
    buf_free(&table);
    return st;
}

static status quantize(quantize_options *o, err *e) {
    quantize_run r = {.job = {.fd = -1}};
    const f64 start = now_s();
    status st = choose(&r, o, e);
    if (st == ST_OK) st = quantize_prepare(&r, o, e);
    if (st == ST_OK && o->calibrate) st = read_calibration_text(&r, o, e);
    if (st == ST_OK && (o->calibrate || o->evaluate)) st = model_opts_finish(&o->m, e);
    if (st == ST_OK && o->evaluate) st = comparison_open(&r.compared, &o->m, &o->text, e);
    if (st == ST_OK) st = open_job(&r, o, e);
    if (st == ST_OK) st = write_shards(&r, o, e);
    if (st == ST_OK) st = finish(&r, e);
    if (st == ST_OK) st = say_result(&r, now_s() - start, e);
    run_close(&r);
    return st;
}

/* An option that has no use without another one; NULL: there is none. */
static const char *misplaced(const quantize_options *o) {
    const compare_options *t = &o->text;
    if (!o->calibrate && o->calibration_tokens) return "--calibration-tokens is for --calibrate";
    if (!o->evaluate && (t->text || t->tokens || t->scratch))
        return "--text, --tokens and --scratch are for --evaluate";
    if (!o->evaluate && !o->calibrate && (o->m.engine.device || t->window))
        return "--device and --window are for --calibrate and --evaluate";
    return NULL;
}

int cmd_quantize(int argc, char **argv) {
    quantize_options o = {.shard_mb = 5000};
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &o.m.model, "SRC", "checkpoint folder to read", 0, 0},
        {"out", 'o', OPT_STR, &o.folder, "DST", "folder to write: a new or empty one, or that of a stopped run", 0, 0},
        {"format", 0, OPT_ENUM, &o.format, "int4|w4a8|mxfp4|nvfp4|int8|fp8|bf16", "weight format to write", 0, 0},
        {"only", 0, OPT_ENUM, &o.only, "experts|linears",
         "routed experts, or all linear layers but router, embedding and head (default: experts; of int8, fp8 and "
         "bf16 linears)",
         0, 0},
        {"layout", 0, OPT_ENUM, &o.layout, "quark|modelopt|compressed-tensors",
         "whose names mxfp4 (default: quark), nvfp4 (modelopt) and int8 (compressed-tensors) have", 0, 0},
        {"calibrate", 0, OPT_STR, &o.calibrate, "FILE",
         "a text, as --text: experts of four bits are rounded for what they meet when SRC reads it (GPTQ)", 0, 0},
        {"calibration-tokens", 0, OPT_INT, &o.calibration_tokens, "N",
         "reads the first N tokens of it (default: 32768)", 2, 1e9},
        {"shard-mb", 0, OPT_INT, &o.shard_mb, "MB", "the most that a file has (default: 5000)", 1, 1e6},
        {"threads", 't', OPT_INT, &o.m.engine.threads, "N", "CPU threads (default: all cores)", 0, 4096},
        {"quiet", 'q', OPT_FLAG, &o.quiet, NULL, "no notices and no progress", 0, 0},
        {"device", 'd', OPT_ENUM, &o.m.engine.device, "ref|cpu|cuda|cuda:N",
         "what runs SRC for --calibrate, both for --evaluate (default: cpu)", 0, 0},
        OPT_GROUP("Evaluation"),
        {"evaluate", 0, OPT_FLAG, &o.evaluate, NULL,
         "runs SRC and DST afterwards: perplexity, divergence and agreement go into the report", 0, 0},
        COMPARE_OPTS(o.text),
    };
    int rc =
        cmd_options("quantize", "-m SRC -o DST --format FORMAT [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    o.source = o.m.model;
    if (!o.source || !o.folder || !o.format) {
        fprintf(stderr, "moonlet quantize: --model, --out and --format are needed\n");
        return EXIT_USAGE;
    }
    const char *wrong = misplaced(&o);
    if (wrong) {
        fprintf(stderr, "moonlet quantize: %s\n", wrong);
        return EXIT_USAGE;
    }
    if (!o.calibration_tokens) o.calibration_tokens = 32768;
    compare_defaults(&o.text);
    log_set_quiet(o.quiet);
    if (o.m.engine.threads) omp_set_num_threads((int)o.m.engine.threads);
    err e = {0};
    return quantize(&o, &e) == ST_OK ? EXIT_DONE : cmd_fail("quantize", &e);
}
