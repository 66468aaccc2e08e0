/* text/ts_tools.h: the tool list as the TypeScript declaration that K2.5 was trained on.
 *
 *   # Tools
 *
 *   ## functions
 *   namespace functions {
 *   // Weather of a city.
 *   type get_weather = (_: {
 *     // Name of the city
 *     city: string,
 *     unit?: "c" | "f"
 *   }) => any;
 *   }
 *
 * Behaves as `tool_declaration_ts.py` of the K2.5 checkpoint does, corner cases included: order of fields,
 * comments, $ref and $defs, Python's spelling of values, and which schemas it gives up on. */
#ifndef TEXT_TS_TOOLS_H
#define TEXT_TS_TOOLS_H
#include "base/json.h"

/* Appends the declaration of `tools` (array of {"type", "function"}) to *out; keys must already be in sorted
 * order at every depth (py_sorted), as Kimi's tokenizer hands them over. Nothing is appended when no entry is
 * a function. ST_UNSUPPORTED, *out unchanged: a schema has no TypeScript form, *e says which and why; the
 * template then prints the tools as JSON. ST_NOMEM. Where *out has a max, the work ends there: ST_LIMIT, and *out is
 * full. */
status ts_tools_encode(buf *out, const json_t *tools, err *e);

#endif
