/* cmd/lib/compare_report.c: a comparison as a table and as JSON. */
#include "base/log.h"
#include "cmd/lib/compare_formats.h"
#include <math.h>
#include <string.h>

/* "0.0123 ± 0.0004": as many decimals as the interval's second digit has, and in a cell. */
static void mean_cell(buf *b, mean_95 m, f64 scale, bool plus, const char *unit) {
    const f64 half = m.half * scale, mean = m.mean * scale, last = half > 0 ? half : fabs(mean);
    const int decimals = last > 0 ? (int)fmax(0, fmin(12, 1 - floor(log10(last)))) : 0;
    buf_fmt(b, plus ? " %+.*f" : " %.*f", decimals, mean);
    if (!isnan(half)) buf_fmt(b, " ± %.*f", decimals, half);
    buf_fmt(b, "%s |", unit);
}

static const char *device_of(const comparison *c) { return c->m->engine.device ? c->m->engine.device : "cpu"; }

/* The perplexity's share of the master's, less 1, and its interval by that of its logarithm. */
static mean_95 perplexity_change(const compared *row) {
    const f64 ratio = exp(-row->change.mean);
    return (mean_95){ratio - 1, ratio * row->change.half};
}

static void compare_row(const compared *row, bool master, buf *b) {
    char size[BYTES_TEXT];
    buf_fmt(b, "| %s | %s | %s | %.5g |", row->name, row->weights, bytes_text(size, row->bytes), exp(-row->logprob));
    if (master) {
        buf_str(b, " | | | |\n");
        return;
    }
    mean_cell(b, perplexity_change(row), 100, true, " %");
    mean_cell(b, row->kl, 1, false, "");
    mean_cell(b, row->same, 100, false, " %");
    mean_cell(b, row->changed, 1, false, "");
    buf_char(b, '\n');
}

void compare_table(const comparison *c, buf *out) {
    buf_str(out, "| checkpoint | weights | on disk | perplexity | its change | KL divergence | same first token | "
                 "change of log-probability |\n|---|---|---|---|---|---|---|---|\n");
    for (i64 i = 0; i < c->n; i++) compare_row(&c->rows[i], i == 0, out);
    buf_fmt(
        out,
        "\nEach beside %s, over %lld tokens scored in %lld documents of %s, device %s. The divergence is\n"
        "sum p log(p / q) over the whole vocabulary of %lld, p %s's; change of log-probability: of the text's token,\n"
        "absolute. Means over tokens, natural logarithms. %s\n",
        c->rows[0].name, (long long)c->docs.scored, (long long)c->docs.n, c->text, device_of(c), (long long)c->vocab,
        c->rows[0].name,
        c->docs.n > 1 ? "±: 95 %, with documents as clusters." : "One document alone gives no intervals.");
}

static void json_word(buf *b, const char *key, const char *value) {
    buf_fmt(b, "\"%s\": ", key);
    buf_json_str(b, value, strlen(value));
    buf_str(b, ", ");
}

/* null where it is none, or too large for a number. */
static void json_figure(buf *b, f64 v) {
    if (isfinite(v))
        buf_fmt(b, "%.17g", v);
    else
        buf_str(b, "null");
}

static void json_mean(buf *b, const char *key, mean_95 m, const char *end) {
    buf_fmt(b, "\"%s\": {\"mean\": ", key);
    json_figure(b, m.mean);
    buf_str(b, ", \"half_95\": ");
    json_figure(b, m.half);
    buf_fmt(b, "}%s", end);
}

static void json_row(const compared *row, buf *b) {
    buf_str(b, "{");
    json_word(b, "name", row->name);
    json_word(b, "path", row->path);
    json_word(b, "weights", row->weights);
    buf_fmt(b, "\"bytes\": %llu, \"perplexity\": ", (unsigned long long)row->bytes);
    json_figure(b, exp(-row->logprob));
    buf_fmt(b, ", \"mean_logprob\": %.17g, ", row->logprob);
    json_mean(b, "perplexity_change", perplexity_change(row), ", ");
    json_mean(b, "kl", row->kl, ", ");
    json_mean(b, "top1_agreement", row->same, ", ");
    json_mean(b, "logprob_change", row->change, ", ");
    json_mean(b, "abs_logprob_change", row->changed, "}");
}

void compare_json(const comparison *c, buf *out) {
    buf_str(out, "{");
    json_word(out, "master", c->rows[0].path);
    json_word(out, "text", c->text);
    json_word(out, "device", device_of(c));
    buf_fmt(out, "\"documents\": %lld, \"tokens\": %lld, \"vocabulary\": %lld, \"checkpoints\": [",
            (long long)c->docs.n, (long long)c->docs.scored, (long long)c->vocab);
    for (i64 i = 0; i < c->n; i++) {
        buf_str(out, i ? ",\n  " : "\n  ");
        json_row(&c->rows[i], out);
    }
    buf_str(out, "\n]}\n");
}
