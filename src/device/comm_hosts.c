/* device/comm_hosts.c: what the ranks of one process read of the others' in an exchange, fetched from process to
 * process, so that each finds it where comm_host.c finds the data of threads beside it. */
#include "base/buf.h"
#include "device/comm_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    u64 from, to; /* bytes */
} byte_range;

static i64 process_of(const comm_group *g, i64 rank) { return rank / g->held; }

/* Of rank r's data in all-to-all: what goes to ranks of process p. */
static byte_range sent_to(const comm_group *g, const comm_post *post, i64 p) {
    u64 from = 0, n = 0;
    for (i64 k = 0; k < (p + 1) * g->held; k++) *(k < p * g->held ? &from : &n) += (u64)post->counts[k] * post->size;
    return (byte_range){from, from + n};
}

/* The same as ranks here expect it of rank r, in order. */
static byte_range expected_of(const comm_group *g, u64 number, i64 r) {
    u64 n = 0;
    for (i64 k = g->first; k < g->first + g->held; k++) {
        const comm_post *own = &g->places[k].posts[number % 2];
        n += (u64)own->in_counts[r] * own->size;
    }
    return (byte_range){0, n};
}

/* Of rank r's data, what the ranks of process p read in a call; `post` is any rank's, but of all-to-all rank r's. */
static byte_range read_by(const comm_group *g, const comm_post *post, call_kind kind, i64 r, i64 p) {
    const i64 first = p * g->held, end = first + g->held, unit = kind == CALL_ALL_REDUCE ? post->root : 1;
    switch (kind) {
    case CALL_ALL_REDUCE: {
        const i64 n = (i64)post->size / unit;
        if (post->size <= ONE_SHOT) return (byte_range){0, post->size};
        return (byte_range){(u64)(reduce_part_from(n, g->ranks, first) * unit),
                            (u64)(reduce_part_from(n, g->ranks, end) * unit)};
    }
    case CALL_COLLECT_PARTS: {
        const i64 n = (i64)post->size / post->root;
        return (byte_range){(u64)(reduce_part_from(n, g->ranks, r) * post->root),
                            (u64)(reduce_part_from(n, g->ranks, r + 1) * post->root)};
    }
    case CALL_ALL_GATHER: return (byte_range){0, post->size};
    case CALL_REDUCE_SCATTER: return (byte_range){(u64)first * post->size, (u64)end * post->size};
    case CALL_ALL_TO_ALL: return sent_to(g, post, p);
    case CALL_COLUMNS_TO_ROWS: {
        const u64 row = (u64)(post->counts[r + 1] - post->counts[r]) * sizeof(u32);
        return (byte_range){(u64)comm_rows((i64)post->size, g->ranks, first).from * row,
                            (u64)comm_rows((i64)post->size, g->ranks, end - 1).to * row};
    }
    case CALL_BROADCAST: return (byte_range){0, r == post->root ? post->size : 0};
    case CALL_BARRIER: break;
    }
    return (byte_range){0, 0};
}

static bool grow(u8 **data, u64 *cap, u64 want) {
    if (*data && want <= *cap) return true;
    if (!want) want = 1;
    u8 *more = realloc(*data, want);
    if (more) *data = more, *cap = want;
    return more != NULL;
}

/* What process p reads of ranks here, and what ranks here read of p's: sizes, and with `out` the former packed. */
static host_parcel parcel_with(const comm_group *g, u64 number, call_kind kind, i64 p, u8 *out) {
    const comm_post *own = &g->places[g->first].posts[number % 2];
    const i64 self = process_of(g, g->first);
    host_parcel with = {.out = out};
    for (i64 k = 0; k < g->held; k++) {
        const comm_post *post = &g->places[g->first + k].posts[number % 2];
        const byte_range sent = read_by(g, post, kind, g->first + k, p);
        const i64 r = p * g->held + k;
        const byte_range read = kind == CALL_ALL_TO_ALL ? expected_of(g, number, r) : read_by(g, own, kind, r, self);
        if (out && sent.to > sent.from) memcpy(out + with.out_bytes, post_at(post, sent.from), sent.to - sent.from);
        with.out_bytes += sent.to - sent.from;
        with.in_bytes += read.to - read.from;
    }
    return with;
}

/* Posts of process p's ranks: their data from `in` on. */
static void post_of_process(comm_group *g, u64 number, call_kind kind, i64 p, const u8 *in) {
    const comm_post *own = &g->places[g->first].posts[number % 2];
    const i64 self = process_of(g, g->first);
    for (i64 k = 0; k < g->held; k++) {
        const i64 r = p * g->held + k;
        const byte_range read = kind == CALL_ALL_TO_ALL ? expected_of(g, number, r) : read_by(g, own, kind, r, self);
        comm_post *post = &g->places[r].posts[number % 2];
        *post = *own;
        post->data = in;
        post->from = read.from;
        in += read.to - read.from;
        if (kind != CALL_ALL_TO_ALL) continue;
        i64 *counts = g->far.counts + r * g->ranks;
        for (i64 to = 0; to < g->ranks; to++) counts[to] = 0;
        for (i64 to = g->first; to < g->first + g->held; to++)
            counts[to] = g->places[to].posts[number % 2].in_counts[r];
        post->counts = counts;
    }
}

status comm_fetch(comm_group *g, u64 number, call_kind kind, err *e) {
    host_parcel with[HOSTS_MOST];
    char what[64];
    const i64 self = process_of(g, g->first), n = g->ranks / g->held;
    u64 out = 0, in = 0;
    for (i64 p = 0; p < n; p++) {
        with[p] = p == self ? (host_parcel){0} : parcel_with(g, number, kind, p, NULL);
        out += with[p].out_bytes, in += with[p].in_bytes;
    }
    comm_far *f = &g->far;
    if (!f->counts) f->counts = calloc((size_t)(g->ranks * g->ranks), sizeof *f->counts);
    if (!f->counts || !grow(&f->out, &f->out_cap, out) || !grow(&f->in, &f->in_cap, in))
        return err_nomem(e, "an exchange with other processes", out + in);
    u8 *to = f->out, *from = f->in;
    for (i64 p = 0; p < n; p++) {
        if (p == self) continue;
        if (out) with[p] = parcel_with(g, number, kind, p, to);
        with[p].in = from;
        to += with[p].out_bytes, from += with[p].in_bytes;
    }
    /* the tag tells whether all are at the same call */
    const i32 tag = (i32)kind << 12 | (i32)(number & 4095);
    snprintf(what, sizeof what, "exchange %llu (%s)", (unsigned long long)number, comm_call_names[kind]);
    status st = hosts_exchange(&g->of, what, tag, with, &g->failed, e);
    from = f->in;
    for (i64 p = 0; st == ST_OK && p < n; from += with[p++].in_bytes)
        if (p != self) post_of_process(g, number, kind, p, from);
    return st;
}

void comm_far_close(comm_group *g) {
    comm_far *f = &g->far;
    if (g->of.all && atomic_load(&g->failed)) {
        hosts_leave(g->of.all, f->in);
        hosts_leave(g->of.all, f->out);
    } else {
        free(f->in);
        free(f->out);
    }
    free(f->counts);
}
