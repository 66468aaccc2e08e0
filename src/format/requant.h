/* format/requant.h: experts in another format than the checkpoint's: INT4 in groups of 32, or bf16. Exactly the same
 * values on every backend. */
#ifndef FORMAT_REQUANT_H
#define FORMAT_REQUANT_H
#include "format/weights.h"

/* How a layer's experts are kept. */
typedef enum {
    EXPERTS_AS_STORED,
    EXPERTS_W4A8,    /* gate, up and down in INT4 in groups of 32; int8 activations where ops.h says so */
    EXPERTS_W2_BF16, /* down in bf16, gate and up as they are stored */
    EXPERTS_FORMATS
} expert_format;
const char *expert_format_name(expert_format f); /* "auto", "w4a8", "w2_bf16" */

/* The format of matrix i (gate 0, up 1, down 2) of an expert that is stored as `f`. */
weight_format expert_stored_as(expert_format how, weight_format f, i64 i);
/* The same on a GPU, whose INT4 has groups of 32: INT4_ROW and INT4_GROUP128 become groups that share a bf16 scale.
 */
weight_format expert_on_gpu(expert_format how, weight_format f, i64 i);
/* How a GPU keeps a matrix that is none of an expert's: FP8 is rounded to bf16, each value to 2^-9 of itself, which
 * costs twice the bytes and lets the kernels of bf16 take it (docs/kernels/gemm.md), and so are NVFP4 and INT8; MXFP4
 * becomes bf16 exactly. */
weight_format linear_on_gpu(weight_format f);

/* INT4 in groups of 32 of anything else. INT4_ROW and INT4_GROUP128 keep their numbers; their scales, rounded to bf16,
 * are those of the groups in them. Else a group's scale is one of REQUANT_TRIES: bf16(most / 7) * (REQUANT_TRIES * 2 -
 * t) / (REQUANT_TRIES * 2), rounded to bf16, where most is the largest |w|; the one with the smallest sum of squared
 * differences (float32, in the order of columns), the first of equals. q = w / scale to nearest even, within -8..7; a
 * group of zeros, or with a value that is no number, has the scale 0, or NaN. */
enum { REQUANT_TRIES = 16 };

/* Bytes of a view of [rows, cols] in INT4, data then scales at a multiple of 64; cols a multiple of 32. */
u64 requant_bytes(i64 rows, i64 cols);
/* w, which is not INT4 in groups, so: a view of `memory`. */
weight_view requant_int4(const weight_view *w, void *memory);
/* w in bf16, each value rounded once: a view of `memory` of rows * cols * 2 bytes. */
weight_view requant_bf16(const weight_view *w, void *memory);

#endif
