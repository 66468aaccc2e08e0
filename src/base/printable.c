#include "base/printable.h"

/* The character at s and its bytes; 0 bytes when there is no well-formed one (Unicode standard, table 3-7): stray
 * bytes out of a file's names, and a last character that did not fit. */
static int decode(const unsigned char *s, u32 *c) {
    *c = s[0];
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    *c &= 0xffu >> (n + 1);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *c = *c << 6 | (s[i] & 0x3f);
    }
    bool bad = (n == 3 && *c < 0x800) || (*c >= 0xd800 && *c < 0xe000) || (n == 4 && *c < 0x10000) || *c > 0x10ffff;
    return bad ? 0 : n;
}

static bool is_control(u32 c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

/* Characters after which a terminal shows text in another order than it stands. */
static bool is_direction(u32 c) {
    return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void make_printable(char *text, bool lines) {
    unsigned char *to = (unsigned char *)text;
    for (const unsigned char *from = to; *from;) {
        u32 c;
        int n = decode(from, &c);
        bool keep = n > 0 && ((lines && (c == '\n' || c == '\t')) || (!is_control(c) && !is_direction(c)));
        if (!keep) *to++ = '?';
        for (int i = 0; keep && i < n; i++) *to++ = from[i];
        from += n ? n : 1;
    }
    *to = 0;
}
