/* cmd/lib/grammar_line.h: a grammar as a line of JSON names it: {"schema", "regex" or "grammar", "strict": bool}. */
#ifndef CMD_LIB_GRAMMAR_LINE_H
#define CMD_LIB_GRAMMAR_LINE_H
#include "base/json.h"
#include "text/grammar/grammar.h"

/* Exactly one of the three; without "strict" keywords that no draft of JSON Schema has are passed over. The caller ends
 * *out with grammar_free(). */
status grammar_of_line(grammar **out, const json_t *line, err *e);

#endif
