/* kernels/gpu/gemm/gemm_select.h: how a matrix product of more than 64 rows in bf16 runs: a pure function of the
 * call, of the library that is there, and of a table of measured choices (gemm_tuned.h). And what skinny_few.cu, for up
 * to four rows, is good for. */
#ifndef KERNELS_GPU_GEMM_GEMM_SELECT_H
#define KERNELS_GPU_GEMM_GEMM_SELECT_H
#include "base/types.h"
#include "device/cublas.h"

/* linear: y = x W^T; add: y += that; swiglu: two of them, SiLU and a product between; across: y = x W. heads: so
 * many side by side. */
#define GEMM_OPS(X) X(LINEAR, "linear") X(ADD, "add") X(SWIGLU, "swiglu") X(ACROSS, "across")
typedef enum {
#define GEMM_OP_ENUM(name, text) GEMM_##name,
    GEMM_OPS(GEMM_OP_ENUM)
#undef GEMM_OP_ENUM
} gemm_op;

/* cuBLASLt as it chooses for itself; cuBLASLt in a given configuration; invariant.cu; generic.cu or absorb_q.cu,
 * where there is no cuBLASLt. */
#define GEMM_PATHS(X) X(FIRST, "first") X(CUBLAS, "cublas") X(INVARIANT, "wide") X(TILE, "tile")
typedef enum {
#define GEMM_PATH_ENUM(name, text) GEMM_##name,
    GEMM_PATHS(GEMM_PATH_ENUM)
#undef GEMM_PATH_ENUM
} gemm_path;

typedef struct {
    gemm_op op;
    bool f32;                      /* y is float32, else bf16 */
    i64 rows, cols, heads, tokens; /* rows and cols of W, of gate's */
} gemm_call;

typedef struct {
    gemm_path path;
    cublas_config how; /* of GEMM_CUBLAS, else zeros */
} gemm_choice;

const char *gemm_op_text(gemm_op op);
const char *gemm_path_text(gemm_path p);
/* The inverse; false: there is none of that name. */
bool gemm_op_of(const char *text, gemm_op *out);
bool gemm_path_of(const char *text, gemm_path *out);
/* "cublas algo 66 tile 20 splits 1" */
enum { GEMM_CHOICE_TEXT = 192 };
void gemm_choice_text(const gemm_choice *how, char out[GEMM_CHOICE_TEXT]);

bool gemm_same(const gemm_call *a, const gemm_call *b);
/* What is built in. library: the version of cuBLASLt, 0: there is none. */
gemm_choice gemm_default(i64 library);
/* Is a choice one for this call, with this library? */
bool gemm_allowed(const gemm_call *c, const gemm_choice *how, i64 library);

struct gemm_table;
/* GEMM_MISSED: there is a table, it does not know the shape, or none so few tokens. GEMM_FOREIGN: all that it knows
 * about the shape was measured with another version of cuBLASLt. */
typedef enum { GEMM_BUILT_IN, GEMM_TUNED, GEMM_MISSED, GEMM_FOREIGN } gemm_source;
/* The choice for c; *from says where it is from: the table's row, or else what is built in. */
gemm_choice gemm_choose(const gemm_call *c, const struct gemm_table *t, i64 library, gemm_source *from);

/* Tiles that a block each has, of weights with rows[parts] rows: the lowest of 16, 32 and 64 rows that make no more of
 * them than processors; 0: there are none, or they leave more than a quarter of the processors without. */
i64 gemm_few_rows(const i64 *rows, int parts, i64 processors);
i64 gemm_tiles_of(const i64 *rows, int parts, i64 height);

#endif
