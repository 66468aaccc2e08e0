/* cmd/check/check_gemm_shapes.h: matrix products in Kimi's own shapes. */
#ifndef CMD_CHECK_CHECK_GEMM_SHAPES_H
#define CMD_CHECK_CHECK_GEMM_SHAPES_H
#include "cmd/check/check.h"
#include "cmd/lib/gemm_problem.h"

/* All of gemm_kimi of a kind, on a real GPU; nothing elsewhere. */
void check_gemm_shapes(check *c, gemm_kind kind);

#endif
