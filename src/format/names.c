#include "format/names.h"
#include <stdlib.h>
#include <string.h>

/* Eight bytes a step; the names of a checkpoint differ in few digits, which the multiplication spreads. */
static u64 hash(const char *s) {
    size_t n = strlen(s);
    u64 h = n * 0x9e3779b97f4a7c15u, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9fb21c651e98df25u;
        h ^= h >> 32;
    }
    w = 0;
    memcpy(&w, s, n);
    h = (h ^ w) * 0x9fb21c651e98df25u;
    return h ^ h >> 32;
}

static const char *name_at(const name_table *t, u64 i) {
    return *(const char *const *)(const void *)((const char *)t->items + i * t->stride);
}

/* The slot that holds `name`, or the free one where it belongs. */
static u64 names_slot_of(const name_table *t, const char *name) {
    u64 h = hash(name) & t->mask;
    while (t->slots[h] && strcmp(name_at(t, t->slots[h] - 1), name) != 0) h = (h + 1) & t->mask;
    return h;
}

bool names_build(name_table *t, const void *items, size_t stride, u64 n, i64 *twice) {
    *t = (name_table){.items = items, .stride = stride};
    *twice = -1;
    if (n > NAMES_MAX) return false;
    u64 size = 16;
    while (size < 2 * n) size *= 2;
    t->slots = calloc(size, sizeof *t->slots);
    if (!t->slots) return false;
    t->mask = size - 1;
    for (u64 i = 0; i < n; i++) {
        u64 h = names_slot_of(t, name_at(t, i));
        if (!t->slots[h])
            t->slots[h] = (u32)i + 1;
        else if (*twice < 0)
            *twice = (i64)i;
    }
    return true;
}

i64 names_find(const name_table *t, const char *name) {
    if (!t->slots) return -1;
    return (i64)t->slots[names_slot_of(t, name)] - 1;
}

void names_free(name_table *t) {
    free(t->slots);
    *t = (name_table){0};
}
