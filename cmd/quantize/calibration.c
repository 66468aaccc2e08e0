#include "cmd/quantize/calibration.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 256, OTHERS = 512 }; /* tokens at a time; tokens of all */
/* By trial on nano, with few tokens and many (docs/design/decisions.md). */
static const f64 OTHERS_WEIGHT = 0.1, DAMPING = 0.1;

static f32 *floats(i64 n) { return malloc((u64)n * sizeof(f32)); }

status calibration_open(calibration *c, const char *path, const model_config *config, i64 tokens, const checkpoint *ck,
                        const quantize_plan *plan, err *e) {
    *c = (calibration){.config = config, .ck = ck, .plan = plan, .inter = config->inter_expert};
    c->gate_up.layer = c->down.layer = -1;
    status st = expert_inputs_open(&c->in, path, config, tokens, e);
    if (st != ST_OK) return st;
    const i64 hidden = c->in.hidden;
    c->tokens = malloc((u64)(tokens + OTHERS) * sizeof *c->tokens);
    c->weights = floats(tokens + OTHERS);
    c->x = floats(ROWS * hidden), c->gate = floats(ROWS * c->inter), c->up = floats(ROWS * c->inter);
    c->gate_t = floats(hidden * c->inter), c->up_t = floats(hidden * c->inter);
    return c->tokens && c->weights && c->x && c->gate && c->up && c->gate_t && c->up_t
               ? ST_OK
               : err_nomem(e, "an expert's inputs", (u64)(2 * hidden * c->inter) * sizeof(f32));
}

void calibration_close(calibration *c) {
    expert_inputs_close(&c->in);
    gptq_close(&c->gate_up.inputs);
    gptq_close(&c->down.inputs);
    free(c->tokens);
    free(c->weights);
    free(c->x);
    free(c->gate);
    free(c->up);
    free(c->gate_t);
    free(c->up_t);
    matrix_room_free(&c->room);
    *c = (calibration){0};
}

/* The tokens of an expert, and some of all; returns how many. */
static i64 choose_tokens(calibration *c, const layer_inputs *in, i64 expert) {
    const i64 k = c->in.top_k;
    i64 n = 0;
    f64 sum = 0;
    for (i64 t = 0; t < c->in.tokens; t++)
        for (i64 s = 0; s < k; s++)
            if (in->ids[t * k + s] == expert) {
                const f32 w = in->weights[t * k + s];
                c->tokens[n] = (i32)t, c->weights[n++] = w * w;
                sum += (f64)w * (f64)w;
                break; /* once a token, whatever the file holds */
            }
    const i64 others = min_i64(OTHERS, c->in.tokens);
    const f32 each = sum > 0 ? (f32)(OTHERS_WEIGHT * sum / (f64)others) : 1;
    for (i64 i = 0; i < others; i++) c->tokens[n] = (i32)(i * c->in.tokens / others), c->weights[n++] = each;
    return n;
}

static void gather_rows(const calibration *c, const layer_inputs *in, i64 from, i64 n) {
    const i64 hidden = c->in.hidden;
    for (i64 i = 0; i < n; i++) {
        const bf16 *x = in->x + (i64)c->tokens[from + i] * hidden;
        for (i64 j = 0; j < hidden; j++) c->x[i * hidden + j] = bf16_to_f32(x[j]);
    }
}

/* ---- what down meets ---- */

enum { TILE = 128 }; /* a multiple of what columns share in any format */

/* Whether there is a value that is not finite. */
static bool transpose_tile(const calibration *c, const weight_view *v, i64 r0, i64 j0, f32 *to) {
    const i64 n = min_i64(TILE, c->in.hidden - j0);
    f32 row[TILE];
    bool bad = false;
    for (i64 r = r0; r < min_i64(r0 + TILE, c->inter); r++) {
        weight_cols_f32(v, r, j0, n, row);
        for (i64 j = 0; j < n; j++) to[(j0 + j) * c->inter + r] = row[j], bad |= !isfinite(row[j]);
    }
    return bad;
}

/* Piece `at`, [inter, hidden], as [hidden, inter]. */
static status read_transposed(calibration *c, u64 at, f32 *to, err *e) {
    const stored_matrix *m = &c->plan->pieces[at].m;
    const i64 hidden = c->in.hidden, inter = c->inter;
    weight_view v;
    if (m->rows != inter || m->cols != hidden)
        return err_set(e, ST_FORMAT, "tensor %s is [%lld, %lld], not [%lld, %lld] as config.json has it", m->data->name,
                       (long long)m->rows, (long long)m->cols, (long long)inter, (long long)hidden);
    status st = stored_matrix_read(c->ck, m, &c->room, &v, e);
    if (st != ST_OK) return st;
    bool bad = false;
#pragma omp parallel for schedule(dynamic, 1) reduction(|| : bad)
    for (i64 r0 = 0; r0 < inter; r0 += TILE)
        for (i64 j0 = 0; j0 < hidden; j0 += TILE) bad = transpose_tile(c, &v, r0, j0, to) || bad;
    return bad ? err_set(e, ST_NUMERIC, "tensor %s holds NaN or an infinity", m->data->name) : ST_OK;
}

/* y = w x for rows [from, end), w transposed; a panel of w stays in the cache for all of them. */
static void results_of(const calibration *c, const f32 *w_t, i64 from, i64 end, f32 *y) {
    enum { PANEL = 64 };
    const i64 hidden = c->in.hidden, inter = c->inter;
    memset(y + from * inter, 0, (u64)((end - from) * inter) * sizeof *y);
    for (i64 j = 0; j < hidden; j += PANEL)
        add_panel(y + from * inter, inter, end - from, c->x + from * hidden + j, hidden, w_t + j * inter, inter,
                  min_i64(PANEL, hidden - j), inter);
}

/* gate[i] = silu(gate x[i]) * up x[i] */
static void activate(const calibration *c, i64 n) {
    enum { PART = 16 };
#pragma omp parallel for schedule(dynamic, 1)
    for (i64 from = 0; from < n; from += PART) {
        const i64 end = min_i64(n, from + PART);
        results_of(c, c->gate_t, from, end, c->gate);
        results_of(c, c->up_t, from, end, c->up);
        for (i64 i = from * c->inter; i < end * c->inter; i++)
            c->gate[i] = c->gate[i] / (1 + expf(-c->gate[i])) * c->up[i];
    }
}

/* ---- the whole ---- */

static f32 larger_of(f32 most, const f32 *x, i64 n) {
    for (i64 i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

static status add_inputs(calibration *c, const plan_piece *k, expert_gptq *to, err *e) {
    const layer_inputs in = expert_inputs_of(&c->in, k->layer);
    const bool down = k->class == MC_DOWN;
    if (down && (k->given[0] == NO_PAIR || k->given[1] == NO_PAIR))
        return err_set(e, ST_FORMAT, "tensor %s: its gate_proj or up_proj is missing", k->m.data->name);
    status st = down ? read_transposed(c, k->given[0], c->gate_t, e) : ST_OK;
    if (st == ST_OK && down) st = read_transposed(c, k->given[1], c->up_t, e);
    const i64 n = choose_tokens(c, &in, k->expert);
    for (i64 from = 0; from < n && st == ST_OK; from += ROWS) {
        const i64 part = min_i64(ROWS, n - from);
        gather_rows(c, &in, from, part);
        if (down) activate(c, part);
        const f32 *x = down ? c->gate : c->x;
        gptq_add(&to->inputs, x, c->weights + from, part);
        to->most = larger_of(to->most, x, part * k->m.cols);
    }
    return st;
}

static status gather_inputs(calibration *c, const plan_piece *k, expert_gptq *x, err *e) {
    x->layer = -1, x->most = 0;
    status st = gptq_open(&x->inputs, k->m.cols, e);
    if (st == ST_OK) st = add_inputs(c, k, x, e);
    if (st == ST_OK) st = gptq_factor(&x->inputs, DAMPING, e);
    if (st != ST_OK) return err_prefix(e, "tensor %s", k->m.data->name), st;
    x->layer = k->layer, x->expert = k->expert;
    return ST_OK;
}

status calibration_of(calibration *c, const plan_piece *k, const expert_gptq **out, err *e) {
    const i64 cols = k->class == MC_DOWN ? c->inter : c->in.hidden;
    *out = NULL;
    if (!piece_meets_inputs(k, c->config)) return ST_OK;
    if (k->m.cols != cols)
        return err_set(e, ST_FORMAT, "tensor %s has %lld columns, not %lld as config.json has it", k->m.data->name,
                       (long long)k->m.cols, (long long)cols);
    expert_gptq *x = k->class == MC_DOWN ? &c->down : &c->gate_up;
    status st = x->layer == k->layer && x->expert == k->expert ? ST_OK : gather_inputs(c, k, x, e);
    if (st == ST_OK) *out = x;
    return st;
}
