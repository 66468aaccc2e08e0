/* A table of measured choices for matrix products. What was accepted is sorted, allowed, found again, and the same
 * when written and read. */
#include "kernels/gpu/gemm/gemm_tuned.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void check_rows(const gemm_table *t) {
    for (i64 i = 0; i < t->n; i++) {
        const gemm_row *r = &t->rows[i];
        gemm_source from;
        char text[GEMM_CHOICE_TEXT];
        gemm_choice how = gemm_choose(&r->call, t, r->library, &from);
        if (!gemm_allowed(&r->call, &how, r->library) || from != GEMM_TUNED) abort();
        if (memcmp(&how, &r->choice, sizeof how) || gemm_exact(t, &r->call, r->library) != r) abort();
        if (gemm_is_foreign(t, &r->call, r->library)) abort();
        if (!(r->us > 0) || !(r->default_us > 0)) abort();
        gemm_choose(&r->call, t, 100000000, &from);
        if (from != GEMM_FOREIGN) abort();
        gemm_choice_text(&how, text);
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    gemm_table t, again;
    err e = {0};
    if (gemm_parse(&t, (const char *)data, size, "t", "X", 2, &e) != ST_OK) {
        if (!e.text[0] || t.rows || t.n) abort();
        return 0;
    }
    check_rows(&t);
    buf text = {0};
    bool ok = gemm_header(&text);
    for (i64 i = 0; ok && i < t.n; i++) {
        t.rows[i].us = t.rows[i].default_us = 1; /* times are rounded, and may be rounded to 0 */
        ok = gemm_line(&text, "X", 2, &t.rows[i]);
    }
    if (!ok || gemm_parse(&again, text.data, text.len, "t", "X", 2, &e) != ST_OK || again.n != t.n) abort();
    for (i64 i = 0; i < t.n; i++)
        if (!gemm_same(&again.rows[i].call, &t.rows[i].call) || again.rows[i].library != t.rows[i].library ||
            memcmp(&again.rows[i].choice, &t.rows[i].choice, sizeof t.rows[i].choice))
            abort();
    gemm_free(&again);
    gemm_free(&t);
    buf_free(&text);
    return 0;
}
