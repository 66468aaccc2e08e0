/* cmd/check/check_int64.c: `moonlet check --device cuda --large`: tensors of more than 2^31 elements and 4 GB, of which
 * the last rows must be as right as the first. */
#include "cmd/check/check_int64.h"
#include "base/buf.h"
#include "cmd/lib/synthetic.h"
#include "cmd/tune/tune_moe_layer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    DIM = 7168,
    ROWS = 300032 /* x 7168 > 2^31 */,
    ENDS = 8,
    PAGES = 60032 /* x 64 x 576 > 2^31 */,
    LATENT = 512,
    ROPE = 64
};
enum { WIDTH = LATENT + ROPE, TOKENS = 100, MARK = 7 };

typedef struct {
    const ops *o;
    device *dev;
    device_pool pool;
    synth rng;
    int passed, failed;
} large;

static void verdict(large *l, const char *what, bool ok, const char *text) {
    printf("%-24s %-48s %s%s%s\n", l->o->name, what, ok ? "PASS" : "FAIL", text ? ": " : "", text ? text : "");
    fflush(stdout);
    l->passed += ok;
    l->failed += !ok;
}

static status int64_take(large *l, void *slot, u64 bytes, err *e) {
    void *p;
    status st = device_pool_add(&l->pool, &p, bytes, 1, "a large tensor", e);
    if (st == ST_OK) memcpy(slot, &p, sizeof p);
    return st;
}

/* Host memory that costs nothing where it is not touched. */
static void *zeros(u64 bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static f64 int64_dot(const bf16 *a, const bf16 *b) {
    f64 sum = 0;
    for (int i = 0; i < DIM; i++) sum += (f64)bf16_to_f32(a[i]) * (f64)bf16_to_f32(b[i]);
    return sum;
}

/* y[row] for the first and last ENDS rows of w, row 0 and the last of n rows of x, which are equal. */
static void product_of_many_rows(large *l, const op_weight *w, const bf16 *host, const bf16 *x, const void *dev_x,
                                 void *dev_y, i64 n) {
    bf16 y[2 * ENDS];
    f64 worst = 0;
    char what[64], text[64];
    l->o->linear(
        l->o,
        &(linear_args){.w = w, .x = dev_x, .y = dev_y, .n = n, .x_stride = DIM, .y_stride = ROWS, .y_type = DT_BF16});
    const bf16 *last = (const bf16 *)dev_y + (n - 1) * ROWS;
    l->dev->read(l->dev, y, last, ENDS * 2);
    l->dev->read(l->dev, y + ENDS, last + ROWS - ENDS, ENDS * 2);
    for (int i = 0; i < 2 * ENDS; i++) {
        f64 want = int64_dot(host + (u64)(i < ENDS ? i : ROWS - 2 * ENDS + i) * DIM, x);
        worst = fmax(worst, fabs((f64)bf16_to_f32(y[i]) - want) / fmax(fabs(want), 0.1));
    }
    snprintf(what, sizeof what, "linear, %d x %d weights, %lld rows", ROWS, DIM, (long long)n);
    snprintf(text, sizeof text, "error %.1e", worst);
    verdict(l, what, worst < 1e-2, text);
}

static status large_weight(large *l, err *e) {
    u64 bytes = (u64)ROWS * DIM * 2;
    enum { MANY = 70 };
    bf16 *host = zeros(bytes), x[DIM], row[DIM];
    void *dev_x, *dev_y, *out;
    i32 ids[2] = {ROWS - 1, 0}, *dev_ids;
    op_weight *w = NULL, *table = NULL;
    if (!host) return err_nomem(e, "a large weight", bytes);
    synth_fill_bf16(&l->rng, host, ENDS * DIM, 0.02f);
    synth_fill_bf16(&l->rng, host + (u64)(ROWS - ENDS) * DIM, ENDS * DIM, 0.02f);
    synth_fill_bf16(&l->rng, x, DIM, 1.0f);
    const weight_view v = {.format = WF_BF16, .rows = ROWS, .cols = DIM, .data = host};
    status st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_LINEAR, .views = &v, .n_views = 1}, &w, e);
    if (st == ST_OK) st = int64_take(l, &dev_x, MANY * DIM * 2, e);
    if (st == ST_OK) st = int64_take(l, &dev_y, (u64)MANY * ROWS * 2, e);
    if (st == ST_OK) {
        l->dev->write(l->dev, dev_x, x, sizeof x);
        l->dev->write(l->dev, (bf16 *)dev_x + (MANY - 1) * DIM, x, sizeof x);
        product_of_many_rows(l, w, host, x, dev_x, dev_y, 1);
        product_of_many_rows(l, w, host, x, dev_x, dev_y, MANY);
    }
    l->o->weight_release(w);
    if (st == ST_OK)
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_TABLE, .views = &v, .n_views = 1}, &table, e);
    if (st == ST_OK) st = int64_take(l, &out, 2 * DIM * 2, e);
    if (st == ST_OK) st = int64_take(l, &dev_ids, sizeof ids, e);
    if (st == ST_OK) {
        l->dev->write(l->dev, dev_ids, ids, sizeof ids);
        l->o->embed(l->o, &(embed_args){.table = table, .ids = dev_ids, .out = out, .n = 2});
        l->dev->read(l->dev, row, out, sizeof row);
        verdict(l, "embed, the last of 300,032 rows", !memcmp(row, host + (u64)(ROWS - 1) * DIM, sizeof row), NULL);
    }
    l->o->weight_release(table);
    munmap(host, bytes);
    return st;
}

/* Row i of `x` becomes `row`. */
static void put_row(large *l, void *x, i64 i, const bf16 *row) {
    l->dev->write(l->dev, (bf16 *)x + i * DIM, row, DIM * 2);
}

static bool same_rows(large *l, const void *p, i64 a, i64 b, i64 dim) {
    bf16 *two = malloc((size_t)dim * 4);
    if (!two) return false;
    bool nonzero = false;
    l->dev->read(l->dev, two, (const bf16 *)p + a * dim, (u64)dim * 2);
    l->dev->read(l->dev, two + dim, (const bf16 *)p + b * dim, (u64)dim * 2);
    for (i64 i = 0; i < dim; i++) nonzero = nonzero || two[i];
    bool same = nonzero && !memcmp(two, two + dim, (size_t)dim * 2);
    free(two);
    return same;
}

/* The first and the last row are equal; so must be what comes of them. */
static status large_rows(large *l, err *e) {
    u64 bytes = (u64)ROWS * DIM * 2;
    bf16 row[DIM], some[ENDS * DIM];
    f32 ones[DIM];
    i32 last = ROWS - 1, *dev_last, *bad, *marks = calloc(ROWS, sizeof *marks);
    void *x, *out, *one, *y;
    op_weight *norm = NULL, *w = NULL;
    for (int i = 0; i < DIM; i++) ones[i] = 1;
    synth_fill_bf16(&l->rng, row, DIM, 1.0f);
    synth_fill_bf16(&l->rng, some, ENDS * DIM, 0.02f);
    const weight_view vn = {.format = WF_F32, .rows = 1, .cols = DIM, .data = ones},
                      vw = {.format = WF_BF16, .rows = ENDS, .cols = DIM, .data = some};
    status st = marks ? ST_OK : err_nomem(e, "marks", ROWS * 4);
    if (st == ST_OK)
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_VECTOR, .views = &vn, .n_views = 1}, &norm, e);
    if (st == ST_OK)
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_LINEAR, .views = &vw, .n_views = 1}, &w, e);
    if (st == ST_OK) st = int64_take(l, &x, bytes, e);
    if (st == ST_OK) st = int64_take(l, &out, bytes, e);
    if (st == ST_OK) st = int64_take(l, &one, DIM * 2, e);
    if (st == ST_OK) st = int64_take(l, &y, (u64)ROWS * ENDS * 2, e);
    if (st == ST_OK) st = int64_take(l, &dev_last, 4, e);
    if (st == ST_OK) st = int64_take(l, &bad, ROWS * 4, e);
    if (st == ST_OK) {
        put_row(l, x, 0, row);
        put_row(l, x, last, row);
        l->o->norm(l->o, &(norm_args){.weight = norm,
                                      .x = x,
                                      .out = out,
                                      .n = ROWS,
                                      .dim = DIM,
                                      .x_stride = DIM,
                                      .out_stride = DIM,
                                      .eps = 1e-6f});
        verdict(l, "norm, 300,032 rows of 7168", same_rows(l, out, 0, last, DIM), NULL);
        l->dev->write(l->dev, dev_last, &last, 4);
        l->o->gather(l->o,
                     &(gather_args){
                         .x = x, .rows = dev_last, .out = one, .n = 1, .dim = DIM, .x_stride = DIM, .out_stride = DIM});
        bf16 got[DIM];
        l->dev->read(l->dev, got, one, sizeof got);
        verdict(l, "gather, the last of them", !memcmp(got, row, sizeof row), NULL);
        l->o->linear(
            l->o,
            &(linear_args){.w = w, .x = x, .y = y, .n = ROWS, .x_stride = DIM, .y_stride = ENDS, .y_type = DT_BF16});
        verdict(l, "linear, 300,032 rows of x", same_rows(l, y, 0, last, ENDS), NULL);
        row[DIM - 1] = 0x7fc0;
        put_row(l, x, last, row);
        l->o->mark_nonfinite(
            l->o, &(mark_nonfinite_args){
                      .x = x, .bad = bad, .n = ROWS, .dim = DIM, .stride = DIM, .x_type = DT_BF16, .mark = MARK});
        l->dev->read(l->dev, marks, bad, ROWS * 4);
        i64 marked = 0;
        for (i64 i = 0; i < ROWS; i++) marked += marks[i] != 0;
        verdict(l, "finite, a NaN in the last element", marked == 1 && marks[last] == MARK, NULL);
    }
    l->o->weight_release(norm);
    l->o->weight_release(w);
    free(marks);
    return st;
}

/* A pool of more than 4 GB with two sequences of equal rows, one in the first pages, one in the last. */
enum { NOPE = 128, V_DIM = 128, HEADS = 64, Q = TOKENS * HEADS * (NOPE + ROPE) };
typedef struct {
    dtype type;
    i64 last; /* pages before the last two */
    void *kv, *kv_a, *table, *slots, *q, *lens, *out, *space;
    i32 *pages;
    op_weight *norm, *kv_b;
} cache;

static void write_both(large *l, cache *d) {
    char what[64];
    kv_write_args a = {d->kv_a, d->norm, d->table, d->slots, d->kv, d->type, 2 * TOKENS, LATENT, ROPE, 1e-6f};
    l->o->kv_write(l->o, &a);
    snprintf(what, sizeof what, "kv_write, %s, %lld pages", dtype_name(d->type), (long long)d->last + 2);
    i64 size = (i64)dtype_size(d->type);
    verdict(l, what, same_rows(l, d->kv, 5, d->last * KV_PAGE + 5, WIDTH * size / 2), NULL);
}

static mla_decode_args decode_of(const cache *d, i64 heads) {
    return (mla_decode_args){d->q, d->kv, d->pages, d->lens, d->out, NULL,  d->space, d->type,
                             2,    heads, LATENT,   ROPE,    2,      0.05f, 1,        NULL};
}

static void decode_both(large *l, cache *d, const bf16 *q, i64 heads) {
    char what[64];
    mla_decode_args a = decode_of(d, heads);
    for (i64 i = 0; i < 2; i++) l->dev->write(l->dev, (bf16 *)d->q + i * heads * WIDTH, q, (u64)(heads * WIDTH) * 2);
    l->o->mla_decode(l->o, &a);
    snprintf(what, sizeof what, "mla_decode, %s, %lld heads, the last pages", dtype_name(d->type), (long long)heads);
    verdict(l, what, same_rows(l, d->out, 0, 1, heads * LATENT), NULL);
}

static mla_prefill_args prefill_of(const cache *d, i64 which) {
    bf16 *out = (bf16 *)d->out + which * TOKENS * HEADS * V_DIM;
    return (mla_prefill_args){
        d->kv_b, d->q,  d->kv, d->pages + 2 * which, out, d->space, d->type, TOKENS, 0, HEADS, NOPE, ROPE,
        LATENT,  V_DIM, 0.05f};
}

static void prefill_both(large *l, cache *d, const bf16 *q) {
    char what[64];
    l->dev->write(l->dev, d->q, q, Q * 2);
    for (i64 i = 0; i < 2; i++) {
        mla_prefill_args a = prefill_of(d, i);
        l->o->mla_prefill(l->o, &a);
    }
    snprintf(what, sizeof what, "mla_prefill, %s, %d heads, the last pages", dtype_name(d->type), HEADS);
    verdict(l, what, same_rows(l, d->out, 0, 1, TOKENS * HEADS * V_DIM), NULL);
}

static status cache_weights(large *l, cache *d, err *e) {
    f32 ones[LATENT];
    for (int i = 0; i < LATENT; i++) ones[i] = 1;
    const weight_view vn = {.format = WF_F32, .rows = 1, .cols = LATENT, .data = ones},
                      vb = {.format = WF_BF16, .rows = HEADS * (NOPE + V_DIM), .cols = LATENT};
    const weight_desc n = {.kind = WK_VECTOR, .views = &vn, .n_views = 1};
    weight_desc b = {.kind = WK_KV_B, .views = &vb, .n_views = 1, .n_heads = HEADS, .nope = NOPE, .v_dim = V_DIM};
    b.dummy_seed = 7, b.dummy_sigma = 0.04f;
    status st = l->o->weight_prepare(l->o, &n, &d->norm, e);
    return st == ST_OK ? l->o->weight_prepare(l->o, &b, &d->kv_b, e) : st;
}

static status cache_of(large *l, cache *d, err *e) {
    static bf16 kv_a[2 * TOKENS * WIDTH], q[Q]; /* large */
    f32 table[2 * TOKENS * ROPE];
    i64 slots[2 * TOKENS];
    i32 pages[4] = {0, 1, (i32)d->last, (i32)d->last + 1}, lens[2] = {TOKENS, TOKENS};
    for (int i = 0; i < 2 * TOKENS * ROPE; i++) table[i] = i % 2 ? 0 : 1;
    synth_fill_bf16(&l->rng, kv_a, TOKENS * WIDTH, 1.0f);
    memcpy(kv_a + TOKENS * WIDTH, kv_a, TOKENS * WIDTH * 2);
    synth_fill_bf16(&l->rng, q, Q, 1.0f);
    for (int i = 0; i < TOKENS; i++) slots[i] = i, slots[TOKENS + i] = d->last * KV_PAGE + i;
    mla_decode_args few = decode_of(d, HEADS);
    mla_prefill_args many = prefill_of(d, 0);
    u64 space = l->o->mla_decode_workspace(l->o, &few) + l->o->mla_prefill_workspace(l->o, &many);
    const struct {
        void *slot;
        u64 bytes;
        const void *from;
    } all[] = {{&d->kv, (u64)(d->last + 2) * KV_PAGE * WIDTH * dtype_size(d->type), NULL},
               {&d->kv_a, sizeof kv_a, kv_a},
               {&d->table, sizeof table, table},
               {&d->slots, sizeof slots, slots},
               {&d->q, sizeof q, q},
               {&d->pages, sizeof pages, pages},
               {&d->lens, sizeof lens, lens},
               {&d->out, 2 * TOKENS * HEADS * V_DIM * 2, NULL},
               {&d->space, space, NULL}};
    status st = cache_weights(l, d, e);
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(all); i++) {
        st = int64_take(l, all[i].slot, all[i].bytes, e);
        void *p;
        memcpy(&p, all[i].slot, sizeof p);
        if (st == ST_OK && all[i].from) l->dev->write(l->dev, p, all[i].from, all[i].bytes);
    }
    if (st != ST_OK) return st;
    write_both(l, d);
    decode_both(l, d, q, 8);
    decode_both(l, d, q, HEADS);
    prefill_both(l, d, q);
    return ST_OK;
}

static status large_cache(large *l, err *e) {
    static const dtype types[] = {DT_BF16, DT_F8_E4M3};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(types); i++) {
        cache d = {.type = types[i], .last = PAGES * 2 / (i64)dtype_size(types[i]) - 2};
        st = cache_of(l, &d, e);
        l->o->weight_release(d.norm);
        l->o->weight_release(d.kv_b);
    }
    return st;
}

/* Experts of 5.6e9 elements a matrix, results for each token and slot of 3.8e9: every choice of kernels against ref
 * and the others, twice with the same bits. */
static status large_experts(large *l, err *e) {
    static const moe_layer whole = {"TP1", 7168, 2048, 384, 8, {0}, 65536};
    static const i64 tokens[] = {1, 100, 4096, 65536};
    static tune_layer t; /* large */
    tune_gpu at = {.dev = l->dev, .o = *l->o};
    status st = ST_OK;
    ops_init_ref(&at.ref);
    for (int f = 0; st == ST_OK && f < MOE_OTHER; f++) {
        st = tune_layer_open(&t, &at, (moe_format)f, &whole, whole.most, e);
        for (size_t i = 0; st == ST_OK && i < COUNT_OF(tokens); i++) {
            moe_choice all[MOE_CANDIDATES];
            st = tune_layer_tokens(&t, tokens[i], e);
            int n = moe_candidates(&t.call, all);
            for (int k = 0; st == ST_OK && k < n; k++) {
                char what[96], text[64], how[MOE_CHOICE_TEXT];
                tune_verdict v = {0};
                st = tune_right(&t, &all[k], k == 0, &v, e);
                if (st != ST_OK) break;
                moe_choice_text(all[k], how);
                snprintf(what, sizeof what, "%s experts, %lld tokens, %s", moe_format_text((moe_format)f),
                         (long long)tokens[i], how);
                snprintf(text, sizeof text, "error %.1e%s", v.error, v.same ? "" : ", other bits when repeated");
                verdict(l, what, v.right, text);
            }
        }
        tune_layer_close(&t);
    }
    return st;
}

status check_large(const ops *o, device *dev, int *passed, int *failed, err *e) {
    large l = {.o = o, .dev = dev, .rng = {99}};
    status (*const all[])(large *, err *) = {large_weight, large_rows, large_cache, large_experts};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(all); i++) {
        l.pool = (device_pool){.dev = dev};
        st = all[i](&l, e);
        device_pool_free(&l.pool);
        if (st == ST_OK) st = dev->finish(dev, e);
    }
    *passed = l.passed;
    *failed = l.failed;
    return st;
}
