/* cmd/check/check_int64.h: operations on tensors of more than 2^31 elements. */
#ifndef CMD_CHECK_CHECK_INT64_H
#define CMD_CHECK_CHECK_INT64_H
#include "device/device.h"
#include "kernels/ops.h"

/* A line a case on stdout. Takes 14 GB of the device's memory and 5 GB of the host's. */
status check_large(const ops *o, device *dev, int *passed, int *failed, err *e);

#endif
