#include "kernels/expert_parallel.h"

#define DISPATCH(op, to_residual)                                                                                      \
    void fused_##op(const ops *o, const op##_args *a) {                                                                \
        if (o->fused && o->fused->op && !(to_residual && o->ranks))                                                    \
            o->fused->op(o, a);                                                                                        \
        else                                                                                                           \
            compose_##op(o, a);                                                                                        \
    }
#define DISPATCH_ONE(op)      DISPATCH(op, false)
#define DISPATCH_RESIDUAL(op) DISPATCH(op, true)
FUSED_OPS_OF_ONE_RANK(DISPATCH_ONE)
DISPATCH_RESIDUAL(linear_norm)
DISPATCH_RESIDUAL(moe_norm)

/* p: the places of parts of a sum that follows; NULL: there are none. */
static row_parts *parts_of_sum(const ops *o, const norm_args *norm, const kept_rows *kept, void **at, row_parts *p) {
    const rank_seams *r = o->ranks;
    const i64 count = kept && r && r->part_places ? r->part_places(o, norm, at) : 0;
    *p = (row_parts){.at = at, .count = count};
    return count ? p : NULL;
}

void fused_reduce_norm(const ops *o, const norm_args *norm, i64 add_stride, deferred_norm *deferred, kept_rows *kept) {
    const rank_seams *r = o->ranks;
    if (r && r->reduce_norm && add_stride == norm->dim) return r->reduce_norm(o, norm, deferred, kept);
    if (r && r->reduce) r->reduce(o, (void *)(uintptr_t)norm->add, norm->n, norm->dim, add_stride);
    o->norm(o, norm);
    if (deferred) deferred->parts = 0;
}

void fused_moe_ffn(const ops *o, const moe_ffn_args *a) {
    moe_ffn_args part = *a;
    if (!o->fused || !o->fused->moe_ffn || (o->ranks && o->ranks->gather) || a->moe.pairs) return compose_moe_ffn(o, a);
    if (!o->ranks) return o->fused->moe_ffn(o, a);
    void *at[COMM_RANKS_MAX];
    row_parts parts, *const there = parts_of_sum(o, &a->moe.norm, a->moe.kept, at, &parts);
    part.moe.norm.weight = NULL, part.moe.deferred = NULL, part.moe.moe.parts = there;
    o->fused->moe_ffn(o, &part);
    if (there) a->moe.kept->sent = parts.taken;
    fused_reduce_norm(o, &a->moe.norm, a->moe.norm.dim, a->moe.deferred, a->moe.kept);
}

void compose_linear_group(const ops *o, const linear_group_args *a) {
    for (i64 i = 0; i < a->count; i++) {
        const linear_group_item *p = &a->of[i];
        if (p->up)
            o->swiglu(o, &(swiglu_args){p->w, p->up, a->x, p->y, a->n, a->x_stride, p->y_stride});
        else
            o->linear(o, &(linear_args){p->w, a->x, p->y, a->n, a->x_stride, p->y_stride, p->y_type});
    }
}

/* Each rank's rows to their place, another's first: nobody begins with the same. */
static void linear_in_parts(const ops *o, const linear_args *a, const row_parts *p) {
    for (i64 i = 1; i <= p->count; i++) {
        const i64 r = (o->ranks->rank + i) % p->count;
        const row_range of = comm_rows(a->n, p->count, r);
        linear_args part = *a;
        part.n = of.to - of.from;
        part.x = (const u8 *)a->x + (u64)(of.from * a->x_stride) * dtype_size(o->act);
        part.y = p->at[r];
        if (part.n) o->linear(o, &part);
    }
}

void compose_linear_norm(const ops *o, const linear_norm_args *a) {
    void *at[COMM_RANKS_MAX];
    row_parts parts, *const there =
                         a->linear.y_stride == a->norm.dim ? parts_of_sum(o, &a->norm, a->kept, at, &parts) : NULL;
    if (there)
        linear_in_parts(o, &a->linear, there);
    else
        o->linear(o, &a->linear);
    if (a->kept) a->kept->sent = there != NULL;
    fused_reduce_norm(o, &a->norm, a->linear.y_stride, a->deferred, a->kept);
}

void compose_latent_norm_kv_write(const ops *o, const latent_norm_kv_write_args *a) {
    if (a->q.n) o->norm(o, &a->q);
    o->kv_write(o, &a->kv);
}

void compose_mla_queries(const ops *o, const mla_queries_args *a) {
    const absorb_q_args *k = &a->absorb;
    const latent_norm_kv_write_args *rows = &a->latent_norm_kv_write;
    i64 width = k->n_heads * (k->nope + k->rope);
    fused_latent_norm_kv_write(o, rows);
    o->linear(o, &(linear_args){a->q_b, rows->q.out, a->q, k->n, rows->q.out_stride, width, o->act});
    o->rope_q(o, &(rope_q_args){a->q, rows->kv.table, k->n, k->n_heads, k->nope, k->rope});
    o->absorb_q(o, k);
}

u64 fused_mla_decode_plan_bytes(const ops *o) {
    return o->fused && o->fused->mla_decode_plan ? o->fused->mla_decode_plan_bytes : 0;
}

bool fused_mla_groups_pay(const ops *o, i64 heads, i64 rows, i64 tokens, dtype kv) {
    return !o->fused || !o->fused->mla_groups_pay || o->fused->mla_groups_pay(heads, rows, tokens, kv);
}

void compose_mla_decode_plan(const ops *o, const mla_decode_plan_args *a) { (void)o, (void)a; }

void compose_mla_decode_values(const ops *o, const mla_decode_values_args *a) {
    o->mla_decode(o, &a->decode);
    o->unabsorb_v(o, &a->values);
}

void compose_gate_linear(const ops *o, const gate_linear_args *a) {
    o->gate(o, &a->gate);
    o->linear(o, &a->linear);
}

void compose_moe_norm(const ops *o, const moe_norm_args *a) {
    const rank_seams *r = o->ranks;
    if (a->pairs)
        expert_parallel_moe(o, &a->moe, a->pairs);
    else
        o->moe(o, &a->moe);
    if (!a->norm.weight) return;
    if (r && r->scatter) r->scatter(o, a->moe.out, a->moe.n, a->norm.n, a->norm.dim);
    fused_reduce_norm(o, &a->norm, a->norm.dim, a->deferred, a->kept);
}

/* The experts of this rank's own rows, which all ranks get; the rest of what lies in front of the experts, of all
 * rows. */
static void choose_own_rows(const ops *o, const moe_ffn_args *a) {
    const linear_group_item *router = a->linear_group.of;
    const i64 n = a->own.to - a->own.from, from = a->own.from;
    linear_group_args shared = a->linear_group;
    gate_args gate = a->gate;
    gate.logits += from * gate.n_experts, gate.ids += from * gate.k, gate.weights += from * gate.k, gate.n = n;
    if (n) {
        o->linear(o, &(linear_args){.w = router->w,
                                    .x = (const u8 *)shared.x + (u64)(from * shared.x_stride) * dtype_size(o->act),
                                    .y = (f32 *)router->y + from * router->y_stride,
                                    .n = n,
                                    .x_stride = shared.x_stride,
                                    .y_stride = router->y_stride,
                                    .y_type = router->y_type});
        o->gate(o, &gate);
    }
    const i64 width = gate.k * (i64)(sizeof(i32) / dtype_size(o->act));
    const divided_rows chosen[] = {{a->gate.ids, width}, {a->gate.weights, width}};
    o->ranks->share_rows(o, chosen, COUNT_OF(chosen), a->gate.n);
    for (i64 i = 1; i < shared.count; i++) shared.of[i - 1] = shared.of[i];
    if (!--shared.count) return;
    fused_linear_group(o, &shared);
    o->linear(o, &a->down);
}

void compose_moe_ffn(const ops *o, const moe_ffn_args *a) {
    moe_ffn_args all = *a;
    if (o->ranks && o->ranks->gather) {
        i64 n = o->ranks->gather(o, (void *)(uintptr_t)a->linear_group.x, a->linear_group.n, a->linear_group.x_stride);
        all.linear_group.n = all.gate.n = all.down.n = all.moe.moe.n = n;
    }
    if (o->ranks && o->ranks->share_rows && a->own.to - a->own.from < a->gate.n) {
        choose_own_rows(o, &all);
        return fused_moe_norm(o, &all.moe);
    }
    fused_linear_group(o, &all.linear_group);
    if (a->linear_group.count > 1)
        fused_gate_linear(
            o, &(gate_linear_args){all.gate, all.down, a->moe.pairs ? NULL : &all.moe.moe, &all.moe.moe.prepared});
    else
        o->gate(o, &all.gate);
    fused_moe_norm(o, &all.moe);
}
