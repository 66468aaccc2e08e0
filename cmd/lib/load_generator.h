/* cmd/lib/load_generator.h: many requests put to a client in time: concurrency, arrival, turns of a conversation. */
#ifndef CMD_LIB_LOAD_GENERATOR_H
#define CMD_LIB_LOAD_GENERATOR_H
#include "cmd/lib/client.h"
#include "cmd/lib/mt19937.h"

typedef struct load_item load_item;
struct load_item {
    client_request q;
    client_answer a;
    i64 input_tokens; /* as the client counts them */
    bool follows;     /* the next turn of the item before it: starts when that has ended, in its place */
    f64 delay_s;      /* `follows`: seconds that it waits before */
    i64 turn;         /* 0 for the first */
    void *own;        /* the dataset's */
};

typedef struct {
    i64 concurrency; /* conversations (single requests are conversations of one turn) at a time; 0: any number */
    f64 rate;        /* new conversations a second, Poisson; 0: all at once */
    mt19937 *rng;    /* for the gaps: numpy.random.exponential(1 / rate) */
    bool progress;
    /* Makes the request of a turn that follows; NULL: none do. */
    status (*extend)(void *ud, const load_item *before, load_item *item, err *e);
    void *ud;
} load_options;

typedef struct {
    f64 start_s, end_s; /* now_s(): before the first request, after the last answer */
    f64 cpu_s;          /* of the thread that sends and reads: when it nears the duration, the client was the limit */
} load_result;

/* Runs all items, in order of their numbers. Turns after one that failed fail too ("an earlier turn failed"). */
status load_run(client *c, load_item *items, i64 n, const load_options *o, load_result *r, err *e);

#endif
