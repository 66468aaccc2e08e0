/* format/dtype.h: element types as they occur in checkpoints, and their conversion to float.
 *
 * bf16 is the upper half of a float32. fp8 e4m3fn has bias 7, no infinity and one NaN pattern per sign (0x7f,
 * 0xff); its largest value is 448 (OCP 8-bit floating point specification, 2023). */
#ifndef FORMAT_DTYPE_H
#define FORMAT_DTYPE_H
#include "base/types.h"
#include <string.h>

/* name in a safetensors header, bytes per element */
#define DTYPE_MAP(X)                                                                                                   \
    X(DT_F32, "F32", 4)                                                                                                \
    X(DT_BF16, "BF16", 2)                                                                                              \
    X(DT_F16, "F16", 2)                                                                                                \
    X(DT_F8_E4M3, "F8_E4M3", 1)                                                                                        \
    X(DT_F64, "F64", 8)                                                                                                \
    X(DT_F8_E5M2, "F8_E5M2", 1)                                                                                        \
    X(DT_F8_E8M0, "F8_E8M0", 1)                                                                                        \
    X(DT_I64, "I64", 8)                                                                                                \
    X(DT_I32, "I32", 4)                                                                                                \
    X(DT_I16, "I16", 2)                                                                                                \
    X(DT_I8, "I8", 1)                                                                                                  \
    X(DT_U64, "U64", 8)                                                                                                \
    X(DT_U32, "U32", 4)                                                                                                \
    X(DT_U16, "U16", 2)                                                                                                \
    X(DT_U8, "U8", 1)                                                                                                  \
    X(DT_BOOL, "BOOL", 1)

typedef enum {
#define DTYPE_ENUM(id, name, size) id,
    DTYPE_MAP(DTYPE_ENUM)
#undef DTYPE_ENUM
        DT_COUNT
} dtype;

const char *dtype_name(dtype t);
u32 dtype_size(dtype t);                                    /* bytes per element */
bool dtype_parse(const char *name, size_t len, dtype *out); /* false for an unknown name */

typedef u16 bf16; /* storage only; arithmetic is float32 */

static inline f32 f32_from_bits(u32 b) {
    f32 f;
    memcpy(&f, &b, 4);
    return f;
}
static inline u32 f32_bits(f32 f) {
    u32 b;
    memcpy(&b, &f, 4);
    return b;
}
static inline f32 bf16_to_f32(bf16 h) { return f32_from_bits((u32)h << 16); }
/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static inline bf16 f32_to_bf16(f32 f) {
    u32 b = f32_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (bf16)((b >> 16) | 0x40);
    return (bf16)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}
f32 f16_to_f32(u16 h);
extern const f32 f8_e4m3_values[256];
static inline f32 f8_e4m3_to_f32(u8 b) { return f8_e4m3_values[b]; }
/* Nearest even, saturating to +-448; NaN stays NaN. */
u8 f32_to_f8_e4m3(f32 f);

#endif
