/* kernels/gpu/block_marks.h: points inside of kernels at which a block writes down the time (device/block_times.h,
 * block_mark() in device/math.cuh), for the kernels and for who shows them. A list a file: a mark and what it says. */
#ifndef KERNELS_GPU_BLOCK_MARKS_H
#define KERNELS_GPU_BLOCK_MARKS_H

/* moe/ffn_fused.cu. Each by one thread: of the first warp that multiplies, or of the copier. */
#define FFN_FUSED_MARKS(X)                                                                                             \
    X(FFN_X_READ, "x read")                                                                                            \
    X(FFN_ROWS, "router's rows there")                                                                                 \
    X(FFN_PRODUCTS, "their products out")                                                                              \
    X(FFN_DIGITS, "x as digits, shared h")                                                                             \
    X(FFN_CHOSEN, "experts chosen")                                                                                    \
    X(FFN_PLANNED, "weights of up asked for")                                                                          \
    X(FFN_UP_FIRST, "up: first weights there")                                                                         \
    X(FFN_UP_DONE, "up: done")                                                                                         \
    X(FFN_H, "all h as digits")                                                                                        \
    X(FFN_DOWN_FIRST, "down: first weights there")

/* gemm/skinny_splitk.cu and skinny_few.cu, the threads that multiply. */
#define SKINNY_MARKS(X)                                                                                                \
    X(SKINNY_WAITED, "end in front is known")                                                                          \
    X(SKINNY_FIRST, "first weights and rows there")                                                                    \
    X(SKINNY_PRODUCTS, "last product")                                                                                 \
    X(SKINNY_MET, "sums have met")

/* mla/query_fused.cu */
#define QUERY_MARKS(X)                                                                                                 \
    X(QUERY_LATENTS, "latents and weights there")                                                                      \
    X(QUERY_PRODUCTS, "products with q_b")                                                                             \
    X(QUERY_MET, "cluster has met")                                                                                    \
    X(QUERY_WHOLE, "query whole")                                                                                      \
    X(QUERY_ABSORBED, "absorbed, stored")

/* mla/decode_mma.cu: of a block's last piece, but the first page is its first piece's */
#define DECODE_MARKS(X)                                                                                                \
    X(DECODE_WAITED, "end in front is known")                                                                          \
    X(DECODE_QUERY, "query in registers")                                                                              \
    X(DECODE_FIRST, "first page there")                                                                                \
    X(DECODE_SUMS, "sums")

/* mla/combine_unabsorb.cu */
#define VALUES_MARKS(X)                                                                                                \
    X(VALUES_WAITED, "end in front is known")                                                                          \
    X(VALUES_WEIGHTS, "pieces' weights")                                                                               \
    X(VALUES_JOINED, "pieces joined")                                                                                  \
    X(VALUES_MET, "products, cluster has met")

#define BLOCK_MARK_OF(mark, text) mark,
enum ffn_fused_mark { FFN_FUSED_MARKS(BLOCK_MARK_OF) };
enum skinny_mark { SKINNY_MARKS(BLOCK_MARK_OF) };
enum query_mark { QUERY_MARKS(BLOCK_MARK_OF) };
enum decode_mark { DECODE_MARKS(BLOCK_MARK_OF) };
enum values_mark { VALUES_MARKS(BLOCK_MARK_OF) };
#undef BLOCK_MARK_OF

/* What mark i of a kernel ("k_ffn_fused_1") says; NULL: it has no such mark. */
const char *gpu_block_mark(const char *kernel, int i);

#endif
