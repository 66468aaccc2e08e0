/* cmd/bench/serving/pareto_chart.c: curves as an SVG that needs nothing else. */
#include "cmd/bench/serving/pareto_curves.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 800, HEIGHT = 520, LEFT = 80, RIGHT = 24, TOP = 48, BOTTOM = 64, STEPS = 24 };
static const char *const colors[] = {"#3b6fd4", "#d4573b", "#2f9e6b", "#9b59b6",
                                     "#c79a1b", "#16a3b8", "#7f8c8d", "#e07aa5"};

typedef struct {
    FILE *f;
    f64 most_x, most_y; /* ends of the axes */
} plot;

static f64 px(const plot *p, f64 x) { return LEFT + x / p->most_x * (WIDTH - LEFT - RIGHT); }
static f64 py(const plot *p, f64 y) { return HEIGHT - BOTTOM - y / p->most_y * (HEIGHT - TOP - BOTTOM); }

/* The smallest of 1, 2, 5 times a power of ten that divides the axis into at most six. */
static f64 tick_of(f64 most) {
    f64 step = pow(10, floor(log10(most / 6)));
    while (most / step > 6) step *= most / step > 15 ? 5 : most / step > 12 ? 2.5 : 2;
    return step;
}

static void escaped(FILE *f, const char *s) {
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
            fprintf(f, "&#%d;", *s);
        else if ((unsigned char)*s >= 32)
            putc(*s, f);
    }
}

static void axes(const plot *p) {
    f64 tx = tick_of(p->most_x), ty = tick_of(p->most_y);
    for (f64 x = 0; x <= p->most_x * 1.0001; x += tx)
        fprintf(
            p->f,
            "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' class='g'/><text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
            px(p, x), TOP, px(p, x), HEIGHT - BOTTOM, px(p, x), HEIGHT - BOTTOM + 18, x);
    for (f64 y = 0; y <= p->most_y * 1.0001; y += ty)
        fprintf(
            p->f,
            "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' class='g'/><text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
            LEFT, py(p, y), WIDTH - RIGHT, py(p, y), LEFT - 8, py(p, y) + 4, y);
    fprintf(
        p->f,
        "<text x='%d' y='%d' text-anchor='middle'>interactivity: tok/s per user (1000 / median TPOT in ms)</text>\n"
        "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>tok/s per GPU (input and output)</text>\n",
        (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 20, (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw_curve(const plot *p, const curve *c, int index) {
    const char *color = colors[(size_t)index % COUNT_OF(colors)];
    const point *q = c->frontier;
    if (c->n_frontier > 1) fprintf(p->f, "<path fill='none' stroke='%s' stroke-width='2' d='", color);
    for (i64 i = 0; i + 1 < c->n_frontier; i++)
        for (int k = i > 0; k <= STEPS; k++) {
            f64 x = k == STEPS ? q[i + 1].x : q[i].x + (q[i + 1].x - q[i].x) * k / STEPS, y = 0;
            pareto_y_at(q, c->n_frontier, x, &y);
            fprintf(p->f, "%c%.1f %.1f", i || k ? 'L' : 'M', px(p, x), py(p, y));
        }
    if (c->n_frontier > 1) fprintf(p->f, "'/>\n");
    for (i64 i = 0; i < c->n; i++) {
        f64 at = run_number(json_array_get(c->runs, (size_t)c->points[i].tag), "max_concurrency");
        fprintf(p->f, "<circle cx='%.1f' cy='%.1f' r='4' fill='%s'/>", px(p, c->points[i].x), py(p, c->points[i].y),
                color);
        if (!isnan(at))
            fprintf(p->f, "<text x='%.1f' y='%.1f' class='s'>%g</text>", px(p, c->points[i].x) + 7,
                    py(p, c->points[i].y) - 6, at);
        putc('\n', p->f);
    }
    fprintf(p->f, "<rect x='%d' y='%d' width='12' height='12' fill='%s'/><text x='%d' y='%d'>", WIDTH - 300,
            TOP + 8 + 20 * index, color, WIDTH - 282, TOP + 18 + 20 * index);
    escaped(p->f, c->name);
    fprintf(p->f, "</text>\n");
}

status curves_chart(const curve *c, int n, const char *path, err *e) {
    plot p = {0};
    for (int i = 0; i < n; i++)
        for (i64 k = 0; k < c[i].n; k++) {
            p.most_x = fmax(p.most_x, c[i].points[k].x);
            p.most_y = fmax(p.most_y, c[i].points[k].y);
        }
    if (!(p.most_x > 0) || !(p.most_y > 0))
        return err_set(e, ST_INPUT, "nothing to draw: no run has both TPOT and throughput");
    f64 tx = tick_of(p.most_x), ty = tick_of(p.most_y);
    p.most_x = ceil(p.most_x * 1.05 / tx) * tx;
    p.most_y = ceil(p.most_y * 1.05 / ty) * ty;
    if (!(p.f = fopen(path, "w"))) return err_set(e, ST_IO, "%s: %s", path, strerror(errno));
    fprintf(
        p.f,
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' font-size='12' fill='#333'>\n"
        "<style>.g{stroke:#ddd}.s{font-size:10px;fill:#666}</style>\n<rect width='100%%' height='100%%' fill='#fff'/>\n"
        "<text x='%d' y='28' font-size='16'>Throughput and interactivity; numbers at points: concurrency</text>\n",
        WIDTH, HEIGHT, LEFT);
    axes(&p);
    for (int i = 0; i < n; i++) draw_curve(&p, &c[i], i);
    fprintf(p.f, "</svg>\n");
    bool bad = ferror(p.f);
    if (fclose(p.f) || bad) return err_set(e, ST_IO, "%s cannot be written", path);
    return ST_OK;
}
