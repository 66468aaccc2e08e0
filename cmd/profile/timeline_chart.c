/* cmd/profile/timeline_chart.c: timelines as an SVG that needs nothing else. */
#include "cmd/profile/blocks.h"
#include "cmd/profile/chart.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum {
    STRIP = 36,  /* height of the whole step */
    LANE = 26,   /* of a launch in the layer */
    LANES = 4,   /* beside each other; more share the last one */
    MEMORY = 90, /* of the memory's share */
    ROW = 20,    /* of a line of the table */
    ROWS = 14,
    SECTION = 64 + STRIP + 56 + LANES * LANE + 24 + MEMORY + 48 + ROWS * ROW + 40
};

/* A launch from its begin to its end; hovering tells more. */
static void draw_bar(const chart_band *d, const timeline_launch *l, f64 y, f64 height, bool label) {
    const int k = chart_kind(d, l);
    const f64 x = chart_x(d, fmax(l->from, d->from)), w = chart_x(d, fmin(l->to, d->to)) - x;
    buf_fmt(d->b, "<g><title>");
    chart_escaped(d->b, l->op ? l->op : l->kernel, 96);
    buf_char(d->b, '\n');
    chart_escaped(d->b, l->kernel, 96);
    buf_fmt(d->b, "\n%.2f us, adds %.2f us; %d x %d x %d blocks</title>", l->to - l->from, l->adds, l->grid[0],
            l->grid[1], l->grid[2]);
    buf_fmt(d->b, "<rect x='%.2f' y='%.1f' width='%.2f' height='%.1f' fill='%s'%s/>", x, y, fmax(w, 0.2), height,
            chart_color(k), label ? " stroke='#fff'" : "");
    const size_t room = w > 14 ? (size_t)((w - 6) / 5.6) : 0;
    if (label && room > 3) chart_text(d->b, x + 4, y + height - 9, " class='l'", l->kernel, room);
    buf_str(d->b, "</g>\n");
}

static void draw_whole(const chart_band *d, f64 y) {
    chart_grid(d, y, y + STRIP);
    chart_text(d->b, CHART_LEFT - 8, y + STRIP / 2.0 + 4, " text-anchor='end'", "step, us", 16);
    for (i64 i = 0; i < d->t->n; i++) {
        timeline_launch l = d->t->all[i]; /* what it adds: nothing hides what is below */
        l.from = l.to - l.adds;
        draw_bar(d, &l, y, STRIP, false);
    }
}

/* Where launches overlap each gets a lane that is free. */
static void draw_layer(const chart_band *d, i64 from, i64 to, f64 y) {
    f64 until[LANES] = {0};
    chart_grid(d, y, y + LANES * LANE + 24 + MEMORY);
    chart_text(d->b, CHART_LEFT - 8, y + LANE / 2.0 + 4, " text-anchor='end'", "a layer, us", 16);
    for (i64 i = from; i < to; i++) {
        const timeline_launch *l = &d->t->all[i];
        int lane = 0;
        while (lane < LANES - 1 && until[lane] > l->from) lane++;
        until[lane] = l->to;
        draw_bar(d, l, y + lane * LANE, LANE - 2, true);
    }
}

/* What an operation's bytes make of the time that its launches add, against what the memory gives. */
static void draw_memory(const chart_band *d, i64 from, i64 to, f64 read, f64 y) {
    buf *b = d->b;
    chart_text(b, CHART_LEFT - 8, y + 10, " text-anchor='end'", "bytes / us", 16);
    buf_fmt(b, "<text x='%d' y='%.1f' class='s' text-anchor='end'>100%% = %.2f TB/s</text>\n", CHART_LEFT - 8, y + 26,
            read * 1e-12);
    buf_fmt(b, "<rect x='%d' y='%.1f' width='%d' height='%d' fill='none' stroke='#bbb'/>\n", CHART_LEFT, y, CHART_PLOT,
            MEMORY);
    for (i64 i = from; i < to;) {
        const timeline_launch *l = &d->t->all[i];
        f64 adds = l->adds, end = l->to;
        i64 k = i + 1;
        for (; k < to && !d->t->all[k].first; k++) adds += d->t->all[k].adds, end = fmax(end, d->t->all[k].to);
        const f64 share = adds > 0 && read > 0 ? l->bytes / (adds * 1e-6) / read : 0;
        const f64 x = chart_x(d, fmax(end - adds, d->from)), w = chart_x(d, fmin(end, d->to)) - x;
        const f64 h = fmin(share, 1) * MEMORY;
        buf_fmt(b, "<g><title>");
        chart_escaped(b, l->op ? l->op : l->kernel, 96);
        buf_fmt(b, "\n%.2f MB in the %.2f us that it adds: %.0f %%</title>", l->bytes * 1e-6, adds, 100 * share);
        buf_fmt(b, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s' opacity='0.75'/>", x, y + MEMORY - h,
                fmax(w, 0.2), h, chart_color(chart_kind(d, l)));
        if (w > 30)
            buf_fmt(b, "<text x='%.1f' y='%.1f' class='s' text-anchor='middle'>%.0f%%</text>", x + w / 2,
                    fmax(y + MEMORY - h - 3, y + 12), 100 * share);
        buf_str(b, "</g>\n");
        i = k;
    }
}

static void draw_rows(const chart_band *d, f64 y) {
    const f64 widest = d->n_kinds ? fmax(d->kinds[0].adds, 1e-9) : 1;
    for (int k = 0; k < d->n_kinds && k < ROWS; k++) {
        const timeline_kind *q = &d->kinds[k];
        const f64 top = y + k * ROW, c = (f64)q->launches;
        buf_fmt(d->b, "<rect x='%d' y='%.1f' width='%.1f' height='%d' fill='%s'/>", CHART_LEFT, top,
                q->adds / widest * 420, ROW - 5, chart_color(k));
        buf_fmt(d->b, "<text x='%d' y='%.1f' text-anchor='end'>%.1f us</text>", CHART_LEFT - 8, top + 12, q->adds);
        buf_fmt(d->b, "<text x='%d' y='%.1f'>%4.1f %% &#160; %lld x %.2f us (lasts %.2f) &#160; ", CHART_LEFT + 432,
                top + 12, 100 * q->adds / d->t->us, (long long)q->launches, q->adds / c, q->lasts / c);
        chart_escaped(d->b, q->first->kernel, 48);
        if (q->first->op) {
            buf_str(d->b, ": ");
            chart_escaped(d->b, q->first->op, 64);
        }
        buf_str(d->b, "</text>\n");
    }
}

/* Returns its height. */
static int draw_section(buf *b, const timeline *t, const block_timeline *blocks, f64 read, f64 y) {
    timeline_kind kinds[TIMELINE_KINDS];
    chart_band d = {b, t, kinds, timeline_kinds(t, kinds), 0, t->us};
    i64 from, to;
    buf line = {0};
    timeline_layer(t, &from, &to);
    buf_fmt(&line, "%s: %lld launches, %.1f us", t->title, (long long)t->n, t->us);
    if (t->bytes > 0) buf_fmt(&line, ", %.3f GB at %.2f TB/s", t->bytes * 1e-9, t->bytes / t->us * 1e-6);
    chart_text(b, CHART_LEFT, y + 24, " font-size='15' font-weight='bold'", line.data ? line.data : t->title, 200);
    b->failed |= line.failed;
    buf_free(&line);
    y += 64;
    draw_whole(&d, y);
    y += STRIP + 56;
    d.from = from ? t->all[from - 1].to : 0;
    d.to = d.from + 1e-3;
    for (i64 i = from; i < to; i++) d.to = fmax(d.to, t->all[i].to), d.from = fmin(d.from, t->all[i].from);
    draw_layer(&d, from, to, y);
    y += LANES * LANE + 24;
    if (t->bytes > 0 && read > 0) draw_memory(&d, from, to, read, y);
    y += MEMORY + 28;
    if (blocks_height(blocks)) blocks_draw(&d, blocks, y);
    draw_rows(&d, y + blocks_height(blocks) + 20);
    return SECTION + blocks_height(blocks);
}

status timeline_chart(FILE *f, const timeline *t, const block_timeline *blocks, int n, const char *chip, f64 read,
                      err *e) {
    buf b = {0};
    int height = 72, y = 60;
    for (int i = 0; i < n; i++) height += SECTION + blocks_height(&blocks[i]);
    buf_fmt(&b,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='12' "
            "fill='#333'>\n<style>.g{stroke:#e4e4e4}.s{font-size:10px;fill:#666}.l{font-size:10px;fill:#fff}</style>\n"
            "<rect width='100%%' height='100%%' fill='#fff'/>\n",
            CHART_WIDTH, height);
    chart_text(&b, CHART_LEFT, 28, " font-size='17'", chip, 64);
    chart_text(&b, CHART_LEFT, 48, " class='s'",
               "Every launch on the GPU's clock (CUPTI). A colour is a kernel with its operation, the costliest below; "
               "what a launch adds is how far it moves the end of all before it.",
               400);
    for (int i = 0; i < n; i++) y += draw_section(&b, &t[i], &blocks[i], read, y);
    buf_str(&b, "</svg>\n");
    status st = b.failed ? err_nomem(e, "the picture of a timeline", b.len) : ST_OK;
    if (st == ST_OK && (fwrite(b.data, 1, b.len, f) != b.len || fflush(f)))
        st = err_set(e, ST_IO, "a timeline cannot be written: %s", strerror(errno));
    buf_free(&b);
    return st;
}
