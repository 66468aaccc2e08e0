/* kernels/weight_host.h: what ref and cpu make of a weight: views of the mapping, and vectors as float32. */
#ifndef KERNELS_WEIGHT_HOST_H
#define KERNELS_WEIGHT_HOST_H
#include "kernels/ops.h"

struct op_weight {
    weight_kind kind;
    i64 n_views;
    i64 n_heads, nope, v_dim;
    f32 *vector;         /* WK_VECTOR: [cols], owned */
    bool int8;           /* WK_EXPERTS: EXPERTS_W4A8 */
    void *converted;     /* WK_EXPERTS: views that are kept in another format, owned */
    weight_view views[]; /* [n_views], copies; the data they point to is the mapping's */
};

/* What a gate does behind its choice: slots and counts. */
void gate_place(const gate_args *a);

/* The slots of ops for host backends. */
status weight_host_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e);
void weight_host_release(op_weight *w);
status weight_host_replace(const ops *o, op_weight *w, i64 first, const weight_desc *d, err *e);

#endif
