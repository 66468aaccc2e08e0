#include "format/index.h"
#include "base/buf.h"
#include "base/file.h"
#include "format/scan.h"
#include <stdlib.h>
#include <string.h>

static status index_fail_nomem(err *e) { return err_set(e, ST_NOMEM, "out of memory for the list of tensors"); }

/* ---- weight_map, with the shards' names as they come ---- */

typedef struct {
    shard_index *x;
    u64 cap;
    const char **files; /* [x->n] the shard's name of each entry */
} reader;

static bool add_entry(reader *r, const char *name, const char *file) {
    shard_index *x = r->x;
    if (x->n == r->cap) {
        u64 cap = r->cap ? 2 * r->cap : 256;
        index_entry *p = realloc(x->entries, cap * sizeof *p);
        if (p) x->entries = p;
        const char **f = realloc(r->files, cap * sizeof *f);
        if (f) r->files = f;
        if (!p || !f) return false;
        r->cap = cap;
    }
    r->files[x->n] = file;
    x->entries[x->n++] = (index_entry){.name = name};
    return true;
}

static status read_map(reader *r, scan *s, err *e) {
    bool first = true;
    if (!scan_char(s, '{')) return scan_result(s, e);
    while (scan_next(s, '}', &first)) {
        const char *name = scan_name(s, NULL), *file = NULL;
        u64 len = 0;
        if (name && scan_char(s, ':')) file = scan_name(s, &len);
        if (!file) return scan_result(s, e);
        if (!path_is_plain_name(file, len))
            return err_set(e, ST_FORMAT, "tensor \"%.100s\" lies in \"%.100s\", which is not a plain file name", name,
                           file);
        if (!add_entry(r, name, file)) return index_fail_nomem(e);
    }
    if (s->problem) return scan_result(s, e);
    return r->x->n ? ST_OK : err_set(e, ST_FORMAT, "weight_map is empty");
}

static status index_read_root(reader *r, scan *s, err *e) {
    bool first = true, seen = false;
    if (!scan_char(s, '{')) return scan_result(s, e);
    while (scan_next(s, '}', &first)) {
        const char *key = scan_name(s, NULL);
        if (!key || !scan_char(s, ':')) break;
        if (strcmp(key, "weight_map") != 0) {
            if (!scan_skip_value(s)) break;
            continue;
        }
        if (seen) return err_set(e, ST_FORMAT, "\"weight_map\" occurs twice");
        seen = true;
        status st = read_map(r, s, e);
        if (st != ST_OK) return st;
    }
    scan_at_end(s);
    if (s->problem) return scan_result(s, e);
    return seen ? ST_OK : err_set(e, ST_FORMAT, "no \"weight_map\"");
}

/* ---- the set of shards ---- */

static int by_string(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Sorts names[n] and drops what occurs twice; returns how many are left. */
static u64 make_set(const char **names, u64 n) {
    qsort(names, n, sizeof *names, by_string);
    u64 k = 0;
    for (u64 i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[k - 1]) != 0) names[k++] = names[i];
    return k;
}

/* Copies the names, so that they outlive the text. */
static bool keep_shards(shard_index *x, const char **names, u64 n) {
    u64 bytes = 0;
    for (u64 i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
    x->shards = calloc(n, sizeof *x->shards);
    x->shard_text = malloc(bytes);
    if (!x->shards || !x->shard_text) return false;
    char *p = x->shard_text;
    for (u64 i = 0; i < n; i++) {
        size_t len = strlen(names[i]) + 1;
        x->shards[i] = memcpy(p, names[i], len);
        p += len;
    }
    x->n_shards = (int)n;
    return true;
}

static status number_shards(reader *r, err *e) {
    shard_index *x = r->x;
    const char **set = malloc(x->n * sizeof *set);
    if (!set) return index_fail_nomem(e);
    u64 n = 0; /* entries of one shard mostly stand together */
    for (u64 i = 0; i < x->n; i++)
        if (i == 0 || strcmp(r->files[i], r->files[i - 1]) != 0) set[n++] = r->files[i];
    n = make_set(set, n);
    status st = ST_OK;
    if (n > INDEX_SHARDS_MAX)
        st = err_set(e, ST_LIMIT, "%llu shards, more than %d", (unsigned long long)n, INDEX_SHARDS_MAX);
    else if (!keep_shards(x, set, n))
        st = index_fail_nomem(e);
    free(set);
    for (u64 i = 0; i < x->n && st == ST_OK; i++) {
        if (i && strcmp(r->files[i], r->files[i - 1]) == 0) {
            x->entries[i].shard = x->entries[i - 1].shard;
            continue;
        }
        const char **at = bsearch(&r->files[i], x->shards, (size_t)x->n_shards, sizeof *at, by_string);
        x->entries[i].shard = (int)(at - x->shards);
    }
    return st;
}

/* ---- in and out ---- */

/* Takes `text` over. */
static status parse_owned(shard_index *x, char *text, u64 len, const char *what, err *e) {
    memset(x, 0, sizeof *x);
    x->text = text;
    reader r = {.x = x};
    scan s = scan_text(text, len);
    status st = index_read_root(&r, &s, e);
    if (st == ST_OK) st = number_shards(&r, e);
    free(r.files);
    if (st != ST_OK) err_prefix(e, "%s", what);
    return st;
}

status index_parse(shard_index *x, const char *text, u64 len, const char *what, err *e) {
    memset(x, 0, sizeof *x);
    char *copy = malloc(len + 1);
    if (!copy) return index_fail_nomem(e);
    memcpy(copy, text, len);
    return parse_owned(x, copy, len, what, e);
}

status index_read(shard_index *x, const char *path, err *e) {
    memset(x, 0, sizeof *x);
    buf text = {0};
    status st = file_read(path, INDEX_BYTES_MAX, &text, e);
    u64 len = text.len;
    if (st == ST_OK) return parse_owned(x, buf_take(&text), len, path, e);
    buf_free(&text);
    return st;
}

status index_single(shard_index *x, const char *shard, err *e) {
    memset(x, 0, sizeof *x);
    return keep_shards(x, &shard, 1) ? ST_OK : index_fail_nomem(e);
}

void index_drop_entries(shard_index *x) {
    free(x->entries);
    free(x->text);
    x->entries = NULL;
    x->text = NULL;
    x->n = 0;
}

void index_free(shard_index *x) {
    index_drop_entries(x);
    free(x->shards);
    free(x->shard_text);
    memset(x, 0, sizeof *x);
}
