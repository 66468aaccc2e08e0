/* cmd/text/text_match.c: `moonlet text match`: what a schema, a regular expression or a grammar lets through.
 *
 * {"schema", "regex" or "grammar" (text/grammar/ebnf.h), "text" or "ids", "strict": bool} -> {"accepts": is the text
 * complete and valid, "prefix": bytes of it that could still go on}. strict: keywords of no draft are refused instead
 * of passed over. */
#include "cmd/text/text.h"
#include "cmd/lib/grammar_line.h"
#include "text/grammar/matcher.h"
#include <string.h>

static status match_text(const tokenizer *t, const json_t *line, buf *text, err *e) {
    const json_t *plain = json_object_get(line, "text"), *given = json_object_get(line, "ids");
    ids_buf ids = {0};
    if (!plain == !given) return err_set(e, ST_INPUT, "exactly one of \"text\" and \"ids\" is needed");
    if (plain && !json_is_string(plain)) return err_set(e, ST_INPUT, "\"text\" is not a string");
    if (plain) return buf_add(text, json_string_value(plain), json_string_length(plain)), ST_OK;
    status st = text_input_ids(line, &ids, e);
    if (st == ST_OK) st = tokenizer_decode_bytes(t, ids.data, ids.len, false, text, e);
    ids_free(&ids);
    return st;
}

static status match_walk(grammar *g, const buf *text, buf *out, err *e) {
    matcher *m;
    size_t n = 0;
    status st = matcher_open(&m, g, e);
    if (st != ST_OK) return st;
    i32 at = matcher_start(m), next = at;
    for (; n < text->len && (next = matcher_next(m, at, (u8)text->data[n])) != MATCHER_DEAD; n++) at = next;
    st = matcher_failed(m, e);
    if (st == ST_OK)
        buf_fmt(out, "{\"accepts\": %s, \"prefix\": %zu}", n == text->len && matcher_accepts(m, at) ? "true" : "false",
                n);
    matcher_close(m);
    return st;
}

static status answer_match(void *ud, const json_t *line, buf *out, err *e) {
    static const char *const known[] = {"schema", "regex", "grammar", "text", "ids", "strict", NULL};
    grammar *g = NULL;
    buf text = {0};
    status st = text_known_keys(line, known, e);
    if (st == ST_OK) st = match_text(ud, line, &text, e);
    if (st == ST_OK && text.failed) st = err_nomem(e, "text", text.len);
    if (st == ST_OK) st = grammar_of_line(&g, line, e);
    if (st == ST_OK) st = match_walk(g, &text, out, e);
    grammar_free(g);
    buf_free(&text);
    return st;
}

int cmd_text_match(int argc, char **argv) {
    const char *dir = NULL;
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &dir, "DIR", "folder with tiktoken.model and tokenizer_config.json (default: nano)", 0,
         0},
    };
    int rc = cmd_options(
        "text match",
        "[-m DIR] < LINES > LINES\n\n"
        "in   {\"schema\": JSON Schema, \"regex\": \"...\" or \"grammar\": \"root ::= ...\" (GBNF),\n"
        "      \"text\" or \"ids\", \"strict\": bool (default: false)}\n"
        "out  {\"accepts\": the text is complete and valid, \"prefix\": bytes of it that could still go on}\n",
        specs, COUNT_OF(specs), argc, argv, NULL);
    return rc >= 0 ? rc : text_run("text match", dir, answer_match);
}
