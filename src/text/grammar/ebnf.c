/* text/grammar/ebnf.c: the tree of a GBNF text to nodes.
 *
 * Whatever needs no stack (no rule that uses itself, no large counts) becomes part of a lexeme, which is as large as
 * it can be: the matcher walks a dfa by one look at a table, and everything else by frames. */
#include "text/grammar/ebnf.h"
#include "text/grammar/ebnf_internal.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* Which rules need no stack. Most grammars have small rules behind those that use them; passes go both ways. What is
 * not found out by a few of them is only slower. */
static void ebnf_find_regular(ebnf *b) {
    i64 uses = 1;
    bool again = true;
    for (i32 i = 1; i < b->n_nodes; i++) uses += b->nodes[i].kind == EBNF_NAME || b->nodes[i].kind == EBNF_REPEAT;
    b->once_more = (i32)min_i64(EBNF_ONCE_MORE, EBNF_WRITTEN / uses);
    for (int pass = 0; pass < 8 && again; pass++) {
        again = false;
        for (i32 k = 0; k < b->n_rules; k++) {
            const ebnf_rule *rule = &b->rules[pass % 2 ? k : b->n_rules - 1 - k];
            for (i32 i = rule->first; i <= rule->body; i++) {
                const i32 had = b->nodes[i].size;
                ebnf_measure(b, &b->nodes[i]);
                again = again || had != b->nodes[i].size;
            }
        }
    }
}

static nfa_part ebnf_part(const ebnf *b, nfa *n, i32 at);

static nfa_part ebnf_part_rounds(const ebnf *b, nfa *n, const ebnf_node *x) {
    i64 must = x->min, may = x->max == UNBOUNDED ? 0 : x->max - x->min;
    nfa_part out;
    if (x->max != UNBOUNDED)
        out = nfa_nothing(n);
    else if (must)
        out = nfa_plus(n, ebnf_part(b, n, x->child)), must--;
    else
        out = nfa_star(n, ebnf_part(b, n, x->child));
    for (; may; may--) out = nfa_optional(n, nfa_then(n, ebnf_part(b, n, x->child), out));
    for (; must; must--) out = nfa_then(n, ebnf_part(b, n, x->child), out);
    return out;
}

static nfa_part ebnf_part(const ebnf *b, nfa *n, i32 at) {
    const ebnf_node *x = &b->nodes[at];
    switch (x->kind) {
    case EBNF_TEXT: return x->n ? nfa_bytes(n, b->bytes.data + x->of, (size_t)x->n) : nfa_nothing(n);
    case EBNF_CHARS: return nfa_chars(n, (const u32 *)b->ranges.data + x->of, (size_t)x->n);
    case EBNF_NAME: return ebnf_part(b, n, b->rules[x->of].body);
    case EBNF_REPEAT: return ebnf_part_rounds(b, n, x);
    case EBNF_ROW:
    case EBNF_CHOICE: break;
    }
    nfa_part out = ebnf_part(b, n, x->child);
    for (i32 c = b->nodes[x->child].next; c; c = b->nodes[c].next) {
        const nfa_part part = ebnf_part(b, n, c);
        out = x->kind == EBNF_ROW ? nfa_then(n, out, part) : nfa_or(n, out, part);
    }
    return out;
}

/* Equal for equal trees alone. */
static void ebnf_write_key(ebnf *b, i32 at) {
    const ebnf_node *x = &b->nodes[at];
    const i64 numbers[] = {x->kind, x->kind == EBNF_NAME ? x->of : x->n, x->min, x->max};
    buf_add(&b->key, numbers, x->kind == EBNF_REPEAT ? 4 * sizeof *numbers : 2 * sizeof *numbers);
    if (x->kind == EBNF_TEXT && x->n) buf_add(&b->key, b->bytes.data + x->of, (size_t)x->n);
    if (x->kind == EBNF_CHARS && x->n)
        buf_add(&b->key, b->ranges.data + x->of, 2 * (size_t)x->n * sizeof *b->ranges.data);
    for (i32 c = x->child; c; c = b->nodes[c].next) ebnf_write_key(b, c);
    buf_char(&b->key, -1);
}

/* One lexeme for all pieces that are equal. some: without the empty string. */
static i32 ebnf_lexeme(ebnf *b, i32 at, bool some) {
    while (b->nodes[at].kind == EBNF_NAME) at = b->rules[b->nodes[at].of].body;
    if (b->nodes[at].kind == EBNF_TEXT && !b->nodes[at].n && !some) return grammar_seq(b->g, NULL, 0);
    buf_clear(&b->key);
    buf_char(&b->key, some);
    ebnf_write_key(b, at);
    const i32 piece = b->key.failed || b->failed ? -1 : ebnf_number(&b->pieces, b->key.data, b->key.len);
    if (piece >= 0 && piece < (i32)b->lexemes.len) return b->lexemes.data[piece];
    if (piece >= EBNF_LEXEMES_MAX) return ebnf_stop(b, ST_LIMIT, "too many different texts and sets"), NODE_NONE;
    nfa *n = piece < 0 ? NULL : nfa_new();
    if (!n) return ebnf_stop(b, ST_NOMEM, "out of host memory"), NODE_NONE;
    nfa_part part = ebnf_part(b, n, at);
    if (some) part = nfa_not_empty(n, part);
    const i32 node = grammar_lexeme(b->g, grammar_dfa(b->g, n, &part, 1));
    ids_add(&b->lexemes, node);
    if (b->lexemes.failed) ebnf_stop(b, ST_NOMEM, "out of host memory");
    return node;
}

static i32 ebnf_rule_node(ebnf *b, i32 number) {
    ebnf_rule *rule = &b->rules[number];
    if (rule->node >= 0) return rule->node;
    if (b->nodes[rule->body].size) return rule->node = ebnf_lexeme(b, rule->body, false);
    ids_add(&b->todo, number);
    if (b->todo.failed) ebnf_stop(b, ST_NOMEM, "out of host memory");
    return rule->node = grammar_reserve(b->g);
}

static i32 ebnf_emit(ebnf *b, i32 at);

/* Rounds that may be empty need not be: then the matcher has fewer ways to count them. An optional end is a choice,
 * for which it keeps no frame: a list that goes on by naming itself does not grow. */
static i32 ebnf_emit_rounds(ebnf *b, ebnf_node x) {
    const ebnf_node *child = &b->nodes[x.child];
    while (child->kind == EBNF_REPEAT && !child->min && !child->size) {
        if (child->max == UNBOUNDED) return ebnf_emit(b, x.child);
        if (child->max != 1) break;
        x.child = child->child, x.min = 0;
        child = &b->nodes[x.child];
    }
    const bool some = child->size && child->empty;
    if (child->empty) x.min = 0;
    const i32 node = some ? ebnf_lexeme(b, x.child, true) : ebnf_emit(b, x.child);
    if (x.min == 1 && x.max == 1) return node;
    if (x.min || x.max != 1) return grammar_repeat(b->g, node, x.min, x.max);
    return grammar_alt(b->g, (const i32[]){node, grammar_seq(b->g, NULL, 0)}, 2);
}

/* Those that need no stack come first: the order of a choice means nothing. */
static i32 ebnf_sorted(ebnf *b, i32 first) {
    ebnf_list lists[2] = {0};
    for (i32 c = first, next; c; c = next) {
        next = b->nodes[c].next, b->nodes[c].next = 0;
        ebnf_link(b, &lists[!b->nodes[c].size], c);
    }
    if (!lists[0].last) return lists[1].first;
    b->nodes[lists[0].last].next = lists[1].first;
    return lists[0].first;
}

/* Cuts children off that make one lexeme together; *c: the first of them, then the one behind them. */
static i32 ebnf_cut(ebnf *b, ebnf_kind kind, i32 *c) {
    const i64 most = kind == EBNF_ROW ? EBNF_ROW_MAX : EBNF_CHOICE_MAX;
    ebnf_list list = {*c, *c};
    i64 size = b->nodes[*c].size + 1;
    for (i32 i = b->nodes[*c].next; i && b->nodes[i].size; i = b->nodes[i].next) {
        if ((size += b->nodes[i].size + 1) > most) break;
        list.last = i;
    }
    *c = b->nodes[list.last].next, b->nodes[list.last].next = 0;
    return ebnf_add_list(b, kind, list, 0);
}

static i32 ebnf_emit_list(ebnf *b, ebnf_kind kind, i32 first) {
    ids_buf made = {0};
    for (i32 c = kind == EBNF_CHOICE ? ebnf_sorted(b, first) : first; c && !b->failed;) {
        if (b->nodes[c].size) {
            const i32 piece = ebnf_cut(b, kind, &c);
            ids_add(&made, ebnf_lexeme(b, piece, false));
        } else {
            ids_add(&made, ebnf_emit(b, c));
            c = b->nodes[c].next;
        }
    }
    if (made.failed) ebnf_stop(b, ST_NOMEM, "out of host memory");
    const i32 n = (i32)made.len;
    const i32 node = kind == EBNF_ROW ? grammar_seq(b->g, made.data, n) : grammar_alt(b->g, made.data, n);
    ids_free(&made);
    return node;
}

static i32 ebnf_emit(ebnf *b, i32 at) {
    const ebnf_node x = b->nodes[at];
    if (b->failed) return NODE_NONE;
    if (x.size) return ebnf_lexeme(b, at, false);
    if (x.kind == EBNF_NAME) return ebnf_rule_node(b, x.of);
    return x.kind == EBNF_REPEAT ? ebnf_emit_rounds(b, x) : ebnf_emit_list(b, x.kind, x.child);
}

static i32 ebnf_emit_rules(ebnf *b) {
    const i32 root = ebnf_rule_node(b, b->root);
    for (size_t i = 0; i < b->todo.len && !b->failed; i++) {
        const ebnf_rule rule = b->rules[b->todo.data[i]];
        grammar_define(b->g, rule.node, ebnf_emit(b, rule.body));
    }
    return root;
}

static void ebnf_free(ebnf *b) {
    tdestroy(b->names.tree, free), tdestroy(b->pieces.tree, free);
    ids_free(&b->ranges), ids_free(&b->todo), ids_free(&b->lexemes);
    buf_free(&b->bytes), buf_free(&b->key);
    free(b->nodes), free(b->rules);
}

status ebnf_to_node(grammar *g, const char *text, size_t len, i32 *node, err *e) {
    ebnf b = {.text = (const u8 *)text, .len = len, .e = e, .g = g};
    *node = NODE_NONE;
    ebnf_parse(&b);
    if (!b.failed) {
        ebnf_find_regular(&b);
        *node = ebnf_emit_rules(&b);
    }
    status st = b.failed;
    if (st == ST_OK && g->failed.code != ST_OK) {
        st = g->failed.code;
        if (e) *e = g->failed;
        err_prefix(e, "grammar");
    }
    ebnf_free(&b);
    return st;
}

status grammar_of_ebnf(grammar **out, const char *text, size_t len, err *e) {
    grammar *g = grammar_new();
    i32 root;
    *out = NULL;
    if (!g) return err_nomem(e, "a grammar", sizeof *g);
    status st = ebnf_to_node(g, text, len, &root, e);
    if (st == ST_OK) {
        st = grammar_finish(g, root, e);
        if (st != ST_OK) err_prefix(e, "grammar");
    }
    if (st == ST_OK)
        *out = g;
    else
        grammar_free(g);
    return st;
}
