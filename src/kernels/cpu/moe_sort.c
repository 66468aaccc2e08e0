#include "kernels/cpu/moe_sort.h"
#include <string.h>

static u64 lay_out(moe_plan *p, const moe_args *a, u64 x_bytes, u64 h_bytes) {
    u64 slots = (u64)(a->n * a->k), experts = (u64)a->experts->n_views / 3, at = 0;
    u8 *base = a->workspace;
    p->first = (i32 *)(base + at), at += cpu_round64((experts + 1) * 4);
    p->token = (i32 *)(base + at), at += cpu_round64(slots * 4);
    p->pair = (i32 *)(base + at), at += cpu_round64(slots * 4);
    p->touched = (i32 *)(base + at), at += cpu_round64(experts * 4);
    p->x = base + at, at += cpu_round64((u64)a->n * x_bytes);
    p->h = base + at, at += cpu_round64(slots * h_bytes);
    p->y = (f32 *)(base + at), at += cpu_round64(slots * MOE_OUT * 4) * (u64)team_max();
    return at;
}

u64 moe_plan_bytes(const moe_args *a, u64 x_bytes, u64 h_bytes) {
    moe_args sizes = *a;
    moe_plan p;
    static u8 nowhere[64];
    sizes.workspace = nowhere; /* only offsets are taken from it */
    return max_i64(64, (i64)lay_out(&p, &sizes, x_bytes, h_bytes));
}

void moe_plan_make(moe_plan *p, const moe_args *a, u64 x_bytes, u64 h_bytes) {
    *p = (moe_plan){
        .n_experts = a->experts->n_views / 3, .hidden = a->experts->views[0].cols, .inter = a->experts->views[0].rows};
    lay_out(p, a, x_bytes, h_bytes);
    memset(p->first, 0, (size_t)(p->n_experts + 1) * sizeof *p->first);
    for (i64 s = 0; s < a->n * a->k; s++)
        if (a->ids[s] >= 0 && a->ids[s] < p->n_experts) p->first[a->ids[s] + 1]++;
    for (i64 e = 0; e < p->n_experts; e++) {
        if (p->first[e + 1]) p->touched[p->n_touched++] = (i32)e;
        p->first[e + 1] += p->first[e];
    }
    p->n_pairs = p->first[p->n_experts];
    for (i64 s = 0; s < a->n * a->k; s++) {
        i32 id = a->ids[s];
        p->pair[s] = -1;
        if (id < 0 || id >= p->n_experts) continue;
        p->pair[s] = p->first[id]++; /* afterwards first[e] is the end of e */
        p->token[p->pair[s]] = (i32)(s / a->k);
    }
    for (i64 e = p->n_experts; e > 0; e--) p->first[e] = p->first[e - 1];
    p->first[0] = 0;
}

i64 moe_items_together(i64 items) { return max_i64(1, min_i64(4, items / (4 * (i64)team_max()))); }

f32 *moe_plan_y(const moe_plan *p, const moe_args *a) {
    return p->y + cpu_round64((u64)(a->n * a->k) * MOE_OUT * 4) / 4 * (u64)cpu_thread();
}
