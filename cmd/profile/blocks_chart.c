/* cmd/profile/blocks_chart.c: a layer of a step, a line a multiprocessor. */
#include "cmd/profile/blocks.h"
#include "kernels/gpu/block_marks.h"
#include <math.h>
#include <string.h>

enum { HEAD = 44, SHARE = 60 /* height of the share that works */, GAP = 26, COLUMNS = 350 };
#define LINE 4.0 /* height of a multiprocessor */

int blocks_height(const block_timeline *b) {
    return b->t.n ? HEAD + (int)((f64)b->processors * LINE) + GAP + SHARE + GAP : 0;
}

/* Which of several blocks that a multiprocessor has at a time, at most two lines: a block that begins while an earlier
 * one is under way has the lower half. */
static bool is_beside(const block_timeline *b, i64 from, i64 at) {
    const block_run *r = &b->all[at];
    for (i64 i = from; i < at; i++)
        if (b->all[i].processor == r->processor && b->all[i].to > r->from && b->all[i].from <= r->from) return true;
    return false;
}

static void put_box(buf *b, f64 x, f64 y, f64 w, f64 h) {
    if (w > 0) buf_fmt(b, "M%.1f %.1fh%.1fv%.1fh%.1fz", x, y, fmax(w, 0.2), h, -fmax(w, 0.2));
}

/* All blocks of a launch as three paths: waiting for what is in front, at work, and the points that they pass. */
static void draw_launch(const chart_band *d, const block_timeline *b, i64 launch, i64 first, f64 y) {
    const timeline_launch *l = &b->t.all[launch];
    const char *color = chart_color(chart_kind(d, l));
    buf *out = d->b;
    for (int part = 0; part < 3; part++) {
        buf_fmt(out, "<path fill='%s'%s d='", part < 2 ? color : "#222", part ? "" : " opacity='0.3'");
        for (i64 i = b->first[launch]; i < b->first[launch + 1]; i++) {
            const block_run *r = &b->all[i];
            const bool beside = is_beside(b, first, i);
            const f64 top = y + r->processor * LINE + (beside ? LINE / 2 : 0), h = beside ? LINE / 2 - 0.3 : LINE - 0.6;
            const f64 works = fmin(fmax(r->from, b->front[launch]), r->to);
            if (part == 0) put_box(out, chart_x(d, r->from), top, chart_x(d, works) - chart_x(d, r->from), h);
            if (part == 1) put_box(out, chart_x(d, works), top, chart_x(d, r->to) - chart_x(d, works), h);
            for (int k = 0; part == 2 && k < BLOCK_MARKS; k++)
                if (r->mark[k] > 0 && gpu_block_mark(l->kernel, k)) put_box(out, chart_x(d, r->mark[k]), top, 0.7, h);
        }
        buf_str(out, "'>");
        if (part < 2) {
            buf_str(out, "<title>");
            chart_escaped(out, l->op ? l->op : l->kernel, 96);
            buf_char(out, '\n');
            chart_escaped(out, l->kernel, 96);
            buf_fmt(out, "\n%.2f us behind the kernels in front%s</title>", l->to - b->front[launch],
                    part ? "" : ": waits for them");
        }
        buf_str(out, "</path>\n");
    }
}

/* Of all multiprocessors those that have a block that waits for no kernel, over time. */
static void draw_share(const chart_band *d, const block_timeline *b, i64 from, i64 to, f64 y) {
    f64 busy[COLUMNS] = {0};
    for (i64 launch = from; launch < to; launch++)
        for (i64 i = b->first[launch]; i < b->first[launch + 1]; i++) {
            const block_run *r = &b->all[i];
            const f64 scale = COLUMNS / (d->to - d->from), begin = (fmax(r->from, b->front[launch]) - d->from) * scale,
                      end = (r->to - d->from) * scale;
            if (is_beside(b, b->first[from], i)) continue;
            for (int c = (int)fmax(0, floor(begin)); c < COLUMNS && c < end; c++)
                busy[c] += fmax(0, fmin(end, c + 1) - fmax(begin, c));
        }
    chart_text(d->b, CHART_LEFT - 8, y + 12, " text-anchor='end'", "at work", 16);
    buf_fmt(d->b,
            "<rect x='%d' y='%.1f' width='%d' height='%d' fill='none' stroke='#bbb'/>\n<path fill='#9ab' d='M%d %.1f",
            CHART_LEFT, y, CHART_PLOT, SHARE, CHART_LEFT, y + SHARE);
    for (int c = 0; c < COLUMNS; c++)
        buf_fmt(d->b, "V%.1fh%.2f", y + SHARE * (1 - fmin(1, busy[c] / (f64)b->processors)), (f64)CHART_PLOT / COLUMNS);
    buf_fmt(d->b, "V%.1fz'/>\n", y + SHARE);
}

void blocks_draw(const chart_band *of, const block_timeline *b, f64 y) {
    chart_band d = *of;
    i64 from, to;
    timeline_layer(&b->t, &from, &to);
    d.from = from ? b->front[from] : 0;
    d.to = d.from + 1e-3;
    for (i64 i = from; i < to; i++) d.to = fmax(d.to, b->t.all[i].to), d.from = fmin(d.from, b->t.all[i].from);
    const f64 lines = (f64)b->processors * LINE;
    chart_text(d.b, CHART_LEFT, y + 12, " class='s'",
               "The same layer by multiprocessor, as blocks wrote it down: pale, they wait for the kernels in front; "
               "dark lines, the points that a kernel names.",
               400);
    y += HEAD;
    chart_grid(&d, y, y + lines + GAP + SHARE);
    chart_text(d.b, CHART_LEFT - 8, y + 12, " text-anchor='end'", "multi-", 16);
    chart_text(d.b, CHART_LEFT - 8, y + 26, " text-anchor='end'", "processors", 16);
    for (i64 i = from; i < to; i++) draw_launch(&d, b, i, b->first[from], y);
    draw_share(&d, b, from, to, y + lines + GAP);
}
