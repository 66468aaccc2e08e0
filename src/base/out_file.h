/* base/out_file.h: a file that appears under its name only when it is whole.
 *
 * It is written as PATH.part, made safe on the disk, then renamed. A file that has the name already is never replaced.
 * Errors name the path and what the system said (a full disk: "No space left on device"). */
#ifndef BASE_OUT_FILE_H
#define BASE_OUT_FILE_H
#include "base/err.h"
#include <limits.h>

typedef struct {
    int fd;              /* -1: none is open */
    char path[PATH_MAX]; /* of the whole file */
    char part[PATH_MAX]; /* of what there is so far */
} out_file;

/* Begins the file; a PATH.part that is left of an earlier try is begun anew. size: what it will have, reserved at once
 * where the file system can, so that a disk without room says so before the work; 0: not known. */
status out_file_create(out_file *f, const char *path, u64 size, err *e);
status out_file_write(out_file *f, u64 at, const void *bytes, u64 n, err *e);
/* Whole: synced, renamed, and the folder synced. After a failure nothing of the file is left. */
status out_file_finish(out_file *f, err *e);
/* Away with what was not finished; nothing after out_file_finish(). */
void out_file_drop(out_file *f);

/* All of it at once. */
status out_file_whole(const char *path, const void *bytes, u64 n, err *e);

#endif
