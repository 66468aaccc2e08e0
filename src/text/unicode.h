/* text/unicode.h: the character classes that Kimi's split pattern and its cut into slices ask for.
 *
 * The table (unicode_table.c) is generated from the official encoder by tools/unicode_table.py. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H
#include "text/utf8.h"

enum {
    UNI_HAN = 1,      /* Script=Han (not Script_Extensions): "。" and "、" are not in it */
    UNI_LETTER = 2,   /* \p{L} */
    UNI_NUMBER = 4,   /* \p{N} */
    UNI_UPPER = 8,    /* Lu Lt Lm Lo M, without Han */
    UNI_LOWER = 16,   /* Ll Lm Lo M, without Han; caseless letters and marks are in both */
    UNI_SPACE = 32,   /* \s = White_Space */
    UNI_NEWLINE = 64, /* CR, LF */
    UNI_PYSPACE = 128 /* Python's str.isspace(): White_Space and U+001C..U+001F */
};

enum { UNICODE_SHIFT = 7 };
extern const u8 unicode_index[0x110000 >> UNICODE_SHIFT];
extern const u8 unicode_flags[][1 << UNICODE_SHIFT];

static inline u8 unicode_class(u32 cp) {
    return unicode_flags[unicode_index[cp >> UNICODE_SHIFT]][cp & ((1 << UNICODE_SHIFT) - 1)];
}

/* Class of the character at p in well-formed text, its length in *n. At the end: 0 and *n = 0. */
static inline u8 unicode_at(const u8 *p, const u8 *end, int *n) {
    if (p == end) return *n = 0, (u8)0;
    if (*p < 0x80) return *n = 1, unicode_flags[0][*p];
    u32 cp;
    *n = utf8_decode(p, &cp);
    return unicode_class(cp);
}

#endif
