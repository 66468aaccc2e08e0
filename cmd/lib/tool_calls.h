/* cmd/lib/tool_calls.h: tools of a chat from a file, the model's calls in OpenAI's form, and a program that carries
 * them out. */
#ifndef CMD_LIB_TOOL_CALLS_H
#define CMD_LIB_TOOL_CALLS_H
#include "base/json.h"

/* The tools of a file: an array of OpenAI's {"type": "function", "function": {...}}, or an object with that array as
 * "tools". *out is the caller's. */
status tools_read(json_t **out, const char *path, err *e);

/* A MOON_TOOL_CALL event ({"id", "name", "arguments"}) as {"id", "type", "function": {"name", "arguments"}}. The
 * caller's; NULL when out of memory. */
json_t *tool_call_of_event(const char *text, size_t n);

/* Runs `program NAME` with the call's arguments (as the model wrote them) on its standard input; no shell is between.
 * *result gets what it printed, white space at the end dropped; if it fails (exit status other than 0, or a signal),
 * "error: " and what it printed or how it ended, which is what a model should get to read. An error here: the program
 * could not be started, or printed more than a MiB. */
status tool_run(const char *program, const json_t *call, buf *result, err *e);

/* Adds a tool result to an array of messages. `name` and `id` come from the call. */
status tool_add_result(json_t *messages, const json_t *call, const buf *result, err *e);

bool tool_declared(const json_t *tools, const char *name);
const char *tool_call_name(const json_t *call);

#endif
