#include "model/expert_placement.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/ops.h"
#include <stdlib.h>
#include <string.h>

enum { PLACEMENT_BYTES_MAX = 256 << 20 };

static status placement_open(expert_placement *p, i64 layers, i64 experts, i64 groups, i64 redundant, err *e) {
    const i64 slots = experts + redundant;
    *p = (expert_placement){.layers = layers, .experts = experts, .groups = groups, .held = slots / groups};
    if (slots % groups)
        return err_set(e, ST_INPUT, "--ep %lld: %lld experts%s cannot be divided so", (long long)groups,
                       (long long)slots, redundant ? " and copies" : "");
    if (p->held > experts)
        return err_set(e, ST_INPUT,
                       "--ep-num-redundant-experts %lld: each of %lld groups would have %lld of %lld "
                       "experts, some twice",
                       (long long)redundant, (long long)groups, (long long)p->held, (long long)experts);
    if (groups > EXPERT_COPIES_MAX || p->held > EXPERT_SLOTS_MAX)
        return err_set(e, ST_INPUT, "--ep %lld: at most %d groups of %d experts", (long long)groups, EXPERT_COPIES_MAX,
                       EXPERT_SLOTS_MAX);
    const u64 bytes = (u64)(layers * slots) * sizeof *p->slots;
    p->slots = calloc(1, bytes);
    return p->slots ? ST_OK : err_nomem(e, "the experts' places", bytes);
}

status expert_placement_plain(expert_placement *p, i64 layers, i64 experts, i64 groups, i64 redundant, err *e) {
    status st = placement_open(p, layers, experts, groups, redundant, e);
    if (st != ST_OK) return st;
    if (!redundant) {
        for (i64 i = 0; i < layers * experts; i++) p->slots[i] = (i32)(i % experts);
        return ST_OK;
    }
    i64 *even = malloc((u64)(layers * experts) * sizeof *even);
    if (!even) return err_nomem(e, "the experts' places", (u64)(layers * experts) * sizeof *even);
    for (i64 i = 0; i < layers * experts; i++) even[i] = 1;
    st = expert_placement_balance(p, even, e);
    free(even);
    return st;
}

void expert_placement_free(expert_placement *p) {
    free(p->slots);
    *p = (expert_placement){0};
}

static int slots_by_number(const void *a, const void *b) { return *(const i32 *)a - *(const i32 *)b; }

static bool group_holds(const expert_placement *p, i64 layer, i64 group, i32 expert) {
    const i32 *s = expert_placement_of(p, layer, group);
    for (i64 i = 0; i < p->held; i++)
        if (s[i] == expert) return true;
    return false;
}

/* In how many groups an expert is, and in how many before `group`. */
static i64 copies_of(const expert_placement *p, i64 layer, i32 expert, i64 group, i64 *before) {
    i64 n = 0;
    for (i64 g = 0; g < p->groups; g++) {
        if (g == group) *before = n;
        n += group_holds(p, layer, g, expert);
    }
    return n;
}

f64 expert_placement_most(const expert_placement *p, i64 layer, const i64 *counts) {
    f64 most = 0, all = 0;
    for (i64 g = 0; g < p->groups; g++) {
        const i32 *s = expert_placement_of(p, layer, g);
        f64 load = 0;
        i64 unused;
        for (i64 i = 0; i < p->held; i++) load += (f64)counts[s[i]] / (f64)copies_of(p, layer, s[i], g, &unused);
        all += load;
        most = load > most ? load : most;
    }
    return all > 0 ? most / all : 1.0 / (f64)p->groups;
}

void expert_placement_routes(const expert_placement *p, i64 layer, i64 group, i32 *routes) {
    const i32 *s = expert_placement_of(p, layer, group);
    for (i64 x = 0; x < p->experts; x++) routes[x] = EXPERT_ELSEWHERE;
    for (i64 i = 0; i < p->held; i++) {
        i64 before = 0;
        const i64 copies = copies_of(p, layer, s[i], group, &before);
        routes[s[i]] = expert_route(i, copies, (before + s[i] + layer) % copies); /* not all first ones at row 0 */
    }
}

/* ---- a file ---- */

static status bad_row(const char *what, const char *key, i64 layer, const char *why, err *e) {
    return err_set(e, ST_INPUT, "%s: \"%s\" of layer %lld: %s", what, key, (long long)layer, why);
}

static status check_layers(const json_t *rows, const char *what, const char *key, i64 layers, err *e) {
    if (json_is_array(rows) && (i64)json_array_size(rows) == layers) return ST_OK;
    return err_set(e, ST_INPUT, "%s: \"%s\" is no list of %lld layers", what, key, (long long)layers);
}

/* n whole numbers from 0 to most. */
static status read_row(const json_t *row, const char *what, const char *key, i64 layer, i64 n, i64 most, i64 *out,
                       err *e) {
    if (!json_is_array(row) || (i64)json_array_size(row) != n) {
        err_set(e, ST_INPUT, "%s: \"%s\" of layer %lld is no list of %lld numbers", what, key, (long long)layer,
                (long long)n);
        return ST_INPUT;
    }
    for (i64 i = 0; i < n; i++) {
        const json_t *v = json_array_get(row, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most)
            return err_set(e, ST_INPUT,
                           "%s: \"%s\" of layer %lld, number %lld: a whole number from 0 to %lld is wanted", what, key,
                           (long long)layer, (long long)i, (long long)most);
        out[i] = json_integer_value(v);
    }
    return ST_OK;
}

static status parse_slots(expert_placement *p, const json_t *rows, const char *what, const char *key, err *e) {
    const i64 n = p->groups * p->held;
    i64 *row = malloc((u64)(n + p->experts) * sizeof *row), *seen = row + n;
    status st =
        row ? check_layers(rows, what, key, p->layers, e) : err_nomem(e, "the experts' places", (u64)n * sizeof *row);
    for (i64 l = 0; st == ST_OK && l < p->layers; l++) {
        st = read_row(json_array_get(rows, (size_t)l), what, key, l, n, p->experts - 1, row, e);
        if (st != ST_OK) break;
        memset(seen, 0, (u64)p->experts * sizeof *seen);
        for (i64 i = 0; i < n; i++) p->slots[l * n + i] = (i32)row[i], seen[row[i]]++;
        for (i64 x = 0; st == ST_OK && x < p->experts; x++)
            if (!seen[x]) st = bad_row(what, key, l, "an expert is missing", e);
        for (i64 g = 0; g < p->groups; g++) {
            i32 *own = p->slots + l * n + g * p->held;
            qsort(own, (size_t)p->held, sizeof *own, slots_by_number);
            for (i64 i = 1; st == ST_OK && i < p->held; i++)
                if (own[i] == own[i - 1]) st = bad_row(what, key, l, "a group has an expert twice", e);
        }
    }
    free(row);
    return st;
}

static status parse_counts(expert_placement *p, const json_t *rows, const char *what, const char *key, err *e) {
    /* SGLang's recorder writes a list of such tables, one for each of its intervals */
    const bool several = json_is_array(json_array_get(json_array_get(rows, 0), 0));
    const i64 tables = several ? (i64)json_array_size(rows) : 1, n = p->layers * p->experts;
    const u64 bytes = (u64)(n + p->experts) * sizeof(i64);
    i64 *sum = calloc(1, bytes), *row = sum + n;
    status st = sum ? ST_OK : err_nomem(e, "experts' counts", bytes);
    for (i64 t = 0; st == ST_OK && t < tables; t++) {
        const json_t *table = several ? json_array_get(rows, (size_t)t) : rows;
        st = check_layers(table, what, key, p->layers, e);
        for (i64 l = 0; st == ST_OK && l < p->layers; l++) {
            st = read_row(json_array_get(table, (size_t)l), what, key, l, p->experts, (i64)1 << 40, row, e);
            for (i64 x = 0; st == ST_OK && x < p->experts; x++) sum[l * p->experts + x] += row[x];
        }
    }
    if (st == ST_OK) st = expert_placement_balance(p, sum, e);
    free(sum);
    return st;
}

status expert_placement_parse(expert_placement *p, const char *json, size_t len, const char *what, i64 layers,
                              i64 experts, i64 groups, i64 redundant, err *e) {
    *p = (expert_placement){0};
    json_t *o = json_parse(json, len, what, e);
    if (!o) return ST_INPUT;
    const char *key = "physical_to_logical_map", *counts = "logical_count";
    const json_t *slots = json_object_get(o, key), *count = json_object_get(o, counts);
    if (slots && count) {
        json_decref(o);
        return err_set(e, ST_INPUT, "%s has both \"%s\" and \"%s\"", what, key, counts);
    }
    status st = slots || count ? placement_open(p, layers, experts, groups, redundant, e)
                               : err_set(e, ST_INPUT, "%s has neither \"%s\" nor \"%s\"", what, key, counts);
    if (st == ST_OK) st = slots ? parse_slots(p, slots, what, key, e) : parse_counts(p, count, what, counts, e);
    json_decref(o);
    return st;
}

status expert_placement_load(expert_placement *p, const char *path, i64 layers, i64 experts, i64 groups, i64 redundant,
                             err *e) {
    buf text = {0};
    *p = (expert_placement){0};
    status st = file_read(path, PLACEMENT_BYTES_MAX, &text, e);
    if (st == ST_OK) st = expert_placement_parse(p, text.data, text.len, path, layers, experts, groups, redundant, e);
    buf_free(&text);
    return st;
}
