/* format/weights.h: how a matrix lies in a checkpoint, described once for every backend.
 *
 * A linear layer computes y = x W^T with W stored [rows = out, cols = in], row-major, no bias. */
#ifndef FORMAT_WEIGHTS_H
#define FORMAT_WEIGHTS_H
#include "format/dtype.h"

typedef enum {
    WF_F32,          /* float32 [rows, cols] */
    WF_BF16,         /* bfloat16 [rows, cols] */
    WF_FP8_BLOCK,    /* e4m3 [rows, cols]; w = fp8 * scale[row / 128, col / 128] (K2-Instruct) */
    WF_FP8_ROW,      /* e4m3 [rows, cols]; w = fp8 * scale[row] (Quark, compressed-tensors) */
    WF_INT4_GROUP,   /* compressed-tensors pack-quantized: see below (K2-Thinking, K2.5) */
    WF_INT4_ROW,     /* Quark's INT4 with one scale a row: see below (K2.5-W4A8); routed experts only */
    WF_MXFP4,        /* OCP's MXFP4: see below (Quark's K2.5-MXFP4) */
    WF_MXFP4_PACKED, /* the same bytes as compressed-tensors calls them: read as WF_MXFP4, so that no view has it */
    WF_NVFP4,        /* NVIDIA's NVFP4: see below (ModelOpt) */
    WF_NVFP4_PACKED, /* the same bytes as compressed-tensors calls them, with a factor that divides: read as WF_NVFP4 */
    WF_INT8_ROW,     /* int8 [rows, cols]; w = q * scale[row], each rounded to float32 (compressed-tensors, Quark) */
    WF_INT4_GROUP128, /* SGLang's w4afp8: see below */
    WF_COUNT
} weight_format;

/* INT4: `data` holds cols / 2 bytes a row; byte b has column 2b in its low nibble and 2b + 1 in its high one;
 * a nibble u stands for q = u - 8. `scale` is bf16 [rows, cols / 32]; w = q * scale[row, col / 32].
 * (The file calls the same bytes int32 [rows, cols / 8].)
 *
 * INT4_ROW: `data` is int32 [rows, cols / 8]; nibbles 0..7 of a word, from the lowest, have columns 0, 2, 4, 6, 1,
 * 3, 5, 7 of eight, in two's complement. `scale` is float32 [rows]; w = q * (scale[row] * factor), the product of
 * the scales rounded to float32.
 *
 * MXFP4 (OCP Microscaling 1.0): `data` holds cols / 2 bytes a row as INT4's; a nibble is e2m1: sign, two bits of
 * exponent, one of mantissa; 0..7 stand for 0, 0.5, 1, 1.5, 2, 3, 4, 6. `scale` is e8m0 [rows, cols / 32], a byte b for
 * 2^(b - 127); 255 is NaN. w = value * 2^(scale[row, col / 32] - 127), exactly where float32 holds it.
 *
 * INT4_GROUP128: `data` holds cols / 2 bytes a row as INT4's, a nibble in two's complement; `scale` is float32
 * [rows, cols / 128]; w = q * scale[row, col / 128], rounded to float32.
 *
 * NVFP4: `data` as MXFP4's; `scale` is e4m3 [rows, cols / 16], and one float32 for the matrix multiplies its scales
 * (ModelOpt), or divides them (compressed-tensors). w = value * s, where s is scale[row, col / 16] * factor, or
 * scale[row, col / 16] / factor, rounded to float32; so is w. */
enum { INT4_GROUP = 32, FP8_BLOCK = 128, MXFP4_GROUP = 32, NVFP4_GROUP = 16, INT4_GROUP_WIDE = 128 };

typedef struct {
    weight_format format;
    i64 rows, cols;
    const void *data;  /* [rows, cols] as the format says; memory of the mapping, not owned */
    const void *scale; /* FP8: float32 [ceil(rows/128), ceil(cols/128)] or [rows]; INT4: bf16 [rows, cols/32], float32
                          [rows]; others as said above */
    f32 factor;        /* INT4_ROW, NVFP4 */
    bool divides;      /* factor does; else it multiplies */
} weight_view;

/* A format as data: all that is no kernel reads this, and it is enough for ref. A checkpoint holds a matrix NAME as the
 * tensors NAME + suffix; w = value(data) * scale[row / scale_rows, col / scale_cols] * factor. Of formats with the same
 * `data` the scale's name and type tell which one it is (detect.h). */
typedef struct {
    const char *name;   /* "int4_group" */
    const char *origin; /* who writes it */
    int bits;           /* of a value in `data`, whose rows are whole bytes */
    const char *data;   /* suffix; its type; values of a row in one element of that type */
    dtype data_type;
    int per_element;
    const char *scale; /* suffix, or NULL: no scales */
    dtype scale_type;
    i64 scale_rows, scale_cols; /* values that share a scale; scale_cols 0: a row's, and the tensor has one dimension */
    bool scales_vary;           /* in BF16, too, by writer, and a row's as [rows, 1]; they are looked at for NaN */
    const char *factor;         /* suffix of one float32 that multiplies all scales, or NULL */
    bool factor_divides;        /* it divides them */
    const char *zeros;          /* suffix of a tensor of bytes, one a row, that are 0 if it is there at all, or NULL */
    const char *shape;          /* suffix of a tensor that holds rows and columns, or NULL */
    i64 cols_multiple;
    bool experts_only;
    weight_format kept_as; /* the format whose bytes these are, under other names; 0: its own */
    /* Columns [c0, c0 + n) of a row as float32: the definition for all backends. */
    void (*cols_f32)(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out);
} weight_layout;
const weight_layout *weight_layout_of(weight_format f);
/* How many there are: 0 .. weight_formats() - 1; WF_COUNT, and those that were added. */
int weight_formats(void);
enum { WEIGHT_FORMATS_MOST = 32 };
/* One more, which runs on ref and cpu at once; *l stays the caller's. Not beside other threads, and before a model that
 * has it is opened. */
weight_format weight_layout_add(const weight_layout *l);

static inline bool weight_is_fp8(weight_format f) { return f == WF_FP8_BLOCK || f == WF_FP8_ROW; }
const char *weight_format_name(weight_format f);
u64 weight_data_bytes(const weight_view *w);
u64 weight_scale_bytes(const weight_view *w);
u64 weight_bytes(const weight_view *w); /* of data and scale together */
/* Column c of a row of INT4_ROW's data; the row's scale. */
static inline int int4_row_at(const void *data, i64 c) {
    const u8 *q = (const u8 *)data + c / 8 * 4;
    i64 nibble = c % 8 / 2 + c % 2 * 4;
    int u = q[nibble / 2] >> nibble % 2 * 4 & 15;
    return u < 8 ? u : u - 16;
}
static inline f32 int4_row_scale(const weight_view *w, i64 row) { return ((const f32 *)w->scale)[row] * w->factor; }
/* e2m1 and e8m0 as float32. */
f32 f4_e2m1_to_f32(u8 nibble);
f32 e8m0_to_f32(u8 b);
/* NVFP4: of a group's columns, as float32. */
f32 nvfp4_scale(const weight_view *w, i64 row, i64 group);
/* Row `row` as float32 [cols]: INT4 as float(q) * float(scale), unrounded; the definition for all backends.
 */
void weight_row_f32(const weight_view *w, i64 row, f32 *out);
/* The same for columns [c0, c0 + n) of the row. */
void weight_cols_f32(const weight_view *w, i64 row, i64 c0, i64 n, f32 *out);
/* Rows, or columns, that share a scale or a stored word: a matrix can be cut at their multiples. */
i64 weight_row_unit(weight_format f);
i64 weight_col_unit(weight_format f);
/* Rows [row, row + n) as a view of their own; row is a multiple of weight_row_unit(). */
weight_view weight_rows(const weight_view *w, i64 row, i64 n);
/* Columns [col, col + n) as a matrix of their own, copied to `room` of weight_cols_room(), at a multiple of 64; col is
 * a multiple of weight_col_unit(), and n too unless it ends the matrix. room NULL: a view without data, for its size.
 * */
u64 weight_cols_room(const weight_view *w, i64 n);
weight_view weight_cols(const weight_view *w, i64 col, i64 n, void *room);

#endif
