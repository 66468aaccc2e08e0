#include "format/stored_matrix.h"
#include "base/buf.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NAME + suffix, where NAME are the first `base` bytes of t's name. */
static const tensor_info *sibling(const checkpoint *ck, const tensor_info *t, int base, const char *suffix) {
    char name[512];
    if (snprintf(name, sizeof name, "%.*s%s", base, t->name, suffix) >= (int)sizeof name) return NULL;
    return checkpoint_find(ck, name);
}

static int base_length(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix) ? (int)(n - m) : 0;
}

static bool type_fits(const weight_layout *l, const tensor_info *scale) {
    return scale->type == l->scale_type || (l->scales_vary && scale->type == DT_BF16);
}

/* Scales of the right type tell formats apart whose data look the same. */
static bool has_scales_of(const checkpoint *ck, const tensor_info *t, int base, const weight_layout *l) {
    if (!l->scale) return true;
    const tensor_info *scale = sibling(ck, t, base, l->scale);
    return scale && type_fits(l, scale);
}

static status wrong_shape(const tensor_info *t, const stored_matrix *m, err *e) {
    return err_set(e, ST_FORMAT, "tensor %s has not the shape that %s of %lld x %lld needs", t->name,
                   weight_format_name(m->format), (long long)m->rows, (long long)m->cols);
}

static status find_scales(const checkpoint *ck, stored_matrix *m, const weight_layout *l, err *e) {
    if (!l->scale) return ST_OK;
    const i64 down = ceil_div(m->rows, l->scale_rows), across = l->scale_cols ? ceil_div(m->cols, l->scale_cols) : 1;
    const tensor_info *s = m->scale = sibling(ck, m->data, m->base, l->scale);
    bool flat = s->n_dims == 1 && !l->scale_cols && s->shape[0] == down;
    bool square = s->n_dims == 2 && s->shape[0] == down && s->shape[1] == across && (l->scale_cols || l->scales_vary);
    if (!flat && !square) return wrong_shape(s, m, e);
    if (!l->factor) return ST_OK;
    const tensor_info *f = m->factor = sibling(ck, m->data, m->base, l->factor);
    if (!f) return err_set(e, ST_FORMAT, "tensor %.*s%s is missing", m->base, m->data->name, l->factor);
    return f->type == DT_F32 && f->bytes == sizeof(f32) ? ST_OK : wrong_shape(f, m, e);
}

static status find_shape(const checkpoint *ck, stored_matrix *m, const weight_layout *l, err *e) {
    if (!l->shape) return ST_OK;
    const tensor_info *s = m->shape = sibling(ck, m->data, m->base, l->shape);
    if (!s) return err_set(e, ST_FORMAT, "tensor %.*s%s is missing", m->base, m->data->name, l->shape);
    if ((s->type != DT_I32 && s->type != DT_I64) || s->n_dims != 1 || s->shape[0] != 2) return wrong_shape(s, m, e);
    i64 have[2];
    i32 small[2];
    status st = checkpoint_read(ck, s, 0, s->bytes, s->type == DT_I32 ? (void *)small : (void *)have, e);
    if (st != ST_OK) return st;
    for (int i = 0; s->type == DT_I32 && i < 2; i++) have[i] = small[i];
    if (have[0] == m->rows && have[1] == m->cols) return ST_OK;
    return err_set(e, ST_FORMAT, "tensor %s says %lld x %lld, its matrix has %lld x %lld", s->name, (long long)have[0],
                   (long long)have[1], (long long)m->rows, (long long)m->cols);
}

static status find_as(const checkpoint *ck, const tensor_info *t, int base, weight_format f, stored_matrix *m, err *e) {
    const weight_layout *l = weight_layout_of(f);
    *m = (stored_matrix){.format = f, .data = t, .base = base, .rows = t->shape[0]};
    u64 cols;
    if (!mul_size((u64)t->shape[1], (u64)l->per_element, &cols)) return wrong_shape(t, m, e);
    m->cols = (i64)cols;
    if (l->zeros) m->zeros = sibling(ck, t, base, l->zeros);
    if (m->rows < 1 || m->cols < 1 || m->cols % l->cols_multiple) return wrong_shape(t, m, e);
    status st = find_scales(ck, m, l, e);
    return st == ST_OK ? find_shape(ck, m, l, e) : st;
}

status stored_matrix_find(const checkpoint *ck, const tensor_info *t, stored_matrix *m, bool *found, err *e) {
    const weight_layout *lacking = NULL; /* a packed format whose scales are not there */
    int lacking_base = 0;
    *found = false;
    if (t->n_dims != 2) return ST_OK;
    for (int f = weight_formats() - 1; f >= 0; f--) {
        const weight_layout *l = weight_layout_of((weight_format)f);
        int base = base_length(t->name, l->data);
        if (!base || t->type != l->data_type) continue;
        if (has_scales_of(ck, t, base, l)) return *found = true, find_as(ck, t, base, (weight_format)f, m, e);
        lacking = l, lacking_base = base;
    }
    if (!lacking) return ST_OK;
    return err_set(e, ST_FORMAT, "tensor %s is %s, but there are no scales %.*s%s of %s beside it", t->name,
                   dtype_name(t->type), lacking_base, t->name, lacking->scale, dtype_name(lacking->scale_type));
}

/* ---- data ---- */

void matrix_room_free(matrix_room *room) {
    free(room->data);
    *room = (matrix_room){0};
}

static u64 aligned(u64 n) { return (n + 63) & ~(u64)63; }

/* Where a scale is no number; -1: nowhere. An e8m0 of 255 is NaN. */
static i64 bad_scale(const tensor_info *t, const void *data) {
    u64 n = t->bytes / dtype_size(t->type);
    if (t->type == DT_U8) {
        const u8 *bad = memchr(data, 255, n);
        return bad ? bad - (const u8 *)data : -1;
    }
    for (u64 i = 0; i < n; i++) {
        f32 x = t->type == DT_F32    ? ((const f32 *)data)[i]
                : t->type == DT_BF16 ? bf16_to_f32(((const bf16 *)data)[i])
                                     : f8_e4m3_to_f32(((const u8 *)data)[i]);
        if (!isfinite(x)) return (i64)i;
    }
    return -1;
}

static status read_scale(const checkpoint *ck, const tensor_info *t, void *to, err *e) {
    status st = checkpoint_read(ck, t, 0, t->bytes, to, e);
    i64 bad = st == ST_OK ? bad_scale(t, to) : -1;
    if (bad < 0) return st;
    return err_set(e, ST_NUMERIC, "tensor %s holds NaN or an infinity at element %lld", t->name, (long long)bad);
}

/* Of whatever type: 0 is bytes of 0. */
static status check_zero_points(const checkpoint *ck, const tensor_info *t, err *e) {
    u8 piece[4096];
    for (u64 at = 0; at < t->bytes; at += sizeof piece) {
        const u64 n = (u64)min_i64((i64)sizeof piece, (i64)(t->bytes - at));
        status st = checkpoint_read(ck, t, at, n, piece, e);
        if (st != ST_OK) return st;
        for (u64 i = 0; i < n; i++)
            if (piece[i])
                return err_set(e, ST_UNSUPPORTED, "tensor %s is not 0 at byte %llu: codes whose zero lies elsewhere",
                               t->name, (unsigned long long)(at + i));
    }
    return ST_OK;
}

static status read_factor(const checkpoint *ck, const stored_matrix *m, weight_view *v, err *e) {
    v->divides = weight_layout_of(m->format)->factor_divides;
    status st = read_scale(ck, m->factor, &v->factor, e);
    if (st != ST_OK || !v->divides || v->factor != 0) return st;
    return err_set(e, ST_NUMERIC, "tensor %s is 0, which divides the scales", m->factor->name);
}

status stored_matrix_read(const checkpoint *ck, const stored_matrix *m, matrix_room *room, weight_view *v, err *e) {
    const weight_layout *l = weight_layout_of(m->format);
    const bool widen = m->scale && m->scale->type != l->scale_type; /* BF16, and float32 is what reads them */
    const u64 scale_at = aligned(m->data->bytes), wide_at = scale_at + aligned(m->scale ? m->scale->bytes : 0);
    const u64 need = wide_at + (widen ? aligned(2 * m->scale->bytes) : 0);
    if (room->cap < need) {
        free(room->data);
        *room = (matrix_room){.data = aligned_alloc(64, aligned(need)), .cap = need};
        if (!room->data) return room->cap = 0, err_nomem(e, m->data->name, need);
    }
    *v = (weight_view){.format = l->kept_as ? l->kept_as : m->format, .rows = m->rows, .cols = m->cols};
    v->data = room->data;
    status st = checkpoint_read(ck, m->data, 0, m->data->bytes, room->data, e);
    if (st == ST_OK && m->scale) st = read_scale(ck, m->scale, room->data + scale_at, e);
    if (st == ST_OK && m->factor) st = read_factor(ck, m, v, e);
    if (st == ST_OK && m->zeros) st = check_zero_points(ck, m->zeros, e);
    if (st != ST_OK || !m->scale) return st;
    v->scale = room->data + (widen ? wide_at : scale_at);
    f32 *wide = (f32 *)(void *)(room->data + wide_at);
    for (u64 i = 0; widen && i < m->scale->bytes / 2; i++)
        wide[i] = bf16_to_f32(((const bf16 *)(void *)(room->data + scale_at))[i]);
    return ST_OK;
}
