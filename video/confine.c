#include "video/confine.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int limit(int what, rlim_t most) {
    const struct rlimit l = {most, most};
    return setrlimit(what, &l);
}

/* All that the libraries ask for once they are loaded (strace over the golden files and malloc, pthreads, vDSO misses);
 * everything else fails with EPERM. Threads: clone() with CLONE_THREAD only; clone3(), whose flags lie in memory, fails
 * with ENOSYS, upon which glibc takes clone(). */
static const unsigned allowed[] = {
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_gettid,
    SYS_getpid,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_exit,
    SYS_exit_group,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getcpu,
    SYS_restart_syscall,
    SYS_getrusage,
};
enum { ALLOWED = sizeof allowed / sizeof *allowed };

static int deny_calls(void) {
    struct sock_filter code[4 + ALLOWED + 7], *c = code;
    *c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    *c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < ALLOWED; i++)
        *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], (__u8)(ALLOWED - i + 5), 0);
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 2);
    *c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x00010000 /* CLONE_THREAD */, 1, 0);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {(unsigned short)(c - code), code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

const char *confine(long mib, long seconds, long parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "its end with the program that started it";
    if (getppid() != parent) _exit(1); /* it has ended already */
    if (syscall(SYS_close_range, 3U, ~0U, 0U) && errno != ENOSYS) return "its descriptors";
#ifndef SANITIZED /* AddressSanitizer reserves terabytes, which are none */
    if (limit(RLIMIT_AS, (rlim_t)mib << 20)) return "its memory";
#endif
    (void)mib;
    if (limit(RLIMIT_CPU, (rlim_t)seconds) || limit(RLIMIT_CORE, 0)) return "its time";
    if (limit(RLIMIT_FSIZE, 0)) return "its file";
    if (limit(RLIMIT_NOFILE, 3)) return "its files";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return "its privileges";
#ifdef SANITIZED /* a sanitizer looks at its own process from another one */
    (void)deny_calls;
    return NULL;
#else
    return deny_calls() ? "its system calls" : NULL;
#endif
}
