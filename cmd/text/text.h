/* cmd/text/text.h: what the verbs of `moonlet text` share. */
#ifndef CMD_TEXT_TEXT_H
#define CMD_TEXT_TEXT_H
#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/lib/jsonl.h"
#include "text/tokenizer.h"

/* The verbs; argv[0] is the verb. */
int cmd_text_tokens(int argc, char **argv); /* encode, decode */
int cmd_text_render(int argc, char **argv);
int cmd_text_parse(int argc, char **argv);
int cmd_text_match(int argc, char **argv);

/* Opens the tokenizer of folder *dir; NULL there becomes the nano model's folder. */
status text_open(const char **dir, tokenizer **t, err *e);

/* Opens the tokenizer of folder `dir` (NULL: the nano model), answers JSON lines from stdin with `answer`,
 * whose `ud` is the tokenizer, and returns the exit status. `name` is the command in messages. */
int text_run(const char *name, const char *dir, jsonl_fn answer);

/* An error that names a key of *line that is not in `known` (NULL-terminated): nothing is ignored. */
status text_known_keys(const json_t *line, const char *const *known, err *e);

status text_input_ids(const json_t *line, ids_buf *ids, err *e); /* "ids" of the line */
void text_write_ids(buf *out, const ids_buf *ids);               /* as a JSON array */

#endif
