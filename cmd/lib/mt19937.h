/* cmd/lib/mt19937.h: the random numbers of Python's `random` and of numpy's legacy `numpy.random`, bit for bit, so that
 * workloads and few-shot prompts are the same as those of the Python programs that results are compared with.
 *
 * The generator is M. Matsumoto's and T. Nishimura's MT19937 (ACM TOMACS 8, 1998), seeded as in their 2002 code. */
#ifndef CMD_LIB_MT19937_H
#define CMD_LIB_MT19937_H
#include "base/types.h"

typedef struct {
    u32 state[624];
    int at;
} mt19937;

void mt_seed_python(mt19937 *m, u64 seed); /* random.Random(seed): the seed as an array of 32-bit words */
void mt_seed_numpy(mt19937 *m, u32 seed);  /* numpy.random.seed(seed) */
u32 mt_u32(mt19937 *m);
f64 mt_unit(mt19937 *m); /* [0, 1) with 53 bits: random.random(), numpy.random.random_sample() */

/* ---- Python ---- */
u64 mt_below(mt19937 *m, u64 n); /* Random._randbelow: 0..n-1, n in 1..2^32 */
/* random.sample(range(n), k): k different numbers below n into out[k]. False when k > n or out of memory. */
bool mt_sample(mt19937 *m, i64 n, i64 k, i64 *out);
void mt_shuffle(mt19937 *m, i64 *x, i64 n); /* random.shuffle */

/* ---- numpy ---- */
i64 mt_randint(mt19937 *m, i64 low, i64 high); /* numpy.random.randint(low, high + 1), ranges below 2^32 */
f64 mt_exponential(mt19937 *m, f64 scale);     /* numpy.random.exponential(scale) */

#endif
