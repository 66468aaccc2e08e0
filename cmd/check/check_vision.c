/* cmd/check/check_vision.c: the vision tower's operations, at the widths of K2.5 and of the small model, and at odd
 * ones. */
#include "base/log.h"
#include "cmd/check/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- items ---- */

enum { ITEMS = 64, BAD_ITEM = 1 /* of a set with several, the one that gets a NaN */ };
typedef struct {
    i32 t, h, w;
} item_size;
typedef struct {
    const item_size *of; /* NULL: ITEMS items, small ones of 1 to 4 frames */
    i64 n;
} item_set;
static const item_size smallest[] = {{1, 2, 2}},
                       mixed[] = {{1, 2, 2}, {4, 2, 4}, {1, 6, 10}, {3, 4, 2}, {2, 12, 6}, {1, 2, 14}},
                       tiles[] = {{1, 8, 16}, {1, 8, 8}, {1, 10, 14}, {2, 2, 16}},
                       long_ones[] = {{1, 1, 1}, {1, 22, 26}, {1, 16, 16}, {3, 1, 1}, {1, 8, 24}, {1, 1, 257}},
                       picture[] = {{1, 130, 130}};
static const item_set one_item = {smallest, 1}, mixed_items = {mixed, COUNT_OF(mixed)},
                      tile_items = {tiles, COUNT_OF(tiles)}, many_items = {NULL, ITEMS},
                      long_items = {long_ones, COUNT_OF(long_ones)} /* of attention: any number of rows, up to 572 */,
                      large_item = {picture, 1};

typedef struct {
    vision_item *items;
    i64 n, rows, tokens, longest, side;
} case_items;

static i64 patches_of(const vision_item *it) { return (i64)it->t * it->h * it->w; }

static case_items place_items(check *c, item_set set) {
    case_items k = {.items = check_alloc(c, (u64)set.n * sizeof *k.items), .n = set.n};
    for (i64 i = 0; i < set.n; i++) {
        const i32 of = (i32)i;
        const item_size s = set.of ? set.of[i] : (item_size){1 + of % 4, 2 + of % 3 * 2, 2 + of / 3 % 4 * 2};
        const vision_item it = {(i32)k.rows, (i32)k.tokens, s.t, s.h, s.w};
        k.items[i] = it;
        k.rows += patches_of(&it);
        k.tokens += (i64)s.h / VISION_MERGE * (s.w / VISION_MERGE);
        k.longest = max_i64(k.longest, patches_of(&it));
        k.side = max_i64(k.side, max_i64(s.h, s.w));
    }
    return k;
}

/* The item as a call of its own. */
static vision_item *alone(check *c, const vision_item *it) {
    const vision_item one = {0, 0, it->t, it->h, it->w};
    return check_copy(c, &one, sizeof one);
}

static check_weight vector(check *c, bool f32_weights, i64 dim, f32 sigma) {
    return check_matrix(c, WK_VECTOR, f32_weights ? WF_F32 : WF_BF16, 1, dim, sigma);
}

/* Results that must be the same bits; dim values a row. */
static void same_bits(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim) {
    for (i64 i = 0; i < n * dim; i++)
        if (a[i] != b[i]) {
            check_fail(c, "%s: %g, then %g in row %lld", what, (f64)bf16_to_f32(a[i]), (f64)bf16_to_f32(b[i]),
                       (long long)(i / dim));
            return;
        }
    c->cases++;
}

/* ---- pixels ---- */

/* Every byte's value is one float, so results are the same bits. */
static void pixels_case(check *c, i64 n, i64 dim, i64 stride) {
    u8 *pixels = check_alloc(c, (u64)(n * dim));
    for (i64 i = 0; i < n * dim; i++) pixels[i] = i < 256 ? (u8)i : (u8)synth_bits(&c->rng);
    check_act y = check_output(c, n * stride);
    const pixel_rows_args a = {pixels, y.h, n, dim, stride}, b = {pixels, y.f, n, dim, stride};
    f64 start = now_s();
    c->dev->pixel_rows(c->dev, &a);
    if (dim == 588) check_speed(c, now_s() - start, (u64)(n * (dim + 2 * stride)));
    c->ref->pixel_rows(c->ref, &b);
    check_compare(c, "pixel_rows", y.h, DT_BF16, y.f, n, stride, stride, CHECK_BF16_BOUND);
    bf16 *want = check_alloc(c, (u64)(n * stride) * 2);
    for (i64 i = 0; i < n * stride; i++) want[i] = f32_to_bf16(y.f[i]);
    same_bits(c, "pixel_rows", want, y.h, n, stride);
    check_case_end(c);
}

void check_pixel_rows(check *c) {
    static const struct {
        i64 dim, stride;
    } s[] = {{588, 592}, {588, 588}, {12, 16}, {75, 80}, {27, 27}, {5, 9}, {3072, 3072}};
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        pixels_case(c, 1, s[i].dim, s[i].stride);
        pixels_case(c, 37, s[i].dim, s[i].stride);
    }
    if (check_on_gpu(c)) pixels_case(c, 16900, 588, 592);
}

/* ---- positions ---- */

static void position_case(check *c, item_set set, i64 dim, i64 table_h, i64 table_w, weight_format f) {
    enum { FRAMES = 4 };
    const case_items k = place_items(c, set);
    check_weight table = check_matrix(c, WK_TABLE, f, table_h * table_w, dim, 1.0f),
                 bias = vector(c, f == WF_F32, dim, 1.0f);
    check_act x = check_input(c, k.rows * dim, 1.0f);
    const check_act bad = {check_copy(c, x.h, (u64)(k.rows * dim) * 2), NULL};
    f32 *time = check_alloc(c, (u64)(FRAMES * dim) * 4);
    for (i64 i = 0; i < FRAMES * dim; i++) time[i] = synth_uniform(&c->rng);
    patch_position_args a = {table.dev, bias.dev, time, k.items, x.h, k.rows, k.n, dim, table_h, table_w}, b = a;
    b.table = table.ref, b.bias = bias.ref, b.x = x.f;
    f64 start = now_s();
    c->dev->patch_position(c->dev, &a);
    if (dim == 1152) check_speed(c, now_s() - start, (u64)(k.rows * dim) * 4);
    c->ref->patch_position(c->ref, &b);
    check_compare(c, weight_format_name(f), x.h, DT_BF16, x.f, k.rows, dim, dim, CHECK_BF16_BOUND);
    bad.h[k.rows / 2 * dim + dim / 2] = CHECK_BAD;
    a.x = bad.h;
    c->dev->patch_position(c->dev, &a);
    check_isolated(c, "patch_position", x.h, bad.h, k.rows, dim, k.rows / 2);
    check_case_end(c);
}

void check_patch_position(check *c) {
    static const weight_format formats[] = {WF_F32, WF_BF16};
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        position_case(c, mixed_items, 1152, 64, 64, formats[f]);
        position_case(c, mixed_items, 144, 16, 16, formats[f]);
        position_case(c, many_items, 144, 16, 16, formats[f]);
        position_case(c, tile_items, 20, 8, 16, formats[f]); /* the first item has the table's size */
        position_case(c, one_item, 24, 1, 1, formats[f]);
        position_case(c, mixed_items, 13, 3, 5, formats[f]);
        if (check_on_gpu(c)) position_case(c, large_item, 1152, 64, 64, formats[f]);
    }
}

/* ---- layer norm ---- */

enum { NORM_ADD = 1, NORM_SUM = 2, NORM_IN_PLACE = 4, NORM_F32 = 8 };

/* Rows whose mean is many times their deviation, where nothing is added. */
static void layer_norm_case(check *c, i64 n, i64 dim, int mode) {
    const bool adds = mode & NORM_ADD, in_place = mode & NORM_IN_PLACE, sums = (mode & NORM_SUM) || in_place;
    check_weight weight = vector(c, mode & NORM_F32, dim, 1.0f), bias = vector(c, mode & NORM_F32, dim, 0.5f),
                 add_bias = vector(c, mode & NORM_F32, dim, 1.0f);
    check_act x = check_input(c, n * dim, 1.0f), add = check_input(c, n * dim, 1.0f), sum = check_output(c, n * dim),
              y = check_output(c, n * dim), z = check_output(c, n * dim);
    for (i64 i = 0; !adds && i < n * dim; i++) {
        x.h[i] = f32_to_bf16(x.f[i] + 20.0f);
        x.f[i] = bf16_to_f32(x.h[i]);
    }
    const bf16 *kept = check_copy(c, x.h, (u64)(n * dim) * 2);
    layer_norm_args a = {.weight = weight.dev,
                         .bias = bias.dev,
                         .add_bias = adds ? add_bias.dev : NULL,
                         .x = x.h,
                         .add = adds ? add.h : NULL,
                         .sum = in_place ? x.h
                                : sums   ? sum.h
                                         : NULL,
                         .out = y.h,
                         .n = n,
                         .dim = dim,
                         .eps = 1e-5f},
                    b = a;
    b.weight = weight.ref, b.bias = bias.ref, b.add_bias = adds ? add_bias.ref : NULL;
    b.x = x.f, b.add = adds ? add.f : NULL, b.sum = in_place ? x.f : sums ? sum.f : NULL, b.out = y.f;
    f64 start = now_s();
    c->dev->layer_norm(c->dev, &a);
    if (n == 64) check_speed(c, now_s() - start, (u64)(n * dim) * (adds ? 8 : 4));
    c->ref->layer_norm(c->ref, &b);
    check_compare(c, "layer_norm", y.h, DT_BF16, y.f, n, dim, dim, CHECK_BF16_BOUND);
    if (sums) check_compare(c, "layer_norm's sum", a.sum, DT_BF16, b.sum, n, dim, dim, CHECK_BF16_BOUND);
    memcpy(x.h, kept, (size_t)(n * dim) * 2);
    x.h[n / 2 * dim + dim / 2] = CHECK_BAD;
    a.out = z.h;
    c->dev->layer_norm(c->dev, &a);
    check_isolated(c, "layer_norm", y.h, z.h, n, dim, n / 2);
    check_case_end(c);
}

/* Rows of one value, which have no deviation. */
static void flat_rows(check *c) {
    enum { N = 3, DIM = 144 };
    check_weight weight = vector(c, true, DIM, 1.0f), bias = vector(c, true, DIM, 1.0f);
    check_act x = check_input(c, N * DIM, 1.0f), y = check_output(c, N * DIM);
    for (i64 i = 0; i < N * DIM; i++) x.f[i] = (f32)(i / DIM), x.h[i] = f32_to_bf16(x.f[i]);
    layer_norm_args a = {
        .weight = weight.dev, .bias = bias.dev, .x = x.h, .out = y.h, .n = N, .dim = DIM, .eps = 1e-5f};
    layer_norm_args b = {
        .weight = weight.ref, .bias = bias.ref, .x = x.f, .out = y.f, .n = N, .dim = DIM, .eps = 1e-5f};
    c->dev->layer_norm(c->dev, &a);
    c->ref->layer_norm(c->ref, &b);
    check_compare(c, "layer_norm of flat rows", y.h, DT_BF16, y.f, N, DIM, DIM, CHECK_BF16_BOUND);
    check_case_end(c);
}

void check_layer_norm(check *c) {
    static const i64 dims[] = {1152, 144, 20, 33, 1280, 1288, 4608, VISION_WIDTH}, counts[] = {1, 3, 17};
    static const int modes[] = {
        0, NORM_SUM, NORM_ADD, NORM_ADD | NORM_SUM, NORM_ADD | NORM_IN_PLACE, NORM_ADD | NORM_IN_PLACE | NORM_F32};
    for (size_t d = 0; d < COUNT_OF(dims); d++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (size_t m = 0; m < COUNT_OF(modes); m++) layer_norm_case(c, counts[i], dims[d], modes[m]);
    layer_norm_case(c, 64, 1152, NORM_ADD | NORM_IN_PLACE);
    if (check_on_gpu(c)) layer_norm_case(c, 16900, 1152, NORM_ADD | NORM_IN_PLACE);
    flat_rows(c);
}

/* ---- bias and activation ---- */

static const char *const activation_names[] = {"bias_act, bias alone", "bias_act, GELU", "bias_act, GELU by tanh"};

static void bias_act_case(check *c, i64 n, i64 dim, bias_activation activation, bool f32_weights) {
    const char *what = activation_names[activation];
    check_weight bias = vector(c, f32_weights, dim, 1.0f);
    check_act x = check_input(c, n * dim, 2.0f), z = check_output(c, n * dim);
    memcpy(z.h, x.h, (size_t)(n * dim) * 2);
    bias_act_args a = {bias.dev, x.h, n, dim, activation}, b = {bias.ref, x.f, n, dim, activation};
    f64 start = now_s();
    c->dev->bias_act(c->dev, &a);
    if (activation == BIAS_GELU_TANH) check_speed(c, now_s() - start, (u64)(n * dim) * 4);
    c->ref->bias_act(c->ref, &b);
    check_compare(c, what, x.h, DT_BF16, x.f, n, dim, dim, CHECK_BF16_BOUND);
    z.h[n / 2 * dim + dim / 2] = CHECK_BAD;
    a.x = z.h;
    c->dev->bias_act(c->dev, &a);
    check_isolated(c, what, x.h, z.h, n, dim, n / 2);
    check_case_end(c);
}

/* Values of every size, each against its own: far to the right what comes is x, far to the left nothing. */
static void activation_values(check *c, bias_activation activation) {
    static const f32 values[] = {0,    1e-30f, 1e-3f, 0.1f, 0.5f, 1,  2,   2.5f, 3,     3.5f,  4,
                                 4.5f, 5,      6,     8,    12,   20, 100, 1e4f, 1e10f, 1e20f, 1e30f};
    enum { DIM = 2 * COUNT_OF(values) };
    check_weight bias = vector(c, true, DIM, 0.0f);
    check_act x = check_input(c, DIM, 1.0f);
    for (i64 i = 0; i < DIM; i++) {
        x.h[i] = f32_to_bf16(i % 2 ? -values[i / 2] : values[i / 2]);
        x.f[i] = bf16_to_f32(x.h[i]);
    }
    const f32 *from = check_copy(c, x.f, sizeof(f32) * DIM);
    bias_act_args a = {bias.dev, x.h, 1, DIM, activation}, b = {bias.ref, x.f, 1, DIM, activation};
    c->dev->bias_act(c->dev, &a);
    c->ref->bias_act(c->ref, &b);
    for (i64 i = 0; i < DIM; i++) {
        const f32 got = bf16_to_f32(x.h[i]), want = x.f[i];
        if (!(fabsf(got - want) <= 4e-3f * fabsf(want) + 1e-6f * fminf(1, fabsf(from[i]))))
            check_fail(c, "%s of %g: %g, not %g", activation_names[activation], (f64)from[i], (f64)got, (f64)want);
    }
    c->cases++;
    check_case_end(c);
}

void check_bias_act(check *c) {
    static const i64 dims[] = {4304, 536, 1152, 576, 20, 13, 7168}, counts[] = {1, 5, 33};
    for (int k = BIAS_ONLY; k <= BIAS_GELU_TANH; k++) {
        for (size_t d = 0; d < COUNT_OF(dims); d++)
            for (size_t i = 0; i < COUNT_OF(counts); i++)
                bias_act_case(c, counts[i], dims[d], (bias_activation)k, (d + i) % 2);
        activation_values(c, (bias_activation)k);
    }
    if (check_on_gpu(c)) {
        bias_act_case(c, 16900, 4304, BIAS_GELU_TANH, false);
        bias_act_case(c, 4225, 4608, BIAS_GELU, false);
    }
}

/* ---- rotary embedding ---- */

static void vision_rope_case(check *c, item_set set, i64 heads, i64 dim, bool f32_weights) {
    const case_items k = place_items(c, set);
    const i64 row = 3 * heads * dim;
    check_weight bias = vector(c, f32_weights, row, 1.0f);
    check_act x = check_input(c, k.rows * row, 1.0f), z = check_output(c, k.rows * row);
    memcpy(z.h, x.h, (size_t)(k.rows * row) * 2);
    f32 *table = check_alloc(c, (u64)(k.side * dim / 2) * 4);
    for (i64 i = 0; i < k.side * dim / 4; i++) {
        const f64 angle = 3.2 * (f64)synth_uniform(&c->rng);
        table[2 * i] = (f32)cos(angle), table[2 * i + 1] = (f32)sin(angle);
    }
    vision_rope_args a = {bias.dev, table, k.items, x.h, k.rows, k.n, heads, dim},
                     b = {bias.ref, table, k.items, x.f, k.rows, k.n, heads, dim};
    f64 start = now_s();
    c->dev->vision_rope(c->dev, &a);
    if (heads == 16) check_speed(c, now_s() - start, (u64)(k.rows * row) * 4);
    c->ref->vision_rope(c->ref, &b);
    check_compare(c, "vision_rope", x.h, DT_BF16, x.f, k.rows, row, row, CHECK_BF16_BOUND);
    z.h[k.rows / 2 * row + row / 4] = CHECK_BAD;
    a.qkv = z.h;
    c->dev->vision_rope(c->dev, &a);
    check_isolated(c, "vision_rope", x.h, z.h, k.rows, row, k.rows / 2);
    check_case_end(c);
}

/* Heads of K2.5, of the small model, and of other widths. */
static const struct {
    i64 heads, dim;
} vision_heads[] = {{16, 72}, {2, 72}, {2, 4}, {3, 36}, {1, 80}, {2, 128}, {3, 64}, {2, 8}, {2, 40}, {1, 20}, {1, 512}};

void check_vision_rope(check *c) {
    for (size_t i = 0; i < COUNT_OF(vision_heads); i++) {
        vision_rope_case(c, one_item, vision_heads[i].heads, vision_heads[i].dim, i % 2);
        vision_rope_case(c, mixed_items, vision_heads[i].heads, vision_heads[i].dim, !(i % 2));
    }
    vision_rope_case(c, many_items, 2, 72, false);
    if (check_on_gpu(c)) vision_rope_case(c, large_item, 16, 72, false);
}

/* ---- attention ---- */

/* In slices that begin and end anywhere: the same bits, and nothing outside of a slice is written. */
static void attention_slices(check *c, const vision_attention_args *from, const bf16 *whole) {
    const i64 row = from->n_heads * from->dim, step = max_i64(1, from->n * 3 / 7);
    check_act out = check_output(c, from->n * row);
    vision_attention_args a = *from;
    a.out = out.h;
    for (a.first = 0; a.first < a.n; a.first += a.count) {
        a.count = min_i64(step, a.n - a.first);
        bf16 *behind = out.h + (a.first + a.count) * row, before = a.first + a.count < a.n ? *behind : 0;
        c->dev->vision_attention(c->dev, &a);
        if (a.first + a.count < a.n && *behind != before)
            check_fail(c, "vision_attention wrote behind rows %lld + %lld", (long long)a.first, (long long)a.count);
    }
    same_bits(c, "vision_attention, in slices", whole, out.h, a.n, row);
}

/* Again with a NaN in the query of one row of an item, in one of its keys, in one of its values: the other items keep
 * their bits, and of its own rows those change that see it. The same with an infinite value, of which something finite
 * may come. */
static void attention_bad_items(check *c, const vision_attention_args *from, check_act qkv, const bf16 *good) {
    static const char *const what[] = {"vision_attention, q", "vision_attention, k", "vision_attention, v"};
    enum { INFINITE = 0x7f80 };
    vision_attention_args a = *from;
    const i64 row = a.n_heads * a.dim, column = row / 2;
    const vision_item *it = a.items + BAD_ITEM;
    bf16 *again = check_alloc(c, (u64)(a.n * row) * 2);
    a.out = again;
    for (i64 k = 0; k < 6; k++) { /* a NaN in the last row, then an infinite value in the first */
        const i64 part = k % 3, at = k < 3 ? it->first + patches_of(it) - 1 : it->first;
        bf16 *cell = qkv.h + at * 3 * row + part * row + column;
        const bf16 kept = *cell;
        i64 lost = 0, changed = 0;
        *cell = k < 3 ? CHECK_BAD : INFINITE;
        c->dev->vision_attention(c->dev, &a);
        *cell = kept;
        for (i64 i = 0; i < a.n * row; i++) {
            const bool own = i / row >= it->first && i / row < it->first + patches_of(it);
            const bool head = i % row / a.dim == column / a.dim;
            const bool sees = own && head && (part == 0 ? i / row == at : part == 1 ? true : i % row == column);
            if (sees && k < 3) lost += (again[i] & 0x7fff) <= 0x7f80;
            if (!sees && part < 2) changed += again[i] != good[i];
            if (!own && part == 2) changed += again[i] != good[i];
        }
        if (lost) check_fail(c, "%s: a NaN vanished from %lld values", what[part], (long long)lost);
        if (changed)
            check_fail(c, "%s: %s changed %lld values that do not see it", what[part],
                       k < 3 ? "a NaN" : "an infinite value", (long long)changed);
        c->cases++;
    }
}

static void attention_case(check *c, item_set set, i64 heads, i64 dim) {
    const case_items k = place_items(c, set);
    const i64 row = heads * dim;
    check_act qkv = check_input(c, k.rows * 3 * row, 1.0f), y = check_output(c, k.rows * row);
    const f32 scale = 1.0f / sqrtf((f32)dim);
    vision_attention_args a = {qkv.h, k.items, y.h, k.rows, k.n, heads, dim, k.longest, 0, k.rows, scale}, b = a;
    b.qkv = qkv.f, b.out = y.f;
    f64 start = now_s();
    c->dev->vision_attention(c->dev, &a);
    if (heads == 16) check_speed(c, now_s() - start, (u64)(k.rows * row) * 8);
    c->ref->vision_attention(c->ref, &b);
    check_compare(c, "vision_attention", y.h, DT_BF16, y.f, k.rows * heads, dim, dim, CHECK_BF16_BOUND);
    const bool brief = heads == 16 && check_emulated(c);
    for (i64 i = 1; !brief && i < k.n && i < 4; i++) { /* an item's rows are the same in a call of its own */
        const vision_item *it = k.items + i;
        const i64 n = patches_of(it);
        bf16 *own = check_alloc(c, (u64)(n * row) * 2),
             *in = check_copy(c, qkv.h + it->first * 3 * row, (u64)(n * 3 * row) * 2);
        const vision_attention_args one = {in, alone(c, it), own, n, 1, heads, dim, n, 0, n, scale};
        c->dev->vision_attention(c->dev, &one);
        same_bits(c, "vision_attention, an item alone", y.h + it->first * row, own, n, row);
    }
    if (!brief) attention_slices(c, &a, y.h);
    if (!brief && k.n > BAD_ITEM) attention_bad_items(c, &a, qkv, y.h);
    check_case_end(c);
}

/* Scores far apart, so that the maximum moves from tile to tile and weights vanish. */
static void attention_steep(check *c, item_set set, i64 dim) {
    const case_items k = place_items(c, set);
    check_act qkv = check_input(c, k.rows * 3 * dim, 1.0f), y = check_output(c, k.rows * dim);
    vision_attention_args a = {qkv.h, k.items, y.h, k.rows, k.n, 1, dim, k.longest, 0, k.rows, 8.0f}, b = a;
    b.qkv = qkv.f, b.out = y.f;
    c->dev->vision_attention(c->dev, &a);
    c->ref->vision_attention(c->ref, &b);
    check_compare(c, "vision_attention, scores far apart", y.h, DT_BF16, y.f, k.rows, dim, dim, CHECK_BF16_BOUND);
    check_case_end(c);
}

/* The last rows of a large picture alone, against all of its rows. */
static void attention_last_rows(check *c, i64 dim) {
    enum { LAST = 150 };
    const case_items k = place_items(c, large_item);
    const i64 first = k.rows - LAST;
    check_act qkv = check_input(c, k.rows * 3 * dim, 1.0f), y = check_output(c, k.rows * dim);
    vision_attention_args
        a = {qkv.h, k.items, y.h, k.rows, k.n, 1, dim, k.longest, first, LAST, 1.0f / sqrtf((f32)dim)},
        b = a;
    b.qkv = qkv.f, b.out = y.f;
    c->dev->vision_attention(c->dev, &a);
    c->ref->vision_attention(c->ref, &b);
    check_compare(c, "vision_attention, last rows", y.h + first * dim, DT_BF16, y.f + first * dim, LAST, dim, dim,
                  CHECK_BF16_BOUND);
    check_case_end(c);
}

void check_vision_attention(check *c) {
    for (size_t i = 0; i < COUNT_OF(vision_heads); i++) {
        const i64 heads = vision_heads[i].heads, dim = vision_heads[i].dim;
        attention_case(c, one_item, heads, dim);
        attention_case(c, mixed_items, heads, dim);
        if (heads < 16 && dim % 8 == 0 && dim <= 128) attention_case(c, tile_items, heads, dim);
    }
    attention_case(c, many_items, 2, 72);
    attention_case(c, many_items, 1, 36);
    attention_case(c, long_items, 2, 72);
    attention_case(c, long_items, 1, 64);
    attention_case(c, long_items, 1, 128);
    attention_last_rows(c, 72);
    attention_steep(c, long_items, 72);
    attention_steep(c, tile_items, 72);
    attention_steep(c, tile_items, 40);
    attention_steep(c, tile_items, 128);
    attention_steep(c, tile_items, 20);
    if (check_on_gpu(c)) {
        attention_case(c, large_item, 1, 72);
        attention_case(c, tile_items, 16, 72);
    }
}

/* ---- patches to tokens ---- */

static void merge_case(check *c, item_set set, i64 dim, bool f32_weights) {
    enum { EACH = VISION_MERGE * VISION_MERGE };
    const case_items k = place_items(c, set);
    check_weight weight = vector(c, f32_weights, dim, 1.0f), bias = vector(c, f32_weights, dim, 0.5f);
    check_act x = check_input(c, k.rows * dim, 1.0f), y = check_output(c, k.tokens * EACH * dim),
              z = check_output(c, k.tokens * EACH * dim);
    patch_merge_args a = {weight.dev, bias.dev, k.items, x.h, y.h, k.tokens, k.n, dim, 1e-5f},
                     b = {weight.ref, bias.ref, k.items, x.f, y.f, k.tokens, k.n, dim, 1e-5f};
    f64 start = now_s();
    c->dev->patch_merge(c->dev, &a);
    if (dim == 1152) check_speed(c, now_s() - start, (u64)((k.rows + k.tokens * EACH) * dim) * 2);
    c->ref->patch_merge(c->ref, &b);
    check_compare(c, "patch_merge", y.h, DT_BF16, y.f, k.tokens * EACH, dim, dim, CHECK_BF16_BOUND);
    const vision_item *last = k.items + k.n - 1; /* its last patch is the last row of the result */
    x.h[(last->first + patches_of(last)) * dim - 1] = CHECK_BAD;
    a.out = z.h;
    c->dev->patch_merge(c->dev, &a);
    check_isolated(c, "patch_merge", y.h, z.h, k.tokens * EACH, dim, k.tokens * EACH - 1);
    check_case_end(c);
}

void check_patch_merge(check *c) {
    static const i64 dims[] = {1152, 144, 20, 33, 1280, 1288};
    for (size_t d = 0; d < COUNT_OF(dims); d++) {
        merge_case(c, one_item, dims[d], d % 2);
        merge_case(c, mixed_items, dims[d], !(d % 2));
    }
    merge_case(c, many_items, 144, false);
    if (check_on_gpu(c)) merge_case(c, large_item, 1152, false);
}
