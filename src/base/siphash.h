/* base/siphash.h: a hash of bytes under a secret key, for names that somebody else chooses.
 *
 * SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): without the key nobody can make two
 * inputs meet, nor tell from values that leak what others will be. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H
#include "base/types.h"

u64 siphash(const u64 key[2], const void *data, size_t n);

#endif
