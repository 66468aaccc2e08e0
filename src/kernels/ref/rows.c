/* kernels/ref/rows.c: the operations that treat each row by itself: embedding, norms, rotary embedding, KV write,
 * gather, the finite check and the gate. */
#include "kernels/ref/ref.h"
#include "kernels/sampling/sample.h"
#include <math.h>

void ref_embed(const ops *o, const embed_args *a) {
    (void)o;
    const weight_view *t = &a->table->views[0];
    for (i64 i = 0; i < a->n; i++) {
        f32 *out = (f32 *)a->out + i * t->cols;
        i64 id = embed_row(a, i);
        if (id >= 0 && id < t->rows)
            weight_row_f32(t, id, out);
        else
            memset(out, 0, (size_t)t->cols * sizeof *out);
    }
}

static void ref_mark_bad(const f32 *x, i64 dim, i32 *bad, i32 mark) {
    bool ok = true;
    for (i64 k = 0; k < dim; k++) ok = ok && isfinite(x[k]);
    if (!ok && !*bad) *bad = mark;
}

/* out = x / rms(x) * weight */
static void rms_norm(const f32 *x, const f32 *weight, i64 dim, f32 eps, f32 *out) {
    f64 sum = 0;
    for (i64 k = 0; k < dim; k++) sum += (f64)x[k] * (f64)x[k];
    f32 r = (f32)(1.0 / sqrt(sum / (f64)dim + (f64)eps));
    for (i64 k = 0; k < dim; k++) out[k] = x[k] * r * weight[k];
}

void ref_norm(const ops *o, const norm_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = (const f32 *)a->x + i * a->x_stride, *add = (const f32 *)a->add;
        f32 *out = (f32 *)a->out + i * a->out_stride, *sum = (f32 *)a->sum;
        for (i64 k = 0; k < a->dim; k++) out[k] = x[k] + (add ? add[i * a->x_stride + k] : 0.0f);
        if (sum) memcpy(sum + i * a->x_stride, out, (size_t)a->dim * sizeof *out);
        if (a->bad) ref_mark_bad(out, a->dim, &a->bad[i], a->mark);
        rms_norm(out, a->weight->vector, a->dim, a->eps, out);
    }
}

void ref_rope_table(const ops *o, const rope_table_args *a) {
    (void)o;
    i64 half = a->rope / 2;
    for (i64 i = 0; i < a->n; i++)
        for (i64 j = 0; j < half; j++) {
            f64 phi = (f64)a->positions[i] * a->inv_freq[j];
            a->table[(i * half + j) * 2] = (f32)(cos(phi) * a->mscale);
            a->table[(i * half + j) * 2 + 1] = (f32)(sin(phi) * a->mscale);
        }
}

/* Rotates rope values x into out (may alias): pair (2j, 2j + 1) by the angle of cs[2j], cs[2j + 1]. */
static void ref_rotate(const f32 *x, const f32 *cs, i64 rope, f32 *out) {
    for (i64 j = 0; j < rope; j += 2) {
        f32 even = x[j], odd = x[j + 1], c = cs[j], s = cs[j + 1];
        out[j] = even * c - odd * s;
        out[j + 1] = even * s + odd * c;
    }
}

void ref_rope_q(const ops *o, const rope_q_args *a) {
    (void)o;
    i64 head = a->nope + a->rope;
    for (i64 i = 0; i < a->n; i++)
        for (i64 h = 0; h < a->n_heads; h++) {
            f32 *x = (f32 *)a->q + (i * a->n_heads + h) * head + a->nope;
            ref_rotate(x, a->table + i * a->rope, a->rope, x);
        }
}

void ref_kv_get(const void *kv, dtype t, i64 index, i64 n, f32 *out) {
    if (t == DT_F32)
        memcpy(out, (const f32 *)kv + index, (size_t)n * sizeof *out);
    else if (t == DT_BF16)
        for (i64 k = 0; k < n; k++) out[k] = bf16_to_f32(((const bf16 *)kv)[index + k]);
    else
        for (i64 k = 0; k < n; k++) out[k] = f8_e4m3_to_f32(((const u8 *)kv)[index + k]);
}

void ref_kv_set(void *kv, dtype t, i64 index, f32 v) {
    if (t == DT_F32)
        ((f32 *)kv)[index] = v;
    else if (t == DT_BF16)
        ((bf16 *)kv)[index] = f32_to_bf16(v);
    else
        ((u8 *)kv)[index] = f32_to_f8_e4m3(v);
}

void ref_kv_write(const ops *o, const kv_write_args *a) {
    (void)o;
    i64 width = a->latent + a->rope;
    team tm = team_begin(32 * a->n * width);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++) {
        if (a->slots[i] < 0) continue;
        const f32 *x = (const f32 *)a->kv_a + i * width, *weight = a->norm->vector;
        f64 sum = 0;
        for (i64 k = 0; k < a->latent; k++) sum += (f64)x[k] * (f64)x[k];
        f32 r = (f32)(1.0 / sqrt(sum / (f64)a->latent + (f64)a->eps));
        i64 base = a->slots[i] * width;
        for (i64 k = 0; k < a->latent; k++) ref_kv_set(a->kv, a->kv_type, base + k, x[k] * r * weight[k]);
        for (i64 j = 0; j < a->rope; j += 2) {
            f32 pair[2];
            ref_rotate(x + a->latent + j, a->table + i * a->rope + j, 2, pair);
            ref_kv_set(a->kv, a->kv_type, base + a->latent + j, pair[0]);
            ref_kv_set(a->kv, a->kv_type, base + a->latent + j + 1, pair[1]);
        }
    }
    team_end(&tm);
}

/* The cpu backend's too. */
void ref_gather(const ops *o, const gather_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++)
        memcpy((f32 *)a->out + i * a->out_stride, (const f32 *)a->x + (a->rows ? a->rows[i] : i) * a->x_stride,
               (size_t)a->dim * sizeof(f32));
}

void ref_mark_nonfinite(const ops *o, const mark_nonfinite_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) ref_mark_bad((const f32 *)a->x + i * a->stride, a->dim, &a->bad[i], a->mark);
}

/* The cpu backend's too, as logits are float32 there. */
void ref_sample(const ops *o, const sample_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = a->logits + i * a->stride;
        const sample_row *r = &a->rows[i];
        ref_mark_bad(x, a->vocab, &a->bad[i], a->mark);
        a->ids[i] = sample_one(x, a->vocab, r, r->mask ? a->masks + (r->mask - 1) * a->mask_words : NULL, a->workspace);
    }
}

u64 ref_sample_workspace(const ops *o, const sample_args *a) {
    (void)o;
    return sample_scratch(a->vocab);
}

/* Chooses the k largest of s + bias by k passes; strict > keeps the lowest index on ties. */
static void ref_gate_row(const gate_args *a, const f32 *logits, i32 *ids, f32 *weights) {
    const f32 *bias = a->bias->vector;
    bool nan = false;
    f32 sum = 0;
    for (i64 s = 0; s < a->k; s++) {
        i32 best = -1;
        f32 best_score = 0;
        for (i64 x = 0; x < a->n_experts; x++) {
            bool taken = false;
            for (i64 t = 0; t < s; t++) taken = taken || ids[t] == x;
            f32 score = 1.0f / (1.0f + expf(-logits[x])) + bias[x];
            nan = nan || isnan(score);
            if (!taken && (best < 0 || score > best_score)) {
                best = (i32)x;
                best_score = score;
            }
        }
        ids[s] = best;
        weights[s] = 1.0f / (1.0f + expf(-logits[best]));
        sum += weights[s];
    }
    for (i64 s = 0; s < a->k; s++) {
        if (nan) ids[s] = (i32)s;
        weights[s] = nan ? NAN : weights[s] / (a->norm_topk ? sum + 1e-20f : 1.0f) * a->scale;
    }
}

void ref_gate(const ops *o, const gate_args *a) {
    (void)o;
    team tm = team_begin(128 * a->n * a->n_experts);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        ref_gate_row(a, a->logits + i * a->n_experts, a->ids + i * a->k, a->weights + i * a->k);
    gate_place(a);
    team_end(&tm);
}

void ref_logprobs(const ops *o, const logprobs_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        const f32 *x = a->logits + i * a->stride;
        i32 *ids = a->top_ids + i * a->n_top;
        f32 *out = a->logprobs + i * (1 + a->n_top);
        if (a->tops[i] < 0) continue;
        f64 lse = log_sum_exp(x, a->vocab);
        i32 id = a->ids[i] < 0 ? a->drawn[i] : a->ids[i];
        out[0] = (f32)((f64)x[id] - lse);
        largest_of(x, a->vocab, ids, a->tops[i]);
        for (i64 k = 0; k < a->tops[i]; k++) out[1 + k] = (f32)((f64)x[ids[k]] - lse);
    }
}

u64 ref_logprobs_workspace(const ops *o, const logprobs_args *a) {
    (void)o;
    (void)a;
    return 1;
}
