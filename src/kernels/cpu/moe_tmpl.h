/* kernels/cpu/moe_tmpl.h: routed experts in any weight format, bf16 activations in both products. Those with int8
 * activations are taken by moe_in_int8(), which each level has in front of this.
 *
 * First silu(gate x) * (up x) for every pair, rounded to bf16; then, MOE_OUT columns of the output at a time,
 * the down product of every pair and the weighted sum over a token's slots in order. */
#include "kernels/cpu/moe_sort.h"

enum { PAIRS = 64 }; /* pairs of an expert at a time */

static u64 moe_workspace(const ops *o, const moe_args *a) {
    const u64 bytes = moe_in_int8_workspace(o, a);
    return bytes ? bytes : moe_plan_bytes(a, 0, (u64)a->experts->views[0].rows * sizeof(bf16));
}

/* WB columns of h from row `row` for all pairs of expert e. */
static void moe_up(const moe_args *a, const moe_plan *p, i64 e, i64 row, f32 *buf) {
    const weight_view *w = &a->experts->views[3 * e];
    i64 nw = min_i64(WB, p->inter - row);
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += PAIRS) {
        i64 np = min_i64(PAIRS, p->first[e + 1] - at);
        const void *x[PAIRS];
        f32 g[PAIRS * WB] = {0}, u[PAIRS * WB] = {0};
        for (i64 i = 0; i < np; i++) x[i] = (const bf16 *)a->x + p->token[at + i] * p->hidden;
        block_product(&w[0], row, nw, x, np, g, buf);
        block_product(&w[1], row, nw, x, np, u, buf);
        for (i64 i = 0; i < np; i++) {
            for (i64 c = 0; c < WB; c += VL)
                vf_store(g + i * WB + c, silu_mul(vf_load(g + i * WB + c), vf_load(u + i * WB + c)));
            store_act(p->h, DT_BF16, (at + i) * p->inter + row, g + i * WB, nw);
        }
    }
}

/* y[pairs, MOE_OUT]: down products of expert e for output columns [col, col + n). */
static void moe_down(const moe_args *a, const moe_plan *p, i64 e, i64 col, i64 n, f32 *y, f32 *buf) {
    for (i64 at = p->first[e]; at < p->first[e + 1]; at += PAIRS) {
        i64 np = min_i64(PAIRS, p->first[e + 1] - at);
        const void *x[PAIRS];
        f32 part[PAIRS * WB];
        row_pointers(p->h, p->inter, at, np, x);
        for (i64 j = 0; j < n; j += WB) {
            i64 nw = min_i64(WB, n - j);
            block_product(&a->experts->views[3 * e + 2], col + j, nw, x, np, part, buf);
            for (i64 i = 0; i < np; i++) memcpy(y + (at + i) * MOE_OUT + j, part + i * WB, (size_t)nw * sizeof *y);
        }
    }
}

/* out[:, col..col + n) = sum over slots of weight * y, then the shared expert. */
static void moe_combine(const moe_args *a, const moe_plan *p, i64 col, i64 n, const f32 *y) {
    for (i64 i = 0; i < a->n; i++) {
        f32 sum[MOE_OUT] = {0};
        for (i64 s = 0; s < a->k; s++) {
            i64 pair = p->pair[i * a->k + s];
            if (pair < 0) continue;
            vf weight = vf_set(a->weights[i * a->k + s]);
            for (i64 c = 0; c < MOE_OUT; c += VL)
                vf_store(sum + c, vf_fma(weight, vf_load(y + pair * MOE_OUT + c), vf_load(sum + c)));
        }
        if (a->shared)
            for (i64 c = 0; c < n; c++) sum[c] += bf16_to_f32(((const bf16 *)a->shared)[i * p->hidden + col + c]);
        store_act(a->out, DT_BF16, i * p->hidden + col, sum, n);
    }
}

static void sum_pairs(const ops *o, const sum_pairs_args *a) {
    (void)o;
    team tm = team_begin(a->n * (a->k + 1) * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        for (i64 col = 0; col < a->dim; col += MOE_OUT) {
            const i64 n = min_i64(MOE_OUT, a->dim - col);
            f32 sum[MOE_OUT] = {0};
            for (i64 s = i * a->k; s < (i + 1) * a->k; s++)
                for (i64 c = 0; c < n; c++)
                    sum[c] += a->weights[s] * bf16_to_f32(((const bf16 *)a->y)[s * a->dim + col + c]);
            for (i64 c = 0; c < n && a->shared; c++)
                sum[c] += bf16_to_f32(((const bf16 *)a->shared)[i * a->dim + col + c]);
            store_act(a->out, DT_BF16, i * a->dim + col, sum, n);
        }
    team_end(&tm);
}

static void moe(const ops *o, const moe_args *a) {
    weight_format f = a->experts->views[0].format;
    if (moe_in_int8(o, a)) return;
    if (f != WF_BF16 && !weight_is_fp8(f))
        log_once(weight_format_name(f),
                 "%s: experts in %s have no fast path here; each row is expanded to float32 as it is used", o->name,
                 weight_format_name(f));
    moe_plan p;
    moe_plan_make(&p, a, 0, (u64)a->experts->views[0].rows * sizeof(bf16));
    i64 blocks = ceil_div(p.inter, WB);
    const i64 together = moe_items_together(p.n_touched * blocks);
    team tm = team_begin(3 * a->n * a->k * p.inter * p.hidden);
#pragma omp parallel num_threads(tm.threads)
    {
        f32 buf[CPU_EXPAND_MAX];
        f32 *y = moe_plan_y(&p, a);
#pragma omp for schedule(dynamic, together)
        for (i64 it = 0; it < p.n_touched * blocks; it++) moe_up(a, &p, p.touched[it / blocks], it % blocks * WB, buf);
#pragma omp for schedule(dynamic)
        for (i64 col = 0; col < p.hidden; col += MOE_OUT) {
            i64 n = min_i64(MOE_OUT, p.hidden - col);
            for (i64 t = 0; t < p.n_touched; t++) moe_down(a, &p, p.touched[t], col, n, y, buf);
            moe_combine(a, &p, col, n, y);
        }
    }
    team_end(&tm);
}
