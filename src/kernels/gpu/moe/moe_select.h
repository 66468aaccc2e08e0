/* kernels/gpu/moe/moe_select.h: how a call of routed experts runs: a pure function of the call and of a table of
 * measured choices. */
#ifndef KERNELS_GPU_MOE_MOE_SELECT_H
#define KERNELS_GPU_MOE_MOE_SELECT_H
#include "base/err.h"
#include "kernels/ops.h"

/* What the experts of a call are kept as, and what they are multiplied with. */
#define MOE_FORMATS(X)                                                                                                 \
    X(W4A16, "w4a16")                                                                                                  \
    X(W4A8, "w4a8")                                                                                                    \
    X(BF16, "bf16") X(W2_BF16, "w2_bf16") X(FP8, "fp8") X(MXFP4, "mxfp4") X(NVFP4, "nvfp4") X(OTHER, "other")
typedef enum {
#define MOE_FORMAT_ENUM(name, text) MOE_##name,
    MOE_FORMATS(MOE_FORMAT_ENUM)
#undef MOE_FORMAT_ENUM
} moe_format;

/* The kernels: generic.cu; decode_int4.cu, decode_fp4.cu, or decode_stored.cu for bf16 and FP8; grouped.cuh;
 * grouped_w4a8.cuh. The second word is the one of tables made before 2026-12; it is read for one release. */
#define MOE_PATHS(X)                                                                                                   \
    X(GENERIC, "generic", "plain")                                                                                     \
    X(DECODE, "decode", "few") X(GROUPED, "grouped", "many") X(GROUPED_W4A8, "grouped_w4a8", "int8")
typedef enum {
#define MOE_PATH_ENUM(name, text, before) MOE_##name,
    MOE_PATHS(MOE_PATH_ENUM)
#undef MOE_PATH_ENUM
} moe_path;

/* Name, range and unit of what a path's launches can be told; 0: the default. A column of the table each. */
#define MOE_KNOBS(X)                                                                                                   \
    X(group, 4, 8, 4)   /* decode, INT4: tokens of a group of an expert's */                                           \
    X(tile, 16, 256, 8) /* grouped: most tokens of a tile */

typedef struct {
    moe_path path;
#define MOE_KNOB_FIELD(name, min, max, step) int name;
    MOE_KNOBS(MOE_KNOB_FIELD)
#undef MOE_KNOB_FIELD
} moe_choice;

typedef struct {
    moe_format format;
    i64 dim, inter, experts, topk, tokens;
    row_mode form;
} moe_call;

static inline bool moe_is_int4(const moe_call *c) { return c->format == MOE_W4A16 || c->format == MOE_W4A8; }
static inline bool moe_is_fp4(const moe_call *c) { return c->format == MOE_MXFP4 || c->format == MOE_NVFP4; }

const char *moe_format_text(moe_format f);
const char *moe_path_text(moe_path p);
/* The inverse; false: there is none of that name. */
bool moe_format_of(const char *text, moe_format *out);
bool moe_path_of(const char *text, moe_path *out);
/* "decode group 4" */
enum { MOE_CHOICE_TEXT = 64 };
void moe_choice_text(moe_choice how, char out[MOE_CHOICE_TEXT]);

enum { GROUPED_MEAN = 8 /* tokens an expert, from which on they are many unless a table says else */ };

/* Can this path take the call? W4A8 at many tokens is MOE_GROUPED_W4A8 and nothing else: ops.h says what is
 * computed. */
bool moe_can(const moe_call *c, moe_path p);
/* Is a choice one for this call: a path that can take it, knobs in their ranges? */
bool moe_allowed(const moe_call *c, const moe_choice *choice);
/* What is built in; all knobs of its path are set. */
moe_choice moe_default(const moe_call *c);

/* What is worth timing for a call: its default, then others, all allowed and different; how many. */
enum { MOE_CANDIDATES = 16 };
int moe_candidates(const moe_call *c, moe_choice out[MOE_CANDIDATES]);

struct tuned_table;
typedef enum { MOE_BUILT_IN, MOE_TUNED, MOE_MISSED } moe_source;
/* The choice for c: that of the table's row (moe_tuned.h) where there is a table that has one and rows may be together
 * in any way (ROWS_ANY); knobs that the row leaves at 0 are the default's. *from says which; MOE_MISSED: there is a
 * table, it does not know the shape, or none so few tokens, and the default is used. */
moe_choice moe_choose(const moe_call *c, const struct tuned_table *t, moe_source *from);

#endif
