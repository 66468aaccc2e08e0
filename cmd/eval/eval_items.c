#include "cmd/eval/eval_items.h"
#include "base/file.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void items_free(item_file *f) {
    for (i64 i = 0; i < f->n; i++) json_decref(f->items[i]);
    free(f->items);
    free(f->lines);
    f->items = NULL;
    f->lines = NULL;
    f->n = 0;
}

static status add_item(item_file *f, i64 *cap, json_t *item, i64 number, err *e) {
    if (f->n == *cap) {
        i64 more = *cap ? *cap * 2 : 256;
        json_t **items = realloc(f->items, (size_t)more * sizeof *items);
        if (items) f->items = items;
        i64 *lines = items ? realloc(f->lines, (size_t)more * sizeof *lines) : NULL;
        if (lines) f->lines = lines;
        if (!items || !lines) return err_nomem(e, "questions", (u64)more * sizeof *items);
        *cap = more;
    }
    f->items[f->n] = json_incref(item);
    f->lines[f->n++] = number;
    return ST_OK;
}

static status items_read_lines(item_file *f, FILE *in, item_check check, void *ud, err *e) {
    char *line = NULL;
    size_t size = 0;
    i64 cap = 0, number = 0;
    status st = ST_OK;
    for (ssize_t n; st == ST_OK && (n = getline(&line, &size, in)) >= 0;) {
        number++;
        if (strspn(line, " \r\n\t") >= (size_t)n) continue;
        json_t *item = json_parse(line, (size_t)n, "JSON", e);
        st = item ? check(ud, item, e) : e->code;
        if (st == ST_OK) st = add_item(f, &cap, item, number, e);
        if (st != ST_OK) err_prefix(e, "%s line %lld", f->path, (long long)number);
        json_decref(item);
    }
    if (st == ST_OK && !feof(in)) st = err_set(e, ST_IO, "cannot read %s: %s", f->path, strerror(errno));
    free(line);
    return st;
}

static void items_keep(item_file *f, i64 limit, bool spread) {
    for (i64 i = 0, next = 0; i < f->n; i++) {
        i64 wanted = spread ? next * f->n / limit : next;
        if (next < limit && i == wanted) {
            f->items[next] = f->items[i];
            f->lines[next++] = f->lines[i];
        } else {
            json_decref(f->items[i]);
        }
    }
    f->n = limit;
}

status items_read(item_file *f, const char *path, i64 limit, bool spread, item_check check, void *ud, err *e) {
    f->path = path;
    buf unpacked = {0};
    status st = ST_OK;
    FILE *in = fopen(path, "r"); /* a pipe will do */
    if (!in && errno == ENOENT) {
        st = file_read(path, 1 << 30, &unpacked, e); /* what PATH.gz holds */
        if (st == ST_OK) in = fmemopen(unpacked.data, unpacked.len, "r");
    }
    if (!in && st == ST_OK) st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    if (st == ST_OK) st = items_read_lines(f, in, check, ud, e);
    if (in) fclose(in);
    buf_free(&unpacked);
    if (st == ST_OK && !f->n) st = err_set(e, ST_FORMAT, "%s: no questions", path);
    if (st == ST_OK && limit && limit < f->n) items_keep(f, limit, spread);
    return st;
}

/* ---- right answers ---- */

static bool items_digit(char c) { return c >= '0' && c <= '9'; }

bool last_number(const char *text, f64 *out) {
    char digits[64];
    bool found = false;
    for (const char *p = text; *p;) {
        if (!items_digit(*p)) {
            p++;
            continue;
        }
        size_t n = 0;
        bool minus = p > text && p[-1] == '-' && !(p - 1 > text && items_digit(p[-2]));
        if (minus) digits[n++] = '-';
        for (; items_digit(*p) || ((*p == ',' || *p == '.') && items_digit(p[1])); p++)
            if (*p != ',' && n < sizeof digits - 1) digits[n++] = *p;
        digits[n] = 0;
        *out = strtod(digits, NULL);
        found = true;
    }
    return found;
}

const char *wanted_value(const json_t *item) {
    const char *answer = json_string_value(json_object_get(item, "answer")), *mark = NULL;
    for (const char *p = answer; p && (p = strstr(p, "####")); p += 4) mark = p + 4;
    return mark ? mark + strspn(mark, " \t") : NULL;
}

/* Letters, digits and every byte of a character beyond ASCII. */
static bool word_byte(char c) {
    return items_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (u8)c >= 0x80;
}

bool has_value(const char *text, const char *value) {
    size_t n = strlen(value);
    if (!n) return false;
    for (const char *p = text; (p = strstr(p, value)); p++) {
        char before = p > text ? p[-1] : ' ', after = p[n];
        bool begins = !word_byte(value[0]) || !word_byte(before), ends = !word_byte(value[n - 1]) || !word_byte(after);
        if (items_digit(value[0])) { /* -5, 3.5 and 1,500 do not hold 5 and 500; the 5 of 2-5 is one */
            bool deeper = p - 1 > text && items_digit(p[-2]);
            if ((before == '.' || before == ',') && deeper) begins = false;
            if (before == '-' && !deeper) begins = false;
        }
        if (items_digit(value[n - 1]) && (after == '.' || after == ',') && items_digit(p[n + 1])) ends = false;
        if (begins && ends) return true;
    }
    return false;
}

status check_question(void *ud, const json_t *item, err *e) {
    (void)ud;
    f64 number;
    const char *want = wanted_value(item);
    if (json_is_string(json_object_get(item, "question")) && want && last_number(want, &number)) return ST_OK;
    return err_set(e, ST_FORMAT, "not {\"question\", \"answer\": \"... #### NUMBER\"}");
}

/* ---- tool calls ---- */

static bool text_equal(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a == ' ') a++;
        while (*b == ' ') b++;
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

/* Numbers by value: 3 is 3.0. */
static bool value_equal(const json_t *a, const json_t *b, bool blanks_matter) {
    if (json_is_number(a) && json_is_number(b)) return json_same_number(a, b);
    if (!blanks_matter && json_is_string(a) && json_is_string(b))
        return text_equal(json_string_value(a), json_string_value(b));
    return json_equal(a, b);
}

static bool object_equal(json_t *a, json_t *b) {
    const char *key;
    json_t *value;
    if (!json_is_object(a) || !json_is_object(b) || json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach(a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (!other || !value_equal(value, other, false)) return false;
    }
    return true;
}

static const json_t *items_declared(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *have = json_string_value(json_object_get(f, "name"));
        if (have && !strcmp(have, name)) return json_object_get(f, "parameters");
    }
    return NULL;
}

static bool items_in_enum(const json_t *schema, const json_t *value) {
    const json_t *list = json_object_get(schema, "enum");
    bool found = !list;
    for (size_t i = 0; !found && i < json_array_size(list); i++)
        found = value_equal(json_array_get(list, i), value, true);
    return found;
}

static bool arguments_fit(const json_t *parameters, json_t *arguments) {
    const json_t *properties = json_object_get(parameters, "properties"),
                 *required = json_object_get(parameters, "required");
    const char *key;
    json_t *value;
    for (size_t i = 0; i < json_array_size(required); i++) {
        key = json_string_value(json_array_get(required, i));
        if (key && !json_object_get(arguments, key)) return false;
    }
    json_object_foreach(arguments, key, value) {
        const json_t *schema = json_object_get(properties, key);
        if (!schema || !items_in_enum(schema, value)) return false;
    }
    return true;
}

/* The arguments as an object (the caller's), or NULL. */
static json_t *call_arguments(const json_t *call) {
    const json_t *text = json_object_get(json_object_get(call, "function"), "arguments");
    json_t *v = json_is_string(text) ? json_parse(json_string_value(text), json_string_length(text), "", NULL) : NULL;
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

static const char *call_name(const json_t *call) {
    const char *name = json_string_value(json_object_get(json_object_get(call, "function"), "name"));
    return name ? name : "";
}

static bool call_well_formed(const json_t *item, const json_t *call, size_t i, json_t *arguments) {
    char number[32];
    const char *name = call_name(call), *id = json_string_value(json_object_get(call, "id"));
    const json_t *parameters = items_declared(json_object_get(item, "tools"), name);
    size_t prefix = strlen("functions."), n = strlen(name);
    snprintf(number, sizeof number, ":%zu", i);
    return parameters && id && !strncmp(id, "functions.", prefix) && !strncmp(id + prefix, name, n) &&
           !strcmp(id + prefix + n, number) && arguments && arguments_fit(parameters, arguments);
}

void judge_calls(const json_t *item, const json_t *calls, bool *well_formed, bool *right) {
    const json_t *wanted = json_object_get(item, "calls");
    *well_formed = json_array_size(calls) > 0;
    *right = json_array_size(calls) == json_array_size(wanted);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *want = json_array_get(wanted, i);
        json_t *have = call_arguments(call), *need = call_arguments(want);
        if (!call_well_formed(item, call, i, have)) *well_formed = false;
        if (strcmp(call_name(call), call_name(want)) || !object_equal(have, need)) *right = false;
        json_decref(have);
        json_decref(need);
    }
    *right = *right && *well_formed;
}

void wilson_interval(i64 right, i64 n, f64 *low, f64 *high) {
    const f64 z = 1.959963984540054;
    f64 p = (f64)right / (f64)n, zz = z * z / (f64)n;
    f64 middle = (p + zz / 2) / (1 + zz), half = z / (1 + zz) * sqrt(p * (1 - p) / (f64)n + zz / 4 / (f64)n);
    *low = right == 0 ? 0 : middle - half;
    *high = right == n ? 1 : middle + half;
}
