#include "runtime/load.h"
#include "base/log.h"
#include <stdio.h>

typedef struct {
    weight_reader *readers[STAGES_MAX]; /* of each stage that is here; NULL: data are read where they are mapped */
    int threads;
    bool verify;
} load_wish;

static status load_share(rank *k, void *ud, err *e) {
    const load_wish *w = ud;
    weight_reader *reader = w->readers[k->stage];
    ops_set_threads(w->threads);
    status st = model_load(k->model, reader, w->verify, e);
    if (st == ST_OK) return ST_OK;
    for (size_t s = 0; s < COUNT_OF(w->readers); s++)
        if (w->readers[s]) weight_reader_cancel(w->readers[s]);
    return st;
}

static void say_reads(const ranks *r, const weight_reads *all) {
    char bytes[BYTES_TEXT], rate[BYTES_TEXT], many[32] = "";
    if (all->seconds < 1) return;
    if (r->held > 1) snprintf(many, sizeof many, " for %lld ranks", (long long)r->held);
    log_note("weights: read %s once%s in %.1f s, %s/s", bytes_text(bytes, all->bytes), many, all->seconds,
             bytes_text(rate, (u64)((f64)all->bytes / all->seconds)));
}

/* One for each stage of which there are ranks here: they look at the same tensors. */
static status open_readers(const ranks *r, const checkpoint *ck, load_wish *w, err *e) {
    status st = ST_OK;
    for (i64 s = 0; st == ST_OK && s < r->pp; s++) {
        i64 here;
        u64 n;
        const rank *first = ranks_of_stage(r, s, &here);
        if (!first) continue;
        const tensor_info *const *list = model_reads(first->model, &n);
        st = weight_reader_open(&w->readers[s], ck, list, n, here, 0, r->deadline_s, e);
        if (st == ST_OK) weight_reader_first_rank(w->readers[s], first->place);
    }
    return st;
}

status ranks_load(ranks *r, const checkpoint *ck, bool verify, weight_reads *reads, err *e) {
    load_wish w = {.threads = r->threads_each, .verify = verify};
    status st = ST_OK;
    *reads = (weight_reads){0};
    if (ck && !r->of[0].backend.ops.keeps_views) st = open_readers(r, ck, &w, e);
    if (st == ST_OK) st = ranks_each(r, load_share, &w, e);
    for (i64 s = 0; s < r->pp; s++) {
        if (!w.readers[s]) continue;
        const weight_reads own = weight_reader_reads(w.readers[s]);
        reads->bytes += own.bytes, reads->needed += own.needed, reads->memory += own.memory;
        reads->seconds = own.seconds > reads->seconds ? own.seconds : reads->seconds;
        weight_reader_close(w.readers[s]);
    }
    if (st == ST_OK) say_reads(r, reads);
    return st;
}
