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

f32 f8_e4m3_to_f32(u8 b) {
    u32 sign = (u32)(b >> 7) << 31, ex = (b >> 3) & 15, man = b & 7;
    if (ex == 15 && man == 7) return f32_from_bits(sign | 0x7fc00000u);
    if (ex) return f32_from_bits(sign | (ex + 120) << 23 | man << 20);
    f32 v = (f32)man * 0x1p-9f;
    return sign ? -v : v;
}

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
