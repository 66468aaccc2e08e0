/* base/file.h: files by mapping or by reading, and paths that stay inside a folder. */
#ifndef BASE_FILE_H
#define BASE_FILE_H
#include "base/buf.h"
#include "base/err.h"

/* A read-only mapping of a whole regular file. `data` is NULL when the file is empty. */
typedef struct {
    const u8 *data;
    u64 size;
} file_map;

/* Maps `path`. Anything but a regular file (a folder, a pipe, a device) is an error. */
status file_map_open(file_map *m, const char *path, err *e);
void file_map_close(file_map *m);
/* Of a mapping, n bytes from p will soon be read: the disk may begin. A hint, which costs speed alone where it is
 * refused. */
void file_map_soon(const void *p, u64 n);

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
