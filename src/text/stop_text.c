#include "text/stop_text.h"
#include <stdlib.h>
#include <string.h>

status stop_set_add(stop_set *s, const char *text, size_t len, err *e) {
    if (!len) return ST_OK;
    if (s->n == STOP_STRINGS_MAX) return err_set(e, ST_LIMIT, "more than %d stop strings", STOP_STRINGS_MAX);
    if (len > STOP_STRING_BYTES)
        return err_set(e, ST_LIMIT, "a stop string of %zu bytes, at most %d are allowed", len, STOP_STRING_BYTES);
    stop_string *p = &s->all[s->n];
    p->text = malloc(len + 1);
    p->fail = malloc(len * sizeof *p->fail);
    if (!p->text || !p->fail) {
        free(p->text);
        free(p->fail);
        *p = (stop_string){0};
        return err_nomem(e, "stop strings", len);
    }
    memcpy(p->text, text, len);
    p->text[len] = 0;
    p->len = len;
    p->fail[0] = 0;
    for (size_t i = 1, k = 0; i < len; i++) {
        while (k && text[i] != text[k]) k = p->fail[k - 1];
        if (text[i] == text[k]) k++;
        p->fail[i] = (u16)k;
    }
    s->n++;
    return ST_OK;
}

void stop_set_free(stop_set *s) {
    for (size_t i = 0; i < s->n; i++) {
        free(s->all[i].text);
        free(s->all[i].fail);
    }
    s->n = 0;
}

/* One more byte for one string: how many of its bytes the text ends with now. */
static size_t advance(const stop_string *p, size_t k, char c) {
    while (k && p->text[k] != c) k = p->fail[k - 1];
    return p->text[k] == c ? k + 1 : 0;
}

int stop_feed(stop_state *st, const stop_set *s, const char *text, size_t len, bool keep, buf *out) {
    if (!s->n || !len) {
        buf_add(out, text, len);
        return -1;
    }
    size_t longest = 0;
    for (size_t i = 0; i < len; i++) {
        int hit = -1;
        longest = 0;
        for (size_t k = 0; k < s->n; k++) {
            size_t m = advance(&s->all[k], st->matched[k], text[i]);
            st->matched[k] = (u16)m;
            if (m > longest) longest = m;
            if (m == s->all[k].len && (hit < 0 || m > s->all[hit].len)) hit = (int)k;
        }
        if (hit < 0) continue;
        buf_add(&st->held, text, i + 1);
        size_t n = s->all[hit].len;
        buf_add(out, st->held.data, st->held.failed ? 0 : st->held.len - (keep ? 0 : n));
        out->failed |= st->held.failed;
        st->held.len = 0;
        return hit;
    }
    buf_add(&st->held, text, len);
    out->failed |= st->held.failed;
    if (st->held.failed || st->held.len <= longest) return -1;
    size_t certain = st->held.len - longest;
    buf_add(out, st->held.data, certain);
    memmove(st->held.data, st->held.data + certain, longest);
    st->held.len = longest;
    return -1;
}

void stop_flush(stop_state *st, buf *out) {
    if (st->held.len) buf_add(out, st->held.data, st->held.len);
    st->held.len = 0;
    memset(st->matched, 0, sizeof st->matched);
}
