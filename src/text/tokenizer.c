#include "text/tokenizer.h"
#include "base/file.h"
#include "text/bpe.h"
#include "text/special.h"
#include "text/split.h"
#include "text/utf8.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)SPECIAL_SLOTS == (int)TOKENIZER_SPECIAL_SLOTS, "one number of slots");

struct tokenizer {
    vocab ranks;
    special_set specials;
};

enum { CONFIG_BYTES_MAX = 16 << 20, RANKS_BYTES_MAX = 256 << 20 }; /* Kimi's ranks: 2.8 MB */

static status read_ranks(tokenizer *t, const char *dir, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "tiktoken.model", e);
    if (st == ST_OK) st = file_read(path, RANKS_BYTES_MAX, &text, e);
    if (st == ST_OK) st = vocab_read(&t->ranks, text.data, text.len, path, e);
    buf_free(&text);
    return st;
}

static status read_specials(tokenizer *t, const char *dir, err *e) {
    char path[PATH_MAX];
    buf text = {0};
    status st = path_join(path, sizeof path, dir, "tokenizer_config.json", e);
    if (st == ST_OK) st = file_read(path, CONFIG_BYTES_MAX, &text, e);
    if (st == ST_OK) st = special_read(&t->specials, t->ranks.n, text.data, text.len, path, e);
    buf_free(&text);
    return st;
}

status tokenizer_open(tokenizer **out, const char *dir, err *e) {
    *out = NULL;
    tokenizer *t = calloc(1, sizeof *t);
    if (!t) return err_nomem(e, "tokenizer", sizeof *t);
    status st = read_ranks(t, dir, e);
    if (st == ST_OK) st = read_specials(t, dir, e);
    if (st != ST_OK) {
        tokenizer_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    vocab_free(&t->ranks);
    special_free(&t->specials);
    free(t);
}

i32 tokenizer_n_ranks(const tokenizer *t) { return t->ranks.n; }
i32 tokenizer_vocab_size(const tokenizer *t) { return t->ranks.n + SPECIAL_SLOTS; }

i32 tokenizer_special(const tokenizer *t, const char *name) {
    int slot = special_find(&t->specials, name, strlen(name));
    return slot < 0 ? -1 : t->specials.first + slot;
}

bool tokenizer_is_special(const tokenizer *t, i32 id) { return id >= t->ranks.n && id < tokenizer_vocab_size(t); }

size_t tokenizer_longest(const tokenizer *t) {
    size_t longest = t->ranks.n_longest;
    for (int i = 0; i < SPECIAL_SLOTS; i++)
        if (t->specials.slot[i].len > longest) longest = t->specials.slot[i].len;
    return longest;
}

const char *tokenizer_bytes(const tokenizer *t, i32 id, size_t *len) {
    *len = 0;
    if (id < 0 || id >= tokenizer_vocab_size(t)) return NULL;
    if (id >= t->ranks.n) {
        *len = t->specials.slot[id - t->ranks.n].len;
        return t->specials.slot[id - t->ranks.n].name;
    }
    *len = t->ranks.start[id + 1] - t->ranks.start[id];
    return t->ranks.bytes + t->ranks.start[id];
}

static bool encode_ordinary(const tokenizer *t, const u8 *p, size_t len, bpe_space *space, ids_buf *out) {
    for (const u8 *end = p + len; p < end;) {
        size_t n = split_piece(p, (size_t)(end - p));
        if (!bpe_encode(&t->ranks, p, n, space, out)) return false;
        p += n;
    }
    return true;
}

static bool encode_slice(const tokenizer *t, const u8 *p, size_t len, bool specials, bpe_space *space, ids_buf *out) {
    size_t at;
    int slot;
    while (specials && (slot = special_search(&t->specials, p, len, &at)) >= 0) {
        if (!encode_ordinary(t, p, at, space, out)) return false;
        ids_add(out, t->specials.first + slot);
        if (out->failed) return false;
        p += at + t->specials.slot[slot].len;
        len -= at + t->specials.slot[slot].len;
    }
    return encode_ordinary(t, p, len, space, out);
}

status tokenizer_encode(const tokenizer *t, const char *text, size_t len, bool specials, ids_buf *out, err *e) {
    size_t n_before = out->len;
    buf repaired = {0};
    bpe_space space = {0};
    const u8 *p = (const u8 *)text;
    bool ok = true;
    if (len && utf8_valid(p, len) < len) {
        utf8_repair(&repaired, p, len);
        ok = !repaired.failed;
        p = (const u8 *)repaired.data;
        len = repaired.len;
    }
    if (ok && len) {
        split_slices s;
        split_slices_start(&s, p, len);
        for (size_t n; ok && (n = split_slices_next(&s)) > 0; p += n) ok = encode_slice(t, p, n, specials, &space, out);
    }
    ok = ok && !out->failed;
    bpe_free(&space);
    buf_free(&repaired);
    if (ok) return ST_OK;
    out->len = n_before;
    if (out->full) return err_set(e, ST_LIMIT, "the text has more than %zu tokens", out->max);
    return err_nomem(e, "token ids", len);
}

/* The bytes that decoding gives for an id: none for a special one that is skipped. */
static status shown_bytes(const tokenizer *t, i32 id, bool skip_special, const char **p, size_t *len, err *e) {
    *p = tokenizer_bytes(t, id, len);
    if (!*p)
        return err_set(e, ST_INPUT, "token id %d is outside the vocabulary 0..%d", id, tokenizer_vocab_size(t) - 1);
    if (skip_special && id >= t->ranks.n && t->specials.slot[id - t->ranks.n].special) *len = 0;
    return ST_OK;
}

status tokenizer_decode_bytes(const tokenizer *t, const i32 *ids, size_t n, bool skip_special, buf *out, err *e) {
    size_t n_before = out->len, len;
    const char *p;
    for (size_t i = 0; i < n; i++) {
        status st = shown_bytes(t, ids[i], skip_special, &p, &len, e);
        if (st != ST_OK) {
            out->len = n_before;
            if (out->data) out->data[n_before] = 0;
            return st;
        }
        buf_add(out, p, len);
    }
    return out->failed ? err_nomem(e, "decoded text", out->len) : ST_OK;
}

/* Feeds one byte: what is held plus the byte is again at most the beginning of a character. */
static void stream_byte(decode_stream *s, u8 byte, buf *out) {
    s->held[s->n_held++] = byte;
    for (u32 cp; s->n_held;) {
        int n = utf8_scan(s->held, s->n_held, &cp);
        if (n == 0) return; /* may still go on */
        if (n > 0)
            buf_add(out, s->held, (size_t)n);
        else
            buf_str(out, UTF8_REPLACEMENT);
        u8 used = (u8)(n > 0 ? n : -n);
        s->n_held -= used;
        memmove(s->held, s->held + used, s->n_held);
    }
}

status decode_stream_add(decode_stream *s, const tokenizer *t, i32 id, bool skip_special, buf *out, err *e) {
    const char *p;
    size_t len;
    status st = shown_bytes(t, id, skip_special, &p, &len, e);
    if (st != ST_OK) return st;
    for (size_t i = 0; i < len; i++) stream_byte(s, (u8)p[i], out);
    return out->failed ? err_nomem(e, "decoded text", out->len) : ST_OK;
}

void decode_stream_end(decode_stream *s, buf *out) {
    if (s->n_held) buf_str(out, UTF8_REPLACEMENT);
    s->n_held = 0;
}
