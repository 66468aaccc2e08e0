#include "text/special.h"
#include "base/json.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static status set_name(special_set *s, int slot, const char *name, size_t len, err *e) {
    char *copy = malloc(len + 1);
    if (!copy) return err_nomem(e, "special token", len);
    memcpy(copy, name, len);
    copy[len] = 0;
    s->slot[slot].name = copy;
    s->slot[slot].len = (u32)len;
    return ST_OK;
}

/* One entry of added_tokens_decoder. */
static status read_entry(special_set *s, const char *key, const json_t *entry, err *e) {
    char *end;
    long long id = strtoll(key, &end, 10);
    if (key[0] < '0' || key[0] > '9' || *end || (key[0] == '0' && key[1]))
        return err_set(e, ST_FORMAT, "key \"%s\" is not a token id", key);
    if (id < s->first || id >= (long long)s->first + SPECIAL_SLOTS)
        return err_set(e, ST_FORMAT, "id %s is outside the special slots %d..%d (tiktoken.model has %d ranks)", key,
                       s->first, s->first + SPECIAL_SLOTS - 1, s->first);
    const json_t *name = json_object_get(entry, "content");
    int slot = (int)(id - s->first);
    if (!json_is_string(name)) return err_set(e, ST_FORMAT, "%s: \"content\" is not a string", key);
    size_t len = json_string_length(name);
    if (len == 0 || len > SPECIAL_NAME_MAX)
        return err_set(e, ST_FORMAT, "%s: a name of %zu bytes, not 1..%d", key, len, SPECIAL_NAME_MAX);
    if (json_get_bool(entry, "special", false, &s->slot[slot].special, e) != ST_OK) return err_prefix(e, "%s", key);
    return set_name(s, slot, json_string_value(name), len, e);
}

static int special_compare(const special_set *s, int slot, const char *name, size_t len) {
    size_t have = s->slot[slot].len;
    int c = memcmp(s->slot[slot].name, name, have < len ? have : len);
    return c ? c : have < len ? -1 : have > len;
}

/* The first place in sorted[] whose name is not below name[len]. */
static int lower_bound(const special_set *s, int n, const char *name, size_t len) {
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (special_compare(s, s->sorted[mid], name, len) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Sorts the names; two equal ones are an error. */
static status index_names(special_set *s, err *e) {
    for (int i = 0; i < SPECIAL_SLOTS; i++) {
        const char *name = s->slot[i].name;
        int to = lower_bound(s, i, name, s->slot[i].len);
        if (to < i && !special_compare(s, s->sorted[to], name, s->slot[i].len))
            return err_set(e, ST_FORMAT, "ids %d and %d have the same name \"%s\"", s->first + s->sorted[to],
                           s->first + i, name);
        memmove(s->sorted + to + 1, s->sorted + to, (size_t)(i - to));
        s->sorted[to] = (u8)i;
        s->begins[(u8)name[0]] = true;
    }
    return ST_OK;
}

static status read_config(special_set *s, const json_t *config, err *e) {
    const json_t *entries = json_object_get(config, "added_tokens_decoder");
    if (!json_is_object(entries)) return err_set(e, ST_FORMAT, "\"added_tokens_decoder\" is not an object");
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)entries, key, entry) {
        status st = read_entry(s, key, entry, e);
        if (st != ST_OK) return err_prefix(e, "added_tokens_decoder");
    }
    for (int i = 0; i < SPECIAL_SLOTS; i++) {
        if (s->slot[i].name) continue;
        char name[48];
        int n = snprintf(name, sizeof name, "<|reserved_token_%d|>", s->first + i);
        status st = set_name(s, i, name, (size_t)n, e);
        if (st != ST_OK) return st;
    }
    return index_names(s, e);
}

status special_read(special_set *s, i32 first_id, const char *text, size_t len, const char *what, err *e) {
    if (first_id > INT32_MAX - SPECIAL_SLOTS) return err_set(e, ST_LIMIT, "%s: ids beyond 2^31", what);
    json_t *config = json_parse(text, len, what, e);
    if (!config) return e ? e->code : ST_FORMAT;
    s->first = first_id;
    status st = read_config(s, config, e);
    json_decref(config);
    return st == ST_OK ? st : err_prefix(e, "%s", what);
}

void special_free(special_set *s) {
    for (int i = 0; i < SPECIAL_SLOTS; i++) free(s->slot[i].name);
    memset(s, 0, sizeof *s);
}

int special_find(const special_set *s, const char *name, size_t len) {
    int i = lower_bound(s, SPECIAL_SLOTS, name, len);
    return i < SPECIAL_SLOTS && !special_compare(s, s->sorted[i], name, len) ? s->sorted[i] : -1;
}

/* The byte of a name at `depth`, -1 where it has ended. */
static int byte_at(const special_set *s, int i, u32 depth) {
    int slot = s->sorted[i];
    return depth < s->slot[slot].len ? (u8)s->slot[slot].name[depth] : -1;
}

/* The longest name that text[len] begins with, or -1: the names that share the bytes read so far are
 * sorted[lo .. hi), narrowed byte by byte. */
static int match_here(const special_set *s, const u8 *text, size_t len) {
    int lo = 0, hi = SPECIAL_SLOTS, found = -1;
    for (u32 depth = 0;; depth++) {
        if (byte_at(s, lo, depth) < 0) found = s->sorted[lo++]; /* ended here: first among its extensions */
        if (lo == hi || depth == len) return found;
        for (int a = lo, b = hi; a < b;) {
            int mid = (a + b) / 2;
            if (byte_at(s, mid, depth) < text[depth])
                lo = a = mid + 1;
            else
                b = mid;
        }
        for (int a = lo, b = hi; a < b;) {
            int mid = (a + b) / 2;
            if (byte_at(s, mid, depth) > text[depth])
                hi = b = mid;
            else
                a = mid + 1;
        }
        if (lo == hi) return found;
    }
}

int special_search(const special_set *s, const u8 *text, size_t len, size_t *at) {
    for (size_t i = 0; i < len; i++) {
        if (!s->begins[text[i]]) continue;
        int slot = match_here(s, text + i, len - i);
        if (slot >= 0) return *at = i, slot;
    }
    return -1;
}
