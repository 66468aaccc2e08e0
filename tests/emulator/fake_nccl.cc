/* NCCL's functions on the emulated GPUs, for tests of device/comm_nccl.c: what is sent is copied, sums are
 * float32 in the order of the ranks. A rank waits for the others inside of the call, or inside of a recorded
 * step's replay.
 *
 * FAKE_NCCL is "async": an exchange has failed; "start": it does not start; "slow": it starts after a second;
 * "stuck": it does not connect; "fail N": the Nth exchange of rank 1 fails; "ring": sums begin with another rank in
 * each part of the values and are rounded from rank to rank. */
extern "C" {
#include "device/nccl_symbols.h"
}
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {
enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };
struct op {
    kind what;
    const void *from;
    void *to;
    size_t n;
    unsigned type;
    int peer; /* or root */
};
typedef std::vector<op> batch;

struct group {
    int ranks;
    std::mutex lock;
    std::condition_variable changed;
    long come = 0, round = 0;
    bool aborted = false;
    int aborts = 0;
    std::shared_ptr<int> recordings = std::make_shared<int>(0); /* and who else has it is a call that waits or is one */
    std::vector<const batch *> posted;
    std::atomic<int> open{0};
};
} // namespace

struct ncclComm {
    std::shared_ptr<group> of;
    int rank;
    CUstream stream = nullptr;
    int exchanges = 0;
    batch pending; /* of an open group of calls */
};

namespace {
thread_local int depth = 0;
thread_local std::vector<ncclComm *> touched;

const char *word(const char *name) {
    const char *text = getenv("FAKE_NCCL");
    const char *at = text ? strstr(text, name) : nullptr;
    return at ? at + strlen(name) : nullptr;
}

/* Everybody has come; false: aborted. */
bool meet(group &g) {
    std::unique_lock<std::mutex> hold(g.lock);
    const long round = g.round;
    if (++g.come == g.ranks) {
        g.come = 0, g.round++;
        g.changed.notify_all();
    }
    g.changed.wait(hold, [&] { return g.aborted || g.round != round; });
    return !g.aborted;
}

size_t size_of(unsigned type) { return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4; }

float value_at(const void *p, size_t i, unsigned type) {
    if (type == ncclFloat32) return ((const float *)p)[i];
    const unsigned word = (unsigned)((const unsigned short *)p)[i] << 16;
    float f;
    memcpy(&f, &word, 4);
    return f;
}

void put(void *p, size_t i, float v, unsigned type) {
    if (type == ncclFloat32) {
        ((float *)p)[i] = v;
        return;
    }
    unsigned word;
    memcpy(&word, &v, 4);
    if ((word & 0x7fffffff) > 0x7f800000)
        word |= 0x400000;
    else
        word += 0x7fff + (word >> 16 & 1);
    ((unsigned short *)p)[i] = (unsigned short)(word >> 16);
}

/* The k-th of what rank `from` sends to rank `to`. */
const op *sent(const batch &b, int to, int k) {
    for (const op &o : b)
        if (o.what == SEND && o.peer == to && !k--) return &o;
    return nullptr;
}

[[noreturn]] void wrong(const char *what) {
    fprintf(stderr, "fake NCCL: %s\n", what);
    abort();
}

void run_one(group &g, int rank, const batch &own, size_t i, std::vector<char> *kept) {
    const op &o = own[i];
    const size_t size = size_of(o.type);
    auto peer = [&](int r) -> const op & {
        const batch &b = *g.posted[(size_t)r];
        if (b.size() != own.size() || b[i].what != o.what || b[i].n != o.n || b[i].type != o.type)
            wrong("ranks call different exchanges");
        return b[i];
    };
    if (o.what == ALL_REDUCE || o.what == REDUCE_SCATTER) {
        const size_t at = o.what == REDUCE_SCATTER ? (size_t)rank * o.n : 0;
        const bool ring = word("ring");
        kept->resize(o.n * size);
        for (size_t k = 0; k < o.n; k++) {
            const int first = ring ? (int)(k * (size_t)g.ranks / o.n) : 0;
            float sum = value_at(peer(first).from, at + k, o.type);
            for (int r = 1; r < g.ranks; r++) {
                sum += value_at(peer((first + r) % g.ranks).from, at + k, o.type);
                if (!ring) continue;
                put(kept->data(), k, sum, o.type); /* rounded from rank to rank */
                sum = value_at(kept->data(), k, o.type);
            }
            put(kept->data(), k, sum, o.type);
        }
    } else if (o.what == ALL_GATHER) {
        kept->resize(o.n * size * (size_t)g.ranks);
        for (int r = 0; r < g.ranks; r++) memcpy(kept->data() + (size_t)r * o.n * size, peer(r).from, o.n * size);
    } else if (o.what == BROADCAST) {
        kept->assign((const char *)peer(o.peer).from, (const char *)peer(o.peer).from + o.n * size);
    } else if (o.what == RECV) {
        int k = 0;
        for (size_t before = 0; before < i; before++) k += own[before].what == RECV && own[before].peer == o.peer;
        const op *from = sent(*g.posted[(size_t)o.peer], rank, k);
        if (!from || from->n * size_of(from->type) != o.n * size) wrong("what is received was not sent so");
        kept->assign((const char *)from->from, (const char *)from->from + o.n * size);
    }
}

/* Results are kept until nobody reads what they replace. */
void run(group &g, int rank, const batch &own) {
    std::vector<std::vector<char>> kept(own.size());
    {
        std::lock_guard<std::mutex> hold(g.lock);
        g.posted[(size_t)rank] = &own;
    }
    if (!meet(g)) return;
    for (size_t i = 0; i < own.size(); i++) run_one(g, rank, own, i, &kept[i]);
    if (!meet(g)) return;
    for (size_t i = 0; i < own.size(); i++)
        if (!kept[i].empty()) memcpy(own[i].to, kept[i].data(), kept[i].size());
}

ncclResult_t queue(ncclComm *c) {
    static auto emu_queue = (CUresult(*)(CUstream, std::function<void()> *))dlsym(
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "emu_queue");
    std::shared_ptr<group> g = c->of;
    std::shared_ptr<batch> own = std::make_shared<batch>(std::move(c->pending));
    c->pending.clear();
    const char *fails = word("fail ");
    if (fails && c->rank == 1 && ++c->exchanges >= atoi(fails)) return 3;
    std::function<void()> call = [g, own, rank = c->rank, recorded = g->recordings] { run(*g, rank, *own); };
    if (g->aborted) return 3;
    return emu_queue(c->stream, &call) ? 1 : 0;
}

ncclResult_t add(ncclComm *c, CUstream s, const op &o) {
    if (!c) return 4;
    c->pending.push_back(o);
    c->stream = s;
    if (!depth) return queue(c);
    for (ncclComm *t : touched)
        if (t == c) return 0;
    touched.push_back(c);
    return 0;
}
} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int *v) { return *v = 22700, 0; }
const char *ncclGetErrorString(ncclResult_t r) {
    return r == 3 ? "internal error" : r ? "unhandled error" : "no error";
}
const char *ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static std::atomic<int> next{1};
    snprintf(id->internal, sizeof id->internal, "%d", next++);
    return 0;
}
/* Ranks of one process alone: all of them are made in a group of calls, so that none need wait for another. */
ncclResult_t ncclCommInitRank(ncclComm_t *out, int n, ncclUniqueId id, int rank) {
    static std::mutex lock;
    static std::map<std::string, std::weak_ptr<group>> groups;
    if (word("start")) return 2;
    if (word("slow")) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::lock_guard<std::mutex> hold(lock);
    std::shared_ptr<group> g = groups[id.internal].lock();
    if (!g) {
        g = std::make_shared<group>();
        g->ranks = n;
        g->posted.resize((size_t)n);
        groups[id.internal] = g;
    }
    *out = new ncclComm{g, rank, nullptr, 0, {}};
    return 0;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) { return delete c, 0; }
/* As NCCL's, the last one waits until no recording has calls of theirs. */
ncclResult_t ncclCommAbort(ncclComm_t c) {
    std::shared_ptr<group> g = c->of;
    bool last;
    {
        std::lock_guard<std::mutex> hold(g->lock);
        g->aborted = true;
        last = ++g->aborts == g->ranks;
        g->changed.notify_all();
    }
    for (int i = 0; last && g->recordings.use_count() > 1; i++) {
        if (i == 20000) wrong("recordings are not ended after an abort");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return delete c, 0;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *r) { return *r = word("async") ? 3 : 0, 0; }
ncclResult_t ncclGroupStart(void) { return depth++, 0; }
/* Calls of several ranks in one thread's group run side by side, as NCCL's kernels would. */
ncclResult_t ncclGroupEnd(void) {
    if (--depth) return 0;
    std::vector<ncclComm *> all;
    all.swap(touched);
    if (all.empty()) return 0; /* ends alone were made */
    if (all.size() == 1) return queue(all[0]);
    if (word("stuck")) { /* connects for ever */
        std::shared_ptr<group> g = all[0]->of;
        std::unique_lock<std::mutex> hold(g->lock);
        g->changed.wait(hold, [&] { return g->aborted; });
        return 3;
    }
    std::vector<std::thread> threads;
    for (ncclComm *c : all) {
        auto own = std::make_shared<batch>(std::move(c->pending));
        c->pending.clear();
        threads.emplace_back([c, own] { run(*c->of, c->rank, *own); });
    }
    for (std::thread &t : threads) t.join();
    return 0;
}
ncclResult_t ncclAllReduce(const void *x, void *y, size_t n, ncclDataType_t t, ncclRedOp_t, ncclComm_t c, CUstream s) {
    return add(c, s, {ALL_REDUCE, x, y, n, t, 0});
}
ncclResult_t ncclReduceScatter(const void *x, void *y, size_t n, ncclDataType_t t, ncclRedOp_t, ncclComm_t c,
                               CUstream s) {
    return add(c, s, {REDUCE_SCATTER, x, y, n, t, 0});
}
ncclResult_t ncclAllGather(const void *x, void *y, size_t n, ncclDataType_t t, ncclComm_t c, CUstream s) {
    return add(c, s, {ALL_GATHER, x, y, n, t, 0});
}
ncclResult_t ncclBroadcast(const void *x, void *y, size_t n, ncclDataType_t t, int root, ncclComm_t c, CUstream s) {
    return add(c, s, {BROADCAST, x, y, n, t, root});
}
ncclResult_t ncclSend(const void *x, size_t n, ncclDataType_t t, int peer, ncclComm_t c, CUstream s) {
    return add(c, s, {SEND, x, nullptr, n, t, peer});
}
ncclResult_t ncclRecv(void *y, size_t n, ncclDataType_t t, int peer, ncclComm_t c, CUstream s) {
    return add(c, s, {RECV, nullptr, y, n, t, peer});
}
}
