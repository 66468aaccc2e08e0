/* cmd/lib/picture_blocks.h: a picture in a terminal, as coarse blocks of colour. */
#ifndef CMD_LIB_PICTURE_BLOCKS_H
#define CMD_LIB_PICTURE_BLOCKS_H
#include "base/err.h"
#include <stdio.h>

/* Draws the picture in `file` [n] with at most `columns` columns and columns / 2 lines: half blocks in 24-bit colours
 * (ECMA-48, SGR 38;2 and 48;2). */
status picture_blocks(FILE *to, const void *file, u64 n, i64 columns, err *e);

#endif
