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

void fused_reduce_norm(const ops *o, const norm_args *norm, i64 add_stride, deferred_norm *deferred) {
    const rank_seams *r = o->ranks;
    if (r && r->reduce_norm && add_stride == norm->dim) return r->reduce_norm(o, norm, deferred);
    if (r && r->reduce) r->reduce(o, (void *)(uintptr_t)norm->add, norm->n, norm->dim, add_stride);
    o->norm(o, norm);
    if (deferred) deferred->parts = 0;
}

void fused_moe_ffn(const ops *o, const moe_ffn_args *a) {
    moe_ffn_args part = *a;
    if (!o->fused || !o->fused->moe_ffn || (o->ranks && o->ranks->gather) || a->moe.pairs) return compose_moe_ffn(o, a);
    if (!o->ranks) return o->fused->moe_ffn(o, a);
    part.moe.norm.weight = NULL, part.moe.deferred = NULL;
    o->fused->moe_ffn(o, &part);
    fused_reduce_norm(o, &a->moe.norm, a->moe.norm.dim, a->moe.deferred);
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

void compose_linear_norm(const ops *o, const linear_norm_args *a) {
    o->linear(o, &a->linear);
    fused_reduce_norm(o, &a->norm, a->linear.y_stride, a->deferred);
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
    fused_reduce_norm(o, &a->norm, a->norm.dim, a->deferred);
}

void compose_moe_ffn(const ops *o, const moe_ffn_args *a) {
    moe_ffn_args all = *a;
    if (o->ranks && o->ranks->gather) {
        i64 n = o->ranks->gather(o, (void *)(uintptr_t)a->linear_group.x, a->linear_group.n, a->linear_group.x_stride);
        all.linear_group.n = all.gate.n = all.down.n = all.moe.moe.n = n;
    }
    fused_linear_group(o, &all.linear_group);
    if (a->linear_group.count > 1)
        fused_gate_linear(
            o, &(gate_linear_args){all.gate, all.down, a->moe.pairs ? NULL : &all.moe.moe, &all.moe.moe.prepared});
    else
        o->gate(o, &all.gate);
    fused_moe_norm(o, &all.moe);
}
