/* runtime/draft_tree.h: the guesses that one step checks behind an answer, as a chain or as a tree.
 *
 * Its nodes stand in paths. The first, path 0, begins behind the answer's last token and follows the likeliest guess
 * at each; every other begins behind a node of a path before it. So a path is a run of tokens at consecutive positions,
 * and all that stands before a node stands before it in the list, too. */
#ifndef RUNTIME_DRAFT_TREE_H
#define RUNTIME_DRAFT_TREE_H
#include "model/draft.h"

enum { DRAFT_NODES_MOST = 31 };

typedef struct {
    i32 id;
    i32 parent;      /* the node in front of it; -1: the answer's last token */
    i32 path, depth; /* depth: 1 behind the last token */
} draft_node;

typedef struct {
    i64 n;
    draft_node nodes[DRAFT_NODES_MOST];
} draft_tree;

void draft_tree_chain(draft_tree *t, const i32 *ids, i64 n);
/* Of n candidates the `most` that are likeliest to be reached (equal ones: the first), without those of no id. */
void draft_tree_choose(draft_tree *t, const draft_candidate *all, i64 n, i64 most);
i64 draft_tree_trunk(const draft_tree *t); /* nodes of path 0 */
i64 draft_tree_depth(const draft_tree *t);

#endif
