/* cmd/eval/eval_items.h: an evaluation's questions (JSON lines) and what counts as right. */
#ifndef CMD_EVAL_EVAL_ITEMS_H
#define CMD_EVAL_EVAL_ITEMS_H
#include "base/json.h"

typedef struct {
    const char *path; /* the caller's */
    json_t **items;   /* [n] */
    i64 *lines;       /* [n]: line numbers, from 1 */
    i64 n;
} item_file;

/* Says what is wrong with an item, without naming the place. */
typedef status (*item_check)(void *ud, const json_t *item, err *e);

/* Reads and checks every line (blank ones are skipped) before anything is asked: an error names file and line. A
 * file without items is an error. Keeps at most `limit` items (0: all): the first ones, or, with `spread`, evenly
 * from the whole file. End with items_free() whatever was returned. */
status items_read(item_file *f, const char *path, i64 limit, bool spread, item_check check, void *ud, err *e);
void items_free(item_file *f);

/* The last number in text: digits with an optional sign and decimals, commas between digits dropped. */
bool last_number(const char *text, f64 *out);
/* What GSM8K's schema wants: the text behind the last "####" of item.answer, white space before it skipped; NULL
 * without one. */
const char *wanted_value(const json_t *item);
/* `value` stands in text by itself: not inside a longer word or number. */
bool has_value(const char *text, const char *value);

/* {"question": string, "answer": "... #### NUMBER"}: an item_check. */
status check_question(void *ud, const json_t *item, err *e);

/* The calls of a model's turn (array, OpenAI form) against an item {"tools", "calls"}. Well-formed: at least one
 * call, ids functions.NAME:0, 1, ... in order, declared names, arguments that are objects with the required and
 * none but declared keys and values from the declared enums. Right: well-formed, and the wanted calls in their
 * order; blanks inside string arguments do not matter. */
void judge_calls(const json_t *item, const json_t *calls, bool *well_formed, bool *right);

/* Wilson's 95 % interval of a share (E. B. Wilson 1927, JASA 22), 0..1. */
void wilson_interval(i64 right, i64 n, f64 *low, f64 *high);

#endif
