/* kernels/gpu/moe/decode_stored.c: the launches of decode_stored.cu: how a block's shared memory is divided, how the
 * copy engine sees the weights. moe_select.c says which calls they take. */
#include "kernels/gpu/moe/decode_stored.h"
#include "kernels/gpu/backend.h"

static int decode_stored_take(int *at, i64 bytes) {
    int here = *at;
    *at += (int)((bytes + 127) & ~(i64)127);
    return here;
}

/* Divides shared memory: the ring, its barriers, the rest. */
static void divide(gpu_decode_int4_args *f, bool fp8) {
    i64 groups = min_i64(f->pairs, f->experts + f->pairs / DECODE_STORED_TOKENS);
    int at = 0;
    decode_stored_take(&at, DECODE_INT4_BARRIERS);
    f->at_sums = decode_stored_take(&at, DECODE_INT4_WARPS * DECODE_STORED_TOKENS / 2 * 32 * 4);
    f->at_groups = decode_stored_take(&at, groups * 8);
    f->at_cursor = decode_stored_take(&at, (i64)f->experts * 4);
    f->at_pairs = decode_stored_take(&at, (i64)f->pairs * 4);
    f->slot_bytes = (DECODE_STORED_WEIGHTS + DECODE_STORED_TOKENS * DECODE_STORED_STRIDE(fp8) + 1023) / 1024 * 1024;
    f->slots = (int)min_i64((SHARED_MAX - at) / f->slot_bytes, DECODE_STORED_SLOTS);
    int ring = f->slots * f->slot_bytes;
    f->at_sums += ring, f->at_groups += ring, f->at_cursor += ring, f->at_pairs += ring;
    f->shared = ring + at;
}

/* Bytes of the pieces of the workspace. */
static u64 decode_stored_layout(const moe_args *a, u8 *base, gpu_decode_stored_args *p) {
    u64 pairs = (u64)(a->n * a->k), at = 0;
    p->h = (gpu_bf16 *)base, at += gpu_round(pairs * (u64)a->experts->views[0].rows * 2);
    p->f.finished = (gpu_u32 *)(base + at), at += gpu_round(pairs * 4);
    p->f.work_counter = (int *)(base + at), at += gpu_round(8);
    return at;
}

i64 gpu_decode_stored_tokens(const moe_args *a) { return min_i64(a->n, max_i64(DECODE_STORED_PAIRS / a->k, 1)); }

u64 gpu_decode_stored_workspace(const moe_args *a) {
    u8 nowhere;
    gpu_decode_stored_args p;
    moe_args largest = *a;
    largest.n = gpu_decode_stored_tokens(a);
    return decode_stored_layout(&largest, &nowhere, &p);
}

bool gpu_decode_stored_is_one_matrix(const op_weight *w) {
    const gpu_matrix *v = w->views;
    bool fp8 = v->format == GPU_W_FP8_PAIRS;
    i64 unit = fp8 ? 128 : 64;
    return (fp8 || v->format == GPU_W_BF16) && v[2].format == v->format && v->cols % unit == 0 && v->rows % unit == 0 &&
           w->expert_bytes == (u64)(3 * v->rows * v->cols) * (fp8 ? 1 : 2);
}

/* All experts as rows of `hidden` and of `inter` columns; where FP8's scales lie. */
static void decode_stored_describe(const gpu_backend *b, gpu_decode_stored_args *p, const gpu_matrix *v) {
    bool fp8 = v->format == GPU_W_FP8_PAIRS;
    const u64 rows = 3 * (u64)p->f.experts, size = fp8 ? 1 : 2, hidden = (u64)v->cols, inter = (u64)v->rows;
    gpu_tensor(b->g, &p->in, v->data, (const u64[3]){64, rows * inter, hidden * size / DECODE_STORED_UNIT},
               (const u64[2]){hidden * size, DECODE_STORED_UNIT}, (const u32[3]){64, 16, DECODE_STORED_ACROSS});
    gpu_tensor(b->g, &p->out, v->data, (const u64[3]){64, rows * hidden, inter * size / DECODE_STORED_UNIT},
               (const u64[2]){inter * size, DECODE_STORED_UNIT},
               (const u32[3]){64, 16 * DECODE_STORED_TEAM * DECODE_STORED_STRIPS(fp8), DECODE_STORED_DEEP(fp8)});
    if (!fp8) return;
    p->scales = v->scale;
    p->scales_up = (gpu_u32)((const u8 *)v[1].scale - (const u8 *)v->scale);
    p->scales_expert = 2 * p->scales_up + (gpu_u32)gpu_round((u64)(v->rows / 128 * (v->cols / 128)) * 4);
}

void gpu_run_decode_stored(const ops *o, const moe_args *a, u8 *space, f32 *y) {
    const gpu_backend *b = gpu_of(o);
    const gpu_matrix *v = a->experts->views;
    i64 hidden = v->cols, experts = a->experts->n_views / 3, step = gpu_decode_stored_tokens(a);
    bool fp8 = v->format == GPU_W_FP8_PAIRS;
    for (i64 i = 0; i < a->n; i += step) {
        moe_args part = *a;
        part.n = min_i64(step, a->n - i);
        gpu_decode_stored_args p = {.f = {.x = (const gpu_bf16 *)a->x + i * hidden,
                                          .ids = a->ids + i * a->k,
                                          .y = y,
                                          .k = (int)a->k,
                                          .pairs = (int)(part.n * a->k),
                                          .experts = (int)experts,
                                          .hidden = (int)hidden,
                                          .inter = (int)v->rows}};
        divide(&p.f, fp8);
        decode_stored_layout(&part, space, &p);
        decode_stored_describe(b, &p, v);
        gpu_launch(b->g, b->decode_stored_begin, 1, 1, 1, DECODE_INT4_ROWS_THREADS, 0, &p);
        gpu_launch(b->g, fp8 ? b->decode_stored_fp8 : b->decode_stored_bf16, (u32)gpu_processors(b->g), 1, 1,
                   DECODE_INT4_THREADS, (u32)p.f.shared, &p);
        gpu_combine_args c = gpu_combine_of(&part, y);
        c.ids = p.f.ids, c.weights = a->weights + i * a->k;
        c.shared = a->shared ? (const gpu_bf16 *)a->shared + i * hidden : NULL;
        c.out = (gpu_bf16 *)a->out + i * hidden;
        gpu_launch(b->g, b->moe_combine, (u32)part.n, gpu_blocks(hidden, 4 * GPU_THREADS), 1, GPU_THREADS, 0, &c);
    }
}

status gpu_decode_stored_open(gpu_backend *b, err *e) {
    status st = gpu_shared(b->g, b->decode_stored_bf16, SHARED_MAX, e);
    return st == ST_OK ? gpu_shared(b->g, b->decode_stored_fp8, SHARED_MAX, e) : st;
}
