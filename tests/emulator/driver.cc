/* tests/emulator/driver.cc: a libcuda.so.1 that runs our kernels on this processor: device memory is the host's, a
 * launch is done when it returns. EMU_GPUS says how many GPUs there are; what belongs to one is refused in calls of
 * another, unless peer access was asked for (EMU_NO_PEERS: which is refused; EMU_FILLED: a GPU without memory). Blocks
 * run beside each other on the cores, the threads of a block as fibers of one core, in an order that turns around at
 * every pass and in every warp's meeting, so that a sum that depends on it is found out. x86-64 only. */
#include "emulate.h"
extern "C" {
#include "device/cuda_symbols.h"
}
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <omp.h>
#include <sched.h>
#include <ctime>
#include <deque>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

enum {
    THREADS = 1024 /* at most */,
    LANES = 32,
    WARPS = THREADS / LANES,
    STACK = (128 << 10) + 576 /* tops that share no set of a cache */,
    SHARED = 232448,
    BARRIERS = 16,
    PROCESSORS = 2,
    AT_ONCE = 2 * PROCESSORS /* blocks */,
    SPINS = 100000,
    GPUS_MOST = 8,
    B_ROW = 2 * 256 + 16, /* rows that share no set of a cache */
    CUDA_ERROR_INVALID_HANDLE = 400
};
enum state { READY, WAITING, DONE };

struct fiber {
    void *sp;
    state is;
    int barrier; /* named barrier that it waits at, 0: none */
};
struct meeting { /* a barrier: who lives, who has come */
    int alive, come;
};

/* Words that threads give each other: two sets in turns, so that one barrier an exchange is enough, each with the
 * number of the exchange it was given in, since the dead give nothing. */
struct letter {
    unsigned turn, word; /* together, as they are read */
};
struct mailbox {
    letter given[2][THREADS];
    unsigned turn[THREADS];
};

/* A warp's product: what its first lane has done the others use. */
struct tile_values {
    unsigned product;   /* which one of the warp: products[] of its lanes */
    float a[16][16];    /* [k, row] */
    float b[16][B_ROW]; /* of wgmma [k], as put_column() has the columns */
    int bytes_a[32][16], bytes_b[32][B_ROW];
    float c[16][8]; /* of mma the product, [row, column] */
    int bytes_c[16][8];
};

/* A lane's registers of a product. */
struct operands {
    unsigned a[4], b[2];
    float c[4];
};

struct block {
    fiber fibers[THREADS];
    int threads; /* of them */
    meeting all, warps[WARPS];
    bool turned[WARPS];  /* lanes run from the last one to the first */
    int named[BARRIERS]; /* how many have come */
    bool moved;          /* somebody did more than look at a barrier, in this pass */
    mailbox of_warps, of_all;
    letter reduced[WARPS];               /* what a warp's last warp_sum() or warp_max() came to */
    operands given_operands[2][THREADS]; /* of mma and wgmma, in turns */
    unsigned products[THREADS];
    const char *rows[2][THREADS]; /* of ldmatrix4, in turns */
    tile_values values[WARPS];
    unsigned shared_bytes;
    void *scheduler; /* its stack pointer */
    int running;
    void (*kernel)(const void *);
    const void *args;
    char *stacks, *shared;
};
__thread emu_thread emu;
enum { CLUSTER = 8, OF_CLUSTER = BARRIERS /* in fiber.barrier */ };
static __thread block *blk, *members[CLUSTER]; /* the running one, all of its cluster */
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
static float low(unsigned two) { return __uint_as_float(two << 16); }
static float high(unsigned two) { return __uint_as_float(two & 0xffff0000u); }
/* Lanes give their operands (a[4], b[2] and c[4], those that are registers) of a product; the first one that comes back
 * gets those of all lanes, to work with, the others NULL. */
static const operands *give_operands(const unsigned *a, const unsigned *b, const float *c, tile_values **values) {
    const int me = blk->running;
    const unsigned now = ++blk->products[me];
    operands *mine = &blk->given_operands[now % 2][me];
    if (a) memcpy(mine->a, a, sizeof mine->a);
    if (b) memcpy(mine->b, b, sizeof mine->b);
    if (c) memcpy(mine->c, c, sizeof mine->c);
    emu_warp_barrier();
    *values = &blk->values[me / LANES];
    const bool first = (*values)->product != now;
    (*values)->product = now;
    return first ? blk->given_operands[now % 2] + me / LANES * LANES : nullptr;
}
/* v[k][row] of the 16 x 16 operand in registers a[0..3] of the lanes. */
template <bool HALF> static void decode_a(const operands *lanes, float v[16][16]) {
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k += 2) {
                unsigned two = lanes[4 * g + k % 8 / 2].a[i + k / 8 * 2];
                v[k][g + 8 * i] = HALF ? low_half(two) : low(two);
                v[k + 1][g + 8 * i] = HALF ? high_half(two) : high(two);
            }
}
/* Into v->c: c + a b of all lanes, whose c[i] is row g + 8 (i / 2), column 2t + i % 2. */
template <bool HALF> static void multiply(const operands *lanes, tile_values *v) {
    float b[16][8];
    decode_a<HALF>(lanes, v->a);
    for (int col = 0; col < 8; col++)
        for (int k = 0; k < 16; k += 2) {
            unsigned two = lanes[4 * col + k % 8 / 2].b[k / 8];
            b[k][col] = HALF ? low_half(two) : low(two);
            b[k + 1][col] = HALF ? high_half(two) : high(two);
        }
    for (int row = 0; row < 16; row++) {
        float sum[8];
        for (int col = 0; col < 8; col++) sum[col] = lanes[row % 8 * 4 + col / 2].c[row / 8 * 2 + col % 2];
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < 8; col++) sum[col] += v->a[k][row] * b[k][col];
        memcpy(v->c[row], sum, sizeof sum);
    }
}
template <bool HALF> static void mma(float c[4], const unsigned a[4], const unsigned b[2]) {
    const int lane = blk->running % LANES, g = lane / 4, t = lane % 4;
    tile_values *v;
    if (const operands *lanes = give_operands(a, b, c, &v)) multiply<HALF>(lanes, v);
    for (int i = 0; i < 4; i++) c[i] = v->c[g + i / 2 * 8][2 * t + i % 2];
}
/* v[k][row] of the 16 x 32 operand of bytes in registers a[0..3] of the lanes; u: unsigned ones. */
static void decode_bytes_a(const operands *lanes, bool u, int v[32][16]) {
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 32; k++) {
                unsigned byte = lanes[4 * g + k % 16 / 4].a[i + k / 16 * 2] >> k % 4 * 8 & 255;
                v[k][g + 8 * i] = u ? (int)byte : (signed char)byte;
            }
}
static void multiply_bytes(const operands *lanes, tile_values *v) {
    int b[32][8];
    decode_bytes_a(lanes, false, v->bytes_a);
    for (int col = 0; col < 8; col++)
        for (int k = 0; k < 32; k++) b[k][col] = (signed char)(lanes[4 * col + k % 16 / 4].b[k / 16] >> k % 4 * 8);
    for (int row = 0; row < 16; row++) {
        int sum[8] = {0};
        for (int k = 0; k < 32; k++)
            for (int col = 0; col < 8; col++) sum[col] += v->bytes_a[k][row] * b[k][col];
        memcpy(v->bytes_c[row], sum, sizeof sum);
    }
}
void mma_s8(int c[4], const unsigned a[4], unsigned b0, unsigned b1) {
    const int lane = blk->running % LANES, g = lane / 4, t = lane % 4;
    const unsigned b[2] = {b0, b1};
    tile_values *v;
    if (const operands *lanes = give_operands(a, b, nullptr, &v)) multiply_bytes(lanes, v);
    for (int i = 0; i < 4; i++) c[i] = v->bytes_c[g + i / 2 * 8][2 * t + i % 2];
}
void mma_bf16(float c[4], const unsigned a[4], const unsigned b[2]) { mma<false>(c, a, b); }
void mma_half(float c[4], const unsigned a[4], const unsigned b[2]) { mma<true>(c, a, b); }
int emu_or(int value) {
    const unsigned turn = exchange(blk, &block::of_all, value != 0, emu_block_barrier);
    int any = 0;
    for (int t = 0; t < blk->threads; t++) any |= (int)given(&blk->of_all, turn, (unsigned)t);
    return any;
}

/* ---- sm90.cuh ---- */

[[noreturn]] static void broken(const char *what) {
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
/* What cuTensorMapEncodeTiled leaves for tma_load. */
struct tensor {
    const char *at;
    unsigned long long sizes[3], strides[2];
    unsigned box[3];
};
static_assert(sizeof(tensor) <= 128, "a tensor map has 128 bytes");
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
static const char **give_rows(const void *p) {
    int me = blk->running, turn = (int)(blk->products[me]++ % 2);
    if ((size_t)p % 16) broken("a row of a matrix in shared memory is not aligned to 16 bytes");
    blk->rows[turn][me] = (const char *)p;
    emu_warp_barrier();
    return blk->rows[turn] + me / LANES * LANES;
}
void ldmatrix4(unsigned r[4], const void *shared) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++) memcpy(&r[i], rows[8 * i + lane / 4] + lane % 4 * 4, 4);
}
void ldmatrix4_t(unsigned r[4], const void *shared) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) memcpy((char *)&r[i] + 2 * k, rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, 2);
}

void stmatrix4_t(void *shared, const unsigned r[4]) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            memcpy((char *)rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, (const char *)&r[i] + 2 * k, 2);
    emu_warp_barrier();
}

unsigned shared_at(const void *p) {
    size_t at = (size_t)((const char *)p - blk->shared);
    if (at >= SHARED) broken("a tile lies outside dynamic shared memory");
    return (unsigned)at;
}
/* The eight values at byte `at`, a multiple of 16, of shared memory, whose 16-byte pieces are swizzled. */
template <bool HALF> static void swizzled_values(const char *shared, unsigned at, float v[8]) {
    unsigned short h[8];
    memcpy(h, shared + (at ^ (at >> 7 & 7) << 4), sizeof h);
    for (int i = 0; i < 8; i++) v[i] = HALF ? low_half(h[i]) : __uint_as_float((unsigned)h[i] << 16);
}
/* A tile that a descriptor names, K-major or (t) not, by eights: of k (row, k .. k + 7), or (t) of rows
 * (row .. row + 7, k). */
struct shared_tile {
    const char *shared;
    unsigned start, lead, stride;
    explicit shared_tile(emu_u64 desc)
        : shared(blk->shared), start((unsigned)(desc & 0x3fff) << 4), lead((unsigned)(desc >> 16 & 0x3fff) << 4),
          stride((unsigned)(desc >> 32 & 0x3fff) << 4) {
        if (desc >> 62 != 1) broken("a descriptor is not of the 128-byte swizzle");
    }
    template <bool HALF> void of_row(int row, int k, float v[8]) const {
        swizzled_values<HALF>(shared, start + row / 8 * stride + row % 8 * 128 + k * 2, v);
    }
    template <bool HALF> void of_k(int row, int k, float v[8]) const {
        swizzled_values<HALF>(shared, start + row / 64 * lead + k / 8 * stride + k % 8 * 128 + row % 64 * 2, v);
    }
};
/* Puts column `col` of n into a row of tile_values.b: lane % 4 = c owns columns 8 j + 2 c and the next, each of which
 * it needs for two rows. */
template <typename number> static void put_column(number *row, int n, int col, number v) {
    number *at = row + col % 8 / 2 * (n / 2) + col / 8 * 4 + col % 2;
    at[0] = at[2] = v;
}
/* Both operands of the warp's rows as numbers. */
template <bool HALF>
static void decode_tiles(int n, int t, const operands *lanes, bool of_lanes, emu_u64 a_desc, emu_u64 b_desc,
                         tile_values *v) {
    const int first = blk->running / LANES % 4 * 16;
    float eight[8];
    if (of_lanes)
        decode_a<HALF>(lanes, v->a);
    else {
        const shared_tile tile(a_desc);
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k += 8) {
                tile.of_row<HALF>(first + row, k, eight);
                for (int i = 0; i < 8; i++) v->a[k + i][row] = eight[i];
            }
    }
    const shared_tile tile(b_desc);
    if (t)
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < n; col += 8) {
                tile.of_k<HALF>(col, k, eight);
                for (int i = 0; i < 8; i++) put_column(v->b[k], n, col + i, eight[i]);
            }
    else
        for (int col = 0; col < n; col++)
            for (int k = 0; k < 16; k += 8) {
                tile.of_row<HALF>(col, k, eight);
                for (int i = 0; i < 8; i++) put_column(v->b[k + i], n, col, eight[i]);
            }
}
/* d[4 j + 2 i + e] of a lane is row g + 8 i, column 8 j + 2 c + e. WIDTH values of it, whose rows are those of 4
 * alternately, += a b; x [depth, 16], y [depth, B_ROW]. */
template <int N, int WIDTH, typename number>
static void add_columns(number *d, const number (*x)[16], const number (*y)[B_ROW], int depth, int add) {
    typedef number several __attribute__((vector_size(WIDTH * sizeof(number)), aligned(sizeof(number))));
    several *const to = (several *)d, none = {};
    several sum[N];
    for (int e = 0; e < N; e++) sum[e] = add ? to[e] : none;
    for (int k = 0; k < depth; k++) {
        const several *of_y = (const several *)y[k];
        several of_x;
        for (int i = 0; i < WIDTH; i++) of_x[i] = x[k][i / 2 % 2 * 8];
#pragma GCC unroll 4
        for (int e = 0; e < N; e++) sum[e] += of_x * of_y[e];
    }
    for (int e = 0; e < N; e++) to[e] = sum[e];
}
/* d [n / 2] += a b of this lane. */
template <typename number>
static void add_product(number *d, int n, const number (*a)[16], const number (*b)[B_ROW], int depth, int add) {
    const int values = n / 2;
    const number(*x)[16] = (const number(*)[16])(&a[0][blk->running % LANES / 4]);
    const auto y = [&](int at) { return (const number(*)[B_ROW])(&b[0][blk->running % 4 * values + at]); };
    int at = 0;
    for (; at + 32 <= values; at += 32) add_columns<4, 8>(d + at, x, y(at), depth, add);
    for (; at + 8 <= values; at += 8) add_columns<1, 8>(d + at, x, y(at), depth, add);
    for (; at < values; at += 4) add_columns<1, 4>(d + at, x, y(at), depth, add);
}
void emu_wgmma(int n, int t, float *d, const unsigned *a, emu_u64 a_desc, emu_u64 b_desc, int add, bool half) {
    tile_values *v;
    if (const operands *lanes = give_operands(a, nullptr, nullptr, &v))
        (half ? decode_tiles<true> : decode_tiles<false>)(n, t, lanes, a != nullptr, a_desc, b_desc, v);
    add_product(d, n, v->a, v->b, 16, add);
    emu_warp_barrier(); /* shared memory may be overwritten only after all have read it */
}

/* Bytes 2 k and 2 k + 1 of a row of 128 of the K-major tile that a descriptor names. */
static unsigned operand_bytes(emu_u64 desc, int row, int k) {
    unsigned at =
        ((unsigned)(desc & 0x3fff) << 4) + row / 8 * ((unsigned)(desc >> 32 & 0x3fff) << 4) + row % 8 * 128 + k * 2;
    unsigned short two;
    if (desc >> 62 != 1) broken("a descriptor is not of the 128-byte swizzle");
    memcpy(&two, blk->shared + (at ^ (at >> 7 & 7) << 4), 2);
    return two;
}
void emu_wgmma_bytes(int n, int u, int *d, const unsigned *a, emu_u64 b_desc, int add) {
    tile_values *v;
    if (const operands *lanes = give_operands(a, nullptr, nullptr, &v)) {
        decode_bytes_a(lanes, u, v->bytes_a);
        for (int col = 0; col < n; col++)
            for (int k = 0; k < 32; k += 2) { /* two bytes of a row, swizzled as a bf16 is */
                unsigned two = operand_bytes(b_desc, col, k / 2);
                put_column(v->bytes_b[k], n, col, (int)(signed char)two);
                put_column(v->bytes_b[k + 1], n, col, (int)(signed char)(two >> 8));
            }
    }
    add_product(d, n, v->bytes_a, v->bytes_b, 32, add);
    emu_warp_barrier();
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

/* A cluster of n blocks, or one block; they differ in x. */
static void run_blocks(int n, emu_dim3 first, emu_dim3 grid) {
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

/* Does every thread of the process that runs blocks have its own. */
static block *open_block(int i) {
    if (members[i]) return members[i];
    block *b = members[i] = (block *)calloc(1, sizeof *b);
    b->stacks =
        (char *)mmap(nullptr, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->shared = (char *)aligned_alloc(1024, SHARED);
    return b;
}

struct CUevent_st {
    timespec at;
};
/* A device's primary context. What is made while it is current belongs to it, and is refused in another one's calls,
 * as the driver does. */
struct CUctx_st {
    int device;
    unsigned long long used; /* bytes */
    unsigned peers;          /* bit i: memory of device i, too */
};
static CUctx_st contexts[GPUS_MOST];
static thread_local CUcontext current;
struct CUstream_st {
    CUcontext of;
    CUgraph capturing;
};
struct CUmod_st {
    CUcontext of;
};
struct CUfunc_st {
    CUcontext of;
    void (*kernel)(const void *);
    unsigned size; /* of its arguments */
};
static std::mutex lock; /* of what threads share: allocations and functions */

/* EMU_GPUS: how many there are; 1 unless it says so. */
static int gpus(void) {
    const char *text = getenv("EMU_GPUS");
    int n = text ? atoi(text) : 1;
    return n < 1 ? 1 : n > GPUS_MOST ? GPUS_MOST : n;
}

/* Whose memory an address lies in; NULL: nobody's. */
struct allocation {
    size_t bytes;
    CUcontext of;
};
static std::map<CUdeviceptr, allocation> allocated;
static CUcontext owner(CUdeviceptr p) {
    auto next = allocated.upper_bound(p);
    if (next == allocated.begin()) return nullptr;
    auto at = std::prev(next);
    return p - at->first < at->second.bytes ? at->second.of : nullptr;
}
static bool reaches(CUcontext c, CUdeviceptr p) {
    CUcontext of = owner(p);
    return !of || of->device == c->device || (c->peers >> of->device & 1);
}
/* Does what is handed to a kernel on c point into another device's memory? Any eight bytes that could be an address;
 * but a small number with whatever lies in the four bytes of padding behind it is none. */
static bool points_elsewhere(CUcontext c, const void *args, size_t bytes) {
    if (gpus() == 1) return false;
    std::lock_guard<std::mutex> hold(lock);
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        CUdeviceptr p;
        memcpy(&p, (const char *)args + at, 8);
        if ((p & 0xffffffffu) >= 0x10000 && !reaches(c, p)) return true;
    }
    return false;
}

/* A recording: launches with their arguments. */
struct launch {
    cuda_launch how; /* its attributes are gone */
    int cluster;
    CUfunction f; /* NULL: `call`, of another library */
    std::vector<char> args;
    std::function<void()> call = {};
};
struct CUgraph_st {
    std::vector<launch> all;
};

/* Once there is a file of the name in EMU_FAULT, something is wrong with the GPU. Its content is "fail" or "hang":
 * what runs; "full": there is no room for recordings. For tests. */
static CUresult fault(bool room = false) {
    static const char *path = getenv("EMU_FAULT");
    char what[8] = "";
    FILE *f = path ? fopen(path, "r") : nullptr;
    if (!f) return 0;
    if (!fgets(what, sizeof what, f)) what[0] = 0;
    fclose(f);
    if (!strncmp(what, "full", 4)) return room ? CUDA_ERROR_OUT_OF_MEMORY : 0;
    if (room) return 0;
    while (!strncmp(what, "hang", 4)) sleep(1);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* For fake_cupti.cc: is shown every launch. */
extern "C" {
void (*emu_launched)(const void *kernel, const unsigned *grid, int cluster, const void *context, bool recorded);
}

static CUresult launch_now(const CUlaunchConfig *c, int n, CUfunction f, const void *args, bool recorded = false) {
    if (emu_launched) emu_launched((const void *)f->kernel, c->grid, n, f->of, recorded);
    unsigned gx = c->grid[0], gy = c->grid[1];
    long blocks = (long)gx * gy * c->grid[2];
    int together = blocks <= AT_ONCE ? (int)blocks : omp_get_max_threads(); /* grid_barrier_wait needs all of them */
#pragma omp parallel for schedule(dynamic, blocks <= AT_ONCE ? 1 : 4) num_threads(together)
    for (long b = 0; b < blocks; b += n) {
        for (int i = 0; i < n; i++) {
            block *m = open_block(i);
            m->kernel = f->kernel;
            m->args = args;
            m->shared_bytes = c->shared_bytes;
            m->threads = (int)c->block[0];
        }
        run_blocks(n, {(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / gx / gy)}, {gx, gy, c->grid[2]});
    }
    return 0;
}

/* One block, without a driver's objects: for test_hopper.cu. */
extern "C" unsigned emu_launch(void (*kernel)(const void *), unsigned threads, unsigned shared, const void *args) {
    CUfunc_st f = {nullptr, kernel, 0};
    const CUlaunchConfig one = {{1, 1, 1}, {threads, 1, 1}, shared, nullptr, nullptr, 0};
    if (threads > THREADS || shared > SHARED) return CUDA_ERROR_INVALID_VALUE;
    return launch_now(&one, 1, &f, args);
}

extern "C" CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
    unsigned gx = c->grid[0], gy = c->grid[1], gz = c->grid[2], threads = c->block[0];
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !threads || threads > THREADS || threads % LANES ||
        c->block[1] != 1 || c->block[2] != 1 || c->shared_bytes > SHARED || extra)
        return 1;
    if (CUresult r = fault()) return r;
    CUstream s = c->stream;
    if (!current || s->of != current || f->of != current) return CUDA_ERROR_INVALID_HANDLE;
    if (points_elsewhere(current, parameters[0], f->size)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    unsigned n = 1;
    for (unsigned i = 0; i < c->n_attributes; i++)
        if (c->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(&n, c->attributes[i].value.all, sizeof n);
    if (n < 1 || n > CLUSTER || gx % n) return 1;
    if (s->capturing) {
        const char *args = (const char *)parameters[0];
        s->capturing->all.push_back({*c, (int)n, f, std::vector<char>(args, args + f->size)});
        return 0;
    }
    return launch_now(c, (int)n, f, parameters[0]);
}

/* For fake_nccl.cc: queues a call of its own. */
extern "C" CUresult emu_queue(CUstream s, std::function<void()> *call) {
    if (!s || !current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capturing)
        s->capturing->all.push_back({{}, 1, nullptr, {}, *call});
    else
        (*call)();
    return 0;
}

extern "C" CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) {
    static std::deque<CUfunc_st> known; /* its elements stay where they are */
    std::lock_guard<std::mutex> hold(lock);
    Dl_info here;
    dladdr((void *)emu_block_barrier, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY), *kernel = dlsym(self, name);
    const unsigned *size = (const unsigned *)dlsym(self, ("size_" + std::string(name)).c_str());
    for (CUfunc_st &k : known) /* found before, by a model that is closed */
        if (k.kernel == (void (*)(const void *))kernel && k.of == m->of) return *out = &k, 0;
    if (!kernel || !size) return CUDA_ERROR_NOT_FOUND;
    known.push_back({m->of, (void (*)(const void *))kernel, *size});
    return *out = &known.back(), 0;
}

/* ---- the rest is what any driver does ---- */

static const unsigned long long MEMORY = 8ull << 30;

extern "C" {
CUresult cuInit(unsigned) { return 0; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, 0; }
CUresult cuDeviceGetCount(int *n) { return *n = gpus(), 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, i < 0 || i >= gpus() ? CUDA_ERROR_INVALID_VALUE : 0; }
CUresult cuDeviceGetName(char *name, int len, CUdevice) { return snprintf(name, (size_t)len, "emulated GPU"), 0; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT       ? PROCESSORS
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                             : SHARED;
    return 0;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { return contexts[d].device = d, *c = &contexts[d], 0; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { return current = c, 0; }
CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return *can = a != b && !getenv("EMU_NO_PEERS"), 0; }
CUresult cuCtxEnablePeerAccess(CUcontext of, unsigned) {
    if (!current || of == current) return CUDA_ERROR_INVALID_VALUE;
    return current->peers |= 1u << of->device, 0;
}
/* Parts of a GPU: contexts of their own, whose kernels run side by side as those of several GPUs do. */
struct CUgreenCtx_st {
    CUctx_st context;
};
struct CUdevResourceDesc_st {
    unsigned processors;
};
CUresult cuDeviceGetDevResource(CUdevice, struct CUdevResource_st *to, CUdevResourceType type) {
    cuda_resource all = {};
    all.type = type, all.sm.count = 2 * PROCESSORS, all.sm.smallest_share = all.sm.multiple = 1;
    return *(cuda_resource *)to = all, 0;
}
CUresult cuDevSmResourceSplitByCount(struct CUdevResource_st *to, unsigned *n, const struct CUdevResource_st *from,
                                     struct CUdevResource_st *, unsigned, unsigned each) {
    const cuda_resource *all = (const cuda_resource *)from;
    if (!each || each > all->sm.count) return CUDA_ERROR_INVALID_VALUE;
    if (*n > all->sm.count / each) *n = all->sm.count / each;
    for (unsigned i = 0; i < *n; i++) ((cuda_resource *)to)[i] = *all, ((cuda_resource *)to)[i].sm.count = each;
    return 0;
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *d, struct CUdevResource_st *r, unsigned n) {
    return n == 1 ? (*d = new CUdevResourceDesc_st{((cuda_resource *)r)->sm.count}, 0) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGreenCtxCreate(CUgreenCtx *g, CUdevResourceDesc d, CUdevice on, unsigned flags) {
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM || !d) return CUDA_ERROR_INVALID_VALUE;
    delete d;
    *g = new CUgreenCtx_st{};
    return (*g)->context.device = on, 0;
}
CUresult cuGreenCtxDestroy(CUgreenCtx g) { return delete g, 0; }
CUresult cuCtxFromGreenCtx(CUcontext *c, CUgreenCtx g) { return *c = &g->context, 0; }
CUresult cuGreenCtxStreamCreate(CUstream *s, CUgreenCtx g, unsigned, int) {
    return *s = new CUstream_st{&g->context, nullptr}, 0;
}
CUresult cuStreamCreate(CUstream *s, unsigned) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    return *s = new CUstream_st{current, nullptr}, 0;
}
CUresult cuStreamDestroy_v2(CUstream s) { return delete s, 0; }
CUresult cuStreamSynchronize(CUstream) { return 0; }
CUresult cuEventCreate(CUevent *e, unsigned) { return *e = new CUevent_st(), 0; }
CUresult cuEventDestroy_v2(CUevent e) { return delete e, 0; }
CUresult cuEventRecord(CUevent e, CUstream) { return clock_gettime(CLOCK_MONOTONIC, &e->at), 0; }
CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b) {
    *ms = (float)((b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) * 1e-6);
    return 0;
}
CUresult cuEventSynchronize(CUevent) { return 0; }
CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    const char *filled = getenv("EMU_FILLED"); /* by another process: this GPU but for a few bytes */
    size_t others = filled && atoi(filled) == current->device ? MEMORY - (64 << 20) : 0;
    return *left = MEMORY - others - contexts[current->device].used, *total = MEMORY, 0;
}
/* Shared mappings, so that the system counts them apart from the program's own memory (RssShmem, not RssAnon). */
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    std::lock_guard<std::mutex> hold(lock);
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    void *m = mmap(nullptr, n + 256, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    allocated[ *p = (CUdeviceptr)m] = {n + 256, current};
    return contexts[current->device].used += n + 256, 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) {
    std::lock_guard<std::mutex> hold(lock);
    auto at = allocated.find(p);
    if (at == allocated.end() || at->second.of != current) return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)p, at->second.bytes);
    contexts[current->device].used -= at->second.bytes;
    return allocated.erase(at), 0;
}
/* Memory of the stream's device, at least n bytes of it. */
static CUresult touches(CUstream s, CUdeviceptr p, size_t n) {
    std::lock_guard<std::mutex> hold(lock);
    if (!current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext of = owner(p);
    if (!n) return 0;
    return of && reaches(current, p) && owner(p + n - 1) == of ? 0 : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned) { return *p = malloc(n), *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY; }
CUresult cuMemFreeHost(void *p) { return free(p), 0; }
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memset((void *)p, v, n), 0;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr p, const void *from, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memcpy((void *)p, from, n), 0;
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr p, size_t n, CUstream s) {
    if (CUresult r = touches(s, p, n)) return r;
    return memcpy(to, (const void *)p, n), 0;
}
CUresult cuModuleLoadData(CUmodule *m, const void *) {
    if (!current) return CUDA_ERROR_INVALID_HANDLE;
    return *m = new CUmod_st{current}, 0;
}
CUresult cuModuleUnload(CUmodule m) { return delete m, 0; }
CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) { return s->capturing = new CUgraph_st(), 0; }
CUresult cuStreamEndCapture(CUstream s, CUgraph *g) { return *g = s->capturing, s->capturing = nullptr, 0; }
CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long) {
    if (CUresult r = fault(true)) return r;
    return *x = (CUgraphExec) new CUgraph_st(*g), 0;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return 0; }
CUresult cuGraphDestroy(CUgraph g) { return delete g, 0; }
CUresult cuGraphExecDestroy(CUgraphExec x) { return delete (CUgraph)x, 0; }
CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
    if (CUresult r = fault()) return r;
    if (!current || s->of != current) return CUDA_ERROR_INVALID_HANDLE;
    for (launch &l : ((CUgraph)x)->all)
        if (!l.f)
            l.call();
        else if (launch_now(&l.how, l.cluster, l.f, l.args.data(), true))
            return 1;
    return 0;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int v) { return v > SHARED; }
CUresult cuTensorMapEncodeTiled(struct CUtensorMap_st *map, CUtensorMapDataType type, uint32_t rank, void *at,
                                const uint64_t *sizes, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    bool aligned = !((size_t)map % 64 || (size_t)at % 16 || strides[0] % 16 || strides[1] % 16);
    if (!aligned || type != CU_TENSOR_MAP_DATA_TYPE_UINT16 || rank != 3 ||
        swizzle != (box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B) ||
        (box[0] != 64 && box[0] != 32) || box[1] > 256 || box[2] > 256 || steps[0] != 1)
        return CUDA_ERROR_INVALID_VALUE;
    tensor t = {(const char *)at, {sizes[0], sizes[1], sizes[2]}, {strides[0], strides[1]}, {box[0], box[1], box[2]}};
    memcpy(map, &t, sizeof t);
    return 0;
}
}
