#include "format/checkpoint.h"
#include "base/file.h"
#include "format/index.h"
#include "format/names.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

typedef struct {
    file_map map;
    safetensors st; /* its `tensors` move into checkpoint.tensors; the names stay here */
} shard_file;

struct checkpoint {
    shard_index index;    /* without an index file: no entries, one shard */
    shard_file *shards;   /* [index.n_shards] */
    tensor_info *tensors; /* [n], sorted by name */
    u64 n, n_unlisted, bytes;
    name_table names; /* of tensors */
};

static status checkpoint_fail_nomem(err *e, const char *dir) {
    return err_set(e, ST_NOMEM, "%s: out of memory for the list of tensors", dir);
}

/* ---- the shards ---- */

static status open_shard(checkpoint *c, int i, const char *dir, err *e) {
    shard_file *s = &c->shards[i];
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, dir, c->index.shards[i], e);
    if (st == ST_OK) st = file_map_open(&s->map, path, e);
    if (st != ST_OK) return st;
    st = safetensors_parse(&s->st, s->map.data, s->map.size, e);
    if (st != ST_OK) err_prefix(e, "%s", path);
    return st;
}

/* Does the index place this tensor in this shard? Without an index every tensor is where it should be. */
static bool is_listed(checkpoint *c, const name_table *listed, const tensor_info *t) {
    if (!c->index.entries) return true;
    i64 at = names_find(listed, t->name);
    if (at < 0 || c->index.entries[at].shard != t->shard) return false;
    c->index.entries[at].found = true;
    return true;
}

/* Takes the shards' tensors over; with an index only those that it places where they are. */
static status checkpoint_gather(checkpoint *c, const name_table *listed, const char *dir, err *e) {
    u64 total = 0;
    for (int i = 0; i < c->index.n_shards; i++) total += c->shards[i].st.n;
    c->tensors = malloc((total ? total : 1) * sizeof *c->tensors);
    if (!c->tensors) return checkpoint_fail_nomem(e, dir);
    for (int i = 0; i < c->index.n_shards; i++) {
        safetensors *s = &c->shards[i].st;
        for (u64 k = 0; k < s->n; k++) {
            s->tensors[k].shard = i;
            if (is_listed(c, listed, &s->tensors[k])) {
                c->tensors[c->n++] = s->tensors[k];
                c->bytes += s->tensors[k].bytes;
            } else {
                c->n_unlisted++;
            }
        }
        free(s->tensors);
        s->tensors = NULL;
    }
    for (u64 i = 0; i < c->index.n; i++)
        if (!c->index.entries[i].found)
            return err_set(e, ST_FORMAT, "%s/" INDEX_NAME ": tensor \"%.200s\" is not in its shard %.100s", dir,
                           c->index.entries[i].name, c->index.shards[c->index.entries[i].shard]);
    return ST_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const tensor_info *)a)->name, ((const tensor_info *)b)->name);
}

static status sort_tensors(checkpoint *c, const char *dir, err *e) {
    i64 twice;
    qsort(c->tensors, c->n, sizeof *c->tensors, by_name);
    return names_build(&c->names, c->tensors, sizeof *c->tensors, c->n, &twice) ? ST_OK : checkpoint_fail_nomem(e, dir);
}

/* ---- the folder ---- */

/* The list of shards, from the index file or the one file that stands alone. */
static status find_shards(checkpoint *c, const char *dir, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, dir, INDEX_NAME, e);
    if (st != ST_OK) return st;
    if (file_exists(path)) return index_read(&c->index, path, e);
    if ((st = path_join(path, sizeof path, dir, SINGLE_NAME, e)) != ST_OK) return st;
    if (!file_exists(path))
        return err_set(e, ST_IO, "%s: neither " INDEX_NAME " nor " SINGLE_NAME " in this folder", dir);
    return index_single(&c->index, SINGLE_NAME, e);
}

static status checkpoint_open_all(checkpoint *c, const char *dir, err *e) {
    status st = find_shards(c, dir, e);
    if (st != ST_OK) return st;
    name_table listed;
    i64 twice;
    if (!names_build(&listed, c->index.entries, sizeof *c->index.entries, c->index.n, &twice))
        return checkpoint_fail_nomem(e, dir);
    c->shards = calloc((size_t)c->index.n_shards, sizeof *c->shards);
    if (!c->shards) st = checkpoint_fail_nomem(e, dir);
    if (twice >= 0)
        st = err_set(e, ST_FORMAT, "%s/" INDEX_NAME ": tensor \"%.200s\" occurs twice", dir,
                     c->index.entries[twice].name);
    for (int i = 0; i < c->index.n_shards && st == ST_OK; i++) st = open_shard(c, i, dir, e);
    if (st == ST_OK) st = checkpoint_gather(c, &listed, dir, e);
    if (st == ST_OK) st = sort_tensors(c, dir, e);
    names_free(&listed);
    index_drop_entries(&c->index);
    return st;
}

status checkpoint_open(checkpoint **out, const char *dir, err *e) {
    *out = NULL;
    checkpoint *c = calloc(1, sizeof *c);
    if (!c) return checkpoint_fail_nomem(e, dir);
    status st = checkpoint_open_all(c, dir, e);
    if (st == ST_OK)
        *out = c;
    else
        checkpoint_close(c);
    return st;
}

void checkpoint_close(checkpoint *c) {
    if (!c) return;
    for (int i = 0; c->shards && i < c->index.n_shards; i++) {
        file_map_close(&c->shards[i].map);
        safetensors_free(&c->shards[i].st);
    }
    names_free(&c->names);
    index_free(&c->index);
    free(c->shards);
    free(c->tensors);
    free(c);
}

status checkpoint_unchanged(const checkpoint *c, err *e) {
    for (int i = 0; i < c->index.n_shards; i++) {
        const status st = file_map_unchanged(&c->shards[i].map, e);
        if (st != ST_OK) return err_prefix(e, "%s", c->index.shards[i]);
    }
    return ST_OK;
}

const tensor_info *checkpoint_find(const checkpoint *c, const char *name) {
    i64 i = names_find(&c->names, name);
    return i < 0 ? NULL : &c->tensors[i];
}

status checkpoint_read(const checkpoint *c, const tensor_info *t, u64 at, u64 n, void *to, err *e) {
    const file_map *m = &c->shards[t->shard].map;
    status st = file_map_read(m, (u64)(t->data - m->data) + at, n, to, e);
    if (st != ST_OK) err_prefix(e, "%s", c->index.shards[t->shard]);
    return st;
}

void checkpoint_read_exactly(const checkpoint *c) {
    for (int i = 0; i < c->index.n_shards; i++) file_map_read_exactly(&c->shards[i].map);
}

u64 checkpoint_n_tensors(const checkpoint *c) { return c->n; }
const tensor_info *checkpoint_tensor(const checkpoint *c, u64 i) { return &c->tensors[i]; }
int checkpoint_n_shards(const checkpoint *c) { return c->index.n_shards; }
const char *checkpoint_shard_name(const checkpoint *c, int shard) { return c->index.shards[shard]; }
u64 checkpoint_bytes(const checkpoint *c) { return c->bytes; }
u64 checkpoint_n_unlisted(const checkpoint *c) { return c->n_unlisted; }
