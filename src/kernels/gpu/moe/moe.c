/* kernels/gpu/moe/moe.c: routed experts: the launches of a call and its workspace. */
#include "base/log.h"
#include "kernels/gpu/moe/decode_int4.h"
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
    return at + (w->views[0].format == GPU_W_PACKED ? gpu_decode_int4_workspace(a) : gpu_decode_stored_workspace(a));
}

static moe_format format_of(const op_weight *w) {
    const gpu_matrix *up = &w->views[0], *down = &w->views[2];
    bool plain =
        down->format == GPU_W_BF16 && down->wide && down->rows % 64 == 0 && down->rows >= 128 && down->cols % 64 == 0;
    if (up->format == GPU_W_PACKED && down->format == GPU_W_PACKED) return w->int8 ? MOE_W4A8 : MOE_W4A16;
    if (up->format == GPU_W_PACKED && plain) return MOE_W2_BF16;
    if (!gpu_decode_stored_is_one_matrix(w)) return MOE_OTHER;
    if (up->format == GPU_W_FP8_PAIRS) return MOE_FP8;
    return up->wide && plain ? MOE_BF16 : MOE_OTHER;
}

static moe_call call_of(const gpu_backend *b, const moe_args *a) {
    const op_weight *w = a->experts;
    return (moe_call){.format = format_of(w),
                      .dim = w->views[0].cols,
                      .inter = w->views[0].rows,
                      .experts = w->n_views / 3,
                      .topk = a->k,
                      .tokens = a->n,
                      .form = b->form};
}

static moe_choice choose(const gpu_backend *b, const moe_args *a) {
    moe_call c = call_of(b, a);
    moe_source from;
    char key[96];
    if (b->forced) return *b->forced;
    moe_choice how = moe_choose(&c, b->tuned, &from);
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

moe_choice gpu_moe_choice(const ops *o, const moe_args *a) { return choose(gpu_of(o), a); }
moe_call gpu_moe_call(const ops *o, const moe_args *a) { return call_of(gpu_of(o), a); }

/* For every path that a call of so many tokens or fewer may take. */
u64 gpu_op_moe_workspace(const ops *o, const moe_args *a) {
    u8 nowhere;
    moe_space s;
    moe_call c = call_of(gpu_of(o), a);
    moe_args decode = *a;
    i64 many_from = ceil_div(GROUPED_MEAN * c.experts, a->k);
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

/* The sum of slots and the norm behind it, a row a block. Up to 64 rows two launches are as fast (measured):
 * skinny_tma.cu's weights arrive meanwhile. False: not such rows. */
static bool combine_rows(const gpu_backend *b, const moe_args *a, gpu_combine_args *c, const norm_args *norm) {
    i64 threads = ceil_div(c->hidden, 8 * 32) * 32;
    if (b->form != ROWS_ANY || a->n <= GPU_SKINNY) return false;
    if (!norm || norm->n != a->n || norm->dim != c->hidden || norm->add != a->out || !norm->sum ||
        a->k > GPU_ROW_SLOTS || threads > GPU_ROW_THREADS || !gpu_norm_in_pieces(norm) ||
        (u64)(uintptr_t)a->shared % 16)
        return false;
    c->norm = gpu_norm_of(norm);
    gpu_launch(b->g, b->moe_combine_row, (u32)a->n, 1, 1, (u32)threads, 0, c);
    return true;
}

/* Few tokens. after: NULL, or of the norm behind it. norm: NULL, or that norm; *normed: it is done. */
static bool run_decode(const ops *o, const moe_args *a, const gpu_after *after, const norm_args *norm, bool *normed) {
    const gpu_backend *b = gpu_of(o);
    moe_space s;
    const moe_choice how = choose(b, a);
    if (how.path != MOE_DECODE || a->experts->views[0].format != GPU_W_PACKED) return false;
    if (!after && gpu_run_decode_fused(o, a, NULL)) return true;
    moe_layout(a, a->workspace, &s);
    gpu_combine_args c = gpu_combine_of(a, s.y);
    if (!gpu_run_decode_int4(o, a, &how, s.decode, s.y)) return false;
    if (after) c.after = *after;
    if (!after && (*normed = combine_rows(b, a, &c, norm))) return true;
    gpu_launch(b->g, after ? b->moe_combine_norm : b->moe_combine, (u32)a->n, gpu_blocks(c.hidden, 4 * GPU_THREADS), 1,
               GPU_THREADS, 0, &c);
    return true;
}

/* norm: NULL, or the one behind it, which is done where the result is true. */
static bool run_moe(const ops *o, const moe_args *a, const norm_args *norm) {
    const gpu_backend *b = gpu_of(o);
    const op_weight *w = a->experts;
    i64 inter = w->views[0].rows, hidden = w->views[0].cols, experts = w->n_views / 3;
    moe_space s;
    bool normed = false;
    if (!a->n || run_decode(o, a, NULL, norm, &normed)) return normed;
    gpu_finish_rows(o, a->x, a->n, hidden, a->deferred);
    const moe_choice how = choose(b, a);
    if (how.path == MOE_GROUPED_W4A8) return gpu_grouped_w4a8(o, a, &how, norm);
    if (how.path == MOE_GROUPED) return gpu_grouped(o, a, &how, norm);
    const bool stored = how.path == MOE_DECODE && w->views[0].format != GPU_W_PACKED;
    moe_args part = *a;
    if (stored) part.n = gpu_decode_stored_tokens(a);
    moe_layout(&part, a->workspace, &s);
    if (stored) {
        gpu_run_decode_stored(o, a, s.decode, s.y);
        return false;
    }
    gpu_experts_args x = {w->on_gpu, s.sort.start, s.sort.list, a->x, s.h, s.y, a->k};
    gpu_combine_args c = gpu_combine_of(a, s.y);
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
    gpu_launch(b->g, b->moe_combine, (u32)a->n, gpu_blocks(hidden, 4 * GPU_THREADS), 1, GPU_THREADS, 0, &c);
    return false;
}

void gpu_op_moe(const ops *o, const moe_args *a) { run_moe(o, a, NULL); }

enum {
    DEFERRED_INTER = 512 /* rows of an expert: where these are large a launch less did not show (measured) */
};

/* In one launch. */
static bool run_one_norm(const ops *o, const moe_norm_args *a) {
    const gpu_backend *b = gpu_of(o);
    i64 parts = ceil_div(a->norm.dim, PACK_ROWS);
    gpu_after after;
    if (a->moe.experts->views[0].format != GPU_W_PACKED || choose(b, &a->moe).path != MOE_DECODE) return false;
    if (!gpu_may_defer_norm(b, &a->norm, a->deferred, parts, &after)) return false;
    if (!gpu_run_decode_fused(o, &a->moe, &after)) return false;
    *a->deferred = (deferred_norm){a->deferred->squares, parts, a->norm.dim, a->norm.eps};
    return true;
}

void gpu_op_moe_norm(const ops *o, const moe_norm_args *a) {
    const gpu_backend *b = gpu_of(o);
    i64 hidden = a->moe.experts->views[0].cols, parts = gpu_blocks(hidden, 4 * GPU_THREADS);
    gpu_after after;
    bool small = a->moe.experts->views[0].rows <= DEFERRED_INTER;
    if (a->moe.n && small && hidden == a->norm.dim && run_one_norm(o, a)) return;
    if (a->moe.n && small && hidden == a->norm.dim && (u64)(uintptr_t)a->moe.shared % 8 == 0 &&
        gpu_may_defer_norm(b, &a->norm, a->deferred, parts, &after) && run_decode(o, &a->moe, &after, NULL, NULL)) {
        *a->deferred = (deferred_norm){a->deferred->squares, parts, hidden, a->norm.eps};
        return;
    }
    if (!run_moe(o, &a->moe, &a->norm)) o->norm(o, &a->norm);
    if (a->deferred) a->deferred->parts = 0;
}

gpu_digits_args gpu_moe_digits(const moe_args *a) {
    moe_space s;
    moe_layout(a, a->workspace, &s);
    return gpu_decode_int4_digits(a, s.decode);
}

/* One op after the other, with x as digits beside the gate (gate_sort.c) if decode_int4.cu will have the experts. */
static void moe_ffn_unfused(const ops *o, const moe_ffn_args *a) {
    gpu_backend *b = gpu_of(o);
    const moe_args *m = &a->moe.moe;
    const gpu_matrix *up = &m->experts->views[0];
    bool fits = m->n > DECODE_INT4_TILE && m->n <= GPU_SKINNY && m->k <= 32 && up->format == GPU_W_PACKED &&
                up->cols <= GPU_DIGITS_COLS && (u64)(uintptr_t)m->x % 16 == 0 && choose(b, m).path == MOE_DECODE;
    if (fits) b->wants_digits = m;
    compose_moe_ffn(o, a);
    b->wants_digits = NULL, b->has_digits = false;
}

void gpu_op_moe_ffn(const ops *o, const moe_ffn_args *a) {
    const gpu_backend *b = gpu_of(o);
    const moe_norm_args *m = &a->moe;
    const bool takes = m->moe.n && m->moe.experts->views[0].rows <= DEFERRED_INTER &&
                       m->moe.experts->views[0].format == GPU_W_PACKED &&
                       m->norm.dim == m->moe.experts->views[0].cols && choose(b, &m->moe).path == MOE_DECODE;
    i64 parts = ceil_div(m->norm.dim, PACK_ROWS);
    gpu_after after;
    bool deferred = takes && gpu_may_defer_norm(b, &m->norm, m->deferred, parts, &after);
    if (!takes || !gpu_run_ffn_fused(o, a, deferred ? &after : NULL)) {
        moe_ffn_unfused(o, a);
        return;
    }
    if (deferred)
        *m->deferred = (deferred_norm){m->deferred->squares, parts, m->norm.dim, m->norm.eps};
    else
        o->norm(o, &m->norm);
    if (!deferred && m->deferred) m->deferred->parts = 0;
}
