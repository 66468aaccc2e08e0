/* kernels/cpu/heads_tmpl.h: attention with keys and values for every KV head, of a Llama-type draft: its KV rows, and
 * decoding. Tiles, running maximum and the care for positions out of sight are attn_tmpl.h's, whose steps these are. */

/* Pairs (j, j + dim / 2) of x [dim] turn by the angles of cs; float32 out [dim]. */
static void rotate_halves(const bf16 *x, const f32 *cs, i64 dim, f32 *out) {
    const i64 half = dim / 2;
    for (i64 j = 0; j < half; j++) {
        f32 low = bf16_to_f32(x[j]), high = bf16_to_f32(x[j + half]), c = cs[2 * j], s = cs[2 * j + 1];
        out[j] = low * c - high * s;
        out[j + half] = low * s + high * c;
    }
}

/* Row i of k and v into the pool from element `at` on. */
static void heads_write_row(const heads_write_args *a, i64 i, i64 at) {
    const i64 row = a->kv_heads * a->dim, half = a->dim / 2;
    const bf16 *v = (const bf16 *)a->v + i * row;
    for (i64 h = 0; h < a->kv_heads; h++)
        for (i64 j = 0; j < half; j++) {
            const bf16 *k = (const bf16 *)a->k + i * row + h * a->dim + j;
            const f32 *cs = a->table + i * a->dim + 2 * j;
            f32 low = bf16_to_f32(k[0]), high = bf16_to_f32(k[half]);
            kv_put(a->kv, a->kv_type, at + h * a->dim + j, low * cs[0] - high * cs[1]);
            kv_put(a->kv, a->kv_type, at + h * a->dim + j + half, low * cs[1] + high * cs[0]);
        }
    for (i64 c = 0; c < row; c++) kv_put(a->kv, a->kv_type, at + row + c, bf16_to_f32(v[c]));
}

static void heads_write(const ops *o, const heads_write_args *a) {
    (void)o;
    const i64 row = a->kv_heads * a->dim;
    team tm = team_begin(32 * a->n * row);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        if (a->slots[i] >= 0) heads_write_row(a, i, a->slots[i] * 2 * row);
    team_end(&tm);
}

/* n rows of `dim` columns, `stride` apart, from element `at` on: in place, or FP8 widened to bf16 (exact) in buf. */
static mat head_mat(const void *kv, dtype t, i64 at, i64 n, i64 stride, i64 dim, bf16 *buf) {
    if (t == DT_F32) return (mat){(const f32 *)kv + at, stride, true};
    if (t == DT_BF16) return (mat){(const bf16 *)kv + at, stride, false};
    for (i64 j = 0; j < n; j++) {
        const u8 *p = (const u8 *)kv + at + j * stride;
        i64 c = 0;
        for (; c + VL <= dim; c += VL) vf_store_bf16(buf + j * dim + c, vf_fp8(p + c));
        for (; c < dim; c++) buf[j * dim + c] = f32_to_bf16(f8_e4m3_to_f32(p[c]));
    }
    return (mat){buf, dim, false};
}

/* Workspace of a thread: queries and sums [HEADS, dim] float32, keys or values of a page [KV_PAGE, dim] in bf16. */
INLINE u64 heads_space(const heads_decode_args *a) {
    return cpu_round64((u64)(2 * HEADS * a->dim) * sizeof(f32)) + cpu_round64((u64)(KV_PAGE * a->dim) * sizeof(bf16));
}

static u64 heads_decode_workspace(const ops *o, const heads_decode_args *a) {
    (void)o;
    return heads_space(a) * (u64)team_max();
}

/* nh heads from h0 on, all of which read KV head g, of row i. */
static void heads_decode_item(const heads_decode_args *a, i64 i, i64 g, i64 h0, i64 nh, u8 *space) {
    const i64 dim = a->dim, row = a->kv_heads * dim, out = (i * a->n_heads + h0) * dim;
    f32 *q = (f32 *)space, *acc = q + HEADS * dim, s[HEADS * KV_PAGE], max[HEADS], sum[HEADS] = {0};
    bf16 *buf = (bf16 *)(space + cpu_round64((u64)(2 * HEADS * dim) * sizeof(f32)));
    const void *x[HEADS];
    for (i64 h = 0; h < nh; h++) {
        rotate_halves((const bf16 *)a->q + out + h * dim, a->table + i * dim, dim, q + h * dim);
        x[h] = q + h * dim;
        max[h] = -INFINITY;
    }
    memset(acc, 0, (size_t)(nh * dim) * sizeof *acc);
    for (i64 t = 0; t < a->kv_len[i]; t += KV_PAGE) {
        const i64 m = min_i64(KV_PAGE, a->kv_len[i] - t),
                  at = a->pages[i * a->pages_stride + t / KV_PAGE] * (i64)KV_PAGE * 2 * row + g * dim;
        dot(x, true, nh, head_mat(a->kv, a->kv_type, at, m, 2 * row, dim, buf), m, dim, s, KV_PAGE);
        for (i64 h = 0; h < nh; h++)
            scale_f32(acc + h * dim, dim, softmax_step(s + h * KV_PAGE, m, a->scale, &max[h], &sum[h]));
        axpy(s, KV_PAGE, nh, head_mat(a->kv, a->kv_type, at + row, m, 2 * row, dim, buf), m, acc, dim, dim);
    }
    for (i64 h = 0; h < nh; h++) {
        for (i64 c = 0; c < dim; c++) acc[h * dim + c] /= sum[h];
        store_act(a->out, DT_BF16, out + h * dim, acc + h * dim, dim);
    }
}

/* An item: up to HEADS heads of a row that read the same KV head. */
static void heads_decode(const ops *o, const heads_decode_args *a) {
    (void)o;
    const i64 each = a->n_heads / a->kv_heads, groups = ceil_div(each, HEADS), items = a->n * a->kv_heads * groups;
    const u64 space = heads_space(a);
    i64 tokens = 0;
    for (i64 i = 0; i < a->n; i++) tokens += a->kv_len[i];
    team tm = team_begin(tokens * a->n_heads * 2 * a->dim);
#pragma omp parallel for schedule(dynamic) num_threads(tm.threads)
    for (i64 it = 0; it < items; it++) {
        const i64 g = it / groups % a->kv_heads, first = it % groups * HEADS;
        heads_decode_item(a, it / groups / a->kv_heads, g, g * each + first, min_i64(HEADS, each - first),
                          (u8 *)a->workspace + (u64)cpu_thread() * space);
    }
    team_end(&tm);
}
