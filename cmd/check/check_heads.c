/* cmd/check/check_heads.c: attention with keys and values for every KV head. */
#include "base/log.h"
#include "cmd/check/check.h"
#include <math.h>
#include <string.h>

static const struct {
    i64 heads, kv_heads, dim;
} heads_shapes[] = {{64, 64, 128}, {8, 8, 128}, {56, 8, 128}, {14, 2, 128}, {2, 2, 128},
                    {3, 3, 64},    {6, 2, 256}, {5, 1, 96},   {4, 2, 32}};

/* Rows of positions far apart: angles of any size. */
static f32 *make_table(check *c, i64 n, i64 dim) {
    f32 *table = check_alloc(c, (u64)(n * dim) * 4);
    for (i64 k = 0; k < n * dim / 2; k++) {
        f64 angle = 3.2 * (f64)synth_uniform(&c->rng);
        table[2 * k] = (f32)cos(angle), table[2 * k + 1] = (f32)sin(angle);
    }
    return table;
}

/* Every row is written where its slot says, or nowhere; nothing else changes. `bad`: row n / 2 of k holds a NaN, and
 * of v, which only its own cells may show. */
static void heads_write_case(check *c, size_t shape, i64 n, dtype t, bool bad) {
    const i64 heads = heads_shapes[shape].kv_heads, dim = heads_shapes[shape].dim, row = heads * dim, width = 2 * row,
              pages = 2, cells = pages * KV_PAGE * width;
    void *kv = check_kv_pool(c, t, pages, width), *want = check_kv_widen(c, kv, t, cells), *got;
    check_act k = check_input(c, n * row, 1.0f), v = check_input(c, n * row, 1.0f);
    i64 *slots = check_alloc(c, (u64)n * 8);
    for (i64 i = 0; i < n; i++) slots[i] = i % 16 == 2 ? -1 : (i * 37 + 11) % (pages * KV_PAGE);
    if (bad) {
        const i64 at = n / 2 * row + row / 2;
        k.h[at] = v.h[at] = CHECK_BAD, k.f[at] = v.f[at] = NAN;
    }
    heads_write_args a = {k.h, v.h, make_table(c, n, dim), slots, kv, t, n, heads, dim};
    heads_write_args b = {k.f, v.f, a.table, slots, want, DT_F32, n, heads, dim};
    c->dev->heads_write(c->dev, &a);
    c->ref->heads_write(c->ref, &b);
    got = check_kv_widen(c, kv, t, cells);
    i64 lost = 0;
    for (i64 i = 0; i < cells; i++) { /* a NaN is where ref has one; the rest is compared as numbers */
        f32 *x = (f32 *)got + i, *y = (f32 *)want + i;
        if (isnan(*x) != isnan(*y)) check_fail(c, "heads_write, %s: a NaN moved", dtype_name(t));
        if (isnan(*y)) lost++, *x = *y = 0;
    }
    if (bad && lost != 3) check_fail(c, "heads_write, %s: %lld cells are NaN, not 3", dtype_name(t), (long long)lost);
    for (i64 s = 0; s < pages * KV_PAGE; s++) {
        bool written = false;
        for (i64 i = 0; i < n; i++) written = written || slots[i] == s;
        if (!written && memcmp((f32 *)got + s * width, (f32 *)want + s * width, (size_t)width * 4))
            check_fail(c, "heads_write, %s: slot %lld was none", dtype_name(t), (long long)s);
    }
    check_compare(c, dtype_name(t), got, DT_F32, want, pages * KV_PAGE, width, width,
                  t == DT_F32    ? 1e-5
                  : t == DT_BF16 ? CHECK_BF16_BOUND
                                 : 4e-2);
    check_case_end(c);
}

void check_heads_write(check *c) {
    static const i64 counts[] = {1, 3, 17, 64};
    for (size_t s = 0; s < COUNT_OF(heads_shapes); s++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (int t = 0; t < CHECK_KV_TYPES; t++) {
                heads_write_case(c, s, counts[i], check_kv_types[t], false);
                if (counts[i] == 17) heads_write_case(c, s, counts[i], check_kv_types[t], true);
            }
}

/* A call that may be repeated with something bad in it. */
typedef struct {
    heads_decode_args a;
    check_act q, out, again;
    i64 page, row; /* cells of a page; of a token's keys */
} heads_call;

/* Row n / 2 again with a NaN in its query, a NaN among its keys, and an infinity (FP8: a NaN) among its values, each in
 * its own last page: the other rows keep their bits. */
static void check_bad_rows(check *c, heads_call *k) {
    static const char *const what[] = {"heads_decode, q", "heads_decode, k", "heads_decode, v"};
    heads_decode_args *a = &k->a;
    const i64 bad = a->n / 2, last = a->kv_len[bad] - 1, all = a->n_heads * a->dim, size = (i64)dtype_size(a->kv_type),
              at =
                  a->pages[bad * a->pages_stride + last / KV_PAGE] * k->page + last % KV_PAGE * 2 * k->row + a->dim / 2;
    u8 *kv = (u8 *)(uintptr_t)a->kv;
    for (int part = 0; part < 3; part++) {
        const i64 cell = at + (part == 2 ? k->row : 0);
        u8 kept[4];
        bf16 first = k->q.h[bad * all];
        memcpy(kept, kv + cell * size, (size_t)size);
        if (part == 0) k->q.h[bad * all] = CHECK_BAD;
        if (part > 0) check_kv_set_bad(kv, a->kv_type, cell);
        if (part == 2 && a->kv_type == DT_BF16) ((bf16 *)kv)[cell] = 0x7f80;
        if (part == 2 && a->kv_type == DT_F32) ((f32 *)kv)[cell] = INFINITY;
        a->out = k->again.h;
        c->dev->heads_decode(c->dev, a);
        check_isolated(c, what[part], k->out.h, k->again.h, a->n, all, bad);
        k->q.h[bad * all] = first;
        memcpy(kv + cell * size, kept, (size_t)size);
    }
}

/* n rows of lengths[i % n_lengths] tokens. Each has its last page alone, behind its end NaN; the pages before it are
 * any of `SHARED` that all rows draw from. */
static void heads_decode_case(check *c, i64 heads, i64 kv_heads, i64 dim, i64 n, const i32 *lengths, i64 n_lengths,
                              dtype t) {
    enum { SHARED = 5 };
    const i64 row = kv_heads * dim, width = 2 * row, pages = n + SHARED, all = heads * dim;
    i64 stride = 1, tokens = 0;
    i32 *len = check_alloc(c, (u64)n * 4);
    for (i64 i = 0; i < n; i++)
        len[i] = lengths[i % n_lengths], tokens += len[i], stride = max_i64(stride, ceil_div(len[i], KV_PAGE));
    void *kv = check_kv_pool(c, t, pages, width);
    i32 *list = check_alloc(c, (u64)(n * stride) * 4);
    for (i64 i = 0; i < n; i++) {
        const i64 last = (len[i] - 1) / KV_PAGE;
        for (i64 p = 0; p < stride; p++) list[i * stride + p] = (i32)(synth_bits(&c->rng) % SHARED);
        list[i * stride + last] = (i32)(pages - 1 - i);
        for (i64 k = len[i] - last * KV_PAGE; k < KV_PAGE; k++)
            for (i64 d = 0; d < width; d++) check_kv_set_bad(kv, t, ((pages - 1 - i) * KV_PAGE + k) * width + d);
    }
    heads_call k = {.q = check_input(c, n * all, 1.0f),
                    .out = check_output(c, n * all),
                    .again = check_output(c, n * all),
                    .page = KV_PAGE * width,
                    .row = row};
    const f32 *table = make_table(c, n, dim);
    const f32 scale = 1.0f / sqrtf((f32)dim);
    void *wide = check_kv_widen(c, kv, t, pages * KV_PAGE * width);
    k.a = (heads_decode_args){k.q.h, table, kv, list, len, k.out.h, NULL, t, n, heads, kv_heads, dim, stride, scale};
    heads_decode_args b = {k.q.f,  table, wide,  list,     len, k.out.f, NULL,
                           DT_F32, n,     heads, kv_heads, dim, stride,  scale};
    k.a.workspace = check_alloc(c, c->dev->heads_decode_workspace(c->dev, &k.a));
    b.workspace = check_alloc(c, c->ref->heads_decode_workspace(c->ref, &b));
    f64 start = now_s();
    c->dev->heads_decode(c->dev, &k.a);
    if (heads == 64) check_speed(c, now_s() - start, (u64)(tokens * width) * dtype_size(t));
    c->ref->heads_decode(c->ref, &b);
    check_compare(c, dtype_name(t), k.out.h, DT_BF16, k.out.f, n * heads, dim, dim, CHECK_BF16_BOUND);
    if (n > 1) check_bad_rows(c, &k);
    check_case_end(c);
}

void check_heads_decode(check *c) {
    /* of many heads fewer: pools grow with both; on a host each row is alone */
    static const i64 counts[] = {1, 3, 17, 64};
    static const i32 lengths[] = {65, 1, 63, 64, 1000, 128, 200}, longest[] = {4097, 64, 1}, one[] = {1000};
    for (int t = 0; t < CHECK_KV_TYPES; t++) {
        const dtype type = check_kv_types[t];
        for (size_t s = 0; s < COUNT_OF(heads_shapes); s++) {
            const i64 h = heads_shapes[s].heads, g = heads_shapes[s].kv_heads, dim = heads_shapes[s].dim;
            const bool many = h >= 56; /* emulated their blocks do what those of fewer heads do, for minutes */
            for (size_t i = 0; i < COUNT_OF(counts); i++) {
                if (counts[i] == 64 ? g == 64 || !c->copies : counts[i] == 17 && g == 64 && !check_on_gpu(c)) continue;
                if (check_emulated(c) && (many ? counts[i] >= 17 : counts[i] == 64 && type != DT_BF16)) continue;
                heads_decode_case(c, h, g, dim, counts[i], lengths, COUNT_OF(lengths), type);
            }
            heads_decode_case(c, h, g, dim, 1, one, 1, type);
            if ((g < 64 || type == DT_BF16) && !(many && check_emulated(c)))
                heads_decode_case(c, h, g, dim, 3, longest, COUNT_OF(longest), type);
        }
        heads_decode_case(c, 2, 2, 128, 1, longest, 1, type);
    }
}
