/* kernels/gpu/moe/moe_plan.h: which launches a call of routed experts becomes, and who does the norm behind it: the one
 * place that decides, a pure function of numbers. */
#ifndef KERNELS_GPU_MOE_MOE_PLAN_H
#define KERNELS_GPU_MOE_MOE_PLAN_H
#include "kernels/gpu/moe/moe_select.h"
#include "kernels/gpu/moe/decode_int4.h"

typedef enum {
    MOE_RUN_NOTHING,       /* there are no tokens */
    MOE_RUN_FFN_FUSED,     /* router, gate, shared and routed experts in one launch: ffn_fused.cu */
    MOE_RUN_DECODE_FUSED,  /* routed experts in one launch: decode_fused.cu */
    MOE_RUN_DECODE_INT4,   /* rows to digits, products, sum of slots: decode_int4.cu */
    MOE_RUN_DECODE_FP4,    /* products, sum of slots: decode_fp4.cu */
    MOE_RUN_DECODE_STORED, /* bf16 and FP8 as they are stored: decode_stored.cu */
    MOE_RUN_GROUPED,       /* tokens sorted by expert, tiles on warpgroup products: grouped.cuh and its like */
    MOE_RUN_GROUPED_W4A8,
    MOE_RUN_GENERIC /* any shape: generic.cu */
} moe_run;

typedef enum {
    MOE_NORM_NONE,     /* there is none behind the call */
    MOE_NORM_BEHIND,   /* a launch of its own */
    MOE_NORM_IN_SUM,   /* in the launch that sums the slots */
    MOE_NORM_DEFERRED, /* its sums of squares are left for who takes the rows (ops.h, deferred_norm) */
} moe_norm_by;

/* A call, in numbers. */
typedef struct {
    moe_call call;
    moe_choice how; /* by the table of measured choices, or built in: moe_select.h */
    int processors;
    bool x_16, shared_8, shared_16; /* do these lie at multiples of so many bytes? No shared rows: true */
    bool norm;                      /* one follows */
    bool norm_of_sum;               /* it adds the result to the residual stream, row by row, in pieces of 16 bytes */
    bool defer_strips; /* it may be finished by who takes the rows: by a part for each 16 columns of the result, */
    bool defer_blocks; /* by one for each 1024 */
    bool ffn;          /* router, gate and shared expert are asked for, too, and ffn_fused.cu takes their shapes */
    i64 shared_inter;  /* rows of the shared expert's gate; 0: there is none */
} moe_request;

typedef struct {
    moe_run run;
    moe_norm_by norm;
} moe_plan;

moe_plan moe_plan_of(const moe_request *r);

/* May the launch of the gate do what decode_int4.cu or decode_fp4.cu needs before it meanwhile: x as digits, or its
 * scales alone? */
bool moe_prepares_beside_gate(const moe_request *r);

/* How a block's shared memory is divided; both fill in what args have for it, from the sizes that are there.
 * decode_int4.cu, decode_fp4.cu: groups of 4 or 8 tokens, whose rows are at most `stride` bytes apart in a slot; false:
 * too little is left for the ring. */
bool moe_divide_packed(gpu_decode_int4_args *f, int group, int stride);
/* decode_fused.cu: `more` bytes a token for h of a shared expert and logits. Returns all bytes, 0 if they are too
 * many. */
u32 moe_divide_fused(gpu_decode_fused_args *f, i64 more);
/* That of ffn_fused.cu, h in bf16. */
static inline i64 moe_ffn_more(i64 shared_inter) { return shared_inter * 2 + 16 + GPU_GATE_EXPERTS * 4; }

#endif
