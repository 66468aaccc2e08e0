#include "text/grammar/token_trie.h"
#include "text/utf8.h"
#include "text/vocab.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const u8 *bytes;
    size_t len;
    i32 id;
} trie_token;

static int tokens_by_bytes(const void *a, const void *b) {
    const trie_token *x = a, *y = b;
    const int differ = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    return differ ? differ : (x->len > y->len) - (x->len < y->len);
}

static bool token_is_plain(const trie_token *x) {
    for (size_t i = 0; i < x->len; i++)
        if (token_byte_is_special(x->bytes[i])) return false;
    return true;
}

/* Characters that begin in it, if it is the beginning of UTF-8. */
static u16 characters_in(const trie_token *x) {
    u16 n = 0;
    u32 cp;
    for (size_t at = 0; at < x->len; n++) {
        const int k = utf8_scan(x->bytes + at, x->len - at, &cp);
        if (k < 0) return CHARS_MALFORMED;
        at = k ? at + (size_t)k : x->len;
    }
    return n;
}

static size_t same_bytes(const trie_token *a, const trie_token *b) {
    size_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* Nodes of token i of the sorted list that the one before it has not made; open[depth] is the node there. */
static void trie_add_token(token_trie *t, const trie_token *all, i32 i, i32 *open) {
    const trie_token *x = &all[i];
    for (size_t d = i ? same_bytes(&all[i - 1], x) : 0; d < x->len; d++) {
        const u16 chars = d ? t->nodes[open[d]].chars : 0;
        open[d + 1] = t->n;
        t->nodes[t->n++] = (trie_node){.token = -1,
                                       .rank = i,
                                       .above = d ? open[d] : -1,
                                       .depth = (u16)(d + 1),
                                       .chars = (u16)(chars + ((x->bytes[d] & 0xc0) != 0x80)),
                                       .byte = x->bytes[d]};
    }
    t->nodes[open[x->len]].token = x->id;
    t->of_rank[i] = x->id, t->chars[i] = characters_in(x);
    t->deepest = (i32)max_i64(t->deepest, (i64)x->len);
}

/* From the last to the first, each node is followed by the ends of those below it. */
static void find_sizes(token_trie *t, i32 *end) {
    for (i32 i = t->n - 1; i >= 0; i--) {
        const i32 depth = t->nodes[i].depth;
        /* end[d]: where the next node of depth d or less begins, as far as it has been seen */
        t->nodes[i].size = end[depth] - i;
        for (i32 d = depth; d <= t->deepest; d++) end[d] = i;
    }
}

/* By counting: how many tokens have more characters than another. */
static status find_plain(token_trie *t, const trie_token *all, err *e) {
    i32 *at = calloc((size_t)VOCAB_BYTES_MAX + 2, sizeof *at);
    t->plain = calloc((size_t)ceil_div(t->vocab, 64), sizeof *t->plain);
    t->longest = malloc((size_t)t->n_tokens * sizeof *t->longest);
    status st = at && t->plain && t->longest ? ST_OK : err_nomem(e, "a vocabulary's tree", (u64)t->n_tokens * 4);
    for (i32 i = 0; st == ST_OK && i < t->n_tokens; i++) {
        if (t->chars[i] == CHARS_MALFORMED || !token_is_plain(&all[i])) continue;
        t->plain[all[i].id / 64] |= (u64)1 << all[i].id % 64;
        at[t->chars[i]]++, t->n_plain++;
    }
    for (i32 c = VOCAB_BYTES_MAX; st == ST_OK && c >= 0; c--) at[c] += at[c + 1];
    for (i32 i = 0; st == ST_OK && i < t->n_tokens; i++)
        if (t->chars[i] != CHARS_MALFORMED && token_is_plain(&all[i])) t->longest[at[t->chars[i] + 1]++] = i;
    free(at);
    return st;
}

static status trie_fill(token_trie *t, trie_token *all, i32 n, err *e) {
    u64 bytes = 0;
    for (i32 i = 0; i < n; i++) bytes += all[i].len;
    t->n_tokens = n;
    t->nodes = malloc((size_t)(bytes + 1) * sizeof *t->nodes);
    t->of_rank = malloc((size_t)n * sizeof *t->of_rank);
    t->chars = malloc((size_t)n * sizeof *t->chars);
    i32 *open = calloc((size_t)VOCAB_BYTES_MAX + 2, sizeof *open);
    status st = t->nodes && t->of_rank && t->chars && open ? ST_OK : err_nomem(e, "a vocabulary's tree", bytes * 24);
    if (st == ST_OK) {
        qsort(all, (size_t)n, sizeof *all, tokens_by_bytes);
        for (i32 i = 0; i < n; i++) trie_add_token(t, all, i, open);
        t->nodes[t->n] = (trie_node){.token = -1, .rank = n};
        for (i32 d = 0; d <= VOCAB_BYTES_MAX; d++) open[d] = t->n;
        find_sizes(t, open);
        for (i32 i = 0; i < t->n; i++) t->n_special += token_byte_is_special(t->nodes[i].byte);
        t->special = malloc((size_t)(t->n_special + 1) * sizeof *t->special);
        if (!t->special) st = err_nomem(e, "a vocabulary's tree", (u64)t->n_special * 4);
    }
    if (st == ST_OK) st = find_plain(t, all, e);
    for (i32 i = 0, k = 0; st == ST_OK && i < t->n; i++)
        if (token_byte_is_special(t->nodes[i].byte)) t->special[k++] = i;
    free(open);
    return st;
}

static const u8 mark_bytes[MARKS][2] = {
    [MARK_SECTION] = {TOKEN_MARK_BYTE, MARK_SECTION},   [MARK_SECTION_END] = {TOKEN_MARK_BYTE, MARK_SECTION_END},
    [MARK_CALL] = {TOKEN_MARK_BYTE, MARK_CALL},         [MARK_ARGUMENT] = {TOKEN_MARK_BYTE, MARK_ARGUMENT},
    [MARK_CALL_END] = {TOKEN_MARK_BYTE, MARK_CALL_END},
};

status token_trie_open(token_trie **out, const tokenizer *t, err *e) {
    const i32 n_ranks = tokenizer_n_ranks(t);
    trie_token *all = malloc(((size_t)n_ranks + MARKS) * sizeof *all);
    token_trie *made = *out = calloc(1, sizeof *made);
    i32 n = 0;
    if (!all || !made) {
        free(all), free(made);
        *out = NULL;
        return err_nomem(e, "a vocabulary's tree", (u64)n_ranks * sizeof *all);
    }
    for (i32 id = 0; id < n_ranks; id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, id, &len);
        if (bytes && len && !memchr(bytes, TOKEN_MARK_BYTE, len)) all[n++] = (trie_token){(const u8 *)bytes, len, id};
    }
    for (int k = TOKEN_MARK_FIRST; k <= TOKEN_MARK_LAST; k++) {
        const i32 id = tokenizer_special(t, mark_text[k]);
        if (id >= 0) all[n++] = (trie_token){mark_bytes[k], 2, id};
    }
    made->vocab = tokenizer_vocab_size(t);
    status st = trie_fill(made, all, n, e);
    free(all);
    if (st == ST_OK) return ST_OK;
    token_trie_close(made);
    *out = NULL;
    return st;
}

void token_trie_close(token_trie *t) {
    if (!t) return;
    free(t->nodes), free(t->special), free(t->of_rank), free(t->chars);
    free(t->plain), free(t->longest);
    free(t);
}
