/* What moonlet-video has given up when it begins to read: a process that did so has its memory, its threads and its
 * three descriptors, and nothing else. */
#include "unit.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED
#endif
#include "video/confine.c"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef SANITIZED
static void *a_thread(void *ud) { return ud; }

/* 0, or the number of the first thing that could be done, or of what could not and should. */
static int try_all(long victim_pid, void *victim) {
    char value[8] = "1234567";
    const struct iovec from = {value, 8}, to = {victim, 8};
    pthread_t t;
    int n = 1;
#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if ((call) >= 0 || errno != EPERM) return n;                                                                   \
        n++;                                                                                                           \
    } while (0)
    REFUSED(syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0));
    REFUSED(syscall(SYS_open, "/etc/passwd", O_RDONLY, 0));
    REFUSED(syscall(SYS_socket, 2, 1, 0));
    REFUSED(syscall(SYS_fork));
    REFUSED(syscall(SYS_vfork));
    REFUSED(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    REFUSED(syscall(SYS_execve, "/bin/true", NULL, NULL));
    REFUSED(syscall(SYS_kill, victim_pid, 0));
    REFUSED(syscall(SYS_process_vm_writev, victim_pid, &from, 1UL, &to, 1UL, 0UL));
    REFUSED(syscall(SYS_process_vm_readv, victim_pid, &from, 1UL, &to, 1UL, 0UL));
    REFUSED(syscall(SYS_ptrace, 16, victim_pid, 0, 0));
    REFUSED(syscall(SYS_prlimit64, victim_pid, RLIMIT_CPU, NULL, NULL));
    REFUSED(syscall(SYS_pidfd_open, victim_pid, 0));
    REFUSED(syscall(SYS_truncate, "/tmp/x", 0L));
    REFUSED(syscall(SYS_unlink, "/tmp/x"));
    REFUSED(syscall(SYS_shmget, 0, 4096, 0600));
    REFUSED(syscall(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0));
    REFUSED(syscall(SYS_dup, 0));
    REFUSED(syscall(SYS_memfd_create, "x", 0));
#undef REFUSED
    if (pthread_create(&t, NULL, a_thread, value) || pthread_join(t, NULL)) return n;
    n++;
    if (mmap(NULL, (size_t)600 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return n;
    n++;
    return mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? n : 0;
}

#endif

static void nothing_else(void **state) {
    (void)state;
#ifdef SANITIZED
    skip();
#else
    static char victim[8] = "mine";
    int how = 0;
    const long self = getpid();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        const char *kept = confine(512, 5, self);
        _exit(kept ? 100 : try_all(self, victim));
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how)) fail_msg("number %d: %d", WEXITSTATUS(how), how);
    assert_string_equal(victim, "mine");
#endif
}

/* A process that was not started by whom it is told ends at once. */
static void another_parent(void **state) {
    (void)state;
    int how = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) _exit(confine(512, 5, 1) ? 2 : 3);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_else), cmocka_unit_test(another_parent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
