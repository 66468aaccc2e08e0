/* A table of measured choices. What was accepted is sorted, allowed, found again, and the same when written and
 * read. */
#include "kernels/gpu/moe/moe_tuned.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static void check_rows(const tuned_table *t) {
    for (i64 i = 0; i < t->n; i++) {
        const tuned_row *r = &t->rows[i];
        moe_source from;
        moe_choice how = moe_choose(&r->call, t, &from);
        if (!moe_allowed(&r->call, &r->choice) || !moe_allowed(&r->call, &how) || from != MOE_TUNED) abort();
        if (tuned_exact(t, &r->call) != r) abort();
        if (!(r->us > 0) || !(r->default_us > 0)) abort();
    }
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    tuned_table t, again;
    err e = {0};
    if (tuned_parse(&t, (const char *)data, size, "t", "X", 2, &e) != ST_OK) {
        if (!e.text[0] || t.rows || t.n) abort();
        return 0;
    }
    check_rows(&t);
    buf text = {0};
    bool ok = tuned_header(&text);
    for (i64 i = 0; ok && i < t.n; i++) {
        t.rows[i].us = t.rows[i].default_us = 1; /* times are rounded, and may be rounded to 0 */
        ok = tuned_line(&text, "X", 2, &t.rows[i]);
    }
    if (!ok || tuned_parse(&again, text.data, text.len, "t", "X", 2, &e) != ST_OK || again.n != t.n) abort();
    for (i64 i = 0; i < t.n; i++)
        if (memcmp(&again.rows[i].call, &t.rows[i].call, sizeof t.rows[i].call) ||
            memcmp(&again.rows[i].choice, &t.rows[i].choice, sizeof t.rows[i].choice))
            abort();
    tuned_free(&again);
    tuned_free(&t);
    buf_free(&text);
    return 0;
}
