/* Two steps, because a reference may be printed only when its definition was seen before it: ts_parse builds
 * a tree of ts_type out of the schema (ts_schema.c) and registers $defs in the order the original does; then
 * ts_print walks the tree (this file). */
#include "text/ts_tools.h"
#include "text/ts_schema.h"
#include "text/pyjson.h"
#include <string.h>

/* Text that goes to *b in the end: it may not become longer than what *b still takes. */
static buf ts_tools_part_of(const buf *b) { return (buf){.max = b->max ? b->max - b->len + 1 : 0}; }

/* Takes the part over; a part that was cut is a *b that is cut. */
static void add_part(buf *b, buf *part) {
    buf_add(b, part->data, part->len);
    b->failed |= part->failed;
    b->full |= part->full;
    buf_free(part);
}

static void indent_by(buf *b, int depth) {
    for (int i = 0; i < depth; i++) buf_str(b, "  ");
}

/* Every line behind "// "; an empty line stays empty. A description that is no string is Python's
 * AttributeError. */
static bool print_description(ts_parser *p, buf *b, const json_t *description, int depth, bool newline) {
    if (!py_truthy(description)) return true;
    if (!json_is_string(description)) return ts_fail(p, "a description is not a string");
    const char *s = json_string_value(description), *end = s + json_string_length(description);
    for (;;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((stop ? stop : end) - s);
        if (n) {
            indent_by(b, depth);
            buf_str(b, "// ");
            buf_add(b, s, n);
        }
        if (!stop || b->failed) break;
        buf_char(b, '\n');
        s = stop + 1;
    }
    if (newline) buf_char(b, '\n');
    return true;
}

/* "// maximum: 5, minimum: 1": the constraints that the type's kind allows, names sorted. */
static void print_constraints(buf *b, const ts_type *t, int depth) {
    static const char *const strings[] = {"maxLength", "minLength", "pattern", NULL};
    static const char *const numbers[] = {"maximum", "minimum", NULL};
    static const char *const arrays[] = {"maxItems", "minItems", NULL};
    const char *word = t->kind == TS_WORD && t->word ? json_string_value(t->word) : NULL;
    const char *const *names = NULL;
    if (t->kind == TS_ARRAY)
        names = arrays;
    else if (word && !strcmp(word, "string"))
        names = strings;
    else if (word && (!strcmp(word, "number") || !strcmp(word, "integer")))
        names = numbers;
    bool any = false;
    for (; names && *names; names++) {
        const json_t *v = json_object_get(t->schema, *names);
        if (!v) continue;
        if (!any) indent_by(b, depth);
        buf_fmt(b, "%s%s: ", any ? ", " : "// ", *names);
        py_str(b, v);
        any = true;
    }
    if (any) buf_char(b, '\n');
}

static bool print_comments(ts_parser *p, buf *b, const ts_type *t, int depth) {
    if (!t->schema) return true;
    if (!print_description(p, b, json_object_get(t->schema, "description"), depth, true)) return false;
    print_constraints(b, t, depth);
    return true;
}

static bool print_type(ts_parser *p, buf *b, const ts_type *t, int depth, bool joined);

static bool print_field(ts_parser *p, buf *b, const ts_field *f, int depth) {
    if (!print_comments(p, b, f->type, depth)) return false;
    if (f->value && !json_is_null(f->value)) {
        indent_by(b, depth);
        buf_str(b, "// Default: ");
        if (json_is_number(f->value) || json_is_boolean(f->value))
            py_repr(b, f->value);
        else
            py_dumps(b, f->value, ", ", ": ");
        buf_char(b, '\n');
    }
    indent_by(b, depth);
    buf_fmt(b, "%s%s: ", f->name, f->optional ? "?" : "");
    return print_type(p, b, f->type, depth, false);
}

static bool print_fields(ts_parser *p, buf *b, const ts_type *t, int depth, int which, bool *any) {
    for (size_t i = 0; i < t->n_fields; i++) {
        if (which >= 0 && t->fields[i].optional != (which == 1)) continue;
        buf_str(b, *any ? ",\n" : "\n");
        *any = true;
        if (b->failed || !print_field(p, b, &t->fields[i], depth)) return false;
    }
    return true;
}

static bool print_object(ts_parser *p, buf *b, const ts_type *t, int depth) {
    bool any = false;
    buf_char(b, '{');
    if (!print_fields(p, b, t, depth + 1, 0, &any) || !print_fields(p, b, t, depth + 1, 1, &any)) return false;
    if (t->extra || (t->extra_raw && !json_is_null(t->extra_raw))) {
        buf_str(b, any ? ",\n" : "\n");
        any = true;
        indent_by(b, depth + 1);
        buf_str(b, "[k: string]: ");
        if (t->extra) {
            if (!print_type(p, b, t->extra, depth + 1, false)) return false;
        } else if (json_is_boolean(t->extra_raw)) {
            buf_str(b, json_is_true(t->extra_raw) ? "any" : "never");
        } else {
            return ts_fail(p, "additionalProperties is neither a boolean nor a schema");
        }
    }
    if (any) {
        buf_char(b, '\n');
        indent_by(b, depth);
    }
    buf_char(b, '}');
    return true;
}

static bool print_array(ts_parser *p, buf *b, const ts_type *t, int depth) {
    const ts_type *item = t->members[0];
    buf comments = ts_tools_part_of(b);
    bool ok = print_comments(p, &comments, item, depth + 1), any = comments.len || comments.failed;
    buf_str(b, "Array<");
    if (any) buf_char(b, '\n');
    add_part(b, &comments);
    if (ok && any) {
        indent_by(b, depth + 1);
        ok = print_type(p, b, item, depth + 1, true);
        buf_char(b, '\n');
        indent_by(b, depth);
    } else if (ok) {
        ok = print_type(p, b, item, depth, false);
    }
    buf_char(b, '>');
    return ok;
}

/* A "type" that is no string prints as Python's str() of it, except where the original joins strings. */
static bool print_word(ts_parser *p, buf *b, const ts_type *t, bool joined) {
    if (!t->word)
        buf_str(b, t->name);
    else if (json_is_string(t->word) && !strcmp(json_string_value(t->word), "integer"))
        buf_str(b, "number");
    else if (json_is_string(t->word) || !joined)
        py_str(b, t->word);
    else
        return ts_fail(p, "a type is not a string");
    return true;
}

static void print_enum(buf *b, const ts_type *t) {
    size_t i;
    json_t *v;
    json_array_foreach(t->values, i, v) {
        if (i) buf_str(b, " | ");
        if (json_is_string(v)) buf_char(b, '"');
        py_str(b, v);
        if (json_is_string(v)) buf_char(b, '"');
    }
}

static void print_union(buf *b, const ts_type *t) {
    size_t i;
    json_t *v;
    json_array_foreach(t->values, i, v) {
        if (i) buf_str(b, " | ");
        buf_str(b, ts_union_word(json_string_value(v)));
    }
}

static bool print_type(ts_parser *p, buf *b, const ts_type *t, int depth, bool joined) {
    switch (t->kind) {
    case TS_WORD: return print_word(p, b, t, joined);
    case TS_OBJECT: return print_object(p, b, t, depth);
    case TS_ARRAY: return print_array(p, b, t, depth);
    case TS_ENUM: print_enum(b, t); return true;
    case TS_UNION: print_union(b, t); return true;
    case TS_REF: buf_str(b, t->name); return true;
    case TS_ANY_OF:
        for (size_t i = 0; i < t->n_members; i++) {
            if (i) buf_str(b, " | ");
            if (!print_type(p, b, t->members[i], depth, true)) return false;
        }
        return true;
    }
    return false;
}

/* interface NAME {...} for every definition registered before printing began: later ones stay unprinted, as
 * in the original, which iterates over a copy. */
static bool print_definitions(ts_parser *p, buf *b) {
    size_t n = p->n_defs;
    for (size_t i = 0; i < n; i++) {
        const json_t *schema = p->defs[i].schema;
        ts_type *t = ts_parse(p, schema);
        if (!t) return false;
        if (!json_is_object(schema)) return ts_fail(p, "an entry of $defs is not an object");
        if (!print_description(p, b, json_object_get(schema, "description"), 0, true)) return false;
        buf_fmt(b, "interface %s ", p->defs[i].name);
        if (!print_type(p, b, t, 0, false)) return false;
        buf_char(b, '\n');
    }
    return true;
}

static bool print_function(ts_parser *p, buf *b, const json_t *function) {
    if (!json_is_object(function)) return ts_fail(p, "function is not an object");
    const json_t *parameters = json_object_get(function, "parameters");
    const json_t *name = json_object_get(function, "name");
    ts_type *root = ts_parse_root(p, py_truthy(parameters) ? parameters : NULL);
    if (!root) return false;
    bool self = p->self_ref; /* decided here: a "#" that only a definition uses comes too late */
    if (self) {
        bool any = false;
        buf_str(b, "interface parameters {");
        if (!print_fields(p, b, root, 1, -1, &any)) return false;
        buf_str(b, any ? "\n}\n" : "}\n");
    }
    if (!print_definitions(p, b)) return false;
    buf type = ts_tools_part_of(b);
    buf_str(&type, "type ");
    if (name)
        py_str(&type, name);
    else
        buf_str(&type, "function");
    buf_str(&type, " = (_: ");
    bool ok = true;
    if (self)
        buf_str(&type, "parameters");
    else
        ok = print_type(p, &type, root, 0, false);
    buf_str(&type, ") => any;\n");
    ok = ok && print_description(p, b, json_object_get(function, "description"), 0, true);
    add_part(b, &type);
    return ok;
}

static bool print_tools(ts_parser *p, buf *b, const json_t *tools, size_t *n_functions) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        p->tool = i;
        if (!json_is_object(tool)) return ts_fail(p, "not an object");
        const json_t *type = json_object_get(tool, "type"), *function = json_object_get(tool, "function");
        if (!json_is_string(type) || strcmp(json_string_value(type), "function")) continue;
        if (!py_truthy(function)) continue;
        bool ok = print_function(p, b, function);
        ts_parser_clear(p);
        if (!ok) return false;
        (*n_functions)++;
    }
    return true;
}

status ts_tools_encode(buf *out, const json_t *tools, err *e) {
    ts_parser p = {0};
    buf text = ts_tools_part_of(out);
    size_t n_functions = 0;
    buf_str(&text, "# Tools\n\n## functions\nnamespace functions {\n");
    bool ok = print_tools(&p, &text, tools, &n_functions);
    buf_str(&text, "}\n");
    out->failed |= text.failed;
    out->full |= text.full;
    if (ok && n_functions) buf_add(out, text.data, text.len);
    status st = ST_OK;
    if (out->full)
        st = err_set(e, ST_LIMIT, "the tools' declaration is longer than the %zu bytes left for it", text.max);
    else if (out->failed || p.nomem)
        st = err_nomem(e, "tool declaration", text.len);
    else if (!ok)
        st = err_set(e, ST_UNSUPPORTED, "tools[%zu]: %s", p.tool, p.why);
    ts_parser_clear(&p);
    buf_free(&text);
    return st;
}
