/* cmd/text/text_tokens.c: `moonlet text encode` and `moonlet text decode`.
 *
 * encode {"text" or "text_b64", "specials": bool} -> {"ids"}
 * decode {"ids", "skip_special": bool} -> {"text_b64", "deltas"}
 * Both flags are false when absent. */
#include "cmd/text/text.h"
#include "base/base64.h"
#include "text/tokenizer.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The bytes to encode: *p[*len], which lie in the line or in *bytes. */
static status input_text(const json_t *line, buf *bytes, const char **p, size_t *len, err *e) {
    const json_t *text = json_object_get(line, "text"), *b64 = json_object_get(line, "text_b64");
    if (!text == !b64) return err_set(e, ST_INPUT, "exactly one of \"text\" and \"text_b64\" is needed");
    if (!json_is_string(text ? text : b64))
        return err_set(e, ST_INPUT, "\"%s\" is not a string", text ? "text" : "text_b64");
    *p = json_string_value(text ? text : b64);
    *len = json_string_length(text ? text : b64);
    if (text) return ST_OK;
    if (!base64_decode(bytes, *p, *len)) return err_set(e, ST_INPUT, "\"text_b64\" is not base64");
    if (bytes->failed) return err_nomem(e, "text", *len);
    *p = bytes->data;
    *len = bytes->len;
    return ST_OK;
}

static status answer_encode(void *ud, const json_t *line, buf *out, err *e) {
    static const char *const known[] = {"text", "text_b64", "specials", NULL};
    const tokenizer *t = ud;
    buf bytes = {0};
    ids_buf ids = {0};
    const char *p = NULL;
    size_t len = 0;
    bool specials = false;
    status st = text_known_keys(line, known, e);
    if (st == ST_OK) st = json_get_bool(line, "specials", false, &specials, e);
    if (st == ST_OK) st = input_text(line, &bytes, &p, &len, e);
    if (st == ST_OK) st = tokenizer_encode(t, p, len, specials, &ids, e);
    if (st == ST_OK) {
        buf_str(out, "{\"ids\": ");
        text_write_ids(out, &ids);
        buf_char(out, '}');
    }
    buf_free(&bytes);
    ids_free(&ids);
    return st;
}

/* Writes the text that each id makes certain, as a JSON list. */
static status write_deltas(const tokenizer *t, const ids_buf *ids, bool skip_special, buf *out, err *e) {
    decode_stream s = {0};
    buf piece = {0};
    status st = ST_OK;
    buf_char(out, '[');
    for (size_t i = 0; st == ST_OK && i < ids->len; i++) {
        buf_clear(&piece);
        st = decode_stream_add(&s, t, ids->data[i], skip_special, &piece, e);
        if (i + 1 == ids->len) decode_stream_end(&s, &piece);
        if (i) buf_str(out, ", ");
        if (piece.failed) st = err_nomem(e, "decoded text", piece.len);
        if (st == ST_OK) buf_json_str(out, piece.data, piece.len);
    }
    buf_char(out, ']');
    buf_free(&piece);
    return st;
}

static status answer_decode(void *ud, const json_t *line, buf *out, err *e) {
    static const char *const known[] = {"ids", "skip_special", NULL};
    const tokenizer *t = ud;
    buf bytes = {0};
    ids_buf ids = {0};
    bool skip = false;
    status st = text_known_keys(line, known, e);
    if (st == ST_OK) st = json_get_bool(line, "skip_special", false, &skip, e);
    if (st == ST_OK) st = text_input_ids(line, &ids, e);
    if (st == ST_OK) st = tokenizer_decode_bytes(t, ids.data, ids.len, skip, &bytes, e);
    if (st == ST_OK) {
        buf_str(out, "{\"text_b64\": \"");
        base64_encode(out, bytes.data, bytes.len);
        buf_str(out, "\", \"deltas\": ");
        st = write_deltas(t, &ids, skip, out, e);
        buf_char(out, '}');
    }
    buf_free(&bytes);
    ids_free(&ids);
    return st;
}

int cmd_text_tokens(int argc, char **argv) {
    bool encode = !strcmp(argv[0], "encode");
    const char *name = encode ? "text encode" : "text decode", *dir = NULL;
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &dir, "DIR", "folder with tiktoken.model and tokenizer_config.json (default: nano)", 0,
         0},
    };
    const char *usage =
        encode
            ? "[-m DIR] < LINES > LINES\n\n"
              "in   {\"text\" or \"text_b64\" (base64), \"specials\": bool (default: false, <|im_end|> and the like are plain text)}\n"
              "out  {\"ids\": [...]}\n"
            : "[-m DIR] < LINES > LINES\n\n"
              "in   {\"ids\": [...], \"skip_special\": bool (default: false)}\n"
              "out  {\"text_b64\": base64, \"deltas\": [the text each id adds, in whole characters]}\n";
    int rc = cmd_options(name, usage, specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    return text_run(name, dir, encode ? answer_encode : answer_decode);
}
