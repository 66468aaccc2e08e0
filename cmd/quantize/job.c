/* cmd/quantize/job.c: see the header. */
#include "cmd/quantize/job.h"
#include "base/file.h"
#include "base/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOB_NAME      "quantize-job.jsonl"
#define JOB_BYTES_MAX (256u << 20)

/* ---- sums ---- */

status sums_table_make(sums_table *t, i64 layers, err *e) {
    *t = (sums_table){calloc((size_t)(layers + 1) * MC_COUNT, sizeof *t->at), layers};
    return t->at ? ST_OK : err_nomem(e, "the errors by layer", 0);
}

class_sums *sums_table_at(const sums_table *t, int layer, matrix_class c) {
    i64 row = layer < 0 || layer >= t->layers ? t->layers : layer; /* layers behind the last are of no use to a model */
    return &t->at[row * MC_COUNT + (i64)c];
}

void sums_table_free(sums_table *t) {
    free(t->at);
    *t = (sums_table){0};
}

/* ---- the first line ---- */

static void add_str(buf *b, const char *key, const char *value) {
    buf_fmt(b, "\"%s\": ", key);
    buf_json_str(b, value, strlen(value));
    buf_str(b, ", ");
}

/* A file's `name`, size and time. */
static status add_stamp(buf *b, const char *path, const char *name, err *e) {
    struct stat sb;
    if (stat(path, &sb) != 0) return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    buf_str(b, "[");
    buf_json_str(b, name, strlen(name));
    buf_fmt(b, ", %lld, %lld.%09ld]", (long long)sb.st_size, (long long)sb.st_mtim.tv_sec, sb.st_mtim.tv_nsec);
    return ST_OK;
}

static status add_source_file(buf *b, const char *dir, const char *name, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, dir, name, e);
    return st == ST_OK ? add_stamp(b, path, name, e) : st;
}

static status add_calibration(const quantize_job_file *j, buf *b, err *e) {
    if (!j->calibrate) return ST_OK;
    buf_fmt(b, "\"calibration_tokens\": %lld, \"window\": %lld, \"calibrate\": ", (long long)j->calibration_tokens,
            (long long)j->calibration_window);
    status st = add_stamp(b, j->calibrate, j->calibrate, e);
    buf_str(b, ", ");
    return st;
}

static status describe(const quantize_job_file *j, const checkpoint *ck, buf *b, err *e) {
    buf_str(b, "{");
    add_str(b, "moonlet", MOON_VERSION);
    add_str(b, "format", j->format);
    add_str(b, "only", j->only);
    status st = add_calibration(j, b, e);
    if (st != ST_OK) return st;
    buf_fmt(b, "\"shard_bytes\": %llu, \"shards\": %llu, \"source\": [", (unsigned long long)j->shard_bytes,
            (unsigned long long)j->n_shards);
    for (int i = 0; i < checkpoint_n_shards(ck); i++) {
        if (i) buf_str(b, ", ");
        st = add_source_file(b, j->source, checkpoint_shard_name(ck, i), e);
        if (st != ST_OK) return st;
    }
    buf_str(b, "]}\n");
    return b->failed ? err_nomem(e, "the job's description", b->len) : ST_OK;
}

/* ---- a shard's line ---- */

static bool used(const class_sums *s) { return s->matrices > 0; }

static void add_row(buf *b, i64 layer, int class, const class_sums *s) {
    buf_fmt(b, "[%lld, %d, %llu, %llu, %llu, %llu, %.17g, %.17g, %.17g, %.17g, %.17g]", (long long)layer, class,
            (unsigned long long)s->matrices, (unsigned long long)s->made, (unsigned long long)s->bytes_in,
            (unsigned long long)s->bytes_out, s->sums.error, s->sums.energy, s->sums.results.nearest,
            s->sums.results.done, s->sums.results.energy);
}

status job_add_line(quantize_job_file *j, u64 i, const sums_table *t, err *e) {
    buf b = {0};
    const char *sep = "";
    buf_fmt(&b, "{\"shard\": %llu, \"sums\": [", (unsigned long long)i);
    for (i64 k = 0; k < (t->layers + 1) * MC_COUNT; k++) {
        if (!used(&t->at[k])) continue;
        buf_str(&b, sep);
        add_row(&b, k / MC_COUNT, (int)(k % MC_COUNT), &t->at[k]);
        sep = ", ";
    }
    buf_str(&b, "]}\n");
    status st = b.failed ? err_nomem(e, "a shard's line", b.len) : ST_OK;
    if (st == ST_OK && (write(j->fd, b.data, b.len) != (ssize_t)b.len || fsync(j->fd) != 0))
        st = err_set(e, ST_IO, "%s/" JOB_NAME ": %s", j->folder, strerror(errno));
    buf_free(&b);
    return st;
}

static u64 count_at(const json_t *row, size_t i) { return (u64)json_integer_value(json_array_get(row, i)); }

static status take_row(const json_t *row, const sums_table *all, err *e) {
    const u64 layer = count_at(row, 0), class = count_at(row, 1);
    if (json_array_size(row) != 11 || layer > (u64)all->layers || class >= MC_COUNT)
        return err_set(e, ST_FORMAT, "not the sums of a shard");
    class_sums *s = &all->at[layer * MC_COUNT + class];
    s->matrices += count_at(row, 2), s->made += count_at(row, 3);
    s->bytes_in += count_at(row, 4), s->bytes_out += count_at(row, 5);
    const f64 *x =
        (f64[5]){json_f64(json_array_get(row, 6)), json_f64(json_array_get(row, 7)), json_f64(json_array_get(row, 8)),
                 json_f64(json_array_get(row, 9)), json_f64(json_array_get(row, 10))};
    quantize_sums_add(&s->sums, &(quantize_sums){x[0], x[1], {x[2], x[3], x[4]}});
    return ST_OK;
}

/* A line counts when its shard is there; of several for one shard the first is as good as any. */
static status take_line(quantize_job_file *j, const char *line, size_t n, const sums_table *all, err *e) {
    char name[64], path[PATH_MAX];
    json_t *v = json_parse(line, n, JOB_NAME, e), *row;
    if (!v) return e->code;
    i64 shard = -1;
    size_t i;
    status st = json_get_i64(v, "shard", 0, (i64)j->n_shards - 1, true, &shard, e);
    if (st == ST_OK) job_shard_name(j, (u64)shard, name), st = path_join(path, sizeof path, j->folder, name, e);
    if (st == ST_OK && !j->done[shard] && file_exists(path)) {
        j->done[shard] = true;
        json_array_foreach(json_object_get(v, "sums"), i, row) if (st == ST_OK) st = take_row(row, all, e);
    }
    json_decref(v);
    return st;
}

/* ---- the folder ---- */

void job_shard_name(const quantize_job_file *j, u64 i, char out[64]) {
    snprintf(out, 64, "model-%05llu-of-%06llu.safetensors", (unsigned long long)i + 1, (unsigned long long)j->n_shards);
}

/* An entry that is not the job's; "" where there is none. */
static status find_stranger(const char *folder, char out[256], err *e) {
    DIR *d = opendir(folder);
    if (!d) return err_set(e, ST_IO, "%s: %s", folder, strerror(errno));
    out[0] = 0;
    for (struct dirent *x; !out[0] && (x = readdir(d));)
        if (strcmp(x->d_name, ".") && strcmp(x->d_name, "..")) snprintf(out, 256, "%s", x->d_name);
    closedir(d);
    return ST_OK;
}

static status same_folder(const char *a, const char *b, err *e) {
    struct stat x, y;
    if (stat(a, &x) || stat(b, &y) || x.st_dev != y.st_dev || x.st_ino != y.st_ino) return ST_OK;
    return err_set(e, ST_INPUT, "%s: the source and the folder to write are the same", b);
}

/* A new job in an empty folder. */
static status job_begin(quantize_job_file *j, const char *path, const buf *head, err *e) {
    char there[256];
    status st = find_stranger(j->folder, there, e);
    if (st != ST_OK) return st;
    if (there[0])
        return err_set(e, ST_INPUT,
                       "%s holds %.60s: give a folder that does not exist, an empty one, or one of a stopped run",
                       j->folder, there);
    j->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (j->fd < 0 || write(j->fd, head->data, head->len) != (ssize_t)head->len || fsync(j->fd) != 0) {
        st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
        if (j->fd >= 0) unlink(path); /* half a line would be nobody's job */
        return st;
    }
    return ST_OK;
}

static status lock(quantize_job_file *j, err *e) {
    if (flock(j->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return ST_OK; /* not every system has locks */
    return err_set(e, ST_INPUT, "%s: another run is writing to this folder", j->folder);
}

/* What is there goes on if it is this job. A last line without its end was being written when the run was stopped. */
static status go_on(quantize_job_file *j, const char *path, const buf *head, const sums_table *all, err *e) {
    buf text = {0};
    j->fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (j->fd < 0) return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    status st = lock(j, e);
    if (st == ST_OK) st = file_read(path, JOB_BYTES_MAX, &text, e);
    if (st == ST_OK && (text.len < head->len || memcmp(text.data, head->data, head->len) != 0))
        st = err_set(e, ST_INPUT,
                     "%s holds the stopped run of another job (another source, format or option; its first line in "
                     "" JOB_NAME " says which): finish that, or remove the folder",
                     j->folder);
    size_t at = head->len;
    for (const char *end; st == ST_OK && at < text.len && (end = memchr(text.data + at, '\n', text.len - at));) {
        st = take_line(j, text.data + at, (size_t)(end - text.data) - at, all, e);
        at = (size_t)(end - text.data) + 1;
    }
    if (st == ST_OK && at < text.len && ftruncate(j->fd, (off_t)at) != 0)
        st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    buf_free(&text);
    j->resumed = true;
    return st;
}

status job_open(quantize_job_file *j, const checkpoint *ck, const sums_table *all, err *e) {
    char path[PATH_MAX];
    buf head = {0};
    j->fd = -1;
    j->done = calloc(j->n_shards + 1, sizeof *j->done);
    status st = j->done ? same_folder(j->source, j->folder, e) : err_nomem(e, "the list of shards", j->n_shards);
    if (st == ST_OK) st = path_join(path, sizeof path, j->folder, JOB_NAME, e);
    if (st == ST_OK) st = describe(j, ck, &head, e);
    if (st == ST_OK && mkdir(j->folder, 0777) != 0 && errno != EEXIST)
        st = err_set(e, ST_IO, "%s: %s", j->folder, strerror(errno));
    if (st == ST_OK && file_exists(path))
        st = go_on(j, path, &head, all, e);
    else if (st == ST_OK)
        st = job_begin(j, path, &head, e), st = st == ST_OK ? lock(j, e) : st;
    buf_free(&head);
    return st;
}

void job_close(quantize_job_file *j) {
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
    free(j->done);
    j->done = NULL;
}

status job_end(quantize_job_file *j, err *e) {
    char path[PATH_MAX];
    status st = path_join(path, sizeof path, j->folder, JOB_NAME, e);
    if (st == ST_OK && unlink(path) != 0) st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    return st;
}
