#include "cmd/lib/moe_shapes.h"

/* Prompts' shapes that others publish numbers for; then Kimi-K2's experts whole and as one of 2, 4, 8
 * tensor-parallel ranks holds them, and one of 8 expert-parallel ranks: 48 of 384 experts, 1/8 of each token's eight
 * pairs, so one a token. */
const moe_layer moe_layers[MOE_LAYERS] = {
    {"2048 x 512", 2048, 512, 64, 4, {512}, 8192},
    {"4096 x 512", 4096, 512, 64, 8, {2048}, 8192},
    {"7168 x 512, 128", 7168, 512, 128, 8, {4096}, 8192},
    {"a rank of TP8", 7168, 256, 384, 8, {1, 2, 4, 8, 16, 40, 64, 160, 512, 8192}, 16384},
    {"a rank of TP4", 7168, 512, 384, 8, {1, 8, 40, 512, 16384, 65536}, 16384},
    {"a rank of TP2", 7168, 1024, 384, 8, {1, 8, 40, 512, 8192}, 16384},
    {"TP1", 7168, 2048, 384, 8, {1, 8, 40, 512, 8192}, 16384},
    {"a rank of EP8", 7168, 2048, 48, 1, {8, 40, 512, 8192, 65536}, 65536},
};

const i64 moe_buckets[] = {1,   2,   4,   8,   16,  24,   32,   48,   64,   96,    128,
                           192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 65536};
const int moe_n_buckets = (int)COUNT_OF(moe_buckets);
