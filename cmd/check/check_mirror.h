/* cmd/check/check_mirror.h: the checks of ops on a GPU, whose memory is its own. */
#ifndef CMD_CHECK_CHECK_MIRROR_H
#define CMD_CHECK_CHECK_MIRROR_H
#include "cmd/check/check.h"
#include "device/device.h"

/* *out does what `real` does on `dev`, with pointers into c's blocks. One at a time; what fails ends the program. */
void check_mirror(ops *out, const ops *real, device *dev, check *c);
/* From here on its calls run by the tables of measured choices that come along, or again as built in. */
void check_tuned(bool on);

#endif
