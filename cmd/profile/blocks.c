#include "cmd/profile/blocks.h"
#include "kernels/gpu/block_marks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TIMED_RUNS = 5 };

void blocks_free(block_timeline *b) {
    timeline_free(&b->t);
    free(b->all);
    free(b->first);
    free(b->front);
    *b = (block_timeline){0};
}

/* A launch from its first block's begin to its last one's end; false: its kernel wrote nothing. */
static bool launch_of(const gpu_stamped *s, kernel_launch *k) {
    *k = (kernel_launch){
        .kernel = s->kernel, .from = ~0ull, .grid = {(i32)s->grid[0], (i32)s->grid[1], (i32)s->grid[2]}};
    for (i64 i = 0; i < s->n; i++) {
        if (s->blocks[i].begin < k->from) k->from = s->blocks[i].begin;
        if (s->blocks[i].end > k->to) k->to = s->blocks[i].end;
    }
    return s->n && k->from && k->to >= k->from;
}

static block_run block_run_of(const block_times *s, u64 start) {
    block_run r = {
        .from = (f64)(s->begin - start) * 1e-3, .to = (f64)(s->end - start) * 1e-3, .processor = (i32)s->processor};
    for (int i = 0; i < BLOCK_MARKS; i++) {
        const u32 behind = s->mark[i] - (u32)s->begin;
        if (s->mark[i] && behind <= s->end - s->begin) r.mark[i] = r.from + behind * 1e-3; /* else of an earlier run */
    }
    return r;
}

static i64 count_blocks(const gpu_stamped *launches, i64 n) {
    i64 all = 0;
    for (i64 i = 0; i < n; i++) all += launches[i].n;
    return all;
}

status blocks_make(block_timeline *b, const char *title, const gpu_stamped *launches, i64 n, err *e) {
    *b = (block_timeline){0};
    const i64 most = count_blocks(launches, n);
    kernel_launch *seen = calloc((size_t)n + 1, sizeof *seen);
    b->all = calloc((size_t)most + 1, sizeof *b->all);
    b->first = calloc((size_t)n + 1, sizeof *b->first);
    b->front = calloc((size_t)n + 1, sizeof *b->front);
    i64 timed = 0, at = 0;
    status st = seen && b->all && b->first && b->front
                    ? ST_OK
                    : err_nomem(e, "the times of blocks", (u64)most * sizeof *b->all);
    for (i64 i = 0; st == ST_OK && i < n; i++) {
        if (!launch_of(&launches[i], &seen[timed])) {
            b->untimed++;
            continue;
        }
        b->first[timed] = at;
        for (i64 k = 0; k < launches[i].n; k++) {
            b->all[at] = block_run_of(&launches[i].blocks[k], seen[0].from);
            b->processors = max_i64(b->processors, b->all[at++].processor + 1);
        }
        b->first[++timed] = at;
    }
    if (st == ST_OK && timed) st = timeline_make(&b->t, title, seen, timed, e);
    for (i64 i = 1; st == ST_OK && i < timed; i++) b->front[i] = fmax(b->front[i - 1], b->t.all[i - 1].to);
    free(seen);
    if (st != ST_OK) blocks_free(b);
    return st;
}

/* ---- steps ---- */

enum { LAUNCHES_KEPT = 4096 };
typedef struct {
    gpu_stamped all[LAUNCHES_KEPT];
    block_times *blocks[LAUNCHES_KEPT];
    i64 n, lost;
} stamped_list;

/* The blocks are the GPU's only until it returns. */
static void keep_stamped(void *ud, const gpu_stamped *s) {
    stamped_list *l = ud;
    block_times *own = l->n < LAUNCHES_KEPT ? malloc((size_t)s->n * sizeof *own) : NULL;
    if (!own) {
        l->lost++;
        return;
    }
    memcpy(own, s->blocks, (size_t)s->n * sizeof *own);
    l->blocks[l->n] = own;
    l->all[l->n] = *s;
    l->all[l->n++].blocks = own;
}

static status run_once(block_timeline *b, step_timer *m, const char *title, stamped_list *l, err *e) {
    i64 missed = 0;
    l->n = l->lost = 0;
    status st = step_timer_stamps(m, keep_stamped, l, &missed, e);
    if (st == ST_OK && l->n) st = blocks_make(b, title, l->all, l->n, e);
    b->untimed += missed + l->lost;
    for (i64 i = 0; i < l->n; i++) free(l->blocks[i]);
    return st;
}

status blocks_run(block_timeline *b, step_timer *m, const char *title, i64 sequences, i64 rows, i64 pos, err *e) {
    stamped_list *l = calloc(1, sizeof *l);
    f64 ignored;
    status st = l ? step_timer_stamp(m, true, e) : err_nomem(e, "a step's launches", sizeof *l);
    *b = (block_timeline){0};
    for (int r = -WARM_DECODES; st == ST_OK && r < TIMED_RUNS; r++) {
        block_timeline fresh = {0};
        st = step_timer_decode(m, sequences, rows, pos, &ignored, e);
        if (st == ST_OK && r >= 0) st = run_once(&fresh, m, title, l, e);
        if (st == ST_OK && r >= 0 && !fresh.t.n) r = TIMED_RUNS; /* nor will the next one have any */
        if (st == ST_OK && r >= 0 && (!b->t.n || fresh.t.us < b->t.us)) {
            const block_timeline longer = *b;
            *b = fresh;
            fresh = longer;
        }
        blocks_free(&fresh);
    }
    err second = {0};
    const status off = l ? step_timer_stamp(m, false, st == ST_OK ? e : &second) : ST_OK;
    if (st == ST_OK) st = off;
    if (st != ST_OK) blocks_free(b);
    free(l);
    return st;
}

bool blocks_name(block_timeline *b, const gpu_time *of, i64 n) {
    i64 k = 0, i = 0;
    for (; i < b->t.n; i++, k++) {
        while (k < n && strcmp(of[k].kernel, b->t.all[i].kernel)) k++;
        if (k == n) break;
        b->t.all[i].op = of[k].what;
    }
    for (i64 l = 0; i < b->t.n && l < b->t.n; l++) b->t.all[l].op = NULL;
    return i == b->t.n;
}

/* ---- the table ---- */

/* A point of a kernel's blocks, behind the kernels in front: sums over launches. */
typedef struct {
    f64 mean, first, last;
    i64 launches;
} block_point;

enum { POINT_BEGIN = BLOCK_MARKS, POINT_END, POINTS };

static void add_point(const block_timeline *b, i64 launch, int which, block_point *p) {
    f64 sum = 0, first = INFINITY, last = -INFINITY;
    i64 n = 0;
    for (i64 i = b->first[launch]; i < b->first[launch + 1]; i++) {
        const block_run *r = &b->all[i];
        const f64 at = which == POINT_BEGIN ? r->from : which == POINT_END ? r->to : r->mark[which];
        if (which < BLOCK_MARKS && at <= 0) continue;
        sum += at - b->front[launch], n++;
        first = fmin(first, at - b->front[launch]);
        last = fmax(last, at - b->front[launch]);
    }
    if (!n) return;
    p->mean += sum / (f64)n, p->first += first, p->last += last, p->launches++;
}

static void print_point(FILE *f, const char *name, const block_point *p) {
    const f64 n = (f64)p->launches;
    if (p->launches) fprintf(f, "    %-28s %8.2f (%7.2f .. %7.2f)\n", name, p->mean / n, p->first / n, p->last / n);
}

void blocks_print(FILE *f, const block_timeline *b) {
    timeline_kind kinds[TIMELINE_KINDS];
    const int n = timeline_kinds(&b->t, kinds);
    if (!b->t.n) return;
    fprintf(f, "\n%s, by what blocks write down: %lld launches in %.1f us", b->t.title, (long long)b->t.n, b->t.us);
    if (b->untimed) fprintf(f, "; %lld more write nothing", (long long)b->untimed);
    fprintf(f, "\n  us behind the end of the kernels in front: mean of the blocks (the first .. the last)\n");
    for (int k = 0; k < n; k++) {
        const timeline_launch *l = kinds[k].first;
        block_point points[POINTS] = {{0}};
        for (i64 i = 0; i < b->t.n; i++)
            if (timeline_same_kind(&b->t.all[i], l))
                for (int p = 0; p < POINTS; p++) add_point(b, i, p, &points[p]);
        fprintf(f, "  %.48s, %lld x %d blocks%s%s\n", l->kernel, (long long)kinds[k].launches,
                l->grid[0] * l->grid[1] * l->grid[2], l->op ? ": " : "", l->op ? l->op : "");
        print_point(f, "begin", &points[POINT_BEGIN]);
        for (int p = 0; p < BLOCK_MARKS; p++)
            if (gpu_block_mark(l->kernel, p)) print_point(f, gpu_block_mark(l->kernel, p), &points[p]);
        print_point(f, "end", &points[POINT_END]);
    }
    fflush(f);
}
