/* runtime/kv_layout.h: does every rank have all of the KV cache, or do they divide its pages (--dcp)?
 *
 * Divided pages hold `ranks` times the tokens and cost two exchanges a layer. By forecasts of eight H200 with Kimi-K2.5
 * (bench/results/h200/forecast) a step is faster with them from some 300,000 tokens of context on, those of all
 * sequences together, and with 16 short ones takes a quarter longer. So they are for who wants the room. */
#ifndef RUNTIME_KV_LAYOUT_H
#define RUNTIME_KV_LAYOUT_H
#include "base/err.h"

typedef struct {
    i64 ranks, asked;   /* of --tp; of --dcp, 0: nothing was said */
    bool gpus;          /* ranks of a host share one memory: nothing is divided there unless it is asked for */
    bool deterministic; /* divided sums round by where pages happen to lie */
    bool divisible;     /* a GPU's exchanges move 16 bytes at a time */
    i64 wanted;         /* tokens: --max-total-tokens, or most sequences times --context-length; 0: nothing was said */
    i64 room;           /* tokens that fit where every rank has all of them */
} kv_layout_wish;

/* Ranks that divide the KV cache: 1, or all of them. why: for a person, "" where there was nothing to choose. */
i64 kv_layout_choose(const kv_layout_wish *w, char why[160]);

#endif
