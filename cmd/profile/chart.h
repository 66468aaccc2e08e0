/* cmd/profile/chart.h: what the pictures of a step have in common: time from left to right, a colour for each kind of
 * launch. */
#ifndef CMD_PROFILE_CHART_H
#define CMD_PROFILE_CHART_H
#include "base/buf.h"
#include "cmd/profile/timeline.h"

enum { CHART_WIDTH = 1400, CHART_LEFT = 96, CHART_PLOT = CHART_WIDTH - CHART_LEFT - 24 };

typedef struct {
    buf *b;
    const timeline *t;
    const timeline_kind *kinds;
    int n_kinds;
    f64 from, to; /* us: what the plot's width shows */
} chart_band;

f64 chart_x(const chart_band *d, f64 us);
/* The costliest kinds have colours of their own, the rest is grey. */
int chart_kind(const chart_band *d, const timeline_launch *l);
const char *chart_color(int kind);
/* Of text that may hold anything, `most` characters. more: attributes, with a space in front. */
void chart_escaped(buf *b, const char *s, size_t most);
void chart_text(buf *b, f64 x, f64 y, const char *more, const char *text, size_t most);
/* Lines every so many us, with their numbers above. */
void chart_grid(const chart_band *d, f64 top, f64 bottom);

#endif
