/* cmd/quantize/error_chart.c: relative errors by layer, a line a class. */
#include "cmd/quantize/report.h"
#include <math.h>

enum { ERR_WIDTH = 800, ERR_HEIGHT = 400, ERR_LEFT = 80, ERR_RIGHT = 160, ERR_TOP = 48, ERR_BOTTOM = 56 };
static const char *const line_colors[MC_COUNT] = {"#3b6fd4", "#d4573b", "#2f9e6b", "#9b59b6",
                                                  "#c79a1b", "#16a3b8", "#7f8c8d"};

static f64 layer_x(const sums_table *t, i64 layer) {
    const f64 last = t->layers > 1 ? (f64)(t->layers - 1) : 1;
    return ERR_LEFT + (f64)layer / last * (ERR_WIDTH - ERR_LEFT - ERR_RIGHT);
}

static f64 error_y(f64 error, f64 most) {
    return ERR_HEIGHT - ERR_BOTTOM - error / most * (ERR_HEIGHT - ERR_TOP - ERR_BOTTOM);
}

/* The end of the axis: 1, 2 or 5 times a power of ten. */
static f64 axis_end(f64 most) {
    f64 end = pow(10, floor(log10(most)));
    return most <= end ? end : most <= 2 * end ? 2 * end : most <= 5 * end ? 5 * end : 10 * end;
}

static void draw_axes(const sums_table *t, f64 most, buf *b) {
    const i64 step = max_i64(1, ceil_div(t->layers, 16));
    for (int i = 0; i <= 5; i++)
        buf_fmt(b,
                "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='g'/><text x='%d' y='%.1f' "
                "text-anchor='end'>%.3g</text>\n",
                ERR_LEFT, error_y(most * i / 5, most), ERR_WIDTH - ERR_RIGHT, error_y(most * i / 5, most), ERR_LEFT - 8,
                error_y(most * i / 5, most) + 4, most * i / 5);
    for (i64 l = 0; l < t->layers; l += step)
        buf_fmt(b, "<text x='%.1f' y='%d' text-anchor='middle'>%lld</text>\n", layer_x(t, l),
                ERR_HEIGHT - ERR_BOTTOM + 20, (long long)l);
    buf_fmt(b, "<text x='%d' y='%d' text-anchor='middle'>layer</text>\n", (ERR_LEFT + ERR_WIDTH - ERR_RIGHT) / 2,
            ERR_HEIGHT - 14);
}

static void draw_class(const sums_table *t, int class, f64 most, int index, buf *b) {
    const char *color = line_colors[class];
    char pen = 'M';
    buf_fmt(b, "<path fill='none' stroke='%s' stroke-width='2' d='", color);
    for (i64 l = 0; l < t->layers; l++) {
        const class_sums *s = &t->at[l * MC_COUNT + class];
        if (!s->made) continue;
        buf_fmt(b, "%c%.1f %.1f", pen, layer_x(t, l), error_y(sums_error(&s->sums), most));
        pen = 'L';
    }
    buf_str(b, "'/>\n");
    for (i64 l = 0; l < t->layers; l++) { /* a layer alone has no line */
        const class_sums *s = &t->at[l * MC_COUNT + class];
        if (s->made)
            buf_fmt(b, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>", layer_x(t, l),
                    error_y(sums_error(&s->sums), most), color);
    }
    buf_fmt(b, "\n<rect x='%d' y='%d' width='12' height='12' fill='%s'/><text x='%d' y='%d'>%s</text>\n",
            ERR_WIDTH - ERR_RIGHT + 16, ERR_TOP + 20 * index, color, ERR_WIDTH - ERR_RIGHT + 34,
            ERR_TOP + 10 + 20 * index, matrix_class_name((matrix_class) class));
}

void error_chart(const sums_table *t, const char *title, buf *out) {
    f64 most = 0;
    bool drawn[MC_COUNT] = {false};
    for (i64 i = 0; i < t->layers * MC_COUNT; i++) {
        most = fmax(most, sums_error(&t->at[i].sums));
        drawn[i % MC_COUNT] = drawn[i % MC_COUNT] || t->at[i].made;
    }
    most = axis_end(most > 0 ? most : 1);
    buf_fmt(out,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='12' "
            "fill='#333'>\n<style>.g{stroke:#ddd}</style>\n<rect width='100%%' height='100%%' fill='#fff'/>\n"
            "<text x='%d' y='28' font-size='16'>%s</text>\n",
            ERR_WIDTH, ERR_HEIGHT, ERR_LEFT, title);
    draw_axes(t, most, out);
    for (int c = 0, index = 0; c < MC_COUNT; c++)
        if (drawn[c]) draw_class(t, c, most, index++, out);
    buf_str(out, "</svg>\n");
}
