#include "base/siphash.h"

typedef struct {
    u64 a, b, c, d;
} state;

static u64 siphash_turn(u64 x, int by) { return x << by | x >> (64 - by); }

/* The paper's SipRound, its four words named a to d. */
static void rounds(state *s, int n) {
    while (n-- > 0) {
        s->a += s->b;
        s->c += s->d;
        s->b = siphash_turn(s->b, 13) ^ s->a;
        s->d = siphash_turn(s->d, 16) ^ s->c;
        s->a = siphash_turn(s->a, 32);
        s->c += s->b;
        s->a += s->d;
        s->b = siphash_turn(s->b, 17) ^ s->c;
        s->d = siphash_turn(s->d, 21) ^ s->a;
        s->c = siphash_turn(s->c, 32);
    }
}

static void siphash_take(state *s, u64 word) {
    s->d ^= word;
    rounds(s, 2);
    s->a ^= word;
}

static u64 little_endian(const u8 *p, size_t n) {
    u64 x = 0;
    for (size_t i = 0; i < n; i++) x |= (u64)p[i] << 8 * i;
    return x;
}

u64 siphash(const u64 key[2], const void *data, size_t n) {
    const u8 *p = data;
    state s = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
               key[1] ^ 0x7465646279746573u}; /* the paper's four words, so that equal halves differ */
    for (size_t i = 0; i + 8 <= n; i += 8) siphash_take(&s, little_endian(p + i, 8));
    siphash_take(&s, little_endian(p + n / 8 * 8, n % 8) | (u64)n << 56);
    s.c ^= 0xff;
    rounds(&s, 4);
    return s.a ^ s.b ^ s.c ^ s.d;
}
