/* What one process tells another to compute (runtime/step_wire.h): every field arrives; bytes that are cut, or other
 * than what was written, are refused or read within their bounds. */
#include "unit.h"

#include "wire_reader.h"
#include <stdlib.h>

enum { ROWS = 140, OUTS = 5, MASKS = 2, WORDS = (WIRE_VOCAB + 63) / 64 };

static i32 ids[ROWS], pages[3][8], branch[3], tops[OUTS] = {-1, 0, 3, 2, -1}, next[OUTS] = {7, -1, 8, 9, -1};
static const i32 outs[OUTS] = {0, 1, 2, 3, 139};
static const bool keep[OUTS] = {true, false, true, true, false};
static sample_row draws[OUTS];
static u64 masks[MASKS * WORDS];
static const model_media media[2] = {{70, 4, 12}, {90, 1, 30}};
static const kv_pair copies[3] = {{1, 2}, {-1, 9}, {640, 64}};
static model_span spans[3];

/* Two spans in decode form, the second a branch of two pages behind two of its sequence, and a prompt with pictures. */
static model_batch whole_batch(bool late) {
    for (int i = 0; i < ROWS; i++) ids[i] = i * 7 - 3;
    for (int s = 0; s < 3; s++)
        for (int p = 0; p < 8; p++) pages[s][p] = s * 100 + p;
    for (int i = 0; i < 3; i++) branch[i] = 900 + i;
    for (int i = 0; i < OUTS; i++)
        draws[i] =
            (sample_row){.scale = (f32)i, .top_k = i, .top_p = 5, .min_weight = 6, .u = (u64)i << 50, .mask = i % 3};
    for (int i = 0; i < MASKS * WORDS; i++) masks[i] = (u64)i * 0x9e3779b97f4a7c15u;
    spans[0] = (model_span){.first = 0, .n = 1, .pos0 = 63, .pages = pages[0], .absorbed = true};
    spans[1] = (model_span){
        .first = 1, .n = 3, .pos0 = 254, .pages = pages[1], .absorbed = true, .branch = branch, .branch_from = 2};
    spans[2] = (model_span){.first = 4, .n = 136, .pos0 = 64, .pages = pages[2], .media = media, .n_media = 2};
    return (model_batch){.n = ROWS,
                         .ids = ids,
                         .n_spans = 3,
                         .spans = spans,
                         .n_out = OUTS,
                         .out_rows = outs,
                         .draws = draws,
                         .masks = masks,
                         .n_masks = MASKS,
                         .late_draw = late,
                         .keep = keep,
                         .tops = tops,
                         .next = next,
                         .top_most = 3,
                         .reply = 1,
                         .copies = copies,
                         .n_copies = 3};
}

static void same_spans(const model_batch *a, const model_batch *b) {
    assert_int_equal(a->n_spans, b->n_spans);
    for (i64 i = 0; i < a->n_spans; i++) {
        const model_span *s = &a->spans[i], *t = &b->spans[i];
        assert_true(s->first == t->first && s->n == t->n && s->pos0 == t->pos0 && s->absorbed == t->absorbed);
        assert_int_equal(s->n_media, t->n_media);
        assert_int_equal(s->branch != NULL, t->branch != NULL);
        for (i64 p = 0; p < ceil_div(s->pos0 + s->n, KV_PAGE); p++) assert_int_equal(span_page(s, p), span_page(t, p));
        if (s->n_media) assert_memory_equal(s->media, t->media, (size_t)s->n_media * sizeof *s->media);
    }
}

static void read_back(const buf *bytes, wire_job *j, model_batch *got) {
    err e;
    buf_add(&j->bytes, bytes->data, bytes->len);
    if (wire_read(j, &e) != ST_OK || wire_read_batch(j, got, WIRE_VOCAB, &e) != ST_OK) fail_msg("%s", e.text);
}

static void every_field_arrives(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        const model_batch b = whole_batch(late);
        buf bytes = {0};
        wire_job j = {0}, of_draws = {0};
        model_batch got;
        err e;
        wire_batch(&bytes, &b, WIRE_VOCAB);
        read_back(&bytes, &j, &got);
        assert_int_equal(j.at, bytes.len);
        assert_true(got.n == b.n && got.n_out == b.n_out && got.top_most == 3 && got.reply == 1);
        assert_true(got.late_draw == late && got.n_masks == MASKS && got.n_copies == 3 && !got.watch);
        assert_memory_equal(got.ids, ids, sizeof ids);
        assert_memory_equal(got.out_rows, outs, sizeof outs);
        assert_memory_equal(got.draws, draws, sizeof draws);
        assert_memory_equal(got.keep, keep, sizeof keep);
        assert_memory_equal(got.tops, tops, sizeof tops);
        assert_memory_equal(got.next, next, sizeof next);
        assert_memory_equal(got.copies, copies, sizeof copies);
        same_spans(&got, &b);
        assert_non_null(got.masks);
        if (late) { /* they come with the draws, which may have become others */
            draws[1].mask = 2;
            wire_draws(&bytes, &b, WIRE_VOCAB);
            buf_add(&of_draws.bytes, bytes.data, bytes.len);
            assert_int_equal(wire_read(&of_draws, &e), ST_OK);
            assert_true(of_draws.kind == JOB_DRAW && of_draws.a == 1);
            assert_int_equal(wire_read_draws(&of_draws, &got, WIRE_VOCAB, &e), ST_OK);
            assert_memory_equal(got.draws, draws, sizeof draws);
        }
        assert_memory_equal(got.masks, masks, sizeof masks);
        wire_free(&j);
        wire_free(&of_draws);
        buf_free(&bytes);
    }
}

/* Of a timeline: logits of all wanted rows, no draws. */
static void what_is_not_there_stays_away(void **state) {
    model_batch b = whole_batch(false), got;
    buf bytes = {0};
    wire_job j = {0};
    (void)state;
    b.draws = NULL, b.masks = NULL, b.n_masks = b.n_copies = 0;
    wire_batch(&bytes, &b, WIRE_VOCAB);
    read_back(&bytes, &j, &got);
    assert_true(!got.draws && !got.masks && !got.keep && !got.tops && !got.n_copies);
    same_spans(&got, &b);
    wire_free(&j);
    buf_free(&bytes);
}

static const i32 following[] = {5, -1, 6, 7, 8};
static const i32 branches[WIRE_TOPK * BRANCH_PAGES] = {50, 51, 52, 53};

static void write_drafts(buf *bytes) {
    const draft_span of[] = {{.first = 0, .n = 2, .pos0 = 63, .following = following, .pages = pages[0]},
                             {.first = 2,
                              .n = 3,
                              .pos0 = 123,
                              .following = following + 2,
                              .pages = pages[1],
                              .guess = true,
                              .branches = branches}};
    wire_drafts(bytes, &(draft_batch){.n_spans = 2, .spans = of, .steps = 4}, WIRE_TOPK);
}

static const vision_input *write_media(buf *bytes) {
    static u8 patches[2][6 * 3 * VISION_PATCH * VISION_PATCH];
    static vision_input items[2];
    for (size_t i = 0; i < sizeof patches; i++) ((u8 *)patches)[i] = (u8)(i * 31);
    items[0] = (vision_input){1, 2, 2, patches[0]};
    items[1] = (vision_input){1, 2, 3, patches[1]};
    wire_media(bytes, items, 2, 17);
    return items;
}

static void drafts_copies_and_pictures(void **state) {
    buf bytes = {0};
    wire_job j = {0};
    draft_batch d;
    const kv_pair *pairs;
    const vision_input *got;
    i64 n, from;
    err e;
    (void)state;
    whole_batch(false);
    write_drafts(&bytes);
    buf_add(&j.bytes, bytes.data, bytes.len);
    assert_true(wire_read(&j, &e) == ST_OK && j.kind == JOB_DRAFTS);
    assert_int_equal(wire_read_drafts(&j, &d, WIRE_TOPK, &e), ST_OK);
    assert_true(d.n_spans == 2 && d.steps == 4 && !d.spans[0].guess && !d.spans[0].branches && d.spans[1].guess);
    assert_memory_equal(d.spans[0].following, following, 2 * sizeof(i32));
    assert_memory_equal(d.spans[1].following, following + 2, 3 * sizeof(i32));
    assert_memory_equal(d.spans[0].pages, pages[0], 2 * sizeof(i32));
    assert_memory_equal(d.spans[1].pages, pages[1], 3 * sizeof(i32)); /* 126 tokens and three guesses more */
    assert_memory_equal(d.spans[1].branches, branches, sizeof branches);
    wire_free(&j);
    wire_pairs(&bytes, copies, 3);
    buf_add(&j.bytes, bytes.data, bytes.len);
    assert_true(wire_read(&j, &e) == ST_OK && wire_read_pairs(&j, &pairs, &n, &e) == ST_OK && n == 3);
    assert_memory_equal(pairs, copies, sizeof copies);
    wire_free(&j);
    const vision_input *items = write_media(&bytes);
    buf_add(&j.bytes, bytes.data, bytes.len);
    assert_true(wire_read(&j, &e) == ST_OK && wire_read_media(&j, &got, &n, &from, &e) == ST_OK && n == 2 &&
                from == 17);
    for (int i = 0; i < 2; i++) {
        assert_true(got[i].t == 1 && got[i].h == items[i].h && got[i].w == items[i].w);
        assert_memory_equal(got[i].patches, items[i].patches,
                            (size_t)vision_patches(&items[i]) * 3 * VISION_PATCH * VISION_PATCH);
    }
    wire_free(&j);
    buf_free(&bytes);
}

/* Cut anywhere, and with each word another: refused by a text, or read within its bounds (a sanitizer looks). */
static void hostile_bytes(const buf *bytes) {
    static const i64 words[] = {-1, 0, 1, 65, INT32_MAX, INT64_MAX, INT64_MIN, 1 << 20};
    u64 sum = 0;
    err e;
    for (size_t n = 0; n < bytes->len; n += n < 4096 ? 1 : 997) {
        e.text[0] = 0;
        assert_int_equal(wire_read_any((const u8 *)bytes->data, n, OUTS, &sum, &e), ST_FORMAT);
        assert_true(e.text[0]);
    }
    const size_t all = bytes->len < 4096 ? bytes->len : 4096;
    u8 *other = malloc(bytes->len);
    for (size_t at = 0; at + 8 <= all; at += 8)
        for (size_t w = 0; w < COUNT_OF(words); w++) {
            memcpy(other, bytes->data, bytes->len);
            memcpy(other + at, &words[w], sizeof words[w]);
            e.text[0] = 0;
            if (wire_read_any(other, bytes->len, OUTS, &sum, &e) != ST_OK) assert_true(e.text[0]);
        }
    /* a little more or less, in each byte: counts that nearly fit */
    for (size_t at = 0; at < all; at++)
        for (int by = -1; by < 2; by += 2) {
            memcpy(other, bytes->data, bytes->len);
            other[at] = (u8)(other[at] + by);
            e.text[0] = 0;
            if (wire_read_any(other, bytes->len, OUTS, &sum, &e) != ST_OK) assert_true(e.text[0]);
        }
    free(other);
}

static void other_bytes_are_refused(void **state) {
    (void)state;
    buf bytes = {0};
    for (int late = 0; late < 2; late++) {
        const model_batch b = whole_batch(late);
        wire_batch(&bytes, &b, WIRE_VOCAB);
        hostile_bytes(&bytes);
        wire_draws(&bytes, &b, WIRE_VOCAB);
        hostile_bytes(&bytes);
    }
    write_drafts(&bytes);
    hostile_bytes(&bytes);
    wire_pairs(&bytes, copies, 3);
    hostile_bytes(&bytes);
    write_media(&bytes);
    hostile_bytes(&bytes);
    buf_free(&bytes);
}

/* ---- at random ---- */

enum { SPANS_MOST = 5, BATCHES = 400 };

static u64 drawn_state;
static i64 drawn(i64 below) {
    drawn_state = drawn_state * 6364136223846793005u + 1442695040888963407u;
    return (i64)(drawn_state >> 33) % below;
}

static void fill(void *x, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((u8 *)x)[i] = (u8)drawn(256);
}

/* What a batch of any kind may have, in memory of its own. */
typedef struct {
    i32 ids[ROWS], outs[ROWS], tops[ROWS], next[ROWS], pages[SPANS_MOST][8], branch[SPANS_MOST][8];
    sample_row draws[ROWS];
    u64 masks[ROWS * WORDS];
    bool keep[ROWS];
    model_media media[SPANS_MOST][3];
    kv_pair copies[9];
    model_span spans[SPANS_MOST];
} batch_room;

static void random_spans(batch_room *m, model_batch *b) {
    i64 first = 0;
    b->n_spans = drawn(SPANS_MOST + 1), b->spans = m->spans;
    for (i64 s = 0; s < b->n_spans; s++) {
        m->spans[s] = (model_span){.first = first,
                                   .n = 1 + drawn(20),
                                   .pos0 = drawn(400),
                                   .pages = m->pages[s],
                                   .absorbed = drawn(2),
                                   .n_media = drawn(4),
                                   .media = m->media[s]};
        first += m->spans[s].n;
        if (drawn(2)) m->spans[s].branch = m->branch[s], m->spans[s].branch_from = drawn(9);
    }
    b->n = first;
}

static model_batch random_batch(batch_room *m) {
    model_batch b = {.ids = m->ids, .out_rows = m->outs, .copies = m->copies};
    fill(m->ids, sizeof m->ids);
    fill(m->outs, sizeof m->outs);
    fill(m->tops, sizeof m->tops);
    fill(m->next, sizeof m->next);
    fill(m->pages, sizeof m->pages);
    fill(m->branch, sizeof m->branch);
    fill(m->draws, sizeof m->draws);
    fill(m->masks, sizeof m->masks);
    fill(m->media, sizeof m->media);
    fill(m->copies, sizeof m->copies);
    for (int i = 0; i < ROWS; i++) m->keep[i] = drawn(2);
    random_spans(m, &b);
    b.n_out = drawn(ROWS), b.n_copies = drawn(10), b.reply = (int)drawn(2);
    if (drawn(4)) b.draws = m->draws, b.late_draw = drawn(2);
    if (b.draws && drawn(2)) b.masks = m->masks, b.n_masks = 1 + drawn(ROWS);
    if (b.draws && drawn(2)) b.keep = m->keep;
    if (b.draws && drawn(2)) b.tops = m->tops, b.next = m->next, b.top_most = drawn(21);
    return b;
}

/* Both there with the same bytes, or neither. */
static void same_array(const void *a, const void *b, size_t bytes) {
    assert_int_equal(a != NULL, b != NULL);
    if (a && bytes) assert_memory_equal(a, b, bytes);
}

static void same_batch(const model_batch *a, const model_batch *b, size_t words) {
    const size_t outs_n = (size_t)a->n_out;
    assert_true(a->n == b->n && a->n_out == b->n_out && a->n_masks == b->n_masks && a->n_copies == b->n_copies);
    assert_true(a->top_most == b->top_most && a->late_draw == b->late_draw && a->reply == b->reply);
    same_array(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    same_array(a->out_rows, b->out_rows, outs_n * sizeof *a->out_rows);
    same_array(a->draws, b->draws, outs_n * sizeof *a->draws);
    same_array(a->masks, b->masks, a->late_draw ? 0 : (size_t)a->n_masks * words * sizeof *a->masks);
    same_array(a->keep, b->keep, outs_n * sizeof *a->keep);
    same_array(a->tops, b->tops, outs_n * sizeof *a->tops);
    same_array(a->next, b->next, outs_n * sizeof *a->next);
    same_array(a->copies, b->copies, (size_t)a->n_copies * sizeof *a->copies);
    assert_int_equal(a->n_spans, b->n_spans);
    for (i64 i = 0; i < a->n_spans; i++) {
        const model_span *s = &a->spans[i], *t = &b->spans[i];
        assert_true(s->first == t->first && s->n == t->n && s->pos0 == t->pos0 && s->absorbed == t->absorbed);
        for (i64 p = 0; p < ceil_div(s->pos0 + s->n, KV_PAGE); p++) assert_int_equal(span_page(s, p), span_page(t, p));
        assert_int_equal(s->n_media, t->n_media);
        same_array(s->media, t->media, (size_t)s->n_media * sizeof *s->media);
    }
}

/* One reader for all, as a process has it; vocabularies that fill words and that do not. */
static void batches_of_every_kind(void **state) {
    static const i64 vocabs[] = {1, 63, 64, 65, 127, 128, 999, WIRE_VOCAB};
    static batch_room room;
    wire_job j = {0}, of_draws = {0};
    buf bytes = {0};
    (void)state;
    drawn_state = 7;
    for (int i = 0; i < BATCHES; i++) {
        const i64 vocab = vocabs[drawn(COUNT_OF(vocabs))];
        const size_t words = (size_t)(vocab + 63) / 64;
        const model_batch b = random_batch(&room);
        model_batch got;
        err e;
        wire_batch(&bytes, &b, vocab);
        buf_free(&j.bytes);
        j.bytes = wire_exactly(bytes.data, bytes.len);
        if (wire_read(&j, &e) != ST_OK || wire_read_batch(&j, &got, vocab, &e) != ST_OK) fail_msg("%s", e.text);
        assert_true(j.kind == JOB_QUEUE && j.at == bytes.len);
        same_batch(&b, &got, words);
        if (!b.late_draw) continue;
        wire_draws(&bytes, &b, vocab);
        buf_free(&of_draws.bytes);
        of_draws.bytes = wire_exactly(bytes.data, bytes.len);
        if (wire_read(&of_draws, &e) != ST_OK || wire_read_draws(&of_draws, &got, vocab, &e) != ST_OK)
            fail_msg("%s", e.text);
        assert_true(of_draws.kind == JOB_DRAW && of_draws.a == b.reply && of_draws.at == bytes.len);
        same_batch(&b, &got, words);
        same_array(b.masks, got.masks, (size_t)b.n_masks * words * sizeof *b.masks);
    }
    wire_free(&j);
    wire_free(&of_draws);
    buf_free(&bytes);
}

/* Bytes that somebody has changed anywhere: read within their bounds. */
static void random_damage(void **state) {
    static batch_room room;
    buf bytes = {0};
    u64 sum = 0;
    err e;
    (void)state;
    drawn_state = 11;
    for (int i = 0; i < BATCHES; i++) {
        const model_batch b = random_batch(&room);
        wire_batch(&bytes, &b, WIRE_VOCAB);
        for (int k = 0; k < 10; k++) {
            /* most of it where heads are */
            const size_t below = bytes.len < 400 || drawn(3) == 0 ? bytes.len : 400, at = (size_t)drawn((i64)below);
            bytes.data[at] = (char)(drawn(2) ? drawn(256) : bytes.data[at] + 1);
            e.text[0] = 0;
            if (wire_read_any((const u8 *)bytes.data, bytes.len, OUTS, &sum, &e) != ST_OK) assert_true(e.text[0]);
        }
    }
    buf_free(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_arrives),        cmocka_unit_test(what_is_not_there_stays_away),
        cmocka_unit_test(drafts_copies_and_pictures), cmocka_unit_test(other_bytes_are_refused),
        cmocka_unit_test(batches_of_every_kind),      cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
