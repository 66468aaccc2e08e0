/* kernels/gpu/gpu.c: the backend's table, and the operations that are one launch. */
#include "base/file.h"
#include "base/log.h"
#include "kernels/gpu/images.h"
#include "device/cublas.h"
#include "kernels/gpu/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TUNED_FILE_MOST = 8 << 20 };

int gpu_type(dtype t) { return t == DT_BF16 ? GPU_BF16 : t == DT_F8_E4M3 ? GPU_FP8 : GPU_F32; }

static void launch(const ops *o, const gpu_kernel *k, u32 x, u32 y, u32 z, const void *args) {
    if (x && y && z) gpu_launch(gpu_of(o)->g, k, x, y, z, GPU_THREADS, 0, args);
}

void gpu_op_embed(const ops *o, const embed_args *a) {
    gpu_embed_args k = {a->table->views[0], a->ids, a->drawn, a->map, a->out, a->first};
    launch(o, gpu_of(o)->embed, (u32)a->n, 1, 1, &k);
}

gpu_norm_args gpu_norm_of(const norm_args *a) {
    return (gpu_norm_args){.weight = a->weight->vector,
                           .x = a->x,
                           .add = a->add,
                           .sum = a->sum,
                           .out = a->out,
                           .n = a->n,
                           .dim = a->dim,
                           .x_stride = a->x_stride,
                           .out_stride = a->out_stride,
                           .bad = a->bad,
                           .eps = a->eps,
                           .mark = a->mark};
}

/* Can a row be taken in pieces of 8 values? */
bool gpu_norm_in_pieces(const norm_args *a) {
    u64 all = (u64)(uintptr_t)a->x | (u64)(uintptr_t)a->add | (u64)(uintptr_t)a->sum | (u64)(uintptr_t)a->out |
              (u64)(uintptr_t)a->weight->vector | (u64)(a->dim | a->x_stride | a->out_stride) * 2;
    return all % 16 == 0;
}

/* Whether rows stream through blocks that stay: a prompt's always. */
static bool norm_streams(const gpu_backend *b, const norm_args *a) {
    bool many = b->form == ROWS_PROMPT || (b->form == ROWS_ANY && a->n > 4 * gpu_processors(b->g));
    return many && !a->add && !a->sum && a->dim <= GPU_PLAIN_THREADS * GPU_PLAIN_PIECES * 8;
}

void gpu_op_norm(const ops *o, const norm_args *a) {
    gpu_norm_args k = gpu_norm_of(a);
    const gpu_backend *b = gpu_of(o);
    i64 at_once = (i64)gpu_processors(b->g) * GPU_PLAIN_BLOCKS;
    if (!a->n) return;
    if (!gpu_norm_in_pieces(a) || a->dim > GPU_NORM_THREADS * 16)
        launch(o, b->norm_any, (u32)a->n, 1, 1, &k);
    else if (a->dim <= GPU_THREADS * 8)
        launch(o, b->norm_short, (u32)a->n, 1, 1, &k);
    else if (norm_streams(b, a))
        gpu_launch(b->g, b->norm_plain, (u32)min_i64(a->n, at_once), 1, 1, GPU_PLAIN_THREADS, 0, &k);
    else
        gpu_launch(b->g, a->n > 2 * gpu_processors(b->g) ? b->norm_many : b->norm, (u32)a->n, 1, 1, GPU_NORM_THREADS, 0,
                   &k);
}

void gpu_op_rope_table(const ops *o, const rope_table_args *a) {
    gpu_rope_table_args k = {a->positions, a->inv_freq, a->table, a->n, a->rope / 2, a->mscale};
    launch(o, gpu_of(o)->rope_table, gpu_blocks(a->n * k.half, GPU_THREADS), 1, 1, &k);
}

/* A thread a piece of 8 values; where they do not fit, threads go round. */
void gpu_op_rope_q(const ops *o, const rope_q_args *a) {
    gpu_rope_q_args k = {a->q, a->table, a->n, a->n_heads, a->nope, a->rope};
    i64 pieces = a->n * a->n_heads * max_i64(a->rope / 8, 1);
    launch(o, gpu_of(o)->rope_q, gpu_blocks(pieces, GPU_THREADS), 1, 1, &k);
}

gpu_kv_write_args gpu_kv_write_of(const kv_write_args *a) {
    return (gpu_kv_write_args){.kv_a = a->kv_a,
                               .norm = a->norm->vector,
                               .table = a->table,
                               .slots = (const gpu_i64 *)a->slots,
                               .kv = a->kv,
                               .latent = a->latent,
                               .rope = a->rope,
                               .eps = a->eps,
                               .kv_type = gpu_type(a->kv_type)};
}

bool gpu_kv_in_pieces(const kv_write_args *a) {
    u64 all = (u64)(uintptr_t)a->kv_a | (u64)(uintptr_t)a->kv | (u64)(uintptr_t)a->table |
              (u64)(uintptr_t)a->norm->vector | (u64)(a->latent | a->rope) * 2;
    return all % 16 == 0 && a->latent + a->rope <= GPU_THREADS * 8;
}

void gpu_op_kv_write(const ops *o, const kv_write_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_kv_write_args k = gpu_kv_write_of(a);
    launch(o, gpu_kv_in_pieces(a) ? b->kv_write : b->kv_write_any, (u32)a->n, 1, 1, &k);
}

/* A prompt's rows always, so that a row's sum does not depend on how many there are. */
static bool latent_norm_by_warps(const gpu_backend *b, const latent_norm_kv_write_args *a) {
    bool many = b->form == ROWS_PROMPT || (b->form == ROWS_ANY && a->q.n > 4 * gpu_processors(b->g));
    return many && a->q.dim <= GPU_WARP_NORM && a->kv.latent + a->kv.rope <= GPU_WARP_KV && !a->q.add && !a->q.sum &&
           !a->q.bad;
}

void gpu_op_latent_norm_kv_write(const ops *o, const latent_norm_kv_write_args *a) {
    if (a->q.n == a->kv.n && gpu_norm_in_pieces(&a->q) && a->q.dim <= GPU_THREADS * 8 && gpu_kv_in_pieces(&a->kv)) {
        gpu_latent_norm_kv_write_args k = {gpu_norm_of(&a->q), gpu_kv_write_of(&a->kv)};
        if (latent_norm_by_warps(gpu_of(o), a))
            launch(o, gpu_of(o)->latent_norm_kv_write_many, gpu_blocks(a->q.n, GPU_WARPS), 2, 1, &k);
        else
            launch(o, gpu_of(o)->latent_norm_kv_write, (u32)a->q.n, 2, 1, &k);
        return;
    }
    if (a->q.n) gpu_op_norm(o, &a->q);
    gpu_op_kv_write(o, &a->kv);
}

void gpu_op_sum_pairs(const ops *o, const sum_pairs_args *a) {
    gpu_sum_pairs_args k = {a->y, a->weights, a->shared, a->out, a->k, a->dim};
    launch(o, gpu_of(o)->sum_pairs, (u32)a->n, gpu_blocks(a->dim, GPU_THREADS), 1, &k);
}

void gpu_op_gather(const ops *o, const gather_args *a) {
    gpu_gather_args k = {a->x, a->rows, a->out, a->dim, a->x_stride, a->out_stride};
    launch(o, gpu_of(o)->gather, (u32)a->n, 1, 1, &k);
}

void gpu_op_mark_nonfinite(const ops *o, const mark_nonfinite_args *a) {
    gpu_mark_nonfinite_args k = {a->x, a->bad, a->dim, a->stride, gpu_type(a->x_type), a->mark};
    launch(o, gpu_of(o)->mark_nonfinite, (u32)a->n, gpu_blocks(a->dim, GPU_FINITE), 1, &k);
}

/* Blocks go on to further rows: how many there are is known on the GPU alone. */
void gpu_op_kv_copy(const ops *o, const kv_copy_args *a) {
    gpu_kv_copy_args k = {a->kv, (const gpu_kv_pair *)a->pairs, a->count, a->most, a->row_bytes, a->layer_bytes};
    const i64 rows_each = GPU_WARPS, blocks = min_i64(ceil_div(a->most, rows_each), 2 * gpu_processors(gpu_of(o)->g));
    launch(o, gpu_of(o)->kv_copy, (u32)blocks, (u32)a->layers, 1, &k);
}

void gpu_op_draft_beams(const ops *o, const draft_beams_args *a) {
    gpu_draft_beams_args k = {.top_ids = a->top_ids,
                              .logprobs = a->logprobs,
                              .scores = a->scores,
                              .ids = a->ids,
                              .from = a->from,
                              .chosen = a->chosen,
                              .n = a->n,
                              .beams = (int)a->beams,
                              .k = (int)a->k,
                              .slots = (const gpu_i64 *)a->slots,
                              .pairs = (gpu_kv_pair *)a->pairs,
                              .copies = a->copies,
                              .slots_stride = a->slots_stride};
    _Static_assert((int)GPU_BEAMS == (int)BEAMS_MOST, "params.h");
    if (a->n) gpu_launch(gpu_of(o)->g, gpu_of(o)->draft_beams, (u32)a->n, 1, 1, 32, 0, &k);
}

static void op_set_row_mode(const ops *o, row_mode form) { gpu_of(o)->form = form; }

void ops_gpu_force(ops *o, const moe_choice *how) { gpu_of(o)->forced = how; }

/* The table of matrix products beside that of experts: CHIP-gemm.csv. */
static status tuned_gemm(gpu_backend *b, const char *place, err *e) {
    buf text = {0};
    size_t n = strlen(place), end = n > 4 && !strcmp(place + n - 4, ".csv") ? n - 4 : n;
    gemm_free(&b->gemm_rows);
    int length = snprintf(b->gemms_name, sizeof b->gemms_name, "%.*s-gemm.csv", (int)end, place);
    if (length >= (int)sizeof b->gemms_name) return err_set(e, ST_INPUT, "%s: too long a name", place);
    if (!file_exists(b->gemms_name)) {
        if (b->blas)
            log_once(b->gemms_name,
                     "there is no %s: nothing was tuned for %s, matrix products run by cuBLASLt's own choices "
                     "(moonlet tune gemm)",
                     b->gemms_name, gpu_name(b->g));
        return ST_OK;
    }
    status st = file_read(b->gemms_name, TUNED_FILE_MOST, &text, e);
    if (st == ST_OK)
        st =
            gemm_parse(&b->gemm_rows, text.data, text.len, b->gemms_name, gpu_name(b->g), gpu_chip_processors(b->g), e);
    buf_free(&text);
    if (st == ST_OK) b->gemms = &b->gemm_rows;
    return st;
}

static status tuned_experts(gpu_backend *b, const char *place, err *e) {
    buf text = {0};
    tuned_free(&b->tuned_rows);
    status st = file_read(place, TUNED_FILE_MOST, &text, e);
    if (st == ST_OK)
        st = tuned_parse(&b->tuned_rows, text.data, text.len, place, gpu_name(b->g), gpu_chip_processors(b->g), e);
    buf_free(&text);
    if (st != ST_OK) return st;
    snprintf(b->tuned_name, sizeof b->tuned_name, "%s", place);
    b->tuned = &b->tuned_rows;
    return ST_OK;
}

status ops_gpu_tuned(ops *o, const char *place, err *e) {
    gpu_backend *b = gpu_of(o);
    char file[80], path[4096];
    struct stat is;
    b->tuned = NULL;
    b->gemms = NULL;
    if (!place || !strcmp(place, "none")) return ST_OK;
    bool folder = !stat(place, &is) && S_ISDIR(is.st_mode);
    if (folder) {
        tuned_file_name(file, sizeof file, gpu_name(b->g));
        status st = path_join(path, sizeof path, place, file, e);
        if (st != ST_OK) return st;
        place = path;
    }
    if (gpu_processors(b->g) < gpu_chip_processors(b->g))
        log_once(place, "%s was measured on all %d processors of %s: a rank that has %d runs by the same choices",
                 place, gpu_chip_processors(b->g), gpu_name(b->g), gpu_processors(b->g));
    status st = tuned_gemm(b, place, e);
    if (st != ST_OK || !folder || file_exists(place)) return st == ST_OK ? tuned_experts(b, place, e) : st;
    log_once(path,
             "%s does not exist: nothing was tuned for %s, experts run by the choices that are built in "
             "(moonlet tune moe)",
             path, gpu_name(b->g));
    return ST_OK;
}

static status find_kernels(gpu_backend *b, err *e) {
    const struct {
        const char *file, *name;
        gpu_kernel **slot;
    } all[] = {
#define GPU_KERNEL_ROW(name, file) {file, "k_" #name, &b->name},
        GPU_KERNELS(GPU_KERNEL_ROW)
#undef GPU_KERNEL_ROW
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const gpu_image *image = NULL;
        for (int k = 0; k < gpu_n_images; k++)
            if (!strcmp(gpu_images[k].name, all[i].file)) image = &gpu_images[k];
        if (!image)
            return err_set(e, ST_UNSUPPORTED,
                           "this program was built without GPU kernels: tools/setup --cuda installs a "
                           "compiler for them, then `make` builds them in");
        status st = gpu_find(b->g, image, all[i].name, all[i].slot, e);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

/* Shared memory that kernels may have, and memory of the backend's own. */
static status open_kernels(gpu_backend *b, err *e) {
    gpu_kernel *const large[] = {b->mla_decode,
                                 b->mla_prefill,
                                 b->mla_flash,
                                 b->mla_decode_mma8,
                                 b->mla_decode_mma16,
                                 b->mla_decode_mma8_fp8,
                                 b->mla_decode_mma8_fp8_rows,
                                 b->mla_decode_mma16_fp8,
                                 b->mla_decode_wgmma,
                                 b->mla_decode_wgmma_fp8};
    gpu_kernel *const sorts[] = {b->sort_few, b->sort_more, b->sort_count, b->sort_place};
    status (*const parts[])(gpu_backend *, err *) = {
        gpu_dense_init,        gpu_query_fused_init, gpu_decode_init,     gpu_invariant_open,     gpu_grouped_open,
        gpu_grouped_w4a8_open, gpu_decode_int4_open, gpu_decode_fp4_open, gpu_decode_stored_open, gpu_vision_open};
    status st = gpu_shared(b->g, b->sample_cut, 96 * 1024, e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(large); i++) st = gpu_shared(b->g, large[i], SHARED_MAX, e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(sorts); i++) st = gpu_shared(b->g, sorts[i], 160 * 1024, e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(parts); i++) st = parts[i](b, e);
    return st;
}

#define GPU_SLOT(op)           .op = gpu_op_##op,
#define GPU_WORKSPACE_SLOT(op) .op##_workspace = gpu_op_##op##_workspace,

void ops_close_gpu(ops *o) {
    gpu_backend *b = gpu_of(o);
    o->state = NULL;
    if (!b) return;
    err e; /* nothing may be queued that uses what ends here; a failure has been reported, or nobody asked */
    gpu_device(b->g)->finish(gpu_device(b->g), &e);
    cublas_close(b->blas);
    gpu_device(b->g)->release(gpu_device(b->g), b->replaced);
    device_pool_free(&b->pool);
    gemm_free(&b->gemm_rows);
    tuned_free(&b->tuned_rows);
    free(b->costs);
    free(b);
}

status ops_init_gpu(ops *o, gpu *g, dtype act, err *e) {
    static const fused_ops fused = {FUSED_OPS(GPU_SLOT).mla_decode_plan_bytes = sizeof(gpu_decode_plan),
                                    .mla_groups_pay = gpu_decode_groups_pay};
    *o = (ops){.name = gpu_name(g)};
    if (act != DT_BF16)
        return err_set(e, ST_UNSUPPORTED,
                       "a checkpoint in float32 runs on --device ref or cpu; the GPU computes in bfloat16");
    gpu_backend *b = calloc(1, sizeof *b);
    if (!b) return err_nomem(e, "a backend's state", sizeof *b);
    b->g = g;
    b->pool.dev = gpu_device(g);
    o->state = b;
    status st = find_kernels(b, e);
    if (st == ST_OK) st = open_kernels(b, e);
    if (st != ST_OK) return ops_close_gpu(o), st;
    *o = (ops){.name = gpu_name(g),
               .act = act,
               .int8_mean = INT8_MEAN,
               .state = b,
               .fits = gpu_op_fits,
               .weight_prepare = gpu_weight_prepare,
               .weight_release = gpu_weight_release,
               .experts_replace = gpu_weight_replace,
               OPS(GPU_SLOT) OPS_WITH_WORKSPACE(GPU_WORKSPACE_SLOT).fused = &fused,
               .set_row_mode = op_set_row_mode};
    return ST_OK;
}
