/* cmd/check/check_mirror.c: an ops table that the checks can call with memory of the host: every block that a call
 * points into is copied to the GPU before it and back after it, canaries included. */
#include "cmd/check/check_mirror.h"
#include "kernels/fused.h"
#include "kernels/gpu/gpu.h"
#include "cmd/lib/model_opts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const check_block *host;
    u8 *there;
} twin;

static struct {
    ops real;
    device *dev;
    check *c;
    twin used[32];
    int n;
    deferred_norm *deferred; /* whose squares are the GPU's during the call */
    f32 *squares;
} mirror;

static void give_up(const char *why) {
    fprintf(stderr, "moonlet check: %s\n", why);
    exit(1);
}

/* Where the byte at p of the host is on the GPU. A pointer into no block is a mistake of the check. */
static void *there(const void *p) {
    if (!p) return NULL;
    const u8 *at = p;
    for (int i = 0; i < mirror.c->n_blocks; i++) {
        const check_block *b = &mirror.c->blocks[i];
        u64 all = check_block_bytes(b->bytes);
        if (at < b->p || at >= b->p + all) continue;
        for (int k = 0; k < mirror.n; k++)
            if (mirror.used[k].host == b) return mirror.used[k].there + (at - b->p);
        err e;
        void *copy;
        if (mirror.n == (int)COUNT_OF(mirror.used)) give_up("too many blocks in one call");
        if (mirror.dev->alloc(mirror.dev, &copy, all, "a check", &e) != ST_OK) give_up(e.text);
        mirror.dev->write(mirror.dev, copy, b->p, all);
        mirror.used[mirror.n++] = (twin){b, copy};
        return (u8 *)copy + (at - b->p);
    }
    give_up("a check points into memory that it did not allocate");
    return NULL;
}

/* At most one a call. */
static void deferred_there(deferred_norm *l) {
    if (!l) return;
    mirror.deferred = l, mirror.squares = l->squares;
    l->squares = there(l->squares);
}

static void bring_back(void) {
    err e;
    if (mirror.deferred) mirror.deferred->squares = mirror.squares;
    mirror.deferred = NULL;
    for (int k = 0; k < mirror.n; k++) {
        const check_block *b = mirror.used[k].host;
        mirror.dev->read(mirror.dev, b->p, mirror.used[k].there, check_block_bytes(b->bytes));
    }
    if (mirror.dev->finish(mirror.dev, &e) != ST_OK) give_up(e.text);
    for (int k = 0; k < mirror.n; k++) mirror.dev->release(mirror.dev, mirror.used[k].there);
    mirror.n = 0;
}

/* One function an op: its pointers translated, the call, everything back. */
#define MOVE(field) k.field = there(a->field)
#define MIRROR_BY(call, op, type, ...)                                                                                 \
    static void op_##op(const ops *o, const type *a) {                                                                 \
        (void)o;                                                                                                       \
        type k = *a;                                                                                                   \
        __VA_ARGS__;                                                                                                   \
        call(&mirror.real, &k);                                                                                        \
        bring_back();                                                                                                  \
    }
#define MIRROR(op, type, ...) MIRROR_BY(mirror.real.op, op, type, __VA_ARGS__)
#define FUSED(op, type, ...)  MIRROR_BY(mirror.real.fused->op, op, type, __VA_ARGS__)

MIRROR(embed, embed_args, MOVE(ids), MOVE(drawn), MOVE(map), MOVE(out))
MIRROR(norm, norm_args, MOVE(x), MOVE(add), MOVE(sum), MOVE(out), MOVE(bad))
MIRROR(linear, linear_args, MOVE(x), MOVE(y))
MIRROR(swiglu, swiglu_args, MOVE(x), MOVE(out))
FUSED(linear_group, linear_group_args, MOVE(x), deferred_there(k.deferred);
      for (i64 i = 0; i < k.count; i++) k.of[i].y = there(k.of[i].y))
FUSED(linear_norm, linear_norm_args, MOVE(linear.x), MOVE(linear.y), MOVE(norm.x), MOVE(norm.add), MOVE(norm.sum),
      MOVE(norm.out), MOVE(norm.bad), deferred_there(k.deferred))
MIRROR(rope_table, rope_table_args, MOVE(positions), MOVE(inv_freq), MOVE(table))
MIRROR(rope_q, rope_q_args, MOVE(q), MOVE(table))
MIRROR(kv_write, kv_write_args, MOVE(kv_a), MOVE(table), MOVE(slots), MOVE(kv))
FUSED(latent_norm_kv_write, latent_norm_kv_write_args, MOVE(q.x), MOVE(q.add), MOVE(q.sum), MOVE(q.out), MOVE(q.bad),
      MOVE(kv.kv_a), MOVE(kv.table), MOVE(kv.slots), MOVE(kv.kv))
MIRROR(absorb_q, absorb_q_args, MOVE(q), MOVE(out))
FUSED(mla_queries, mla_queries_args, MOVE(latent_norm_kv_write.q.x), MOVE(latent_norm_kv_write.q.out),
      MOVE(latent_norm_kv_write.kv.kv_a), MOVE(latent_norm_kv_write.kv.table), MOVE(latent_norm_kv_write.kv.slots),
      MOVE(latent_norm_kv_write.kv.kv), MOVE(q), MOVE(absorb.q), MOVE(absorb.out))
MIRROR(mla_decode, mla_decode_args, MOVE(q), MOVE(kv), MOVE(pages), MOVE(kv_len), MOVE(out), MOVE(lse), MOVE(workspace),
       MOVE(plan))
MIRROR(unabsorb_v, unabsorb_v_args, MOVE(x), MOVE(out))
FUSED(mla_decode_values, mla_decode_values_args, MOVE(decode.q), MOVE(decode.kv), MOVE(decode.pages),
      MOVE(decode.kv_len), MOVE(decode.out), MOVE(decode.workspace), MOVE(decode.plan), MOVE(values.x),
      MOVE(values.out))
FUSED(mla_decode_plan, mla_decode_plan_args, MOVE(decode.pages), MOVE(decode.kv_len), MOVE(decode.plan))
MIRROR(mla_prefill, mla_prefill_args, MOVE(q), MOVE(kv), MOVE(pages), MOVE(out), MOVE(workspace))
MIRROR(heads_write, heads_write_args, MOVE(k), MOVE(v), MOVE(table), MOVE(slots), MOVE(kv))
MIRROR(heads_decode, heads_decode_args, MOVE(q), MOVE(table), MOVE(kv), MOVE(pages), MOVE(kv_len), MOVE(out),
       MOVE(workspace))
MIRROR(gate, gate_args, MOVE(logits), MOVE(ids), MOVE(weights), MOVE(routes), MOVE(slots), MOVE(counts))
FUSED(gate_linear, gate_linear_args, MOVE(gate.logits), MOVE(gate.ids), MOVE(gate.weights), MOVE(gate.routes),
      MOVE(gate.slots), MOVE(gate.counts), MOVE(linear.x), MOVE(linear.y))
MIRROR(moe, moe_args, MOVE(x), MOVE(ids), MOVE(weights), MOVE(shared), MOVE(out), MOVE(workspace))
MIRROR(sum_pairs, sum_pairs_args, MOVE(y), MOVE(weights), MOVE(shared), MOVE(out))
FUSED(moe_norm, moe_norm_args, MOVE(moe.x), MOVE(moe.ids), MOVE(moe.weights), MOVE(moe.shared), MOVE(moe.out),
      MOVE(moe.workspace), MOVE(norm.x), MOVE(norm.add), MOVE(norm.sum), MOVE(norm.out), MOVE(norm.bad),
      deferred_there(k.deferred))
FUSED(moe_ffn, moe_ffn_args, MOVE(linear_group.x), MOVE(linear_group.of[0].y), MOVE(linear_group.of[1].y),
      MOVE(gate.logits), MOVE(gate.ids), MOVE(gate.weights), MOVE(down.x), MOVE(down.y), MOVE(moe.moe.x),
      MOVE(moe.moe.ids), MOVE(moe.moe.weights), MOVE(moe.moe.shared), MOVE(moe.moe.out), MOVE(moe.moe.workspace),
      MOVE(moe.norm.x), MOVE(moe.norm.add), MOVE(moe.norm.sum), MOVE(moe.norm.out), MOVE(moe.norm.bad),
      deferred_there(k.linear_group.deferred))
MIRROR(gather, gather_args, MOVE(x), MOVE(rows), MOVE(out))
MIRROR(mark_nonfinite, mark_nonfinite_args, MOVE(x), MOVE(bad))
MIRROR(sample, sample_args, MOVE(logits), MOVE(rows), MOVE(masks), MOVE(ids), MOVE(bad), MOVE(workspace))
MIRROR(kv_copy, kv_copy_args, MOVE(kv), MOVE(pairs), MOVE(count))
MIRROR(draft_beams, draft_beams_args, MOVE(top_ids), MOVE(logprobs), MOVE(scores), MOVE(ids), MOVE(from), MOVE(chosen),
       MOVE(slots), MOVE(pairs))
MIRROR(pixel_rows, pixel_rows_args, MOVE(pixels), MOVE(out))
MIRROR(patch_position, patch_position_args, MOVE(time), MOVE(items), MOVE(x))
MIRROR(layer_norm, layer_norm_args, MOVE(x), MOVE(add), MOVE(sum), MOVE(out))
MIRROR(bias_act, bias_act_args, MOVE(x))
MIRROR(vision_rope, vision_rope_args, MOVE(table), MOVE(items), MOVE(qkv))
MIRROR(vision_attention, vision_attention_args, MOVE(qkv), MOVE(items), MOVE(out))
MIRROR(patch_merge, patch_merge_args, MOVE(items), MOVE(x), MOVE(out))
MIRROR(logprobs, logprobs_args, MOVE(logits), MOVE(ids), MOVE(drawn), MOVE(tops), MOVE(top_ids), MOVE(logprobs),
       MOVE(workspace))

void check_tuned(bool on) {
    err e;
    if (ops_gpu_tuned(&mirror.real, on ? tuned_place() : "none", &e) != ST_OK) give_up(e.text);
}

void check_mirror(ops *out, const ops *real, device *dev, check *c) {
#define MIRROR_SLOT(op) .op = op_##op,
    static fused_ops fused = {FUSED_OPS(MIRROR_SLOT).mla_decode_plan_bytes = 0};
#undef MIRROR_SLOT
    mirror.real = *real;
    mirror.dev = dev;
    mirror.c = c;
    *out = *real;
#define MIRROR_SLOT(op) out->op = op_##op;
    OPS(MIRROR_SLOT)
#undef MIRROR_SLOT
    fused.mla_decode_plan_bytes = fused_mla_decode_plan_bytes(real);
    out->fused = &fused;
}
