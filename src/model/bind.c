#include "model/bind.h"
#include "base/log.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const model_config *c;
    const checkpoint *ck; /* NULL: dummy weights */
    const ops *o;
    bool verify;
    model_weights *weights;
    weight_cut *passing; /* columns that a backend has copied, or will in a moment */
    weight_memory *room; /* NULL, or a plan: names, types and shapes are checked, no data is looked at */
    err *e;
    u64 seed; /* of the last dummy weight */
    u64 done; /* bytes prepared */
    progress shown;
} binder;

static void free_cuts(weight_cut **list) {
    for (weight_cut *next; *list; *list = next) next = (*list)->next, free(*list);
}

static status bind_shape_error(const binder *b, const tensor_info *t, const i64 *want, int n) {
    char have[128] = "", need[128] = "";
    for (int i = 0, at = 0; i < t->n_dims && at < 100; i++)
        at += snprintf(have + at, sizeof have - (size_t)at, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(need + at, sizeof need - (size_t)at, "%s%lld", i ? ", " : "", (long long)want[i]);
    return err_set(b->e, ST_FORMAT, "tensor %s has shape [%s], config.json asks for [%s]", t->name, have, need);
}

/* The tensor `name` with exactly this shape. NULL and b->e on failure. */
static const tensor_info *bind_find(const binder *b, const char *name, const i64 *shape, int n) {
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

static status type_error(const binder *b, const tensor_info *t, const char *want) {
    return err_set(b->e, ST_FORMAT, "tensor %s is %s, not %s", t->name, dtype_name(t->type), want);
}

static f32 element(const tensor_info *t, u64 i) {
    return t->type == DT_F32 ? ((const f32 *)t->data)[i] : bf16_to_f32(((const bf16 *)t->data)[i]);
}

/* Scans a BF16 or F32 tensor. */
static status scan(const binder *b, const tensor_info *t) {
    u64 n = b->room ? 0 : t->bytes / dtype_size(t->type);
    for (u64 i = 0; i < n; i++)
        if (!isfinite(element(t, i)))
            return err_set(b->e, ST_NUMERIC, "tensor %s holds %s at element %llu", t->name,
                           isnan(element(t, i)) ? "NaN" : "an infinity", (unsigned long long)i);
    return ST_OK;
}

/* NAME + suffix: the tensor of that shape and type. NULL and b->e on failure. */
static const tensor_info *bind_part(const binder *b, const char *base, const char *suffix, dtype type, const i64 *shape,
                                    int n) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, suffix);
    const tensor_info *t = bind_find(b, name, shape, n);
    if (t && t->type != type) return type_error(b, t, dtype_name(type)), NULL;
    return t;
}

/* The scales, and what multiplies all of them. */
static status view_scales(const binder *b, const char *base, const weight_layout *l, weight_view *v) {
    char name[256];
    const i64 shape[2] = {ceil_div(v->rows, l->scale_rows), l->scale_cols ? ceil_div(v->cols, l->scale_cols) : 1};
    const tensor_info *s = bind_part(b, base, l->scale, l->scale_type, shape, l->scale_cols ? 2 : 1);
    if (!s) return ST_FORMAT;
    v->scale = s->data;
    if (b->verify && scan(b, s) != ST_OK) return b->e->code;
    if (!l->factor) return ST_OK;
    snprintf(name, sizeof name, "%s%s", base, l->factor);
    const tensor_info *whole = checkpoint_find(b->ck, name);
    if (!whole || whole->n_dims) whole = bind_find(b, name, (const i64[]){1}, 1); /* a scalar is as good */
    if (!whole) return ST_FORMAT;
    if (whole->type != DT_F32) return type_error(b, whole, "F32");
    v->factor = b->room ? 0 : element(whole, 0);
    return scan(b, whole);
}

/* A tensor that says the matrix's shape says ours. */
static status check_shape_tensor(const binder *b, const char *base, const weight_layout *l, const weight_view *v) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", base, l->shape);
    const tensor_info *sh = bind_find(b, name, (const i64[]){2}, 1);
    if (!sh) return ST_FORMAT;
    if (sh->type != DT_I32 && sh->type != DT_I64) return type_error(b, sh, "I32 or I64");
    for (int i = 0; i < 2 && !b->room; i++) {
        i64 have = sh->type == DT_I32 ? ((const i32 *)sh->data)[i] : ((const i64 *)sh->data)[i],
            want = i ? v->cols : v->rows;
        if (have != want)
            return err_set(b->e, ST_FORMAT, "tensor %s says %lld in place %d, config.json asks for %lld", name,
                           (long long)have, i, (long long)want);
    }
    return ST_OK;
}

/* The matrix `base` in format f, whose data are there. */
static status view_as(const binder *b, const char *base, weight_format f, i64 rows, i64 cols, weight_view *v) {
    const weight_layout *l = weight_layout_of(f);
    if (l->experts_only && !strstr(base, ".mlp.experts."))
        return err_set(b->e, ST_UNSUPPORTED, "tensor %s%s is %s: only routed experts may be in %s", base, l->data,
                       dtype_name(l->data_type), l->name);
    if (cols % l->cols_multiple)
        return err_set(b->e, ST_FORMAT, "tensor %s%s: %lld columns are no multiple of %lld", base, l->data,
                       (long long)cols, (long long)l->cols_multiple);
    const tensor_info *q = bind_part(b, base, l->data, l->data_type, (const i64[]){rows, cols / l->per_element}, 2);
    if (!q) return ST_FORMAT;
    *v = (weight_view){.format = f, .rows = rows, .cols = cols, .data = q->data};
    status st = l->scale ? view_scales(b, base, l, v) : ST_OK;
    return st == ST_OK && l->shape ? check_shape_tensor(b, base, l, v) : st;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !memcmp(s + n - m, end, m);
}

/* How it would lie in a checkpoint of this family. */
static weight_format dummy_format(const binder *b, const char *base) {
    bool expert = strstr(base, ".mlp.experts.") != NULL;
    bool never = ends_with(base, ".mlp.gate") || ends_with(base, "embed_tokens") || ends_with(base, "lm_head");
    return expert || (b->c->quant == WF_FP8_BLOCK && !never) ? b->c->quant : WF_BF16;
}

/* The data tensor that format f would have, if there is one; found[]: those of the formats behind f. */
static const tensor_info *data_tensor(const binder *b, const char *base, int f, const tensor_info **found) {
    char name[256];
    const char *suffix = weight_layout_of((weight_format)f)->data;
    for (int k = f + 1; k < weight_formats(); k++) /* a name is looked up once */
        if (!strcmp(weight_layout_of((weight_format)k)->data, suffix)) return found[k];
    snprintf(name, sizeof name, "%s%s", base, suffix);
    return checkpoint_find(b->ck, name);
}

/* How the matrix `base` lies in the checkpoint. */
static status view_linear(const binder *b, const char *base, i64 rows, i64 cols, weight_view *v) {
    char name[256];
    if (!b->ck) return *v = (weight_view){.format = dummy_format(b, base), .rows = rows, .cols = cols}, ST_OK;
    /* The last formats first: the others are written as one plain tensor, which theirs may have beside it. */
    const tensor_info *found[WEIGHT_FORMATS_MOST], *other = NULL;
    const weight_layout *plain = NULL;
    for (int f = weight_formats() - 1; f >= 0; f--) {
        const weight_layout *l = weight_layout_of((weight_format)f);
        const tensor_info *t = found[f] = data_tensor(b, base, f, found);
        if (t && t->type == l->data_type) return view_as(b, base, (weight_format)f, rows, cols, v);
        if (t) other = t, plain = l;
    }
    if (!other) return snprintf(name, sizeof name, "%s.weight", base), bind_find(b, name, NULL, 0), ST_FORMAT;
    if (!bind_find(b, other->name, (const i64[]){rows, cols / plain->per_element}, 2)) return ST_FORMAT;
    char types[96] = "";
    for (int f = weight_formats() - 1, n = 0; f >= 0; f--) {
        const weight_layout *l = weight_layout_of((weight_format)f);
        if (ends_with(other->name, l->data) && n < 80)
            n += snprintf(types + n, sizeof types - (size_t)n, "%s%s", n ? " or " : "", dtype_name(l->data_type));
    }
    return type_error(b, other, types);
}

static void make_name(const binder *b, char *out, size_t cap, const char *fmt, va_list ap) {
    int n = snprintf(out, cap, "%s", b->c->prefix);
    vsnprintf(out + n, cap - (size_t)n, fmt, ap);
}

/* What a rank holds of a matrix [rows, cols]: all, so many rows from row `at` on, or so many columns. */
typedef struct {
    i64 rows, cols; /* of all of it */
    enum { CUT_NOTHING, CUT_ROWS, CUT_COLS } cut;
    i64 at, n;
} matrix_share;

static matrix_share whole_matrix(i64 rows, i64 cols) { return (matrix_share){.rows = rows, .cols = cols}; }
/* Equal shares, `each` rows or columns of which are this rank's. */
static matrix_share row_share(const binder *b, i64 each, i64 cols) {
    const model_config *c = b->c;
    return (matrix_share){c->ranks * each, cols, c->ranks > 1 ? CUT_ROWS : CUT_NOTHING, c->rank * each, each};
}
static matrix_share col_share(const binder *b, i64 rows, i64 each) {
    const model_config *c = b->c;
    return (matrix_share){rows, c->ranks * each, c->ranks > 1 ? CUT_COLS : CUT_NOTHING, c->rank * each, each};
}
static matrix_share vocab_share(const binder *b) {
    const model_config *c = b->c;
    return (matrix_share){c->vocab, c->hidden, c->ranks > 1 ? CUT_ROWS : CUT_NOTHING, c->vocab_first, c->vocab_held};
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

/* *v, all of a matrix in a checkpoint, becomes this rank's share; columns are copied to *room, which moves on. */
static status cut_view(const binder *b, const char *base, const matrix_share *m, u8 **room, weight_view *v) {
    if (m->cut == CUT_NOTHING) return ST_OK;
    bool rows = m->cut == CUT_ROWS;
    if (!b->ck) return *(rows ? &v->rows : &v->cols) = m->n, ST_OK;
    i64 unit = rows ? weight_row_unit(v->format) : weight_col_unit(v->format), all = rows ? m->rows : m->cols;
    if (m->at % unit || (m->n % unit && m->at + m->n < all))
        return err_set(b->e, ST_UNSUPPORTED,
                       "%s: %lld ranks would hold %lld %s each, which cuts the %lld that share a scale or a word in %s",
                       base, (long long)b->c->ranks, (long long)m->n, rows ? "rows" : "columns", (long long)unit,
                       weight_format_name(v->format));
    if (rows) return *v = weight_rows(v, m->at, m->n), ST_OK;
    u64 need = weight_cols_room(v, m->n);
    *v = weight_cols(v, m->at, m->n, *room);
    if (*room) *room += need;
    return ST_OK;
}

/* Of a plan: columns that will be copied and kept are not the checkpoint's. */
static void plan_cut(const binder *b, const matrix_share *m, const weight_view *v, bool keep) {
    if (!b->room || m->cut != CUT_COLS || !keep) return;
    b->room->own += weight_cols_room(v, v->cols);
    b->room->mapped -= weight_bytes(v);
}

/* Prepares d; a dummy gets the next seed. */
static status bind_prepare(binder *b, weight_desc *d, op_weight **out) {
    if (!b->ck) {
        d->dummy_seed = ++b->seed;
        d->dummy_sigma = d->kind == WK_TABLE ? 1.0f : 0.02f;
    }
    d->room = b->room;
    for (i64 i = 0; i < d->n_views; i++) b->done += weight_bytes(&d->views[i]);
    status st = b->o->weight_prepare(b->o, d, out, b->e);
    if (!b->room) progress_step(&b->shown, b->done);
    return st;
}

static status bind_linear(binder *b, op_weight **out, weight_kind kind, matrix_share m, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static status bind_linear(binder *b, op_weight **out, weight_kind kind, matrix_share m, const char *fmt, ...) {
    char base[224];
    va_list ap;
    va_start(ap, fmt);
    make_name(b, base, sizeof base, fmt, ap);
    va_end(ap);
    weight_view v;
    u8 *room = NULL;
    status st = view_linear(b, base, m.rows, m.cols, &v);
    bool keep = b->o->keeps_views;
    if (st == ST_OK && m.cut == CUT_COLS && !b->room && b->ck && !(room = cut_room(b, weight_cols_room(&v, m.n), keep)))
        return b->e->code;
    if (st == ST_OK) st = cut_view(b, base, &m, &room, &v);
    if (st != ST_OK) return st;
    weight_desc d = {.kind = kind, .views = &v, .n_views = 1};
    d.n_heads = b->c->n_heads;
    d.nope = b->c->nope;
    d.v_dim = b->c->v_dim;
    st = bind_prepare(b, &d, out);
    if (st == ST_OK) plan_cut(b, &m, &v, keep);
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

static status vector(const binder *b, op_weight **out, i64 n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static status vector(const binder *b, op_weight **out, i64 n, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    make_name(b, name, sizeof name, fmt, ap);
    va_end(ap);
    if (!b->ck) return dummy_vector(b, out, n, name);
    const tensor_info *t = bind_find(b, name, &n, 1);
    if (!t) return ST_FORMAT;
    if (t->type != DT_BF16 && t->type != DT_F32) return type_error(b, t, "BF16 or F32");
    status st = scan(b, t);
    if (st != ST_OK) return st;
    weight_view v = {.format = t->type == DT_F32 ? WF_F32 : WF_BF16, .rows = 1, .cols = n, .data = t->data};
    weight_desc d = {.kind = WK_VECTOR, .views = &v, .n_views = 1, .room = b->room};
    return b->o->weight_prepare(b->o, &d, out, b->e);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status st_ = (call);                                                                                           \
        if (st_ != ST_OK) return st_;                                                                                  \
    } while (0)

static status bind_attention(binder *b, layer_weights *w, int l) {
    const model_config *c = b->c;
    const i64 q_rows = c->n_heads * (c->nope + c->rope), kv_rows = c->n_heads * (c->nope + c->v_dim);
    TRY(vector(b, &w->attn_norm, c->hidden, "model.layers.%d.input_layernorm.weight", l));
    TRY(vector(b, &w->ffn_norm, c->hidden, "model.layers.%d.post_attention_layernorm.weight", l));
    if (c->q_lora) {
        TRY(bind_linear(b, &w->q_a, WK_LINEAR, whole_matrix(c->q_lora, c->hidden), "model.layers.%d.self_attn.q_a_proj",
                        l));
        TRY(vector(b, &w->q_a_norm, c->q_lora, "model.layers.%d.self_attn.q_a_layernorm.weight", l));
        TRY(bind_linear(b, &w->q_b, WK_LINEAR, row_share(b, q_rows, c->q_lora), "model.layers.%d.self_attn.q_b_proj",
                        l));
    } else {
        TRY(bind_linear(b, &w->q, WK_LINEAR, row_share(b, q_rows, c->hidden), "model.layers.%d.self_attn.q_proj", l));
    }
    TRY(bind_linear(b, &w->kv_a, WK_LINEAR, whole_matrix(c->kv_lora + c->rope, c->hidden),
                    "model.layers.%d.self_attn.kv_a_proj_with_mqa", l));
    TRY(vector(b, &w->kv_a_norm, c->kv_lora, "model.layers.%d.self_attn.kv_a_layernorm.weight", l));
    TRY(bind_linear(b, &w->kv_b, WK_KV_B, row_share(b, kv_rows, c->kv_lora), "model.layers.%d.self_attn.kv_b_proj", l));
    return bind_linear(b, &w->o, WK_LINEAR, col_share(b, c->hidden, c->n_heads * c->v_dim),
                       "model.layers.%d.self_attn.o_proj", l);
}

static status bind_mlp(binder *b, layer_weights *w, i64 inter, int l, const char *part) {
    i64 hidden = b->c->hidden;
    TRY(bind_linear(b, &w->gate, WK_LINEAR, row_share(b, inter, hidden), "model.layers.%d.mlp.%sgate_proj", l, part));
    TRY(bind_linear(b, &w->up, WK_LINEAR, row_share(b, inter, hidden), "model.layers.%d.mlp.%sup_proj", l, part));
    return bind_linear(b, &w->down, WK_LINEAR, col_share(b, hidden, inter), "model.layers.%d.mlp.%sdown_proj", l, part);
}

/* What one of a layer's experts holds: gate, up, down. */
static matrix_share expert_share(const binder *b, int part) {
    const model_config *c = b->c;
    return part < 2 ? row_share(b, c->inter_expert, c->hidden) : col_share(b, c->hidden, c->inter_expert);
}

/* Are the columns of the experts' down kept as they are cut, or only until they are converted? */
static bool keeps_down(const binder *b, weight_format f) {
    return b->o->keeps_views && expert_stored_as(b->c->experts, f, 2) == f;
}

/* Memory for the columns of all experts' down, where there are any to be copied; they are as the first one. */
static status experts_room(binder *b, const char *base, u8 **room) {
    weight_view v;
    matrix_share m = expert_share(b, 2);
    *room = NULL;
    if (m.cut != CUT_COLS || b->room || !b->ck) return ST_OK;
    status st = view_linear(b, base, m.rows, m.cols, &v);
    if (st == ST_OK) *room = cut_room(b, (u64)b->c->n_experts * weight_cols_room(&v, m.n), keeps_down(b, v.format));
    return st != ST_OK || *room ? st : b->e->code;
}

static status expert_views(binder *b, int l, weight_view *views) {
    static const char *const part[3] = {"gate", "up", "down"};
    const model_config *c = b->c;
    char base[224];
    u8 *room;
    snprintf(base, sizeof base, "%smodel.layers.%d.mlp.experts.0.down_proj", c->prefix, l);
    TRY(experts_room(b, base, &room));
    for (i64 x = 0; x < c->n_experts; x++)
        for (int p = 0; p < 3; p++) {
            const matrix_share m = expert_share(b, p);
            snprintf(base, sizeof base, "%smodel.layers.%d.mlp.experts.%lld.%s_proj", c->prefix, l, (long long)x,
                     part[p]);
            TRY(view_linear(b, base, m.rows, m.cols, &views[3 * x + p]));
            if (views[3 * x + p].format != views[0].format)
                return err_set(b->e, ST_FORMAT, "tensor %s is stored as %s, the layer's first expert as %s", base,
                               weight_format_name(views[3 * x + p].format), weight_format_name(views[0].format));
            TRY(cut_view(b, base, &m, &room, &views[3 * x + p]));
        }
    return ST_OK;
}

static status bind_moe(binder *b, layer_weights *w, int l) {
    const model_config *c = b->c;
    char name[256];
    TRY(bind_linear(b, &w->router, WK_LINEAR, whole_matrix(c->n_experts, c->hidden), "model.layers.%d.mlp.gate", l));
    snprintf(name, sizeof name, "%smodel.layers.%d.mlp.gate.weight", c->prefix, l);
    const tensor_info *gate = b->ck ? checkpoint_find(b->ck, name) : NULL;
    if (gate && (gate->type == DT_BF16 || gate->type == DT_F32)) TRY(scan(b, gate));
    TRY(vector(b, &w->router_bias, c->n_experts, "model.layers.%d.mlp.gate.e_score_correction_bias", l));
    if (c->n_shared) TRY(bind_mlp(b, w, c->inter_expert * c->n_shared, l, "shared_experts."));
    u64 n = (u64)c->n_experts * 3;
    weight_view *views = calloc(n, sizeof *views);
    if (!views) return err_nomem(b->e, "expert descriptions", n * sizeof *views);
    status st = expert_views(b, l, views);
    weight_desc d = {.kind = WK_EXPERTS, .views = views, .n_views = (i64)n, .experts = c->experts};
    if (st == ST_OK) st = bind_prepare(b, &d, &w->experts);
    const matrix_share down = expert_share(b, 2);
    for (i64 x = 0; st == ST_OK && x < c->n_experts; x++)
        plan_cut(b, &down, &views[3 * x + 2], keeps_down(b, views[2].format));
    free(views);
    return st;
}

status bind_activation_type(const model_config *c, const checkpoint *ck, dtype *out, err *e) {
    char name[128];
    *out = DT_BF16;
    if (!ck) return ST_OK;
    snprintf(name, sizeof name, "%smodel.embed_tokens.weight", c->prefix);
    const tensor_info *t = checkpoint_find(ck, name);
    if (!t) return err_set(e, ST_FORMAT, "tensor %s is missing", name);
    *out = t->type == DT_F32 ? DT_F32 : DT_BF16;
    return ST_OK;
}

static status bind_all(binder *b, model_weights *w) {
    const model_config *c = b->c;
    w->ops = b->o;
    w->layers = calloc((size_t)c->n_layers, sizeof *w->layers);
    if (!w->layers) return err_nomem(b->e, "layers", (u64)c->n_layers * sizeof *w->layers);
    w->n_layers = c->n_layers;
    TRY(bind_linear(b, &w->embed, WK_TABLE, vocab_share(b), "model.embed_tokens"));
    TRY(vector(b, &w->norm, c->hidden, "model.norm.weight"));
    TRY(bind_linear(b, &w->head, WK_LINEAR, vocab_share(b), "%s",
                    c->tie_embeddings ? "model.embed_tokens" : "lm_head"));
    for (int l = 0; l < c->n_layers; l++) {
        TRY(bind_attention(b, &w->layers[l], l));
        if (l < c->n_dense)
            TRY(bind_mlp(b, &w->layers[l], c->inter_dense, l, ""));
        else
            TRY(bind_moe(b, &w->layers[l], l));
    }
    return ST_OK;
}

status model_weights_plan(model_weights *w, weight_memory *room, const model_config *c, const checkpoint *ck,
                          const ops *o, err *e) {
    binder b = {.c = c, .ck = ck, .o = o, .weights = w, .room = room, .e = e};
    *room = (weight_memory){0};
    status st = bind_all(&b, w);
    w->bytes = b.done;
    return st;
}

/* Where nothing is copied there is nothing to wait for. */
static void say_loaded(const binder *b) {
    char all[BYTES_TEXT], rate[BYTES_TEXT];
    f64 took = now_s() - b->shown.start_s;
    if (b->ck && took >= 1)
        log_note("weights: %s in %.1f s, %s/s", bytes_text(all, b->done), took,
                 bytes_text(rate, (u64)((f64)b->done / took)));
}

status model_weights_bind(model_weights *w, const model_config *c, const checkpoint *ck, const ops *o, u64 bytes,
                          bool verify, err *e) {
    binder b = {.c = c, .ck = ck, .o = o, .weights = w, .verify = verify, .e = e};
    progress_start(&b.shown, "weights", "B", bytes);
    status st = bind_all(&b, w);
    free_cuts(&b.passing);
    progress_end(&b.shown);
    w->bytes = b.done;
    if (st == ST_OK) say_loaded(&b);
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
    free_cuts(&w->cuts);
    *w = (model_weights){0};
}
