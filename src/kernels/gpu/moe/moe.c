/* kernels/gpu/moe/moe.c: routed experts: a call in numbers, its plan (moe_plan.h), the launches and the workspace. */
#include "base/log.h"
#include "kernels/gpu/moe/moe_plan.h"
#include "kernels/gpu/backend.h"
#include <stdio.h>

typedef struct {
    gpu_sort_args sort;
    gpu_bf16 *h;
    f32 *y;
    u8 *decode;
} moe_space;

static u64 moe_layout(const moe_args *a, u8 *base, moe_space *s) {
    const op_weight *w = a->experts;
    u64 pairs = (u64)(a->n * a->k), at = gpu_sort_layout(a->n * a->k, w->n_views / 3, base, &s->sort);
    s->sort.ids = a->ids;
    s->h = (gpu_bf16 *)(base + at);
    at += gpu_round(pairs * (u64)w->views[0].rows * 2);
    s->y = (f32 *)(base + at);
    at += gpu_round(pairs * (u64)w->views[0].cols * 4);
    s->decode = base + at;
    return at + (gpu_is_packed_fp4(&w->views[0]) ? gpu_decode_fp4_workspace(a)
                 : gpu_is_packed(&w->views[0])   ? gpu_decode_int4_workspace(a)
                                                 : gpu_decode_stored_workspace(a));
}

static moe_format format_of(const op_weight *w) {
    const gpu_matrix *up = &w->views[0], *down = &w->views[2];
    bool plain =
        down->format == GPU_W_BF16 && down->wide && down->rows % 64 == 0 && down->rows >= 128 && down->cols % 64 == 0;
    if (up->format == GPU_W_PACKED && down->format == GPU_W_PACKED) return w->int8 ? MOE_W4A8 : MOE_W4A16;
    if (gpu_is_packed_fp4(up) && down->format == up->format)
        return up->format == GPU_W_PACKED_MXFP4 ? MOE_MXFP4 : MOE_NVFP4;
    if (gpu_is_packed(up) && plain) return MOE_W2_BF16;
    if (!gpu_decode_stored_is_one_matrix(w)) return MOE_OTHER;
    if (up->format == GPU_W_FP8_PAIRS) return MOE_FP8;
    return up->wide && plain ? MOE_BF16 : MOE_OTHER;
}

static moe_call moe_op_call_of(const gpu_backend *b, const moe_args *a) {
    const op_weight *w = a->experts;
    return (moe_call){.format = format_of(w),
                      .dim = w->views[0].cols,
                      .inter = w->views[0].rows,
                      .experts = w->n_views / 3,
                      .topk = a->k,
                      .tokens = a->n,
                      .form = b->form};
}

/* The call with as many slots a row as are of experts that are here, if all are chosen as often. */
static moe_call usual_call_of(const gpu_backend *b, const moe_args *a) {
    moe_call c = moe_op_call_of(b, a);
    if (a->among > c.experts) c.topk = max_i64((c.topk * c.experts + a->among / 2) / a->among, 1);
    return c;
}

static moe_choice moe_op_choose(const gpu_backend *b, const moe_args *a) {
    moe_call c = usual_call_of(b, a), all = moe_op_call_of(b, a);
    moe_source from;
    char key[96];
    if (b->forced) return *b->forced;
    moe_choice how = moe_choose(&c, b->tuned, &from);
    if (!moe_allowed(&all, &how)) return moe_default(&all);
    if (from != MOE_MISSED) return how;
    snprintf(key, sizeof key, "tuned %d %lld %lld %lld %lld", (int)c.format, (long long)c.dim, (long long)c.inter,
             (long long)c.experts, (long long)c.topk);
    log_once(key,
             "%s has no row for %s experts, %lld x %lld x %lld, top-%lld, of %lld tokens on %s with %d processors%s: "
             "the choices that are built in are used (moonlet tune moe makes rows)",
             b->tuned_name, moe_format_text(c.format), (long long)c.experts, (long long)c.inter, (long long)c.dim,
             (long long)c.topk, (long long)c.tokens, gpu_name(b->g), gpu_processors(b->g),
             b->tuned->others ? ", others it has" : "");
    return how;
}

moe_choice gpu_moe_choice(const ops *o, const moe_args *a) { return moe_op_choose(gpu_of(o), a); }
moe_call gpu_moe_call(const ops *o, const moe_args *a) { return moe_op_call_of(gpu_of(o), a); }

/* For every path that a call of so many tokens or fewer may take. */
u64 gpu_op_moe_workspace(const ops *o, const moe_args *a) {
    u8 nowhere;
    moe_space s;
    moe_call c = moe_op_call_of(gpu_of(o), a);
    moe_args decode = *a;
    i64 many_from = ceil_div(GROUPED_MEAN * c.experts, usual_call_of(gpu_of(o), a).topk);
    if (c.format != MOE_OTHER) decode.n = min_i64(a->n, max_i64(DECODE_INT4_TOKENS, many_from));
    if (!moe_can(&c, MOE_DECODE) && !moe_can(&c, MOE_GROUPED)) decode.n = a->n;
    u64 all = moe_layout(&decode, &nowhere, &s), large = c.format != MOE_OTHER ? gpu_grouped_workspace(a) : 0,
        int8 = c.format == MOE_W4A8 ? gpu_grouped_w4a8_workspace(a) : 0;
    all = all > large ? all : large;
    return all > int8 ? all : int8;
}

gpu_combine_args gpu_combine_of(const moe_args *a, const f32 *y) {
    const op_weight *w = a->experts;
    return (gpu_combine_args){.ids = a->ids,
                              .weights = a->weights,
                              .y = y,
                              .shared = a->shared,
                              .out = a->out,
                              .hidden = w->views[0].cols,
                              .k = a->k,
                              .n_experts = w->n_views / 3};
}

/* One call: what is asked for, how it runs, and what follows from that. */
typedef struct {
    const moe_args *a;
    const norm_args *norm;   /* NULL: none */
    deferred_norm *deferred; /* of the norm */
    moe_request request;
    moe_plan plan;
    gpu_after after; /* of a norm that may be deferred */
} moe_job;

static bool at_multiple(const void *p, u64 bytes) { return (u64)(uintptr_t)p % bytes == 0; }

/* ffn: NULL, or what lies in front of the experts. */
static moe_job job_of(const ops *o, const moe_args *a, const norm_args *norm, deferred_norm *deferred,
                      const moe_ffn_args *ffn) {
    const gpu_backend *b = gpu_of(o);
    moe_job j = {.a = a, .norm = norm, .deferred = deferred};
    moe_request *r = &j.request;
    *r = (moe_request){.call = moe_op_call_of(b, a),
                       .how = moe_op_choose(b, a),
                       .processors = gpu_processors(b->g),
                       .x_16 = at_multiple(a->x, 16),
                       .shared_8 = at_multiple(a->shared, 8),
                       .shared_16 = at_multiple(a->shared, 16),
                       .norm = norm != NULL};
    if (norm && norm->dim == r->call.dim) {
        r->norm_of_sum = norm->n == a->n && norm->add == a->out && norm->sum && gpu_norm_in_pieces(norm);
        r->defer_strips = gpu_may_defer_norm(b, norm, deferred, ceil_div(norm->dim, PACK_ROWS), &j.after);
        r->defer_blocks = gpu_may_defer_norm(b, norm, deferred, gpu_blocks(norm->dim, 4 * GPU_THREADS), &j.after);
    }
    r->ffn = ffn && (!norm || norm->dim == r->call.dim) && gpu_ffn_fused_fits(ffn, &r->shared_inter);
    j.plan = moe_plan_of(r);
    return j;
}

/* The sum of float32 slots, with what the plan does of the norm. */
static void moe_op_combine(const gpu_backend *b, const moe_job *j, const f32 *y) {
    gpu_combine_args c = gpu_combine_of(j->a, y);
    if (j->plan.norm == MOE_NORM_IN_SUM) {
        c.norm = gpu_norm_of(j->norm);
        gpu_launch(b->g, b->moe_combine_row, (u32)j->a->n, 1, 1, (u32)(ceil_div(c.hidden, 8 * 32) * 32), 0, &c);
        return;
    }
    bool defer = j->plan.norm == MOE_NORM_DEFERRED;
    if (defer) c.after = j->after;
    gpu_launch(b->g, defer ? b->moe_combine_norm : b->moe_combine, (u32)j->a->n, gpu_blocks(c.hidden, 4 * GPU_THREADS),
               1, GPU_THREADS, 0, &c);
}

static void run_decode_packed(const ops *o, const moe_job *j) {
    moe_space s;
    moe_layout(j->a, j->a->workspace, &s);
    if (j->plan.run == MOE_RUN_DECODE_FP4)
        gpu_run_decode_fp4(o, j->a, s.decode, s.y);
    else
        gpu_run_decode_int4(o, j->a, &j->request.how, s.decode, s.y);
    moe_op_combine(gpu_of(o), j, s.y);
}

static void run_decode_stored(const ops *o, const moe_job *j) {
    moe_space s;
    moe_args part = *j->a;
    part.n = gpu_decode_stored_tokens(j->a);
    moe_layout(&part, j->a->workspace, &s);
    gpu_run_decode_stored(o, j->a, s.decode, s.y);
}

static void run_generic(const ops *o, const moe_job *j) {
    const gpu_backend *b = gpu_of(o);
    const moe_args *a = j->a;
    const op_weight *w = a->experts;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols, experts = w->n_views / 3;
    moe_space s;
    moe_layout(a, a->workspace, &s);
    gpu_experts_args x = {w->on_gpu, s.sort.start, s.sort.list, a->x, s.h, s.y, a->k};
    gpu_run_sort(o, &s.sort);
    /* Tiles round INT4 and FP8 weights to bf16, which is too much where a token is all that the error is measured
     * on. */
    bool many = b->form == ROWS_ANY ? a->n * a->k >= TILE_MEAN * experts
                                    : b->form == ROWS_PROMPT && w->views[0].format == GPU_W_BF16;
    bool tiles = many && can_tile(&w->views[0], a->x, hidden) && inter % 8 == 0;
    gpu_launch(b->g, tiles ? b->moe_up_tile : b->moe_up, gpu_blocks(inter, tiles ? 64 : GPU_WARPS), (u32)experts, 1,
               GPU_THREADS, 0, &x);
    tiles = tiles && can_tile(&w->views[2], s.h, inter);
    gpu_launch(b->g, tiles ? b->moe_down_tile : b->moe_down, gpu_blocks(hidden, tiles ? 128 : GPU_WARPS), (u32)experts,
               1, GPU_THREADS, 0, &x);
    moe_op_combine(b, j, s.y);
}

/* The launches of a plan, and the norm behind it. */
static void moe_op_run(const ops *o, moe_job *j, const moe_ffn_args *ffn) {
    const moe_args *a = j->a;
    const bool defer = j->plan.norm == MOE_NORM_DEFERRED;
    const gpu_after *after = defer ? &j->after : NULL;
    const norm_args *in_sum = j->plan.norm == MOE_NORM_IN_SUM ? j->norm : NULL;
    i64 parts = ceil_div(j->request.call.dim, PACK_ROWS);
    if (j->plan.run > MOE_RUN_DECODE_FP4) gpu_finish_rows(o, a->x, a->n, j->request.call.dim, a->deferred);
    switch (j->plan.run) {
    case MOE_RUN_NOTHING: break;
    case MOE_RUN_FFN_FUSED: gpu_run_ffn_fused(o, ffn, after); break;
    case MOE_RUN_DECODE_FUSED: gpu_run_decode_fused(o, a, after); break;
    case MOE_RUN_DECODE_INT4:
    case MOE_RUN_DECODE_FP4:
        run_decode_packed(o, j);
        parts = gpu_blocks(j->request.call.dim, 4 * GPU_THREADS);
        break;
    case MOE_RUN_DECODE_STORED: run_decode_stored(o, j); break;
    case MOE_RUN_GROUPED: gpu_grouped(o, a, &j->request.how, in_sum); break;
    case MOE_RUN_GROUPED_W4A8: gpu_grouped_w4a8(o, a, &j->request.how, in_sum); break;
    case MOE_RUN_GENERIC: run_generic(o, j); break;
    }
    if (j->plan.norm == MOE_NORM_BEHIND) o->norm(o, j->norm);
    if (j->deferred)
        *j->deferred =
            (deferred_norm){j->deferred->squares, defer ? parts : 0, j->request.call.dim, j->norm ? j->norm->eps : 0};
}

void gpu_op_moe(const ops *o, const moe_args *a) {
    moe_job j = job_of(o, a, NULL, NULL, NULL);
    moe_op_run(o, &j, NULL);
}

void gpu_op_moe_norm(const ops *o, const moe_norm_args *a) {
    moe_job j = job_of(o, &a->moe, &a->norm, a->deferred, NULL);
    moe_op_run(o, &j, NULL);
}

/* In one launch, or one op after the other. */
void gpu_op_moe_ffn(const ops *o, const moe_ffn_args *a) {
    moe_job j = job_of(o, &a->moe.moe, a->moe.norm.weight ? &a->moe.norm : NULL, a->moe.deferred, a);
    if (j.plan.run == MOE_RUN_FFN_FUSED)
        moe_op_run(o, &j, a);
    else
        compose_moe_ffn(o, a);
}

gpu_digits_args gpu_moe_digits(const ops *o, const moe_args *a) {
    moe_space s;
    if (!a) return (gpu_digits_args){.x = NULL};
    moe_job j = job_of(o, a, NULL, NULL, NULL);
    if (!moe_prepares_beside_gate(&j.request)) return (gpu_digits_args){.x = NULL};
    moe_layout(a, a->workspace, &s);
    return moe_is_fp4(&j.request.call) ? gpu_decode_fp4_digits(a, s.decode) : gpu_decode_int4_digits(a, s.decode);
}
