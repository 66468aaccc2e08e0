/* cmd/check/check_gemm_shapes.c: matrix products in Kimi's own shapes, as they meet cuBLASLt, invariant.cu and the
 * choices of the table that comes along.
 *
 * ref computes the most rows once; fewer rows are the first of them. On a real GPU alone: 250 billion
 * multiplications. */
#include "cmd/check/check_gemm_shapes.h"
#include "cmd/check/check_mirror.h"
#include <math.h>
#include <stdio.h>

static const f64 shapes_F32_BOUND = 1e-5;
static const i64 counts[] = {4, 24, 40, 128, 500};
enum {
    MANY = 500,
    NOT_SO_MANY = 128,
    LARGE = 60000000, /* multiplications of a row: beyond that of NOT_SO_MANY rows */
    NOPE = 128,
    ROPE = 64,
    V_DIM = 128,
    LATENT = 512
};

static check_weight shapes_make_weight(check *c, const gemm_shape *s) {
    if (s->kind >= G_ABSORB) return check_kv_b(c, WF_BF16, s->rows, NOPE, V_DIM, LATENT);
    return check_matrix(c, WK_LINEAR, WF_BF16, s->rows, s->cols, 1.0f / sqrtf((f32)s->cols));
}

/* sum, norm: of G_ADD, whose product is added to the residual stream `sum`. */
typedef struct {
    const op_weight *w, *up, *norm;
    void *x, *y, *sum, *out;
    deferred_norm *deferred;
} operands;

static void call(const ops *o, const gemm_shape *s, const operands *p, i64 n, dtype t) {
    linear_args l = {p->w, p->x, p->y, n, s->cols, s->rows, t};
    norm_args norm = {p->norm, p->sum, p->y, p->sum, p->out, n, s->rows, s->rows, s->rows, 1e-6f, NULL, 0};
    if (s->kind == G_SWIGLU)
        o->swiglu(o, &(swiglu_args){p->w, p->up, p->x, p->y, n, s->cols, s->rows});
    else if (s->kind == G_ABSORB)
        o->absorb_q(o, &(absorb_q_args){p->w, p->x, p->y, n, s->rows, NOPE, ROPE, LATENT});
    else if (s->kind == G_UNABSORB)
        o->unabsorb_v(o, &(unabsorb_v_args){p->w, p->x, p->y, n, s->rows, LATENT, V_DIM});
    else if (s->kind == G_ADD)
        fused_linear_norm(o, &(linear_norm_args){.linear = l, .norm = norm, .deferred = p->deferred});
    else
        o->linear(o, &l);
}

/* The first n rows on the GPU, against ref's results in want. */
static void first_rows(check *c, const gemm_case *k, const operands *weights, const operands *want, check_act x,
                       const bf16 *sum, i64 n) {
    i64 width = k->y_width;
    bool add = k->s->kind == G_ADD;
    dtype t = k->wide ? DT_F32 : DT_BF16;
    char what[80];
    deferred_norm deferred = {.squares = check_alloc(c, (u64)DEFERRED_ROWS * DEFERRED_PARTS * 4)};
    operands p = *weights;
    p.x = x.h, p.y = check_alloc(c, (u64)(n * width) * dtype_size(t));
    if (add)
        p.sum = check_copy(c, sum, (u64)(n * width) * 2), p.out = check_output(c, n * width).h, p.deferred = &deferred;
    call(c->dev, k->s, &p, n, t);
    snprintf(what, sizeof what, "%s, %lld rows", k->s->name, (long long)n);
    check_compare(c, what, add ? p.sum : p.y, t, add ? want->sum : want->y, n, width, width,
                  k->wide ? shapes_F32_BOUND : CHECK_BF16_BOUND);
    if (add && !deferred.parts) check_compare(c, what, p.out, t, want->out, n, width, width, CHECK_BF16_BOUND);
}

static void shape_case(check *c, const gemm_shape *s) {
    gemm_case k = {.s = s, .n = MANY};
    gemm_case_sizes(&k, 0);
    if (k.work > LARGE) k.n = NOT_SO_MANY;
    bool add = s->kind == G_ADD;
    check_weight w = shapes_make_weight(c, s), up = {0}, norm = {0};
    if (s->kind == G_SWIGLU) up = shapes_make_weight(c, s);
    if (add) norm = check_matrix(c, WK_VECTOR, WF_BF16, 1, s->rows, 1.0f);
    check_act x = check_input(c, k.n * k.x_width, 1.0f), sum = {0};
    if (add) sum = check_input(c, k.n * k.y_width, 2.0f);
    bf16 *before = sum.h;
    operands dev = {.w = w.dev, .up = up.dev, .norm = norm.dev}, ref = {.w = w.ref, .up = up.ref, .norm = norm.ref};
    ref.x = x.f, ref.sum = sum.f;
    ref.y = check_output(c, k.n * k.y_width).f, ref.out = add ? check_output(c, k.n * k.y_width).f : NULL;
    call(c->ref, s, &ref, k.n, DT_F32);
    for (size_t i = 0; i < COUNT_OF(counts) && counts[i] <= k.n; i++)
        first_rows(c, &k, &dev, &ref, x, before, counts[i]);
    check_case_end(c);
}

void check_gemm_shapes(check *c, gemm_kind kind) {
    if (!check_on_gpu(c)) return;
    check_tuned(true);
    for (int i = 0; i < GEMM_KIMI; i++) /* but the head: bench and check --large have that */
        if (gemm_kimi[i].kind == kind && gemm_kimi[i].rows < 20480) shape_case(c, &gemm_kimi[i]);
    check_tuned(false);
}
