#include "runtime/engine_balance.h"
#include "base/log.h"
#include "model/expert_placement.h"

/* A sum of largest shares, as a multiple of an equal one. */
static f64 busiest(const expert_moves *m, const ranks *r, f64 shares) {
    return shares * (f64)r->of[0].config.ep / (f64)max_i64(m->layers, 1);
}

static void say_moves(const engine_balance *b, const ranks *r) {
    const expert_moves *m = &b->plan;
    const expert_placement *p = r->of[0].config.placement;
    log_note("experts: in %lld steps the busiest group had %.2f of an equal share, and would have had %.2f as they lie "
             "now: %lld of %lld slots have another expert (in %.2f s, between steps)",
             (long long)b->counted, b->busiest, busiest(m, r, m->after), (long long)m->slots,
             (long long)(m->layers * p->groups * p->held), now_s() - b->started);
}

static status plan_moves(engine_balance *b, ranks *r, err *e) {
    b->counted = b->steps, b->steps = 0;
    b->started = now_s();
    status st = ranks_plan_moves(r, &b->plan, e);
    if (st == ST_OK) b->busiest = busiest(&b->plan, r, b->plan.before);
    /* another process may have a stage of which none is here */
    if (st == ST_OK && (b->plan.slots || r->held < r->n)) b->layer = 0;
    return st;
}

static status move_a_layer(engine_balance *b, ranks *r, err *e) {
    status st = ranks_move_experts(r, b->layer, e);
    if (st != ST_OK || ++b->layer < b->layers) return st;
    b->layer = -1;
    if (!b->plan.slots) return st;
    b->moved += b->plan.slots, b->rebalances++;
    say_moves(b, r);
    return st;
}

status engine_balance_experts(engine_balance *b, ranks *r, err *e) {
    if (!b->every) return ST_OK;
    status st = b->layer < 0 && b->steps >= b->every ? plan_moves(b, r, e) : ST_OK;
    if (st == ST_OK && b->layer >= 0) st = move_a_layer(b, r, e);
    b->steps++;
    return st;
}
