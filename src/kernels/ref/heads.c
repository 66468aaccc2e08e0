/* kernels/ref/heads.c: attention with keys and values for every KV head, of a Llama-type draft: its KV rows, and
 * decoding. Tiles and the running maximum are those of attention.c. */
#include "kernels/ref/ref.h"

/* Element c of x [dim], rotated by halves: the pair (j, j + dim / 2) turns by the angle of cs[2j], cs[2j + 1]. */
static f32 rotated(const f32 *x, const f32 *cs, i64 dim, i64 c) {
    const i64 half = dim / 2, j = c % half;
    return c < half ? x[j] * cs[2 * j] - x[j + half] * cs[2 * j + 1] : x[j] * cs[2 * j + 1] + x[j + half] * cs[2 * j];
}

void ref_heads_write(const ops *o, const heads_write_args *a) {
    (void)o;
    const i64 row = a->kv_heads * a->dim;
    team tm = team_begin(32 * a->n * row);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        if (a->slots[i] < 0) continue;
        const f32 *cs = a->table + i * a->dim, *v = (const f32 *)a->v + i * row;
        const i64 at = a->slots[i] * 2 * row;
        for (i64 c = 0; c < row; c++) {
            const f32 *k = (const f32 *)a->k + i * row + c / a->dim * a->dim;
            ref_kv_set(a->kv, a->kv_type, at + c, rotated(k, cs, a->dim, c % a->dim));
            ref_kv_set(a->kv, a->kv_type, at + row + c, v[c]);
        }
    }
    team_end(&tm);
}

/* Workspace of a row: a head's query, rotated, and the keys and values of a page for its KV head, float32. */
static i64 row_space(const heads_decode_args *a) { return (1 + 2 * KV_PAGE) * a->dim; }

u64 ref_heads_decode_workspace(const ops *o, const heads_decode_args *a) {
    (void)o;
    return (u64)(a->n + 1) * (u64)row_space(a) * sizeof(f32);
}

/* n tokens of KV head g in page `page`: their keys and values as float32 [n, dim]. */
static void load_head(const heads_decode_args *a, i64 page, i64 g, i64 n, f32 *key, f32 *value) {
    const i64 row = a->kv_heads * a->dim;
    for (i64 j = 0; j < n; j++) {
        const i64 at = (page * KV_PAGE + j) * 2 * row + g * a->dim;
        ref_kv_get(a->kv, a->kv_type, at, a->dim, key + j * a->dim);
        ref_kv_get(a->kv, a->kv_type, at + row, a->dim, value + j * a->dim);
    }
}

static void decode_head(const heads_decode_args *a, i64 i, i64 h, f32 *q) {
    const i64 at = (i * a->n_heads + h) * a->dim, g = h / (a->n_heads / a->kv_heads);
    f32 *key = q + a->dim, *value = key + KV_PAGE * a->dim, *out = (f32 *)a->out + at, score[KV_PAGE];
    ref_running r;
    for (i64 c = 0; c < a->dim; c++) q[c] = rotated((const f32 *)a->q + at, a->table + i * a->dim, a->dim, c);
    ref_running_start(&r, out, a->dim);
    for (i64 t = 0; t < a->kv_len[i]; t += KV_PAGE) {
        const i64 n = min_i64(KV_PAGE, a->kv_len[i] - t);
        load_head(a, a->pages[i * a->pages_stride + t / KV_PAGE], g, n, key, value);
        for (i64 j = 0; j < n; j++) score[j] = a->scale * ref_dot(q, key + j * a->dim, a->dim);
        ref_running_add(&r, out, score, n, value, a->dim, a->dim);
    }
    ref_running_end(&r, out, a->dim);
}

void ref_heads_decode(const ops *o, const heads_decode_args *a) {
    (void)o;
    i64 tokens = 0;
    for (i64 i = 0; i < a->n; i++) tokens += a->kv_len[i];
    team tm = team_begin(tokens * a->n_heads * 2 * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        for (i64 h = 0; h < a->n_heads; h++) decode_head(a, i, h, (f32 *)a->workspace + i * row_space(a));
    team_end(&tm);
}
