/* base/printable.h: text of unknown origin for a terminal or a log. */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H
#include "base/types.h"

/* Replaces what could forge lines or steer a terminal, each by one '?', in place: control characters (C0, DEL and
 * C1), marks of writing direction (bidi), bytes that are no UTF-8. Newlines and tabs stay if `lines`. The text ends
 * in NUL and never grows. */
void make_printable(char *text, bool lines);

#endif
