/* model/bind.c: the views of one weight, found by names, types and shapes, and handed to a backend. */
#include "model/bind_internal.h"
#include "format/detect.h"
#include "model/expert_placement.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a view's data come from: tensors of the checkpoint, in the order in which they are looked at. A view is found
 * first, by names, types and shapes, and gets data when a backend wants them. */
typedef struct {
    const tensor_info *data, *scale, *factor, *zeros, *shape; /* NULL but for data: there is none; data: a dummy */
    matrix_share share;
    bool finite; /* data are scanned for NaN and infinities */
    bool widen;  /* the scales are BF16 where kernels read float32 */
    u8 *room;    /* for widened scales, then for this rank's columns */
} view_source;

static void free_cuts(weight_cut **list) {
    for (weight_cut *next; *list; *list = next) next = (*list)->next, free(*list);
}

/* The list of what is read grows by t. */
static bool list_read(model_weights *w, const tensor_info *t) {
    if (w->n_reads == w->reads_cap) {
        u64 more = w->reads_cap ? 2 * w->reads_cap : 256;
        const tensor_info **p = realloc(w->reads, more * sizeof *p);
        if (!p) return false;
        w->reads = p, w->reads_cap = more;
    }
    w->reads[w->n_reads++] = t;
    return true;
}

static status bind_shape_error(const binder *b, const tensor_info *t, const i64 *want, int n) {
    char have[128] = "", need[128] = "";
    for (int i = 0, at = 0; i < t->n_dims && at < 100; i++)
        at += snprintf(have + at, sizeof have - (size_t)at, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(need + at, sizeof need - (size_t)at, "%s%lld", i ? ", " : "", (long long)want[i]);
    return err_set(b->e, ST_FORMAT, "tensor %s has shape [%s], config.json asks for [%s]", t->name, have, need);
}

const tensor_info *bind_find(const binder *b, const char *name, const i64 *shape, int n) {
    const tensor_info *t = checkpoint_find(b->ck, name);
    if (!t) {
        err_set(b->e, ST_FORMAT, "tensor %s is missing", name);
        return NULL;
    }
    bool same = t->n_dims == n;
    for (int i = 0; same && i < n; i++) same = t->shape[i] == shape[i];
    if (!same) bind_shape_error(b, t, shape, n);
    return same ? t : NULL;
}

status bind_type_error(const binder *b, const tensor_info *t, const char *want) {
    return err_set(b->e, ST_FORMAT, "tensor %s is %s, not %s", t->name, dtype_name(t->type), want);
}

static f32 element(dtype type, const void *data, u64 i) {
    return type == DT_F32 ? ((const f32 *)data)[i] : bf16_to_f32(((const bf16 *)data)[i]);
}

/* NaN among bytes of e8m0 (255) or e4m3 (127 with either sign); NULL: none. */
static const u8 *byte_nan(const tensor_info *t, const void *data) {
    const u8 *bad = memchr(data, 255, t->bytes);
    const u8 *other =
        t->type == DT_F8_E4M3 ? memchr(data, 127, bad ? (size_t)(bad - (const u8 *)data) : t->bytes) : NULL;
    return other ? other : bad;
}

/* Scans a BF16 or F32 tensor, or one of scales in a byte each. */
static status scan(const binder *b, const tensor_info *t, const void *data) {
    const bool bytes = dtype_size(t->type) == 1;
    const u8 *bad = bytes ? byte_nan(t, data) : NULL;
    if (bad)
        return err_set(b->e, ST_NUMERIC, "tensor %s holds NaN at element %llu", t->name,
                       (unsigned long long)(bad - (const u8 *)data));
    if (bytes) return ST_OK;
    for (u64 i = 0, n = t->bytes / dtype_size(t->type); i < n; i++)
        if (!isfinite(element(t->type, data, i)))
            return err_set(b->e, ST_NUMERIC, "tensor %s holds %s at element %llu", t->name,
                           isnan(element(t->type, data, i)) ? "NaN" : "an infinity", (unsigned long long)i);
    return ST_OK;
}

/* NAME + suffix: the tensor of that shape and type. NULL and b->e on failure. */
static const tensor_info *bind_part(const binder *b, const char *base, const char *suffix, dtype type, const i64 *shape,
                                    int n) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, suffix);
    const tensor_info *t = bind_find(b, name, shape, n);
    if (t && t->type != type) return bind_type_error(b, t, dtype_name(type)), NULL;
    return t;
}

/* Scales [rows, across] where writers differ: in BF16 too, and one a row (across 0) as [rows] or [rows, 1]. */
static const tensor_info *varying_scales(const binder *b, const char *base, const weight_layout *l, i64 rows,
                                         i64 across) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, l->scale);
    const tensor_info *t = checkpoint_find(b->ck, name);
    const bool flat = !across && !(t && t->n_dims == 2);
    t = bind_find(b, name, (const i64[]){rows, across ? across : 1}, flat ? 1 : 2);
    if (t && t->type != l->scale_type && t->type != DT_BF16) return bind_type_error(b, t, "F32 or BF16"), NULL;
    return t;
}

/* The scales, and what multiplies all of them. */
static status view_scales(const binder *b, const char *base, const weight_layout *l, weight_view *v,
                          view_source *from) {
    char name[256];
    const i64 shape[2] = {ceil_div(v->rows, l->scale_rows), l->scale_cols ? ceil_div(v->cols, l->scale_cols) : 1};
    from->scale = l->scales_vary ? varying_scales(b, base, l, shape[0], l->scale_cols ? shape[1] : 0)
                                 : bind_part(b, base, l->scale, l->scale_type, shape, l->scale_cols ? 2 : 1);
    if (!from->scale) return ST_FORMAT;
    from->widen = from->scale->type != l->scale_type;
    v->scale = from->scale->data;
    if (!l->factor) return ST_OK;
    snprintf(name, sizeof name, "%s%s", base, l->factor);
    const tensor_info *whole = checkpoint_find(b->ck, name);
    if (!whole || whole->n_dims) whole = bind_find(b, name, (const i64[]){1}, 1); /* a scalar is as good */
    if (!whole) return ST_FORMAT;
    if (whole->type != DT_F32) return bind_type_error(b, whole, "F32");
    from->factor = whole;
    return ST_OK;
}

/* The data of t, all of it, on the host: until the reader gets it back, where there is one. */
static status tensor_data(const binder *b, const tensor_info *t, const void **data) {
    if (b->reader) return weight_reader_take(b->reader, b->c->rank, t, data, b->e);
    return *data = t->data, ST_OK;
}

/* The row's zero points that writers of symmetric formats leave in a file. */
static status find_zeros(const binder *b, const char *base, const weight_layout *l, view_source *from) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, l->zeros);
    const tensor_info *t = from->zeros = checkpoint_find(b->ck, name);
    if (!t) return ST_OK;
    if (!bind_find(b, name, (const i64[]){from->share.rows, 1}, t->n_dims == 2 ? 2 : 1)) return ST_FORMAT;
    return dtype_size(t->type) == 1 ? ST_OK : bind_type_error(b, t, "I8 or U8");
}

static status check_zeros(const binder *b, const tensor_info *t) {
    const void *data;
    status st = tensor_data(b, t, &data);
    for (u64 i = 0; st == ST_OK && i < t->bytes; i++)
        if (((const u8 *)data)[i])
            st = err_set(b->e, ST_UNSUPPORTED, "tensor %s is not 0 at element %llu: codes whose zero lies elsewhere",
                         t->name, (unsigned long long)i);
    return st;
}

/* A tensor that says the matrix's shape. */
static status find_shape_tensor(const binder *b, const char *base, const weight_layout *l, view_source *from) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, l->shape);
    const tensor_info *sh = from->shape = bind_find(b, name, (const i64[]){2}, 1);
    if (!sh) return ST_FORMAT;
    return sh->type == DT_I32 || sh->type == DT_I64 ? ST_OK : bind_type_error(b, sh, "I32 or I64");
}

/* It says ours. */
static status check_shape_tensor(const binder *b, const tensor_info *sh, const void *data, const matrix_share *m) {
    for (int i = 0; i < 2; i++) {
        i64 have = sh->type == DT_I32 ? ((const i32 *)data)[i] : ((const i64 *)data)[i], want = i ? m->cols : m->rows;
        if (have != want)
            return err_set(b->e, ST_FORMAT, "tensor %s says %lld in place %d, config.json asks for %lld", sh->name,
                           (long long)have, i, (long long)want);
    }
    return ST_OK;
}

/* The matrix `base` in format f, whose data are there. */
static status view_as(const binder *b, const char *base, weight_format f, weight_view *v, view_source *from) {
    const weight_layout *l = weight_layout_of(f);
    const i64 rows = from->share.rows, cols = from->share.cols;
    if (l->experts_only && !strstr(base, ".mlp.experts."))
        return err_set(b->e, ST_UNSUPPORTED, "tensor %s%s is %s: only routed experts may be in %s", base, l->data,
                       dtype_name(l->data_type), l->name);
    if (cols % l->cols_multiple)
        return err_set(b->e, ST_FORMAT, "tensor %s%s: %lld columns are no multiple of %lld", base, l->data,
                       (long long)cols, (long long)l->cols_multiple);
    const matrix_share *m = &from->share;
    const tensor_info *q =
        bind_part(b, base, l->data, l->data_type, m->shape ? m->shape : (const i64[]){rows, cols / l->per_element},
                  m->shape ? m->n_dims : 2);
    if (!q) return ST_FORMAT;
    from->data = q;
    *v = (weight_view){.format = l->kept_as ? l->kept_as : f,
                       .rows = rows,
                       .cols = cols,
                       .data = q->data,
                       .divides = l->factor_divides};
    status st = l->scale ? view_scales(b, base, l, v, from) : ST_OK;
    if (st == ST_OK && l->zeros) st = find_zeros(b, base, l, from);
    return st == ST_OK && l->shape ? find_shape_tensor(b, base, l, from) : st;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !memcmp(s + n - m, end, m);
}

/* How it would lie in a checkpoint of this family. */
static weight_format dummy_format(const binder *b, const char *base) {
    bool expert = strstr(base, ".mlp.experts.") != NULL;
    bool never = ends_with(base, ".mlp.gate") || ends_with(base, "embed_tokens") || ends_with(base, "lm_head");
    return expert ? b->c->quant : never ? WF_BF16 : model_config_dense_format(b->c);
}

/* The matrix's tensor of a type that no format has under its name, or none. */
static status unknown_data(const binder *b, const char *base, const matrix_share *m) {
    char name[256], types[96] = "";
    const tensor_info *other = NULL;
    const weight_layout *plain = NULL;
    bool fits = false; /* in shape, one of the formats of that name */
    for (int f = weight_formats() - 1; f >= 0; f--) {
        const weight_layout *l = weight_layout_of((weight_format)f);
        snprintf(name, sizeof name, "%s%s", base, l->data);
        const tensor_info *t = checkpoint_find(b->ck, name);
        if (!t) continue;
        other = t, plain = l;
        fits = fits || (t->n_dims == 2 && t->shape[0] == m->rows && t->shape[1] == m->cols / l->per_element);
    }
    if (!other) return snprintf(name, sizeof name, "%s.weight", base), bind_find(b, name, NULL, 0), ST_FORMAT;
    if (!fits && !bind_find(b, other->name, (const i64[]){m->rows, m->cols / plain->per_element}, 2)) return ST_FORMAT;
    for (int f = weight_formats() - 1, n = 0; f >= 0; f--) {
        const weight_layout *l = weight_layout_of((weight_format)f);
        if (ends_with(other->name, l->data) && n < 80 && !strstr(types, dtype_name(l->data_type)))
            n += snprintf(types + n, sizeof types - (size_t)n, "%s%s", n ? " or " : "", dtype_name(l->data_type));
    }
    return bind_type_error(b, other, types);
}

/* How the matrix `base` lies in the checkpoint: all of from->share's rows and columns. */
static status view_whole(const binder *b, const char *base, weight_view *v, view_source *from) {
    const matrix_share *m = &from->share;
    weight_format f;
    if (!b->ck) return *v = (weight_view){.format = dummy_format(b, base), .rows = m->rows, .cols = m->cols}, ST_OK;
    return weight_detect(b->ck, base, b->c->quant, &f) ? view_as(b, base, f, v, from) : unknown_data(b, base, m);
}

static void make_name(const binder *b, char *out, size_t cap, const char *fmt, va_list ap) {
    int n = snprintf(out, cap, "%s", b->c->prefix);
    vsnprintf(out + n, cap - (size_t)n, fmt, ap);
}

/* Memory for columns that are cut out of the checkpoint's rows: kept as long as the weights, for a backend that keeps
 * views of them, or until the next call. NULL and b->e: there is none. */
static void *cut_room(binder *b, u64 bytes, bool keep) {
    model_weights *w = b->weights;
    weight_cut **list = keep ? &w->cuts : &b->passing;
    if (!keep) free_cuts(list);
    weight_cut *cut = aligned_alloc(64, sizeof *cut + ((bytes + 63) & ~(u64)63));
    if (!cut) return err_nomem(b->e, "this rank's columns", bytes), NULL;
    cut->next = *list;
    *list = cut;
    return cut->data;
}

/* Of the matrix `base`, this rank's share: its format and size, and where its rows are; columns have yet to be cut. */
static status find_view(const binder *b, const char *base, weight_view *v, view_source *from) {
    const matrix_share *m = &from->share;
    status st = view_whole(b, base, v, from);
    if (st != ST_OK || m->cut == CUT_NOTHING) return st;
    bool rows = m->cut == CUT_ROWS;
    if (!b->ck) return *(rows ? &v->rows : &v->cols) = m->n, ST_OK;
    i64 unit = rows ? weight_row_unit(v->format) : weight_col_unit(v->format), all = rows ? m->rows : m->cols;
    if (m->at % unit || (m->n % unit && m->at + m->n < all))
        return err_set(b->e, ST_UNSUPPORTED,
                       "%s: %lld ranks would hold %lld %s each, which cuts the %lld that share a scale or a word in %s",
                       base, (long long)(all % m->n ? b->c->ranks : all / m->n), (long long)m->n,
                       rows ? "rows" : "columns", (long long)unit, weight_format_name(v->format));
    *v = rows ? weight_rows(v, m->at, m->n) : weight_cols(v, m->at, m->n, NULL);
    return ST_OK;
}

static u64 widened_room(const view_source *from) { return from->widen ? (from->scale->bytes * 2 + 63) & ~(u64)63 : 0; }

/* The scales of one view, for the kernels. */
static status bring_scales(const binder *b, const view_source *from, weight_view *v) {
    const weight_layout *l = weight_layout_of(v->format);
    status st = tensor_data(b, from->scale, &v->scale);
    if (st == ST_OK && (b->verify || l->scales_vary || dtype_size(l->scale_type) == 1))
        st = scan(b, from->scale, v->scale);
    if (st != ST_OK || !from->widen) return st;
    f32 *wide = (f32 *)(void *)from->room;
    for (u64 i = 0; i < from->scale->bytes / 2; i++) wide[i] = element(DT_BF16, v->scale, i);
    return v->scale = wide, ST_OK;
}

/* *v, found before, gets its data. */
static status bring_view(const binder *b, const view_source *from, weight_view *v) {
    const matrix_share *m = &from->share;
    weight_view all = *v;
    const void *factor, *shape;
    all.rows = m->rows, all.cols = m->cols;
    status st = tensor_data(b, from->data, &all.data);
    if (st == ST_OK && from->finite) st = scan(b, from->data, all.data);
    if (st == ST_OK && from->scale) st = bring_scales(b, from, &all);
    if (st == ST_OK && from->factor) {
        st = tensor_data(b, from->factor, &factor);
        if (st == ST_OK) st = scan(b, from->factor, factor);
        if (st == ST_OK) all.factor = element(DT_F32, factor, 0);
        if (st == ST_OK && v->divides && all.factor == 0)
            st = err_set(b->e, ST_NUMERIC, "tensor %s is 0, which divides the scales", from->factor->name);
    }
    if (st == ST_OK && from->zeros) st = check_zeros(b, from->zeros);
    if (st == ST_OK && from->shape) st = tensor_data(b, from->shape, &shape);
    if (st == ST_OK && from->shape) st = check_shape_tensor(b, from->shape, shape, m);
    if (st != ST_OK) return st;
    *v = m->cut == CUT_ROWS   ? weight_rows(&all, m->at, m->n)
         : m->cut == CUT_COLS ? weight_cols(&all, m->at, m->n, from->room + widened_room(from))
                              : all;
    return ST_OK;
}

/* A weight whose views are found. */
typedef struct {
    binder *b;
    weight_view *views;
    view_source *from; /* [n_views] of both */
    bool keeps_cols;   /* columns are kept as they are cut, and not only until they are copied or converted */
    /* Of experts that other groups have, too: those of all, which ranks that copy read together, the number among them
     * of each of `from`, and how many have passed. NULL: these are all. */
    view_source *all; /* [n_all] */
    i64 *place;       /* [n_views] */
    i64 n_all, passed;
} found_weight;

enum { SOURCE_TENSORS = 5 };
/* In the order in which bring_view() looks at them. */
static void tensors_of(const view_source *from, const tensor_info *out[SOURCE_TENSORS]) {
    out[0] = from->data, out[1] = from->scale, out[2] = from->factor, out[3] = from->zeros, out[4] = from->shape;
}

/* What is read for other groups' ranks, up to number `to`. */
static status pass_over(found_weight *f, i64 to) {
    const binder *b = f->b;
    status st = ST_OK;
    for (; st == ST_OK && f->passed < to; f->passed++) {
        const tensor_info *all[SOURCE_TENSORS];
        const void *unused;
        tensors_of(&f->all[f->passed], all);
        for (size_t k = 0; st == ST_OK && k < SOURCE_TENSORS; k++)
            if (all[k]) st = tensor_data(b, all[k], &unused);
        if (b->reader) weight_reader_give_back(b->reader, b->c->rank);
    }
    return st;
}

/* For a backend that copies: views one after the other. */
static status bring_next(void *ud, i64 i, err *e) {
    found_weight *f = ud;
    (void)e; /* the binder's own */
    if (f->b->reader) weight_reader_give_back(f->b->reader, f->b->c->rank);
    if (f->all) {
        const status st = pass_over(f, f->place[i]);
        if (st != ST_OK) return st;
        f->passed++;
    }
    return bring_view(f->b, &f->from[i], &f->views[i]);
}

/* What view i needs beside the checkpoint: widened scales and columns. */
static u64 view_room(const found_weight *f, i64 i) {
    const weight_view *v = &f->views[i];
    return widened_room(&f->from[i]) + (f->from[i].share.cut == CUT_COLS ? weight_cols_room(v, v->cols) : 0);
}

/* Memory for that: of all views, or of one at a time for a backend that copies. */
static status bring_room(const found_weight *f, i64 n) {
    binder *b = f->b;
    u64 all = 0, most = 0;
    for (i64 i = 0; i < n; i++) {
        const u64 need = view_room(f, i);
        all += need;
        most = need > most ? need : most;
    }
    if (!all) return ST_OK;
    u8 *at = cut_room(b, b->o->keeps_views ? all : most, f->keeps_cols);
    if (!at) return b->e->code;
    for (i64 i = 0; i < n; i++) {
        f->from[i].room = at;
        if (b->o->keeps_views) at += view_room(f, i);
    }
    return ST_OK;
}

/* Will a backend go on reading view i as it is brought, neither copied nor in another format? */
static bool stays(const found_weight *f, weight_kind kind, i64 i) {
    const weight_format is = f->views[i].format;
    return f->b->o->keeps_views && (kind != WK_EXPERTS || expert_stored_as(f->b->c->experts, is, i) == is);
}

/* A plan: columns that will be copied and kept are not the checkpoint's, and what is read is read in this order. */
static status plan_sources(const found_weight *f, weight_kind kind, i64 n) {
    binder *b = f->b;
    for (i64 i = 0; i < n; i++) {
        if (!stays(f, kind, i)) continue;
        b->room->own += widened_room(&f->from[i]);
        if (f->from[i].share.cut != CUT_COLS) continue;
        b->room->own += weight_cols_room(&f->views[i], f->views[i].cols);
        b->room->mapped -= weight_bytes(&f->views[i]);
    }
    for (i64 i = 0; i < (f->all ? f->n_all : n); i++) {
        const tensor_info *all[SOURCE_TENSORS];
        tensors_of(f->all ? &f->all[i] : &f->from[i], all);
        for (size_t k = 0; b->used && k < SOURCE_TENSORS; k++)
            if (all[k]) b->used[all[k] - checkpoint_tensor(b->ck, 0)] = true;
        if (b->o->keeps_views) continue;
        for (size_t k = 0; k < SOURCE_TENSORS; k++)
            if (all[k] && !list_read(b->weights, all[k])) return err_nomem(b->e, "the list of weights to read", 0);
    }
    return ST_OK;
}

/* Prepares d, whose views are f's; a dummy gets the next seed. */
static status bind_prepare(found_weight *f, weight_desc *d, op_weight **out) {
    binder *b = f->b;
    bool planned = b->room, matrix = d->kind != WK_VECTOR;
    status st = ST_OK;
    if (!b->ck) {
        d->dummy_seed = ++b->seed;
        d->dummy_sigma = d->kind == WK_TABLE ? 1.0f : 0.02f;
    }
    d->views = f->views;
    d->room = b->room;
    for (i64 i = 0; matrix && i < d->n_views; i++) b->done += weight_bytes(&d->views[i]);
    for (i64 i = 0; i < d->n_views; i++) f->keeps_cols = f->keeps_cols || stays(f, d->kind, i);
    if (b->ck && !planned) {
        st = bring_room(f, d->n_views);
        for (i64 i = 0; st == ST_OK && b->o->keeps_views && i < d->n_views; i++)
            st = bring_view(b, &f->from[i], &f->views[i]);
        if (!b->o->keeps_views) d->fetch = bring_next, d->ud = f;
    }
    if (st == ST_OK) st = b->o->weight_prepare(b->o, d, out, b->e);
    if (st == ST_OK && b->reader && f->all) st = pass_over(f, f->n_all);
    if (b->reader) weight_reader_give_back(b->reader, b->c->rank);
    if (st == ST_OK && planned) st = plan_sources(f, d->kind, d->n_views);
    if (!planned && !b->reader) progress_step(&b->shown, b->done);
    return st;
}

status bind_linear(binder *b, op_weight **out, weight_kind kind, matrix_share m, const char *fmt, ...) {
    char base[224];
    va_list ap;
    va_start(ap, fmt);
    make_name(b, base, sizeof base, fmt, ap);
    va_end(ap);
    weight_view v;
    view_source from = {.share = m};
    status st = find_view(b, base, &v, &from);
    if (st != ST_OK) return st;
    from.finite = ends_with(base, ".mlp.gate") && (v.format == WF_BF16 || v.format == WF_F32); /* the router */
    weight_desc d = {.kind = kind, .n_views = 1};
    d.n_heads = b->c->n_heads;
    d.nope = b->c->nope;
    d.v_dim = b->c->v_dim;
    st = bind_prepare(&(found_weight){.b = b, .views = &v, .from = &from}, &d, out);
    if (st != ST_OK) err_prefix(b->e, "%s", base);
    return st;
}

/* A norm's ones, a bias's zeros. */
static status dummy_vector(const binder *b, op_weight **out, i64 n, const char *name) {
    f32 *values = malloc((size_t)n * sizeof *values);
    if (!values) return err_nomem(b->e, name, (u64)n * sizeof *values);
    for (i64 i = 0; i < n; i++) values[i] = ends_with(name, "bias") ? 0.0f : 1.0f;
    weight_view v = {.format = WF_F32, .rows = 1, .cols = n, .data = values};
    weight_desc d = {.kind = WK_VECTOR, .views = &v, .n_views = 1, .room = b->room};
    status st = b->o->weight_prepare(b->o, &d, out, b->e);
    free(values);
    return st;
}

status bind_vector(binder *b, op_weight **out, i64 n, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    make_name(b, name, sizeof name, fmt, ap);
    va_end(ap);
    if (!b->ck) return dummy_vector(b, out, n, name);
    const tensor_info *t = bind_find(b, name, &n, 1);
    if (!t) return ST_FORMAT;
    if (t->type != DT_BF16 && t->type != DT_F32) return bind_type_error(b, t, "BF16 or F32");
    weight_view v = {.format = t->type == DT_F32 ? WF_F32 : WF_BF16, .rows = 1, .cols = n, .data = t->data};
    view_source from = {.data = t, .share = whole_matrix(1, n), .finite = true};
    weight_desc d = {.kind = WK_VECTOR, .n_views = 1};
    return bind_prepare(&(found_weight){.b = b, .views = &v, .from = &from}, &d, out);
}

/* What one of a layer's experts holds: gate, up, down. */
static matrix_share expert_share(const binder *b, int part) {
    const model_config *c = b->c;
    const i64 ranks = model_expert_ranks(c), each = c->inter_expert, at = model_expert_rank(c) * each;
    const bool down = part == 2;
    return (matrix_share){.rows = down ? c->hidden : ranks * each,
                          .cols = down ? ranks * each : c->hidden,
                          .cut = ranks < 2 ? CUT_NOTHING
                                 : down    ? CUT_COLS
                                           : CUT_ROWS,
                          .at = at,
                          .n = each};
}

/* Matrix `part` of an expert, in the format of those before it. */
static status expert_view(const binder *b, int layer, i64 expert, int part, const weight_view *first, weight_view *v,
                          view_source *from) {
    static const char *const parts[3] = {"gate", "up", "down"};
    char base[224];
    *from = (view_source){.share = expert_share(b, part)};
    snprintf(base, sizeof base, "%smodel.layers.%d.mlp.experts.%lld.%s_proj", b->c->prefix, layer, (long long)expert,
             parts[part]);
    BIND_TRY(find_view(b, base, v, from));
    if (first != v && v->format != first->format)
        return err_set(b->e, ST_FORMAT, "tensor %s is stored as %s, the layer's first expert as %s", base,
                       weight_format_name(v->format), weight_format_name(first->format));
    return ST_OK;
}

/* The experts of this rank's group, then those of all groups: they are all in one format, since any may come here, and
 * ranks that copy read them together. */
static status expert_views(found_weight *f, int layer, i64 held) {
    const binder *b = f->b;
    const i32 *own = b->c->ep > 1 ? expert_placement_of(b->c->placement, layer, model_expert_group(b->c)) : NULL;
    for (i64 i = 0; i < 3 * held; i++) {
        const i64 expert = own ? own[i / 3] : i / 3;
        if (f->place) f->place[i] = 3 * expert + i % 3;
        BIND_TRY(expert_view(b, layer, expert, (int)(i % 3), &f->views[0], &f->views[i], &f->from[i]));
    }
    for (i64 i = 0; i < f->n_all; i++) {
        weight_view v;
        BIND_TRY(expert_view(b, layer, i / 3, (int)(i % 3), &f->views[0], &v, &f->all[i]));
    }
    return ST_OK;
}

status bind_experts(binder *b, op_weight **out, int layer) {
    const model_config *c = b->c;
    const bool spread = c->ep > 1, together = spread && b->ck;
    const i64 held = spread ? c->placement->held : c->n_experts;
    const u64 n = (u64)held * 3, n_all = together ? (u64)c->n_experts * 3 : 0;
    found_weight f = {.b = b, .views = calloc(n, sizeof *f.views), .from = calloc(n, sizeof *f.from)};
    if (together) f.all = calloc(n_all, sizeof *f.all), f.place = calloc(n, sizeof *f.place), f.n_all = (i64)n_all;
    status st = f.views && f.from && (!together || (f.all && f.place))
                    ? expert_views(&f, layer, held)
                    : err_nomem(b->e, "expert descriptions", (n + n_all) * (sizeof *f.views + sizeof *f.from));
    weight_desc d = {.kind = WK_EXPERTS, .n_views = (i64)n, .experts = c->experts};
    if (st == ST_OK) st = bind_prepare(&f, &d, out);
    free(f.views);
    free(f.from);
    free(f.all);
    free(f.place);
    return st;
}

status bind_expert_again(const model_config *c, const checkpoint *ck, const ops *o, op_weight *experts, int layer,
                         i64 slot, i32 expert, weight_cut **kept, err *e) {
    enum { PARTS = 3 };
    model_weights none = {0};
    weight_view views[PARTS];
    view_source from[PARTS];
    binder b = {.c = c, .ck = ck, .o = o, .weights = &none, .e = e};
    found_weight f = {.b = &b, .views = views, .from = from, .keeps_cols = true};
    u64 room = 0;
    for (int i = 0; i < PARTS; i++) {
        BIND_TRY(expert_view(&b, layer, expert, i, &views[0], &views[i], &from[i]));
        room += view_room(&f, i);
    }
    weight_cut *cut = NULL;
    if (room && !(cut = aligned_alloc(64, sizeof *cut + ((room + 63) & ~(u64)63))))
        return err_nomem(e, "an expert that comes", room);
    status st = ST_OK;
    u8 *at = cut ? cut->data : NULL;
    for (int i = 0; st == ST_OK && i < PARTS; i++) {
        const u64 own = view_room(&f, i); /* of all columns: the view gets this rank's */
        from[i].room = at;
        st = bring_view(&b, &from[i], &views[i]);
        if (own) at += own;
    }
    const weight_desc d = {.kind = WK_EXPERTS, .views = views, .n_views = PARTS, .experts = c->experts};
    if (st == ST_OK) st = o->experts_replace(o, experts, PARTS * slot, &d, e);
    bool reads = false;
    for (int i = 0; i < PARTS; i++) reads = reads || stays(&f, WK_EXPERTS, i);
    if (st == ST_OK && reads) {
        free(*kept);
        *kept = cut, cut = NULL;
    }
    free(cut);
    return st;
}

/* Where nothing is copied there is nothing to wait for. */
static void say_loaded(const binder *b) {
    char all[BYTES_TEXT], rate[BYTES_TEXT];
    f64 took = now_s() - b->shown.start_s;
    if (b->ck && !b->reader && took >= 1)
        log_note("weights: %s in %.1f s, %s/s", bytes_text(all, b->done), took,
                 bytes_text(rate, (u64)((f64)b->done / took)));
}

status bind_weights(binder *b, bind_fn all, u64 bytes) {
    model_weights *w = b->weights;
    w->ops = b->o;
    if (b->room) {
        status st = all(b);
        w->bytes = b->done;
        return st;
    }
    progress_start(&b->shown, "weights", "B", bytes);
    status st = all(b);
    free_cuts(&b->passing);
    progress_end(&b->shown);
    w->bytes = b->done;
    if (st == ST_OK) say_loaded(b);
    return st;
}

void model_weights_free(model_weights *w) {
    if (!w->ops) return;
    void (*release)(op_weight *) = w->ops->weight_release;
    for (i64 l = 0; w->layers && l < w->n_layers; l++) {
        layer_weights *p = &w->layers[l];
        op_weight *all[] = {p->attn_norm, p->ffn_norm,  p->q,           p->q_a,    p->q_a_norm, p->q_b,
                            p->kv_a,      p->kv_a_norm, p->kv_b,        p->o,      p->gate,     p->up,
                            p->down,      p->router,    p->router_bias, p->experts};
        for (size_t i = 0; i < COUNT_OF(all); i++) release(all[i]);
    }
    release(w->embed);
    release(w->norm);
    release(w->head);
    free(w->layers);
    free(w->reads);
    free_cuts(&w->cuts);
    *w = (model_weights){0};
}
