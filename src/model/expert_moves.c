/* model/expert_moves.c: experts that go to other ranks while a model serves, between its steps. */
#include "model/model_internal.h"
#include <stdlib.h>
#include <string.h>

static status copy_placement(expert_placement *to, const expert_placement *from, err *e) {
    const u64 bytes = (u64)(from->layers * from->groups * from->held) * sizeof *from->slots;
    *to = *from;
    to->slots = malloc(bytes);
    if (!to->slots) return err_nomem(e, "the experts' places", bytes);
    memcpy(to->slots, from->slots, bytes);
    return ST_OK;
}

/* The routes of one of this model's layers, to the device. */
static status write_routes(model *m, i64 layer, err *e) {
    const model_config *c = m->c;
    const u64 bytes = (u64)c->n_experts * sizeof(i32);
    i32 *routes = malloc(bytes);
    if (!routes) return err_nomem(e, "the experts' routes", bytes);
    expert_placement_routes(&m->placement, c->layer_first + layer, model_expert_group(c), routes);
    m->mem.dev->write(m->mem.dev, m->expert_routes + (layer - c->n_dense) * c->n_experts, routes, bytes);
    free(routes);
    return ST_OK;
}

status model_open_placement(model *m, err *e) {
    const model_config *c = m->c;
    if (!model_spreads_experts(m)) return ST_OK;
    status st = copy_placement(&m->placement, c->placement, e);
    if (st == ST_OK) st = copy_placement(&m->wanted, c->placement, e);
    for (i64 l = c->n_dense; st == ST_OK && l < c->n_layers; l++) st = write_routes(m, l, e);
    const u64 slots = (u64)(model_expert_layers(m) * m->placement.held);
    if (st != ST_OK || !m->lim.counts_experts) return st;
    m->moved_cuts = calloc(slots, sizeof *m->moved_cuts);
    return m->moved_cuts ? ST_OK : err_nomem(e, "the experts' places", slots * sizeof *m->moved_cuts);
}

void model_close_placement(model *m) {
    const i64 slots = m->moved_cuts ? model_expert_layers(m) * m->placement.held : 0;
    for (i64 i = 0; i < slots; i++) free(m->moved_cuts[i]);
    free(m->moved_cuts);
    expert_placement_free(&m->placement);
    expert_placement_free(&m->wanted);
}

/* What was counted by the first rank of c's group since the last time: [layers that have experts, experts]. */
static status take_counts(model *m, comm *c, i64 *counts, err *e) {
    const i64 n = model_expert_layers(m) * m->c->n_experts;
    const u64 bytes = (u64)n * sizeof *m->expert_counts;
    u32 *host = calloc(1, bytes + 1);
    device *dev = m->mem.dev;
    if (!host) return err_nomem(e, "experts' counts", bytes);
    /* All have seen the same rows, but what decides where an expert is may not hang on it. */
    if (c) c->broadcast(c, m->expert_counts, bytes, 0);
    dev->read(dev, host, m->expert_counts, bytes);
    status st = dev->finish(dev, e);
    for (i64 i = 0; st == ST_OK && i < n; i++) counts[i] = host[i], host[i] = 0;
    if (st == ST_OK) dev->write(dev, m->expert_counts, host, bytes);
    free(host);
    return st;
}

status model_plan_moves(model *m, comm *c, expert_moves *out, err *e) {
    const i64 layers = model_expert_layers(m), experts = m->c->n_experts, first = m->c->layer_first + m->c->n_dense;
    i64 *counts = malloc((u64)(layers * experts + 1) * sizeof *counts);
    *out = (expert_moves){.layers = layers};
    status st = counts ? take_counts(m, c, counts, e)
                       : err_nomem(e, "experts' counts", (u64)(layers * experts) * sizeof *counts);
    for (i64 l = 0; st == ST_OK && l < layers; l++) {
        i64 moved = 0;
        out->before += expert_placement_most(&m->wanted, first + l, counts + l * experts);
        st = expert_placement_improve(&m->wanted, first + l, counts + l * experts, &moved, e);
        out->after += expert_placement_most(&m->wanted, first + l, counts + l * experts);
        out->slots += moved;
    }
    free(counts);
    return st;
}

status model_move_experts(model *m, i64 layer, err *e) {
    const model_config *c = m->c;
    const i64 own = layer - c->layer_first, group = model_expert_group(c), held = m->placement.held;
    if (own < c->n_dense || own >= c->n_layers) return ST_OK;
    const i32 *to = expert_placement_of(&m->wanted, layer, group),
              *now = expert_placement_of(&m->placement, layer, group);
    const bool comes = m->ck && memcmp(to, now, (size_t)held * sizeof *to) != 0;
    status st = comes ? checkpoint_unchanged(m->ck, e) : ST_OK;
    for (i64 s = 0; st == ST_OK && comes && s < held; s++)
        if (to[s] != now[s])
            st = bind_expert_again(c, m->ck, m->o, m->w.layers[own].experts, (int)layer, s, to[s],
                                   &m->moved_cuts[(own - c->n_dense) * held + s], e);
    if (st != ST_OK) return st;
    const i64 row = m->placement.groups * held;
    if (!memcmp(m->placement.slots + layer * row, m->wanted.slots + layer * row, (size_t)row * sizeof(i32)))
        return ST_OK;
    memcpy(m->placement.slots + layer * row, m->wanted.slots + layer * row, (size_t)row * sizeof(i32));
    return write_routes(m, own, e);
}
