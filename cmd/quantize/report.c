/* cmd/quantize/report.c: the report's text. */
#include "cmd/quantize/report.h"
#include "base/log.h"
#include "cmd/quantize/folder.h"
#include <math.h>
#include <string.h>

f64 sums_error(const quantize_sums *s) { return s->energy > 0 ? sqrt(s->error / s->energy) : 0; }

static void add_class(class_sums *to, const class_sums *x) {
    to->matrices += x->matrices, to->made += x->made;
    to->bytes_in += x->bytes_in, to->bytes_out += x->bytes_out;
    quantize_sums_add(&to->sums, &x->sums);
}

static class_sums class_total(const sums_table *t, int class) {
    class_sums all = {0};
    for (i64 l = 0; l <= t->layers; l++) add_class(&all, &t->at[l * MC_COUNT + class]);
    return all;
}

quantize_sums chosen_sums(const sums_table *t, bool linears) {
    class_sums all = {0};
    for (int c = 0; c <= (linears ? MC_ATTENTION : MC_DOWN); c++) {
        class_sums x = class_total(t, c);
        add_class(&all, &x);
    }
    return all.sums;
}

static void bytes_cell(buf *b, u64 bytes) {
    char text[BYTES_TEXT];
    buf_fmt(b, " %s |", bytes_text(text, bytes));
}

static void error_cell(buf *b, const class_sums *s) {
    if (!s->made)
        buf_str(b, s->matrices ? " as it was |" : " |");
    else
        buf_fmt(b, " %.3e |", sums_error(&s->sums));
}

/* What is left of the results on the text that was calibrated with; nothing where that was none. */
static void results_cells(buf *b, const gptq_sums *r) {
    if (r->energy > 0)
        buf_fmt(b, " %.3e | %.3e |", sqrt(r->nearest / r->energy), sqrt(r->done / r->energy));
    else
        buf_str(b, " | |");
}

static bool is_calibrated(const sums_table *t) {
    bool any = false;
    for (int c = 0; c < MC_COUNT; c++) any |= class_total(t, c).sums.results.energy > 0;
    return any;
}

static void class_row(buf *b, const char *name, const class_sums *s, bool results) {
    buf_fmt(b, "| %s | %llu | %llu |", name, (unsigned long long)s->matrices, (unsigned long long)s->made);
    bytes_cell(b, s->bytes_in);
    bytes_cell(b, s->bytes_out);
    error_cell(b, s);
    if (results) results_cells(b, &s->sums.results);
    buf_char(b, '\n');
}

static void class_table(buf *b, const sums_table *t) {
    class_sums all = {0};
    const bool results = is_calibrated(t);
    buf_fmt(b, "| tensors | all | written anew | before | after | relative error |%s\n|---|---|---|---|---|---|%s\n",
            results ? " of results, values to nearest | of results, as written |" : "", results ? "---|---|" : "");
    for (int c = 0; c < MC_COUNT; c++) {
        class_sums s = class_total(t, c);
        if (s.matrices) class_row(b, matrix_class_name((matrix_class)c), &s, results);
        add_class(&all, &s);
    }
    class_row(b, "together", &all, results);
}

static void layer_table(buf *b, const sums_table *t) {
    bool shown[MC_COUNT] = {false};
    buf_str(b, "\n| layer |");
    for (int c = 0; c < MC_COUNT; c++)
        if ((shown[c] = class_total(t, c).made > 0)) buf_fmt(b, " %s |", matrix_class_name((matrix_class)c));
    buf_str(b, "\n|---|");
    for (int c = 0; c < MC_COUNT; c++) buf_str(b, shown[c] ? "---|" : "");
    for (i64 l = 0; l <= t->layers; l++) {
        u64 made = 0;
        for (int c = 0; c < MC_COUNT; c++) made += t->at[l * MC_COUNT + c].made;
        if (!made) continue;
        if (l == t->layers)
            buf_str(b, "\n| none |");
        else
            buf_fmt(b, "\n| %lld |", (long long)l);
        for (int c = 0; c < MC_COUNT; c++)
            if (shown[c]) error_cell(b, &t->at[l * MC_COUNT + c]);
    }
    buf_char(b, '\n');
}

static void report_text(buf *b, const quantize_job_file *j, const sums_table *t) {
    buf_fmt(b,
            "# Quantized to %s\n\nBy `moonlet quantize` %s from `%s`.\n\n"
            "The error is ||w - written|| / ||w|| (Frobenius norms) of what was written anew, against the values of\n"
            "the checkpoint that was read.\n\n",
            j->format, MOON_VERSION, j->source);
    if (j->calibrate)
        buf_fmt(
            b,
            "Experts were rounded for the inputs that they meet in %lld tokens of `%s` (GPTQ): the error of their\n"
            "results there is the one that was made small, sqrt(sum a |(w - written) x|^2 / sum a |w x|^2) with a the\n"
            "square of the router's weight, some tokens of all and the damping counted in, of every %dth block of %d\n"
            "rows; beside it that of rounding each value to nearest.\n\n",
            (long long)j->calibration_read, j->calibrate, GPTQ_SAMPLE, GPTQ_ROWS);
    class_table(b, t);
    buf_str(b, "\nBy layer ([drawn](quantize-report.svg)):\n");
    layer_table(b, t);
}

status report_write(const quantize_job_file *j, const sums_table *t, const quantizer *q, bool linears,
                    const comparison *c, err *e) {
    buf text = {0}, chart = {0}, title = {0};
    const quantize_sums all = chosen_sums(t, linears);
    report_text(&text, j, t);
    if (c) buf_str(&text, "\nWhat both predict on a text (`moonlet eval formats`):\n\n"), compare_table(c, &text);
    buf_fmt(&title, "%s: relative error by layer, %.3e of all", q->name, sums_error(&all));
    if (c)
        buf_fmt(&title, "; perplexity %.5g to %.5g, KL %.3g", exp(-c->rows[0].logprob), exp(-c->rows[1].logprob),
                c->rows[1].kl.mean);
    error_chart(t, title.data ? title.data : "", &chart);
    status st = text.failed || chart.failed || title.failed ? err_nomem(e, "the report", text.len) : ST_OK;
    if (st == ST_OK) st = folder_write(j, "quantize-report.svg", chart.data, chart.len, e);
    if (st == ST_OK) st = folder_write(j, "quantize-report.md", text.data, text.len, e);
    buf_free(&text);
    buf_free(&chart);
    buf_free(&title);
    return st;
}
