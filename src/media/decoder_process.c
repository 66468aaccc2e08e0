#include "media/decoder_process.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DECODER_NAME "moonlet-video"

/* Beside this program, or with its name alone, which posix_spawnp() looks for in PATH. */
static void find_decoder(decoder_process *p) {
    char self[sizeof p->path - sizeof DECODER_NAME];
    snprintf(p->path, sizeof p->path, DECODER_NAME);
    if (p->limits->decoder) {
        snprintf(p->path, sizeof p->path, "%s", p->limits->decoder);
        return;
    }
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return;
    slash[1] = 0;
    char beside[sizeof p->path];
    snprintf(beside, sizeof beside, "%s" DECODER_NAME, self);
    if (!access(beside, X_OK)) memcpy(p->path, beside, sizeof beside);
}

/* The file in memory that has a descriptor: nothing is written to a disk. */
static status file_in_memory(const void *data, u64 n, int *fd, err *e) {
    const u8 *at = data;
    *fd = memfd_create("video", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0) return err_set(e, ST_IO, "a video's file in memory: %s", strerror(errno));
    for (u64 left = n; left;) {
        const ssize_t k = write(*fd, at, left);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return err_nomem(e, "a video's file", n);
        at += k, left -= (u64)k;
    }
    /* its size is counted: what the other side could write there would not be */
    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
        return err_set(e, ST_IO, "sealing a video's file in memory: %s", strerror(errno));
    return ST_OK;
}

static status spawn_decoder(decoder_process *p, int in, int out, int error, err *e) {
    char mib[16], seconds[16], pixels[24], parent[16];
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    snprintf(mib, sizeof mib, "%u", p->limits->mib);
    snprintf(seconds, sizeof seconds, "%u", p->limits->seconds);
    snprintf(pixels, sizeof pixels, "%llu", (unsigned long long)p->limits->pixels);
    char *const argv[] = {p->path, mib, seconds, pixels, parent, NULL}, *const environment[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    if (posix_spawn_file_actions_init(&files)) return err_nomem(e, "a decoder's start", 0);
    if (posix_spawnattr_init(&attributes))
        return posix_spawn_file_actions_destroy(&files), err_nomem(e, "a decoder's start", 0);
    sigemptyset(&none);
    int code = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    if (!code) code = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (!code) code = posix_spawn_file_actions_adddup2(&files, error, STDERR_FILENO);
    if (!code) code = posix_spawnattr_setsigmask(&attributes, &none); /* the server's threads block signals */
    if (!code) code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (!code) code = posix_spawnp(&p->pid, p->path, &files, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (!code) return ST_OK;
    p->pid = 0;
    return err_set(e, ST_UNSUPPORTED,
                   "videos are decoded by " DECODER_NAME
                   ", which cannot be started (%s: %s); docs/guide/pictures.md says how "
                   "it is built",
                   p->path, strerror(code));
}

/* Both ends; 3 and more, so that none of them is in the way of another. */
static status pipe_of(int ends[2], err *e) {
    if (!pipe2(ends, O_CLOEXEC)) return ST_OK;
    ends[0] = ends[1] = -1;
    return err_set(e, ST_IO, "a pipe: %s", strerror(errno));
}

status decoder_start(decoder_process *p, const void *file, u64 n, const video_limits *limits, const video_sink *to,
                     err *e) {
    int in = -1, out[2] = {-1, -1}, error[2] = {-1, -1};
    *p = (decoder_process){.out = -1,
                           .err = -1,
                           .limits = limits,
                           .deadline = now_s() + 2.0 * limits->seconds,
                           .gone = to->gone,
                           .ud = to->ud};
    find_decoder(p);
    status st = file_in_memory(file, n, &in, e);
    if (st == ST_OK) st = pipe_of(out, e);
    if (st == ST_OK) st = pipe_of(error, e);
    if (st == ST_OK) st = spawn_decoder(p, in, out[1], error[1], e);
    p->out = out[0], p->err = error[0];
    if (in >= 0) close(in);
    if (out[1] >= 0) close(out[1]);
    if (error[1] >= 0) close(error[1]);
    return st;
}

enum { LOOK_MS = 200 };

static bool is_unwanted(const decoder_process *p) { return p->gone && p->gone(p->ud); }

/* It has ended, or is ended here: why. */
static status decoder_died(decoder_process *p, err *e) {
    char said[300] = "";
    int how = 0;
    while (waitpid(p->pid, &how, WNOHANG) == 0) { /* it says nothing any more, and yet is there */
        if (now_s() > p->deadline || is_unwanted(p)) kill(p->pid, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    p->pid = 0;
    fcntl(p->err, F_SETFL, O_NONBLOCK); /* whoever has it, too, need not end */
    const ssize_t n = read(p->err, said, sizeof said - 1);
    said[n > 0 ? n : 0] = 0;
    said[strcspn(said, "\n")] = 0;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && now_s() < p->deadline)
        return err_set(e, ST_LIMIT, "the video's decoder was ended from outside: by its limit of time, or for memory");
    if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL))
        return err_set(e, ST_LIMIT, "decoding the video takes more than %u s of processor time", p->limits->seconds);
    if (WIFSIGNALED(how))
        return err_set(e, ST_INPUT, "the video's decoder ended by signal %d (%s) over it", WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
    if (*said) return err_set(e, ST_UNSUPPORTED, "%s cannot run: %s", p->path, said);
    return err_set(e, ST_UNSUPPORTED, "%s ended early, with status %d", p->path, WEXITSTATUS(how));
}

status decoder_read(decoder_process *p, void *to, u64 n, err *e) {
    u8 *at = to;
    while (n) {
        struct pollfd f = {.fd = p->out, .events = POLLIN};
        const int ready = poll(&f, 1, LOOK_MS);
        if (is_unwanted(p)) return err_set(e, ST_CANCELLED, "nobody waits for the video any more");
        if ((ready < 0 && errno == EINTR) || (!ready && now_s() < p->deadline)) continue;
        if (ready < 0) return err_set(e, ST_IO, "a video's frames: %s", strerror(errno));
        if (!ready) return err_set(e, ST_LIMIT, "decoding the video takes more than %u s", 2 * p->limits->seconds);
        if (now_s() > p->deadline)
            return err_set(e, ST_LIMIT, "decoding the video takes more than %u s", 2 * p->limits->seconds);
        const ssize_t k = read(p->out, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return err_set(e, ST_IO, "a video's frames: %s", strerror(errno));
        if (!k) return decoder_died(p, e);
        at += k, n -= (u64)k;
    }
    return ST_OK;
}

void decoder_end(decoder_process *p) {
    if (p->pid) {
        kill(p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    if (p->out >= 0) close(p->out);
    if (p->err >= 0) close(p->err);
    *p = (decoder_process){.out = -1, .err = -1};
}
