/* cmd/eval/eval_vision.c: `moonlet eval vision`: pictures to the rows that the vision tower makes of them.
 *
 * JSON lines in: {"image": path}, {"frames": [paths of 1 to 4 pictures of one size]} or {"video": path}; out, one for
 * one: {"grid": [t, h, w] in patches, "tokens", "resized": [w, h] in pixels}. A video is several items, one a piece of
 * up to four frames: "grid" is a list of theirs, "tokens" counts all, and "times" has what stands before each in a
 * prompt. --out gets the projected rows [tokens, width], float32, one item after the other. Paths are taken from where
 * the command runs. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/lib/jsonl.h"
#include "cmd/lib/model_opts.h"
#include "cmd/lib/stats.h"
#include "kernels/backend.h"
#include "media/video.h"
#include "model/vision.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VISION_FILE_MOST = 256 << 20 };
static const u64 EVAL_VIDEO_MOST = (u64)4 << 30;

typedef struct {
    model_opts m;
    const char *data, *out;
    vision_config config;
    checkpoint *ck;
    backend b;
    vision *v;
    FILE *rows;
    void *made; /* [VISION_PATCHES_MOST / 4, width], on the device */
    u8 *raw;    /* the same on the host */
    f32 *wide;
    vision_input *items; /* [batch], of them `waiting` wait for a pass, with so many patches; theirs are malloc'ed */
    i64 batch, waiting, patches;
    i64 n_items, tokens;
    f64_list seconds; /* of each pass */
} vision_eval;

static status eval_vision_picture(const json_t *path, picture *out, err *e) {
    buf file = {0};
    if (!json_is_string(path)) return err_set(e, ST_INPUT, "a picture's path is %s", json_type_text(path));
    status st = file_read(json_string_value(path), VISION_FILE_MOST, &file, e);
    if (st == ST_OK) {
        const picture_limits limits = {VISION_FILE_MOST, PICTURE_LIMITS.pixels, PICTURE_LIMITS.side};
        st = picture_decode(file.data, file.len, &limits, out, e);
        if (st != ST_OK) err_prefix(e, "%s", json_string_value(path));
    }
    buf_free(&file);
    return st;
}

/* The patches of a line's picture, or of its frames. */
static status eval_vision_patches(const json_t *line, media_patches *out, err *e) {
    picture frames[CHUNK_FRAMES] = {0};
    const json_t *image = json_object_get(line, "image"), *list = json_object_get(line, "frames");
    const size_t n = image ? 1 : json_array_size(list);
    status st = ST_OK;
    if (!!image == !!list)
        return err_set(e, ST_INPUT, "the line needs one of \"image\", \"frames\" and \"video\", and no other");
    if (n < 1 || n > CHUNK_FRAMES)
        return err_set(e, ST_INPUT, "\"frames\" is a list of 1 to %d pictures", CHUNK_FRAMES);
    for (size_t i = 0; st == ST_OK && i < n; i++)
        st = eval_vision_picture(image ? image : json_array_get(list, i), &frames[i], e);
    const grid_limits limits = image ? GRID_PICTURE : GRID_FRAME;
    if (st == ST_OK) st = media_patches_make(frames, (int)n, &limits, 4, out, e);
    for (size_t i = 0; i < n; i++) picture_free(&frames[i]);
    return st;
}

/* Rows [n] that the tower has made, as they are on the device, to the file. */
static status eval_vision_write(vision_eval *v, i64 n, err *e) {
    device *dev = v->b.device;
    dev->read(dev, v->raw, v->made, (u64)n * dtype_size(v->b.ops.act));
    for (i64 k = 0; k < n; k++)
        v->wide[k] = v->b.ops.act == DT_F32 ? ((const f32 *)(const void *)v->raw)[k]
                                            : bf16_to_f32(((const bf16 *)(const void *)v->raw)[k]);
    for (i64 k = 0; k < n; k++)
        if (!isfinite(v->wide[k]))
            return err_set(e, ST_NUMERIC, "token %lld of the item%s has %s", (long long)(k / v->config.text_hidden),
                           v->batch > 1 ? "s of a pass" : "", isnan(v->wide[k]) ? "NaN" : "an infinity");
    if (v->rows && fwrite(v->wide, sizeof *v->wide, (size_t)n, v->rows) != (size_t)n)
        return err_set(e, ST_IO, "%s: %s", v->out, strerror(errno));
    return ST_OK;
}

/* The items that wait go through the tower, in one pass. */
static status eval_vision_flush(vision_eval *v, err *e) {
    device *dev = v->b.device;
    i64 tokens = 0;
    const f64 start = now_s();
    if (!v->waiting) return ST_OK;
    status st = vision_begin(v->v, v->items, v->waiting, v->made, e);
    while (st == ST_OK && !vision_advance(v->v, VISION_ALL)) continue;
    if (st == ST_OK) st = dev->finish(dev, e);
    f64_add(&v->seconds, now_s() - start);
    for (i64 i = 0; i < v->waiting; i++) {
        tokens += vision_tokens(&v->items[i]);
        free((void *)(uintptr_t)v->items[i].patches);
    }
    v->n_items += v->waiting, v->tokens += tokens;
    v->waiting = v->patches = 0;
    return st == ST_OK ? eval_vision_write(v, tokens * v->config.text_hidden, e) : st;
}

/* The item waits for the pass that it belongs to; its patches are the queue's, and m empty. */
static status eval_vision_item(vision_eval *v, media_patches *m, err *e) {
    const vision_input in = {(i32)m->frames, (i32)m->grid.rows, (i32)m->grid.cols, m->patches};
    status st = ST_OK;
    if (v->patches + vision_patches(&in) > VISION_PATCHES_MOST) st = eval_vision_flush(v, e);
    v->items[v->waiting++] = in;
    v->patches += vision_patches(&in);
    *m = (media_patches){0};
    return st == ST_OK && v->waiting == v->batch ? eval_vision_flush(v, e) : st;
}

/* ---- Videos ---- */

typedef struct {
    u64 pieces, n;
    media_patches *patches; /* [pieces], of them n are there */
    char (*at)[VIDEO_STAMP];
    patch_grid grid;
} eval_video;

static void eval_video_free(eval_video *w) {
    for (u64 i = 0; i < w->n; i++) media_patches_free(&w->patches[i]);
    free(w->patches);
    free(w->at);
    *w = (eval_video){0};
}

static status eval_video_begin(void *ud, const video_info *info, err *e) {
    eval_video *w = ud;
    eval_video_free(w);
    w->pieces = video_pieces(info);
    w->grid = info->grid;
    w->patches = calloc(w->pieces, sizeof *w->patches);
    w->at = calloc(w->pieces, sizeof *w->at);
    return w->patches && w->at ? ST_OK : err_nomem(e, "a video's pieces", w->pieces * sizeof *w->patches);
}

static status eval_video_piece(void *ud, const char *at, const media_patches *m, err *e) {
    eval_video *w = ud;
    const u64 bytes = (u64)m->frames * m->grid.rows * m->grid.cols * PATCH_BYTES;
    media_patches *to = &w->patches[w->n];
    *to = *m;
    to->patches = malloc(bytes);
    if (!to->patches) return err_nomem(e, "a video's piece", bytes);
    memcpy(to->patches, m->patches, bytes);
    memcpy(w->at[w->n++], at, VIDEO_STAMP);
    return ST_OK;
}

static status eval_video_items(vision_eval *v, eval_video *w, buf *out, err *e) {
    buf times = {0};
    u64 tokens = 0;
    status st = ST_OK;
    buf_str(out, "{\"grid\": [");
    for (u64 i = 0; st == ST_OK && i < w->n; i++) {
        media_patches *p = &w->patches[i];
        buf_fmt(out, "%s[%u, %u, %u]", i ? ", " : "", p->frames, p->grid.rows, p->grid.cols);
        buf_fmt(&times, "%s\"%s\"", i ? ", " : "", w->at[i]);
        tokens += p->grid.tokens;
        st = eval_vision_item(v, p, e);
    }
    buf_fmt(out, "], \"tokens\": %llu, \"resized\": [%u, %u], \"times\": [%s]}", (unsigned long long)tokens,
            w->grid.width, w->grid.height, times.data ? times.data : "");
    if (st == ST_OK && times.failed) st = err_nomem(e, "a line", times.len);
    buf_free(&times);
    return st;
}

static status eval_vision_video(vision_eval *v, const json_t *path, buf *out, err *e) {
    const video_limits limits = VIDEO_LIMITS;
    eval_video w = {0};
    buf file = {0};
    if (!json_is_string(path)) return err_set(e, ST_INPUT, "a video's path is %s", json_type_text(path));
    status st = file_read(json_string_value(path), EVAL_VIDEO_MOST, &file, e);
    if (st == ST_OK) {
        st = video_decode(file.data, file.len, &limits, &(video_sink){eval_video_begin, eval_video_piece, NULL, &w}, e);
        if (st != ST_OK) err_prefix(e, "%s", json_string_value(path));
    }
    buf_free(&file);
    if (st == ST_OK) st = eval_video_items(v, &w, out, e);
    eval_video_free(&w);
    return st;
}

/* ---- The command ---- */

static status eval_vision_line(void *ud, const json_t *line, buf *out, err *e) {
    vision_eval *v = ud;
    media_patches p = {0};
    const json_t *video = json_object_get(line, "video");
    if (video && json_object_size(line) == 1) return eval_vision_video(v, video, out, e);
    status st = eval_vision_patches(line, &p, e);
    if (st == ST_OK) {
        buf_fmt(out, "{\"grid\": [%u, %u, %u], \"tokens\": %u, \"resized\": [%u, %u]}", p.frames, p.grid.rows,
                p.grid.cols, p.grid.tokens, p.grid.width, p.grid.height);
        st = eval_vision_item(v, &p, e);
    }
    media_patches_free(&p);
    return st;
}

static status eval_vision_open(vision_eval *v, err *e) {
    const char *dir = v->m.engine.model_dir;
    const vision_limits lim = {
        .patches = VISION_PATCHES_MOST, .items = v->batch, .fastest = !v->m.engine.deterministic};
    backend_options o = {.name = v->m.engine.device ? v->m.engine.device : "cpu", .act = DT_BF16, .isa = ISA_ALL};
    status st = vision_config_load(&v->config, dir, e);
    if (st == ST_OK && !v->config.there) st = err_set(e, ST_UNSUPPORTED, "%s: config.json has no vision_config", dir);
    if (st == ST_OK && v->m.engine.cpu_mask) st = cpu_isa_parse(v->m.engine.cpu_mask, &o.isa, e);
    const bool dummy = v->m.engine.load_format && !strcmp(v->m.engine.load_format, "dummy");
    if (st == ST_OK && dummy && !backend_name_is_gpu(o.name))
        st = err_set(e, ST_UNSUPPORTED, "--load-format dummy makes its weights on a GPU: it needs --device cuda");
    if (st == ST_OK && !dummy) st = checkpoint_open(&v->ck, dir, e);
    if (st == ST_OK) st = backend_open(&v->b, &o, e);
    if (st != ST_OK) return st;
    ops_set_threads((int)v->m.engine.threads);
    st = vision_open(&v->v, &v->config, v->ck, &v->b.ops, v->b.device, e);
    if (st == ST_OK) st = vision_plan(v->v, &lim, e);
    if (st == ST_OK) st = vision_load(v->v, e);
    const u64 values = VISION_PATCHES_MOST / 4 * (u64)v->config.text_hidden, bytes = values * dtype_size(v->b.ops.act);
    if (st == ST_OK) st = v->b.device->alloc(v->b.device, &v->made, bytes, "projected rows", e);
    v->raw = malloc(bytes);
    v->wide = malloc(values * sizeof *v->wide);
    v->items = calloc((size_t)v->batch, sizeof *v->items);
    if (st == ST_OK && (!v->raw || !v->wide || !v->items)) st = err_nomem(e, "projected rows", bytes);
    return st == ST_OK ? eval_create(&v->rows, v->out, e) : st;
}

static status eval_vision_run(vision_eval *v, i64 *n_failed, err *e) {
    const bool from_stdin = !strcmp(v->data, "-");
    status st = model_opts_finish(&v->m, e);
    if (st == ST_OK) st = eval_vision_open(v, e);
    if (st != ST_OK) return st;
    FILE *in = from_stdin ? stdin : fopen(v->data, "r");
    if (!in) return err_set(e, ST_IO, "%s: %s", v->data, strerror(errno));
    st = jsonl_run(in, from_stdin ? "stdin" : v->data, eval_vision_line, v, n_failed, e);
    if (!from_stdin) fclose(in);
    if (st == ST_OK) st = eval_vision_flush(v, e);
    if (st != ST_OK || !v->seconds.n) return st;
    const summary passes = summarize(&v->seconds);
    log_note("%s%s: %lld items, %lld tokens; the tower took %.2f ms a pass (median of %lld; %.2f at the first quarter, "
             "%.2f the longest)",
             v->ck ? "" : "DUMMY WEIGHTS, the rows mean nothing; ", v->b.ops.name, (long long)v->n_items,
             (long long)v->tokens, passes.median * 1e3, (long long)passes.n,
             percentile(v->seconds.data, passes.n, 25) * 1e3, passes.max * 1e3);
    return st;
}

int eval_vision(int argc, char **argv) {
    vision_eval v = {.data = "-", .batch = 1};
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &v.m.model, "DIR", "checkpoint folder (default: the nano model that comes along)", 0,
         0},
        {"device", 'd', OPT_ENUM, &v.m.engine.device, "ref|cpu|cuda|cuda:N", "(default: cpu)", 0, 0},
        {"load-format", 0, OPT_ENUM, &v.m.engine.load_format, "auto|dummy",
         "dummy: made-up weights of config.json's shapes, on a GPU, to measure speed (default: auto)", 0, 0},
        {"threads", 't', OPT_INT, &v.m.engine.threads, "N", "CPU threads (default: 0, all cores)", 0, 4096},
        {"cpu-mask", 0, OPT_ENUM, &v.m.engine.cpu_mask, "none|avx2|avxvnni|avx512|vnni|bf16|noamx|all",
         "highest instruction set to use (default: all)", 0, 0},
        {"data", 0, OPT_STR, &v.data, "FILE", "JSON lines {\"image\"}, {\"video\"} or {\"frames\"} (default: -, stdin)",
         0, 0},
        {"batch", 0, OPT_INT, &v.batch, "N", "items in one pass of the tower, as far as they fit (default: 1)", 1,
         4096},
        {"deterministic", 0, OPT_FLAG, &v.m.engine.deterministic, NULL,
         "an item alone and among others gives the same bits (always so on ref and cpu; cuda is slower)", 0, 0},
        {"out", 0, OPT_STR, &v.out, "FILE", "gets the projected rows, float32 (default: none)", 0, 0},
    };
    int exit_status =
        cmd_options("eval vision", "[--data FILE] [--out FILE] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (exit_status >= 0) return exit_status;
    err e = {0};
    i64 n_failed = 0;
    status st = eval_vision_run(&v, &n_failed, &e);
    eval_close(v.rows, v.out, &st, &e);
    exit_status = st != ST_OK ? cmd_fail("eval vision", &e) : n_failed ? EXIT_FAULT : EXIT_DONE;
    vision_close(v.v);
    if (v.made) v.b.device->release(v.b.device, v.made);
    backend_close(&v.b);
    checkpoint_close(v.ck);
    for (i64 i = 0; i < v.waiting; i++) free((void *)(uintptr_t)v.items[i].patches); /* of a run that broke off */
    f64_list_free(&v.seconds);
    free(v.items);
    free(v.raw);
    free(v.wide);
    return exit_status;
}
