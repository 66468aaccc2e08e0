/* cmd/quantize/plan.c: which tensors are matrices, which of them are chosen, and what they will be called. */
#include "cmd/quantize/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *matrix_class_name(matrix_class c) {
    static const char *const names[MC_COUNT] = {
#define MATRIX_CLASS_NAME(id, name) name,
        MATRIX_CLASSES(MATRIX_CLASS_NAME)
#undef MATRIX_CLASS_NAME
    };
    return names[c];
}

/* ---- by name ---- */

/* The part of a tensor's name behind "model.layers.N."; NULL: it is in no layer of the text model. */
static const char *name_in_layer(const char *name, const model_config *c, int *layer) {
    size_t n = strlen(c->prefix);
    int used = 0;
    *layer = -1;
    if (strncmp(name, c->prefix, n) != 0) return NULL;
    if (sscanf(name + n, "model.layers.%d.%n", layer, &used) != 1 || !used || *layer < 0) return *layer = -1, NULL;
    return name + n + used;
}

static bool plan_begins(const char *s, const char *part) { return strncmp(s, part, strlen(part)) == 0; }

static matrix_class class_of_name(const char *name, const model_config *c, int *layer) {
    const char *in = name_in_layer(name, c, layer);
    if (!in) return MC_OTHER;
    const bool proj = strstr(in, "_proj") != NULL;
    if (plan_begins(in, "mlp.experts.") && proj)
        return strstr(in, ".gate_proj") ? MC_GATE : strstr(in, ".up_proj") ? MC_UP : MC_DOWN;
    if (plan_begins(in, "mlp.shared_experts.") && proj) return MC_SHARED;
    if (plan_begins(in, "mlp.") && proj) return MC_DENSE;
    return plan_begins(in, "self_attn.") && proj ? MC_ATTENTION : MC_OTHER;
}

/* Whose a routed expert's matrix is. */
static i64 expert_of_name(const char *name) {
    static const char before[] = ".mlp.experts.";
    const char *at = strstr(name, before);
    long long expert;
    return at && sscanf(at + sizeof before - 1, "%lld.", &expert) == 1 ? expert : -1;
}

bool piece_meets_inputs(const plan_piece *k, const model_config *c) {
    return k->expert >= 0 && k->layer >= c->n_dense && k->layer < c->n_layers;
}

static bool chosen(matrix_class class, bool linears) { return class <= MC_DOWN || (linears && class != MC_OTHER); }

/* ---- pieces ---- */

enum { PARTS_MOST = 5 }; /* tensors of a matrix: data, scale, factor, shape or scale of inputs, zeros */

/* name: NULL where it is made, as NAME of m + suffix; names move as more of them are added, so it is a place until the
 * plan is whole. */
static void plan_add(quantize_plan *p, tensor_out t, tensor_origin from, const stored_matrix *m, const char *suffix) {
    if (!t.name) {
        from.name_at = p->names.len;
        buf_fmt(&p->names, "%.*s%s", m->base, m->data->name, suffix);
        buf_char(&p->names, 0);
    }
    t.bytes = tensor_out_bytes(&t);
    p->out[p->n_out] = t, p->origins[p->n_out++] = from;
}

static void add_copy(quantize_plan *p, const tensor_info *t, const stored_matrix *m, const char *suffix) {
    tensor_out out = {.name = m ? NULL : t->name, .type = t->type, .n_dims = t->n_dims};
    memcpy(out.shape, t->shape, sizeof out.shape);
    plan_add(p, out, (tensor_origin){.from = t}, m, suffix);
}

/* One scale a row: [rows] or [rows, 1], by writer. */
static void shape_row_scales(tensor_out *t, const stored_matrix *m, const quantizer *q) {
    t->n_dims = q->scale_columns ? 2 : 1;
    t->shape[0] = m->rows, t->shape[1] = q->scale_columns ? 1 : 0;
}

/* Zero points of INT8's rows, whether they were there or not. */
static void add_zeros(quantize_plan *p, const stored_matrix *m, const weight_layout *l) {
    const tensor_out made = {.type = DT_I8, .n_dims = 1, .shape = {m->rows}};
    if (m->zeros)
        add_copy(p, m->zeros, m, l->zeros);
    else
        plan_add(p, made, (tensor_origin){.part = PART_ZEROS}, m, l->zeros);
}

/* The matrix is in the format already, but for the names of another writer, and the shapes of what is small. q: that
 * writer; NULL: it stays as it is. */
static void add_renamed(quantize_plan *p, const stored_matrix *m, const quantizer *q) {
    const weight_layout *was = weight_layout_of(m->format), *l = q ? weight_layout_of(q->format) : was;
    add_copy(p, m->data, m, l->data);
    if (m->scale) add_copy(p, m->scale, m, l->scale);
    if (q && m->scale && !l->scale_cols && l->scales_vary) shape_row_scales(&p->out[p->n_out - 1], m, q);
    if (m->factor && l->factor_divides == was->factor_divides)
        add_copy(p, m->factor, m, l->factor);
    else if (m->factor)
        plan_add(p, (tensor_out){.type = DT_F32, .n_dims = q->factor_dims, .shape = {1}},
                 (tensor_origin){.from = m->factor, .inverted = true}, m, l->factor);
    if (m->shape) add_copy(p, m->shape, m, l->shape);
    if (m->zeros || (q && q->zero_points)) add_zeros(p, m, l);
}

static status add_made(quantize_plan *p, const stored_matrix *m, const quantizer *q, bool calibrated, err *e) {
    const weight_layout *l = weight_layout_of(q->format);
    weight_view v;
    status st = quantize_shape(q, m->rows, m->cols, &v, e);
    if (st != ST_OK) return err_prefix(e, "tensor %s", m->data->name), st;
    tensor_out data = {.type = l->data_type, .n_dims = 2, .shape = {m->rows, m->cols / l->per_element}};
    tensor_out scale = {.type = l->scale_type, .n_dims = 2};
    tensor_out factor = {.type = DT_F32, .n_dims = q->factor_dims, .shape = {1}},
               shape = {.type = DT_I32, .n_dims = 1, .shape = {2}},
               zeros = {.type = DT_I8, .n_dims = 1, .shape = {m->rows}};
    plan_add(p, data, (tensor_origin){.part = PART_DATA}, m, l->data);
    if (l->scale) {
        scale.shape[0] = ceil_div(m->rows, l->scale_rows);
        if (l->scale_cols)
            scale.shape[1] = ceil_div(m->cols, l->scale_cols);
        else
            shape_row_scales(&scale, m, q);
        plan_add(p, scale, (tensor_origin){.part = PART_SCALE}, m, l->scale);
    }
    if (l->factor) plan_add(p, factor, (tensor_origin){.part = PART_FACTOR}, m, l->factor);
    if (l->shape) plan_add(p, shape, (tensor_origin){.part = PART_SHAPE}, m, l->shape);
    if (q->zero_points) plan_add(p, zeros, (tensor_origin){.part = PART_ZEROS}, m, l->zeros);
    if (calibrated && q->input_scale)
        plan_add(p, (tensor_out){.type = DT_F32}, (tensor_origin){.part = PART_INPUT_SCALE}, m, ".input_scale");
    return ST_OK;
}

static weight_format bytes_of(weight_format f) {
    const weight_layout *l = weight_layout_of(f);
    return l->kept_as ? l->kept_as : f;
}

/* How a matrix is written: by `wanted` if it is chosen, as bf16 if it lies packed, else (NULL) as it is. */
static const quantizer *quantizer_for(const stored_matrix *m, const quantizer *wanted, bool is_chosen) {
    const quantizer *q = is_chosen ? wanted : weight_layout_of(m->format)->scale ? quantizer_named("bf16") : NULL;
    return q && bytes_of(q->format) == bytes_of(m->format) ? NULL : q;
}

typedef struct {
    const checkpoint *ck;
    const model_config *c;
    const quantizer *q;
    bool linears, calibrated;
    bool *taken;      /* [tensors] parts of a matrix */
    stored_matrix *m; /* [tensors] data NULL: it is the data of none */
    u64 *piece;       /* [tensors] where such a matrix is in the plan */
} planner;

static status add_matrix(quantize_plan *p, const planner *a, plan_piece *k, bool is_chosen, err *e) {
    const stored_matrix *m = &k->m;
    k->q = quantizer_for(m, a->q, is_chosen);
    p->n_chosen += is_chosen;
    p->n_encoded += is_chosen && k->q;
    if (k->q) return add_made(p, m, k->q, a->calibrated && piece_meets_inputs(k, a->c), e);
    add_renamed(p, m, is_chosen ? a->q : NULL);
    return ST_OK;
}

static u64 piece_bytes_in(const stored_matrix *m) {
    u64 n = m->data->bytes;
    n += m->scale ? m->scale->bytes : 0;
    n += m->factor ? m->factor->bytes : 0;
    n += m->zeros ? m->zeros->bytes : 0;
    return n + (m->shape ? m->shape->bytes : 0);
}

static status plan_tensor(quantize_plan *p, planner *a, const tensor_info *t, const stored_matrix *m, err *e) {
    plan_piece *k = &p->pieces[p->n_pieces++];
    *k = (plan_piece){
        .first = p->n_out, .m = m ? *m : (stored_matrix){.data = t}, .pair = NO_PAIR, .given = {NO_PAIR, NO_PAIR}};
    k->class = class_of_name(t->name, a->c, &k->layer);
    k->expert = k->class <= MC_DOWN ? expert_of_name(t->name) : -1;
    bool is_chosen = chosen(k->class, a->linears);
    if (is_chosen && !m && t->n_dims == 2)
        return err_set(e, ST_UNSUPPORTED, "tensor %s is %s, which is no weight format that is read here", t->name,
                       dtype_name(t->type));
    status st = ST_OK;
    if (m)
        st = add_matrix(p, a, k, is_chosen, e);
    else
        add_copy(p, t, NULL, NULL);
    k->n = p->n_out - k->first;
    k->bytes_in = piece_bytes_in(&k->m);
    for (u64 i = k->first; i < p->n_out; i++) k->bytes_out += p->out[i].bytes;
    p->bytes_in += k->bytes_in, p->bytes_out += k->bytes_out;
    return st;
}

/* The matrix whose NAME are the n bytes of `base` and `end`; NULL: there is none. */
static const tensor_info *matrix_named(const planner *a, const char *base, size_t n, const char *end) {
    const tensor_info *all = checkpoint_tensor(a->ck, 0);
    char name[512];
    for (int f = 0; f < weight_formats(); f++) {
        const char *data = weight_layout_of((weight_format)f)->data;
        if (snprintf(name, sizeof name, "%.*s%s%s", (int)n, base, end, data) >= (int)sizeof name) continue;
        const tensor_info *t = checkpoint_find(a->ck, name);
        if (t && a->m[t - all].data) return t;
    }
    return NULL;
}

static size_t plan_ends(const char *s, size_t n, const char *end) {
    const size_t m = strlen(end);
    return n > m && !memcmp(s + n - m, end, m) ? n - m : 0;
}

/* The scale of a matrix's inputs, which belongs to how that matrix was quantized: is it to be left out? SGLang calls
 * an expert's by other names (w1, w2, w3) than its matrices, so that none is found. */
static bool scale_is_left_out(const planner *a, const tensor_info *t) {
    static const char *const ends[] = {".input_scale", ".input_global_scale", ".input_zero_point"};
    size_t base = 0;
    for (size_t i = 0; i < COUNT_OF(ends) && !base; i++) base = plan_ends(t->name, strlen(t->name), ends[i]);
    if (!base) return false;
    const tensor_info *data = matrix_named(a, t->name, base, "");
    if (!data) return true;
    const stored_matrix *m = &a->m[data - checkpoint_tensor(a->ck, 0)];
    int layer;
    const bool is_chosen = chosen(class_of_name(data->name, a->c, &layer), a->linears);
    return quantizer_for(m, a->q, is_chosen) || (is_chosen && a->q->format != m->format);
}

/* ---- pairs ---- */

/* The piece of the matrix NAME + end; NO_PAIR: there is none. */
static u64 piece_named(const planner *a, const char *name, size_t base, const char *end) {
    const tensor_info *t = base ? matrix_named(a, name, base, end) : NULL;
    return t ? a->piece[t - checkpoint_tensor(a->ck, 0)] : NO_PAIR;
}

/* What other engines make one matrix of, whose halves have one factor in their kernels. */
static void find_pair(quantize_plan *p, const planner *a, u64 i) {
    static const char *const pairs[][2] = {{".gate_proj", ".up_proj"}, {".q_a_proj", ".kv_a_proj_with_mqa"}};
    plan_piece *k = &p->pieces[i];
    if (!k->q || !k->q->shares_factor) return;
    for (size_t n = 0; n < COUNT_OF(pairs); n++) {
        const size_t base = plan_ends(k->m.data->name, (size_t)k->m.base, pairs[n][0]);
        const u64 at = piece_named(a, k->m.data->name, base, pairs[n][1]);
        if (at != NO_PAIR && p->pieces[at].q == k->q) k->pair = at, p->pieces[at].pair = i;
    }
}

/* What the inputs of an expert's down are made by. */
static void find_given(const planner *a, plan_piece *k) {
    if (k->expert < 0 || k->class != MC_DOWN || !k->m.base) return;
    const size_t base = plan_ends(k->m.data->name, (size_t)k->m.base, ".down_proj");
    k->given[0] = piece_named(a, k->m.data->name, base, ".gate_proj");
    k->given[1] = piece_named(a, k->m.data->name, base, ".up_proj");
}

/* ---- the whole ---- */

static int by_file(const void *pa, const void *pb) {
    const tensor_info *a = *(const tensor_info *const *)pa, *b = *(const tensor_info *const *)pb;
    if (a->shard != b->shard) return a->shard - b->shard;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    return strcmp(a->name, b->name); /* of no bytes */
}

/* All tensors in the order of their files; the matrices of each, of which the other tensors are parts. */
static status plan_all(quantize_plan *p, planner *a, const tensor_info **order, err *e) {
    stored_matrix *m = a->m;
    const tensor_info *all = checkpoint_tensor(a->ck, 0);
    const u64 n = checkpoint_n_tensors(a->ck);
    for (u64 i = 0; i < n; i++) {
        bool found;
        order[i] = &all[i], a->piece[i] = NO_PAIR;
        status st = stored_matrix_find(a->ck, &all[i], &m[i], &found, e);
        if (st != ST_OK) return st;
        if (!found) m[i].data = NULL;
        const tensor_info *parts[] = {m[i].scale, m[i].factor, m[i].shape, m[i].zeros};
        for (size_t k = 0; found && k < COUNT_OF(parts); k++)
            if (parts[k]) a->taken[parts[k] - all] = true;
    }
    qsort(order, n, sizeof *order, by_file);
    for (u64 i = 0; i < n; i++) {
        const u64 at = (u64)(order[i] - all);
        if (a->taken[at] || scale_is_left_out(a, order[i])) continue;
        if (m[at].data) a->piece[at] = p->n_pieces;
        status st = plan_tensor(p, a, order[i], m[at].data ? &m[at] : NULL, e);
        if (st != ST_OK) return st;
    }
    for (u64 i = 0; i < p->n_pieces; i++) find_pair(p, a, i), find_given(a, &p->pieces[i]);
    return ST_OK;
}

/* From places to names. */
static void settle_names(quantize_plan *p) {
    for (u64 i = 0; i < p->n_out; i++)
        if (!p->out[i].name) p->out[i].name = p->names.data + p->origins[i].name_at;
}

static status cut_into_shards(quantize_plan *p, u64 most, err *e) {
    p->shards = malloc((p->n_pieces + 1) * sizeof *p->shards);
    if (!p->shards) return err_nomem(e, "the shards", p->n_pieces * sizeof *p->shards);
    u64 held = 0;
    for (u64 i = 0; i < p->n_pieces; i++) {
        if (!i || held + p->pieces[i].bytes_out > most) p->shards[p->n_shards++] = i, held = 0;
        held += p->pieces[i].bytes_out;
    }
    p->shards[p->n_shards] = p->n_pieces;
    return ST_OK;
}

status quantize_plan_make(quantize_plan *p, const checkpoint *ck, const model_config *c, const quantizer *q,
                          bool linears, bool calibrated, u64 shard, err *e) {
    const u64 n = checkpoint_n_tensors(ck);
    *p = (quantize_plan){0};
    p->pieces = malloc((n + 1) * sizeof *p->pieces);
    p->out = malloc((n + 1) * PARTS_MOST * sizeof *p->out); /* pages that are not written take no memory */
    p->origins = malloc((n + 1) * PARTS_MOST * sizeof *p->origins);
    planner a = {.ck = ck, .c = c, .q = q, .linears = linears, .calibrated = calibrated};
    a.taken = calloc(n + 1, sizeof *a.taken);
    a.m = calloc(n + 1, sizeof *a.m);
    a.piece = malloc((n + 1) * sizeof *a.piece);
    const tensor_info **order = malloc((n + 1) * sizeof *order);
    bool have = p->pieces && p->out && p->origins && a.taken && a.m && a.piece && order;
    status st = have ? plan_all(p, &a, order, e) : err_nomem(e, "the plan", n * sizeof *a.m);
    if (st == ST_OK && p->names.failed) st = err_nomem(e, "the names of tensors", p->names.len);
    if (st == ST_OK) settle_names(p);
    if (st == ST_OK) st = cut_into_shards(p, shard, e);
    free(a.taken);
    free(a.m);
    free(a.piece);
    free(order);
    return st;
}

void quantize_plan_free(quantize_plan *p) {
    free(p->pieces);
    free(p->out);
    free(p->origins);
    free(p->shards);
    buf_free(&p->names);
    *p = (quantize_plan){0};
}
