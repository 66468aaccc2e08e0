/* runtime/engine_balance.h: experts that move to other ranks while an engine serves (--enable-eplb). */
#ifndef RUNTIME_ENGINE_BALANCE_H
#define RUNTIME_ENGINE_BALANCE_H
#include "runtime/ranks.h"

typedef struct {
    i64 every;   /* steps; 0: experts stay */
    i64 steps;   /* since the last plan */
    i64 counted; /* steps that the last plan looks back on: b->every, or more where moves took longer */
    i64 layer;   /* whose experts move next; -1: none are to */
    i64 layers;
    f64 started;
    expert_moves plan;     /* the last; shares are sums over its layers */
    f64 busiest;           /* of the last plan's steps, of an equal share; 0: there was none */
    i64 moved, rebalances; /* slots that have got another expert, and how often some did, since the start */
} engine_balance;

/* Before a step: after b->every of them a plan, then a layer's experts before each step until all are where they are
 * to be. */
status engine_balance_experts(engine_balance *b, ranks *r, err *e);

#endif
