/* format/stored_matrix.h: the matrices of a checkpoint, found from its tensors alone.
 *
 * Who loads a model asks for matrices of known names and sizes (model/bind.h). Who rewrites a checkpoint takes what is
 * there: a tensor that is the data of some weight format (format/weights.h) is a matrix, together with the tensors of
 * its scales; whatever is left is passed on as it is. */
#ifndef FORMAT_STORED_MATRIX_H
#define FORMAT_STORED_MATRIX_H
#include "format/checkpoint.h"
#include "format/weights.h"

typedef struct {
    weight_format format; /* as stored: WF_MXFP4_PACKED, too */
    i64 rows, cols;
    const tensor_info *data, *scale, *factor, *shape; /* NULL: the format has none */
    const tensor_info *zeros;                         /* NULL: there are none, as may be in a format that has them */
    int base;                                         /* length of NAME in data->name */
} stored_matrix;

/* Is t the data of a matrix? *found says so. An error names the tensor that is missing or wrong: packed data without
 * scales, scales of another shape. What the zeros hold is not looked at. */
status stored_matrix_find(const checkpoint *ck, const tensor_info *t, stored_matrix *m, bool *found, err *e);

/* Memory that is used again for one matrix after the other. */
typedef struct {
    u8 *data;
    u64 cap;
} matrix_room;
void matrix_room_free(matrix_room *room);
/* Reads m from its files: *v is a view of `room`, until the next call. ST_NUMERIC: a scale that is not finite,
 * a divisor of 0. ST_UNSUPPORTED: zero points that are not 0. */
status stored_matrix_read(const checkpoint *ck, const stored_matrix *m, matrix_room *room, weight_view *v, err *e);

#endif
