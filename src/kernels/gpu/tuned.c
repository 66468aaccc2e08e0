/* kernels/gpu/tuned.c: the table of measured choices: reading, looking up, writing. */
#include "kernels/gpu/tuned.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum {
    C_CHIP,
    C_SMS,
    C_FORMAT,
    C_DIM,
    C_INTER,
    C_EXPERTS,
    C_TOPK,
    C_TOKENS,
    C_PATH,
#define KNOB_COLUMN(name, least, most, step) C_KNOB_##name,
    MOE_KNOBS(KNOB_COLUMN)
#undef KNOB_COLUMN
        C_US,
    C_DEFAULT_US,
    C_COUNT
} column;

#define KNOB_FIRST (C_PATH + 1)
enum { KNOBS = C_US - KNOB_FIRST, LINE_MOST = 512, ROWS_MOST = 100000 };

static const char *const columns[] = {"chip",
                                      "sms",
                                      "format",
                                      "dim",
                                      "inter",
                                      "experts",
                                      "topk",
                                      "tokens",
                                      "path",
#define KNOB_TEXT(name, least, most, step) #name,
                                      MOE_KNOBS(KNOB_TEXT)
#undef KNOB_TEXT
                                          "us",
                                      "default_us"};

/* What whole numbers may be. */
static const struct {
    column c;
    i64 most;
} numbers[] = {{C_SMS, 4096},     {C_DIM, 1 << 20}, {C_INTER, 1 << 20},
               {C_EXPERTS, 4096}, {C_TOPK, 4096},   {C_TOKENS, 1 << 20}};

typedef struct {
    const char *name, *chip;
    int sms;
    err *e;
    i64 line;
    column order[C_COUNT]; /* of the fields */
    int n_fields;
    u64 cap;
} reader;

static status wrong(const reader *r, const char *what) {
    return err_set(r->e, ST_FORMAT, "%s: line %lld: %s", r->name, (long long)r->line, what);
}

/* Cuts a line at its commas; -1: more than `most` fields. */
static int cut(char *line, char **fields, int most) {
    int n = 0;
    for (char *at = line; at; n++) {
        if (n == most) return -1;
        fields[n] = at;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    return n;
}

static status read_header(reader *r, char *line) {
    char *fields[C_COUNT], what[160];
    bool seen[C_COUNT] = {false};
    int n = cut(line, fields, C_COUNT);
    if (n < 0) return wrong(r, "too many columns");
    for (int i = 0; i < n; i++) {
        int c = 0;
        while (c < C_COUNT && strcmp(fields[i], columns[c])) c++;
        snprintf(what, sizeof what, "column \"%.64s\" %s", fields[i],
                 c < C_COUNT ? "comes twice" : "is not known to this program");
        if (c == C_COUNT || seen[c]) return wrong(r, what);
        seen[c] = true;
        r->order[i] = (column)c;
    }
    r->n_fields = n;
    for (int c = 0; c < C_COUNT; c++) {
        bool knob = c >= KNOB_FIRST && c < C_US;
        snprintf(what, sizeof what, "there is no column \"%s\"", columns[c]);
        if (!seen[c] && !knob) return wrong(r, what);
    }
    return ST_OK;
}

static status whole(const reader *r, column c, const char *text, i64 least, i64 most, i64 *out) {
    char what[160], *end;
    errno = 0;
    long long v = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    snprintf(what, sizeof what, "%s \"%.40s\" is not a number in %lld..%lld", columns[c], text,
             (long long)least, (long long)most);
    if (v < least || v > most || errno || *end) return wrong(r, what);
    *out = v;
    return ST_OK;
}

static status positive(const reader *r, column c, const char *text, f64 *out) {
    char what[160], *end;
    f64 v = strtod(text, &end);
    snprintf(what, sizeof what, "%s \"%.40s\" is not a time in microseconds", columns[c], text);
    if (!text[0] || *end || !isfinite(v) || v <= 0) return wrong(r, what);
    *out = v;
    return ST_OK;
}

static status read_field(reader *r, column c, const char *text, tuned_row *row, i64 *sms) {
    char what[160];
    i64 v;
    if (c == C_CHIP) {
        snprintf(what, sizeof what, "the row is for \"%.60s\", this chip is \"%.60s\"", text, r->chip);
        return strcmp(text, r->chip) ? wrong(r, what) : ST_OK;
    }
    if (c == C_FORMAT) {
        snprintf(what, sizeof what, "there is no format \"%.40s\"", text);
        bool known = moe_format_of(text, &row->call.format) && row->call.format != MOE_OTHER;
        return known ? ST_OK : wrong(r, what);
    }
    if (c == C_PATH) {
        snprintf(what, sizeof what, "there is no path \"%.40s\"", text);
        return moe_path_of(text, &row->choice.path) ? ST_OK : wrong(r, what);
    }
    if (c == C_US || c == C_DEFAULT_US) return positive(r, c, text, c == C_US ? &row->us : &row->default_us);
#define KNOB_READ(name, least, most, step)                                                                   \
    if (c == C_KNOB_##name) {                                                                                \
        status st = whole(r, c, text, 0, most, &v);                                                          \
        return st == ST_OK ? row->choice.name = (int)v, ST_OK : st;                                          \
    }
    MOE_KNOBS(KNOB_READ)
#undef KNOB_READ
    i64 *const to[] = {
        sms, &row->call.dim, &row->call.inter, &row->call.experts, &row->call.topk, &row->call.tokens};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (c == numbers[i].c) return whole(r, c, text, 1, numbers[i].most, to[i]);
    return wrong(r, "a column without a meaning");
}

static status keep(tuned_table *t, reader *r, const tuned_row *row) {
    if ((u64)t->n == r->cap) {
        u64 cap = r->cap ? 2 * r->cap : 256;
        tuned_row *rows = cap <= ROWS_MOST * 2 ? realloc(t->rows, cap * sizeof *rows) : NULL;
        if (!rows) return err_nomem(r->e, r->name, cap * sizeof *rows);
        t->rows = rows, r->cap = cap;
    }
    t->rows[t->n++] = *row;
    return ST_OK;
}

static status read_row(tuned_table *t, reader *r, char *line) {
    char *fields[C_COUNT], what[160];
    tuned_row row = {.call = {.form = ROWS_ANY}, .line = r->line};
    i64 sms = 0;
    int n = cut(line, fields, C_COUNT);
    snprintf(what, sizeof what, "%d fields, %d columns", n, r->n_fields);
    if (n < 0) return wrong(r, "too many fields");
    if (n != r->n_fields) return wrong(r, what);
    for (int i = 0; i < n; i++) {
        status st = read_field(r, r->order[i], fields[i], &row, &sms);
        if (st != ST_OK) return st;
    }
    if (row.call.topk > row.call.experts) return wrong(r, "topk is more than experts");
    if (!moe_allowed(&row.call, &row.choice))
        return wrong(r, "this path and these numbers are none for this call");
    if (sms != r->sms) return t->others++, ST_OK;
    return keep(t, r, &row);
}

/* By shape, then tokens. */
static int by_shape(const moe_call *a, const moe_call *b) {
    const i64 x[] = {(i64)a->format, a->dim, a->inter, a->experts, a->topk},
              y[] = {(i64)b->format, b->dim, b->inter, b->experts, b->topk};
    for (size_t i = 0; i < COUNT_OF(x); i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}
static int by_call(const void *p, const void *q) {
    const tuned_row *a = p, *b = q;
    int shape = by_shape(&a->call, &b->call);
    if (shape) return shape;
    if (a->call.tokens != b->call.tokens) return a->call.tokens < b->call.tokens ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static status sort_rows(tuned_table *t, reader *r) {
    if (t->n) qsort(t->rows, (size_t)t->n, sizeof *t->rows, by_call);
    for (i64 i = 1; i < t->n; i++) {
        const tuned_row *a = &t->rows[i - 1], *b = &t->rows[i];
        char what[80];
        r->line = b->line;
        snprintf(what, sizeof what, "the same shape and tokens as in line %lld", (long long)a->line);
        if (!by_shape(&a->call, &b->call) && a->call.tokens == b->call.tokens) return wrong(r, what);
    }
    return ST_OK;
}

static status read_lines(tuned_table *t, reader *r, const char *text, u64 size) {
    bool named = false;
    for (u64 at = 0; at < size;) {
        char line[LINE_MOST];
        const char *end = memchr(text + at, '\n', size - at);
        r->line++;
        if (!end) return wrong(r, "cut off: its end is missing");
        u64 n = (u64)(end - text) - at;
        if (n >= sizeof line || memchr(text + at, 0, n)) return wrong(r, "no line of text, or far too long");
        memcpy(line, text + at, n);
        line[n] = 0;
        at += n + 1;
        if (n && line[n - 1] == '\r') line[n - 1] = 0;
        if (!line[0] || line[0] == '#') continue;
        status st = named ? read_row(t, r, line) : read_header(r, line);
        if (st != ST_OK) return st;
        named = true;
    }
    return named ? ST_OK : wrong(r, "there is no line that names the columns");
}

status tuned_parse(tuned_table *t, const char *text, u64 size, const char *name, const char *chip, int sms,
                   err *e) {
    reader r = {.name = name, .chip = chip, .sms = sms, .e = e};
    *t = (tuned_table){0};
    status st = read_lines(t, &r, text, size);
    if (st == ST_OK) st = sort_rows(t, &r);
    if (st != ST_OK) tuned_free(t);
    return st;
}

void tuned_free(tuned_table *t) {
    free(t->rows);
    *t = (tuned_table){0};
}

const tuned_row *tuned_find(const tuned_table *t, const moe_call *c) {
    i64 low = 0, high = t->n; /* the first row that is not before c */
    while (low < high) {
        i64 mid = low + (high - low) / 2;
        int shape = by_shape(&t->rows[mid].call, c);
        if (shape < 0 || (!shape && t->rows[mid].call.tokens < c->tokens))
            low = mid + 1;
        else
            high = mid;
    }
    if (low < t->n && !by_shape(&t->rows[low].call, c)) /* not one of far more tokens */
        return t->rows[low].call.tokens <= 2 * c->tokens ? &t->rows[low] : NULL;
    return low && !by_shape(&t->rows[low - 1].call, c) ? &t->rows[low - 1] : NULL;
}

const tuned_row *tuned_exact(const tuned_table *t, const moe_call *c) {
    const tuned_row *row = tuned_find(t, c);
    return row && row->call.tokens == c->tokens ? row : NULL;
}

bool tuned_header(buf *out) {
    for (int c = 0; c < C_COUNT; c++) buf_fmt(out, "%s%s", c ? "," : "", columns[c]);
    buf_char(out, '\n');
    return !out->failed;
}

bool tuned_line(buf *out, const char *chip, int sms, const tuned_row *row) {
    const moe_call *c = &row->call;
    buf_fmt(out, "%s,%d,%s,%lld,%lld,%lld,%lld,%lld,%s", chip, sms, moe_format_text(c->format),
            (long long)c->dim, (long long)c->inter, (long long)c->experts, (long long)c->topk,
            (long long)c->tokens, moe_path_text(row->choice.path));
#define KNOB_WRITE(name, least, most, step) buf_fmt(out, ",%d", row->choice.name);
    MOE_KNOBS(KNOB_WRITE)
#undef KNOB_WRITE
    buf_fmt(out, ",%.2f,%.2f\n", row->us, row->default_us);
    return !out->failed;
}

void tuned_file_name(char *out, size_t cap, const char *chip) {
    size_t n = 0;
    for (; *chip && n + 5 < cap; chip++) {
        char c = *chip >= 'A' && *chip <= 'Z' ? (char)(*chip + 32) : *chip;
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (plain || (n && out[n - 1] != '-')) out[n++] = plain ? c : '-';
    }
    while (n && out[n - 1] == '-') n--;
    snprintf(out + n, cap - n, ".csv");
}
