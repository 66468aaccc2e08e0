/* text/grammar/structural_tag.c: formats to nodes.
 *
 * What may be of any length knows the strings at which the tag around it ends. If one of them must follow, it is part
 * of the same node: free text ends with the first one, wherever that is. */
#include "text/grammar/structural_tag.h"
#include "base/log.h"
#include "text/grammar/ebnf.h"
#include "text/grammar/free_text.h"
#include "text/grammar/json_schema.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a format stands, for errors. */
typedef struct tag_place {
    const struct tag_place *above;
    const char *key; /* NULL: an index */
    size_t index;
} tag_place;

typedef struct {
    grammar *g;
    bool strict;
    compile_limit limit; /* of all schemas together */
    u64 bytes;           /* that their automata take */
    buf *warnings;
    err *e;
    status st; /* the first failure, whose text is in e */
} tag_compiler;

/* What stands behind a format: the nearest tag's "end" (a string or a list; NULL: none), which free text is without;
 * `here`: it comes right behind, and is part of the format's node. */
typedef struct {
    const json_t *end;
    bool here;
} tag_end;

static void write_place(const tag_place *at, buf *out) {
    if (!at) return;
    write_place(at->above, out);
    if (at->key)
        buf_fmt(out, "/%s", at->key);
    else
        buf_fmt(out, "/%zu", at->index);
}

static void name_format(tag_compiler *c, const tag_place *at) {
    buf place = {0};
    write_place(at, &place);
    err_prefix(c->e, "structural tag, at #%.*s", (int)place.len, place.len ? place.data : "");
    buf_free(&place);
}

__attribute__((format(printf, 4, 5))) static i32 tag_fails(tag_compiler *c, const tag_place *at, status st,
                                                           const char *fmt, ...) {
    char text[300];
    va_list args;
    if (c->st != ST_OK) return NODE_NONE;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->st = err_set(c->e, st, "%s", text);
    name_format(c, at);
    return NODE_NONE;
}

/* What a part has said of itself. */
static i32 tag_passes(tag_compiler *c, const tag_place *at, status st, i32 node) {
    if (st == ST_OK || c->st != ST_OK) return node;
    c->st = st;
    name_format(c, at);
    return NODE_NONE;
}

/* ---- fields ---- */

/* keys: all that the format may have beside "type", with a blank behind each. */
static void check_fields(tag_compiler *c, const tag_place *at, const json_t *f, const char *keys) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)f, key, value) {
        const size_t n = strlen(key);
        bool known = !strcmp(key, "type");
        for (const char *k = keys; *k && !known; k = strchr(k, ' ') + 1) known = !strncmp(k, key, n) && k[n] == ' ';
        if (!known && !json_is_null(value)) tag_fails(c, at, ST_UNSUPPORTED, "\"%.80s\" is not supported here", key);
    }
}

static const char *tag_text_field(tag_compiler *c, const tag_place *at, const json_t *f, const char *key) {
    const json_t *v = json_object_get(f, key);
    if (json_is_string(v)) return json_string_value(v);
    tag_fails(c, at, ST_INPUT, "\"%s\" is %s, no string", key, json_type_text(v));
    return "";
}

static bool flag_field(tag_compiler *c, const tag_place *at, const json_t *f, const char *key, bool none) {
    const json_t *v = json_object_get(f, key);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        tag_fails(c, at, ST_INPUT, "\"%s\" is neither true nor false", key);
    return json_is_boolean(v) ? json_is_true(v) : none;
}

static const json_t *list_field(tag_compiler *c, const tag_place *at, const json_t *f, const char *key) {
    const json_t *v = json_object_get(f, key);
    if (!json_is_array(v) || !json_array_size(v)) tag_fails(c, at, ST_INPUT, "\"%s\" is no list, or empty", key);
    return v;
}

/* ---- ends and free text ---- */

static size_t end_count(const json_t *end) { return json_is_string(end) ? 1 : json_array_size(end); }
static const json_t *end_at(const json_t *end, size_t i) { return json_is_string(end) ? end : json_array_get(end, i); }

static i32 exact_text(tag_compiler *c, const json_t *v) {
    return grammar_exact(c->g, json_string_value(v), json_string_length(v));
}

static i32 end_node(tag_compiler *c, const json_t *end) {
    ids_buf all = {0};
    for (size_t i = 0; i < end_count(end); i++) ids_add(&all, exact_text(c, end_at(end, i)));
    if (all.failed) tag_fails(c, NULL, ST_NOMEM, "out of host memory");
    const i32 node = grammar_alt(c->g, all.data, (i32)all.len);
    ids_free(&all);
    return node;
}

/* A node, and the end behind it if it comes here. */
static i32 then_end(tag_compiler *c, i32 node, tag_end end) {
    if (!end.here || !end.end) return node;
    return grammar_seq(c->g, (const i32[]){node, end_node(c, end.end)}, 2);
}

/* Strings that end free text. Groups: those of rules from 0 on, and: */
enum { GROUP_NONE = -1 /* no stop: all text */, GROUP_EXCLUDED = -2, GROUP_END = -3 };
typedef struct {
    free_stop *of;
    size_t n, cap;
} free_stops;

static void add_text_stop(tag_compiler *c, const tag_place *at, free_stops *s, const json_t *v, i32 group) {
    if (!json_string_length(v)) {
        tag_fails(c, at, ST_INPUT, "what ends or must not be in free text is %s, or empty", json_type_text(v));
        return;
    }
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 16;
        free_stop *more = realloc(s->of, cap * sizeof *more);
        if (!more) {
            tag_fails(c, at, ST_NOMEM, "out of host memory");
            return;
        }
        s->of = more, s->cap = cap;
    }
    s->of[s->n++] = (free_stop){json_string_value(v), json_string_length(v), group};
}

/* Those of any free text: the format's "excludes" and the tag's end. */
static free_stops common_stops(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end) {
    const json_t *excludes = json_object_get(f, "excludes"), *v;
    free_stops s = {0};
    size_t i;
    if (excludes && !json_is_null(excludes) && !json_is_array(excludes))
        tag_fails(c, at, ST_INPUT, "\"excludes\" is no list");
    json_array_foreach(excludes, i, v) add_text_stop(c, at, &s, v, GROUP_EXCLUDED);
    for (i = 0; i < end_count(end.end); i++) add_text_stop(c, at, &s, end_at(end.end, i), GROUP_END);
    return s;
}

/* Numbers less than 0 mean something here, and "no stop" there. */
static i32 free_text_of(tag_compiler *c, const tag_place *at, const free_stops *s, i32 group) {
    i32 node = NODE_NONE;
    free_stop *stops = c->st == ST_OK ? malloc((s->n + 1) * sizeof *stops) : NULL;
    if (!stops) return tag_fails(c, at, ST_NOMEM, "out of host memory");
    for (size_t i = 0; i < s->n; i++) {
        stops[i] = s->of[i];
        stops[i].group = group != GROUP_NONE && s->of[i].group == group;
    }
    const status st = free_text_node(c->g, stops, s->n, group == GROUP_NONE ? -1 : 1, &node, c->e);
    free(stops);
    return tag_passes(c, at, st, node);
}

/* Free text to its end: with the tag's end, or any. */
static i32 last_text(tag_compiler *c, const tag_place *at, const free_stops *s, tag_end end) {
    return free_text_of(c, at, s, end.here && end.end ? GROUP_END : GROUP_NONE);
}

/* ---- formats ---- */

static i32 format_node(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end);
static i32 child_node(tag_compiler *c, const tag_place *at, const json_t *f, const char *key, tag_end end) {
    const tag_place here = {at, key, 0};
    return format_node(c, &here, json_object_get(f, key), end);
}

enum { TAGS_SECONDS = 2, TAGS_MIB = 256 };

/* Automata from number `first` on are new. */
static void count_automata(tag_compiler *c, const tag_place *at, i32 first) {
    for (i32 i = first; i < c->g->n_dfas; i++) c->bytes += dfa_bytes(c->g->dfas[i]);
    if (c->bytes >> 20 >= TAGS_MIB) tag_fails(c, at, ST_LIMIT, "the schemas together take more than %d MiB", TAGS_MIB);
}

static i32 schema_format(tag_compiler *c, const tag_place *at, const json_t *f) {
    buf passed_over = {0}, place = {0};
    const schema_options o = {
        .unknown_are_annotations = !c->strict, .limit = &c->limit, .passed_over = c->strict ? NULL : &passed_over};
    const i32 n_dfas = c->g->n_dfas;
    const json_t *style = json_object_get(f, "style");
    i32 node = NODE_NONE;
    if (style && !json_is_null(style) && strcmp(tag_text_field(c, at, f, "style"), "json") != 0)
        return tag_fails(c, at, ST_UNSUPPORTED, "\"style\" other than \"json\"");
    const status st = schema_to_node(c->g, json_object_get(f, "json_schema"), &o, &node, c->e);
    write_place(at, &place);
    if (st == ST_OK && passed_over.len && c->warnings)
        buf_fmt(c->warnings, "structural tag, at #%s: passed over: %s\n", place.data, passed_over.data);
    buf_free(&passed_over), buf_free(&place);
    if (st == ST_OK) count_automata(c, at, n_dfas);
    return tag_passes(c, at, st, node);
}

static i32 any_text_format(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end) {
    free_stops s = common_stops(c, at, f, end);
    const i32 node = last_text(c, at, &s, end);
    free(s.of);
    return node;
}

/* The end is behind the last element; of alternatives behind each. */
static i32 elements_format(tag_compiler *c, const tag_place *at, const json_t *f, bool sequence, tag_end end) {
    const json_t *elements = list_field(c, at, f, "elements"), *one;
    const tag_place list = {at, "elements", 0};
    ids_buf all = {0};
    size_t i;
    json_array_foreach(elements, i, one) {
        const bool last = !sequence || i + 1 == json_array_size(elements);
        const tag_place here = {&list, NULL, i};
        if (c->st == ST_OK) ids_add(&all, format_node(c, &here, one, (tag_end){end.end, end.here && last}));
    }
    if (all.failed) tag_fails(c, at, ST_NOMEM, "out of host memory");
    const i32 n = (i32)all.len, node = sequence ? grammar_seq(c->g, all.data, n) : grammar_alt(c->g, all.data, n);
    ids_free(&all);
    return node;
}

enum { REPEATS_MAX = 1000000000, RULE_BYTES_MAX = 1 << 17 /* times rules */ };

/* What repeats itself ends before its end. */
static i32 repeat_format(tag_compiler *c, const tag_place *at, const json_t *f, const json_t *end, i64 min, i64 max) {
    const i32 child = child_node(c, at, f, "content", (tag_end){end, false});
    return c->st == ST_OK ? grammar_repeat(c->g, child, min, max) : NODE_NONE;
}

static i32 counted_format(tag_compiler *c, const tag_place *at, const json_t *f, const json_t *end) {
    const json_t *least = json_object_get(f, "min"), *most = json_object_get(f, "max");
    const i64 min = json_integer_value(least), max = json_integer_value(most);
    if (!json_is_integer(least) || !json_is_integer(most) || min < 0 || (max != -1 && max < min) || min > REPEATS_MAX ||
        max > REPEATS_MAX)
        return tag_fails(c, at, ST_INPUT, "\"min\" and \"max\" are no counts");
    return repeat_format(c, at, f, end, min, max == -1 ? UNBOUNDED : max);
}

/* ---- tags ---- */

static const char *tag_begin(tag_compiler *c, const tag_place *at, const json_t *tag) {
    const json_t *type = json_object_get(tag, "type"), *begin = json_object_get(tag, "begin");
    if (!json_is_object(tag) || (type && (!json_is_string(type) || strcmp(json_string_value(type), "tag") != 0)))
        tag_fails(c, at, ST_INPUT, "it is no tag");
    check_fields(c, at, tag, "begin content end ");
    if (json_is_object(begin)) tag_fails(c, at, ST_UNSUPPORTED, "\"begin\" that is a token");
    return tag_text_field(c, at, tag, "begin");
}

/* An end of no text is none. */
static const json_t *tag_own_end(tag_compiler *c, const tag_place *at, const json_t *tag) {
    const json_t *end = json_object_get(tag, "end");
    size_t empty = 0;
    if (json_is_object(end)) return tag_fails(c, at, ST_UNSUPPORTED, "\"end\" that is a token"), NULL;
    if (!end_count(end)) return tag_fails(c, at, ST_INPUT, "\"end\" is no string and no list of strings"), NULL;
    for (size_t i = 0; i < end_count(end); i++) {
        if (!json_is_string(end_at(end, i))) return tag_fails(c, at, ST_INPUT, "\"end\" is no list of strings"), NULL;
        empty += !json_string_length(end_at(end, i));
    }
    if (empty && empty < end_count(end)) tag_fails(c, at, ST_UNSUPPORTED, "\"end\" that may be empty or not");
    return empty ? NULL : end;
}

/* What stands behind its begin. */
static i32 tag_rest(tag_compiler *c, const tag_place *at, const json_t *tag) {
    tag_begin(c, at, tag);
    const json_t *end = tag_own_end(c, at, tag);
    return c->st == ST_OK ? child_node(c, at, tag, "content", (tag_end){end, true}) : NODE_NONE;
}

/* skip: bytes of the begin that have been read. */
static i32 tag_behind(tag_compiler *c, const json_t *tag, size_t skip, i32 rest) {
    const json_t *begin = json_object_get(tag, "begin");
    const i32 text = grammar_exact(c->g, json_string_value(begin) + skip, json_string_length(begin) - skip);
    return grammar_seq(c->g, (const i32[]){text, rest}, 2);
}

/* The nodes of a list of tags, behind their begins; the caller's to free. NULL: it failed. */
static i32 *tag_rests(tag_compiler *c, const tag_place *at, const json_t *tags) {
    const tag_place list = {at, "tags", 0};
    const json_t *tag;
    size_t i;
    i32 *rests = malloc((json_array_size(tags) + 1) * sizeof *rests);
    if (!rests) tag_fails(c, at, ST_NOMEM, "out of host memory");
    json_array_foreach(tags, i, tag) {
        const tag_place here = {&list, NULL, i};
        if (c->st == ST_OK) rests[i] = tag_rest(c, &here, tag);
    }
    if (c->st != ST_OK) free(rests), rests = NULL;
    return rests;
}

static bool begins_with(const json_t *tag, const json_t *trigger) {
    const json_t *begin = json_object_get(tag, "begin");
    const size_t n = json_string_length(trigger);
    return json_string_length(begin) >= n && !memcmp(json_string_value(begin), json_string_value(trigger), n);
}

/* One of the tags that begin with `trigger` (NULL: with anything), behind it. */
static i32 tags_behind(tag_compiler *c, const json_t *tags, const i32 *rests, const json_t *trigger) {
    const size_t n = trigger ? json_string_length(trigger) : 0;
    const json_t *tag;
    ids_buf all = {0};
    size_t i;
    json_array_foreach(tags, i, tag) if (!trigger || begins_with(tag, trigger))
        ids_add(&all, tag_behind(c, tag, n, rests[i]));
    if (all.failed) tag_fails(c, NULL, ST_NOMEM, "out of host memory");
    const i32 node = grammar_alt(c->g, all.data, (i32)all.len);
    ids_free(&all);
    return node;
}

static i32 separated_format(tag_compiler *c, const tag_place *at, const json_t *f) {
    const json_t *tags = list_field(c, at, f, "tags"), *separator = json_object_get(f, "separator");
    const bool some = flag_field(c, at, f, "at_least_one", false),
               once = flag_field(c, at, f, "stop_after_first", false);
    tag_text_field(c, at, f, "separator");
    i32 *rests = tag_rests(c, at, tags);
    if (!rests) return NODE_NONE;
    const i32 tag = tags_behind(c, tags, rests, NULL);
    const i32 more = grammar_seq(c->g, (const i32[]){exact_text(c, separator), tag}, 2);
    const i32 list = once ? tag : grammar_seq(c->g, (const i32[]){tag, grammar_repeat(c->g, more, 0, UNBOUNDED)}, 2);
    free(rests);
    return some ? list : grammar_repeat(c->g, list, 0, 1);
}

/* ---- free text with structured parts ---- */

typedef struct {
    const json_t *stop; /* in free text, where it begins */
    i32 behind;
} text_rule;

/* first: what comes without free text before it, NODE_NONE: nothing must. loop: free text goes on behind a part. */
static i32 rules_node(tag_compiler *c, const tag_place *at, const json_t *f, const text_rule *rules, size_t n,
                      i32 first, bool loop, tag_end end) {
    free_stops s = common_stops(c, at, f, end);
    ids_buf all = {0};
    const i32 text = grammar_reserve(c->g);
    const i32 behind = loop ? text : then_end(c, grammar_seq(c->g, NULL, 0), end);
    for (size_t i = 0; i < n; i++) add_text_stop(c, at, &s, rules[i].stop, (i32)i);
    u64 bytes = 0;
    for (size_t i = 0; i < s.n; i++) bytes += s.of[i].len;
    if (bytes * n > RULE_BYTES_MAX) tag_fails(c, at, ST_LIMIT, "too many strings that begin something");
    if (c->st == ST_OK) ids_add(&all, last_text(c, at, &s, end));
    for (size_t i = 0; i < n && c->st == ST_OK; i++) {
        const i32 before = free_text_of(c, at, &s, (i32)i);
        ids_add(&all, grammar_seq(c->g, (const i32[]){before, rules[i].behind, behind}, 3));
    }
    if (all.failed) tag_fails(c, at, ST_NOMEM, "out of host memory");
    grammar_define(c->g, text, grammar_alt(c->g, all.data, (i32)all.len));
    ids_free(&all);
    free(s.of);
    return first == NODE_NONE ? text : grammar_seq(c->g, (const i32[]){first, behind}, 2);
}

/* Each tag begins with one trigger. */
static void check_triggers(tag_compiler *c, const tag_place *at, const json_t *triggers, const json_t *tags) {
    const json_t *trigger, *tag;
    size_t i, k;
    json_array_foreach(triggers, k, trigger) if (!json_string_length(trigger))
        tag_fails(c, at, ST_INPUT, "a trigger is %s, or empty", json_type_text(trigger));
    json_array_foreach(tags, i, tag) {
        size_t n = 0;
        json_array_foreach(triggers, k, trigger) n += c->st == ST_OK && begins_with(tag, trigger);
        if (n != 1) tag_fails(c, at, ST_INPUT, "tag %zu begins with %s trigger", i, n ? "more than one" : "no");
    }
}

static i32 triggered_format(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end) {
    const json_t *triggers = list_field(c, at, f, "triggers"), *tags = list_field(c, at, f, "tags"), *trigger;
    const bool some = flag_field(c, at, f, "at_least_one", false),
               once = flag_field(c, at, f, "stop_after_first", false);
    const size_t n = json_array_size(triggers);
    i32 *rests = c->st == ST_OK ? tag_rests(c, at, tags) : NULL, node = NODE_NONE;
    text_rule *rules = malloc((n + 1) * sizeof *rules);
    size_t i;
    if (!rules) tag_fails(c, at, ST_NOMEM, "out of host memory");
    if (c->st == ST_OK) check_triggers(c, at, triggers, tags);
    if (c->st == ST_OK) {
        json_array_foreach(triggers, i, trigger) rules[i] = (text_rule){trigger, tags_behind(c, tags, rests, trigger)};
        node = rules_node(c, at, f, rules, n, some ? tags_behind(c, tags, rests, NULL) : NODE_NONE, !once, end);
    }
    free(rests), free(rules);
    return node;
}

static i32 dispatch_format(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end) {
    const json_t *list = list_field(c, at, f, "rules"), *rule;
    const bool loop = flag_field(c, at, f, "loop", true);
    const tag_place here = {at, "rules", 0};
    const size_t n = json_array_size(list);
    text_rule *rules = malloc((n + 1) * sizeof *rules);
    i32 node = NODE_NONE;
    size_t i;
    if (!rules) tag_fails(c, at, ST_NOMEM, "out of host memory");
    json_array_foreach(list, i, rule) {
        const tag_place one = {&here, NULL, i}, second = {&one, NULL, 1};
        if (json_array_size(rule) != 2) tag_fails(c, &one, ST_INPUT, "it is no list of a string and a format");
        if (c->st != ST_OK) break;
        rules[i] = (text_rule){json_array_get(rule, 0),
                               format_node(c, &second, json_array_get(rule, 1), (tag_end){end.end, false})};
    }
    if (c->st == ST_OK) node = rules_node(c, at, f, rules, n, NODE_NONE, loop, end);
    free(rules);
    return node;
}

/* ---- all formats ---- */

typedef enum {
    FORMAT_TEXT,
    FORMAT_SCHEMA,
    FORMAT_REGEX,
    FORMAT_GRAMMAR,
    FORMAT_ANY,
    FORMAT_SEQUENCE,
    FORMAT_OR,
    FORMAT_OPTIONAL,
    FORMAT_STAR,
    FORMAT_PLUS,
    FORMAT_REPEAT,
    FORMAT_TAG,
    FORMAT_TRIGGERED,
    FORMAT_DISPATCH,
    FORMAT_SEPARATED,
    FORMATS
} format_kind;
static const struct {
    const char *name, *fields;
} formats[FORMATS] = {
    [FORMAT_TEXT] = {"const_string", "value "},
    [FORMAT_SCHEMA] = {"json_schema", "json_schema style any_order "},
    [FORMAT_REGEX] = {"regex", "pattern "},
    [FORMAT_GRAMMAR] = {"grammar", "grammar "},
    [FORMAT_ANY] = {"any_text", "excludes "},
    [FORMAT_SEQUENCE] = {"sequence", "elements "},
    [FORMAT_OR] = {"or", "elements "},
    [FORMAT_OPTIONAL] = {"optional", "content "},
    [FORMAT_STAR] = {"star", "content "},
    [FORMAT_PLUS] = {"plus", "content "},
    [FORMAT_REPEAT] = {"repeat", "content min max "},
    [FORMAT_TAG] = {"tag", "begin content end "},
    [FORMAT_TRIGGERED] = {"triggered_tags", "triggers tags at_least_one stop_after_first excludes "},
    [FORMAT_DISPATCH] = {"dispatch", "rules loop excludes "},
    [FORMAT_SEPARATED] = {"tags_with_separator", "tags separator at_least_one stop_after_first "},
};

static format_kind kind_of(tag_compiler *c, const tag_place *at, const json_t *f) {
    const char *type = json_string_value(json_object_get(f, "type"));
    int k = 0;
    while (type && k < FORMATS && strcmp(formats[k].name, type) != 0) k++;
    if (!type)
        k = FORMATS, tag_fails(c, at, ST_INPUT, "it is no format");
    else if (k == FORMATS)
        tag_fails(c, at, ST_UNSUPPORTED, "format \"%.80s\" is not supported", type);
    else
        check_fields(c, at, f, formats[k].fields);
    return (format_kind)k;
}

/* Formats of one text. */
static i32 text_format(tag_compiler *c, const tag_place *at, const json_t *f, const char *key,
                       status (*to_node)(grammar *, const char *, size_t, i32 *, err *)) {
    const char *text = tag_text_field(c, at, f, key);
    i32 node = NODE_NONE;
    if (c->st != ST_OK) return NODE_NONE;
    if (!to_node) return exact_text(c, json_object_get(f, key));
    const status st = to_node(c->g, text, json_string_length(json_object_get(f, key)), &node, c->e);
    return tag_passes(c, at, st, node);
}

static i32 tag_format(tag_compiler *c, const tag_place *at, const json_t *f) {
    const i32 rest = tag_rest(c, at, f);
    return c->st == ST_OK ? tag_behind(c, f, 0, rest) : NODE_NONE;
}

static i32 format_node(tag_compiler *c, const tag_place *at, const json_t *f, tag_end end) {
    const format_kind kind = c->st == ST_OK ? kind_of(c, at, f) : FORMATS;
    i32 node = NODE_NONE;
    if (c->st != ST_OK) return NODE_NONE;
    switch (kind) {
    case FORMAT_TEXT: node = text_format(c, at, f, "value", NULL); break;
    case FORMAT_REGEX: node = text_format(c, at, f, "pattern", regex_to_node); break;
    case FORMAT_GRAMMAR: node = text_format(c, at, f, "grammar", ebnf_to_node); break;
    case FORMAT_SCHEMA: node = schema_format(c, at, f); break;
    case FORMAT_ANY: return any_text_format(c, at, f, end);
    case FORMAT_SEQUENCE: return elements_format(c, at, f, true, end);
    case FORMAT_OR: return elements_format(c, at, f, false, end);
    case FORMAT_OPTIONAL: node = repeat_format(c, at, f, end.end, 0, 1); break;
    case FORMAT_STAR: node = repeat_format(c, at, f, end.end, 0, UNBOUNDED); break;
    case FORMAT_PLUS: node = repeat_format(c, at, f, end.end, 1, UNBOUNDED); break;
    case FORMAT_REPEAT: node = counted_format(c, at, f, end.end); break;
    case FORMAT_TAG: node = tag_format(c, at, f); break;
    case FORMAT_TRIGGERED: return triggered_format(c, at, f, end);
    case FORMAT_DISPATCH: return dispatch_format(c, at, f, end);
    case FORMAT_SEPARATED: node = separated_format(c, at, f); break;
    case FORMATS: break;
    }
    return c->st == ST_OK ? then_end(c, node, end) : NODE_NONE;
}

/* The older form as the newer one. NULL: out of memory, or it failed. */
static json_t *newer_format(tag_compiler *c, const json_t *tag) {
    const tag_place at = {NULL, "structures", 0};
    const json_t *structures = list_field(c, NULL, tag, "structures"), *one;
    json_t *tags = json_array();
    size_t i;
    json_array_foreach(structures, i, one) {
        const tag_place here = {&at, NULL, i};
        check_fields(c, &here, one, "begin schema end ");
        json_t *made = json_pack("{s:O?, s:O?, s:{s:s, s:O?}}", "begin", json_object_get(one, "begin"), "end",
                                 json_object_get(one, "end"), "content", "type", "json_schema", "json_schema",
                                 json_object_get(one, "schema"));
        if (!made || json_array_append_new(tags, made)) tag_fails(c, NULL, ST_NOMEM, "out of host memory");
    }
    json_t *format = json_pack("{s:s, s:o, s:O?}", "type", "triggered_tags", "tags", tags, "triggers",
                               json_object_get(tag, "triggers"));
    if (!format) tag_fails(c, NULL, ST_NOMEM, "out of host memory");
    return format;
}

status structural_tag_to_node(grammar *g, const json_t *tag, bool strict, const atomic_bool *stop, buf *warnings,
                              i32 *node, err *e) {
    err own = {0};
    const compile_limit limit = {TAGS_SECONDS, thread_s() + TAGS_SECONDS, stop};
    tag_compiler c = {.g = g, .limit = limit, .strict = strict, .warnings = warnings, .e = e ? e : &own};
    const tag_place at = {NULL, "format", 0};
    *node = NODE_NONE;
    if (!json_is_object(tag)) return err_set(e, ST_INPUT, "structural tag: %s, no object", json_type_text(tag));
    if (json_object_get(tag, "structures")) {
        check_fields(&c, NULL, tag, "structures triggers ");
        json_t *format = newer_format(&c, tag);
        *node = c.st == ST_OK ? format_node(&c, NULL, format, (tag_end){NULL, false}) : NODE_NONE;
        json_decref(format);
    } else {
        check_fields(&c, NULL, tag, "format ");
        if (c.st == ST_OK) *node = format_node(&c, &at, json_object_get(tag, "format"), (tag_end){NULL, false});
    }
    if (c.st == ST_OK && g->failed.code != ST_OK) *c.e = g->failed, tag_passes(&c, NULL, g->failed.code, NODE_NONE);
    return c.st;
}
