/* runtime/philox.h: Philox4x32-10, a counter-based random generator (Salmon et al., SC 2011): the number
 * drawn for an output position depends on the seed, the choice index and the position alone, never on what
 * else runs. */
#ifndef RUNTIME_PHILOX_H
#define RUNTIME_PHILOX_H
#include "base/types.h"

/* Ten rounds over counter c with key k, in place. */
static inline void philox4x32(u32 c[4], u32 k0, u32 k1) {
    for (int r = 0; r < 10; r++) {
        u64 a = (u64)0xd2511f53u * c[0], b = (u64)0xcd9e8d57u * c[2];
        u32 next[4] = {(u32)(b >> 32) ^ c[1] ^ k0, (u32)b, (u32)(a >> 32) ^ c[3] ^ k1, (u32)a};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* 53 bits for output position `position` of choice `choice`. */
static inline u64 philox_bits(u64 seed, u32 choice, u64 position) {
    u32 c[4] = {(u32)position, (u32)(position >> 32), choice, 0};
    philox4x32(c, (u32)seed, (u32)(seed >> 32));
    return ((u64)c[0] << 32 | c[1]) >> 11;
}

/* The same in [0, 1). */
static inline f64 philox_uniform(u64 seed, u32 choice, u64 position) {
    return (f64)philox_bits(seed, choice, position) * 0x1p-53;
}

#endif
