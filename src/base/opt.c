#include "base/opt.h"
#include "base/log.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool opt_same_name(const char *given, size_t n, const char *name, size_t len) {
    if (len != n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = given[i] == '_' ? '-' : given[i];
        if (c != name[i]) return false;
    }
    return true;
}

static const opt_spec *find_long(const opt_spec *specs, size_t n, const char *name, size_t len) {
    for (size_t i = 0; i < n; i++)
        if (specs[i].name && opt_same_name(name, len, specs[i].name, strlen(specs[i].name))) return &specs[i];
    return NULL;
}

static const opt_spec *find_letter(const opt_spec *specs, size_t n, char c) {
    for (size_t i = 0; i < n; i++)
        if (specs[i].letter == c) return &specs[i];
    return NULL;
}

/* One of the list; NAME:N there stands for NAME: and one to four digits. */
static bool opt_in_enum(const char *list, const char *v) {
    size_t n = strlen(v);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|"), fixed = len > 2 && !memcmp(p + len - 2, ":N", 2) ? len - 1 : len;
        if (n >= fixed && memcmp(p, v, fixed) == 0) {
            size_t digits = strspn(v + fixed, "0123456789");
            if (fixed + digits == n && (fixed == len ? !digits : digits && digits <= 4)) return true;
        }
        p += len + (p[len] == '|');
    }
    return false;
}

static status opt_store(const opt_spec *s, const char *v, err *e) {
    char *end;
    errno = 0;
    switch (s->kind) {
    case OPT_HEADING:
    case OPT_TABLE: break; /* have no name */
    case OPT_FLAG: break;  /* handled by the caller: a flag takes no value */
    case OPT_STR: *(const char **)s->dst = v; break;
    case OPT_NUMBERS:
    case OPT_LIST: {
        opt_list *l = s->dst;
        if (l->n == (int)COUNT_OF(l->items))
            return err_set(e, ST_INPUT, "--%s given more than %d times", s->name, l->n);
        l->items[l->n++] = v;
        break;
    }
    case OPT_ENUM:
        if (!opt_in_enum(s->arg, v)) return err_set(e, ST_INPUT, "--%s is \"%s\", not one of %s", s->name, v, s->arg);
        *(const char **)s->dst = v;
        break;
    case OPT_INT: {
        long long x = strtoll(v, &end, 10);
        if (errno || end == v || *end) return err_set(e, ST_INPUT, "--%s is \"%s\", not a whole number", s->name, v);
        if (s->lo != s->hi && ((f64)x < s->lo || (f64)x > s->hi))
            return err_set(e, ST_INPUT, "--%s is %lld, outside %.0f..%.0f", s->name, x, s->lo, s->hi);
        *(i64 *)s->dst = x;
        break;
    }
    case OPT_REAL: {
        f64 x = strtod(v, &end);
        if (errno || end == v || *end || !isfinite(x))
            return err_set(e, ST_INPUT, "--%s is \"%s\", not a finite number", s->name, v);
        if (s->lo != s->hi && (x < s->lo || x > s->hi))
            return err_set(e, ST_INPUT, "--%s is %g, outside %g..%g", s->name, x, s->lo, s->hi);
        *(f64 *)s->dst = x;
        break;
    }
    }
    return ST_OK;
}

typedef struct {
    const opt_spec *specs;
    size_t n;
    int argc, at; /* the word that is read */
    char **argv;
} opt_words;

/* The row for argv's word; *value is its value in the same word or the next one, NULL: none. */
static const opt_elsewhere *find_elsewhere(const opt_words *w, const char **value) {
    const char *a = w->argv[w->at], *name = a[1] == '-' ? a + 2 : a;
    size_t len = strcspn(name, "=");
    *value = name[len] ? name + len + 1 : w->at + 1 < w->argc ? w->argv[w->at + 1] : NULL;
    for (size_t i = 0; i < w->n; i++) {
        const opt_elsewhere *rows = w->specs[i].dst;
        for (size_t k = 0; w->specs[i].kind == OPT_TABLE && k < (size_t)w->specs[i].hi; k++) {
            const opt_elsewhere *r = &rows[k];
            size_t fixed = strcspn(r->name, "*");
            bool same = opt_same_name(name, r->name[fixed] && len > fixed ? fixed : len, r->name, fixed);
            if (same && (!r->value || (*value && !strcmp(*value, r->value)))) return r;
        }
    }
    return NULL;
}

/* An option of another program that is not simply one of ours: taken with a notice, or refused. */
static status other_option(opt_words *w, const opt_elsewhere *r, const char *value, err *e) {
    const char *a = w->argv[w->at];
    const int len = (int)strcspn(a, "=");
    const bool own_value = a[len] == '=';
    if (r->kind == ELSEWHERE_REFUSED) return err_set(e, ST_INPUT, "%.*s: %s", len, a, r->text);
    if (own_value && !r->has_value) return err_set(e, ST_INPUT, "%.*s takes no value", len, a);
    if (r->has_value && !value) return err_set(e, ST_INPUT, "%s needs a value", a);
    log_note("%.*s changes nothing here: %s", len, a, r->text);
    if (r->has_value && !own_value) w->at++;
    return ST_OK;
}

/* Is the word made of numbers, as "1" or "0,0,1"? */
static bool all_digits(const char *word) { return *word && strspn(word, "0123456789,") == strlen(word); }

/* Our option s, whose value in the same word is `value` if there is one. */
static status own_option(opt_words *w, const opt_spec *s, const char *value, err *e) {
    if (s->kind == OPT_FLAG) {
        if (value) return err_set(e, ST_INPUT, "--%s takes no value", s->name);
        *(bool *)s->dst = true;
        return ST_OK;
    }
    if (!value) {
        if (w->at + 1 >= w->argc) return err_set(e, ST_INPUT, "--%s needs a value (%s)", s->name, s->arg);
        value = w->argv[++w->at];
    }
    status st = opt_store(s, value, e);
    while (st == ST_OK && s->kind == OPT_NUMBERS && w->at + 1 < w->argc && all_digits(w->argv[w->at + 1]))
        st = opt_store(s, w->argv[++w->at], e);
    return st;
}

/* One option; moves on past a value taken from the next word. */
static status parse_one(opt_words *w, bool *help, err *e) {
    const char *a = w->argv[w->at], *value = NULL, *next;
    const opt_spec *s = NULL;
    const opt_elsewhere *r = NULL;
    if (a[1] == '-') {
        size_t len = strcspn(a + 2, "=");
        if (a[2 + len] == '=') value = a + 3 + len;
        s = find_long(w->specs, w->n, a + 2, len);
        if (!s) r = find_elsewhere(w, &next);
    } else {
        r = find_elsewhere(w, &next); /* before letters: -tp is not -t p */
        s = r ? NULL : find_letter(w->specs, w->n, a[1]);
        if (s && a[2]) value = a + 2;
        if (r && strchr(a, '=')) value = strchr(a, '=') + 1;
    }
    if (r && r->kind == ELSEWHERE_SAME) s = find_long(w->specs, w->n, r->text, strlen(r->text));
    if (s) return own_option(w, s, value, e);
    if (r) return other_option(w, r, next, e);
    if (!strcmp(a, "--help") || !strcmp(a, "-h")) return *help = true, ST_OK;
    return err_set(e, ST_INPUT, "unknown option %s (--help lists them)", a);
}

/* Two entries of one name: the second could never be given. */
static bool opt_names_differ(const opt_spec *specs, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (specs[i].name && find_long(specs, i, specs[i].name, strlen(specs[i].name))) return false;
    return true;
}

status opt_parse(const opt_spec *specs, size_t n, int argc, char **argv, opt_list *words, bool *help, err *e) {
    assert(opt_names_differ(specs, n));
    *help = false;
    opt_words w = {.specs = specs, .n = n, .argc = argc, .argv = argv};
    for (w.at = 1; w.at < argc; w.at++) {
        const char *a = argv[w.at];
        status st = ST_OK;
        if (a[0] == '-' && a[1]) {
            st = parse_one(&w, help, e);
        } else if (!words) {
            st = err_set(e, ST_INPUT, "unexpected word \"%s\"", a);
        } else if (words->n == (int)COUNT_OF(words->items)) {
            st = err_set(e, ST_INPUT, "more than %d words", words->n);
        } else {
            words->items[words->n++] = a;
        }
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

void opt_print_help(const opt_spec *specs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char left[96];
        if (specs[i].kind == OPT_TABLE) continue;
        if (specs[i].kind == OPT_HEADING) {
            printf("\n%s:\n", specs[i].help);
            continue;
        }
        snprintf(left, sizeof left, "%s%c%s--%s%s%s", specs[i].letter ? "-" : " ",
                 specs[i].letter ? specs[i].letter : ' ', specs[i].letter ? ", " : "  ", specs[i].name,
                 specs[i].arg ? " " : "", specs[i].arg ? specs[i].arg : "");
        if (strlen(left) > 34)
            printf("  %s\n  %-34s %s\n", left, "", specs[i].help);
        else
            printf("  %-34s %s\n", left, specs[i].help);
    }
}

const char *opt_env(const char *name) {
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}
