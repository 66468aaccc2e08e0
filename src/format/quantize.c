#include "format/quantize.h"
#include "format/encode.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const quantizer quantizers[] = {
    {.name = "int4", .format = WF_INT4_GROUP, .encode = encode_int4, .code = code_int4},
    {.name = "w4a8",
     .format = WF_INT4_ROW,
     .factor = encode_w4a8_factor,
     .factor_dims = 1,
     .encode = encode_w4a8,
     .code = code_w4a8},
    {.name = "mxfp4", .format = WF_MXFP4, .encode = encode_mxfp4, .code = code_mxfp4},
    {.name = "mxfp4-packed", .format = WF_MXFP4_PACKED, .encode = encode_mxfp4, .code = code_mxfp4},
    {.name = "nvfp4",
     .format = WF_NVFP4,
     .factor = encode_nvfp4_factor,
     .shares_factor = true,
     .encode = encode_nvfp4,
     .code = code_nvfp4,
     .input_scale = true},
    {.name = "nvfp4-packed",
     .format = WF_NVFP4_PACKED,
     .factor = encode_nvfp4_divisor,
     .factor_dims = 1,
     .shares_factor = true,
     .encode = encode_nvfp4_divided,
     .code = code_nvfp4_divided},
    {.name = "int8", .format = WF_INT8_ROW, .scale_columns = true, .encode = encode_int8},
    {.name = "int8-quark", .format = WF_INT8_ROW, .zero_points = true, .encode = encode_int8},
    {.name = "fp8", .format = WF_FP8_BLOCK, .encode = encode_fp8_block},
    {.name = "bf16", .format = WF_BF16, .encode = encode_bf16},
};

const quantizer *quantizer_named(const char *name) {
    for (size_t i = 0; i < COUNT_OF(quantizers); i++)
        if (!strcmp(name, quantizers[i].name)) return &quantizers[i];
    return NULL;
}

status quantize_shape(const quantizer *q, i64 rows, i64 cols, weight_view *out, err *e) {
    const weight_layout *l = weight_layout_of(q->format);
    *out = (weight_view){.format = q->format, .rows = rows, .cols = cols};
    if (cols % l->cols_multiple == 0) return ST_OK;
    return err_set(e, ST_UNSUPPORTED, "%lld columns are no multiple of %lld, which %s needs", (long long)cols,
                   (long long)l->cols_multiple, q->name);
}

void quantize_sums_add(quantize_sums *s, const quantize_sums *x) {
    s->error += x->error, s->energy += x->energy;
    s->results.nearest += x->results.nearest, s->results.done += x->results.done;
    s->results.energy += x->results.energy;
}

/* One job: units of rows, dealt to threads. */
typedef struct {
    const quantizer *q;
    const gptq *inputs;
    const weight_view *from;
    weight_view *to;
    i64 unit, units; /* rows of a unit; how many units */
    u64 unit_data, unit_scale;
    f32 *rooms; /* a thread's: unit rows, one more, and gptq_room() */
    u64 room;
    f32 *counts;         /* [cols] */
    quantize_sums *sums; /* [units] */
    i64 *bad;            /* [units] the first element that is not finite, or -1 */
} quantize_job;

static f32 *read_unit(const quantize_job *j, i64 u, i64 *n) {
    f32 *w = j->rooms + (u64)omp_get_thread_num() * j->room;
    const i64 cols = j->from->cols, first = u * j->unit;
    *n = min_i64(j->unit, j->from->rows - first);
    j->bad[u] = -1;
    for (i64 r = 0; r < *n; r++) weight_row_f32(j->from, first + r, w + r * cols);
    u32 bits = 0; /* is there any? A loop without a way out is one of vectors */
    for (i64 i = 0; i < *n * cols; i++) bits |= (f32_bits(w[i]) & 0x7f800000u) == 0x7f800000u;
    for (i64 i = 0; bits && i < *n * cols && j->bad[u] < 0; i++)
        if (!isfinite(w[i])) j->bad[u] = first * cols + i;
    return w;
}

/* What was written, as a reader takes it, against what it should be. */
static quantize_sums unit_sums(const quantize_job *j, i64 u, i64 n, const f32 *w) {
    const i64 cols = j->from->cols;
    f32 *got = j->rooms + (u64)omp_get_thread_num() * j->room + j->unit * cols;
    quantize_sums s = {.error = 0};
    for (i64 r = 0; r < n; r++) {
        weight_row_f32(j->to, u * j->unit + r, got);
        for (i64 c = 0; c < cols; c++) {
            f64 want = w[r * cols + c], off = want - (f64)got[c];
            s.error += off * off, s.energy += want * want;
        }
    }
    return s;
}

static void encode_unit(const quantize_job *j, i64 u) {
    i64 n;
    const f32 *w = read_unit(j, u, &n);
    if (j->bad[u] >= 0) return;
    const i64 cols = j->from->cols;
    u8 *data = (u8 *)(uintptr_t)j->to->data + (u64)u * j->unit_data,
       *scale = (u8 *)(uintptr_t)j->to->scale + (u64)u * j->unit_scale;
    gptq_sums results = {0, 0, 0};
    j->q->encode(w, n, cols, j->counts, j->to->factor, data, scale);
    if (j->inputs)
        gptq_round(j->inputs, j->q->code, w, n, data, j->unit_data / GPTQ_ROWS, scale, j->unit_scale / GPTQ_ROWS,
                   j->to->factor, j->rooms + (u64)omp_get_thread_num() * j->room + (j->unit + 1) * cols,
                   u % GPTQ_SAMPLE ? NULL : &results);
    j->sums[u] = unit_sums(j, u, n, w);
    j->sums[u].results = results;
}

static f32 largest_of_unit(const quantize_job *j, i64 u) {
    i64 n;
    const f32 *w = read_unit(j, u, &n);
    f32 most = 0;
    for (i64 i = 0; j->bad[u] < 0 && i < n * j->from->cols; i++) most = fmaxf(most, fabsf(w[i]));
    return most;
}

static status units_finite(const quantize_job *j, err *e) {
    for (i64 u = 0; u < j->units; u++)
        if (j->bad[u] >= 0)
            return err_set(e, ST_NUMERIC, "holds NaN or an infinity at row %lld, column %lld",
                           (long long)(j->bad[u] / j->from->cols), (long long)(j->bad[u] % j->from->cols));
    return ST_OK;
}

static status largest_of_units(quantize_job *j, f32 *out, err *e) {
    f32 most = 0;
#pragma omp parallel for schedule(dynamic, 8) reduction(max : most)
    for (i64 u = 0; u < j->units; u++) most = fmaxf(most, largest_of_unit(j, u));
    *out = most;
    return units_finite(j, e);
}

static status quantize_units(quantize_job *j, quantize_sums *sums, err *e) {
    const int together =
        j->inputs ? 1 : 8; /* units that a thread takes: with inputs one is a thousand times the work */
#pragma omp parallel for schedule(dynamic, together)
    for (i64 u = 0; u < j->units; u++) encode_unit(j, u);
    *sums = (quantize_sums){.error = 0};
    for (i64 u = 0; u < j->units; u++) quantize_sums_add(sums, &j->sums[u]);
    return units_finite(j, e);
}

/* What columns count for when a scale is chosen. A group's few do by their inputs; a row's scale would be made for the
 * heaviest of its columns alone, and cut all others: nano's predictions became worse by it
 * (docs/design/decisions.md). */
static void choose_counts(const quantize_job *j) {
    for (i64 c = 0; c < j->from->cols; c++) j->counts[c] = 1;
    if (j->inputs && weight_layout_of(j->q->format)->scale_cols) gptq_counts(j->inputs, j->counts);
}

/* Units of so many rows, and memory for them. */
static status job_make(quantize_job *j, i64 unit, err *e) {
    j->unit = unit, j->units = ceil_div(j->from->rows, unit);
    j->room = (u64)(unit + 1) * (u64)j->from->cols + (j->inputs ? gptq_room(j->from->cols) : 0);
    j->rooms = malloc((u64)omp_get_max_threads() * j->room * sizeof *j->rooms);
    j->counts = malloc((u64)j->from->cols * sizeof *j->counts);
    if (j->counts) choose_counts(j);
    j->sums = calloc((u64)j->units, sizeof *j->sums);
    j->bad = calloc((u64)j->units, sizeof *j->bad);
    return j->rooms && j->counts && j->sums && j->bad ? ST_OK
                                                      : err_nomem(e, "rows on their way", j->room * sizeof *j->rooms);
}

static void job_free(quantize_job *j) {
    free(j->rooms);
    free(j->counts);
    free(j->sums);
    free(j->bad);
}

status quantize_most(const weight_view *w, f32 *most, err *e) {
    quantize_job j = {.from = w};
    status st = job_make(&j, 1, e);
    if (st == ST_OK) st = largest_of_units(&j, most, e);
    job_free(&j);
    return st;
}

status quantize_matrix(const quantizer *q, const weight_view *w, f32 most, const gptq *inputs, void *data, void *scale,
                       weight_view *out, quantize_sums *sums, err *e) {
    status st = quantize_shape(q, w->rows, w->cols, out, e);
    if (st != ST_OK) return st;
    const weight_layout *l = weight_layout_of(q->format);
    quantize_job j = {.q = q, .inputs = q->code ? inputs : NULL, .from = w, .to = out};
    /* formats with codes of their own have no scales for several rows */
    weight_view unit = {
        .format = q->format, .rows = j.inputs ? GPTQ_ROWS : weight_row_unit(q->format), .cols = w->cols};
    j.unit_data = weight_data_bytes(&unit), j.unit_scale = weight_scale_bytes(&unit);
    out->format = l->kept_as ? l->kept_as : q->format;
    out->data = data, out->scale = scale;
    out->factor = q->factor ? q->factor(most) : 0, out->divides = l->factor_divides;
    st = job_make(&j, unit.rows, e);
    if (st == ST_OK) st = quantize_units(&j, sums, e);
    job_free(&j);
    return st;
}
