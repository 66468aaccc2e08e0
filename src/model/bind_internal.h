/* model/bind_internal.h: how the weights of a model (bind_model.c) and of a draft (bind_draft.c) are bound, one after
 * the other. */
#ifndef MODEL_BIND_INTERNAL_H
#define MODEL_BIND_INTERNAL_H
#include "base/log.h"
#include "model/bind.h"

typedef struct {
    const model_config *c;
    const checkpoint *ck; /* NULL: dummy weights */
    const ops *o;
    weight_reader *reader; /* NULL: data are where the checkpoint is mapped */
    bool verify;
    model_weights *weights;
    const draft_config *draft; /* bind_draft.c alone, as the two below; else NULL */
    draft_weights *draft_weights;
    const tensor_info *embedding;       /* the model's */
    const struct vision_config *vision; /* bind_vision.c alone, as the next */
    struct vision_weights *vision_weights;
    weight_cut *passing; /* columns that a backend has copied, or will in a moment */
    weight_memory *room; /* NULL, or a plan: names, types and shapes are checked, no data is looked at */
    bool *used;          /* NULL, or [tensors of ck]: those that a plan has found a use for */
    err *e;
    u64 seed; /* of the last dummy weight */
    u64 done; /* bytes prepared */
    progress shown;
} binder;

/* What a rank holds of a matrix [rows, cols]: all, so many rows from row `at` on, or so many columns. */
typedef struct {
    i64 rows, cols; /* of all of it */
    enum { CUT_NOTHING, CUT_ROWS, CUT_COLS } cut;
    i64 at, n;
    const i64 *shape; /* how the tensor lies on disk, if not as [rows, cols]: n_dims numbers whose product is theirs */
    int n_dims;
} matrix_share;

static inline matrix_share whole_matrix(i64 rows, i64 cols) { return (matrix_share){.rows = rows, .cols = cols}; }
/* Equal shares, `each` rows or columns of which are this rank's. */
static inline matrix_share row_share(const binder *b, i64 each, i64 cols) {
    const model_config *c = b->c;
    return (matrix_share){c->ranks * each, cols, c->ranks > 1 ? CUT_ROWS : CUT_NOTHING, c->rank * each, each, NULL, 0};
}
static inline matrix_share col_share(const binder *b, i64 rows, i64 each) {
    const model_config *c = b->c;
    return (matrix_share){rows, c->ranks * each, c->ranks > 1 ? CUT_COLS : CUT_NOTHING, c->rank * each, each, NULL, 0};
}
/* Of attention: whole where every rank has all heads. */
static inline matrix_share head_rows(const binder *b, i64 rows, i64 cols) {
    return b->c->whole_attention ? whole_matrix(rows, cols) : row_share(b, rows, cols);
}
static inline matrix_share head_cols(const binder *b, i64 rows, i64 cols) {
    return b->c->whole_attention ? whole_matrix(rows, cols) : col_share(b, rows, cols);
}
static inline matrix_share vocab_share(const binder *b) {
    const model_config *c = b->c;
    return (matrix_share){c->vocab, c->hidden, c->ranks > 1 ? CUT_ROWS : CUT_NOTHING, c->vocab_first, c->vocab_held,
                          NULL,     0};
}

/* The matrix NAME.*, this rank's share `m` of it, and the vector NAME [n], prepared for the backend in *out; NAME gets
 * the config's prefix. Errors are b->e, with the name. */
status bind_linear(binder *b, op_weight **out, weight_kind kind, matrix_share m, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
status bind_vector(binder *b, op_weight **out, i64 n, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The tensor `name` with exactly this shape. NULL and b->e on failure. */
const tensor_info *bind_find(const binder *b, const char *name, const i64 *shape, int n);
status bind_type_error(const binder *b, const tensor_info *t, const char *want);
/* All of a layer's routed experts, 3 views each. */
status bind_experts(binder *b, op_weight **out, int layer);
/* gate, up and down of a dense feed-forward layer of which this rank has `inter` columns: NAMEgate_proj and so on. */
status bind_mlp(binder *b, layer_weights *w, i64 inter, const char *name);

/* Binds all that `all` binds, in its order: a plan, or data, with a progress line up to `bytes`. */
typedef status (*bind_fn)(binder *b);
status bind_weights(binder *b, bind_fn all, u64 bytes);

#define BIND_TRY(call)                                                                                                 \
    do {                                                                                                               \
        status st_ = (call);                                                                                           \
        if (st_ != ST_OK) return st_;                                                                                  \
    } while (0)

#endif
