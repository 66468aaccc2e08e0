/* cmd/check_kimi.h: matrix products in Kimi's own shapes. */
#ifndef CMD_CHECK_KIMI_H
#define CMD_CHECK_KIMI_H
#include "check.h"
#include "gemm_case.h"

/* All of gemm_kimi of a kind, on a real GPU; nothing elsewhere. */
void check_kimi(check *c, gemm_kind kind);

#endif
