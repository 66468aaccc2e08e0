/* format/detect.h: in which format a matrix lies in a checkpoint, told by the names and types of its tensors alone. */
#ifndef FORMAT_DETECT_H
#define FORMAT_DETECT_H
#include "format/checkpoint.h"
#include "format/weights.h"

/* The format of the matrix `name`: the one whose tensors are all there; several writers use the same names, and then
 * the scale's type, and that a factor is there, tell. Where none has all, the one that the configuration speaks of,
 * `likely`, if its data are there in whatever type, or the one with most of them: who reads the matrix so finds what
 * is wrong with it. false: there are no data that any format would have. */
bool weight_detect(const checkpoint *ck, const char *name, weight_format likely, weight_format *out);
/* The format of which t, a tensor of ck, is a part; false: of none. */
bool weight_detect_part(const checkpoint *ck, const tensor_info *t, weight_format *out);

#endif
