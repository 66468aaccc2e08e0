/* kernels/cpu/rows_tmpl.h: what treats each row by itself: embed, norm, rope_q, kv_write, gather, finite. */

static void embed(const ops *o, const embed_args *a) {
    (void)o;
    const weight_view *t = &a->table->views[0];
    team tm = team_begin(4 * a->n * t->cols);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        enum { PIECE = 2048 };
        f32 buf[PIECE];
        bf16 *out = (bf16 *)a->out + i * t->cols;
        i64 id = embed_row(a, i);
        if (id < 0 || id >= t->rows) {
            memset(out, 0, (size_t)t->cols * sizeof *out);
            continue;
        }
        for (i64 c = 0; c < t->cols; c += PIECE) {
            i64 n = min_i64(PIECE, t->cols - c);
            expand_cols(t, id, c, n, buf);
            store_act(out, DT_BF16, c, buf, n);
        }
    }
    team_end(&tm);
}

/* 1 / rms of a bf16 row */
static f32 inverse_rms(const bf16 *x, i64 dim, f32 eps) {
    vf s[2] = {vf_zero(), vf_zero()};
    i64 c = 0;
    for (; c + 2 * VL <= dim; c += 2 * VL)
        for (int u = 0; u < 2; u++) {
            vf v = vf_bf16(x + c + u * VL);
            s[u] = vf_fma(v, v, s[u]);
        }
    for (; c < dim; c += VL) {
        vf v = vf_bf16_n(x + c, min_i64(VL, dim - c));
        s[0] = vf_fma(v, v, s[0]);
    }
    return 1.0f / sqrtf(vf_sum(vf_add(s[0], s[1])) / (f32)dim + eps);
}

static void scale_row(const bf16 *x, f32 r, const f32 *weight, i64 dim, bf16 *out) {
    i64 c = 0;
    for (; c + VL <= dim; c += VL)
        vf_store_bf16(out + c, vf_mul(vf_mul(vf_bf16(x + c), vf_set(r)), vf_load(weight + c)));
    if (c < dim) {
        vf v = vf_mul(vf_mul(vf_bf16_n(x + c, dim - c), vf_set(r)), vf_load_n(weight + c, dim - c));
        vf_store_bf16_n(out + c, v, dim - c);
    }
}

static void add_rows(const bf16 *x, const bf16 *y, i64 dim, bf16 *out) {
    i64 c = 0;
    for (; c + VL <= dim; c += VL) vf_store_bf16(out + c, vf_add(vf_bf16(x + c), vf_bf16(y + c)));
    if (c < dim) vf_store_bf16_n(out + c, vf_add(vf_bf16_n(x + c, dim - c), vf_bf16_n(y + c, dim - c)), dim - c);
}

/* NaN and infinity are the values whose exponent bits are all ones. */
static void mark_bad(const bf16 *x, i64 dim, i32 *bad, i32 mark) {
    u32 any = 0;
    for (i64 k = 0; k < dim; k++) any |= (x[k] & 0x7f80u) == 0x7f80u;
    if (any && !*bad) *bad = mark;
}

/* The rounded sum goes to `sum` if wanted, else to `out`, and is normalised from there. */
static void norm(const ops *o, const norm_args *a) {
    (void)o;
    team tm = team_begin(8 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        const bf16 *x = (const bf16 *)a->x + i * a->x_stride;
        bf16 *out = (bf16 *)a->out + i * a->out_stride;
        bf16 *sum = a->sum ? (bf16 *)a->sum + i * a->x_stride : out;
        if (a->add) {
            add_rows(x, (const bf16 *)a->add + i * a->x_stride, a->dim, sum);
            x = sum;
        } else if (a->sum && sum != x) {
            memcpy(sum, x, (size_t)a->dim * sizeof *x);
        }
        if (a->bad) mark_bad(x, a->dim, &a->bad[i], a->mark);
        scale_row(x, inverse_rms(x, a->dim, a->eps), a->weight->vector, a->dim, out);
    }
    team_end(&tm);
}

/* Pair (2j, 2j + 1) of x turns by the angle of (cos, sin) = cs[2j], cs[2j + 1]. */
INLINE void rotate_pair(const bf16 *x, const f32 *cs, f32 *even, f32 *odd) {
    f32 a = bf16_to_f32(x[0]), b = bf16_to_f32(x[1]);
    *even = a * cs[0] - b * cs[1];
    *odd = a * cs[1] + b * cs[0];
}

static void rope_q(const ops *o, const rope_q_args *a) {
    (void)o;
    i64 head = a->nope + a->rope;
    team tm = team_begin(32 * a->n * a->n_heads * a->rope);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        for (i64 h = 0; h < a->n_heads; h++) {
            bf16 *x = (bf16 *)a->q + (i * a->n_heads + h) * head + a->nope;
            for (i64 j = 0; j + 1 < a->rope; j += 2) {
                f32 even, odd;
                rotate_pair(x + j, a->table + i * a->rope + j, &even, &odd);
                x[j] = f32_to_bf16(even);
                x[j + 1] = f32_to_bf16(odd);
            }
        }
    team_end(&tm);
}

INLINE void kv_put(void *kv, dtype t, i64 at, f32 v) {
    if (t == DT_F32)
        ((f32 *)kv)[at] = v;
    else if (t == DT_BF16)
        ((bf16 *)kv)[at] = f32_to_bf16(v);
    else
        ((u8 *)kv)[at] = f32_to_f8_e4m3(v);
}

static void kv_write(const ops *o, const kv_write_args *a) {
    (void)o;
    i64 width = a->latent + a->rope;
    team tm = team_begin(32 * a->n * width);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        if (a->slots[i] < 0) continue;
        const bf16 *x = (const bf16 *)a->kv_a + i * width;
        const f32 *weight = a->norm->vector;
        f32 r = inverse_rms(x, a->latent, a->eps);
        i64 base = a->slots[i] * width;
        for (i64 k = 0; k < a->latent; k++) kv_put(a->kv, a->kv_type, base + k, bf16_to_f32(x[k]) * r * weight[k]);
        for (i64 j = 0; j + 1 < a->rope; j += 2) {
            f32 even, odd;
            rotate_pair(x + a->latent + j, a->table + i * a->rope + j, &even, &odd);
            kv_put(a->kv, a->kv_type, base + a->latent + j, even);
            kv_put(a->kv, a->kv_type, base + a->latent + j + 1, odd);
        }
    }
    team_end(&tm);
}

static void gather(const ops *o, const gather_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++)
        memcpy((bf16 *)a->out + i * a->out_stride, (const bf16 *)a->x + (a->rows ? a->rows[i] : i) * a->x_stride,
               (size_t)a->dim * sizeof(bf16));
}

static void check_finite(const ops *o, const mark_nonfinite_args *a) {
    (void)o;
    team tm = team_begin(4 * a->n * a->dim);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        if (a->x_type != DT_F32) {
            mark_bad((const bf16 *)a->x + i * a->stride, a->dim, &a->bad[i], a->mark);
            continue;
        }
        const u32 *x = (const u32 *)a->x + i * a->stride;
        u32 bad = 0;
        for (i64 k = 0; k < a->dim; k++) bad |= (x[k] & 0x7f800000u) == 0x7f800000u;
        if (bad && !a->bad[i]) a->bad[i] = a->mark;
    }
    team_end(&tm);
}
