/* cmd/eval/eval_vision.c: `moonlet eval vision`: pictures to the rows that the vision tower makes of them.
 *
 * JSON lines in: {"image": path} or {"frames": [paths of 1 to 4 pictures of one size]}; out, one for one: {"grid": [t,
 * h, w] in patches, "tokens", "resized": [w, h] in pixels}. --out gets the projected rows [tokens, width], float32, one
 * item after the other. Paths are taken from where the command runs. */
#include "base/file.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/eval/eval.h"
#include "cmd/lib/jsonl.h"
#include "cmd/lib/model_opts.h"
#include "kernels/backend.h"
#include "media/grid.h"
#include "model/vision.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VISION_FILE_MOST = 256 << 20 };

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
    i64 items, tokens;
    f64 seconds; /* in the tower */
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
    if (!!image == !!list) return err_set(e, ST_INPUT, "the line needs \"image\" or \"frames\", and not both");
    if (json_object_get(line, "video")) return err_set(e, ST_UNSUPPORTED, "\"video\" is not read yet");
    if (n < 1 || n > CHUNK_FRAMES)
        return err_set(e, ST_INPUT, "\"frames\" is a list of 1 to %d pictures", CHUNK_FRAMES);
    for (size_t i = 0; st == ST_OK && i < n; i++)
        st = eval_vision_picture(image ? image : json_array_get(list, i), &frames[i], e);
    const grid_limits limits = image ? GRID_PICTURE : GRID_FRAME;
    if (st == ST_OK) st = media_patches_make(frames, (int)n, &limits, 4, out, e);
    for (size_t i = 0; i < n; i++) picture_free(&frames[i]);
    return st;
}

static status eval_vision_rows(vision_eval *v, const vision_input *in, err *e) {
    device *dev = v->b.device;
    const i64 n = vision_tokens(in) * v->config.text_hidden;
    const f64 start = now_s();
    status st = vision_begin(v->v, in, 1, v->made, e);
    if (st != ST_OK) return st;
    while (!vision_advance(v->v, VISION_ALL)) continue;
    st = dev->finish(dev, e);
    v->seconds += now_s() - start;
    if (st != ST_OK) return st;
    dev->read(dev, v->raw, v->made, (u64)n * dtype_size(v->b.ops.act));
    for (i64 k = 0; k < n; k++)
        v->wide[k] = v->b.ops.act == DT_F32 ? ((const f32 *)(const void *)v->raw)[k]
                                            : bf16_to_f32(((const bf16 *)(const void *)v->raw)[k]);
    for (i64 k = 0; k < n; k++)
        if (!isfinite(v->wide[k]))
            return err_set(e, ST_NUMERIC, "token %lld of the item has %s", (long long)(k / v->config.text_hidden),
                           isnan(v->wide[k]) ? "NaN" : "an infinity");
    if (v->rows && fwrite(v->wide, sizeof *v->wide, (size_t)n, v->rows) != (size_t)n)
        return err_set(e, ST_IO, "%s: %s", v->out, strerror(errno));
    return ST_OK;
}

static status eval_vision_line(void *ud, const json_t *line, buf *out, err *e) {
    vision_eval *v = ud;
    media_patches p = {0};
    status st = eval_vision_patches(line, &p, e);
    const vision_input in = {(i32)p.frames, (i32)p.grid.rows, (i32)p.grid.cols, p.patches};
    if (st == ST_OK) st = eval_vision_rows(v, &in, e);
    if (st == ST_OK) {
        buf_fmt(out, "{\"grid\": [%d, %d, %d], \"tokens\": %lld, \"resized\": [%u, %u]}", in.t, in.h, in.w,
                (long long)vision_tokens(&in), p.grid.width, p.grid.height);
        v->items++;
        v->tokens += vision_tokens(&in);
    }
    media_patches_free(&p);
    return st;
}

static status eval_vision_open(vision_eval *v, err *e) {
    const char *dir = v->m.engine.model_dir;
    const vision_limits lim = {.patches = VISION_PATCHES_MOST, .items = 1};
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
    if (st == ST_OK && (!v->raw || !v->wide)) st = err_nomem(e, "projected rows", bytes);
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
    if (st == ST_OK)
        log_note("%s%s: %lld items, %lld tokens in %.3f s of the tower",
                 v->ck ? "" : "DUMMY WEIGHTS, the rows mean nothing; ", v->b.ops.name, (long long)v->items,
                 (long long)v->tokens, v->seconds);
    return st;
}

int eval_vision(int argc, char **argv) {
    vision_eval v = {.data = "-"};
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &v.m.model, "DIR", "checkpoint folder (default: the nano model that comes along)", 0,
         0},
        {"device", 'd', OPT_ENUM, &v.m.engine.device, "ref|cpu|cuda|cuda:N", "(default: cpu)", 0, 0},
        {"load-format", 0, OPT_ENUM, &v.m.engine.load_format, "auto|dummy",
         "dummy: made-up weights of config.json's shapes, on a GPU, to measure speed (default: auto)", 0, 0},
        {"threads", 't', OPT_INT, &v.m.engine.threads, "N", "CPU threads (default: 0, all cores)", 0, 4096},
        {"cpu-mask", 0, OPT_ENUM, &v.m.engine.cpu_mask, "none|avx2|avx512|vnni|bf16|all",
         "highest instruction set to use (default: all)", 0, 0},
        {"data", 0, OPT_STR, &v.data, "FILE", "JSON lines {\"image\"} or {\"frames\"} (default: -, stdin)", 0, 0},
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
    free(v.raw);
    free(v.wide);
    return exit_status;
}
