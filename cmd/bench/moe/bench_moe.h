/* cmd/bench/moe/bench_moe.h: what `moonlet bench moe` runs: its options, a layer's weights, a shape's inputs and
 * outputs. */
#ifndef CMD_BENCH_MOE_BENCH_MOE_H
#define CMD_BENCH_MOE_BENCH_MOE_H
#include "base/file.h"
#include "cmd/bench/bench.h"
#include "kernels/gpu/gpu.h"
#include <stdio.h>

typedef struct {
    i64 dim, inter, experts, topk, threads, seed, sets, runs;
    const char *device, *format, *mask, *json, *routing, *tuned;
    const char *ids, *weights, *x, *w1, *w2, *out;
    opt_list shapes, tokens;
} bench_opts;

typedef struct {
    bench_opts o;
    weight_format wf;
    expert_format experts;
    const ops *dev, *ref;
    u8 *memory; /* of all weights */
    u64 memory_bytes, expert_bytes;
    i64 distinct;       /* experts in memory; ref has these alone */
    weight_view *views; /* in the bench's format */
    weight_view *given; /* as they were given: the files' bf16, or `views` */
    file_map w1, w2;
    op_weight *dev_w, *ref_w, *given_w;
    gpu *g; /* NULL unless the device is one */
    machine_peaks peaks;
    FILE *json;
    bool listed; /* a GPU, and no dimension was given */
    u32 isa;
} bench_state;

/* Everything of one shape. x32 and out32: for a device with float32 activations. */
typedef struct {
    i64 n;
    bf16 *x16, *out16;
    f32 *x32, *out32, *weights;
    i32 *ids; /* [sets, n, k] */
    void *space;
    i64 touched;                /* mean over the sets */
    device_pool pool;           /* on a GPU: copies of x16, ids, weights, and out16 and space, in this order */
    device_recording *recorded; /* on a GPU: recorded_calls calls, the routings in turn */
    i64 recorded_calls;
} shape_data;

/* Weights from the files, or synthetic. Layout of the memory: expert after expert, gate, up, down. Of synthetic ones
 * for a GPU, expert i is expert i % DISTINCT: the GPU has a copy of each. */
status moe_make_weights(bench_state *b, err *e);
void moe_free_weights(bench_state *b);
/* Inputs and routings of n tokens, from the files or synthetic. The caller ends *d with moe_shape_free(). */
status moe_make_shape(bench_state *b, i64 n, shape_data *d, err *e);
void moe_shape_free(shape_data *d);
moe_args moe_shape_args(const bench_state *b, const shape_data *d, i64 set);
/* Is the call one of W4A8 that int8's arithmetic is for (ops.h)? */
bool moe_in_int8(const bench_state *b, const shape_data *d);

/* Relative, over the finite values of some rows; NaN: one is finite here or in ref alone, or none is. */
typedef struct {
    f64 given;    /* from ref with the weights as they were given and float activations */
    f64 contract; /* from ref with the weights as the device keeps them, in the arithmetic that ops.h says */
    i64 rows;
    i64 odd, alone; /* values that are not finite; those of them here or in ref alone */
} moe_error;
/* out[0] with the inputs as they are, whose outputs stay; out[1] with one column of them many times as large. */
status moe_shape_errors(const bench_state *b, shape_data *d, moe_error out[2], err *e);
void moe_report(const bench_state *b, const shape_data *d, f64 median, f64 best, const moe_error error[2]);

#endif
