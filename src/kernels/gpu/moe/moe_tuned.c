/* kernels/gpu/moe/moe_tuned.c: the table of measured choices: reading, looking up, writing. */
#include "kernels/gpu/moe/moe_tuned.h"
#include "kernels/gpu/csv_table.h"
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
#define KNOB_COLUMN(name, min, max, step) C_KNOB_##name,
    MOE_KNOBS(KNOB_COLUMN)
#undef KNOB_COLUMN
        C_US,
    C_DEFAULT_US,
    C_COUNT
} column;

#define KNOB_FIRST (C_PATH + 1)
enum { KNOBS = C_US - KNOB_FIRST };

static const char *const moe_tuned_columns[] = {"chip",
                                                "sms",
                                                "format",
                                                "dim",
                                                "inter",
                                                "experts",
                                                "topk",
                                                "tokens",
                                                "path",
#define KNOB_TEXT(name, min, max, step) #name,
                                                MOE_KNOBS(KNOB_TEXT)
#undef KNOB_TEXT
                                                    "us",
                                                "default_us"};

/* What whole numbers may be. */
static const struct {
    column c;
    i64 max;
} numbers[] = {{C_SMS, 4096},     {C_DIM, 1 << 20}, {C_INTER, 1 << 20},
               {C_EXPERTS, 4096}, {C_TOPK, 4096},   {C_TOKENS, 1 << 20}};

static status moe_tuned_read_format(const table_reader *r, const char *text, moe_format *out) {
    char what[160];
    snprintf(what, sizeof what, "there is no format \"%.40s\"", text);
    return moe_format_of(text, out) && *out != MOE_OTHER ? ST_OK : table_wrong(r, what);
}

static status read_path(const table_reader *r, const char *text, moe_path *out) {
    char what[160];
    snprintf(what, sizeof what, "there is no path \"%.40s\"", text);
    return moe_path_of(text, out) ? ST_OK : table_wrong(r, what);
}

static status moe_tuned_read_numbers(const table_reader *r, char *const *fields, tuned_row *row, i64 *sms) {
    i64 v, *const to[] = {
               sms, &row->call.dim, &row->call.inter, &row->call.experts, &row->call.topk, &row->call.tokens};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(numbers); i++)
        st = table_whole(r, numbers[i].c, fields[numbers[i].c], 1, numbers[i].max, to[i]);
#define KNOB_READ(name, min, max, step)                                                                                \
    if (st == ST_OK && fields[C_KNOB_##name]) {                                                                        \
        st = table_whole(r, C_KNOB_##name, fields[C_KNOB_##name], 0, max, &v);                                         \
        if (st == ST_OK) row->choice.name = (int)v;                                                                    \
    }
    MOE_KNOBS(KNOB_READ)
#undef KNOB_READ
    return st;
}

static status moe_tuned_read_row(void *ud, const table_reader *r, char *const *fields) {
    tuned_table *t = ud;
    tuned_row row = {.call = {.form = ROWS_ANY}, .line = r->line};
    i64 sms = 0;
    status st = table_chip(r, fields[C_CHIP]);
    if (st == ST_OK) st = moe_tuned_read_format(r, fields[C_FORMAT], &row.call.format);
    if (st == ST_OK) st = read_path(r, fields[C_PATH], &row.choice.path);
    if (st == ST_OK) st = moe_tuned_read_numbers(r, fields, &row, &sms);
    if (st == ST_OK) st = table_time(r, C_US, fields[C_US], &row.us);
    if (st == ST_OK) st = table_time(r, C_DEFAULT_US, fields[C_DEFAULT_US], &row.default_us);
    if (st != ST_OK) return st;
    if (row.call.topk > row.call.experts) return table_wrong(r, "topk is more than experts");
    if (!moe_allowed(&row.call, &row.choice))
        return table_wrong(r, "this path and these numbers are none for this call");
    if (sms != r->sms) return t->others++, ST_OK;
    st = table_grow(r, (void **)&t->rows, t->n, sizeof row);
    if (st == ST_OK) t->rows[t->n++] = row;
    return st;
}

/* By shape, then tokens. */
static int moe_tuned_by_shape(const moe_call *a, const moe_call *b) {
    const i64 x[] = {(i64)a->format, a->dim, a->inter, a->experts, a->topk},
              y[] = {(i64)b->format, b->dim, b->inter, b->experts, b->topk};
    for (size_t i = 0; i < COUNT_OF(x); i++)
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    return 0;
}
static int by_call(const void *p, const void *q) {
    const tuned_row *a = p, *b = q;
    int shape = moe_tuned_by_shape(&a->call, &b->call);
    if (shape) return shape;
    if (a->call.tokens != b->call.tokens) return a->call.tokens < b->call.tokens ? -1 : 1;
    return (a->line > b->line) - (a->line < b->line);
}

static status moe_tuned_sort_rows(tuned_table *t, table_reader *r) {
    if (t->n) qsort(t->rows, (size_t)t->n, sizeof *t->rows, by_call);
    for (i64 i = 1; i < t->n; i++) {
        const tuned_row *a = &t->rows[i - 1], *b = &t->rows[i];
        char what[80];
        r->line = b->line;
        snprintf(what, sizeof what, "the same shape and tokens as in line %lld", (long long)a->line);
        if (!moe_tuned_by_shape(&a->call, &b->call) && a->call.tokens == b->call.tokens) return table_wrong(r, what);
    }
    return ST_OK;
}

status tuned_parse(tuned_table *t, const char *text, u64 size, const char *name, const char *chip, int sms, err *e) {
    table_reader r = {.name = name,
                      .chip = chip,
                      .sms = sms,
                      .e = e,
                      .columns = moe_tuned_columns,
                      .n_columns = C_COUNT,
                      .first_optional = KNOB_FIRST,
                      .n_optional = KNOBS,
                      .row = moe_tuned_read_row,
                      .ud = t};
    *t = (tuned_table){0};
    status st = table_read(&r, text, size);
    if (st == ST_OK) st = moe_tuned_sort_rows(t, &r);
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
        int shape = moe_tuned_by_shape(&t->rows[mid].call, c);
        if (shape < 0 || (!shape && t->rows[mid].call.tokens < c->tokens))
            low = mid + 1;
        else
            high = mid;
    }
    const tuned_row *above = low < t->n && !moe_tuned_by_shape(&t->rows[low].call, c) ? &t->rows[low] : NULL,
                    *below = low && !moe_tuned_by_shape(&t->rows[low - 1].call, c) ? &t->rows[low - 1] : NULL;
    if (above && above->call.tokens <= 2 * c->tokens) return above;
    return below && (!above || c->tokens <= 2 * below->call.tokens) ? below : NULL;
}

const tuned_row *tuned_exact(const tuned_table *t, const moe_call *c) {
    const tuned_row *row = tuned_find(t, c);
    return row && row->call.tokens == c->tokens ? row : NULL;
}

bool tuned_header(buf *out) {
    for (int c = 0; c < C_COUNT; c++) buf_fmt(out, "%s%s", c ? "," : "", moe_tuned_columns[c]);
    buf_char(out, '\n');
    return !out->failed;
}

bool tuned_line(buf *out, const char *chip, int sms, const tuned_row *row) {
    const moe_call *c = &row->call;
    buf_fmt(out, "%s,%d,%s,%lld,%lld,%lld,%lld,%lld,%s", chip, sms, moe_format_text(c->format), (long long)c->dim,
            (long long)c->inter, (long long)c->experts, (long long)c->topk, (long long)c->tokens,
            moe_path_text(row->choice.path));
#define KNOB_WRITE(name, min, max, step) buf_fmt(out, ",%d", row->choice.name);
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
