/* base/file.h: files by mapping or by reading, and paths that stay inside a folder. */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping of a whole regular file. `data` is NULL when the file is empty. */
typedef struct {
    const u8 *data;
    u64 size;
    int fd;          /* of the mapped file, while data is there */
    i64 modified_ns; /* when the file was last written before it was opened */
} file_map;

/* Maps `path`. Anything but a regular file (a folder, a pipe, a device) is an error. */
status file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);
/* Bytes [at, at + n) of the file itself into `to`, not through the mapping: a disk that fails, or a file that was cut
 * since, is ST_IO with the offset (the file's name is the caller's to add), where the mapping would be a signal. Any
 * thread. */
status file_map_read(const file_map *m, u64 at, u64 n, void *to, err *e);
/* ST_IO: the file has been written, or has another size, since it was opened (the name is the caller's to add). */
status file_map_unchanged(const file_map *m, err *e);
/* From here on file_map_read() fetches what it is asked for and nothing behind it. */
void file_map_read_exactly(const file_map *m);

/* Appends the whole file to *out; more than `max` bytes is an error that says so. Where there is no `path` but a
 * `path`.gz, that is unpacked: then `max` is of what is in it, and a damaged or cut file is ST_FORMAT. On failure *out
 * may have grown. */
status file_read(const char *path, u64 max, buf *out, err *e);
bool file_exists(const char *path); /* any kind of existing entry */

/* dir + "/" + name into out[cap]; ST_LIMIT when it does not fit. */
status path_join(char *out, size_t cap, const char *dir, const char *name, err *e);
/* True when `name`, taken out of a file, is a plain file name: not empty, no '/', no NUL, not "." or "..". */
bool path_is_plain_name(const char *name, size_t len);

#endif
