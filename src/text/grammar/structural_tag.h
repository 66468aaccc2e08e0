/* text/grammar/structural_tag.h: text with structured parts, as SGLang and xgrammar describe it.
 *
 *     {"type": "structural_tag", "format": FORMAT}
 *     {"type": "structural_tag", "structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}    (the older form)
 *
 * The older form is triggered_tags with json_schema between "begin" and "end". A FORMAT is an object whose "type" is:
 *
 *     const_string         "value"
 *     json_schema          "json_schema"; "style": "json" alone; "any_order" means nothing, it always is any order
 *     regex, grammar       "pattern", "grammar" (ebnf.h)
 *     any_text             any text in which none of "excludes" is
 *     sequence, or         "elements"
 *     optional, star, plus "content"; repeat: also "min", "max" (-1: no end)
 *     tag                  "begin", "content", "end" (a string, or a list of them of which one comes)
 *     triggered_tags       free text; where one of "triggers" is, one of "tags" that begin with it, then free text again.
 *                          "at_least_one": a tag comes first, "stop_after_first": nothing comes behind a tag,
 *                          "excludes": what is not in free text
 *     dispatch             the same for "rules" [[string, FORMAT], ...]; "loop": false: nothing comes behind the first
 *     tags_with_separator  "tags" with "separator" between them, or nothing; "at_least_one", "stop_after_first"
 *
 * Free text and any_text inside of a tag have no "end" of it: they are over with its first one. "type" of a tag in
 * "tags" may be left out. Everything else, as what counts tokens or names them, is refused by name and place. */
#ifndef TEXT_GRAMMAR_STRUCTURAL_TAG_H
#define TEXT_GRAMMAR_STRUCTURAL_TAG_H
#include "base/json.h"
#include "text/grammar/grammar.h"

/* strict: what schemas ask and cannot be held is an error; else it is passed over, with a line in warnings (NULL
 * allowed). ST_INPUT, ST_UNSUPPORTED, ST_LIMIT: errors name the place. Its schemas may take 2 s and 256 MiB together;
 * stop (may be NULL) set: ST_CANCELLED. */
status structural_tag_to_node(grammar *g, const json_t *tag, bool strict, const atomic_bool *stop, buf *warnings,
                              i32 *node, err *e);

#endif
