/* cmd/quantize/folder.c: see the header. */
#include "cmd/quantize/folder.h"
#include "base/file.h"
#include "base/json.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_FILE "model.safetensors.index.json"
enum { PIECE = 1 << 20 };

status folder_write(const quantize_job_file *j, const char *name, const char *text, u64 n, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, j->folder, name, e);
    if (st != ST_OK || (j->resumed && file_exists(path))) return st;
    return out_file_whole(path, text, n, e);
}

status folder_take_back(const quantize_job_file *j, const char *name, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, j->folder, name, e);
    if (st == ST_OK && j->resumed && unlink(path) != 0 && errno != ENOENT)
        st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    return st;
}

/* ---- what is copied ---- */

static bool has_ending(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* Weights, what says how they lie, and what this program writes itself. */
static bool is_left_out(const char *name) {
    static const char *const whole[] = {"config.json",          "config.json.gz",     INDEX_FILE,
                                        "hf_quant_config.json", "quantize-job.jsonl", "quantize-report.md",
                                        "quantize-report.svg"};
    static const char *const endings[] = {".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".gguf"};
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        if (!strcmp(name, whole[i])) return true;
    for (size_t i = 0; i < COUNT_OF(endings); i++)
        if (has_ending(name, endings[i])) return true;
    return name[0] == '.';
}

static status copy_bytes(const file_map *from, out_file *to, err *e) {
    u8 *piece = malloc(PIECE);
    status st = piece ? ST_OK : err_nomem(e, "a file to copy", PIECE);
    for (u64 at = 0; st == ST_OK && at < from->size; at += PIECE) {
        u64 n = (u64)min_i64(PIECE, (i64)(from->size - at));
        st = file_map_read(from, at, n, piece, e);
        if (st == ST_OK) st = out_file_write(to, at, piece, n, e);
    }
    free(piece);
    return st;
}

static status copy_file(const char *from, const char *to, err *e) {
    file_map m;
    out_file f;
    status st = file_map_open(&m, from, e);
    if (st != ST_OK) return st;
    st = out_file_create(&f, to, m.size, e);
    if (st == ST_OK) {
        st = copy_bytes(&m, &f, e);
        if (st == ST_OK)
            st = out_file_finish(&f, e);
        else
            out_file_drop(&f);
    }
    file_map_close(&m);
    return st;
}

static status copy_entry(const quantize_job_file *j, const char *name, err *e) {
    char from[PATH_MAX], to[PATH_MAX];
    struct stat sb;
    status st = path_join(from, sizeof from, j->source, name, e);
    if (st == ST_OK) st = path_join(to, sizeof to, j->folder, name, e);
    if (st != ST_OK || stat(from, &sb) != 0 || !S_ISREG(sb.st_mode)) return st; /* links lead into a cache */
    if (j->resumed && file_exists(to)) return ST_OK;
    return copy_file(from, to, e);
}

status folder_copy_files(const quantize_job_file *j, err *e) {
    DIR *d = opendir(j->source);
    if (!d) return err_set(e, ST_IO, "%s: %s", j->source, strerror(errno));
    status st = ST_OK;
    for (struct dirent *x; st == ST_OK && (x = readdir(d));)
        if (!is_left_out(x->d_name)) st = copy_entry(j, x->d_name, e);
    closedir(d);
    return st;
}

/* ---- the index ---- */

typedef struct {
    const char *name;
    u64 shard;
} placed;

static int by_placed_name(const void *a, const void *b) {
    return strcmp(((const placed *)a)->name, ((const placed *)b)->name);
}

static void index_text(const quantize_job_file *j, const placed *all, u64 n, u64 bytes, buf *b) {
    char shard[64];
    buf_fmt(b, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n  \"weight_map\": {", (unsigned long long)bytes);
    for (u64 i = 0; i < n; i++) {
        job_shard_name(j, all[i].shard, shard);
        buf_str(b, i ? ",\n    " : "\n    ");
        buf_json_str(b, all[i].name, strlen(all[i].name));
        buf_fmt(b, ": \"%s\"", shard);
    }
    buf_str(b, "\n  }\n}\n");
}

status folder_write_index(const quantize_job_file *j, const quantize_plan *p, err *e) {
    placed *all = malloc((p->n_out + 1) * sizeof *all);
    buf b = {0};
    if (!all) return err_nomem(e, "the index", p->n_out * sizeof *all);
    for (u64 s = 0, n = 0; s < p->n_shards; s++)
        for (u64 k = p->shards[s]; k < p->shards[s + 1]; k++)
            for (u64 i = 0; i < p->pieces[k].n; i++, n++) all[n] = (placed){p->out[n].name, s};
    qsort(all, p->n_out, sizeof *all, by_placed_name);
    index_text(j, all, p->n_out, p->bytes_out, &b);
    status st = b.failed ? err_nomem(e, "the index", b.len) : folder_write(j, INDEX_FILE, b.data, b.len, e);
    buf_free(&b);
    free(all);
    return st;
}
