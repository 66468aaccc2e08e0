#include "runtime/step_wire.h"
#include <stdlib.h>

/* ---- writing ---- */

static void put_array(buf *to, const void *data, i64 n, size_t size) {
    static const u8 zeros[8];
    buf_add(to, data, (size_t)n * size);
    buf_add(to, zeros, (8 - (size_t)n * size % 8) % 8);
}

#define PUT(to, data, n) put_array(to, data, n, sizeof *(data))

void wire_begin(buf *to, job_kind kind, i64 a, i64 b) {
    const i64 head[] = {kind, a, b};
    buf_clear(to);
    PUT(to, head, COUNT_OF(head));
}

typedef struct {
    i64 n, n_spans, n_out, n_masks, n_copies, top_most;
    u8 late_draw, draws, masks, keep, tops; /* yes or no */
} batch_head;

typedef struct {
    i64 first, n, pos0, branch_from, n_pages, n_branch, n_media;
    u8 absorbed;
} span_head;

static span_head span_head_of(const model_span *s) {
    const i64 pages = ceil_div(s->pos0 + s->n, KV_PAGE), own = s->branch ? min_i64(pages, s->branch_from) : pages;
    return (span_head){s->first, s->n, s->pos0, s->branch_from, own, pages - own, s->n_media, s->absorbed};
}

static i64 mask_bits(const model_batch *b, i64 vocab) { return b->n_masks * ceil_div(vocab, 64); }

void wire_batch(buf *to, const model_batch *b, i64 vocab) {
    const batch_head head = {b->n,
                             b->n_spans,
                             b->n_out,
                             b->n_masks,
                             b->n_copies,
                             b->top_most,
                             b->late_draw,
                             b->draws != NULL,
                             b->draws && b->masks && b->n_masks,
                             b->draws && b->keep,
                             b->draws && b->tops};
    wire_begin(to, JOB_QUEUE, b->reply, 0);
    PUT(to, &head, 1);
    PUT(to, b->ids, b->n);
    for (i64 s = 0; s < b->n_spans; s++) {
        const span_head h = span_head_of(&b->spans[s]);
        PUT(to, &h, 1);
        PUT(to, b->spans[s].pages, h.n_pages);
        PUT(to, b->spans[s].branch, h.n_branch);
        PUT(to, b->spans[s].media, h.n_media);
    }
    PUT(to, b->out_rows, b->n_out);
    if (head.draws) PUT(to, b->draws, b->n_out);
    if (head.masks && !b->late_draw) PUT(to, b->masks, mask_bits(b, vocab));
    if (head.keep) PUT(to, b->keep, b->n_out);
    if (head.tops) PUT(to, b->tops, b->n_out);
    if (head.tops) PUT(to, b->next, b->n_out);
    PUT(to, b->copies, b->n_copies);
}

void wire_draws(buf *to, const model_batch *b, i64 vocab) {
    wire_begin(to, JOB_DRAW, b->reply, b->masks ? b->n_masks : 0);
    PUT(to, b->draws, b->n_out);
    if (b->masks) PUT(to, b->masks, mask_bits(b, vocab));
}

typedef struct {
    i64 first, n, pos0, n_pages;
    u8 guess, branches;
} draft_head;

static i64 draft_pages(const draft_span *s, i64 steps) {
    return ceil_div(s->pos0 + s->n + (s->guess ? steps - 1 : 0), KV_PAGE);
}

void wire_drafts(buf *to, const draft_batch *b, i64 topk) {
    wire_begin(to, JOB_DRAFTS, b->n_spans, b->steps);
    for (i64 i = 0; i < b->n_spans; i++) {
        const draft_span *s = &b->spans[i];
        const draft_head h = {s->first, s->n, s->pos0, draft_pages(s, b->steps), s->guess, s->guess && s->branches};
        PUT(to, &h, 1);
        PUT(to, s->following, s->n);
        PUT(to, s->pages, h.n_pages);
        if (h.branches) PUT(to, s->branches, topk * BRANCH_PAGES);
    }
}

void wire_pairs(buf *to, const kv_pair *pairs, i64 n) {
    wire_begin(to, JOB_COPY_KV, n, 0);
    PUT(to, pairs, n);
}

static i64 patch_bytes(const vision_input *in) { return vision_patches(in) * 3 * VISION_PATCH * VISION_PATCH; }

void wire_media(buf *to, const vision_input *items, i64 n, i64 from) {
    wire_begin(to, JOB_BEGIN_MEDIA, n, from);
    for (i64 i = 0; i < n; i++) {
        const i64 size[] = {items[i].t, items[i].h, items[i].w};
        PUT(to, size, COUNT_OF(size));
        PUT(to, items[i].patches, patch_bytes(&items[i]));
    }
}

/* ---- reading ---- */

static status no_job(const wire_job *j, err *e) {
    return err_set(e, ST_FORMAT, "what process 0 sent is no job of kind %d (%zu bytes)", (int)j->kind, j->bytes.len);
}

/* The next array, [n] of `size` bytes; NULL: it is not there. */
static const void *take(wire_job *j, i64 n, size_t size) {
    u64 bytes, end;
    const u8 *at = (const u8 *)j->bytes.data + j->at;
    if (n < 0 || !mul_size((u64)n, size, &bytes) || !add_size(j->at, (bytes + 7) & ~(u64)7, &end) || end > j->bytes.len)
        return NULL;
    j->at = end;
    return at;
}

/* Such that sums of two and products with a row's bytes do not wrap. */
static bool is_count(i64 n) { return n >= 0 && n <= INT32_MAX; }
/* Of things that each take a word at least. */
static bool has_so_many(const wire_job *j, i64 n) { return n >= 0 && (u64)n <= j->bytes.len / sizeof(u64); }

#define TAKE(j, to, n) (((to) = take(j, n, sizeof *(to))) != NULL)

status wire_read(wire_job *j, err *e) {
    const i64 *head;
    j->at = 0;
    if (!TAKE(j, head, 3) || head[0] < 0 || head[0] > JOB_END) return no_job(j, e);
    j->kind = (job_kind)head[0], j->a = head[1], j->b = head[2];
    return ST_OK;
}

static void *wire_room(void *old, i64 n, size_t size) {
    free(old);
    return calloc((size_t)n + 1, size);
}

static bool read_spans(wire_job *j, i64 n) {
    for (i64 s = 0; s < n; s++) {
        const span_head *h;
        model_span *p = &j->spans[s];
        if (!TAKE(j, h, 1) || !is_count(h->n) || !is_count(h->pos0) || !is_count(h->branch_from)) return false;
        *p = (model_span){.first = h->first,
                          .n = h->n,
                          .pos0 = h->pos0,
                          .absorbed = h->absorbed != 0,
                          .branch_from = h->branch_from,
                          .n_media = h->n_media};
        if (!TAKE(j, p->pages, h->n_pages) || !TAKE(j, p->branch, h->n_branch) || !TAKE(j, p->media, h->n_media))
            return false;
        if (!h->n_branch) p->branch = NULL;
        if (p->n < 1 || span_head_of(p).n_pages != h->n_pages || span_head_of(p).n_branch != h->n_branch) return false;
    }
    return true;
}

status wire_read_batch(wire_job *j, model_batch *out, i64 vocab, err *e) {
    const batch_head *h;
    if (!TAKE(j, h, 1) || !is_count(h->n_masks) || !has_so_many(j, h->n_spans)) return no_job(j, e);
    *out = (model_batch){.n = h->n,
                         .n_spans = h->n_spans,
                         .n_out = h->n_out,
                         .n_masks = h->n_masks,
                         .n_copies = h->n_copies,
                         .top_most = h->top_most,
                         .late_draw = h->late_draw != 0,
                         .reply = (int)(j->a & (MODEL_REPLIES - 1))};
    j->spans = wire_room(j->spans, h->n_spans, sizeof *j->spans);
    if (!j->spans) return err_nomem(e, "a step's spans", (u64)h->n_spans * sizeof *j->spans);
    out->spans = j->spans;
    bool good = TAKE(j, out->ids, h->n) && read_spans(j, h->n_spans) && TAKE(j, out->out_rows, h->n_out);
    if (h->draws) good = good && TAKE(j, out->draws, h->n_out);
    if (h->masks && !h->late_draw) good = good && TAKE(j, out->masks, mask_bits(out, vocab));
    if (h->masks && h->late_draw) out->masks = (const u64 *)(const void *)j->bytes.data; /* not read until they come */
    if (h->keep) good = good && TAKE(j, out->keep, h->n_out);
    if (h->tops) good = good && TAKE(j, out->tops, h->n_out) && TAKE(j, out->next, h->n_out);
    return good && TAKE(j, out->copies, h->n_copies) ? ST_OK : no_job(j, e);
}

status wire_read_draws(wire_job *j, model_batch *out, i64 vocab, err *e) {
    out->n_masks = j->b;
    if (!is_count(j->b)) return no_job(j, e);
    if (!TAKE(j, out->draws, out->n_out) || (j->b && !TAKE(j, out->masks, mask_bits(out, vocab)))) return no_job(j, e);
    if (!j->b) out->masks = NULL;
    return ST_OK;
}

status wire_read_drafts(wire_job *j, draft_batch *out, i64 topk, err *e) {
    *out = (draft_batch){.n_spans = j->a, .steps = j->b};
    if (!has_so_many(j, j->a) || !is_count(j->b)) return no_job(j, e);
    j->draft_spans = wire_room(j->draft_spans, j->a, sizeof *j->draft_spans);
    if (!j->draft_spans) return err_nomem(e, "a draft's spans", (u64)j->a * sizeof *j->draft_spans);
    out->spans = j->draft_spans;
    for (i64 i = 0; i < j->a; i++) {
        const draft_head *h;
        draft_span *s = &j->draft_spans[i];
        if (!TAKE(j, h, 1) || !is_count(h->n) || !is_count(h->pos0)) return no_job(j, e);
        *s = (draft_span){.first = h->first, .n = h->n, .pos0 = h->pos0, .guess = h->guess != 0};
        if (!TAKE(j, s->following, h->n) || !TAKE(j, s->pages, h->n_pages) || draft_pages(s, j->b) != h->n_pages ||
            (h->branches && !TAKE(j, s->branches, topk * BRANCH_PAGES)))
            return no_job(j, e);
    }
    return ST_OK;
}

status wire_read_pairs(wire_job *j, const kv_pair **pairs, i64 *n, err *e) {
    *n = j->a;
    return TAKE(j, *pairs, *n) ? ST_OK : no_job(j, e);
}

status wire_read_media(wire_job *j, const vision_input **items, i64 *n, i64 *from, err *e) {
    *n = j->a, *from = j->b;
    if (!has_so_many(j, j->a)) return no_job(j, e);
    j->items = wire_room(j->items, *n, sizeof *j->items);
    if (!j->items) return err_nomem(e, "pictures", (u64)*n * sizeof *j->items);
    *items = j->items;
    for (i64 i = 0; i < *n; i++) {
        const i64 *size;
        vision_input *in = &j->items[i];
        if (!TAKE(j, size, 3) || size[0] < 1 || size[1] < 1 || size[2] < 1 || size[0] > UINT16_MAX ||
            size[1] > UINT16_MAX || size[2] > UINT16_MAX)
            return no_job(j, e);
        *in = (vision_input){.t = (i32)size[0], .h = (i32)size[1], .w = (i32)size[2]};
        if (!TAKE(j, in->patches, patch_bytes(in))) return no_job(j, e);
    }
    return ST_OK;
}

void wire_free(wire_job *j) {
    buf_free(&j->bytes);
    free(j->spans);
    free(j->draft_spans);
    free(j->items);
    *j = (wire_job){0};
}
