/* format/quantize.h: matrices written in a weight format, from whatever format they are in.
 *
 * A row of a table and one encode function a target; which tensors it makes and what shares a scale is said by
 * format/weights.h. Everything is computed unit by unit of rows (the rows that share a scale), so that the bytes do not
 * depend on the number of threads. Rounding is to nearest, ties to even, of w / scale in float32, where scale is all
 * that a reader multiplies by.
 *
 * The scale of a group is searched for: of a few candidates the one with the smallest sum of squared differences, the
 * first of equals.
 *   int4   32 columns. bf16(most / d), where most is the largest |w|: d is first 8, 7, ... 1, then 7.25 to 10.5. A
 *          group that was INT4 before has its own scale among the first eight, and keeps its values exactly.
 *   w4a8   a row. float32 most / d with d = 7 * 1.0625^t. The matrix's factor is its largest |w| / 448, as Quark has
 *          it; the difference is that to the source's values, not to values rounded to FP8 in between.
 *   mxfp4  32 columns. 2^k, the one that puts most into [4, 8), and its neighbours.
 *   nvfp4  16 columns, in e4m3. The matrix's factor is its largest |w| / (6 * 448), or its inverse, which divides;
 *          a group's scale is the e4m3 nearest to most / 6, one of the two below it or of the six above it: most is
 *          6 then, or 4, which has finer steps beside it.
 *   int8   a row. float32 most / d, where d is 127, 127.5, 128, and more up to 140. A row that was INT8 before, with a
 *          scale of bf16 and -127, 127 or -128 in it, keeps its values exactly.
 *   fp8    128 x 128. most / 448, as DeepSeek and Moonshot have it, without a search: a floating-point grid gains
 *          nothing by one.
 *   bf16   no scale.
 * With inputs (quantize_matrix()) the squared differences of int4, mxfp4 and nvfp4 count by what columns meet.
 * Where most is below QUANTIZE_LEAST all of a group are zeros (of nvfp4: of a matrix); the scale of zeros is 1 (2^0).
 */
#ifndef FORMAT_QUANTIZE_H
#define FORMAT_QUANTIZE_H
#include "base/err.h"
#include "format/gptq.h"
#include "format/weights.h"

#define QUANTIZE_LEAST 0x1p-100f /* mxfp4 has the exponents for smaller ones */

typedef struct {
    const char *name;     /* "int4" */
    weight_format format; /* whose tensors are written */
    /* The matrix's factor from the largest |w|; NULL where the format has none. */
    f32 (*factor)(f32 most);
    int factor_dims;    /* of its tensor: 1, [1]; 0, a scalar */
    bool shares_factor; /* matrices that an engine makes one of (gate and up) should have the same */
    bool scale_columns; /* scales of a row are [rows, 1]; else [rows] */
    /* w[n, cols], finite, n at most the rows that share a scale (any number where rows have their own), to data and
     * scale where these rows' begin. counts[cols]: of the squared differences by which scales are chosen. */
    void (*encode)(const f32 *w, i64 n, i64 cols, const f32 *counts, f32 factor, void *data, void *scale);
    gptq_code code;   /* NULL: eight bits and more leave nothing to make up for */
    bool zero_points; /* its readers want the format's zero points, which are 0 */
    bool input_scale; /* its readers want a scale for inputs: NAME.input_scale, where inputs are known */
} quantizer;

/* "int4", "w4a8", "mxfp4", "mxfp4-packed" (the same bytes under compressed-tensors' names), "nvfp4" (ModelOpt's),
 * "nvfp4-packed" (compressed-tensors'), "int8" (compressed-tensors'), "int8-quark" (the same bytes), "fp8", "bf16"; NULL
 * for any other. */
const quantizer *quantizer_named(const char *name);

/* Sums over a matrix, in the order of its rows. */
typedef struct {
    f64 error, energy; /* of (w - written)^2, of w^2 */
    gptq_sums results; /* with inputs: of the matrix's results on these; of every GPTQ_SAMPLE-th block of rows */
} quantize_sums;
enum { GPTQ_SAMPLE = 4 };
void quantize_sums_add(quantize_sums *s, const quantize_sums *x);

/* A view of [rows, cols] in q's format, for its sizes; ST_UNSUPPORTED: its columns do not divide into q's groups. */
status quantize_shape(const quantizer *q, i64 rows, i64 cols, weight_view *out, err *e);
/* The largest |w|. ST_NUMERIC: w holds NaN or an infinity. */
status quantize_most(const weight_view *w, f32 *most, err *e);
/* Writes w to `data` and `scale`, of weight_data_bytes() and weight_scale_bytes() of that view. *out is the view of
 * what was written. most: where q has a factor, quantize_most() of w, or of all matrices that share it. inputs: what
 * the matrix meets, factored, so that errors make up for each other where q has codes for that, and columns of a group
 * count by what they meet when its scale is chosen; NULL: every value to nearest. ST_NUMERIC: as above. */
status quantize_matrix(const quantizer *q, const weight_view *w, f32 most, const gptq *inputs, void *data, void *scale,
                       weight_view *out, quantize_sums *sums, err *e);

#endif
