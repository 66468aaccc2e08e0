#include "runtime/engine_kv.h"
#include "runtime/engine_internal.h"
#include "runtime/marks.h"
#include <stdlib.h>
#include <string.h>

/* A draft of Llama's layout has heads of its own on each rank; else all ranks have the same rows. */
static bool draft_is_divided(const engine *g) {
    return g->has_draft && g->draft_config.layout == DRAFT_LLAMA && g->layout.tp > 1;
}

status engine_kv_check(const engine *g, const char *option, err *e) {
    return g->hosts ? err_set(e, ST_UNSUPPORTED,
                              "%s does not go with --nnodes: KV pages leave and enter one process's memory", option)
                    : ST_OK;
}

u64 engine_kv_page_bytes(const engine *g) {
    const ranks *r = &g->ranks;
    i64 n;
    const rank *has = engine_draft_ranks(g, &n);
    u64 sum = 0;
    for (i64 s = 0; s < r->pp; s++) sum += model_kv_bytes(&r->of[s * r->tp].config, 1, g->lim.kv_type);
    for (i64 i = 0; i < (draft_is_divided(g) ? n : 1) && has[i].draft; i++)
        sum += draft_kv_bytes(&has[i].draft_config, 1, g->lim.kv_type);
    return sum;
}

/* A value is no number if all bits of its exponent are set, in FP8 (E4M3) all but the sign: with one added to the
 * lowest of them, the carry arrives at the sign's place. Many values at a time; no carry leaves its value. */
bool engine_kv_finite(const engine *g, const u8 *page, u64 from, u64 to) {
    typedef u64 lanes __attribute__((vector_size(16)));
    const dtype type = g->lim.kv_type;
    const u64 every = type == DT_F32 ? 0x0000000100000001 : type == DT_BF16 ? 0x0001000100010001 : 0x0101010101010101;
    const u64 exponent = every * (type == DT_F32 ? 0x7f800000 : type == DT_BF16 ? 0x7f80 : 0x7f);
    const u64 lowest = every * (type == DT_F32 ? 0x00800000 : type == DT_BF16 ? 0x0080 : 0x01);
    const u64 sign = every * (type == DT_F32 ? 0x80000000 : type == DT_BF16 ? 0x8000 : 0x80);
    lanes carries[2] = {0}, many[4]; /* two sums: each waits for itself */
    u64 n = 0, i = from, one, last = 0;
    for (i64 s = 0; s < g->ranks.pp; s++) n += model_kv_bytes(&g->ranks.of[s * g->ranks.tp].config, 1, type);
    if (to > n) to = n; /* a multiple of 8: KV_PAGE rows */
    for (; i + sizeof many <= to; i += sizeof many) {
        memcpy(many, page + i, sizeof many);
        for (int k = 0; k < 4; k++) carries[k % 2] |= (many[k] & exponent) + lowest;
    }
    for (; i < to; i += sizeof one) {
        memcpy(&one, page + i, sizeof one);
        last |= (one & exponent) + lowest;
    }
    carries[0] |= carries[1];
    return !((carries[0][0] | carries[0][1] | last) & sign);
}

status engine_kv_describe(const engine *g, const engine_options *o, buf *out, err *e) {
    buf_fmt(out, "--kv-cache-dtype=%s\n", dtype_name(g->lim.kv_type));
    buf_fmt(out, "--load-format=%s\n", g->ck ? "auto" : "dummy");
    buf_fmt(out, "--simulate-step=%s\n", engine_simulated(g) ? "yes" : "no");
    for (int i = 0; i < o->n_overrides; i++) buf_fmt(out, "--override=%s\n", o->overrides[i]);
    status st = marks_of_config(out, "config.json", o->model_dir, e);
    if (st == ST_OK) st = marks_of_checkpoint(out, "the checkpoint", g->ck, e);
    buf_fmt(out, "a draft model=%s\n", g->has_draft ? "yes" : "no");
    if (draft_is_divided(g)) buf_fmt(out, "ranks that divide the draft's heads=%lld\n", (long long)g->layout.tp);
    if (st == ST_OK && g->has_draft) st = marks_of_config(out, "the draft's config.json", o->draft_dir, e);
    if (st == ST_OK && g->has_draft) st = marks_of_checkpoint(out, "the draft's checkpoint", g->draft_ck, e);
    buf_fmt(out, "a page=%d tokens, %llu bytes\n", KV_PAGE, (unsigned long long)engine_kv_page_bytes(g));
    return st == ST_OK && out->failed ? err_nomem(e, "what KV pages mean", out->len) : st;
}

status engine_kv_compare(const char *own, const char *theirs, err *e) {
    static const marks_line nothing = {.value = "nothing", .n_value = 7};
    marks_line a, b;
    if (!marks_differ(own, theirs, &a, &b)) return ST_OK;
    const marks_line *named = a.name ? &a : &b, *here = a.name ? &a : &nothing, *there = b.name ? &b : &nothing;
    return err_set(e, ST_INPUT, "%.*s is %.*s here and %.*s there: KV pages would not mean the same", named->n_name,
                   named->name, here->n_value, here->value, there->n_value, there->value);
}

status engine_kv_settle(engine *g, err *e) {
    status st = ST_OK;
    for (i64 i = 0; st == ST_OK && engine_on_gpu(g) && i < g->ranks.held; i++) {
        device *d = g->ranks.of[i].backend.device;
        st = d->finish(d, e);
    }
    return st;
}

/* ---- A mover ---- */

struct kv_mover {
    engine *g;
    device_courier *of[COMM_RANKS_MAX]; /* [ranks held]; the first one's data is the page, for all */
};

static device *mover_device(const kv_mover *m, i64 i) { return m->g->ranks.of[i].backend.device; }

status kv_mover_open(kv_mover **out, engine *g, err *e) {
    kv_mover *m = *out = calloc(1, sizeof *m);
    if (!m) return err_nomem(e, "moving KV pages", sizeof *m);
    m->g = g;
    status st = ST_OK;
    for (i64 i = 0; st == ST_OK && i < g->ranks.held; i++)
        st = mover_device(m, i)->courier_open(mover_device(m, i), i ? 0 : engine_kv_page_bytes(g), &m->of[i], e);
    if (st == ST_OK) return ST_OK;
    kv_mover_close(m);
    *out = NULL;
    return st;
}

void kv_mover_close(kv_mover *m) {
    if (!m) return;
    for (i64 i = 0; i < m->g->ranks.held; i++)
        if (m->of[i]) mover_device(m, i)->courier_close(mover_device(m, i), m->of[i]);
    free(m);
}

u8 *kv_mover_page(kv_mover *m) { return m->of[0]->data; }

/* Does rank k have this page's rows of the model, or all of them do? */
static bool has_page(const engine *g, const rank *k, i32 page) {
    return !kv_is_shared(g->lim.kv) || kv_owner(g->lim.kv, page) == k->place;
}

/* What is copied between a page's bytes and a rank: its layers, its draft's layer. */
typedef struct {
    u64 layers_at, layers, draft_at, draft; /* bytes; 0 of them: none */
} page_part;

/* Of rank i. One reader of rows that several ranks have is enough; all of them are written. */
static page_part page_part_of(const engine *g, i64 i, i32 page, bool write) {
    const rank *all = g->ranks.of, *k = &all[i];
    page_part p = {0};
    for (i64 s = 0; s < g->ranks.pp; s++) {
        const u64 n = model_kv_bytes(&all[s * g->ranks.tp].config, 1, g->lim.kv_type);
        if (s < k->stage) p.layers_at += n;
        p.draft_at += n;
    }
    const bool first = k->place == 0 || kv_is_shared(g->lim.kv);
    if (has_page(g, k, page) && (write || first)) p.layers = model_kv_bytes(&k->config, 1, g->lim.kv_type);
    const bool divided = draft_is_divided(g);
    if (!k->draft || !(write || divided || k->place == 0)) return p;
    p.draft = draft_kv_bytes(&k->draft_config, 1, g->lim.kv_type);
    for (const rank *r = k - k->place; divided && r < k; r++)
        p.draft_at += draft_kv_bytes(&r->draft_config, 1, g->lim.kv_type);
    return p;
}

/* Queues rank i's share of a page's copies. */
static void carry(kv_mover *m, i64 i, i32 page, const page_part *p, bool write) {
    const rank *k = &m->g->ranks.of[i];
    device *d = mover_device(m, i);
    u8 *at = kv_mover_page(m) + p->layers_at;
    for (i64 l = 0; p->layers && l < k->config.n_layers; l++) {
        const kv_rows rows = model_kv_page(k->model, page, l);
        d->courier_add(d, m->of[i], write, at, rows.at, rows.bytes);
        at += rows.bytes;
    }
    if (!p->draft) return;
    const kv_rows rows = draft_kv_page(k->draft, page);
    d->courier_add(d, m->of[i], write, kv_mover_page(m) + p->draft_at, rows.at, rows.bytes);
}

/* The ranks' copies run side by side: all are begun before any is waited for. */
static status move_page(kv_mover *m, i32 page, bool write, err *e) {
    status st = ST_OK;
    for (i64 i = 0; i < m->g->ranks.held; i++) {
        const page_part p = page_part_of(m->g, i, page, write);
        carry(m, i, page, &p, write);
    }
    for (i64 i = 0; i < m->g->ranks.held; i++) {
        err own = {0};
        const status done = mover_device(m, i)->courier_wait(mover_device(m, i), m->of[i], &own);
        if (st == ST_OK && done != ST_OK) st = err_set(e, done, "%s", own.text);
    }
    return st;
}

status kv_mover_read(kv_mover *m, i32 page, err *e) { return move_page(m, page, false, e); }
status kv_mover_write(kv_mover *m, i32 page, err *e) { return move_page(m, page, true, e); }
