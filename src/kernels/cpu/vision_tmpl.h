/* kernels/cpu/vision_tmpl.h: the vision tower's operations on the vector layer. Tiles of attention are attn_tmpl.h's,
 * at multiples of KV_PAGE rows of the item. */

static void pixel_rows(const ops *o, const pixel_rows_args *a) {
    (void)o;
    bf16 value[256]; /* of each byte */
    for (int v = 0; v < 256; v++) value[v] = f32_to_bf16(((f32)v / 255.0f - 0.5f) * 2.0f);
    team tm = team_begin(4 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        bf16 *out = (bf16 *)a->out + i * a->out_stride;
        for (i64 c = 0; c < a->dim; c++) out[c] = value[a->pixels[i * a->dim + c]];
        memset(out + a->dim, 0, (size_t)(a->out_stride - a->dim) * sizeof *out);
    }
    team_end(&tm);
}

/* The four taps of place `at` of `size` in a table of `n` places: which, and their weights. */
static void tap_places(i64 at, i64 size, i64 n, i64 tap[4], f32 weight[4]) {
    const f64 a = -0.75, src = ((f64)at + 0.5) * (f64)n / (f64)size - 0.5, first = floor(src), f = src - first;
    for (int k = 0; k < 4; k++) {
        const f64 x = fabs(f - (k - 1));
        weight[k] = (f32)(x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a);
        tap[k] = max_i64(0, min_i64(n - 1, (i64)first - 1 + k));
    }
}

/* Columns [c, c + n) of row `at` of a table in float32 or bf16, n at most VL. */
INLINE vf table_elems(const weight_view *t, i64 at, i64 c, i64 n) {
    const i64 from = at * t->cols + c;
    if (t->format == WF_F32)
        return n == VL ? vf_load((const f32 *)t->data + from) : vf_load_n((const f32 *)t->data + from, n);
    return n == VL ? vf_bf16((const bf16 *)t->data + from) : vf_bf16_n((const bf16 *)t->data + from, n);
}

INLINE vf load_bf16_upto(const bf16 *p, i64 n) { return n == VL ? vf_bf16(p) : vf_bf16_n(p, n); }
INLINE vf load_f32_upto(const f32 *p, i64 n) { return n == VL ? vf_load(p) : vf_load_n(p, n); }
INLINE void store_bf16_upto(bf16 *p, vf v, i64 n) {
    if (n == VL)
        vf_store_bf16(p, v);
    else
        vf_store_bf16_n(p, v, n);
}

static void patch_position_row(const patch_position_args *a, const vision_item *it, i64 at, bf16 *x) {
    i64 row[4], col[4];
    f32 down[4], across[4];
    tap_places(at / it->w % it->h, it->h, a->table_h, row, down);
    tap_places(at % it->w, it->w, a->table_w, col, across);
    const f32 *time = it->t > 1 ? a->time + at / it->w / it->h * a->dim : NULL;
    for (i64 c = 0; c < a->dim; c += VL) {
        const i64 n = min_i64(VL, a->dim - c);
        vf sum = vf_zero();
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++)
                sum = vf_fma(vf_set(down[j] * across[k]),
                             table_elems(&a->table->views[0], row[j] * a->table_w + col[k], c, n), sum);
        if (time) sum = vf_add(sum, load_f32_upto(time + c, n));
        sum = vf_add(vf_add(load_bf16_upto(x + c, n), load_f32_upto(a->bias->vector + c, n)), sum);
        store_bf16_upto(x + c, sum, n);
    }
}

static void patch_position(const ops *o, const patch_position_args *a) {
    (void)o;
    team tm = team_begin(32 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, false);
        patch_position_row(a, it, i - it->first, (bf16 *)a->x + i * a->dim);
    }
    team_end(&tm);
}

/* Of float32 x [dim], which is centred in place. */
static void layer_norm_of(f32 *x, const f32 *weight, const f32 *bias, i64 dim, f32 eps, bf16 *out) {
    vf s = vf_zero();
    for (i64 c = 0; c < dim; c += VL) s = vf_add(s, load_f32_upto(x + c, min_i64(VL, dim - c)));
    const f32 mean = vf_sum(s) / (f32)dim;
    for (i64 c = 0; c < dim; c++) x[c] -= mean;
    s = vf_zero();
    for (i64 c = 0; c < dim; c += VL) {
        vf v = load_f32_upto(x + c, min_i64(VL, dim - c));
        s = vf_fma(v, v, s);
    }
    const vf r = vf_set(1.0f / sqrtf(vf_sum(s) / (f32)dim + eps));
    for (i64 c = 0; c < dim; c += VL) {
        const i64 n = min_i64(VL, dim - c);
        vf v = vf_mul(vf_mul(load_f32_upto(x + c, n), r), load_f32_upto(weight + c, n));
        store_bf16_upto(out + c, vf_add(v, load_f32_upto(bias + c, n)), n);
    }
}

/* The sum is rounded where it is stored and normed from there, as the next layer will read it. */
static void layer_norm(const ops *o, const layer_norm_args *a) {
    (void)o;
    team tm = team_begin(16 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        f32 row[VISION_WIDTH];
        const bf16 *x = (const bf16 *)a->x + i * a->dim, *add = a->add ? (const bf16 *)a->add + i * a->dim : NULL;
        for (i64 c = 0; c < a->dim; c += VL) {
            const i64 n = min_i64(VL, a->dim - c);
            bf16 sum[VL];
            vf v = load_bf16_upto(x + c, n);
            if (add) v = vf_add(v, vf_add(load_bf16_upto(add + c, n), load_f32_upto(a->add_bias->vector + c, n)));
            vf_store_bf16(sum, v);
            if (a->sum) memcpy((bf16 *)a->sum + i * a->dim + c, sum, (size_t)n * sizeof *sum);
            for (i64 l = 0; l < n; l++) row[c + l] = bf16_to_f32(sum[l]);
        }
        layer_norm_of(row, a->weight->vector, a->bias->vector, a->dim, a->eps, (bf16 *)a->out + i * a->dim);
    }
    team_end(&tm);
}

/* x / (1 + e^(-2 s)) with s = sqrt(2 / pi) (x + 0.044715 x^3): the tanh form. */
INLINE vf gelu_tanh_of(vf x) {
    vf cube = vf_mul(vf_mul(x, x), x), s = vf_mul(vf_fma(vf_set(0.044715f), cube, x), vf_set(-2 * 0.7978845608f));
    return vf_div(x, vf_add(vf_set(1), vf_exp(s)));
}

static void bias_act_row(const bias_act_args *a, bf16 *x) {
    const f32 *bias = a->bias->vector;
    for (i64 c = 0; c < a->dim; c += VL) {
        const i64 n = min_i64(VL, a->dim - c);
        vf v = vf_add(load_bf16_upto(x + c, n), load_f32_upto(bias + c, n));
        if (a->activation == BIAS_GELU_TANH) v = gelu_tanh_of(v);
        if (a->activation == BIAS_GELU) {
            f32 each[VL];
            vf_store(each, v);
            for (i64 l = 0; l < n; l++) each[l] *= 0.5f * (1.0f + erff(each[l] * 0.70710678f));
            v = vf_load(each);
        }
        store_bf16_upto(x + c, v, n);
    }
}

static void bias_act(const ops *o, const bias_act_args *a) {
    (void)o;
    team tm = team_begin(16 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) bias_act_row(a, (bf16 *)a->x + i * a->dim);
    team_end(&tm);
}

static void vision_rope_row(const vision_rope_args *a, const vision_item *it, i64 at, bf16 *x) {
    const i64 row = a->n_heads * a->dim, quarter = a->dim / 4;
    const f32 *place[2] = {a->table + at % it->w * 2 * quarter, a->table + at / it->w % it->h * 2 * quarter};
    const f32 *bias = a->bias->vector;
    for (i64 p = 0; p < row; p++) { /* pairs of queries and keys */
        const i64 pair = p % (a->dim / 2);
        const f32 *cs = place[pair % 2] + pair / 2 * 2;
        f32 even = bf16_to_f32(x[2 * p]) + bias[2 * p], odd = bf16_to_f32(x[2 * p + 1]) + bias[2 * p + 1];
        x[2 * p] = f32_to_bf16(even * cs[0] - odd * cs[1]);
        x[2 * p + 1] = f32_to_bf16(even * cs[1] + odd * cs[0]);
    }
    for (i64 c = 2 * row; c < 3 * row; c++) x[c] = f32_to_bf16(bf16_to_f32(x[c]) + bias[c]);
}

static void vision_rope(const ops *o, const vision_rope_args *a) {
    (void)o;
    const i64 row = a->n_heads * a->dim;
    team tm = team_begin(24 * a->n * row);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, false);
        vision_rope_row(a, it, i - it->first, (bf16 *)a->qkv + i * 3 * row);
    }
    team_end(&tm);
}

/* n rows of `dim` values, `stride` apart, side by side and with zeros up to `wide`: so that products have no rest. */
static void vision_pack(const bf16 *from, i64 stride, i64 n, i64 dim, i64 wide, bf16 *to) {
    for (i64 j = 0; j < n; j++, from += stride, to += wide) {
        memcpy(to, from, (size_t)dim * sizeof *to);
        memset(to + dim, 0, (size_t)(wide - dim) * sizeof *to);
    }
}

/* Rows [i, i + nq) of one item, head h: so many that keys and values, which lie far apart, are worth their way. */
enum { VISION_ROWS = 64, VISION_PACK = 32 /* a multiple of KSTEP and of 2 VL */ };
static void vision_attend(const vision_attention_args *a, const vision_item *it, i64 i, i64 nq, i64 h) {
    const i64 row = a->n_heads * a->dim, all = (i64)it->t * it->h * it->w,
              wide = ceil_div(a->dim, VISION_PACK) * VISION_PACK;
    const bf16 *qkv = (const bf16 *)a->qkv + h * a->dim, *first = qkv + it->first * 3 * row + row;
    const void *q[VISION_ROWS];
    bf16 queries[VISION_ROWS * VISION_HEAD], keys[KV_PAGE * VISION_HEAD], values[KV_PAGE * VISION_HEAD];
    f32 s[VISION_ROWS * KV_PAGE], max[VISION_ROWS], sum[VISION_ROWS], acc[VISION_ROWS * VISION_HEAD];
    vision_pack(qkv + i * 3 * row, 3 * row, nq, a->dim, wide, queries);
    for (i64 r = 0; r < nq; r++) q[r] = queries + r * wide, max[r] = -INFINITY, sum[r] = 0;
    memset(acc, 0, (size_t)(nq * wide) * sizeof *acc);
    for (i64 t = 0; t < all; t += KV_PAGE, first += KV_PAGE * 3 * row) {
        const i64 m = min_i64(KV_PAGE, all - t);
        vision_pack(first, 3 * row, m, a->dim, wide, keys);
        vision_pack(first + row, 3 * row, m, a->dim, wide, values);
        dot(q, false, nq, (mat){keys, wide, false}, m, wide, s, KV_PAGE);
        for (i64 r = 0; r < nq; r++)
            scale_f32(acc + r * wide, wide, softmax_step(s + r * KV_PAGE, m, a->scale, &max[r], &sum[r]));
        axpy(s, KV_PAGE, nq, (mat){values, wide, false}, m, acc, wide, wide);
    }
    for (i64 r = 0; r < nq; r++) {
        for (i64 c = 0; c < a->dim; c++) acc[r * wide + c] /= sum[r];
        store_act(a->out, DT_BF16, (i + r) * row + h * a->dim, acc + r * wide, a->dim);
    }
}

/* A piece of work: up to VISION_ROWS rows of an item and head. */
static void vision_attention(const ops *o, const vision_attention_args *a) {
    (void)o;
    const i64 blocks = ceil_div(a->longest, VISION_ROWS), end = a->first + a->count;
    team tm = team_begin(2 * a->count * a->longest * a->n_heads * a->dim);
#pragma omp parallel for schedule(dynamic) collapse(3) num_threads(tm.threads)
    for (i64 k = 0; k < a->n_items; k++)
        for (i64 g = 0; g < blocks; g++)
            for (i64 h = 0; h < a->n_heads; h++) {
                const vision_item *it = a->items + k;
                const i64 from = it->first + g * VISION_ROWS, to = it->first + (i64)it->t * it->h * it->w;
                const i64 i = max_i64(from, a->first), nq = min_i64(min_i64(from + VISION_ROWS, to), end) - i;
                if (nq > 0) vision_attend(a, it, i, nq, h);
            }
    team_end(&tm);
}

/* Patch s of token `at` of an item: the mean over its frames. */
static void merge_mean(const patch_merge_args *a, const vision_item *it, i64 at, i64 s, f32 *out) {
    const i64 across = it->w / VISION_MERGE;
    const i64 y = at / across * VISION_MERGE + s / VISION_MERGE, x = at % across * VISION_MERGE + s % VISION_MERGE;
    memset(out, 0, (size_t)a->dim * sizeof *out);
    for (i64 f = 0; f < it->t; f++) {
        const bf16 *from = (const bf16 *)a->x + (it->first + (f * it->h + y) * it->w + x) * a->dim;
        for (i64 c = 0; c < a->dim; c++) out[c] += bf16_to_f32(from[c]);
    }
    for (i64 c = 0; c < a->dim; c++) out[c] /= (f32)it->t;
}

static void patch_merge(const ops *o, const patch_merge_args *a) {
    (void)o;
    enum { EACH = VISION_MERGE * VISION_MERGE };
    team tm = team_begin(16 * a->n * EACH * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        f32 row[VISION_WIDTH];
        const vision_item *it = a->items + vision_item_of(a->items, a->n_items, i, true);
        for (i64 s = 0; s < EACH; s++) {
            merge_mean(a, it, i - it->token, s, row);
            layer_norm_of(row, a->weight->vector, a->bias->vector, a->dim, a->eps,
                          (bf16 *)a->out + (i * EACH + s) * a->dim);
        }
    }
    team_end(&tm);
}
