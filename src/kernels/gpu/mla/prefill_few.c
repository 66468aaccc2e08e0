/* kernels/gpu/mla/prefill_few.c: few rows of a prompt behind a long context, as those of the next turn of a chat.
 *
 * Expanded (prefill.cu), the keys and values of the whole context are made anew, 2 * latent * (nope + v) flop a token
 * and head, and 128 rows of a head are one block, which goes through all of it by itself: of 8 heads 124 of 132
 * multiprocessors wait. Absorbed, a row takes 2 * (latent + rope + latent) flop a token and head instead of 640, but
 * nothing is expanded, and the context is cut among all multiprocessors (decode.c): rows of a prompt are rows of one
 * sequence at consecutive positions, so groups of them read its KV once.
 *
 * Sums are rounded otherwise than in expanded form, so with --deterministic, where a row's bits are not to hang on how
 * many rows there are, all are expanded. A NaN in a token's KV row may reach the rows of its group that stand before
 * it: they are of the same prompt, which ends in an error either way. */
#include "kernels/gpu/backend.h"

enum {
    GROUP_HEADS = 64 /* of decode_wgmma's block; an FP8 cache has blocks of 16 heads for groups */,
    GROUP_HEADS_FP8 = 16,
    FLASH_ROWS = 128, /* of a block of mla_flash, and of a call whose context is expanded 1024 tokens at a time */
    PROCESSORS = 132
};

/* Nanoseconds of a call, on an H200 (bench/results/h200/attention/2026-11-30-few-rows-of-prompts.txt). Absorbed: all
 * that does not hang on the context, and a token of it, row and head. Expanded: the same; a token and head; a block's
 * way past a token, of which PROCESSORS go at a time; of few rows what launches take. */
static const f64 ABSORBED = 55e3, ABSORBED_EACH = 0.0051, ABSORBED_EACH_FP8 = 0.0105;
static const f64 EXPANDED = 14e3, EXPANDED_HEAD = 0.52, EXPANDED_BLOCK = 15, EXPANDED_FEW = 10;

static bool absorbed_pays(const mla_prefill_args *a) {
    const f64 tokens = (f64)(a->pos0 + a->n), cells = (f64)(a->n * a->n_heads);
    const i64 blocks = ceil_div(a->n, FLASH_ROWS) * a->n_heads;
    const f64 expanded = EXPANDED_HEAD * (f64)a->n_heads + EXPANDED_BLOCK * (f64)ceil_div(blocks, PROCESSORS) +
                         (a->n <= FLASH_ROWS ? EXPANDED_FEW : 0);
    const f64 each = a->kv_type == DT_F8_E4M3 ? ABSORBED_EACH_FP8 : ABSORBED_EACH;
    return ABSORBED + each * cells * tokens < EXPANDED + expanded * tokens;
}

static mla_decode_args decode_form_of(const mla_prefill_args *a) {
    return (mla_decode_args){.kv = a->kv,
                             .pages = a->pages,
                             .kv_type = a->kv_type,
                             .n = a->n,
                             .n_heads = a->n_heads,
                             .latent = a->latent,
                             .rope = a->rope,
                             .scale = a->scale};
}

bool gpu_prefill_is_few(const gpu_backend *b, const mla_prefill_args *a) {
    const mla_decode_args d = decode_form_of(a);
    return b->form == ROWS_ANY && gpu_decode_is_fast(&d) && a->pos0 >= GROUP_HEADS && absorbed_pays(a);
}

typedef struct {
    i64 group, pad, n; /* n: rows with the pad, a multiple of group */
    u8 *q, *latents;
    i32 *kv_len;
    void *sums;
} few_space;

static u64 few_layout(const gpu_backend *b, const mla_prefill_args *a, few_space *p) {
    const i64 heads = a->kv_type == DT_F8_E4M3 ? GROUP_HEADS_FP8 : GROUP_HEADS;
    mla_decode_args d = decode_form_of(a);
    u8 *const base = a->workspace;
    u64 at = 0;
    p->group = max_i64(1, heads / a->n_heads);
    p->n = ceil_div(a->n, p->group) * p->group;
    p->pad = p->n - a->n;
    d.n = p->n, d.group = p->group;
    p->q = base + at;
    at += gpu_round((u64)(p->n * a->n_heads * (a->latent + a->rope)) * 2);
    p->latents = base + at;
    at += gpu_round((u64)(p->n * a->n_heads * a->latent) * 2);
    p->kv_len = (i32 *)(void *)(base + at);
    at += gpu_round((u64)p->n * sizeof *p->kv_len);
    p->sums = base + at;
    return at + gpu_decode_workspace(b, &d);
}

u64 gpu_prefill_few_workspace(const gpu_backend *b, const mla_prefill_args *a) {
    mla_prefill_args few = *a;
    u8 nowhere;
    few_space p;
    few.workspace = &nowhere;
    for (; few.n && !gpu_prefill_is_few(b, &few); few.n--) few.pos0++; /* of the longest context most rows are few */
    return few.n ? few_layout(b, &few, &p) : 0;
}

void gpu_prefill_few(const ops *o, const mla_prefill_args *a) {
    const gpu_backend *b = gpu_of(o);
    const u64 row = (u64)(a->n_heads * (a->latent + a->rope)) * 2, latents = (u64)(a->n_heads * a->latent) * 2;
    mla_decode_args d = decode_form_of(a);
    few_space p;
    few_layout(b, a, &p);
    const u64 pad_bytes = (u64)p.pad * row;
    gpu_prefill_rows_args k = {
        .kv_len = p.kv_len, .pad_q = p.q, .n = p.n, .first = a->pos0 + 1 - p.pad, .pad_bytes = (i64)pad_bytes};
    gpu_launch(b->g, b->prefill_rows, gpu_blocks(max_i64(p.n, (i64)pad_bytes / 16), GPU_THREADS), 1, 1, GPU_THREADS, 0,
               &k);
    o->absorb_q(o, &(absorb_q_args){a->kv_b, a->q, p.q + pad_bytes, a->n, a->n_heads, a->nope, a->rope, a->latent});
    d.q = p.q, d.kv_len = p.kv_len, d.out = p.latents, d.workspace = p.sums; /* pages_stride 0: all have those of a */
    d.n = p.n, d.group = p.group;
    gpu_decode_fast(b, &d);
    o->unabsorb_v(o, &(unabsorb_v_args){a->kv_b, p.latents + (u64)p.pad * latents, a->out, a->n, a->n_heads, a->latent,
                                        a->v_dim});
}
