/* cmd/quantize/expert_inputs.h: what a text gives to the routed experts of a model, kept in a file. */
#ifndef CMD_QUANTIZE_EXPERT_INPUTS_H
#define CMD_QUANTIZE_EXPERT_INPUTS_H
#include "base/file.h"
#include "cmd/lib/documents.h"
#include "cmd/lib/model_opts.h"

/* The file: of each layer with experts one after the other, for all tokens of the text,
 *     x        bf16 [tokens, hidden]   the experts' input
 *     ids      i32  [tokens, top_k]    the router's choice
 *     weights  f32  [tokens, top_k]    what the chosen ones' results are multiplied by */
typedef struct {
    i64 tokens, hidden, top_k, first, layers; /* layers first .. layers - 1 have experts */
    file_map file;
} expert_inputs;
typedef struct {
    const bf16 *x;
    const i32 *ids;
    const f32 *weights;
} layer_inputs;

/* Runs the model of o on the documents and writes `path`, whole or not at all. */
status expert_inputs_make(const char *path, const engine_options *o, const documents *d, err *e);
/* Maps a file of so many tokens of the model of c. End with expert_inputs_close() whatever was returned. */
status expert_inputs_open(expert_inputs *in, const char *path, const model_config *c, i64 tokens, err *e);
void expert_inputs_close(expert_inputs *in);
/* layer: one with experts. */
layer_inputs expert_inputs_of(const expert_inputs *in, i64 layer);

#endif
