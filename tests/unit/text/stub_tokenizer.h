/* tests/unit/text/stub_tokenizer.h: a tokenizer whose ids can be read: a byte is its own id, special tokens follow
 * from 256 in the order of the list. Tests that include it see every cut between two characters and need no
 * vocabulary. */
#ifndef TESTS_TEXT_STUB_TOKENIZER_H
#define TESTS_TEXT_STUB_TOKENIZER_H
#include "text/tokenizer.h"
#include <string.h>

struct tokenizer {
    const char *const *specials; /* ends with NULL */
};

static const char *const k25_specials[] = {"[BOS]",
                                           "[EOS]",
                                           "[EOT]",
                                           "<|im_end|>",
                                           "<|im_user|>",
                                           "<|im_assistant|>",
                                           "<|im_system|>",
                                           "<|im_middle|>",
                                           "<|tool_calls_section_begin|>",
                                           "<|tool_calls_section_end|>",
                                           "<|tool_call_begin|>",
                                           "<|tool_call_argument_begin|>",
                                           "<|tool_call_end|>",
                                           "<|media_begin|>",
                                           "<|media_content|>",
                                           "<|media_pad|>",
                                           "<|media_end|>",
                                           "<think>",
                                           "</think>",
                                           NULL};
static const tokenizer k25_tokenizer = {k25_specials};

i32 tokenizer_special(const tokenizer *t, const char *name) {
    for (i32 i = 0; t->specials[i]; i++)
        if (!strcmp(t->specials[i], name)) return 256 + i;
    return -1;
}

status tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool specials, ids_buf *out, err *e) {
    (void)t;
    (void)e;
    if (specials) return ST_UNSUPPORTED;
    for (size_t i = 0; i < len; i++) ids_add(out, (u8)text[i]);
    return ST_OK;
}

i32 tokenizer_vocab_size(const tokenizer *t) {
    i32 n = 256;
    for (i32 i = 0; t->specials[i]; i++) n++;
    return n;
}

/* Only tool and think markers survive skip_special, as in Kimi's added_tokens_decoder. */
status decode_stream_add(decode_stream *s, const tokenizer *t, i32 id, bool skip_special, buf *out, err *e) {
    if (id < 0 || id >= tokenizer_vocab_size(t)) return err_set(e, ST_INPUT, "id %d", id);
    if (id >= 256) {
        decode_stream_end(s, out);
        if (!skip_special || strstr(t->specials[id - 256], "tool") || strstr(t->specials[id - 256], "think"))
            buf_str(out, t->specials[id - 256]);
        return ST_OK;
    }
    if (s->n_held && (id & 0xc0) != 0x80) decode_stream_end(s, out);
    s->held[s->n_held++] = (u8)id;
    u8 lead = s->held[0], need = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (!need) decode_stream_end(s, out);
    if (s->n_held != need) return ST_OK;
    buf_add(out, s->held, need);
    s->n_held = 0;
    return ST_OK;
}

void decode_stream_end(decode_stream *s, buf *out) {
    if (s->n_held) buf_str(out, "\xef\xbf\xbd");
    s->n_held = 0;
}

#endif
