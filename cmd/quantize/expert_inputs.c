#include "cmd/quantize/expert_inputs.h"
#include "base/log.h"
#include "base/out_file.h"
#include <math.h>
#include <stdlib.h>

/* ---- the file ---- */

static expert_inputs inputs_of(const model_config *c, i64 tokens) {
    return (expert_inputs){
        .tokens = tokens, .hidden = c->hidden, .top_k = c->top_k, .first = c->n_dense, .layers = c->n_layers};
}

/* Where the parts of a layer are. */
typedef struct {
    u64 x, ids, weights, end;
} layer_places;

static layer_places places_of(const expert_inputs *in, i64 layer) {
    const u64 rows = (u64)(in->tokens * in->hidden) * sizeof(bf16), chosen = (u64)(in->tokens * in->top_k) * 4;
    const u64 at = (u64)(layer - in->first) * (rows + 2 * chosen);
    return (layer_places){at, at + rows, at + rows + chosen, at + rows + 2 * chosen};
}

status expert_inputs_open(expert_inputs *in, const char *path, const model_config *c, i64 tokens, err *e) {
    *in = inputs_of(c, tokens);
    const u64 want = places_of(in, in->layers - 1).end;
    status st = file_map_open(&in->file, path, e);
    if (st == ST_OK && in->file.size != want)
        st = err_set(e, ST_FORMAT,
                     "%s has %llu bytes, not the %llu of %lld tokens: remove this file, and the text is read again",
                     path, (unsigned long long)in->file.size, (unsigned long long)want, (long long)tokens);
    return st;
}

void expert_inputs_close(expert_inputs *in) {
    file_map_close(&in->file);
    *in = (expert_inputs){0};
}

layer_inputs expert_inputs_of(const expert_inputs *in, i64 layer) {
    const layer_places at = places_of(in, layer);
    const u8 *all = in->file.data;
    return (layer_inputs){(const void *)(all + at.x), (const void *)(all + at.ids), (const void *)(all + at.weights)};
}

/* ---- the run ---- */

typedef struct {
    expert_inputs shape;
    expert_watch watch;
    dtype act;
    i64 chunk;   /* tokens in a step */
    bf16 *x;     /* [chunk, hidden]: watch.x as it is written */
    i64 written; /* tokens of the steps before */
    out_file file;
    status st; /* of what the watch met */
    err *e;
} recording;

static status find_bad(const recording *r, i64 layer, i64 n) {
    for (i64 i = 0; i < n * r->shape.hidden; i++)
        if (!isfinite(bf16_to_f32(r->x[i])))
            return err_set(r->e, ST_NUMERIC, "layer %lld gives its experts NaN or an infinity", (long long)layer);
    return ST_OK;
}

/* A layer of a step. */
static void record_layer(void *ud, i64 layer, i64 n) {
    recording *r = ud;
    const expert_inputs *s = &r->shape;
    const layer_places at = places_of(s, layer);
    const u64 row = (u64)s->hidden * sizeof(bf16), chosen = (u64)s->top_k * 4, k = (u64)r->written;
    if (r->st != ST_OK) return;
    for (i64 i = 0; i < n * s->hidden; i++)
        r->x[i] = r->act == DT_BF16 ? ((const bf16 *)r->watch.x)[i] : f32_to_bf16(((const f32 *)r->watch.x)[i]);
    r->st = find_bad(r, layer, n);
    if (r->st == ST_OK) r->st = out_file_write(&r->file, at.x + k * row, r->x, (u64)n * row, r->e);
    if (r->st == ST_OK) r->st = out_file_write(&r->file, at.ids + k * chosen, r->watch.ids, (u64)n * chosen, r->e);
    if (r->st == ST_OK)
        r->st = out_file_write(&r->file, at.weights + k * chosen, r->watch.weights, (u64)n * chosen, r->e);
}

static status recording_room(recording *r, const engine *g, err *e) {
    const u64 values = (u64)(engine_chunk(g) * r->shape.hidden), chosen = (u64)(engine_chunk(g) * r->shape.top_k);
    r->act = engine_ops(g)->act, r->chunk = engine_chunk(g);
    r->watch = (expert_watch){.x = malloc(values * dtype_size(r->act)),
                              .ids = malloc(chosen * sizeof *r->watch.ids),
                              .weights = malloc(chosen * sizeof *r->watch.weights),
                              .seen = record_layer,
                              .ud = r};
    r->x = malloc(values * sizeof *r->x);
    return r->watch.x && r->watch.ids && r->watch.weights && r->x
               ? ST_OK
               : err_nomem(e, "the experts' input", values * dtype_size(r->act));
}

static void recording_free(recording *r) {
    free(r->watch.x);
    free(r->watch.ids);
    free(r->watch.weights);
    free(r->x);
}

static status record_document(recording *r, seq *s, const documents *d, i64 i, progress *shown) {
    const i32 *ids = d->ids.data + d->begin[i];
    const i64 n = document_tokens(d, i);
    status st = ST_OK;
    seq_truncate(s, 0);
    for (i64 at = 0; at < n && st == ST_OK; at += r->chunk) {
        const i64 part = min_i64(r->chunk, n - at);
        st = seq_run(s, ids + at, part, false, LOGITS_NONE, NULL, NULL, r->e);
        if (st == ST_OK) st = r->st;
        r->written += part;
        progress_step(shown, (u64)r->written);
    }
    return st == ST_OK ? st : (err_prefix(r->e, "document %lld", (long long)i + 1), st);
}

static status record(recording *r, engine *g, const documents *d, const char *path, err *e) {
    seq *s = NULL;
    progress shown;
    r->shape = inputs_of(engine_config(g), d->begin[d->n]);
    status st = recording_room(r, g, e);
    if (st == ST_OK) st = seq_open(&s, g, e);
    if (st == ST_OK) st = out_file_create(&r->file, path, places_of(&r->shape, r->shape.layers - 1).end, e);
    if (st != ST_OK) return seq_close(s), st;
    seq_watch(s, &r->watch);
    progress_start(&shown, "calibrate", "tok", (u64)r->shape.tokens);
    for (i64 i = 0; i < d->n && st == ST_OK; i++) st = record_document(r, s, d, i, &shown);
    progress_end(&shown);
    seq_close(s);
    if (st == ST_OK) return out_file_finish(&r->file, e);
    out_file_drop(&r->file);
    return st;
}

status expert_inputs_make(const char *path, const engine_options *o, const documents *d, err *e) {
    engine *g = NULL;
    recording r = {.e = e, .file = {.fd = -1}};
    status st = engine_open(&g, o, e);
    if (st == ST_OK) log_note("calibrate: %s", engine_plan(g));
    if (st == ST_OK) st = record(&r, g, d, path, e);
    recording_free(&r);
    engine_close(g);
    return st;
}
