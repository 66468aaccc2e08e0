#include "base/opt.h"
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool opt_same_name(const char *given, size_t n, const char *name) {
    if (strlen(name) != n) return false;
    for (size_t i = 0; i < n; i++) {
        char c = given[i] == '_' ? '-' : given[i];
        if (c != name[i]) return false;
    }
    return true;
}

static const opt_spec *find_long(const opt_spec *specs, size_t n, const char *name, size_t len) {
    for (size_t i = 0; i < n; i++)
        if (specs[i].name && opt_same_name(name, len, specs[i].name)) return &specs[i];
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
    case OPT_HEADING: break; /* has no name */
    case OPT_FLAG: break;    /* handled by the caller: a flag takes no value */
    case OPT_STR: *(const char **)s->dst = v; break;
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

/* One option at argv[*i]; moves *i past a value taken from the next word. */
static status parse_one(const opt_spec *specs, size_t n, int argc, char **argv, int *i, bool *help, err *e) {
    const char *a = argv[*i], *value = NULL;
    const opt_spec *s;
    if (a[1] == '-') {
        size_t len = strcspn(a + 2, "=");
        if (a[2 + len] == '=') value = a + 3 + len;
        s = find_long(specs, n, a + 2, len);
        if (!s && strcmp(a, "--help") == 0) return *help = true, ST_OK;
    } else {
        s = find_letter(specs, n, a[1]);
        if (s && a[2]) value = a + 2;
        if (!s && strcmp(a, "-h") == 0) return *help = true, ST_OK;
    }
    if (!s) return err_set(e, ST_INPUT, "unknown option %s (--help lists them)", a);
    if (s->kind == OPT_FLAG) {
        if (value) return err_set(e, ST_INPUT, "--%s takes no value", s->name);
        *(bool *)s->dst = true;
        return ST_OK;
    }
    if (!value) {
        if (*i + 1 >= argc) return err_set(e, ST_INPUT, "--%s needs a value (%s)", s->name, s->arg);
        value = argv[++*i];
    }
    return opt_store(s, value, e);
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
    for (int i = 1; i < argc; i++) {
        status st = ST_OK;
        if (argv[i][0] == '-' && argv[i][1]) {
            st = parse_one(specs, n, argc, argv, &i, help, e);
        } else if (!words) {
            st = err_set(e, ST_INPUT, "unexpected word \"%s\"", argv[i]);
        } else if (words->n == (int)COUNT_OF(words->items)) {
            st = err_set(e, ST_INPUT, "more than %d words", words->n);
        } else {
            words->items[words->n++] = argv[i];
        }
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

void opt_print_help(const opt_spec *specs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char left[96];
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
