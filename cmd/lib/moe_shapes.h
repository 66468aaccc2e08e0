/* cmd/lib/moe_shapes.h: the layers of routed experts that `moonlet bench moe` runs and `moonlet tune moe` makes a table
 * for. */
#ifndef CMD_LIB_MOE_SHAPES_H
#define CMD_LIB_MOE_SHAPES_H
#include "base/types.h"

enum { SHAPE_TOKENS = 24 };
typedef struct {
    const char *what;
    i64 dim, inter, experts, topk;
    i64 bench[SHAPE_TOKENS]; /* tokens of a call, then 0 */
    i64 most;                /* tokens that are tuned for */
} moe_layer;

enum { MOE_LAYERS = 8 };
extern const moe_layer moe_layers[MOE_LAYERS];
/* Numbers of tokens that a table has rows for. */
extern const i64 moe_buckets[];
extern const int moe_n_buckets;

#endif
