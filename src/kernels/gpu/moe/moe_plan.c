/* kernels/gpu/moe/moe_plan.c: see the header. */
#include "kernels/gpu/moe/moe_plan.h"
#include "kernels/gpu/moe/decode_fp4.h"

enum {
    ROOM = 227 * 1024, /* shared memory of a block on sm_90 */
    INT4_SLOTS_LEAST = 3,
    FUSED_SLOTS_LEAST = 7,
    DEFERRED_INTER = 512 /* rows of an expert: where these are large a launch less did not show (measured) */
};

/* ---- shared memory ---- */

static int plan_take(int *at, i64 bytes) {
    int here = *at;
    *at += (int)((bytes + 127) & ~(i64)127);
    return here;
}

/* The barriers, the ring, then the rest, which is counted first. */
bool moe_divide_packed(gpu_decode_int4_args *f, int group, int stride) {
    int groups = (int)min_i64(f->pairs, f->experts + f->pairs / group), at = 0;
    f->at_sums = plan_take(&at, 2 * DECODE_INT4_WARPS * group * 32 * 4);
    f->at_groups = plan_take(&at, (i64)groups * 8);
    f->at_cursor = plan_take(&at, (i64)f->experts * 4);
    f->at_pairs = plan_take(&at, (i64)f->pairs * 4);
    f->slot_bytes = DECODE_INT4_WEIGHTS + group * stride;
    f->slots = (int)min_i64((ROOM - DECODE_INT4_BARRIERS - at) / f->slot_bytes, DECODE_INT4_SLOTS);
    if (f->slots < INT4_SLOTS_LEAST) return false;
    int ring = DECODE_INT4_BARRIERS + f->slots * f->slot_bytes;
    f->at_sums += ring, f->at_groups += ring, f->at_cursor += ring, f->at_pairs += ring;
    f->shared = ring + at;
    return true;
}

u32 moe_divide_fused(gpu_decode_fused_args *f, i64 more) {
    int at = 0;
    f->at_sums = plan_take(&at, 2 * DECODE_INT4_WARPS * 4 * 32 * 4);
    f->at_digits = plan_take(&at, 2 * max_i64(f->n * (f->hidden + 8), (i64)f->n * f->k * f->inter));
    f->at_shared_h = plan_take(&at, f->n * more);
    f->slots = (int)min_i64((ROOM - DECODE_FUSED_STATE - at) / DECODE_INT4_WEIGHTS, DECODE_INT4_SLOTS);
    if (f->slots < FUSED_SLOTS_LEAST) return 0;
    int ring = DECODE_FUSED_STATE + f->slots * DECODE_INT4_WEIGHTS;
    f->at_sums += ring, f->at_digits += ring, f->at_shared_h += ring;
    return (u32)(ring + at);
}

/* ---- what a kernel takes ---- */

/* slots: of the ring, if it does. */
static bool fits_fused(const moe_request *r, i64 more, int *slots) {
    const moe_call *c = &r->call;
    i64 pairs = c->tokens * c->topk;
    if (c->form != ROWS_ANY || moe_is_fp4(c) || !r->x_16 || c->tokens > DECODE_INT4_TILE ||
        pairs > DECODE_FUSED_PAIRS || pairs * c->inter > DECODE_FUSED_H || c->dim > DECODE_FUSED_COLS)
        return false;
    gpu_decode_fused_args f = {.n = (int)c->tokens, .k = (int)c->topk, .hidden = (int)c->dim, .inter = (int)c->inter};
    bool fits = moe_divide_fused(&f, more) != 0;
    *slots = f.slots;
    return fits;
}

/* A block's rows of the router and of the shared expert wait in the ring. */
static bool fits_ffn(const moe_request *r) {
    int slots;
    if (!r->ffn || !fits_fused(r, moe_ffn_more(r->shared_inter), &slots)) return false;
    i64 rows = 2 * ceil_div(r->shared_inter, r->processors) + ceil_div(r->call.experts, r->processors);
    return rows * (r->call.dim * 2 + 16) <= (i64)slots * DECODE_INT4_WEIGHTS;
}

/* decode_int4.cu or decode_fp4.cu. */
static bool fits_packed(const moe_request *r) {
    gpu_decode_int4_args f = {.pairs = (int)(r->call.tokens * r->call.topk), .experts = (int)r->call.experts};
    if (moe_is_fp4(&r->call)) return r->x_16 && moe_divide_packed(&f, DECODE_FP4_TOKENS, DECODE_FP4_X_STRIDE);
    return r->x_16 && moe_divide_packed(&f, r->how.group, DECODE_INT4_X_STRIDE);
}

/* The sum of slots of float32 and the norm behind it, a row a block. Up to 64 rows two launches are as fast
 * (measured): skinny_tma.cu's weights arrive meanwhile. */
static bool row_holds_norm(const moe_request *r) {
    const moe_call *c = &r->call;
    return c->form == ROWS_ANY && c->tokens > GPU_SKINNY && r->norm_of_sum && c->topk <= GPU_ROW_SLOTS &&
           ceil_div(c->dim, 8 * 32) * 32 <= GPU_ROW_THREADS && r->shared_16;
}

/* The same of halves. */
static bool sum_holds_norm(const moe_request *r) {
    return r->norm_of_sum && r->call.dim <= GPU_SUM_THREADS * GPU_SUM_PIECES * 8 && r->call.topk <= GPU_SUM_SLOTS &&
           r->shared_16;
}

/* ---- the plan ---- */

static moe_plan plan_packed(const moe_request *r) {
    const moe_norm_by behind = r->norm ? MOE_NORM_BEHIND : MOE_NORM_NONE;
    const bool small = r->call.inter <= DEFERRED_INTER, fits = fits_packed(r);
    const moe_run run = moe_is_fp4(&r->call) ? MOE_RUN_DECODE_FP4 : MOE_RUN_DECODE_INT4;
    int slots;
    if (small && fits_ffn(r)) return (moe_plan){MOE_RUN_FFN_FUSED, r->defer_strips ? MOE_NORM_DEFERRED : behind};
    const bool fused = fits_fused(r, 0, &slots);
    if (small && fused && r->defer_strips) return (moe_plan){MOE_RUN_DECODE_FUSED, MOE_NORM_DEFERRED};
    if (small && fits && r->defer_blocks && r->shared_8) return (moe_plan){run, MOE_NORM_DEFERRED};
    if (fused) return (moe_plan){MOE_RUN_DECODE_FUSED, behind};
    if (fits) return (moe_plan){run, row_holds_norm(r) ? MOE_NORM_IN_SUM : behind};
    return (moe_plan){MOE_RUN_GENERIC, behind};
}

moe_plan moe_plan_of(const moe_request *r) {
    const moe_norm_by behind = r->norm ? MOE_NORM_BEHIND : MOE_NORM_NONE;
    const moe_path path = r->how.path;
    if (!r->call.tokens) return (moe_plan){MOE_RUN_NOTHING, behind};
    if (path == MOE_GROUPED || path == MOE_GROUPED_W4A8)
        return (moe_plan){path == MOE_GROUPED ? MOE_RUN_GROUPED : MOE_RUN_GROUPED_W4A8,
                          sum_holds_norm(r) ? MOE_NORM_IN_SUM : behind};
    if (path == MOE_DECODE && (moe_is_int4(&r->call) || moe_is_fp4(&r->call))) return plan_packed(r);
    return (moe_plan){path == MOE_DECODE ? MOE_RUN_DECODE_STORED : MOE_RUN_GENERIC, behind};
}

bool moe_prepares_beside_gate(const moe_request *r) {
    const moe_call *c = &r->call;
    if (r->how.path != MOE_DECODE || !r->x_16 || c->tokens > GPU_SKINNY || c->topk > 32) return false;
    return moe_is_fp4(c) || (moe_is_int4(c) && c->tokens > DECODE_INT4_TILE && c->dim <= GPU_DIGITS_COLS);
}
