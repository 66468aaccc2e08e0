#include "cmd/profile/timeline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

status timeline_make(timeline *t, const char *title, const kernel_launch *seen, i64 n, err *e) {
    *t = (timeline){0};
    if (!n) return err_set(e, ST_INPUT, "%s: CUPTI saw no launch", title);
    t->all = calloc((size_t)n, sizeof *t->all);
    if (!t->all) return err_nomem(e, "a timeline", (u64)n * sizeof *t->all);
    snprintf(t->title, sizeof t->title, "%s", title);
    t->n = n;
    for (i64 i = 0; i < n; i++) {
        const kernel_launch *k = &seen[i];
        const f64 from = (f64)(k->from - seen[0].from) * 1e-3, to = (f64)(k->to - seen[0].from) * 1e-3;
        t->all[i] = (timeline_launch){.kernel = k->kernel,
                                      .from = from,
                                      .to = to,
                                      .overlap = i ? t->us - from : 0,
                                      .adds = fmax(0, to - t->us),
                                      .cluster = k->cluster};
        memcpy(t->all[i].grid, k->grid, sizeof k->grid);
        t->us = fmax(t->us, to);
    }
    return ST_OK;
}

void timeline_free(timeline *t) {
    free(t->all);
    *t = (timeline){0};
}

/* Is it a kernel that the trace knows by its own name? */
static bool is_traced(const gpu_time *of, i64 n, const char *kernel) {
    for (i64 i = 0; i < n; i++)
        if (!strcmp(of[i].kernel, kernel)) return true;
    return false;
}

bool timeline_name(timeline *t, const gpu_time *of, i64 n, const char *library) {
    i64 i = 0, k = 0;
    while (i < t->n && k < n) {
        const bool foreign = !strcmp(of[k].kernel, library) && !is_traced(of, n, t->all[i].kernel);
        if (!foreign && strcmp(of[k].kernel, t->all[i].kernel)) break;
        t->all[i].op = of[k].what;
        t->all[i].first = of[k].first;
        t->all[i].bytes = of[k].bytes;
        t->all[i++].flops = of[k].flops;
        /* A product of the library's may be several kernels. */
        while (foreign && i < t->n && (k + 1 == n || strcmp(of[k + 1].kernel, library)) &&
               !is_traced(of, n, t->all[i].kernel))
            t->all[i++].op = of[k].what;
        k++;
    }
    const bool same = i == t->n && k == n;
    snprintf(t->strange, sizeof t->strange, "%.60s where %.60s was", i < t->n ? t->all[i].kernel : "nothing",
             k < n ? of[k].kernel : "nothing");
    t->bytes = 0;
    for (i = 0; i < t->n; i++) {
        timeline_launch *l = &t->all[i];
        if (!same) l->op = NULL, l->bytes = l->flops = 0, l->first = false;
        t->bytes += l->bytes;
    }
    return same;
}

bool timeline_same_kind(const timeline_launch *a, const timeline_launch *b) {
    return a->op == b->op && !strcmp(a->kernel, b->kernel) && !memcmp(a->grid, b->grid, sizeof a->grid);
}

static int costlier(const void *a, const void *b) {
    const f64 x = ((const timeline_kind *)a)->adds, y = ((const timeline_kind *)b)->adds;
    return (x < y) - (x > y);
}

int timeline_kinds(const timeline *t, timeline_kind out[TIMELINE_KINDS]) {
    int n = 0;
    for (i64 i = 0; i < t->n; i++) {
        const timeline_launch *l = &t->all[i];
        int k = 0;
        while (k < n && !timeline_same_kind(out[k].first, l)) k++;
        if (k == TIMELINE_KINDS) continue;
        if (k == n) out[n++] = (timeline_kind){.first = l};
        out[k].launches++;
        out[k].lasts += l->to - l->from;
        out[k].overlap += l->overlap;
        out[k].adds += l->adds;
    }
    qsort(out, (size_t)n, sizeof *out, costlier);
    return n;
}

void timeline_layer(const timeline *t, i64 *from, i64 *to) {
    timeline_kind kinds[TIMELINE_KINDS];
    const int n = timeline_kinds(t, kinds);
    int k = 0;
    i64 at = 0;
    while (k < n && kinds[k].launches < 3) k++;
    *from = 0;
    *to = t->n;
    if (k == n) return;
    for (i64 i = 0; i < t->n; i++) {
        if (!timeline_same_kind(kinds[k].first, &t->all[i])) continue;
        if (at == kinds[k].launches / 2 - 1) *from = i + 1;
        if (at++ == kinds[k].launches / 2) *to = i + 1;
    }
}

void timeline_print(FILE *f, const timeline *t) {
    timeline_kind kinds[TIMELINE_KINDS];
    const int n = timeline_kinds(t, kinds);
    fprintf(f, "\n%s, on the GPU's clock: %lld launches, %.1f us", t->title, (long long)t->n, t->us);
    if (t->bytes > 0) fprintf(f, " for %.3f GB: %.2f TB/s", t->bytes * 1e-9, t->bytes / t->us * 1e-6);
    fprintf(f, "\n  %9s %9s %9s %9s %9s  kernel and operation\n", "us a step", "launches", "adds us", "lasts us",
            "overlap");
    for (int i = 0; i < n; i++) {
        const timeline_kind *k = &kinds[i];
        const f64 c = (f64)k->launches;
        fprintf(f, "  %9.1f %9lld %9.2f %9.2f %9.2f  %.48s%s%s\n", k->adds, (long long)k->launches, k->adds / c,
                k->lasts / c, k->overlap / c, k->first->kernel, k->first->op ? ": " : "",
                k->first->op ? k->first->op : "");
    }
    fflush(f);
}
