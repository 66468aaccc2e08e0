/* runtime/radix.h: the prefix cache: which KV pages hold which beginnings of token sequences.
 *
 * A tree with one node a page: the edge to a node is the page's 64 tokens, the path from the root is everything before
 * them. A node is numbered like its page, so the tree is an array as long as the pool and never allocates.
 * The tree is one owner of its pages (kv_pages.refs), every sequence that uses them another. A page that only the tree
 * owns can be evicted: least recently used first, leaves before their parents. Where a sequence's pages are of one
 * share (kv_pages.by_sequence), each share has a tree of its own. */
#ifndef RUNTIME_RADIX_H
#define RUNTIME_RADIX_H
#include "kernels/ops.h"
#include "runtime/kv_pages.h"

typedef struct {
    i32 tokens[KV_PAGE];
    u64 space;  /* namespace; paths of different spaces never meet */
    u64 added;  /* radix.changes when it came */
    i32 parent; /* page number; -1: the root */
    i32 n_children;
    i32 hash_next;          /* next node of the same bucket; -1: none */
    i32 lru_prev, lru_next; /* towards the most and the least recently used; -1: none */
    bool in_tree;
} radix_node;

typedef struct {
    kv_pages *pages;
    radix_node *nodes; /* [n_pages] */
    i32 *buckets;      /* [bucket_mask + 1]: nodes by parent, space and tokens */
    u64 bucket_mask, seed;
    i32 newest[KV_SHARES_MAX], oldest[KV_SHARES_MAX]; /* ends of the lists of pages that only the tree owns: one, or,
                                                       * where a sequence's pages are of one share, one a share */
    i64 n_nodes, n_idle;                              /* pages in the tree; of these, owned by nothing else */
    i64 n_idle_of[KV_SHARES_MAX];                     /* in each list */
    i64 n_evicted;
    u64 changes; /* nodes that came or went since open */
} radix;

/* A sequence's tokens as the tree compares them. Those of a picture all have one id: a span says which picture, by a
 * key of what it shows, and its tokens are the same as others' where key and place in the span are. */
typedef struct {
    i64 first, n;
    u64 key;
} radix_span;
typedef struct {
    const i32 *ids;
    const radix_span *spans; /* [n_spans], ascending */
    i64 n_spans;
} radix_tokens;
/* Page `page` of them: in place, or in room. */
const i32 *radix_page(const radix_tokens *t, i64 page, i32 room[KV_PAGE]);

/* How much of a sequence's beginning the tree has, remembered while the tree changes. All zero: nothing is known
 * yet. */
typedef struct {
    i64 n;     /* pages[0..n) are on the path */
    u64 as_of; /* radix.changes then */
    bool ends; /* and no further page was */
} radix_path;

status radix_open(radix *r, kv_pages *pages, err *e);
void radix_close(radix *r); /* gives up its pages */

/* The longest known beginning of ids, at most max_pages whole pages; their numbers are in pages[]. *p and pages[]
 * come from the call before for the same ids: what was found then and is still there is not looked for again. At
 * most *lookups pages are looked for (each is taken off): with too few the answer is a known beginning, and the next
 * call goes on. */
i64 radix_follow(const radix *r, u64 space, const radix_tokens *ids, i64 max_pages, i32 *pages, radix_path *p,
                 i64 *lookups);
/* Puts the first n pages of a sequence into the tree, where it does not hold an equal beginning yet; those that it
 * does stay the sequence's own. */
void radix_insert(radix *r, u64 space, const radix_tokens *ids, const i32 *pages, i64 n);

/* A free page for a sequence, evicting if none is; -1 when every page is in use that it could be. after: as of
 * kv_pages_take(). */
i32 radix_take(radix *r, i32 after);
/* Where a sequence without pages had best begin, to be given as `after`: -1, or, where its pages are to be of one
 * share, a page of that which has most free or evictable. */
i32 radix_begin(const radix *r);
i64 radix_available(const radix *r, i32 after); /* pages free or evictable that may follow; -1: all */
/* A sequence begins or ends to use pages. Give the whole of what a sequence lets go in one call: its last pages
 * become the first to be evicted. */
void radix_hold(radix *r, const i32 *pages, i64 n);
void radix_release(radix *r, const i32 *pages, i64 n);
/* Of a page in the tree and those before it, the ones that only the tree owns are used just now, the first one last. */
void radix_touch(radix *r, i32 page);
void radix_flush(radix *r); /* evicts everything evictable */

/* Proves the tree: every node is found from its parent, children and list are counted right. `held` [n_pages]: owners
 * among sequences; it is raised by the tree's own and compared with the reference counts. */
status radix_check(const radix *r, u32 *held, err *e);

#endif
