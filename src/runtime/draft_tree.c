#include "runtime/draft_tree.h"

void draft_tree_chain(draft_tree *t, const i32 *ids, i64 n) {
    t->n = min_i64(n, DRAFT_NODES_MOST);
    for (i64 i = 0; i < t->n; i++) t->nodes[i] = (draft_node){.id = ids[i], .parent = (i32)i - 1, .depth = (i32)i + 1};
}

/* Chosen candidates by their numbers, and which node each became; -1: none yet. */
typedef struct {
    const draft_candidate *all;
    i32 of[DRAFT_NODES_MOST], node[DRAFT_NODES_MOST];
    i64 n;
} choice;

/* Where the choice has candidate c; -1: it has not. */
static i64 chosen_at(const choice *c, i32 candidate) {
    for (i64 i = 0; i < c->n; i++)
        if (c->of[i] == candidate) return i;
    return -1;
}

/* The best candidate that is not chosen, but what stands before it is. */
static i32 best_open(const choice *c, i64 n) {
    i32 best = -1;
    for (i32 i = 0; i < n; i++) {
        const draft_candidate *a = &c->all[i];
        if (a->id < 0 || (best >= 0 && !(a->score > c->all[best].score)) || chosen_at(c, i) >= 0) continue;
        if (a->parent < 0 || chosen_at(c, a->parent) >= 0) best = i;
    }
    return best;
}

/* The best of the chosen that is no node yet, and whose parent is candidate `parent`; any: whose parent is a node. */
static i64 best_left(const choice *c, i32 parent, bool any) {
    i64 best = -1;
    for (i64 i = 0; i < c->n; i++) {
        const draft_candidate *a = &c->all[c->of[i]];
        const bool follows = any ? a->parent < 0 || c->node[chosen_at(c, a->parent)] >= 0 : a->parent == parent;
        if (c->node[i] < 0 && follows && (best < 0 || a->score > c->all[c->of[best]].score)) best = i;
    }
    return best;
}

static void add_tree_node(draft_tree *t, choice *c, i64 i, i32 path) {
    const draft_candidate *a = &c->all[c->of[i]];
    const i32 parent = a->parent < 0 ? -1 : c->node[chosen_at(c, a->parent)];
    c->node[i] = (i32)t->n;
    t->nodes[t->n++] =
        (draft_node){.id = a->id, .parent = parent, .path = path, .depth = parent < 0 ? 1 : t->nodes[parent].depth + 1};
}

void draft_tree_choose(draft_tree *t, const draft_candidate *all, i64 n, i64 most) {
    choice c = {.all = all};
    t->n = 0;
    for (i32 best; c.n < min_i64(most, DRAFT_NODES_MOST) && (best = best_open(&c, n)) >= 0; c.n++)
        c.of[c.n] = best, c.node[c.n] = -1;
    for (i32 path = 0; t->n < c.n; path++)
        for (i64 i = best_left(&c, -1, path > 0); i >= 0; i = best_left(&c, c.of[i], false))
            add_tree_node(t, &c, i, path);
}

i64 draft_tree_trunk(const draft_tree *t) {
    i64 n = 0;
    while (n < t->n && !t->nodes[n].path) n++;
    return n;
}

i64 draft_tree_depth(const draft_tree *t) {
    i64 depth = 0;
    for (i64 i = 0; i < t->n; i++) depth = max_i64(depth, t->nodes[i].depth);
    return depth;
}
