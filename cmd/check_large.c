/* cmd/check_large.c: `moonlet check --device cuda --large`: tensors of more than 2^31 elements and 4 GB, of which the last rows must be as
 * right as the first. */
#include "check_large.h"
#include "base/buf.h"
#include "synth.h"
#include "tune_moe.h"
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
enum { WIDTH = LATENT + ROPE, TOKENS = 100, HEADS = 8, MARK = 7 };

typedef struct {
    const ops *o;
    device *dev;
    device_pool pool;
    synth rng;
    int passed, failed;
} large;

static void verdict(large *l, const char *what, bool ok, const char *text) {
    printf("%-24s %-48s %s%s%s\n", l->o->name, what, ok ? "PASS" : "FAIL", text ? ": " : "",
           text ? text : "");
    fflush(stdout);
    l->passed += ok;
    l->failed += !ok;
}

static status take(large *l, void *slot, u64 bytes, err *e) {
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

static f64 dot(const bf16 *a, const bf16 *b) {
    f64 sum = 0;
    for (int i = 0; i < DIM; i++) sum += (f64)bf16_to_f32(a[i]) * (f64)bf16_to_f32(b[i]);
    return sum;
}

/* y[row] for the first and last ENDS rows of w, row 0 and the last of n rows of x, which are equal. */
static void product_of_many_rows(large *l, const op_weight *w, const bf16 *host, const bf16 *x,
                                 const void *dev_x, void *dev_y, i64 n) {
    bf16 y[2 * ENDS];
    f64 worst = 0;
    char what[64], text[64];
    l->o->linear(
        l->o,
        &(linear_args){
            .w = w, .x = dev_x, .y = dev_y, .n = n, .x_stride = DIM, .y_stride = ROWS, .y_type = DT_BF16});
    const bf16 *last = (const bf16 *)dev_y + (n - 1) * ROWS;
    l->dev->read(l->dev, y, last, ENDS * 2);
    l->dev->read(l->dev, y + ENDS, last + ROWS - ENDS, ENDS * 2);
    for (int i = 0; i < 2 * ENDS; i++) {
        f64 want = dot(host + (u64)(i < ENDS ? i : ROWS - 2 * ENDS + i) * DIM, x);
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
    status st =
        l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_LINEAR, .views = &v, .n_views = 1}, &w, e);
    if (st == ST_OK) st = take(l, &dev_x, MANY * DIM * 2, e);
    if (st == ST_OK) st = take(l, &dev_y, (u64)MANY * ROWS * 2, e);
    if (st == ST_OK) {
        l->dev->write(l->dev, dev_x, x, sizeof x);
        l->dev->write(l->dev, (bf16 *)dev_x + (MANY - 1) * DIM, x, sizeof x);
        product_of_many_rows(l, w, host, x, dev_x, dev_y, 1);
        product_of_many_rows(l, w, host, x, dev_x, dev_y, MANY);
    }
    l->o->weight_release(w);
    if (st == ST_OK)
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_TABLE, .views = &v, .n_views = 1}, &table,
                                  e);
    if (st == ST_OK) st = take(l, &out, 2 * DIM * 2, e);
    if (st == ST_OK) st = take(l, &dev_ids, sizeof ids, e);
    if (st == ST_OK) {
        l->dev->write(l->dev, dev_ids, ids, sizeof ids);
        l->o->embed(l->o, &(embed_args){.table = table, .ids = dev_ids, .out = out, .n = 2});
        l->dev->read(l->dev, row, out, sizeof row);
        verdict(l, "embed, the last of 300,032 rows", !memcmp(row, host + (u64)(ROWS - 1) * DIM, sizeof row),
                NULL);
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
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_VECTOR, .views = &vn, .n_views = 1}, &norm,
                                  e);
    if (st == ST_OK)
        st = l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_LINEAR, .views = &vw, .n_views = 1}, &w, e);
    if (st == ST_OK) st = take(l, &x, bytes, e);
    if (st == ST_OK) st = take(l, &out, bytes, e);
    if (st == ST_OK) st = take(l, &one, DIM * 2, e);
    if (st == ST_OK) st = take(l, &y, (u64)ROWS * ENDS * 2, e);
    if (st == ST_OK) st = take(l, &dev_last, 4, e);
    if (st == ST_OK) st = take(l, &bad, ROWS * 4, e);
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
        l->o->gather(l->o, &(gather_args){.x = x, .rows = dev_last, .out = one, .n = 1, .dim = DIM});
        bf16 got[DIM];
        l->dev->read(l->dev, got, one, sizeof got);
        verdict(l, "gather, the last of them", !memcmp(got, row, sizeof row), NULL);
        l->o->linear(
            l->o,
            &(linear_args){
                .w = w, .x = x, .y = y, .n = ROWS, .x_stride = DIM, .y_stride = ENDS, .y_type = DT_BF16});
        verdict(l, "linear, 300,032 rows of x", same_rows(l, y, 0, last, ENDS), NULL);
        row[DIM - 1] = 0x7fc0;
        put_row(l, x, last, row);
        l->o->finite(
            l->o,
            &(finite_args){
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

/* Two sequences of equal rows, one in the first pages of the pool, one in the last. */
static status large_cache(large *l, err *e) {
    enum { Q = HEADS * WIDTH };
    bf16 kv_a[2 * TOKENS * WIDTH], q[2 * Q];
    f32 ones[LATENT], table[2 * TOKENS * ROPE];
    i64 slots[2 * TOKENS];
    i32 pages[4] = {0, 1, PAGES - 2, PAGES - 1}, lens[2] = {TOKENS, TOKENS};
    struct {
        void *kv, *kv_a, *table, *slots, *q, *pages, *lens, *out, *space;
    } d;
    op_weight *norm = NULL;
    for (int i = 0; i < LATENT; i++) ones[i] = 1;
    for (int i = 0; i < 2 * TOKENS * ROPE; i++) table[i] = i % 2 ? 0 : 1;
    synth_fill_bf16(&l->rng, kv_a, TOKENS * WIDTH, 1.0f);
    memcpy(kv_a + TOKENS * WIDTH, kv_a, TOKENS * WIDTH * 2);
    synth_fill_bf16(&l->rng, q, Q, 1.0f);
    memcpy(q + Q, q, Q * 2);
    for (int i = 0; i < TOKENS; i++) slots[i] = i, slots[TOKENS + i] = (i64)(PAGES - 2) * KV_PAGE + i;
    mla_decode_args a = {.kv_type = DT_BF16,
                         .n = 2,
                         .n_heads = HEADS,
                         .latent = LATENT,
                         .rope = ROPE,
                         .pages_stride = 2,
                         .scale = 0.05f};
    const weight_view vn = {.format = WF_F32, .rows = 1, .cols = LATENT, .data = ones};
    status st =
        l->o->weight_prepare(l->o, &(weight_desc){.kind = WK_VECTOR, .views = &vn, .n_views = 1}, &norm, e);
    const struct {
        void *slot;
        u64 bytes;
        const void *from;
    } all[] = {{&d.kv, (u64)PAGES * KV_PAGE * WIDTH * 2, NULL},
               {&d.kv_a, sizeof kv_a, kv_a},
               {&d.table, sizeof table, table},
               {&d.slots, sizeof slots, slots},
               {&d.q, sizeof q, q},
               {&d.pages, sizeof pages, pages},
               {&d.lens, sizeof lens, lens},
               {&d.out, 2 * HEADS * LATENT * 2, NULL},
               {&d.space, l->o->mla_decode_workspace(l->o, &a), NULL}};
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(all); i++) {
        st = take(l, all[i].slot, all[i].bytes, e);
        void *p;
        memcpy(&p, all[i].slot, sizeof p);
        if (st == ST_OK && all[i].from) l->dev->write(l->dev, p, all[i].from, all[i].bytes);
    }
    if (st == ST_OK) {
        l->o->kv_write(l->o, &(kv_write_args){.kv_a = d.kv_a,
                                              .norm = norm,
                                              .table = d.table,
                                              .slots = d.slots,
                                              .kv = d.kv,
                                              .kv_type = DT_BF16,
                                              .n = 2 * TOKENS,
                                              .latent = LATENT,
                                              .rope = ROPE,
                                              .eps = 1e-6f});
        verdict(l, "kv_write, 60,032 pages", same_rows(l, d.kv, 5, (i64)(PAGES - 2) * KV_PAGE + 5, WIDTH),
                NULL);
        a.q = d.q, a.kv = d.kv, a.pages = d.pages, a.kv_len = d.lens, a.out = d.out, a.workspace = d.space;
        l->o->mla_decode(l->o, &a);
        verdict(l, "mla_decode, the first and the last pages", same_rows(l, d.out, 0, 1, HEADS * LATENT),
                NULL);
    }
    l->o->weight_release(norm);
    return st;
}

/* Experts of 5.6e9 elements a matrix, results for each token and slot of 3.8e9: every choice of kernels against ref and the others,
 * twice with the same bits. */
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
                snprintf(text, sizeof text, "error %.1e%s", v.error,
                         v.same ? "" : ", other bits when repeated");
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
