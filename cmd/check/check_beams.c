/* cmd/check/check_beams.c: what a tree of guesses needs: KV rows copied, and the beams that go on. */
#include "cmd/check/check.h"
#include <math.h>
#include <string.h>

static u8 *random_bytes(check *c, u64 n) {
    u8 *p = check_alloc(c, n);
    for (u64 i = 0; i < n; i++) p[i] = (u8)synth_bits(&c->rng);
    return p;
}

/* n rows of the lower half of `slots` to the upper half, some of them nowhere; `count` of them, or all. */
static void kv_copy_case(check *c, i64 row_bytes, i64 n, i64 count, i64 layers) {
    const i64 slots = 4 * n + 8;
    const u64 layer = (u64)(slots * row_bytes), all = layer * (u64)layers;
    u8 *got = random_bytes(c, all), *want = check_copy(c, got, all);
    kv_pair *pairs = check_alloc(c, (u64)n * sizeof *pairs);
    i32 *few = check_alloc(c, 4);
    for (i64 i = 0; i < n; i++) {
        pairs[i].to = slots - 1 - i;
        pairs[i].from = i % 5 == 3 ? -1 : i % 7 == 4 ? pairs[i].to : (i64)(synth_bits(&c->rng) % (u64)(slots / 2));
    }
    *few = (i32)count;
    kv_copy_args a = {.kv = got,
                      .pairs = pairs,
                      .count = count < n ? few : NULL,
                      .most = n,
                      .layers = layers,
                      .row_bytes = (u64)row_bytes,
                      .layer_bytes = layer},
                 b = a;
    b.kv = want;
    c->dev->kv_copy(c->dev, &a);
    c->ref->kv_copy(c->ref, &b);
    if (memcmp(got, want, all))
        check_fail(c, "kv_copy: %lld rows of %lld bytes in %lld layers differ", (long long)n, (long long)row_bytes,
                   (long long)layers);
    c->cases++;
    check_case_end(c);
}

void check_kv_copy(check *c) {
    kv_copy_case(c, 1152, 9, 9, 1);   /* Kimi's in bf16 */
    kv_copy_case(c, 1152, 70, 33, 3); /* fewer than there is room for */
    kv_copy_case(c, 576, 12, 0, 2);   /* FP8; none */
    kv_copy_case(c, 32768, 5, 5, 1);  /* a Llama draft's */
    kv_copy_case(c, 40, 600, 599, 2); /* no pieces of 16 bytes */
    kv_copy_case(c, 7, 3, 3, 1);
}

/* kind 0: any scores; 1: many equal ones; 2: NaN and infinities among them. */
static f32 beam_score(check *c, int kind) {
    const u64 r = synth_bits(&c->rng);
    if (kind == 2 && r % 5 == 0) return r % 10 ? NAN : -INFINITY;
    return kind == 1 ? -(f32)(r % 3) : -(f32)(r % 100000) / 3000;
}

typedef struct {
    i32 *ids, *from, *chosen;
    f32 *scores;
    kv_pair *pairs;
} beams_out;

static beams_out beams_room(check *c, const f32 *scores, i64 rows, i64 copies) {
    const u64 n = (u64)rows, g = (u64)(copies * rows);
    return (beams_out){.ids = check_alloc(c, n * 4),
                       .from = check_alloc(c, n * 4),
                       .chosen = check_alloc(c, n * 4),
                       .scores = check_copy(c, scores, n * 4),
                       .pairs = check_alloc(c, g * sizeof(kv_pair))};
}

static void beams_compare(check *c, const beams_out *x, const beams_out *y, i64 rows, i64 copies) {
    const struct {
        const char *what;
        const void *x, *y;
        u64 bytes;
    } all[] = {{"tokens", x->ids, y->ids, (u64)rows * 4},
               {"parents", x->from, y->from, (u64)rows * 4},
               {"candidates", x->chosen, y->chosen, (u64)rows * 4},
               {"scores", x->scores, y->scores, (u64)rows * 4},
               {"KV rows", x->pairs, y->pairs, (u64)(copies * rows) * sizeof(kv_pair)}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (memcmp(all[i].x, all[i].y, all[i].bytes)) check_fail(c, "draft_beams: %s differ", all[i].what);
}

static void beams_case(check *c, i64 n, i64 beams, i64 k, i64 copies, int kind) {
    const i64 rows = n * k, stride = rows + 3;
    i32 *top_ids = check_alloc(c, (u64)(n * beams * k) * 4);
    f32 *logprobs = check_alloc(c, (u64)(n * beams * (1 + k)) * 4), *scores = check_alloc(c, (u64)rows * 4);
    i64 *slots = check_alloc(c, (u64)(copies * stride) * 8);
    for (i64 i = 0; i < n * beams * k; i++) top_ids[i] = (i32)(synth_bits(&c->rng) % 163840);
    for (i64 i = 0; i < n * beams * (1 + k); i++) logprobs[i] = beam_score(c, kind);
    for (i64 i = 0; i < rows; i++) scores[i] = beam_score(c, kind);
    for (i64 i = 0; i < copies * stride; i++) slots[i] = (i64)(synth_bits(&c->rng) >> 20);
    beams_out x = beams_room(c, scores, rows, copies), y = beams_room(c, scores, rows, copies);
    draft_beams_args a = {.top_ids = top_ids,
                          .logprobs = logprobs,
                          .scores = x.scores,
                          .ids = x.ids,
                          .from = x.from,
                          .chosen = x.chosen,
                          .n = n,
                          .beams = beams,
                          .k = k,
                          .slots = slots,
                          .pairs = x.pairs,
                          .copies = copies,
                          .slots_stride = stride},
                     b = a;
    b.scores = y.scores, b.ids = y.ids, b.from = y.from, b.chosen = y.chosen, b.pairs = y.pairs;
    c->dev->draft_beams(c->dev, &a);
    c->ref->draft_beams(c->ref, &b);
    beams_compare(c, &x, &y, rows, copies);
    c->cases++;
    check_case_end(c);
}

void check_draft_beams(check *c) {
    for (int kind = 0; kind < 3; kind++)
        for (i64 k = 2; k <= BEAMS_MOST; k++) {
            beams_case(c, 3, 1, k, 0, kind);
            beams_case(c, 5, k, k, 1, kind);
            beams_case(c, 17, k, k, 7, kind);
        }
}
