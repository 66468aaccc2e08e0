/* cmd/eval/eval_formats.c: `moonlet eval formats`: what a weight format costs, by what the model predicts on a text:
 * each checkpoint beside the master (cmd/lib/compare_formats.h). */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/lib/compare_formats.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    model_opts m;
    compare_options o;
    opt_list folders;
    const char *json_path, *markdown_path;
    FILE *json_file, *markdown_file; /* opened before the work begins */
    comparison c;
} formats;

static bool is_checkpoint(const char *folder) {
    char path[PATH_MAX];
    return path_join(path, sizeof path, folder, "config.json", NULL) == ST_OK &&
           (file_exists(path) ||
            (path_join(path, sizeof path, folder, "config.json.gz", NULL) == ST_OK && file_exists(path)));
}

static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int is_not_hidden(const struct dirent *d) { return d->d_name[0] != '.'; }

/* The checkpoints in a folder, by name; the master is not compared with itself. */
static status add_inner(formats *f, const char *folder, err *e) {
    struct dirent **names = NULL;
    char path[PATH_MAX];
    const i64 before = f->c.n;
    bool met = false;
    const int n = scandir(folder, &names, is_not_hidden, alphasort);
    if (n < 0) return err_set(e, ST_IO, "%s: %s", folder, strerror(errno));
    status st = ST_OK;
    for (int i = 0; i < n; i++) {
        if (st == ST_OK) st = path_join(path, sizeof path, folder, names[i]->d_name, e);
        if (st == ST_OK && is_checkpoint(path)) {
            if (is_same_folder(path, f->c.rows[0].path))
                met = true;
            else
                st = comparison_add(&f->c, path, e);
        }
        free(names[i]);
    }
    free(names);
    if (st == ST_OK && f->c.n == before)
        st = err_set(e, ST_INPUT, "%s: neither a checkpoint nor a folder of checkpoints%s", folder,
                     met ? " other than the master" : "");
    return st;
}

static status add_folders(formats *f, err *e) {
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < f->folders.n; i++) {
        const char *folder = f->folders.items[i];
        st = is_checkpoint(folder) ? comparison_add(&f->c, folder, e) : add_inner(f, folder, e);
    }
    return st;
}

static status eval_formats_report(const formats *f, err *e) {
    buf table = {0}, json = {0};
    compare_table(&f->c, &table);
    compare_json(&f->c, &json);
    status st = table.failed || json.failed ? err_nomem(e, "the table", table.len) : ST_OK;
    if (st == ST_OK) fputs(table.data, stdout);
    if (st == ST_OK && f->markdown_file) fputs(table.data, f->markdown_file);
    if (st == ST_OK && f->json_file) fputs(json.data, f->json_file);
    buf_free(&table);
    buf_free(&json);
    return st;
}

static status eval_formats_run(formats *f, err *e) {
    status st = model_opts_finish(&f->m, e);
    if (st == ST_OK) st = comparison_open(&f->c, &f->m, &f->o, e);
    if (st == ST_OK) st = add_folders(f, e);
    if (st == ST_OK) st = eval_create(&f->json_file, f->json_path, e);
    if (st == ST_OK) st = eval_create(&f->markdown_file, f->markdown_path, e);
    if (st == ST_OK) st = comparison_run(&f->c, e);
    return st == ST_OK ? eval_formats_report(f, e) : st;
}

int eval_formats(int argc, char **argv) {
    formats f = {.json_path = NULL};
    const opt_spec specs[] = {
        MODEL_OPTS(f.m),
        OPT_GROUP("Text"),
        COMPARE_OPTS(f.o),
        OPT_GROUP("Results"),
        {"json", 0, OPT_STR, &f.json_path, "FILE", "writes all digits as JSON", 0, 0},
        {"markdown", 0, OPT_STR, &f.markdown_path, "FILE", "writes the table that is printed", 0, 0},
    };
    int exit_status = cmd_options("eval formats", "-m MASTER CHECKPOINT|FOLDER ... [options]", specs, COUNT_OF(specs),
                                  argc, argv, &f.folders);
    if (exit_status >= 0) return exit_status;
    if (!f.folders.n) {
        fprintf(stderr, "moonlet eval formats: which checkpoints? One or several, or a folder that holds them\n");
        return EXIT_USAGE;
    }
    compare_defaults(&f.o);
    err e = {0};
    status st = eval_formats_run(&f, &e);
    eval_close(f.json_file, f.json_path, &st, &e);
    eval_close(f.markdown_file, f.markdown_path, &st, &e);
    comparison_close(&f.c);
    return st == ST_OK ? EXIT_DONE : cmd_fail("eval formats", &e);
}
