#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Opens a regular file for reading. O_NONBLOCK keeps a named pipe from hanging the open. */
static int open_regular(const char *path, struct stat *sb, status *st, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, sb) != 0) {
        *st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(sb->st_mode)) {
        *st = err_set(e, ST_IO, "%s: not a regular file", path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

static i64 modified_ns(const struct stat *sb) { return sb->st_mtim.tv_sec * 1000000000 + sb->st_mtim.tv_nsec; }

status file_map_open(file_map *m, const char *path, err *e) {
    memset(m, 0, sizeof *m);
    struct stat sb;
    status st = ST_OK;
    int fd = open_regular(path, &sb, &st, e);
    if (fd < 0) return st;
    if (sb.st_size > 0) {
        void *p = mmap(NULL, (size_t)sb.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            st = err_set(e, ST_IO, "%s: cannot map %lld bytes: %s", path, (long long)sb.st_size, strerror(errno));
        else
            *m = (file_map){.data = p, .size = (u64)sb.st_size, .fd = fd, .modified_ns = modified_ns(&sb)};
    }
    if (!m->data) close(fd);
    return st;
}

status file_map_unchanged(const file_map *m, err *e) {
    struct stat sb;
    if (!m->data) return ST_OK;
    if (fstat(m->fd, &sb)) return err_set(e, ST_IO, "cannot be looked at: %s", strerror(errno));
    if ((u64)sb.st_size == m->size && modified_ns(&sb) == m->modified_ns) return ST_OK;
    return err_set(e, ST_IO, "has changed since it was opened");
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->size), close(m->fd);
    memset(m, 0, sizeof *m);
}

status file_map_read(const file_map *m, u64 at, u64 n, void *to, err *e) {
    for (u64 done = 0; done < n;) {
        ssize_t got = pread(m->fd, (u8 *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return err_set(e, ST_IO, "cannot read at byte %llu: %s", (unsigned long long)(at + done), strerror(errno));
        if (got == 0)
            return err_set(e, ST_IO, "is cut off: no byte %llu of the %llu when it was opened",
                           (unsigned long long)(at + done), (unsigned long long)m->size);
        done += (u64)got;
    }
    return ST_OK;
}

void file_map_read_exactly(const file_map *m) {
    if (m->data) posix_fadvise(m->fd, 0, 0, POSIX_FADV_RANDOM);
}

/* Appends what the open gzip file holds. Takes fd. */
static status file_unpack(int fd, const char *path, u64 max, buf *out, err *e) {
    enum { PIECE = 1 << 16 };
    size_t begin = out->len;
    status st = ST_OK;
    int n = 1;
    gzFile f = gzdopen(fd, "rb");
    if (!f) return close(fd), err_nomem(e, path, 0);
    while (st == ST_OK && n > 0) {
        if (!buf_reserve(out, PIECE)) {
            st = err_nomem(e, path, PIECE);
            break;
        }
        n = gzread(f, out->data + out->len, PIECE);
        if (n > 0) out->len += (size_t)n;
        if (out->len - begin > max)
            st = err_set(e, ST_LIMIT, "%s: more than the %llu bytes allowed", path, (unsigned long long)max);
        else if (n < 0 || gzdirect(f))
            st = err_set(e, ST_FORMAT, "%s: no gzip file, or a damaged one", path);
    }
    if (gzclose(f) != Z_OK && st == ST_OK) st = err_set(e, ST_FORMAT, "%s: cut off", path);
    if (out->data) out->data[out->len] = 0;
    return st;
}

static status read_packed(const char *path, u64 max, buf *out, err *e) {
    struct stat sb;
    status st = ST_OK;
    int fd = open_regular(path, &sb, &st, e);
    return fd < 0 ? st : file_unpack(fd, path, max, out, e);
}

status file_read(const char *path, u64 max, buf *out, err *e) {
    char packed[PATH_MAX];
    if (!file_exists(path) && snprintf(packed, sizeof packed, "%s.gz", path) < (int)sizeof packed &&
        file_exists(packed))
        return read_packed(packed, max, out, e);
    struct stat sb;
    status st = ST_OK;
    int fd = open_regular(path, &sb, &st, e);
    if (fd < 0) return st;
    if ((u64)sb.st_size > max) {
        st = err_set(e, ST_LIMIT, "%s: %lld bytes, more than the %llu allowed", path, (long long)sb.st_size,
                     (unsigned long long)max);
        goto done;
    }
    if (!buf_reserve(out, (size_t)sb.st_size)) {
        st = err_nomem(e, path, (u64)sb.st_size);
        goto done;
    }
    for (u64 left = (u64)sb.st_size; left > 0;) {
        ssize_t n = read(fd, out->data + out->len, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            st = err_set(e, ST_IO, "%s: %s", path, strerror(errno));
            break;
        }
        if (n == 0) break;
        out->len += (size_t)n;
        left -= (u64)n;
    }
    out->data[out->len] = 0;
done:
    close(fd);
    return st;
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

status path_join(char *out, size_t cap, const char *dir, const char *name, err *e) {
    int n = snprintf(out, cap, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= cap) return err_set(e, ST_LIMIT, "path too long: %s/%s", dir, name);
    return ST_OK;
}

bool path_is_plain_name(const char *name, size_t len) {
    if (len == 0 || memchr(name, '/', len) || memchr(name, 0, len)) return false;
    return !(len == 1 && name[0] == '.') && !(len == 2 && name[0] == '.' && name[1] == '.');
}
