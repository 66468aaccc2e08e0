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

/* Calls that a decoder has no use for fail with EACCES: the library sees an error, and nobody gets hurt. */
static const unsigned denied[] = {
    SYS_open,
    SYS_openat,
    SYS_openat2,
    SYS_creat,
    SYS_open_by_handle_at,
    SYS_socket,
    SYS_connect,
    SYS_bind,
    SYS_execve,
    SYS_execveat,
    SYS_fork,
    SYS_vfork,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_unlink,
    SYS_unlinkat,
    SYS_rename,
    SYS_renameat,
    SYS_renameat2,
    SYS_mkdir,
    SYS_mkdirat,
    SYS_symlink,
    SYS_link,
    SYS_linkat,
    SYS_chmod,
    SYS_fchmodat,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_mount,
    SYS_bpf,
    SYS_io_uring_setup,
    SYS_memfd_create,
};
enum { DENIED = sizeof denied / sizeof *denied };

static int deny_calls(void) {
    struct sock_filter code[3 + 1 + DENIED + 3], *c = code;
    *c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    *c++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < DENIED; i++)
        *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], (__u8)(DENIED - i + 1), 0);
    *c++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0); /* the same calls for x32 */
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *c++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES);
    const struct sock_fprog program = {(unsigned short)(c - code), code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

const char *confine(long mib, long seconds) {
    const pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "its end with the program that started it";
    if (getppid() != parent) _exit(1); /* it has ended already */
    if (syscall(SYS_close_range, 3U, ~0U, 0U) && errno != ENOSYS) return "its descriptors";
#ifndef SANITIZED /* AddressSanitizer reserves terabytes, which are none */
    if (limit(RLIMIT_AS, (rlim_t)mib << 20)) return "its memory";
#endif
    (void)mib;
    if (limit(RLIMIT_CPU, (rlim_t)seconds) || limit(RLIMIT_CORE, 0)) return "its time";
    if (limit(RLIMIT_NOFILE, 3)) return "its files";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return "its privileges";
    return deny_calls() ? "its system calls" : NULL;
}
