/* cmd/inspect_formats.h: the table of weight formats. */
#ifndef CMD_INSPECT_FORMATS_H
#define CMD_INSPECT_FORMATS_H
#include <stdbool.h>

/* Prints it on stdout, as text or as a JSON array. */
void inspect_formats(bool json);

#endif
