/* tests/lib/counted_reads.h: pread() as the disk's own count of what was asked of it, and as a disk that fails. For
 * programs that are linked with --wrap=pread. */
#ifndef TESTS_COUNTED_READS_H
#define TESTS_COUNTED_READS_H
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct {
    atomic_ullong bytes; /* that came */
    atomic_llong left;   /* calls until `wrong` happens; below 0: never */
    void (*_Atomic wrong)(void);
    _Atomic int error;   /* unless 0, from then on, errno */
    _Atomic unsigned us; /* that every call takes */
} counted_reads;
static counted_reads disk = {.left = -1};

static inline void disk_reset(void) {
    disk.bytes = 0;
    disk.left = -1;
    disk.wrong = NULL;
    disk.error = 0;
    disk.us = 0;
}

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at) {
    if (atomic_fetch_sub(&disk.left, 1) == 0 && disk.wrong) disk.wrong();
    if (disk.us) usleep(disk.us);
    if (disk.error) return errno = disk.error, -1;
    ssize_t got = __real_pread(fd, to, n, at);
    if (got > 0) disk.bytes += (unsigned long long)got;
    return got;
}
#endif
