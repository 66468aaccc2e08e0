#include "cmd/lib/mt19937.h"
#include <math.h>
#include <stdlib.h>

enum { N = 624, M = 397 };

void mt_seed_numpy(mt19937 *m, u32 seed) {
    m->state[0] = seed;
    for (u32 i = 1; i < N; i++) m->state[i] = 1812433253u * (m->state[i - 1] ^ m->state[i - 1] >> 30) + i;
    m->at = N;
}

void mt_seed_python(mt19937 *m, u64 seed) {
    const u32 key[2] = {(u32)seed, (u32)(seed >> 32)};
    const u32 len = key[1] ? 2 : 1;
    u32 *s = m->state, i = 1, j = 0;
    mt_seed_numpy(m, 19650218u);
    for (int k = N; k; k--) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + key[j] + j;
        if (++i == N) s[0] = s[N - 1], i = 1;
        if (++j == len) j = 0;
    }
    for (int k = N - 1; k; k--) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == N) s[0] = s[N - 1], i = 1;
    }
    s[0] = 0x80000000u;
}

static void refill(mt19937 *m) {
    u32 *s = m->state;
    for (int i = 0; i < N; i++) {
        u32 y = (s[i] & 0x80000000u) | (s[(i + 1) % N] & 0x7fffffffu);
        s[i] = s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    m->at = 0;
}

u32 mt_u32(mt19937 *m) {
    if (m->at >= N) refill(m);
    u32 y = m->state[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

f64 mt_unit(mt19937 *m) {
    u32 a = mt_u32(m) >> 5, b = mt_u32(m) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
}

u64 mt_below(mt19937 *m, u64 n) {
    int bits = 64 - __builtin_clzll(n);
    for (;;) {
        u64 r = bits <= 32 ? mt_u32(m) >> (32 - bits) : mt_u32(m) | (u64)(mt_u32(m) >> (64 - bits)) << 32;
        if (r < n) return r;
    }
}

static bool contains(const i64 *x, i64 n, i64 v) {
    for (i64 i = 0; i < n; i++)
        if (x[i] == v) return true;
    return false;
}

/* Python draws from a shrinking list while that is smaller than a set of k members would be. */
bool mt_sample(mt19937 *m, i64 n, i64 k, i64 *out) {
    if (k > n || k < 0) return false;
    f64 set_size = 21;
    if (k > 5) set_size += pow(4, ceil(log((f64)k * 3) / log(4)));
    if ((f64)n > set_size) {
        for (i64 i = 0; i < k; i++) do
                out[i] = (i64)mt_below(m, (u64)n);
            while (contains(out, i, out[i]));
        return true;
    }
    i64 *pool = malloc((size_t)n * sizeof *pool + 1);
    if (!pool) return false;
    for (i64 i = 0; i < n; i++) pool[i] = i;
    for (i64 i = 0; i < k; i++) {
        i64 j = (i64)mt_below(m, (u64)(n - i));
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    free(pool);
    return true;
}

void mt_shuffle(mt19937 *m, i64 *x, i64 n) {
    for (i64 i = n - 1; i > 0; i--) {
        i64 j = (i64)mt_below(m, (u64)i + 1), t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

i64 mt_randint(mt19937 *m, i64 low, i64 high) {
    u32 range = (u32)(high - low), mask = range, v;
    if (!range) return low;
    for (int s = 1; s < 32; s *= 2) mask |= mask >> s;
    do v = mt_u32(m) & mask;
    while (v > range);
    return low + v;
}

f64 mt_exponential(mt19937 *m, f64 scale) { return -log(1.0 - mt_unit(m)) * scale; }
