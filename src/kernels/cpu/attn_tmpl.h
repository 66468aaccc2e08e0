/* kernels/cpu/attn_tmpl.h: multi-head latent attention over the paged KV cache.
 *
 * Tiles are pages, at absolute multiples of KV_PAGE, with a running maximum updated once a tile (Milakov and
 * Gimelshein 2018, arXiv:1805.02867), so the order of a row's sums depends on its own position alone. Values
 * at positions that a row may not see are never multiplied: a NaN there does not reach it. */
enum { HEADS = 4, QROWS = 4 }; /* heads of a decode item, query rows of a prefill step */

/* s[0, KV_PAGE) times scale; returns the largest of them and `top`, or NaN when one is NaN. */
static f32 scale_and_max(f32 *s, f32 scale, f32 top) {
    vf best = vf_set(top);
    bool nan = false;
    for (i64 c = 0; c < KV_PAGE; c += VL) {
        const vf v = vf_mul(vf_load(s + c), vf_set(scale));
        vf_store(s + c, v);
        best = vf_larger(v, best);
        nan |= vf_any_nan(v);
    }
    if (nan) return NAN;
    f32 lanes[VL];
    vf_store(lanes, best);
    for (int l = 0; l < VL; l++) top = lanes[l] > top ? lanes[l] : top;
    return top;
}

/* Scores of one row against m tokens (others 0 after it) become probabilities; returns the factor for what
 * was summed before. */
static f32 softmax_step(f32 *s, i64 m, f32 scale, f32 *max, f32 *sum) {
    for (i64 j = m; j < KV_PAGE; j++) s[j] = -INFINITY;
    f32 top = scale_and_max(s, scale, *max);
    for (i64 j = m; j < KV_PAGE; j++) s[j] = top;
    vf total = vf_zero();
    for (i64 c = 0; c < KV_PAGE; c += VL) vf_store(s + c, vf_exp(vf_sub(vf_load(s + c), vf_set(top))));
    for (i64 j = m; j < KV_PAGE; j++) s[j] = 0;
    for (i64 c = 0; c < KV_PAGE; c += VL) total = vf_add(total, vf_load(s + c));
    f32 shrink[VL];
    vf_store(shrink, vf_exp(vf_set(*max - top)));
    if (*max == -INFINITY && top != -INFINITY) shrink[0] = 0;
    *sum = *sum * shrink[0] + vf_sum(total);
    *max = top;
    return shrink[0];
}

INLINE void scale_f32(f32 *v, i64 n, f32 by) {
    if (by == 1.0f) return;
    i64 c = 0;
    for (; c + VL <= n; c += VL) vf_store(v + c, vf_mul(vf_load(v + c), vf_set(by)));
    for (; c < n; c++) v[c] *= by;
}

/* The first n tokens of a page as a matrix [n, width]: in place, or FP8 widened to bf16 (exact) in buf. */
static mat page_mat(const void *kv, dtype t, i64 page, i64 n, i64 width, bf16 *buf) {
    i64 at = page * KV_PAGE * width;
    if (t == DT_F32) return (mat){(const f32 *)kv + at, width, true};
    if (t == DT_BF16) return (mat){(const bf16 *)kv + at, width, false};
    const u8 *p = (const u8 *)kv + at;
    i64 c = 0, all = n * width;
    for (; c + VL <= all; c += VL) vf_store_bf16(buf + c, vf_fp8(p + c));
    for (; c < all; c++) buf[c] = f32_to_bf16(f8_e4m3_to_f32(p[c]));
    return (mat){buf, width, false};
}

/* Workspace of a thread: acc float32 [HEADS, latent], one page in bf16. */
INLINE u64 decode_space(const mla_decode_args *a) {
    return cpu_round64((u64)(HEADS * a->latent) * sizeof(f32)) +
           cpu_round64((u64)(KV_PAGE * (a->latent + a->rope)) * sizeof(bf16));
}

static u64 mla_decode_workspace(const ops *o, const mla_decode_args *a) {
    (void)o;
    return decode_space(a) * (u64)team_max();
}

/* Up to HEADS queries: `heads` heads from h0 on of `rows` rows of one sequence from `row` on. */
typedef struct {
    i64 row, rows, h0, heads;
    const void *q[HEADS]; /* a row's heads one after the other */
    f32 max[HEADS], sum[HEADS], *acc;
} decode_queries;

/* Queries [from, from + n) against the first m tokens of a page. */
static void decode_page(const mla_decode_args *a, decode_queries *d, i64 from, i64 n, mat page, i64 m) {
    f32 s[HEADS * KV_PAGE], *acc = d->acc + from * a->latent;
    dot(d->q + from, false, n, page, m, a->latent + a->rope, s, KV_PAGE);
    for (i64 k = 0; k < n; k++)
        scale_f32(acc + k * a->latent, a->latent,
                  softmax_step(s + k * KV_PAGE, m, a->scale, &d->max[from + k], &d->sum[from + k]));
    axpy(s, KV_PAGE, n, page, m, acc, a->latent, a->latent);
}

/* Do all rows see the whole page from token t on, and is it the same one? */
static bool decode_shares(const mla_decode_args *a, const decode_queries *d, i64 t) {
    const i32 page = a->pages[d->row * a->pages_stride + t / KV_PAGE];
    for (i64 r = d->row; r < d->row + d->rows; r++)
        if (a->kv_len[r] < t + KV_PAGE || a->pages[r * a->pages_stride + t / KV_PAGE] != page) return false;
    return true;
}

static void decode_store(const mla_decode_args *a, const decode_queries *d, i64 k) {
    const i64 row = d->row + k / d->heads, at = row * a->n_heads + d->h0 + k % d->heads;
    f32 *acc = d->acc + k * a->latent;
    if (a->lse) a->lse[at] = d->max[k] + logf(d->sum[k]); /* of no token: -infinity */
    if (!a->kv_len[row]) return;
    for (i64 c = 0; c < a->latent; c++) acc[c] /= d->sum[k];
    store_act(a->out, DT_BF16, at * a->latent, acc, a->latent);
}

/* Rows of a sequence read a page together where they can: the sums of each are the same as alone. */
static void decode_item(const mla_decode_args *a, decode_queries *d, bf16 *buf) {
    const i64 width = a->latent + a->rope, n = d->rows * d->heads;
    i64 most = 0;
    for (i64 k = 0; k < n; k++) {
        const i64 row = d->row + k / d->heads;
        d->q[k] = (const bf16 *)a->q + (row * a->n_heads + d->h0 + k % d->heads) * width;
        d->max[k] = -INFINITY, d->sum[k] = 0;
        most = max_i64(most, a->kv_len[row]);
    }
    memset(d->acc, 0, (size_t)(n * a->latent) * sizeof *d->acc);
    for (i64 t = 0; t < most; t += KV_PAGE) {
        const bool all = decode_shares(a, d, t);
        for (i64 r = 0; r < (all ? 1 : d->rows); r++) {
            const i64 row = d->row + r, m = min_i64(KV_PAGE, a->kv_len[row] - t);
            if (m <= 0) continue;
            const mat page = page_mat(a->kv, a->kv_type, a->pages[row * a->pages_stride + t / KV_PAGE], m, width, buf);
            decode_page(a, d, r * d->heads, all ? n : d->heads, page, m);
        }
    }
    for (i64 k = 0; k < n; k++) decode_store(a, d, k);
}

static void mla_decode(const ops *o, const mla_decode_args *a) {
    (void)o;
    const i64 chunks = ceil_div(a->n_heads, HEADS), group = max_i64(1, a->group),
              rows = max_i64(1, min_i64(group, HEADS / a->n_heads)), parts = ceil_div(group, rows),
              items = a->n / group * parts * chunks;
    u64 space = decode_space(a);
    i64 tokens = 0;
    for (i64 i = 0; i < a->n; i++) tokens += a->kv_len[i];
    team tm = team_begin(tokens * a->n_heads * (2 * a->latent + a->rope));
#pragma omp parallel for schedule(dynamic) num_threads(tm.threads)
    for (i64 it = 0; it < items; it++) {
        u8 *mine = (u8 *)a->workspace + (u64)cpu_thread() * space;
        bf16 *buf = (bf16 *)(mine + cpu_round64((u64)(HEADS * a->latent) * sizeof(f32)));
        const i64 h0 = it % chunks * HEADS, part = it / chunks % parts * rows;
        decode_queries d = {.row = it / chunks / parts * group + part,
                            .rows = min_i64(rows, group - part),
                            .h0 = h0,
                            .heads = min_i64(HEADS, a->n_heads - h0),
                            .acc = (f32 *)mine};
        decode_item(a, &d, buf);
    }
    team_end(&tm);
}

/* Workspace of a thread: keys [KV_PAGE, nope + rope] and values [KV_PAGE, v_dim] of one head, the rows' sums
 * [n, v_dim] and their max and sum [n, 2], all float32; one page in bf16. */
typedef struct {
    f32 *key, *value, *acc, *state;
    bf16 *page;
} prefill_mem;

INLINE u64 prefill_space(const mla_prefill_args *a, u8 *at, prefill_mem *m) {
    u64 key = cpu_round64((u64)(KV_PAGE * (a->nope + a->rope)) * 4), value = cpu_round64((u64)(KV_PAGE * a->v_dim) * 4),
        acc = cpu_round64((u64)(a->n * a->v_dim) * 4), state = cpu_round64((u64)a->n * 8),
        page = cpu_round64((u64)(KV_PAGE * (a->latent + a->rope)) * sizeof(bf16));
    if (m) {
        m->key = (f32 *)at;
        m->value = (f32 *)(at + key);
        m->acc = (f32 *)(at + key + value);
        m->state = (f32 *)(at + key + value + acc);
        m->page = (bf16 *)(at + key + value + acc + state);
    }
    return key + value + acc + state + page;
}

/* Keys and values of head h for the n tokens of a page. */
static void expand_page(const mla_prefill_args *a, mat page, i64 n, i64 h, const prefill_mem *m, f32 *buf) {
    const weight_view *w = &a->kv_b->views[0];
    i64 rows = a->kv_b->nope + a->kv_b->v_dim, width = a->nope + a->rope, step = expand_rows(w, WB);
    const void *x[KV_PAGE];
    for (i64 j = 0; j < n; j++) x[j] = mat_at(page, j).p;
    for (i64 d = 0; d < a->nope; d += step) {
        i64 nw = min_i64(step, a->nope - d);
        dot(x, page.wide, n, weight_mat(w, h * rows + d, nw, buf), nw, a->latent, m->key + d, width);
    }
    for (i64 d = 0; d < a->v_dim; d += step) {
        i64 nw = min_i64(step, a->v_dim - d);
        dot(x, page.wide, n, weight_mat(w, h * rows + a->kv_b->nope + d, nw, buf), nw, a->latent, m->value + d,
            a->v_dim);
    }
    for (i64 j = 0; j < n; j++)
        for (i64 c = 0; c < a->rope; c++)
            m->key[j * width + a->nope + c] = load_elem(page.p, j * page.stride + a->latent + c, page.wide);
}

/* Query rows [i, i + nq) against the n tokens of the tile that starts at position t. */
static void prefill_rows(const mla_prefill_args *a, const prefill_mem *mem, i64 h, i64 i, i64 nq, i64 t, i64 n) {
    i64 width = a->nope + a->rope, seen[QROWS];
    const void *q[QROWS];
    f32 s[QROWS * KV_PAGE];
    bool same = true;
    for (i64 r = 0; r < nq; r++) {
        q[r] = (const bf16 *)a->q + ((i + r) * a->n_heads + h) * width;
        seen[r] = min_i64(n, a->pos0 + i + r + 1 - t); /* causal */
        same = same && seen[r] == seen[0];
    }
    dot(q, false, nq, (mat){mem->key, width, true}, seen[nq - 1], width, s, KV_PAGE);
    mat value = {mem->value, a->v_dim, true};
    for (i64 r = 0; r < nq; r++) {
        f32 *state = mem->state + (i + r) * 2, *acc = mem->acc + (i + r) * a->v_dim;
        scale_f32(acc, a->v_dim, softmax_step(s + r * KV_PAGE, seen[r], a->scale, state, state + 1));
        if (!same) axpy(s + r * KV_PAGE, KV_PAGE, 1, value, seen[r], acc, a->v_dim, a->v_dim);
    }
    if (same) axpy(s, KV_PAGE, nq, value, seen[0], mem->acc + i * a->v_dim, a->v_dim, a->v_dim);
}

static void prefill_head(const mla_prefill_args *a, const prefill_mem *m, i64 h) {
    f32 buf[CPU_EXPAND_MAX];
    i64 width = a->latent + a->rope, end = a->pos0 + a->n;
    memset(m->acc, 0, (size_t)(a->n * a->v_dim) * sizeof(f32));
    for (i64 i = 0; i < a->n; i++) m->state[2 * i] = -INFINITY, m->state[2 * i + 1] = 0;
    for (i64 t = 0; t < end; t += KV_PAGE) {
        i64 n = min_i64(KV_PAGE, end - t);
        mat page = page_mat(a->kv, a->kv_type, a->pages[t / KV_PAGE], n, width, m->page);
        expand_page(a, page, n, h, m, buf);
        for (i64 i = max_i64(0, t - a->pos0); i < a->n; i += QROWS)
            prefill_rows(a, m, h, i, min_i64(QROWS, a->n - i), t, n);
    }
    for (i64 i = 0; i < a->n; i++) {
        f32 *acc = m->acc + i * a->v_dim;
        for (i64 c = 0; c < a->v_dim; c++) acc[c] /= m->state[2 * i + 1];
        store_act(a->out, DT_BF16, (i * a->n_heads + h) * a->v_dim, acc, a->v_dim);
    }
}

static u64 mla_prefill_workspace(const ops *o, const mla_prefill_args *a) {
    (void)o;
    return prefill_space(a, NULL, NULL) * (u64)team_max();
}

static void mla_prefill(const ops *o, const mla_prefill_args *a) {
    (void)o;
    u64 space = prefill_space(a, NULL, NULL);
    i64 expand = (a->pos0 + a->n) * a->n_heads * (a->nope + a->v_dim) * a->latent;
    team tm = team_begin(expand);
#pragma omp parallel for schedule(dynamic) num_threads(tm.threads)
    for (i64 h = 0; h < a->n_heads; h++) {
        prefill_mem m;
        prefill_space(a, (u8 *)a->workspace + (u64)cpu_thread() * space, &m);
        prefill_head(a, &m, h);
    }
    team_end(&tm);
}
