/* model/expert_placement.h: which experts each group of ranks has (--ep).
 *
 * A group has `held` slots in every layer, each with one expert; an expert may be in several groups, which then take
 * turns with its rows. All groups together have every expert. */
#ifndef MODEL_EXPERT_PLACEMENT_H
#define MODEL_EXPERT_PLACEMENT_H
#include "base/err.h"

typedef struct expert_placement {
    i64 layers, experts; /* of the model: dense layers count, and have slots without meaning */
    i64 groups, held;
    i32 *slots; /* [layers, groups, held]: the expert of each, none twice in a group; when it is made ascending there */
} expert_placement;

/* Equal shares in order: group 0 has the first experts. With `redundant` slots more, of all groups together, as
 * expert_placement_balance() does where all experts are chosen as often. ST_INPUT: slots cannot be divided so, or a
 * group would have one expert twice. End with expert_placement_free(). */
status expert_placement_plain(expert_placement *p, i64 layers, i64 experts, i64 groups, i64 redundant, err *e);
/* From a file of JSON, as SGLang's --init-expert-location takes it: {"physical_to_logical_map": [[0, 1, ..], ..]}, for
 * each layer the expert of each slot, group by group; or {"logical_count": [[n, ..], ..]}, for each layer how often
 * each expert was chosen (or a list of such: their sum), which expert_placement_balance() places. Errors name it. */
status expert_placement_load(expert_placement *p, const char *path, i64 layers, i64 experts, i64 groups, i64 redundant,
                             err *e);
/* The same from memory; `what` names it in errors. */
status expert_placement_parse(expert_placement *p, const char *json, size_t len, const char *what, i64 layers,
                              i64 experts, i64 groups, i64 redundant, err *e);
void expert_placement_free(expert_placement *p);

/* counts [layers, experts]: how often each was chosen. Copies for those with most rows a copy, then the most wanted
 * first to the group that has least so far (greedy, as DeepSeek's EPLB does it for groups of one node). p is made
 * already, and every slot of it is set. */
status expert_placement_balance(expert_placement *p, const i64 *counts, err *e);

/* The same for one layer, counts [experts], by few steps from where experts are: exchanges between the group that has
 * most and another, and copies that become copies of another expert, until it has 1.02 of an equal share or no step
 * helps. *moved: slots that have another expert now. */
status expert_placement_improve(expert_placement *p, i64 layer, const i64 *counts, i64 *moved, err *e);

/* Of the pairs that counts [experts] say, the share of the group that has most, 1 / groups at best: rows of an expert
 * in several groups are theirs in equal parts. */
f64 expert_placement_most(const expert_placement *p, i64 layer, const i64 *counts);

static inline const i32 *expert_placement_of(const expert_placement *p, i64 layer, i64 group) {
    return p->slots + (layer * p->groups + group) * p->held;
}
/* routes [experts]: kernels/ops.h's expert_route() of each for the ranks of a group. */
void expert_placement_routes(const expert_placement *p, i64 layer, i64 group, i32 *routes);

#endif
