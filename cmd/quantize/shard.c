/* cmd/quantize/shard.c: matrices read, encoded and written, other tensors copied. */
#include "cmd/quantize/shard.h"
#include "base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_PIECE = 8 << 20 };

void shard_writer_free(shard_writer *w) {
    matrix_room_free(&w->in);
    free(w->out);
    free(w->most);
    w->out = NULL, w->most = NULL;
}

static status room_for_out(shard_writer *w, u64 need, err *e) {
    if (w->out_cap >= need) return ST_OK;
    free(w->out);
    w->out = aligned_alloc(64, (need + 63) & ~(u64)63);
    w->out_cap = w->out ? need : 0;
    return w->out ? ST_OK : err_nomem(e, "a matrix to write", need);
}

/* ---- copies ---- */

static bool finite_at(dtype t, const u8 *p) {
    u16 half;
    f32 one;
    if (t == DT_F32) return memcpy(&one, p, 4), isfinite(one);
    if (t == DT_F8_E4M3) return (*p & 0x7f) != 0x7f;
    memcpy(&half, p, 2);
    return t == DT_F16 ? (half & 0x7c00) != 0x7c00 : (half & 0x7f80) != 0x7f80; /* BF16 */
}

/* The first element that is no number; -1: all are, or the type has none that are not. */
static i64 first_bad(dtype t, const u8 *p, u64 bytes) {
    if (t != DT_F32 && t != DT_BF16 && t != DT_F16 && t != DT_F8_E4M3) return -1;
    for (u64 i = 0, size = dtype_size(t); i < bytes / size; i++)
        if (!finite_at(t, p + i * size)) return (i64)i;
    return -1;
}

static status copy_tensor(shard_writer *w, out_file *f, const tensor_out *to, const tensor_info *from, err *e) {
    status st = room_for_out(w, COPY_PIECE, e);
    for (u64 at = 0; st == ST_OK && at < from->bytes; at += COPY_PIECE) {
        u64 n = (u64)min_i64(COPY_PIECE, (i64)(from->bytes - at));
        st = checkpoint_read(w->ck, from, at, n, w->out, e);
        i64 bad = st == ST_OK ? first_bad(from->type, w->out, n) : -1;
        if (bad >= 0)
            st = err_set(e, ST_NUMERIC, "tensor %s holds NaN or an infinity at element %llu", from->name,
                         (unsigned long long)(at / dtype_size(from->type)) + (unsigned long long)bad);
        if (st == ST_OK) st = safetensors_put(f, to, at, w->out, n, e);
    }
    return st;
}

static status put_inverse(shard_writer *w, out_file *f, const tensor_out *to, const tensor_info *from, err *e) {
    f32 x;
    status st = checkpoint_read(w->ck, from, 0, sizeof x, &x, e);
    if (st != ST_OK) return st;
    if (!isfinite(x) || !isfinite(1 / x))
        return err_set(e, ST_NUMERIC, "tensor %s is %g, which has no inverse", from->name, (f64)x);
    x = 1 / x;
    return safetensors_put(f, to, 0, &x, sizeof x, e);
}

static status put_zeros(out_file *f, const tensor_out *to, err *e) {
    static const u8 zeros[4096];
    status st = ST_OK;
    for (u64 at = 0; at < to->bytes && st == ST_OK; at += sizeof zeros)
        st = safetensors_put(f, to, at, zeros, (u64)min_i64(sizeof zeros, (i64)(to->bytes - at)), e);
    return st;
}

/* A tensor of a matrix that keeps its bytes. */
static status put_kept(shard_writer *w, out_file *f, const tensor_out *to, const tensor_origin *o, err *e) {
    if (!o->from) return put_zeros(f, to, e);
    return (o->inverted ? put_inverse : copy_tensor)(w, f, to, o->from, e);
}

/* ---- matrices ---- */

/* The scale of inputs in NVFP4, whose own are e4m3: the largest is 6 under the largest of these (ModelOpt). */
static f32 input_scale_of(const expert_gptq *inputs) {
    const f32 most = inputs ? inputs->most : 0;
    return most > 0 ? most / (6.0f * 448.0f) : 1;
}

static status put_part(out_file *f, const tensor_out *to, const tensor_origin *o, const weight_view *v,
                       const expert_gptq *inputs, err *e) {
    const f32 input_scale = input_scale_of(inputs);
    const i32 shape[2] = {(i32)v->rows, (i32)v->cols};
    switch (o->part) {
    case PART_DATA: return safetensors_put(f, to, 0, v->data, to->bytes, e);
    case PART_SCALE: return safetensors_put(f, to, 0, v->scale, to->bytes, e);
    case PART_FACTOR: return safetensors_put(f, to, 0, &v->factor, to->bytes, e);
    case PART_SHAPE: return safetensors_put(f, to, 0, shape, to->bytes, e);
    case PART_ZEROS: return put_zeros(f, to, e);
    case PART_INPUT_SCALE: return safetensors_put(f, to, 0, &input_scale, to->bytes, e);
    }
    return ST_OK;
}

/* The largest |w| of a matrix that is read. */
static status most_of(const plan_piece *k, const weight_view *v, f32 *most, err *e) {
    status st = quantize_most(v, most, e);
    if (st != ST_OK) err_prefix(e, "tensor %s", k->m.data->name);
    return st;
}

/* Reads k's matrix, and finds what its factor is made of: the largest |w| of a pair counts for both. The first of a
 * pair reads the second, too; the second finds what is known then, or in a run that goes on reads the first again. */
static status read_for(shard_writer *w, const plan_piece *k, weight_view *from, f32 *most, err *e) {
    const u64 at = (u64)(k - w->plan->pieces);
    f32 other = 0;
    status st = ST_OK;
    *most = w->most[at];
    if (k->pair != NO_PAIR && !(*most > 0)) {
        const plan_piece *pair = &w->plan->pieces[k->pair];
        st = stored_matrix_read(w->ck, &pair->m, &w->in, from, e);
        if (st == ST_OK) st = most_of(pair, from, &other, e);
    }
    if (st == ST_OK) st = stored_matrix_read(w->ck, &k->m, &w->in, from, e);
    if (st != ST_OK || !k->q->factor || *most > 0) return st;
    st = most_of(k, from, most, e);
    *most = fmaxf(*most, other);
    if (st == ST_OK && k->pair != NO_PAIR) w->most[at] = w->most[k->pair] = *most;
    return st;
}

static status encode_matrix(shard_writer *w, out_file *f, const plan_piece *k, quantize_sums *sums, err *e) {
    weight_view from, to;
    const expert_gptq *inputs = NULL;
    f32 most;
    status st = w->calibration && k->q->code ? calibration_of(w->calibration, k, &inputs, e) : ST_OK;
    if (st == ST_OK) st = read_for(w, k, &from, &most, e);
    if (st == ST_OK) st = quantize_shape(k->q, k->m.rows, k->m.cols, &to, e);
    if (st != ST_OK) return st;
    const u64 scale_at = (weight_data_bytes(&to) + 63) & ~(u64)63;
    st = room_for_out(w, scale_at + weight_scale_bytes(&to), e);
    if (st != ST_OK) return st;
    st = quantize_matrix(k->q, &from, most, inputs ? &inputs->inputs : NULL, w->out, w->out + scale_at, &to, sums, e);
    if (st != ST_OK) return err_prefix(e, "tensor %s", k->m.data->name), st;
    for (u64 i = k->first; i < k->first + k->n && st == ST_OK; i++)
        st = put_part(f, &w->plan->out[i], &w->plan->origins[i], &to, inputs, e);
    return st;
}

static status write_piece(shard_writer *w, out_file *f, const plan_piece *k, const sums_table *t, err *e) {
    class_sums *s = sums_table_at(t, k->layer, k->class);
    quantize_sums sums = {.error = 0};
    status st = ST_OK;
    if (k->q) st = encode_matrix(w, f, k, &sums, e);
    for (u64 i = k->first; !k->q && i < k->first + k->n && st == ST_OK; i++) {
        st = put_kept(w, f, &w->plan->out[i], &w->plan->origins[i], e);
    }
    s->matrices++, s->made += k->q != NULL;
    s->bytes_in += k->bytes_in, s->bytes_out += k->bytes_out;
    quantize_sums_add(&s->sums, &sums);
    w->done += k->bytes_in;
    progress_step(w->shown, w->done);
    return st;
}

/* ---- a shard ---- */

static void add_sums(const sums_table *all, const sums_table *t) {
    for (i64 i = 0; i < (t->layers + 1) * MC_COUNT; i++) {
        class_sums *s = &all->at[i];
        const class_sums *x = &t->at[i];
        s->matrices += x->matrices, s->made += x->made;
        s->bytes_in += x->bytes_in, s->bytes_out += x->bytes_out;
        quantize_sums_add(&s->sums, &x->sums);
    }
}

status shard_write(shard_writer *w, quantize_job_file *j, u64 i, const sums_table *all, err *e) {
    const quantize_plan *p = w->plan;
    const plan_piece *first = &p->pieces[p->shards[i]], *end = &p->pieces[p->shards[i + 1]];
    const u64 out = first->first, n_out = end[-1].first + end[-1].n - out;
    char name[64], path[PATH_MAX];
    sums_table t = {0};
    out_file f;
    job_shard_name(j, i, name);
    if (!w->most) w->most = calloc(p->n_pieces, sizeof *w->most);
    if (!w->most) return err_nomem(e, "the largest values", p->n_pieces * sizeof *w->most);
    status st = path_join(path, sizeof path, j->folder, name, e);
    if (st == ST_OK) st = sums_table_make(&t, all->layers, e);
    if (st == ST_OK) st = safetensors_create(&f, path, &p->out[out], n_out, e);
    if (st != ST_OK) return sums_table_free(&t), st;
    for (const plan_piece *k = first; k < end && st == ST_OK; k++) st = write_piece(w, &f, k, &t, e);
    if (st == ST_OK) st = job_add_line(j, i, &t, e);
    if (st == ST_OK)
        st = out_file_finish(&f, e);
    else
        out_file_drop(&f);
    if (st == ST_OK) add_sums(all, &t);
    sums_table_free(&t);
    return st;
}
