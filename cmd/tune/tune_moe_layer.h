/* cmd/tune/tune_moe_layer.h: one layer of routed experts on a GPU whose calls are run and timed in one way or
 * another. */
#ifndef CMD_TUNE_TUNE_MOE_LAYER_H
#define CMD_TUNE_TUNE_MOE_LAYER_H
#include "kernels/gpu/gpu.h"
#include "cmd/lib/moe_shapes.h"

typedef struct {
    gpu *g;
    device *dev;
    ops o, ref;
} tune_gpu;

enum {
    TUNE_ROWS = 2,         /* compared with ref: the first of a call and the last */
    TUNE_BYTES = 32 << 20, /* of rows compared with those of the first choice: all, or */
    TUNE_RUNS = 32,        /* so many runs of them */
    TUNE_SETS = 8          /* routings */
};
typedef struct {
    tune_gpu *t;
    moe_call call; /* tokens: of the current bucket */
    i64 most;      /* tokens */
    u8 *memory;    /* of the host's experts */
    op_weight *w, *ref_w;
    device_pool pool;
    bf16 *x;      /* of the device, as the next four */
    i32 *ids;     /* [TUNE_SETS, tokens, topk] */
    f32 *weights; /* [tokens, topk] */
    bf16 *out;
    void *space;
    bf16 x_rows[TUNE_ROWS][1 << 14]; /* the host's, as all below */
    i32 id_rows[TUNE_ROWS][64];
    f32 weight_row[64];
    bf16 *rows, *got, *again, *usual; /* rows of the call: this choice's, repeated, the first one's */
    f32 *want[2];                     /* [TUNE_ROWS, dim]: in bf16's arithmetic, in int8's */
} tune_layer;

typedef struct {
    f64 error, apart; /* relative (Frobenius): from ref; the worst row from the first choice's */
    bool same, right; /* the same bits when repeated; that, and both figures within their bounds */
} tune_verdict;

/* Makes weights (a few different experts, many times), inputs and ref's rows. The caller ends *l with
 * tune_layer_close(). */
status tune_layer_open(tune_layer *l, tune_gpu *t, moe_format f, const moe_layer *shape, i64 most, err *e);
void tune_layer_close(tune_layer *l);
/* Inputs and routings of so many tokens, at most `most`. */
status tune_layer_tokens(tune_layer *l, i64 tokens, err *e);
/* Runs the call as `how` says, twice. Are its first and last rows ref's, within the bound of `moonlet check`, all
 * that are read those of the choice that was asked about with `first`, within twice of that, and the bits the same? */
status tune_right(tune_layer *l, const moe_choice *how, bool first, tune_verdict *v, err *e);
/* Records calls in one way, the routings in turn. */
status tune_record(tune_layer *l, const moe_choice *how, i64 calls, device_recording **out, err *e);
/* Microseconds a call of a recording of `calls`, replayed so often. */
status tune_time(tune_layer *l, const device_recording *r, i64 calls, i64 replays, f64 *us, err *e);

#endif
