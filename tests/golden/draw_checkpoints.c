/* Draws the random checkpoints of tests/golden from their seeds, in the layouts that the Kimi-K2 family is published
 * in.
 *
 *     draw_checkpoints CONFIGS OUT [--values]      reads CONFIGS/NAME/config.json, writes OUT/NAME
 *
 * Dimensions and layout are the config's; the table below adds a seed and the shards' names. The same bytes come out
 * on every processor: integers from Philox, float32 operations that IEEE 754 rounds exactly, no contraction
 * (Makefile). --values also writes OUT/NAME/values.safetensors: what the matrices are worth in float32 under their
 * plain names, taken before they are packed, so that who computes with them depends on no reader of the packed
 * forms. */
#include "base/types.h"
#include "runtime/philox.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *name;
    u32 seed;
    const char *shards; /* a pattern of number and count; NULL: one file without an index */
} golden;

#define PADDED "model-%05d-of-%06d.safetensors"
static const golden ALL[] = {
    {"k2-instruct-fp8", 1000, "model-%d-of-%d.safetensors"},
    {"k2-ranks-fp8", 1100, "model-%d-of-%d.safetensors"},
    {"k2-thinking-int4", 2000, PADDED},
    {"k2.5-int4", 3000, PADDED},
    {"k2.5-ranks-int4", 3100, PADDED},
    {"k2.5-w4a8", 6000, PADDED},
    {"k2.5-ranks-w4a8", 6100, PADDED},
    {"k2.5-mxfp4", 7000, PADDED},
    {"k2.5-ranks-mxfp4", 7100, PADDED},
    {"k2.5-mxfp4-ct", 7200, PADDED},
    {"k2.5-float8", 9000, PADDED},
    {"k2.5-int8", 9100, PADDED},
    {"k2-w4afp8", 9200, "model-%d-of-%d.safetensors"},
    {"k2.5-nvfp4", 8000, PADDED},
    {"k2.5-nvfp4-ct", 8100, PADDED},
    {"plain-bf16", 4000, NULL},
    {"plain-ranks-bf16", 4100, NULL},
    {"plain-fp32", 5000, NULL},
    {"plain-ranks-fp32", 5100, NULL},
};

/* LATENT is the gain of q_a and kv_a's latent rows: their norms undo it, but it makes an eps of 1e-5 in place of 1e-6
 * visible. OUTPUT is that of o_proj and down_proj. */
static const f64 LATENT = 0.03, OUTPUT = 0.6;

typedef enum { BF16, FP32, FP8, INT4, QUARK, MXFP4, MXFP4_PACKED, NVFP4, NVFP4_PACKED, FP8_ROW, INT8, W4AFP8 } form;

typedef struct {
    char name[160];
    const char *dtype;
    u64 item;
    i64 shape[4];
    int dims, shard;
    u64 bytes;
    void *data;
} tensor;

enum { VALUES = -1 }; /* the "shard" of --values */

typedef struct {
    const golden *g;
    const json_t *text; /* the text model's configuration */
    const char *prefix;
    form plain, attention, dense,
        expert; /* of norms, router, embedding, head; of attention; of dense and shared experts; of routed ones */
    bool values;
    int shard;
    tensor *t;
    size_t n, room;
} checkpoint;

static _Noreturn void die(const char *what, const char *name) {
    fprintf(stderr, "draw_checkpoints: %s %s: %s\n", what, name, errno ? strerror(errno) : "not as expected");
    exit(1);
}

static void *allocate(u64 n) {
    void *p = calloc(n ? n : 1, 1);
    if (!p) die("memory for", "a tensor");
    return p;
}

/* ---- numbers ---- */

static u32 name_hash(const char *name, const char *suffix) { /* FNV-1a */
    u32 h = 0x811c9dc5u;
    for (; *name; name++) h = (h ^ (u8)*name) * 0x01000193u;
    for (; *suffix; suffix++) h = (h ^ (u8)*suffix) * 0x01000193u;
    return h;
}

/* Number i of tensor `name`: very nearly N(0, 1), a sum of eight uniform numbers, which is an integer. */
static f32 normal(const checkpoint *ck, u32 hash, u64 i) {
    u32 c[4] = {(u32)i, (u32)(i >> 32), hash, 0};
    philox4x32(c, ck->g->seed, 0);
    i32 sum = -4 * 0xffff;
    for (int k = 0; k < 4; k++) sum += (i32)(c[k] & 0xffff) + (i32)(c[k] >> 16);
    return (f32)sum * (1.2247449f / 0x1p16f); /* sqrt(12 / 8) */
}

static f32 *draw(const checkpoint *ck, const char *name, u64 n) {
    f32 *x = allocate(n * sizeof *x);
    u32 hash = name_hash(name, "");
    for (u64 i = 0; i < n; i++) x[i] = normal(ck, hash, i);
    return x;
}

/* 1 to 4: how far a scale is above what its values need. A scale taken from the neighbour cannot pass for the right
 * one. */
static f32 spread(const checkpoint *ck, const char *name, u64 i) {
    u32 c[4] = {(u32)i, (u32)(i >> 32), name_hash(name, ".spread"), 0};
    philox4x32(c, ck->g->seed, 0);
    return 1.0f + 3.0f * ((f32)(c[0] >> 8) * 0x1p-24f);
}

static u16 to_bf16(f32 x) { /* nearest, ties to even; finite only */
    u32 u;
    memcpy(&u, &x, sizeof u);
    return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static f32 from_bf16(u16 h) {
    u32 u = (u32)h << 16;
    f32 x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static f32 from_e4m3(u8 b) {
    int e = b >> 3 & 15, m = b & 7;
    f32 x = e ? (f32)(8 + m) * (f32)(1 << e) * 0x1p-10f : (f32)m * 0x1p-9f;
    return b & 0x80 ? -x : x;
}

/* Nearest, ties to even, up to 448 (0x7e): between two codes lies a midpoint that float32 holds. */
static u8 to_e4m3(f32 x) {
    f32 a = fabsf(x);
    int low = 0, high = 0x7e;
    while (low < high) { /* the code is at least low, at most high */
        int code = (low + high) / 2;
        f32 middle = (from_e4m3((u8)code) + from_e4m3((u8)(code + 1))) / 2;
        if (a < middle || (a == middle && !(code & 1)))
            high = code;
        else
            low = code + 1;
    }
    return (u8)(low | (signbit(x) ? 0x80 : 0));
}

static f32 from_e2m1(int code) {
    static const f32 values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -values[code & 7] : values[code & 7];
}

/* Nearest, ties to the even code, up to 6. */
static int to_e2m1(f32 x) {
    f32 a = fabsf(x);
    int code = 0;
    for (; code < 7; code++) {
        f32 middle = (from_e2m1(code) + from_e2m1(code + 1)) / 2;
        if (a < middle || (a == middle && !(code & 1))) break;
    }
    return code | (signbit(x) ? 8 : 0);
}

static f32 largest(const f32 *x, i64 rows, i64 cols, i64 stride) {
    f32 m = 0;
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < cols; j++) m = fmaxf(m, fabsf(x[i * stride + j]));
    return m;
}

/* x / scale as a nibble: -8 to 7, nearest, ties to even. */
static int to_int4(f32 x, f32 scale) {
    f32 q = rintf(x / scale);
    return q < -8 ? -8 : q > 7 ? 7 : (int)q;
}

/* ---- tensors ---- */

/* A new tensor of zeros; its data. dims: 1 [cols], 2 [rows, cols]. */
static void *put(checkpoint *ck, int shard, const char *dtype, const char *prefix, const char *name, const char *suffix,
                 i64 rows, i64 cols) {
    if (ck->n == ck->room) {
        ck->room = 2 * ck->room + 64;
        if (!(ck->t = realloc(ck->t, ck->room * sizeof *ck->t))) die("memory for", "the tensors");
    }
    tensor *t = &ck->t[ck->n++];
    *t = (tensor){.dtype = dtype, .dims = rows ? 2 : 1, .shape = {rows ? rows : cols, cols}, .shard = shard};
    t->item = !strcmp(dtype, "F8_E4M3") || !strcmp(dtype + 1, "8") ? 1 : !strcmp(dtype, "BF16") ? 2 : 4;
    t->bytes = (u64)((rows ? rows : 1) * cols) * t->item;
    if (snprintf(t->name, sizeof t->name, "%s%s%s", prefix, name, suffix) >= (int)sizeof t->name)
        die("the name of", name);
    return t->data = allocate(t->bytes);
}

static void *put_text(checkpoint *ck, const char *dtype, const char *name, const char *suffix, i64 rows, i64 cols) {
    return put(ck, ck->shard, dtype, ck->prefix, name, suffix, rows, cols);
}

/* What a tensor is worth, if that is wanted; to be filled in. */
static f32 *put_values(checkpoint *ck, const char *name, const char *suffix, i64 rows, i64 cols) {
    if (!ck->values) return NULL;
    return put(ck, VALUES, "F32", "", name, suffix, rows, cols);
}

/* Stores w [rows, cols] (rows 0: [cols]) as it is, or rounded to bf16. */
static void put_plain(checkpoint *ck, form f, const char *name, const char *suffix, i64 rows, i64 cols, const f32 *w) {
    u64 n = (u64)((rows ? rows : 1) * cols);
    void *out = put_text(ck, f == FP32 ? "F32" : "BF16", name, suffix, rows, cols);
    f32 *value = put_values(ck, name, suffix, rows, cols);
    if (f == FP32) memcpy(out, w, n * sizeof *w);
    for (u64 i = 0; i < n; i++) {
        if (f != FP32) ((u16 *)out)[i] = to_bf16(w[i]);
        if (value) value[i] = f == FP32 ? w[i] : from_bf16(to_bf16(w[i]));
    }
}

/* e4m3 `weight` and float32 `weight_scale_inv` a block of 128 x 128. */
static void put_fp8(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    i64 cols = (k + 127) / 128;
    u8 *q = put_text(ck, "F8_E4M3", name, ".weight", n, k);
    f32 *scale = put_text(ck, "F32", name, ".weight_scale_inv", (n + 127) / 128, cols);
    f32 *value = put_values(ck, name, ".weight", n, k);
    for (i64 i = 0; i < n; i += 128)
        for (i64 j = 0; j < k; j += 128) {
            i64 b = i / 128 * cols + j / 128, rows = n - i < 128 ? n - i : 128, wide = k - j < 128 ? k - j : 128;
            scale[b] = largest(w + i * k + j, rows, wide, k) / 448.0f * spread(ck, name, (u64)b);
        }
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < k; j++) {
            f32 s = scale[i / 128 * cols + j / 128];
            q[i * k + j] = to_e4m3(w[i * k + j] / s);
            if (value) value[i * k + j] = from_e4m3(q[i * k + j]) * s;
        }
}

/* compressed-tensors' FP8: e4m3, and for each row a bfloat16 [n, 1]. */
static void put_fp8_row(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    u8 *q = put_text(ck, "F8_E4M3", name, ".weight", n, k);
    u16 *scale = put_text(ck, "BF16", name, ".weight_scale", n, 1);
    f32 *value = put_values(ck, name, ".weight", n, k);
    for (i64 i = 0; i < n; i++) {
        scale[i] = to_bf16(largest(w + i * k, 1, k, k) / 448 * spread(ck, name, (u64)i));
        const f32 s = from_bf16(scale[i]);
        for (i64 j = i * k; j < (i + 1) * k; j++) {
            q[j] = to_e4m3(w[j] / s);
            if (value) value[j] = from_e4m3(q[j]) * s;
        }
    }
}

/* SGLang's w4afp8: two's complement nibbles, the even column in the low one, and a float32 for 128 columns. */
static void put_w4afp8(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    u8 *byte = put_text(ck, "I8", name, ".weight", n, k / 2);
    f32 *scale = put_text(ck, "F32", name, ".weight_scale_inv", n, k / 128);
    f32 *value = put_values(ck, name, ".weight", n, k);
    for (i64 g = 0; g < n * k / 128; g++) {
        scale[g] = largest(w + 128 * g, 1, 128, 128) / 7.5f * (g % 3 ? spread(ck, name, (u64)g) : 1);
        for (i64 i = 128 * g; i < 128 * g + 128; i++) {
            int q = to_int4(w[i], scale[g]);
            byte[i / 2] |= (u8)((q & 15) << 4 * (i % 2));
            if (value) value[i] = (f32)q * scale[g];
        }
    }
}

/* Scales of inputs, which nothing here may use, under the names that w4afp8's files have them. */
static void put_expert_inputs(checkpoint *ck, const char *block, i64 expert) {
    char name[160];
    for (int part = 1; part <= 3; part++) {
        snprintf(name, sizeof name, "%s.experts.%lld.w%d", block, (long long)expert, part);
        *(f32 *)put_text(ck, "F32", name, ".input_scale", 0, 1) = 37;
    }
}

/* Quark's INT8: a float32 [n] for the rows, with some of which -128 occurs, and zero points, which
 * are 0. */
static void put_int8(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    signed char *q = put_text(ck, "I8", name, ".weight", n, k);
    f32 *scale = put_text(ck, "F32", name, ".weight_scale", 0, n);
    f32 *value = put_values(ck, name, ".weight", n, k);
    put_text(ck, "I8", name, ".weight_zero_point", 0, n);
    for (i64 i = 0; i < n; i++) {
        scale[i] = largest(w + i * k, 1, k, k) / 127.5f * (i % 3 ? spread(ck, name, (u64)i) : 1);
        for (i64 j = i * k; j < (i + 1) * k; j++) {
            q[j] = (signed char)fminf(fmaxf(rintf(w[j] / scale[i]), -128), 127);
            if (value) value[j] = (f32)q[j] * scale[i];
        }
    }
}

/* compressed-tensors: element j of a row in bits 4 (j mod 8) of word j / 8, as q + 8; a bf16 scale for 32 elements,
 * with which -8 occurs; the shape. */
static void put_int4(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    u32 *word = put_text(ck, "I32", name, ".weight_packed", n, k / 8);
    u16 *scale = put_text(ck, "BF16", name, ".weight_scale", n, k / 32);
    i32 *shape = put_text(ck, "I32", name, ".weight_shape", 0, 2);
    f32 *value = put_values(ck, name, ".weight", n, k);
    shape[0] = (i32)n, shape[1] = (i32)k;
    for (i64 g = 0; g < n * k / 32; g++) {
        scale[g] = to_bf16(largest(w + 32 * g, 1, 32, 32) / 7.5f);
        for (i64 i = 32 * g; i < 32 * g + 32; i++) {
            int q = to_int4(w[i], from_bf16(scale[g]));
            word[i / 8] |= (u32)(q + 8) << 4 * (i % 8);
            if (value) value[i] = (f32)q * from_bf16(scale[g]);
        }
    }
}

/* Quark's W4A8: two's complement, the nibbles of a word, from the lowest, are elements 0, 2, 4, 6, 1, 3, 5, 7; a
 * row's scale times the matrix's. The matrix's scale clips to e4m3, the row's is of what that leaves. */
static void put_quark(checkpoint *ck, const char *name, i64 n, i64 k, const f32 *w) {
    static const int PLACE[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    u32 *word = put_text(ck, "I32", name, ".weight", n, k / 8);
    f32 *whole = put_text(ck, "F32", name, ".weight_scale", 0, 1);
    f32 *scale = put_text(ck, "F32", name, ".weight_scale_2", 0, n);
    f32 *value = put_values(ck, name, ".weight", n, k), *coarse = allocate((u64)k * sizeof *coarse);
    *whole = largest(w, n, k, k) / 448.0f;
    for (i64 i = 0; i < n; i++) {
        for (i64 j = 0; j < k; j++) coarse[j] = from_e4m3(to_e4m3(w[i * k + j] / *whole));
        scale[i] = largest(coarse, 1, k, k) / 7.5f * spread(ck, name, (u64)i);
        for (i64 j = 0; j < k; j++) {
            int q = j == 0 && i % 3 == 0 ? -8 : to_int4(coarse[j], scale[i]); /* rare with these scales */
            word[(i * k + j) / 8] |= (u32)(q & 15) << 4 * PLACE[j % 8];
            if (value) value[i * k + j] = (f32)q * (scale[i] * *whole);
        }
    }
    free(coarse);
}

/* OCP's MXFP4 under Quark's name of the data or compressed-tensors': an e2m1 a nibble, the even column in the low one;
 * for 32 columns e8m0, the power of two that puts the largest of them in [4, 8), or one or two above it. */
static void put_mxfp4(checkpoint *ck, form f, const char *name, i64 n, i64 k, const f32 *w) {
    u8 *byte = put_text(ck, "U8", name, f == MXFP4 ? ".weight" : ".weight_packed", n, k / 2);
    u8 *scale = put_text(ck, "U8", name, ".weight_scale", n, k / 32);
    f32 *value = put_values(ck, name, ".weight", n, k);
    for (i64 g = 0; g < n * k / 32; g++) {
        int e;
        frexpf(largest(w + 32 * g, 1, 32, 32), &e); /* below 2^e, at least half of it */
        e += -3 + (int)(spread(ck, name, (u64)g) - 1.0f);
        scale[g] = (u8)(e + 127);
        for (i64 i = 32 * g; i < 32 * g + 32; i++) {
            int code = to_e2m1(ldexpf(w[i], -e));
            byte[i / 2] |= (u8)(code << 4 * (i % 2));
            if (value) value[i] = ldexpf(from_e2m1(code), e);
        }
    }
}

/* NVIDIA's NVFP4: nibbles as above, e4m3 for 16 columns, and a float32 for the matrix, under ModelOpt's names, or under
 * those of compressed-tensors, where it divides. The scales are one to four times what their values need. A scale of
 * inputs, which nothing here may use, is beside them. */
static void put_nvfp4(checkpoint *ck, form f, const char *name, i64 n, i64 k, const f32 *w) {
    const bool divides = f == NVFP4_PACKED;
    const f32 whole = largest(w, n, k, k) / (448.0f * 6) * 4;
    u8 *byte = put_text(ck, "U8", name, divides ? ".weight_packed" : ".weight", n, k / 2);
    u8 *scale = put_text(ck, "F8_E4M3", name, ".weight_scale", n, k / 16);
    f32 *factor = put_text(ck, "F32", name, divides ? ".weight_global_scale" : ".weight_scale_2", 0, 1);
    f32 *value = put_values(ck, name, ".weight", n, k);
    *(f32 *)put_text(ck, "F32", name, divides ? ".input_global_scale" : ".input_scale", 0, 1) = 37;
    *factor = divides ? 1 / whole : whole;
    for (i64 g = 0; g < n * k / 16; g++) {
        scale[g] = to_e4m3(largest(w + 16 * g, 1, 16, 16) / 6 / whole * spread(ck, name, (u64)g));
        const f32 s = divides ? from_e4m3(scale[g]) / *factor : from_e4m3(scale[g]) * *factor;
        for (i64 i = 16 * g; i < 16 * g + 16; i++) {
            int code = to_e2m1(w[i] / s);
            byte[i / 2] |= (u8)(code << 4 * (i % 2));
            if (value) value[i] = from_e2m1(code) * s;
        }
    }
}

/* A projection [n, k] with entries N(0, gain^2 / k); rows from `full` on have gain 1. */
static void matrix_from(checkpoint *ck, form f, const char *name, i64 n, i64 k, f64 gain, i64 full) {
    f32 *w = draw(ck, name, (u64)(n * k));
    f32 part = (f32)(gain / sqrt((f64)k)), whole = (f32)(1 / sqrt((f64)k));
    for (i64 i = 0; i < n * k; i++) w[i] *= i / k < full ? part : whole;
    if (f == FP8)
        put_fp8(ck, name, n, k, w);
    else if (f == FP8_ROW)
        put_fp8_row(ck, name, n, k, w);
    else if (f == W4AFP8)
        put_w4afp8(ck, name, n, k, w);
    else if (f == INT8)
        put_int8(ck, name, n, k, w);
    else if (f == INT4)
        put_int4(ck, name, n, k, w);
    else if (f == QUARK)
        put_quark(ck, name, n, k, w);
    else if (f == MXFP4 || f == MXFP4_PACKED)
        put_mxfp4(ck, f, name, n, k, w);
    else if (f == NVFP4 || f == NVFP4_PACKED)
        put_nvfp4(ck, f, name, n, k, w);
    else
        put_plain(ck, f, name, ".weight", n, k, w);
    free(w);
}

static void matrix(checkpoint *ck, form f, const char *name, i64 n, i64 k, f64 gain) {
    matrix_from(ck, f, name, n, k, gain, n);
}

/* A vector or table of numbers N(mean, deviation^2). */
static void numbers(checkpoint *ck, form f, const char *name, i64 rows, i64 cols, f32 mean, f32 deviation) {
    u64 n = (u64)((rows ? rows : 1) * cols);
    f32 *w = draw(ck, name, n);
    for (u64 i = 0; i < n; i++) w[i] = mean + deviation * w[i];
    put_plain(ck, f, name, "", rows, cols, w);
    free(w);
}

/* ---- a model ---- */

static i64 whole_number(const json_t *c, const char *key) {
    const json_t *x = json_object_get(c, key);
    errno = 0;
    if (!json_is_integer(x)) die("no whole number", key);
    return json_integer_value(x);
}

#define GET(key)  whole_number(ck->text, key)
#define NAME(...) (snprintf(name, sizeof name, __VA_ARGS__), name)

static void norm(checkpoint *ck, const char *name, i64 n) { numbers(ck, ck->plain, name, 0, n, 1.0f, 0.1f); }

static void mlp(checkpoint *ck, form f, const char *block, i64 width) {
    char name[160];
    i64 hidden = GET("hidden_size");
    matrix(ck, f, NAME("%s.gate_proj", block), width, hidden, 1);
    matrix(ck, f, NAME("%s.up_proj", block), width, hidden, 1);
    matrix(ck, f, NAME("%s.down_proj", block), hidden, width, OUTPUT);
}

static void attention(checkpoint *ck, i64 layer) {
    char attn[64], name[160];
    i64 hidden = GET("hidden_size"), heads = GET("num_attention_heads"), latent = GET("kv_lora_rank");
    i64 nope = GET("qk_nope_head_dim"), rope = GET("qk_rope_head_dim"), v = GET("v_head_dim");
    snprintf(attn, sizeof attn, "model.layers.%lld.self_attn", (long long)layer);
    if (json_is_null(json_object_get(ck->text, "q_lora_rank")))
        matrix(ck, ck->attention, NAME("%s.q_proj", attn), heads * (nope + rope), hidden, 1);
    else {
        i64 rank = GET("q_lora_rank");
        matrix(ck, ck->attention, NAME("%s.q_a_proj", attn), rank, hidden, LATENT);
        norm(ck, NAME("%s.q_a_layernorm.weight", attn), rank);
        matrix(ck, ck->attention, NAME("%s.q_b_proj", attn), heads * (nope + rope), rank, 1);
    }
    matrix_from(ck, ck->attention, NAME("%s.kv_a_proj_with_mqa", attn), latent + rope, hidden, LATENT, latent);
    norm(ck, NAME("%s.kv_a_layernorm.weight", attn), latent);
    matrix(ck, ck->attention, NAME("%s.kv_b_proj", attn), heads * (nope + v), latent, 1);
    matrix(ck, ck->attention, NAME("%s.o_proj", attn), hidden, heads * v, OUTPUT);
    if (ck->dense == FP8) /* K2-Instruct's stray tensors, of the wrong size: a reader must ignore them */
        put_text(ck, "BF16", NAME("%s.rotary_emb.inv_freq", attn), "", 0, 56);
}

static void draw_layer(checkpoint *ck, i64 i) {
    char block[64], name[160];
    i64 hidden = GET("hidden_size"), experts = GET("n_routed_experts"), width = GET("moe_intermediate_size");
    norm(ck, NAME("model.layers.%lld.input_layernorm.weight", (long long)i), hidden);
    norm(ck, NAME("model.layers.%lld.post_attention_layernorm.weight", (long long)i), hidden);
    attention(ck, i);
    snprintf(block, sizeof block, "model.layers.%lld.mlp", (long long)i);
    if (i < GET("first_k_dense_replace")) {
        mlp(ck, ck->dense, block, GET("intermediate_size"));
        return;
    }
    matrix(ck, ck->plain, NAME("%s.gate", block), experts, hidden, 1);
    numbers(ck, FP32, NAME("%s.gate.e_score_correction_bias", block), 0, experts, 0, 0.1f);
    mlp(ck, ck->dense, NAME("%s.shared_experts", block), width * GET("n_shared_experts"));
    for (i64 e = 0; e < experts; e++) mlp(ck, ck->expert, NAME("%s.experts.%lld", block, (long long)e), width);
    for (i64 e = 0; ck->expert == W4AFP8 && e < experts; e++) put_expert_inputs(ck, block, e);
}

/* A few tensors of the vision part, not a whole tower: a reader of the text model must cope with them. */
static void draw_vision(checkpoint *ck, int shard) {
    put(ck, shard, "BF16", "", "mm_projector.pre_norm.weight", "", 0, 16);
    put(ck, shard, "BF16", "", "mm_projector.pre_norm.bias", "", 0, 16);
    put(ck, shard + 1, "BF16", "", "vision_tower.patch_embed.proj.weight", "", 16, 3 * 14 * 14);
    tensor *t = &ck->t[ck->n - 1];
    t->dims = 4;
    memcpy(t->shape, (i64[4]){16, 3, 14, 14}, sizeof t->shape);
    put(ck, shard + 1, "BF16", "", "vision_tower.patch_embed.proj.bias", "", 0, 16);
    put(ck, shard + 1, "BF16", "", "vision_tower.encoder.final_layernorm.weight", "", 0, 16);
}

/* One layer a shard, as in the published files; the embedding in the first one or beside head and last norm. */
static void draw_model(checkpoint *ck) {
    i64 layers = GET("num_hidden_layers"), hidden = GET("hidden_size"), vocab = GET("vocab_size");
    for (i64 i = 0; i < layers; i++) {
        ck->shard = (int)i + 1;
        draw_layer(ck, i);
    }
    ck->shard = ck->dense == FP8 ? 1 : (int)layers + 1;
    numbers(ck, ck->plain, "model.embed_tokens.weight", vocab, hidden, 0, 1);
    ck->shard = (int)layers + 1;
    matrix(ck, ck->plain, "lm_head", vocab, hidden, 1);
    norm(ck, "model.norm.weight", hidden);
    if (*ck->prefix) draw_vision(ck, (int)layers + 2);
}

/* ---- files ---- */

/* Written under another name first, so that who reads, or draws at the same time, only ever finds whole files. */
static void path_of(char path[1024], const char *dir, const char *file, bool done) {
    int n =
        done ? snprintf(path, 1024, "%s/%s", dir, file) : snprintf(path, 1024, "%s/.%s.%d", dir, file, (int)getpid());
    if (n >= 1024) die("too long a path:", file);
}

static FILE *create(const char *dir, const char *file) {
    char path[1024];
    path_of(path, dir, file, false);
    FILE *f = fopen(path, "wb");
    if (!f) die("cannot write", path);
    return f;
}

static void finish(FILE *f, const char *dir, const char *file) {
    char from[1024], to[1024];
    path_of(from, dir, file, false);
    path_of(to, dir, file, true);
    if (ferror(f) | fclose(f) || rename(from, to)) die("cannot write", to);
}

/* Larger items first, so that all lie aligned; then by name. */
static int by_item(const void *a, const void *b) {
    const tensor *x = a, *y = b;
    if (x->item != y->item) return x->item < y->item ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

static bool belongs(const tensor *t, int shard) { return shard ? t->shard == shard : t->shard != VALUES; }

/* The tensors of a shard; shard 0: of all. */
static void write_safetensors(const checkpoint *ck, int shard, const char *dir, const char *file) {
    char *text;
    size_t len;
    FILE *head = open_memstream(&text, &len);
    if (!head) die("memory for", file);
    u64 at = 0;
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", head);
    for (const tensor *t = ck->t; t < ck->t + ck->n; t++) {
        if (!belongs(t, shard)) continue;
        fprintf(head, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int d = 0; d < t->dims; d++) fprintf(head, d ? ",%lld" : "%lld", (long long)t->shape[d]);
        fprintf(head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    fputc('}', head);
    if (ferror(head) | fclose(head)) die("memory for", file);
    FILE *f = create(dir, file);
    u64 padded = (len + 7) / 8 * 8;
    fwrite(&padded, 1, 8, f);
    fprintf(f, "%-*s", (int)padded, text);
    for (const tensor *t = ck->t; t < ck->t + ck->n; t++)
        if (belongs(t, shard)) fwrite(t->data, 1, t->bytes, f);
    finish(f, dir, file);
    free(text);
}

static void write_shards(checkpoint *ck, const char *dir) {
    char file[64];
    int count = 0;
    u64 total = 0;
    for (size_t i = 0; i < ck->n; i++)
        if (ck->t[i].shard > count) count = ck->t[i].shard;
    for (int s = 1; s <= count; s++) {
        snprintf(file, sizeof file, ck->g->shards, s, count);
        write_safetensors(ck, s, dir, file);
    }
    qsort(ck->t, ck->n, sizeof *ck->t, by_name);
    FILE *f = create(dir, "model.safetensors.index.json");
    const char *comma = "";
    fputs("{\"weight_map\":{", f);
    for (const tensor *t = ck->t; t < ck->t + ck->n; t++) {
        if (t->shard == VALUES) continue;
        snprintf(file, sizeof file, ck->g->shards, t->shard, count);
        fprintf(f, "%s\n\"%s\":\"%s\"", comma, t->name, file);
        comma = ",";
        total += t->bytes;
    }
    fprintf(f, "},\n\"metadata\":{\"total_size\":%llu}}\n", (unsigned long long)total);
    finish(f, dir, "model.safetensors.index.json");
}

static form form_of(const json_t *text) {
    const json_t *q = json_object_get(text, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    if (!method) return strcmp(json_string_value(json_object_get(text, "torch_dtype")), "float32") ? BF16 : FP32;
    if (!strcmp(method, "fp8")) return FP8;
    if (!strcmp(method, "w4afp8")) return W4AFP8;
    if (!strcmp(method, "quark")) {
        const json_t *weight = json_object_get(json_object_get(q, "global_quant_config"), "weight");
        if (!json_is_object(weight)) return QUARK;
        return !strcmp(json_string_value(json_object_get(weight, "dtype")), "int8") ? INT8 : MXFP4;
    }
    if (!strcmp(method, "modelopt")) return NVFP4;
    const char *format = json_string_value(json_object_get(q, "format"));
    if (format && !strcmp(format, "float-quantized")) return FP8_ROW;
    if (format && !strcmp(format, "nvfp4-pack-quantized")) return NVFP4_PACKED;
    return format && !strcmp(format, "mxfp4-pack-quantized") ? MXFP4_PACKED : INT4;
}

/* Does the config's list of what is not quantised have an entry with that word? */
static bool is_left_out(const json_t *text, const char *word) {
    const json_t *q = json_object_get(text, "quantization_config"), *list = json_object_get(q, "exclude");
    if (!list) list = json_object_get(q, "ignore");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strstr(json_string_value(json_array_get(list, i)), word)) return true;
    return false;
}

static void copy(const char *from, const char *dir, const char *file) {
    char bytes[65536];
    FILE *in = fopen(from, "rb"), *out = create(dir, file);
    if (!in) die("cannot read", from);
    fwrite(bytes, 1, fread(bytes, 1, sizeof bytes, in), out);
    if (!feof(in)) die("too large:", from);
    fclose(in);
    finish(out, dir, file);
}

static void make(const golden *g, const char *configs, const char *out, bool values) {
    char path[1024], dir[512];
    json_error_t je;
    snprintf(path, sizeof path, "%s/%s/config.json", configs, g->name);
    json_t *config = json_load_file(path, 0, &je), *inner = json_object_get(config, "text_config");
    if (!config) die(path, je.text);
    checkpoint ck = {
        .g = g, .text = inner ? inner : config, .prefix = inner ? "language_model." : "", .values = values};
    ck.expert = form_of(ck.text);
    ck.plain = ck.expert == FP32 ? FP32 : BF16;
    ck.attention = is_left_out(ck.text, "self_attn") ? ck.plain : ck.expert;
    ck.dense = is_left_out(ck.text, "shared_experts") ? ck.plain : ck.expert;
    if (ck.expert == W4AFP8) ck.attention = ck.dense = FP8;
    draw_model(&ck);
    qsort(ck.t, ck.n, sizeof *ck.t, by_item);
    snprintf(dir, sizeof dir, "%s/%s", out, g->name);
    if (mkdir(dir, 0755) && errno != EEXIST) die("cannot make", dir);
    copy(path, dir, "config.json");
    if (values) write_safetensors(&ck, VALUES, dir, "values.safetensors");
    if (g->shards)
        write_shards(&ck, dir);
    else
        write_safetensors(&ck, 0, dir, "model.safetensors");
    for (size_t i = 0; i < ck.n; i++) free(ck.t[i].data);
    free(ck.t);
    json_decref(config);
}

int main(int argc, char **argv) {
    bool values = argc == 4 && !strcmp(argv[3], "--values");
    if (argc != 3 && !values) {
        fputs("usage: draw_checkpoints CONFIGS OUT [--values]\n", stderr);
        return 2;
    }
    if (mkdir(argv[2], 0755) && errno != EEXIST) die("cannot make", argv[2]);
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) make(&ALL[i], argv[1], argv[2], values);
    return 0;
}
