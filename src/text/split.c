#include "text/split.h"
#include "text/unicode.h"

static const u8 *run_of(const u8 *p, const u8 *end, u8 mask) {
    int n;
    while (unicode_at(p, end, &n) & mask) p += n;
    return p;
}

/* C?: an English ending after a word. Case folding adds one character to ASCII's: U+017F, the long s. */
static const u8 *ending(const u8 *p, const u8 *end) {
    if (end - p < 2 || *p != '\'') return p;
    u8 a = p[1] | 0x20, b = end - p > 2 ? p[2] | 0x20 : 0;
    if (p[1] >= 0x80) return end - p > 2 && p[1] == 0xc5 && p[2] == 0xbf ? p + 3 : p;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
    return p;
}

/* U*W+ at p, or NULL; with `upper`, else U+W*, which is then U+ alone. U* runs to its end and gives back
 * characters until W+ has one: it is the run's last character that is in both classes. */
static const u8 *split_word(const u8 *p, const u8 *end, bool upper) {
    const u8 *start = p, *back = NULL;
    int n;
    u8 c;
    while ((c = unicode_at(p, end, &n)) & UNI_UPPER) {
        p += n;
        if (c & UNI_LOWER) back = p;
    }
    if (c & UNI_LOWER) return run_of(p + n, end, UNI_LOWER);
    return back ? back : upper && p > start ? p : NULL;
}

/* Alternatives 2 and 3 without C, for a first character of class c and length n; NULL when neither matches.
 */
static const u8 *words(const u8 *p, const u8 *end, u8 c, int n) {
    if (c & UNI_LETTER) return split_word(p, end, true);
    if (c & (UNI_NUMBER | UNI_NEWLINE)) return NULL;
    if (!(c & UNI_UPPER)) return split_word(p + n, end, true);
    /* A mark may be the character before the word or its first: alternative 2 tries both before 3 comes. */
    const u8 *w = split_word(p + n, end, false);
    return w ? w : split_word(p, end, false);
}

static const u8 *numbers(const u8 *p, const u8 *end) {
    int n;
    for (int i = 0; i < 3 && unicode_at(p, end, &n) & UNI_NUMBER; i++) p += n;
    return p;
}

/* Alternatives 6, 7 and 8 on a run of whitespace that begins at p. */
static const u8 *split_spaces(const u8 *p, const u8 *end) {
    const u8 *start = p, *last = p, *newline = NULL;
    int n;
    u8 c;
    while ((c = unicode_at(p, end, &n)) & UNI_SPACE) {
        last = p;
        p += n;
        if (c & UNI_NEWLINE) newline = p;
    }
    if (newline) return newline;
    return p == end || last == start ? p : last;
}

size_t split_piece(const u8 *text, size_t len) {
    const u8 *end = text + len, *p, *q;
    int n;
    u8 c = unicode_at(text, end, &n);
    if (c & UNI_HAN) return (size_t)(run_of(text, end, UNI_HAN) - text);
    if ((p = words(text, end, c, n))) return (size_t)(ending(p, end) - text);
    if (c & UNI_NUMBER) return (size_t)(numbers(text, end) - text);
    p = q = text + (*text == ' ');
    while (p < end && !(unicode_at(p, end, &n) & (UNI_SPACE | UNI_LETTER | UNI_NUMBER))) p += n;
    if (p == q) return (size_t)(split_spaces(text, end) - text);
    while (p < end && (*p == '\r' || *p == '\n')) p++;
    return (size_t)(p - text);
}

void split_slices_start(split_slices *s, const u8 *text, size_t len) {
    *s = (split_slices){.at = text, .end = text + len};
}

size_t split_slices_next(split_slices *s) {
    const u8 *start = s->at, *p = start;
    if ((size_t)(s->end - start) <= SPLIT_RUN && s->n_window == 0) {
        s->at = s->end; /* too short for any cut */
        return (size_t)(s->end - start);
    }
    while (p < s->end && s->n_window < SPLIT_WINDOW) {
        int n;
        bool space = unicode_at(p, s->end, &n) & UNI_PYSPACE;
        bool fresh = s->n_window == 0 || space != s->run_space;
        s->run_space = space;
        s->n_run = fresh ? 1 : s->n_run + 1;
        if (s->n_run > SPLIT_RUN) { /* p begins the next slice, which looks at it again */
            s->n_run = 0;
            s->at = p;
            return (size_t)(p - start);
        }
        s->n_window++;
        p += n;
    }
    if (s->n_window == SPLIT_WINDOW) s->n_window = 0;
    s->at = p;
    return (size_t)(p - start);
}
