/* kernels/ref/attention.c: multi-head latent attention, absorbed (decode) and expanded (prefill).
 *
 * Both walk the KV cache in tiles of one page (positions at absolute multiples of KV_PAGE) and keep a running
 * maximum, so that memory does not grow with the context (Milakov and Gimelshein 2018, arXiv:1805.02867) and
 * the order of a row's sums depends only on its own position. */
#include "kernels/ref/ref.h"
#include <math.h>

void ref_running_add(ref_running *r, f32 *o, const f32 *score, i64 n, const f32 *v, i64 v_stride, i64 dim) {
    f32 m = r->m;
    for (i64 j = 0; j < n; j++)
        if (score[j] > m || isnan(score[j])) m = score[j];
    f32 shrink = r->l > 0 ? expf(r->m - m) : 0.0f;
    r->l *= shrink;
    for (i64 k = 0; k < dim; k++) o[k] *= shrink;
    for (i64 j = 0; j < n; j++) {
        f32 p = expf(score[j] - m);
        r->l += p;
        for (i64 k = 0; k < dim; k++) o[k] += p * v[j * v_stride + k];
    }
    r->m = m;
}

void ref_running_start(ref_running *r, f32 *o, i64 dim) {
    *r = (ref_running){-INFINITY, 0};
    memset(o, 0, (size_t)dim * sizeof *o);
}

void ref_running_end(const ref_running *r, f32 *o, i64 dim) {
    for (i64 k = 0; k < dim; k++) o[k] /= r->l;
}

/* Page `page` of the pool, its first n rows, as float32 [n, width]. */
static void load_page(const void *kv, dtype t, i64 page, i64 n, i64 width, f32 *out) {
    ref_kv_get(kv, t, page * KV_PAGE * width, n * width, out);
}

/* Row r of kv_b belongs to head h = r / (nope + v_dim): first nope key rows, then v_dim value rows. */
void ref_absorb_q(const ops *o, const absorb_q_args *a) {
    (void)o;
    const weight_view *w = &a->kv_b->views[0];
    i64 head = a->nope + a->rope, width = a->latent + a->rope, rows = a->kv_b->nope + a->kv_b->v_dim;
    team tm = team_begin(a->n * a->n_heads * a->nope * a->latent);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 h = 0; h < a->n_heads; h++) {
        f32 piece[REF_PIECE];
        for (i64 i = 0; i < a->n; i++) {
            f32 *out = (f32 *)a->out + (i * a->n_heads + h) * width;
            memset(out, 0, (size_t)a->latent * sizeof *out);
            memcpy(out + a->latent, (const f32 *)a->q + (i * a->n_heads + h) * head + a->nope,
                   (size_t)a->rope * sizeof *out);
        }
        for (i64 d = 0; d < a->nope; d++)
            for (i64 c = 0; c < a->latent; c += REF_PIECE) {
                i64 n = min_i64(REF_PIECE, a->latent - c);
                weight_cols_f32(w, h * rows + d, c, n, piece);
                for (i64 i = 0; i < a->n; i++) {
                    f32 qd = ((const f32 *)a->q)[(i * a->n_heads + h) * head + d];
                    f32 *out = (f32 *)a->out + (i * a->n_heads + h) * width + c;
                    for (i64 k = 0; k < n; k++) out[k] += qd * piece[k];
                }
            }
    }
    team_end(&tm);
}

void ref_unabsorb_v(const ops *o, const unabsorb_v_args *a) {
    (void)o;
    const weight_view *w = &a->kv_b->views[0];
    i64 rows = a->kv_b->nope + a->kv_b->v_dim;
    team tm = team_begin(a->n * a->n_heads * a->v_dim * a->latent);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 r = 0; r < a->n_heads * a->v_dim; r++) {
        i64 h = r / a->v_dim, d = r % a->v_dim;
        ref_matmul_row(w, h * rows + a->kv_b->nope + d, (const f32 *)a->x + h * a->latent, a->n_heads * a->latent, a->n,
                       (f32 *)a->out + r, a->n_heads * a->v_dim);
    }
    team_end(&tm);
}

/* Workspace of decode: a row of the call has a page in float32, and m and l of every head. */
static u64 ref_decode_space(const mla_decode_args *a) {
    return (u64)KV_PAGE * (u64)(a->latent + a->rope) * sizeof(f32) + (u64)a->n_heads * sizeof(ref_running);
}

u64 ref_mla_decode_workspace(const ops *o, const mla_decode_args *a) {
    (void)o;
    return (u64)(a->n + 1) * ref_decode_space(a);
}

/* Scores of head h of row i against the n tokens of a page, and their sum into its output. */
static void decode_tile(const mla_decode_args *a, i64 i, i64 h, const f32 *page, i64 n, ref_running *r) {
    const i64 width = a->latent + a->rope;
    const f32 *q = (const f32 *)a->q + (i * a->n_heads + h) * width;
    f32 score[KV_PAGE];
    for (i64 j = 0; j < n; j++) score[j] = a->scale * ref_dot(q, page + j * width, width);
    ref_running_add(r, (f32 *)a->out + (i * a->n_heads + h) * a->latent, score, n, page, width, a->latent);
}

static void decode_row(const mla_decode_args *a, i64 i) {
    const i64 width = a->latent + a->rope;
    f32 *page = (f32 *)((char *)a->workspace + (u64)i * ref_decode_space(a)),
        *out = (f32 *)a->out + i * a->n_heads * a->latent;
    ref_running *r = (ref_running *)(page + KV_PAGE * width);
    for (i64 h = 0; h < a->n_heads; h++) ref_running_start(&r[h], out + h * a->latent, a->latent);
    for (i64 t = 0; t < a->kv_len[i]; t += KV_PAGE) {
        const i64 n = min_i64(KV_PAGE, a->kv_len[i] - t);
        load_page(a->kv, a->kv_type, a->pages[i * a->pages_stride + t / KV_PAGE], n, width, page);
        for (i64 h = 0; h < a->n_heads; h++) decode_tile(a, i, h, page, n, &r[h]);
    }
    for (i64 h = 0; h < a->n_heads; h++) {
        if (a->lse) a->lse[i * a->n_heads + h] = r[h].m + logf(r[h].l); /* of no token: -infinity */
        if (a->kv_len[i]) ref_running_end(&r[h], out + h * a->latent, a->latent);
    }
}

void ref_mla_decode(const ops *o, const mla_decode_args *a) {
    (void)o;
    i64 tokens = 0;
    for (i64 i = 0; i < a->n; i++) tokens += a->kv_len[i];
    team tm = team_begin(tokens * a->n_heads * (2 * a->latent + a->rope));
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) decode_row(a, i);
    team_end(&tm);
}

/* Workspace of prefill: a page, its expansion to keys and values of all heads, and m, l of every row and
 * head. */
typedef struct {
    f32 *page;          /* [KV_PAGE, latent + rope] */
    f32 *expanded;      /* [KV_PAGE, H, nope + v_dim] */
    ref_running *state; /* [n, H] */
} prefill_space;

static u64 ref_prefill_layout(const mla_prefill_args *a, prefill_space *p) {
    u64 page = (u64)KV_PAGE * (u64)(a->latent + a->rope),
        expanded = (u64)KV_PAGE * (u64)(a->n_heads * (a->nope + a->v_dim));
    p->page = a->workspace;
    p->expanded = p->page ? p->page + page : NULL;
    p->state = p->page ? (ref_running *)(p->expanded + expanded) : NULL;
    return (page + expanded) * sizeof(f32) + (u64)(a->n * a->n_heads) * sizeof(ref_running);
}

u64 ref_mla_prefill_workspace(const ops *o, const mla_prefill_args *a) {
    (void)o;
    prefill_space p;
    mla_prefill_args sizes = *a;
    sizes.workspace = NULL;
    return ref_prefill_layout(&sizes, &p);
}

/* Scores of row i, head h against the tile that starts at position t, and their sum into out. */
static void prefill_tile(const mla_prefill_args *a, const prefill_space *p, i64 i, i64 h, i64 t, i64 n) {
    i64 width = a->latent + a->rope, rows = a->nope + a->v_dim, all = a->n_heads * rows;
    const f32 *q = (const f32 *)a->q + (i * a->n_heads + h) * (a->nope + a->rope);
    f32 *out = (f32 *)a->out + (i * a->n_heads + h) * a->v_dim, score[KV_PAGE];
    n = min_i64(n, a->pos0 + i + 1 - t); /* causal */
    if (n <= 0) return;
    for (i64 j = 0; j < n; j++)
        score[j] = a->scale * (ref_dot(q, p->expanded + j * all + h * rows, a->nope) +
                               ref_dot(q + a->nope, p->page + j * width + a->latent, a->rope));
    ref_running_add(&p->state[i * a->n_heads + h], out, score, n, p->expanded + h * rows + a->nope, all, a->v_dim);
}

void ref_mla_prefill(const ops *o, const mla_prefill_args *a) {
    (void)o;
    prefill_space p;
    ref_prefill_layout(a, &p);
    i64 width = a->latent + a->rope, all = a->n_heads * (a->nope + a->v_dim), cells = a->n * a->n_heads;
    for (i64 c = 0; c < cells; c++) ref_running_start(&p.state[c], (f32 *)a->out + c * a->v_dim, a->v_dim);
    for (i64 t = 0; t < a->pos0 + a->n; t += KV_PAGE) {
        i64 n = min_i64(KV_PAGE, a->pos0 + a->n - t);
        load_page(a->kv, a->kv_type, a->pages[t / KV_PAGE], n, width, p.page);
        ref_matmul(&a->kv_b->views[0], p.page, width, n, p.expanded, all);
        team tm = team_begin(cells * n * (a->nope + a->v_dim));
#pragma omp parallel for schedule(static) num_threads(tm.threads)
        for (i64 c = 0; c < cells; c++) prefill_tile(a, &p, c / a->n_heads, c % a->n_heads, t, n);
        team_end(&tm);
    }
    for (i64 c = 0; c < cells; c++) ref_running_end(&p.state[c], (f32 *)a->out + c * a->v_dim, a->v_dim);
}
