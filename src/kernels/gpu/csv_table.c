/* kernels/gpu/csv_table.c: see the header. */
#include "kernels/gpu/csv_table.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 512 };

status table_wrong(const table_reader *r, const char *what) {
    return err_set(r->e, ST_FORMAT, "%s: line %lld: %s", r->name, (long long)r->line, what);
}

/* Cuts a line at its commas; -1: more than `most` fields. */
static int csv_cut(char *line, char **fields, int max) {
    int n = 0;
    for (char *at = line; at; n++) {
        if (n == max) return -1;
        fields[n] = at;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    return n;
}

static status read_header(table_reader *r, char *line) {
    char *fields[TABLE_COLUMNS], what[160];
    bool seen[TABLE_COLUMNS] = {false};
    int n = csv_cut(line, fields, r->n_columns);
    if (n < 0) return table_wrong(r, "too many columns");
    for (int i = 0; i < n; i++) {
        int c = 0;
        while (c < r->n_columns && strcmp(fields[i], r->columns[c])) c++;
        snprintf(what, sizeof what, "column \"%.64s\" %s", fields[i],
                 c < r->n_columns ? "comes twice" : "is not known to this program");
        if (c == r->n_columns || seen[c]) return table_wrong(r, what);
        seen[c] = true;
        r->order[i] = c;
    }
    r->n_fields = n;
    for (int c = 0; c < r->n_columns; c++) {
        bool optional = c >= r->first_optional && c < r->first_optional + r->n_optional;
        snprintf(what, sizeof what, "there is no column \"%s\"", r->columns[c]);
        if (!seen[c] && !optional) return table_wrong(r, what);
    }
    return ST_OK;
}

static status csv_read_row(table_reader *r, char *line) {
    char *fields[TABLE_COLUMNS], *by_column[TABLE_COLUMNS] = {NULL}, what[160];
    int n = csv_cut(line, fields, r->n_columns);
    snprintf(what, sizeof what, "%d fields, %d columns", n, r->n_fields);
    if (n < 0) return table_wrong(r, "too many fields");
    if (n != r->n_fields) return table_wrong(r, what);
    for (int i = 0; i < n; i++) by_column[r->order[i]] = fields[i];
    return r->row(r->ud, r, by_column);
}

status table_read(table_reader *r, const char *text, u64 size) {
    bool named = false;
    for (u64 at = 0; at < size;) {
        char line[LINE_MOST];
        const char *end = memchr(text + at, '\n', size - at);
        r->line++;
        if (!end) return table_wrong(r, "cut off: its end is missing");
        u64 n = (u64)(end - text) - at;
        if (n >= sizeof line || memchr(text + at, 0, n)) return table_wrong(r, "no line of text, or far too long");
        memcpy(line, text + at, n);
        line[n] = 0;
        at += n + 1;
        if (n && line[n - 1] == '\r') line[n - 1] = 0;
        if (!line[0] || line[0] == '#') continue;
        status st = named ? csv_read_row(r, line) : read_header(r, line);
        if (st != ST_OK) return st;
        named = true;
    }
    return named ? ST_OK : table_wrong(r, "there is no line that names the columns");
}

status table_whole(const table_reader *r, int column, const char *text, i64 min, i64 max, i64 *out) {
    char what[160], *end;
    errno = 0;
    long long v = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    snprintf(what, sizeof what, "%s \"%.40s\" is not a number in %lld..%lld", r->columns[column], text, (long long)min,
             (long long)max);
    if (v < min || v > max || errno || *end) return table_wrong(r, what);
    *out = v;
    return ST_OK;
}

status table_time(const table_reader *r, int column, const char *text, f64 *out) {
    char what[160], *end;
    f64 v = strtod(text, &end);
    snprintf(what, sizeof what, "%s \"%.40s\" is not a time in microseconds", r->columns[column], text);
    if (!text[0] || *end || !isfinite(v) || v <= 0) return table_wrong(r, what);
    *out = v;
    return ST_OK;
}

status table_chip(const table_reader *r, const char *text) {
    char what[160];
    snprintf(what, sizeof what, "the row is for \"%.60s\", this chip is \"%.60s\"", text, r->chip);
    return strcmp(text, r->chip) ? table_wrong(r, what) : ST_OK;
}

/* Twice as much room whenever n is a power of two. */
status table_grow(const table_reader *r, void **rows, i64 n, u64 size) {
    if (n && (n & (n - 1))) return ST_OK;
    u64 room = n ? 2 * (u64)n : 1;
    void *more = n < TABLE_ROWS ? realloc(*rows, room * size) : NULL;
    if (!more) return err_nomem(r->e, r->name, room * size);
    *rows = more;
    return ST_OK;
}
