/* A file for --init-expert-location: the first byte says how many groups and copies; the rest is JSON. What was
 * accepted has every expert, none twice in a group, and one place for every row. */
#include "base/log.h"
#include "kernels/ops.h"
#include "model/expert_placement.h"
#include <stdlib.h>

enum { LAYERS = 2, EXPERTS = 6, ROWS = 12 };

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void use(expert_placement *p) {
    i32 routes[EXPERTS];
    i64 places[ROWS][EXPERTS], counts[EXPERTS], moved;
    err e;
    for (i64 l = 0; l < LAYERS; l++)
        for (int round = 0; round < 2; round++) { /* as it came, and improved */
            for (i64 x = 0; x < EXPERTS; x++) counts[x] = p->slots[x] * 3 + x;
            for (i64 i = 0; i < ROWS * EXPERTS; i++) places[i / EXPERTS][i % EXPERTS] = 0;
            for (i64 g = 0; g < p->groups; g++) {
                expert_placement_routes(p, l, g, routes);
                for (i64 i = 0; i < ROWS * EXPERTS; i++) {
                    const i32 slot = expert_slot(routes[i % EXPERTS], i / EXPERTS);
                    if (slot >= 0 && expert_placement_of(p, l, g)[slot] != i % EXPERTS) abort();
                    places[i / EXPERTS][i % EXPERTS] += slot >= 0;
                }
            }
            for (i64 i = 0; i < ROWS * EXPERTS; i++)
                if (places[i / EXPERTS][i % EXPERTS] != 1) abort();
            const f64 most = expert_placement_most(p, l, counts);
            if (!(most >= 1.0 / (f64)p->groups - 1e-9 && most <= 1 + 1e-9)) abort();
            if (expert_placement_improve(p, l, counts, &moved, &e) != ST_OK) abort();
            if (expert_placement_most(p, l, counts) > most + 1e-9) abort();
        }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    log_set_quiet(true);
    if (!size) return 0;
    const i64 groups = 1 + data[0] % 6, redundant = data[0] / 6 % 12;
    expert_placement p;
    err e = {0};
    const status st = expert_placement_parse(&p, (const char *)data + 1, size - 1, "places.json", LAYERS, EXPERTS,
                                             groups, redundant, &e);
    if (st != ST_OK && !e.text[0]) abort();
    if (st == ST_OK) use(&p);
    expert_placement_free(&p);
    return 0;
}
