/* runtime/engine_vision.c: an engine's vision tower, whole on every rank of the first stage; items are divided
 * (ranks_media.c). */
#include "base/log.h"
#include "runtime/engine_internal.h"
#include <stdio.h>
#include <stdlib.h>

/* A pass takes as many patches as the largest item has; of what passes made, as many rows as four have are kept. */
enum { KEPT_PASSES = 4 };
/* Multiply-adds of the tower that go with one step. Two cores with AVX-512 do so many in some 100 ms; on a GPU they are
 * a layer of K2.5's largest picture, on an H200 4.1 ms. */
static const i64 HOST_WORK = 4000000000, GPU_WORK = 1000000000000;

status engine_vision_open(engine *g, const engine_options *o, err *e) {
    vision_config *c = &g->vision_config;
    if (!o->max_running || o->language_only || o->step || !g->ck) return ST_OK;
    status st = vision_config_load(c, o->model_dir, e);
    if (st != ST_OK || !c->there) return st;
    if (!checkpoint_find(g->ck, "mm_projector.proj.0.weight") &&
        !checkpoint_find(g->ck, "mm_projector.proj.2.weight")) {
        log_note("%s has a vision_config but no mm_projector: pictures are refused", o->model_dir);
        return ST_OK;
    }
    if (c->text_hidden != g->config.hidden)
        return err_set(e, ST_FORMAT,
                       "%s/config.json: vision_config: text_hidden_size is %lld, the model's hidden_size %lld",
                       o->model_dir, (long long)c->text_hidden, (long long)g->config.hidden);
    g->has_vision = true;
    return ST_OK;
}

status engine_vision_open_rank(const engine *g, rank *k, err *e) {
    if (!g->has_vision || k->stage) return ST_OK;
    return vision_open(&k->vision, &g->vision_config, g->ck, &k->backend.ops, k->backend.device, e);
}

void engine_vision_limits(engine *g) {
    if (!g->has_vision) return;
    g->vision_lim =
        (vision_limits){.patches = VISION_PATCHES_MOST, .items = MEDIA_ITEMS_MOST, .fastest = !g->lim.deterministic};
    g->media_work = engine_backend(g)->gpu ? GPU_WORK : HOST_WORK;
    g->lim.media_rows = KEPT_PASSES * VISION_PATCHES_MOST / (VISION_MERGE * VISION_MERGE);
}

status engine_vision_plan_rank(const engine *g, rank *k, model_limits *own, err *e) {
    if (!g->has_vision || k->stage) return ST_OK;
    status st = vision_plan(k->vision, &g->vision_lim, e);
    const model_memory *m = vision_memory_plan(k->vision);
    own->reserve += m->weights.own + m->work;
    return st;
}

/* One black picture through the tower: on a GPU the first pass loads its kernels and a library, which took 145 ms in
 * the middle of other answers. */
static status warm_rank_vision(rank *k, err *e) {
    enum { SIDE = 10 }; /* more rows than kernels for few take */
    device *dev = k->backend.device;
    const u64 rows = SIDE * SIDE / (VISION_MERGE * VISION_MERGE);
    u8 *patches = calloc(SIDE * SIDE, 3 * VISION_PATCH * VISION_PATCH);
    void *out = NULL;
    const vision_input in = {1, SIDE, SIDE, patches};
    status st = patches ? ST_OK : err_nomem(e, "a picture to begin with", 0);
    if (st == ST_OK)
        st = dev->alloc(dev, &out, rows * (u64)k->config.hidden * dtype_size(k->backend.ops.act), "its rows", e);
    if (st == ST_OK) st = vision_begin(k->vision, &in, 1, out, e);
    while (st == ST_OK && !vision_advance(k->vision, VISION_ALL)) continue;
    if (st == ST_OK) st = dev->finish(dev, e);
    if (out) dev->release(dev, out);
    free(patches);
    return st;
}

static status load_rank_vision(rank *k, void *ud, err *e) {
    if (k->stage) return ST_OK;
    ops_set_threads(((const engine *)ud)->ranks.threads_each);
    status st = vision_load(k->vision, e);
    return st == ST_OK && k->backend.gpu ? warm_rank_vision(k, e) : st;
}

status engine_vision_load(engine *g, err *e) {
    return g->has_vision ? ranks_each(&g->ranks, load_rank_vision, g, e) : ST_OK;
}

const char *engine_vision_text(const engine *g, char *out, size_t cap) {
    char weights[BYTES_TEXT], work[BYTES_TEXT];
    out[0] = 0;
    if (!g->has_vision || !g->ranks.of[0].vision) return out;
    const model_memory *m = vision_memory_plan(g->ranks.of[0].vision);
    snprintf(out, cap, ", a vision tower (weights %s, working memory %s)",
             bytes_text(weights, m->weights.mapped + m->weights.own), bytes_text(work, m->work));
    return out;
}

const vision_config *engine_vision(const engine *g) { return g->has_vision ? &g->vision_config : NULL; }
i64 engine_vision_patches(const engine *g) { return g->has_vision ? g->vision_lim.patches : 0; }

status engine_begin_media(engine *g, const vision_input *items, i64 n, i64 from, err *e) {
    return ranks_begin_media(&g->ranks, items, n, from, e);
}
status engine_advance_media(engine *g, i64 work, bool *done, err *e) {
    return ranks_advance_media(&g->ranks, work, done, e);
}
