#include "runtime/load.h"
#include "base/log.h"
#include <stdio.h>

typedef struct {
    weight_reader *reader; /* or NULL */
    int threads;
    bool verify;
} load_wish;

static status load_share(rank *k, void *ud, err *e) {
    const load_wish *w = ud;
    ops_set_threads(w->threads);
    status st = model_load(k->model, w->reader, w->verify, e);
    if (st != ST_OK && w->reader) weight_reader_cancel(w->reader);
    return st;
}

static void say_reads(const ranks *r, const weight_reads *all) {
    char bytes[BYTES_TEXT], rate[BYTES_TEXT], many[32] = "";
    if (all->seconds < 1) return;
    if (r->held > 1) snprintf(many, sizeof many, " for %lld ranks", (long long)r->held);
    log_note("weights: read %s once%s in %.1f s, %s/s", bytes_text(bytes, all->bytes), many, all->seconds,
             bytes_text(rate, (u64)((f64)all->bytes / all->seconds)));
}

status ranks_load(ranks *r, const checkpoint *ck, bool verify, weight_reads *reads, err *e) {
    load_wish w = {.threads = r->threads_each, .verify = verify};
    u64 n = 0;
    status st = ST_OK;
    *reads = (weight_reads){0};
    if (ck && !r->of[0].backend.ops.keeps_views) {
        const tensor_info *const *list = model_reads(r->of[0].model, &n);
        st = weight_reader_open(&w.reader, ck, list, n, r->held, 0, r->deadline_s, e);
        if (st == ST_OK) weight_reader_first_rank(w.reader, r->first);
    }
    if (st == ST_OK) st = ranks_each(r, load_share, &w, e);
    if (w.reader) *reads = weight_reader_reads(w.reader);
    weight_reader_close(w.reader);
    if (st == ST_OK) say_reads(r, reads);
    return st;
}
