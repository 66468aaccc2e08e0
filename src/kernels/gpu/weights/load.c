/* kernels/gpu/weights/load.c: weights copied into the GPU's memory, in the checkpoint's own layout, or INT4 experts as
 * int4_pack.h says, MXFP4 and NVFP4 ones as fp4_pack.h, FP8 ones as fp8.cuh; other matrices in FP8 and the like become
 * bf16. */
#include "base/buf.h"
#include "kernels/gpu/backend.h"
#include "kernels/gpu/device/fp4_pack.h"
#include <stdlib.h>
#include <string.h>

enum { FILL_BLOCKS = 132 * 16 };
_Static_assert((int)GPU_W_NVFP4 == (int)WF_NVFP4 && (int)GPU_W_INT8_ROW == (int)WF_INT8_ROW &&
                   (int)GPU_W_INT4_WIDE == (int)WF_INT4_GROUP128 && (int)GPU_W_PACKED == (int)WF_COUNT,
               "params.h");
#define DUMMY_NVFP4_FACTOR 0x1p-14f /* where scales are about 2^7 */

/* View i in the format that it is kept in: without data. */
static weight_view kept(const weight_desc *d, i64 i) {
    weight_view v = d->views[i];
    v.format = d->kind == WK_EXPERTS ? expert_on_gpu(d->experts, v.format, i) : linear_on_gpu(v.format);
    v.data = v.scale = NULL;
    return v;
}

/* Does int4_pack.h or fp4_pack.h have blocks of it? */
static bool in_nibbles(weight_format f) { return f == WF_INT4_GROUP || f == WF_MXFP4 || f == WF_NVFP4; }

/* Do all matrices of d that are kept in four bits fit into these blocks, all in FP8 into whole blocks of 128 x 128? */
static bool packs(const weight_desc *d) {
    for (i64 i = 0; i < d->n_views; i++) {
        weight_format f = kept(d, i).format;
        i64 rows = in_nibbles(f)       ? PACK_ROWS
                   : f == WF_FP8_BLOCK ? FP8_BLOCK
                                       : 1,
            cols = in_nibbles(f)       ? PACK_COLS
                   : f == WF_FP8_BLOCK ? FP8_BLOCK
                                       : 1;
        if (d->kind != WK_EXPERTS || d->views[i].rows % rows || d->views[i].cols % cols) return false;
    }
    return true;
}

static u64 plain_room(const weight_view *v) {
    return gpu_round(weight_data_bytes(v)) + gpu_round(weight_scale_bytes(v));
}

/* Experts whose kernels want the largest scale of a row beside the blocks. */
static bool keeps_row_scales(const weight_desc *d) { return d->kind == WK_EXPERTS && d->experts == EXPERTS_W4A8; }

/* Of view i on the GPU; its scales lie behind the data of all views, so that experts in FP8 are one matrix. */
static u64 data_room(const weight_desc *d, i64 i, bool packed) {
    weight_view v = kept(d, i);
    if (packed && in_nibbles(v.format)) return gpu_round((u64)(v.rows / PACK_ROWS * (v.cols / PACK_COLS)) * PACK_BYTES);
    return gpu_round(weight_data_bytes(&v));
}
static u64 scale_room(const weight_desc *d, i64 i, bool packed) {
    weight_view v = kept(d, i);
    if (packed && keeps_row_scales(d)) return gpu_round((u64)v.rows * sizeof(bf16));
    return packed && in_nibbles(v.format) ? 0 : gpu_round(weight_scale_bytes(&v));
}

bool gpu_takes(weight_format f) { return f < WF_COUNT; }

bool gpu_multiplies(weight_format f, bool experts) {
    return f == WF_BF16 ||
           (experts && (f == WF_FP8_BLOCK || in_nibbles(f) || f == WF_INT4_ROW || f == WF_INT4_GROUP128));
}

static status load_check_shape(const weight_desc *d, err *e) {
    const weight_view *v = &d->views[0];
    if (!gpu_takes(v->format))
        return err_set(e, ST_UNSUPPORTED, "no kernel of the GPU takes %s%s: --device cpu and ref do",
                       d->kind == WK_EXPERTS ? "experts in " : "", weight_format_name(v->format));
    if (d->kind == WK_EXPERTS && d->experts == EXPERTS_W4A8 && (v->cols % INT4_GROUP || v->rows % INT4_GROUP))
        return err_set(e, ST_UNSUPPORTED, "w4a8: experts of %lld x %lld (multiples of %d)", (long long)v->rows,
                       (long long)v->cols, INT4_GROUP);
    if (v->format == WF_INT4_ROW && (d->kind != WK_EXPERTS || v->cols % INT4_GROUP || v->rows % INT4_GROUP))
        return err_set(e, ST_UNSUPPORTED, "INT4 with one scale a row: a matrix of %lld x %lld", (long long)v->rows,
                       (long long)v->cols);
    return ST_OK;
}

static void load_fill(const gpu_backend *b, void *to, u64 n, u64 seed, f32 sigma, int kind) {
    gpu_fill_args k = {.out = to, .n = n, .seed = seed, .sigma = sigma, .kind = kind};
    gpu_launch(b->g, b->fill, (u32)min_i64((i64)((n + GPU_THREADS - 1) / GPU_THREADS), FILL_BLOCKS), 1, 1, GPU_THREADS,
               0, &k);
}

/* Made-up data and scales of view v, number i of a weight. */
static void fill_view(const gpu_backend *b, const weight_desc *d, i64 i, void *data, void *scale) {
    weight_view is = kept(d, i), *v = &is;
    u64 n = weight_data_bytes(v), seed = (d->dummy_seed << 12) + 2 * (u64)i, scales = weight_scale_bytes(v);
    bool int4 = v->format == WF_INT4_GROUP, fp4 = v->format == WF_MXFP4 || v->format == WF_NVFP4,
         int8 = v->format == WF_INT8_ROW, fp8 = weight_is_fp8(v->format);
    if (fp8)
        load_fill(b, data, n, seed, 0, GPU_FILL_FP8);
    else if (int4 || fp4 || int8)
        load_fill(b, data, n, seed, 0, GPU_FILL_BYTES);
    else
        load_fill(b, data, n / 2, seed, d->dummy_sigma, GPU_FILL_BF16);
    if (int4) load_fill(b, scale, scales / 2, seed + 1, 0, GPU_FILL_SCALE_BF16);
    if (fp4) load_fill(b, scale, scales, v->format == WF_MXFP4 ? 120 : 0x70, 0, GPU_FILL_SCALE_BYTE);
    if (fp8 || int8) load_fill(b, scale, scales / 4, seed + 1, d->dummy_sigma, GPU_FILL_SCALE_F32);
}

/* Is view i kept in another format than the checkpoint's? */
static bool converts(const weight_desc *d, i64 i) { return kept(d, i).format != d->views[i].format; }

/* INT4_ROW's scales, all factors in them. */
static void write_row_scales(device *dev, const weight_view *v, u8 *to) {
    enum { PIECE = 1024 };
    f32 scales[PIECE];
    for (i64 r = 0; r < v->rows; r += PIECE) {
        i64 n = min_i64(PIECE, v->rows - r);
        for (i64 i = 0; i < n; i++) scales[i] = int4_row_scale(v, r + i);
        dev->write(dev, to + r * 4, scales, (u64)n * 4);
    }
}

/* View i in another format at data and scale; staged: room for the checkpoint's bytes. */
static void convert_view(const gpu_backend *b, const weight_desc *d, i64 i, u8 *staged, u8 *data, u8 *scale) {
    const weight_view *v = &d->views[i];
    device *dev = gpu_device(b->g);
    u8 *staged_scale = staged + gpu_round(weight_data_bytes(v));
    gpu_requant_args k = {{.data = staged,
                           .scale = staged_scale,
                           .rows = v->rows,
                           .cols = v->cols,
                           .format = (int)v->format,
                           .factor = v->factor,
                           .divides = v->divides},
                          data,
                          (gpu_bf16 *)scale};
    bool int4 = kept(d, i).format == WF_INT4_GROUP, rows = v->format == WF_INT4_ROW;
    dev->write(dev, staged, v->data, weight_data_bytes(v));
    if (rows)
        write_row_scales(dev, v, staged_scale);
    else if (weight_scale_bytes(v))
        dev->write(dev, staged_scale, v->scale, weight_scale_bytes(v));
    gpu_launch(b->g,
               !int4                           ? b->requant_bf16
               : rows                          ? b->requant_order
               : v->format == WF_INT4_GROUP128 ? b->requant_groups
                                               : b->requant_int4,
               gpu_blocks(int4 ? v->rows : ceil_div(v->rows * v->cols, 64), GPU_WARPS), 1, 1, GPU_THREADS, 0, &k);
}

/* View i as int4_pack.h's blocks at `to`; staged: room on the GPU for the checkpoint's bytes, then for those of another
 * format. */
static void pack_view(const gpu_backend *b, const weight_desc *d, i64 i, u8 *staged, u8 *to) {
    const weight_view is = kept(d, i), *v = &is, *from = &d->views[i];
    device *dev = gpu_device(b->g);
    i64 across = v->cols / PACK_COLS, blocks = v->rows / PACK_ROWS * across;
    if (d->dummy_seed) {
        gpu_fill_args f = {.out = to,
                           .n = (u64)blocks * PACK_BYTES / 4,
                           .seed = (d->dummy_seed << 12) + (u64)i,
                           .across = from->format == WF_INT4_ROW ? (gpu_u64)across : 0,
                           .kind = v->format == WF_MXFP4   ? GPU_FILL_PACKED_MXFP4
                                   : v->format == WF_NVFP4 ? GPU_FILL_PACKED_NVFP4
                                                           : GPU_FILL_PACKED};
        gpu_launch(b->g, b->fill, (u32)min_i64((i64)((f.n + GPU_THREADS - 1) / GPU_THREADS), FILL_BLOCKS), 1, 1,
                   GPU_THREADS, 0, &f);
        return;
    }
    u8 *data = converts(d, i) ? staged + plain_room(from) : staged, *scale = data + gpu_round(weight_data_bytes(v));
    gpu_pack_args k = {data, scale, to, v->rows, v->cols, (int)v->format};
    if (converts(d, i)) {
        convert_view(b, d, i, staged, data, scale);
    } else {
        dev->write(dev, data, from->data, weight_data_bytes(from));
        dev->write(dev, scale, from->scale, weight_scale_bytes(from));
    }
    gpu_launch(b->g, v->format == WF_INT4_GROUP ? b->pack : b->pack_fp4, gpu_blocks(blocks, GPU_WARPS), 1, 1,
               GPU_THREADS, 0, &k);
}

/* View i as the kernels will find it, but for where it lies. */
static gpu_matrix matrix_of(const weight_desc *d, i64 i, bool packed) {
    const weight_view v = kept(d, i);
    gpu_matrix m = {.rows = v.rows, .cols = v.cols, .format = (int)v.format, .factor = 1};
    if (v.format == WF_NVFP4) {
        m.factor = d->dummy_seed ? DUMMY_NVFP4_FACTOR : v.factor, m.divides = v.divides && !d->dummy_seed;
        if (!packed) return m;
        m.factor = (m.divides ? 1 / m.factor : m.factor) * (1 << FP4_NVFP4_GAIN), m.divides = 0;
        return m.format = GPU_W_PACKED_NVFP4, m;
    }
    if (v.format == WF_MXFP4 && !packed) return m;
    if (v.format == WF_MXFP4) return m.factor = 1 << FP4_MXFP4_GAIN, m.format = GPU_W_PACKED_MXFP4, m;
    if (packed && v.format == WF_INT4_GROUP) return m.format = GPU_W_PACKED, m;
    if (packed && v.format == WF_FP8_BLOCK) return m.format = GPU_W_FP8_PAIRS, m;
    i64 piece = v.format == WF_INT4_GROUP                            ? 32
                : weight_is_fp8(v.format) || v.format == WF_INT8_ROW ? 16
                : v.format == WF_BF16                                ? 8
                                                                     : 4;
    m.wide = weight_data_bytes(&v) / (u64)v.rows % 16 == 0 && v.cols % piece == 0; /* 16 bytes at a time */
    return m;
}

/* View i in the checkpoint's layout, or as it is kept. */
static void copy_view(const gpu_backend *b, const weight_desc *d, i64 i, u8 *staged, u8 *to, u8 *scale) {
    const weight_view is = kept(d, i), *v = &is;
    device *dev = gpu_device(b->g);
    if (d->dummy_seed) {
        fill_view(b, d, i, to, scale);
    } else if (converts(d, i)) {
        convert_view(b, d, i, staged, to, scale);
    } else {
        dev->write(dev, to, d->views[i].data, weight_data_bytes(v));
        if (scale) dev->write(dev, scale, d->views[i].scale, weight_scale_bytes(v));
    }
}

/* FP8 experts where they are. */
static void pair_view(const gpu_backend *b, const gpu_matrix *m) {
    gpu_pairs_args k = {(gpu_u8 *)(uintptr_t)m->data, (float *)(uintptr_t)m->scale, m->rows, m->cols};
    i64 blocks = ceil_div(m->rows * m->cols, 16 * GPU_THREADS);
    gpu_launch(b->g, b->fp8_pairs, (u32)min_i64(blocks, FILL_BLOCKS), 1, 1, GPU_THREADS, 0, &k);
}

/* Puts view i at `at` and `scales`. staged: NULL unless a view that has data is to be packed or converted there. */
static gpu_matrix put_view(const gpu_backend *b, const weight_desc *d, i64 i, bool packed, u8 *staged, u8 *at,
                           u8 *scales) {
    const weight_view v = kept(d, i);
    gpu_matrix m = matrix_of(d, i, packed);
    m.data = at;
    if (gpu_is_packed(&m)) {
        pack_view(b, d, i, staged, at);
        if (keeps_row_scales(d)) {
            gpu_row_scales_args k = {at, (gpu_bf16 *)scales, m.rows, m.cols};
            gpu_launch(b->g, b->row_max_scale, gpu_blocks(m.rows, GPU_WARPS), 1, 1, GPU_THREADS, 0, &k);
            m.scale = scales;
        }
    } else {
        u8 *scale = weight_scale_bytes(&v) ? scales : NULL;
        m.scale = scale;
        copy_view(b, d, i, staged, at, scale);
        if (m.format == GPU_W_FP8_PAIRS) pair_view(b, &m);
    }
    return m;
}

/* The data of view i, which are not made up, for the host. */
static status bring_data(const weight_desc *d, i64 i, err *e) {
    return d->fetch && !d->dummy_seed ? d->fetch(d->ud, i, e) : ST_OK;
}

static status put_vector(device *dev, const weight_desc *d, op_weight *w, err *e) {
    const weight_view *v = d->views;
    status st = bring_data(d, 0, e);
    if (st != ST_OK) return st;
    f32 *row = malloc((size_t)v->cols * sizeof *row);
    if (!row) return err_nomem(e, "a vector", (u64)v->cols * 4);
    weight_row_f32(v, 0, row);
    w->vector = w->memory;
    dev->write(dev, w->vector, row, (u64)v->cols * sizeof *row);
    free(row);
    return ST_OK;
}

/* Rows of a matrix in bf16 that do not begin at multiples of 16 bytes, as those of the vision tower's patch embedding,
 * are not for the tensor cores: such a matrix is kept twice, the second time with zeros up to the next multiple. */
static i64 padded_cols(const weight_desc *d) {
    const weight_view *v = &d->views[0];
    return d->kind == WK_LINEAR && v->format == WF_BF16 && v->cols % 8 ? ceil_div(v->cols, 8) * 8 : 0;
}
static u64 padded_room(const weight_desc *d) { return gpu_round((u64)d->views[0].rows * (u64)padded_cols(d) * 2); }

static status put_padded(const gpu_backend *b, const weight_desc *d, op_weight *w, u8 *at, err *e) {
    const weight_view *v = &d->views[0];
    const i64 cols = padded_cols(d);
    w->padded = (gpu_matrix){.data = at, .rows = v->rows, .cols = cols, .format = GPU_W_BF16, .wide = true};
    if (d->dummy_seed) {
        load_fill(b, at, (u64)(v->rows * cols), d->dummy_seed << 12, d->dummy_sigma, GPU_FILL_BF16);
        return ST_OK;
    }
    bf16 *all = calloc((size_t)(v->rows * cols), sizeof *all);
    if (!all) return err_nomem(e, "a matrix with wider rows", padded_room(d));
    for (i64 r = 0; r < v->rows; r++)
        memcpy(all + r * cols, (const bf16 *)v->data + r * v->cols, (size_t)v->cols * sizeof *all);
    gpu_device(b->g)->write(gpu_device(b->g), at, all, (u64)(v->rows * cols) * sizeof *all);
    free(all);
    return ST_OK;
}

/* One matrix's checkpoint bytes at a time go through `staged`: the copies and the kernel are in stream order. */
static status put_views(const gpu_backend *b, const weight_desc *d, op_weight *w, u8 *at, err *e) {
    device *dev = gpu_device(b->g);
    bool packed = packs(d), experts = d->kind == WK_EXPERTS,
         stage = (packed || converts(d, 0) || (experts && converts(d, 2))) && !d->dummy_seed;
    u64 table = (u64)d->n_views * sizeof(gpu_matrix), max_bytes = 0;
    for (i64 i = 0; i < d->n_views; i++) {
        weight_view v = kept(d, i);
        u64 room = plain_room(&d->views[i]) + (converts(d, i) ? plain_room(&v) : 0);
        max_bytes = room > max_bytes ? room : max_bytes;
    }
    void *staged = NULL;
    gpu_matrix *all = malloc(table);
    status st = all ? ST_OK : err_nomem(e, "a table of weights", table);
    if (st == ST_OK && stage) st = dev->alloc(dev, &staged, max_bytes, "a matrix to be laid out anew", e);
    if (st == ST_OK && d->kind == WK_EXPERTS) {
        w->on_gpu = (gpu_matrix *)at;
        at += gpu_round(table);
    }
    u8 *scales = at;
    for (i64 i = 0; i < d->n_views; i++) scales += data_room(d, i, packed);
    for (i64 i = 0; st == ST_OK && i < d->n_views; i++) {
        if ((st = bring_data(d, i, e)) != ST_OK) break;
        all[i] = put_view(b, d, i, packed, staged, at, scales);
        at += data_room(d, i, packed), scales += scale_room(d, i, packed);
    }
    if (st == ST_OK && w->on_gpu) dev->write(dev, w->on_gpu, all, table);
    for (i64 i = 0; st == ST_OK && i < d->n_views && i < 3; i++) w->views[i] = all[i];
    dev->release(dev, staged);
    free(all);
    return st;
}

status gpu_weight_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e) {
    gpu *g = gpu_of(o)->g;
    device *dev = gpu_device(g);
    *out = NULL;
    status st = load_check_shape(d, e);
    if (st != ST_OK) return st;
    op_weight *w = calloc(1, sizeof *w);
    if (!w) return err_nomem(e, "a weight", sizeof *w);
    *w = (op_weight){.g = g,
                     .kind = d->kind,
                     .n_views = d->n_views,
                     .int8 = d->kind == WK_EXPERTS && d->experts == EXPERTS_W4A8,
                     .n_heads = d->n_heads,
                     .nope = d->nope,
                     .v_dim = d->v_dim};
    u64 bytes = d->kind == WK_VECTOR    ? (u64)d->views[0].cols * 4
                : d->kind == WK_EXPERTS ? gpu_round((u64)d->n_views * sizeof(gpu_matrix))
                                        : 0;
    bool packed = packs(d);
    for (i64 i = 0; d->kind != WK_VECTOR && i < d->n_views; i++)
        bytes += data_room(d, i, packed) + scale_room(d, i, packed);
    const u64 plain = bytes;
    bytes += padded_room(d);
    for (i64 i = 0; d->kind == WK_EXPERTS && i < 3; i++) {
        w->expert_bytes += data_room(d, i, packed);
        w->views[i] = matrix_of(d, i, packed);
    }
    if (d->room) return d->room->own += dev->takes(bytes), *out = w, ST_OK;
    st = dev->alloc(dev, &w->memory, bytes, "weights", e);
    if (st == ST_OK) st = d->kind == WK_VECTOR ? put_vector(dev, d, w, e) : put_views(gpu_of(o), d, w, w->memory, e);
    if (st == ST_OK && padded_cols(d)) st = put_padded(gpu_of(o), d, w, (u8 *)w->memory + plain, e);
    if (st != ST_OK) return gpu_weight_release(w), st;
    *out = w;
    return ST_OK;
}

status gpu_weight_replace(const ops *o, op_weight *w, i64 first, const weight_desc *d, err *e) {
    gpu_backend *b = gpu_of(o);
    device *dev = gpu_device(b->g);
    const bool packed = packs(d);
    u64 each = 0, scales_each = 0, room = 0;
    gpu_matrix all[3];
    for (i64 i = 0; i < 3; i++) {
        const weight_view v = kept(d, i);
        const u64 bytes = plain_room(&d->views[i]) + (converts(d, i) ? plain_room(&v) : 0);
        each += data_room(d, i, packed), scales_each += scale_room(d, i, packed);
        room = bytes > room ? bytes : room;
    }
    if (b->replaced_room < room) {
        dev->release(dev, b->replaced);
        b->replaced = NULL, b->replaced_room = 0;
        status st = dev->alloc(dev, &b->replaced, room, "an expert that comes", e);
        if (st != ST_OK) return st;
        b->replaced_room = room;
    }
    u8 *at = (u8 *)w->on_gpu + gpu_round((u64)w->n_views * sizeof(gpu_matrix)),
       *scales = at + (u64)(w->n_views / 3) * each;
    at += (u64)(first / 3) * each, scales += (u64)(first / 3) * scales_each;
    for (i64 i = 0; i < 3; i++) {
        all[i] = put_view(b, d, i, packed, b->replaced, at, scales);
        at += data_room(d, i, packed), scales += scale_room(d, i, packed);
    }
    dev->write(dev, w->on_gpu + first, all, sizeof all);
    return ST_OK;
}

void gpu_weight_release(op_weight *w) {
    if (!w) return;
    device *dev = gpu_device(w->g);
    dev->release(dev, w->memory);
    free(w);
}
