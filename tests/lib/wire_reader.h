/* tests/lib/wire_reader.h: a job's bytes read as whatever they say they are, every array of it looked at: shared by the
 * unit test and the fuzzer of runtime/step_wire.h. */
#ifndef TESTS_WIRE_READER_H
#define TESTS_WIRE_READER_H
#include "runtime/step_wire.h"
#include <stdlib.h>
#include <string.h>

enum { WIRE_VOCAB = 1000, WIRE_TOPK = 2 };

static inline u64 wire_touch(const void *data, i64 n, size_t size) {
    u64 sum = 0;
    for (size_t i = 0; i < (size_t)n * size; i++) sum += ((const u8 *)data)[i];
    return sum;
}

#define TOUCH(data, n) wire_touch(data, n, sizeof *(data))

static inline u64 wire_touch_batch(const model_batch *b) {
    u64 sum = TOUCH(b->ids, b->n) + TOUCH(b->out_rows, b->n_out) + TOUCH(b->copies, b->n_copies);
    for (i64 i = 0; i < b->n_spans; i++) {
        const model_span *s = &b->spans[i];
        for (i64 p = 0; p < ceil_div(s->pos0 + s->n, KV_PAGE); p++) sum += (u64)span_page(s, p);
        sum += TOUCH(s->media, s->n_media);
    }
    if (b->draws) sum += TOUCH(b->draws, b->n_out);
    if (b->masks && !b->late_draw) sum += TOUCH(b->masks, b->n_masks * ceil_div(WIRE_VOCAB, 64));
    if (b->keep) sum += TOUCH((const u8 *)b->keep, b->n_out);
    if (b->tops) sum += TOUCH(b->tops, b->n_out) + TOUCH(b->next, b->n_out);
    return sum;
}

static inline u64 wire_touch_drafts(const draft_batch *b) {
    u64 sum = 0;
    for (i64 i = 0; i < b->n_spans; i++) {
        const draft_span *s = &b->spans[i];
        sum += TOUCH(s->following, s->n);
        sum += TOUCH(s->pages, ceil_div(s->pos0 + s->n + (s->guess ? b->steps - 1 : 0), KV_PAGE));
        if (s->branches) sum += TOUCH(s->branches, (i64)WIRE_TOPK * BRANCH_PAGES);
    }
    return sum;
}

/* Memory of that size and no more, so that a sanitizer sees what is read behind it. */
static inline buf wire_exactly(const void *data, size_t size) {
    buf b = {.data = malloc(size ? size : 1), .len = size, .cap = size};
    if (size) memcpy(b.data, data, size);
    return b;
}

/* outs: n_out of the batch whose draws these are. */
static inline status wire_read_any(const u8 *data, size_t size, i64 outs, u64 *sum, err *e) {
    wire_job j = {.bytes = wire_exactly(data, size)};
    model_batch b = {.n_out = outs};
    draft_batch d;
    const kv_pair *pairs;
    const vision_input *items;
    i64 n = 0, from;
    status st = wire_read(&j, e);
    if (st == ST_OK && j.kind == JOB_QUEUE && (st = wire_read_batch(&j, &b, WIRE_VOCAB, e)) == ST_OK)
        *sum += wire_touch_batch(&b);
    if (st == ST_OK && j.kind == JOB_DRAW && (st = wire_read_draws(&j, &b, WIRE_VOCAB, e)) == ST_OK)
        *sum += TOUCH(b.draws, b.n_out) + (b.masks ? TOUCH(b.masks, b.n_masks * ceil_div(WIRE_VOCAB, 64)) : 0);
    if (st == ST_OK && j.kind == JOB_DRAFTS && (st = wire_read_drafts(&j, &d, WIRE_TOPK, e)) == ST_OK)
        *sum += wire_touch_drafts(&d);
    if (st == ST_OK && j.kind == JOB_COPY_KV && (st = wire_read_pairs(&j, &pairs, &n, e)) == ST_OK)
        *sum += TOUCH(pairs, n);
    if (st == ST_OK && j.kind == JOB_BEGIN_MEDIA && (st = wire_read_media(&j, &items, &n, &from, e)) == ST_OK)
        for (i64 i = 0; i < n; i++)
            *sum += TOUCH(items[i].patches, vision_patches(&items[i]) * 3 * VISION_PATCH * VISION_PATCH);
    wire_free(&j);
    return st;
}

#endif
