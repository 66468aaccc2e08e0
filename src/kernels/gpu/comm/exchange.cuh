/* kernels/gpu/comm/exchange.cuh: what exchanges between GPUs have in common.
 *
 * Every rank writes into everybody's mailbox and reads its own. A unit of 16 bytes travels with the number of its
 * exchange: whoever reads that number has the unit, so there is no barrier between GPUs and no store waits for
 * another. A mailbox has room for two exchanges. In each, every rank waits for something of everybody; so a rank that
 * writes the one after the next has had everybody's part of the next, which they sent after they had read this one.
 * Bytes sent: twice what is exchanged. */
#ifndef KERNELS_GPU_COMM_EXCHANGE_CUH
#define KERNELS_GPU_COMM_EXCHANGE_CUH
#include "kernels/gpu/device/sm90.cuh"

/* Between looks at the clock, and at the host's word: that is a read over PCIe, 20 ns of it. When every thread that
 * waited 256 polls made one, 64 blocks took 0.3 ms, in which the others waited in turn (two H200). */
enum { POLLS = 256, LOOK_NS = 4000000 };

typedef struct {
    gpu_u32 number;
    gpu_i64 base;        /* of this exchange's half of a mailbox */
    gpu_u64 until, look; /* at the host's word */
    bool going;
} exchange_state;

/* false: the group has failed, nothing is exchanged. */
static __device__ inline bool exchange_begin(const gpu_exchange &e, exchange_state &s) {
    gpu_u32 before = *(volatile gpu_u32 *)&e.words[COMM_NUMBERS + blockIdx.x];
    s.going = !*(volatile gpu_u32 *)&e.words[COMM_BROKEN];
    s.number = before + 1 ? before + 1 : 2; /* odd and even in turn; never 0, which memory has that nobody wrote */
    s.base = (s.number & 1) * e.ranks * e.units;
    s.until = s.look = 0; /* the clock is looked at when something is missing */
    return s.going;
}

/* Has the exchange to end? The rank that is missing is told to the host, once. patience: in deadlines, of who waits for
 * a rank that may itself wait for another, which is the one to be named. */
static __device__ inline bool must_give_up(const gpu_exchange &e, exchange_state &s, int missing, int patience = 1) {
    gpu_u64 now = global_ns();
    if (!s.until) s.until = now + patience * e.deadline_ns, s.look = now + LOOK_NS;
    if (*(volatile gpu_u32 *)&e.words[COMM_BROKEN]) return true;
    if (now < s.look && now < s.until) return false;
    s.look = now + LOOK_NS;
    if (e.host[COMM_STOP] == 0 && now < s.until) return false;
    *(volatile gpu_u32 *)&e.words[COMM_BROKEN] = 1;
    if (e.host[COMM_STOP] == 0) e.host[COMM_FAILED] = 1 + missing;
    return true;
}

static __device__ inline void send_unit(const gpu_exchange &e, const exchange_state &s, int to, gpu_i64 unit, gpu_u32 a,
                                        gpu_u32 b) {
    store_flagged(e.mailboxes[to] + s.base + e.rank * e.units + unit, a, b, s.number);
}

/* What rank `from` sent, .x and .z; s.going is false if it does not come. */
static __device__ inline uint4 take_unit(const gpu_exchange &e, exchange_state &s, int from, gpu_i64 unit) {
    const uint4 *at = e.mailboxes[e.rank] + s.base + from * e.units + unit;
    uint4 v = load_flagged(at);
    for (int polls = 1; s.going && (v.y != s.number || v.w != s.number); polls++) {
        if (polls % POLLS == 0) s.going = !must_give_up(e, s, from);
        poll_again();
        v = load_flagged(at);
    }
    return v;
}

/* Tells rank `with` where something lies that this GPU's launches before this one have written, and returns what it
 * tells, which may be read if s.going still holds; by a unit of the mailbox that nothing else takes in this exchange.
 */
static __device__ inline const void *swap_addresses(const gpu_exchange &e, exchange_state &s, int with, gpu_i64 unit,
                                                    const void *mine) {
    const gpu_u64 at = (gpu_u64)mine;
    fence_system();
    send_unit(e, s, with, unit, (gpu_u32)at, (gpu_u32)(at >> 32));
    const uint4 v = take_unit(e, s, with, unit);
    fence_system();
    return (const void *)(v.x | (gpu_u64)v.z << 32);
}

/* By all threads of all blocks, at the end: every block counts for itself, and for those that this launch lacks. */
static __device__ inline void exchange_end(const gpu_exchange &e, const exchange_state &s) {
    __syncthreads(); /* all have read the number */
    int block = blockIdx.x + threadIdx.x * gridDim.x;
    if (block < COMM_NORM_BLOCKS) e.words[COMM_NUMBERS + block] = s.number;
}

#endif
