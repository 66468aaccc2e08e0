#include "format/dtype.h"
#include <math.h>

const char *dtype_name(dtype t) {
    switch (t) {
#define DTYPE_CASE(id, name, size)                                                                                     \
    case id: return name;
        DTYPE_MAP(DTYPE_CASE)
#undef DTYPE_CASE
    case DT_COUNT: break;
    }
    return "?";
}

u32 dtype_size(dtype t) {
    switch (t) {
#define DTYPE_CASE(id, name, size)                                                                                     \
    case id: return size;
        DTYPE_MAP(DTYPE_CASE)
#undef DTYPE_CASE
    case DT_COUNT: break;
    }
    return 0;
}

bool dtype_parse(const char *name, size_t len, dtype *out) {
    for (int t = 0; t < DT_COUNT; t++) {
        const char *n = dtype_name((dtype)t);
        if (strlen(n) == len && memcmp(n, name, len) == 0) return *out = (dtype)t, true;
    }
    return false;
}

f32 f16_to_f32(u16 h) {
    u32 sign = (u32)(h >> 15) << 31, ex = (h >> 10) & 31, man = h & 1023;
    if (ex == 31) return f32_from_bits(sign | 0x7f800000u | man << 13);
    if (ex) return f32_from_bits(sign | (ex + 112) << 23 | man << 13);
    f32 v = (f32)man * 0x1p-24f;
    return sign ? -v : v;
}

/* Eight mantissas of an exponent: x is the last place's worth. */
#define F8_NORMAL(x) 8 * (x), 9 * (x), 10 * (x), 11 * (x), 12 * (x), 13 * (x), 14 * (x), 15 * (x)
#define F8_HALF(s, nan)                                                                                                \
    s 0.0f, s 0x1p-9f, s 0x2p-9f, s 0x3p-9f, s 0x4p-9f, s 0x5p-9f, s 0x6p-9f, s 0x7p-9f, F8_NORMAL(s 0x1p-9f),         \
        F8_NORMAL(s 0x1p-8f), F8_NORMAL(s 0x1p-7f), F8_NORMAL(s 0x1p-6f), F8_NORMAL(s 0x1p-5f), F8_NORMAL(s 0x1p-4f),  \
        F8_NORMAL(s 0x1p-3f), F8_NORMAL(s 0x1p-2f), F8_NORMAL(s 0x1p-1f), F8_NORMAL(s 1.0f), F8_NORMAL(s 2.0f),        \
        F8_NORMAL(s 4.0f), F8_NORMAL(s 8.0f), F8_NORMAL(s 16.0f), s 256.0f, s 288.0f, s 320.0f, s 352.0f, s 384.0f,    \
        s 416.0f, s 448.0f, nan
const f32 f8_e4m3_values[256] = {F8_HALF(+, __builtin_nanf("")), F8_HALF(-, -__builtin_nanf(""))};

u8 f32_to_f8_e4m3(f32 f) {
    u8 sign = (u8)(f32_bits(f) >> 31 << 7);
    f32 a = fabsf(f);
    if (isnan(f)) return sign | 0x7f;
    if (a >= 448.0f) return sign | 0x7e;
    if (a < 0x1p-6f) return sign | (u8)lrintf(a * 0x1p9f); /* subnormal; 8 carries into the first normal */
    u32 b = f32_bits(a);
    b += 0x7ffffu + ((b >> 20) & 1); /* to nearest even at 3 mantissa bits */
    u32 code = (b >> 20) - (120u << 3);
    return sign | (u8)(code > 0x7e ? 0x7e : code);
}
