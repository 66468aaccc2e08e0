/* tests/lib/random_model.h: writes small random checkpoints of any legal shape and mixture of formats, well conditioned
 * (matrices N(0, 1 / fan-in), o and down projections 0.6 of that, embedding N(0, 1)). */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H
#include "base/buf.h"
#include "format/weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *name;
    i64 vocab, hidden, layers, dense, heads, q_lora, kv_lora, nope, rope, v, inter, expert_inter, experts, top_k,
        shared, context;
    weight_format attn, mlp, expert[2], embed, router; /* expert[l % 2] is that of layer l */
    i64 mixed_from; /* this expert and those behind it are INT4, which nothing reads beside others; 0: none is */
    bool tie, norm_f32, equal_logits; /* equal_logits: router weights and biases are zero */
} random_model;

typedef struct {
    char name[200], shape[64];
    dtype type;
    u8 *data;
    u64 bytes;
} random_tensor;

typedef struct {
    random_tensor t[4096];
    int n;
    u64 rng;
} random_writer;

static u64 random_bits(random_writer *w) { /* splitmix64 */
    u64 z = w->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* About N(0, 1): the sum of four uniform numbers. */
static f32 random_normal(random_writer *w) {
    u64 b = random_bits(w);
    i64 sum = (i64)(b & 0xffff) + (i64)(b >> 16 & 0xffff) + (i64)(b >> 32 & 0xffff) + (i64)(b >> 48);
    return (f32)(sum - 131070) * (1.7320508f / 65536.0f);
}

static u8 *random_add(random_writer *w, const char *name, const char *suffix, dtype type, i64 rows, i64 cols) {
    random_tensor *t = &w->t[w->n++];
    snprintf(t->name, sizeof t->name, "%s%s", name, suffix);
    if (rows)
        snprintf(t->shape, sizeof t->shape, "[%lld,%lld]", (long long)rows, (long long)cols);
    else
        snprintf(t->shape, sizeof t->shape, "[%lld]", (long long)cols);
    t->type = type;
    t->bytes = (u64)(rows ? rows : 1) * (u64)cols * dtype_size(type);
    return t->data = calloc(1, t->bytes);
}

static void random_put(u8 *p, dtype type, u64 i, f32 x) {
    if (type == DT_F32)
        ((f32 *)(void *)p)[i] = x;
    else
        ((bf16 *)(void *)p)[i] = f32_to_bf16(x);
}

/* Writes a matrix in a format that was added (weight_layout_add). */
static void (*random_added)(random_writer *w, const char *name, i64 rows, i64 cols);

/* A matrix NAME in format f; rows 0 makes a vector. */
static void random_matrix(random_writer *w, const char *name, weight_format f, i64 rows, i64 cols, f32 sigma,
                          f32 mean) {
    u64 n = (u64)(rows ? rows : 1) * (u64)cols;
    if (f >= WF_COUNT) {
        random_added(w, name, rows, cols);
    } else if (f == WF_F32 || f == WF_BF16) {
        dtype t = f == WF_F32 ? DT_F32 : DT_BF16;
        u8 *p = random_add(w, name, rows ? ".weight" : "", t, rows, cols);
        for (u64 i = 0; i < n; i++) random_put(p, t, i, mean + sigma * random_normal(w));
    } else if (f == WF_FP8_BLOCK) {
        i64 sr = ceil_div(rows, FP8_BLOCK), sc = ceil_div(cols, FP8_BLOCK);
        u8 *p = random_add(w, name, ".weight", DT_F8_E4M3, rows, cols);
        f32 *s = (f32 *)(void *)random_add(w, name, ".weight_scale_inv", DT_F32, sr, sc);
        for (u64 i = 0; i < n; i++) p[i] = f32_to_f8_e4m3(64 * random_normal(w));
        for (i64 i = 0; i < sr * sc; i++) s[i] = sigma / 64;
    } else if (f == WF_FP8_ROW) { /* scales of both types and shapes, one after the other */
        const dtype t = w->n % 4 < 2 ? DT_F32 : DT_BF16;
        const bool flat = w->n % 3 == 0;
        u8 *p = random_add(w, name, ".weight", DT_F8_E4M3, rows, cols);
        u8 *s = random_add(w, name, ".weight_scale", t, flat ? 0 : rows, flat ? rows : 1);
        for (u64 i = 0; i < n; i++) p[i] = f32_to_f8_e4m3(64 * random_normal(w));
        for (i64 i = 0; i < rows; i++) random_put(s, t, (u64)i, sigma * (f32)(3 + i % 3) / 256);
    } else if (f == WF_INT8_ROW) { /* the same of scales; zero points here and there */
        const dtype t = w->n % 4 < 2 ? DT_F32 : DT_BF16;
        const bool flat = w->n % 3 == 0;
        u8 *p = random_add(w, name, ".weight", DT_I8, rows, cols);
        u8 *s = random_add(w, name, ".weight_scale", t, flat ? 0 : rows, flat ? rows : 1);
        if (w->n % 5 == 0) random_add(w, name, ".weight_zero_point", DT_I8, flat ? 0 : rows, flat ? rows : 1);
        for (u64 i = 0; i < n; i++) p[i] = (u8)random_bits(w);
        for (i64 i = 0; i < rows; i++) random_put(s, t, (u64)i, sigma * (f32)(3 + i % 3) / 300);
    } else if (f == WF_INT4_GROUP128) {
        const dtype t = w->n % 4 < 2 ? DT_F32 : DT_BF16;
        u8 *p = random_add(w, name, ".weight", DT_I8, rows, cols / 2);
        u8 *s = random_add(w, name, ".weight_scale_inv", t, rows, cols / INT4_GROUP_WIDE);
        for (u64 i = 0; i < n / 2; i++) p[i] = (u8)random_bits(w);
        for (u64 i = 0; i < n / INT4_GROUP_WIDE; i++)
            random_put(s, t, i, sigma * (f32)(3 + (random_bits(w) & 3)) / 20.9f);
    } else if (f == WF_INT4_ROW) {
        u8 *p = random_add(w, name, ".weight", DT_I32, rows, cols / 8);
        f32 *s = (f32 *)(void *)random_add(w, name, ".weight_scale_2", DT_F32, 0, rows);
        *(f32 *)(void *)random_add(w, name, ".weight_scale", DT_F32, 0, 1) = 0.5f;
        for (u64 i = 0; i < n / 2; i++) p[i] = (u8)random_bits(w);
        for (i64 i = 0; i < rows; i++) s[i] = sigma * (f32)(1 + i % 3) / 4.64f;
    } else if (f == WF_MXFP4 || f == WF_MXFP4_PACKED) {
        u8 *p = random_add(w, name, f == WF_MXFP4 ? ".weight" : ".weight_packed", DT_U8, rows, cols / 2);
        u8 *s = random_add(w, name, ".weight_scale", DT_U8, rows, cols / MXFP4_GROUP);
        for (u64 i = 0; i < n / 2; i++) p[i] = (u8)random_bits(w);
        for (u64 i = 0; i < n / MXFP4_GROUP; i++) s[i] = (u8)(127 + ilogbf(sigma / 2.93f) + (int)(random_bits(w) & 1));
    } else if (f == WF_NVFP4 || f == WF_NVFP4_PACKED) { /* a factor of its own for each matrix */
        const f32 factor = 0.001f * (f32)(1 + w->n % 5);
        u8 *p = random_add(w, name, f == WF_NVFP4 ? ".weight" : ".weight_packed", DT_U8, rows, cols / 2);
        u8 *s = random_add(w, name, ".weight_scale", DT_F8_E4M3, rows, cols / NVFP4_GROUP);
        f32 *whole = (f32 *)(void *)random_add(w, name, f == WF_NVFP4 ? ".weight_scale_2" : ".weight_global_scale",
                                               DT_F32, 0, 1);
        *whole = f == WF_NVFP4 ? factor : 1 / factor;
        for (u64 i = 0; i < n / 2; i++) p[i] = (u8)random_bits(w);
        for (u64 i = 0; i < n / NVFP4_GROUP; i++)
            s[i] = f32_to_f8_e4m3(sigma / 2.93f / factor * (f32)(2 + (random_bits(w) & 3)) / 3.5f);
    } else {
        u8 *p = random_add(w, name, ".weight_packed", DT_I32, rows, cols / 8);
        u8 *s = random_add(w, name, ".weight_scale", DT_BF16, rows, cols / INT4_GROUP);
        i32 shape[2] = {(i32)rows, (i32)cols};
        memcpy(random_add(w, name, ".weight_shape", DT_I32, 0, 2), shape, sizeof shape);
        for (u64 i = 0; i < n / 2; i++) p[i] = (u8)random_bits(w);
        for (u64 i = 0; i < n / INT4_GROUP; i++)
            random_put(s, DT_BF16, i, (random_bits(w) & 1 ? sigma : -sigma) / 4.64f);
    }
}

static void random_linear(random_writer *w, weight_format f, i64 rows, i64 cols, f32 gain, const char *prefix,
                          const char *part) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", prefix, part);
    random_matrix(w, name, f, rows, cols, gain / sqrtf((f32)cols), 0);
}

static void random_vector(random_writer *w, const random_model *m, i64 n, f32 sigma, f32 mean, const char *prefix,
                          const char *part) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", prefix, part);
    random_matrix(w, name, m->norm_f32 ? WF_F32 : WF_BF16, 0, n, sigma, mean);
}

static void random_mlp(random_writer *w, weight_format f, i64 inter, i64 hidden, const char *prefix) {
    random_linear(w, f, inter, hidden, 1, prefix, "gate_proj");
    random_linear(w, f, inter, hidden, 1, prefix, "up_proj");
    random_linear(w, f, hidden, inter, 0.6f, prefix, "down_proj");
}

static void random_layer(random_writer *w, const random_model *m, i64 l) {
    char p[64], x[160];
    i64 q = m->heads * (m->nope + m->rope);
    snprintf(p, sizeof p, "model.layers.%lld.", (long long)l);
    random_vector(w, m, m->hidden, 0.1f, 1, p, "input_layernorm.weight");
    random_vector(w, m, m->hidden, 0.1f, 1, p, "post_attention_layernorm.weight");
    if (m->q_lora) {
        random_linear(w, m->attn, m->q_lora, m->hidden, 1, p, "self_attn.q_a_proj");
        random_vector(w, m, m->q_lora, 0.1f, 1, p, "self_attn.q_a_layernorm.weight");
        random_linear(w, m->attn, q, m->q_lora, 1, p, "self_attn.q_b_proj");
    } else {
        random_linear(w, m->attn, q, m->hidden, 1, p, "self_attn.q_proj");
    }
    random_linear(w, m->attn, m->kv_lora + m->rope, m->hidden, 1, p, "self_attn.kv_a_proj_with_mqa");
    random_vector(w, m, m->kv_lora, 0.1f, 1, p, "self_attn.kv_a_layernorm.weight");
    random_linear(w, m->attn, m->heads * (m->nope + m->v), m->kv_lora, 1, p, "self_attn.kv_b_proj");
    random_linear(w, m->attn, m->hidden, m->heads * m->v, 0.6f, p, "self_attn.o_proj");
    snprintf(x, sizeof x, "%smlp.", p);
    if (l < m->dense) {
        random_mlp(w, m->mlp, m->inter, m->hidden, x);
        return;
    }
    random_linear(w, m->router, m->experts, m->hidden, m->equal_logits ? 0 : 1, p, "mlp.gate");
    random_vector(w, m, m->experts, m->equal_logits ? 0 : 0.1f, 0, p, "mlp.gate.e_score_correction_bias");
    snprintf(x, sizeof x, "%smlp.shared_experts.", p);
    if (m->shared) random_mlp(w, m->mlp, m->shared * m->expert_inter, m->hidden, x);
    for (i64 e = 0; e < m->experts; e++) {
        snprintf(x, sizeof x, "%smlp.experts.%lld.", p, (long long)e);
        const bool odd = m->mixed_from && e >= m->mixed_from;
        random_mlp(w, odd ? WF_INT4_GROUP : m->expert[l % 2], m->expert_inter, m->hidden, x);
    }
}

static void random_config(const random_model *m, FILE *f) {
    fprintf(
        f,
        "{\"model_type\": \"kimi_k2\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld, "
        "\"first_k_dense_replace\": %lld, \"num_attention_heads\": %lld, \"kv_lora_rank\": %lld, "
        "\"qk_nope_head_dim\": %lld, \"qk_rope_head_dim\": %lld, \"v_head_dim\": %lld, \"intermediate_size\": %lld, "
        "\"moe_intermediate_size\": %lld, \"n_routed_experts\": %lld, \"num_experts_per_tok\": %lld, "
        "\"n_shared_experts\": %lld, \"max_position_embeddings\": %lld, \"tie_word_embeddings\": %s, "
        "\"norm_topk_prob\": true, \"routed_scaling_factor\": 1.5, \"rms_norm_eps\": 1e-6, \"rope_theta\": 50000.0, ",
        (long long)m->vocab, (long long)m->hidden, (long long)m->layers, (long long)m->dense, (long long)m->heads,
        (long long)m->kv_lora, (long long)m->nope, (long long)m->rope, (long long)m->v, (long long)m->inter,
        (long long)m->expert_inter, (long long)m->experts, (long long)m->top_k, (long long)m->shared,
        (long long)m->context, m->tie ? "true" : "false");
    if (m->q_lora)
        fprintf(f, "\"q_lora_rank\": %lld}", (long long)m->q_lora);
    else
        fprintf(f, "\"q_lora_rank\": null}");
}

static int random_by_size(const void *a, const void *b) {
    const random_tensor *x = a, *y = b;
    u32 sx = dtype_size(x->type), sy = dtype_size(y->type);
    return sx != sy ? (sx < sy) - (sx > sy) : strcmp(x->name, y->name);
}

/* Writes the model to a new folder under /tmp; its path goes to dir[64]. `edit`, if given, sees every tensor first. */
static bool random_model_write(const random_model *m, u64 seed, char *dir,
                               void (*edit)(const char *name, dtype t, u8 *data, u64 bytes)) {
    random_writer *w = calloc(1, sizeof *w);
    char path[96];
    buf head = {0};
    strcpy(dir, "/tmp/moonlet-model-XXXXXX");
    if (!w || !mkdtemp(dir)) return false;
    w->rng = seed;
    random_matrix(w, "model.embed_tokens", m->embed, m->vocab, m->hidden, 1, 0);
    if (!m->tie) random_linear(w, m->mlp, m->vocab, m->hidden, 1, "", "lm_head");
    random_vector(w, m, m->hidden, 0.1f, 1, "", "model.norm.weight");
    for (i64 l = 0; l < m->layers; l++) random_layer(w, m, l);
    qsort(w->t, (size_t)w->n, sizeof *w->t, random_by_size);
    u64 at = 0;
    for (int i = 0; i < w->n; i++) {
        random_tensor *t = &w->t[i];
        if (edit) edit(t->name, t->type, t->data, t->bytes);
        buf_fmt(&head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", i ? "," : "{", t->name,
                dtype_name(t->type), t->shape, (unsigned long long)at, (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    buf_char(&head, '}');
    while (head.len % 8) buf_char(&head, ' ');
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    u64 len = head.len;
    bool ok = f && fwrite(&len, 8, 1, f) == 1 && fwrite(head.data, 1, len, f) == len;
    for (int i = 0; i < w->n; i++) {
        ok = ok && fwrite(w->t[i].data, 1, w->t[i].bytes, f) == w->t[i].bytes;
        free(w->t[i].data);
    }
    if (f) fclose(f);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if ((f = fopen(path, "w"))) random_config(m, f), fclose(f);
    buf_free(&head);
    free(w);
    return ok && f;
}

static void random_model_remove(const char *dir) {
    static const char *const files[] = {"model.safetensors", "config.json"};
    char path[96];
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}
#endif
