/* cmd/quantize/calibration.h: what each expert's matrices meet when a model reads a text, as rounding wants it
 * (format/gptq.h).
 *
 * An expert's inputs are those of the tokens that were sent to it, with the square of the weight that the router gives
 * its result; gate and up share them. down meets silu(gate x) * up x of the source's values. In every layer some tokens
 * of all are added for every expert, evenly taken and together a tenth as heavy as its own: a text
 * shows an expert few tokens, and what it was not shown should not become worse. */
#ifndef CMD_QUANTIZE_CALIBRATION_H
#define CMD_QUANTIZE_CALIBRATION_H
#include "cmd/quantize/expert_inputs.h"
#include "cmd/quantize/plan.h"

typedef struct {
    gptq inputs;
    f32 most;          /* the largest |x| among them */
    i64 layer, expert; /* whose */
} expert_gptq;

typedef struct {
    expert_inputs in;
    const model_config *config;
    const checkpoint *ck;
    const quantize_plan *plan;
    i64 inter; /* columns of down */
    expert_gptq gate_up, down;
    i32 *tokens; /* [in.tokens + others] of an expert, and their weights */
    f32 *weights;
    f32 *x, *gate, *up; /* [ROWS, hidden], [ROWS, inter] each */
    f32 *gate_t, *up_t; /* [hidden, inter]: matrices, transposed */
    matrix_room room;
} calibration;

/* Of the file of expert_inputs.h; config, ck and plan must outlive it. End with calibration_close() whatever was
 * returned. */
status calibration_open(calibration *c, const char *path, const model_config *config, i64 tokens, const checkpoint *ck,
                        const quantize_plan *plan, err *e);
void calibration_close(calibration *c);
/* What piece k meets, until the next call; NULL: it is no routed expert's. */
status calibration_of(calibration *c, const plan_piece *k, const expert_gptq **out, err *e);

#endif
