#include "text/vocab.h"
#include "base/base64.h"
#include <stdlib.h>
#include <string.h>

/* A string of up to 8 bytes is its own key, so that most look-ups end in one cache line; a longer one is
 * keyed by its hash and compared in vocab.bytes. */
struct vocab_slot {
    u64 key;
    i32 rank; /* -1: empty */
    u32 len;
};

/* Probes of one insertion before the file is called crafted: at two thirds full, real ones stay below 100. */
enum { PROBES_MAX = 2000 };

static u64 vocab_load(const u8 *p, size_t n) { /* the first n <= 8 bytes, little endian, zeros behind */
    u64 x = 0;
    if (n >= 8) {
        memcpy(&x, p, 8);
    } else if (n >= 4) {
        u32 a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        x = a | (u64)b << (n - 4) * 8;
    } else if (n) {
        x = p[0] | (u64)p[n / 2] << n / 2 * 8 | (u64)p[n - 1] << (n - 1) * 8;
    }
    return x;
}

static u64 mix(u64 x) {
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u; /* from the finaliser of splitmix64 */
    return x ^ x >> 32;
}

static u64 vocab_key_of(const u8 *p, size_t n) {
    if (n <= 8) return vocab_load(p, n);
    u64 h = n;
    for (; n > 8; p += 8, n -= 8) h = mix(h ^ vocab_load(p, 8));
    return mix(h ^ vocab_load(p, n));
}

static u64 home(u64 key, size_t n) { return mix(key + n * 0x9e3779b97f4a7c15u); }

i32 vocab_find(const vocab *v, const u8 *bytes, size_t n) {
    if (n == 2) return v->pair_rank[bytes[0] << 8 | bytes[1]];
    if (n == 0 || n > v->n_longest) return -1;
    u64 key = vocab_key_of(bytes, n);
    for (u64 i = home(key, n) & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        const vocab_slot *s = &v->slots[i];
        if (s->rank < 0) return -1;
        if (s->key == key && s->len == n && (n <= 8 || !memcmp(v->bytes + v->start[s->rank], bytes, n))) return s->rank;
    }
}

/* One line of the file, cut into its two fields. */
typedef struct {
    const char *text; /* base64 */
    size_t len;
    i64 rank;
    u64 number; /* of the line, from 1 */
} line;

static status parse_line(line *l, const char *p, size_t len, const char *what, err *e) {
    if (len && p[len - 1] == '\r') len--;
    l->text = p;
    const char *space = memchr(p, ' ', len);
    l->len = space ? (size_t)(space - p) : len;
    l->rank = 0;
    size_t i = l->len + 1, first = i;
    for (; i < len && p[i] >= '0' && p[i] <= '9' && l->rank < INT32_MAX; i++) l->rank = l->rank * 10 + (p[i] - '0');
    if (len == 0) return ST_OK; /* an empty line: l->len is 0 */
    if (!space || l->len == 0 || i == first || (i < len && l->rank < INT32_MAX))
        return err_set(e, ST_FORMAT, "%s: line %llu is not \"base64 rank\"", what, (unsigned long long)l->number);
    return ST_OK;
}

/* Steps *p to the next line that is not empty. Returns ST_OK with l->len == 0 at the end of the file. */
static status next_line(line *l, const char **p, const char *end, const char *what, err *e) {
    while (*p < end) {
        const char *nl = memchr(*p, '\n', (size_t)(end - *p)), *stop = nl ? nl : end;
        l->number++;
        status st = parse_line(l, *p, (size_t)(stop - *p), what, e);
        *p = nl ? nl + 1 : end;
        if (st != ST_OK || l->len) return st;
    }
    l->len = 0;
    return ST_OK;
}

/* First pass: counts the lines, so that a rank out of range is known when it is met. */
static status count_ranks(vocab *v, const char *text, u64 len, const char *what, err *e) {
    line l = {0};
    i64 n = 0;
    for (const char *p = text, *end = text + len;; n++) {
        status st = next_line(&l, &p, end, what, e);
        if (st != ST_OK) return st;
        if (!l.len) break;
    }
    if (n == 0) return err_set(e, ST_FORMAT, "%s: the file holds no tokens", what);
    v->n = (i32)n; /* a line has 5 bytes or more and the file at most UINT32_MAX */
    return ST_OK;
}

/* Second pass: the strings in file order into *pool, their places by rank into at[] and size[]. */
static status read_strings(vocab *v, const char *text, u64 len, buf *pool, u32 *at, u32 *size, const char *what,
                           err *e) {
    line l = {0};
    for (const char *p = text, *end = text + len;;) {
        status st = next_line(&l, &p, end, what, e);
        if (st != ST_OK || !l.len) return st;
        unsigned long long where = l.number;
        if (l.rank >= v->n)
            return err_set(e, ST_FORMAT, "%s: line %llu: the rank is not below the number of tokens, %d", what, where,
                           v->n);
        if (size[l.rank])
            return err_set(e, ST_FORMAT, "%s: line %llu: rank %lld appears twice", what, where, (long long)l.rank);
        size_t was = pool->len;
        if (!base64_decode(pool, l.text, l.len) || (pool->len == was && !pool->failed))
            return err_set(e, ST_FORMAT, "%s: line %llu: the first field is not base64", what, where);
        if (pool->failed) return err_nomem(e, what, len);
        if (pool->len - was > VOCAB_BYTES_MAX)
            return err_set(e, ST_FORMAT, "%s: line %llu: a token of %zu bytes, more than %d", what, where,
                           pool->len - was, VOCAB_BYTES_MAX);
        at[l.rank] = (u32)was;
        size[l.rank] = (u32)(pool->len - was);
    }
}

/* Puts the strings in the order of their ranks. */
static void order_strings(vocab *v, const buf *pool, const u32 *at, const u32 *size) {
    u32 to = 0;
    for (i32 r = 0; r < v->n; r++) {
        v->start[r] = to;
        memcpy(v->bytes + to, pool->data + at[r], size[r]);
        to += size[r];
        if (size[r] > v->n_longest) v->n_longest = size[r];
    }
    v->start[v->n] = to;
}

static status insert(vocab *v, i32 rank, const char *what, err *e) {
    const u8 *p = (const u8 *)v->bytes + v->start[rank];
    size_t n = v->start[rank + 1] - v->start[rank];
    u64 key = vocab_key_of(p, n), i = home(key, n) & v->slot_mask;
    for (int probes = 0; v->slots[i].rank >= 0; probes++, i = (i + 1) & v->slot_mask) {
        const vocab_slot *s = &v->slots[i];
        if (s->len == n && s->key == key && !memcmp(v->bytes + v->start[s->rank], p, n))
            return err_set(e, ST_FORMAT, "%s: ranks %d and %d are the same bytes", what, s->rank, rank);
        if (probes == PROBES_MAX)
            return err_set(e, ST_FORMAT, "%s: the tokens are crafted to collide in a hash table", what);
    }
    v->slots[i] = (vocab_slot){key, rank, (u32)n};
    if (n == 1) v->byte_rank[p[0]] = rank;
    if (n == 2) v->pair_rank[p[0] << 8 | p[1]] = rank;
    return ST_OK;
}

static status build_table(vocab *v, const char *what, err *e) {
    u64 n_slots = 16;
    while (n_slots * 2 < (u64)v->n * 3) n_slots *= 2;
    v->slots = malloc(n_slots * sizeof *v->slots);
    v->pair_rank = malloc(65536 * sizeof *v->pair_rank);
    if (!v->slots || !v->pair_rank) return err_nomem(e, what, n_slots * sizeof *v->slots);
    v->slot_mask = n_slots - 1;
    for (u64 i = 0; i < n_slots; i++) v->slots[i].rank = -1;
    for (int i = 0; i < 65536; i++) v->pair_rank[i] = -1;
    for (int i = 0; i < 256; i++) v->byte_rank[i] = -1;
    for (i32 r = 0; r < v->n; r++) {
        status st = insert(v, r, what, e);
        if (st != ST_OK) return st;
    }
    for (int i = 0; i < 256; i++)
        if (v->byte_rank[i] < 0) return err_set(e, ST_FORMAT, "%s: no token is the single byte 0x%02x", what, i);
    return ST_OK;
}

status vocab_read(vocab *v, const char *text, u64 len, const char *what, err *e) {
    buf pool = {0};
    u32 *at = NULL, *size = NULL;
    if (len > UINT32_MAX) return err_set(e, ST_LIMIT, "%s: more than 4 GiB", what);
    status st = count_ranks(v, text, len, what, e);
    if (st != ST_OK) return st;
    at = malloc((size_t)v->n * sizeof *at);
    size = calloc((size_t)v->n, sizeof *size);
    v->start = malloc(((size_t)v->n + 1) * sizeof *v->start);
    if (!at || !size || !v->start) {
        st = err_nomem(e, what, (u64)v->n * 12);
        goto done;
    }
    if ((st = read_strings(v, text, len, &pool, at, size, what, e)) != ST_OK) goto done;
    if (!(v->bytes = malloc(pool.len))) {
        st = err_nomem(e, what, pool.len);
        goto done;
    }
    order_strings(v, &pool, at, size);
    st = build_table(v, what, e);
done:
    free(at);
    free(size);
    buf_free(&pool);
    return st;
}

void vocab_free(vocab *v) {
    free(v->bytes);
    free(v->start);
    free(v->pair_rank);
    free(v->slots);
    memset(v, 0, sizeof *v);
}
