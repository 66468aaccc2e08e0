/* kernels/gpu/heads/heads.c: attention of Llama-type drafts: what heads it takes, how calls are cut, and their
 * workspace. */
#include "kernels/gpu/backend.h"

/* Blocks that a call should have for each multiprocessor. FEW run at once, and rows are cut into few parts; but where
 * they make less than EVEN pieces of a row, all of them may be far fewer than run at once: then MANY, of which the last
 * ones leave multiprocessors alone for a short time only. A piece has MIN_PAGES pages at least. ALONE: rows that decode
 * under --deterministic are cut as if there were so many. */
enum { FEW = 2, MANY = 6, EVEN = 4, MIN_PAGES = 2, ALONE = 4, PIECES = GPU_THREADS /* that heads_combine takes */ };

status gpu_heads_fits(const ops_widths *w, err *e) {
    if (w->dim % 32 || w->dim > GPU_HEADS_DIM)
        return err_set(e, ST_UNSUPPORTED,
                       "head_dim %lld of a draft: attention on a GPU takes multiples of 32, at most %d",
                       (long long)w->dim, GPU_HEADS_DIM);
    return ST_OK;
}

void gpu_op_heads_write(const ops *o, const heads_write_args *a) {
    const gpu_backend *b = gpu_of(o);
    gpu_heads_write_args k = {.k = a->k,
                              .v = a->v,
                              .table = a->table,
                              .slots = (const gpu_i64 *)a->slots,
                              .kv = a->kv,
                              .kv_heads = a->kv_heads,
                              .dim = a->dim,
                              .kv_type = gpu_type(a->kv_type)};
    const i64 pieces = a->kv_heads * a->dim / 16; /* of 8 values of each half */
    if (a->n) gpu_launch(b->g, b->heads_write, (u32)a->n, gpu_blocks(pieces, GPU_THREADS), 1, GPU_THREADS, 0, &k);
}

/* Heads of a block: those that read its KV head, in groups. */
static i64 together(const heads_decode_args *a) {
    return a->n_heads == a->kv_heads && a->kv_type != DT_F32 ? 1 : GPU_HEADS_TOGETHER;
}
static i64 groups_of(const heads_decode_args *a) { return ceil_div(a->n_heads / a->kv_heads, together(a)); }

/* Blocks of a piece of one row, and how many such pieces of all rows MANY makes. */
static i64 blocks_of_piece(const heads_decode_args *a) { return a->kv_heads * groups_of(a); }
static i64 many_pieces(const gpu_backend *b, const heads_decode_args *a) {
    return ceil_div(MANY * gpu_processors(b->g), blocks_of_piece(a));
}

/* Into how many pieces the longest rows are cut: by the number of rows, or not where bits must not depend on it. */
static i64 heads_pieces_of(const gpu_backend *b, const heads_decode_args *a) {
    const i64 most = min_i64(PIECES, ceil_div(a->pages_stride, MIN_PAGES)), n = b->form == ROWS_DECODE ? ALONE : a->n;
    const i64 few = FEW * gpu_processors(b->g) / (blocks_of_piece(a) * n);
    if (b->form == ROWS_PROMPT) return 1;
    return max_i64(1, min_i64(most, few >= EVEN ? few : ceil_div(many_pieces(b, a), n)));
}

/* Parts: n rows in ceil(all / n) pieces are less than all + n, and none are needed where n reaches `all`. */
u64 gpu_op_heads_decode_workspace(const ops *o, const heads_decode_args *a) {
    const gpu_backend *b = gpu_of(o);
    const i64 all = many_pieces(b, a),
              parts = b->form == ROWS_DECODE ? a->n * heads_pieces_of(b, a) : all + min_i64(a->n, all);
    return (u64)max_i64(parts, 1) * (u64)a->n_heads * (u64)(a->dim + 4) * sizeof(f32);
}

static const gpu_kernel *heads_kernel_of(const gpu_backend *b, const heads_decode_args *a) {
    const bool one = together(a) == 1;
    if (a->kv_type == DT_F32) return b->heads_decode_f32;
    if (a->kv_type == DT_BF16) return one ? b->heads_decode_bf16_one : b->heads_decode_bf16;
    return one ? b->heads_decode_fp8_one : b->heads_decode_fp8;
}

void gpu_op_heads_decode(const ops *o, const heads_decode_args *a) {
    const gpu_backend *b = gpu_of(o);
    if (!a->n) return;
    gpu_heads_decode_args k = {.q = a->q,
                               .table = a->table,
                               .kv = a->kv,
                               .pages = a->pages,
                               .kv_len = a->kv_len,
                               .out = a->out,
                               .part = a->workspace,
                               .heads = a->n_heads,
                               .kv_heads = a->kv_heads,
                               .dim = a->dim,
                               .pages_stride = a->pages_stride,
                               .splits = (int)heads_pieces_of(b, a),
                               .min_pages = MIN_PAGES,
                               .groups = (int)groups_of(a),
                               .scale2 = a->scale * LOG2_E};
    gpu_launch(b->g, heads_kernel_of(b, a), (u32)(a->n * a->kv_heads * k.groups), (u32)k.splits, 1, GPU_THREADS, 0, &k);
    if (k.splits > 1) gpu_launch(b->g, b->heads_combine, (u32)(a->n * a->n_heads), 1, 1, GPU_THREADS, 0, &k);
}
