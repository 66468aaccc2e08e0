#include "format/gptq.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns at a time: of a factor's panel, of what is rounded before the rest hears of its errors. TILE: columns of a
 * panel that stay in the cache. BLOCK: rows of H at a time. */
enum { PANEL = 64, TILE = 1024, BLOCK = 8 };
/* Squares below it count as none: float32 has few bits for them. */
static const f64 LEAST = 1e-30;

static void add_to_four(f32 *restrict y, i64 y_stride, const f32 *restrict c, i64 c_stride, const f32 *restrict p,
                        i64 p_stride, i64 n) {
    const f32 *p1 = p + p_stride, *p2 = p1 + p_stride, *p3 = p2 + p_stride;
    const f32 *c1 = c + c_stride, *c2 = c1 + c_stride, *c3 = c2 + c_stride;
    f32 *restrict y1 = y + y_stride, *restrict y2 = y1 + y_stride, *restrict y3 = y2 + y_stride;
    for (i64 j = 0; j < n; j++) {
        y[j] = y[j] + c[0] * p[j] + c[1] * p1[j] + c[2] * p2[j] + c[3] * p3[j];
        y1[j] = y1[j] + c1[0] * p[j] + c1[1] * p1[j] + c1[2] * p2[j] + c1[3] * p3[j];
        y2[j] = y2[j] + c2[0] * p[j] + c2[1] * p1[j] + c2[2] * p2[j] + c2[3] * p3[j];
        y3[j] = y3[j] + c3[0] * p[j] + c3[1] * p1[j] + c3[2] * p2[j] + c3[3] * p3[j];
    }
}

static void add_to_one(f32 *restrict y, const f32 *restrict c, const f32 *restrict p, i64 p_stride, i64 count, i64 n) {
    for (i64 k = 0; k < count; k++)
        for (i64 j = 0; j < n; j++) y[j] += c[k] * p[k * p_stride + j];
}

void add_panel(f32 *restrict y, i64 y_stride, i64 rows, const f32 *restrict c, i64 c_stride, const f32 *restrict p,
               i64 p_stride, i64 count, i64 n) {
    const i64 fours = rows / 4 * 4, whole = count / 4 * 4;
    for (i64 r = 0; r < fours; r += 4)
        for (i64 k = 0; k < whole; k += 4)
            add_to_four(y + r * y_stride, y_stride, c + r * c_stride + k, c_stride, p + k * p_stride, p_stride, n);
    for (i64 r = 0; r < rows; r++) {
        const i64 done = r < fours ? whole : 0;
        add_to_one(y + r * y_stride, c + r * c_stride + done, p + done * p_stride, p_stride, count - done, n);
    }
}

status gptq_open(gptq *g, i64 cols, err *e) {
    const u64 bytes = (u64)cols * (u64)cols * sizeof *g->h;
    if (!g->h) {
        g->cols = cols;
        g->h = malloc(bytes);
        g->diag = malloc((u64)cols * sizeof *g->diag);
        g->own = malloc((u64)cols * sizeof *g->own);
        g->order = malloc((u64)cols * sizeof *g->order);
        if (!g->h || !g->diag || !g->own || !g->order)
            return gptq_close(g), err_nomem(e, "the inputs' covariances", bytes);
    }
    g->factored = false;
    memset(g->h, 0, bytes);
    return ST_OK;
}

void gptq_close(gptq *g) {
    free(g->h);
    free(g->diag);
    free(g->own);
    free(g->order);
    *g = (gptq){0};
}

/* ---- H ---- */

void gptq_add(gptq *g, const f32 *x, const f32 *a, i64 n) {
    const i64 cols = g->cols;
    for (i64 t = 0; t < n; t += PANEL) {
        const i64 count = min_i64(PANEL, n - t);
        const f32 *p = x + t * cols;
#pragma omp parallel for schedule(dynamic, 2)
        for (i64 i = 0; i < cols; i += BLOCK) { /* what falls below the diagonal nobody reads */
            f32 c[BLOCK * PANEL];
            const i64 rows = min_i64(BLOCK, cols - i);
            for (i64 r = 0; r < rows; r++)
                for (i64 k = 0; k < count; k++) c[r * PANEL + k] = a[t + k] * p[k * cols + i + r];
            add_panel(g->h + i * cols + i, cols, rows, c, PANEL, p + i, cols, count, cols - i);
        }
    }
}

/* ---- its factor ---- */

typedef struct {
    f32 most;
    i32 column;
} ranked;

static int by_most(const void *pa, const void *pb) {
    const ranked *a = pa, *b = pb;
    if (a->most != b->most) return a->most > b->most ? -1 : 1;
    return a->column < b->column ? -1 : a->column > b->column;
}

/* The diagonal, damped, into diag; the columns by it. */
static status choose_order(gptq *g, f64 damping, err *e) {
    const i64 n = g->cols;
    ranked *all = malloc((u64)n * sizeof *all);
    if (!all) return err_nomem(e, "an order of columns", (u64)n * sizeof *all);
    f64 mean = 0;
    for (i64 i = 0; i < n; i++) mean += (f64)g->h[i * n + i] / (f64)n;
    if (!isfinite(mean)) return free(all), err_set(e, ST_NUMERIC, "the inputs' covariances are too large for float32");
    const bool none = mean < LEAST;
    const f32 more = none ? 1 : (f32)(mean * damping);
    if (none) memset(g->h, 0, (u64)n * (u64)n * sizeof *g->h);
    for (i64 i = 0; i < n; i++) all[i] = (ranked){g->h[i * n + i] + more, (i32)i};
    qsort(all, (size_t)n, sizeof *all, by_most);
    for (i64 k = 0; k < n; k++) g->order[k] = all[k].column, g->diag[k] = g->own[k] = all[k].most;
    free(all);
    return ST_OK;
}

/* The half above the diagonal with rows and columns in the order of rounding. */
static status put_in_order(gptq *g, err *e) {
    const i64 n = g->cols;
    f32 *to = malloc((u64)n * (u64)n * sizeof *to);
    if (!to) return err_nomem(e, "the inputs' covariances", (u64)n * (u64)n * sizeof *to);
#pragma omp parallel for schedule(dynamic, 8)
    for (i64 k = 0; k < n; k++)
        for (i64 l = k + 1; l < n; l++) {
            const i64 i = g->order[k], j = g->order[l];
            to[k * n + l] = i < j ? g->h[i * n + j] : g->h[j * n + i];
        }
    free(g->h);
    g->h = to;
    return ST_OK;
}

/* Columns [from, end) of A and D, from the last on. Rows above `from` are left to finish_row(). */
static bool factor_block(gptq *g, i64 from, i64 end) {
    const i64 n = g->cols;
    f32 *h = g->h;
    for (i64 k = end - 1; k >= from; k--) {
        if (!(g->diag[k] > 0)) return false;
        for (i64 i = from; i < k; i++) {
            const f32 a = h[i * n + k] / g->diag[k];
            g->diag[i] -= a * h[i * n + k];
            for (i64 j = i + 1; j < k; j++) h[i * n + j] -= a * h[j * n + k];
        }
        for (i64 i = from; i < k; i++) h[i * n + k] /= g->diag[k];
    }
    return true;
}

/* Row i above a block that is factored: its columns of the block. */
static void finish_row(const gptq *g, i64 i, i64 from, i64 end) {
    f32 *row = g->h + i * g->cols;
    for (i64 k = end - 1; k >= from; k--) {
        row[k] /= g->diag[k];
        for (i64 j = from; j < k; j++) row[j] -= row[k] * g->diag[k] * g->h[j * g->cols + k];
    }
}

/* What columns [from, end) say of the ones before: H -= A D A^T; panel: [PANEL, cols]. */
static void spread_block(gptq *g, i64 from, i64 end, f32 *panel) {
    const i64 n = g->cols, wide = end - from;
#pragma omp parallel for schedule(static)
    for (i64 i = 0; i < from; i++) {
        finish_row(g, i, from, end);
        for (i64 k = 0; k < wide; k++) panel[k * n + i] = g->h[i * n + from + k];
    }
#pragma omp parallel for schedule(dynamic, 2)
    for (i64 i = 0; i < from; i += BLOCK) {
        f32 c[BLOCK * PANEL];
        const i64 rows = min_i64(BLOCK, from - i);
        for (i64 r = 0; r < rows; r++)
            for (i64 k = 0; k < wide; k++) {
                const f32 x = panel[k * n + i + r];
                c[r * PANEL + k] = -x * g->diag[from + k];
                g->diag[i + r] += c[r * PANEL + k] * x;
            }
        add_panel(g->h + i * n + i + 1, n, rows, c, PANEL, panel + i + 1, n, wide, from - i - 1);
    }
}

status gptq_factor(gptq *g, f64 damping, err *e) {
    status st = choose_order(g, damping, e);
    if (st == ST_OK) st = put_in_order(g, e);
    if (st != ST_OK) return st;
    f32 *panel = malloc((u64)PANEL * (u64)g->cols * sizeof *panel);
    if (!panel) return err_nomem(e, "a panel of the inputs' covariances", (u64)PANEL * (u64)g->cols * sizeof *panel);
    for (i64 end = g->cols; st == ST_OK && end > 0; end -= PANEL) {
        const i64 from = max_i64(0, end - PANEL);
        if (factor_block(g, from, end))
            spread_block(g, from, end, panel);
        else
            st = err_set(e, ST_NUMERIC, "the inputs' covariances have no factor: more damping is needed than %g",
                         damping);
    }
    free(panel);
    g->factored = st == ST_OK;
    return st;
}

void gptq_counts(const gptq *g, f32 *counts) {
    f64 mean = 0;
    for (i64 k = 0; k < g->cols; k++) mean += (f64)g->own[k] / (f64)g->cols;
    for (i64 k = 0; k < g->cols; k++) counts[g->order[k]] = (f32)((f64)g->own[k] / mean);
}

/* ---- rounding ---- */

/* Targets and errors in the order of rounding. */
u64 gptq_room(i64 cols) { return 2 * (u64)GPTQ_ROWS * (u64)cols; }

/* target[r, from..) += sum over k in [begin, end) of error[r, k] A[k, from..). */
static void tell_rest(const gptq *g, f32 *target, const f32 *error, i64 n, i64 begin, i64 end, i64 from) {
    const i64 cols = g->cols;
    for (i64 c = from; c < cols; c += TILE)
        add_panel(target + c, cols, n, error + begin, cols, g->h + begin * cols + c, cols, end - begin,
                  min_i64(TILE, cols - c));
}

/* Sum over columns of D (x (A + 1))^2: that of x H x^T. `sum` is room. */
static f64 weighted(const gptq *g, f32 *x, f32 *sum, i64 n) {
    const i64 cols = g->cols;
    f64 all = 0;
    memcpy(sum, x, (u64)(n * cols) * sizeof *sum);
    for (i64 b = 0; b < cols; b += PANEL) {
        const i64 end = min_i64(b + PANEL, cols);
        for (i64 r = 0; r < n; r++)
            for (i64 k = b; k < end; k++)
                add_to_one(sum + r * cols + k + 1, x + r * cols + k, g->h + k * cols + k + 1, cols, 1, end - k - 1);
        tell_rest(g, sum, x, n, b, end, end);
    }
    for (i64 r = 0; r < n; r++)
        for (i64 k = 0; k < cols; k++) all += (f64)g->diag[k] * (f64)sum[r * cols + k] * (f64)sum[r * cols + k];
    return all;
}

typedef struct {
    const gptq *g;
    gptq_code code;
    const f32 *w;
    i64 n;
    u8 *data;
    const u8 *scale;
    u64 data_bytes, scale_bytes;
    f32 factor;
} rows_to_round;

static f32 code_at(const rows_to_round *a, i64 r, i64 column, f32 w) {
    return a->code(a->data + (u64)r * a->data_bytes, a->scale + (u64)r * a->scale_bytes, a->factor, column, w);
}

/* What rounding to nearest leaves, and what there is; target and error are free. */
static void add_before(const rows_to_round *a, f32 *target, f32 *error, gptq_sums *sums) {
    const i64 cols = a->g->cols;
    for (i64 r = 0; r < a->n; r++)
        for (i64 k = 0; k < cols; k++) {
            const i64 column = a->g->order[k];
            error[r * cols + k] = a->w[r * cols + column] - code_at(a, r, column, a->w[r * cols + column]);
        }
    sums->nearest += weighted(a->g, error, target, a->n);
    for (i64 r = 0; r < a->n; r++)
        for (i64 k = 0; k < cols; k++) error[r * cols + k] = a->w[r * cols + a->g->order[k]];
    sums->energy += weighted(a->g, error, target, a->n);
}

/* Columns [b, end) of row r; returns what is left there. */
static f64 round_columns(const rows_to_round *a, i64 r, i64 b, i64 end, f32 *target, f32 *error) {
    const gptq *g = a->g;
    const i64 cols = g->cols;
    f64 left = 0;
    for (i64 k = b; k < end; k++) {
        const i64 column = g->order[k];
        const f32 got = code_at(a, r, column, target[k]), off = target[k] - got;
        left += (f64)g->diag[k] * (f64)off * (f64)off;
        error[k] = a->w[r * cols + column] - got;
        add_to_one(target + k + 1, error + k, g->h + k * cols + k + 1, cols, 1, end - k - 1);
    }
    return left;
}

void gptq_round(const gptq *g, gptq_code code, const f32 *w, i64 n, void *data, u64 data_bytes, const void *scale,
                u64 scale_bytes, f32 factor, f32 *room, gptq_sums *sums) {
    const rows_to_round a = {g, code, w, n, data, scale, data_bytes, scale_bytes, factor};
    const i64 cols = g->cols;
    f32 *target = room, *error = room + GPTQ_ROWS * cols;
    f64 left = 0;
    if (sums) add_before(&a, target, error, sums);
    for (i64 r = 0; r < n; r++)
        for (i64 k = 0; k < cols; k++) target[r * cols + k] = w[r * cols + g->order[k]];
    for (i64 b = 0; b < cols; b += PANEL) {
        const i64 end = min_i64(b + PANEL, cols);
        for (i64 r = 0; r < n; r++) left += round_columns(&a, r, b, end, target + r * cols, error + r * cols);
        tell_rest(g, target, error, n, b, end, end);
    }
    if (sums) sums->done += left;
}
