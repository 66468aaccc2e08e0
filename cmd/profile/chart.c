#include "cmd/profile/chart.h"
#include <math.h>
#include <string.h>

static const char *const palette[] = {"#3b6fd4", "#d4573b", "#2f9e6b", "#9b59b6", "#c79a1b",
                                      "#16a3b8", "#e07aa5", "#6b8e23", "#8c564b", "#5f6fa8"};
#define GREY "#a8a8a8"

f64 chart_x(const chart_band *d, f64 us) { return CHART_LEFT + (us - d->from) / (d->to - d->from) * CHART_PLOT; }

void chart_escaped(buf *b, const char *s, size_t most) {
    for (size_t i = 0; s[i] && i < most; i++) {
        if (strchr("<>&\"'", s[i]))
            buf_fmt(b, "&#%d;", s[i]);
        else if ((unsigned char)s[i] >= 32)
            buf_char(b, s[i]);
    }
}

int chart_kind(const chart_band *d, const timeline_launch *l) {
    int k = 0;
    while (k < d->n_kinds && !timeline_same_kind(d->kinds[k].first, l)) k++;
    return k;
}

const char *chart_color(int k) { return k < (int)COUNT_OF(palette) ? palette[k] : GREY; }

void chart_text(buf *b, f64 x, f64 y, const char *more, const char *text, size_t most) {
    buf_fmt(b, "<text x='%.1f' y='%.1f'%s>", x, y, more);
    chart_escaped(b, text, most);
    buf_str(b, "</text>\n");
}

void chart_grid(const chart_band *d, f64 top, f64 bottom) {
    const f64 span = d->to - d->from;
    f64 step = pow(10, floor(log10(span / 8)));
    while (span / step > 16) step *= span / step > 40 ? 5 : 2;
    for (f64 us = ceil(d->from / step) * step; us <= d->to; us += step) {
        const f64 x = chart_x(d, us);
        buf_fmt(d->b, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' class='g'/>", x, top, x, bottom);
        buf_fmt(d->b, "<text x='%.1f' y='%.1f' class='s' text-anchor='middle'>%g</text>\n", x, top - 4, us);
    }
}
