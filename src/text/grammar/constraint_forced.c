/* text/grammar/constraint_forced.c: ids that can only be what they are.
 *
 * Bytes are forced while one alone may come and the text may not end. In front of a mark, or of the end, text is whole,
 * and its ids are what the tokenizer makes of it. Else more text follows, of which nothing is known, and only pieces
 * (split.h) count that no more text would cut otherwise. The tokenizer cuts from left to right, so these are all up to
 * the first for which it would look behind the text at hand. How far does it look behind a piece?
 *
 *   - At the next character, whether a run of the piece's class goes on. For the last piece that is the end.
 *   - Behind a word at up to three characters, for an ending ('re): "'" or "'r" is the last piece then.
 *   - Behind a run U of letters that may begin a word, of which the last one that may also go on with it (a caseless
 *     letter, a mark) ends the piece, because no lower case follows U: "aBC" of a caseless a is "a", "BC", and "aBCd"
 *     one word. What is left of U is one piece of upper case, which is the last one if U's end is the text's.
 *   - Behind the last line feed of white space at all white space that follows: blanks up to the text's end, which are
 *     the last piece.
 *   - Behind blanks in front of something at its first character, which the next piece has.
 *
 * So the last piece is never certain, the one before it unless the last one is of these three kinds, and all others
 * are. Each is encoded by itself: alone it is one piece too, as nothing looks ahead for something that must be there,
 * but the end of the text in other places than the piece's would change the white space in front of it. */
#include "text/grammar/constraint_internal.h"
#include "text/split.h"
#include "text/unicode.h"
#include <string.h>

enum { FORCED_MOST = 4096 /* bytes */ };

/* Could what follows `last` join it, or a part of it, to the piece in front of it, which ends at `last`? */
static bool piece_is_loose(const u8 *begin, const u8 *last, const u8 *end) {
    int n;
    const u8 *before = last - 1;
    if (last == begin) return false;
    while (before > begin && (*before & 0xc0) == 0x80) before--;
    const u8 next = unicode_at(last, end, &n), had = unicode_at(before, end, &n);
    return *last == '\'' || (next & UNI_SPACE && had & UNI_NEWLINE) ||
           (next & UNI_UPPER && had & UNI_UPPER && had & UNI_LOWER);
}

/* Ids of text[len] that are the same with more text behind it. */
static status encode_certain(const tokenizer *tok, const u8 *text, size_t len, ids_buf *out) {
    size_t before = 0, last = 0, end = 0;
    status st = ST_OK;
    for (len = utf8_valid(text, len); end < len; end += split_piece(text + end, len - end)) before = last, last = end;
    end = piece_is_loose(text + before, text + last, text + len) ? before : last;
    for (size_t at = 0, n; at < end && st == ST_OK; at += n) {
        n = split_piece(text + at, len - at);
        st = tokenizer_encode(tok, (const char *)text + at, n, false, out, NULL);
    }
    return st;
}

/* The bytes, with the lock held; *whole: nothing but a mark or the end can follow them. */
static size_t forced_bytes(constraint_run *r, i32 state, u8 text[FORCED_MOST], bool *whole) {
    matcher *m = r->w->m;
    i32 at = state - RUN_STATES, byte;
    size_t n = 0;
    while ((byte = matcher_only_byte(m, at)) >= 0 && !matcher_accepts(m, at) && n < FORCED_MOST) {
        text[n++] = (u8)byte;
        at = matcher_next(m, at, (u8)byte);
    }
    *whole = byte == BYTE_NONE;
    if (n && text[n - 1] == TOKEN_MARK_BYTE) n--, *whole = true; /* some mark, but which? */
    return n && matcher_failed(m, NULL) == ST_OK ? n : 0;        /* a failure looks like bytes that may not come */
}

static i64 forced_ids(const constraint_run *r, const u8 *text, size_t n, bool whole, i32 *ids, i64 most) {
    ids_buf out = {0};
    for (size_t at = 0; at < n && !out.failed && (i64)out.len < most;) {
        const u8 *mark_at = memchr(text + at, TOKEN_MARK_BYTE, n - at);
        const size_t len = mark_at ? (size_t)(mark_at - text) - at : n - at;
        if ((mark_at || whole ? tokenizer_encode(r->c->tok, (const char *)text + at, len, false, &out, NULL)
                              : encode_certain(r->c->tok, text + at, len, &out)) != ST_OK)
            break;
        if (mark_at) ids_add(&out, r->c->marks[mark_at[1]]);
        at = mark_at ? (size_t)(mark_at + 2 - text) : n;
    }
    const i64 found = min_i64((i64)out.len, most);
    if (found > 0) memcpy(ids, out.data, (size_t)found * sizeof *ids);
    ids_free(&out);
    return found;
}

i64 constraint_run_forced(constraint_run *r, i32 state, i32 *ids, i64 most) {
    u8 text[FORCED_MOST];
    bool whole;
    if (state < RUN_STATES || most <= 0) return 0;
    pthread_mutex_lock(&r->c->lock);
    walk_begin(r->c, r->w);
    const size_t n = forced_bytes(r, state, text, &whole);
    walk_end(r->c, r->w);
    pthread_mutex_unlock(&r->c->lock);
    const bool in_character = n && (text[0] & 0xc0) == 0x80;
    return in_character ? 0 : forced_ids(r, text, n, whole, ids, most);
}
