/* cmd/quantize/plan.h: what becomes of every tensor of a checkpoint, and in which shard it lies then. Made from the
 * headers alone, and the same for the same files and options: a run that was stopped goes on by it. */
#ifndef CMD_QUANTIZE_PLAN_H
#define CMD_QUANTIZE_PLAN_H
#include "format/quantize.h"
#include "format/safetensors_writer.h"
#include "format/stored_matrix.h"
#include "model/config.h"

#define MATRIX_CLASSES(X)                                                                                              \
    X(MC_GATE, "experts gate")                                                                                         \
    X(MC_UP, "experts up")                                                                                             \
    X(MC_DOWN, "experts down")                                                                                         \
    X(MC_SHARED, "shared experts")                                                                                     \
    X(MC_DENSE, "dense MLP")                                                                                           \
    X(MC_ATTENTION, "attention")                                                                                       \
    X(MC_OTHER, "all else")
typedef enum {
#define MATRIX_CLASS_ENUM(id, name) id,
    MATRIX_CLASSES(MATRIX_CLASS_ENUM)
#undef MATRIX_CLASS_ENUM
        MC_COUNT
} matrix_class;
const char *matrix_class_name(matrix_class c);

/* A tensor that is written. */
typedef struct {
    const tensor_info *from; /* whose bytes it has; NULL: it is made */
    bool inverted;           /* but for this: it is the one float32 that is 1 / from's */
    enum { PART_DATA, PART_SCALE, PART_FACTOR, PART_SHAPE, PART_INPUT_SCALE, PART_ZEROS } part;
    u64 name_at; /* of a name that is made: in quantize_plan.names */
} tensor_origin;

#define NO_PAIR UINT64_MAX

/* A matrix with its scales, or one other tensor. */
typedef struct {
    stored_matrix m;    /* m.data alone where it is no matrix */
    const quantizer *q; /* NULL: its bytes stay as they are */
    u64 first, n;       /* of the tensors that are written */
    u64 bytes_in, bytes_out;
    matrix_class class;
    int layer;    /* -1: in none */
    u64 pair;     /* the piece that has the same factor; NO_PAIR: none */
    i64 expert;   /* of a routed expert's matrix: whose; else -1 */
    u64 given[2]; /* of a routed expert's down: the pieces of its gate and up; NO_PAIR: none */
} plan_piece;

typedef struct {
    plan_piece *pieces; /* [n_pieces] in the order of the source's files, which are read once from end to end */
    u64 n_pieces;
    tensor_out *out; /* [n_out] and where each comes from */
    tensor_origin *origins;
    u64 n_out;
    u64 *shards; /* [n_shards + 1] the first piece of each */
    u64 n_shards;
    u64 bytes_in, bytes_out;
    u64 n_chosen, n_encoded; /* matrices for q; those of them that were in another format before */
    buf names;               /* of tensors that are made, NUL-terminated */
} quantize_plan;

/* Is it a routed expert's matrix, in a layer that a model runs? */
bool piece_meets_inputs(const plan_piece *k, const model_config *c);

/* q for the matrices that are chosen: routed experts, or (linears) all linear layers of the text model but router,
 * embedding and head. Matrices that are not chosen and lie packed become bf16. shard: bytes that one file may have; a
 * single matrix may be more. Scales of inputs (NAME.input_scale) stay where their matrix keeps bytes and names, and are
 * left out elsewhere: they belong to how it was. calibrated: experts' inputs will be known, and where q's readers want
 * a scale for them each gets one. End with quantize_plan_free() whatever was returned. */
status quantize_plan_make(quantize_plan *p, const checkpoint *ck, const model_config *c, const quantizer *q,
                          bool linears, bool calibrated, u64 shard, err *e);
void quantize_plan_free(quantize_plan *p);

#endif
