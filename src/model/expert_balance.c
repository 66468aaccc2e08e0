/* model/expert_balance.c: placements by how often experts were chosen: made anew, and made better by few moves. */
#include "kernels/ops.h"
#include "model/expert_placement.h"
#include <stdlib.h>
#include <string.h>

/* A layer while it is placed. */
typedef struct {
    const expert_placement *p;
    const i64 *count; /* [experts] */
    i32 *slots;       /* [groups, held] */
    i64 *copies;      /* [experts] */
    u64 *in;          /* [experts]: a bit for each group that has it */
    i64 filled[EXPERT_COPIES_MAX];
    f64 load[EXPERT_COPIES_MAX]; /* rows of a group */
} layer_places;

static f64 each(const layer_places *y, i32 x) { return (f64)y->count[x] / (f64)y->copies[x]; }
static bool group_has(const layer_places *y, i64 group, i32 x) { return y->in[x] >> group & 1; }
static i32 *group_slot(const layer_places *y, i64 group, i64 i) { return y->slots + group * y->p->held + i; }

static void put_expert(layer_places *y, i64 group, i32 x) {
    *group_slot(y, group, y->filled[group]++) = x;
    y->in[x] |= (u64)1 << group;
    y->load[group] += each(y, x);
}

static status open_places(layer_places *y, const expert_placement *p, err *e) {
    const u64 n = (u64)p->experts;
    *y = (layer_places){.p = p, .copies = malloc(n * sizeof *y->copies), .in = malloc(n * sizeof *y->in)};
    return y->copies && y->in ? ST_OK : err_nomem(e, "the experts' places", 2 * n * sizeof *y->in);
}
static void close_places(layer_places *y) {
    free(y->copies);
    free(y->in);
}

/* ---- anew ---- */

/* The group with a free slot that has least so far, and not yet this expert; -1: none. */
static i64 freest_group(const layer_places *y, i32 x) {
    i64 best = -1;
    for (i64 g = 0; g < y->p->groups; g++)
        if (y->filled[g] < y->p->held && !group_has(y, g, x) && (best < 0 || y->load[g] < y->load[best])) best = g;
    return best;
}

/* All groups with a free slot have the expert already: one of them takes another expert from a full group, which gets
 * this one. A full group has at least one that the other does not have. */
static void put_by_exchange(layer_places *y, i32 x) {
    i64 open = 0, full = 0;
    while (y->filled[open] == y->p->held) open++;
    while (group_has(y, full, x)) full++;
    i32 *s = group_slot(y, full, 0);
    while (group_has(y, open, *s)) s++;
    const i32 other = *s;
    put_expert(y, open, other);
    y->in[other] &= ~((u64)1 << full);
    y->in[x] |= (u64)1 << full;
    y->load[full] += each(y, x) - each(y, other);
    *s = x;
}

/* One copy of an expert, and its part of the rows. */
typedef struct {
    f64 load;
    i32 expert;
} expert_copy;

/* The most wanted first; equals by their number. */
static int by_load(const void *a, const void *b) {
    const expert_copy *x = a, *y = b;
    return x->load < y->load ? 1 : x->load > y->load ? -1 : (x->expert > y->expert) - (x->expert < y->expert);
}

static int by_number(const void *a, const void *b) { return *(const i32 *)a - *(const i32 *)b; }

/* How many copies each expert has: one, and one more for the one with most rows a copy, until there are so many. */
static void choose_copies(layer_places *y) {
    const expert_placement *p = y->p;
    for (i64 x = 0; x < p->experts; x++) y->copies[x] = 1;
    for (i64 more = p->groups * p->held - p->experts; more > 0; more--) {
        i32 best = -1;
        for (i32 x = 0; x < p->experts; x++)
            if (y->copies[x] < p->groups && (best < 0 || each(y, x) > each(y, best))) best = x;
        y->copies[best]++;
    }
}

static void balance_layer(layer_places *y, expert_copy *all) {
    const expert_placement *p = y->p;
    i64 n = 0;
    memset(y->in, 0, (size_t)p->experts * sizeof *y->in);
    memset(y->filled, 0, sizeof y->filled);
    memset(y->load, 0, sizeof y->load);
    choose_copies(y);
    for (i32 x = 0; x < p->experts; x++)
        for (i64 i = 0; i < y->copies[x]; i++) all[n++] = (expert_copy){each(y, x), x};
    qsort(all, (size_t)n, sizeof *all, by_load);
    for (i64 i = 0; i < n; i++) {
        const i64 g = freest_group(y, all[i].expert);
        if (g >= 0)
            put_expert(y, g, all[i].expert);
        else
            put_by_exchange(y, all[i].expert);
    }
    for (i64 g = 0; g < p->groups; g++) qsort(group_slot(y, g, 0), (size_t)p->held, sizeof *y->slots, by_number);
}

status expert_placement_balance(expert_placement *p, const i64 *counts, err *e) {
    layer_places y;
    const u64 slots = (u64)(p->groups * p->held);
    expert_copy *all = malloc(slots * sizeof *all);
    status st = open_places(&y, p, e);
    if (st == ST_OK && !all) st = err_nomem(e, "the experts' places", slots * sizeof *all);
    for (i64 l = 0; st == ST_OK && l < p->layers; l++) {
        y.slots = p->slots + l * p->groups * p->held, y.count = counts + l * p->experts;
        balance_layer(&y, all);
    }
    close_places(&y);
    free(all);
    return st;
}

/* ---- better ---- */

/* What one step may do for the group that has most: its slot `from` and another group's slot `to` exchange experts;
 * or the other's, of an expert that is elsewhere too, becomes one more copy of ours. */
typedef struct {
    f64 most; /* of the groups that it changes */
    i64 from, group, to;
    bool copy;
} placement_step;

static void read_places(layer_places *y) {
    const expert_placement *p = y->p;
    memset(y->in, 0, (size_t)p->experts * sizeof *y->in);
    memset(y->copies, 0, (size_t)p->experts * sizeof *y->copies);
    memset(y->load, 0, sizeof y->load);
    for (i64 i = 0; i < p->groups * p->held; i++) y->copies[y->slots[i]]++, y->in[y->slots[i]] |= (u64)1 << i / p->held;
    for (i64 i = 0; i < p->groups * p->held; i++) y->load[i / p->held] += each(y, y->slots[i]);
}

static i64 fullest_group(const layer_places *y) {
    i64 most = 0;
    for (i64 g = 1; g < y->p->groups; g++)
        if (y->load[g] > y->load[most]) most = g;
    return most;
}

/* The largest load when `a` gets a copy in group g in place of one of z. */
static f64 most_with_copy(const layer_places *y, i32 a, i32 z, i64 g) {
    const f64 a_now = each(y, a), a_then = (f64)y->count[a] / (f64)(y->copies[a] + 1);
    const f64 z_now = each(y, z), z_then = (f64)y->count[z] / (f64)(y->copies[z] - 1);
    f64 most = 0;
    for (i64 i = 0; i < y->p->groups; i++) {
        f64 load = y->load[i];
        if (group_has(y, i, a)) load += a_then - a_now;
        if (group_has(y, i, z)) load += (i == g ? 0 : z_then) - z_now;
        if (i == g) load += a_then;
        most = load > most ? load : most;
    }
    return most;
}

/* Of a group's experts, the one with most rows a copy; of those that others have too, the one with fewest. -1: none. */
static i64 most_wanted(const layer_places *y, i64 group) {
    i64 best = 0;
    for (i64 i = 1; i < y->p->held; i++)
        if (each(y, *group_slot(y, group, i)) > each(y, *group_slot(y, group, best))) best = i;
    return best;
}
static i64 least_wanted_copy(const layer_places *y, i64 group) {
    i64 best = -1;
    for (i64 i = 0; i < y->p->held; i++) {
        const i32 x = *group_slot(y, group, i);
        if (y->copies[x] > 1 && (best < 0 || each(y, x) < each(y, *group_slot(y, group, best)))) best = i;
    }
    return best;
}

static void try_copy(const layer_places *y, i64 full, placement_step *best) {
    const i64 from = most_wanted(y, full);
    const i32 a = *group_slot(y, full, from);
    for (i64 g = 0; g < y->p->groups; g++) {
        const i64 to = g == full || group_has(y, g, a) ? -1 : least_wanted_copy(y, g);
        if (to < 0) continue;
        const f64 most = most_with_copy(y, a, *group_slot(y, g, to), g);
        if (most < best->most) *best = (placement_step){most, from, g, to, true};
    }
}

static void try_exchanges(const layer_places *y, i64 full, i64 g, placement_step *best) {
    const i64 held = y->p->held;
    for (i64 from = 0; from < held; from++) {
        const i32 a = *group_slot(y, full, from);
        if (group_has(y, g, a)) continue;
        for (i64 to = 0; to < held; to++) {
            const i32 b = *group_slot(y, g, to);
            const f64 more = each(y, a) - each(y, b), ours = y->load[full] - more, theirs = y->load[g] + more;
            const f64 most = ours > theirs ? ours : theirs;
            if (more > 0 && most < best->most && !group_has(y, full, b))
                *best = (placement_step){most, from, g, to, false};
        }
    }
}

static placement_step best_step(const layer_places *y, i64 full) {
    placement_step best = {.most = y->load[full]};
    try_copy(y, full, &best);
    for (i64 g = 0; g < y->p->groups; g++)
        if (g != full) try_exchanges(y, full, g, &best);
    return best;
}

static void take_step(layer_places *y, i64 full, const placement_step *s) {
    i32 *a = group_slot(y, full, s->from), *b = group_slot(y, s->group, s->to);
    const i32 was = *b;
    *b = *a;
    if (!s->copy) *a = was;
    read_places(y);
}

static const f64 NEAR_EQUAL = 1.02, WORTH = 0.005; /* of an equal share: near enough; what a step must gain */

/* Returns how many slots have another expert. */
static i64 improve_layer(layer_places *y) {
    const i64 n = y->p->groups * y->p->held;
    f64 all = 0;
    i64 moved = 0;
    for (i64 x = 0; x < y->p->experts; x++) all += (f64)y->count[x];
    const f64 equal = all / (f64)y->p->groups;
    read_places(y);
    for (i64 steps = 0; steps < n; steps++) {
        const i64 full = fullest_group(y);
        if (y->load[full] <= equal * NEAR_EQUAL) break;
        const placement_step s = best_step(y, full);
        if (s.most > y->load[full] - WORTH * equal) break;
        take_step(y, full, &s);
        moved += s.copy ? 1 : 2;
    }
    return moved;
}

status expert_placement_improve(expert_placement *p, i64 layer, const i64 *counts, i64 *moved, err *e) {
    layer_places y;
    status st = open_places(&y, p, e);
    if (st == ST_OK) {
        y.slots = p->slots + layer * p->groups * p->held, y.count = counts;
        *moved = improve_layer(&y);
    }
    close_places(&y);
    return st;
}
