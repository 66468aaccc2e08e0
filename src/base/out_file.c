#include "base/out_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static status out_failed(const out_file *f, err *e) { return err_set(e, ST_IO, "%s: %s", f->path, strerror(errno)); }

status out_file_create(out_file *f, const char *path, u64 size, err *e) {
    f->fd = -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path ||
        snprintf(f->part, sizeof f->part, "%s.part", path) >= (int)sizeof f->part)
        return err_set(e, ST_LIMIT, "%.200s...: the path is too long", path);
    f->fd = open(f->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0) return out_failed(f, e);
    if (!size || fallocate(f->fd, 0, 0, (off_t)size) == 0) return ST_OK;
    if (errno != ENOSPC && errno != EFBIG && errno != EDQUOT) return ST_OK; /* the file system does not reserve */
    status st = out_failed(f, e);
    out_file_drop(f);
    return st;
}

status out_file_write(out_file *f, u64 at, const void *bytes, u64 n, err *e) {
    for (u64 done = 0; done < n;) {
        ssize_t put = pwrite(f->fd, (const u8 *)bytes + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return out_failed(f, e);
        done += (u64)put;
    }
    return ST_OK;
}

/* A rename that replaces nothing. Some file systems know only the other one. */
static int rename_new(const char *from, const char *to) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (access(to, F_OK) == 0) return errno = EEXIST, -1;
    return rename(from, to);
}

/* The name itself is on the disk once the folder is. */
static int sync_folder_of(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

status out_file_finish(out_file *f, err *e) {
    int bad = fsync(f->fd), fd = f->fd;
    status st = bad ? out_failed(f, e) : ST_OK;
    f->fd = -1;
    if (close(fd) != 0 && st == ST_OK) st = out_failed(f, e);
    if (st == ST_OK && rename_new(f->part, f->path) != 0) st = out_failed(f, e);
    if (st != ST_OK) return unlink(f->part), st;
    return sync_folder_of(f->path) ? out_failed(f, e) : ST_OK;
}

void out_file_drop(out_file *f) {
    if (f->fd < 0) return;
    close(f->fd);
    unlink(f->part);
    f->fd = -1;
}

status out_file_whole(const char *path, const void *bytes, u64 n, err *e) {
    out_file f;
    status st = out_file_create(&f, path, n, e);
    if (st != ST_OK) return st;
    st = out_file_write(&f, 0, bytes, n, e);
    if (st == ST_OK) return out_file_finish(&f, e);
    out_file_drop(&f);
    return st;
}
