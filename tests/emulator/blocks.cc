/* tests/emulator/blocks.cc: a block's threads as fibers of one core, in an order that turns around at every pass and in
 * every warp's meeting, so that a sum that depends on it is found out; barriers, exchanges between threads, copies by
 * the copy engine, clusters. x86-64 only. */
#include "blocks.h"
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sched.h>
#include <sys/mman.h>

enum { SPINS = 100000 /* passes over a block in which nobody did more than look */ };
__thread emu_thread emu;
__thread block *blk, *members[CLUSTER];
static __thread struct { int n, alive, come; } cluster;

extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

static void release(int from, int n) {
    for (int t = from; t < from + n; t++)
        if (blk->fibers[t].is == WAITING && !blk->fibers[t].barrier) blk->fibers[t].is = READY;
}

static void pause_fiber(state is) {
    blk->fibers[blk->running].is = is;
    emu_switch(&blk->fibers[blk->running].sp, blk->scheduler);
}

/* The calling fiber comes to meeting m of threads [from, from + n); goes on when all that live have come. */
static void come(meeting *m, int from, int n) {
    blk->moved = true;
    if (++m->come == m->alive) {
        m->come = 0;
        release(from, n);
        return;
    }
    pause_fiber(WAITING);
}

void emu_block_barrier(void) { come(&blk->all, 0, blk->threads); }
/* Who comes to the warp's meeting goes on with the next lane that can run, without a pass over the block for each; in
 * the other order from meeting to meeting. */
void emu_warp_barrier(void) {
    const int me = blk->running, w = me / LANES, from = w * LANES;
    meeting *m = &blk->warps[w];
    blk->moved = true;
    if (++m->come == m->alive) {
        m->come = 0;
        blk->turned[w] = !blk->turned[w];
        release(from, LANES);
        return;
    }
    const int step = blk->turned[w] ? LANES - 1 : 1;
    int next = me;
    do next = from + (next - from + step) % LANES;
    while (next != me && blk->fibers[next].is != READY);
    if (next == me) return pause_fiber(WAITING);
    blk->fibers[me].is = WAITING;
    blk->running = next;
    emu.thread.x = (unsigned)next;
    emu_switch(&blk->fibers[me].sp, blk->fibers[next].sp);
}
/* Every live thread of the block or of a warp gives a word. Returns the number of the exchange, for given(). */
template <typename wait> static unsigned exchange(block *b, mailbox block::*box, unsigned word, wait barrier) {
    const int me = b->running;
    const unsigned turn = ++(b->*box).turn[me];
    (b->*box).given[turn & 1][me] = {turn, word};
    barrier();
    return turn;
}
static unsigned given(const mailbox *box, unsigned turn, unsigned thread) {
    const letter l = box->given[turn & 1][thread];
    return l.turn == turn ? l.word : 0;
}
static unsigned warp_exchange(unsigned word) { return exchange(blk, &block::of_warps, word, emu_warp_barrier); }
unsigned emu_exchange(unsigned word, int from) {
    unsigned turn = warp_exchange(word);
    return given(&blk->of_warps, turn, (unsigned)(blk->running / LANES * LANES + from));
}
unsigned emu_ballot(int predicate) {
    const unsigned turn = warp_exchange(predicate != 0), first = (unsigned)(blk->running / LANES * LANES);
    unsigned mask = 0;
    for (unsigned l = 0; l < LANES; l++) mask |= given(&blk->of_warps, turn, first + l) << l;
    return mask;
}
unsigned emu_match(unsigned word) {
    const unsigned turn = warp_exchange(word), first = (unsigned)(blk->running / LANES * LANES);
    unsigned mask = 0;
    for (unsigned l = 0; l < LANES; l++) {
        const letter other = blk->of_warps.given[turn & 1][first + l];
        mask |= (unsigned)(other.turn == turn && other.word == word) << l;
    }
    return mask;
}
unsigned emu_largest(unsigned word) {
    const unsigned turn = warp_exchange(word), first = (unsigned)(blk->running / LANES * LANES);
    for (unsigned l = 0; l < LANES; l++) {
        unsigned other = given(&blk->of_warps, turn, first + l);
        if (other > word) word = other;
    }
    return word;
}
/* By the tree of math.cuh, which has the same value in all lanes: the first that comes back works it out. */
template <typename join> static float warp_reduce(float v, join both) {
    const unsigned turn = warp_exchange(__float_as_uint(v)), w = (unsigned)(blk->running / LANES);
    letter *of_warp = &blk->reduced[w];
    if (of_warp->turn != turn) {
        float all[LANES];
        for (unsigned l = 0; l < LANES; l++) all[l] = __uint_as_float(given(&blk->of_warps, turn, w * LANES + l));
        for (int d = LANES / 2; d; d /= 2)
            for (int l = 0; l < d; l++) all[l] = both(all[l], all[l + d]);
        *of_warp = {turn, __float_as_uint(all[0])};
    }
    return __uint_as_float(of_warp->word);
}
float warp_sum(float v) {
    return warp_reduce(v, [](float a, float b) { return a + b; });
}
float warp_max(float v) {
    return warp_reduce(v, [](float a, float b) { return a > b || isnan(a) ? a : b; });
}
int emu_or(int value) {
    const unsigned turn = exchange(blk, &block::of_all, value != 0, emu_block_barrier);
    int any = 0;
    for (int t = 0; t < blk->threads; t++) any |= (int)given(&blk->of_all, turn, (unsigned)t);
    return any;
}

/* ---- sm90.cuh ---- */

void broken(const char *what) {
    fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

void named_barrier_arrive(int id, int n) {
    blk->moved = true;
    if (id < 1 || id >= BARRIERS || n % LANES) broken("no such named barrier");
    if (++blk->named[id] < n) return;
    blk->named[id] = 0;
    for (int t = 0; t < blk->threads; t++)
        if (blk->fibers[t].barrier == id) blk->fibers[t].barrier = 0, blk->fibers[t].is = READY;
}
void named_barrier_sync(int id, int n) {
    fiber *me = &blk->fibers[blk->running];
    if (blk->named[id] + 1 < n) {
        named_barrier_arrive(id, n);
        me->barrier = id;
        pause_fiber(WAITING);
    } else
        named_barrier_arrive(id, n);
}

/* In the 8 bytes of a barrier: arrivals and bytes that are still to come, arrivals of a phase, the phase. */
struct mbar {
    int bytes;
    short left;
    unsigned short count_and_phase; /* count * 2 + phase */
};
static_assert(sizeof(mbar) == 8, "an mbarrier has 8 bytes");
static void turn_phase(mbar *m) {
    if (m->left || m->bytes) return;
    m->left = (short)(m->count_and_phase / 2);
    m->count_and_phase ^= 1;
}
static void arrive(emu_u64 *b, unsigned bytes) {
    mbar *m = (mbar *)b;
    blk->moved = true;
    if (m->left < 1) broken("an mbarrier has more arrivals than its count");
    m->left--, m->bytes += (int)bytes;
    turn_phase(m);
}
void mbarrier_init(emu_u64 *b, unsigned count) { *(mbar *)b = {0, (short)count, (unsigned short)(count * 2)}; }
void mbarrier_arrive(emu_u64 *b) { arrive(b, 0); }
void mbarrier_expect(emu_u64 *b, unsigned bytes) {
    if (bytes >= 1 << 20) broken("a barrier expects more bytes than it can count");
    arrive(b, bytes);
}
void mbarrier_wait(emu_u64 *b, unsigned parity) {
    while ((unsigned)(((mbar *)b)->count_and_phase & 1) == (parity & 1)) pause_fiber(READY);
    blk->moved = true;
}
void tma_bulk(void *shared, const void *global, unsigned bytes, emu_u64 *b) {
    if (((size_t)shared | (size_t)global | bytes) % 16) broken("a bulk copy is not aligned to 16 bytes");
    memcpy(shared, global, bytes);
    ((mbar *)b)->bytes -= (int)bytes;
    turn_phase((mbar *)b);
}
void tma_load(void *shared, const void *map, int c0, int c1, int c2, emu_u64 *b) {
    tensor t;
    memcpy(&t, map, sizeof t);
    unsigned bytes = t.box[0] * t.box[1] * t.box[2] * 2;
    unsigned turns = t.box[0] / 8 - 1; /* of a line's pieces of 16 bytes, by which line of 128 bytes they are in */
    if ((size_t)shared % (16 * t.box[0]))
        broken("a swizzled box does not begin at a multiple of 8 lines of 64 or 128 bytes");
    for (unsigned i = 0; i < bytes; i += 16) {
        unsigned long long x = (unsigned)c0 + i / 2 % t.box[0], y = (unsigned)c1 + i / 2 / t.box[0] % t.box[1],
                           z = (unsigned)c2 + i / 2 / t.box[0] / t.box[1];
        char *to = (char *)shared + (i ^ (i >> 7 & turns) << 4);
        if (x < t.sizes[0] && y < t.sizes[1] && z < t.sizes[2])
            memcpy(to, t.at + x * 2 + y * t.strides[0] + z * t.strides[1], 16);
        else
            memset(to, 0, 16);
    }
    ((mbar *)b)->bytes -= (int)bytes;
    turn_phase((mbar *)b);
}
/* Blocks that meet run at the same time: cuLaunchKernelEx gives each a thread. */
void grid_barrier_arrive(unsigned *m, unsigned blocks) {
    if (__atomic_add_fetch(&m[0], 1, __ATOMIC_SEQ_CST) < blocks) return;
    m[0] = 0;
    __atomic_add_fetch(&m[1], 1, __ATOMIC_SEQ_CST);
}
void grid_barrier_wait(const unsigned *m, unsigned seen) {
    while (__atomic_load_n(&m[1], __ATOMIC_SEQ_CST) == seen) {
        blk->moved = true;
        pause_fiber(READY);
        sched_yield();
    }
}
void poll_again() {
    blk->moved = true;
    pause_fiber(READY);
    sched_yield();
}
emu_u64 global_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (emu_u64)t.tv_sec * 1000000000 + (emu_u64)t.tv_nsec;
}
void spin_wait_ge(const unsigned *word, unsigned least) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) < least) poll_again();
}
/* Lets those go on that wait for the cluster. */
static void release_cluster(void) {
    cluster.come = 0;
    for (int i = 0; i < cluster.n; i++)
        for (int t = 0; t < members[i]->threads; t++) {
            fiber *f = &members[i]->fibers[t];
            if (f->is == WAITING && f->barrier == OF_CLUSTER) f->is = READY, f->barrier = 0;
        }
}
void cluster_sync(void) {
    blk->moved = true;
    if (++cluster.come == cluster.alive) {
        release_cluster();
        return;
    }
    blk->fibers[blk->running].barrier = OF_CLUSTER;
    pause_fiber(WAITING);
}
void *in_cluster(const void *shared, int rank) {
    if (rank < 0 || rank >= cluster.n) broken("no such block in the cluster");
    return members[rank]->shared + shared_at(shared);
}

static void leave(meeting *m, int from, int n) {
    if (--m->alive && m->come == m->alive) {
        m->come = 0;
        release(from, n);
    }
}

static void fiber_main(void) {
    blk->kernel(blk->args);
    int t = blk->running, w = t / LANES;
    blk->fibers[t].is = DONE;
    blk->moved = true;
    leave(&blk->warps[w], w * LANES, LANES);
    leave(&blk->all, 0, blk->threads);
    if (--cluster.alive && cluster.come == cluster.alive) release_cluster();
    void *nowhere;
    emu_switch(&nowhere, blk->scheduler);
    abort();
}

static void start_fiber(int t) {
    void **top = (void **)(blk->stacks + (size_t)(t + 1) * STACK);
    *--top = nullptr; /* a call would have left the stack so */
    *--top = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    blk->fibers[t] = {top, READY, 0};
}

static void start_block(void) {
    int threads = blk->threads;
    blk->all = {threads, 0};
    for (int w = 0; w < threads / LANES; w++) blk->warps[w] = {LANES, 0};
    memset(&blk->of_warps, 0, sizeof blk->of_warps);
    memset(&blk->of_all, 0, sizeof blk->of_all);
    memset(blk->reduced, 0, sizeof blk->reduced);
    memset(blk->products, 0, sizeof blk->products);
    for (int w = 0; w < threads / LANES; w++) blk->values[w].product = 0;
    memset(blk->named, 0, sizeof blk->named);
    memset(blk->turned, 0, sizeof blk->turned);
    memset(blk->shared, 0xff, blk->shared_bytes); /* NaN: nobody may count on what was there */
    for (int t = 0; t < threads; t++) start_fiber(t);
}

/* Lets every fiber of the block run that can; returns how many did. */
static int pass_block(int pass, int rank, emu_dim3 at, emu_dim3 grid, int *left) {
    int threads = blk->threads, ran = 0;
    blk->moved = false;
    emu = {{0, 0, 0}, at, grid, {(unsigned)threads, 1, 1}, blk->shared, rank};
    for (int k = 0; k < threads; k++) {
        int t = pass % 2 ? threads - 1 - k : k;
        *left += blk->fibers[t].is != DONE;
        if (blk->fibers[t].is != READY) continue;
        ran++;
        blk->running = t;
        emu.thread.x = (unsigned)t;
        emu_switch(&blk->scheduler, blk->fibers[t].sp);
    }
    return ran;
}

void run_blocks(int n, emu_dim3 first, emu_dim3 grid) {
    int stuck = 0, left = 1;
    cluster = {n, n * members[0]->threads, 0};
    for (int i = 0; i < n; i++) blk = members[i], start_block();
    for (int pass = 0; left; pass++) {
        int ran = 0;
        bool moved = false;
        left = 0;
        for (int i = 0; i < n; i++) {
            blk = members[i];
            ran += pass_block(pass, i, {first.x + (unsigned)i, first.y, first.z}, grid, &left);
            moved = moved || blk->moved;
        }
        stuck = moved ? 0 : stuck + 1;
        if (left && (!ran || stuck == SPINS)) broken("the threads of a block wait for each other for ever");
    }
}

block *open_block(int i) {
    if (members[i]) return members[i];
    block *b = members[i] = (block *)calloc(1, sizeof *b);
    b->stacks =
        (char *)mmap(nullptr, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->shared = (char *)aligned_alloc(1024, SHARED);
    return b;
}
